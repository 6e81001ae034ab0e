//! The size of zones (BetrFS 0.2 §4).

use super::fields::{Fields, FormatError, Writer};

/// What stands below a directory in its zone, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Of metadata: names, inodes, references and extended attributes.
    pub meta: u64,
    /// Of files without a zone of their own, each in whole blocks.
    pub data: u64,
}

/// How large zones are, in bytes of metadata and in bytes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSizes {
    /// C0: smaller ones merge with the zone above.
    pub min: u64,
    /// C1: a directory or file that is larger is the root of a zone.
    pub max: u64,
}

impl ZoneSizes {
    /// For trees without zones.
    pub const NONE: ZoneSizes = ZoneSizes { min: 0, max: 0 };

    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<ZoneSizes, FormatError> {
        let sizes = ZoneSizes { min: f.u64("zone minimum")?, max: f.u64("zone maximum")? };
        match sizes.min <= sizes.max {
            true => Ok(sizes),
            false => Err(f.wrong("zone maximum", "no less than the minimum", sizes.max)),
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u64(self.min);
        w.u64(self.max);
    }

    /// C1, and for C0 a quarter of it: a size that swings about C1 makes no work.
    pub const fn of_max(max: u64) -> ZoneSizes {
        ZoneSizes { min: max / 4, max }
    }

    /// The largest zones that a log of so many bytes allows: what is no zone moves in one record.
    pub const fn largest(log_bytes: u64) -> ZoneSizes {
        ZoneSizes { min: 0, max: log_bytes / 2 }
    }

    /// These, as far as a log of so many bytes allows them.
    pub fn within(self, log_bytes: u64) -> ZoneSizes {
        let max = self.max.min(ZoneSizes::largest(log_bytes).max);
        if max == self.max { self } else { ZoneSizes { min: self.min.min(max / 4), max } }
    }

    /// Whether a zone of so much is too small.
    pub fn are_above(&self, sums: Sums) -> bool {
        sums.meta.max(sums.data) < self.min
    }

    /// Whether so much is too large for what is not the root of a zone.
    pub fn are_below(&self, sums: Sums) -> bool {
        sums.meta.max(sums.data) > self.max
    }
}

impl Default for ZoneSizes {
    fn default() -> ZoneSizes {
        ZoneSizes::of_max(512 << 10)
    }
}
