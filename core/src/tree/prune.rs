//! Pruning: drops leaves that range deletes cover, without reading them (leaf pruning, BetrFS 0.2 §5.2).
//!
//! Each range delete moves down to the leaves in steps that look at one node. The superblock of a checkpoint lists the
//! prunes left, since range deletes may be pending in nodes that no later step would look at.

use std::ops::Range;

use super::balance::Balance;
use super::shape;
use crate::error::Result;
use crate::format::limits::PRUNES_MAX;
use crate::format::{Key, PruneRange};
use crate::ids::*;
use crate::node::{Internal, Node};
use crate::store::Store;
use crate::tuning::PRUNES_WAITING;

/// A range delete on its way to the leaves that it covers: level by level, and on each level from the lowest key on.
/// When all leaves have been dropped, their parents are merged. A leaf goes with its last edge (invariant 6).
pub(super) struct Prune {
    tree: TreeId,
    lo: Key,
    hi: Key,
    /// Height and a key of the next node; at first `None`, for the root. At the end, height and key of leaves that are
    /// left.
    at: Option<(Height, Key)>,
}

impl Prune {
    /// Extends the range to include another one.
    fn extend(&mut self, lo: &Key, hi: &Key) {
        self.lo = self.lo.clone().min(lo.clone());
        self.hi = self.hi.clone().max(hi.clone());
        self.at = None;
    }
}

impl Balance {
    /// As the balance, with the prunes that the superblock lists.
    pub fn with_prunes(mut self, ranges: &[PruneRange]) -> Balance {
        for PruneRange { tree, lo, hi } in ranges {
            self.add_prune(*tree, lo, hi, usize::MAX);
        }
        self
    }

    /// Queues a range delete that has entered the root: it may cover whole leaves.
    pub(super) fn prune_within(&mut self, tree: TreeId, lo: &Key, hi: &Key) {
        self.blocked.forget_within(tree, lo, hi);
        self.add_prune(tree, lo, hi, PRUNES_WAITING);
    }

    /// Queues a range. If `most` are queued, the last one of the tree is extended instead.
    fn add_prune(&mut self, tree: TreeId, lo: &Key, hi: &Key, most: usize) {
        let is_full = self.pruning.len() >= most;
        match self.pruning.iter_mut().rfind(|prune| is_full && prune.tree == tree) {
            Some(last) => last.extend(lo, hi),
            None => self.pruning.push(Prune { tree, lo: lo.clone(), hi: hi.clone(), at: None }),
        }
    }

    /// The ranges that may hold covered leaves: as queued, or one for each tree if there are more than `PRUNES_MAX`.
    pub fn prunes_left(&self) -> Vec<PruneRange> {
        let most = if self.pruning.len() > PRUNES_MAX { 1 } else { PRUNES_MAX };
        let mut left = Balance::default();
        for Prune { tree, lo, hi, .. } in &self.pruning {
            left.add_prune(*tree, lo, hi, most);
        }
        left.pruning.iter().filter_map(|p| PruneRange::holding(p.tree, &p.lo, &p.hi)).collect()
    }

    /// Whether a prune is queued.
    pub fn can_prune(&self) -> bool {
        !self.pruning.is_empty()
    }

    /// Drops covered leaves below one node, or flushes range deletes towards such leaves into one node. Returns the
    /// number of dropped leaves.
    pub fn prune(&mut self, store: &mut Store) -> Result<u64> {
        let Some(prune) = self.pruning.pop() else { return Ok(0) };
        let dropped = self.prune_step(store, prune);
        Ok(self.skip_unreadable(dropped)?.unwrap_or(0))
    }

    fn prune_step(&mut self, store: &mut Store, prune: Prune) -> Result<u64> {
        let Prune { tree, lo, hi, at } = prune;
        let mut dropped = 0;
        if at.is_none() && !shape::covers_leaves(store, tree, &lo, &hi)? {
            return Ok(0);
        }
        let (height, key) = match at {
            Some(at) => at,
            None => (store.root(tree)?.height(), lo.clone()),
        };
        let id = shape::node_at(store, tree, &key, height.max(Height(1)))?;
        let node = store.node(id)?;
        let Node::Internal(internal) = &*node else { return Ok(0) };
        internal.load_ranges(&store.disk)?;
        // The tree may have become lower since.
        let height = height.min(internal.height);
        let is_above = internal.height > height.max(Height(1));
        let end = match is_above {
            // Below the shared node nothing changes.
            true => internal.child_bounds(internal.child_for(&key)).hi,
            false => internal.bounds.hi.clone(),
        };
        let end = end.filter(|end| *end < hi);
        let within = internal.children_within(&key, end.as_ref().unwrap_or(&hi));
        let next = if !is_above
            && height > Height(1)
            && let Some(child) = first_to_flush(store, internal, within)?
        {
            drop(node);
            let (_, pivot) = shape::move_buffer(store, id, child)?;
            self.enqueue(tree, &pivot, Height(height.0 - 1));
            (height, key)
        } else if !is_above
            && height == Height(1)
            && let Some(leaves) = internal.covered()
        {
            drop(node);
            dropped = leaves.len() as u64;
            shape::collapse(store, id, leaves)?;
            (height, key)
        } else {
            if height == Height(0) && !is_above {
                self.enqueue(tree, &key, internal.height);
            }
            match (end, height.0.checked_sub(1)) {
                (Some(end), _) => (height, end),
                (None, Some(below)) => (Height(below), lo.clone()),
                (None, None) => return Ok(0),
            }
        };
        self.pruning.push(Prune { tree, lo, hi, at: Some(next) });
        Ok(dropped)
    }
}

/// The first of some children for which range deletes are pending. A shared child is not copied for a delete of a part
/// of it.
fn first_to_flush(
    store: &Store,
    internal: &Internal,
    within: Range<usize>,
) -> Result<Option<usize>> {
    for at in within {
        let has_ranges = internal.pending(at) > 0 && internal.has_ranges(at);
        if has_ranges && (internal.is_pruned(at) || !store.is_shared(internal, at)?) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}
