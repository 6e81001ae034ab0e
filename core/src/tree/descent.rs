//! The way from a root down to a leaf. Every walk along a key goes by it; walks differ in the child that they take, in what they do
//! with the nodes on the way, and in where they end.

use std::sync::Arc;

use crate::error::Result;
use crate::ids::*;
use crate::node::{Internal, Node};
use crate::store::{Store, Use};

/// A walk, and the node that it has come to.
pub(super) struct Descent<'s> {
    store: &'s Store,
    node: Arc<Node>,
}

impl<'s> Descent<'s> {
    /// A walk that begins at the root of a tree.
    pub(super) fn new(store: &'s Store, tree: TreeId) -> Result<Descent<'s>> {
        Ok(Descent { store, node: store.root(tree)? })
    }

    /// The node that it has come to.
    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The same, if it is above this height.
    pub(super) fn above(&self, height: Height) -> Option<&Internal> {
        self.node.internal().filter(|internal| internal.height > height)
    }

    /// Goes on to child `at` of an internal node.
    pub(super) fn enter(&mut self, at: usize, purpose: Use) -> Result<()> {
        if let Some(internal) = self.node.internal() {
            self.node = self.store.child_for(internal, at, purpose)?;
        }
        Ok(())
    }

    /// Goes on to the node of height `height` on the way to `key`; it stays at the root if the tree is lower.
    pub(super) fn to(mut self, key: &[u8], height: Height) -> Result<Arc<Node>> {
        while let Some(internal) = self.above(height) {
            let at = internal.child_for(key);
            self.enter(at, Use::Other)?;
        }
        Ok(self.node)
    }
}
