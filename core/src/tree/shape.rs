//! Splits and merges of nodes, and changes of the height of a tree.
//!
//! Nodes are found by a key and a height, from the root. Ids of parents are not kept, so no reference goes stale when
//! an ancestor splits meanwhile. The buffer for a node is empty when it splits, and the buffers for both nodes are
//! emptied before a merge. The root's id never changes.

use std::ops::Range;

use super::balance::Site;
use super::descent::Descent;
use super::{Balance, share};
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::HEIGHT_MAX;
use crate::format::{Bounds, Key};
use crate::ids::*;
use crate::node::{Internal, Leaf, Node, SharedInternal};
use crate::store::Store;
use crate::tuning::CHILDREN_MIN;

/// The node of height `height` on the way to `key`, for a change; the root if the tree is lower, and the last node above
/// one that is shared.
pub(super) fn node_at(store: &Store, tree: TreeId, key: &[u8], height: Height) -> Result<NodeId> {
    Ok(Descent::new(store, tree)?.to(key, height)?.id())
}

/// The end of the first node on the path to one of height `height` that is unreadable or shared; `None` if that node is
/// the last one. If there is none, the end of the node found.
pub(super) fn unchangeable_until(
    store: &Store,
    tree: TreeId,
    key: &[u8],
    height: Height,
) -> Result<Option<Key>> {
    let mut way = Descent::new(store, tree)?;
    while let Some(internal) = way.above(height) {
        let at = internal.child_for(key);
        let end = internal.child_bounds(at).hi;
        match way.enter_alone(at) {
            Err(error) if error.is_unreadable() => return Ok(end),
            Ok(false) => return Ok(end),
            entered => drop(entered?),
        }
    }
    Ok(way.node().bounds().hi.clone())
}

/// The parent of the node of height `height` on the way to `key`, and the node's index there. The node is not shared, so
/// there is no other parent (invariant 6).
fn parent_of(
    store: &Store,
    tree: TreeId,
    key: &[u8],
    height: Height,
) -> Result<Option<(NodeId, usize)>> {
    let above = Height(height.0 + 1);
    let node = Descent::new(store, tree)?.to(key, above)?;
    let parent = node.internal().filter(|internal| internal.height == above);
    Ok(parent.map(|internal| (internal.id, internal.child_for(key))))
}

/// Flushes the buffer for child `at` of node `id` to the child. Returns the child and its pivot. A leaf that a range
/// delete covers entirely is not read (leaf pruning, BetrFS 0.2 §5.2). A shared child is replaced first: by a copy, or if
/// a range delete covers it by an empty subtree.
///
/// A leaf takes updates only until they have created values worth
/// [`Geometry::growth_at_once`](crate::store::Geometry::growth_at_once) bytes: a short patch may create a long value.
/// The other messages stay in the open run. They may stay there when the leaf splits, but not when it is merged.
pub(super) fn move_buffer(store: &mut Store, id: NodeId, at: usize) -> Result<(NodeId, Key)> {
    let internal = store.internal(id)?;
    let (child, pivot) = (internal.children()[at].id, internal.children()[at].pivot.clone());
    if internal.pending(at) == 0 {
        store.child(&internal, at)?;
        return Ok((child, pivot));
    }
    let (tree, height, bounds) = (internal.tree, internal.height, internal.child_bounds(at));
    let shared = store.is_shared(&internal, at)?;
    if (shared || height == Height(1)) && internal.has_ranges(at) {
        // They may have been written and evicted since.
        internal.load_ranges(&store.disk)?;
    }
    let pruned = (shared || height == Height(1)) && internal.is_pruned(at);
    if !pruned {
        store.child(&internal, at)?;
    }
    drop(internal);
    // All that can fail comes first: a message that is in neither node would be lost. Entries that a pending message
    // deletes may go before it.
    match (pruned, shared) {
        (true, true) => share::replace_by_empty(store, id, at)?,
        (true, false) => store.empty_leaf(child, tree, bounds)?,
        (false, true) => share::own(store, id, at)?,
        (false, false) => {}
    }
    let child = store.internal(id)?.children()[at].id;
    open_leaf(store, child)?;
    let growth = if height == Height(1) { store.geometry.growth_at_once() } else { usize::MAX };
    let batch = store.edit_internal(id, |internal, disk| internal.take_buffer(disk, at, growth))?;
    let now = store.tick();
    store.edit(child, |node, _| {
        match node {
            Node::Leaf(leaf) => leaf.apply_batch(&batch),
            Node::Internal(internal) => {
                internal.visited(now);
                internal.absorb(batch);
            }
        }
        Ok(())
    })?;
    Ok((child, pivot))
}

