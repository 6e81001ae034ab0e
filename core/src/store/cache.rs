//! The node cache: which nodes are in memory, and which of them was used longest ago.
//!
//! A node that is used becomes the youngest at once, but its place in the order of ages is updated lazily, when it comes up for
//! eviction or nodes are chosen for write-back. So a lookup costs one map access for each node, and the order is exact
//! where it is used.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::ids::{Height, NodeId};
use crate::node::Node;
use crate::space::Need;
use crate::tuning::{CANDIDATES_PER_END, HEADS_SHARE, LEAVES_SHARE, SCANS_SHARE};

/// Cached nodes, clean and dirty.
#[derive(Default)]
pub(super) struct Lru {
    basement_size: usize,
    slots: HashMap<NodeId, Slot, RandomState>,
    kinds: Kinds,
    tick: u64,
    /// The heights of the roots, as far as they have been here. A new height comes with a new root.
    roots: [Option<Height>; 2],
}

/// The nodes of each kind, and their weights.
#[derive(Default)]
struct Kinds {
    /// Clean leaves that only scans have used: the first to evict.
    scanned: Ages,
    /// Clean nodes with parts that other uses have asked for.
    used: Ages,
    /// Clean nodes whose parts were evicted: only their heads are left.
    heads: Ages,
    dirty_leaves: Ages,
    dirty_internals: Ages,
    /// Dirty internal nodes that have read parts of their runs; those parts can be evicted, and read again.
    dirty_read: Ages,
    /// Weight of all nodes, in bytes.
    bytes: usize,
    dirty_bytes: usize,
    dirty: Dirty,
}

/// Nodes of one kind by age, and their total weight.
#[derive(Default)]
struct Ages {
    order: BTreeMap<u64, NodeId>,
    bytes: usize,
}

impl Ages {
    fn oldest(&self) -> Option<NodeId> {
        self.order.first_key_value().map(|(_, id)| *id)
    }

    /// The age of the oldest node.
    fn first_age(&self) -> u64 {
        self.order.first_key_value().map_or(u64::MAX, |(age, _)| *age)
    }
}

/// Kinds of nodes; each has an eviction or write-back order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scanned,
    Used,
    Head,
    DirtyLeaf,
    DirtyInternal,
    /// Dirty, and being written.
    InFlight,
}

/// The purpose of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A scan of leaves: these are evicted first.
    Scan,
    /// Anything else.
    Other,
}

/// What is dirty.
#[derive(Clone, Copy, Default)]
pub struct Dirty {
    /// Nodes.
    pub nodes: u64,
    /// Internal nodes among them, which may free runs.
    pub internals: u64,
    /// The space that writing them takes.
    pub need: Need,
}

struct Slot {
    node: Arc<Node>,
    weight: usize,
    /// The part of the weight that counts as dirty, for a dirty node; all of it for a clean one. Parts that were read
    /// do not count, so that write-back does not depend on reads.
    own: usize,
    /// The node's load counter when it was last weighed.
    loaded: u64,
    /// What the node adds to the dirty totals; `None` if clean.
    part: Option<Dirty>,
    kind: Kind,
    /// The most important use of its parts.
    purpose: Use,
    /// Whether something other than a scan has used its head.
    keeps_head: bool,
    age: u64,
    /// Its key in the order of its kind: its age, or the age at which it entered that order.
    listed: u64,
}

impl Slot {
    /// The kind of the node when it is clean and has parts.
    fn clean_kind(&self) -> Kind {
        match self.purpose {
            Use::Scan => Kind::Scanned,
            Use::Other => Kind::Used,
        }
    }

    /// Whether it is a dirty internal node with parts that can be read again.
    fn is_dirty_read(&self) -> bool {
        self.kind == Kind::DirtyInternal && self.weight > self.own
    }

    /// Weighs the node again.
    fn weigh(&mut self) {
        // A reader may load parts at the same time; it weighs the node again when it is done.
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

    /// Removes a slot from the totals and orders before it changes or is evicted.
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

    /// Adds a slot to the totals and orders as it is now.
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
    /// An empty cache. `basement_size` is the basement size for estimates of encoded nodes.
    pub(super) fn new(basement_size: usize) -> Lru {
        Lru { basement_size, ..Lru::default() }
    }

    /// All cached nodes.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.slots.values().map(|slot| &slot.node)
    }

