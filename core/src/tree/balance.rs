//! Keeping nodes within their sizes, step by step.
//!
//! Nodes that have become too large, or have just taken a buffer, wait here. A step moves one buffer down
//! one level, splits one node, or merges two. None changes what the tree says, so a checkpoint may come
//! between any two of them; nor does one have to be made at once.

use super::shape;
use crate::cache::Store;
use crate::error::Result;
use crate::format::Key;
use crate::ids::*;
use crate::node::{Internal, Node};

/// A node, named by a key that belongs to it and its height: ids change when nodes split and merge.
#[derive(Clone, PartialEq, Eq)]
struct Site {
    tree: TreeId,
    key: Key,
    height: Height,
}

/// The nodes to be looked at, the next one last.
#[derive(Default)]
pub struct Balance {
    waiting: Vec<Site>,
    /// The internal node whose buffers are to be moved down next, whatever they weigh: one level after the
    /// other, top down, and each from its least key on.
    draining: Option<Site>,
}

impl Balance {
    /// Whether no node is known to need a step.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.draining.is_none()
    }

    /// A node may be too large or too small.
    pub(super) fn look_at(&mut self, tree: TreeId, key: &Key, height: Height) {
        let site = Site { tree, key: key.clone(), height };
        if self.waiting.last() != Some(&site) {
            self.waiting.push(site);
        }
    }

    /// From now on everything that is pending moves down to the leaves, so that deletes give back the
    /// space of what they cover.
    pub fn drain(&mut self, store: &Store) -> Result<()> {
        self.draining = top_of(store, TreeId::Metadata)?;
        Ok(())
    }

    /// Makes one step.
    pub fn step(&mut self, store: &mut Store) -> Result<()> {
        if let Some(site) = self.waiting.pop() {
            return self.settle(store, site);
        }
        let Some(site) = self.draining.take() else { return Ok(()) };
        let id = shape::node_at(store, site.tree, &site.key, site.height)?;
        let node = store.node(id)?;
        let mut next = Some(site.clone());
        match &*node {
            Node::Internal(internal) if internal.height == site.height => {
                if internal.buffered() > 0 {
                    let at = internal.heaviest();
                    drop(node);
                    let (_, pivot) = shape::move_buffer(store, id, at)?;
                    self.look_at(site.tree, &pivot, Height(site.height.0 - 1));
                } else {
                    next = after(store, &site, internal)?;
                }
            }
            // The tree has become lower.
            _ => next = top_of(store, site.tree)?,
        }
        self.draining = next;
        Ok(())
    }

    fn settle(&mut self, store: &mut Store, site: Site) -> Result<()> {
        let geometry = store.geometry;
        let Site { tree, key, height } = site.clone();
        let id = shape::node_at(store, tree, &key, height)?;
        let node = store.node(id)?;
        match &*node {
            Node::Leaf(leaf) => {
                let bytes = leaf.bytes();
                drop(node);
                if bytes > geometry.leaf_size as usize {
                    shape::split_leaf(store, self, tree, &key)?;
                } else if bytes < geometry.leaf_size as usize / 4 {
                    shape::merge(store, self, tree, &key, Height(0))?;
                }
            }
            // The tree may have become lower since.
            Node::Internal(internal) if internal.height < height => {}
            Node::Internal(internal) if internal.buffered() > geometry.node_size as usize => {
                let (at, below) = (internal.heaviest(), Height(internal.height.0 - 1));
                drop(node);
                // If this fails the node is not looked at again.
                let (_, pivot) = shape::move_buffer(store, id, at)?;
                self.waiting.push(site);
                self.look_at(tree, &pivot, below);
            }
            Node::Internal(internal) => {
                let few = internal.children().len() < (geometry.fanout as usize / 4).max(2);
                drop(node);
                if few {
                    shape::merge(store, self, tree, &key, height)?;
                }
            }
        }
        Ok(())
    }
}

/// Where draining a tree begins, or the next one that has buffers.
fn top_of(store: &Store, tree: TreeId) -> Result<Option<Site>> {
    let height = store.root(tree)?.height();
    match tree {
        _ if height > Height(0) => Ok(Some(Site { tree, key: Key::default(), height })),
        TreeId::Metadata => top_of(store, TreeId::Data),
        TreeId::Data => Ok(None),
    }
}

/// Where draining goes on behind an internal node without messages.
fn after(store: &Store, site: &Site, internal: &Internal) -> Result<Option<Site>> {
    let below = Height(site.height.0 - 1);
    match (&internal.bounds.hi, site.tree) {
        (Some(hi), _) => Ok(Some(Site { key: hi.clone(), ..site.clone() })),
        (None, _) if below > Height(0) => {
            Ok(Some(Site { key: Key::default(), height: below, ..site.clone() }))
        }
        (None, TreeId::Metadata) => top_of(store, TreeId::Data),
        (None, TreeId::Data) => Ok(None),
    }
}
