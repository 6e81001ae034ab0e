//! Space on the device: what may be begun, and what is set aside so that nothing gets stuck.
//!
//! Whatever is dirty can be written at any time: an operation, and every step that moves messages down, is
//! only begun if the blocks that it may dirty are free. Where they are not, a checkpoint comes first; two of
//! them free what the last one before has given up. A reserve is kept for the steps that follow, and only
//! operations that free space may use it. Bytes that are bound late count twice, because a recovery writes
//! them again beside those that the log names. So do the bytes of values that pending updates may make: a patch of
//! one byte takes little room in a buffer, and a whole block once it comes to its leaf.

use super::commit::Way;
use super::trees::{Left, Trees};
use super::{Access, Transaction, Volume};
use crate::cache::Geometry;
use crate::error::{Error, Result};
use crate::format::{Action, Op, RecordMessage};
use crate::ids::*;
use crate::space::Need;
use crate::tree::{self, Ordered};

/// Of each so many blocks of the image one is set aside for what operations add besides their bytes.
const SLACK_SHARE: u64 = 64;
/// The most blocks set aside for that.
const SLACK_MAX: u64 = (64 << 20) / BLOCK_SIZE as u64;
/// A message or an entry takes so many bytes besides key and value, at the most.
const ENTRY_BYTES: usize = 60;
/// When this share of the log is left, dirty nodes begin to be written for the checkpoint to come.
const CLEANING: f64 = 0.25;
/// This share of what may be dirty stays so: nodes that every operation changes are not written for each.
const HOT: f64 = 0.125;
/// So much more may be dirty when an operation has ended that frees space: it takes no time to write for others.
const FREEING: f64 = 1.0 / 16.0;
/// Blocks that an operation may take besides its bytes.
const OPERATION_BLOCKS: u64 = 16;

impl Trees {
    /// Brings messages into the trees, of an operation that has been logged, and makes steps until all nodes are within
    /// their sizes, as long as there is room for them. Of what may be dirty `share` may stay so.
    pub fn carry_out(
        &mut self,
        first: Msn,
        ordered: &Ordered,
        (image_blocks, frees, share): (u64, bool, f64),
    ) -> Result<Left> {
        let Trees { store, balance, .. } = self;
        if let Err(error) = tree::inject(store, balance, first, ordered) {
            store.give_up();
            return Err(error);
        }
        while !self.balance.is_settled() {
            if !self.has_room_for_step(image_blocks, frees) {
                return Ok(Left::Steps { frees });
            }
            self.step()?;
        }
        self.store.make_room(share)?;
        Ok(Left::Nothing)
    }

    /// Makes one step. An operation may take many, and come to many leaves: what is written while it does is what goes
    /// beyond the budget by more than a little.
    pub fn step(&mut self) -> Result<()> {
        self.balance.step(&mut self.store)?;
        match self.store.is_crowded() {
            true => self.store.make_room(1.0),
            false => Ok(()),
        }
    }

    fn has_room_for_step(&self, image_blocks: u64, frees: bool) -> bool {
        let store = &self.store;
        let kept = kept_for(store.geometry, store.growth(), image_blocks, frees);
        store.space.has(store.checkpoint_need() + kept)
    }
}

impl Volume {
    /// Refuses, before anything has changed, what the volume has no room for: messages of so many bytes. What is bound late and has
    /// room only once becomes durable through a checkpoint.
    pub(super) fn admit(&mut self, bytes: u64, frees: bool, way: Way) -> Result<Way> {
        let need = self.need_of(bytes);
        let again = match &way {
            Way::Logged(form) => self.need_of(form.late_bytes as u64),
            Way::Unlogged | Way::Whole => Need::default(),
        };
        if self.find_room(&way, need + again, frees)? {
            return Ok(way);
        }
        if again != Need::default() && self.has_room(need, frees) {
            return Ok(Way::Whole);
        }
        let free_blocks = self.trees.store.space.free_blocks();
        Err(Error::NoSpace { need_blocks: self.needed(need, frees).all(), free_blocks })
    }

