//! The descent from a root towards a leaf. All descents along a key use it; they differ in the choice of the child, in
//! the work at each node, and in where they end.

use std::sync::Arc;

use crate::error::Result;
use crate::ids::*;
use crate::node::{Internal, Node};
use crate::store::{Store, Use};

/// A descent, at one node.
pub(super) struct Descent<'s> {
    store: &'s Store,
    node: Arc<Node>,
}

impl<'s> Descent<'s> {
    /// Starts at the root of a tree.
    pub(super) fn new(store: &'s Store, tree: TreeId) -> Result<Descent<'s>> {
        Ok(Descent { store, node: store.root(tree)? })
    }

    /// The current node.
    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The current node, if its height is above `height`.
    pub(super) fn above(&self, height: Height) -> Option<&Internal> {
        self.node.internal().filter(|internal| internal.height > height)
    }

    /// Moves to child `at` of an internal node.
    pub(super) fn enter(&mut self, at: usize, purpose: Use) -> Result<()> {
        if let Some(internal) = self.node.internal() {
            self.node = self.store.child_for(internal, at, purpose)?;
        }
        Ok(())
    }

    /// Moves to the node of height `height` on the way to `key`; stays at the root if the tree is lower.
    pub(super) fn to(mut self, key: &[u8], height: Height) -> Result<Arc<Node>> {
        while let Some(internal) = self.above(height) {
            let at = internal.child_for(key);
            self.enter(at, Use::Other)?;
        }
        Ok(self.node)
    }
}
