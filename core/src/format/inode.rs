//! Values of the metadata index: inodes and zone references.
//!
//! An inode is 128 bytes, then the target of a symbolic link, or for the root of a directory's zone
//! the place of the zone's reference:
//!
//! ```text
//!   0  tag           1   1
//!   1  trailer       1   0 none, 1 symlink target, 2 parent
//!   2  trailer bytes 2
//!   4  mode          4   type and permissions as in stat(2)
//!   8  uid, gid      4+4
//!  16  links         4
//!  20  flags         4   1 for a regular file that may have holes
//!  24  size          8
//!  32  inode         8
//!  40  data zone     8   0 for none
//!  48  seconds      32   accessed, modified, changed, born
//!  80  nanoseconds  16   of the same
//!  96  device        8   major 4, minor 4; for the root of a directory's zone its lineage ([`Lineage`])
//! 104  metadata sum  8   bytes of names and their values below a directory, in its zone
//! 112  data sum      8   bytes of files there, in whole blocks, without those of a zone of their own
//! 120  apart         8   what is below a directory, in its zone, and a clone of it does not share ([`apart`])
//! 128  trailer           the target; or the zone of the reference 8, and its name
//! ```
//!
//! A zone reference is 24 bytes: tag 1 (2), kind 1 (1 own, 2 link), type 1 (mode >> 12), zero 5,
//! inode 8, zone 8.

use super::fields::{Fields, FormatError, Trace, Writer};
use super::limits::{FILE_MAX, NAME_MAX, SYMLINK_MAX};
use super::lineage::{Lineage, is_fixed};
use super::names::is_name;
use super::zones::Sums;
use crate::ids::{Ino, Time, ZoneId};

/// Bytes of an inode without its trailer.
pub const INODE_BYTES: usize = 128;
const INODE_TAG: u8 = 1;
const ZONE_REF_TAG: u8 = 2;
const TRAILER_TARGET: u8 = 1;
const TRAILER_PARENT: u8 = 2;
const PERMISSIONS: u32 = 0o7777;
/// The flag of a file that may have holes.
pub const SPARSE: u32 = 1;
/// Offset of the flags in an inode.
pub const FLAGS_AT: usize = 20;
/// Offset of the link count in an inode.
pub const LINKS_AT: usize = 16;
/// Offset of the size in an inode.
pub const SIZE_AT: usize = 24;
/// Offset of the inode number in an inode, and in a zone reference.
pub const INO_AT: usize = 32;
/// Offset of the data zone in an inode.
pub const DATA_ZONE_AT: usize = 40;
/// Offset of the metadata sum of a directory in its inode.
pub const META_SUM_AT: usize = 104;
/// Offset of the data sum of a directory in its inode.
pub const DATA_SUM_AT: usize = 112;
/// Offset of the number of what stands apart below a directory in its inode.
pub const APART_SUM_AT: usize = 120;
/// Bytes of a zone reference.
pub const ZONE_REF_BYTES: usize = 24;

/// What an inode with this data zone and stored number counts as standing apart: a clone of a directory above writes both anew.
pub fn apart(data_zone: Option<ZoneId>, stored: Ino) -> u64 {
    u64::from(data_zone.is_some()) + u64::from(is_fixed(stored))
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileType {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

impl FileType {
    const ALL: [FileType; 7] = [
        FileType::Fifo,
        FileType::CharDevice,
        FileType::Directory,
        FileType::BlockDevice,
        FileType::Regular,
        FileType::Symlink,
        FileType::Socket,
    ];

    /// The type bits of a mode, shifted down by 12.
    pub fn code(self) -> u8 {
        match self {
            FileType::Fifo => 1,
            FileType::CharDevice => 2,
            FileType::Directory => 4,
            FileType::BlockDevice => 6,
            FileType::Regular => 8,
            FileType::Symlink => 10,
            FileType::Socket => 12,
        }
    }

    /// The type of a code.
    pub fn from_code(code: u8) -> Option<FileType> {
        FileType::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The letter that `ls -l` shows.
    pub fn letter(self) -> char {
        match self {
            FileType::Fifo => 'p',
            FileType::CharDevice => 'c',
            FileType::Directory => 'd',
            FileType::BlockDevice => 'b',
            FileType::Regular => '-',
            FileType::Symlink => 'l',
            FileType::Socket => 's',
        }
    }

    /// The type as a word.
    pub fn name(self) -> &'static str {
        match self {
            FileType::Fifo => "fifo",
            FileType::CharDevice => "character device",
            FileType::Directory => "directory",
            FileType::BlockDevice => "block device",
            FileType::Regular => "regular file",
            FileType::Symlink => "symbolic link",
            FileType::Socket => "socket",
        }
    }
}

/// The place of the reference to a directory's zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The zone that has the reference.
    pub zone: ZoneId,
    /// The directory's name there.
    pub name: Vec<u8>,
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its type.
    pub kind: FileType,
    /// The permission bits, 07777.
    pub perm: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// Number of names; for a directory 2 and its subdirectories.
    pub links: u32,
    /// The length of a file or of a symbolic link's target, in bytes; 0 for all others.
    pub size: u64,
    /// Its inode number.
    pub ino: Ino,
    /// The zone of a file's blocks, if it has one.
    pub data_zone: Option<ZoneId>,
    /// Last read.
    pub accessed: Time,
    /// Last change of contents.
    pub modified: Time,
    /// Last change of the inode.
    pub changed: Time,
    /// Creation.
    pub born: Time,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// The target of a symbolic link; empty for all others.
    pub target: Vec<u8>,
    /// For the root of a directory's zone, the place of the reference to the zone.
    pub parent: Option<Parent>,
    /// Whether a regular file may have holes.
    pub sparse: bool,
    /// The sums of everything below a directory in its zone.
    pub sums: Sums,
    /// For the root of a directory's zone, how the inode numbers that are stored in the zone are shown.
    pub lineage: Lineage,
}

/// Whether a zone may have several references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// The only reference to its zone.
    Own,
    /// One of several references: a hard link.
    Link,
}

