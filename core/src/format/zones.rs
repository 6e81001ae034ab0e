//! Zone sizes (BetrFS 0.2 §4).

use super::fields::{Fields, FormatError, Writer};

/// Counters of everything below a directory in its zone; the first two are in bytes, and 0 where zones have no limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Metadata: names, inodes, references and extended attributes.
    pub meta: u64,
    /// Files without a zone of their own, each in whole blocks.
    pub data: u64,
    /// What a clone cannot share: references, files with data zones, and objects whose numbers no lineage translates.
    pub apart: u64,
}

/// 1 MiB: the greatest C0. A merge is in memory at once.
const MERGED_MAX: u64 = 1 << 20;

/// The limits of zones, for the bytes of metadata as well as for those of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSizes {
    /// C0: smaller zones are merged into the zone above.
    pub min: u64,
    /// C1: a larger directory or file becomes the root of a zone.
    pub max: u64,
}

impl ZoneSizes {
    /// For trees without zones.
    pub const NONE: ZoneSizes = ZoneSizes { min: 0, max: 0 };
    /// No limits: an object gets a zone when it moves while it is large, or has several links.
    pub const UNLIMITED: ZoneSizes = ZoneSizes { min: 0, max: u64::MAX };

    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<ZoneSizes, FormatError> {
        let sizes = ZoneSizes { min: f.u64("zone minimum")?, max: f.u64("zone maximum")? };
        match sizes {
            ZoneSizes { min: 1.., max: u64::MAX } => {
                Err(f.wrong("zone minimum", "0, since there is no maximum", sizes.min))
            }
            ZoneSizes { min, max } if min > max => {
                Err(f.wrong("zone maximum", "no less than the minimum", max))
            }
            _ => Ok(sizes),
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u64(self.min);
        w.u64(self.max);
    }

    /// Whether directories count the bytes below them: only limits ask for them.
    pub const fn count_bytes(&self) -> bool {
        self.max < u64::MAX
    }

    /// What the counters of a directory with these sums say.
    pub fn counted(&self, sums: Sums) -> Sums {
        if self.count_bytes() { sums } else { Sums { apart: sums.apart, ..Sums::default() } }
    }

    /// C1 as given, and C0 as a quarter of it: a size that varies around C1 causes no splits and merges.
    pub const fn of_max(max: u64) -> ZoneSizes {
        ZoneSizes { min: max / 4, max }
    }

    /// The greatest C0 for a log of this size: a zone is merged by a copy, in one record.
    pub const fn merged_max(log_bytes: u64) -> u64 {
        let part = log_bytes / 8;
        if part < MERGED_MAX { part } else { MERGED_MAX }
    }

    /// These sizes, with a C0 that a log of this size allows; none without a C1.
    pub fn within(self, log_bytes: u64) -> ZoneSizes {
        let most = if self.count_bytes() { ZoneSizes::merged_max(log_bytes) } else { 0 };
        ZoneSizes { min: self.min.min(most), ..self }
    }

    /// Whether a zone of these sums is too small.
    pub fn are_above(&self, sums: Sums) -> bool {
        sums.meta.max(sums.data) < self.min
    }

    /// Whether these sums are too large for an object that is not the root of a zone.
    pub fn are_below(&self, sums: Sums) -> bool {
        sums.meta.max(sums.data) > self.max
    }
}

impl Default for ZoneSizes {
    fn default() -> ZoneSizes {
        ZoneSizes::UNLIMITED
    }
}
