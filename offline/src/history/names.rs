//! The paths of zones, as names are made and removed.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;

use betr_core::format::{Key, MetaKey, MetaValue, RangeDelete};
use betr_core::fs::{Fs, ORPHAN_ZONE, ROOT_ZONE};
use betr_core::ids::*;
use betr_core::node::RangeSet;

/// 16 KiB: a longer path is cut at the beginning.
const PATH_MAX: usize = 16 << 10;

/// An entry of the metadata index that refers to a zone.
#[derive(Clone)]
struct Entry {
    key: Key,
    /// The MSN of the message that made it; 0 for those of the checkpoint.
    msn: Msn,
}

/// The entries that refer to each zone; several for a file with several names. Of a checkpoint's entries the first is
/// used, and of the log's the newest.
#[derive(Default)]
pub struct Names {
    /// Entries made by the log since the checkpoint, the newest last.
    learned: HashMap<ZoneId, Vec<Entry>>,
    /// Keys removed by the log.
    gone: RangeSet,
    /// Entries of the checkpoint, the first key last; read on demand.
    base: OnceCell<HashMap<ZoneId, Vec<Entry>>>,
    fs: Option<Rc<Fs>>,
}

impl Names {
    /// The names of a checkpoint, as far as it is readable.
    pub(super) fn of(fs: Option<Rc<Fs>>) -> Names {
        Names { fs, ..Names::default() }
    }

    /// The names of a file system, as far as it is readable: one pass over its metadata index.
    pub fn of_fs(fs: &Fs) -> Names {
        Names { base: OnceCell::from(entries(fs)), ..Names::default() }
    }

    /// As [`Names::of_fs`], with the pass deferred until a path is requested that does not begin in the root's zone.
    pub fn when_needed(fs: Fs) -> Names {
        Names::of(Some(Rc::new(fs)))
    }

    /// The entry that refers to a zone; if all were removed, the last one.
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

    /// Adds an entry of the metadata index that a message made, if it refers to a zone.
    pub(super) fn learn(&mut self, place: &MetaKey, value: &MetaValue, msn: Msn) {
        let Some(zone) = zone_of(place, value) else { return };
        let mut entries = self.learned.remove(&zone).unwrap_or_default();
        let key = place.encode();
        entries.retain(|entry| entry.key != key && !self.is_gone(entry));
        entries.push(Entry { key, msn });
        self.learned.insert(zone, entries);
    }

    /// Removes an entry that a message removed.
    pub(super) fn forget(&mut self, place: &MetaKey, value: &MetaValue, msn: Msn) {
        if zone_of(place, value).is_some() {
            let lo = place.encode();
            self.forget_range(&lo, &lo.successor(), msn);
        }
    }

    /// Removes all entries within `[lo, hi)`.
    pub(super) fn forget_range(&mut self, lo: &Key, hi: &Key, msn: Msn) {
        if lo < hi {
            self.gone.insert(RangeDelete { lo: Key::copied(lo), hi: Key::copied(hi), msn });
        }
    }

    /// The entry that refers to a zone, if the place is its root.
    pub(super) fn entry_of(&self, place: &MetaKey) -> Option<MetaKey> {
        if place.is_root() { self.place_of(place.zone()) } else { None }
    }

    /// The path of a place. Without a path to the root it begins with its zone, and for an orphan with `(orphans)`.
    pub fn path(&self, place: &MetaKey) -> Vec<u8> {
        let own = place.path();
        let (mut zone, mut len) = (place.zone(), own.len());
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
            let path = entry.path();
            len += path.len() + 1;
            // Corrupt references may form cycles.
            if len > PATH_MAX {
                break b"...".to_vec();
            }
            parts.push(path);
            zone = entry.zone();
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

/// The zone that an entry refers to.
fn zone_of(place: &MetaKey, value: &MetaValue) -> Option<ZoneId> {
    let zone = match value {
        MetaValue::ZoneRef(reference) => Some(reference.zone),
        MetaValue::Inode(inode) => inode.data_zone,
    };
    zone.filter(|_| !place.is_root() && place.xattr().is_none())
}

/// The entries of a file system that refer to zones, as far as it is readable; for each zone in reverse key order.
fn entries(fs: &Fs) -> HashMap<ZoneId, Vec<Entry>> {
    let mut found: HashMap<ZoneId, Vec<Entry>> = HashMap::new();
    let entries = fs.volume().cursor(TreeId::Metadata, Key::default(), None);
    for (key, value) in entries.map_while(Result::ok) {
        let place = MetaKey::decode(&key).filter(|place| place.xattr().is_none());
        let value = place.and_then(|place| Some((MetaValue::decode(&value, None).ok()?, place)));
        if let Some(zone) = value.and_then(|(value, place)| zone_of(&place, &value)) {
            found.entry(zone).or_default().push(Entry { key: Key::copied(&key), msn: Msn(0) });
        }
    }
    found.values_mut().for_each(|entries| entries.reverse());
    found
}
