//! Which blocks of the image are in use, held, or free; and the space map on disk.
//!
//! Two bitmaps are kept. `used` is what the next checkpoint uses, and becomes the space map. `busy`
//! adds what that checkpoint no longer uses but must not be overwritten yet: a block that the last
//! checkpoint used stays busy until the checkpoint after the next is durable, so the newest two
//! checkpoints are whole at any time. A block that was never part of a checkpoint is free at once, unless
//! the log has bound values to it: then it is pinned until a checkpoint makes that part of the log
//! unnecessary.

mod bitmap;
pub mod map;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::error::{Error, Fault, Place, Result};
use crate::format::BITS_PER_PAGE;
use crate::ids::{BlockNr, Epoch, Extent};
use crate::mutation::{Mutation, is_broken};

pub use bitmap::Bitmap;

/// So few blocks come from the first gap that holds them.
const SMALL_BLOCKS: u64 = 3;
/// Where less than one block in so many is free, it matters where each is taken.
const TIGHT: u64 = 8;

/// The allocator, and the state of the space map's slots.
pub struct Space {
    used: Bitmap,
    busy: Bitmap,
    /// Freed since the last checkpoint, and used by it.
    leaving: Vec<Extent>,
    /// Freed in the epoch before.
    left: Vec<Extent>,
    /// What the log needs until the checkpoint that is in progress is durable.
    pins: Pins,
    /// Pinned extents that were given up.
    kept: u64,
    /// Where the search for a long row of blocks goes on.
    rover: u64,
    /// No block before this one is free.
    lowest: u64,
    dirty: BTreeSet<u64>,
    pages: Vec<map::PageState>,
    /// Where nodes may be.
    nodes: Range<u64>,
}

/// Extents that the log needs.
#[derive(Default)]
struct Pins {
    /// Written for the epoch in progress: block counts by first block.
    fresh: BTreeMap<BlockNr, u32>,
    /// Found in the log when the volume was opened, with the number of the group that needs them.
    logged: Vec<(u64, Extent)>,
    /// The blocks of all of them.
    blocks: u64,
}

impl Space {
    /// The space of a new image of `blocks` blocks of which nothing is used, with nodes in `nodes`.
    pub fn empty(blocks: u64, nodes: Range<u64>) -> Space {
        let pages = blocks.div_ceil(BITS_PER_PAGE as u64);
        Space {
            used: Bitmap::new(blocks),
            busy: Bitmap::new(blocks),
            leaving: Vec::new(),
            left: Vec::new(),
            pins: Pins::default(),
            kept: 0,
            rover: 0,
            lowest: 0,
            dirty: (0..pages).collect(),
            pages: vec![map::PageState::default(); pages as usize],
            nodes,
        }
    }

    /// Marks a fixed region as used.
    pub fn reserve(&mut self, start: BlockNr, blocks: u64) {
        self.used.set(start.0, blocks);
        self.busy.set(start.0, blocks);
        self.touch(start.0, blocks);
    }

    /// Takes `blocks` blocks in a row.
    pub fn allocate(&mut self, blocks: u64) -> Result<Extent> {
        let free_blocks = self.busy.clear_count();
        self.find(blocks).ok_or(Error::NoSpace { need_blocks: blocks, free_blocks })
    }

    /// Takes `blocks` blocks in a row, if there are so many. A few come from the first gap, so that long
    /// rows stay whole.
    pub fn find(&mut self, blocks: u64) -> Option<Extent> {
        let start = if blocks <= SMALL_BLOCKS {
            let start = self.busy.find_clear(self.lowest, blocks)?;
            if blocks == 1 {
                self.lowest = start + 1;
            }
            start
        } else {
            // Near the limit the shortest row that is long enough, so that long ones stay whole.
            let start = if self.busy.clear_count() < self.busy.len() / TIGHT {
                let rows = self.busy.clear_runs(0).filter(|(_, count)| *count >= blocks);
                rows.min_by_key(|(_, count)| *count)?.0
            } else {
                let found = self.busy.find_clear(self.rover, blocks);
                found.or_else(|| self.busy.find_clear(0, blocks))?
            };
            self.rover = start + blocks;
            start
        };
        self.used.set(start, blocks);
        self.busy.set(start, blocks);
        self.touch(start, blocks);
        let blocks = u32::try_from(blocks).expect("extents are bounded by the limits of nodes");
        Some(Extent { start: BlockNr(start), blocks })
    }

