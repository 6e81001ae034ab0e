//! Nodes in memory: leaves of entries, internal nodes of children and runs of messages.
//!
//! A node is shared behind `Arc`, and never changes while it is shared. The single writer takes it out of the cache,
//! changes it, and puts it back. Parts on disk are read on demand, verified against the hash in the head, and then
//! kept. Nodes can read their parts and encode themselves; the cache decides where the bytes go.

mod batch;
mod internal;
mod leaf;
mod ranges;
mod sorted;

pub use batch::Batch;
pub use internal::{
    Child, Deed, EncodedRun, Internal, NewEdge, Pending, Run, SealedNode, SlicePlace, WrittenNode,
};
pub(crate) use leaf::verified_section;
pub use leaf::{EncodedLeaf, Leaf, SplitLeaf};
pub use ranges::RangeSet;
pub use sorted::{Item, Sorted};

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{Bounds, Entry, FormatFault, Inflow, InternalHead, LeafHead, Lens, Seal};
use crate::ids::*;
use crate::space::Need;

/// A count of bytes that were read into memory. It is increased after they are there.
#[derive(Default)]
struct Loaded(AtomicU64);

impl Loaded {
    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Release);
    }

    /// A copy that was made during a read may count less.
    fn take_off(&mut self, bytes: u64) {
        let count = self.0.get_mut();
        *count = count.saturating_sub(bytes);
    }
}

impl Clone for Loaded {
    fn clone(&self) -> Loaded {
        Loaded(AtomicU64::new(self.bytes()))
    }
}

/// A shared internal node.
#[derive(Clone)]
pub struct SharedInternal(Arc<Node>);

impl SharedInternal {
    /// The node, if it is internal.
    pub fn of(node: Arc<Node>) -> Option<SharedInternal> {
        matches!(&*node, Node::Internal(_)).then_some(SharedInternal(node))
    }

    /// The node as one of either kind.
    pub fn node(&self) -> &Arc<Node> {
        &self.0
    }
}

impl Deref for SharedInternal {
    type Target = Internal;

    fn deref(&self) -> &Internal {
        self.0.internal().expect("it has been looked at when it was made")
    }
}

/// A node of either kind.
#[derive(Clone)]
pub enum Node {
    /// Height 0.
    Leaf(Leaf),
    /// Any other height.
    Internal(Internal),
}

impl Node {
    /// The node, if it is internal.
    pub fn internal(&self) -> Option<&Internal> {
        match self {
            Node::Internal(internal) => Some(internal),
            Node::Leaf(_) => None,
        }
    }

    /// Panics if cached sums of the node differ from its parts.
    pub fn check_invariants(&self) {
        match self {
            Node::Leaf(leaf) => leaf.check_invariants(),
            Node::Internal(internal) => internal.check_invariants(),
        }
    }

    /// The node, if it is a leaf.
    pub fn leaf(&self) -> Option<&Leaf> {
        match self {
            Node::Leaf(leaf) => Some(leaf),
            Node::Internal(_) => None,
        }
    }

    /// The node's id.
    pub fn id(&self) -> NodeId {
        match self {
            Node::Leaf(leaf) => leaf.id,
            Node::Internal(internal) => internal.id,
        }
    }

    /// The tree that the node belongs to.
    pub fn tree(&self) -> TreeId {
        match self {
            Node::Leaf(leaf) => leaf.tree,
            Node::Internal(internal) => internal.tree,
        }
    }

    /// The node's height.
    pub fn height(&self) -> Height {
        match self {
            Node::Leaf(_) => Height(0),
            Node::Internal(internal) => internal.height,
        }
    }

    /// The keys that the node is responsible for.
    pub fn bounds(&self) -> &Bounds {
        match self {
            Node::Leaf(leaf) => &leaf.bounds,
            Node::Internal(internal) => &internal.bounds,
        }
    }

