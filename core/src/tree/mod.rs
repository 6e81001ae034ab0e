//! The Bε-tree: messages go in at the root and move down in batches; queries overlay what is pending
//! on what the leaves hold, and change nothing.

mod balance;
mod cursor;
mod inject;
mod shape;

use bytes::Bytes;

use crate::cache::Store;
use crate::error::Result;
use crate::format::{Action, Bounds};
use crate::ids::*;
use crate::node::{Leaf, Node};

pub use balance::Balance;
pub use cursor::{Cursor, KeyScan, Scan};
pub use inject::inject;
pub use shape::halve;

/// Puts an empty tree into a new store.
pub fn create(store: &mut Store, tree: TreeId) {
    store.add(Node::Leaf(Leaf::empty(tree.root(), tree, Bounds::default())));
}

/// The value of `key`.
///
/// Walking down, the first message for the key is the youngest, and decides.
pub fn get(store: &Store, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>> {
    store.lost.check(tree, key, Some(&[key, &[0]].concat()))?;
    let mut node = store.root(tree)?;
    loop {
        let next = match &*node {
            Node::Leaf(leaf) => return leaf.get(&store.disk, key),
            Node::Internal(internal) => match internal.lookup(&store.disk, key)? {
                Some((_, Some(Action::Insert(value)))) => return Ok(Some(value)),
                Some(_) => return Ok(None),
                None => store.child(internal, internal.child_for(key))?,
            },
        };
        node = next;
    }
}
