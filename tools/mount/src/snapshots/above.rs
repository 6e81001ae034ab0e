//! The directories above the snapshots: `.betr` in the root, and `snapshots` in it. They are in no volume, and cannot
//! be changed through the mount.
//!
//! A lookup finds `.betr`; no listing of the root contains it. Names and attributes expire at once, so the kernel
//! sees snapshots taken, renamed and dropped without an invalidation. The reply to a lookup of a snapshot carries
//! placeholder attributes, and the kernel requests the real ones before it uses them: so a listing opens no snapshot.

use std::time::Duration;

use betr_core::fs::ROOT_INO;
use betr_core::ids::Ino;
use fuser::{FileAttr, FileType, INodeNo};

use super::{Snapshots, Tag};
use crate::attr;
use crate::directory::DOTS;
use crate::errno::{Answer, Errno};
use crate::requests::{ListedPlus, Room};
use crate::server::Server;

/// The name in the root.
pub(crate) const TOP_NAME: &str = ".betr";
pub(super) const SNAPSHOTS_NAME: &str = "snapshots";
/// Inode numbers of the two directories, under [`Tag::ABOVE`].
const TOP: Ino = Ino(1);
const SNAPSHOTS: Ino = Ino(2);
/// The kernel caches no names and attributes of these directories.
pub(crate) const TTL: Duration = Duration::ZERO;

/// An entry of one of these directories.
struct Entry {
    node: INodeNo,
    name: Vec<u8>,
    /// The cookie of the next entry.
    next: u64,
}

/// The inode number of the directory of all snapshots.
pub(super) fn snapshots_directory() -> INodeNo {
    Tag::ABOVE.number(SNAPSHOTS)
}

impl Snapshots {
    /// Whether a name is `.betr` in the root of the live tree.
    pub(crate) fn has_name(&self, parent: INodeNo, name: &[u8]) -> bool {
        Tag::of(parent) == (Tag::LIVE, ROOT_INO) && name == TOP_NAME.as_bytes()
    }

    /// Looks up a name in one of these directories.
    pub(crate) fn lookup(&self, live: &Server, parent: INodeNo, name: &[u8]) -> Answer<FileAttr> {
        let node = match Tag::of(parent) {
            _ if self.has_name(parent, name) => Tag::ABOVE.number(TOP),
            (Tag::ABOVE, TOP) if name == SNAPSHOTS_NAME.as_bytes() => snapshots_directory(),
            (Tag::ABOVE, SNAPSHOTS) => self.find(live, name)?,
            _ => return Err(Errno::ENOENT),
        };
        Ok(self.directory(node))
    }

    /// The attributes of one of these directories, or placeholders for those of the root of a snapshot.
    pub(crate) fn directory(&self, node: INodeNo) -> FileAttr {
        let made = attr::system_time(self.made);
        FileAttr {
            ino: node,
            atime: made,
            mtime: made,
            ctime: made,
            crtime: made,
            kind: FileType::Directory,
            perm: 0o555,
            nlink: 2,
            uid: self.owner.0,
            gid: self.owner.1,
            blksize: 4096,
            ..attr::nothing()
        }
    }

    /// Lists a directory from a cookie until the reply is full: inode numbers, names, and the cookies of the next
    /// entries.
    pub(crate) fn list(
        &self,
        live: &Server,
        directory: INodeNo,
        from: u64,
        mut add: impl FnMut(INodeNo, &[u8], u64) -> Room,
    ) -> Answer<()> {
        for Entry { node, name, next } in self.entries(live, directory, from)? {
            if add(node, &name, next) == Room::Full {
                break;
            }
        }
        Ok(())
    }

    /// Lists with attributes; counts a reference of the kernel to each entry except `.` and `..`.
    pub(crate) fn list_plus(
        &self,
        live: &Server,
        directory: INodeNo,
        from: u64,
        mut add: impl FnMut(ListedPlus<'_>) -> Room,
    ) -> Answer<()> {
        let mut entries = self.entries(live, directory, from)?;
        // The kernel begins each listing with this request, and continues with it only for a program that looks up
        // listed entries. So the first reply has just `.` and `..`, and a plain listing references no snapshot.
        if from == 0 {
            entries.truncate(DOTS as usize);
        }
        for Entry { node, name, next } in entries {
            if add(ListedPlus { attr: self.directory(node), name: &name, next }) == Room::Full {
                break;
            }
            if next > DOTS {
                self.enter(node);
            }
        }
        Ok(())
    }

    /// The entries from a cookie on. The cookie of a snapshot is its epoch plus the two first entries, so drops do
    /// not change it.
    fn entries(&self, live: &Server, directory: INodeNo, from: u64) -> Answer<Vec<Entry>> {
        let entry = |node, name: &str, next| Entry { node, name: name.into(), next };
        let above = match Tag::of(directory).1 {
            TOP => INodeNo::ROOT,
            _ => Tag::ABOVE.number(TOP),
        };
        let mut entries = vec![entry(directory, ".", 1), entry(above, "..", DOTS)];
        match Tag::of(directory).1 {
            TOP => entries.push(entry(snapshots_directory(), SNAPSHOTS_NAME, DOTS + 1)),
            _ => {
                for (node, hold) in self.roots(live)? {
                    entries.push(entry(node, &hold.name, hold.epoch.0.saturating_add(DOTS)));
                }
            }
        }
        entries.retain(|entry| entry.next > from);
        Ok(entries)
    }
}
