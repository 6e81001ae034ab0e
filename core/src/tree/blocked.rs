//! Blocked nodes: nodes that cannot be read, so that their buffers cannot be flushed.
//!
//! Such a buffer would keep its node full. Its child is recorded here, and the other buffers of the node are flushed
//! instead. From then on operations with messages for the child are refused. So no more messages wait for an unreadable
//! node than were already on their way to it.

use super::shape;
use crate::error::{Error, Result};
use crate::format::{Bounds, Key, RecordMessage};
use crate::ids::*;
use crate::store::Store;
use crate::tuning::BLOCKED_MAX;

/// The blocked nodes, and the first error.
#[derive(Default)]
pub(super) struct Blocked {
    nodes: Vec<BlockedNode>,
    /// The first read error.
    first_error: Option<String>,
}

struct BlockedNode {
    tree: TreeId,
    height: Height,
    bounds: Bounds,
}

impl Blocked {
    /// Adds a node. Returns `error` if `BLOCKED_MAX` nodes are blocked already.
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
        self.remember_error(&error);
        self.nodes.push(BlockedNode { tree, height, bounds });
        Ok(())
    }

    /// Remembers an error if it is the first.
    pub(super) fn remember_error(&mut self, error: &Error) {
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    /// The first read error.
    pub(super) fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Whether the child of this height at this pivot is blocked.
    pub(super) fn holds(&self, tree: TreeId, height: Height, pivot: &Key) -> bool {
        self.nodes
            .iter()
            .any(|node| (node.tree, node.height) == (tree, height) && node.bounds.lo == *pivot)
    }

    /// Removes nodes that a range delete covers: they need not be read.
    pub(super) fn forget_within(&mut self, tree: TreeId, lo: &Key, hi: &Key) {
        self.nodes.retain(|node| !(node.tree == tree && node.is_covered(lo, hi)));
    }

    /// Fails if a message is for a blocked node that still cannot be read. Removes and returns nodes that can be read
    /// again.
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

    /// Whether a message would have to reach the node itself: a point in its bounds, or a range delete that covers only
    /// part of it.
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
                // It replaces the empty nodes of its destination, and reads what it must of its source first.
                RecordMessage::Clone(..) => false,
                RecordMessage::RangeDelete(_, lo, hi) => {
                    is_within(lo, Some(hi)) && !self.is_covered(lo, hi)
                }
            }
    }
}
