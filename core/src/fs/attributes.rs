//! Attributes of inodes, extended attributes, and the numbers of the volume.

use bytes::Bytes;

use super::{Fs, Object, insert, insert_inode};
use crate::error::{Refusal, Result};
use crate::format::*;
use crate::ids::*;

/// Attributes to change; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The permission bits.
    pub perm: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// Last read.
    pub accessed: Option<Time>,
    /// Last change of contents.
    pub modified: Option<Time>,
}

impl Fs {
    /// Changes attributes of an object. Returns it as it is then.
    pub fn set_attributes(&mut self, object: &Object, changes: Changes) -> Result<Object> {
        let mut inode = self.object(object.place.clone())?.inode;
        let now = self.now();
        inode.perm = changes.perm.map_or(inode.perm, |perm| perm & 0o7777);
        inode.uid = changes.uid.unwrap_or(inode.uid);
        inode.gid = changes.gid.unwrap_or(inode.gid);
        inode.accessed = changes.accessed.unwrap_or(inode.accessed);
        inode.modified = changes.modified.unwrap_or(inode.modified);
        inode.changed = now;
        self.commit(Op::SetAttributes, now, vec![insert_inode(&object.place, &inode)])?;
        Ok(Object { inode, ..object.clone() })
    }

    /// The extended attributes of an object, in the order of their names.
    pub fn xattrs(&self, object: &Object) -> Result<Vec<(Vec<u8>, Bytes)>> {
        self.xattrs_at(&object.place)
    }

    fn xattrs_at(&self, place: &MetaKey) -> Result<Vec<(Vec<u8>, Bytes)>> {
        let (lo, hi) = place.xattr_range();
        let mut found = Vec::new();
        for entry in self.volume.cursor(TreeId::Metadata, lo, Some(hi)) {
            let (key, value) = entry?;
            let name = MetaKey::decode(&key).and_then(|key| key.xattr);
            found.push((name.ok_or_else(|| self.bad_key(&key))?, value));
        }
        Ok(found)
    }

    pub(super) fn has_xattrs(&self, place: &MetaKey) -> Result<bool> {
        let (lo, hi) = place.xattr_range();
        self.volume
            .cursor(TreeId::Metadata, lo, Some(hi))
            .next()
            .transpose()
            .map(|first| first.is_some())
    }

    /// An extended attribute.
    pub fn xattr(&self, object: &Object, name: &[u8]) -> Result<Bytes> {
        check_xattr_name(name)?;
        let key = object.place.with_xattr(name).encode();
        self.volume.get(TreeId::Metadata, &key)?.ok_or(Refusal::NoAttribute.into())
    }

    /// Sets extended attributes, all in one operation.
    pub fn set_xattrs(&mut self, object: &Object, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut messages = Vec::with_capacity(xattrs.len() + 1);
        for (name, value) in xattrs {
            check_xattr_name(name)?;
            if value.len() > limits::VALUE_MAX {
                return Err(Refusal::TooBig.into());
            }
            messages.push(insert(&object.place.with_xattr(name), value.clone()));
        }
        self.change_xattrs(object, Op::SetXattr, messages)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&mut self, object: &Object, name: &[u8]) -> Result<()> {
        self.xattr(object, name)?;
        let messages = vec![super::delete(&object.place.with_xattr(name))];
        self.change_xattrs(object, Op::RemoveXattr, messages)
    }

    fn change_xattrs(
        &mut self,
        object: &Object,
        op: Op,
        mut messages: Vec<RecordMessage>,
    ) -> Result<()> {
        let mut inode = self.object(object.place.clone())?.inode;
        let now = self.now();
        inode.changed = now;
        messages.push(insert_inode(&object.place, &inode));
        self.commit(op, now, messages)?;
        Ok(())
    }

    /// The messages that move the extended attributes of an inode from one place to another.
    pub(super) fn move_xattrs(&self, from: &MetaKey, to: &MetaKey) -> Result<Vec<RecordMessage>> {
        let xattrs = self.xattrs_at(from)?;
        if xattrs.is_empty() {
            return Ok(Vec::new());
        }
        let (lo, hi) = from.xattr_range();
        let mut messages = vec![RecordMessage::RangeDelete(TreeId::Metadata, lo, hi)];
        messages.extend(xattrs.into_iter().map(|(name, value)| {
            RecordMessage::Point(
                TreeId::Metadata,
                to.with_xattr(&name).encode(),
                Action::Insert(value),
            )
        }));
        Ok(messages)
    }
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Refusal::Invalid.into()),
        1..=limits::XATTR_NAME_MAX if !name.contains(&0) => Ok(()),
        1..=limits::XATTR_NAME_MAX => Err(Refusal::Invalid.into()),
        _ => Err(Refusal::NameTooLong.into()),
    }
}
