//! The memory that a check may take, and what for.
//!
//! Who owns which block takes bitmaps, whatever the budget. The rest is shared out: nodes that are checked by
//! themselves at the same time, the cache through which the trees are walked, leaves that are taken apart ahead.
//! What is known of each node, zone and directory comes on top; of files nothing is kept.

use crate::ids::BLOCK_SIZE;
use crate::store::CacheBudget;

/// A check may take so much, unless it is told otherwise.
pub const MEMORY: u64 = 48 << 20;
/// What the smallest check takes besides bitmaps: a few nodes.
const LEAST: u64 = 4 << 20;
/// The bitmaps that are in memory at the same time, at the most.
const BITMAPS: u64 = 6;
/// Entries that have been taken apart weigh so many times what their leaf has bytes.
const TAKEN_APART: u64 = 3;
/// Leaves of each index that are taken apart at the same time, at the most.
const LEAVES_MAX: u64 = 8;

/// A budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// For all of it but bitmaps.
    rest: u64,
}

/// The least memory in which an image of so many blocks can be checked, in bytes.
pub fn memory_needed(image_blocks: u64) -> u64 {
    (image_blocks / 8).saturating_mul(BITMAPS).saturating_add(LEAST)
}

impl Memory {
    /// Of so many bytes, for an image of so many blocks; or the least there can be.
    pub(super) fn new(bytes: u64, image_blocks: u64) -> Memory {
        let bitmaps = memory_needed(image_blocks) - LEAST;
        Memory { rest: bytes.saturating_sub(bitmaps).max(LEAST) }
    }

    /// What the nodes that are checked at the same time may have on disk, in bytes.
    pub(super) fn nodes(self) -> u64 {
        self.rest / 4
    }

    /// The cache for walking the trees.
    pub(super) fn cache(self) -> CacheBudget {
        CacheBudget::of(usize::try_from(self.rest / 4).unwrap_or(usize::MAX))
    }

    /// How many leaves of so many bytes are taken apart at the same time, of each index.
    pub(super) fn leaves(self, leaf_bytes: u32) -> usize {
        let each = u64::from(leaf_bytes).max(BLOCK_SIZE as u64) * TAKEN_APART;
        (self.rest / 2 / each).clamp(1, LEAVES_MAX) as usize
    }
}