    /// The weight of all nodes.
    pub(super) fn bytes(&self) -> usize {
        self.kinds.bytes
    }

    /// The weight of dirty nodes, without the parts read from the device.
    pub(super) fn dirty_bytes(&self) -> usize {
        self.kinds.dirty_bytes
    }

    /// Totals of the dirty nodes.
    pub(super) fn dirty(&self) -> Dirty {
        self.kinds.dirty
    }

    /// Panics if the totals or orders differ from the slots.
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

    /// A cached node, which becomes the youngest.
    pub(super) fn get(&mut self, id: NodeId, purpose: Use) -> Option<Arc<Node>> {
        let slot = self.slots.get_mut(&id)?;
        self.tick += 1;
        // Its kind may change.
        let is_scanned = slot.kind == Kind::Scanned;
        if is_scanned {
            self.kinds.leave(slot);
        }
        slot.age = self.tick;
        slot.keeps_head |= purpose != Use::Scan;
        // The more important use counts. A head has lost its parts, so the use of its next parts counts.
        slot.purpose = if slot.kind == Kind::Head { purpose } else { slot.purpose.max(purpose) };
        if is_scanned {
            slot.kind = slot.clean_kind();
            self.kinds.enter(id, slot);
        }
        Some(slot.node.clone())
    }

