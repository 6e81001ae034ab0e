//! Range clones: a range of keys is shown under another prefix as well, without a copy (BetrFS 0.5).
//!
//! Both ranges are carved below the least height at which one node has each of them, so that rows of nodes there hold
//! exactly their keys. A checkpoint writes all nodes. Then the node of that height with the destination gets further edges
//! to the nodes of the source, with a lens, and the next checkpoint makes that durable.

use std::sync::Arc;

use super::checkpoint::Pruned;
use super::reserve::Claim;
use super::trees::Trees;
use super::{Content, Volume};
use crate::error::{Error, Result};
use crate::format::limits::{FANOUT, KEY_MAX};
use crate::format::{Bounds, CHILD_BYTES, Features, HoldsRoot, Key, Lens, prefix_end};
use crate::ids::*;
use crate::space::Need;
use crate::tree::{self, Scan};

/// 1,024 children: the limit of a node in the format.
const CHILDREN_MAX: usize = *FANOUT.end() as usize;
/// 2 KiB and 30 bytes: the most that an edge takes, with a pivot and a lens of the longest keys.
const EDGE_BYTES_MAX: usize = CHILD_BYTES + 2 * KEY_MAX;

impl Volume {
    /// Makes `destination`·s read as `source`·s, for every s; durable when it returns. No key may begin with
    /// `destination`, which must be no longer than `source`; neither prefix may begin with the other one, and each must
    /// have a byte below 255. Changes of either range do not show in the other one. The time does not depend on the size
    /// of the range.
    pub fn clone_range(&mut self, tree: TreeId, source: &Key, destination: &Key) -> Result<()> {
        self.ensure_ready()?;
        let misuse = |text: &str| Error::Misuse(format!("a range cannot be cloned: {text}"));
        let lens = Lens::new(destination.clone(), source.clone())
            .filter(|_| !source.starts_with(destination) && !destination.starts_with(source))
            .ok_or_else(|| misuse("the prefixes do not suit each other"))?;
        if self.content() != Content::Keys {
            return Err(misuse("a file system shares no nodes yet"));
        }
        if self.superblock.holds != HoldsRoot::default() {
            return Err(misuse("a volume with snapshots shares no nodes yet"));
        }
        let range = |prefix: &Key| Bounds { lo: prefix.clone(), hi: prefix_end(prefix) };
        let (shown, new) = (range(source), range(destination));
        let mut scan = Scan::few(tree, new.lo.clone(), new.hi.clone());
        if self.advance(&mut scan)?.is_some() {
            return Err(misuse("there are keys with the new prefix"));
        }
        // Nodes that an earlier clone or a carve has left wide are divided first.
        self.make_steps(Claim::Takes)?;
        let height = self.carve_apart(tree, &[&shown, &new])?;
        let shared = self.share((tree, height), (&new, &shown), lens);
        self.end_carve();
        shared?;
        self.make_steps(Claim::Takes)?;
        self.checkpoint_with(Pruned::None)
    }

    /// Adds edges to the carved range `shown` in the place of the carved range `new`.
    fn share(
        &mut self,
        (tree, height): (TreeId, Height),
        (new, shown): (&Bounds, &Bounds),
        lens: Lens,
    ) -> Result<()> {
        self.checkpoint_with(Pruned::None)?;
        // The node that gets the edges, and the table entries of all nodes that get or lose one.
        let store = &self.trees.wait().store;
        let (edges, children) = tree::edges_after_splice(store, (tree, height), (new, shown))?;
        if children > CHILDREN_MAX {
            let text = format!(
                "a clone in a node that would have {children} children: at most {CHILDREN_MAX}"
            );
            return Err(Error::Unsupported(text));
        }
        let need = Need::of_image(store.geometry.internal_bytes_max(self.superblock.image_blocks))
            + Need::of_image(children * EDGE_BYTES_MAX)
            + Need::of_blocks(2 * (edges + children) as u64);
        if !self.has_room(need, Claim::Takes) {
            return Err(self.no_space(need.all()));
        }
        self.superblock.features.read_only |= Features::SHARED;
        let Trees { store, balance, .. } = self.trees.wait_mut();
        store.table.share();
        let (place, lens) = ((tree, height), Arc::new(lens));
        let spliced = tree::splice(store, balance, place, (new, shown), &lens);
        self.poison_on_error(spliced)
    }
}

#[cfg(test)]
mod tests;
