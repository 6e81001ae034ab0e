//! Attributes, extended attributes, times of access.

use betr_cli::volume::clock_now;
use betr_core::error::{Error, Refusal};
use betr_core::format::{Inode, limits};
use betr_core::fs::{Changes, Fs, Object, acl};
use betr_core::ids::Ino;
use betr_core::volume::Blocks;
use fuser::{FileAttr, TimeOrNow};

use super::Caller;
use crate::attr::{self, time_of};
use crate::errno::{Answer, Errno};
use crate::inodes::Known;
use crate::server::Server;

/// The extended attribute with the capabilities of a program: a change of the file removes it.
const CAPABILITY: &[u8] = b"security.capability";
/// The class of attributes that only root sees, and all classes.
const TRUSTED: &[u8] = b"trusted.";
const CLASSES: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];
/// The set-group-ID bit.
const S_ISGID: u32 = 0o2000;
/// Flags of setxattr(2).
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Attributes to set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Set {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
}

impl Server {
    /// Sets attributes.
    pub(crate) fn set(&self, by: Caller, ino: Ino, set: Set) -> Answer<FileAttr> {
        self.settle_access(ino);
        let object = match self.inodes.known(ino)? {
            Known::Object(object) => object,
            Known::Gone(inode) => return Ok(attr::attributes(&inode, 0, &self.options)),
        };
        self.change(|fs| {
            let now = fs.now();
            if let Some(size) = set.size {
                let before = object.inode().size;
                // As with ftruncate(2), setting the same size still updates the times.
                self.changed_by(fs, by, &object)?;
                fs.truncate(&object, size)?;
                self.gives_back(before.saturating_sub(size));
            }
            let changes = Changes {
                perm: set.mode.map(|mode| mode & 0o7777),
                uid: set.uid,
                gid: set.gid,
                accessed: set.accessed.map(|time| time_of(time, now)),
                modified: set.modified.map(|time| time_of(time, now)),
            };
            if changes != Changes::default() {
                fs.set_attributes(&object, changes)?;
            }
            if set.uid.is_some() || set.gid.is_some() {
                self.drop_capabilities(fs, &object)?;
            }
            self.attributes_of(by, fs, &object)
        })
    }

    /// Before the contents of a file change: drops set-user-ID and set-group-ID unless root changes it, and
    /// capabilities.
    pub(super) fn changed_by(
        &self,
        fs: &mut Fs,
        by: Caller,
        object: &Object,
    ) -> betr_core::Result<()> {
        if !by.is_root() {
            drop_set_ids(fs, by, object)?;
        }
        self.drop_capabilities(fs, object)
    }

    pub(super) fn drop_capabilities(&self, fs: &mut Fs, object: &Object) -> betr_core::Result<()> {
        match fs.remove_xattr(object, CAPABILITY) {
            Err(Error::Refused(Refusal::NoAttribute)) => Ok(()),
            result => result,
        }
    }

    /// Notes that an object was read. Its time of access is shown at once and written later, so that a reader does
    /// not wait for the writer lock.
    pub(super) fn accessed(&self, object: &Object) {
        if self.is_access_due(object) {
            self.accesses.lock().insert(object.ino(), clock_now());
        }
    }

    /// Whether reading an object updates its time of access.
    pub(super) fn is_access_due(&self, object: &Object) -> bool {
        let inode = object.inode();
        let waits = self.accesses.lock().get(&object.ino()).copied();
        let due = match waits {
            // A pending time counts as written.
            Some(time) => {
                Fs::is_access_due(&Inode { accessed: time, ..Inode::clone(&inode) }, clock_now())
            }
            None => Fs::is_access_due(&inode, clock_now()),
        };
        due && !self.leaves_accesses()
    }

    /// Writes the pending time of access of an inode, if there is one.
    fn settle_access(&self, ino: Ino) {
        let time = self.accesses.lock().remove(&ino);
        if let (Some(time), Ok(object)) = (time, self.object(ino)) {
            // A failure is reported there; it must not fail the current request.
            let _ = self.change(|fs| fs.note_access(&object, time));
        }
    }

