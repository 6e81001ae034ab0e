//! Removing and renaming entries of directories.

use std::collections::HashSet;

use super::make::add_links;
use super::{Fs, Object, check_name, delete, insert, insert_inode};
use crate::error::{Error, Refusal, Result};
use crate::format::*;
use crate::ids::*;

impl Fs {
    /// Removes a name of something that is not a directory; the last name takes the object with it.
    pub fn unlink(&mut self, directory: &Object, name: &[u8]) -> Result<()> {
        let object = self.lookup(directory, name)?;
        if object.inode.kind == FileType::Directory {
            return Err(Refusal::IsADirectory.into());
        }
        let now = self.now();
        let mut messages = vec![delete(&directory.place.child(name))];
        messages.extend(self.drop_link(&object, now)?);
        messages.push(self.touch_directory(directory, now, 0)?);
        self.commit(Op::Unlink, now, messages)?;
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, directory: &Object, name: &[u8]) -> Result<()> {
        let object = self.lookup(directory, name)?;
        self.check_empty(&object)?;
        let now = self.now();
        let mut messages = vec![delete(&directory.place.child(name))];
        messages.extend(self.drop_link(&object, now)?);
        messages.push(self.touch_directory(directory, now, -1)?);
        self.commit(Op::Rmdir, now, messages)?;
        Ok(())
    }

    fn check_empty(&self, directory: &Object) -> Result<()> {
        let mut scan = self.scan_directory(directory)?;
        match self.next_entry(&mut scan)? {
            None => Ok(()),
            Some(_) => Err(Refusal::NotEmpty.into()),
        }
    }

    /// The messages that take one link from an object whose entry is being removed or replaced.
    fn drop_link(&self, object: &Object, now: Time) -> Result<Vec<RecordMessage>> {
        let mut inode = object.inode.clone();
        if inode.kind != FileType::Directory && inode.links > 1 {
            inode.links = add_links(inode.links, -1)?;
            inode.changed = now;
            return Ok(vec![insert_inode(&object.place, &inode)]);
        }
        let mut messages = Vec::new();
        if object.place.path.is_empty() {
            messages.push(delete(&object.place));
        }
        if self.has_xattrs(&object.place)? {
            let (lo, hi) = object.place.xattr_range();
            messages.push(RecordMessage::RangeDelete(TreeId::Metadata, lo, hi));
        }
        if inode.kind == FileType::Regular && inode.size > 0 {
            messages.push(super::data::delete_blocks(object, 0));
        }
        Ok(messages)
    }

    /// Moves `from`/`name` to `to`/`new_name`, over what is there if POSIX allows it.
    pub fn rename(
        &mut self,
        from: &Object,
        name: &[u8],
        to: &Object,
        new_name: &[u8],
    ) -> Result<()> {
        check_name(new_name)?;
        let object = self.lookup(from, name)?;
        let target = self.find(to, new_name)?;
        let is_directory = object.inode.kind == FileType::Directory;
        if let Some(target) = &target {
            if target.inode.ino == object.inode.ino {
                return Ok(());
            }
            match (is_directory, target.inode.kind == FileType::Directory) {
                (true, false) => return Err(Refusal::NotADirectory.into()),
                (false, true) => return Err(Refusal::IsADirectory.into()),
                (true, true) => self.check_empty(target)?,
                (false, false) => {}
            }
        }
        if is_directory {
            self.check_not_below(to, &object)?;
        }
        self.check_movable(&object)?;
        let now = self.now();
        let mut messages = Vec::new();
        let old_entry = from.place.child(name);
        let new_entry = to.place.child(new_name);
        if let Some(target) = &target {
            messages.extend(self.drop_link(target, now)?);
        }
        messages.push(delete(&old_entry));
        messages.extend(self.move_entry(&object, &old_entry, &new_entry, now)?);
        let moved = i64::from(is_directory);
        let replaced = i64::from(target.is_some_and(|t| t.inode.kind == FileType::Directory));
        if from.place == to.place {
            messages.push(self.touch_directory(from, now, -replaced)?);
        } else {
            messages.push(self.touch_directory(from, now, -moved)?);
            messages.push(self.touch_directory(to, now, moved - replaced)?);
        }
        self.commit(Op::Rename, now, messages)?;
        Ok(())
    }

    /// The messages that put an object's entry, and what goes with it, at a new place.
    fn move_entry(
        &self,
        object: &Object,
        old: &MetaKey,
        new: &MetaKey,
        now: Time,
    ) -> Result<Vec<RecordMessage>> {
        let mut inode = object.inode.clone();
        inode.changed = now;
        let mut messages = Vec::new();
        if !object.place.path.is_empty() {
            messages.extend(self.move_xattrs(old, new)?);
            messages.push(insert_inode(new, &inode));
            return Ok(messages);
        }
        if inode.kind == FileType::Directory {
            let name = new.path.last().cloned().unwrap_or_default();
            inode.parent = Some(Parent { zone: new.zone, name });
        }
        match self.value(old)? {
            Some(MetaValue::ZoneRef(reference)) => messages.push(insert(new, reference.encode())),
            _ => return Err(self.damaged(old, "a zone reference", "something else")),
        }
        messages.push(insert_inode(&object.place, &inode));
        Ok(messages)
    }

    /// An object can be moved if everything below it hangs on a zone of its own.
    fn check_movable(&self, object: &Object) -> Result<()> {
        let fixed = match object.inode.kind {
            FileType::Directory => !object.place.path.is_empty(),
            FileType::Regular => object.inode.data_zone.is_none() && object.inode.size > 0,
            _ => false,
        };
        if fixed {
            return Err(Error::Unsupported("renaming what has no zone of its own".into()));
        }
        Ok(())
    }

    /// A directory must not move below itself.
    fn check_not_below(&self, to: &Object, moved: &Object) -> Result<()> {
        let mut directory = to.clone();
        let mut seen = HashSet::new();
        while seen.insert(directory.inode.ino) {
            if directory.inode.ino == moved.inode.ino {
                return Err(Refusal::Invalid.into());
            }
            match &directory.inode.parent {
                Some(parent) => directory = self.object(MetaKey::root(parent.zone))?,
                None => return Ok(()),
            }
        }
        Err(self.damaged(&to.place, "a way to the root", "a cycle"))
    }
}