    /// Whether there is room for so much, or can be made by checkpoints and by carrying out what is pending.
    fn find_room(&mut self, way: &Way, need: Need, frees: bool) -> Result<bool> {
        // What is not logged becomes durable all at once, so no checkpoint may come in between.
        if matches!(way, Way::Unlogged) {
            return Ok(self.has_room(need, frees));
        }
        if self.release(need, frees)? {
            return Ok(true);
        }
        if self.drained == self.next_msn {
            return Ok(false);
        }
        self.drain()?;
        if self.trees.balance.is_settled() {
            self.drained = self.next_msn;
        }
        self.release(need, frees)
    }

    /// Makes checkpoints until there is room for so much, or nothing comes of it.
    fn release(&mut self, need: Need, frees: bool) -> Result<bool> {
        while !self.has_room(need, frees) {
            let gain =
                self.trees.store.space.held_blocks() > 0 || self.trees.store.dirty_bytes() > 0;
            if !gain {
                return Ok(false);
            }
            self.counters.for_space += 1;
            self.checkpoint()?;
        }
        Ok(true)
    }

    /// Moves everything that is pending down to the leaves, which rewrites each that something is pending for:
    /// deletes give back the space of what they cover, and nodes that became small are joined. Where space is
    /// short it stops half way.
    pub fn drain(&mut self) -> Result<()> {
        self.counters.drains += 1;
        let result = self.settle(true).and_then(|()| {
            let Trees { store, balance, .. } = &mut *self.trees;
            balance.drain(store)?;
            self.settle(true)
        });
        self.or_fail(result)
    }

    /// Makes steps until all nodes are within their sizes; each followed by a checkpoint where space is
    /// short. If there is none for another, nodes stay too large for a while.
    pub(super) fn settle(&mut self, frees: bool) -> Result<()> {
        let logged = self.writable()?;
        while !self.trees.balance.is_settled() {
            while logged && !self.has_room_for_step(frees) {
                let gain =
                    self.trees.store.space.held_blocks() > 0 || self.trees.store.dirty_bytes() > 0;
                if !gain {
                    return Ok(());
                }
                self.counters.for_space += 1;
                self.checkpoint()?;
            }
            self.trees.step()?;
        }
        Ok(())
    }

    /// Drops what pending range deletes cover as a whole, as far as there is room for the steps.
    pub(super) fn prune(&mut self) -> Result<()> {
        let logged = matches!(self.access, Access::ReadWrite { logged: true, .. });
        while self.trees.balance.can_prune() && (!logged || self.has_room_for_step(true)) {
            let Trees { store, balance, .. } = &mut *self.trees;
            self.counters.pruned += balance.prune(store)?;
            while !self.trees.balance.is_settled() && (!logged || self.has_room_for_step(true)) {
                self.trees.step()?;
            }
        }
        Ok(())
    }

    /// Keeps the cache within its budget. As the log comes to its end less and less may be dirty, so that the
    /// checkpoint then finds little to write. What frees space leaves the writing to what comes after it.
    pub(super) fn evict(&mut self, frees: bool) -> Result<()> {
        let share = self.dirty_share(frees);
        self.trees.store.make_room(share)
    }

    /// How much of what may be dirty may stay so.
    pub(super) fn dirty_share(&self, frees: bool) -> f64 {
        let (used, size) = self.log.fill();
        let left = size.saturating_sub(used) as f64 / size as f64;
        let slack = if frees { FREEING } else { 0.0 };
        (left / CLEANING).clamp(HOT, 1.0) + slack
    }

    /// Whether there is room for what the next step may dirty. Steps may take more blocks than they give
    /// back: only those of operations that free space may come near the end of what there is.
    pub(super) fn has_room_for_step(&self, frees: bool) -> bool {
        self.trees.has_room_for_step(self.superblock.image_blocks, frees)
    }

