//! Injection and flushing.
//!
//! A message goes into the root. It may skip levels where nothing is pending for its path, if the
//! child is in memory and dirty: then it overtakes nothing older, and dirties nothing new (promotion,
//! BetrFS 0.2 §2.1). A sequential write so reaches its leaf at once, and is written once. When the
//! buffers of a node weigh more than its size, the heaviest goes down one level.

use super::shape;
use crate::cache::Store;
use crate::error::{Error, Result};
use crate::format::{Action, Key, Message, RangeDelete, RecordMessage};
use crate::ids::*;
use crate::node::Node;

/// Injects messages with their values; they have the MSNs from `first` on.
pub fn inject(store: &mut Store, first: Msn, messages: &[RecordMessage]) -> Result<()> {
    let mut at = 0;
    while at < messages.len() {
        let msn = Msn(first.0 + at as u64);
        at += match &messages[at] {
            RecordMessage::Point(tree, key, _) => {
                let target = target_of(store, *tree, key)?;
                apply_points(store, *tree, target, msn, &messages[at..])?
            }
            RecordMessage::RangeDelete(tree, lo, hi) => {
                inject_range(store, *tree, RangeDelete { msn, lo: lo.clone(), hi: hi.clone() })?;
                1
            }
            RecordMessage::Unbound(..) => {
                return Err(Error::Misuse("a message without its value".into()));
            }
        };
    }
    Ok(())
}

/// The node that a message to `key` may go to at once.
fn target_of(store: &Store, tree: TreeId, key: &[u8]) -> Result<NodeId> {
    let mut node = store.root(tree)?;
    while let Node::Internal(internal) = &*node {
        let at = internal.child_for(key);
        if internal.pending(at) > 0 || !store.is_dirty(internal.children()[at].id) {
            break;
        }
        let child = store.child(internal, at)?;
        node = child;
    }
    Ok(node.id())
}

/// Applies the first of `messages` to node `id`, and those after it for as long as they are points
/// for the same leaf and the leaf is not too large. Returns how many were applied.
fn apply_points(
    store: &mut Store,
    tree: TreeId,
    id: NodeId,
    first: Msn,
    messages: &[RecordMessage],
) -> Result<usize> {
    let leaf_size = store.geometry.leaf_size as usize;
    let node_size = store.geometry.node_size as usize;
    let RecordMessage::Point(_, first_key, first_action) = &messages[0] else {
        unreachable!("the caller found a point message")
    };
    let (applied, height, full) = store.edit(id, |node, disk| match node {
        Node::Internal(internal) => {
            let message = Message { msn: first, action: first_action.clone() };
            internal.insert(owned(first_key), message);
            Ok((1, internal.height, internal.buffered() > node_size))
        }
        Node::Leaf(leaf) => {
            leaf.open(disk)?;
            let mut applied = 0;
            for message in messages {
                let RecordMessage::Point(other, key, action) = message else { break };
                if *other != tree || !leaf.bounds.contains(key) || leaf.bytes() > leaf_size {
                    break;
                }
                leaf.apply(owned(key), Msn(first.0 + applied as u64), &owned_action(action));
                applied += 1;
            }
            if applied == 0 {
                leaf.apply(owned(first_key), first, &owned_action(first_action));
                applied = 1;
            }
            Ok((applied, Height(0), leaf.bytes() > leaf_size))
        }
    })?;
    if full && height == Height(0) {
        shape::split_leaf(store, tree, first_key)?;
    } else if full {
        flush_node(store, tree, first_key, height)?;
    }
    Ok(applied)
}

/// A key of its own memory: a share of a log group would keep the whole group alive.
fn owned(key: &Key) -> Key {
    Key::copied(key)
}

/// Small values get memory of their own for the same reason; blocks are shared, not copied.
fn owned_action(action: &Action) -> Action {
    match action {
        Action::Insert(value) if value.len() < 1024 => {
            Action::Insert(bytes::Bytes::copy_from_slice(value))
        }
        other => other.clone(),
    }
}

fn inject_range(store: &mut Store, tree: TreeId, range: RangeDelete) -> Result<()> {
    let node_size = store.geometry.node_size as usize;
    let lo = range.lo.clone();
    store.root(tree)?;
    let (height, full) = store.edit(tree.root(), |node, disk| match node {
        Node::Internal(internal) => {
            internal.insert_range(range);
            Ok((internal.height, internal.buffered() > node_size))
        }
        Node::Leaf(leaf) => {
            leaf.open(disk)?;
            let mut batch = crate::node::Batch::default();
            batch.insert_range(range);
            leaf.apply_batch(&batch);
            Ok((Height(0), false))
        }
    })?;
    if full {
        flush_node(store, tree, &lo, height)?;
    }
    Ok(())
}

/// Flushes the node of this height on the way to `key` until its buffers fit.
fn flush_node(store: &mut Store, tree: TreeId, key: &Key, height: Height) -> Result<()> {
    let node_size = store.geometry.node_size as usize;
    loop {
        let id = shape::node_at(store, tree, key, height)?;
        let node = store.node(id)?;
        match &*node {
            Node::Internal(internal)
                if internal.buffered() > node_size && internal.height == height =>
            {
                let at = internal.heaviest();
                drop(node);
                flush_child(store, tree, id, at)?;
            }
            _ => return Ok(()),
        }
    }
}

/// Moves the buffer of child `at` of node `id` down, and then whatever has become too large.
pub(super) fn flush_child(store: &mut Store, tree: TreeId, id: NodeId, at: usize) -> Result<()> {
    let (child, pivot) = move_buffer(store, id, at)?;
    let node = store.node(child)?;
    let (leaf_size, fanout) = (store.geometry.leaf_size as usize, store.geometry.fanout as usize);
    match &*node {
        Node::Leaf(leaf) => {
            let bytes = leaf.bytes();
            drop(node);
            if bytes > leaf_size {
                shape::split_leaf(store, tree, &pivot)?;
            } else if bytes < leaf_size / 4 {
                shape::merge(store, tree, &pivot, Height(0))?;
            }
        }
        Node::Internal(internal) => {
            let height = internal.height;
            drop(node);
            flush_node(store, tree, &pivot, height)?;
            let id = shape::node_at(store, tree, &pivot, height)?;
            if let Node::Internal(internal) = &*store.node(id)?
                && internal.children().len() < fanout / 4
            {
                shape::merge(store, tree, &pivot, height)?;
            }
        }
    }
    Ok(())
}

/// Takes the buffer of child `at` out of node `id` and applies it to the child.
pub(super) fn move_buffer(store: &mut Store, id: NodeId, at: usize) -> Result<(NodeId, Key)> {
    let parent = store.node(id)?;
    let Node::Internal(internal) = &*parent else {
        unreachable!("only internal nodes have buffers")
    };
    let (child, pivot) = (internal.children()[at].id, internal.children()[at].pivot.clone());
    let pending = internal.pending(at) > 0;
    store.child(internal, at)?;
    drop(parent);
    if !pending {
        return Ok((child, pivot));
    }
    let batch = store.edit(id, |node, disk| match node {
        Node::Internal(internal) => internal.take_buffer(disk, at),
        Node::Leaf(_) => unreachable!("only internal nodes have buffers"),
    })?;
    store.edit(child, |node, disk| {
        match node {
            Node::Leaf(leaf) => {
                leaf.open(disk)?;
                leaf.apply_batch(&batch);
            }
            Node::Internal(internal) => internal.absorb(batch),
        }
        Ok(())
    })?;
    Ok((child, pivot))
}
