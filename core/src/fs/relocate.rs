//! Moves everything under one key to another: attributes and contents of an inode, and everything below a directory.

use super::numbers::decode_shown;
use super::{Draft, Fs, Object, data};
use crate::error::{Refusal, Result};
use crate::format::limits::{KEY_MAX, XATTR_NAME_MAX};
use crate::format::*;
use crate::ids::*;

/// Fails if keys are too long at the new place.
pub(super) fn fits(moved: bool) -> Result<()> {
    if moved { Ok(()) } else { Err(Refusal::NameTooLong.into()) }
}

/// 16 MiB: the most that keys, and attributes without counters, take in addition.
const MOVED_BESIDES: u64 = 16 << 20;

impl Fs {
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
        let xattrs = self.xattrs_at(old)?;
        if !xattrs.is_empty() {
            draft.delete_range(TreeId::Metadata, old.xattr_range());
        }
        for (name, value) in xattrs {
            draft.insert(&new.with_xattr(&name), value);
        }
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

    /// Limits the bytes that one operation moves, whatever the counters say.
    fn check_moved(&self, place: &MetaKey, moved: u64) -> Result<()> {
        let most = 2 * self.sizes.max + MOVED_BESIDES;
        match moved <= most {
            true => Ok(()),
            false => {
                let found = format!("more than {most} bytes");
                Err(self.damaged(place, "what its counters say", &found))
            }
        }
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
            if place.xattr.is_none() {
                // A key that does not become longer is valid, as it was.
                if to.len() > key.len() && to.len() + 1 + XATTR_NAME_MAX > KEY_MAX {
                    return Ok(false);
                }
                if old.zone != new.zone {
                    self.change_zone(draft, decode_shown(&key, &value, lineage)?, new.zone);
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
