//! Reading a tree of the host.
//!
//! A [`Source`] holds the directory at the root open and reaches everything
//! below relative to it, so renaming the root, or a directory above it, does
//! not matter. No symbolic link below the root is followed. Mount points are
//! entered like any directory, as `tar` does.
//!
//! Listing costs two system calls for an object without extended attributes
//! (three for a symbolic link) and opens none of them, so it has no side effect
//! on devices and pipes and needs no permission to read them.
//!
//! Reading leaves times of access unchanged where the user owns the object. Symbolic links are an exception, because
//! readlink(2) always updates the time: of several hard links to one symbolic link, only the first listed has the old
//! time.
//!
//! A tree that changes while it is read is not frozen: each object has the state at its own stat call, and a file
//! whose data no longer match its metadata is an error (see [`FileReader`]). Only root reads the attributes that the
//! kernel shows to root alone (`trusted.*`).

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use betr_core::path::Operand;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;

use crate::host::error::{HostError, Result};
use crate::host::exclude::Excludes;
use crate::host::links::{self, Links};
use crate::host::meta::{Kind, Meta};
use crate::host::reader::FileReader;
use crate::host::walk::{self, READ_NAME_MAX};
use crate::host::xattr::XattrReader;

/// Flags to open a directory for listing.
const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Size of the buffer for getdents64, in bytes.
const NAMES_BUFFER: usize = 32 * 1024;

/// A tree, or one single object, of the host to read.
#[derive(Debug)]
pub struct Source {
    /// The root directory; for a single object, the directory it is in.
    dir: OwnedFd,
    /// The name of the single object; `None` for a directory.
    single: Option<Vec<u8>>,
    /// The path it was opened by, for messages.
    path: Vec<u8>,
    /// Whether a directory that is tagged as a cache shows only its tag.
    exclude_caches: bool,
    /// Patterns of names that are left out.
    excludes: Excludes,
}

/// One name in a directory, and its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, without any directory.
    pub name: Vec<u8>,
    /// The object.
    pub meta: Meta,
}

/// The name and the first bytes of the tag of a cache directory (Cache Directory Tagging Specification).
const CACHE_TAG: &[u8] = b"CACHEDIR.TAG";
const CACHE_SIGNATURE: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