    /// Removes a slot.
    fn take(&mut self, id: NodeId) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        self.kinds.leave(&slot);
        Some(slot)
    }

    /// Changes a slot in place; its kind may change.
    fn change(&mut self, id: NodeId, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.slots.get_mut(&id) {
            self.kinds.leave(slot);
            change(slot);
            self.kinds.enter(id, slot);
        }
    }

    /// Weighs a node again if it has loaded parts.
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

    /// Whether the node is cached.
    pub(super) fn has(&self, id: NodeId) -> bool {
        self.slots.contains_key(&id)
    }

    /// Whether at least half of the parts of a node of `bytes` bytes are cached.
    pub(super) fn has_most(&self, id: NodeId, bytes: u64) -> bool {
        let has = |slot: &Slot| slot.loaded >= bytes / 2 || !slot.node.has_head();
        self.slots.get(&id).is_some_and(has)
    }

    /// Whether the node is cached and dirty.
    pub(super) fn is_dirty(&self, id: NodeId) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.part.is_some())
    }

    /// Adds a node as the youngest.
    pub(super) fn put(&mut self, node: Arc<Node>, dirty: bool, purpose: Use) {
        let (id, tree) = (node.id(), node.tree());
        self.remove(id);
        if id == tree.root() {
            self.roots[tree as usize] = Some(node.height());
        }
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

    /// The heights of the roots that have been here, in the order of the trees.
    pub(super) fn heights(&self) -> [Option<Height>; 2] {
        self.roots
    }

    /// Removes a node.
    pub(super) fn remove(&mut self, id: NodeId) -> Option<Arc<Node>> {
        self.take(id).map(|slot| slot.node)
    }

    /// The bytes of these nodes that count as dirty.
    pub(super) fn dirty_of(&self, nodes: &[Arc<Node>]) -> usize {
        nodes.iter().filter_map(|node| self.slots.get(&node.id())).map(|slot| slot.own).sum()
    }

    /// Starts the write-back of nodes: they are in flight until it finishes or aborts.
    pub(super) fn fly(&mut self, nodes: &[Arc<Node>]) {
        for node in nodes {
            self.change(node.id(), |slot| {
                if slot.part.is_some() {
                    slot.kind = Kind::InFlight;
                }
            });
        }
    }

    /// The write-back has finished: the node keeps its age and is clean.
    pub(super) fn cleaned(&mut self, id: NodeId) {
        self.change(id, |slot| {
            if slot.part.take().is_some() {
                slot.kind = slot.clean_kind();
                slot.own = slot.weight;
            }
        });
    }

    /// Replaces a node by one with the same content; it keeps its age.
    pub(super) fn replace(&mut self, node: Arc<Node>) {
        let id = node.id();
        let basement_size = self.basement_size;
        self.change(id, |slot| {
            slot.part = slot.part.map(|_| Dirty::of(&node, basement_size));
            slot.node = node;
            slot.weigh();
        });
    }

    /// The write-back was aborted: the nodes are dirty as before.
    pub(super) fn abort_writeback(&mut self, nodes: &[Arc<Node>]) {
        for node in nodes {
            self.change(node.id(), |slot| {
                if slot.kind == Kind::InFlight {
                    slot.kind =
                        if node.height().0 == 0 { Kind::DirtyLeaf } else { Kind::DirtyInternal };
                }
            });
        }
    }

    /// Updates the orders for eviction until the first of each is really the oldest: nodes that were used since they
    /// were listed move back.
    fn settle_oldest(&mut self) {
        let orders: [fn(&Kinds) -> &Ages; 3] =
            [|kinds| &kinds.used, |kinds| &kinds.heads, |kinds| &kinds.dirty_read];
        for of in orders {
            while let Some(id) = of(&self.kinds).oldest()
                && let Some(slot) = self.slots.get_mut(&id)
                && slot.age != slot.listed
            {
                self.kinds.leave(slot);
                self.kinds.enter(id, slot);
            }
        }
    }

    /// Updates the orders of dirty nodes.
    fn settle_dirty(&mut self) {
        let Kinds { dirty_leaves, dirty_internals, .. } = &self.kinds;
        let all = dirty_leaves.order.iter().chain(&dirty_internals.order);
        let is_used =
            |id: &NodeId, listed: u64| self.slots.get(id).is_some_and(|slot| slot.age != listed);
        let used: Vec<NodeId> =
            all.filter(|(listed, id)| is_used(id, **listed)).map(|(_, id)| *id).collect();
        for id in used {
            self.change(id, |_| {});
        }
    }

    /// Evicts clean nodes until at most `bytes` are left or all is dirty. Leaves of scans go first while they exceed
    /// 1/`SCANS_SHARE` of the clean bytes, so that prefetched ones stay. Then the parts of the least recently used
    /// nodes go. Their heads stay up to `HEADS_SHARE` of the clean bytes: they are short, and no part can be read
    /// without one. Of dirty internal nodes the parts that were read of their runs are evicted.
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

    /// The next write-back victims where memory is short: the oldest leaves, `bytes` or a little more of them, or one
    /// internal node. A leaf rarely changes again soon, and an internal node soon does. But if leaves are few
    /// (1/`LEAVES_SHARE` of internal nodes), they may be those being filled, and an internal node is written. It is
    /// the one with the largest product of weight and expected time until its next messages; of equal ones, the oldest.
    pub(super) fn next_to_write(&mut self, bytes: usize, now: u64) -> Vec<Arc<Node>> {
        self.settle_dirty();
        let (leaves, internals) = (&self.kinds.dirty_leaves, &self.kinds.dirty_internals);
        if LEAVES_SHARE * leaves.bytes < internals.bytes {
            let cost = |slot: &&Slot| match &*slot.node {
                Node::Internal(node) => node.until_next(now).saturating_mul(slot.own as u64),
                Node::Leaf(_) => 0,
            };
            // The youngest nodes have the longest time to wait; the oldest are overdue. So only both ends are compared.
            let ids = internals.order.values();
            let ids = ids
                .clone()
                .rev()
                .take(CANDIDATES_PER_END)
                .chain(ids.take(CANDIDATES_PER_END).rev());
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

    /// All dirty nodes, leaves first, each kind from the oldest on. No node may be in flight.
    pub(super) fn all_dirty(&mut self) -> Vec<Arc<Node>> {
        self.settle_dirty();
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

    /// A cache of nodes, each given by id, whether it is dirty, and its use.
    fn filled(nodes: &[(u64, bool, Use)]) -> Lru {
        let mut lru = Lru::new(4096);
        for (id, dirty, purpose) in nodes {
            lru.put(leaf(*id), *dirty, *purpose);
        }
        lru.check_invariants();
        lru
    }

    /// The ids left after each eviction, with room for one leaf less each time.
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
        lru.abort_writeback(std::slice::from_ref(&one));
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
