//! Where the fixed parts of an image are.
//!
//! ```text
//! block 0    boot area, zero
//!      16    identity block
//!      32    superblock ring, first half: the first slots of 16 epochs
//!      64    log
//!       …    space map: two slots a page
//!       …    everything else
//! end - 16   superblock ring, second half: their second slots
//! ```

use super::Space;
use crate::error::{Error, Result};
use crate::format::limits::*;
use crate::ids::*;

const RING_A: u64 = 32;
const RING_BLOCKS: u64 = SUPERBLOCK_SLOTS as u64 / 2;
const LOG_START: u64 = 64;

/// The fixed parts of an image of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The size of the image.
    pub image_blocks: u64,
    /// The first block of each half of the superblock ring.
    pub ring: [BlockNr; 2],
    /// The first block of the log.
    pub log_start: BlockNr,
    /// Its length in units of a block.
    pub log_units: u64,
    /// The first block of the space map.
    pub map_start: BlockNr,
    /// Its length in blocks.
    pub map_blocks: u64,
}

impl Layout {
    /// The layout of an image of `bytes` bytes with a log of `log_bytes`.
    pub fn new(bytes: u64, log_bytes: u64) -> Result<Layout> {
        let image_blocks = bytes / BLOCK_SIZE as u64;
        if !(IMAGE_BLOCKS_MIN..=IMAGE_BLOCKS_MAX).contains(&image_blocks) {
            let (min, max) =
                (IMAGE_BLOCKS_MIN * BLOCK_SIZE as u64, IMAGE_BLOCKS_MAX * BLOCK_SIZE as u64);
            return Err(Error::Input(format!("an image has {min} to {max} bytes, not {bytes}")));
        }
        if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&log_bytes) {
            let (min, max) = (LOG_BYTES_MIN, LOG_BYTES_MAX);
            return Err(Error::Input(format!("a log has {min} to {max} bytes, not {log_bytes}")));
        }
        let log_units = log_bytes.div_ceil(BLOCK_SIZE as u64);
        let map_start = LOG_START + log_units;
        let map_blocks = Space::map_blocks(image_blocks);
        let ring = ring_of(image_blocks);
        let fixed = map_start + map_blocks + RING_BLOCKS;
        if fixed + fixed / 4 > image_blocks {
            let fixed = fixed * BLOCK_SIZE as u64;
            return Err(Error::Input(format!(
                "an image of {bytes} bytes is too small for its {fixed} bytes of log and other fixed parts"
            )));
        }
        let (log_start, map_start) = (BlockNr(LOG_START), BlockNr(map_start));
        Ok(Layout { image_blocks, ring, log_start, log_units, map_start, map_blocks })
    }

    /// The blocks where nodes may be.
    pub fn nodes(&self) -> std::ops::Range<u64> {
        self.map_start.0 + self.map_blocks..self.ring[1].0
    }

    /// The fixed regions, which no node may use: first block and length.
    pub fn fixed(&self) -> [(BlockNr, u64); 4] {
        [
            (BlockNr(0), LOG_START),
            (self.log_start, self.log_units),
            (self.map_start, self.map_blocks),
            (self.ring[1], RING_BLOCKS),
        ]
    }
}

/// Where the two halves of the superblock ring are.
pub(crate) fn ring_of(image_blocks: u64) -> [BlockNr; 2] {
    [BlockNr(RING_A), BlockNr(image_blocks.saturating_sub(RING_BLOCKS))]
}

/// The log of an image of `bytes` bytes, unless told otherwise: 1/64, from 128 KiB to 64 MiB.
pub fn default_log_bytes(bytes: u64) -> u64 {
    (bytes / 64).clamp(128 << 10, 64 << 20).next_multiple_of(BLOCK_SIZE as u64)
}

/// The block of a slot of the ring: the two slots of an epoch are in different halves.
pub fn slot_block(ring: [BlockNr; 2], slot: u32) -> BlockNr {
    BlockNr(ring[(slot % 2) as usize].0.saturating_add(u64::from(slot / 2)))
}
