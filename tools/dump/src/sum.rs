//! The content of a node according to its head, and sums over nodes.

use betr_core::format::{Entry, InternalHead, Key, LeafHead};
use betr_core::ids::NodeId;

use crate::Image;

/// The content of a node according to its head.
#[derive(Default)]
pub(crate) struct NodeNumbers {
    /// The used bytes, without padding.
    pub bytes: u64,
    pub basements: usize,
    pub entries: u64,
    pub children: Vec<NodeId>,
    pub runs: usize,
    /// The number of pending messages, and their bytes.
    pub pending: u64,
    pub pending_bytes: u64,
    /// The lower bound of its keys.
    pub from: Key,
}

impl NodeNumbers {
    /// Reads the head of a node and nothing else.
    pub(crate) fn of(image: &Image, entry: &Entry) -> Result<NodeNumbers, String> {
        let head = image.disk.read(entry.extent.start.byte(), entry.head_bytes as usize);
        let head = head.map_err(|error| error.to_string())?;
        match entry.height.0 {
            0 => LeafHead::decode(&head, None).map(|(_, head)| NodeNumbers::of_leaf(head)),
            _ => InternalHead::decode(&head, None)
                .map(|(_, head)| NodeNumbers::of_internal(head, entry.head_bytes)),
        }
        .map_err(|error| error.to_string())
    }

    fn of_leaf(head: LeafHead) -> NodeNumbers {
        NodeNumbers {
            bytes: head.leaf_bytes.into(),
            basements: head.basements.len(),
            entries: head.basements.iter().map(|basement| u64::from(basement.entries)).sum(),
            from: head.bounds.lo,
            ..NodeNumbers::default()
        }
    }

    fn of_internal(head: InternalHead, head_bytes: u32) -> NodeNumbers {
        let mut held = NodeNumbers {
            bytes: head_bytes.into(),
            children: head.children.iter().map(|child| child.id).collect(),
            runs: head.runs.len(),
            ..NodeNumbers::default()
        };
        for run in &head.runs {
            held.bytes += u64::from(run.bytes);
            for section in run.slices.iter().map(|slice| slice.section).chain([run.ranges]) {
                held.pending += u64::from(section.count);
                held.pending_bytes += u64::from(section.bytes);
            }
        }
        NodeNumbers { from: head.bounds.lo, ..held }
    }
}

/// Sums over nodes.
#[derive(Default)]
pub(crate) struct Sum {
    pub nodes: u64,
    pub bytes: u64,
    pub entries: u64,
    pub children: u64,
    pub runs: u64,
    pub pending: u64,
    pub pending_bytes: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, held: &NodeNumbers) {
        self.nodes += 1;
        self.bytes += held.bytes;
        self.entries += held.entries;
        self.children += held.children.len() as u64;
        self.runs += held.runs as u64;
        self.pending += held.pending;
        self.pending_bytes += held.pending_bytes;
    }
}
