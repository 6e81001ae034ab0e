//! Which nodes are in memory, and which of them was asked for longest ago.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ids::NodeId;
use crate::node::Node;
use crate::space::Need;

/// Heads alone take at most one of so many parts of the cache, as long as there is anything else to drop.
const HEADS_SHARE: usize = 2;
/// Leaves are few while they weigh less than one of so many parts of what internal nodes do.
const LEAVES_SHARE: usize = 3;

/// Nodes in memory, clean and dirty.
#[derive(Default)]
pub(super) struct Lru {
    basement_size: usize,
    slots: HashMap<NodeId, Slot>,
    /// Clean nodes by age; of leaves that a scan came by, nobody expects to see them again soon.
    clean: BTreeMap<(Use, u64), NodeId>,
    /// What is left of clean nodes whose parts were dropped: their heads, by age, and the weight of these.
    heads: Ages,
    /// Dirty nodes that are not in flight, by age.
    dirty_leaves: Ages,
    dirty_internals: Ages,
    tick: u64,
    bytes: usize,
    dirty_bytes: usize,
    dirty: Dirty,
}

/// Nodes of one kind by age, and their weight together.
#[derive(Default)]
struct Ages {
    order: BTreeMap<u64, NodeId>,
    bytes: usize,
}

/// What a node was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A leaf to be scanned: the first to go.
    Scan,
    /// Anything else.
    Other,
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
    /// Whether it is in flight: dirty, but not for long.
    flies: bool,
    /// Whether it is one of the heads.
    is_head: bool,
    /// Its place in the order of its kind.
    age: (Use, u64),
}

impl Slot {
    /// Whether it is dirty, and not in flight.
    fn waits(&self) -> bool {
        self.part.is_some() && !self.flies
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

    /// The weight of all nodes.
    pub fn bytes(&self) -> usize {
        self.bytes
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
        let (age, tick) = (slot.age, self.tick);
        // What was wanted for something else stays so.
        let wanted = if slot.part.is_some() { age.0 } else { age.0.max(purpose) };
        slot.age = (wanted, tick);
        let node = slot.node.clone();
        if slot.is_head {
            self.heads.order.remove(&age.1);
            self.heads.order.insert(tick, id);
        } else if slot.part.is_none() {
            self.clean.remove(&age);
            self.clean.insert((wanted, tick), id);
        } else if slot.waits() {
            let order = &mut self.ages(&node).order;
            order.remove(&age.1);
            order.insert(tick, id);
        }
        Some(node)
    }

    /// Where a dirty node is ordered.
    fn ages(&mut self, node: &Node) -> &mut Ages {
        match node {
            Node::Leaf(_) => &mut self.dirty_leaves,
            Node::Internal(_) => &mut self.dirty_internals,
        }
    }

    /// A dirty node is not one that waits to be written any more.
    fn take_off(&mut self, slot: &Slot) {
        let ages = self.ages(&slot.node);
        ages.order.remove(&slot.age.1);
        ages.bytes -= slot.weight;
    }

    /// Weighs a node afresh, if it has loaded parts.
    pub fn weigh(&mut self, id: NodeId) {
        if let Some(slot) = self.slots.get_mut(&id)
            && slot.loaded != slot.node.loaded()
        {
            let (before, after) = (slot.weight, slot.node.weight());
            (slot.weight, slot.loaded) = (after, slot.node.loaded());
            let (node, dirty, waits) = (slot.node.clone(), slot.part.is_some(), slot.waits());
            if std::mem::take(&mut slot.is_head) {
                self.heads.order.remove(&slot.age.1);
                self.heads.bytes -= before;
                self.clean.insert(slot.age, id);
            }
            self.bytes = self.bytes - before + after;
            if dirty {
                self.dirty_bytes = self.dirty_bytes - before + after;
            }
            if waits {
                let ages = self.ages(&node);
                ages.bytes = ages.bytes - before + after;
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
                let tick = self.tick;
                let ages = self.ages(&node);
                ages.order.insert(tick, id);
                ages.bytes += weight;
            }
            None => drop(self.clean.insert(age, id)),
        }
        let loaded = node.loaded();
        let (flies, is_head) = (false, false);
        self.slots.insert(id, Slot { node, weight, loaded, part, flies, is_head, age });
    }

    /// Takes a node out.
    pub fn remove(&mut self, id: NodeId) -> Option<Arc<Node>> {
        let slot = self.slots.remove(&id)?;
        self.bytes -= slot.weight;
        match slot.part {
            Some(part) => {
                self.dirty_bytes -= slot.weight;
                self.dirty.take_off(part);
                if slot.waits() {
                    self.take_off(&slot);
                }
            }
            None if slot.is_head => {
                self.heads.order.remove(&slot.age.1);
                self.heads.bytes -= slot.weight;
            }
            None => drop(self.clean.remove(&slot.age)),
        }
        Some(slot.node)
    }

    /// Nodes are going to be written while they stay as they are.
    pub fn fly(&mut self, nodes: &[Arc<Node>]) {
        for node in nodes {
            if let Some(mut slot) = self.slots.remove(&node.id()) {
                if slot.waits() {
                    self.take_off(&slot);
                    slot.flies = true;
                }
                self.slots.insert(node.id(), slot);
            }
        }
    }

    /// The node has been written: it keeps its age and is clean.
    pub fn cleaned(&mut self, id: NodeId) {
        if let Some(mut slot) = self.slots.remove(&id) {
            if slot.waits() {
                self.take_off(&slot);
            }
            if let Some(part) = slot.part.take() {
                self.dirty_bytes -= slot.weight;
                self.dirty.take_off(part);
                slot.flies = false;
                self.clean.insert(slot.age, id);
            }
            self.slots.insert(id, slot);
        }
    }

    /// Drops what is clean, oldest first, until `bytes` are left or all is dirty. Of a node with parts the head
    /// stays at first, which is short, and without which no part can be read; but not after a scan.
    pub fn shrink_to(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let too_many = self.heads.bytes > bytes / HEADS_SHARE;
            let oldest = self.clean.first_key_value().map(|(_, id)| *id);
            let oldest_head = self.heads.order.first_key_value().map(|(_, id)| *id);
            let (first, second) =
                if too_many { (oldest_head, oldest) } else { (oldest, oldest_head) };
            let Some(id) = first.or(second) else { return };
            let Some(Slot { age, is_head, .. }) = self.slots.get(&id) else { return };
            let (age, keeps) = (*age, !is_head && age.0 == Use::Other);
            if let Some(mut node) = self.remove(id)
                && keeps
                && node.has_parts()
            {
                Arc::make_mut(&mut node).forget_parts();
                self.put_head(node, age);
            }
        }
    }

