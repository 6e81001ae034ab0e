//! Where zones stand: their paths, while names come and go.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::format::{MetaKey, MetaValue};
use crate::fs::{Fs, ORPHAN_ZONE, ROOT_ZONE};
use crate::ids::*;

/// So long a path is told at the most: what is longer is cut at the beginning.
const PATH_MAX: usize = 16 << 10;

/// The place of a zone: the zone above, and the path within that.
type Place = (ZoneId, Vec<u8>);

/// The place of each zone.
#[derive(Default)]
pub struct Names {
    /// What the log said since the checkpoint.
    learned: HashMap<ZoneId, Place>,
    /// What the checkpoint says; asked for when it is needed first.
    base: OnceCell<HashMap<ZoneId, Place>>,
    fs: Option<Rc<Fs>>,
}

impl Names {
    /// Those of a checkpoint, as far as it can be read.
    pub(super) fn of(fs: Option<Rc<Fs>>) -> Names {
        Names { fs, ..Names::default() }
    }

    /// Those of a file system, as far as it can be read: one pass over its metadata index.
    pub fn of_fs(fs: &Fs) -> Names {
        Names { base: OnceCell::from(places(fs)), ..Names::default() }
    }

    /// The same, with that pass only once a path is asked for that does not begin in the root's zone.
    pub fn when_needed(fs: Fs) -> Names {
        Names::of(Some(Rc::new(fs)))
    }

    fn place_of(&self, zone: ZoneId) -> Option<&Place> {
        let base = || self.base.get_or_init(|| self.fs.as_deref().map(places).unwrap_or_default());
        self.learned.get(&zone).or_else(|| base().get(&zone))
    }

    /// An entry of the metadata index says where a zone stands.
    pub(super) fn learn(&mut self, place: &MetaKey, value: &MetaValue) {
        let zone = match value {
            MetaValue::ZoneRef(reference) => Some(reference.zone),
            MetaValue::Inode(inode) => inode.data_zone,
        };
        if let Some(zone) = zone.filter(|_| !place.path.is_empty()) {
            self.learned.insert(zone, (place.zone, place.path.join(&b'/')));
        }
    }

    /// The entry that leads to a zone, if the key is that of its root.
    pub(super) fn entry_of(&self, place: &MetaKey) -> Option<MetaKey> {
        if !place.path.is_empty() {
            return None;
        }
        let (zone, path) = self.place_of(place.zone)?;
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
            let Some((above, path)) = self.place_of(zone) else {
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

/// Where all zones of a file system stand.
fn places(fs: &Fs) -> HashMap<ZoneId, Place> {
    let zones = fs.zones().unwrap_or_default();
    zones.into_iter().filter_map(|zone| Some((zone.id, (zone.above?, zone.path)))).collect()
}
