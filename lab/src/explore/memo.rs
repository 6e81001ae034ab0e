//! Reuses verdicts of equivalent states.
//!
//! A verdict is a function of the blocks that its recovery reads. So a state that equals an earlier one in all blocks
//! that were read for that one has the same verdict; the other blocks cannot matter. Most states differ only in blocks
//! that no recovery reads.

use std::collections::HashMap;
use std::sync::Arc;

use super::devices::{ForkDevice, placed};
use super::judge::Verdict;

/// 24: the most sets of read blocks that are kept.
const KEPT_SETS: usize = 24;

/// Verdicts by the blocks that were read; the most recently useful set comes first.
#[derive(Default)]
pub(super) struct Memo(Vec<Known>);

/// States whose judgement read the same blocks.
struct Known {
    /// Those blocks, one bit each.
    set: Vec<u64>,
    /// The verdicts, by the digest of these blocks.
    verdicts: HashMap<u128, Arc<Verdict>>,
}

impl Memo {
    /// The verdict on a disk, if it equals a judged one in all blocks that were read.
    pub(super) fn get(&mut self, disk: &ForkDevice) -> Option<Arc<Verdict>> {
        if self.0.is_empty() {
            return None;
        }
        let contents = Contents::of(disk);
        let found = self.0.iter().enumerate().find_map(|(at, known)| {
            let verdict = known.verdicts.get(&contents.digest(&known.set))?;
            Some((at, verdict.clone()))
        });
        let (at, verdict) = found?;
        self.0[..=at].rotate_right(1);
        Some(verdict)
    }

    /// Adds the verdict on a disk, for which the blocks in `set` were read.
    pub(super) fn put(&mut self, disk: &ForkDevice, set: Vec<u64>, verdict: Arc<Verdict>) {
        let digest = Contents::of(disk).digest(&set);
        let at = self.0.iter().position(|known| known.set == set).unwrap_or_else(|| {
            self.0.truncate(KEPT_SETS - 1);
            self.0.push(Known { set, verdicts: HashMap::new() });
            self.0.len() - 1
        });
        self.0[at].verdicts.insert(digest, verdict);
        self.0[..=at].rotate_right(1);
    }
}

/// The digests of all blocks of a disk, by place.
struct Contents(Vec<u128>);

impl Contents {
    fn of(disk: &ForkDevice) -> Contents {
        let blocks = disk.blocks();
        Contents(blocks.iter().enumerate().map(|(at, block)| placed(at, block.digest())).collect())
    }

    /// A digest of a set of blocks.
    fn digest(&self, set: &[u64]) -> u128 {
        let mut sum: u128 = 0;
        for (at, word) in set.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                let bit = word.trailing_zeros() as usize;
                sum = sum.wrapping_add(self.0[at * 64 + bit]);
                word &= word - 1;
            }
        }
        sum
    }
}