    /// Gives up an extent that was written for epoch `birth`, while `now` is in progress. An image may
    /// name an extent that no node can have, or that something else has given up.
    pub fn free(&mut self, extent: Extent, birth: Epoch, now: Epoch) -> Result<()> {
        let (start, end) = (extent.start.0, extent.end().0);
        let inside = self.nodes.contains(&start) && end <= self.nodes.end;
        if !inside || !(start..end).all(|block| self.used.get(block)) {
            let fault = Fault::mismatch("extent of a node", "blocks in use", extent);
            return Err(Error::corrupt(Place::Byte(extent.start.byte()), fault));
        }
        self.used.clear(extent.start.0, extent.blocks.into());
        self.touch(extent.start.0, extent.blocks.into());
        if birth != now && !is_broken(Mutation::ReusedEarly) {
            self.leaving.push(extent);
        } else if self.pins.fresh.contains_key(&extent.start) {
            self.kept += 1;
        } else {
            self.release(extent);
        }
        Ok(())
    }

    /// The log is going to name an extent that was written for the epoch in progress: it is not reused
    /// before the next checkpoint is durable, whatever becomes of the node in it.
    pub fn pin(&mut self, extent: Extent) {
        if is_broken(Mutation::ExtentUnpinned) {
            return;
        }
        if self.pins.fresh.insert(extent.start, extent.blocks).is_none() {
            self.pins.blocks += u64::from(extent.blocks);
        }
    }

    /// Group `group` of the log, which is going to be replayed, needs an extent that the checkpoint knows
    /// nothing of.
    pub fn pin_logged(&mut self, group: u64, extent: Extent) -> Result<()> {
        let (start, end) = (extent.start.0, extent.end().0);
        let inside = self.nodes.contains(&start) && end <= self.nodes.end;
        if !inside || (start..end).any(|block| self.used.get(block)) {
            let fault = Fault::mismatch("what a log group binds", "blocks that are free", extent);
            return Err(Error::corrupt(Place::Byte(extent.start.byte()), fault));
        }
        if is_broken(Mutation::LoggedExtentUnpinned) {
            return Ok(());
        }
        self.busy.set(start, end - start);
        self.pins.logged.push((group, extent));
        self.pins.blocks += u64::from(extent.blocks);
        Ok(())
    }

    /// How many extents their nodes have left that the log kept from reuse.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Blocks that only the log needs, or will need as soon as their node moves.
    pub fn pinned_blocks(&self) -> u64 {
        self.pins.blocks
    }

    /// The checkpoint that was in progress is durable. Groups of the log from `needed` on are not in it.
    pub fn checkpointed(&mut self, needed: u64) {
        for extent in std::mem::replace(&mut self.left, std::mem::take(&mut self.leaving)) {
            self.release(extent);
        }
        let Pins { fresh, logged, .. } = std::mem::take(&mut self.pins);
        let fresh = fresh.into_iter().map(|(start, blocks)| Extent { start, blocks });
        let (needed, gone): (Vec<_>, Vec<_>) =
            logged.into_iter().partition(|(group, _)| *group >= needed);
        // What is pinned is not given out anew: if it is not used, its node has moved on.
        for extent in fresh.chain(gone.into_iter().map(|(_, extent)| extent)) {
            if !self.used.get(extent.start.0) {
                self.release(extent);
            }
        }
        self.pins.blocks = needed.iter().map(|(_, extent)| u64::from(extent.blocks)).sum();
        self.pins.logged = needed;
    }

    fn release(&mut self, extent: Extent) {
        self.busy.clear(extent.start.0, extent.blocks.into());
        self.lowest = self.lowest.min(extent.start.0);
    }

    /// Whether `blocks` free blocks have at least `row - 1` others beside them. Looks first where the
    /// last long row was found, and no further than it must.
    pub fn has_in_rows(&self, row: u64, blocks: u64) -> bool {
        let behind = self.busy.clear_runs(self.rover);
        let before = self.busy.clear_runs(0).take_while(|(start, _)| *start < self.rover);
        let before = before.map(|(start, count)| (start, count.min(self.rover - start)));
        let mut found = 0;
        blocks == 0
            || behind.chain(before).filter(|(_, count)| *count >= row).any(|(_, count)| {
                found += count;
                found >= blocks
            })
    }

    /// Blocks that can be allocated now.
    pub fn free_blocks(&self) -> u64 {
        self.busy.clear_count()
    }

    /// Blocks that the next checkpoint uses.
    pub fn used_blocks(&self) -> u64 {
        self.used.set_count()
    }

    /// Blocks that two checkpoints would free.
    pub fn held_blocks(&self) -> u64 {
        self.used.clear_count() - self.busy.clear_count()
    }

    /// What the next checkpoint uses.
    pub fn used(&self) -> &Bitmap {
        &self.used
    }

    fn touch(&mut self, start: u64, blocks: u64) {
        let pages = BITS_PER_PAGE as u64;
        self.dirty.extend(start / pages..=(start + blocks - 1) / pages);
    }
}
