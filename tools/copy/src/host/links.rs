//! Finds hard links in a tree before it is read: one pass over all names, without data or extended attributes. If the
//! tree changes afterwards, a link becomes a separate file.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, statat};

use crate::host::error::Result;
use crate::host::meta::{Kind, Meta};
use crate::host::source::{Source, no_follow};
use crate::host::walk;

/// The objects in a tree with several hard links, except directories: device and inode number, and the number of
/// names in the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links(HashMap<(u64, u64), u64>);

impl Links {
    /// The objects, and the number of names that each has in the tree.
    pub fn iter(&self) -> impl Iterator<Item = ((u64, u64), u64)> + '_ {
        self.0.iter().map(|(object, names)| (*object, *names))
    }

    /// Counts one name of an object, and returns how many have been counted.
    pub(crate) fn note(&mut self, meta: &Meta) -> u64 {
        if meta.kind == Kind::Directory || meta.nlink < 2 {
            return 1;
        }
        let names = self.0.entry((meta.dev, meta.ino)).or_default();
        *names += 1;
        *names
    }

    /// Counts one name. Returns the type of its object.
    fn add(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<FileType> {
        let stat = statat(dir, name, no_follow())?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory && stat.st_nlink > 1 {
            *self.0.entry((stat.st_dev, stat.st_ino)).or_default() += 1;
        }
        Ok(kind)
    }
}

/// Counts the names in the whole of `source`.
pub(crate) fn find(source: &Source) -> Result<Links> {
    let mut links = Links::default();
    if let Some((dir, name)) = source.single() {
        links.add(dir, name).map_err(|errno| source.io("look at", b"", errno))?;
        return Ok(links);
    }
    // Paths instead of open directories: a deep tree would need too many descriptors.
    let mut waiting = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let dir = source.open_directory(&path)?;
        source.for_each_name(dir.as_fd(), &path, |name, _, kind| {
            let name = name.to_bytes();
            let kind = match kind {
                FileType::Directory => kind,
                _ => links
                    .add(dir.as_fd(), name)
                    .map_err(|errno| source.io("look at", &walk::join(&path, name), errno))?,
            };
            if kind == FileType::Directory {
                waiting.push(walk::join(&path, name));
            }
            Ok(())
        })?;
    }
    Ok(links)
}
