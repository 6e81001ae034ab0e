//! Attributes of inodes, and the effects of changing them.

use super::acl::{self, Acl};
use super::{Draft, Fs, Object};
use crate::error::Result;
use crate::format::*;
use crate::ids::*;

/// Attributes to change; `None` keeps the old value.
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

/// 24 hours: after that, an access updates the time of access in any case (relatime).
const ACCESS_AGE: i64 = 24 * 60 * 60;

impl Fs {
    /// Changes attributes of an object. An access control list follows the permission bits. A change of owner without a
    /// change of bits clears set-user-id, and set-group-id if the group may execute the file (chown(2)).
    pub fn set_attributes(&mut self, object: &Object, changes: Changes) -> Result<()> {
        let mut draft = self.begin()?;
        let now = draft.now;
        let given = (changes.uid.is_some() || changes.gid.is_some()) && !object.is_directory();
        let perm = match changes.perm {
            None if given => Some(without_set_ids(object.inode().perm, true)),
            perm => perm,
        };
        if let Some(perm) = perm
            && perm & 0o777 != object.inode().perm & 0o777
        {
            self.change_acl(&mut draft, object, perm)?;
        }
        let inode = draft.inode(object);
        inode.perm = perm.map_or(inode.perm, |perm| perm & 0o7777);
        inode.uid = changes.uid.unwrap_or(inode.uid);
        inode.gid = changes.gid.unwrap_or(inode.gid);
        inode.accessed = changes.accessed.unwrap_or(inode.accessed);
        inode.modified = changes.modified.unwrap_or(inode.modified);
        inode.changed = now;
        self.commit(Op::SetAttributes, draft)
    }

    /// Changes the access control list, if there is one, to the permission bits.
    fn change_acl(&self, draft: &mut Draft, object: &Object, perm: u32) -> Result<()> {
        let Some(value) = self.find_xattr(object, acl::ACCESS)? else { return Ok(()) };
        // An invalid list is left as it is.
        if let Some(list) = Acl::parse(&value) {
            let place = object.place().with_xattr(acl::ACCESS);
            draft.insert(&place, list.with_perm(perm).encode());
        }
        Ok(())
    }

    /// Clears set-user-id after an unprivileged change of a file's contents. Also clears set-group-id if the group may
    /// execute the file, or if the user is no member of it.
    pub fn drop_set_ids(&mut self, object: &Object, is_member: bool) -> Result<()> {
        let before = object.inode().perm;
        let perm = without_set_ids(before, is_member);
        if perm == before || object.is_directory() {
            return Ok(());
        }
        let changes = Changes { perm: Some(perm), ..Changes::default() };
        self.set_attributes(object, changes)
    }

    /// Updates the time of access after a read at `time`, if it is due.
    pub fn note_access(&mut self, object: &Object, time: Time) -> Result<()> {
        if !Fs::is_access_due(&object.inode(), time) {
            return Ok(());
        }
        let mut draft = self.begin()?;
        draft.inode(object).accessed = time;
        self.commit(Op::SetAttributes, draft)
    }

    /// Whether the time of access is to be updated: it is not younger than the last change, or a day old (relatime of
    /// mount(8)).
    pub fn is_access_due(inode: &Inode, time: Time) -> bool {
        let changed = inode.modified.max(inode.changed);
        inode.accessed <= changed || time.secs.saturating_sub(inode.accessed.secs) >= ACCESS_AGE
    }
}

/// Permission bits after a change of owner, or an unprivileged change of contents. Set-group-id without group execute
/// once meant mandatory locking, so it stays for a member of the group.
fn without_set_ids(perm: u32, is_member: bool) -> u32 {
    match perm & 0o010 {
        0 if is_member => perm & !0o4000,
        _ => perm & !0o6000,
    }
}
