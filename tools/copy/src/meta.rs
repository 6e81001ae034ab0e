//! Converts between metadata of the host and of an image.

use crate::host::{Kind, Meta};
use betr_core::format::{FileType, Inode};
use betr_core::fs::{Fs, Object};
use betr_core::ids::Time;

use crate::CopyError;

/// The metadata of an object of an image.
pub(crate) fn meta_of(fs: &Fs, object: &Object) -> Result<Meta, CopyError> {
    let xattrs = fs.xattrs(object)?.into_iter().map(|(name, value)| (name, value.to_vec()));
    Ok(Meta { xattrs: xattrs.collect(), ..bare_meta_of(object) })
}

/// The metadata in the inode of an object, without extended attributes.
pub(crate) fn bare_meta_of(object: &Object) -> Meta {
    let inode = object.inode();
    Meta {
        kind: kind_of(&inode),
        perm: inode.perm,
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.links.into(),
        dev: 0,
        ino: inode.ino.0,
        size: inode.size,
        atime: host_time(inode.accessed),
        mtime: host_time(inode.modified),
        ctime: host_time(inode.changed),
        xattrs: Vec::new(),
    }
}

pub(crate) fn kind_of(inode: &Inode) -> Kind {
    let (major, minor) = inode.device;
    match inode.kind {
        FileType::Directory => Kind::Directory,
        FileType::Regular => Kind::File,
        FileType::Symlink => Kind::Symlink(inode.target.clone()),
        FileType::CharDevice => Kind::CharDevice { major, minor },
        FileType::BlockDevice => Kind::BlockDevice { major, minor },
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    }
}

/// The type in an image of an object of this kind.
pub fn file_type(kind: &Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File => FileType::Regular,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::CharDevice { .. } => FileType::CharDevice,
        Kind::BlockDevice { .. } => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}

pub(crate) fn time_of(time: crate::host::Time) -> Time {
    Time { secs: time.secs, nanos: time.nanos }
}

fn host_time(time: Time) -> crate::host::Time {
    crate::host::Time { secs: time.secs, nanos: time.nanos }
}
