//! Moves everything under one key to another: attributes and contents of an inode, and everything below a directory.
//!
//! What is small is copied. What is large moves to a fresh zone without a copy: a range clone, and a range delete of the
//! original ([`Fs::detach`]). So only roots of zones, files with data zones and small objects move further.

use super::draft::whole_blocks;
use super::numbers::decode_shown;
use super::remove::MESSAGES_AT_ONCE;
use super::{Draft, Fs, Object, data};
use crate::error::{Refusal, Result};
use crate::format::limits::{KEY_MAX, XATTR_NAME_MAX};
use crate::format::*;
use crate::ids::*;
use crate::tree::KeyScan;
use crate::tuning::SHARED_LEAVES;

/// Fails if keys are too long at the new place.
pub(super) fn fits(moved: bool) -> Result<()> {
    if moved { Ok(()) } else { Err(Refusal::NameTooLong.into()) }
}

/// 16 MiB: the most that keys, and attributes without counters, take in addition.
const MOVED_BESIDES: u64 = 16 << 20;

/// 1/8 of the log: a copied object fits into one record.
const LOG_PARTS: u64 = 8;
/// 8 KiB: with tiny leaves a range clone takes more.
const COPIED_MIN: u64 = 8 << 10;

impl Fs {
    /// The greatest size of an object that is moved by a copy.
    pub(super) fn copied_max(&self) -> u64 {
        let leaf = u64::from(self.volume.store().geometry.leaf_size / SHARED_LEAVES);
        let log = self.volume.superblock().log_units * BLOCK_SIZE as u64;
        leaf.max(COPIED_MIN).min(log / LOG_PARTS)
    }

    /// Gives a large object, or its contents, a zone of its own, so that it can move.
    pub(super) fn detach(&mut self, object: &Object) -> Result<()> {
        let (inode, most) = (object.inode(), self.copied_max());
        let has_zone = object.zone().is_some() || inode.data_zone.is_some();
        match inode.kind {
            _ if has_zone => Ok(()),
            FileType::Directory if self.is_heavy(object, most)? => self.split(object),
            FileType::Regular if whole_blocks(inode.size) > most => self.split_file(object),
            _ => Ok(()),
        }
    }

