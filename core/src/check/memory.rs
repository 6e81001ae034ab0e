//! The memory budget of a check.
//!
//! Bitmaps of block owners are needed in any case. The rest is divided among nodes that are checked concurrently, the
//! cache for walking the trees, and leaves that are decoded ahead. A summary of each node, zone and directory comes on
//! top; nothing is kept for files.

use crate::ids::BLOCK_SIZE;
use crate::store::CacheBudget;

/// 48 MiB: the default memory of a check.
pub const MEMORY: u64 = 48 << 20;
/// 4 MiB: the least memory besides bitmaps, for a few nodes.
const LEAST: u64 = 4 << 20;
/// 6 bitmaps: the most in memory at once.
const BITMAPS: u64 = 6;
/// 3 times the bytes of its leaf: the memory of decoded entries.
const TAKEN_APART: u64 = 3;
/// 8 leaves of each index: the most that are decoded concurrently.
const LEAVES_MAX: u64 = 8;

/// A memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// The budget without bitmaps.
    rest: u64,
}

/// The least memory for checking an image of `image_blocks` blocks, in bytes.
pub fn memory_needed(image_blocks: u64) -> u64 {
    (image_blocks / 8).saturating_mul(BITMAPS).saturating_add(LEAST)
}

impl Memory {
    /// A budget of `bytes` bytes for an image of `image_blocks` blocks; at least the minimum.
    pub(super) fn new(bytes: u64, image_blocks: u64) -> Memory {
        let bitmaps = memory_needed(image_blocks) - LEAST;
        Memory { rest: bytes.saturating_sub(bitmaps).max(LEAST) }
    }

    /// Budget for the encoded nodes that are checked concurrently, in bytes.
    pub(super) fn nodes(self) -> u64 {
        self.rest / 4
    }

    /// The cache for walking the trees.
    pub(super) fn cache(self) -> CacheBudget {
        CacheBudget::of(usize::try_from(self.rest / 4).unwrap_or(usize::MAX))
    }

    /// The number of leaves of `leaf_bytes` bytes that are decoded concurrently, for each index.
    pub(super) fn leaves(self, leaf_bytes: u32) -> usize {
        let each = u64::from(leaf_bytes).max(BLOCK_SIZE as u64) * TAKEN_APART;
        (self.rest / 2 / each).clamp(1, LEAVES_MAX) as usize
    }
}
