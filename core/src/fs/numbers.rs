//! Inode numbers as they are shown, and as they are stored (SPEC 11.8).
//!
//! Handles and callers know shown numbers alone. The lineage of a zone translates them, where values of the metadata
//! index are decoded and encoded. It is in the inode of the zone's root, which is the last of an object's chain.

use super::{Draft, Fs, Object, Placed, decode_value};
use crate::error::Result;
use crate::format::*;
use crate::ids::*;

impl Object {
    /// The lineage of the zone that its inode is in, and its entries if it is a directory.
    pub(super) fn lineage(&self) -> Lineage {
        self.root_of_zone().inode().lineage
    }
}

impl Placed {
    /// The lineage of the zone that an object with this inode is in, at this place.
    pub(super) fn lineage(&self, inode: &Inode) -> Lineage {
        match (self.zone, &self.up) {
            (None, Some((directory, _))) => directory.lineage(),
            _ => inode.lineage,
        }
    }
}

/// A stored value, with its number as it is shown.
pub(super) fn shown(mut value: MetaValue, lineage: Lineage) -> MetaValue {
    let ino = match &mut value {
        MetaValue::Inode(inode) => &mut inode.ino,
        MetaValue::ZoneRef(reference) => &mut reference.ino,
    };
    *ino = lineage.shown(*ino);
    value
}

/// Decodes a value of a zone with this lineage.
pub(super) fn decode_shown(key: &[u8], value: &[u8], lineage: Lineage) -> Result<MetaValue> {
    Ok(shown(decode_value(key, value)?, lineage))
}

impl Draft {
    /// Inserts an inode into a zone of this lineage.
    pub(super) fn insert_inode(&mut self, place: &MetaKey, inode: &Inode, lineage: Lineage) {
        let ino = lineage.stored(inode.ino);
        let value = match ino == inode.ino {
            true => inode.encode(),
            false => Inode { ino, ..inode.clone() }.encode(),
        };
        self.insert(place, value);
    }

    /// Inserts a reference to the zone of an object into a zone of this lineage.
    pub(super) fn insert_reference(
        &mut self,
        place: &MetaKey,
        (inode, zone): (&Inode, ZoneId),
        lineage: Lineage,
    ) {
        let link = match inode.kind {
            FileType::Directory => LinkKind::Own,
            _ => LinkKind::Link,
        };
        let ino = lineage.stored(inode.ino);
        self.insert(place, ZoneRef { link, kind: inode.kind, ino, zone }.encode());
    }
}

impl Fs {
    /// The value at a key of a zone with this lineage.
    pub(super) fn value(&self, place: &MetaKey, lineage: Lineage) -> Result<Option<MetaValue>> {
        let key = place.encode();
        match self.volume.get(TreeId::Metadata, &key)? {
            None => Ok(None),
            Some(value) => decode_shown(&key, &value, lineage).map(Some),
        }
    }

    /// The inode of a zone's root, in which its lineage is.
    pub(super) fn root_inode(&self, zone: ZoneId) -> Result<Inode> {
        let place = MetaKey::root(zone);
        let key = place.encode();
        let Some(value) = self.volume.get(TreeId::Metadata, &key)? else {
            return Err(self.damaged(&place, "an inode", "nothing"));
        };
        match decode_value(&key, &value)? {
            MetaValue::Inode(inode) => Ok(Inode { ino: inode.lineage.shown(inode.ino), ..inode }),
            MetaValue::ZoneRef(_) => Err(self.damaged(&place, "an inode", "a zone reference")),
        }
    }
}
