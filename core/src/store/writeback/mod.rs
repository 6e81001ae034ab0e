//! Write-back of nodes, and binding of the late-bound values in them.

mod flight;
mod scattered_nodes;

use std::sync::Arc;

use bytes::Bytes;

use super::Store;
use crate::error::Result;
use crate::format::{BoundLeaf, BoundSlice, Entry, Kind, Target};
use crate::ids::*;
use crate::log::Late;
use crate::mutation::{Mutation, is_broken};
use crate::node::{EncodedLeaf, EncodedRun, Item, Leaf, Node};
use crate::tuning::{
    BATCHES, CROWDED_MIN, CROWDED_SHARE, FLIGHTS_SHARE, LEAVES_FLIGHTS, WORTH_WRITING,
};
pub(in crate::store) use flight::Flights;
use flight::Part;

/// 24 bytes: an inline binding without its value.
const INLINE_BYTES: usize = 24;

impl Store {
    /// Enforces the memory budget: starts write-backs of the leaves that changed longest ago, and
    /// of the internal nodes with the largest product of wait and weight, until `share` of the dirty budget is
    /// left, and evicts the oldest clean nodes.
    pub fn make_room(&mut self, share: f64) -> Result<()> {
        // The content of memory must not depend on the progress of a prefetch.
        self.prefetch = None;
        let limit = (self.budget.dirty_bytes as f64 * share) as usize;
        while self.dirty_bytes().saturating_sub(self.flights.bytes()) > limit {
            let batch = self.budget.dirty_bytes / BATCHES;
            let nodes = self.lock().next_to_write(batch, self.clock);
            match nodes.first().map(|node| (node.id(), node.height())) {
                None => break,
                Some((_, Height(0))) => self.start_writeback(nodes)?,
                Some((id, _)) => {
                    drop(nodes);
                    self.start_internal_writeback(id, Part::All)?;
                }
            }
        }
        self.lock().shrink_to(self.budget.total_bytes);
        Ok(())
    }

    /// Whether the dirty budget is exceeded by more than an operation may exceed it, so that nodes must be written
    /// before its end.
    pub fn is_crowded(&self) -> bool {
        let slack = (self.budget.dirty_bytes / CROWDED_SHARE).max(CROWDED_MIN);
        let limit = self.budget.dirty_bytes + slack;
        self.dirty_bytes().saturating_sub(self.flights.bytes()) > limit
    }

    /// Starts the write-back of one batch of dirty nodes, as [`Store::make_room`] chooses them. Returns whether more than a batch is still dirty,
    /// which a checkpoint would have to write.
    pub fn clean_some(&mut self) -> Result<bool> {
        let batch = self.budget.dirty_bytes / BATCHES;
        let dirty = |store: &Store| store.dirty_bytes().saturating_sub(store.flights.bytes());
        let before = dirty(self);
        if before > batch {
            let share = before.saturating_sub(batch) as f64 / self.budget.dirty_bytes as f64;
            self.make_room(share)?;
        }
        Ok(dirty(self) > batch)
    }

    /// Writes all dirty nodes.
    pub fn write_all(&mut self) -> Result<()> {
        self.finish_all_writeback()?;
        let nodes = self.lock().all_dirty();
        let (leaves, internals) = by_kind(nodes);
        self.write_leaves(leaves)?;
        internals.into_iter().try_for_each(|id| self.start_internal_writeback(id, Part::All))?;
        self.finish_all_writeback()
    }

    /// Starts write-backs of leaves in batches, so that some are encoded while others are written.
    fn write_leaves(&mut self, leaves: Vec<Arc<Node>>) -> Result<()> {
        let bytes = self.budget.dirty_bytes / FLIGHTS_SHARE / LEAVES_FLIGHTS;
        let mut batch = Vec::new();
        let mut weight = 0;
        for leaf in leaves {
            weight += leaf.weight();
            batch.push(leaf);
            if weight >= bytes {
                self.start_writeback(std::mem::take(&mut batch))?;
                weight = 0;
            }
        }
        if batch.is_empty() { Ok(()) } else { self.start_writeback(batch) }
    }

