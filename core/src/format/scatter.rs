//! Scatter maps: the places of an extent for which no contiguous free extent was long enough.
//!
//! An extent whose first block is [`SCATTERED`] or more is not a place on the device. It refers to one or more maps:
//! (number − 2^51) / 2^18 is the block of the first. Its blocks are those of the maps' extents, in order.
//!
//! ```text
//!  0  seal           72
//! 72  next            8   block of the next map; 0 for the last
//! 80  next hash      32   the hash in its seal
//! 112 extent count    4
//! 116 zero            4
//! 120 extents              each: block 8, blocks 4
//!     zero to 4096
//! ```

use super::fields::{Fields, FormatError, Trace, Writer};
use super::limits::IMAGE_BLOCKS_MAX;
use super::seal::{Birth, Magic, Seal};
use crate::ids::*;

const EXTENT_BYTES: usize = 12;
/// The most extents of one map.
pub const MAP_EXTENTS: usize = (BLOCK_SIZE - 120) / EXTENT_BYTES;

/// One block of the extent list of a scattered extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScatterMap {
    /// The block of the next map, and the hash in its seal.
    pub next: Option<(BlockNr, Hash)>,
    /// The extents of the next blocks; at least one.
    pub extents: Vec<Extent>,
}

impl ScatterMap {
    /// Parses a whole block.
    pub fn decode(
        block: &[u8],
        trace: Option<&mut dyn Trace>,
    ) -> Result<(Seal, ScatterMap), FormatError> {
        let mut f = Fields::traced(block, trace);
        let seal = Seal::decode(&mut f, Magic::ScatterMap)?;
        let next = f.u64("next")?;
        f.within(f.at() - 8, "next", next, IMAGE_BLOCKS_MAX)?;
        let hash = f.hash("next hash")?;
        if next == 0 && hash != Hash::default() {
            return Err(f.wrong("next hash", "zero without a next map", hash));
        }
        let count = f.count("extent count", MAP_EXTENTS, EXTENT_BYTES)?;
        if count == 0 {
            return Err(f.wrong("extent count", "at least 1", 0));
        }
        f.zeros("reserved", 4)?;
        let mut extents = Vec::with_capacity(count);
        for index in 0..count {
            f.enter("extent", Some(index));
            let extent = Extent { start: BlockNr(f.u64("block")?), blocks: f.u32("blocks")? };
            if !extent.is_place() || extent.start.map().is_some() {
                return Err(f.wrong("extent", "blocks of the image", extent));
            }
            extents.push(extent);
            f.leave();
        }
        f.zeros_to_block_end()?;
        Ok((seal, ScatterMap { next: (next > 0).then_some((BlockNr(next), hash)), extents }))
    }

    /// The whole block, and the hash in its seal.
    pub fn encode(&self, birth: Birth) -> (Vec<u8>, Hash) {
        let mut w = Writer::with_capacity(BLOCK_SIZE);
        Seal::open(&mut w, Magic::ScatterMap, birth);
        let (next, hash) = self.next.unwrap_or_default();
        w.u64(next.0);
        w.hash(&hash);
        w.len32(self.extents.len());
        w.u32(0);
        for extent in &self.extents {
            w.u64(extent.start.0);
            w.u32(extent.blocks);
        }
        w.pad_to(BLOCK_SIZE);
        let mut block = w.finish();
        let hash = Seal::close(&mut block);
        (block, hash)
    }
}

impl Extent {
    /// Whether this is a valid extent: blocks of the device, or a scattered extent.
    pub(crate) fn is_place(self) -> bool {
        match self.start.map() {
            None => self.start.0 > 0 && self.blocks > 0 && self.end().0 <= SCATTERED,
            Some((map, index)) => {
                map.0 > 0
                    && map.0 < IMAGE_BLOCKS_MAX
                    && index == 0
                    && self.blocks > 0
                    && u64::from(self.blocks) < SCATTERED_MAX
            }
        }
    }
}
