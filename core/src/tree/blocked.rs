//! Nodes that cannot be read: what is pending for them stays where it is.
//!
//! A buffer that cannot move down keeps the node above from becoming smaller. Its child is remembered here, and the other
//! buffers of the node go on. From then on operations with messages for the child are refused: what waits for a node that
//! cannot be read is at most what was on its way there.

use super::shape;
use crate::error::{Error, Result};
use crate::format::{Bounds, Key, RecordMessage};
use crate::ids::*;
use crate::store::Store;
use crate::tuning::BLOCKED_MAX;

/// What could not be read, and what that keeps from changing.
#[derive(Default)]
pub(super) struct Blocked {
    nodes: Vec<BlockedNode>,
    /// The first error that was met.
    met: Option<String>,
}

struct BlockedNode {
    tree: TreeId,
    height: Height,
    bounds: Bounds,
}

impl Blocked {
    /// What is pending for a node cannot move there. The error comes back if there are too many such nodes.
    pub(super) fn add(
        &mut self,
        tree: TreeId,
        height: Height,
        bounds: Bounds,
        error: Error,
    ) -> Result<()> {
        if self.nodes.len() >= BLOCKED_MAX {
            return Err(error);
        }
        self.meet(&error);
        self.nodes.push(BlockedNode { tree, height, bounds });
        Ok(())
    }

    /// Something cannot be read.
    pub(super) fn meet(&mut self, error: &Error) {
        self.met.get_or_insert_with(|| error.to_string());
    }

    /// The first error that was met.
    pub(super) fn met(&self) -> Option<&str> {
        self.met.as_deref()
    }

    /// Whether the child of this height at this pivot is one of them.
    pub(super) fn holds(&self, tree: TreeId, height: Height, pivot: &Key) -> bool {
        self.nodes
            .iter()
            .any(|node| (node.tree, node.height) == (tree, height) && node.bounds.lo == *pivot)
    }

    /// Forgets the nodes that a range delete covers: they need not be read.
    pub(super) fn forget_within(&mut self, tree: TreeId, lo: &Key, hi: &Key) {
        self.nodes.retain(|node| !(node.tree == tree && node.is_covered(lo, hi)));
    }

    /// An error if a message is for one of the nodes, and that can still not be read. Returns nodes that can.
    pub(super) fn refuse(
        &mut self,
        store: &Store,
        messages: &[RecordMessage],
    ) -> Result<Vec<(TreeId, Height, Key)>> {
        let mut readable = Vec::new();
        let mut at = 0;
        while let Some(node) = self.nodes.get(at) {
            if !messages.iter().any(|message| node.waits_for(message)) {
                at += 1;
                continue;
            }
            shape::try_flush(store, node.tree, &node.bounds.lo, node.height)?;
            let BlockedNode { tree, height, bounds } = self.nodes.swap_remove(at);
            readable.push((tree, height, bounds.lo));
        }
        Ok(readable)
    }
}

impl BlockedNode {
    fn is_covered(&self, lo: &Key, hi: &Key) -> bool {
        *lo <= self.bounds.lo && self.bounds.hi.as_ref().is_some_and(|end| end <= hi)
    }

    /// Whether a message would have to come to the node itself.
    fn waits_for(&self, message: &RecordMessage) -> bool {
        let is_within = |lo: &Key, hi: Option<&Key>| {
            self.bounds.hi.as_ref().is_none_or(|end| lo < end)
                && hi.is_none_or(|hi| self.bounds.lo < *hi)
        };
        message.tree() == self.tree
            && match message {
                RecordMessage::Point(_, key, _) | RecordMessage::Unbound(key, _) => {
                    self.bounds.lo <= *key && is_within(key, None)
                }
                RecordMessage::RangeDelete(_, lo, hi) => {
                    is_within(lo, Some(hi)) && !self.is_covered(lo, hi)
                }
            }
    }
}
