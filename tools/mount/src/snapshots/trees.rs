//! Routes each request to a tree: the live one, that of a snapshot, or the directories above the snapshots. Without
//! `-o snapshots` all go to the live one.
//!
//! A request that reads goes to the server of its tree. A request that changes something goes to the live tree, or is
//! refused here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use betr_core::ids::Ino;
use fuser::{FileAttr, INodeNo};

use super::{Snapshots, Tag};
use crate::errno::{Answer, Errno};
use crate::server::Server;

/// The tree of an inode to read: its server, the inode number in it, and its tag.
pub(crate) struct At {
    pub server: Arc<Server>,
    pub ino: Ino,
    tag: Tag,
}

impl At {
    /// The number by which the kernel knows an inode of this tree.
    pub(crate) fn number(&self, ino: Ino) -> INodeNo {
        self.tag.number(ino)
    }

    /// Attributes with the number that the kernel uses.
    pub(crate) fn shown(&self, attr: FileAttr) -> FileAttr {
        FileAttr { ino: self.number(Ino(attr.ino.0)), ..attr }
    }
}

impl Server {
    /// The tree of an inode to read. Fails with EISDIR for a directory above the snapshots.
    pub(crate) fn at(self: &Arc<Server>, node: INodeNo) -> Answer<At> {
        let live = |ino| Ok(At { server: self.clone(), ino, tag: Tag::LIVE });
        let Some(snapshots) = &self.snapshots else { return live(Ino(node.0)) };
        match Tag::of(node) {
            (Tag::LIVE, ino) => live(ino),
            (Tag::ABOVE, _) => Err(Errno::EISDIR),
            (tag, ino) => Ok(At { server: snapshots.server(self, tag)?, ino, tag }),
        }
    }

    /// The snapshots, if an inode is a directory above them.
    pub(crate) fn above(&self, node: INodeNo) -> Option<&Snapshots> {
        self.snapshots.as_ref().filter(|_| Tag::of(node).0 == Tag::ABOVE)
    }

    /// The snapshots, if the lookup of a name concerns the directories above them.
    pub(crate) fn looks_above(&self, parent: INodeNo, name: &[u8]) -> Option<&Snapshots> {
        let snapshots = self.snapshots.as_ref()?;
        let is_above = Tag::of(parent).0 == Tag::ABOVE || snapshots.has_name(parent, name);
        is_above.then_some(snapshots)
    }

    /// The number of an inode to change. Fails with EROFS outside the live tree.
    pub(crate) fn live(&self, node: INodeNo) -> Answer<Ino> {
        match (&self.snapshots, Tag::of(node)) {
            (None, _) => Ok(Ino(node.0)),
            (Some(_), (Tag::LIVE, ino)) => Ok(ino),
            (Some(_), _) => Err(Errno::EROFS),
        }
    }

    /// The number of a directory in which a name is to change. `.betr` in the root cannot be changed.
    pub(crate) fn live_name(&self, parent: INodeNo, name: &OsStr) -> Answer<Ino> {
        match &self.snapshots {
            Some(snapshots) if snapshots.has_name(parent, name.as_bytes()) => Err(Errno::EROFS),
            _ => self.live(parent),
        }
    }

    /// `numbers` of two inodes that one request changes. Fails with EXDEV if they are in different trees.
    pub(crate) fn live_pair(
        &self,
        inodes: (INodeNo, INodeNo),
        numbers: (Answer<Ino>, Answer<Ino>),
    ) -> Answer<(Ino, Ino)> {
        let tags = [inodes.0, inodes.1].map(|node| Tag::of(node).0);
        let crosses = tags[0] != tags[1] && !tags.contains(&Tag::ABOVE);
        match self.snapshots.is_some() && crosses {
            true => Err(Errno::EXDEV),
            false => Ok((numbers.0?, numbers.1?)),
        }
    }

    /// The kernel drops `lookups` references to an inode.
    pub(crate) fn forget_node(&self, node: INodeNo, lookups: u64) {
        match (&self.snapshots, Tag::of(node)) {
            (None, _) => self.forget(Ino(node.0), lookups),
            (Some(_), (Tag::LIVE, ino)) => self.forget(ino, lookups),
            (Some(snapshots), (tag, ino)) => snapshots.forget(tag, ino, lookups),
        }
    }
}
