//! Retiring extents: when the blocks of an extent that its owner no longer uses are free again.
//!
//! An extent of an earlier epoch is part of a checkpoint: its blocks are free when two more checkpoints are durable.
//! One of the epoch in progress was never part of a checkpoint, and is free at once. If the log binds values to it, it
//! is *pinned* until the next checkpoint is durable. An extent that a hold uses stays in use, and gets a dead record:
//! its blocks are freed when the last hold that uses it is dropped. All extents are retired by [`Space::retire`].

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::Space;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{Birth, Dead, DeadOwner};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::tuning::RELEASED_MAX;

/// An extent that its owner no longer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// The extent.
    pub extent: Extent,
    /// The epoch in which it was written.
    pub birth: Epoch,
    /// Its owner.
    pub owner: Owner,
}

/// The owner of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A leaf, or the head of an internal node.
    Node(NodeId),
    /// A sealed run of an internal node.
    Run(NodeId, RunSeq),
    /// A page of the allocation table, by level and index.
    TablePage(u8, u64),
    /// A page of holds.
    HoldsPage,
    /// A page of a dead list.
    DeadPage,
}

impl Owner {
    /// The owner that a dead record names.
    fn of_dead(owner: DeadOwner) -> Owner {
        match owner {
            DeadOwner::Node(id) | DeadOwner::Run(id) => Owner::Node(id),
            DeadOwner::TablePage(level, index) => Owner::TablePage(level, index),
        }
    }

    /// The owner as a dead record names it; `None` for pages that holds do not keep.
    fn dead(self) -> Option<DeadOwner> {
        match self {
            Owner::Node(id) => Some(DeadOwner::Node(id)),
            Owner::Run(id, _) => Some(DeadOwner::Run(id)),
            Owner::TablePage(level, index) => Some(DeadOwner::TablePage(level, index)),
            Owner::HoldsPage | Owner::DeadPage => None,
        }
    }
}

impl Retired {
    /// The extent of a dead record.
    pub fn of(dead: &Dead) -> Retired {
        Retired { extent: dead.extent, birth: dead.birth, owner: Owner::of_dead(dead.owner) }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Node(id) => write!(f, "{id}"),
            Owner::Run(id, run) => write!(f, "run {} of {id}", run.0),
            Owner::TablePage(level, index) => write!(f, "table page {level}/{index}"),
            Owner::HoldsPage => f.write_str("holds"),
            Owner::DeadPage => f.write_str("a dead list"),
        }
    }
}

/// Extents that the log needs.
#[derive(Default)]
pub(super) struct Pins {
    /// Written in the epoch in progress: block counts by first block.
    pub fresh: BTreeMap<BlockNr, u32>,
    /// Bound by the log when the volume was opened, each with the number of the group that needs it.
    pub logged: Vec<(u64, Extent)>,
    /// Blocks of both kinds.
    pub blocks: u64,
}

impl Space {
    /// Retires an extent that its owner no longer uses, in the epoch `now`: the old extent of a node that was written
    /// again, the extent of a node whose last edge is gone (invariant 6), a run, or an old page. Fails if the extent lies
    /// outside the blocks of nodes, or is not in use: a corrupt image may name such extents.
    pub fn retire(&mut self, retired: Retired, now: Birth) -> Result<()> {
        let Retired { extent, birth, owner } = retired;
        match owner.dead().filter(|_| birth <= self.newest_hold) {
            Some(_) if is_broken(Mutation::DeadForgotten) => Ok(()),
            Some(owner) if !is_broken(Mutation::HeldFreed) => {
                let extents = self.disk.blocks_of(extent)?;
                let mut blocks = 0;
                for part in extents {
                    self.check_used(part, retired.owner)?;
                    blocks += part.blocks;
                }
                let maps = (blocks - extent.blocks) as u16;
                self.add_dead(Dead { extent, birth, died: now.epoch, owner, maps }, now)?;
                self.held += u64::from(blocks);
                Ok(())
            }
            _ => self.give_up(extent, owner, birth == now.epoch),
        }
    }

    /// Checks that a dead extent can be freed: its maps can be read, and its blocks are in use.
    pub fn check_dead(&self, dead: &Dead) -> Result<()> {
        let owner = Owner::of_dead(dead.owner);
        let extents = self.disk.blocks_of(dead.extent)?;
        extents.into_iter().try_for_each(|part| self.check_used(part, owner))
    }

    /// Frees a dead extent that no hold keeps any more.
    pub fn free_dead(&mut self, dead: &Dead) -> Result<()> {
        self.give_up(dead.extent, Owner::of_dead(dead.owner), false)?;
        self.held = self.held.saturating_sub(dead.blocks());
        Ok(())
    }

    /// Takes `blocks` blocks off the count of held blocks: the live volume uses them again.
    pub fn revive(&mut self, blocks: u64) {
        self.held = self.held.saturating_sub(blocks);
    }

    /// Checks that nodes may use these blocks, and that they are in use.
    pub fn check_used(&self, part: Extent, owner: Owner) -> Result<()> {
        let (start, end) = (part.start.0, part.end().0);
        if self.is_for_nodes(start, end) && (start..end).all(|block| self.used.get(block)) {
            return Ok(());
        }
        let expected = format!("blocks in use by {owner}");
        let fault = Fault::mismatch("extent of a node", expected, part);
        Err(Error::corrupt(Place::Byte(part.start.byte()), fault))
    }

