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
    dirty: Dirty,
}

/// What is dirty.
#[derive(Clone, Copy, Default)]
pub struct Dirty {
    /// Nodes.
    pub nodes: u64,
    /// At most how many blocks writing them takes.
    pub blocks: u64,
    /// The part of internal nodes: their runs want long rows of blocks.
    pub internal_blocks: u64,
}

struct Slot {
    node: Arc<Node>,
    dirty: bool,
    weight: usize,
    /// What it adds to what is dirty; nothing for a clean one.
    part: Dirty,
    tick: u64,
}

impl Dirty {
    fn of(node: &Node) -> Dirty {
        let blocks = node.blocks_max();
        let internal_blocks = if node.height().0 > 0 { blocks } else { 0 };
        Dirty { nodes: 1, blocks, internal_blocks }
    }

    fn add(&mut self, part: Dirty) {
        self.nodes += part.nodes;
        self.blocks += part.blocks;
        self.internal_blocks += part.internal_blocks;
    }

    fn take_off(&mut self, part: Dirty) {
        self.nodes -= part.nodes;
        self.blocks -= part.blocks;
        self.internal_blocks -= part.internal_blocks;
    }
}

impl Lru {
    /// The weight of dirty nodes.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes
    }

    /// What is dirty.
    pub fn dirty(&self) -> Dirty {
        self.dirty
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
        let part = if dirty { Dirty::of(&node) } else { Dirty::default() };
        self.dirty_bytes += if dirty { weight } else { 0 };
        self.dirty.add(part);
        self.order.insert(self.tick, id);
        self.slots.insert(id, Slot { node, dirty, weight, part, tick: self.tick });
    }

    /// Takes a node out.
    pub fn remove(&mut self, id: NodeId) -> Option<(Arc<Node>, bool)> {
        let slot = self.slots.remove(&id)?;
        self.order.remove(&slot.tick);
        self.bytes -= slot.weight;
        self.dirty_bytes -= if slot.dirty { slot.weight } else { 0 };
        self.dirty.take_off(slot.part);
        Some((slot.node, slot.dirty))
    }

    /// The node has been written: it keeps its place and is clean.
    pub fn cleaned(&mut self, id: NodeId) {
        if let Some(slot) = self.slots.get_mut(&id)
            && slot.dirty
        {
            slot.dirty = false;
            self.dirty_bytes -= slot.weight;
            self.dirty.take_off(std::mem::take(&mut slot.part));
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
