//! The places of the fixed parts of an image.
//!
//! ```text
//! block 0    boot area, zero
//!      16    identity block
//!      32    superblock ring, first half: the first slots of 16 epochs
//!      64    log
//!       …    space map: two slots a page
//!       …    everything else; further segments of the space map, where the volume has grown
//! end - 16   superblock ring, second half: their second slots
//! ```

use crate::error::{Error, Result};
use crate::format::limits::*;
use crate::format::{BITS_PER_PAGE, Identity, Segment, Segments, Superblock};
use crate::ids::*;

const RING_A: u64 = 32;
const RING_BLOCKS: u64 = SUPERBLOCK_SLOTS as u64 / 2;
const LOG_START: u64 = 64;

/// The fixed parts of an image of a given size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of the image, in blocks.
    pub image_blocks: u64,
    /// The first block of each half of the superblock ring.
    pub ring: [BlockNr; 2],
    /// The first block of the log.
    pub log_start: BlockNr,
    /// Its length, in units of one block.
    pub log_units: u64,
    /// The segments of the space map.
    pub map: Segments,
}

impl Layout {
    /// The layout of an image of `bytes` bytes with a log of `log_bytes`.
    pub fn new(bytes: u64, log_bytes: u64) -> Result<Layout> {
        let units = log_bytes.div_ceil(BLOCK_SIZE as u64);
        let pages = map_pages(bytes / BLOCK_SIZE as u64).min(u32::MAX.into()) as u32;
        let map = Segments::one(BlockNr(LOG_START + units.min(u32::MAX.into())), pages.max(1));
        Layout::with(bytes, log_bytes, map)
    }

    /// The layout of a volume with these segments of the space map.
    fn with(bytes: u64, log_bytes: u64, map: Segments) -> Result<Layout> {
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
        let ring = ring_of(image_blocks);
        let wanted = (BlockNr(LOG_START + log_units), map_pages(image_blocks));
        if map.start() != wanted.0 || map.pages() < wanted.1 || map.end() > ring[1] {
            let text = "the segments of the space map are not where an image of this size has them";
            return Err(Error::Input(text.into()));
        }
        let fixed = LOG_START + log_units + map.blocks() + RING_BLOCKS;
        if fixed + fixed / 4 > image_blocks {
            let fixed = fixed * BLOCK_SIZE as u64;
            return Err(Error::Input(format!(
                "an image of {bytes} bytes is too small for its {fixed} bytes of log and other fixed parts"
            )));
        }
        Ok(Layout { image_blocks, ring, log_start: BlockNr(LOG_START), log_units, map })
    }

    /// For unit tests: nodes from block `first` on, in an image of any size.
    #[cfg(test)]
    pub(crate) fn of_nodes(first: u64, image_blocks: u64) -> Layout {
        let (log_start, ring) = (BlockNr(0), [BlockNr(0), BlockNr(image_blocks)]);
        let map = Segments::one(BlockNr(first - 2), 1);
        Layout { image_blocks, ring, log_start, log_units: 0, map }
    }

    /// The layout that a superblock states.
    pub fn of(superblock: &Superblock) -> Result<Layout> {
        let Superblock { image_blocks, log_units, map, .. } = superblock;
        Layout::of_parts(*image_blocks, *log_units, map)
    }

    /// The layout that an identity block states.
    pub fn named(identity: &Identity) -> Result<Layout> {
        let Identity { image_blocks, log_units, map, .. } = identity;
        Layout::of_parts(*image_blocks, *log_units, map)
    }

