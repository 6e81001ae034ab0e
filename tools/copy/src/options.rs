//! How a tree is taken over into an image, and what became of it.

use crate::host::{Kind, Meta};
use betr_core::fs::Attributes;
use betr_core::ids::Time;

use crate::CopyError;
use crate::meta::time_of;

/// How to import.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// `SOURCE_DATE_EPOCH`: no time is later, and times of access, which reading changes, are those of
    /// the last modification.
    pub epoch: Option<i64>,
    /// Who is to own what is imported.
    pub owners: Owners,
}

/// What becomes of owners and groups. Those in access control lists stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Of owners.
    pub users: Numbers,
    /// Of groups.
    pub groups: Numbers,
}

/// What becomes of the numbers of users, or of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// This one stands for all.
    pub force: Option<u32>,
    /// This is added afterwards.
    pub offset: i64,
}

/// What was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Regular files.
    pub files: u64,
    /// Directories, the root of the tree included.
    pub directories: u64,
    /// Symbolic links, devices and all else.
    pub others: u64,
    /// Names beyond the first of files with several.
    pub links: u64,
    /// Bytes of files.
    pub bytes: u64,
}

impl Numbers {
    /// The new number; nothing if it is none that anybody can have.
    fn map(self, number: u32) -> Option<u32> {
        let number = self.force.unwrap_or(number);
        if self.offset == 0 {
            return Some(number);
        }
        let moved = i64::from(number).checked_add(self.offset)?;
        // 4,294,967,295 is no user or group: chown(2) takes it for "leave unchanged".
        u32::try_from(moved).ok().filter(|moved| *moved != u32::MAX)
    }
}

impl ImportOptions {
    /// The attributes of a root that nothing is said of, in the hands of who is to own it.
    pub fn owned(&self, attributes: Attributes) -> Result<Attributes, CopyError> {
        let Attributes { uid, gid, .. } = attributes;
        let (uid, gid) = self.owner(b"", uid, gid)?;
        Ok(Attributes { uid, gid, ..attributes })
    }

    /// What the object at `path` gets of `meta`.
    pub(crate) fn attributes(&self, path: &[u8], meta: &Meta) -> Result<Attributes, CopyError> {
        let (uid, gid) = self.owner(path, meta.uid, meta.gid)?;
        let (accessed, modified) = self.times(meta);
        // What systems with modes of symbolic links say of them depends on the umask of who made them.
        let perm = if matches!(meta.kind, Kind::Symlink(_)) { 0o777 } else { meta.perm };
        Ok(Attributes { perm, uid, gid, accessed, modified })
    }

    /// Who is to own the object at `path`, if it is these who own it now.
    pub(crate) fn owner(&self, path: &[u8], uid: u32, gid: u32) -> Result<(u32, u32), CopyError> {
        let Owners { users, groups } = self.owners;
        let refused = |what: &str, number: u32, offset: i64| {
            CopyError::unfit(path, format!("{what} {number} cannot be moved by {offset}"))
        };
        let uid = users.map(uid).ok_or_else(|| refused("owner", uid, users.offset))?;
        let gid = groups.map(gid).ok_or_else(|| refused("group", gid, groups.offset))?;
        Ok((uid, gid))
    }

    fn times(&self, meta: &Meta) -> (Time, Time) {
        let (accessed, modified) = (time_of(meta.atime), time_of(meta.mtime));
        match self.epoch {
            None => (accessed, modified),
            Some(epoch) => {
                let modified = modified.min(Time { secs: epoch, nanos: 0 });
                (modified, modified)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_forced_and_moved() {
        for (force, offset, number, expected) in [
            (None, 0, 7, Some(7)),
            (None, 0, u32::MAX, Some(u32::MAX)),
            (Some(3), 0, 7, Some(3)),
            (None, 100_000, 7, Some(100_007)),
            (Some(0), 100_000, 7, Some(100_000)),
            (None, -7, 7, Some(0)),
            (None, -8, 7, None),
            (None, 1, u32::MAX - 2, Some(u32::MAX - 1)),
            (None, 1, u32::MAX - 1, None),
            (None, 1, u32::MAX, None),
            (None, i64::MAX, 1, None),
            (None, i64::MIN, 1, None),
        ] {
            assert_eq!(Numbers { force, offset }.map(number), expected, "{number} by {offset}");
        }
    }
}
