//! Injection: messages enter a tree.
//!
//! A message goes into the root. It may skip levels where nothing is pending for its path, if the
//! child is in memory and dirty: then it overtakes nothing older, and dirties nothing new (promotion,
//! BetrFS 0.2 §2.1). A sequential write so reaches its leaf at once, and is written once. Nodes that
//! become too large wait in the [`Balance`].

use super::Balance;
use crate::cache::Store;
use crate::error::{Error, Result};
use crate::format::{Action, Key, Message, RangeDelete, RecordMessage};
use crate::ids::*;
use crate::node::{Batch, Node};

/// Injects messages with their values; they have the MSNs from `first` on.
pub fn inject(
    store: &mut Store,
    balance: &mut Balance,
    first: Msn,
    messages: &[RecordMessage],
) -> Result<()> {
    let mut at = 0;
    while at < messages.len() {
        let msn = Msn(first.0 + at as u64);
        at += match &messages[at] {
            RecordMessage::Point(tree, key, _) => {
                let target = target_of(store, *tree, key)?;
                apply_points(store, balance, *tree, target, msn, &messages[at..])?
            }
            RecordMessage::RangeDelete(tree, lo, hi) => {
                let range = RangeDelete { msn, lo: lo.clone(), hi: hi.clone() };
                inject_range(store, balance, *tree, range)?;
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
/// for the same leaf, or for the same child of an internal node. Returns how many were applied.
fn apply_points(
    store: &mut Store,
    balance: &mut Balance,
    tree: TreeId,
    id: NodeId,
    first: Msn,
    messages: &[RecordMessage],
) -> Result<usize> {
    let leaf_size = store.geometry.leaf_size as usize;
    let node_size = store.geometry.node_size as usize;
    let first_key = messages[0].key();
    let (applied, height, full) = store.edit(id, |node, disk| {
        let bounds = match node {
            Node::Leaf(leaf) => {
                leaf.open(disk)?;
                leaf.bounds.clone()
            }
            Node::Internal(internal) => internal.child_bounds(internal.child_for(first_key)),
        };
        let mut applied = 0;
        for message in messages {
            let RecordMessage::Point(other, key, action) = message else { break };
            if *other != tree || (applied > 0 && !bounds.contains(key)) {
                break;
            }
            let (msn, action) = (Msn(first.0 + applied as u64), owned_action(action));
            match node {
                Node::Leaf(leaf) => leaf.apply(owned(key), msn, &action),
                Node::Internal(internal) => internal.insert(owned(key), Message { msn, action }),
            }
            applied += 1;
        }
        let full = match node {
            Node::Leaf(leaf) => leaf.bytes() > leaf_size,
            Node::Internal(internal) => internal.buffered() > node_size,
        };
        Ok((applied, node.height(), full))
    })?;
    if full {
        balance.look_at(tree, first_key, height);
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
        Action::Update(update) => Action::Update(update.owned()),
        other => other.clone(),
    }
}

fn inject_range(
    store: &mut Store,
    balance: &mut Balance,
    tree: TreeId,
    range: RangeDelete,
) -> Result<()> {
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
            let mut batch = Batch::default();
            batch.insert_range(range);
            leaf.apply_batch(&batch);
            Ok((Height(0), false))
        }
    })?;
    if full {
        balance.look_at(tree, &lo, height);
    }
    Ok(())
}
