//! The metadata index while the log is read: the checkpoint, with the changes of records.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;

use betr_core::format::{Inode, Key, MetaKey, MetaValue, RangeDelete};
use betr_core::fs::Fs;
use betr_core::ids::*;
use betr_core::node::RangeSet;

/// Values by key; memory is proportional to the log.
pub(super) struct Values {
    base: Option<Rc<Fs>>,
    known: BTreeMap<Key, Option<Bytes>>,
    removed: RangeSet,
}

impl Values {
    /// The values of a checkpoint, if one is readable.
    pub(super) fn new(base: Option<Rc<Fs>>) -> Values {
        Values { base, known: BTreeMap::new(), removed: RangeSet::default() }
    }

    /// The value of a key; `None` also if the checkpoint is damaged.
    pub(super) fn get(&self, key: &Key) -> Option<Bytes> {
        if let Some(known) = self.known.get(key) {
            return known.clone();
        }
        let base = self.base.as_ref().filter(|_| self.removed.covering(key).is_none())?;
        base.volume().get(TreeId::Metadata, key).ok().flatten()
    }

    /// The inode of a value, or of the zone that it refers to.
    pub(super) fn inode_of(&self, value: MetaValue) -> Option<Inode> {
        let reference = match value {
            MetaValue::Inode(inode) => return Some(inode),
            MetaValue::ZoneRef(reference) => reference,
        };
        let root = self.get(&MetaKey::root(reference.zone).encode())?;
        match MetaValue::decode(&root, None).ok()? {
            MetaValue::Inode(inode) => Some(inode),
            MetaValue::ZoneRef(_) => None,
        }
    }

    pub(super) fn put(&mut self, key: &Key, value: Option<Bytes>) {
        let value = value.map(|value| Bytes::copy_from_slice(&value));
        self.known.insert(Key::copied(key), value);
    }

    pub(super) fn remove_range(&mut self, lo: &Key, hi: &Key) {
        if lo >= hi {
            return;
        }
        let known = self.known.range::<Key, _>(lo..hi);
        let gone: Vec<Key> = known.map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| drop(self.known.remove(key)));
        self.removed.insert(RangeDelete { lo: lo.clone(), hi: hi.clone(), msn: Msn(1) });
    }
}
