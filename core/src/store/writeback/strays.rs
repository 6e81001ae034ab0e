//! Nodes that were scattered while blocks were short, and are written into rows again.

use crate::error::Result;
use crate::ids::*;
use crate::node::Node;
use crate::space::Need;
use crate::store::{Dirty, Store};

impl Store {
    /// Whether no node takes more blocks than it needs when it is written: internal nodes keep no runs of which a part is dead,
    /// and leaves that only became shorter are not longer.
    pub fn be_thrifty(&mut self, thrifty: bool) {
        self.thrifty = thrifty;
    }

    /// Whether it is so.
    pub fn is_thrifty(&self) -> bool {
        self.thrifty
    }

    /// Writes strays again, the longest first, into rows that are free by now, as far as there is room. Whether there are fewer
    /// afterwards.
    ///
    /// When nothing is dirty or held, and no stray is longer than it was, all of them find a row: the rows that they lay in
    /// are free, and whatever row the longest takes, the one that it lay in fits the stray whose row that was.
    pub fn recall_strays(&mut self) -> Result<bool> {
        let mut strays = Vec::new();
        for id in std::mem::take(&mut self.strays) {
            // It may be gone, or lie in a row again.
            if let Some(entry) = self.table.get(id)?.filter(|entry| entry.extent.is_scattered()) {
                strays.push((entry.extent.blocks, id));
            }
        }
        strays.sort_unstable();
        let before = strays.len();
        while let Some((blocks, id)) = strays.pop() {
            let need = Need::of_image(blocks as usize * BLOCK_SIZE);
            if !self.space.has(self.checkpoint_need_with(Dirty { nodes: 1, internals: 1, need })) {
                self.strays.insert(id);
                break;
            }
            let opened = self.edit(id, |node, disk| match node {
                Node::Leaf(leaf) => leaf.open(disk),
                Node::Internal(_) => Ok(()),
            });
            match opened {
                // It stays where it is.
                Err(error) if error.is_unreadable() => continue,
                opened => opened?,
            }
            self.write_all()?;
            if self.table.get(id)?.is_some_and(|entry| entry.extent.is_scattered()) {
                self.strays.insert(id);
            }
        }
        self.strays.extend(strays.into_iter().map(|(_, id)| id));
        Ok(self.strays.len() < before)
    }

    /// Whether there are any.
    pub fn has_strays(&self) -> bool {
        !self.strays.is_empty()
    }
}
