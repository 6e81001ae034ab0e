//! Which nodes are in memory, and which of them was asked for longest ago.
//!
//! A clean node that is asked for becomes younger at once, but changes its place in the order of ages only when it
//! would be the next to go: so a lookup costs a look at a map for each node, and the order is exact where it is used.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::ids::{Height, NodeId};
use crate::node::Node;
use crate::space::Need;
use crate::tuning::{CANDIDATES, HEADS_SHARE, LEAVES_SHARE, SCANS_SHARE};

/// Nodes in memory, clean and dirty.
#[derive(Default)]
pub(super) struct Lru {
    basement_size: usize,
    slots: HashMap<NodeId, Slot, RandomState>,
    kinds: Kinds,
    tick: u64,
}

/// Which nodes are of which kind, and what they weigh.
#[derive(Default)]
struct Kinds {
    /// Leaves that a scan came by: nobody expects to see them again soon.
    scanned: Ages,
    /// Clean nodes that were wanted for something else.
    used: Ages,
    /// What is left of clean nodes whose parts were dropped: their heads.
    heads: Ages,
    dirty_leaves: Ages,
    dirty_internals: Ages,
    /// Those of the latter of whose runs something is in memory, which can be read again.
    dirty_read: Ages,
    /// What nodes weigh.
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

impl Ages {
    fn oldest(&self) -> Option<NodeId> {
        self.order.first_key_value().map(|(_, id)| *id)
    }

    /// The age of its oldest.
    fn first_age(&self) -> u64 {
        self.order.first_key_value().map_or(u64::MAX, |(age, _)| *age)
    }
}

/// The kinds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scanned,
    Used,
    Head,
    DirtyLeaf,
    DirtyInternal,
    /// Dirty, but not for long.
    InFlight,
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
    /// Those of them that are internal, and may give runs up.
    pub internals: u64,
    /// What writing them takes.
    pub need: Need,
}

struct Slot {
    node: Arc<Node>,
    weight: usize,
    /// What of that counts as dirty, while it is, or all of it: not what was read of it, so that what is written does
    /// not depend on what was read.
    own: usize,
    /// What it had read when it was weighed.
    loaded: u64,
    /// What it adds to what is dirty; nothing for a clean one.
    part: Option<Dirty>,
    kind: Kind,
    /// What its parts are wanted for.
    purpose: Use,
    /// Whether its head was wanted by others than scans.
    keeps_head: bool,
    age: u64,
    /// The age that it has in the order of its kind: that at which it came there, or its own.
    listed: u64,
}

impl Slot {
    /// The kind that it is of when it is clean, with its parts.
    fn clean_kind(&self) -> Kind {
        match self.purpose {
            Use::Scan => Kind::Scanned,
            Use::Other => Kind::Used,
        }
    }

    /// Whether it has read something that it could read again, though it is dirty.
    fn is_dirty_read(&self) -> bool {
        self.kind == Kind::DirtyInternal && self.weight > self.own
    }

    /// Weighs the node as it is now.
    fn weigh(&mut self) {
        // What somebody is reading meanwhile is weighed when he has.
        self.loaded = self.node.loaded();
        self.weight = self.node.weight();
        self.own = if self.part.is_some() { self.node.own_weight() } else { self.weight };
    }
}

impl Dirty {
    fn of(node: &Node, basement_size: usize) -> Dirty {
        let internals = u64::from(node.height() > Height(0));
        Dirty { nodes: 1, internals, need: node.need(basement_size) }
    }

    fn add(&mut self, part: Dirty) {
        self.nodes += part.nodes;
        self.internals += part.internals;
        self.need = self.need + part.need;
    }

    fn take_off(&mut self, part: Dirty) {
        self.nodes -= part.nodes;
        self.internals -= part.internals;
        self.need = self.need - part.need;
    }
}

impl Kinds {
    fn all(&self) -> [&Ages; 6] {
        let Kinds { scanned, used, heads, dirty_leaves, dirty_internals, dirty_read, .. } = self;
        [scanned, used, heads, dirty_leaves, dirty_internals, dirty_read]
    }

