//! The entries of both indexes, and where they come from.

use bytes::Bytes;

use super::leaves::NextLeaf;
use crate::error::Result;
use crate::format::*;
use crate::ids::*;
use crate::store::Store;
use crate::tree::{KeyScan, Scan};

/// Where the entries of both indexes come from, leaf by leaf, with everything pending laid over.
pub(in crate::check) trait Source: Sync {
    /// A leaf will be asked for.
    fn announce(&self, leaf: &NextLeaf);

    /// The entries of a leaf of the metadata index.
    fn metadata(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<Entry>>;

    /// The keys of a leaf of the data index, with the lengths of their values.
    fn data(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<(Key, usize)>>;
}

/// From the trees, with what is in memory.
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

/// An entry of the metadata index, taken apart.
pub(in crate::check) struct Entry {
    pub key: Key,
    pub value: Bytes,
    /// Nothing if no key looks like this.
    pub place: Option<MetaPlace>,
    pub said: Said,
}

/// What an entry says.
pub(in crate::check) enum Said {
    /// It is an extended attribute.
    Attribute,
    Inode(Brief),
    ZoneRef(ZoneRef),
    /// Nothing that makes sense.
    Malformed(Box<FormatError>),
}

/// What matters of every inode.
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
    /// Takes an entry apart.
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

    /// All of an inode.
    pub(crate) fn inode(&self) -> Option<Inode> {
        match MetaValue::decode(&self.value, None) {
            Ok(MetaValue::Inode(inode)) => Some(inode),
            _ => None,
        }
    }
}