/// Checks that the buffer for the node of height `height` on the path to `key` could be flushed. Fails if something
/// cannot be read. Changes nothing.
pub(super) fn try_flush(store: &Store, tree: TreeId, key: &[u8], height: Height) -> Result<()> {
    let Some((parent, at)) = parent_of(store, tree, key, height)? else { return Ok(()) };
    let internal = store.internal(parent)?;
    let mut copy = (*internal).clone();
    let shared = store.is_shared(&internal, at)?;
    if (shared || height == Height(0)) && internal.has_ranges(at) {
        internal.load_ranges(&store.disk)?;
        if internal.is_pruned(at) {
            return Ok(());
        }
    }
    let child = store.child(&internal, at)?;
    if shared {
        // A flush copies it.
        child.copied(&store.disk, child.id(), internal.children()[at].lens.as_ref())?;
    } else if let Some(leaf) = child.leaf() {
        leaf.clone().open(&store.disk)?;
    }
    copy.take_buffer(&store.disk, at, usize::MAX).map(drop)
}

/// Opens a root that is a leaf: injected messages change it directly.
pub(super) fn open_root(store: &mut Store, tree: TreeId) -> Result<()> {
    match &*store.root(tree)? {
        Node::Leaf(leaf) if !leaf.is_open() => open_leaf(store, tree.root()),
        _ => Ok(()),
    }
}

