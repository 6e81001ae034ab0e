//! Dropping leaves that range deletes cover, without reading them (leaf pruning, BetrFS 0.2 §5.2).
//!
//! Each range delete is led down to the leaves in steps that look at one node. What is left of them at a checkpoint stands in
//! the superblock, since range deletes may wait below nodes that say nothing of them.

use super::balance::Balance;
use super::shape;
use crate::error::Result;
use crate::format::limits::PRUNES_MAX;
use crate::format::{Key, PruneRange};
use crate::ids::*;
use crate::node::Node;
use crate::store::Store;
use crate::tuning::PRUNES_WAITING;

/// A range delete on its way down to the leaves that it covers: one level after the other, and each from
/// the lower end on. When all have been dropped, their parents are merged.
pub(super) struct Prune {
    tree: TreeId,
    lo: Key,
    hi: Key,
    /// The height and a key of the next node, the root at first; in the end, leaves that are left.
    at: Option<(Height, Key)>,
}

impl Prune {
    /// Makes the range hold another as well.
    fn extend(&mut self, lo: &Key, hi: &Key) {
        self.lo = self.lo.clone().min(lo.clone());
        self.hi = self.hi.clone().max(hi.clone());
        self.at = None;
    }
}

impl Balance {
    /// The same, with what was left to prune when the superblock was written.
    pub fn with_prunes(mut self, ranges: &[PruneRange]) -> Balance {
        for PruneRange { tree, lo, hi } in ranges {
            self.add_prune(*tree, lo, hi, usize::MAX);
        }
        self
    }

    /// A range delete has entered the root: it may cover whole leaves.
    pub(super) fn prune_within(&mut self, tree: TreeId, lo: &Key, hi: &Key) {
        self.blocked.forget_within(tree, lo, hi);
        self.add_prune(tree, lo, hi, PRUNES_WAITING);
    }

    /// Where `most` wait, the last one of the tree is made to hold this one as well.
    fn add_prune(&mut self, tree: TreeId, lo: &Key, hi: &Key, most: usize) {
        let is_full = self.pruning.len() >= most;
        match self.pruning.iter_mut().rfind(|prune| is_full && prune.tree == tree) {
            Some(last) => last.extend(lo, hi),
            None => self.pruning.push(Prune { tree, lo: lo.clone(), hi: hi.clone(), at: None }),
        }
    }

    /// The ranges in which leaves may be left that range deletes cover: as they are, or one for each tree.
    pub fn prunes_left(&self) -> Vec<PruneRange> {
        let most = if self.pruning.len() > PRUNES_MAX { 1 } else { PRUNES_MAX };
        let mut left = Balance::default();
        for Prune { tree, lo, hi, .. } in &self.pruning {
            left.add_prune(*tree, lo, hi, most);
        }
        left.pruning.iter().filter_map(|p| PruneRange::holding(p.tree, &p.lo, &p.hi)).collect()
    }

    /// Whether there may be leaves that can be dropped.
    pub fn can_prune(&self) -> bool {
        !self.pruning.is_empty()
    }

    /// Drops leaves below one node that range deletes cover, or moves range deletes to one node from that
    /// above it, on their way to such leaves. Returns how many leaves are dropped.
    pub fn prune(&mut self, store: &mut Store) -> Result<u64> {
        let Some(prune) = self.pruning.pop() else { return Ok(0) };
        let dropped = self.prune_step(store, prune);
        Ok(self.pass_over(dropped)?.unwrap_or(0))
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
        let end = internal.bounds.hi.clone().filter(|end| *end < hi);
        let mut within = internal.children_within(&key, end.as_ref().unwrap_or(&hi));
        let moves = |at: &usize| internal.pending(*at) > 0 && internal.has_ranges(*at);
        let next = if height > Height(1)
            && let Some(child) = within.find(moves)
        {
            drop(node);
            let (_, pivot) = shape::move_buffer(store, id, child)?;
            self.look_at(tree, &pivot, Height(height.0 - 1));
            (height, key)
        } else if height == Height(1)
            && let Some(leaves) = internal.covered()
        {
            drop(node);
            dropped = leaves.len() as u64;
            shape::collapse(store, id, leaves)?;
            (height, key)
        } else {
            if height == Height(0) {
                self.look_at(tree, &key, internal.height);
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
