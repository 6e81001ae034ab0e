//! Balancing: keeps nodes within their size limits, step by step.
//!
//! A queue holds sites of nodes that may be too large or too small. A step flushes one buffer by one level, splits one
//! node, or merges two. No step changes the content of the tree, so a checkpoint may come between any two of them, and
//! steps may be put off.

use super::blocked::Blocked;
use super::carve::Carve;
use super::drain::Drain;
use super::prune::Prune;
use super::{shape, share};
use crate::error::Result;
use crate::format::{Key, RecordMessage};
use crate::ids::*;
use crate::node::{Internal, Node};
use crate::store::Store;

/// A node, named by its height and a key that it is responsible for: ids change when nodes split and merge.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Site {
    pub tree: TreeId,
    pub key: Key,
    pub height: Height,
}

/// The state of balancing.
#[derive(Default)]
pub struct Balance {
    pub(super) waiting: Vec<Site>,
    /// The drain in progress, if any.
    pub(super) draining: Option<Drain>,
    /// The carve in progress, if any.
    pub(super) carving: Option<Carve>,
    /// Buffers flushed by one level since the last drain began.
    pub(super) drain_flushes: u64,
    /// Range deletes that may cover whole leaves; the last one is processed next.
    pub(super) pruning: Vec<Prune>,
    /// Nodes that cannot be read.
    pub(super) blocked: Blocked,
}

impl Balance {
    /// Whether no site is waiting.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Panics if the drain in progress has its sites out of order.
    pub fn check_invariants(&self) {
        if let Some(drain) = &self.draining {
            drain.check_invariants();
        }
    }

    /// Queues a node that may be too large or too small.
    pub(super) fn enqueue(&mut self, tree: TreeId, key: &Key, height: Height) {
        let site = Site { tree, key: key.clone(), height };
        if self.waiting.last() != Some(&site) {
            self.waiting.push(site);
        }
    }

    /// Queues the roots: they may have been written too large when there was no space for steps.
    pub fn enqueue_roots(&mut self, store: &Store) -> Result<()> {
        for tree in TreeId::ALL {
            let height = store.root(tree)?.height();
            self.enqueue(tree, &Key::default(), height);
        }
        Ok(())
    }

    /// Fails if a message would have to wait for a node that cannot be read. Then nothing has changed.
    pub fn ensure_enters(&mut self, store: &mut Store, messages: &[RecordMessage]) -> Result<()> {
        for tree in TreeId::ALL {
            if messages.iter().any(|message| message.tree() == tree) {
                shape::open_root(store, tree)?;
            }
        }
        for (tree, height, key) in self.blocked.refuse(store, messages)? {
            self.enqueue(tree, &key, Height(height.0 + 1));
        }
        Ok(())
    }

    /// The first read error because of which a step was skipped.
    pub fn error_passed_over(&self) -> Option<&str> {
        self.blocked.first_error()
    }

