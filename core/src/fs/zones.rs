//! Zones (BetrFS 0.2 §4): they split before a directory outgrows C1, and merge when they are smaller than C0.
//!
//! A split is a transaction of its own before the operation that needs it, so that the rules hold between any two
//! transactions. Merges wait for a checkpoint of the file system ([`Fs::checkpoint`], [`Shared::checkpoint`](super::Shared::checkpoint)); those that the volume makes by itself merge nothing. The list of zones that are too small is stored in attributes of
//! the orphan directory, written by the operations that make them so. A zone that does not fit into the one above is
//! not merged.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::{Counts, whole_blocks};
use super::relocate::fits;
use super::remove::is_below;
use super::{Delta, Draft, Fs, ORPHAN_ZONE, Object, Placed, ROOT_ZONE};
use crate::error::{Error, Result};
use crate::format::limits::KEY_MAX;
use crate::format::*;
use crate::ids::*;
use crate::tree::KeyScan;

/// 64 levels: the most directories on a path within one zone. An operation changes the counters of each directory up to
/// the zone's root, and the total length of their keys is quadratic in the depth.
const DEPTH_MAX: usize = 64;

/// A zone that is too small.
#[derive(Clone, Debug)]
pub(super) struct SmallZone {
    /// The zone of its reference; for a data zone, that of its file.
    pub at: ZoneId,
    /// Its root or file, once it has been found.
    pub object: Option<Object>,
}

/// Zones that are too small.
pub(super) type Small = BTreeMap<ZoneId, SmallZone>;

const SMALL: &[u8] = b"small.";

/// The name of the orphan directory's attribute for a zone that is too small.
pub fn small_name(zone: ZoneId) -> Vec<u8> {
    [SMALL, format!("{:016x}", zone.0).as_bytes()].concat()
}

/// Decodes such an attribute: the zone that is too small, and the one above.
pub fn parse_small(name: &[u8], value: &[u8]) -> Option<(ZoneId, ZoneId)> {
    let digits = std::str::from_utf8(name.strip_prefix(SMALL)?).ok()?;
    let zone = ZoneId(u64::from_str_radix(digits, 16).ok()?);
    let at = ZoneId(u64::from_le_bytes(value.try_into().ok()?));
    (small_name(zone) == name).then_some((zone, at))
}

fn small_place(zone: ZoneId) -> MetaKey {
    MetaKey::root(ORPHAN_ZONE).with_xattr(&small_name(zone))
}

impl Fs {
    /// C0 and C1.
    pub fn zone_sizes(&self) -> ZoneSizes {
        self.sizes
    }

    pub(super) fn small_zones(&self) -> Result<Small> {
        let place = MetaKey::root(ORPHAN_ZONE);
        let mut small = Small::new();
        for (name, value) in self.xattrs_at(&place)? {
            let Some((zone, at)) = parse_small(&name, &value) else {
                let found = crate::text::printable(&name);
                return Err(self.damaged(&place, "attributes that name small zones", &found));
            };
            small.insert(zone, SmallZone { at, object: None });
        }
        Ok(small)
    }

    /// The record of a zone that is too small.
    pub(super) fn is_small(&self, zone: ZoneId) -> Option<&SmallZone> {
        self.small.as_ref().and_then(|small| small.get(&zone))
    }

    /// Records whether a directory's zone becomes too small with these sums.
    pub(super) fn weigh(&self, draft: &mut Draft, directory: &Object, sums: Sums) {
        let (Some(zone), true) = (directory.zone(), directory.is_directory()) else { return };
        let inode = directory.inode();
        let Some(at) = inode.parent.as_ref().map(|parent| parent.zone) else { return };
        // A zone with a lineage stays: its numbers could not be shared any more.
        if inode.lineage != Lineage::NONE {
            return;
        }
        if zone == ROOT_ZONE || at == ORPHAN_ZONE || draft.knows_small(zone) {
            return;
        }
        match (self.sizes.are_above(sums), self.is_small(zone)) {
            (true, None) => {
                draft.small(zone, Some(SmallZone { at, object: Some(directory.clone()) }));
            }
            (false, Some(_)) => draft.small(zone, None),
            _ => {}
        }
    }

    /// Records whether a file's data zone becomes too small with this size.
    pub(super) fn weigh_file(&self, draft: &mut Draft, file: &Object, zone: ZoneId, size: u64) {
        if file.is_orphan() {
            return;
        }
        match (whole_blocks(size) < self.sizes.min, self.is_small(zone)) {
            (true, None) => {
                let at = file.place().zone();
                draft.small(zone, Some(SmallZone { at, object: Some(file.clone()) }));
            }
            (false, Some(_)) => draft.small(zone, None),
            _ => {}
        }
    }