impl Source {
    /// Opens the tree, or the single object, at `path`.
    ///
    /// A symbolic link at `path` is followed if it leads to a directory, as
    /// `tar -C` does; any other symbolic link is itself the object.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, LIST)
    }

    /// Opens the tree, or the single object, at `path`. A symbolic link is itself the object, unless the path has a
    /// trailing slash or otherwise requires a directory.
    pub fn open_link(path: &Path) -> Result<Self> {
        let operand = Operand::new(path.as_os_str().as_bytes());
        let keep = if operand.wants_directory() { OFlags::empty() } else { OFlags::NOFOLLOW };
        Self::open_with(path, LIST | keep)
    }

    /// Opens the tree, or the single object, at `path`, with all symbolic links resolved.
    pub fn open_followed(path: &Path) -> Result<Self> {
        let shown = path.as_os_str().as_bytes().to_vec();
        let target = std::fs::canonicalize(path).map_err(|source| HostError::Io {
            op: "open",
            path: shown.clone(),
            source,
        })?;
        Ok(Self { path: shown, ..Self::open(&target)? })
    }

    fn open_with(path: &Path, flags: OFlags) -> Result<Self> {
        let shown = path.as_os_str().as_bytes().to_vec();
        let errno = match openat(CWD, path, flags, Mode::empty()) {
            Ok(dir) => {
                return Ok(Self::new(dir, None, shown));
            }
            Err(errno) => errno,
        };
        // Not a directory, or a dangling symbolic link: a single object.
        let single = matches!(errno, Errno::NOTDIR | Errno::NOENT | Errno::LOOP);
        let operand = Operand::new(shown.clone());
        let split = operand.split().filter(|_| single && !operand.wants_directory());
        let Some((parent, name)) = split else {
            return Err(HostError::io("open", shown, errno));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, parent, flags, Mode::empty())
            .and_then(|dir| statat(&dir, name, no_follow()).map(|_| dir));
        match opened {
            Ok(dir) => Ok(Self::new(dir, Some(name.to_vec()), shown)),
            Err(errno) => Err(HostError::io("open", shown, errno)),
        }
    }

    fn new(dir: OwnedFd, single: Option<Vec<u8>>, path: Vec<u8>) -> Self {
        Self { dir, single, path, exclude_caches: false, excludes: Excludes::default() }
    }

    /// In a directory that is tagged as a cache, only the tag is listed, as with `tar --exclude-caches`.
    pub fn exclude_caches(mut self, exclude: bool) -> Self {
        self.exclude_caches = exclude;
        self
    }

    /// Objects that `excludes` matches are neither listed nor examined.
    pub fn exclude(mut self, excludes: Excludes) -> Self {
        self.excludes = excludes;
        self
    }

    /// The metadata of the root.
    pub fn root(&self) -> Result<Meta> {
        let name = self.single.as_deref().unwrap_or(b".");
        let mut xattrs = XattrReader::new(self.dir.as_fd());
        self.meta(self.dir.as_fd(), name, b"", &mut xattrs)
    }

    /// The entries of the directory `dir`, sorted by name bytewise, so that the order does not depend on the host.
    pub fn list(&self, dir: &[u8]) -> Result<Vec<Entry>> {
        let fd = self.open_directory(dir)?;
        let mut names = Vec::new();
        self.for_each_name(fd.as_fd(), dir, |name, ino, _| {
            names.push((ino, name.to_bytes().to_vec()));
            Ok(())
        })?;
        // Most file systems store inodes in the order of their numbers, so an uncached disk is read in one direction.
        names.sort_unstable();
        let mut xattrs = XattrReader::new(fd.as_fd());
        let mut entries = Vec::with_capacity(names.len());
        for (_, name) in names {
            let path = walk::join(dir, &name);
            let meta = self.meta(fd.as_fd(), &name, &path, &mut xattrs)?;
            entries.push(Entry { name, meta });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Opens the regular file `path` to read its data. Fails if it no longer matches `expected`, its metadata from
    /// the listing.
    pub fn reader(&self, path: &[u8], expected: &Meta) -> Result<FileReader> {
        let shown = walk::join(&self.path, path);
        if expected.kind != Kind::File {
            return Err(HostError::NotSupported {
                path: shown,
                what: "only regular files have data that can be read",
            });
        }
        let below = self.below(path)?;
        FileReader::open(self.dir.as_fd(), below, shown, expected)
    }

    /// Finds which names of the tree are hard links to the same object.
    pub fn links(&self) -> Result<Links> {
        links::find(self)
    }

    /// The open directory and the name, if the root is a single object.
    pub(crate) fn single(&self) -> Option<(BorrowedFd<'_>, &[u8])> {
        let name = self.single.as_deref()?;
        Some((self.dir.as_fd(), name))
    }

    /// The path of an object, for messages.
    pub(crate) fn shown(&self, path: &[u8]) -> Vec<u8> {
        walk::join(&self.path, path)
    }

    /// Opens a directory of the tree to list it.
    pub(crate) fn open_directory(&self, path: &[u8]) -> Result<OwnedFd> {
        walk::check_path(path, READ_NAME_MAX)?;
        if self.single.is_some() {
            return Err(self.io("list", path, Errno::NOTDIR));
        }
        let opened = match walk::open(self.dir.as_fd(), path, LIST | OFlags::NOATIME) {
            // Only the owner may use O_NOATIME.
            Err(Errno::PERM) => walk::open(self.dir.as_fd(), path, LIST),
            opened => opened,
        };
        opened.map_err(|errno| self.io("list", path, errno))
    }

    /// Calls `found` with the name, inode number and type of every entry of the open directory `fd`, in the order of
    /// the host. The type may be unknown.
    pub(crate) fn for_each_name(
        &self,
        fd: BorrowedFd<'_>,
        path: &[u8],
        mut found: impl FnMut(&CStr, u64, FileType) -> Result<()>,
    ) -> Result<()> {
        let cache = self.exclude_caches && is_cache(fd);
        let mut buffer = [const { MaybeUninit::uninit() }; NAMES_BUFFER];
        let mut names = RawDir::new(fd, &mut buffer);
        while let Some(entry) = names.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(self.io("list", path, errno)),
            };
            let name = entry.file_name();
            let plain = !matches!(name.to_bytes(), b"." | b"..");
            if plain && (!cache || name.to_bytes() == CACHE_TAG) && !self.is_excluded(path, name) {
                found(name, entry.ino(), entry.file_type())?;
            }
        }
        Ok(())
    }

    fn is_excluded(&self, directory: &[u8], name: &CStr) -> bool {
        // Without patterns no path is built for each name.
        !self.excludes.is_empty() && self.excludes.matches(&walk::join(directory, name.to_bytes()))
    }

    /// An error of the system call `op` on `path`.
    pub(crate) fn io(&self, op: &'static str, path: &[u8], errno: Errno) -> HostError {
        HostError::io(op, self.shown(path), errno)
    }

    /// The path relative to the open directory.
    fn below<'a>(&'a self, path: &'a [u8]) -> Result<&'a [u8]> {
        walk::check_path(path, READ_NAME_MAX)?;
        match &self.single {
            None => Ok(path),
            Some(name) if path.is_empty() => Ok(name),
            Some(_) => Err(self.io("open", path, Errno::NOTDIR)),
        }
    }

    /// The metadata of the entry `name` of the open directory `dir`.
    fn meta(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        xattrs: &mut XattrReader,
    ) -> Result<Meta> {
        let fail = |op, errno| match errno {
            Errno::NOENT if !path.is_empty() => HostError::Changed {
                path: self.shown(path),
                what: "it was removed after it was listed",
            },
            errno => self.io(op, path, errno),
        };
        let stat = statat(dir, name, no_follow()).map_err(|errno| fail("look at", errno))?;
        let kind = match Kind::from_stat(&stat) {
            Some(Kind::Symlink(_)) => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new())
                    .map_err(|errno| fail("read the symbolic link", errno))?;
                Kind::Symlink(target.into_bytes())
            }
            Some(kind) => kind,
            None => {
                return Err(HostError::NotSupported {
                    path: self.shown(path),
                    what: "it is of a kind that is not known",
                });
            }
        };
        let found = xattrs.read(name).map_err(|errno| match errno {
            Errno::NOENT if !walk::proc_is_mounted() => HostError::NotSupported {
                path: self.shown(path),
                what: "its extended attributes cannot be read because /proc is not mounted",
            },
            errno => fail("read the extended attributes of", errno),
        })?;
        Ok(Meta::from_stat(&stat, kind, found))
    }
}

/// Whether an open directory has a valid cache tag.
fn is_cache(dir: BorrowedFd<'_>) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut head = [0; CACHE_SIGNATURE.len()];
    let read = openat(dir, CACHE_TAG, flags, Mode::empty())
        .and_then(|tag| rustix::io::read(&tag, &mut head[..]));
    read.is_ok() && head == *CACHE_SIGNATURE
}

/// Flags that examine the object itself: links are not followed, and nothing is automounted.
pub(crate) fn no_follow() -> AtFlags {
    AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT
}