    /// Turns a read error into `None`, and remembers it. The step that failed has changed nothing.
    pub(super) fn skip_unreadable<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error) if error.is_unreadable() => {
                self.blocked.remember_error(&error);
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Makes one step.
    pub fn step(&mut self, store: &mut Store) -> Result<()> {
        match self.waiting.pop() {
            Some(site) if self.put_off_for_drain(&site) => Ok(()),
            Some(site) => self.fit_node(store, site),
            None if self.carve_step(store)? => Ok(()),
            None => self.drain_step(store),
        }
    }

    /// Drops the next site: there is no space for its step.
    pub fn give_up_step(&mut self) {
        self.waiting.pop();
    }

    fn fit_node(&mut self, store: &mut Store, site: Site) -> Result<()> {
        let Site { tree, key, height } = site.clone();
        let node = shape::node_at(store, tree, &key, height).and_then(|id| store.node(id));
        let Some(node) = self.skip_unreadable(node)? else { return Ok(()) };
        let step = self.next_step_of(store, &site, &node);
        match (step, &*node) {
            (NodeStep::Nothing, _) => Ok(()),
            (NodeStep::SplitLeaf, _) => {
                drop(node);
                // The leaf may still be too large on disk, from a time without space to split it.
                let split = shape::split_leaf(store, self, tree, &key);
                self.skip_unreadable(split).map(drop)
            }
            (NodeStep::SplitInternal, _) => {
                let id = node.id();
                drop(node);
                match self.keeps_wide(&site, id == tree.root()) {
                    true => Ok(()),
                    false => shape::split_if_wide(store, self, id, &key),
                }
            }
            (NodeStep::Merge, _) if self.put_off_for_carve(&site) => Ok(()),
            (NodeStep::Merge, _) => {
                drop(node);
                // If its neighbour cannot be read, the node stays small.
                let merged = shape::merge(store, self, tree, &key, height);
                self.skip_unreadable(merged).map(drop)
            }
            (NodeStep::Flush(at), Node::Internal(internal)) => {
                let (id, below, bounds) =
                    (internal.id, Height(height.0 - 1), internal.child_bounds(at));
                if let Some((id, at)) = self.next_flush(store, internal, at) {
                    store.read_for_flush(id, at);
                }
                drop(node);
                match shape::move_buffer(store, id, at) {
                    Ok((_, pivot)) => {
                        self.waiting.push(site);
                        self.enqueue(tree, &pivot, below);
                    }
                    Err(error) if error.is_unreadable() => {
                        self.blocked.add(tree, below, bounds, error)?;
                        self.waiting.push(site);
                    }
                    Err(error) => return Err(error),
                }
                Ok(())
            }
            (NodeStep::Flush(_), Node::Leaf(_)) => unreachable!("a leaf has no buffers"),
        }
    }

    /// The step that `node`, at `site`, needs.
    pub(super) fn next_step_of(&self, store: &Store, site: &Site, node: &Node) -> NodeStep {
        let geometry = store.geometry;
        match node {
            Node::Leaf(leaf) if leaf.bytes() > geometry.leaf_size as usize => NodeStep::SplitLeaf,
            Node::Leaf(leaf) if leaf.bytes() < geometry.leaf_size as usize / small_part(store) => {
                NodeStep::Merge
            }
            Node::Leaf(_) => NodeStep::Nothing,
            // The tree may have become lower since the site was queued, or the node shared.
            Node::Internal(internal) if internal.height != site.height => NodeStep::Nothing,
            Node::Internal(internal)
                if internal.buffered() > store.buffers_max(internal)
                    || internal.has_unreadable_runs() =>
            {
                self.heaviest(store, internal).map_or(NodeStep::Nothing, NodeStep::Flush)
            }
            Node::Internal(internal) if shape::is_wide(store, internal) => NodeStep::SplitInternal,
            Node::Internal(internal) => {
                match internal.children().len() < (geometry.fanout as usize / 4).max(2) {
                    true => NodeStep::Merge,
                    false => NodeStep::Nothing,
                }
            }
        }
    }

    /// The child with the heaviest buffer that is not blocked. A buffer that would copy a shared child for few messages
    /// comes after all others.
    fn heaviest(&self, store: &Store, internal: &Internal) -> Option<usize> {
        let below = Height(internal.height.0 - 1);
        let moves = |at: &usize| {
            let pivot = &internal.children()[*at].pivot;
            internal.pending(*at) > 0 && !self.blocked.holds(internal.tree, below, pivot)
        };
        let children = 0..internal.children().len();
        let first = |at: &usize| !share::is_reluctant(store, internal, *at);
        children.rev().filter(moves).max_by_key(|at| (first(at), internal.pending(*at)))
    }

    /// The flush to a leaf that comes after the flush of child `at`, for prefetch: a node, and an index of its child.
    /// Reads the nodes on the way there.
    fn next_flush(&self, store: &Store, internal: &Internal, at: usize) -> Option<(NodeId, usize)> {
        let left = internal.buffered() - internal.pending(at);
        let is_full = left > store.buffers_max(internal);
        let others = (0..internal.children().len()).filter(|other| *other != at);
        let next = others.rev().max_by_key(|at| internal.pending(*at)).filter(|_| is_full);
        match (internal.height, next) {
            (Height(1), Some(next)) => Some((internal.id, next)),
            (Height(1), None) => {
                let Site { tree, key, height } = self.waiting.last()?;
                let above = shape::node_at(store, *tree, key, *height);
                let above = above.and_then(|id| store.node(id)).ok()?;
                match &*above {
                    Node::Internal(above)
                        if above.height == Height(2)
                            && above.buffered() > store.buffers_max(above) =>
                    {
                        below_heaviest(store, above)
                    }
                    _ => None,
                }
            }
            (Height(2), next) => {
                if let Some(next) = next {
                    store.will_read_head(internal.children()[next].id);
                }
                below_heaviest(store, internal)
            }
            _ => None,
        }
    }
}