    fn of(&mut self, kind: Kind) -> Option<&mut Ages> {
        match kind {
            Kind::Scanned => Some(&mut self.scanned),
            Kind::Used => Some(&mut self.used),
            Kind::Head => Some(&mut self.heads),
            Kind::DirtyLeaf => Some(&mut self.dirty_leaves),
            Kind::DirtyInternal => Some(&mut self.dirty_internals),
            Kind::InFlight => None,
        }
    }

    /// A slot is going to change, or to go: it does not count any more.
    fn leave(&mut self, slot: &Slot) {
        self.bytes -= slot.weight;
        if let Some(part) = slot.part {
            self.dirty_bytes -= slot.own;
            self.dirty.take_off(part);
        }
        if let Some(ages) = self.of(slot.kind) {
            ages.order.remove(&slot.listed);
            ages.bytes -= slot.own;
        }
        if slot.is_dirty_read() {
            self.dirty_read.order.remove(&slot.listed);
        }
    }

    /// A slot counts as it is now.
    fn enter(&mut self, id: NodeId, slot: &mut Slot) {
        slot.listed = slot.age;
        self.bytes += slot.weight;
        if let Some(part) = slot.part {
            self.dirty_bytes += slot.own;
            self.dirty.add(part);
        }
        if let Some(ages) = self.of(slot.kind) {
            ages.order.insert(slot.age, id);
            ages.bytes += slot.own;
        }
        if slot.is_dirty_read() {
            self.dirty_read.order.insert(slot.age, id);
        }
    }
}

impl Lru {
    /// Without nodes; they will be written with basements of this size.
    pub(super) fn new(basement_size: usize) -> Lru {
        Lru { basement_size, ..Lru::default() }
    }