/// Whether `[lo, hi)` covers a leaf entirely. No leaf is read.
pub(super) fn covers_leaves(store: &Store, tree: TreeId, lo: &Key, hi: &Key) -> Result<bool> {
    let mut way = Descent::new(store, tree)?;
    while let Some(internal) = way.above(Height(0)) {
        let children = internal.children_within(lo, hi);
        if internal.height == Height(1) || children.len() > 2 {
            let inside = |at: usize| {
                let bounds = internal.child_bounds(at);
                bounds.lo >= *lo && bounds.hi.is_some_and(|end| end <= *hi)
            };
            return Ok(children.into_iter().any(inside));
        }
        // The two leaves at the boundary may be covered, and so may any below a shared node.
        if children.len() == 2 || !way.enter_alone(children.start)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Replaces consecutive leaves below node `id`, all of whose keys are deleted, by one empty leaf. No leaf is read (leaf
/// pruning, BetrFS 0.2 §5.2).
pub(super) fn collapse(store: &mut Store, id: NodeId, leaves: Range<usize>) -> Result<()> {
    let internal = store.internal(id)?;
    let (tree, lo) = (internal.tree, internal.children()[leaves.start].pivot.clone());
    let bounds = Bounds { lo, hi: internal.child_bounds(leaves.end - 1).hi };
    let ids: Vec<NodeId> = internal.children()[leaves.clone()].iter().map(|c| c.id).collect();
    let first_is_shared = store.is_shared(&internal, leaves.start)?;
    drop(internal);
    // All that can fail comes first.
    ids.iter().try_for_each(|leaf| store.expect_leaf(*leaf, tree))?;
    let empty = if first_is_shared { store.new_id()? } else { ids[0] };
    store.edit_internal(id, |internal, disk| internal.collapse(disk, leaves, empty))?;
    store.empty_leaf(empty, tree, bounds)?;
    let gone = if first_is_shared { &ids[..] } else { &ids[1..] };
    gone.iter().try_for_each(|leaf| store.remove_reference(*leaf, tree, Height(0)))
}

/// Reads all entries of a leaf.
fn open_leaf(store: &mut Store, id: NodeId) -> Result<()> {
    store.edit(id, |node, disk| match node {
        Node::Leaf(leaf) => leaf.open(disk),
        Node::Internal(_) => Ok(()),
    })
}

/// Flushes the buffer for the node of this height on the path to `key`, which is going to split. At least the sealed
/// runs are emptied, since their messages are stored by child.
fn empty_above(store: &mut Store, tree: TreeId, key: &[u8], height: Height) -> Result<()> {
    if let Some((parent, at)) = parent_of(store, tree, key, height)? {
        move_buffer(store, parent, at)?;
    }
    Ok(())
}

/// Splits the leaf that is responsible for `key` if it is too large.
pub(super) fn split_leaf(
    store: &mut Store,
    balance: &mut Balance,
    tree: TreeId,
    key: &Key,
) -> Result<()> {
    let limit = store.geometry.leaf_size as usize;
    cut_leaf(store, balance, tree, key, |leaf| leaf.cuts(limit))
}

/// Splits the leaf that is responsible for `key` at `cuts`, the first keys of the pieces except the first.
fn cut_leaf(
    store: &mut Store,
    balance: &mut Balance,
    tree: TreeId,
    key: &Key,
    cuts: impl FnOnce(&Leaf) -> Vec<Key>,
) -> Result<()> {
    empty_above(store, tree, key, Height(0))?;
    let id = node_at(store, tree, key, Height(0))?;
    let (cuts, bounds) = store.edit_leaf(id, |leaf, disk| {
        leaf.open(disk)?;
        Ok((cuts(leaf), leaf.bounds.clone()))
    })?;
    if cuts.is_empty() {
        return Ok(());
    }
    let ids = cuts.iter().map(|_| store.new_id()).collect::<Result<Vec<_>>>()?;
    let parent = parent_to_change(store, tree, &bounds.lo, Height(0))?;
    let pieces = store.edit_leaf(id, |leaf, _| {
        let pieces = leaf.split(cuts);
        leaf.bounds.hi = pieces.first().map(|(pivot, _)| pivot.clone());
        Ok(pieces)
    })?;
    let pivots: Vec<Key> = pieces.iter().map(|(pivot, _)| pivot.clone()).collect();
    let ends = pivots.iter().skip(1).cloned().map(Some).chain([bounds.hi.clone()]);
    let mut edges = Vec::with_capacity(pivots.len());
    for ((id, (pivot, piece)), hi) in ids.into_iter().zip(pieces).zip(ends) {
        let bounds = Bounds { lo: pivot.clone(), hi };
        store.add(Node::Leaf(Leaf::from_split(id, tree, bounds, piece)));
        edges.push((id, pivot));
    }
    link(store, balance, tree, &bounds.lo, Height(0), parent, edges)
}

/// The place of new edges beside a node of some height: its parent, which stays in memory, and the index there; or, at
/// the root, an id for the node that takes over the root's content.
enum Above {
    Parent(NodeId, usize),
    Nothing(NodeId),
}

fn parent_to_change(store: &mut Store, tree: TreeId, key: &[u8], height: Height) -> Result<Above> {
    match parent_of(store, tree, key, height)? {
        Some((parent, at)) => {
            store.make_dirty(parent)?;
            Ok(Above::Parent(parent, at))
        }
        None if height.0 >= HEIGHT_MAX => {
            let fault = Fault::mismatch("height", format!("less than {HEIGHT_MAX}"), height);
            Err(Error::corrupt(Place::Node { id: tree.root(), byte: None }, fault))
        }
        None => Ok(Above::Nothing(store.new_id()?)),
    }
}

/// Adds edges to new nodes of this height, beside the node that is responsible for `key`.
fn link(
    store: &mut Store,
    balance: &mut Balance,
    tree: TreeId,
    key: &Key,
    height: Height,
    above: Above,
    edges: Vec<(NodeId, Key)>,
) -> Result<()> {
    let (parent, at) = match above {
        Above::Parent(parent, at) => (parent, at),
        Above::Nothing(left) => {
            grow(store, tree, height, left, edges)?;
            return split_if_wide(store, balance, tree.root(), key);
        }
    };
    store.edit_internal(parent, |internal, _| {
        internal.add_children(at, edges);
        Ok(())
    })?;
    let above = Site { tree, key: key.clone(), height: Height(height.0 + 1) };
    match balance.keeps_wide(&above, parent == tree.root()) {
        true => Ok(()),
        false => split_if_wide(store, balance, parent, key),
    }
}

/// Splits the internal node on the path to `key` if it is too wide. If its buffers cannot be read, it stays wide.
pub(super) fn split_if_wide(
    store: &mut Store,
    balance: &mut Balance,
    id: NodeId,
    key: &Key,
) -> Result<()> {
    if !store.node(id)?.internal().is_some_and(|internal| is_wide(store, internal)) {
        return Ok(());
    }
    let (tree, height) = { store.node(id) }.map(|node| (node.tree(), node.height()))?;
    let split = split_internal(store, balance, tree, key, height);
    balance.skip_unreadable(split).map(drop)
}

/// Puts an internal node above a root that is a leaf.
pub(super) fn add_level(store: &mut Store, tree: TreeId) -> Result<()> {
    open_leaf(store, tree.root())?;
    let left = store.new_id()?;
    grow(store, tree, Height(0), left, Vec::new())
}

/// Moves the root's content to a new node, `left`, and raises the root by one level. `edges` are further children, if
/// the root has split.
fn grow(
    store: &mut Store,
    tree: TreeId,
    height: Height,
    left: NodeId,
    edges: Vec<(NodeId, Key)>,
) -> Result<()> {
    let root = tree.root();
    store
        .edit(root, |node, _| {
            let mut moved = node.clone();
            let children = std::iter::once((left, Key::default())).chain(edges).collect();
            let top = Internal::new(root, tree, Height(height.0 + 1), Bounds::default(), children);
            *node = Node::Internal(top);
            match &mut moved {
                Node::Leaf(leaf) => leaf.id = left,
                Node::Internal(internal) => internal.id = left,
            }
            Ok(moved)
        })
        .map(|moved| store.add(moved))
}

/// Divides the node of this height on the path to `key` at `key`, which is inside its bounds; for an internal node it
/// is the pivot of a child.
pub(super) fn divide(
    store: &mut Store,
    balance: &mut Balance,
    tree: TreeId,
    key: &Key,
    height: Height,
) -> Result<()> {
    if height == Height(0) {
        return cut_leaf(store, balance, tree, key, |_| vec![key.clone()]);
    }
    let internal = ready_to_split(store, tree, key, height)?;
    let (id, new) = (internal.id, store.new_id()?);
    let (at, lo) = (internal.child_for(key), internal.bounds.lo.clone());
    drop(internal);
    let parent = parent_to_change(store, tree, &lo, height)?;
    let right = store.edit_internal(id, |internal, _| Ok(internal.split_off(at, new)))?;
    store.add(Node::Internal(right));
    for part in [&lo, key] {
        balance.enqueue(tree, part, height);
    }
    link(store, balance, tree, &lo, height, parent, vec![(new, key.clone())])
}

fn split_internal(
    store: &mut Store,
    balance: &mut Balance,
    tree: TreeId,
    key: &Key,
    height: Height,
) -> Result<()> {
    let internal = ready_to_split(store, tree, key, height)?;
    let (count, edges) = (internal.children().len(), internal.edge_bytes());
    let (id, lo) = (internal.id, internal.bounds.lo.clone());
    drop(internal);
    let (most, bytes_max) = store.geometry.edges_max();
    let pieces =
        count.div_ceil(most).max(edges.div_ceil(bytes_max).min(count / CHILDREN_MIN)).max(2);
    let ids = (1..pieces).map(|_| store.new_id()).collect::<Result<Vec<_>>>()?;
    let parent = parent_to_change(store, tree, &lo, height)?;
    let mut edges = Vec::new();
    for (piece, new) in (1..pieces).zip(ids).rev() {
        let right = store.edit_internal(id, |internal, _| {
            let at = internal.boundary_near(count * piece / pieces, count / pieces);
            Ok(internal.split_off(at, new))
        })?;
        edges.push((new, right.bounds.lo.clone()));
        store.add(Node::Internal(right));
    }
    edges.reverse();
    for (_, pivot) in &edges {
        balance.enqueue(tree, pivot, height);
    }
    balance.enqueue(tree, &lo, height);
    link(store, balance, tree, &lo, height, parent, edges)
}

/// The internal node on the path to `key`, after the buffer above it was flushed and its sealed runs were opened.
fn ready_to_split(
    store: &mut Store,
    tree: TreeId,
    key: &[u8],
    height: Height,
) -> Result<SharedInternal> {
    empty_above(store, tree, key, height)?;
    let id = node_at(store, tree, key, height)?;
    unseal(store, id)?;
    store.internal(id)
}

/// Reads the messages of sealed runs into the open run, and frees the extents of those runs.
fn unseal(store: &mut Store, id: NodeId) -> Result<()> {
    if store.node(id)?.height() == Height(0) {
        return Ok(());
    }
    let freed = store.edit_internal(id, |internal, disk| internal.unseal(disk))?;
    let now = store.birth();
    freed.into_iter().try_for_each(|retired| store.space.retire(retired, now))
}

/// Merges the node of this height on the path to `key` with a neighbour, if a neighbour fits.
pub(super) fn merge(
    store: &mut Store,
    balance: &mut Balance,
    tree: TreeId,
    key: &Key,
    height: Height,
) -> Result<()> {
    let Some((parent, at)) = parent_of(store, tree, key, height)? else { return Ok(()) };
    let count = children_of(store, parent)?;
    if count < 2 {
        // The parent's merge gives it a neighbour.
        balance.enqueue(tree, key, Height(height.0 + 1));
        return shrink(store, balance, tree);
    }
    let right = (at + 1 < count).then_some(at);
    for left in right.into_iter().chain(at.checked_sub(1)) {
        if fit_together(store, parent, left)? {
            return join(store, balance, tree, parent, left);
        }
    }
    Ok(())
}

/// Merges children `left` and `left + 1` of node `parent`.
fn join(
    store: &mut Store,
    balance: &mut Balance,
    tree: TreeId,
    parent: NodeId,
    left: usize,
) -> Result<()> {
    let (left_id, _) = move_buffer(store, parent, left)?;
    let (right_id, boundary) = move_buffer(store, parent, left + 1)?;
    if is_pending(store, parent, left)? || is_pending(store, parent, left + 1)? {
        for id in [left_id, right_id] {
            let node = store.node(id)?;
            balance.enqueue(tree, &node.bounds().lo, node.height());
        }
        return Ok(());
    }
    for id in [left_id, right_id] {
        unseal(store, id)?;
    }
    // All that can fail comes first: entries that are in neither node would be lost.
    open_leaf(store, left_id)?;
    open_leaf(store, right_id)?;
    store.prepare_to_discard(right_id)?;
    store.make_dirty(parent)?;
    let right = store.node(right_id)?;
    let height = right.height();
    store.edit(left_id, |node, _| {
        match (node, (*right).clone()) {
            (Node::Leaf(left), Node::Leaf(right)) => left.merge(right),
            (Node::Internal(left), Node::Internal(right)) => left.merge(right),
            _ => unreachable!("siblings are of one height"),
        }
        Ok(())
    })?;
    store.discard(right_id)?;
    store.edit_internal(parent, |internal, _| {
        internal.remove_right_of(left);
        Ok(())
    })?;
    let lo = store.node(left_id)?.bounds().lo.clone();
    // The parent has one child less.
    balance.enqueue(tree, &lo, Height(height.0 + 1));
    if let Some(below) = height.0.checked_sub(1) {
        // A child without a neighbour may have one now.
        balance.enqueue(tree, &boundary, Height(below));
        balance.enqueue(tree, &lo, Height(below));
        split_if_wide(store, balance, left_id, &lo)?;
    }
    balance.enqueue(tree, &lo, height);
    if children_of(store, parent)? == 1 { shrink(store, balance, tree) } else { Ok(()) }
}

/// Whether children `left` and `left + 1` together fill at most 3/4 of a node. An empty one fits any neighbour, and so
/// does a node with a single child: the merged node may split again.
fn fit_together(store: &Store, parent: NodeId, left: usize) -> Result<bool> {
    let internal = store.internal(parent)?;
    // A leaf that range deletes cover is empty once its buffer is flushed, so it is not read.
    let has_ranges = internal.has_ranges(left) || internal.has_ranges(left + 1);
    let looks = internal.height == Height(1) && has_ranges;
    if looks {
        internal.load_ranges(&store.disk)?;
    }
    let pruned = [left, left + 1].map(|at| looks && internal.is_pruned(at));
    for (at, pruned) in [left, left + 1].into_iter().zip(pruned) {
        if !pruned && store.is_shared(&internal, at)? {
            return Ok(false);
        }
    }
    if pruned.contains(&true) {
        return Ok(true);
    }
    let pair = (store.child(&internal, left)?, store.child(&internal, left + 1)?);
    Ok(match (&*pair.0, &*pair.1) {
        (Node::Leaf(a), Node::Leaf(b)) => {
            let fits = a.bytes() + b.bytes() <= store.geometry.leaf_size as usize / 4 * 3;
            fits || a.is_empty() || b.is_empty()
        }
        (Node::Internal(a), Node::Internal(b)) => {
            let edges = a.edge_bytes() + b.edge_bytes();
            let (a, b) = (a.children().len(), b.children().len());
            let (most, bytes_max) = store.geometry.edges_max();
            let fits = a + b <= most / 4 * 3 && edges <= bytes_max / 4 * 3;
            a.min(b) == 1 || fits
        }
        _ => false,
    })
}

/// Whether messages for child `at` are pending in node `id`.
fn is_pending(store: &Store, id: NodeId, at: usize) -> Result<bool> {
    Ok(store.internal(id)?.pending(at) > 0)
}

/// Whether an internal node has more children than the geometry allows, or edges with too many bytes and more than
/// `CHILDREN_MIN` children.
pub(super) fn is_wide(store: &Store, internal: &Internal) -> bool {
    let (most, bytes_max) = store.geometry.edges_max();
    let children = internal.children().len();
    children > most || children > CHILDREN_MIN && internal.edge_bytes() > bytes_max
}

fn children_of(store: &Store, id: NodeId) -> Result<usize> {
    Ok(store.node(id)?.internal().map_or(0, |internal| internal.children().len()))
}

/// While the root has one child, the root takes over that child's content.
fn shrink(store: &mut Store, balance: &mut Balance, tree: TreeId) -> Result<()> {
    let root = tree.root();
    while children_of(store, root)? == 1 {
        if store.is_shared(&*store.internal(root)?, 0)? {
            return Ok(());
        }
        let (child, pivot) = move_buffer(store, root, 0)?;
        if is_pending(store, root, 0)? {
            balance.enqueue(tree, &pivot, Height(0));
            return Ok(());
        }
        unseal(store, root)?;
        let mut node = (*store.node(child)?).clone();
        match &mut node {
            Node::Leaf(leaf) => {
                leaf.open(&store.disk)?;
                leaf.id = root;
            }
            Node::Internal(_) => {
                unseal(store, child)?;
                node = (*store.node(child)?).clone();
                if let Node::Internal(internal) = &mut node {
                    internal.id = root;
                }
            }
        }
        store.discard(child)?;
        let height = node.height();
        store.edit(root, |root, _| {
            *root = node;
            Ok(())
        })?;
        // The content may exceed the root's limits.
        balance.enqueue(tree, &Key::default(), height);
    }
    Ok(())
}