    /// Adds the messages that record whether a zone is too small.
    pub(super) fn note_small(&self, draft: &mut Draft, zone: ZoneId, small: Option<SmallZone>) {
        match (&small, self.is_small(zone)) {
            (Some(new), known) if known.is_none_or(|known| known.at != new.at) => {
                draft.insert(&small_place(zone), new.at.0.to_le_bytes().to_vec());
            }
            (None, Some(_)) => draft.delete(&small_place(zone)),
            _ => {}
        }
        draft.small(zone, small);
    }

    pub(super) fn small_changed(&mut self, changes: BTreeMap<ZoneId, Option<SmallZone>>) {
        let Some(known) = &mut self.small else { return };
        for (zone, small) in changes {
            match small {
                Some(small) => drop(known.insert(zone, small)),
                None => drop(known.remove(&zone)),
            }
        }
    }

    /// Drops the internal handles of a directory and of everything below it.
    pub(super) fn let_go_below(&mut self, directory: &Object) {
        for small in self.small.iter_mut().flat_map(|small| small.values_mut()) {
            small.object.take_if(|object| object == directory || is_below(object, directory));
        }
    }

    /// Updates the record of a small zone when its object moves to another zone; removes it when `at` is `None`, for an
    /// object that need not be large.
    pub(super) fn small_moves(&self, draft: &mut Draft, zone: Option<ZoneId>, at: Option<ZoneId>) {
        let Some((zone, known)) = zone.and_then(|zone| Some((zone, self.is_small(zone)?))) else {
            return;
        };
        match at {
            Some(at) if at == known.at => {}
            Some(at) => draft.small(zone, Some(SmallZone { at, ..known.clone() })),
            None => draft.small(zone, None),
        }
    }

    /// Splits zones until `counts` fit below `directory`, with keys longer by `names` bytes, and not too deep.
    pub(super) fn make_way(
        &mut self,
        directory: &Object,
        names: usize,
        counts: impl Fn() -> Counts,
    ) -> Result<()> {
        loop {
            let chain = directory.chain();
            let inner = &chain[..chain.len() - 1];
            let counts = if self.sizes.count_bytes() { counts() } else { Counts::default() };
            let over = inner.iter().find(|object| {
                counts.iter().any(|(other, delta)| other == *object && self.outgrows(other, *delta))
            });
            let long = || directory.place().reach() + names > KEY_MAX;
            let deep = chain.len() > DEPTH_MAX;
            match over.or_else(|| inner.first().filter(|_| deep || long())) {
                None => return Ok(()),
                Some(object) => self.split(object)?,
            }
        }
    }

    /// Makes way for a new reference to a zone. Returns what it counts.
    pub(super) fn make_way_for_reference(
        &mut self,
        directory: &Object,
        name: &[u8],
    ) -> Result<Delta> {
        let gain = Delta::entry(name, 0) + Delta::reference();
        self.make_way(directory, name.len() + 2, || {
            let mut counts = Counts::default();
            counts.add(directory, gain);
            counts
        })?;
        Ok(gain)
    }

    /// Whether a directory that is no zone's root becomes too large.
    fn outgrows(&self, directory: &Object, delta: Delta) -> bool {
        let grown = Delta { meta: delta.meta.max(0), data: delta.data.max(0), apart: 0 };
        let after = grown.applied(directory.inode().sums);
        let max = self.sizes.max.into();
        (grown.meta > 0 && after.meta > max) || (grown.data > 0 && after.data > max)
    }

    /// What an object counts in its directory, besides its name.
    pub(super) fn standing(&self, object: &Object) -> Result<Delta> {
        self.standing_in(object, object.lineage())
    }

    /// What an object would count in a directory of a zone with this lineage. A directory with entries is the root of a zone,
    /// or the lineage is that of its own.
    pub(super) fn standing_in(&self, object: &Object, lineage: Lineage) -> Result<Delta> {
        if object.zone().is_some() {
            return Ok(Delta::reference());
        }
        let inode = object.inode();
        let apart = Delta::apart(apart(inode.data_zone, lineage.stored(inode.ino)));
        let standing = apart + Delta::from(inode.sums);
        if !self.sizes.count_bytes() {
            return Ok(standing);
        }
        let own = Delta::meta(inode.encoded_len() + self.xattr_bytes(&object.place())?);
        let data = match inode.kind {
            FileType::Regular if inode.data_zone.is_none() => inode.size,
            _ => 0,
        };
        Ok(standing + own + Delta::data(data))
    }

