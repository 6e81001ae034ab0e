//! Scans the device for nodes, if pages of the allocation table are lost.
//!
//! A head verifies by itself, and states its node and the time of writing. Older heads of a node, and those of dropped
//! nodes, may still exist. The youngest counts, and the trees show which nodes are needed.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::disk::Disk;
use crate::error::Result;
use crate::format::limits::HEAD_MAX;
use crate::format::*;
use crate::ids::*;
use crate::space::Layout;
use crate::space::{Bitmap, Space};

/// 1 MiB is read at once.
const CHUNK: usize = 1 << 20;
/// Offset of the head length in a head.
const HEAD_BYTES_AT: usize = 96;

/// Entries for all nodes that are found and that no intact page of the table covers.
pub(super) fn scan(
    disk: &Disk,
    superblock: &Superblock,
    known: &BTreeSet<u64>,
    kept: &HashSet<BlockNr>,
) -> Result<Vec<(NodeId, Entry)>> {
    let block = BLOCK_SIZE as u64;
    let layout = Layout::of(superblock)?;
    let used = Space::load(disk, superblock).ok().map(|space| space.used().clone());
    let found = BTreeMap::new();
    // The total length of heads is limited, whatever they state.
    let mut scan = Scan { disk, superblock, known, kept, used, left: disk.len(), found };
    let (mut at, end) = (layout.nodes().start * block, layout.nodes().end * block);
    while at < end {
        let len = (end - at).min(CHUNK as u64) as usize;
        // Unreadable blocks hold no readable node.
        if let Ok(bytes) = disk.read_buffer(at, len) {
            for (number, block) in bytes.chunks(BLOCK_SIZE).enumerate() {
                scan.block(BlockNr(at / BLOCK_SIZE as u64 + number as u64), block);
            }
            disk.recycle(bytes);
        }
        at += len as u64;
    }
    Ok(scan.found.into_iter().map(|(id, (_, entry))| (id, entry)).collect())
}

struct Scan<'s> {
    disk: &'s Disk,
    superblock: &'s Superblock,
    /// Intact pages of entries.
    known: &'s BTreeSet<u64>,
    /// First blocks of extents that only snapshots use.
    kept: &'s HashSet<BlockNr>,
    /// The used blocks by the space map, if that verifies: others were freed.
    used: Option<Bitmap>,
    /// Limit of the bytes of heads to be read.
    left: u64,
    /// For each node the youngest entry, and the time of its writing.
    found: BTreeMap<NodeId, ((Epoch, u64), Entry)>,
}

impl Scan<'_> {
    fn block(&mut self, at: BlockNr, bytes: &[u8]) {
        if self.used.as_ref().is_some_and(|used| !used.get(at.0)) {
            return;
        }
        match Magic::of(bytes) {
            Some(Magic::Leaf | Magic::Internal) => self.head(at, bytes),
            Some(Magic::ScatterMap) if ScatterMap::decode(bytes, None).is_ok() => {
                let start = BlockNr::scattered(at);
                if let Ok(first) = self.disk.read(start.byte(), BLOCK_SIZE)
                    && matches!(Magic::of(&first), Some(Magic::Leaf | Magic::Internal))
                {
                    self.head(start, &first);
                }
            }
            _ => {}
        }
    }

    /// Whether a seal belongs to this volume, and to an epoch before the superblock's. An abandoned epoch has another
    /// nonce.
    fn is_ours(&self, sealed: &[u8]) -> bool {
        let Some(birth) = Seal::birth_of(sealed) else { return false };
        let ours = self.superblock.birth;
        birth.volume == ours.volume
            && birth.epoch <= ours.epoch
            && (birth.epoch < ours.epoch || birth.nonce == ours.nonce)
    }

    /// Whether all blocks of an extent are in use, as far as is known.
    fn is_used(&self, extent: Extent) -> bool {
        let Some(used) = &self.used else { return true };
        let Ok(extents) = self.disk.blocks_of(extent) else { return false };
        extents.iter().all(|part| (part.start.0..part.end().0).all(|block| used.get(block)))
    }

    /// Examines a block in which a head may begin.
    fn head(&mut self, start: BlockNr, first: &[u8]) {
        let length = first.get(HEAD_BYTES_AT..HEAD_BYTES_AT + 4).and_then(|b| b.try_into().ok());
        let bytes = u32::from_le_bytes(length.unwrap_or_default());
        if self.kept.contains(&start) {
            return;
        }
        if (bytes as usize) < HEAD_BYTES_AT || bytes as usize > HEAD_MAX || !self.is_ours(first) {
            return;
        }
        if u64::from(bytes) > self.left {
            return;
        }
        self.left -= u64::from(bytes);
        let head = match first.get(..bytes as usize) {
            Some(head) => head.to_vec(),
            None => match self.disk.read(start.byte(), bytes as usize) {
                Ok(head) => head,
                Err(_) => return,
            },
        };
        let Some((id, age, entry)) = entry_of(&head, start) else { return };
        if self.known.contains(&(id.0 / ENTRIES_PER_PAGE as u64)) {
            return;
        }
        if !self.is_used(entry.extent) {
            return;
        }
        if self.found.get(&id).is_none_or(|(other, _)| *other < age) {
            self.found.insert(id, (age, entry));
        }
    }
}

/// The node of a head, the time of its writing, and its entry, if its extent begins at `start`.
pub(super) fn entry_of(head: &[u8], start: BlockNr) -> Option<(NodeId, (Epoch, u64), Entry)> {
    let of_leaf = LeafHead::decode(head, None)
        .map(|(seal, head)| (seal, head.id, head.tree, Height(0), head.write_seq, head.leaf_bytes));
    let found = of_leaf.or_else(|_| {
        let (seal, found) = InternalHead::decode(head, None)?;
        let bytes = head.len() as u32;
        Ok::<_, FormatError>((seal, found.id, found.tree, found.height, found.write_seq, bytes))
    });
    let (seal, id, tree, height, write_seq, bytes) = found.ok()?;
    let extent = Extent { start, blocks: bytes.div_ceil(BLOCK_SIZE as u32) };
    let (hash, birth) = (seal.hash, seal.birth.epoch);
    let head_bytes = head.len() as u32;
    // One parent (invariant 6).
    let entry = Entry { extent, head_bytes, hash, birth, references: 1, tree, height };
    Some((id, (birth, write_seq), entry))
}