    /// Frees an extent that nothing uses. `is_fresh` says that it was written in the epoch in progress.
    fn give_up(&mut self, extent: Extent, owner: Owner, is_fresh: bool) -> Result<()> {
        for part in self.disk.blocks_of(extent)? {
            self.check_used(part, owner)?;
            self.used.clear(part.start.0, part.blocks.into());
            self.touch(part.start.0, part.blocks.into());
            if !is_fresh && !is_broken(Mutation::ReusedEarly) {
                self.freed_this_epoch.push(part);
            } else if self.pins.fresh.contains_key(&part.start) {
                self.still_pinned += 1;
            } else {
                self.release(part);
            }
        }
        if let Some((map, _)) = extent.start.map() {
            self.disk.forget_scattered(map);
        }
        Ok(())
    }

    /// Pins an extent of the epoch in progress, because the log is going to name it. It is not reused before the next
    /// checkpoint is durable, even if its node moves.
    pub fn pin(&mut self, extent: Extent) -> Result<()> {
        if is_broken(Mutation::ExtentUnpinned) {
            return Ok(());
        }
        for part in self.disk.blocks_of(extent)? {
            if self.pins.fresh.insert(part.start, part.blocks).is_none() {
                self.pins.blocks += u64::from(part.blocks);
            }
        }
        Ok(())
    }

    /// Pins an extent that group `group` of the log binds. The group is going to be replayed, and the checkpoint does
    /// not know the extent.
    pub fn pin_logged(&mut self, group: u64, extent: Extent) -> Result<()> {
        for part in self.check_pin(extent)? {
            let (start, end) = (part.start.0, part.end().0);
            if is_broken(Mutation::LoggedExtentUnpinned) {
                continue;
            }
            self.free.take(start, end - start);
            self.pins.logged.push((group, part));
            self.pins.blocks += u64::from(part.blocks);
        }
        Ok(())
    }

    /// The parts of an extent that a log group binds. Fails if the checkpoint uses one of the blocks.
    pub fn check_pin(&self, extent: Extent) -> Result<Vec<Extent>> {
        let extents = self.disk.blocks_of(extent)?;
        for part in &extents {
            let (start, end) = (part.start.0, part.end().0);
            let inside = self.is_for_nodes(start, end);
            if !inside || (start..end).any(|block| self.used.get(block)) {
                let fault = Fault::mismatch("what a log group binds", "blocks that are free", part);
                return Err(Error::corrupt(Place::Byte(part.start.byte()), fault));
            }
        }
        Ok(extents)
    }

    /// Extents that were freed while they were pinned.
    pub fn freed_while_pinned(&self) -> u64 {
        self.still_pinned
    }

    /// Pinned blocks: those that only the log needs, or will need once their node moves.
    pub fn pinned_blocks(&self) -> u64 {
        self.pins.blocks
    }

    /// Ends the epoch: its checkpoint is durable. Log groups from number `needed` on are not in it.
    pub fn checkpointed(&mut self, needed: u64) {
        self.rover = 0;
        for extent in &self.freed_this_epoch {
            // From now on only a fallback to the older checkpoint reads it.
            self.disk.advise_dont_need(extent.start.byte(), extent.bytes());
        }
        for extent in std::mem::replace(
            &mut self.freed_last_epoch,
            std::mem::take(&mut self.freed_this_epoch),
        ) {
            self.release(extent);
        }
        let Pins { fresh, logged, .. } = std::mem::take(&mut self.pins);
        let fresh = fresh.into_iter().map(|(start, blocks)| Extent { start, blocks });
        let (needed, gone): (Vec<_>, Vec<_>) =
            logged.into_iter().partition(|(group, _)| *group >= needed);
        // A pinned extent was not allocated again. If it is not in use, its node has moved.
        for extent in fresh.chain(gone.into_iter().map(|(_, extent)| extent)) {
            if !self.used.get(extent.start.0) {
                self.release(extent);
            }
        }
        self.pins.blocks = needed.iter().map(|(_, extent)| u64::from(extent.blocks)).sum();
        self.pins.logged = needed;
    }

    /// Starts to record extents that become free.
    pub fn keep_released(&mut self) {
        self.released.get_or_insert_default();
    }

    /// The extents that became free since the last call and still are, as ranges of block numbers. At most
    /// `RELEASED_MAX` are recorded; others are left out.
    pub fn take_released(&mut self) -> Vec<Range<u64>> {
        let mut released = self.released.as_mut().map(std::mem::take).unwrap_or_default();
        released.sort_unstable_by_key(|extent| extent.start);
        let mut extents: Vec<Range<u64>> = Vec::new();
        for block in released.iter().flat_map(|extent| extent.start.0..extent.end().0) {
            match extents.last_mut() {
                _ if self.free.busy().get(block) => {}
                Some(part) if part.end == block => part.end += 1,
                Some(part) if part.end > block => {}
                _ => extents.push(block..block + 1),
            }
        }
        extents
    }

    fn release(&mut self, extent: Extent) {
        if let Some(released) = self.released.as_mut().filter(|all| all.len() < RELEASED_MAX) {
            released.push(extent);
        }
        self.free.give(extent.start.0, extent.blocks.into());
        self.lowest = self.lowest.min(extent.start.0);
    }
}
