//! Writing a tree on the host, never outside its destination.
//!
//! Names come from an image and may be hostile. So every path must consist of plain names, every parent directory is
//! opened below the destination without following symbolic links, and no existing object is ever opened for writing
//! or replaced.
//!
//! Everything is created accessible to the caller alone; [`Target::set_meta`] sets the final owner, mode and times.
//! The caller has two duties. It sets the metadata of a directory after its contents, because adding an entry changes
//! the times again and may be refused. It sets those of the destination last, because until then no other user can
//! reach anything in it.
//!
//! After a failure nothing is removed: the caller keeps or removes what has been written.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use betr_core::path::Operand;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, makedev, openat};
use rustix::io::Errno;

use crate::host::error::{HostError, Result, Warning};
use crate::host::meta::{Kind, Meta};
use crate::host::restore;
use crate::host::walk::{self, NAME_MAX};
use crate::host::writer::FileWriter;
use crate::host::xattr;

/// A tree, or one single object, of the host to create.
#[derive(Debug)]
pub struct Target {
    /// The destination directory; for a single object, the directory it is in.
    dir: OwnedFd,
    /// The name of the single object; `None` for a directory.
    single: Option<Vec<u8>>,
    /// The destination, for messages.
    path: Vec<u8>,
    /// The directory last written to: entries of one directory mostly follow each other.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
}

/// An open directory, and the name in it of an object to create.
struct Place {
    /// `None` for the directory that the target itself holds open.
    parent: Option<Arc<OwnedFd>>,
    name: Vec<u8>,
}

impl Target {
    /// Prepares to write to `dest`.
    ///
    /// With `directory`, `dest` is created as a directory, or an existing empty one is used. Its mode is 0700 until
    /// `set_meta(b"", …)`. Otherwise `dest` is the path of one single object: nothing is created yet, and the path of
    /// the object is the empty one, `b""`.
    pub fn create(dest: &Path, directory: bool) -> Result<Self> {
        let shown = dest.as_os_str().as_bytes().to_vec();
        if directory { create_directory(dest, shown) } else { create_single(shown) }
    }

