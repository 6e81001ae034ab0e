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
use crate::node::Node;

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
    /// Internal nodes whose buffers are all to be moved down, whatever they weigh, top down; the next one
    /// last.
    draining: Vec<Site>,
}

impl Balance {
    /// Whether no node is known to need a step.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.draining.is_empty()
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
        let mut sites = Vec::new();
        for tree in TreeId::ALL {
            let mut level = vec![store.root(tree)?];
            while let Some(node) = level.pop() {
                let Node::Internal(internal) = &*node else { continue };
                sites.push(Site { tree, key: internal.bounds.lo.clone(), height: internal.height });
                if internal.height > Height(1) {
                    for at in 0..internal.children().len() {
                        level.push(store.child(internal, at)?);
                    }
                }
            }
        }
        sites.sort_by_key(|site| site.height);
        self.draining = sites;
        Ok(())
    }

    /// Makes one step.
    pub fn step(&mut self, store: &mut Store) -> Result<()> {
        if let Some(site) = self.waiting.pop() {
            return self.settle(store, site);
        }
        let Some(site) = self.draining.pop() else { return Ok(()) };
        let id = shape::node_at(store, site.tree, &site.key, site.height)?;
        let node = store.node(id)?;
        if let Node::Internal(internal) = &*node
            && internal.height == site.height
            && internal.buffered() > 0
        {
            let at = internal.heaviest();
            drop(node);
            self.draining.push(site.clone());
            self.flush(store, site.tree, id, at)?;
        }
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
                let at = internal.heaviest();
                drop(node);
                self.waiting.push(site);
                self.flush(store, tree, id, at)?;
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

    /// Moves the buffer of child `at` of node `id` down.
    fn flush(&mut self, store: &mut Store, tree: TreeId, id: NodeId, at: usize) -> Result<()> {
        let height = store.node(id)?.height();
        let (_, pivot) = shape::move_buffer(store, id, at)?;
        self.look_at(tree, &pivot, Height(height.0 - 1));
        Ok(())
    }
}
