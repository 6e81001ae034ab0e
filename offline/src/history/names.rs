//! Where zones stand: their paths, while names come and go.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;

use betr_core::format::{Key, MetaKey, MetaValue, RangeDelete};
use betr_core::fs::{Fs, ORPHAN_ZONE, ROOT_ZONE};
use betr_core::ids::*;
use betr_core::node::RangeSet;

/// So long a path is told at the most: what is longer is cut at the beginning.
const PATH_MAX: usize = 16 << 10;

/// An entry of the metadata index that leads to a zone.
#[derive(Clone)]
struct Entry {
    key: Key,
    /// The message that made it; the first of all for those of the checkpoint.
    msn: Msn,
}

/// The entries that lead to each zone: several for a file of several names. The first of a checkpoint's is shown, and of the
/// log's the last that was made.
#[derive(Default)]
pub struct Names {
    /// What the log made since the checkpoint, the newest last.
    learned: HashMap<ZoneId, Vec<Entry>>,
    /// The keys that it removed.
    gone: RangeSet,
    /// What the checkpoint says, the first key last; asked for when it is needed first.
    base: OnceCell<HashMap<ZoneId, Vec<Entry>>>,
    fs: Option<Rc<Fs>>,
}

impl Names {
    /// Those of a checkpoint, as far as it can be read.
    pub(super) fn of(fs: Option<Rc<Fs>>) -> Names {
        Names { fs, ..Names::default() }
    }

    /// Those of a file system, as far as it can be read: one pass over its metadata index.
    pub fn of_fs(fs: &Fs) -> Names {
        Names { base: OnceCell::from(entries(fs)), ..Names::default() }
    }

    /// The same, with that pass only once a path is asked for that does not begin in the root's zone.
    pub fn when_needed(fs: Fs) -> Names {
        Names::of(Some(Rc::new(fs)))
    }

    /// The entry that leads to a zone; where all are gone, the one that was there last.
    fn place_of(&self, zone: ZoneId) -> Option<MetaKey> {
        let learned = self.learned.get(&zone).map_or(&[][..], Vec::as_slice);
        let is_there = |entry: &&Entry| !self.is_gone(entry);
        let found = learned.iter().rev().find(is_there).or_else(|| {
            let base = || self.fs.as_deref().map(entries).unwrap_or_default();
            let base = self.base.get_or_init(base).get(&zone).map_or(&[][..], Vec::as_slice);
            base.iter().rev().find(is_there).or(learned.last()).or(base.last())
        });
        MetaKey::decode(&found?.key)
    }

    fn is_gone(&self, entry: &Entry) -> bool {
        self.gone.covering(&entry.key).is_some_and(|removed| removed > entry.msn)
    }

    /// A message made an entry of the metadata index, which may lead to a zone.
    pub(super) fn learn(&mut self, place: &MetaKey, value: &MetaValue, msn: Msn) {
        let Some(zone) = zone_of(place, value) else { return };
        let mut entries = self.learned.remove(&zone).unwrap_or_default();
        let key = place.encode();
        entries.retain(|entry| entry.key != key && !self.is_gone(entry));
        entries.push(Entry { key, msn });
        self.learned.insert(zone, entries);
    }

    /// A message removed an entry.
    pub(super) fn forget(&mut self, place: &MetaKey, value: &MetaValue, msn: Msn) {
        if zone_of(place, value).is_some() {
            let lo = place.encode();
            self.forget_range(&lo, &lo.successor(), msn);
        }
    }

    /// A message removed all entries from one key to another.
    pub(super) fn forget_range(&mut self, lo: &Key, hi: &Key, msn: Msn) {
        if lo < hi {
            self.gone.insert(RangeDelete { lo: Key::copied(lo), hi: Key::copied(hi), msn });
        }
    }

    /// The entry that leads to a zone, if the key is that of its root.
    pub(super) fn entry_of(&self, place: &MetaKey) -> Option<MetaKey> {
        if place.path.is_empty() { self.place_of(place.zone) } else { None }
    }

    /// The path of what stands at a key; what leads to the root nowhere begins with its zone, and what is an orphan
    /// with `(orphans)`.
    pub fn path(&self, place: &MetaKey) -> Vec<u8> {
        let own = place.path.join(&b'/');
        let (mut zone, mut len) = (place.zone, own.len());
        let mut parts = if own.is_empty() { Vec::new() } else { vec![own] };
        let start = loop {
            match zone {
                ROOT_ZONE => break Vec::new(),
                ORPHAN_ZONE => break b"(orphans)".to_vec(),
                _ => {}
            }
            let Some(entry) = self.place_of(zone) else {
                break zone.to_string().into_bytes();
            };
            let path = entry.path.join(&b'/');
            len += path.len() + 1;
            // Damaged references may go round in circles.
            if len > PATH_MAX {
                break b"...".to_vec();
            }
            parts.push(path);
            zone = entry.zone;
        };
        let mut whole = start;
        for part in parts.iter().rev() {
            whole.push(b'/');
            whole.extend_from_slice(part);
        }
        if whole.is_empty() {
            whole.push(b'/');
        }
        whole
    }
}

/// The zone that an entry leads to.
fn zone_of(place: &MetaKey, value: &MetaValue) -> Option<ZoneId> {
    let zone = match value {
        MetaValue::ZoneRef(reference) => Some(reference.zone),
        MetaValue::Inode(inode) => inode.data_zone,
    };
    zone.filter(|_| !place.path.is_empty() && place.xattr.is_none())
}

/// The entries of a file system that lead to zones, up to where it cannot be read; each zone's in the reverse order of keys.
fn entries(fs: &Fs) -> HashMap<ZoneId, Vec<Entry>> {
    let mut found: HashMap<ZoneId, Vec<Entry>> = HashMap::new();
    let entries = fs.volume().cursor(TreeId::Metadata, Key::default(), None);
    for (key, value) in entries.map_while(Result::ok) {
        let place = MetaKey::decode(&key).filter(|place| place.xattr.is_none());
        let value = place.and_then(|place| Some((MetaValue::decode(&value, None).ok()?, place)));
        if let Some(zone) = value.and_then(|(value, place)| zone_of(&place, &value)) {
            found.entry(zone).or_default().push(Entry { key: Key::copied(&key), msn: Msn(0) });
        }
    }
    found.values_mut().for_each(|entries| entries.reverse());
    found
}