    /// Whether an operation that takes so much may begin.
    pub(super) fn has_room(&self, need: Need, frees: bool) -> bool {
        self.trees.store.space.has(self.needed(need, frees))
    }

    /// What leaves take for so many bytes of entries.
    pub(super) fn need_of(&self, bytes: u64) -> Need {
        need_of(self.trees.store.geometry, bytes)
    }

    /// What there must be room for before an operation begins.
    fn needed(&self, need: Need, frees: bool) -> Need {
        let late = Need::of_blocks(self.late_blocks() + OPERATION_BLOCKS);
        self.trees.store.checkpoint_need()
            + late
            + self.need_of(self.trees.store.growth())
            + need
            + self.kept_for(frees)
    }

    /// Blocks of late-bound values that a recovery would have to leave alone.
    pub(super) fn late_blocks(&self) -> u64 {
        let waiting = self.trees.store.late.waiting_bytes().div_ceil(BLOCK_SIZE as u64);
        self.trees.store.space.pinned_blocks() + waiting
    }

    /// What is kept for operations that free space, and for what pending updates may need.
    pub(super) fn reserved_blocks(&self) -> u64 {
        (self.kept_for(false) + self.need_of(self.trees.store.growth())).all()
    }

    /// What must be free besides while an operation is carried out.
    fn kept_for(&self, frees: bool) -> Need {
        kept_for(
            self.trees.store.geometry,
            self.trees.store.growth(),
            self.superblock.image_blocks,
            frees,
        )
    }
}

/// Whether a volume of so many blocks has room for nodes of this geometry, and for more than what is set aside
/// for steps.
pub(super) fn suits(geometry: Geometry, image_blocks: u64) -> bool {
    kept_for(geometry, 0, image_blocks, false).all() <= image_blocks / 2
}

/// What leaves take for so many bytes of entries: for their heads and what is left free at their ends one
/// block each comes on top of them, and parents that may have half their children.
fn need_of(geometry: Geometry, bytes: u64) -> Need {
    let leaves = bytes / u64::from(geometry.leaf_size);
    let parents = 2 * leaves / u64::from(geometry.fanout);
    let blocks = bytes.div_ceil(BLOCK_SIZE as u64) + leaves + 2 * parents;
    Need { blocks, maps: leaves }
}

/// What must be free besides while an operation is carried out: for the next step, which may dirty three internal nodes, where two
/// of them join, and a few leaves; and where it frees nothing, for the operations that do.
fn kept_for(geometry: Geometry, growth: u64, image_blocks: u64, frees: bool) -> Need {
    let growth = growth.min(geometry.growth_at_once() as u64);
    let largest = u64::from(geometry.between_size(image_blocks));
    let nodes = 3 * largest + largest / 4;
    let bytes = 4 * u64::from(geometry.leaf_size) + nodes + growth;
    let step = need_of(geometry, bytes) + Need::of_blocks(OPERATION_BLOCKS);
    let slack = (image_blocks / SLACK_SHARE).min(SLACK_MAX) + 2 * OPERATION_BLOCKS;
    if frees { step } else { step + step + Need::of_blocks(slack) }
}

/// At most how many bytes a message takes in a buffer or in a leaf, where an update may make a value.
pub(super) fn bytes_of(message: &RecordMessage) -> u64 {
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
pub(super) fn frees(transaction: &Transaction) -> bool {
    let deletes = |message: &RecordMessage| match message {
        RecordMessage::RangeDelete(..) | RecordMessage::Point(_, _, Action::Delete) => true,
        RecordMessage::Point(_, _, Action::Update(update)) => update.only_trims(),
        RecordMessage::Point(_, _, Action::Insert(_)) | RecordMessage::Unbound(..) => false,
    };
    match transaction.op {
        Op::Unlink | Op::Rmdir | Op::Truncate | Op::RemoveXattr | Op::SetAttributes => true,
        Op::RemoveTree | Op::Reap => true,
        _ => transaction.messages.iter().all(deletes),
    }
}
