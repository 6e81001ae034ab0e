//! The sizes that shape the trees.

use crate::format::CHILD_BYTES;
use crate::format::limits::{KEY_MAX, NODE_SIZE};
use crate::ids::{BLOCK_SIZE, Height};
use crate::node::Internal;
use crate::tuning::{BASEMENT_SIZE, BETWEEN_BUFFERS, BETWEEN_NODES_MIN, CHILDREN_MIN, EDGES_MIN};

/// The sizes that shape the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// An internal node flushes when its buffers weigh more than this, in bytes.
    pub node_size: u32,
    /// A leaf splits when it is larger than this, in bytes.
    pub leaf_size: u32,
    /// The target size of a basement, in bytes.
    pub basement_size: u32,
    /// An internal node splits when it has more children than this.
    pub fanout: u32,
}

impl Geometry {
    /// The geometry for an image of `bytes` bytes: nodes of 1/256 of the image, 4 MiB at the most.
    pub fn of_image(bytes: u64) -> Geometry {
        let largest = (1u64 << (bytes / 256).max(4096).ilog2()).min(4 << 20);
        Geometry::new(u32::try_from(largest).unwrap_or(4 << 20), BASEMENT_SIZE)
    }

    /// The geometry for a node size and a basement size: leaves of 1/8 of a node, 64 children. Leaves smaller than 64
    /// KiB would waste much of their last block.
    pub fn new(node_size: u32, basement_size: u32) -> Geometry {
        let leaf_size = (node_size / 8).max(64 << 10).min(node_size.max(4096));
        Geometry { node_size, leaf_size, basement_size: basement_size.min(leaf_size), fanout: 64 }
    }

    /// The largest buffer weight of a node between the root and height 1, in bytes, in an image of `image_blocks`
    /// blocks. It is twice that of other nodes, because a flush of such a node makes many children write. Images too
    /// small for `BETWEEN_NODES_MIN` nodes get no such increase, and the format's maximum node size bounds it.
    pub fn between_size(&self, image_blocks: u64) -> u32 {
        let is_wide = image_blocks / BETWEEN_NODES_MIN
            >= u64::from(self.node_size).div_ceil(BLOCK_SIZE as u64);
        match is_wide {
            true => (BETWEEN_BUFFERS * self.node_size).min(*NODE_SIZE.end()),
            false => self.node_size,
        }
    }

    /// The most children of an internal node, and the most bytes of edges before it splits.
    pub fn edges_max(&self) -> (usize, usize) {
        (self.fanout as usize, (self.node_size as usize / 2).max(EDGES_MIN))
    }

    /// The most bytes that an internal node takes: its buffers may grow to twice their limit before it flushes.
    pub fn internal_bytes_max(&self, image_blocks: u64) -> usize {
        let buffers = 2 * self.between_size(image_blocks) as usize;
        let (children, edges) = self.edges_max();
        Internal::bytes_with(buffers, children + 1, edges.min(children * EDGE_MAX) + EDGE_MAX)
    }

    /// The most leaves that `bytes` bytes of entries fill: 2 for each leaf size, since any two neighbours together
    /// exceed it.
    pub fn leaves_of(&self, bytes: u64) -> u64 {
        2 * bytes / u64::from(self.leaf_size)
    }

    /// The most nodes that steps add when `bytes` bytes come to one leaf of a tree with a root of this height: the leaves
    /// that the bytes fill, at each height the internal nodes that the new edges fill, and one for the one that splits,
    /// and a new root.
    pub fn nodes_of(&self, bytes: u64, height: Height) -> u64 {
        let mut added = self.leaves_of(bytes.next_multiple_of(self.leaf_size.into()));
        let mut all = added + 1;
        for _ in 0..height.max(SPLIT_MIN).0 {
            added = added / self.children_at_least() + 1;
            all += added;
        }
        all
    }

    /// A node that splits gets a piece for as many children, or for more.
    fn children_at_least(&self) -> u64 {
        let (children, edges) = self.edges_max();
        children.min((edges / EDGE_MAX).max(CHILDREN_MIN)) as u64
    }

    /// The bytes of values that updates may create in a leaf in one step.
    pub fn growth_at_once(&self) -> usize {
        GROWTH_AT_ONCE * self.leaf_size as usize
    }
}

/// 2 KiB and 30 bytes: the most that an edge takes in a head, with a pivot and a lens of the longest keys.
pub(crate) const EDGE_MAX: usize = CHILD_BYTES + 2 * KEY_MAX;
/// A leaf takes updates in one step until the values that they create have the size of 2 leaves.
const GROWTH_AT_ONCE: usize = 2;
/// Height 3: lower trees are taken for as high, so that the reserve for steps does not grow with their levels.
const SPLIT_MIN: Height = Height(3);

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with all the children that it may have gets `new` more: how many nodes does it split into?
    fn pieces(geometry: &Geometry, new: u64, edge: usize) -> u64 {
        let (most, bytes_max) = geometry.edges_max();
        let before = most.min((bytes_max / edge).max(CHILDREN_MIN));
        let count = before + new as usize;
        let by_bytes = (count * edge).div_ceil(bytes_max).min(count / CHILDREN_MIN);
        count.div_ceil(most).max(by_bytes).max(1) as u64
    }

    #[test]
    fn no_split_adds_more_nodes_than_the_reserve_has() {
        for fanout in [4, 5, 8, 16, 64, 1024] {
            for (node_size, leaf_size) in [(4096, 4096), (256 << 10, 4096), (4 << 20, 512 << 10)] {
                let geometry = Geometry { node_size, leaf_size, basement_size: 4096, fanout };
                for (edge, bytes) in [CHILD_BYTES + 1, 300, EDGE_MAX]
                    .into_iter()
                    .flat_map(|edge| [0, 1, 7000, 1 << 20, 40 << 20].map(|bytes| (edge, bytes)))
                {
                    for height in 1..=16 {
                        // A leaf of the usual size gets the bytes; any two neighbours together exceed the size.
                        let mut new = 2 * bytes / u64::from(leaf_size) + 1;
                        let mut all = new;
                        for _ in 0..height {
                            new = pieces(&geometry, new, edge) - 1;
                            all += new;
                        }
                        // The root that split gets one above it.
                        all += u64::from(new > 0);
                        let most = geometry.nodes_of(bytes + u64::from(leaf_size), Height(height));
                        assert!(
                            all <= most,
                            "{geometry:?}, {edge}, {bytes}, {height}: {all}, {most}"
                        );
                    }
                }
            }
        }
    }
}
