//! Restores the metadata of one object of the host.
//!
//! The object is opened once, with O_PATH, so every step concerns the same object and follows no link. The order
//! matters:
//!
//! 1. the owner, because changing it clears set-user-ID, set-group-ID and file capabilities;
//! 2. extended attributes, while the owner may still write to the object: a user other than root may not add one to a
//!    read-only file;
//! 3. the mode, which must agree with an access control list among the attributes;
//! 4. the times, which nothing after them may change.
//!
//! At the end the result is compared: file systems round or limit times, and the kernel clears mode bits, without an
//! error.

use std::fs::Permissions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, chownat, openat, utimensat,
};
use rustix::io::Errno;

use crate::host::error::{HostError, Result, Warning};
use crate::host::meta::{Kind, Meta, Time};
use crate::host::walk::{self, proc_path};
use crate::host::xattr;

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// Restores the metadata of the entry `name` of `parent`. With `inherited` the object may have an access control list
/// from its directory, which is removed.
pub(crate) fn set_meta(
    parent: BorrowedFd<'_>,
    name: &[u8],
    path: Vec<u8>,
    meta: &Meta,
    inherited: bool,
) -> Result<Vec<Warning>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(parent, name, flags, Mode::empty())
        .map_err(|errno| HostError::io("open", path.clone(), errno))?;
    let mut restore = Restore { fd, path, meta, perm: meta.perm & 0o7777, warnings: Vec::new() };
    restore.check_kind()?;
    restore.owner(parent, name)?;
    if inherited && !matches!(meta.kind, Kind::Symlink(_)) {
        xattr::remove_acls(restore.fd.as_fd())
            .map_err(|errno| restore.io("remove the access control list of", errno))?;
    }
    restore.xattrs()?;
    restore.mode()?;
    restore.times(parent, name)?;
    restore.verify()?;
    Ok(restore.warnings)
}

/// An object, and the warnings so far.
struct Restore<'a> {
    fd: OwnedFd,
    path: Vec<u8>,
    meta: &'a Meta,
    /// The mode to set: without set-user-ID and set-group-ID if the owner was not set.
    perm: u32,
    warnings: Vec<Warning>,
}

impl Restore<'_> {
    fn check_kind(&self) -> Result<()> {
        let stat = walk::stat(self.fd.as_fd()).map_err(|errno| self.io("look at", errno))?;
        let kind = Kind::from_stat(&stat).map(|kind| kind.file_type());
        if kind == Some(self.meta.kind.file_type()) {
            return Ok(());
        }
        Err(HostError::NotSupported {
            path: self.path.clone(),
            what: "it is not what was made there, so it does not get its metadata",
        })
    }

    fn owner(&mut self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
        let Meta { uid, gid, .. } = *self.meta;
        // For chown(2) the number with all bits set means "leave unchanged".
        let set = if uid == u32::MAX || gid == u32::MAX {
            Err(Errno::INVAL)
        } else {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            match self.meta.kind {
                Kind::Symlink(_) => {
                    chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                }
                _ => {
                    let path = proc_path(self.fd.as_fd());
                    chownat(CWD, path, Some(uid), Some(gid), AtFlags::empty())
                }
            }
        };
        match set {
            Ok(()) => Ok(()),
            // Not permitted, or a number that is not mapped in this user namespace.
            Err(errno @ (Errno::PERM | Errno::INVAL)) => {
                let mut what = format!("owner {uid} and group {gid} were not set");
                if self.perm & SET_ID != 0 {
                    // With the wrong owner these bits would give the rights of that user.
                    self.perm &= !SET_ID;
                    what.push_str(", nor set-user-ID and set-group-ID, which depend on them");
                }
                self.warn(what, errno);
                Ok(())
            }
            Err(errno) => Err(self.io("change the owner of", errno)),
        }
    }

    fn xattrs(&mut self) -> Result<()> {
        for (name, value) in &self.meta.xattrs {
            let Err(errno) = xattr::set(self.fd.as_fd(), name, value) else {
                continue;
            };
            if !self.may_be_missing(name, errno) {
                return Err(self.io("set an extended attribute of", errno));
            }
            let what =
                format!("the extended attribute {} was not set", betr_core::text::printable(name));
            self.warn(what, errno);
        }
        Ok(())
    }

    /// Whether this user or this kernel cannot set the attribute on any such object; then it is a warning instead of
    /// an error.
    fn may_be_missing(&self, name: &[u8], errno: Errno) -> bool {
        let reserved = name.starts_with(b"trusted.") || name.starts_with(b"security.");
        match errno {
            Errno::PERM if name.starts_with(b"user.") => {
                !matches!(self.meta.kind, Kind::File | Kind::Directory)
            }
            Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL => reserved,
            _ => false,
        }
    }

    fn mode(&self) -> Result<()> {
        if matches!(self.meta.kind, Kind::Symlink(_)) {
            return Ok(());
        }
        // With a libc call, unlike rustix's system calls, so that fakeroot and similar libraries can intercept it.
        let mode = Permissions::from_mode(self.perm);
        std::fs::set_permissions(proc_path(self.fd.as_fd()), mode).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            self.io("change the mode of", errno)
        })
    }

    fn times(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
        let times = Timestamps {
            last_access: self.timespec(self.meta.atime)?,
            last_modification: self.timespec(self.meta.mtime)?,
        };
        let set = if matches!(self.meta.kind, Kind::Symlink(_)) {
            utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        } else {
            // Through the descriptor: the new mode may forbid access by name.
            utimensat(CWD, proc_path(self.fd.as_fd()), &times, AtFlags::empty())
        };
        set.map_err(|errno| self.io("set the times of", errno))
    }

    fn timespec(&self, time: Time) -> Result<Timespec> {
        // The kernel interprets UTIME_NOW and UTIME_OMIT in this field.
        if time.nanos >= 1_000_000_000 {
            return Err(self.io("set the times of", Errno::INVAL));
        }
        Ok(Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() })
    }

    /// Compares mode and times, which the host may change silently, with the requested ones.
    fn verify(&mut self) -> Result<()> {
        let stat = walk::stat(self.fd.as_fd()).map_err(|errno| self.io("look at", errno))?;
        let perm = stat.st_mode & 0o7777;
        if perm != self.perm && !matches!(self.meta.kind, Kind::Symlink(_)) {
            let what = format!("the host made mode {:04o} into {perm:04o}", self.perm);
            self.warn(what, Errno::PERM);
        }
        let read = (Time::accessed(&stat), Time::modified(&stat));
        if read != (self.meta.atime, self.meta.mtime) {
            let what = "the file system cannot hold its times and changed them".to_owned();
            self.warn(what, Errno::RANGE);
        }
        Ok(())
    }

    fn warn(&mut self, what: String, errno: Errno) {
        self.warnings.push(Warning { path: self.path.clone(), what, errno: errno.raw_os_error() });
    }

    fn io(&self, op: &'static str, errno: Errno) -> HostError {
        if errno == Errno::NOENT && !walk::proc_is_mounted() {
            return HostError::NotSupported {
                path: self.path.clone(),
                what: "its metadata cannot be restored because /proc is not mounted",
            };
        }
        HostError::io(op, self.path.clone(), errno)
    }
}