    fn of_parts(blocks: u64, units: u64, map: &Segments) -> Result<Layout> {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_SIZE as u64);
        Layout::with(bytes(blocks), bytes(units), map.clone())
    }

    /// The layout after growing to `blocks` blocks. If the space map needs more pages than it has, it gets another
    /// segment, right behind the old end of the volume.
    pub fn grown(&self, blocks: u64) -> Result<Layout> {
        let (have, wanted) = (self.map.pages(), map_pages(blocks));
        let more = blocks.saturating_sub(self.image_blocks + RING_BLOCKS);
        let mut map = self.map.clone();
        if wanted > have {
            // Half as many pages as there are, so that the list of segments suffices for all but small steps; at most
            // 1/8 of the new blocks.
            let pages = (wanted - have).max((have / 2).min(more / 16));
            let segment = Segment { start: BlockNr(self.image_blocks), pages: pages as u32 };
            map = map.and(segment).ok_or_else(|| {
                let text = "it has grown in too many small steps: its space map has no room for another segment; copy it";
                Error::Input(text.into())
            })?;
        }
        let mut least = map.end().0.max(self.image_blocks) + RING_BLOCKS;
        if blocks < least {
            if wanted <= have && map_pages(least) > have {
                least += 2 * (map_pages(least) - have);
            }
            let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
            let (asked, least) = (bytes(blocks), bytes(least));
            return Err(Error::Input(format!("{asked} bytes; the next size is {least}")));
        }
        Layout::of_parts(blocks, self.log_units, &map)
    }

    /// Number of pages of the space map.
    pub fn map_pages(&self) -> u64 {
        map_pages(self.image_blocks)
    }

    /// The blocks that nodes may use, except the later segments of the space map, which are among them.
    pub fn nodes(&self) -> std::ops::Range<u64> {
        self.map.first_end().0..self.ring[1].0
    }

    /// The fixed regions: first block and length. No node may use them.
    pub fn fixed(&self) -> Vec<(BlockNr, u64)> {
        let mut fixed = vec![(BlockNr(0), LOG_START), (self.log_start, self.log_units)];
        fixed.extend(self.map.iter().map(|segment| (segment.start, segment.blocks())));
        fixed.push((self.ring[1], RING_BLOCKS));
        fixed
    }
}

/// Number of pages of the space map of an image of `blocks` blocks: one for each 32,000.
pub(super) fn map_pages(blocks: u64) -> u64 {
    blocks.div_ceil(BITS_PER_PAGE as u64)
}

/// The first blocks of the two halves of the superblock ring.
pub fn ring_of(image_blocks: u64) -> [BlockNr; 2] {
    [BlockNr(RING_A), BlockNr(image_blocks.saturating_sub(RING_BLOCKS))]
}

/// The default log size of an image of `bytes` bytes: 1/64, between 128 KiB and 64 MiB.
pub fn default_log_bytes(bytes: u64) -> u64 {
    (bytes / 64).clamp(128 << 10, 64 << 20).next_multiple_of(BLOCK_SIZE as u64)
}

/// The block of a slot of the ring: the two slots of an epoch are in different halves.
pub fn slot_block(ring: [BlockNr; 2], slot: u32) -> BlockNr {
    BlockNr(ring[(slot % 2) as usize].0.saturating_add(u64::from(slot / 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the smallest image to the largest, doubled each time or by 1 GiB each time; and to 1 TiB in steps of 125
    /// MiB, each of which takes a page.
    #[test]
    fn a_map_needs_few_segments() {
        let steps = [
            ("doubled", IMAGE_BLOCKS_MIN, IMAGE_BLOCKS_MAX, u64::MAX),
            ("a gibibyte more", 1 << 18, IMAGE_BLOCKS_MAX, 1 << 18),
            ("a page more", 32_000, 1 << 28, 32_000),
        ];
        for (what, first, last, step) in steps {
            let next = |blocks: u64| blocks + blocks.min(step);
            let mut layout = Layout::new(first * BLOCK_SIZE as u64, LOG_BYTES_MIN).unwrap();
            let mut blocks = next(first);
            while blocks <= last {
                let old = layout.clone();
                layout = layout.grown(blocks).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(
                    layout.map.begin_with(&old.map) && layout.map_pages() <= layout.map.pages()
                );
                let new = layout.map.blocks() - old.map.blocks();
                assert!(new <= 2 + (layout.image_blocks - old.image_blocks) / 8, "{what}: {new}");
                blocks = next(blocks);
            }
        }
    }

    #[test]
    fn a_volume_grows_by_the_fixed_parts_at_least() {
        let of = |blocks: u64| Layout::new(blocks * BLOCK_SIZE as u64, LOG_BYTES_MIN).unwrap();
        // Without another page, and with one.
        for (from, least) in [(1000, 1016), (31_990, 32_008)] {
            let error = of(from).grown(least - 1).unwrap_err().to_string();
            assert!(error.contains(&(least * BLOCK_SIZE as u64).to_string()), "{error}");
            let error = of(from).grown(from + 1).unwrap_err().to_string();
            assert!(error.contains(&(least * BLOCK_SIZE as u64).to_string()), "{error}");
            assert_eq!(of(from).grown(least).unwrap().ring[1].0, least - 16);
        }
    }
}
