//! Strays: nodes that were scattered while space was short, to be written into contiguous extents again.

use crate::error::Result;
use crate::ids::*;
use crate::node::Node;
use crate::space::Need;
use crate::store::{Dirty, Store};

impl Store {
    /// Sets whether a rewritten node takes no more blocks than it needs. Internal nodes then keep no run that is partly
    /// dead, and leaves that only shrank do not get longer.
    pub fn set_compact_writes(&mut self, compact: bool) {
        self.compact = compact;
    }

    /// Whether nodes are written so.
    pub fn writes_compactly(&self) -> bool {
        self.compact
    }

    /// Rewrites scattered nodes, the longest first, into free contiguous extents, as far as there is space. Returns whether
    /// fewer scattered nodes are left.
    ///
    /// If nothing is dirty or held and no scattered node has grown, all of them fit: their old contiguous extents are free. If
    /// the longest takes the old extent of another, that one fits into the extent of the longest.
    pub fn rewrite_contiguous(&mut self) -> Result<bool> {
        let mut scattered_nodes = Vec::new();
        for id in std::mem::take(&mut self.scattered_nodes) {
            // It may have been dropped, or be contiguous again.
            if let Some(entry) = self.table.get(id)?.filter(|entry| entry.extent.is_scattered()) {
                scattered_nodes.push((entry.extent.blocks, id));
            }
        }
        scattered_nodes.sort_unstable();
        let before = scattered_nodes.len();
        while let Some((blocks, id)) = scattered_nodes.pop() {
            let need = Need::of_image(blocks as usize * BLOCK_SIZE);
            if !self.space.has(self.checkpoint_need_with(Dirty { nodes: 1, internals: 1, need })) {
                self.scattered_nodes.insert(id);
                break;
            }
            let opened = self.edit(id, |node, disk| match node {
                Node::Leaf(leaf) => leaf.open(disk),
                Node::Internal(_) => Ok(()),
            });
            match opened {
                // The node stays where it is.
                Err(error) if error.is_unreadable() => continue,
                opened => opened?,
            }
            self.write_all()?;
            if self.table.get(id)?.is_some_and(|entry| entry.extent.is_scattered()) {
                self.scattered_nodes.insert(id);
            }
        }
        self.scattered_nodes.extend(scattered_nodes.into_iter().map(|(_, id)| id));
        Ok(self.scattered_nodes.len() < before)
    }

    /// Whether any scattered node is left.
    pub fn has_strays(&self) -> bool {
        !self.scattered_nodes.is_empty()
    }
}