    /// Whether more than `most` bytes are below a directory in its zone: metadata, or contents of files. Where bytes are not
    /// counted, it reads keys until it knows.
    pub(super) fn is_heavy(&self, directory: &Object, most: u64) -> Result<bool> {
        if self.sizes.count_bytes() {
            let sums = directory.inode().sums;
            return Ok(sums.meta.max(sums.data) > most);
        }
        let (lo, hi) = directory.place().subtree_range();
        for tree in [TreeId::Metadata, TreeId::Data] {
            let mut keys = KeyScan::new(tree, lo.clone(), Some(hi.clone()));
            let mut bytes = 0;
            while let Some((key, len)) = keys.next(self.volume.store())? {
                bytes += (key.len() - lo.len() + len) as u64;
                if bytes > most {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Makes a directory the root of a zone.
    pub(super) fn split(&mut self, directory: &Object) -> Result<()> {
        let Some((up, name)) = directory.up() else { return Ok(()) };
        let zone = self.volume.take_zone()?;
        let (old, new) = (directory.place(), MetaKey::root(zone));
        let mut draft = Draft::new(self.now(), self.sizes);
        draft.count(&up, Delta::reference() - self.standing(directory)?);
        // The new zone inherits the lineage, so what is stored moves as it is.
        let lineage = directory.lineage();
        match self.is_heavy(directory, self.copied_max())? {
            true => {
                self.relocate_xattrs(&mut draft, &old, &new)?;
                self.splice_subtree(&mut draft, directory, zone)?;
            }
            false => fits(self.relocate(&mut draft, directory, &new)?)?,
        }
        draft.insert_reference(&old, (&directory.inode(), zone), lineage);
        let inode = draft.inode(directory);
        inode.parent = Some(Parent { zone: old.zone(), name: name.to_vec() });
        inode.lineage = lineage;
        if lineage == Lineage::NONE && self.sizes.are_above(inode.sums) {
            let small = SmallZone { at: old.zone(), object: Some(directory.clone()) };
            draft.small(zone, Some(small));
        }
        draft.move_to(directory, Placed { zone: Some(zone), up: Some((up, name)) });
        self.commit(Op::SplitZone, draft)
    }

    /// Gives a zone of its own to a directory, or to a file's contents, that is too large for its zone for any reason.
    /// Returns whether it was.
    pub(crate) fn split_large(&mut self, place: &MetaKey) -> Result<bool> {
        let above = Placed { zone: Some(place.zone()), up: None };
        let mut object = self.enter(self.root_inode(place.zone())?, above)?;
        for name in place.names() {
            object = self.lookup(&object, name)?;
        }
        let inode = object.inode();
        if object.zone().is_some() {
            return Ok(false);
        }
        match inode.kind {
            FileType::Directory if self.sizes.are_below(inode.sums) => self.split(&object)?,
            FileType::Regular
                if inode.data_zone.is_none() && whole_blocks(inode.size) > self.sizes.max =>
            {
                self.split_file(&object)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Gives the contents of a file a zone of their own.
    pub(super) fn split_file(&mut self, file: &Object) -> Result<()> {
        let Some((up, _)) = file.up() else { return Ok(()) };
        let zone = self.volume.take_zone()?;
        let mut draft = Draft::new(self.now(), self.sizes);
        draft.count(&up, Delta::apart(1) - Delta::data(file.inode().size));
        match whole_blocks(file.inode().size) > self.copied_max() {
            true => self.splice_blocks(&mut draft, file, zone)?,
            false => self.relocate_blocks(&mut draft, file, &MetaKey::root(zone).encode())?,
        }
        draft.inode(file).data_zone = Some(zone);
        self.weigh_file(&mut draft, file, zone, file.inode().size);
        self.commit(Op::SplitZone, draft)
    }

    /// Deletes orphans, and merges zones that are too small, if they fit into those above. Skips damaged zones, and
    /// those for which there is no space.
    pub(super) fn tidy(&mut self) -> Result<()> {
        match self
            .resume_deletes()
            .and_then(|()| self.reap_again())
            .and_then(|()| self.merge_small())
        {
            Err(error) if self.volume.has_failed() => Err(error),
            _ => Ok(()),
        }
    }

    fn merge_small(&mut self) -> Result<()> {
        let mut unseen: BTreeMap<ZoneId, BTreeSet<ZoneId>> = BTreeMap::new();
        let mut zones = Vec::new();
        for (zone, small) in self.small.iter().flatten() {
            zones.push(*zone);
            if small.object.is_none() {
                unseen.entry(small.at).or_default().insert(*zone);
            }
        }
        for (at, zones) in unseen {
            // If the zone above is damaged, they stay.
            for (zone, object) in self.locate(at, &zones).unwrap_or_default() {
                let known = self.small.as_mut().and_then(|small| small.get_mut(&zone));
                if let Some(known) = known {
                    known.object = Some(object);
                }
            }
        }
        for zone in zones {
            let Some(object) = self.is_small(zone).and_then(|small| small.object.clone()) else {
                continue;
            };
            let merged = match object.kind() {
                FileType::Directory => self.merge(zone, &object),
                _ => self.merge_file(zone, &object),
            };
            match merged {
                Err(error @ Error::NoSpace { .. }) => return Err(error),
                Err(error) if self.volume.has_failed() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The roots of zones, or the files of data zones, by one pass over the zone above.
    fn locate(&self, at: ZoneId, zones: &BTreeSet<ZoneId>) -> Result<Vec<(ZoneId, Object)>> {
        let root = MetaKey::root(at);
        let (lo, hi) = root.subtree_range();
        let mut places = Vec::new();
        for entry in self.volume.cursor(TreeId::Metadata, lo, Some(hi)) {
            let (key, value) = entry?;
            let place = MetaKey::decode(&key).ok_or_else(|| self.bad_key(&key))?;
            if place.xattr().is_some() {
                continue;
            }
            let zone = match super::decode_value(&key, &value)? {
                MetaValue::ZoneRef(reference) => Some(reference.zone),
                MetaValue::Inode(inode) => inode.data_zone,
            };
            if let Some(zone) = zone.filter(|zone| zones.contains(zone)) {
                places.push((zone, place));
            }
        }
        let mut found = Vec::new();
        for (zone, place) in places {
            let mut object =
                self.enter(self.root_inode(at)?, Placed { zone: Some(at), up: None })?;
            for name in place.names() {
                object = self.lookup(&object, name)?;
            }
            found.push((zone, object));
        }
        Ok(found)
    }

    /// The directory of an object, even if it was not found through it.
    pub(super) fn directory_of(&self, object: &Object) -> Result<Option<Object>> {
        if object.up().is_none()
            && let Some(zone) = object.zone()
            && let Some(parent) = &object.inode().parent
        {
            // Finding the root also sets its directory.
            self.locate(parent.zone, &BTreeSet::from([zone]))?;
        }
        Ok(object.up().map(|(directory, _)| directory))
    }

    fn fits(&self, directory: &Object, delta: Delta) -> bool {
        let mut counts = Counts::default();
        counts.add(directory, delta);
        !counts
            .iter()
            .any(|(object, delta)| object.zone().is_none() && self.outgrows(object, *delta))
    }

    fn merge(&mut self, zone: ZoneId, directory: &Object) -> Result<()> {
        let Some((up, name)) = directory.up() else { return Ok(()) };
        // What has another lineage cannot be shared there. Only a crafted volume notes a zone with a lineage.
        if [directory.inode().lineage, up.lineage()] != [Lineage::NONE; 2] {
            return Ok(());
        }
        let (old, new) = (MetaKey::root(zone), up.place().child(&name));
        if self.is_deeper(zone, DEPTH_MAX.saturating_sub(new.depth()))? {
            return Ok(());
        }
        let mut draft = Draft::new(self.now(), self.sizes);
        let inode = draft.inode(directory);
        inode.parent = None;
        let meta = inode.encoded_len() + self.xattr_bytes(&old)?;
        let own = Delta::meta(meta) + Delta::apart(apart(None, inode.ino));
        let delta = own + Delta::from(inode.sums) - Delta::reference();
        if !self.fits(&up, delta) || !self.relocate(&mut draft, directory, &new)? {
            return Ok(());
        }
        draft.delete(&old);
        draft.count(&up, delta);
        draft.small(zone, None);
        draft.move_to(directory, Placed { zone: None, up: Some((up, name)) });
        self.commit(Op::MergeZone, draft)
    }

    /// Whether an entry of a zone has more than `most` names in its path.
    fn is_deeper(&self, zone: ZoneId, most: usize) -> Result<bool> {
        let (lo, hi) = MetaKey::root(zone).subtree_range();
        for entry in self.volume.cursor(TreeId::Metadata, lo, Some(hi)) {
            let (key, _) = entry?;
            if MetaKey::decode(&key).is_some_and(|place| place.depth() > most) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn merge_file(&mut self, zone: ZoneId, file: &Object) -> Result<()> {
        let Some((up, _)) = file.up() else { return Ok(()) };
        let mut draft = Draft::new(self.now(), self.sizes);
        let delta = Delta::data(file.inode().size) - Delta::apart(1);
        if !self.fits(&up, delta) {
            return Ok(());
        }
        self.relocate_blocks(&mut draft, file, &file.place().encode())?;
        draft.inode(file).data_zone = None;
        draft.count(&up, delta);
        draft.small(zone, None);
        self.commit(Op::MergeZone, draft)
    }
}
