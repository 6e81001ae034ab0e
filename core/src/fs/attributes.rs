//! Attributes of inodes.

use super::{Fs, Object};
use crate::error::Result;
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
    /// Changes attributes of an object.
    pub fn set_attributes(&mut self, object: &Object, changes: Changes) -> Result<()> {
        let mut draft = self.begin()?;
        let now = draft.now;
        let inode = draft.inode(object);
        inode.perm = changes.perm.map_or(inode.perm, |perm| perm & 0o7777);
        inode.uid = changes.uid.unwrap_or(inode.uid);
        inode.gid = changes.gid.unwrap_or(inode.gid);
        inode.accessed = changes.accessed.unwrap_or(inode.accessed);
        inode.modified = changes.modified.unwrap_or(inode.modified);
        inode.changed = now;
        self.carry_out(Op::SetAttributes, draft)
    }
}
