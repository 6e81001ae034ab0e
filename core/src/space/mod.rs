//! Space: the layout of fixed parts, the allocator, and the space map on disk.
//!
//! There are two bitmaps. `used` has the blocks that the next checkpoint uses, and becomes the space map. The busy
//! blocks of `free` include blocks that the next checkpoint does not use but that must not be overwritten yet. A block
//! that the last checkpoint used stays busy until the checkpoint after the next is durable, so the newest two
//! checkpoints can be read while the volume stays open (of the older one, the space map may be overwritten). A block that was never part of a checkpoint is free at once, unless the log has
//! bound values to it. Then it is pinned, until a checkpoint makes that part of the log unnecessary.
//!
//! An encoded node gets a contiguous extent if a free one is long enough. If not, it is scattered over several extents,
//! which a map lists. So a node can be written whenever enough blocks are free, whatever their places.

mod bitmap;
mod dead;
mod free;
mod layout;
pub mod map;
mod retire;

use std::collections::BTreeSet;
use std::ops::{Add, Range, Sub};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{BITS_PER_PAGE, Birth, MAP_EXTENTS, Segments};
use crate::ids::{BLOCK_SIZE, BlockNr, Epoch, Extent, SCATTERED_MAX};

use crate::tuning::{SMALL_BLOCKS, TIGHT_SHARE};
pub use bitmap::Bitmap;
pub use dead::{DeadPages, DeadStack};
use free::Free;
use layout::map_pages;
pub use layout::ring_of;
pub use layout::{Layout, default_log_bytes, slot_block};
use retire::Pins;
pub use retire::{Owner, Retired};

/// The allocator, and the state of the space map's slots.
pub struct Space {
    disk: Disk,
    used: Bitmap,
    free: Free,
    /// Freed in this epoch, but used by the last checkpoint.
    freed_this_epoch: Vec<Extent>,
    /// Freed in the epoch before.
    freed_last_epoch: Vec<Extent>,
    /// The epoch of the newest hold; 0 if there is none.
    newest_hold: Epoch,
    /// The dead list since the newest hold.
    dead: DeadStack,
    /// Blocks that only holds use.
    held: u64,
    /// Pages of holds and of dead lists written so far.
    hold_pages: u64,
    /// Extents that the log needs until the checkpoint in progress is durable.
    pins: Pins,
    /// Extents that were freed while they were pinned.
    still_pinned: u64,
    /// Nodes and other data scattered so far.
    scattered: u64,
    /// The longest contiguous extent for one allocation, in blocks.
    extent_max: u64,
    /// The next-fit position for long extents. Each checkpoint resets it to 0, so that a volume uses no more of its
    /// file than it needs.
    rover: u64,
    /// No block below this one is free.
    lowest: u64,
    dirty: BTreeSet<u64>,
    pages: Vec<map::PageState>,
    /// The blocks that nodes may use, except later segments of the space map.
    nodes: Range<u64>,
    /// The segments of the space map.
    map: Segments,
    /// Extents that became free since the last [`Space::take_released`]; `None` if releases are not recorded.
    released: Option<Vec<Extent>>,
}

/// The most blocks that a write takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Blocks of the data.
    pub blocks: u64,
    /// Blocks of maps, if there are no contiguous free extents.
    pub maps: u64,
}

impl Need {
    /// The need of an encoded node of `bytes` bytes.
    pub fn of_image(bytes: usize) -> Need {
        let blocks = bytes.div_ceil(BLOCK_SIZE) as u64;
        Need { blocks, maps: if blocks > 1 { blocks.div_ceil(MAP_EXTENTS as u64) } else { 0 } }
    }

    /// The need of single blocks.
    pub fn of_blocks(blocks: u64) -> Need {
        Need { blocks, maps: 0 }
    }

    /// Blocks and maps together.
    pub fn all(self) -> u64 {
        self.blocks.saturating_add(self.maps)
    }
}

impl Add for Need {
    type Output = Need;

    fn add(self, other: Need) -> Need {
        let blocks = self.blocks.saturating_add(other.blocks);
        Need { blocks, maps: self.maps.saturating_add(other.maps) }
    }
}

impl Sub for Need {
    type Output = Need;

    fn sub(self, other: Need) -> Need {
        Need { blocks: self.blocks - other.blocks, maps: self.maps - other.maps }
    }
}

