//! Inode numbers of a mount that shows snapshots: the upper 16 bits are the tag of a tree, the lower 48 bits the
//! inode number in it.
//!
//! So numbers are unique across trees. Programs take equal inode numbers on one device for hard links, and see none
//! between trees.

use betr_core::ids::Ino;
use fuser::INodeNo;

/// Bits of an inode number within its tree.
const BITS: u32 = 48;
/// All inode numbers of a volume must be below this.
pub(crate) const INO_END: Ino = Ino(1 << BITS);

/// The tag of a tree in the inode numbers of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag(u16);

impl Tag {
    /// The live tree, whose inode numbers are those of the volume.
    pub(crate) const LIVE: Tag = Tag(0);
    /// The directories above the snapshots, which are in no volume.
    pub(crate) const ABOVE: Tag = Tag(u16::MAX);

    /// Splits a number into the tag of the tree and the inode number in it.
    pub(crate) fn of(node: INodeNo) -> (Tag, Ino) {
        (Tag((node.0 >> BITS) as u16), Ino(node.0 & (INO_END.0 - 1)))
    }

    /// The inode number that the kernel uses.
    pub(crate) fn number(self, ino: Ino) -> INodeNo {
        match self {
            Tag::LIVE => INodeNo(ino.0),
            // A larger number is damage, which is reported when the inode is looked up.
            Tag(tag) => INodeNo(u64::from(tag) << BITS | ino.0 & (INO_END.0 - 1)),
        }
    }

    /// The next tag for a snapshot; wraps around to the first.
    pub(crate) fn next(self) -> Tag {
        match Tag(self.0.wrapping_add(1)) {
            Tag::LIVE | Tag::ABOVE => Tag(1),
            next => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_trees_have_none_in_common() {
        for tag in [Tag(1), Tag(7), Tag(u16::MAX - 1), Tag::ABOVE] {
            for ino in [Ino(0), Ino(1), Ino(INO_END.0 - 1)] {
                let node = tag.number(ino);
                assert_eq!(Tag::of(node), (tag, ino));
                assert!(node.0 >= INO_END.0);
            }
        }
        assert_eq!(Tag::LIVE.number(Ino(5)), INodeNo(5));
        assert_eq!(Tag::of(INodeNo(5)), (Tag::LIVE, Ino(5)));
    }

    #[test]
    fn snapshots_get_no_tag_of_others() {
        assert_eq!(Tag::LIVE.next(), Tag(1));
        assert_eq!(Tag(1).next(), Tag(2));
        assert_eq!(Tag(u16::MAX - 1).next(), Tag(1));
    }
}
