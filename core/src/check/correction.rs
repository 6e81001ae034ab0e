//! What makes contradictions of the schema go, with the smallest loss. The checker says so where it finds them; the mender
//! carries it out.

use crate::format::{FileType, Inode, Key, MetaKey, Sums};
use crate::ids::*;

/// A change of one of the indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Correction {
    /// What stands there cannot be understood, or belongs to nothing.
    Drop(TreeId, Key),
    /// What is below what is no directory: it was moved or removed, and has come back.
    DropBelow(MetaKey),
    /// An attribute whose owner is not there.
    Unowned(Key),
    /// The contents of a file that had no name any more.
    DropContents(Vec<u8>),
    /// This is the value of the metadata index there.
    Put(Key, Vec<u8>),
    /// These are bytes of the value there.
    Patch(Key, usize, Vec<u8>),
    /// These numbers have been given out, and those below them.
    Given { zone: Option<ZoneId>, ino: Option<Ino> },
    /// The file is as long as its contents.
    Size(Key, u64),
    /// The contents of a file behind its end, at this size.
    DropBlocks(Vec<u8>, u64),
    /// The file has no zone for its contents that is its own: there are none.
    Contentless(Key),
    /// The inode needs a number of its own.
    Renumber(Key, Box<Inode>),
    /// There are entries below, so there was a directory.
    Directory(MetaKey),
    /// No name leads to the zone, whose root may be lost, too.
    Unnamed(ZoneId, Option<Box<Inode>>),
    /// There are contents, so there was a file: where they are, the size, and as much as is known of the inode.
    File { prefix: Vec<u8>, size: u64, known: Option<(Ino, u32)> },
}

impl Correction {
    /// When it is carried out: what comes before may make it unnecessary. Directories first, since nothing can be said
    /// of what is below one that is missing; attributes when their owners have had the time to come back; counts when
    /// nothing else is left.
    pub(crate) fn phase(&self) -> u8 {
        match self {
            Correction::Directory(_) | Correction::DropBelow(_) => 0,
            Correction::Unowned(_) => 2,
            Correction::Patch(..) => 3,
            _ => 1,
        }
    }
}

/// An inode of which no more is known than that there was one: nobody but root may use it.
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
    }
}
