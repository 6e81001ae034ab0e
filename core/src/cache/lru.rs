//! Which nodes are in memory, and which of them was asked for longest ago.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ids::NodeId;
use crate::node::Node;

/// Nodes in memory, clean and dirty.
#[derive(Default)]
pub(super) struct Lru {
    slots: HashMap<NodeId, Slot>,
    order: BTreeMap<u64, NodeId>,
    tick: u64,
    bytes: usize,
    dirty_bytes: usize,
    dirty_blocks: u64,
    dirty_nodes: u64,
}

struct Slot {
    node: Arc<Node>,
    dirty: bool,
    weight: usize,
    /// What writing it takes at most; 0 for a clean one.
    blocks: u64,
    tick: u64,
}

impl Lru {
    /// The weight of dirty nodes.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes
    }

    /// How many nodes are dirty, and at most how many blocks writing them takes.
    pub fn dirty(&self) -> (u64, u64) {
        (self.dirty_nodes, self.dirty_blocks)
    }

    /// A node, which becomes the youngest, and whether it is dirty. What a clean node has loaded since
    /// the last time is weighed.
    pub fn get(&mut self, id: NodeId) -> Option<(Arc<Node>, bool)> {
        let slot = self.slots.get_mut(&id)?;
        self.order.remove(&slot.tick);
        self.tick += 1;
        slot.tick = self.tick;
        self.order.insert(self.tick, id);
        if !slot.dirty {
            self.bytes -= slot.weight;
            slot.weight = slot.node.weight();
            self.bytes += slot.weight;
        }
        Some((slot.node.clone(), slot.dirty))
    }

    /// Whether the node is here and dirty.
    pub fn is_dirty(&self, id: NodeId) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.dirty)
    }

    /// Puts a node in, as the youngest.
    pub fn put(&mut self, node: Arc<Node>, dirty: bool) {
        let id = node.id();
        self.remove(id);
        let weight = node.weight();
        self.tick += 1;
        self.bytes += weight;
        let blocks = if dirty { node.blocks_max() } else { 0 };
        self.dirty_bytes += if dirty { weight } else { 0 };
        self.dirty_blocks += blocks;
        self.dirty_nodes += u64::from(dirty);
        self.order.insert(self.tick, id);
        self.slots.insert(id, Slot { node, dirty, weight, blocks, tick: self.tick });
    }

    /// Takes a node out.
    pub fn remove(&mut self, id: NodeId) -> Option<(Arc<Node>, bool)> {
        let slot = self.slots.remove(&id)?;
        self.order.remove(&slot.tick);
        self.bytes -= slot.weight;
        self.dirty_bytes -= if slot.dirty { slot.weight } else { 0 };
        self.dirty_blocks -= slot.blocks;
        self.dirty_nodes -= u64::from(slot.dirty);
        Some((slot.node, slot.dirty))
    }

    /// The node has been written: it keeps its place and is clean.
    pub fn cleaned(&mut self, id: NodeId) {
        if let Some(slot) = self.slots.get_mut(&id)
            && slot.dirty
        {
            slot.dirty = false;
            self.dirty_bytes -= slot.weight;
            self.dirty_blocks -= std::mem::take(&mut slot.blocks);
            self.dirty_nodes -= 1;
        }
    }

    /// Drops clean nodes, oldest first, until `bytes` are left or all are dirty.
    pub fn shrink_to(&mut self, bytes: usize) {
        if self.bytes <= bytes {
            return;
        }
        let clean: Vec<NodeId> = {
            let order = self.order.values();
            order.filter(|id| self.slots.get(id).is_some_and(|slot| !slot.dirty)).copied().collect()
        };
        for id in clean {
            if self.bytes <= bytes {
                break;
            }
            self.remove(id);
        }
    }

    /// Dirty nodes, oldest first, of `bytes` in all or a little more.
    pub fn oldest_dirty(&self, bytes: usize) -> Vec<Arc<Node>> {
        let mut left = bytes as isize;
        let order = self.order.values();
        let dirty = order.filter_map(|id| self.slots.get(id)).filter(|slot| slot.dirty);
        dirty
            .take_while(|slot| {
                let more = left > 0;
                left -= slot.weight as isize;
                more
            })
            .map(|slot| slot.node.clone())
            .collect()
    }
}
