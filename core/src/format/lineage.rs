//! Inode numbers in a cloned directory (SPEC 11.8).
//!
//! A clone of a directory shares the metadata of the original, and with it the inode numbers that are stored there. The
//! root of each of its zones has a lineage: objects that it shares are shown under numbers with the tag of the lineage.
//!
//! ```text
//!  0  limit  5
//!  5  tag    3
//! ```

use super::fields::{Fields, FormatError, Writer};
use super::limits::{INODES_END, TAGS_END};
use crate::ids::{Ino, Tag};

/// 40 bits: an inode number without a tag.
const TAG_SHIFT: u32 = INODES_END.0.trailing_zeros();
/// The bit of a stored number that is shown as it is, although it is below the limit.
const AS_IT_IS: u64 = 1 << 61;
const LIMIT_BYTES: usize = 5;
const TAG_BYTES: usize = 3;

/// How the numbers that are stored in a zone are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage {
    /// Stored numbers below this one are shown with the tag.
    pub limit: Ino,
    /// The tag; 0 in zones that were not cloned.
    pub tag: Tag,
}

impl Lineage {
    /// That of zones that were not cloned: each number is shown as it is stored.
    pub const NONE: Lineage = Lineage { limit: Ino(0), tag: Tag(0) };

    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<Lineage, FormatError> {
        let at = f.at();
        let limit = Ino(f.bytes_number::<LIMIT_BYTES>("lineage limit")?);
        let tag = Tag(f.bytes_number::<TAG_BYTES>("lineage tag")? as u32);
        f.within(at + LIMIT_BYTES, "lineage tag", tag.0.into(), (TAGS_END - 1).into())?;
        if (tag == Tag(0)) != (limit == Ino(0)) {
            return Err(f.wrong("lineage tag", "a tag and a limit, or neither", tag));
        }
        Ok(Lineage { limit, tag })
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.bytes(&self.limit.0.to_le_bytes()[..LIMIT_BYTES]);
        w.bytes(&self.tag.0.to_le_bytes()[..TAG_BYTES]);
    }

    /// The number under which an object is shown.
    pub fn shown(self, stored: Ino) -> Ino {
        match stored.0 & AS_IT_IS {
            0 if stored < self.limit => Ino(u64::from(self.tag.0) << TAG_SHIFT | stored.0),
            0 => stored,
            _ => Ino(stored.0 & !AS_IT_IS),
        }
    }

    /// The number to store for an object.
    pub fn stored(self, shown: Ino) -> Ino {
        let inherited = untagged(shown);
        if self.tag != Tag(0) && tag_of(shown) == self.tag && inherited < self.limit {
            return inherited;
        }
        match shown < self.limit {
            true => Ino(shown.0 | AS_IT_IS),
            false => shown,
        }
    }

    /// Whether a stored number is the one that [`Lineage::stored`] gives.
    pub fn is_canonical(self, stored: Ino) -> bool {
        self.stored(self.shown(stored)) == stored
    }
}

/// The tag of a shown number; 0 for the number of an object that is where it was made, or was moved from there.
pub fn tag_of(shown: Ino) -> Tag {
    Tag((shown.0 >> TAG_SHIFT) as u32)
}

/// A shown number without its tag: the number that the first original got.
pub fn untagged(shown: Ino) -> Ino {
    Ino(shown.0 & (INODES_END.0 - 1))
}

/// Whether a stored number is shown alike in each zone, so that a clone of the zone needs another.
pub fn is_fixed(stored: Ino) -> bool {
    stored >= INODES_END
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_no_two_are_shown_alike() {
        let lineages = [
            Lineage::NONE,
            Lineage { limit: Ino(100), tag: Tag(1) },
            Lineage { limit: Ino(200), tag: Tag(2) },
            Lineage { limit: Ino(INODES_END.0 - 1), tag: Tag(TAGS_END - 1) },
        ];
        let plain = [1, 99, 100, 101, 199, 200, INODES_END.0 - 2, INODES_END.0 - 1].map(Ino);
        for lineage in lineages {
            for stored in plain {
                let shown = lineage.shown(stored);
                assert_eq!(lineage.stored(shown), stored);
                assert_eq!(
                    tag_of(shown),
                    if stored < lineage.limit { lineage.tag } else { Tag(0) }
                );
                assert!(lineage.is_canonical(stored) && !is_fixed(stored));
                // Elsewhere the object has the same number.
                for other in lineages {
                    let there = other.stored(shown);
                    assert_eq!(other.shown(there), shown, "{lineage:?} to {other:?}");
                    assert!(other.is_canonical(there));
                    assert!(there.0 < 1 << 62);
                }
            }
        }
        let lineage = lineages[1];
        assert!(is_fixed(lineage.stored(Ino(99))) && !is_fixed(lineage.stored(Ino(100))));
        assert!(!lineage.is_canonical(Ino(100 | AS_IT_IS)));
        assert!(!Lineage::NONE.is_canonical(Ino(7 | AS_IT_IS)));
    }
}
