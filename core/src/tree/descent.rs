//! The descent from a root towards a leaf. All descents along a key use it; they differ in the choice of the child, in
//! the work at each node, and in where they end.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{Bounds, Lens};
use crate::ids::*;
use crate::node::{Internal, Node};
use crate::store::{Store, Use};

/// What the edges of a path replace together: keys of the tree above, keys of the path's last node below.
#[derive(Clone, Default)]
pub struct PathLens(Option<Arc<Lens>>);

impl PathLens {
    /// The lens of the path that goes on through the edge to child `at`. Fails if no key passes both.
    pub fn through(&self, internal: &Internal, at: usize) -> Result<PathLens> {
        Ok(PathLens(internal.children()[at].lens_below(self.0.as_ref())?))
    }

    /// The lens, unless keys below are as keys above.
    pub fn lens(&self) -> Option<&Lens> {
        self.0.as_deref()
    }

    /// The key in the last node.
    pub(crate) fn down<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        match &self.0 {
            Some(lens) => Cow::Owned(lens.down(key).to_vec()),
            None => Cow::Borrowed(key),
        }
    }

    /// The range in the last node.
    pub(crate) fn bounds_down(&self, bounds: &Bounds) -> Bounds {
        self.0.as_ref().map_or_else(|| bounds.clone(), |lens| lens.bounds_down(bounds))
    }

    /// The range in the tree of one in the last node.
    pub fn bounds_up(&self, bounds: Bounds) -> Bounds {
        self.0.as_ref().map_or(bounds.clone(), |lens| lens.bounds_up(&bounds))
    }
}

/// A descent, at one node.
pub(super) struct Descent<'s> {
    store: &'s Store,
    node: Arc<Node>,
    lens: PathLens,
}

impl<'s> Descent<'s> {
    /// Starts at the root of a tree.
    pub(super) fn new(store: &'s Store, tree: TreeId) -> Result<Descent<'s>> {
        Ok(Descent { store, node: store.root(tree)?, lens: PathLens::default() })
    }

    /// The current node.
    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// What the path to the current node replaces.
    pub(super) fn lens(&self) -> &PathLens {
        &self.lens
    }

    /// The current node, if its height is above `height`.
    pub(super) fn above(&self, height: Height) -> Option<&Internal> {
        self.node.internal().filter(|internal| internal.height > height)
    }

    /// Moves to child `at` of an internal node.
    pub(super) fn enter(&mut self, at: usize, purpose: Use) -> Result<()> {
        if let Some(internal) = self.node.internal() {
            let lens = self.lens.through(internal, at)?;
            (self.node, self.lens) = (self.store.child_for(internal, at, purpose)?, lens);
        }
        Ok(())
    }

    /// Moves to child `at` of an internal node for a change; returns whether it does. It stays above a child that is
    /// shared.
    pub(super) fn enter_alone(&mut self, at: usize) -> Result<bool> {
        let shared = match self.node.internal() {
            Some(internal) => self.store.is_shared(internal, at)?,
            None => true,
        };
        if !shared {
            self.enter(at, Use::Other)?;
        }
        Ok(!shared)
    }

    /// Moves to the node of height `height` on the way to `key`, for a change. Stays at the root if the tree is lower,
    /// and above a node that is shared.
    pub(super) fn to(mut self, key: &[u8], height: Height) -> Result<Arc<Node>> {
        while let Some(internal) = self.above(height) {
            let at = internal.child_for(key);
            if !self.enter_alone(at)? {
                break;
            }
        }
        Ok(self.node)
    }
}