    /// Binds every waiting value, by writing the node that holds it. If the node is much longer than its waiting values
    /// and `room` bytes of the log suffice, the values go into the log instead.
    pub fn bind_waiting(&mut self, mut room: usize) -> Result<()> {
        if !self.late.is_waiting() {
            return Ok(());
        }
        self.finish_all_writeback()?;
        let nodes = self.lock().all_dirty();
        let mut worth = Vec::new();
        for node in nodes {
            let waiting = waiting_in(&node, &self.late);
            if waiting.is_empty() {
                continue;
            }
            let bytes: usize = waiting.iter().map(|(_, value)| value.len()).sum();
            let inline = bytes + waiting.len() * INLINE_BYTES;
            let (cost, full) = match &*node {
                Node::Leaf(leaf) => (leaf.bytes(), false),
                Node::Internal(internal) => (internal.open_weight(), internal.has_many_runs()),
            };
            if inline <= room && (full || cost > WORTH_WRITING * bytes) {
                room -= inline;
                for (msn, mut value) in waiting {
                    if is_broken(Mutation::InlineEmpty) {
                        value.clear();
                    }
                    self.late.bind(Target::Inline(value), &[msn]);
                }
            } else {
                worth.push(node);
            }
        }
        let (leaves, internals) = by_kind(worth);
        self.write_leaves(leaves)?;
        for id in internals {
            let is_full = self.internal(id)?.has_many_runs();
            self.start_internal_writeback(id, if is_full { Part::All } else { Part::OpenRun })?;
        }
        self.finish_all_writeback()
    }

    /// The current block count of a node, as the limit for its next write; `None` unless space is short.
    pub(in crate::store) fn blocks_of(&self, id: NodeId) -> Result<Option<u32>> {
        match self.compact {
            true => Ok(self.table.get(id)?.map(|entry| entry.extent.blocks)),
            false => Ok(None),
        }
    }

    /// Allocates the extent of an encoded leaf.
    pub(in crate::store) fn place_leaf(
        &mut self,
        leaf: &Leaf,
        image: &EncodedLeaf,
    ) -> Result<Entry> {
        let blocks = (image.bytes.len() / BLOCK_SIZE) as u64;
        let extent = self.space.place(blocks, self.birth)?;
        Ok(self.entry(leaf.tree, Height(0), extent, image.head_bytes, image.hash))
    }

    /// Binds the waiting values in a leaf to its new extent.
    pub(in crate::store) fn bind_leaf(&mut self, leaf: &Leaf, entry: Entry) -> Result<()> {
        if leaf.tree != TreeId::Data || !self.late.is_waiting() {
            return Ok(());
        }
        let fresh = leaf.fresh().map(|entry| entry.msn);
        let mut waiting: Vec<Msn> = fresh.filter(|msn| self.late.waits(*msn)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        waiting.sort_unstable();
        let Entry { extent, head_bytes, birth, hash, .. } = entry;
        let map = self.disk.map_hash(extent)?;
        let bound = BoundLeaf { node: leaf.id, extent, head_bytes, birth, hash, map };
        self.late.bind(Target::Leaf(bound), &waiting);
        self.space.pin(extent)
    }

    /// Binds the waiting values in the slices of a run to its extent.
    pub(in crate::store) fn bind_run(
        &mut self,
        node: NodeId,
        image: &EncodedRun,
        extent: Extent,
    ) -> Result<()> {
        for (section, inserts) in image.slices() {
            let inserts = inserts.iter().copied();
            let mut waiting: Vec<Msn> = inserts.filter(|msn| self.late.waits(*msn)).collect();
            if waiting.is_empty() {
                continue;
            }
            waiting.sort_unstable();
            let (offset, bytes, count) = (section.offset, section.bytes, section.count);
            let hash = section.hash;
            let map = self.disk.map_hash(extent)?;
            let bound = BoundSlice { node, extent, offset, bytes, count, hash, map };
            self.late.bind(Target::Slice(bound), &waiting);
            self.space.pin(extent)?;
        }
        Ok(())
    }

    pub(in crate::store) fn entry(
        &self,
        tree: TreeId,
        height: Height,
        extent: Extent,
        head_bytes: u32,
        hash: Hash,
    ) -> Entry {
        // One parent (invariant 6).
        Entry { extent, head_bytes, hash, birth: self.birth.epoch, references: 1, tree, height }
    }
}

/// The values in a node that wait to be bound.
fn waiting_in(node: &Node, late: &Late) -> Vec<(Msn, Bytes)> {
    if node.tree() != TreeId::Data {
        return Vec::new();
    }
    let waits = |item: &Item<'_>| item.kind == Kind::Insert && late.waits(item.msn);
    let value = |item: Item<'_>| (item.msn, item.bytes());
    match node {
        Node::Leaf(leaf) => leaf.fresh().filter(waits).map(value).collect(),
        Node::Internal(internal) => {
            let messages = internal.open().iter().flat_map(|batch| batch.points().iter());
            messages.filter(waits).map(value).collect()
        }
    }
}

/// Splits nodes into leaves, which are written together, and ids of internal nodes, which are written one by one.
fn by_kind(nodes: Vec<Arc<Node>>) -> (Vec<Arc<Node>>, Vec<NodeId>) {
    let (leaves, internals): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| node.leaf().is_some());
    (leaves, internals.iter().map(|node| node.id()).collect())
}