    /// All nodes that are in memory.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.slots.values().map(|slot| &slot.node)
    }

    /// The weight of all nodes.
    pub(super) fn bytes(&self) -> usize {
        self.kinds.bytes
    }

    /// The weight of dirty nodes, without what was read of them.
    pub(super) fn dirty_bytes(&self) -> usize {
        self.kinds.dirty_bytes
    }

    /// What is dirty.
    pub(super) fn dirty(&self) -> Dirty {
        self.kinds.dirty
    }

    /// Panics if what is counted is not what there is.
    pub(super) fn check_invariants(&self) {
        let (mut counted, mut bytes, mut dirty_bytes) = (Kinds::default(), 0, 0);
        for (id, slot) in &self.slots {
            assert_eq!(*id, slot.node.id(), "the name of a node");
            assert!(slot.own <= slot.weight, "{id} is heavier without what was read of it");
            bytes += slot.weight;
            if let Some(part) = slot.part {
                dirty_bytes += slot.own;
                counted.dirty.add(part);
            }
            if slot.is_dirty_read() {
                counted.dirty_read.order.insert(slot.listed, *id);
            }
            if let Some(ages) = counted.of(slot.kind) {
                ages.order.insert(slot.listed, *id);
                ages.bytes += slot.own;
            }
        }
        assert_eq!(self.kinds.bytes, bytes, "the weight of all nodes");
        assert_eq!(self.kinds.dirty_bytes, dirty_bytes, "the weight of dirty nodes");
        let (known, found) = (self.kinds.dirty, counted.dirty);
        let told = |dirty: Dirty| (dirty.nodes, dirty.internals, dirty.need);
        assert_eq!(told(known), told(found), "what is dirty");
        for (known, found) in self.kinds.all().into_iter().zip(counted.all()) {
            assert_eq!(known.bytes, found.bytes, "the weight of one kind");
            assert!(known.order == found.order, "the order of one kind");
        }
    }

    /// A node, which becomes the youngest.
    pub(super) fn get(&mut self, id: NodeId, purpose: Use) -> Option<Arc<Node>> {
        let slot = self.slots.get_mut(&id)?;
        self.tick += 1;
        let waits = matches!(slot.kind, Kind::Used | Kind::Head);
        if !waits {
            self.kinds.leave(slot);
        }
        slot.age = self.tick;
        slot.keeps_head |= purpose != Use::Scan;
        // What was wanted for something else stays so; but of a head the parts have gone.
        slot.purpose = if slot.kind == Kind::Head { purpose } else { slot.purpose.max(purpose) };
        if slot.kind == Kind::Scanned {
            slot.kind = slot.clean_kind();
        }
        if !waits {
            self.kinds.enter(id, slot);
        }
        Some(slot.node.clone())
    }

    /// Takes a slot out.
    fn take(&mut self, id: NodeId) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        self.kinds.leave(&slot);
        Some(slot)
    }

    /// Changes a slot where it is, which may become one of another kind.
    fn change(&mut self, id: NodeId, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.slots.get_mut(&id) {
            self.kinds.leave(slot);
            change(slot);
            self.kinds.enter(id, slot);
        }
    }

    /// Weighs a node afresh, if it has loaded parts.
    pub(super) fn weigh(&mut self, id: NodeId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if slot.loaded == slot.node.loaded() {
            return;
        }
        if slot.kind == Kind::Used {
            let before = slot.weight;
            slot.weigh();
            self.kinds.bytes = self.kinds.bytes - before + slot.weight;
            self.kinds.used.bytes = self.kinds.used.bytes - before + slot.weight;
            return;
        }
        self.kinds.leave(slot);
        slot.weigh();
        if slot.kind == Kind::Head {
            slot.kind = slot.clean_kind();
        }
        self.kinds.enter(id, slot);
    }

    /// Whether the node is here.
    pub(super) fn has(&self, id: NodeId) -> bool {
        self.slots.contains_key(&id)
    }

    /// Whether the node is here with parts of it, or as a whole.
    pub(super) fn has_parts(&self, id: NodeId) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.loaded > 0 || !slot.node.has_head())
    }

    /// Whether the node is here and dirty.
    pub(super) fn is_dirty(&self, id: NodeId) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.part.is_some())
    }

    /// Puts a node in, as the youngest.
    pub(super) fn put(&mut self, node: Arc<Node>, dirty: bool, purpose: Use) {
        let id = node.id();
        self.remove(id);
        self.tick += 1;
        let (listed, age) = (self.tick, self.tick);
        let part = dirty.then(|| Dirty::of(&node, self.basement_size));
        let kind = match (&*node, purpose) {
            (Node::Leaf(_), _) if dirty => Kind::DirtyLeaf,
            (Node::Internal(_), _) if dirty => Kind::DirtyInternal,
            (_, Use::Scan) => Kind::Scanned,
            (_, Use::Other) => Kind::Used,
        };
        let keeps_head = purpose != Use::Scan;
        let (weight, own, loaded) = (0, 0, 0);
        let mut slot =
            Slot { node, weight, own, loaded, part, kind, purpose, keeps_head, age, listed };
        slot.weigh();
        self.kinds.enter(id, &mut slot);
        self.slots.insert(id, slot);
    }

    /// Takes a node out.
    pub(super) fn remove(&mut self, id: NodeId) -> Option<Arc<Node>> {
        self.take(id).map(|slot| slot.node)
    }

    /// What of nodes counts as dirty.
    pub(super) fn dirty_of(&self, nodes: &[Arc<Node>]) -> usize {
        nodes.iter().filter_map(|node| self.slots.get(&node.id())).map(|slot| slot.own).sum()
    }

    /// Nodes are going to be written while they stay as they are.
    pub(super) fn fly(&mut self, nodes: &[Arc<Node>]) {
        for node in nodes {
            self.change(node.id(), |slot| {
                if slot.part.is_some() {
                    slot.kind = Kind::InFlight;
                }
            });
        }
    }

    /// The node has been written: it keeps its age and is clean.
    pub(super) fn cleaned(&mut self, id: NodeId) {
        self.change(id, |slot| {
            if slot.part.take().is_some() {
                slot.kind = slot.clean_kind();
                slot.own = slot.weight;
            }
        });
    }

    /// The node is now this one, which says the same; it keeps its age.
    pub(super) fn replace(&mut self, node: Arc<Node>) {
        let id = node.id();
        let basement_size = self.basement_size;
        self.change(id, |slot| {
            slot.part = slot.part.map(|_| Dirty::of(&node, basement_size));
            slot.node = node;
            slot.weigh();
        });
    }

    /// Nodes were going to be written, but could not be: they are dirty as before.
    pub(super) fn turn_back(&mut self, nodes: &[Arc<Node>]) {
        for node in nodes {
            self.change(node.id(), |slot| {
                if slot.kind == Kind::InFlight {
                    slot.kind =
                        if node.height().0 == 0 { Kind::DirtyLeaf } else { Kind::DirtyInternal };
                }
            });
        }
    }

    /// The first in the orders of clean nodes become the oldest of them: others are where they came in, but were asked
    /// for since.
    fn settle_oldest(&mut self) {
        for ages in [&mut self.kinds.used, &mut self.kinds.heads] {
            while let Some((listed, id)) = ages.order.first_key_value().map(|(age, id)| (*age, *id))
                && let Some(slot) = self.slots.get_mut(&id)
                && slot.age != listed
            {
                slot.listed = slot.age;
                ages.order.remove(&listed);
                ages.order.insert(slot.age, id);
            }
        }
    }

    /// Drops what is clean until `bytes` are left or all is dirty: first what scans have read, but for what they
    /// are about to come to; then the parts of nodes that were not asked for longest. The heads of these stay,
    /// which are short, and without which no part can be read, until there are too many. Of an internal node that is dirty
    /// what was read of its runs is clean.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        while self.kinds.bytes > bytes {
            self.settle_oldest();
            let Kinds { scanned, used, heads, dirty_read, .. } = &self.kinds;
            let clean = bytes.saturating_sub(self.kinds.dirty_bytes);
            let older = |a, b| std::cmp::min_by_key(a, b, |ages: &&Ages| ages.first_age());
            let used = older(used, dirty_read);
            let heads_max = (clean as f64 * HEADS_SHARE) as usize;
            let too_many = (heads.bytes > heads_max, scanned.bytes > clean / SCANS_SHARE);
            let order = match too_many {
                (true, _) => [heads, scanned, used],
                (false, true) => [scanned, used, heads],
                (false, false) => [used, scanned, heads],
            };
            let Some(id) = order.into_iter().find_map(Ages::oldest) else { return };
            let Some(slot) = self.slots.get_mut(&id) else { return };
            let stays = slot.kind == Kind::DirtyInternal
                || slot.kind != Kind::Head && slot.keeps_head && slot.node.has_head();
            if !stays {
                self.take(id);
                continue;
            }
            self.kinds.leave(slot);
            Arc::make_mut(&mut slot.node).forget_parts();
            slot.weigh();
            if slot.kind != Kind::DirtyInternal {
                slot.kind = Kind::Head;
            }
            self.kinds.enter(id, slot);
        }
    }

    /// What is to be written next where memory is short: the oldest leaves, which weigh `bytes` or a little
    /// more, or an internal node. A leaf has got what it will get for a while, an internal node is
    /// going to be changed again, but a few leaves may be those that are being filled. The internal node is that which would
    /// take the most memory for the longest time before more messages come to it; of several, the oldest.
    pub(super) fn next_to_write(&self, bytes: usize, now: u64) -> Vec<Arc<Node>> {
        let (leaves, internals) = (&self.kinds.dirty_leaves, &self.kinds.dirty_internals);
        if LEAVES_SHARE * leaves.bytes < internals.bytes {
            let cost = |slot: &&Slot| match &*slot.node {
                Node::Internal(node) => node.until_next(now).saturating_mul(slot.own as u64),
                Node::Leaf(_) => 0,
            };
            // The youngest have the longest to wait, but for those that are overdue, which are the oldest.
            let ids = internals.order.values();
            let ids = ids.clone().rev().take(CANDIDATES).chain(ids.take(CANDIDATES).rev());
            let all = ids.filter_map(|id| self.slots.get(id));
            return all.max_by_key(cost).map(|slot| slot.node.clone()).into_iter().collect();
        }
        let mut weight = 0;
        let fits = |slot: &&Slot| {
            let fits = weight < bytes;
            weight += slot.own;
            fits
        };
        let all = leaves.order.values().filter_map(|id| self.slots.get(id));
        all.take_while(fits).map(|slot| slot.node.clone()).collect()
    }

    /// All dirty nodes, leaves first, and the oldest of each kind; none is in flight.
    pub(super) fn all_dirty(&self) -> Vec<Arc<Node>> {
        let ids =
            self.kinds.dirty_leaves.order.values().chain(self.kinds.dirty_internals.order.values());
        ids.filter_map(|id| self.slots.get(id)).map(|slot| slot.node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Action, Bounds, Key};
    use crate::ids::{Height, Msn, TreeId};
    use crate::mutation::assert_caught;
    use crate::node::{Internal, Leaf};

    fn leaf(id: u64) -> Arc<Node> {
        let mut leaf = Leaf::empty(NodeId(id), TreeId::Data, Bounds::default());
        leaf.apply(b"key", Msn(1), &Action::Insert(vec![1; 900].into()));
        Arc::new(Node::Leaf(leaf))
    }

    fn internal(id: u64) -> Arc<Node> {
        let children = vec![(NodeId(90), Key::default())];
        let bounds = Bounds::default();
        Arc::new(Node::Internal(Internal::new(
            NodeId(id),
            TreeId::Data,
            Height(1),
            bounds,
            children,
        )))
    }

    /// Nodes as they come in: id, whether it is dirty, and what it is wanted for.
    fn filled(nodes: &[(u64, bool, Use)]) -> Lru {
        let mut lru = Lru::new(4096);
        for (id, dirty, purpose) in nodes {
            lru.put(leaf(*id), *dirty, *purpose);
        }
        lru.check_invariants();
        lru
    }

    /// What is left when there is room for one leaf less, and again, until nothing goes any more.
    #[test]
    fn clean_nodes_go_in_order() {
        let (scan, other) = (Use::Scan, Use::Other);
        type Nodes = Vec<(u64, bool, Use)>;
        let cases: [(&str, Nodes, &[u64], &[u64]); 5] = [
            (
                "the oldest first",
                vec![(1, false, other), (2, false, other), (3, false, other)],
                &[],
                &[1, 2, 3],
            ),
            (
                "not what was asked for since",
                vec![(1, false, other), (2, false, other)],
                &[1],
                &[2, 1],
            ),
            (
                "scanned leaves before others",
                vec![(1, false, other), (2, false, scan)],
                &[],
                &[2, 1],
            ),
            (
                "a scanned leaf that was asked for is like others",
                vec![(1, false, scan), (2, false, other)],
                &[1],
                &[2, 1],
            ),
            ("nothing that is dirty", vec![(1, true, other), (2, false, other)], &[], &[2]),
        ];
        for (what, nodes, asked, order) in cases {
            let mut lru = filled(&nodes);
            for id in asked {
                lru.get(NodeId(*id), other);
            }
            let mut gone = Vec::new();
            for _ in &nodes {
                lru.shrink_to(lru.bytes() - 1);
                lru.check_invariants();
                gone.extend(
                    nodes
                        .iter()
                        .map(|node| node.0)
                        .filter(|id| !lru.has(NodeId(*id)) && !gone.contains(id))
                        .collect::<Vec<_>>(),
                );
            }
            assert_eq!(gone, order, "{what}");
        }
    }

    #[test]
    fn what_was_written_is_clean() {
        let mut lru = filled(&[(1, true, Use::Other), (2, true, Use::Other)]);
        assert_eq!(lru.dirty().nodes, 2);
        lru.put(internal(3), true, Use::Other);
        let one = lru.get(NodeId(1), Use::Other).unwrap();
        lru.fly(std::slice::from_ref(&one));
        lru.check_invariants();
        lru.turn_back(std::slice::from_ref(&one));
        assert_eq!(lru.dirty().nodes, 3);
        lru.fly(&[one]);
        lru.cleaned(NodeId(1));
        lru.check_invariants();
        assert_eq!(lru.dirty().nodes, 2);
        assert!(!lru.is_dirty(NodeId(1)) && lru.is_dirty(NodeId(2)));
        lru.remove(NodeId(2));
        lru.remove(NodeId(3));
        lru.check_invariants();
        assert_eq!((lru.dirty().nodes, lru.dirty_bytes()), (0, 0));
    }

    #[test]
    fn what_does_not_agree_is_noticed() {
        assert_caught(
            || filled(&[(1, true, Use::Other), (2, false, Use::Other)]),
            Lru::check_invariants,
            &[
                ("the weight of all", |lru| lru.kinds.bytes += 1),
                ("the weight of what is dirty", |lru| lru.kinds.dirty_bytes -= 1),
                ("what is dirty", |lru| lru.kinds.dirty.need.blocks += 1),
                ("the weight of a kind", |lru| lru.kinds.used.bytes += 1),
                ("the order of a kind", |lru| lru.kinds.dirty_leaves.order.clear()),
            ],
        );
    }
}