    /// Approximate memory of the node, in bytes.
    pub fn weight(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.weight(),
            Node::Internal(internal) => internal.weight(),
        }
    }

    /// As [`Node::weight`], without parts of runs that were read and can be read again.
    pub fn own_weight(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.weight(),
            Node::Internal(internal) => internal.own_weight(),
        }
    }

    /// Bytes of its parts that have been read. While this count is the same, the weight of an unchanged node is, too.
    pub fn loaded(&self) -> u64 {
        match self {
            Node::Leaf(leaf) => leaf.loaded(),
            Node::Internal(internal) => internal.loaded(),
        }
    }

    /// Whether the node, once it is clean, consists of a head and parts in memory. A leaf that was open is one list of
    /// entries instead.
    pub fn has_head(&self) -> bool {
        match self {
            Node::Leaf(leaf) => !leaf.is_open(),
            Node::Internal(_) => true,
        }
    }

    /// Evicts the parts that were read. The head stays, and the open run of an internal node. A leaf must be clean.
    pub fn forget_parts(&mut self) {
        match self {
            Node::Leaf(leaf) => leaf.forget_parts(),
            Node::Internal(internal) => internal.forget_parts(),
        }
    }

    /// A copy of the node with another id, and with its keys as they are above the lens of its edge.
    pub fn copied(&self, disk: &Disk, id: NodeId, lens: Option<&Arc<Lens>>) -> Result<Node> {
        Ok(match self {
            Node::Leaf(leaf) => Node::Leaf(leaf.copied(disk, id, lens.map(|lens| &**lens))?),
            Node::Internal(internal) => Node::Internal(internal.copied(disk, id, lens)?),
        })
    }

    /// Reads and verifies all parts.
    pub fn read_all(&self, disk: &Disk) -> Result<()> {
        match self {
            Node::Leaf(leaf) => leaf.read_all(disk),
            Node::Internal(internal) => {
                internal.load_ranges(disk)?;
                internal.load_pending(disk, 0..internal.children().len())
            }
        }
    }

    /// The inflow from the node to leaves.
    pub fn inflow(&self) -> Inflow {
        match self {
            Node::Leaf(_) => Inflow::default(),
            Node::Internal(internal) => internal.inflow(),
        }
    }

    /// The most space that writing the node takes, with basements of this size.
    pub fn need(&self, basement_size: usize) -> Need {
        match self {
            Node::Leaf(leaf) => Need::of_image(leaf.bytes_max(basement_size)),
            // A head and a run.
            Node::Internal(internal) => {
                Need::of_image(internal.bytes_max()) + Need { blocks: 1, maps: 1 }
            }
        }
    }

    /// As [`Node::need`], after changes that do not make the node longer. A leaf that is opened may be divided into
    /// other basements.
    pub fn need_when_changed(&self, basement_size: usize) -> Need {
        match self {
            Node::Leaf(leaf) if !leaf.is_open() => {
                Need::of_image(leaf.bytes() / 2 * 3) + Need::of_blocks(2)
            }
            _ => self.need(basement_size),
        }
    }

    /// Reads the head of node `id` at `entry`.
    pub fn load(disk: &Disk, volume: VolumeId, id: NodeId, entry: &Entry) -> Result<Node> {
        let head = disk.read(entry.extent.start.byte(), entry.head_bytes as usize)?;
        Ok(match Head::verified(&head, volume, id, entry)? {
            Head::Leaf(head) => Node::Leaf(Leaf::stored(head, entry.extent)),
            Head::Internal(head) => Node::Internal(Internal::stored(head)),
        })
    }
}

/// A head of either kind.
pub(crate) enum Head {
    /// Height 0.
    Leaf(LeafHead),
    /// Any other height.
    Internal(InternalHead),
}

impl Head {
    /// Decodes and verifies the head of node `id`; it must match `entry` of the allocation table.
    pub(crate) fn verified(
        bytes: &[u8],
        volume: VolumeId,
        id: NodeId,
        entry: &Entry,
    ) -> Result<Head> {
        let place = || Place::Node { id, byte: Some(entry.extent.start.byte()) };
        let corrupt = |fault: Fault| Error::corrupt(place(), fault);
        let (seal, bytes, head) = if entry.height.0 == 0 {
            let (seal, head) = LeafHead::decode(bytes, None).map_err(|e| corrupt(e.into()))?;
            (seal, head.leaf_bytes, Head::Leaf(head))
        } else {
            let (seal, head) = InternalHead::decode(bytes, None).map_err(|e| corrupt(e.into()))?;
            (seal, entry.head_bytes, Head::Internal(head))
        };
        let found = match &head {
            Head::Leaf(head) => (head.id, head.tree, Height(0)),
            Head::Internal(head) => (head.id, head.tree, head.height),
        };
        check_head(found, &seal, volume, id, entry).map_err(corrupt)?;
        let blocks = bytes.div_ceil(BLOCK_SIZE as u32);
        if blocks != entry.extent.blocks {
            return Err(corrupt(Fault::mismatch("blocks of the node", blocks, entry.extent)));
        }
        Ok(head)
    }
}

/// Checks that a head matches the allocation table.
fn check_head(
    found: (NodeId, TreeId, Height),
    seal: &Seal,
    volume: VolumeId,
    id: NodeId,
    entry: &Entry,
) -> std::result::Result<(), Fault> {
    if seal.hash != entry.hash {
        return Err(Fault::mismatch("hash of the head", entry.hash, seal.hash));
    }
    if seal.birth.volume != volume {
        return Err(Fault::mismatch("volume", volume, seal.birth.volume));
    }
    if seal.birth.epoch != entry.birth {
        return Err(Fault::mismatch("birth epoch", entry.birth, seal.birth.epoch));
    }
    let (name, tree, height) = found;
    if name != id {
        return Err(Fault::mismatch("node id", id, name));
    }
    if (tree, height) != (entry.tree, entry.height) {
        let expected = format_args!("{} of height {}", entry.tree, entry.height);
        let found = format_args!("{tree} of height {height}");
        return Err(Fault::mismatch("kind of node", expected, found));
    }
    Ok(())
}

/// Reads a part of a node and verifies its hash.
pub(crate) fn read_part(
    disk: &Disk,
    place: impl FnOnce() -> Place,
    at: u64,
    bytes: u32,
    hash: &Hash,
) -> Result<Bytes> {
    let part = disk.read_shared(at, bytes as usize)?;
    check_hash(&part, hash, place)?;
    Ok(part)
}

/// Verifies the hash of a part of a node.
pub(crate) fn check_hash(part: &[u8], hash: &Hash, place: impl FnOnce() -> Place) -> Result<()> {
    let computed = Hash::of(part);
    if computed == *hash {
        return Ok(());
    }
    let fault = FormatFault::Hash { expected: *hash, computed };
    let error = crate::format::FormatError { at: 0, field: "part".into(), fault };
    Err(Error::corrupt(place(), error))
}