/// A reference to a zone, as an entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRef {
    /// Whether the zone may have several references.
    pub link: LinkKind,
    /// The type of the zone's root.
    pub kind: FileType,
    /// The inode number of the zone's root.
    pub ino: Ino,
    /// The zone.
    pub zone: ZoneId,
}

/// A value of the metadata index under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaValue {
    /// An inode stored here.
    Inode(Inode),
    /// A reference to a zone whose root has the inode.
    ZoneRef(ZoneRef),
}

impl MetaValue {
    /// Parses a whole value.
    pub fn decode(value: &[u8], trace: Option<&mut dyn Trace>) -> Result<MetaValue, FormatError> {
        let mut f = Fields::traced(value, trace);
        let result = match f.u8("tag")? {
            INODE_TAG => MetaValue::Inode(Inode::decode(&mut f)?),
            ZONE_REF_TAG => MetaValue::ZoneRef(ZoneRef::decode(&mut f)?),
            other => return Err(f.wrong("tag", "1 or 2", other)),
        };
        f.end()?;
        Ok(result)
    }

    /// The value as it is stored.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            MetaValue::Inode(inode) => inode.encode(),
            MetaValue::ZoneRef(reference) => reference.encode(),
        }
    }
}

impl Inode {
    fn decode(f: &mut Fields<'_, '_>) -> Result<Inode, FormatError> {
        let trailer = f.u8("trailer")?;
        let trailer_bytes = usize::from(f.u16("trailer bytes")?);
        let mode = f.u32("mode")?;
        let kind = u8::try_from(mode >> 12).ok().and_then(FileType::from_code);
        let kind = kind.ok_or_else(|| f.wrong("mode", "a file type", format_args!("{mode:o}")))?;
        let (uid, gid, links) = (f.u32("uid")?, f.u32("gid")?, f.u32("links")?);
        let flags = f.u32("flags")?;
        if flags & !SPARSE != 0 || (flags != 0 && kind != FileType::Regular) {
            return Err(f.wrong("flags", "0, or 1 for a regular file", flags));
        }
        let size = f.u64("size")?;
        f.within(24, "size", size, FILE_MAX)?;
        let ino = Ino(f.u64("inode")?);
        let zone = f.u64("data zone")?;
        let mut secs = [0; 4];
        let mut times = [Time::default(); 4];
        for (secs, name) in secs.iter_mut().zip(["accessed", "modified", "changed", "born"]) {
            *secs = f.i64(name)?;
        }
        for (time, secs) in times.iter_mut().zip(secs) {
            *time = Time { secs, nanos: f.limited("nanoseconds", 999_999_999)? as u32 };
        }
        let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        let (device, lineage) = match kind {
            FileType::Directory => ((0, 0), Lineage::decode(f)?),
            _ => ((f.u32("device major")?, f.u32("device minor")?), Lineage::NONE),
        };
        let sums = Sums {
            meta: f.u64("metadata sum")?,
            data: f.u64("data sum")?,
            apart: f.u64("objects apart")?,
        };
        if sums != Sums::default() && kind != FileType::Directory {
            return Err(f.wrong("metadata sum", "0 for what is no directory", sums.meta));
        }
        let (mut target, mut parent) = (Vec::new(), None);
        match trailer {
            0 if trailer_bytes == 0 => {}
            TRAILER_TARGET => {
                f.within(2, "trailer bytes", trailer_bytes as u64, SYMLINK_MAX as u64)?;
                target = f.bytes("target", trailer_bytes)?.to_vec();
            }
            TRAILER_PARENT if trailer_bytes >= 8 => {
                f.within(2, "trailer bytes", trailer_bytes as u64, 8 + NAME_MAX as u64)?;
                let zone = ZoneId(f.u64("parent zone")?);
                let name = f.bytes("name", trailer_bytes - 8)?.to_vec();
                parent = Some(Parent { zone, name });
            }
            other => return Err(f.wrong("trailer", "none, target or parent", other)),
        }
        let is_link = kind == FileType::Symlink;
        if is_link != (trailer == TRAILER_TARGET)
            || (is_link && (target.is_empty() || target.len() as u64 != size))
        {
            return Err(f.wrong("trailer", "a target of the link's size", trailer));
        }
        if parent.is_some() && kind != FileType::Directory {
            return Err(f.wrong("trailer", "a parent for directories only", trailer));
        }
        let named = parent.as_ref().is_none_or(|parent: &Parent| is_name(&parent.name));
        let sized = is_link || kind == FileType::Regular;
        if !named || (!sized && size != 0) || (!is_device && device != (0, 0)) {
            return Err(f.wrong("inode", "a name, size and device that fit the type", kind.name()));
        }
        if zone != 0 && kind != FileType::Regular {
            return Err(f.wrong("data zone", "one for regular files only", zone));
        }
        let [accessed, modified, changed, born] = times;
        if zone == 1 {
            return Err(f.wrong("data zone", "0, or 2 and more", zone));
        }
        let data_zone = (zone != 0).then_some(ZoneId(zone));
        Ok(Inode {
            kind,
            perm: mode & PERMISSIONS,
            uid,
            gid,
            links,
            size,
            ino,
            data_zone,
            accessed,
            modified,
            changed,
            born,
            device,
            target,
            parent,
            sparse: flags & SPARSE != 0,
            sums,
            lineage,
        })
    }

