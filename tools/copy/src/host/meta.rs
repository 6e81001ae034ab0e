//! The metadata of one object of the host, as plain values.
//!
//! Owns the types that callers exchange with [`crate::host::Source`] and
//! [`crate::host::Target`], and the translation from what the host reports. Holds no
//! path: the caller knows which object it asked for.

use rustix::fs::{FileType, Stat};

/// A point in time: whole seconds since 1970-01-01 00:00:00 UTC, and the
/// nanoseconds after them.
///
/// A time before 1970 has negative seconds; the nanoseconds always count
/// forward and are less than a thousand million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`.
    pub nanos: u32,
}

impl Time {
    /// When the object was last read, as the host says.
    pub(crate) fn accessed(stat: &Stat) -> Self {
        // There are less than 2^30 nanoseconds.
        Self { secs: stat.st_atime, nanos: stat.st_atime_nsec as u32 }
    }

    /// When its data last changed.
    pub(crate) fn modified(stat: &Stat) -> Self {
        Self { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
    }

    /// When its metadata last changed.
    pub(crate) fn changed(stat: &Stat) -> Self {
        Self { secs: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 }
    }
}

/// What an object is, with what belongs to that kind alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link and the bytes it points to.
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
    /// The kind the host reports, without the target of a symbolic link, which
    /// takes another call; nothing for a kind this crate does not know.
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

    /// The host's type of this kind.
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

/// Everything the host says of one object but its name and data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// The permission bits, set-user-ID, set-group-ID and sticky among them:
    /// nothing but the bits of `0o7777`.
    pub perm: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// How many names it has on its file system, inside the tree or not.
    pub nlink: u64,
    /// The file system it is on; with `ino`, which object it is.
    pub dev: u64,
    /// The number of the object on its file system.
    pub ino: u64,
    /// The length of a regular file or of a symbolic link's target; of no
    /// meaning for other kinds.
    pub size: u64,
    /// When it was last read.
    pub atime: Time,
    /// When its data last changed.
    pub mtime: Time,
    /// When its metadata last changed. Cannot be restored.
    pub ctime: Time,
    /// Extended attributes, full name (`user.foo`) and value, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Meta {
    /// An object of root's with one name, no attributes and nothing in it, that is on no file system yet.
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

    /// The metadata the host reports of an object of kind `kind`.
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
