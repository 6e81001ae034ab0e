//! Options of an import, and the counts of its result.

use crate::host::{Kind, Meta};
use betr_core::fs::Attributes;
use betr_core::ids::Time;

use crate::CopyError;
use crate::meta::time_of;

/// Options of an import.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// `SOURCE_DATE_EPOCH`, in seconds: later times are reduced to it, and times of access, which reading changes,
    /// are replaced by the times of modification.
    pub epoch: Option<i64>,
    /// The owners of imported objects.
    pub owners: Owners,
}

/// Mapping of owners and groups. Those in access control lists stay unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The mapping of owners.
    pub users: Numbers,
    /// The mapping of groups.
    pub groups: Numbers,
}

/// A mapping of user or group numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Replaces every number.
    pub force: Option<u32>,
    /// Added after that.
    pub offset: i64,
}

/// Counts of imported objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Regular files.
    pub files: u64,
    /// Directories, the root of the tree included.
    pub directories: u64,
    /// Objects of other types: symbolic links, devices, pipes, sockets.
    pub others: u64,
    /// Hard links beyond the first name of each object.
    pub links: u64,
    /// Bytes of file contents.
    pub bytes: u64,
}

impl Numbers {
    /// The new number; `None` if it is not a valid one.
    fn map(self, number: u32) -> Option<u32> {
        let number = self.force.unwrap_or(number);
        if self.offset == 0 {
            return Some(number);
        }
        let moved = i64::from(number).checked_add(self.offset)?;
        // 4,294,967,295 is not a valid number: for chown(2) it means "leave unchanged".
        u32::try_from(moved).ok().filter(|moved| *moved != u32::MAX)
    }
}

impl ImportOptions {
    /// The attributes of a root that the source does not describe, with its owner mapped.
    pub fn owned(&self, attributes: Attributes) -> Result<Attributes, CopyError> {
        let Attributes { uid, gid, .. } = attributes;
        let (uid, gid) = self.owner(b"", uid, gid)?;
        Ok(Attributes { uid, gid, ..attributes })
    }

    /// The attributes in the image of the object at `path`.
    pub(crate) fn attributes(&self, path: &[u8], meta: &Meta) -> Result<Attributes, CopyError> {
        let (uid, gid) = self.owner(path, meta.uid, meta.gid)?;
        let (accessed, modified) = self.times(meta);
        // Systems that store a mode for symbolic links set it from the umask of their creator.
        let perm = if matches!(meta.kind, Kind::Symlink(_)) { 0o777 } else { meta.perm };
        Ok(Attributes { perm, uid, gid, accessed, modified })
    }

    /// The owner and group in the image of the object at `path`, mapped from `uid` and `gid`.
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