    /// Moves everything of an object, except its inode, from its place to `new`. Entries of a directory must move to a zone of the same
    /// lineage. Returns false if keys would be too long there; then the draft must be dropped.
    pub(super) fn relocate(
        &self,
        draft: &mut Draft,
        object: &Object,
        new: &MetaKey,
    ) -> Result<bool> {
        let old = &object.place();
        if new.reach() > KEY_MAX.max(old.reach()) {
            return Ok(false);
        }
        self.relocate_xattrs(draft, old, new)?;
        match object.kind() {
            FileType::Directory => self.relocate_subtree(draft, (old, object.lineage()), new),
            FileType::Regular => {
                if object.inode().data_zone.is_none() {
                    self.relocate_blocks(draft, object, &new.encode())?;
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// Moves the attributes of an object.
    pub(super) fn relocate_xattrs(
        &self,
        draft: &mut Draft,
        old: &MetaKey,
        new: &MetaKey,
    ) -> Result<()> {
        let xattrs = self.xattrs_at(old)?;
        if !xattrs.is_empty() {
            draft.delete_range(TreeId::Metadata, old.xattr_range());
        }
        for (name, value) in xattrs {
            draft.insert(&new.with_xattr(&name), value);
        }
        Ok(())
    }

    /// Limits the bytes that one operation moves, whatever the counters say.
    fn check_moved(&self, place: &MetaKey, moved: u64) -> Result<()> {
        let most = 2 * self.sizes.min.max(self.copied_max()) + MOVED_BESIDES;
        match moved <= most {
            true => Ok(()),
            false => {
                let found = format!("more than {most} bytes");
                Err(self.damaged(place, "what its counters say", &found))
            }
        }
    }

    /// Moves everything below a directory without a copy, to a zone that has nothing below its root and inherits the
    /// lineage.
    pub(super) fn splice_subtree(
        &self,
        draft: &mut Draft,
        directory: &Object,
        zone: ZoneId,
    ) -> Result<()> {
        let old = directory.place();
        let (lo, hi) = old.subtree_range();
        for tree in [TreeId::Metadata, TreeId::Data] {
            let mut keys = KeyScan::new(tree, lo.clone(), Some(hi.clone()));
            if keys.next(self.volume.store())?.is_some() {
                draft.clone_range(tree, self.all_below(&old, zone)?);
                draft.delete_range(tree, (lo.clone(), hi.clone()));
            }
        }
        if directory.inode().sums.apart > 0 {
            self.change_zones(draft, (lo, hi), directory.lineage(), zone)?;
        }
        Ok(())
    }

    /// Updates the records of all zones that entries of a range name, which move to another zone.
    fn change_zones(
        &self,
        draft: &mut Draft,
        (lo, hi): (Key, Key),
        lineage: Lineage,
        zone: ZoneId,
    ) -> Result<()> {
        for entry in self.volume.cursor(TreeId::Metadata, lo, Some(hi)) {
            let (key, value) = entry?;
            let place = MetaKey::decode(&key).ok_or_else(|| self.bad_key(&key))?;
            if place.xattr().is_none() {
                self.change_zone(draft, decode_shown(&key, &value, lineage)?, zone);
            }
            if draft.messages() > MESSAGES_AT_ONCE {
                return Err(Refusal::TooBig.into());
            }
        }
        Ok(())
    }

    fn relocate_subtree(
        &self,
        draft: &mut Draft,
        (old, lineage): (&MetaKey, Lineage),
        new: &MetaKey,
    ) -> Result<bool> {
        let (before, after) = (old.below(), new.below());
        let moved = |key: &Key| Key::new([&after[..], &key[before.len()..]].concat());
        let (lo, hi) = old.subtree_range();
        let (mut some, mut bytes) = (false, 0);
        for entry in self.volume.cursor(TreeId::Metadata, lo, Some(hi)) {
            let (key, value) = entry?;
            some = true;
            bytes += value.len() as u64;
            self.check_moved(old, bytes)?;
            let place = MetaKey::decode(&key).ok_or_else(|| self.bad_key(&key))?;
            let to = moved(&key);
            if place.xattr().is_none() {
                // A key that does not become longer is valid, as it was.
                if to.len() > key.len() && to.len() + 1 + XATTR_NAME_MAX > KEY_MAX {
                    return Ok(false);
                }
                if old.zone() != new.zone() {
                    self.change_zone(draft, decode_shown(&key, &value, lineage)?, new.zone());
                }
            }
            draft.insert_at(TreeId::Metadata, to, value);
        }
        if some {
            draft.delete_range(TreeId::Metadata, old.subtree_range());
        }
        let (lo, hi) = old.subtree_range();
        let (mut some, mut bytes) = (false, 0);
        for entry in self.volume.cursor(TreeId::Data, lo, Some(hi)) {
            let (key, value) = entry?;
            some = true;
            bytes += value.len() as u64;
            self.check_moved(old, bytes)?;
            draft.insert_at(TreeId::Data, moved(&key), value);
        }
        if some {
            draft.delete_range(TreeId::Data, old.subtree_range());
        }
        Ok(true)
    }

    /// Updates the records of a zone when an entry that names it moves to another zone.
    fn change_zone(&self, draft: &mut Draft, value: MetaValue, zone: ZoneId) {
        match value {
            MetaValue::Inode(inode) => self.small_moves(draft, inode.data_zone, Some(zone)),
            MetaValue::ZoneRef(reference) if reference.kind == FileType::Directory => {
                self.small_moves(draft, Some(reference.zone), Some(zone));
                match self.live.get(reference.ino) {
                    Some(root) => {
                        if let Some(parent) = &mut draft.inode(&root).parent {
                            parent.zone = zone;
                        }
                    }
                    None => {
                        let parent = Update::patch(INODE_BYTES, &zone.0.to_le_bytes(), false);
                        draft.update(&MetaKey::root(reference.zone), parent);
                    }
                }
            }
            MetaValue::ZoneRef(_) => {}
        }
    }

    /// Moves the blocks of a file without a copy, to a zone that has none.
    pub(super) fn splice_blocks(
        &self,
        draft: &mut Draft,
        file: &Object,
        zone: ZoneId,
    ) -> Result<()> {
        if self.keys_within(file, 0, u64::MAX).next(self.volume.store())?.is_some() {
            let prefix = Key::new(data::data_prefix(file));
            // Those that the range delete deletes, so that it drops nodes without a look at them.
            let [first, end] = [0, u64::MAX].map(|block: u64| Key::copied(&block.to_be_bytes()));
            draft.clone_range(TreeId::Data, self.clone_into(zone, prefix, first, Some(end))?);
            draft.append_deletes(data::delete_blocks(file, 0));
        }
        Ok(())
    }

    /// Moves the blocks of a file to the prefix `to`.
    pub(super) fn relocate_blocks(
        &self,
        draft: &mut Draft,
        file: &Object,
        to: &[u8],
    ) -> Result<()> {
        if file.inode().size == 0 {
            return Ok(());
        }
        let mut blocks = self.blocks(file);
        let mut bytes = 0;
        while let Some((at, value)) = self.next_block(&mut blocks)? {
            bytes += value.len() as u64;
            self.check_moved(&file.place(), bytes)?;
            let key = data_key(to, at / limits::FILE_BLOCK as u64);
            draft.insert_at(TreeId::Data, key, value);
        }
        draft.append_deletes(data::delete_blocks(file, 0));
        Ok(())
    }
}
