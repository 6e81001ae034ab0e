//! Which nodes are in memory, and which of them was asked for longest ago.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ids::NodeId;
use crate::node::Node;
use crate::space::Need;

/// Nodes in memory, clean and dirty.
#[derive(Default)]
pub(super) struct Lru {
    basement_size: usize,
    slots: HashMap<NodeId, Slot>,
    /// Clean nodes by age; of leaves that a scan came by, nobody expects to see them again soon.
    clean: BTreeMap<(Use, u64), NodeId>,
    /// Dirty nodes by age, leaves before internal nodes: a leaf has got what it will get for a while, an
    /// internal node is going to be changed again.
    dirty_order: BTreeMap<(Kind, u64), NodeId>,
    tick: u64,
    bytes: usize,
    dirty_bytes: usize,
    dirty: Dirty,
}

/// What a node was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A leaf to be scanned: the first to go.
    Scan,
    /// Anything else.
    Other,
}

/// Which nodes are written first when memory is short.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Leaf,
    Internal,
}

/// What is dirty.
#[derive(Clone, Copy, Default)]
pub struct Dirty {
    /// Nodes.
    pub nodes: u64,
    /// What writing them takes.
    pub need: Need,
}

struct Slot {
    node: Arc<Node>,
    weight: usize,
    /// What it had read when it was weighed.
    loaded: u64,
    /// What it adds to what is dirty; nothing for a clean one.
    part: Option<Dirty>,
    /// Its place in the order of its kind.
    age: (Use, u64),
}

impl Kind {
    fn of(node: &Node) -> Kind {
        match node {
            Node::Leaf(_) => Kind::Leaf,
            Node::Internal(_) => Kind::Internal,
        }
    }
}

impl Dirty {
    fn of(node: &Node, basement_size: usize) -> Dirty {
        Dirty { nodes: 1, need: node.need(basement_size) }
    }

    fn add(&mut self, part: Dirty) {
        self.nodes += part.nodes;
        self.need = self.need + part.need;
    }

    fn take_off(&mut self, part: Dirty) {
        self.nodes -= part.nodes;
        self.need = self.need - part.need;
    }
}

impl Lru {
    /// Without nodes; they will be written with basements of this size.
    pub fn new(basement_size: usize) -> Lru {
        Lru { basement_size, ..Lru::default() }
    }

    /// The weight of dirty nodes.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes
    }

    /// What is dirty.
    pub fn dirty(&self) -> Dirty {
        self.dirty
    }

    /// A node, which becomes the youngest.
    pub fn get(&mut self, id: NodeId, purpose: Use) -> Option<Arc<Node>> {
        let slot = self.slots.get_mut(&id)?;
        self.tick += 1;
        match slot.part {
            Some(_) => {
                let kind = Kind::of(&slot.node);
                self.dirty_order.remove(&(kind, slot.age.1));
                self.dirty_order.insert((kind, self.tick), id);
            }
            None => {
                self.clean.remove(&slot.age);
                // What was wanted for something else stays so.
                slot.age.0 = slot.age.0.max(purpose);
                self.clean.insert((slot.age.0, self.tick), id);
            }
        }
        slot.age.1 = self.tick;
        Some(slot.node.clone())
    }

    /// Weighs a node afresh, if it has loaded parts.
    pub fn weigh(&mut self, id: NodeId) {
        if let Some(slot) = self.slots.get_mut(&id)
            && slot.loaded != slot.node.loaded()
        {
            let before = std::mem::replace(&mut slot.weight, slot.node.weight());
            slot.loaded = slot.node.loaded();
            self.bytes = self.bytes - before + slot.weight;
            if slot.part.is_some() {
                self.dirty_bytes = self.dirty_bytes - before + slot.weight;
            }
        }
    }

    /// Whether the node is here.
    pub fn has(&self, id: NodeId) -> bool {
        self.slots.contains_key(&id)
    }

    /// Whether the node is here and dirty.
    pub fn is_dirty(&self, id: NodeId) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.part.is_some())
    }

    /// Puts a node in, as the youngest.
    pub fn put(&mut self, node: Arc<Node>, dirty: bool, purpose: Use) {
        let id = node.id();
        self.remove(id);
        let weight = node.weight();
        self.tick += 1;
        self.bytes += weight;
        let age = (purpose, self.tick);
        let part = dirty.then(|| Dirty::of(&node, self.basement_size));
        match part {
            Some(part) => {
                self.dirty_bytes += weight;
                self.dirty.add(part);
                self.dirty_order.insert((Kind::of(&node), self.tick), id);
            }
            None => drop(self.clean.insert(age, id)),
        }
        let loaded = node.loaded();
        self.slots.insert(id, Slot { node, weight, loaded, part, age });
    }

    /// Takes a node out.
    pub fn remove(&mut self, id: NodeId) -> Option<Arc<Node>> {
        let slot = self.slots.remove(&id)?;
        self.bytes -= slot.weight;
        match slot.part {
            Some(part) => {
                self.dirty_bytes -= slot.weight;
                self.dirty.take_off(part);
                self.dirty_order.remove(&(Kind::of(&slot.node), slot.age.1));
            }
            None => drop(self.clean.remove(&slot.age)),
        }
        Some(slot.node)
    }

    /// The node has been written: it keeps its age and is clean.
    pub fn cleaned(&mut self, id: NodeId) {
        if let Some(slot) = self.slots.get_mut(&id)
            && let Some(part) = slot.part.take()
        {
            self.dirty_bytes -= slot.weight;
            self.dirty.take_off(part);
            self.dirty_order.remove(&(Kind::of(&slot.node), slot.age.1));
            self.clean.insert(slot.age, id);
        }
    }

    /// Drops clean nodes, oldest first, until `bytes` are left or all are dirty.
    pub fn shrink_to(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let Some((_, id)) = self.clean.pop_first() else { return };
            if let Some(slot) = self.slots.remove(&id) {
                self.bytes -= slot.weight;
            }
        }
    }

    /// Dirty nodes, leaves first and the oldest of each kind, of `bytes` in all or a little more.
    pub fn oldest_dirty(&self, bytes: usize) -> Vec<Arc<Node>> {
        let mut left = bytes as isize;
        let dirty = self.dirty_order.values().filter_map(|id| self.slots.get(id));
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
