//! Which tree a request is about: the live one, that of a snapshot, or the directories above the snapshots. Without `-o snapshots` all are about
//! the live one.
//!
//! A request that reads goes to the server of its tree. One that changes something goes to the live tree, or is refused here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use betr_core::ids::Ino;
use fuser::{FileAttr, INodeNo};

use super::{Snapshots, Tag};
use crate::errno::{Answer, Errno};
use crate::server::Server;

/// Where a node is that is read: the tree, its server, and the number there.
pub(crate) struct At {
    pub server: Arc<Server>,
    pub ino: Ino,
    tag: Tag,
}

impl At {
    /// The number of an inode of this tree, as the kernel knows it.
    pub(crate) fn number(&self, ino: Ino) -> INodeNo {
        self.tag.number(ino)
    }

    /// Attributes with that number.
    pub(crate) fn shown(&self, attr: FileAttr) -> FileAttr {
        FileAttr { ino: self.number(Ino(attr.ino.0)), ..attr }
    }
}

impl Server {
    /// Where a node is that is read, and is no directory above the snapshots.
    pub(crate) fn at(self: &Arc<Server>, node: INodeNo) -> Answer<At> {
        let live = |ino| Ok(At { server: self.clone(), ino, tag: Tag::LIVE });
        let Some(snapshots) = &self.snapshots else { return live(Ino(node.0)) };
        match Tag::of(node) {
            (Tag::LIVE, ino) => live(ino),
            (Tag::ABOVE, _) => Err(Errno::EISDIR),
            (tag, ino) => Ok(At { server: snapshots.server(self, tag)?, ino, tag }),
        }
    }

    /// The snapshots, if a node is a directory above them.
    pub(crate) fn above(&self, node: INodeNo) -> Option<&Snapshots> {
        self.snapshots.as_ref().filter(|_| Tag::of(node).0 == Tag::ABOVE)
    }

    /// The snapshots, if they answer a lookup.
    pub(crate) fn looks_above(&self, parent: INodeNo, name: &[u8]) -> Option<&Snapshots> {
        let snapshots = self.snapshots.as_ref()?;
        let is_above = Tag::of(parent).0 == Tag::ABOVE || snapshots.has_name(parent, name);
        is_above.then_some(snapshots)
    }

    /// The number of a node that is to change: only the live tree does.
    pub(crate) fn live(&self, node: INodeNo) -> Answer<Ino> {
        match (&self.snapshots, Tag::of(node)) {
            (None, _) => Ok(Ino(node.0)),
            (Some(_), (Tag::LIVE, ino)) => Ok(ino),
            (Some(_), _) => Err(Errno::EROFS),
        }
    }

    /// The number of a directory in which a name is to change.
    pub(crate) fn live_name(&self, parent: INodeNo, name: &OsStr) -> Answer<Ino> {
        match &self.snapshots {
            Some(snapshots) if snapshots.has_name(parent, name.as_bytes()) => Err(Errno::EROFS),
            _ => self.live(parent),
        }
    }

    /// The numbers of two inodes that are to change together: `numbers`, unless one is in another tree than the other.
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

    /// The kernel drops `lookups` references to a node.
    pub(crate) fn forget_node(&self, node: INodeNo, lookups: u64) {
        match (&self.snapshots, Tag::of(node)) {
            (None, _) => self.forget(Ino(node.0), lookups),
            (Some(_), (Tag::LIVE, ino)) => self.forget(ino, lookups),
            (Some(snapshots), (tag, ino)) => snapshots.forget(tag, ino, lookups),
        }
    }
}
