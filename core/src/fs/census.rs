//! Lists all zones, by one pass over the metadata index.

use std::collections::BTreeMap;

use super::numbers::shown;
use super::{Fs, ROOT_ZONE, decode_value, whole_blocks, xattr_bytes};
use crate::error::Result;
use crate::format::*;
use crate::ids::*;

/// The content of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneKind {
    /// A directory, and everything stored with it.
    Directory,
    /// An object with several links, now or before.
    Links,
    /// The contents of a file.
    Data,
}

/// A zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its zone id.
    pub id: ZoneId,
    /// The kind of its content.
    pub kind: ZoneKind,
    /// The inode number of its root, or of the file.
    pub ino: Ino,
    /// The zone that contains its reference or file; the first of several.
    pub above: Option<ZoneId>,
    /// The path of its root, or of the file, within the zone above.
    pub path: Vec<u8>,
    /// Number of entries.
    pub entries: u64,
    /// The sums in its root's counters; for a data zone, the size of the file in whole blocks.
    pub stated: Sums,
    /// The sums of its entries.
    pub counted: Sums,
    /// Whether it is recorded as too small.
    pub small: bool,
}

/// A path, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonePath {
    /// Its bytes.
    pub path: Vec<u8>,
    /// Whether the path is complete.
    pub whole: bool,
}

impl Zone {
    /// Whether the counters of its root are wrong.
    pub fn is_miscounted(&self, sizes: ZoneSizes) -> bool {
        self.kind != ZoneKind::Data && self.stated != sizes.counted(self.counted)
    }

    fn new(id: ZoneId, kind: ZoneKind) -> Zone {
        Zone {
            id,
            kind,
            ino: Ino(0),
            above: None,
            path: Vec::new(),
            entries: 0,
            stated: Sums::default(),
            counted: Sums::default(),
            small: false,
        }
    }
}

impl Fs {
    /// All zones, in the order of their ids.
    pub fn zones(&self) -> Result<Vec<Zone>> {
        let mut zones: BTreeMap<ZoneId, Zone> = BTreeMap::new();
        let named = |zones: &mut BTreeMap<ZoneId, Zone>, id, kind, ino, place: &MetaKey| {
            let zone = zones.entry(id).or_insert_with(|| Zone::new(id, kind));
            (zone.kind, zone.ino) = (kind, ino);
            if zone.above.is_none() {
                zone.above = Some(place.zone());
                zone.path = place.path();
            }
        };
        // The root of a zone comes before all else in it.
        let mut lineage = (ROOT_ZONE, Lineage::NONE);
        for entry in self.volume.cursor(TreeId::Metadata, Key::default(), None) {
            let (key, value) = entry?;
            let place = MetaKey::decode(&key).ok_or_else(|| self.bad_key(&key))?;
            if lineage.0 != place.zone() {
                lineage = (place.zone(), Lineage::NONE);
            }
            if place.is_root() {
                if place.xattr().is_none()
                    && let MetaValue::Inode(inode) = decode_value(&key, &value)?
                {
                    let kind = match inode.kind {
                        FileType::Directory => ZoneKind::Directory,
                        _ => ZoneKind::Links,
                    };
                    lineage.1 = inode.lineage;
                    let ino = lineage.1.shown(inode.ino);
                    let zone =
                        zones.entry(place.zone()).or_insert_with(|| Zone::new(place.zone(), kind));
                    (zone.kind, zone.ino, zone.stated) = (kind, ino, inode.sums);
                }
                continue;
            }
            let mut counted = Sums::default();
            match place.xattr() {
                Some(xattr) => counted.meta = xattr_bytes(xattr, value.len()) as u64,
                None => {
                    counted.meta = (place.name().len() + 2 + value.len()) as u64;
                    let value = decode_value(&key, &value)?;
                    counted.apart = match &value {
                        MetaValue::Inode(stored) => apart(stored.data_zone, stored.ino),
                        MetaValue::ZoneRef(_) => 1,
                    };
                    match shown(value, lineage.1) {
                        MetaValue::ZoneRef(reference) => {
                            let kind = match reference.kind {
                                FileType::Directory => ZoneKind::Directory,
                                _ => ZoneKind::Links,
                            };
                            named(&mut zones, reference.zone, kind, reference.ino, &place);
                        }
                        MetaValue::Inode(inode) => match inode.data_zone {
                            Some(zone) => {
                                named(&mut zones, zone, ZoneKind::Data, inode.ino, &place);
                                let size =
                                    Sums { data: whole_blocks(inode.size), ..Sums::default() };
                                if let Some(zone) = zones.get_mut(&zone) {
                                    (zone.stated, zone.counted) = (size, size);
                                }
                            }
                            None if inode.kind == FileType::Regular => {
                                counted.data = whole_blocks(inode.size);
                            }
                            None => {}
                        },
                    }
                }
            }
            let zone = zones
                .entry(place.zone())
                .or_insert_with(|| Zone::new(place.zone(), ZoneKind::Directory));
            zone.entries += u64::from(place.xattr().is_none());
            zone.counted.meta = zone.counted.meta.saturating_add(counted.meta);
            zone.counted.data = zone.counted.data.saturating_add(counted.data);
            zone.counted.apart = zone.counted.apart.saturating_add(counted.apart);
        }
        for zone in self.small_zones()?.into_keys() {
            if let Some(zone) = zones.get_mut(&zone) {
                zone.small = true;
            }
        }
        Ok(zones.into_values().collect())
    }
}

/// The path from the root to zone `at` of all zones; only its end if it is longer than `max` bytes. `None` if
/// references form a cycle.
pub fn zone_path(zones: &[Zone], at: usize, max: usize) -> Option<ZonePath> {
    let (mut at, mut names, mut len) = (&zones[at], Vec::new(), 0);
    let mut steps = 0..zones.len();
    while let Some(above) = at.above {
        steps.next()?;
        names.push(&at.path);
        len += at.path.len() + 1;
        if len > max {
            break;
        }
        at = &zones[zones.binary_search_by_key(&above, |zone| zone.id).ok()?];
    }
    let mut path = Vec::with_capacity(len.min(2 * max) + 1);
    for name in names.into_iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    let whole = path.len() <= max;
    path.drain(..path.len().saturating_sub(max));
    Some(ZonePath { path, whole })
}