    /// Writes all pending times of access.
    pub(crate) fn settle_accesses(&self) {
        if self.leaves_accesses() {
            return self.accesses.lock().clear();
        }
        let all: Vec<Ino> = self.accesses.lock().keys().copied().collect();
        all.into_iter().for_each(|ino| self.settle_access(ino));
    }

    /// The value of an extended attribute.
    pub(crate) fn xattr(&self, ino: Ino, name: &[u8]) -> Answer<Vec<u8>> {
        check_class(name)?;
        let object = self.object(ino)?;
        self.read(|fs| Ok(fs.xattr(&object, name)?.to_vec()))
    }

    /// The names of all extended attributes that the caller may see, each terminated by a zero byte.
    pub(crate) fn xattrs(&self, by: Caller, ino: Ino) -> Answer<Vec<u8>> {
        let object = self.object(ino)?;
        let all = self.read(|fs| fs.xattrs(&object))?;
        let seen = all.into_iter().map(|(name, _)| name);
        let seen = seen.filter(|name| by.is_root() || !name.starts_with(TRUSTED));
        Ok(seen.flat_map(|name| name.into_iter().chain([0])).collect())
    }

    /// Sets an extended attribute.
    ///
    /// An access control list sets permission bits: as with chmod(2), this drops set-group-ID if the caller is not in
    /// the group.
    pub(crate) fn set_xattr(
        &self,
        by: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Answer<()> {
        check_class(name)?;
        let object = self.object(ino)?;
        if value.len() > limits::VALUE_MAX {
            return Err(Errno::ENOSPC);
        }
        let kills = name == acl::ACCESS && !by.is_root() && !by.is_in(object.inode().gid);
        self.change(|fs| {
            let there = match fs.xattr(&object, name) {
                Ok(_) => true,
                Err(Error::Refused(Refusal::NoAttribute)) => false,
                Err(error) => return Err(error),
            };
            match there {
                true if flags & XATTR_CREATE != 0 => return Err(Refusal::Exists.into()),
                false if flags & XATTR_REPLACE != 0 => return Err(Refusal::NoAttribute.into()),
                _ => {}
            }
            let perm = object.inode().perm;
            if kills && perm & S_ISGID != 0 {
                let changes = Changes { perm: Some(perm & !S_ISGID), ..Changes::default() };
                fs.set_attributes(&object, changes)?;
            }
            fs.set_xattrs(&object, &[(name.to_vec(), value.to_vec())])
        })?;
        if name == CAPABILITY {
            self.inodes.set_capable(ino, true);
        }
        Ok(())
    }

    /// Removes an extended attribute. Removing a missing access control list succeeds: setting an empty list is a
    /// removal, too, and other file systems allow that repeatedly.
    pub(crate) fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Answer<()> {
        check_class(name)?;
        let object = self.object(ino)?;
        let is_list = [acl::ACCESS, acl::DEFAULT].contains(&name);
        self.change(|fs| match fs.remove_xattr(&object, name) {
            Err(Error::Refused(Refusal::NoAttribute)) if is_list => Ok(()),
            removed => removed,
        })
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&self, ino: Ino) -> Answer<Vec<u8>> {
        let object = self.object(ino)?;
        self.accessed(&object);
        Ok(object.inode().target.clone())
    }

    /// Total and free blocks.
    pub(crate) fn room(&self) -> Answer<Blocks> {
        self.read(|fs| fs.volume().blocks())
    }
}

/// Before a user other than root changes the contents of a file: drops set-user-ID and set-group-ID, as ext4 does.
pub(super) fn drop_set_ids(fs: &mut Fs, by: Caller, object: &Object) -> betr_core::Result<()> {
    let (perm, gid) = (object.inode().perm, object.inode().gid);
    // Reads the caller's groups from /proc, so only if the bit is set.
    let is_member = perm & S_ISGID != 0 && by.is_in(gid);
    fs.drop_set_ids(object, is_member)
}

/// Refuses an attribute of an unknown class (xattr(7)).
fn check_class(name: &[u8]) -> Answer<()> {
    if CLASSES.contains(&name) {
        return Err(Errno::EINVAL);
    }
    let known = CLASSES.iter().any(|class| name.starts_with(class));
    match known || [acl::ACCESS, acl::DEFAULT].contains(&name) {
        true => Ok(()),
        false => Err(Errno::EOPNOTSUPP),
    }
}
