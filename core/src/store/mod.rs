//! The node store: loads, changes, evicts and writes back nodes, by node id and under a memory budget.
//!
//! The store joins the cache, the allocation table and the allocator. The single writer changes a node through
//! [`Store::edit`], which makes it dirty. A dirty node is written to a new place, as part of the epoch in progress,
//! when memory is short or at a checkpoint. Serialising, hashing and writing run on all cores. Extents are allocated in
//! one fixed order, so the image does not depend on timing.

mod budget;
mod cache;
mod geometry;
mod job;
mod lost;
mod prefetch;
mod writeback;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::{self, NODES_END};
use crate::format::{Birth, Bounds, Entry, Hold, Inflow};
use crate::ids::*;
use crate::log::Late;
use crate::mutation::{Mutation, is_broken};
use crate::node::{Internal, Leaf, Node, SharedInternal};
use crate::poison::Poison;
use crate::space::{Need, Owner, Retired, Space};
use crate::table::Table;
pub use crate::tuning::BASEMENT_SIZE;
use crate::tuning::{BUFFERS_SHARE, CHECKED_BYTES, CHECKED_EDITS};
pub use budget::CacheBudget;
use cache::Lru;
pub use cache::{Dirty, Use};
pub(crate) use geometry::EDGE_MAX;
pub use geometry::Geometry;
pub use lost::LostKeys;
pub use prefetch::Prefetch;
use writeback::Flights;

/// The nodes of one height of a tree that are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The tree.
    pub tree: TreeId,
    /// The height.
    pub height: Height,
    /// Number of nodes.
    pub nodes: u64,
    /// Messages that are pending in them.
    pub messages: u64,
    /// Weight of those messages, in bytes.
    pub pending_bytes: u64,
}

/// The nodes of a volume.
pub struct Store {
    /// The device.
    pub disk: Disk,
    /// The allocator.
    pub space: Space,
    /// The allocation table.
    pub table: Table,
    /// The sizes that shape the trees.
    pub geometry: Geometry,
    /// Late-bound values of the open log group, to be written with their nodes.
    pub late: Late,
    /// Upper bound of the bytes that pending messages can add to leaves.
    inflow: Inflow,
    /// Internal nodes without edges, which wait to be freed.
    dying: Vec<NodeId>,
    /// Number of such nodes that could not be read, or have not been looked for.
    other_dying: u64,
    /// Keys whose values a damaged log has lost: none, unless the volume is open for reading only or is being repaired.
    pub lost: LostKeys,
    /// Whether a rewritten node takes no more blocks than it needs (set while space is short).
    compact: bool,
    /// Nodes whose extent was contiguous and was scattered while space was short.
    scattered_nodes: BTreeSet<NodeId>,
    /// Poisoned after a failure half way: the nodes in memory are then not to be trusted.
    pub(crate) poison: Poison,
    birth: Birth,
    next_node: NodeId,
    write_seq: u64,
    /// Advances whenever messages come to a node.
    clock: u64,
    /// Number of edits so far; counted in debug builds only.
    edits: u64,
    budget: CacheBudget,
    cache: Arc<Mutex<Lru>>,
    flights: Flights,
    /// The leaf that is being read because a buffer will be flushed to it.
    prefetch: Option<(NodeId, Prefetch)>,
}

fn other_kind(id: NodeId, expected: &str, found: &str) -> Error {
    Error::corrupt(Place::Node { id, byte: None }, Fault::mismatch("node", expected, found))
}

/// Refuses a root, to which no edge leads, before an edge to it is removed.
fn expect_no_root(id: NodeId) -> Result<()> {
    match TreeId::ALL.iter().all(|tree| tree.root() != id) {
        true => Ok(()),
        false => {
            let fault = Fault::mismatch("child", "another node than a root", id);
            Err(Error::corrupt(Place::Node { id, byte: None }, fault))
        }
    }
}

