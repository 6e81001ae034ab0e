//! The Bε-tree: messages enter at the root and are flushed in batches. Queries apply pending messages to the entries of
//! leaves, and change nothing.

mod ahead;
mod balance;
mod blocked;
mod carve;
mod cursor;
mod descent;
mod drain;
mod explain;
mod inject;
mod paths;
mod prune;
mod shape;
mod share;
mod streams;
mod sums;

use bytes::Bytes;

use crate::error::Result;
use crate::format::{Action, Bounds};
use crate::ids::*;
use crate::node::{Leaf, Node};
use crate::store::{Store, Use};

use descent::Descent;

pub use balance::Balance;
pub use cursor::{Cursor, KeyScan, PlaceScan, Scan, ValuePlace, lay_over, pending};
pub use descent::PathLens;
pub use drain::{Buffers, StepNeed};
pub use explain::{Chosen, Explanation, Stop, explain};
pub use inject::{Ordered, inject};
pub use paths::{NODE_PATHS_MAX, Parents};
pub(crate) use share::{Spliced, check_splice, splice};
pub(crate) use streams::{Request, Streams};
pub(crate) use sums::{Stretch, Sum, Sums, stretch};

/// Puts an empty tree into a new store.
pub fn create(store: &mut Store, tree: TreeId) {
    store.add(Node::Leaf(Leaf::empty(tree.root(), tree, Bounds::default())));
}

/// The value of `key`.
///
/// The descent meets the youngest messages first. It collects updates until a put or a delete decides.
pub fn get(store: &Store, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>> {
    store.lost.check_key(tree, key)?;
    let mut way = Descent::new(store, tree)?;
    let mut above = None;
    loop {
        let below = way.lens().down(key);
        match &**way.node() {
            Node::Leaf(leaf) => {
                let value = store.reading(way.node(), || leaf.get(&store.disk, &below))?;
                return Ok(above.map_or(value.clone(), |above: Action| above.apply(value.as_ref())));
            }
            Node::Internal(internal) => {
                above =
                    store.reading(way.node(), || internal.lookup(&store.disk, &below, above))?;
                if let Some(above) = above.as_ref().filter(|above| above.decides()) {
                    return Ok(above.apply(None));
                }
                let at = internal.child_for(&below);
                way.enter(at, Use::Other)?;
            }
        }
    }
}
