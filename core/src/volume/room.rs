//! Space on the device: what may be begun, and what is set aside so that nothing gets stuck.
//!
//! Whatever is dirty can be written at any time: an operation, and every step that moves messages down, is
//! only begun if the blocks that it may dirty are free. Where they are not, a checkpoint comes first; two of
//! them free what the last one before has given up. A reserve is kept for the steps that follow, and only
//! operations that free space may use it. Bytes that are bound late count twice, because a recovery writes
//! them again beside those that the log names. So do the bytes of values that pending updates may make: a patch of
//! one byte takes little room in a buffer, and a whole block once it comes to its leaf.

use super::commit::Way;
use super::{Access, Transaction, Volume};
use crate::cache::{Store, Unplaced};
use crate::error::{Error, Result};
use crate::format::{Action, Op, RecordMessage};
use crate::ids::*;
use crate::tree;

/// Of each so many blocks of the image one is set aside for what operations add besides their bytes.
const SLACK_SHARE: u64 = 64;
/// The most blocks set aside for that.
const SLACK_MAX: u64 = (64 << 20) / BLOCK_SIZE as u64;
/// A row of so many free blocks takes a leaf, if a small one.
const ROW: u64 = 4;
/// A leaf with one value of the most bytes takes so many blocks.
const LONG_ROW: u64 = 18;
/// Where leaves have so many blocks, such values are expected.
const LONG_LEAF: u64 = 16;
/// So many such rows are kept besides those for runs.
const LONG_ROWS: u64 = 4;
/// A message or an entry takes so many bytes besides key and value, at the most.
const ENTRY_BYTES: usize = 60;
/// Blocks that an operation may take besides its bytes.
const OPERATION_BLOCKS: u64 = 16;

impl Volume {
    /// Refuses, before anything has changed, what the volume has no room for. What is bound late and has
    /// room only once becomes durable through a checkpoint.
    pub(super) fn admit(&mut self, transaction: &Transaction, way: Way) -> Result<Way> {
        let blocks = self.blocks_for(transaction.messages.iter().map(bytes_of).sum());
        let frees = frees(transaction);
        let again = match &way {
            Way::Logged(form) => (form.late_bytes as u64).div_ceil(BLOCK_SIZE as u64),
            Way::Unlogged | Way::Whole => 0,
        };
        if self.find_room(&way, blocks + again, frees)? {
            return Ok(way);
        }
        if again > 0 && self.has_room(blocks, frees) {
            return Ok(Way::Whole);
        }
        let free_blocks = self.store.space.free_blocks();
        Err(Error::NoSpace { need_blocks: self.needed(blocks, frees), free_blocks })
    }

    /// Whether there is room for so many blocks, or can be made by checkpoints and by carrying out what
    /// is pending.
    fn find_room(&mut self, way: &Way, blocks: u64, frees: bool) -> Result<bool> {
        // What is not logged becomes durable all at once, so no checkpoint may come in between; and it is
        // written in rows.
        if matches!(way, Way::Unlogged) {
            let needed = self.needed(blocks, frees);
            return Ok(needed <= self.store.space.free_blocks() && self.has_long_rows());
        }
        if self.has_room(blocks, frees) {
            return Ok(true);
        }
        if self.release(blocks, frees)? {
            return Ok(true);
        }
        if self.drained == self.next_msn {
            return Ok(false);
        }
        let result = self.drain();
        self.or_fail(result)?;
        if self.balance.is_settled() {
            self.drained = self.next_msn;
        }
        self.release(blocks, frees)
    }

    /// Makes checkpoints until there is room for so many blocks, or nothing comes of it.
    fn release(&mut self, blocks: u64, frees: bool) -> Result<bool> {
        while !self.has_room(blocks, frees) {
            let gain = self.store.space.held_blocks() > 0 || self.store.dirty_bytes() > 0;
            if !gain {
                return Ok(false);
            }
            self.counters.for_space += 1;
            self.checkpoint()?;
        }
        Ok(true)
    }

    /// Carries out everything that is pending in buffers: range deletes free what they cover.
    fn drain(&mut self) -> Result<()> {
        self.counters.drains += 1;
        self.settle()?;
        self.balance.drain(&self.store)?;
        self.settle()
    }

    /// Makes steps until all nodes are within their sizes; each followed by a checkpoint where space is
    /// short. If there is none for another, nodes stay too large for a while.
    pub(super) fn settle(&mut self) -> Result<()> {
        let logged = self.writable()?;
        while !self.balance.is_settled() {
            while logged && !self.has_room_for_step() {
                let gain = self.store.space.held_blocks() > 0 || self.store.dirty_bytes() > 0;
                if !gain {
                    return Ok(());
                }
                self.counters.for_space += 1;
                self.checkpoint()?;
            }
            self.balance.step(&mut self.store)?;
        }
        Ok(())
    }

    /// Drops what pending range deletes cover as a whole, as far as there is room for the steps.
    pub(super) fn prune(&mut self) -> Result<()> {
        let logged = matches!(self.access, Access::ReadWrite { logged: true, .. });
        while self.balance.can_prune() && (!logged || self.has_room_for_step()) {
            self.counters.pruned += self.balance.prune(&mut self.store)?;
            while !self.balance.is_settled() && (!logged || self.has_room_for_step()) {
                self.balance.step(&mut self.store)?;
            }
        }
        Ok(())
    }

    /// Keeps the cache within its budget.
    pub(super) fn evict(&mut self) -> Result<()> {
        self.write_all(Store::make_room)
    }

