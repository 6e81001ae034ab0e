//! The sizes that shape the trees.

use crate::format::CHILD_BYTES;
use crate::format::limits::{KEY_MAX, NODE_SIZE};
use crate::ids::{BLOCK_SIZE, Height};
use crate::node::Internal;
use crate::tuning::{BASEMENT_SIZE, BETWEEN, BETWEEN_NODES_MIN, EDGES_MIN};

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
            true => (BETWEEN * self.node_size).min(*NODE_SIZE.end()),
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

    /// The most nodes that a step adds when `bytes` bytes come to one leaf of a tree with a root of this height: those
    /// that the bytes fill, one for each internal node of the path, which may split in two, and a new root.
    pub fn nodes_of(&self, bytes: u64, height: Height) -> u64 {
        let pieces = height.max(SPLIT_MIN).0 + 1;
        self.leaves_of(bytes.next_multiple_of(self.leaf_size.into())) + u64::from(pieces)
    }

    /// The bytes of values that updates may create in a leaf in one step.
    pub fn growth_at_once(&self) -> usize {
        GROWTH_AT_ONCE * self.leaf_size as usize
    }
}

/// The most bytes that an edge to a child takes in a head.
const EDGE_MAX: usize = CHILD_BYTES + KEY_MAX;
/// A leaf takes updates in one step until the values that they create have the size of 2 leaves.
const GROWTH_AT_ONCE: usize = 2;
/// Height 3: lower trees are taken for as high, so that the reserve for steps does not grow with their levels.
const SPLIT_MIN: Height = Height(3);
