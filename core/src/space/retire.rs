//! What becomes of an extent that its owner does not use any more, and when its blocks are free again.
//!
//! An extent of an earlier epoch is part of a checkpoint: its blocks are free when two checkpoints more are durable. One of the
//! epoch in progress was never part of any, and is free at once, unless the log binds values to it: it is *pinned* until the
//! next checkpoint is durable. What a hold uses as well stays in use, and is noted as dead: its blocks are free when the last hold
//! that uses it has been dropped. Whatever retires an extent does so by [`Space::retire`].

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::Space;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{Birth, Dead, DeadOwner};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::tuning::RELEASED_MAX;

/// An extent that its owner does not use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// Where it is.
    pub extent: Extent,
    /// The epoch that it was written for.
    pub birth: Epoch,
    /// What it belonged to.
    pub owner: Owner,
}

/// What an extent belongs to.
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
    /// What a dead extent belonged to.
    fn of_dead(owner: DeadOwner) -> Owner {
        match owner {
            DeadOwner::Node(id) | DeadOwner::Run(id) => Owner::Node(id),
            DeadOwner::TablePage(level, index) => Owner::TablePage(level, index),
        }
    }

    /// What a dead list says of it; nothing if no hold keeps it.
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
    /// What a dead record is of.
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
    /// Written for the epoch in progress: block counts by first block.
    pub fresh: BTreeMap<BlockNr, u32>,
    /// Found in the log when the volume was opened, with the number of the group that needs them.
    pub logged: Vec<(u64, Extent)>,
    /// The blocks of all of them.
    pub blocks: u64,
}

impl Space {
    /// Takes back an extent while the epoch `now` is in progress. An image may name an extent that no node can have, or that
    /// something else has given up.
    pub fn retire(&mut self, retired: Retired, now: Birth) -> Result<()> {
        let Retired { extent, birth, owner } = retired;
        match owner.dead().filter(|_| birth <= self.newest_hold) {
            Some(_) if is_broken(Mutation::DeadForgotten) => Ok(()),
            Some(owner) if !is_broken(Mutation::HeldFreed) => {
                let rows = self.disk.blocks_of(extent)?;
                let mut blocks = 0;
                for part in rows {
                    self.check_used(part, retired.owner)?;
                    blocks += part.blocks;
                }
                let maps = (blocks - extent.blocks) as u16;
                self.bury(Dead { extent, birth, died: now.epoch, owner, maps }, now)?;
                self.held += u64::from(blocks);
                Ok(())
            }
            _ => self.give_up(extent, owner, birth == now.epoch),
        }
    }

    /// An error unless a dead extent can be freed: its maps can be read, and its blocks are in use.
    pub fn check_dead(&self, dead: &Dead) -> Result<()> {
        let owner = Owner::of_dead(dead.owner);
        let rows = self.disk.blocks_of(dead.extent)?;
        rows.into_iter().try_for_each(|row| self.check_used(row, owner))
    }

    /// No hold keeps a dead extent any more.
    pub fn free_dead(&mut self, dead: &Dead) -> Result<()> {
        self.give_up(dead.extent, Owner::of_dead(dead.owner), false)?;
        self.held = self.held.saturating_sub(dead.blocks());
        Ok(())
    }

    /// `blocks` blocks that only holds used are in use by the live volume again: they count as held no more.
    pub fn revive(&mut self, blocks: u64) {
        self.held = self.held.saturating_sub(blocks);
    }

    /// An error unless all these blocks may be of a node, and are in use.
    pub fn check_used(&self, part: Extent, owner: Owner) -> Result<()> {
        let (start, end) = (part.start.0, part.end().0);
        if self.is_for_nodes(start, end) && (start..end).all(|block| self.used.get(block)) {
            return Ok(());
        }
        let expected = format!("blocks in use by {owner}");
        let fault = Fault::mismatch("extent of a node", expected, part);
        Err(Error::corrupt(Place::Byte(part.start.byte()), fault))
    }

    /// Nothing uses an extent any more, which was written in the epoch in progress or before.
    fn give_up(&mut self, extent: Extent, owner: Owner, is_fresh: bool) -> Result<()> {
        for part in self.disk.blocks_of(extent)? {
            self.check_used(part, owner)?;
            self.used.clear(part.start.0, part.blocks.into());
            self.touch(part.start.0, part.blocks.into());
            if !is_fresh && !is_broken(Mutation::ReusedEarly) {
                self.leaving.push(part);
            } else if self.pins.fresh.contains_key(&part.start) {
                self.kept += 1;
            } else {
                self.release(part);
            }
        }
        if let Some((map, _)) = extent.start.map() {
            self.disk.forget_scattered(map);
        }
        Ok(())
    }

    /// The log is going to name an extent that was written for the epoch in progress: it is not reused
    /// before the next checkpoint is durable, whatever becomes of the node in it.
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

    /// Group `group` of the log, which is going to be replayed, needs an extent that the checkpoint knows
    /// nothing of.
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

    /// The rows of an extent that a log group binds: nothing else may use them.
    pub fn check_pin(&self, extent: Extent) -> Result<Vec<Extent>> {
        let rows = self.disk.blocks_of(extent)?;
        for row in &rows {
            let (start, end) = (row.start.0, row.end().0);
            let inside = self.is_for_nodes(start, end);
            if !inside || (start..end).any(|block| self.used.get(block)) {
                let fault = Fault::mismatch("what a log group binds", "blocks that are free", row);
                return Err(Error::corrupt(Place::Byte(row.start.byte()), fault));
            }
        }
        Ok(rows)
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
        self.rover = 0;
        for extent in &self.leaving {
            // From now on only a damaged checkpoint would bring it back.
            self.disk.wont_read(extent.start.byte(), extent.bytes());
        }
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

    /// From now on takes note of what becomes free.
    pub fn keep_released(&mut self) {
        self.released.get_or_insert_default();
    }

    /// What has become free since this was asked last, and still is: rows of blocks, with their numbers. What is
    /// more than can be noted is left out.
    pub fn take_released(&mut self) -> Vec<Range<u64>> {
        let mut released = self.released.as_mut().map(std::mem::take).unwrap_or_default();
        released.sort_unstable_by_key(|extent| extent.start);
        let mut rows: Vec<Range<u64>> = Vec::new();
        for block in released.iter().flat_map(|extent| extent.start.0..extent.end().0) {
            match rows.last_mut() {
                _ if self.free.busy().get(block) => {}
                Some(row) if row.end == block => row.end += 1,
                Some(row) if row.end > block => {}
                _ => rows.push(block..block + 1),
            }
        }
        rows
    }

    fn release(&mut self, extent: Extent) {
        if let Some(released) = self.released.as_mut().filter(|all| all.len() < RELEASED_MAX) {
            released.push(extent);
        }
        self.free.give(extent.start.0, extent.blocks.into());
        self.lowest = self.lowest.min(extent.start.0);
    }
}
