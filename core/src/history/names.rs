//! Where zones stand: their paths, while names come and go.

use std::collections::HashMap;

use crate::format::{MetaKey, MetaValue};
use crate::fs::{Fs, ORPHAN_ZONE, ROOT_ZONE};
use crate::ids::*;
use crate::volume::Volume;

/// So long a path is told at the most: what is longer is cut at the beginning.
const PATH_MAX: usize = 16 << 10;

/// The place of each zone: the zone above, and the path within that.
#[derive(Clone, Debug, Default)]
pub struct Names(HashMap<ZoneId, (ZoneId, Vec<u8>)>);

impl Names {
    /// Those of a checkpoint, as far as it can be read.
    pub(super) fn of(base: Option<Volume>) -> (Names, Option<Volume>) {
        let Some(volume) = base else { return Default::default() };
        let fs = Fs::open(volume, Box::new(Time::default));
        let names = Names::of_fs(&fs);
        (names, Some(fs.into_volume()))
    }

    /// Those of a file system, as far as it can be read: one pass over its metadata index.
    pub fn of_fs(fs: &Fs) -> Names {
        let zones = fs.zones().unwrap_or_default();
        let placed = zones.into_iter().filter_map(|zone| Some((zone.id, (zone.above?, zone.path))));
        Names(placed.collect())
    }

    /// An entry of the metadata index says where a zone stands.
    pub(super) fn learn(&mut self, place: &MetaKey, value: &MetaValue) {
        let zone = match value {
            MetaValue::ZoneRef(reference) => Some(reference.zone),
            MetaValue::Inode(inode) => inode.data_zone,
        };
        if let Some(zone) = zone.filter(|_| !place.path.is_empty()) {
            self.0.insert(zone, (place.zone, place.path.join(&b'/')));
        }
    }

    /// The entry that leads to a zone, if the key is that of its root.
    pub(super) fn entry_of(&self, place: &MetaKey) -> Option<MetaKey> {
        let (zone, path) = self.0.get(&place.zone).filter(|_| place.path.is_empty())?;
        let path = path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
        Some(MetaKey { zone: *zone, path, xattr: None })
    }

    /// The path of what stands at a key; what leads to the root nowhere begins with its zone, and what is an orphan
    /// with `(orphans)`.
    pub fn path(&self, place: &MetaKey) -> Vec<u8> {
        let own = place.path.join(&b'/');
        let mut parts: Vec<&[u8]> = if own.is_empty() { Vec::new() } else { vec![&own] };
        let (mut zone, mut len) = (place.zone, own.len());
        let start = loop {
            match zone {
                ROOT_ZONE => break Vec::new(),
                ORPHAN_ZONE => break b"(orphans)".to_vec(),
                _ => {}
            }
            let Some((above, path)) = self.0.get(&zone) else {
                break zone.to_string().into_bytes();
            };
            len += path.len() + 1;
            // Damaged references may go round in circles.
            if len > PATH_MAX {
                break b"...".to_vec();
            }
            parts.push(path);
            zone = *above;
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
