//! Making objects: files, directories, links, devices.

use super::{Fs, Object, check_name, insert, insert_inode};
use crate::error::{Refusal, Result};
use crate::format::*;
use crate::ids::*;

/// What a new object starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The permission bits.
    pub perm: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// Last read.
    pub accessed: Time,
    /// Last change of contents.
    pub modified: Time,
}

/// What a new object is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New {
    /// Its type.
    pub kind: FileType,
    /// Owner, permissions and times.
    pub attributes: Attributes,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Whether it will have several links, and gets a zone for that at once.
    pub shared: bool,
}

impl Attributes {
    /// Those of a private object that was made at `time`.
    pub fn at(time: Time) -> Attributes {
        Attributes { perm: 0o600, uid: 0, gid: 0, accessed: time, modified: time }
    }

    pub(super) fn inode(&self, kind: FileType, ino: Ino, now: Time) -> Inode {
        Inode {
            kind,
            perm: self.perm & 0o7777,
            uid: self.uid,
            gid: self.gid,
            links: 1,
            size: 0,
            ino,
            data_zone: None,
            accessed: self.accessed,
            modified: self.modified,
            changed: now,
            born: now,
            device: (0, 0),
            target: Vec::new(),
            parent: None,
        }
    }
}

impl New {
    /// A plain object of this type.
    pub fn of(kind: FileType, attributes: Attributes) -> New {
        New { kind, attributes, target: Vec::new(), device: (0, 0), shared: false }
    }
}

impl Fs {
    /// Makes `name` in `directory`.
    pub fn make(&mut self, directory: &Object, name: &[u8], new: New) -> Result<Object> {
        check_name(name)?;
        if self.find(directory, name)?.is_some() {
            return Err(Refusal::Exists.into());
        }
        if new.kind == FileType::Symlink {
            match new.target.len() {
                0 => return Err(Refusal::NotFound.into()),
                1..=limits::SYMLINK_MAX => {}
                _ => return Err(Refusal::NameTooLong.into()),
            }
        }
        let now = self.now();
        let entry = directory.place.child(name);
        let ino = self.volume.take_ino()?;
        let mut inode = new.attributes.inode(new.kind, ino, now);
        let is_directory = new.kind == FileType::Directory;
        let mut place = entry.clone();
        let mut messages = Vec::with_capacity(3);
        if is_directory || new.shared {
            let zone = self.volume.take_zone()?;
            let link = if is_directory { LinkKind::Own } else { LinkKind::Link };
            place = MetaKey::root(zone);
            messages.push(insert(&entry, ZoneRef { link, kind: new.kind, ino, zone }.encode()));
        }
        match new.kind {
            FileType::Directory => {
                inode.links = 2;
                inode.parent = Some(Parent { zone: directory.place.zone, name: name.to_vec() });
            }
            FileType::Regular => inode.data_zone = Some(self.volume.take_zone()?),
            FileType::Symlink => {
                inode.size = new.target.len() as u64;
                inode.target = new.target;
            }
            FileType::CharDevice | FileType::BlockDevice => inode.device = new.device,
            FileType::Fifo | FileType::Socket => {}
        }
        messages.push(insert_inode(&place, &inode));
        messages.push(self.touch_directory(directory, now, i64::from(is_directory))?);
        let op = match new.kind {
            FileType::Directory => Op::Mkdir,
            FileType::Regular => Op::Create,
            FileType::Symlink => Op::Symlink,
            _ => Op::Mknod,
        };
        self.commit(op, now, messages)?;
        Ok(Object { place, inode })
    }

    /// The directory's inode with its times and link count brought up to date.
    pub(super) fn touch_directory(
        &self,
        directory: &Object,
        now: Time,
        links: i64,
    ) -> Result<RecordMessage> {
        let mut inode = self.object(directory.place.clone())?.inode;
        inode.modified = now;
        inode.changed = now;
        inode.links = add_links(inode.links, links)?;
        Ok(insert_inode(&directory.place, &inode))
    }

    /// Gives an object that is not a directory another name.
    pub fn link(&mut self, object: &Object, directory: &Object, name: &[u8]) -> Result<Object> {
        check_name(name)?;
        if object.inode.kind == FileType::Directory {
            return Err(Refusal::NotPermitted.into());
        }
        if self.find(directory, name)?.is_some() {
            return Err(Refusal::Exists.into());
        }
        let now = self.now();
        let mut inode = self.object(object.place.clone())?.inode;
        inode.links = add_links(inode.links, 1)?;
        inode.changed = now;
        let mut messages = Vec::new();
        let mut place = object.place.clone();
        let (kind, ino) = (inode.kind, inode.ino);
        let reference = |zone| ZoneRef { link: LinkKind::Link, kind, ino, zone }.encode();
        if !place.path.is_empty() {
            let zone = self.volume.take_zone()?;
            messages.push(insert(&place, reference(zone)));
            messages.extend(self.move_xattrs(&place, &MetaKey::root(zone))?);
            place = MetaKey::root(zone);
        }
        messages.push(insert_inode(&place, &inode));
        messages.push(insert(&directory.place.child(name), reference(place.zone)));
        messages.push(self.touch_directory(directory, now, 0)?);
        self.commit(Op::Link, now, messages)?;
        Ok(Object { place, inode })
    }
}

pub(super) fn add_links(links: u32, delta: i64) -> Result<u32> {
    u32::try_from(i64::from(links) + delta).map_err(|_| Refusal::TooManyLinks.into())
}