impl Space {
    /// The space of a new image, with nothing in use.
    pub fn empty(disk: Disk, layout: &Layout) -> Space {
        let (blocks, nodes, map) = (layout.image_blocks, layout.nodes(), layout.map.clone());
        let pages = map_pages(blocks);
        Space {
            disk,
            used: Bitmap::new(blocks),
            free: Free::all_but(Bitmap::new(blocks)),
            freed_this_epoch: Vec::new(),
            freed_last_epoch: Vec::new(),
            newest_hold: Epoch(0),
            dead: DeadStack::default(),
            held: 0,
            hold_pages: 0,
            pins: Pins::default(),
            still_pinned: 0,
            scattered: 0,
            extent_max: u64::MAX,
            rover: 0,
            lowest: 0,
            dirty: (0..pages).collect(),
            pages: vec![map::PageState::default(); pages as usize],
            nodes,
            map,
            released: None,
        }
    }

    /// Marks a fixed region as used.
    pub fn reserve(&mut self, start: BlockNr, blocks: u64) {
        self.used.set(start.0, blocks);
        self.free.take(start.0, blocks);
        self.touch(start.0, blocks);
    }

    /// Excludes blocks from allocation.
    pub fn keep_out(&mut self, blocks: Range<u64>) {
        self.free.take(blocks.start, blocks.end - blocks.start);
    }

    /// Grows the space. Blocks that fixed parts have left become free when two more checkpoints are durable.
    pub fn grow(&mut self, old: &Layout, new: &Layout) {
        self.used.grow(new.image_blocks);
        self.free.grow(new.image_blocks);
        let pages = map_pages(new.image_blocks);
        self.pages.resize(pages as usize, map::PageState::default());
        self.dirty.extend(map_pages(old.image_blocks)..pages);
        (self.nodes, self.map) = (new.nodes(), new.map.clone());
        let (ring, end) = (old.ring[1], old.image_blocks);
        let left = extent_at(ring.0, end - ring.0);
        self.used.clear(left.start.0, left.blocks.into());
        self.touch(left.start.0, left.blocks.into());
        self.freed_this_epoch.push(left);
        for (start, blocks) in new.fixed() {
            self.reserve(start, blocks);
        }
        self.lowest = 0;
    }

    /// Whether nodes may use these blocks: no fixed part overlaps them.
    fn is_for_nodes(&self, start: u64, end: u64) -> bool {
        self.nodes.contains(&start) && end <= self.nodes.end && !self.map.touch(start, end)
    }

    /// Allocates blocks for the epoch of `birth`: a contiguous extent if one is free, else scattered ones, with a map
    /// that is written at once.
    pub fn place(&mut self, blocks: u64, birth: Birth) -> Result<Extent> {
        if blocks <= self.extent_max
            && let Some(start) = self.find_extent(blocks)
        {
            let extent = extent_at(start, blocks);
            self.take(extent);
            return Ok(extent);
        }
        self.scatter(blocks, birth)
    }

    /// If set, every allocation of several blocks is scattered over single blocks, even if contiguous extents are free.
    pub fn scatter_all(&mut self, scatter: bool) {
        self.extent_max = if scatter { 1 } else { u64::MAX };
    }

    /// Allocates one block.
    pub fn allocate(&mut self) -> Result<BlockNr> {
        let start = self.find_extent(1).ok_or_else(|| self.full(1))?;
        self.take(extent_at(start, 1));
        Ok(BlockNr(start))
    }

    /// Whether `need` can be written, contiguous or scattered.
    pub fn has(&self, need: Need) -> bool {
        let is_one = || {
            self.extent_max == u64::MAX && self.free.first_fit(self.rover, need.blocks).is_some()
        };
        need.all() <= self.free_blocks() || (need.blocks <= self.free_blocks() && is_one())
    }

    fn full(&self, blocks: u64) -> Error {
        let (free_blocks, held_blocks) = (self.free_blocks(), self.held);
        Error::NoSpace { need_blocks: blocks, free_blocks, held_blocks }
    }

    /// A free extent. Short ones come from the first gap, so that long extents stay whole.
    fn find_extent(&mut self, blocks: u64) -> Option<u64> {
        if blocks <= SMALL_BLOCKS {
            let start = self.free.first_fit(self.lowest, blocks)?;
            if blocks == 1 {
                self.lowest = start + 1;
            }
            return Some(start);
        }
        // If little is free, the best fit is taken, so that long extents stay whole.
        let start = if self.free.count() < self.blocks() / TIGHT_SHARE {
            self.free.best_fit(blocks)?
        } else {
            let found = self.free.first_fit(self.rover, blocks);
            found.or_else(|| self.free.first_fit(0, blocks))?
        };
        self.rover = start + blocks;
        Some(start)
    }

