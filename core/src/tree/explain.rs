//! Explains why a key has its value: the path from the root to its leaf, and every message on it.

use bytes::Bytes;

use super::descent::Descent;
use crate::error::Result;
use crate::format::{Bounds, Entry, Lens};
use crate::ids::*;
use crate::node::{Node, Pending};
use crate::store::{Store, Use};

/// The explanation of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The nodes of the path, the root first.
    pub way: Vec<Stop>,
    /// The value in the leaf.
    pub stored: Option<Bytes>,
    /// The value that a read returns.
    pub value: Option<Bytes>,
}

/// A node of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Its id.
    pub node: NodeId,
    /// Its height.
    pub height: Height,
    /// The keys that it is responsible for, as they are in the node.
    pub bounds: Bounds,
    /// Its table entry; `None` if it is only in memory.
    pub entry: Option<Entry>,
    /// For an internal node, the child that the path takes.
    pub chosen: Option<Chosen>,
    /// Its messages for the key, the oldest first, each with the value after it.
    pub messages: Vec<(Pending, Option<Bytes>)>,
}

/// The child of a node that is responsible for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its index, from 0.
    pub index: usize,
    /// Number of children of the node.
    pub children: usize,
    /// Its id.
    pub child: NodeId,
    /// The keys between the pivots on either side.
    pub bounds: Bounds,
    /// What replaces the prefix of keys on the way to it.
    pub lens: Option<Lens>,
}

/// Explains the value of `key`.
pub fn explain(store: &Store, tree: TreeId, key: &[u8]) -> Result<Explanation> {
    store.lost.check_key(tree, key)?;
    let mut way = Vec::new();
    let mut descent = Descent::new(store, tree)?;
    let stored = loop {
        let node = descent.node();
        let key = descent.lens().down(key);
        let entry = store.table.get(node.id())?;
        let (id, height, bounds) = (node.id(), node.height(), node.bounds().clone());
        let stop = |chosen, messages| Stop { node: id, height, bounds, entry, chosen, messages };
        match &**node {
            Node::Leaf(leaf) => {
                let stored = leaf.get(&store.disk, &key)?;
                way.push(stop(None, Vec::new()));
                break stored;
            }
            Node::Internal(internal) => {
                let index = internal.child_for(&key);
                let chosen = Chosen {
                    index,
                    children: internal.children().len(),
                    child: internal.children()[index].id,
                    bounds: internal.child_bounds(index),
                    lens: internal.children()[index].lens.as_deref().cloned(),
                };
                let mut messages = internal.pending_for(&store.disk, &key)?;
                messages.reverse();
                let messages = messages.into_iter().map(|message| (message, None)).collect();
                way.push(stop(Some(chosen), messages));
                descent.enter(index, Use::Other)?;
            }
        }
    };
    // Lower nodes hold older messages.
    let mut value = stored.clone();
    for (message, after) in way.iter_mut().rev().flat_map(|stop| &mut stop.messages) {
        value = message.deed.carried_out(value);
        *after = value.clone();
    }
    Ok(Explanation { way, stored, value })
}
