//! Sums over the parts of a tree that are seen through a lens.
//!
//! The sum over a node is kept in the node's own key space, so that it does not matter how many paths lead to it. Where
//! messages are pending above, nodes are visited along their paths: a child that none of them concerns keeps the sum that
//! it has without them. The number of such visits is limited, since in a crafted tree they multiply at each level.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::cursor::{Passed, lay_over, overlay};
use super::descent::{Descent, PathLens};
use crate::error::{Error, Fault, Place, Result};
use crate::format::{Action, Bounds, Key, Lens};
use crate::ids::*;
use crate::node::{Batch, Internal, Leaf, Node, SharedInternal};
use crate::store::{Store, Use};

/// 4,194,304 nodes are visited for messages that are pending above: those of a million clones with one each, four levels high.
const VISITS_MAX: u64 = 1 << 22;

/// A sum over keys and the lengths of their values.
pub(crate) trait Sum: Clone + Default {
    /// Adds a key and the length of its value.
    fn add(&mut self, key: &[u8], len: usize);

    /// Whether there are no keys.
    fn is_empty(&self) -> bool;

    /// Adds the sum over other keys.
    fn join(&mut self, other: &Self);

    /// The sum over the same keys, as they are above a lens.
    fn seen_through(self, lens: &Lens) -> Self;
}

/// What follows in a tree from a key on.
pub(crate) enum Stretch {
    /// The node of height 1 that is responsible for the key, and the lens of the path to it.
    Parent(SharedInternal, PathLens),
    /// The root, which is a leaf.
    Root(NodeId),
    /// A child behind an edge with a lens, and the bounds of that edge.
    Shown(NodeId, Bounds),
}

/// What follows from `key` on. No path to it that has no lens is taken twice in a sound tree; paths through lenses are
/// taken if `through_lenses`.
pub(crate) fn stretch(
    store: &Store,
    tree: TreeId,
    key: &[u8],
    through_lenses: bool,
) -> Result<Stretch> {
    let mut way = Descent::new(store, tree)?;
    while let Some(node) = SharedInternal::of(way.node().clone()) {
        let at = node.child_for(&way.lens().down(key));
        let child = &node.children()[at];
        if child.lens.is_some() && !through_lenses {
            return Ok(Stretch::Shown(child.id, node.child_bounds(at)));
        }
        if node.height == Height(1) {
            return Ok(Stretch::Parent(node, way.lens().clone()));
        }
        way.enter(at, Use::Scan)?;
    }
    Ok(Stretch::Root(way.node().id()))
}

/// The sums over parts of one tree, as it is while they are computed.
pub(crate) struct Sums<S> {
    tree: TreeId,
    /// Of nodes, without what is pending above.
    nodes: Mutex<HashMap<NodeId, S>>,
    /// Of children, with what is pending for them in their parents.
    edges: Mutex<HashMap<(NodeId, usize), S>>,
    /// The number of nodes that may still be visited for messages that are pending above.
    left: AtomicU64,
}

/// Nodes that are followed below a child, with the messages that are pending for it above.
struct Below<'b> {
    node: Arc<Node>,
    /// The lens of the path to the node.
    lens: PathLens,
    /// The messages, with the keys above the lens.
    pending: &'b Batch,
}

impl<S: Sum> Sums<S> {
    pub(crate) fn new(tree: TreeId) -> Sums<S> {
        let left = AtomicU64::new(VISITS_MAX);
        Sums { tree, nodes: Mutex::default(), edges: Mutex::default(), left }
    }

    /// Some keys, with the lengths of their values. Parts of the tree that show none are not entered.
    pub(crate) fn keys(&self, store: &Store, keys: &Bounds) -> Result<Vec<(Key, usize)>> {
        let (node, lens) = (store.root(self.tree)?, PathLens::default());
        let mut found = Vec::new();
        self.collect(store, Below { node, lens, pending: &Batch::default() }, keys, &mut found)?;
        Ok(found)
    }

