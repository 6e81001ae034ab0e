//! Why a key has the value that it has: the way from the root to its leaf, and every message on it.

use bytes::Bytes;

use super::descent::Descent;
use crate::error::Result;
use crate::format::{Bounds, Entry};
use crate::ids::*;
use crate::node::{Node, Pending};
use crate::store::{Store, Use};

/// How a value comes about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The nodes on the way, the root first.
    pub way: Vec<Stop>,
    /// What the leaf says.
    pub stored: Option<Bytes>,
    /// What a read returns.
    pub value: Option<Bytes>,
}

/// A node on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Its name.
    pub node: NodeId,
    /// Its height.
    pub height: Height,
    /// The keys that it is responsible for.
    pub bounds: Bounds,
    /// Where it is on the device; nothing if it is in memory only.
    pub entry: Option<Entry>,
    /// Of an internal node: which of its children the way goes on to.
    pub chosen: Option<Chosen>,
    /// Its messages for the key, the oldest first, each with the value that it leaves.
    pub messages: Vec<(Pending, Option<Bytes>)>,
}

/// The child of a node that is responsible for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which of them, from 0.
    pub index: usize,
    /// Of how many.
    pub children: usize,
    /// Its name.
    pub child: NodeId,
    /// The keys between the pivots on either side.
    pub bounds: Bounds,
}

/// Explains the value of `key`.
pub fn explain(store: &Store, tree: TreeId, key: &[u8]) -> Result<Explanation> {
    store.lost.check_key(tree, key)?;
    let mut way = Vec::new();
    let mut descent = Descent::new(store, tree)?;
    let stored = loop {
        let node = descent.node();
        let entry = store.table.get(node.id())?;
        let (id, height, bounds) = (node.id(), node.height(), node.bounds().clone());
        let stop = |chosen, messages| Stop { node: id, height, bounds, entry, chosen, messages };
        match &**node {
            Node::Leaf(leaf) => {
                let stored = leaf.get(&store.disk, key)?;
                way.push(stop(None, Vec::new()));
                break stored;
            }
            Node::Internal(internal) => {
                let index = internal.child_for(key);
                let chosen = Chosen {
                    index,
                    children: internal.children().len(),
                    child: internal.children()[index].id,
                    bounds: internal.child_bounds(index),
                };
                let mut messages = internal.pending_for(&store.disk, key)?;
                messages.reverse();
                let messages = messages.into_iter().map(|message| (message, None)).collect();
                way.push(stop(Some(chosen), messages));
                descent.enter(index, Use::Other)?;
            }
        }
    };
    // What is lower is older.
    let mut value = stored.clone();
    for (message, after) in way.iter_mut().rev().flat_map(|stop| &mut stop.messages) {
        value = message.deed.carried_out(value);
        *after = value.clone();
    }
    Ok(Explanation { way, stored, value })
}