    /// Prepares to create objects in the existing directory `dest`, which keeps its metadata. No entry is replaced.
    pub fn into_existing(dest: &Path) -> Result<Self> {
        let shown = dest.as_os_str().as_bytes().to_vec();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, dest, flags, Mode::empty())
            .map_err(|errno| HostError::io("open the directory", shown.clone(), errno))?;
        Ok(Target { dir, single: None, path: shown, last: None })
    }

    /// Creates the directory `path`.
    pub fn mkdir(&mut self, path: &[u8]) -> Result<()> {
        let place = self.place(path)?;
        rustix::fs::mkdirat(self.parent(&place), &place.name, Mode::RWXU)
            .map_err(|errno| self.not_made("make the directory", path, errno))
    }

    /// Creates the empty regular file `path`.
    pub fn file(&mut self, path: &[u8]) -> Result<FileWriter> {
        let place = self.place(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = openat(self.parent(&place), &place.name, flags, mode)
            .map_err(|errno| self.not_made("make the file", path, errno))?;
        Ok(FileWriter::new(fd, self.shown(path)))
    }

    /// Creates the symbolic link `path` with the target `target`, which may be any bytes: it is not followed.
    pub fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let place = self.place(path)?;
        rustix::fs::symlinkat(target, self.parent(&place), &place.name)
            .map_err(|errno| self.not_made("make the symbolic link", path, errno))
    }

    /// Creates a device, pipe or socket, with the owner's bits of `perm`; [`Target::set_meta`] adds those for others.
    ///
    /// A warning means that it was not created, because only root may create devices or because the host has no such
    /// device number; the caller must not set its metadata then.
    pub fn mknod(&mut self, path: &[u8], kind: &Kind, perm: u32) -> Result<Option<Warning>> {
        let place = self.place(path)?;
        let (device, number) = match *kind {
            Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                (true, (major, minor))
            }
            Kind::Fifo | Kind::Socket => (false, (0, 0)),
            Kind::Directory | Kind::File | Kind::Symlink(_) => {
                return Err(HostError::NotSupported {
                    path: self.shown(path),
                    what: "only devices, pipes and sockets are made as nodes",
                });
            }
        };
        let warning = |errno: Errno| Warning {
            path: self.shown(path),
            what: format!("the device {}:{} was not made", number.0, number.1),
            errno: errno.raw_os_error(),
        };
        // The kernel encodes 12 bits of the major and 20 of the minor number, and would truncate others.
        if number.0 >= 1 << 12 || number.1 >= 1 << 20 {
            return Ok(Some(warning(Errno::RANGE)));
        }
        let (parent, mode) = (self.parent(&place), Mode::from_raw_mode(perm & 0o700));
        let dev = makedev(number.0, number.1);
        match rustix::fs::mknodat(parent, &place.name, kind.file_type(), mode, dev) {
            Ok(()) => Ok(None),
            Err(errno @ Errno::PERM) if device => Ok(Some(warning(errno))),
            Err(errno) => Err(self.not_made("make the special file", path, errno)),
        }
    }

    /// Makes `new` a hard link to the object `existing`, which is not a directory. A symbolic link is itself linked.
    pub fn link(&mut self, existing: &[u8], new: &[u8]) -> Result<()> {
        let old = self.place(existing)?;
        let place = self.place(new)?;
        let (from, to) = (self.parent(&old), self.parent(&place));
        rustix::fs::linkat(from, &old.name, to, &place.name, AtFlags::empty())
            .map_err(|errno| self.not_made("make the hard link", new, errno))
    }

    /// Sets the owner, extended attributes, mode and times of `path`, whose kind must be that of `meta`.
    ///
    /// Returns a warning for each detail that the host does not let this user restore, and restores the rest:
    /// ownership, attributes reserved to root (`trusted.*`, `security.*`) or impossible on that kind of object
    /// (`user.*` on links and special files), and times and modes that the host's file system changed. If the owner
    /// could not be set, set-user-ID and set-group-ID are not set either. Anything else is an error.
    pub fn set_meta(&mut self, path: &[u8], meta: &Meta) -> Result<Vec<Warning>> {
        let place = match (path, &self.single) {
            (b"", None) => Place { parent: None, name: b".".to_vec() },
            _ => self.place(path)?,
        };
        let (parent, shown) = (self.parent(&place), self.shown(path));
        restore::set_meta(parent, &place.name, shown, meta, self.single.is_some())
    }

    /// Writes the destination's file system to its device and waits (syncfs), so that delayed write errors are
    /// reported.
    pub fn sync(&self) -> Result<()> {
        // An O_PATH descriptor cannot be synced.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.dir, c".", flags, Mode::empty())
            .and_then(rustix::fs::syncfs)
            .map_err(|errno| HostError::io("write to the device", self.path.clone(), errno))
    }

    /// Checks `path`, and opens its parent directory.
    fn place(&mut self, path: &[u8]) -> Result<Place> {
        walk::check_path(path, NAME_MAX)?;
        let (parent, name) = match (&self.single, path) {
            (Some(name), b"") => (&b""[..], &name[..]),
            (Some(_), _) => return Err(refused(path, "is not the one that is made here")),
            (None, b"") => return Err(refused(path, "is the destination itself")),
            (None, path) => walk::split(path),
        };
        let name = name.to_vec();
        Ok(Place { parent: self.open_parent(parent)?, name })
    }

    /// Opens the directory `path`, relative to the last one if it is the same or below it.
    fn open_parent(&mut self, path: &[u8]) -> Result<Option<Arc<OwnedFd>>> {
        if path.is_empty() {
            return Ok(None);
        }
        let opened = match &self.last {
            Some((last, fd)) if last == path => return Ok(Some(Arc::clone(fd))),
            Some((last, fd)) if path.starts_with(last) && path[last.len()] == b'/' => {
                walk::open_parent(fd.as_fd(), &path[last.len() + 1..])
            }
            _ => walk::open_parent(self.dir.as_fd(), path),
        };
        let fd =
            opened.map_err(|errno| HostError::io("open the directory", self.shown(path), errno))?;
        let fd = Arc::new(fd);
        self.last = Some((path.to_vec(), Arc::clone(&fd)));
        Ok(Some(fd))
    }

    fn parent<'a>(&'a self, place: &'a Place) -> BorrowedFd<'a> {
        place.parent.as_ref().map_or(self.dir.as_fd(), |fd| fd.as_fd())
    }

    fn shown(&self, path: &[u8]) -> Vec<u8> {
        walk::join(&self.path, path)
    }

    fn not_made(&self, op: &'static str, path: &[u8], errno: Errno) -> HostError {
        match errno {
            Errno::EXIST => HostError::Exists { path: self.shown(path) },
            errno => HostError::io(op, self.shown(path), errno),
        }
    }
}

fn refused(path: &[u8], why: &'static str) -> HostError {
    HostError::BadName { path: path.to_vec(), name: path.to_vec(), why }
}

fn create_directory(dest: &Path, shown: Vec<u8>) -> Result<Target> {
    let fail = |op, errno| HostError::io(op, shown.clone(), errno);
    match rustix::fs::mkdirat(CWD, dest, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(fail("make the directory", errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match openat(CWD, dest, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(HostError::Exists { path: shown }),
        Err(errno) => return Err(fail("open the directory", errno)),
    };
    // A new directory is checked, too: another process may have written to it.
    if !is_empty(dir.as_fd()).map_err(|errno| fail("list", errno))? {
        return Err(HostError::Exists { path: shown });
    }
    // An inherited access control list would be inherited by all new entries, and give other users access that no
    // mode shows.
    xattr::remove_acls(dir.as_fd())
        .map_err(|errno| fail("remove the access control list of", errno))?;
    rustix::fs::fchmod(&dir, Mode::RWXU).map_err(|errno| fail("change the mode of", errno))?;
    Ok(Target { dir, single: None, path: shown, last: None })
}

fn create_single(shown: Vec<u8>) -> Result<Target> {
    let operand = Operand::new(shown.clone());
    let split = operand.split().filter(|_| !operand.wants_directory());
    let Some((parent, name)) = split else {
        return Err(refused(&shown, "cannot be that of a file"));
    };
    let name = name.to_vec();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(CWD, parent, flags, Mode::empty())
        .map_err(|errno| HostError::io("open the directory", parent.to_vec(), errno))?;
    match rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {}
        Ok(_) => return Err(HostError::Exists { path: shown }),
        Err(errno) => return Err(HostError::io("look at", shown, errno)),
    }
    Ok(Target { dir, single: Some(name), path: shown, last: None })
}

fn is_empty(dir: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    for entry in Dir::read_from(dir)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
