//! The places of the objects that keys belong to, in either of two states of a volume. A comparison reads only
//! these places.

use std::collections::BTreeSet;

use super::{Differing, DifferingEntries, Half, SideResult, Touched};
use betr_core::error::Result;
use betr_core::format::{FileType, Key, MetaKey, MetaValue, parse_data_key};
use betr_core::fs::{Fs, ORPHAN_ZONE, ROOT_ZONE};
use betr_core::ids::*;
use betr_core::tree::KeyScan;

/// 2^18 places are kept at most: some 50 MiB with usual paths, 256 MiB with the longest. States that differ in more are
/// walked.
const PLACES_MAX: usize = 1 << 18;

/// 4,194,304 keys are scanned at most for references to zones: after as many a walk takes no longer.
const SCANNED_MAX: u64 = 1 << 22;

/// The keys of all objects that may differ in two states, and of the references to their zones.
#[derive(Default)]
pub(super) struct Places {
    keys: BTreeSet<Key>,
    /// Data zones of files whose inodes differ.
    data_zones: BTreeSet<ZoneId>,
}

impl Places {
    /// The places of the objects of `touched`. `None` if there are too many, or if one cannot be located: a zone of
    /// links may have any names.
    pub(super) fn of(a: Half<'_>, b: Half<'_>, touched: &Touched) -> SideResult<Option<Places>> {
        let mut places = Places::default();
        let [metadata, data] = touched;
        for range in metadata.iter() {
            places.add_entries(a, b, &range.lo, &range.hi)?;
        }
        for half in [a, b] {
            for range in data.iter() {
                if !half.read(|fs| places.add_files(fs, &range.lo, &range.hi))? {
                    return Ok(None);
                }
            }
        }
        let mut waiting: Vec<ZoneId> = places.zones();
        let (mut seen, mut scanned) = (BTreeSet::from([ROOT_ZONE]), 0);
        while let Some(zone) = waiting.pop().filter(|_| !places.are_too_many()) {
            if !seen.insert(zone) {
                continue;
            }
            for half in [a, b] {
                match half.read(|fs| reference_to(fs, zone, &mut scanned))? {
                    Reference::At(place) => {
                        waiting.push(place.zone());
                        places.keys.insert(place.encode());
                    }
                    Reference::Anywhere => return Ok(None),
                    Reference::None => {}
                }
            }
        }
        Ok(Some(places).filter(|places| !places.are_too_many()))
    }

    fn are_too_many(&self) -> bool {
        self.keys.len() > PLACES_MAX
    }

    /// Adds the differing entries of the metadata index.
    fn add_entries(&mut self, a: Half<'_>, b: Half<'_>, lo: &Key, hi: &Key) -> SideResult<()> {
        let volumes = [a.fs.volume(), b.fs.volume()];
        let mut entries = DifferingEntries::new(volumes, TreeId::Metadata, lo, Some(hi));
        while !self.are_too_many()
            && let Some(Differing { key, first, second }) = entries.next_entry()?
        {
            first.iter().chain(&second).for_each(|value| self.add(&key, value));
        }
        Ok(())
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let Some(place) = MetaKey::decode(key) else { return };
        // A value that does not decode is an error of the comparison of its path.
        if place.xattr().is_none()
            && let Ok(MetaValue::Inode(inode)) = MetaValue::decode(value, None)
        {
            self.data_zones.extend(inode.data_zone);
        }
        if place.zone() != ORPHAN_ZONE {
            self.keys.insert(place.object().encode());
        }
    }

    /// Adds the files with blocks within `[lo, hi)` of the data index. Returns false if one has a data zone and equal
    /// inodes: then it cannot be located.
    fn add_files(&mut self, fs: &Fs, lo: &Key, hi: &Key) -> Result<bool> {
        let mut lo = lo.clone();
        while !self.are_too_many() {
            let mut scan = KeyScan::new(TreeId::Data, lo, Some(hi.clone()));
            let Some((key, _)) = scan.next(fs.volume().store())? else { break };
            let prefix = parse_data_key(&key).map_or(&key[..], |(prefix, _)| prefix);
            match prefix.try_into().map(u64::from_be_bytes) {
                Ok(zone) if !self.data_zones.contains(&ZoneId(zone)) => return Ok(false),
                Ok(_) => {}
                Err(_) => {
                    // A key that belongs to no file has no path.
                    let place = MetaKey::decode(prefix).filter(|place| place.xattr().is_none());
                    if place.is_some_and(|place| place.zone() != ORPHAN_ZONE) {
                        self.keys.insert(Key::copied(prefix));
                    }
                }
            }
            // After the last possible block of the file.
            lo = Key::new([prefix, &[0xff; 9]].concat());
        }
        Ok(true)
    }

    /// The zones of the places.
    fn zones(&self) -> Vec<ZoneId> {
        let mut zones = Vec::new();
        let mut at = Key::default();
        while let Some(key) = self.keys.range(at..).next() {
            let Some(place) = MetaKey::beginning(key) else { break };
            zones.push(place.zone());
            let Some(next) = place.zone().0.checked_add(1) else { break };
            at = MetaKey::root(ZoneId(next)).encode();
        }
        zones
    }

    /// The names in a directory with a place below them, in order.
    pub(super) fn names(&self, place: &MetaKey) -> BTreeSet<Vec<u8>> {
        let (mut at, end) = place.subtree_range();
        let mut names = BTreeSet::new();
        while let Some(key) = self.keys.range(at..end.clone()).next() {
            let Some(below) = MetaKey::beginning(key) else { break };
            let mut rest = below.names().skip(place.depth());
            let Some(name) = rest.next() else { break };
            at = match rest.next() {
                None => key.successor(),
                Some(_) => place.child(name).subtree_range().1,
            };
            names.insert(name.to_vec());
        }
        names
    }
}

/// The place of the reference to a zone.
enum Reference {
    At(MetaKey),
    /// There may be several.
    Anywhere,
    /// There is no such zone.
    None,
}

/// The reference to a zone, which its root states. Adds the number of keys scanned for it to `scanned`.
fn reference_to(fs: &Fs, zone: ZoneId, scanned: &mut u64) -> Result<Reference> {
    let root = MetaKey::root(zone).encode();
    let Some(value) = fs.volume().get(TreeId::Metadata, &root)? else {
        return Ok(Reference::None);
    };
    let parent = match MetaValue::decode(&value, None) {
        Ok(MetaValue::Inode(inode)) if inode.kind == FileType::Directory => inode.parent,
        _ => None,
    };
    let Some(parent) = parent else { return Ok(Reference::Anywhere) };
    let (lo, hi) = MetaKey::root(parent.zone).subtree_range();
    let mut scan = KeyScan::new(TreeId::Metadata, lo, Some(hi));
    while let Some((key, _)) = scan.next(fs.volume().store())? {
        *scanned += 1;
        if *scanned > SCANNED_MAX {
            return Ok(Reference::Anywhere);
        }
        let Some(place) = MetaKey::decode(&key) else { continue };
        if place.xattr().is_some() || place.name() != parent.name {
            continue;
        }
        let value = fs.volume().get(TreeId::Metadata, &key)?;
        let value = value.and_then(|value| MetaValue::decode(&value, None).ok());
        if let Some(MetaValue::ZoneRef(reference)) = value
            && reference.zone == zone
        {
            return Ok(Reference::At(place));
        }
    }
    Ok(Reference::Anywhere)
}
