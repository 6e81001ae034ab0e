//! Writing a tree on the host, never outside its destination.
//!
//! Names come from an image and may be hostile. Every path is therefore checked
//! to be made of plain names, every directory on the way is opened below the
//! destination without following symbolic links, and nothing that exists is
//! ever opened for writing or replaced.
//!
//! Everything is made accessible to the caller alone; [`Target::set_meta`]
//! gives it its final owner, mode and times. Two duties are the caller's: a
//! directory gets its metadata after everything in it, or adding to it changes
//! its times again and may be refused, and the destination itself last, because
//! until then no other user can reach anything in it.
//!
//! Nothing is removed when something fails: what has been written stays for the
//! caller to keep or remove.

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

/// A tree, or one single object, of the host that is being made.
#[derive(Debug)]
pub struct Target {
    /// The destination directory; for a single object, the directory it is in.
    dir: OwnedFd,
    /// The name of the single object, if that is what is made.
    single: Option<Vec<u8>>,
    /// The destination, for messages.
    path: Vec<u8>,
    /// The directory that was last written to: a tree is mostly written one
    /// directory after the other.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
}

/// Where something is made: an open directory, and a name in it.
struct Place {
    /// Nothing for the directory that the target holds itself.
    parent: Option<Arc<OwnedFd>>,
    name: Vec<u8>,
}

impl Target {
    /// Prepares to write to `dest`.
    ///
    /// With `directory`, `dest` is made as a directory; an empty one that is
    /// there already is taken over. Its mode is 0700 until `set_meta(b"", …)`.
    /// Otherwise one single object is to be made at `dest`: nothing is made
    /// yet, and the path of the object is the empty one, `b""`.
    pub fn create(dest: &Path, directory: bool) -> Result<Self> {
        let shown = dest.as_os_str().as_bytes().to_vec();
        if directory { create_directory(dest, shown) } else { create_single(shown) }
    }

    /// Prepares to make things in the directory `dest`, which must be there and
    /// stays as it is: nothing in it is replaced, and it gets no metadata.
    pub fn into_existing(dest: &Path) -> Result<Self> {
        let shown = dest.as_os_str().as_bytes().to_vec();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, dest, flags, Mode::empty())
            .map_err(|errno| HostError::io("open the directory", shown.clone(), errno))?;
        Ok(Target { dir, single: None, path: shown, last: None })
    }

    /// Makes the directory `path`.
    pub fn mkdir(&mut self, path: &[u8]) -> Result<()> {
        let place = self.place(path)?;
        rustix::fs::mkdirat(self.parent(&place), &place.name, Mode::RWXU)
            .map_err(|errno| self.not_made("make the directory", path, errno))
    }

    /// Makes the regular file `path`, empty.
    pub fn file(&mut self, path: &[u8]) -> Result<FileWriter> {
        let place = self.place(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = openat(self.parent(&place), &place.name, flags, mode)
            .map_err(|errno| self.not_made("make the file", path, errno))?;
        Ok(FileWriter::new(fd, self.shown(path)))
    }

    /// Makes the symbolic link `path` with the bytes `target` in it, which may
    /// be anything and lead anywhere: it is not followed.
    pub fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let place = self.place(path)?;
        rustix::fs::symlinkat(target, self.parent(&place), &place.name)
            .map_err(|errno| self.not_made("make the symbolic link", path, errno))
    }

    /// Makes a device, pipe or socket, of whose mode `perm` the bits for others
    /// wait for [`Target::set_meta`].
    ///
    /// A warning means that it was not made, because only root may make devices
    /// or because the host has no such number; it cannot have metadata then.
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
        // The kernel has 12 bits for one and 20 for the other, and would cut.
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

    /// Makes `new` another name of the object `existing`, which is not a
    /// directory. A symbolic link is itself given the name.
    pub fn link(&mut self, existing: &[u8], new: &[u8]) -> Result<()> {
        let old = self.place(existing)?;
        let place = self.place(new)?;
        let (from, to) = (self.parent(&old), self.parent(&place));
        rustix::fs::linkat(from, &old.name, to, &place.name, AtFlags::empty())
            .map_err(|errno| self.not_made("make the hard link", new, errno))
    }

    /// Gives `path` the owner, extended attributes, mode and times of `meta`;
    /// its kind must be that of `meta`.
    ///
    /// What the host does not let this user restore is returned and everything
    /// else is restored: ownership, attributes that are reserved to root
    /// (`trusted.*`, `security.*`) or impossible on that kind of object
    /// (`user.*` on links and special files), and times and modes that the
    /// host's file system changed. Where the owner could not be set, neither
    /// are set-user-ID and set-group-ID. Anything else is an error.
    pub fn set_meta(&mut self, path: &[u8], meta: &Meta) -> Result<Vec<Warning>> {
        let place = match (path, &self.single) {
            (b"", None) => Place { parent: None, name: b".".to_vec() },
            _ => self.place(path)?,
        };
        let (parent, shown) = (self.parent(&place), self.shown(path));
        restore::set_meta(parent, &place.name, shown, meta, self.single.is_some())
    }

    /// Writes the destination's file system to its device and waits for it, so
    /// that errors of writing that the host held back are reported.
    pub fn sync(&self) -> Result<()> {
        // A descriptor that only names a directory cannot be synced.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.dir, c".", flags, Mode::empty())
            .and_then(rustix::fs::syncfs)
            .map_err(|errno| HostError::io("write to the device", self.path.clone(), errno))
    }

    /// Checks `path` and opens the directory it is in.
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

    /// The directory `path`, from the last one if it is that or below it.
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
    // A new one is checked too: another process may have been quicker.
    if !is_empty(dir.as_fd()).map_err(|errno| fail("list", errno))? {
        return Err(HostError::Exists { path: shown });
    }
    // An access control list that it inherited would be inherited by everything
    // in it and give others access that no mode shows.
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