    /// Writes nodes. Leaves that find no place for all of their blocks in a row are divided, until each
    /// has one: free blocks may lie scattered.
    pub(super) fn write_all(
        &mut self,
        mut write: impl FnMut(&mut Store) -> Result<Unplaced>,
    ) -> Result<()> {
        loop {
            let Unplaced { leaves, blocks } = write(&mut self.store)?;
            if leaves.is_empty() {
                return Ok(());
            }
            for leaf in leaves {
                self.counters.divided += 1;
                if !tree::halve(&mut self.store, &mut self.balance, leaf)? {
                    let free_blocks = self.store.space.free_blocks();
                    return Err(Error::NoSpace { need_blocks: blocks, free_blocks });
                }
            }
        }
    }

    /// Whether the blocks are free that the next step may dirty.
    pub(super) fn has_room_for_step(&self) -> bool {
        self.has_free(self.store.checkpoint_blocks() + self.step_blocks())
    }

    /// Whether an operation of so many blocks may begin.
    fn has_room(&self, blocks: u64, frees: bool) -> bool {
        self.has_free(self.needed(blocks, frees))
    }

    /// Whether so many blocks can be written. Near the limit free blocks lie scattered: single ones do not
    /// count, and nodes that are divided to fit in between take more.
    pub(super) fn has_free(&self, blocks: u64) -> bool {
        self.store.space.has_in_rows(ROW, blocks + blocks / 2) && self.has_long_rows()
    }

    /// Whether there is room for runs, heads and leaves of one large value, which cannot be divided so far.
    fn has_long_rows(&self) -> bool {
        let long = self.long_row();
        self.store.space.has_in_rows(long, self.store.internal_blocks() + LONG_ROWS * long)
    }

    /// How many free blocks in a row everything that is written finds enough: a run is divided into 32
    /// pieces at the most; heads are shorter than that, and a value has 64 KiB. (Where a leaf is much less
    /// than a value may be, such values are not expected.)
    fn long_row(&self) -> u64 {
        let blocks = |bytes: u32| u64::from(bytes) / BLOCK_SIZE as u64;
        let geometry = self.store.geometry;
        let leaf = blocks(geometry.leaf_size);
        (blocks(geometry.node_size) / 32).max(if leaf >= LONG_LEAF { LONG_ROW } else { leaf })
    }

    /// Blocks that leaves take for so many bytes of entries: for their heads and what is left free at their
    /// ends one each comes on top of them.
    fn blocks_for(&self, bytes: u64) -> u64 {
        let leaves = bytes / u64::from(self.store.geometry.leaf_size);
        bytes.div_ceil(BLOCK_SIZE as u64) + leaves
    }

    /// Blocks that pending updates may need.
    pub(super) fn growth_blocks(&self) -> u64 {
        self.blocks_for(self.store.growth())
    }

    /// Blocks that must be free before an operation of so many begins.
    pub(super) fn needed(&self, blocks: u64, frees: bool) -> u64 {
        let reserve = if frees { self.step_blocks() } else { self.reserve_blocks() };
        let pending = self.store.checkpoint_blocks() + self.late_blocks() + self.growth_blocks();
        pending + blocks + OPERATION_BLOCKS + reserve
    }

    /// Blocks of late-bound values that a recovery would have to leave alone.
    pub(super) fn late_blocks(&self) -> u64 {
        let waiting = self.store.late.waiting_bytes().div_ceil(BLOCK_SIZE as u64);
        self.store.space.pinned_blocks() + waiting
    }

    /// Blocks that only operations which free space may use.
    pub(super) fn reserve_blocks(&self) -> u64 {
        let slack = (self.superblock.image_blocks / SLACK_SHARE).min(SLACK_MAX);
        2 * self.step_blocks() + slack
    }

    /// Blocks that one step may dirty: the node whose buffer moves, and two or three nodes below it.
    fn step_blocks(&self) -> u64 {
        let geometry = self.store.geometry;
        let growth = self.store.growth().min(geometry.growth_at_once() as u64);
        let bytes = 4 * u64::from(geometry.leaf_size) + 2 * u64::from(geometry.node_size) + growth;
        bytes / BLOCK_SIZE as u64 + OPERATION_BLOCKS
    }
}

/// At most how many bytes a message takes in a buffer or in a leaf, where an update may make a value.
fn bytes_of(message: &RecordMessage) -> u64 {
    let bytes = match message {
        RecordMessage::Point(_, key, Action::Update(update)) => {
            key.len() + update.bytes().len().max(update.growth())
        }
        RecordMessage::Point(_, key, action) => key.len() + action.value().len(),
        RecordMessage::RangeDelete(_, lo, hi) => lo.len() + hi.len(),
        RecordMessage::Unbound(key, _) => key.len(),
    };
    (ENTRY_BYTES + bytes) as u64
}

/// Whether an operation gives back more than it takes, or at least changes only what is there.
fn frees(transaction: &Transaction) -> bool {
    let deletes = |message: &RecordMessage| match message {
        RecordMessage::RangeDelete(..) | RecordMessage::Point(_, _, Action::Delete) => true,
        RecordMessage::Point(_, _, Action::Update(update)) => update.only_trims(),
        RecordMessage::Point(_, _, Action::Insert(_)) | RecordMessage::Unbound(..) => false,
    };
    match transaction.op {
        Op::Unlink | Op::Rmdir | Op::Truncate | Op::RemoveXattr | Op::SetAttributes => true,
        _ => transaction.messages.iter().all(deletes),
    }
}
