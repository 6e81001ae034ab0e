//! Makes objects: files, directories, links, devices.

use bytes::Bytes;

use super::acl::{self, Acl};
use super::data::{WRITE_MAX, block_messages};
use super::draft::{Counts, add_links, whole_blocks};
use super::relocate::fits;
use super::xattrs::{check_xattrs, xattr_bytes};
use super::zones::SmallZone;
use super::{Changes, Delta, Draft, Fs, Object, Placed, check_name};
use crate::error::{Error, Refusal, Result};
use crate::format::*;
use crate::ids::*;

/// The attributes of a new object.
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

/// A new object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New {
    /// Its type.
    pub kind: FileType,
    /// Owner, permissions and times.
    pub attributes: Attributes,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
    /// The contents of a regular file.
    pub contents: Contents,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Whether it gets a zone of its own at once: for a directory that will be large, or an object that will have
    /// several links.
    pub zone: bool,
}

/// The contents that a regular file is made with, in one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The size of the file.
    pub size: u64,
    /// Where `bytes` are, within the size. What is around them reads as zeros.
    pub start: u64,
    /// At most 16 MiB.
    pub bytes: Bytes,
}

impl Attributes {
    /// The attributes of a private object made at `time`.
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
            sparse: false,
            sums: Sums::default(),
            lineage: Lineage::NONE,
        }
    }
}

impl New {
    /// An object of this type without more attributes.
    pub fn of(kind: FileType, attributes: Attributes) -> New {
        New {
            kind,
            attributes,
            xattrs: Vec::new(),
            target: Vec::new(),
            contents: Contents::default(),
            device: (0, 0),
            zone: false,
        }
    }
}

impl Fs {
    /// Applies the attributes that an object inherits from its directory: group and set-group-id, if the directory
    /// has set-group-id, and access control lists (inode(7), acl(5)). A default list replaces the `umask`.
    pub fn inherit(&self, directory: &Object, mut new: New, umask: u32) -> Result<New> {
        let above = directory.inode();
        let is_directory = new.kind == FileType::Directory;
        if above.perm & 0o2000 != 0 {
            new.attributes.gid = above.gid;
            new.attributes.perm |= if is_directory { 0o2000 } else { 0 };
        }
        let default = match new.kind {
            FileType::Symlink => None,
            _ => self.find_xattr(directory, acl::DEFAULT)?,
        };
        let Some(list) = default.as_deref().and_then(Acl::parse) else {
            new.attributes.perm &= !umask;
            return Ok(new);
        };
        if is_directory {
            new.xattrs.push((acl::DEFAULT.to_vec(), list.encode()));
        }
        let (own, perm) = list.inherited(new.attributes.perm);
        new.attributes.perm = perm;
        new.xattrs.extend(own.map(|list| (acl::ACCESS.to_vec(), list.encode())));
        Ok(new)
    }

    /// Makes `name` in `directory`. Where the contents of a file need a zone of their own, they come with operations behind that
    /// which makes it.
    pub fn make(&mut self, directory: &Object, name: &[u8], mut new: New) -> Result<Object> {
        check_contents(&new)?;
        if new.zone || whole_blocks(new.contents.size) <= self.sizes.max {
            return self.make_at_once(directory, name, new);
        }
        let Attributes { accessed, modified, .. } = new.attributes;
        let Contents { size, start, bytes } = std::mem::take(&mut new.contents);
        let made = self.make_at_once(directory, name, new)?;
        self.write(&made, start, &bytes)?;
        self.truncate(&made, size)?;
        let times =
            Changes { accessed: Some(accessed), modified: Some(modified), ..Changes::default() };
        self.set_attributes(&made, times)?;
        Ok(made)
    }

