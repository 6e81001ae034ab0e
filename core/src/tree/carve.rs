//! Carving: makes keys boundaries of nodes at every height below the root, so that the nodes between two of them hold
//! exactly the keys between them. It is what a range clone or a range rename begins with (BetrFS 0.5).
//!
//! From the root down, each buffer on the path to a key is flushed until it is empty. Then the leaf is divided at the
//! key, and after it each internal node of the path, from the lowest up. Both are steps of balancing like any other:
//! they change no content, and a checkpoint may come between any two of them. Nodes are not merged until the carve
//! ends, since a merge could take a boundary away again.

use super::balance::Site;
use super::descent::Descent;
use super::{Balance, shape};
use crate::error::Result;
use crate::format::Key;
use crate::ids::*;
use crate::node::Node;
use crate::store::{Store, Use};

/// The keys to be made boundaries.
#[derive(Default)]
pub(super) struct Carve {
    cuts: Vec<(TreeId, Key)>,
    /// Nodes that may be small.
    small: Vec<Site>,
}

/// The step that a carve needs next.
pub(super) enum CarveStep {
    /// Put a level above a root that is a leaf.
    AddLevel(TreeId),
    /// Flush the buffer for child `at` of the internal node at this site.
    Flush { site: Site, id: NodeId, at: usize },
    /// Divide the node at this site at the site's key.
    Divide(Site),
}

impl Balance {
    /// Begins to make `key` a boundary, in addition to those of a carve in progress.
    pub fn carve(&mut self, tree: TreeId, key: &Key) {
        self.carving.get_or_insert_default().cuts.push((tree, key.clone()));
    }

    /// Ends a carve: from now on nodes may be merged across its boundaries.
    pub fn end_carve(&mut self) {
        if let Some(carve) = self.carving.take() {
            self.waiting.extend(carve.small);
        }
    }

    /// Whether all keys of the carve are boundaries, and no node is waiting. True if there is no carve.
    pub fn is_carved(&self, store: &Store) -> Result<bool> {
        Ok(self.is_settled() && self.next_of_carve(store)?.is_none())
    }

    /// Puts off the merge of a node until the carve ends; returns whether there is one.
    pub(super) fn put_off_for_carve(&mut self, site: &Site) -> bool {
        match &mut self.carving {
            Some(carve) => {
                carve.small.push(site.clone());
                true
            }
            None => false,
        }
    }

    /// During a carve the root takes more children than its geometry allows: a split would put a level below it that has
    /// keys on both sides. It is split when the carve ends; `height` is that of its children, or its own.
    pub(super) fn keeps_root_wide(&mut self, tree: TreeId, height: Height) -> bool {
        let root = Site { tree, key: Key::default(), height: Height(height.0 + 1) };
        self.put_off_for_carve(&root)
    }

    /// The next step of the carve; `None` if all of its keys are boundaries.
    pub(super) fn next_of_carve(&self, store: &Store) -> Result<Option<CarveStep>> {
        for (tree, key) in self.carving.iter().flat_map(|carve| &carve.cuts) {
            let step = next(store, *tree, key)?;
            if step.is_some() {
                return Ok(step);
            }
        }
        Ok(None)
    }

    /// Makes the next step of the carve; returns whether there was one.
    pub(super) fn carve_step(&mut self, store: &mut Store) -> Result<bool> {
        match self.next_of_carve(store)? {
            None => return Ok(false),
            Some(CarveStep::AddLevel(tree)) => shape::add_level(store, tree)?,
            Some(CarveStep::Flush { site, id, at }) => {
                let (_, pivot) = shape::move_buffer(store, id, at)?;
                self.enqueue(site.tree, &pivot, Height(site.height.0 - 1));
            }
            Some(CarveStep::Divide(Site { tree, key, height })) => {
                shape::divide(store, self, tree, &key, height)?;
            }
        }
        Ok(true)
    }
}

/// The step that brings `key` closer to being a boundary.
fn next(store: &Store, tree: TreeId, key: &Key) -> Result<Option<CarveStep>> {
    let mut way = Descent::new(store, tree)?;
    loop {
        let node = way.node().clone();
        let (is_root, height) = (node.id() == tree.root(), node.height());
        let site = || Site { tree, key: key.clone(), height };
        match &*node {
            // Below a root with this bound there is nothing on the other side.
            node if node.bounds().lo == *key => return Ok(None),
            Node::Leaf(_) if is_root => return Ok(Some(CarveStep::AddLevel(tree))),
            Node::Leaf(_) => return Ok(Some(CarveStep::Divide(site()))),
            Node::Internal(internal) => {
                let at = internal.child_for(key);
                if internal.children()[at].pivot == *key {
                    let divides = (!is_root).then(|| CarveStep::Divide(site()));
                    return Ok(divides);
                }
                if internal.pending(at) > 0 {
                    return Ok(Some(CarveStep::Flush { site: site(), id: internal.id, at }));
                }
                way.enter(at, Use::Other)?;
            }
        }
    }
}
