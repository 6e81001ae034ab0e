//! Sharing: nodes with several edges, and edges with a lens (BetrFS 0.5).
//!
//! Sharing is a property of the path: what is below a shared node is shared as well. What is shared never changes.
//! Changes stop above it, and go on below once a copy of the node has taken its place there ([`own`]), one level at a
//! time.

use std::ops::Range;
use std::sync::Arc;

use super::{Balance, shape};
use crate::error::{Error, Result};
use crate::format::{Bounds, RangeClone};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::node::{Internal, Leaf, Node, SharedInternal};
use crate::store::Store;
use crate::tuning::OWNED_SHARE;

/// Replaces the shared child `at` of node `parent` by a copy with keys of its own, below which edges to its children
/// are added. What is pending for the child stays.
pub(super) fn own(store: &mut Store, parent: NodeId, at: usize) -> Result<()> {
    let internal = store.internal(parent)?;
    let (old, lens) = (internal.children()[at].id, internal.children()[at].lens.clone());
    let node = store.child(&internal, at)?;
    drop(internal);
    // All that can fail comes first.
    let shown = lens.as_ref().filter(|_| !is_broken(Mutation::LensForgotten));
    let copy = node.copied(&store.disk, store.next_node(), shown)?;
    let below: Vec<NodeId> = match &*node {
        Node::Internal(internal) => internal.children().iter().map(|child| child.id).collect(),
        Node::Leaf(_) => Vec::new(),
    };
    let (tree, height) = (node.tree(), node.height());
    drop(node);
    below.iter().try_for_each(|id| store.expect_known(*id))?;
    store.make_dirty(parent)?;
    let is_last = store.references(old)? <= 1;
    if is_last {
        store.prepare_to_discard(old)?;
    }
    let id = store.new_id()?;
    match is_last {
        // The edges of the old node become those of the copy.
        true => store.discard(old)?,
        false => {
            store.remove_reference(old, tree, height)?;
            below.iter().try_for_each(|id| store.add_reference(*id))?;
        }
    }
    store.add(copy);
    replace_child(store, parent, at, id)
}

/// Replaces the shared child `at` of node `parent`, whose keys are all deleted, by an empty subtree. Nothing is read.
pub(super) fn replace_by_empty(store: &mut Store, parent: NodeId, at: usize) -> Result<()> {
    let internal = store.internal(parent)?;
    let (tree, height) = (internal.tree, Height(internal.height.0 - 1));
    let (old, bounds) = (internal.children()[at].id, internal.child_bounds(at));
    drop(internal);
    // All that can fail comes first.
    store.expect_node(old, tree, height)?;
    store.make_dirty(parent)?;
    let mut id = store.new_id()?;
    let others = (0..height.0).map(|_| store.new_id()).collect::<Result<Vec<_>>>()?;
    store.add(Node::Leaf(Leaf::empty(id, tree, bounds.clone())));
    for (above, height) in others.into_iter().zip(1..) {
        let children = vec![(id, bounds.lo.clone())];
        let node = Internal::new(above, tree, Height(height), bounds.clone(), children);
        store.add(Node::Internal(node));
        id = above;
    }
    replace_child(store, parent, at, id)?;
    store.remove_reference(old, tree, height)
}

fn replace_child(store: &mut Store, parent: NodeId, at: usize, id: NodeId) -> Result<()> {
    store.edit_internal(parent, |internal, _| {
        internal.replace_child(at, id);
        Ok(())
    })
}

/// The node of this height that has a carved range, and the row of its children there.
fn row(
    store: &Store,
    (tree, height): (TreeId, Height),
    bounds: &Bounds,
) -> Result<(SharedInternal, Range<usize>)> {
    let node = store.internal(shape::node_at(store, tree, &bounds.lo, height)?)?;
    let start = node.child_for(&bounds.lo);
    let end = bounds.hi.as_ref().map_or(node.children().len(), |hi| node.child_before(hi) + 1);
    let is_exact = node.height == height
        && node.children()[start].pivot == bounds.lo
        && node.child_bounds(end - 1).hi == bounds.hi;
    match is_exact {
        true => Ok((node, start..end)),
        false => Err(Error::Bug("a range that is not carved".into())),
    }
}

/// What a splice changes in one node.
pub(crate) struct Spliced {
    /// The node.
    pub node: NodeId,
    /// Number of its children before.
    pub children: usize,
    /// Number of the edges that are dropped.
    pub dropped: usize,
    /// Number of the edges that are added.
    pub added: usize,
}

/// Checks that a splice can be made: it reads nothing that this has not read.
pub(crate) fn check_splice(
    store: &mut Store,
    place: (TreeId, Height),
    clone: &RangeClone,
) -> Result<Spliced> {
    let (parent, old) = row(store, place, &clone.destination())?;
    let (above, shown) = row(store, place, &clone.source())?;
    let below = Height(place.1.0 - 1);
    for child in &above.children()[shown.clone()] {
        store.expect_known(child.id)?;
    }
    for child in &parent.children()[old.clone()] {
        store.expect_node(child.id, place.0, below)?;
    }
    let (node, children) = (parent.id, parent.children().len());
    Ok(Spliced { node, children, dropped: old.len(), added: shown.len() })
}

/// Replaces the nodes below `height` within the destination by further edges to those within the source, seen through
/// the lens. Both ranges must be carved below that height, and nothing may be pending for the second one
/// ([`check_splice`]).
pub(crate) fn splice(
    store: &mut Store,
    balance: &mut Balance,
    (tree, height): (TreeId, Height),
    clone: &RangeClone,
) -> Result<()> {
    let below = Height(height.0 - 1);
    let (place, lens) = ((tree, height), &Arc::new(clone.lens().clone()));
    let (parent, old) = row(store, place, &clone.destination())?;
    let (above, shown) = row(store, place, &clone.source())?;
    if shown.clone().any(|at| above.pending(at) > 0) {
        return Err(Error::Bug("messages are pending for a range to be shared".into()));
    }
    let mut edges = Vec::with_capacity(shown.len());
    for child in &above.children()[shown] {
        edges.push((child.id, lens.up(&child.pivot), child.lens_below(Some(lens))?));
    }
    let dropped: Vec<NodeId> =
        parent.children()[old.clone()].iter().map(|child| child.id).collect();
    let id = parent.id;
    drop((parent, above));
    let ids: Vec<NodeId> = edges.iter().map(|(id, ..)| *id).collect();
    store.edit_internal(id, |parent, _| {
        parent.splice(old, edges);
        Ok(())
    })?;
    balance.enqueue(tree, &clone.destination().lo, height);
    ids.iter().try_for_each(|id| store.add_reference(*id))?;
    dropped.iter().try_for_each(|id| store.remove_reference(*id, tree, below))
}

/// Whether a flush into a shared child should wait for more messages, since it copies the child.
pub(super) fn is_reluctant(store: &Store, internal: &Internal, at: usize) -> bool {
    let enough = store.geometry.leaf_size as usize / OWNED_SHARE;
    internal.pending(at) < enough && store.is_shared(internal, at).unwrap_or(false)
}