    fn make_at_once(&mut self, directory: &Object, name: &[u8], new: New) -> Result<Object> {
        check_name(name)?;
        check_named(directory)?;
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
        check_xattrs(&new.xattrs)?;
        let mut draft = self.begin()?;
        let now = draft.now;
        let mut inode = new.attributes.inode(new.kind, self.volume.take_ino()?, now);
        match new.kind {
            FileType::Directory => inode.links = 2,
            FileType::Symlink => {
                inode.size = new.target.len() as u64;
                inode.target = new.target;
            }
            FileType::CharDevice | FileType::BlockDevice => inode.device = new.device,
            FileType::Regular => inode.size = new.contents.size,
            FileType::Fifo | FileType::Socket => {}
        }
        let is_directory = new.kind == FileType::Directory;
        let xattrs = new.xattrs.iter().map(|(name, value)| xattr_bytes(name, value.len())).sum();
        let gain = match new.zone {
            true => Delta::entry(name, 0) + Delta::reference(),
            false => {
                let entry = Delta::entry(name, inode.encoded_len()) + Delta::meta(xattrs);
                entry + Delta::data(new.contents.size)
            }
        };
        self.make_way(directory, name.len() + 2, || {
            let mut counts = Counts::default();
            counts.add(directory, gain);
            counts
        })?;
        let parent = directory.place();
        let mut zone = None;
        if new.zone {
            let own = *zone.insert(self.volume.take_zone()?);
            if is_directory {
                inode.parent = Some(Parent { zone: parent.zone(), name: name.to_vec() });
                if self.sizes.are_above(inode.sums) {
                    draft.small(own, Some(SmallZone { at: parent.zone(), object: None }));
                }
            }
            draft.insert_reference(&parent.child(name), (&inode, own), directory.lineage());
        }
        let place = zone.map_or_else(|| parent.child(name), MetaKey::root);
        let lineage = if new.zone { Lineage::NONE } else { directory.lineage() };
        if new.contents.size > 0 {
            let Contents { size, start, bytes } = &new.contents;
            let prefix = place.clone().into_bytes();
            let (messages, holes) = block_messages(prefix, 0, *start, bytes);
            draft.append(messages);
            let end = whole_blocks(start + bytes.len() as u64);
            inode.sparse = holes || *start > 0 || end < whole_blocks(*size);
        }
        draft.insert_inode(&place, &inode, lineage);
        for (name, value) in new.xattrs {
            draft.insert(&place.with_xattr(&name), value);
        }
        draft.count(directory, gain);
        draft.touch(directory, i64::from(is_directory))?;
        let op = match new.kind {
            FileType::Directory => Op::Mkdir,
            FileType::Regular => Op::Create,
            FileType::Symlink => Op::Symlink,
            _ => Op::Mknod,
        };
        self.commit(op, draft)?;
        self.enter(inode, Placed { zone, up: Some((directory.clone(), name.into())) })
    }

    /// Gives an object another name; not a directory.
    pub fn link(&mut self, object: &Object, directory: &Object, name: &[u8]) -> Result<()> {
        check_name(name)?;
        check_named(directory)?;
        if object.is_directory() {
            return Err(Refusal::NotPermitted.into());
        }
        if self.find(directory, name)?.is_some() {
            return Err(Refusal::Exists.into());
        }
        if object.is_orphan() {
            return Err(Refusal::NotFound.into());
        }
        let mut draft = self.begin()?;
        let now = draft.now;
        self.detach(object)?;
        let gain = self.make_way_for_reference(directory, name)?;
        let zone = match object.zone() {
            Some(zone) => zone,
            None => self.share(&mut draft, object)?,
        };
        let inode = draft.inode(object);
        inode.links = add_links(inode.links, 1)?;
        inode.changed = now;
        let place = directory.place().child(name);
        draft.insert_reference(&place, (&object.inode(), zone), directory.lineage());
        draft.count(directory, gain);
        draft.touch(directory, 0)?;
        self.commit(Op::Link, draft)
    }

    /// Gives an object a zone for several links; the zone of its contents, if it has one.
    fn share(&mut self, draft: &mut Draft, object: &Object) -> Result<ZoneId> {
        let (old, up) = (object.place(), object.up());
        let Some((directory, _)) = &up else {
            return Err(self.damaged(&old, "a directory that it is in", "none"));
        };
        let data_zone = object.inode().data_zone;
        let zone = match data_zone {
            Some(zone) => zone,
            None => self.volume.take_zone()?,
        };
        draft.count(directory, Delta::reference() - self.standing(object)?);
        fits(self.relocate(draft, object, &MetaKey::root(zone))?)?;
        self.small_moves(draft, data_zone, None);
        draft.inode(object).data_zone = None;
        draft.insert_reference(&old, (&object.inode(), zone), directory.lineage());
        draft.move_to(object, Placed { zone: Some(zone), up });
        Ok(zone)
    }
}

/// Fails if an object cannot be made with these contents.
fn check_contents(new: &New) -> Result<()> {
    let Contents { size, start, bytes } = &new.contents;
    if *size > limits::FILE_MAX {
        return Err(Refusal::TooBig.into());
    }
    let end = start.checked_add(bytes.len() as u64);
    let fits = end.is_some_and(|end| end <= *size) && bytes.len() <= WRITE_MAX;
    if !fits || *size > 0 && new.kind != FileType::Regular {
        let what = format!("a {} of {size} bytes with {} at {start}", new.kind.name(), bytes.len());
        return Err(Error::Misuse(what));
    }
    Ok(())
}

/// Fails for a directory that has been removed: it takes no new names.
pub(super) fn check_named(directory: &Object) -> Result<()> {
    if directory.is_orphan() { Err(Refusal::NotFound.into()) } else { Ok(()) }
}