fn locked(cache: &Mutex<Lru>) -> MutexGuard<'_, Lru> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// A store for the epoch of `birth`, which is in progress.
    pub fn new(
        disk: Disk,
        space: Space,
        table: Table,
        geometry: Geometry,
        birth: Birth,
        next_node: NodeId,
        budget: CacheBudget,
    ) -> Store {
        let largest = geometry.between_size(space.blocks());
        Store {
            disk,
            space,
            table,
            geometry,
            late: Late::default(),
            inflow: Inflow::default(),
            dying: Vec::new(),
            other_dying: 0,
            lost: LostKeys::default(),
            compact: false,
            scattered_nodes: BTreeSet::new(),
            poison: Poison::default(),
            birth,
            next_node,
            write_seq: 0,
            clock: 0,
            edits: 0,
            budget: budget.without_work(largest),
            cache: Arc::new(Mutex::new(Lru::new(geometry.basement_size as usize))),
            flights: Flights::default(),
            prefetch: None,
        }
    }

    /// Sets the inflow that the superblock states.
    pub fn with_inflow(self, inflow: Inflow) -> Store {
        Store { inflow, ..self }
    }

    /// Sets the nodes without edges that wait to be freed, as far as they are known, and the number of all of them.
    pub fn with_dying(self, dying: Vec<NodeId>, all: u64) -> Store {
        let other_dying = all.saturating_sub(dying.len() as u64);
        Store { dying, other_dying, ..self }
    }

    /// Number of nodes without edges that wait to be freed.
    pub fn dying(&self) -> u64 {
        self.dying.len() as u64 + self.other_dying
    }

    /// The node of them that is freed next.
    pub fn next_dying(&self) -> Option<NodeId> {
        self.dying.last().copied()
    }

    /// The buffer weight above which a node flushes, in bytes. Usually the geometry's; less where the nodes of one step
    /// would not fit into the cache.
    pub fn buffers_max(&self, node: &Internal) -> usize {
        let Geometry { node_size, leaf_size, .. } = self.geometry;
        let is_between = node.id != node.tree.root() && node.height > Height(1);
        let size = match is_between {
            true => self.geometry.between_size(self.space.blocks()),
            false => node_size,
        };
        (size as usize).min((self.budget.total_bytes / BUFFERS_SHARE).max(leaf_size as usize))
    }

    /// Volume, and number and nonce of the epoch in progress.
    pub fn birth(&self) -> Birth {
        self.birth
    }

    /// Starts the next epoch: the one in progress has become durable.
    pub fn begin_epoch(&mut self, birth: Birth) {
        self.check_invariants();
        self.birth = birth;
        self.write_seq = 0;
    }

    /// The next node id that will be given out.
    pub fn next_node(&self) -> NodeId {
        self.next_node
    }

    /// Allocates a node id. Fails if the table already has an entry for it, or if no id is left.
    pub fn new_id(&mut self) -> Result<NodeId> {
        let id = self.next_node;
        if self.table.get(id)?.is_some() {
            let fault = Fault::mismatch("next node id", "one that is free", id);
            return Err(Error::corrupt(Place::Node { id, byte: None }, fault));
        }
        if id.0 + 1 >= NODES_END {
            let fault = Fault::mismatch("next node id", format!("less than {NODES_END}"), id);
            return Err(Error::corrupt(Place::Image, fault));
        }
        self.next_node = NodeId(id.0 + 1);
        Ok(id)
    }

    /// A node, from the cache or read from disk.
    pub fn node(&self, id: NodeId) -> Result<Arc<Node>> {
        let known = self.lock().get(id, Use::Other);
        known.map_or_else(|| self.fetch(id, Use::Other), Ok)
    }

    /// As [`Store::node`], for an internal node.
    pub fn internal(&self, id: NodeId) -> Result<SharedInternal> {
        SharedInternal::of(self.node(id)?)
            .ok_or_else(|| other_kind(id, "an internal node", "a leaf"))
    }

    /// Reads a node that is not in the cache.
    fn fetch(&self, id: NodeId, purpose: Use) -> Result<Arc<Node>> {
        let entry = self.table.get(id)?;
        let missing = || Fault::Missing("the allocation table has no such node".into());
        let entry =
            entry.ok_or_else(|| Error::corrupt(Place::Node { id, byte: None }, missing()))?;
        let node = Node::load(&self.disk, self.birth.volume, id, &entry)?;
        Ok(self.enter(Arc::new(node), purpose))
    }

    /// Puts a node that has been read into the cache.
    fn enter(&self, node: Arc<Node>, purpose: Use) -> Arc<Node> {
        // Scans go through many leaves, but few internal nodes.
        let purpose = if node.height().0 > 0 { Use::Other } else { purpose };
        let mut cache = self.lock();
        cache.put(node.clone(), false, purpose);
        cache.shrink_to(self.budget.total_bytes);
        node
    }

    /// Runs `read` on a node, and counts the parts that it loads.
    pub fn reading<T>(&self, node: &Node, read: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = node.loaded();
        let result = read();
        if node.loaded() != before {
            self.has_read(node);
        }
        result
    }

    /// Counts the parts that a reader has loaded into a node.
    pub fn has_read(&self, node: &Node) {
        let mut cache = self.lock();
        cache.weigh(node.id());
        cache.shrink_to(self.budget.total_bytes);
    }

    /// The height of the higher one of the roots, at least 1. A root that cannot be read counts as 1.
    pub fn height(&self) -> Height {
        let known = self.lock().heights();
        let read = |tree| self.root(tree).map_or(Height(1), |root| root.height());
        let all = TreeId::ALL.map(|tree| known[tree as usize].unwrap_or_else(|| read(tree)));
        all.into_iter().fold(Height(1), Height::max)
    }

    /// The root of a tree, which is responsible for every key.
    pub fn root(&self, tree: TreeId) -> Result<Arc<Node>> {
        self.poison.check_reads()?;
        let node = self.node(tree.root())?;
        if node.tree() != tree || *node.bounds() != Bounds::default() {
            let found = format!("a {} node with bounds", node.tree());
            let fault = Fault::mismatch("root", format!("a {tree} node for all keys"), found);
            return Err(Error::corrupt(Place::Node { id: node.id(), byte: None }, fault));
        }
        Ok(node)
    }

    /// A child. It must have its parent's tree, and a height of one less.
    pub fn child(&self, parent: &Internal, at: usize) -> Result<Arc<Node>> {
        self.child_for(parent, at, Use::Other)
    }

    /// As [`Store::child`], for a given use.
    pub fn child_for(&self, parent: &Internal, at: usize, purpose: Use) -> Result<Arc<Node>> {
        let id = parent.children()[at].id;
        let known = self.lock().get(id, purpose);
        let node = known.map_or_else(|| self.fetch(id, purpose), Ok)?;
        self.check_child(parent, at, &node)?;
        Ok(node)
    }

    /// Checks that the child has its parent's tree, a height of one less, and the key bounds that the parent states: the
    /// only ones that a node has (invariant 6).
    fn check_child(&self, parent: &Internal, at: usize, node: &Node) -> Result<()> {
        let child = &parent.children()[at];
        let end = parent.children().get(at + 1).map(|next| &next.pivot);
        let Bounds { lo, hi } = node.bounds();
        let fits = match &child.lens {
            None => *lo == child.pivot && hi.as_ref() == end.or(parent.bounds.hi.as_ref()),
            Some(_) => self.table.shares() && *node.bounds() == parent.bounds_below(at),
        };
        if node.tree() != parent.tree || node.height().0 + 1 != parent.height.0 || !fits {
            let expected = format!(
                "a child of {} of height {} with its bounds",
                parent.id,
                parent.height.0 - 1
            );
            let found = format!("a node of height {} with others", node.height());
            let place = Place::Node { id: parent.children()[at].id, byte: None };
            return Err(Error::corrupt(place, Fault::mismatch("child", expected, found)));
        }
        Ok(())
    }

    /// Whether child `at` is shared: it has several edges, or its keys are seen through a lens. What is shared never
    /// changes. In a volume without clones nothing is (invariant 6).
    pub fn is_shared(&self, parent: &Internal, at: usize) -> Result<bool> {
        let child = &parent.children()[at];
        if !self.table.shares() || is_broken(Mutation::SharedEdited) {
            return Ok(false);
        }
        Ok(child.lens.is_some() || self.references(child.id)? > 1)
    }

    /// Number of edges to a node.
    pub fn references(&self, id: NodeId) -> Result<u32> {
        self.table.references(id)
    }

    /// Checks that there is such a node: in the allocation table, or in memory only.
    pub fn expect_known(&self, id: NodeId) -> Result<()> {
        if self.has(id) || self.table.get(id)?.is_some() {
            return Ok(());
        }
        let fault = Fault::Missing("the allocation table has no such node".into());
        Err(Error::corrupt(Place::Node { id, byte: None }, fault))
    }

    /// Whether a node is in memory and dirty: changing it costs no I/O that is not due anyway.
    pub fn is_dirty(&self, id: NodeId) -> bool {
        !self.flights.has(id) && self.lock().is_dirty(id)
    }

    /// Changes a node in place, for its only parent (invariant 6): a shared node is first replaced by a copy. The node
    /// becomes dirty. A change that fails must leave the node as it was; it does not become dirty by it.
    pub fn edit<T>(
        &mut self,
        id: NodeId,
        change: impl FnOnce(&mut Node, &Disk) -> Result<T>,
    ) -> Result<T> {
        self.finish_writeback(id)?;
        self.wait_for(id);
        let mut node = self.node(id)?;
        // Without the cache's reference this `Arc` is the only one, so that the node changes in place.
        let was_dirty = self.is_dirty(id);
        drop(self.lock().remove(id));
        let before = node.inflow();
        let result = change(Arc::make_mut(&mut node), &self.disk);
        self.check_edited(&node);
        self.inflow = self.inflow + node.inflow() - before;
        self.lock().put(node, was_dirty || result.is_ok(), Use::Other);
        result
    }

    /// In debug builds: panics if a node's cached sums differ from its parts. Large nodes are checked once in
    /// `CHECKED_EDITS` edits.
    fn check_edited(&mut self, node: &Node) {
        if cfg!(debug_assertions) {
            self.edits += 1;
            if node.weight() <= CHECKED_BYTES || self.edits.is_multiple_of(CHECKED_EDITS) {
                node.check_invariants();
            }
        }
    }

    /// In debug builds: panics if the counters of the cache or of the allocator are wrong.
    pub fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            self.lock().check_invariants();
            self.space.check_invariants();
        }
    }

    /// As [`Store::edit`], for an internal node.
    pub fn edit_internal<T>(
        &mut self,
        id: NodeId,
        change: impl FnOnce(&mut Internal, &Disk) -> Result<T>,
    ) -> Result<T> {
        self.edit(id, |node, disk| match node {
            Node::Internal(internal) => change(internal, disk),
            Node::Leaf(_) => Err(other_kind(id, "an internal node", "a leaf")),
        })
    }

    /// As [`Store::edit`], for a leaf.
    pub fn edit_leaf<T>(
        &mut self,
        id: NodeId,
        change: impl FnOnce(&mut Leaf, &Disk) -> Result<T>,
    ) -> Result<T> {
        self.edit(id, |node, disk| match node {
            Node::Leaf(leaf) => change(leaf, disk),
            Node::Internal(_) => Err(other_kind(id, "a leaf", "an internal node")),
        })
    }

    /// Advances the clock before messages come to a node; returns the new time.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Pins a node in memory by making it dirty, so that a later change cannot fail by reading it.
    pub fn make_dirty(&mut self, id: NodeId) -> Result<()> {
        self.edit(id, |_, _| Ok(()))
    }

    /// Reads the node and the map of its blocks: [`Store::discard`] needs both, and then cannot fail by reading.
    pub fn prepare_to_discard(&mut self, id: NodeId) -> Result<()> {
        self.make_dirty(id)?;
        self.know_blocks(id)
    }

    /// Adds a new node to the cache, dirty. The caller adds an edge to it at the same time.
    pub fn add(&mut self, node: Node) {
        debug_assert!(matches!(&node, Node::Leaf(leaf) if leaf.is_open()) || node.height().0 > 0);
        self.inflow += node.inflow();
        self.lock().put(Arc::new(node), true, Use::Other);
    }

    /// Drops a node, whose only edge goes (invariant 6), and frees its extent and its runs.
    pub fn discard(&mut self, id: NodeId) -> Result<()> {
        self.finish_writeback(id)?;
        let node = self.node(id)?;
        self.lock().remove(id);
        self.inflow -= node.inflow();
        if let Node::Internal(internal) = &*node {
            self.retire(internal.retired_runs())?;
        }
        self.place(id, None)
    }

    /// Adds an edge to a node.
    pub fn add_reference(&mut self, id: NodeId) -> Result<()> {
        let more = u32::from(!is_broken(Mutation::EdgeUncounted));
        let references = self.references(id)?;
        self.table.set_references(id, references.saturating_add(more))
    }

    /// Removes an edge to a node. A leaf without edges is dropped unread; an internal node waits to be freed
    /// ([`Store::free_dying`]).
    pub fn remove_reference(&mut self, id: NodeId, tree: TreeId, height: Height) -> Result<()> {
        match self.references(id)? {
            0 | 1 if height == Height(0) => self.discard_leaf(id, tree),
            0 | 1 => {
                self.table.set_references(id, 0)?;
                if !is_broken(Mutation::DyingForgotten) {
                    self.dying.push(id);
                }
                Ok(())
            }
            references => self.table.set_references(id, references - 1),
        }
    }

    /// Frees the node that is next, with its edges. Below it, leaves without edges are dropped, and internal nodes wait
    /// in turn. If it cannot be read, it stays.
    pub fn free_dying(&mut self) -> Result<()> {
        let Some(id) = self.dying.pop() else { return Ok(()) };
        let freed = self.free_node(id);
        if freed.as_ref().is_err_and(Error::is_unreadable) {
            self.other_dying += 1;
            return Ok(());
        }
        freed
    }

    fn free_node(&mut self, id: NodeId) -> Result<()> {
        expect_no_root(id)?;
        let node = self.node(id)?;
        let Node::Internal(internal) = &*node else {
            return Err(other_kind(id, "an internal node", "a leaf"));
        };
        let (tree, below) = (internal.tree, Height(internal.height.0 - 1));
        let children: Vec<NodeId> = internal.children().iter().map(|child| child.id).collect();
        drop(node);
        // All that can fail comes first.
        children.iter().try_for_each(|child| self.expect_node(*child, tree, below))?;
        self.prepare_to_discard(id)?;
        children.iter().try_for_each(|child| self.remove_reference(*child, tree, below))?;
        self.discard(id)
    }

    /// Whether a hold keeps an extent of this node.
    pub fn is_held(&self, node: &Node) -> bool {
        let newest = self.space.newest_hold();
        if newest == Epoch(0) {
            return false;
        }
        let runs = node.internal().map_or(&[][..], |internal| internal.runs());
        // If the table cannot be read, the step that asks does not begin.
        let of_node =
            self.table.get(node.id()).ok().flatten().is_some_and(|entry| entry.birth <= newest);
        of_node || runs.iter().any(|run| run.reference().birth <= newest)
    }

    /// Whether a hold shares the extent of a leaf: the leaf was written before the newest hold, and has not changed
    /// since.
    pub fn shares_leaf(&self, id: NodeId) -> Result<bool> {
        let newest = self.space.newest_hold();
        let entry = self.table.get(id)?.filter(|_| !self.is_dirty(id));
        Ok(entry.is_some_and(|entry| entry.birth <= newest))
    }

    /// Whether a node is in memory.
    pub fn has(&self, id: NodeId) -> bool {
        self.lock().has(id)
    }

    /// Replaces a leaf by an empty one, without reading it, or makes one.
    pub fn empty_leaf(&mut self, id: NodeId, tree: TreeId, bounds: Bounds) -> Result<()> {
        if self.has(id) || self.table.get(id)?.is_some() {
            self.expect_leaf(id, tree)?;
        }
        self.add(Node::Leaf(Leaf::empty(id, tree, bounds)));
        Ok(())
    }

    /// Drops a leaf without reading it, whose only edge goes (invariant 6), and frees its extent.
    pub fn discard_leaf(&mut self, id: NodeId, tree: TreeId) -> Result<()> {
        self.expect_leaf(id, tree)?;
        self.lock().remove(id);
        self.place(id, None)
    }

    /// Checks that the allocation table has this node with this tree and height, before an edge to it is removed unread.
    pub fn expect_node(&mut self, id: NodeId, tree: TreeId, height: Height) -> Result<()> {
        expect_no_root(id)?;
        if height == Height(0) {
            return self.expect_leaf(id, tree);
        }
        let written = self.table.get(id)?.map(|entry| (entry.tree, entry.height));
        // One that has not been written is in memory only.
        let found = match written {
            None if self.has(id) => self.node(id).map(|node| Some((node.tree(), node.height())))?,
            _ => written,
        };
        if found == Some((tree, height)) {
            return Ok(());
        }
        let expected = format!("a {tree} node of height {height}");
        let found = found
            .map_or("none".into(), |(tree, height)| format!("a {tree} node of height {height}"));
        let place = Place::Node { id, byte: None };
        Err(Error::corrupt(place, Fault::mismatch("child", expected, found)))
    }

    /// Checks that the allocation table has this node as a leaf of the tree, or has no entry for a node that is in
    /// memory.
    pub fn expect_leaf(&mut self, id: NodeId, tree: TreeId) -> Result<()> {
        // The caller is about to drop the leaf: its write-back and its prefetch must have ended. After this nothing can
        // fail.
        self.finish_writeback(id)?;
        self.wait_for(id);
        match self.table.get(id)? {
            Some(entry) if (entry.tree, entry.height) != (tree, Height(0)) => {
                let found = format!("a {} node of height {}", entry.tree, entry.height);
                let fault = Fault::mismatch("child", format!("a leaf of the {tree} tree"), found);
                Err(Error::corrupt(Place::Node { id, byte: None }, fault))
            }
            None if !self.has(id) => {
                let fault = Fault::Missing("the allocation table has no such node".into());
                Err(Error::corrupt(Place::Node { id, byte: None }, fault))
            }
            _ => self.know_blocks(id),
        }
    }

    /// Reads the map of a scattered extent, which names the blocks of a node.
    fn know_blocks(&self, id: NodeId) -> Result<()> {
        match self.table.get(id)? {
            Some(entry) => self.disk.blocks_of(entry.extent).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Retires extents that nodes no longer use.
    fn retire(&mut self, all: impl IntoIterator<Item = Retired>) -> Result<()> {
        let now = self.birth;
        all.into_iter().try_for_each(|retired| self.space.retire(retired, now))
    }

    /// Changes the table entry of a node, and retires its old extent.
    fn place(&mut self, id: NodeId, entry: Option<Entry>) -> Result<()> {
        let old = match entry {
            Some(entry) => self.table.place(id, entry)?,
            None => self.table.remove(id)?,
        };
        if let Some(old) = old {
            let Entry { extent, birth, .. } = old;
            self.retire([Retired { extent, birth, owner: Owner::Node(id) }])?;
            let is_stray = |new: Entry| new.extent.is_scattered() && !old.extent.is_scattered();
            if self.compact && entry.is_some_and(is_stray) {
                self.scattered_nodes.insert(id);
            }
        }
        Ok(())
    }

    /// The allocation table of a hold, with its root marked dirty, with at least `levels` levels.
    pub fn table_of(&self, hold: &Hold, levels: u32) -> Result<(Table, Vec<NodeId>)> {
        let table = Table::open(self.disk.clone(), self.birth.volume, hold.table);
        let mut table = table.with_nodes(hold.nodes).sharing(self.table.shares());
        let dying = table.dying(hold.dying);
        table.renew_root(levels)?;
        Ok((table, dying))
    }

    /// Replaces the allocation table and the inflow, and empties the cache. No node may be dirty.
    pub fn begin_anew(&mut self, table: Table, dying: Vec<NodeId>, hold: &Hold) {
        debug_assert_eq!(self.lock().dirty_bytes(), 0, "a checkpoint has just been made");
        self.prefetch = None;
        self.scattered_nodes.clear();
        self.other_dying = hold.dying.saturating_sub(dying.len() as u64);
        self.dying = dying;
        let lru = Lru::new(self.geometry.basement_size as usize);
        self.cache = Arc::new(Mutex::new(lru));
        (self.table, self.inflow) = (table, hold.inflow);
    }

    /// Upper bound of the bytes that pending messages add to leaves when all are flushed; the reserve must cover it.
    pub fn inflow(&self) -> Inflow {
        self.inflow
    }

    /// Upper bound of the number of nodes.
    pub fn nodes_max(&self) -> u64 {
        self.table.nodes().saturating_add(self.lock().dirty().nodes)
    }

    /// The cached nodes, by tree and height; within each tree the leaves first.
    pub fn levels(&self) -> Vec<Level> {
        let nodes: Vec<Arc<Node>> = self.lock().all().cloned().collect();
        let mut levels = BTreeMap::new();
        for node in nodes {
            let (tree, height) = (node.tree(), node.height());
            let fresh = Level { tree, height, nodes: 0, messages: 0, pending_bytes: 0 };
            let level = levels.entry((tree, height)).or_insert(fresh);
            level.nodes += 1;
            if let Node::Internal(internal) = &*node {
                level.messages += internal.messages();
                level.pending_bytes += internal.buffered() as u64;
            }
        }
        levels.into_values().collect()
    }

    /// The memory budget of the cache.
    pub fn budget(&self) -> CacheBudget {
        self.budget
    }

    /// The weight of all nodes in memory, in bytes.
    pub fn cached_bytes(&self) -> usize {
        self.lock().bytes()
    }

    /// The weight of dirty nodes, without parts that were read and can be read again, in bytes.
    pub fn dirty_bytes(&self) -> usize {
        self.lock().dirty_bytes()
    }

    /// The space that a checkpoint takes now at the most: for dirty nodes, pages of the allocation table, and pages of
    /// dead lists.
    pub fn checkpoint_need(&self) -> Need {
        self.checkpoint_need_with(Dirty::default())
    }

    /// As [`Store::checkpoint_need`], if `more` were dirty.
    pub fn checkpoint_need_with(&self, more: Dirty) -> Need {
        let dirty = self.lock().dirty();
        let pages = self.table.blocks_max(dirty.nodes + more.nodes, self.next_node);
        let runs = limits::RUNS_MAX as u64 * (dirty.internals + more.internals);
        let dead = self.space.dead_pages_max(dirty.nodes + more.nodes + runs + pages);
        dirty.need + more.need + Need::of_blocks(pages + dead)
    }

    fn lock(&self) -> MutexGuard<'_, Lru> {
        locked(&self.cache)
    }
}
