//! The entries of both indexes, and their sources.

use bytes::Bytes;

use super::leaves::NextLeaf;
use crate::error::Result;
use crate::format::*;
use crate::ids::*;
use crate::store::Store;
use crate::tree::{KeyScan, Scan};

/// A source of the entries of both indexes, leaf by leaf, with pending messages applied.
pub(in crate::check) trait Source: Sync {
    /// Announces a leaf that will be requested.
    fn announce(&self, leaf: &NextLeaf);

    /// The entries of a leaf of the metadata index.
    fn metadata(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<Entry>>;

    /// The keys of a leaf of the data index, with the lengths of their values.
    fn data(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<(Key, usize)>>;
}

/// Reads from the trees, with the cache.
pub(in crate::check) struct Scanned;

impl Source for Scanned {
    fn announce(&self, _: &NextLeaf) {}

    fn metadata(&self, store: &Store, NextLeaf { bounds, .. }: NextLeaf) -> Result<Vec<Entry>> {
        let mut scan = Scan::new(TreeId::Metadata, bounds.lo, bounds.hi);
        let mut entries = Vec::new();
        while let Some((key, value)) = scan.next(store)? {
            entries.push(Entry::new(key, value));
        }
        Ok(entries)
    }

    fn data(&self, store: &Store, NextLeaf { bounds, .. }: NextLeaf) -> Result<Vec<(Key, usize)>> {
        let mut scan = KeyScan::new(TreeId::Data, bounds.lo, bounds.hi);
        let mut keys = Vec::new();
        while let Some(found) = scan.next(store)? {
            keys.push(found);
        }
        Ok(keys)
    }
}

/// A decoded entry of the metadata index.
pub(in crate::check) struct Entry {
    pub key: Key,
    pub value: Bytes,
    /// `None` if the key is malformed.
    pub place: Option<MetaPlace>,
    pub said: Said,
}

/// The content of an entry.
pub(in crate::check) enum Said {
    /// An extended attribute.
    Attribute,
    Inode(Brief),
    ZoneRef(ZoneRef),
    /// A malformed value.
    Malformed(Box<FormatError>),
}

/// The fields of an inode that the check keeps.
#[derive(Clone, Copy)]
pub(in crate::check) struct Brief {
    pub kind: FileType,
    pub ino: Ino,
    pub links: u32,
    pub size: u64,
    pub data_zone: Option<ZoneId>,
    pub sparse: bool,
}

impl Entry {
    /// Decodes an entry.
    pub(crate) fn new(key: Key, value: Bytes) -> Entry {
        let place = MetaPlace::of(&key);
        let said = match place.is_some_and(|place| place.xattr(&key).is_some()) {
            true => Said::Attribute,
            false => match MetaValue::decode(&value, None) {
                Ok(MetaValue::Inode(inode)) => {
                    let Inode { kind, ino, links, size, data_zone, sparse, .. } = inode;
                    Said::Inode(Brief { kind, ino, links, size, data_zone, sparse })
                }
                Ok(MetaValue::ZoneRef(zone)) => Said::ZoneRef(zone),
                Err(error) => Said::Malformed(Box::new(error)),
            },
        };
        Entry { key, value, place, said }
    }

    /// The complete inode.
    pub(crate) fn inode(&self) -> Option<Inode> {
        match MetaValue::decode(&self.value, None) {
            Ok(MetaValue::Inode(inode)) => Some(inode),
            _ => None,
        }
    }
}
