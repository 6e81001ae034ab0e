//! Inode numbers of a mount that shows snapshots: the upper 16 bits are the tag of a tree, the lower 48 the number of the inode in it.
//!
//! So no two trees have a number in common: a program that takes equal numbers of one device for hard links finds none between them.

use betr_core::ids::Ino;
use fuser::INodeNo;

/// Bits of the number of an inode in its tree.
const BITS: u32 = 48;
/// All inode numbers of a volume must be below this.
pub(crate) const INO_END: Ino = Ino(1 << BITS);

/// Which tree an inode is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag(u16);

impl Tag {
    /// The live tree: its numbers are those of the volume.
    pub(crate) const LIVE: Tag = Tag(0);
    /// The directories above the snapshots, which are in no volume.
    pub(crate) const ABOVE: Tag = Tag(u16::MAX);

    /// The tree of a node, and its number there.
    pub(crate) fn of(node: INodeNo) -> (Tag, Ino) {
        (Tag((node.0 >> BITS) as u16), Ino(node.0 & (INO_END.0 - 1)))
    }

    /// The number that the kernel is told.
    pub(crate) fn number(self, ino: Ino) -> INodeNo {
        match self {
            Tag::LIVE => INodeNo(ino.0),
            // A number that does not fit is damage, and found when its node is asked for.
            Tag(tag) => INodeNo(u64::from(tag) << BITS | ino.0 & (INO_END.0 - 1)),
        }
    }

    /// The tag for a snapshot that follows: after the last comes the first.
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
