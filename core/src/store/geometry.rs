//! The sizes that shape the trees.

use crate::format::CHILD_BYTES;
use crate::format::limits::{KEY_MAX, NODE_SIZE};
use crate::ids::BLOCK_SIZE;
use crate::node::Internal;
use crate::tuning::{BASEMENT_SIZE, BETWEEN, BETWEEN_NODES_MIN, EDGES_MIN};

/// The sizes that shape the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// An internal node flushes when its buffers weigh more, in bytes.
    pub node_size: u32,
    /// A leaf splits when it is larger, in bytes.
    pub leaf_size: u32,
    /// The target size of a basement, in bytes.
    pub basement_size: u32,
    /// An internal node splits when it has more children.
    pub fanout: u32,
}

impl Geometry {
    /// What suits an image of `bytes` bytes: nodes of at most a 256th of it, and of 4 MiB.
    pub fn of_image(bytes: u64) -> Geometry {
        let largest = (1u64 << (bytes / 256).max(4096).ilog2()).min(4 << 20);
        Geometry::new(u32::try_from(largest).unwrap_or(4 << 20), BASEMENT_SIZE)
    }

    /// The geometry of node size and basement size: leaves of an eighth of a node, 64 children. Leaves of
    /// less than 64 KiB would waste much of their last block.
    pub fn new(node_size: u32, basement_size: u32) -> Geometry {
        let leaf_size = (node_size / 8).max(64 << 10).min(node_size.max(4096));
        Geometry { node_size, leaf_size, basement_size: basement_size.min(leaf_size), fanout: 64 }
    }

    /// What the buffers of a node between the root and those above leaves may weigh, in an image of `image_blocks` blocks. Such nodes are
    /// few, and what they send down is written by many: they take twice as much as others, where a few nodes more are little of
    /// the image, and none more than any node may.
    pub fn between_size(&self, image_blocks: u64) -> u32 {
        let is_wide = image_blocks / BETWEEN_NODES_MIN
            >= u64::from(self.node_size).div_ceil(BLOCK_SIZE as u64);
        match is_wide {
            true => (BETWEEN * self.node_size).min(*NODE_SIZE.end()),
            false => self.node_size,
        }
    }

    /// At most how many children an internal node has, and how many bytes their edges take before it is divided.
    pub fn edges_max(&self) -> (usize, usize) {
        (self.fanout as usize, (self.node_size as usize / 2).max(EDGES_MIN))
    }

    /// At most how many bytes an internal node takes: its buffers may have become twice as large as they may be.
    pub fn internal_bytes_max(&self, image_blocks: u64) -> usize {
        let buffers = 2 * self.between_size(image_blocks) as usize;
        let (children, edges) = self.edges_max();
        Internal::bytes_with(buffers, children + 1, edges.min(children * EDGE_MAX) + EDGE_MAX)
    }

    /// The most leaves that `bytes` bytes of entries fill: 2 for each leaf size, since two neighbours together exceed it.
    pub fn leaves_of(&self, bytes: u64) -> u64 {
        2 * bytes / u64::from(self.leaf_size)
    }

    /// The most nodes that a step adds when `bytes` bytes come to one leaf: those that they fill, and 4 for the leaf itself and a
    /// node on each level above it.
    pub fn nodes_of(&self, bytes: u64) -> u64 {
        self.leaves_of(bytes.next_multiple_of(self.leaf_size.into())) + PIECES
    }

    /// The bytes of values that updates may make in a leaf in one step.
    pub fn growth_at_once(&self) -> usize {
        GROWTH_AT_ONCE * self.leaf_size as usize
    }
}

/// What an edge to a child takes in a head, at the most.
const EDGE_MAX: usize = CHILD_BYTES + KEY_MAX;
/// A leaf takes updates in one step until the values that they make have the size of 2 leaves.
const GROWTH_AT_ONCE: usize = 2;
/// Nodes that a step may divide at the most: one on each level, into two.
const PIECES: u64 = 4;
