//! Inode numbers of a mount that shows snapshots.
//!
//! ```text
//! live tree   0: 3   tag of a cloned directory: 21   inode: 40
//! snapshot    tree: 14 (from 2^11)   tag of a cloned directory: 17   inode: 33
//! ```
//!
//! The first bits of a live number are zeros, so numbers are unique across trees. Programs take equal inode numbers on one
//! device for hard links, and see none between trees.

use betr_core::format::limits::INODES_END;
use betr_core::format::{NextNumbers, tag_of, untagged};
use betr_core::ids::Ino;
use fuser::INodeNo;

/// Bits of an inode number without tags. With 33 bits, 8 billion numbers have been given out.
const INO_BITS: u32 = 33;
/// Bits of the tag of a cloned directory. With 17 bits, 131,072 directories have been cloned.
const CLONE_BITS: u32 = 17;
/// Bits of an inode number within the tree of a snapshot.
const BITS: u32 = INO_BITS + CLONE_BITS;
/// The tag of the first snapshot: live numbers have 61 bits.
const FIRST: u16 = 1 << (61 - BITS);
/// The number of tags of trees.
const END: u16 = 1 << (64 - BITS);

/// The tag of a tree in the inode numbers of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag(u16);

/// Whether the inode numbers of a tree fit into those of a snapshot.
pub(crate) fn fit(next: NextNumbers) -> bool {
    next.ino.0 <= 1 << INO_BITS && next.tag.0 <= 1 << CLONE_BITS
}

impl Tag {
    /// The live tree, whose inode numbers are those of the volume.
    pub(crate) const LIVE: Tag = Tag(0);
    /// The directories above the snapshots, which are in no volume.
    pub(crate) const ABOVE: Tag = Tag(END - 1);

    /// Splits a number into the tag of the tree and the inode number in it.
    pub(crate) fn of(node: INodeNo) -> (Tag, Ino) {
        let tree = (node.0 >> BITS) as u16;
        if tree < FIRST {
            return (Tag::LIVE, Ino(node.0));
        }
        let clone = node.0 >> INO_BITS & ((1 << CLONE_BITS) - 1);
        (Tag(tree), Ino(clone * INODES_END.0 + (node.0 & ((1 << INO_BITS) - 1))))
    }

    /// The inode number that the kernel uses. In a snapshot it is one of those that [`fit`].
    pub(crate) fn number(self, ino: Ino) -> INodeNo {
        if self == Tag::LIVE {
            return INodeNo(ino.0);
        }
        // A larger number is damage, which is reported when the inode is looked up.
        let clone = u64::from(tag_of(ino).0) & ((1 << CLONE_BITS) - 1);
        let ino = untagged(ino).0 & ((1 << INO_BITS) - 1);
        INodeNo(u64::from(self.0) << BITS | clone << INO_BITS | ino)
    }

    /// The next tag for a snapshot; wraps around to the first.
    pub(crate) fn next(self) -> Tag {
        match Tag(self.0 + 1) {
            Tag(tag) if tag < FIRST => Tag(FIRST),
            Tag::ABOVE => Tag(FIRST),
            next => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use betr_core::format::limits::TAGS_END;
    use betr_core::ids;

    use super::*;

    /// The number of an object in a cloned directory.
    fn cloned(tag: u64, ino: u64) -> Ino {
        Ino(tag * INODES_END.0 + ino)
    }

    #[test]
    fn numbers_come_back_and_trees_have_none_in_common() {
        let last_live = cloned(u64::from(TAGS_END) - 1, INODES_END.0 - 2);
        for tag in [Tag(FIRST), Tag(FIRST + 7), Tag(END - 2), Tag::ABOVE] {
            for clone in [0, 1, (1 << CLONE_BITS) - 1] {
                for ino in [0, 1, (1 << INO_BITS) - 1] {
                    let ino = cloned(clone, ino);
                    let node = tag.number(ino);
                    assert_eq!(Tag::of(node), (tag, ino));
                    assert!(node.0 > last_live.0);
                }
            }
        }
        for ino in [Ino(5), cloned(3, 5), last_live] {
            assert_eq!(Tag::LIVE.number(ino), INodeNo(ino.0));
            assert_eq!(Tag::of(INodeNo(ino.0)), (Tag::LIVE, ino));
        }
    }

    #[test]
    fn snapshots_get_no_tag_of_others() {
        assert_eq!(Tag::LIVE.next(), Tag(FIRST));
        assert_eq!(Tag(FIRST).next(), Tag(FIRST + 1));
        assert_eq!(Tag(END - 2).next(), Tag(FIRST));
    }

    #[test]
    fn numbers_beyond_those_of_snapshots_do_not_fit() {
        let most = NextNumbers {
            ino: Ino(1 << INO_BITS),
            tag: ids::Tag(1 << CLONE_BITS),
            ..NextNumbers::FIRST
        };
        assert!(fit(NextNumbers::FIRST) && fit(most));
        assert!(!fit(NextNumbers { ino: Ino(most.ino.0 + 1), ..most }));
        assert!(!fit(NextNumbers { tag: ids::Tag(most.tag.0 + 1), ..most }));
    }
}
