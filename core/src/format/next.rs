//! The numbers that a volume gives out next, each once.
//!
//! ```text
//!  0  next zone id   8
//!  8  next inode     5
//! 13  next tag       3
//! ```

use super::fields::{Fields, FormatError, Writer};
use super::limits::{FIRST_INO, FIRST_ZONE, INODES_END, NUMBERS_END, TAGS_END};
use super::lineage::{tag_of, untagged};
use crate::ids::{Ino, Tag, ZoneId};

/// The next free numbers of a volume. An end that equals the limit means that none is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextNumbers {
    /// The next free zone id.
    pub zone: ZoneId,
    /// The next free inode number.
    pub ino: Ino,
    /// The next free tag of a cloned directory.
    pub tag: Tag,
}

/// Whether an object may be shown under this number.
pub fn is_number(shown: Ino) -> bool {
    (1..INODES_END.0 - 1).contains(&untagged(shown).0) && tag_of(shown).0 < TAGS_END
}

/// Bytes of an inode number.
const INO_BYTES: usize = 5;
/// Bytes of a tag.
const TAG_BYTES: usize = 3;

impl NextNumbers {
    /// Those of an empty volume.
    pub const FIRST: NextNumbers = NextNumbers { zone: FIRST_ZONE, ino: FIRST_INO, tag: Tag(1) };

    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<NextNumbers, FormatError> {
        let at = f.at();
        let next = NextNumbers {
            zone: ZoneId(f.u64("next zone id")?),
            ino: Ino(f.bytes_number::<INO_BYTES>("next inode")?),
            tag: Tag(f.bytes_number::<TAG_BYTES>("next tag")? as u32),
        };
        f.within(at, "next zone id", next.zone.0, NUMBERS_END - 1)?;
        f.within(at + 13, "next tag", next.tag.0.into(), TAGS_END.into())?;
        Ok(next)
    }

    /// Fails if numbers are below those of an empty volume.
    pub(super) fn check_least(&self, f: &Fields<'_, '_>) -> Result<(), FormatError> {
        let NextNumbers { zone, ino, tag } = NextNumbers::FIRST;
        let least = [
            ("next zone id", self.zone.0, zone.0),
            ("next inode", self.ino.0, ino.0),
            ("next tag", self.tag.0.into(), tag.0.into()),
        ];
        match least.into_iter().find(|(_, found, least)| found < least) {
            Some((name, found, least)) => {
                Err(f.wrong(name, format_args!("at least {least}"), found))
            }
            None => Ok(()),
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        debug_assert!(self.ino < INODES_END, "{} is an inode number of 5 bytes", self.ino);
        w.u64(self.zone.0);
        w.bytes(&self.ino.0.to_le_bytes()[..INO_BYTES]);
        w.bytes(&self.tag.0.to_le_bytes()[..TAG_BYTES]);
    }

    /// As they stand in the header of a stream.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut w = Writer::with_capacity(16);
        self.encode(&mut w);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&w.finish());
        bytes
    }

    /// Those of the header of a stream.
    pub fn from_bytes(bytes: &[u8; 16]) -> Result<NextNumbers, FormatError> {
        NextNumbers::decode(&mut Fields::new(bytes))
    }

    /// Those of a volume where this zone has been given out.
    pub fn beyond_zone(zone: ZoneId) -> NextNumbers {
        NextNumbers { zone: ZoneId(zone.0.saturating_add(1)), ..NextNumbers::FIRST }
    }

    /// Those of a volume where an object is shown under this number, which is one of [`is_number`].
    pub fn beyond(shown: Ino) -> NextNumbers {
        let (ino, tag) = (Ino(untagged(shown).0 + 1), Tag(tag_of(shown).0 + 1));
        NextNumbers { ino, tag, ..NextNumbers::FIRST }
    }

    /// The numbers that are free in both.
    pub fn max(self, other: NextNumbers) -> NextNumbers {
        NextNumbers {
            zone: self.zone.max(other.zone),
            ino: self.ino.max(other.ino),
            tag: self.tag.max(other.tag),
        }
    }
}