    /// The length of its encoding.
    pub fn encoded_len(&self) -> usize {
        let parent = self.parent.as_ref().map_or(0, |parent| 8 + parent.name.len());
        INODE_BYTES + parent + self.target.len()
    }

    /// The inode as a value of the metadata index.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(INODE_BYTES + self.target.len());
        let (trailer, bytes) = match &self.parent {
            Some(parent) => (TRAILER_PARENT, 8 + parent.name.len()),
            None if self.kind == FileType::Symlink => (TRAILER_TARGET, self.target.len()),
            None => (0, 0),
        };
        w.u8(INODE_TAG);
        w.u8(trailer);
        w.len16(bytes);
        w.u32(self.mode());
        w.u32(self.uid);
        w.u32(self.gid);
        w.u32(self.links);
        w.u32(if self.sparse { SPARSE } else { 0 });
        w.u64(self.size);
        w.u64(self.ino.0);
        w.u64(self.data_zone.map_or(0, |zone| zone.0));
        let times = [self.accessed, self.modified, self.changed, self.born];
        times.iter().for_each(|time| w.i64(time.secs));
        times.iter().for_each(|time| w.u32(time.nanos));
        match self.kind {
            FileType::Directory => self.lineage.encode(&mut w),
            _ => {
                w.u32(self.device.0);
                w.u32(self.device.1);
            }
        }
        w.u64(self.sums.meta);
        w.u64(self.sums.data);
        w.u64(self.sums.apart);
        w.pad_to(INODE_BYTES);
        match &self.parent {
            Some(parent) => {
                w.u64(parent.zone.0);
                w.bytes(&parent.name);
            }
            None => w.bytes(&self.target),
        }
        w.finish()
    }

    /// Type and permissions as in stat(2).
    pub fn mode(&self) -> u32 {
        u32::from(self.kind.code()) << 12 | self.perm
    }
}

impl ZoneRef {
    fn decode(f: &mut Fields<'_, '_>) -> Result<ZoneRef, FormatError> {
        let link = match f.u8("kind")? {
            1 => LinkKind::Own,
            2 => LinkKind::Link,
            other => return Err(f.wrong("kind", "1 or 2", other)),
        };
        let code = f.u8("type")?;
        let kind = FileType::from_code(code).ok_or_else(|| f.wrong("type", "a file type", code))?;
        f.zeros("reserved", 5)?;
        let ino = Ino(f.u64("inode")?);
        let zone = ZoneId(f.u64("zone")?);
        Ok(ZoneRef { link, kind, ino, zone })
    }

    /// The reference as a value of the metadata index.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(ZONE_REF_BYTES);
        w.u8(ZONE_REF_TAG);
        w.u8(match self.link {
            LinkKind::Own => 1,
            LinkKind::Link => 2,
        });
        w.u8(self.kind.code());
        w.pad_to(8);
        w.u64(self.ino.0);
        w.u64(self.zone.0);
        w.finish()
    }
}