/// The step that a node needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodeStep {
    /// The node is within its limits.
    Nothing,
    /// The leaf is too large.
    SplitLeaf,
    /// The internal node has too many children.
    SplitInternal,
    /// The node is small.
    Merge,
    /// The buffers are too heavy: the buffer of this child is flushed.
    Flush(usize),
}

/// A leaf is small below 1/4 of the leaf size, and below 1/2 where space is short: each leaf wastes part of its last
/// block.
fn small_part(store: &Store) -> usize {
    if store.writes_compactly() { 2 } else { 4 }
}

/// The child with the heaviest buffer, and the heaviest buffer in it, if the flush makes that child full. Reads the
/// child, which the flush needs anyway; the flush meets any error.
fn below_heaviest(store: &Store, internal: &Internal) -> Option<(NodeId, usize)> {
    let at = internal.heaviest();
    let child = store.child(internal, at).ok()?;
    match &*child {
        Node::Internal(child) => {
            let is_full = child.buffered() + internal.pending(at) > store.buffers_max(child);
            is_full.then(|| (child.id, child.heaviest()))
        }
        Node::Leaf(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::device::MemoryDevice;
    use crate::disk::Disk;
    use crate::error::Error;
    use crate::format::{self, Birth, Bounds};
    use crate::node::{Item, Leaf};
    use crate::space::{Layout, Space};
    use crate::store::{CacheBudget, Geometry};
    use crate::table::Table;

    const TREE: TreeId = TreeId::Metadata;
    const LEAF: usize = 8 << 10;

    fn store() -> Store {
        let geometry =
            Geometry { node_size: 16 << 10, leaf_size: 8 << 10, basement_size: 4096, fanout: 16 };
        let disk = Disk::new(Arc::new(MemoryDevice::new(1000 * BLOCK_SIZE as u64)));
        let mut space = Space::empty(disk.clone(), &Layout::of_nodes(10, 1000));
        space.reserve(BlockNr(0), 10);
        let volume = VolumeId([1; 16]);
        let birth = Birth { volume, epoch: Epoch(1), nonce: Nonce(1) };
        let table = Table::empty(disk.clone(), volume);
        Store::new(disk, space, table, geometry, birth, NodeId(9), CacheBudget::of(1 << 20))
    }

    fn insert(bytes: usize) -> format::Action {
        format::Action::Insert(Bytes::from(vec![1; bytes]))
    }

    /// A leaf with one value of `bytes` bytes.
    fn leaf(bytes: usize) -> Node {
        let mut leaf = Leaf::empty(NodeId(9), TREE, Bounds::default());
        leaf.apply(b"key", Msn(1), &insert(bytes));
        Node::Leaf(leaf)
    }

    /// A node with `children` children; child *i* has one message of `pending[i]` bytes, or none.
    fn internal(children: u8, pending: &[usize]) -> Node {
        let pivot = |at: u8| match at {
            0 => Key::default(),
            at => Key::copied(&[at]),
        };
        let edges = (0..children).map(|at| (NodeId(20 + u64::from(at)), pivot(at))).collect();
        let mut node = Internal::new(NodeId(9), TREE, Height(1), Bounds::default(), edges);
        for (at, bytes) in pending.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            let action = insert(*bytes);
            node.insert(at, std::iter::once(Item::new(&[at as u8], Msn(1), &action)));
        }
        Node::Internal(node)
    }

    fn site(height: u8) -> Site {
        Site { tree: TREE, key: Key::default(), height: Height(height) }
    }

    #[test]
    fn a_node_waits_for_what_its_size_calls_for() {
        let mut store = store();
        let balance = Balance::default();
        // A leaf's value in bytes; its step usually, and where space is short.
        let leaves = [
            (0, NodeStep::Merge, NodeStep::Merge),
            (LEAF / 4 + 1, NodeStep::Nothing, NodeStep::Merge),
            (LEAF / 2 + 1, NodeStep::Nothing, NodeStep::Nothing),
            (LEAF - 200, NodeStep::Nothing, NodeStep::Nothing),
            (LEAF + 1, NodeStep::SplitLeaf, NodeStep::SplitLeaf),
        ];
        for (bytes, usually, short) in leaves {
            for (compact, expected) in [(false, usually), (true, short)] {
                store.set_compact_writes(compact);
                let found = balance.next_step_of(&store, &site(0), &leaf(bytes));
                assert_eq!(found, expected, "{bytes} bytes, compact: {compact}");
            }
        }
        let full = store.geometry.node_size as usize;
        // Children, the pending bytes of the first of them, and the node's step.
        let nodes: [(u8, &[usize], NodeStep); 6] = [
            (3, &[], NodeStep::Merge),
            (4, &[], NodeStep::Nothing),
            (4, &[full / 2, 10], NodeStep::Nothing),
            (4, &[10, full], NodeStep::Flush(1)),
            // Of equal buffers the first is flushed; a full node flushes before it merges.
            (4, &[10, full, full], NodeStep::Flush(1)),
            (2, &[0, full], NodeStep::Flush(1)),
        ];
        for (children, pending, expected) in nodes {
            let found = balance.next_step_of(&store, &site(1), &internal(children, pending));
            assert_eq!(found, expected, "{children} children, {pending:?}");
        }
        // The tree has become lower since: the site names a node that is gone.
        let found = balance.next_step_of(&store, &site(2), &internal(4, &[full]));
        assert_eq!(found, NodeStep::Nothing);
    }

    #[test]
    fn a_buffer_for_a_child_that_cannot_be_read_stays() {
        let store = store();
        let mut balance = Balance::default();
        let full = store.geometry.node_size as usize;
        let node = internal(4, &[100, full]);
        let bounds = Bounds { lo: Key::copied(&[1]), hi: Some(Key::copied(&[2])) };
        let error = Error::Bug("for this test".into());
        balance.blocked.add(TREE, Height(0), bounds, error).unwrap();
        assert_eq!(balance.next_step_of(&store, &site(1), &node), NodeStep::Flush(0));
        assert_eq!(
            balance.next_step_of(&store, &site(1), &internal(4, &[0, full])),
            NodeStep::Nothing
        );
    }

    #[test]
    fn a_site_waits_once_and_the_last_comes_first() {
        let mut balance = Balance::default();
        let key = |byte: u8| Key::copied(&[byte]);
        for byte in [1, 1, 2, 1] {
            balance.enqueue(TREE, &key(byte), Height(1));
        }
        let waiting: Vec<Key> = balance.waiting.iter().rev().map(|site| site.key.clone()).collect();
        assert_eq!(waiting, [key(1), key(2), key(1)]);
        assert!(!balance.is_settled());
        (0..3).for_each(|_| balance.give_up_step());
        assert!(balance.is_settled());
    }
}
