//! A slot of a space-map page: which blocks are in use as of a checkpoint.
//!
//! ```text
//!  0  seal     72
//! 72  page      8   its index
//! 80  used      4   how many bits are set
//! 84  zero      4
//! 88  next MSN  8   of the checkpoint that it was written for
//! 96  bitmap 4000   bit i of byte j: block page·32000 + 8j + i
//! ```

use super::fields::{Fields, FormatError, Trace, Writer};
use super::seal::{Birth, Magic, Seal};
use crate::ids::{BLOCK_SIZE, Hash, Msn};

/// 32,000 blocks are covered by one page.
pub const BITS_PER_PAGE: usize = 32_000;
const BITMAP_BYTES: usize = BITS_PER_PAGE / 8;

/// One page of the space map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapPage {
    /// Its index.
    pub page: u64,
    /// The next MSN of the checkpoint that it was written for.
    pub next_msn: Msn,
    /// One bit a block, set when the block is in use; 4000 bytes.
    pub bitmap: Box<[u8; BITMAP_BYTES]>,
}

impl MapPage {
    /// Parses a whole block.
    pub fn decode(
        block: &[u8],
        trace: Option<&mut dyn Trace>,
    ) -> Result<(Seal, MapPage), FormatError> {
        let mut f = Fields::traced(block, trace);
        let seal = Seal::decode(&mut f, Magic::SpaceMap)?;
        let page = f.u64("page")?;
        let used = f.u32("used")?;
        f.zeros("reserved", 4)?;
        let next_msn = Msn(f.u64("next MSN")?);
        let bytes = f.hex("bitmap", BITMAP_BYTES)?;
        f.end()?;
        let mut bitmap = Box::new([0; BITMAP_BYTES]);
        bitmap.copy_from_slice(bytes);
        let map = MapPage { page, next_msn, bitmap };
        if map.used() != used {
            return Err(f.wrong("used", map.used(), used));
        }
        Ok((seal, map))
    }

    /// Number of blocks in use.
    pub fn used(&self) -> u32 {
        self.bitmap.iter().map(|byte| byte.count_ones()).sum()
    }

    /// The whole block, and the hash in its seal.
    pub fn encode(&self, birth: Birth) -> (Vec<u8>, Hash) {
        let mut w = Writer::with_capacity(BLOCK_SIZE);
        Seal::open(&mut w, Magic::SpaceMap, birth);
        w.u64(self.page);
        w.u32(self.used());
        w.u32(0);
        w.u64(self.next_msn.0);
        w.bytes(&self.bitmap[..]);
        let mut block = w.finish();
        debug_assert_eq!(block.len(), BLOCK_SIZE);
        let hash = Seal::close(&mut block);
        (block, hash)
    }
}
