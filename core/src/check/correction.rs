//! Corrections: changes that resolve contradictions of the schema with the smallest loss. The checker proposes them,
//! and the mender makes them.

use crate::format::{FileType, Inode, Key, Lineage, MetaKey, NextNumbers, Sums};
use crate::ids::*;

/// A change of one of the indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Correction {
    /// Removes an entry that is malformed, or belongs to nothing.
    Drop(TreeId, Key),
    /// Removes everything below a path that is no directory: it was moved or removed before, and exists again.
    DropBelow(MetaKey),
    /// Removes an attribute whose owner is missing.
    Unowned(Key),
    /// Removes the contents of a file that had no name any more.
    DropContents(Vec<u8>),
    /// Sets a value of the metadata index.
    Put(Key, Vec<u8>),
    /// Writes the root of a cloned zone, whose lineage is lost, with a new one.
    Cloned(Key, Box<Inode>),
    /// Sets some bytes of a value of the metadata index.
    Patch(Key, usize, Vec<u8>),
    /// Gives out numbers only from these on.
    Numbers(NextNumbers),
    /// Sets the size of a file to the length of its contents.
    Size(Key, u64),
    /// Removes the contents of a file beyond this size.
    DropBlocks(Vec<u8>, u64),
    /// Makes a file empty, because its data zone is not its own.
    Contentless(Key),
    /// Gives an inode a new number.
    Renumber(Key, Box<Inode>),
    /// Makes a directory, because there are entries below it.
    Directory(MetaKey),
    /// Gives a name to a zone without one, whose root may be lost, too.
    Unnamed(ZoneId, Option<Box<Inode>>),
    /// Makes a file for contents without one: their prefix, the size, and the known parts of its inode.
    File { prefix: Vec<u8>, size: u64, known: Option<(Ino, u32)> },
}

impl Correction {
    /// The phase of the correction; earlier phases may make it unnecessary. Directories come first, since entries below
    /// a missing one cannot be judged. Attributes come after their owners may have been restored, and counts come last.
    pub(crate) fn phase(&self) -> u8 {
        match self {
            Correction::Directory(_) | Correction::DropBelow(_) => 0,
            Correction::Unowned(_) => 2,
            Correction::Patch(..) => 3,
            _ => 1,
        }
    }
}

/// An inode whose attributes are lost: only root may access it.
pub(crate) fn lost_inode(kind: FileType, ino: Ino, now: Time) -> Inode {
    let directory = kind == FileType::Directory;
    Inode {
        kind,
        perm: if directory { 0o700 } else { 0o600 },
        uid: 0,
        gid: 0,
        links: if directory { 2 } else { 1 },
        size: 0,
        ino,
        data_zone: None,
        accessed: now,
        modified: now,
        changed: now,
        born: now,
        device: (0, 0),
        target: Vec::new(),
        parent: None,
        sparse: kind == FileType::Regular,
        sums: Sums::default(),
        lineage: Lineage::NONE,
    }
}