    fn put_head(&mut self, node: Arc<Node>, age: (Use, u64)) {
        let (id, weight, loaded) = (node.id(), node.weight(), node.loaded());
        self.bytes += weight;
        self.heads.bytes += weight;
        self.heads.order.insert(age.1, id);
        let (part, flies, is_head) = (None, false, true);
        self.slots.insert(id, Slot { node, weight, loaded, part, flies, is_head, age });
    }

    /// What is to be written next where memory is short, and its weight: the oldest leaves, which weigh `bytes`
    /// or a little more, or the oldest internal node. A leaf has got what it will get for a while, an internal
    /// node is going to be changed again; but a few leaves may be those that are being filled.
    pub fn next_to_write(&self, bytes: usize) -> (Vec<Arc<Node>>, usize) {
        let (leaves, internals) = (&self.dirty_leaves, &self.dirty_internals);
        let few = LEAVES_SHARE * leaves.bytes < internals.bytes;
        let ids = if few { &internals.order } else { &leaves.order };
        let mut nodes = Vec::new();
        let mut weight = 0;
        for slot in ids.values().filter_map(|id| self.slots.get(id)) {
            weight += slot.weight;
            nodes.push(slot.node.clone());
            if few || weight >= bytes {
                break;
            }
        }
        (nodes, weight)
    }

    /// All dirty nodes, leaves first, and the oldest of each kind; none is in flight.
    pub fn all_dirty(&self) -> Vec<Arc<Node>> {
        let ids = self.dirty_leaves.order.values().chain(self.dirty_internals.order.values());
        ids.filter_map(|id| self.slots.get(id)).map(|slot| slot.node.clone()).collect()
    }
}