    /// The sum over the keys of the edge with a lens that the path to `keys`, its bounds, meets first.
    pub(crate) fn of_shown(&self, store: &Store, keys: &Bounds) -> Result<S> {
        let mut above = Vec::new();
        let mut way = Descent::new(store, self.tree)?;
        while let Some(node) = SharedInternal::of(way.node().clone()) {
            let (at, lens) = (node.child_for(&keys.lo), PathLens::default());
            above.push(Passed { node: node.clone(), at, lens });
            if node.children()[at].lens.is_some() {
                let pending = overlay(store, &above, keys)?;
                above.iter().for_each(|stop| store.has_read(stop.node.node()));
                return self.child(store, &node, at, &PathLens::default(), &pending);
            }
            way.enter(at, Use::Scan)?;
        }
        Err(Error::Bug("no edge with a lens leads to these keys".into()))
    }

    /// The sum over the keys of a leaf, its bounds.
    pub(crate) fn of_leaf(&self, store: &Store, keys: &Bounds) -> Result<S> {
        let mut above = Vec::new();
        let mut way = Descent::new(store, self.tree)?;
        while let Some(node) = SharedInternal::of(way.node().clone()) {
            let (at, lens) = (node.child_for(&way.lens().down(&keys.lo)), way.lens().clone());
            above.push(Passed { node: node.clone(), at, lens: lens.clone() });
            if node.height == Height(1) {
                let pending = overlay(store, &above, keys)?;
                above.iter().for_each(|stop| store.has_read(stop.node.node()));
                return self.child(store, &node, at, &lens, &pending);
            }
            way.enter(at, Use::Scan)?;
        }
        Err(Error::Bug("no leaf has these keys".into()))
    }

    /// The sum over a child of a node. `lens` is that of the path to the node; keys of the sum and of `pending` are as
    /// above it.
    fn child(
        &self,
        store: &Store,
        parent: &Internal,
        at: usize,
        lens: &PathLens,
        pending: &Batch,
    ) -> Result<S> {
        let keys = lens.bounds_up(parent.child_bounds(at));
        if pending.ranges().covers(&keys) {
            return Ok(sum_of(&lay_over(Vec::new(), pending, after)));
        }
        let lens = lens.through(parent, at)?;
        if pending.is_empty() {
            return Ok(seen(self.node(store, parent, at)?, &lens));
        }
        self.visit(parent.children()[at].id)?;
        let node = store.child_for(parent, at, Use::Scan)?;
        self.below(store, Below { node, lens, pending })
    }

    /// Counts a visit for pending messages. A node that many paths with messages lead to is visited for each.
    fn visit(&self, id: NodeId) -> Result<()> {
        let spend = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok() {
            return Ok(());
        }
        let text = format!("more than {VISITS_MAX} nodes behind lenses with messages for them");
        Err(Error::corrupt(Place::Node { id, byte: None }, Fault::Missing(text)))
    }

    /// The sum over child `at` as it is in itself.
    fn node(&self, store: &Store, parent: &Internal, at: usize) -> Result<S> {
        let id = parent.children()[at].id;
        if let Some(known) = self.nodes.lock().get(&id) {
            return Ok(known.clone());
        }
        let (node, lens) = (store.child_for(parent, at, Use::Scan)?, PathLens::default());
        let sum = self.below(store, Below { node, lens, pending: &Batch::default() })?;
        self.nodes.lock().insert(id, sum.clone());
        Ok(sum)
    }

    fn below(&self, store: &Store, Below { node, lens, pending }: Below<'_>) -> Result<S> {
        let mut sum = S::default();
        match &*node {
            Node::Leaf(leaf) => sum = sum_of(&leaf_keys(store, leaf, &lens, pending)?),
            Node::Internal(internal) => {
                for at in 0..internal.children().len() {
                    let keys = lens.bounds_up(internal.child_bounds(at));
                    let above = pending.within(&keys.lo, keys.hi.as_deref());
                    sum.join(&match above.is_empty() {
                        true => seen(self.edge(store, internal, at)?, &lens),
                        false => {
                            let all = joined(store, internal, at, &lens, &above)?;
                            self.child(store, internal, at, &lens, &all)?
                        }
                    });
                }
            }
        }
        store.has_read(&node);
        Ok(sum)
    }