    /// Allocates the longest free extents, and blocks for the maps that list them.
    fn scatter(&mut self, blocks: u64, birth: Birth) -> Result<Extent> {
        if blocks >= SCATTERED_MAX || self.free_blocks() < blocks {
            return Err(self.full(blocks));
        }
        let mut taken = Vec::new();
        let placed = self.gather(blocks, &mut taken).and_then(|maps| {
            let maps: Vec<BlockNr> = taken[maps..].iter().map(|map| map.start).collect();
            self.disk.scatter(&taken[..taken.len() - maps.len()], &maps, birth)
        });
        for extent in &taken {
            match &placed {
                Ok(_) => self.take(*extent),
                Err(_) => self.free.give(extent.start.0, extent.blocks.into()),
            }
        }
        self.scattered += u64::from(placed.is_ok());
        Ok(Extent { start: placed?, blocks: blocks as u32 })
    }

    /// Adds extents of `blocks` blocks in all to `taken`, the longest first, and then one block for each map; all
    /// become busy. Returns the number of extents.
    fn gather(&mut self, blocks: u64, taken: &mut Vec<Extent>) -> Result<usize> {
        let full = self.full(blocks);
        let mut left = blocks;
        while left > 0 {
            let Some((start, count)) = self.free.longest_extent() else { return Err(full) };
            let extent = extent_at(start, count.min(left).min(self.extent_max));
            self.free.take(start, extent.blocks.into());
            taken.push(extent);
            left -= u64::from(extent.blocks);
        }
        let extents = taken.len();
        for _ in 0..extents.div_ceil(MAP_EXTENTS) {
            let Some(map) = self.free.first_fit(self.lowest, 1) else { return Err(full) };
            self.free.take(map, 1);
            taken.push(extent_at(map, 1));
        }
        Ok(extents)
    }

    fn take(&mut self, extent: Extent) {
        let (start, blocks) = (extent.start.0, extent.blocks.into());
        self.used.set(start, blocks);
        self.free.take(start, blocks);
        self.touch(start, blocks);
    }

    /// Number of scattered allocations so far.
    pub fn scattered(&self) -> u64 {
        self.scattered
    }

    /// Size of the image, in blocks.
    pub fn blocks(&self) -> u64 {
        self.used.len()
    }

    /// Blocks that can be allocated now.
    pub fn free_blocks(&self) -> u64 {
        self.free.count()
    }

    /// Panics if bitmaps, counters and pins contradict each other.
    pub fn check_invariants(&self) {
        self.used.check_invariants();
        self.free.check_invariants();
        assert!(self.used.is_within(self.free.busy()), "a block that is used is not free");
        let first = self.free.first_fit(0, 1).unwrap_or(self.blocks());
        assert!(self.lowest <= first, "block {first} is free, before {}", self.lowest);
        let pinned: u64 = self.pins.fresh.values().map(|blocks| u64::from(*blocks)).sum();
        let logged: u64 = self.pins.logged.iter().map(|(_, extent)| u64::from(extent.blocks)).sum();
        assert_eq!(self.pins.blocks, pinned + logged, "blocks that the log needs");
    }

    /// Blocks that the next checkpoint uses.
    pub fn used_blocks(&self) -> u64 {
        self.used.set_count()
    }

    /// Blocks that two more checkpoints free.
    pub fn freed_soon_blocks(&self) -> u64 {
        self.used.clear_count() - self.free.count()
    }

    /// The bitmap of blocks that the next checkpoint uses.
    pub fn used(&self) -> &Bitmap {
        &self.used
    }

    fn touch(&mut self, start: u64, blocks: u64) {
        let pages = BITS_PER_PAGE as u64;
        self.dirty.extend(start / pages..=(start + blocks - 1) / pages);
    }
}

