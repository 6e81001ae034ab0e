//! The inventory of readable nodes of a volume.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::UnexpectedEof;
use std::sync::Arc;

use super::holds::kept_alone;
use super::scan::{entry_of, scan};
use crate::check::{Pages, pages};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::limits::NODES_END;
use crate::format::{Bounds, ENTRIES_PER_PAGE, Entry, Key, Lens, Superblock};
use crate::ids::*;
use crate::node::{Child, Node};

/// Nodes whose heads verify, and the faults of others.
pub(super) struct Inventory {
    pub volume: VolumeId,
    /// Size of the image, in blocks.
    pub blocks: u64,
    pub nodes: BTreeMap<NodeId, Known>,
    /// Nodes with damaged parts among those that the checker could not read.
    pub suspects: BTreeSet<NodeId>,
    /// The blocks of the allocation table.
    pub extents: Vec<Extent>,
    lost: BTreeMap<NodeId, LostNode>,
}

/// A node whose head verifies.
pub(super) struct Known {
    pub entry: Entry,
    pub tree: TreeId,
    pub height: Height,
    pub bounds: Bounds,
    /// Its edges, in key order.
    pub edges: Vec<Edge>,
}

/// An edge of a node.
pub(super) struct Edge {
    pub child: NodeId,
    pub pivot: Key,
    pub lens: Option<Arc<Lens>>,
    /// The keys of the child, as they are in it.
    pub keys: Bounds,
}

/// A node of the table that does not verify.
struct LostNode {
    tree: TreeId,
    height: Height,
    why: String,
}

impl Inventory {
    /// Reads all heads; scans the device for those that the table lost.
    pub(super) fn take(disk: &Disk, superblock: &Superblock) -> Result<Inventory> {
        let volume = superblock.birth.volume;
        let (mut nodes, mut lost) = (BTreeMap::new(), BTreeMap::new());
        let (mut unseen, mut suspects) = (BTreeSet::new(), BTreeSet::new());
        let Pages { mut entries, extents, whole } = pages(disk, superblock);
        if !whole {
            let page = |id: &NodeId| id.0 / ENTRIES_PER_PAGE as u64;
            let pages = entries.iter().map(|(id, _)| page(id)).collect();
            let kept = kept_alone(disk, superblock);
            let found = scan(disk, superblock, &pages, &kept)?;
            unseen.extend(found.iter().map(|(id, _)| *id));
            entries.extend(found);
        }
        entries.retain(|(id, _)| id.0 < NODES_END);
        entries.sort_by_key(|(_, entry)| entry.extent);
        for (id, entry) in entries {
            let entry = corrected(disk, entry);
            match Node::load(disk, volume, id, &entry) {
                Ok(node) => {
                    // The checker could not read it.
                    if unseen.contains(&id) && node.read_all(disk).is_err() {
                        suspects.insert(id);
                    }
                    nodes.insert(id, Known::of(&node, entry));
                }
                // A place past the end does not exist; other read errors may be temporary.
                Err(Error::Io { op, place, source }) if source.kind() != UnexpectedEof => {
                    return Err(Error::Io { op, place, source });
                }
                Err(error) => {
                    let (tree, height) = (entry.tree, entry.height);
                    lost.insert(id, LostNode { tree, height, why: error.to_string() });
                }
            }
        }
        let blocks = superblock.image_blocks;
        Ok(Inventory { volume, blocks, nodes, suspects, extents, lost })
    }

    /// A node id above all known ones.
    pub(super) fn next_node(&self) -> NodeId {
        let last = self.nodes.keys().chain(self.lost.keys()).max();
        let roots = TreeId::ALL.map(TreeId::root);
        let last = roots.iter().chain(last).max();
        NodeId(last.map_or(0, |id| id.0.saturating_add(1)))
    }

    /// Whether a node has several edges or none, or an edge has a lens: otherwise each has one (invariant 6).
    pub(super) fn shares(&self) -> bool {
        let mut nodes = self.nodes.values();
        nodes.any(|node| node.entry.references != 1 || node.has_lens())
    }

    /// The stated height of a tree.
    pub(super) fn height_of(&self, tree: TreeId) -> Option<Height> {
        let known = self.nodes.get(&tree.root()).map(|node| (node.tree, node.height));
        let lost = || self.lost.get(&tree.root()).map(|node| (node.tree, node.height));
        known.or_else(lost).filter(|(found, _)| *found == tree).map(|(_, height)| height)
    }

    /// Why a node must be rebuilt.
    pub(super) fn why(&self, id: NodeId) -> String {
        match self.lost.get(&id) {
            Some(lost) => lost.why.clone(),
            None => format!("no node {id} that verifies is where it should be"),
        }
    }
}

impl Known {
    fn of(node: &Node, entry: Entry) -> Known {
        let edges = match node {
            Node::Leaf(_) => Vec::new(),
            Node::Internal(internal) => {
                let edge = |(at, child): (usize, &Child)| Edge {
                    child: child.id,
                    pivot: child.pivot.clone(),
                    lens: child.lens.clone(),
                    keys: internal.bounds_below(at),
                };
                internal.children().iter().enumerate().map(edge).collect()
            }
        };
        let (tree, height, bounds) = (node.tree(), node.height(), node.bounds().clone());
        Known { entry, tree, height, bounds, edges }
    }

    fn has_lens(&self) -> bool {
        self.edges.iter().any(|edge| edge.lens.is_some())
    }
}

/// An entry with the block count of the node, if its head matches the entry.
fn corrected(disk: &Disk, entry: Entry) -> Entry {
    let head = disk.read(entry.extent.start.byte(), entry.head_bytes as usize).ok();
    let found = head.and_then(|head| entry_of(&head, entry.extent.start));
    match found {
        Some((_, _, found)) if found.hash == entry.hash => Entry { extent: found.extent, ..entry },
        _ => entry,
    }
}
