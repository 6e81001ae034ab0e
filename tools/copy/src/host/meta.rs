//! The metadata of one object of the host, as plain values.
//!
//! Owns the types that callers exchange with [`crate::host::Source`] and [`crate::host::Target`], and the conversion
//! from stat structures. Holds no path: the caller knows which object it asked for.

use rustix::fs::{FileType, Stat};

/// A point in time: whole seconds since 1970-01-01 00:00:00 UTC, and the
/// nanoseconds after them.
///
/// Before 1970 the seconds are negative; the nanoseconds always count forward, and are less than 1,000,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`.
    pub nanos: u32,
}

impl Time {
    /// The time of last access.
    pub(crate) fn accessed(stat: &Stat) -> Self {
        // Nanoseconds are below 2^30, so the cast is lossless.
        Self { secs: stat.st_atime, nanos: stat.st_atime_nsec as u32 }
    }

    /// The time of the last change of the data.
    pub(crate) fn modified(stat: &Stat) -> Self {
        Self { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
    }

    /// The time of the last change of the metadata.
    pub(crate) fn changed(stat: &Stat) -> Self {
        Self { secs: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 }
    }
}

/// The type of an object, with the values that only this type has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A character device.
    CharDevice {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// The name of a Unix socket.
    Socket,
}

impl Kind {
    /// The kind of a stat structure, with an empty target for a symbolic link, which takes readlink(2); `None` for an
    /// unknown type.
    pub(crate) fn from_stat(stat: &Stat) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Some(Self::Directory),
            FileType::RegularFile => Some(Self::File),
            FileType::Symlink => Some(Self::Symlink(Vec::new())),
            FileType::CharacterDevice => Some(Self::CharDevice { major, minor }),
            FileType::BlockDevice => Some(Self::BlockDevice { major, minor }),
            FileType::Fifo => Some(Self::Fifo),
            FileType::Socket => Some(Self::Socket),
            FileType::Unknown => None,
        }
    }

    /// The host's file type of this kind.
    pub(crate) fn file_type(&self) -> FileType {
        match self {
            Self::Directory => FileType::Directory,
            Self::File => FileType::RegularFile,
            Self::Symlink(_) => FileType::Symlink,
            Self::CharDevice { .. } => FileType::CharacterDevice,
            Self::BlockDevice { .. } => FileType::BlockDevice,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
        }
    }
}

/// The metadata of an object: everything but its name and data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The type.
    pub kind: Kind,
    /// The permission bits with set-user-ID, set-group-ID and sticky: only bits of `0o7777`.
    pub perm: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of hard links on its file system, inside the tree or not.
    pub nlink: u64,
    /// The device number of its file system; identifies the object together with `ino`.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// The length of a regular file or of a symbolic link's target; meaningless for other kinds.
    pub size: u64,
    /// The time of last access.
    pub atime: Time,
    /// The time of the last change of the data.
    pub mtime: Time,
    /// The time of the last change of the metadata. Cannot be restored.
    pub ctime: Time,
    /// Extended attributes, full name (`user.foo`) and value, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Meta {
    /// An object of root with one name, without attributes and data, that is on no file system yet.
    pub fn new(kind: Kind, perm: u32, time: Time) -> Meta {
        Meta {
            kind,
            perm,
            uid: 0,
            gid: 0,
            nlink: 1,
            dev: 0,
            ino: 0,
            size: 0,
            atime: time,
            mtime: time,
            ctime: time,
            xattrs: Vec::new(),
        }
    }

    /// The metadata in a stat structure, for an object of kind `kind`.
    pub(crate) fn from_stat(stat: &Stat, kind: Kind, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        Self {
            kind,
            perm: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: stat.st_nlink,
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size as u64,
            atime: Time::accessed(stat),
            mtime: Time::modified(stat),
            ctime: Time::changed(stat),
            xattrs,
        }
    }
}