fn extent_at(start: u64, blocks: u64) -> Extent {
    let blocks = u32::try_from(blocks).expect("extents are bounded by the limits of nodes");
    Extent { start: BlockNr(start), blocks }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::MemoryDevice;
    use crate::format::Segment;
    use crate::ids::{NodeId, Nonce, VolumeId};
    use crate::mutation::assert_caught;

    const BIRTH: Birth = Birth { volume: VolumeId([3; 16]), epoch: Epoch(1), nonce: Nonce(7) };

    #[test]
    fn what_does_not_agree_is_noticed() {
        let sound = || {
            let disk = Disk::new(Arc::new(MemoryDevice::new(100 * BLOCK_SIZE as u64)));
            let mut space = Space::empty(disk, &Layout::of_nodes(10, 100));
            space.reserve(BlockNr(0), 10);
            space.take(extent_at(20, 5));
            space.check_invariants();
            space
        };
        assert_caught(
            sound,
            Space::check_invariants,
            &[
                ("a used block is free", |space| space.free.give(22, 1)),
                ("the lowest free block", |space| space.lowest = 30),
                ("blocks that the log needs", |space| space.pins.blocks += 1),
            ],
        );
    }

    #[test]
    fn what_lies_in_the_map_belongs_to_no_node() {
        let disk = Disk::new(Arc::new(MemoryDevice::new(2000 * BLOCK_SIZE as u64)));
        let mut layout = Layout::of_nodes(10, 2000);
        let grown = Segment { start: BlockNr(1000), pages: 3 };
        layout.map = layout.map.and(grown).unwrap();
        let mut space = Space::empty(disk, &layout);
        space.reserve(BlockNr(0), 10);
        space.reserve(grown.start, grown.blocks());
        space.take(extent_at(998, 2));
        let retire = |space: &mut Space, extent| {
            let retired = Retired { extent, birth: Epoch(1), owner: Owner::Node(NodeId(1)) };
            space.retire(retired, BIRTH)
        };
        for extent in [
            extent_at(8, 1),
            extent_at(998, 4),
            extent_at(1000, 1),
            extent_at(1003, 2),
            extent_at(1005, 3),
        ] {
            assert!(retire(&mut space, extent).unwrap_err().is_damage(), "{extent}");
            assert!(!space.claim(&[extent]), "{extent}");
        }
        assert!(space.check_pin(extent_at(1005, 2)).is_err());
        assert!(space.check_pin(extent_at(1006, 2)).is_ok());
        retire(&mut space, extent_at(998, 2)).unwrap();
        space.check_invariants();
    }

    #[test]
    fn what_is_scattered_is_read_where_it_was_written_and_freed_as_a_whole() {
        const BLOCKS: u64 = 3000;
        let device = Arc::new(MemoryDevice::new(BLOCKS * BLOCK_SIZE as u64));
        let disk = Disk::new(device.clone());
        let mut space = Space::empty(disk.clone(), &Layout::of_nodes(10, BLOCKS));
        space.reserve(BlockNr(0), 10);
        let birth = Birth { epoch: Epoch(5), ..BIRTH };
        // Every second block is taken, except a few at the end.
        let held: Vec<Extent> = (10..2600).step_by(2).map(|block| extent_at(block, 1)).collect();
        held.iter().for_each(|extent| space.take(*extent));
        let free = space.free_blocks();
        let image = space.place(1000, birth).unwrap();
        assert_eq!(image.start.map().map(|(_, index)| index), Some(0));
        // The contiguous blocks at the end are one extent; the others are single blocks.
        assert_eq!(free - space.free_blocks(), 1000 + (1u64 + 1000 - 400).div_ceil(331));
        let bytes: Vec<u8> = (0..image.bytes()).map(|at| (at / 777) as u8).collect();
        disk.write(image.start.byte(), &bytes).unwrap();
        let again = Disk::new(device.clone());
        for (at, len) in [(0, 5000), (4095, 2), (399 * 4096, 9000), (999 * 4096, 4096)] {
            let read = again.read(image.start.byte() + at as u64, len).unwrap();
            assert!(read == bytes[at..at + len], "{len} bytes at {at}");
        }
        assert!(again.read(image.start.byte() + image.bytes() - 1, 2).is_err());
        let other = Extent { blocks: image.blocks + 1, ..image };
        assert!(again.blocks_of(other).is_err());
        let retired = Retired { extent: image, birth: Epoch(5), owner: Owner::Node(NodeId(1)) };
        space.retire(retired, birth).unwrap();
        assert_eq!(space.free_blocks(), free);
        assert!(space.place(free, birth).is_err(), "there is no room for the maps");
        assert_eq!(space.free_blocks(), free);
    }
}