    /// The sum over a child with what is pending for it in its parent, as it is there.
    fn edge(&self, store: &Store, parent: &Internal, at: usize) -> Result<S> {
        let place = (parent.id, at);
        if let Some(known) = self.edges.lock().get(&place) {
            return Ok(known.clone());
        }
        let pending = own_pending(store, parent, at)?;
        let sum = self.child(store, parent, at, &PathLens::default(), &pending)?;
        if !pending.is_empty() {
            self.edges.lock().insert(place, sum.clone());
        }
        Ok(sum)
    }

    /// Collects the keys of a node that are within `keys`, as [`Sums::below`] sums all of them up.
    fn collect(
        &self,
        store: &Store,
        Below { node, lens, pending }: Below<'_>,
        keys: &Bounds,
        found: &mut Vec<(Key, usize)>,
    ) -> Result<()> {
        let internal = match &*node {
            Node::Leaf(leaf) => {
                let all = leaf_keys(store, leaf, &lens, pending)?.into_iter();
                found.extend(all.filter(|(key, _)| keys.contains(key)));
                store.has_read(&node);
                return Ok(());
            }
            Node::Internal(internal) => internal,
        };
        for at in 0..internal.children().len() {
            let here = lens.bounds_up(internal.child_bounds(at));
            let wanted = here.within(keys);
            if wanted.hi.as_ref().is_some_and(|hi| *hi <= wanted.lo) {
                continue;
            }
            let above = pending.within(&here.lo, here.hi.as_deref());
            let is_shown = internal.children()[at].lens.is_some() || lens.lens().is_some();
            if is_shown && above.is_empty() && self.edge(store, internal, at)?.is_empty() {
                continue;
            }
            let all = joined(store, internal, at, &lens, &above)?;
            if all.ranges().covers(&here) {
                let left = lay_over(Vec::new(), &all, after).into_iter();
                found.extend(left.filter(|(key, _)| keys.contains(key)));
                continue;
            }
            self.visit(internal.children()[at].id)?;
            let node = store.child_for(internal, at, Use::Scan)?;
            let lens = lens.through(internal, at)?;
            self.collect(store, Below { node, lens, pending: &all }, keys, found)?;
        }
        store.has_read(&node);
        Ok(())
    }
}

/// What is pending for child `at` in its parent.
fn own_pending(store: &Store, parent: &Internal, at: usize) -> Result<Batch> {
    let (Bounds { lo, hi }, mut own) = (parent.child_bounds(at), Batch::default());
    parent.overlay(&store.disk, at, &lo, hi.as_deref(), &mut own)?;
    Ok(own)
}

/// What is pending for child `at` in its parent and above it, with the keys above the lens of the path to the parent.
fn joined(
    store: &Store,
    parent: &Internal,
    at: usize,
    lens: &PathLens,
    above: &Batch,
) -> Result<Batch> {
    let mut all = own_pending(store, parent, at)?;
    if let Some(lens) = lens.lens() {
        all = all.seen_through(lens);
    }
    all.absorb(above.points().iter(), above.ranges().iter());
    Ok(all)
}

/// The keys of a leaf as they are above a lens, with pending messages applied.
fn leaf_keys(
    store: &Store,
    leaf: &Leaf,
    lens: &PathLens,
    pending: &Batch,
) -> Result<Vec<(Key, usize)>> {
    let Bounds { lo, hi } = &leaf.bounds;
    let mut stored = leaf.scan_keys(&store.disk, lo, hi.as_deref())?;
    if let Some(lens) = lens.lens() {
        stored.iter_mut().for_each(|(key, _)| *key = lens.up(key));
    }
    Ok(lay_over(stored, pending, after))
}

fn after(action: &Action, len: Option<&usize>) -> Option<usize> {
    action.apply_len(len.copied())
}

fn sum_of<S: Sum>(entries: &[(Key, usize)]) -> S {
    let mut sum = S::default();
    entries.iter().for_each(|(key, len)| sum.add(key, *len));
    sum
}

fn seen<S: Sum>(sum: S, lens: &PathLens) -> S {
    match lens.lens() {
        Some(lens) => sum.seen_through(lens),
        None => sum,
    }
}
