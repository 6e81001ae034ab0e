//! Operations on names: lookup, create, link, unlink, rename.

use betr_core::error::{Error, Refusal, Result};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New, Object, Over, Unlink};
use betr_core::ids::Ino;
use fuser::{FileAttr, RenameFlags};

use super::Caller;
use crate::errno::{Answer, Errno};
use crate::server::Server;

/// The type and attributes of an object to create.
pub(crate) struct Make {
    pub kind: FileType,
    pub mode: u32,
    pub umask: u32,
    pub device: (u32, u32),
    pub target: Vec<u8>,
}

impl Server {
    /// Looks up a name; `None` if it does not exist.
    pub(crate) fn lookup(&self, by: Caller, parent: Ino, name: &[u8]) -> Answer<Option<FileAttr>> {
        let directory = self.object(parent)?;
        self.read(|fs| match fs.find(&directory, name)? {
            Some(object) => self.enter(by, fs, &object).map(Some),
            None => Ok(None),
        })
    }

    /// Creates an object.
    pub(crate) fn make(
        &self,
        by: Caller,
        parent: Ino,
        name: &[u8],
        make: Make,
    ) -> Answer<FileAttr> {
        let directory = self.object(parent)?;
        let made = self.change(|fs| {
            let now = fs.now();
            let perm = make.mode & 0o7777;
            let attributes = Attributes { perm, uid: by.uid, gid: by.gid, ..Attributes::at(now) };
            let new =
                New { target: make.target, device: make.device, ..New::of(make.kind, attributes) };
            let new = fs.inherit(&directory, new, make.umask)?;
            let object = fs.make(&directory, name, new)?;
            self.enter(by, fs, &object)
        });
        self.changed(by, parent);
        made
    }

    /// Adds a hard link to an object.
    pub(crate) fn link(&self, by: Caller, ino: Ino, parent: Ino, name: &[u8]) -> Answer<FileAttr> {
        let (object, directory) = (self.object(ino)?, self.object(parent)?);
        let linked = self.change(|fs| {
            fs.link(&object, &directory, name)?;
            self.enter(by, fs, &object)
        });
        self.changed(by, parent);
        linked
    }

    /// Removes a name that is not a directory.
    ///
    /// Where files are opened without a request, the answer comes before the removal: only the FORGET of the kernel, or
    /// that there is none before the next request, tells whether the object is in use.
    pub(crate) fn unlink(&self, by: Caller, parent: Ino, name: &[u8]) -> Answer<()> {
        let directory = self.object(parent)?;
        let done = self.change(|fs| {
            let object = fs.lookup(&directory, name)?;
            if object.is_directory() {
                return Err(Refusal::IsADirectory.into());
            }
            let is_last = object.inode().links <= 1;
            if self.spares_opens() && is_last && self.inodes.knows(object.ino()) {
                self.gives_back(object.inode().size);
                let (directory, name) = (directory.clone(), name.to_vec());
                self.shared.unlink_later(Unlink { directory, name, object, in_use: true });
                return Ok(());
            }
            self.without(fs, &directory, name, object, |fs| fs.unlink(&directory, name))
        });
        self.changed(by, parent);
        done
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, by: Caller, parent: Ino, name: &[u8]) -> Answer<()> {
        let directory = self.object(parent)?;
        let done = self.change(|fs| {
            let object = fs.lookup(&directory, name)?;
            match object.is_directory() {
                true => self.without(fs, &directory, name, object, |fs| fs.rmdir(&directory, name)),
                false => Err(Refusal::NotADirectory.into()),
            }
        });
        self.changed(by, parent);
        done
    }

    /// Renames.
    pub(crate) fn rename(
        &self,
        by: Caller,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Answer<()> {
        let over = match flags {
            flags if flags.is_empty() => Over::Replace,
            RenameFlags::RENAME_NOREPLACE => Over::Refuse,
            RenameFlags::RENAME_EXCHANGE => Over::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        let (from, to) = (self.object(parent)?, self.object(new_parent)?);
        let done = self.change(|fs| {
            let rename = |fs: &mut Fs| fs.rename(&from, name, &to, new_name, over);
            match fs.find(&to, new_name)? {
                // The target is dropped only if the rename can succeed.
                Some(target) if over == Over::Replace && may_replace(fs, &from, name, &target)? => {
                    self.without(fs, &to, new_name, target, rename)
                }
                _ => rename(fs),
            }
        });
        self.changed(by, parent);
        self.changed(by, new_parent);
        done
    }

    /// Runs an operation that may remove the last name of `object`. The caller must hold the only other handle of it,
    /// besides the table of inodes.
    fn without(
        &self,
        fs: &mut Fs,
        directory: &Object,
        name: &[u8],
        object: Object,
        act: impl FnOnce(&mut Fs) -> Result<()>,
    ) -> Result<()> {
        // A refused operation must not drop the object, even for a moment.
        if object.is_directory() {
            fs.check_empty(&object)?;
        }
        let last = match object.is_directory() {
            true => true,
            false => object.inode().links <= 1 && !self.spares_opens(),
        };
        let (gone, size) = (last && self.inodes.let_go(&object), object.inode().size);
        drop(object);
        let done = act(fs);
        if gone && done.is_ok() {
            self.gives_back(size);
        }
        if done.is_err() && gone {
            match fs.lookup(directory, name) {
                Ok(object) => self.inodes.keep(&object),
                Err(Error::Refused(Refusal::NotFound)) => {}
                Err(_) => return done,
            }
        }
        done
    }
}

/// Whether the object called `name` may replace a target: a different object, and both or neither a directory.
fn may_replace(fs: &Fs, from: &Object, name: &[u8], target: &Object) -> Result<bool> {
    let moved = fs.lookup(from, name)?;
    Ok(moved != *target && moved.is_directory() == target.is_directory())
}
