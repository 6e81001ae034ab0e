//! A leaf in memory.
//!
//! A leaf that was read holds its head, and each basement that was used. A leaf that is changed holds all of its
//! entries in one list, which is divided into basements when it is written. Layout: `format/SPEC.md`, "Leaf".

mod cuts;
mod image;
mod stored;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::sorted::{Item, Sizes, Sorted};
use super::{Batch, Loaded, check_hash};
use crate::disk::Disk;
use crate::error::{Error, Fault, Result};
use crate::format::limits::{FILE_BLOCK, LEAF_MAX};
use crate::format::{
    Action, BASEMENT_MAX, BasementRef, BasementSize, Basements, Birth, Bounds, CHUNK_BYTES,
    ChunkRef, Chunks, EntryRef, HEAD_PADDING_MAX, Key, KeySection, Kind, LeafHead, Lens, NO_CHUNK,
    PartSizes, Places, SECTION_BYTES, SECTION_PADDING_MAX, Writer, chunks_of, encode_section,
    is_block, placed_chunks, section_entry_bytes, separator, shared_prefix, stand_together,
};
use crate::ids::*;
use crate::tuning::{APPLIED_SHARE, SPARE_SHARE};
pub use image::EncodedLeaf;
pub(crate) use stored::verified_section;
use stored::{Stored, Value};

/// 7 bytes: the most that an entry takes on disk besides key and value.
const ENTRY_COST: usize = 7;
/// The bytes of a file block in the key section besides its entry.
const BLOCK_COST: usize = CHUNK_BYTES;
/// The bytes of a basement besides its entries and first key, with its first small chunk.
const BASEMENT_COST: usize = BASEMENT_MAX + SECTION_BYTES + CHUNK_BYTES;

/// A node of height 0.
#[derive(Clone)]
pub struct Leaf {
    /// The leaf's id.
    pub id: NodeId,
    /// The tree that it belongs to.
    pub tree: TreeId,
    /// The keys that it is responsible for.
    pub bounds: Bounds,
    content: Content,
}

#[derive(Clone)]
enum Content {
    /// As on disk: the head, and the basements that were used.
    Stored(Stored),
    /// All entries, as inserts (with MSN 0 if they were read), where they grow, and the basements on disk.
    Open { entries: Sorted, filling: Filling, former: Box<Basements> },
}

/// Where new entries are inserted. A leaf that is filled in key order is split at its insertion point, so that the piece before
/// it stays full.
#[derive(Clone, Default)]
struct Filling {
    /// The last new entry.
    last: Vec<u8>,
    /// The number of consecutive new entries.
    run: usize,
}

impl Filling {
    /// Notes a new entry, given the key before it and whether greater keys exist.
    fn grew(&mut self, key: &[u8], (before, more): (Option<&[u8]>, bool)) {
        if self.run > 0 && before == Some(&*self.last) {
            self.run += 1;
        } else if !more && self.run > 1 {
            // Making a directory inserts its entry, and the root of its zone at the end. The latter is ignored.
            return;
        } else {
            self.run = 1;
        }
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    /// The key after which the leaf is to be split, if it is filled in order.
    fn point(&self) -> Option<&[u8]> {
        (self.run > 1).then_some(&*self.last)
    }
}

impl Leaf {
    /// A leaf without entries.
    pub fn empty(id: NodeId, tree: TreeId, bounds: Bounds) -> Leaf {
        Leaf::with_entries(id, tree, bounds, Sorted::default())
    }

    fn with_entries(id: NodeId, tree: TreeId, bounds: Bounds, entries: Sorted) -> Leaf {
        let (filling, former) = Default::default();
        Leaf { id, tree, bounds, content: Content::Open { entries, filling, former } }
    }

    pub(super) fn stored(head: LeafHead, extent: Extent) -> Leaf {
        let (id, tree, bounds) = (head.id, head.tree, head.bounds.clone());
        Leaf { id, tree, bounds, content: Content::Stored(Stored::new(head, extent)) }
    }

    /// The basements of a leaf that is not open: the key bounds of each, and the hash of its content.
    pub fn basements(&self) -> Vec<(Bounds, Hash)> {
        match &self.content {
            Content::Stored(stored) => stored.basements().collect(),
            Content::Open { .. } => Vec::new(),
        }
    }

    /// The value of `key`.
    pub fn get(&self, disk: &Disk, key: &[u8]) -> Result<Option<Bytes>> {
        match &self.content {
            Content::Open { entries, .. } => Ok(entries.get(key).map(|item| item.bytes())),
            Content::Stored(stored) => stored.get(disk, key),
        }
    }

    /// The entries within `[lo, hi)`, in key order.
    pub fn scan(&self, disk: &Disk, lo: &[u8], hi: Option<&[u8]>) -> Result<Vec<(Key, Bytes)>> {
        match &self.content {
            Content::Open { entries, .. } => Ok(entries.export(lo, hi)),
            Content::Stored(stored) => stored.scan(disk, lo, hi),
        }
    }

    /// The keys within `[lo, hi)` and the lengths of their values. Values are not read.
    pub fn scan_keys(
        &self,
        disk: &Disk,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> Result<Vec<(Key, usize)>> {
        match &self.content {
            Content::Open { entries, .. } => {
                let items = entries.range(lo, hi);
                Ok(items.map(|item| (Key::copied(item.key), item.value().len())).collect())
            }
            Content::Stored(stored) => stored.scan_keys(disk, lo, hi),
        }
    }

    /// Reads all parts that have not been read.
    pub fn read_all(&self, disk: &Disk) -> Result<()> {
        match &self.content {
            Content::Open { .. } => Ok(()),
            Content::Stored(stored) => stored.read_all(disk),
        }
    }

    /// Reads all entries into one list that can be changed.
    pub fn open(&mut self, disk: &Disk) -> Result<()> {
        let Content::Stored(stored) = &self.content else { return Ok(()) };
        stored.read_all(disk)?;
        let count: usize = stored.parts().map(|part| part.len()).sum();
        let arena = stored.parts().map(|part| part.bytes()).sum();
        // Reserves room for later changes.
        let mut entries = Sorted::with_capacity(count + count / SPARE_SHARE, arena);
        for part in stored.parts() {
            for (_, entry) in part.range(&[], None) {
                match part.value(&entry) {
                    Value::Small(range) => {
                        entries.push_copy(entry.key, Msn(0), Kind::Insert, part.small(range));
                    }
                    Value::Block(block) => {
                        let value = block.value().expect("all has been read");
                        entries.push_value(entry.key, Msn(0), Kind::Insert, value);
                    }
                }
            }
        }
        let (filling, former) = Default::default();
        let open = Content::Open { entries, filling, former };
        if let Content::Stored(stored) = std::mem::replace(&mut self.content, open) {
            let basements = stored.into_basements();
            if let Content::Open { former, .. } = &mut self.content {
                **former = basements;
            }
        }
        Ok(())
    }

    /// A copy of the leaf with another id, and with its keys as they are above the lens of its edge.
    pub fn copied(&self, disk: &Disk, id: NodeId, lens: Option<&Lens>) -> Result<Leaf> {
        let mut copy = Leaf { id, ..self.clone() };
        copy.open(disk)?;
        if let (Some(lens), Content::Open { entries, .. }) = (lens, &copy.content) {
            let (bounds, entries) = (lens.bounds_up(&self.bounds), entries.seen_through(lens));
            copy = Leaf::with_entries(id, self.tree, bounds, entries);
        }
        Ok(copy)
    }

    /// Builds a leaf of all readable entries within `bounds`. `lost` gets the bounds of the others.
    pub fn rescue(
        &self,
        disk: &Disk,
        id: NodeId,
        bounds: Bounds,
        lost: &mut dyn FnMut(Bounds, &Error),
    ) -> Leaf {
        let (lo, hi) = (bounds.lo.clone(), bounds.hi.clone());
        let stored = match &self.content {
            Content::Open { entries, .. } => {
                let entries = entries.within(&lo, hi.as_deref());
                return Leaf::with_entries(id, self.tree, bounds, entries);
            }
            Content::Stored(stored) => stored,
        };
        let mut entries = Sorted::default();
        for at in 0..stored.len() {
            let part = match stored.part(disk, at) {
                Ok(part) => part,
                Err(error) => {
                    lost(stored.bounds_of(at), &error);
                    continue;
                }
            };
            for (_, entry) in part.range(&lo, hi.as_deref()) {
                let block = match part.value(&entry) {
                    Value::Small(range) => {
                        entries.push_copy(entry.key, Msn(0), Kind::Insert, part.small(range));
                        continue;
                    }
                    Value::Block(block) => block,
                };
                match (stored.read_blocks(disk, &[(at, block)]), block.value()) {
                    (Ok(()), Some(value)) => {
                        entries.push_value(entry.key, Msn(0), Kind::Insert, value);
                    }
                    (Ok(()), None) => {}
                    (Err(error), _) => {
                        let lo = Key::copied(entry.key);
                        lost(Bounds { hi: Some(lo.successor()), lo }, &error);
                    }
                }
            }
        }
        Leaf::with_entries(id, self.tree, bounds, entries)
    }

    /// Applies message `msn` to an open leaf.
    pub fn apply(&mut self, key: &[u8], msn: Msn, action: &Action) {
        let (entries, filling) = self.opened();
        if let Action::Update(_) = action {
            return entries.update(&Item::new(key, msn, action), &mut Vec::new());
        }
        let found = entries.find(key);
        let is_new = entries.at(found).is_none();
        if let Action::Delete = action {
            if !is_new {
                *filling = Filling::default();
            }
            return entries.remove_at(found);
        }
        if is_new {
            filling.grew(key, entries.neighbours(found));
        }
        entries.put(found, &Item::new(key, msn, action));
    }

    /// Removes the entries within `[lo, hi)` from an open leaf.
    pub fn remove_range(&mut self, lo: &[u8], hi: &[u8]) {
        let (entries, filling) = self.opened();
        *filling = Filling::default();
        entries.remove_range(lo, Some(hi));
    }

    /// Drops all entries, without reading them.
    pub fn clear(&mut self) {
        let (id, tree, bounds) = (self.id, self.tree, self.bounds.clone());
        *self = Leaf::empty(id, tree, bounds);
    }

    /// Applies the messages of a buffer, which are younger than all entries, to an open leaf.
    pub fn apply_batch(&mut self, batch: &Batch) {
        let (entries, filling) = self.opened();
        for range in batch.ranges().iter() {
            entries.remove_range(&range.lo, Some(&range.hi));
        }
        let points = batch.points();
        let mut scratch = Vec::new();
        // Updates of existing entries move few others.
        let moving = points.iter().filter(|item| item.kind != Kind::Update).count();
        if moving < entries.len() / APPLIED_SHARE {
            for item in points.iter() {
                if item.kind == Kind::Update {
                    self.opened().0.update(&item, &mut scratch);
                } else {
                    self.apply(item.key, item.msn, &item.action());
                }
            }
            return;
        }
        *filling = Filling::default();
        let mut joining = entries.join();
        for item in points.iter() {
            let found = joining.find(item.key);
            match item.kind {
                Kind::Insert => joining.put(found, &item),
                Kind::Delete => joining.remove(found),
                Kind::Update => joining.update(found, &item, &mut scratch),
            }
        }
        drop(joining);
        let last = points.last_key();
        if points.len() > 1 && entries.last_key() == last {
            filling.last.extend_from_slice(last.unwrap_or_default());
            filling.run = points.len();
        }
    }

    /// Entries changed by messages since the leaf was opened, with the MSNs of those messages.
    pub fn fresh(&self) -> impl Iterator<Item = Item<'_>> {
        let entries = match &self.content {
            Content::Open { entries, .. } => Some(entries),
            Content::Stored(_) => None,
        };
        entries.into_iter().flat_map(Sorted::iter).filter(|entry| entry.msn > Msn(0))
    }

    fn opened(&mut self) -> (&mut Sorted, &mut Filling) {
        match &mut self.content {
            Content::Open { entries, filling, .. } => (entries, filling),
            Content::Stored(_) => panic!("a leaf is opened before it is changed"),
        }
    }

    /// Whether the basement of `key` can be read, except for values that are file blocks.
    pub fn has_part(&self, disk: &Disk, key: &[u8]) -> bool {
        match &self.content {
            Content::Open { .. } => true,
            Content::Stored(stored) => stored.has_part(disk, key),
        }
    }

    /// The first key of the basement after that of `key`; `None` if there is none, or if the leaf is open.
    pub fn part_end(&self, key: &[u8]) -> Option<Key> {
        let Content::Stored(stored) = &self.content else { return None };
        stored.first_behind(key)
    }

    /// Whether the leaf is open: all entries are in a list that can be changed.
    pub fn is_open(&self) -> bool {
        matches!(self.content, Content::Open { .. })
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        match &self.content {
            Content::Open { entries, .. } => entries.is_empty(),
            Content::Stored(stored) => stored.len() == 0,
        }
    }

    /// Panics if an entry is outside the bounds, or if the cached sizes differ from the entries.
    pub fn check_invariants(&self) {
        let Bounds { lo, hi } = &self.bounds;
        assert!(hi.as_ref().is_none_or(|hi| lo < hi), "bounds");
        if let Content::Open { entries, .. } = &self.content {
            entries.check_invariants();
            let (first, last) = (entries.iter().next(), entries.iter().last());
            assert!(first.is_none_or(|first| **lo <= *first.key), "the first entry");
            let is_inside = |last: Item<'_>| hi.as_ref().is_none_or(|hi| *last.key < **hi);
            assert!(last.is_none_or(is_inside), "the last entry");
        }
    }

    /// Approximate size on disk, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.content {
            Content::Open { entries, .. } => cost(self.tree, entries.sizes()),
            Content::Stored(stored) => stored.bytes() as usize,
        }
    }

    /// The most bytes that the leaf takes on disk, with basements of this size: any two consecutive small chunks are
    /// longer than a file block.
    pub(super) fn bytes_max(&self, basement_size: usize) -> usize {
        let Content::Open { entries, .. } = &self.content else { return self.bytes() };
        let blocks = if self.tree == TreeId::Data { entries.sizes().blocks } else { 0 };
        let small = self.bytes() - blocks * FILE_BLOCK;
        let chunks = 2 * small / FILE_BLOCK * CHUNK_BYTES;
        let (basements, padding) = image::basements_max(small + chunks, basement_size);
        LeafHead::encoded_bytes(self.tree, &self.bounds, std::iter::empty())
            + HEAD_PADDING_MAX
            + basements * (BASEMENT_COST + entries.longest())
            + padding
            + chunks
            + self.bytes()
    }

    /// Bytes of its parts that have been read.
    pub(super) fn loaded(&self) -> u64 {
        match &self.content {
            Content::Open { .. } => 0,
            Content::Stored(stored) => stored.loaded(),
        }
    }

    pub(super) fn forget_parts(&mut self) {
        if let Content::Stored(stored) = &mut self.content {
            stored.forget_parts();
        }
    }

    /// Approximate memory of the leaf.
    pub fn weight(&self) -> usize {
        match &self.content {
            Content::Open { entries, former, .. } => 512 + entries.memory() + former.memory(),
            Content::Stored(stored) => stored.weight(),
        }
    }

    /// Splits an open leaf. It keeps the first piece; the others are returned, each with its first key.
    pub fn split(&mut self, cuts: Vec<Key>) -> Vec<(Key, SplitLeaf)> {
        let (entries, filling) = self.opened();
        *filling = Filling::default();
        let all = std::mem::take(entries);
        *entries = all.within(&[], cuts.first().map(|cut| &**cut));
        let ends: Vec<Option<Key>> = cuts.iter().skip(1).cloned().map(Some).chain([None]).collect();
        let parts = cuts.into_iter().zip(ends).map(|(cut, end)| {
            let part = SplitLeaf(all.within(&cut, end.as_deref()));
            (cut, part)
        });
        parts.collect()
    }

    /// Makes a leaf of a piece of a split.
    pub fn from_split(id: NodeId, tree: TreeId, bounds: Bounds, part: SplitLeaf) -> Leaf {
        Leaf::with_entries(id, tree, bounds, part.0)
    }

    /// Merges the right neighbour into this leaf, both open, and takes over its keys.
    pub fn merge(&mut self, right: Leaf) {
        let Content::Open { entries: more, .. } = right.content else {
            panic!("a leaf is opened before it is merged");
        };
        self.bounds.hi = right.bounds.hi;
        let (entries, filling) = self.opened();
        *filling = Filling::default();
        more.iter().for_each(|item| entries.push(item));
    }
}

/// The entries of a piece of a split leaf.
pub struct SplitLeaf(Sorted);

/// The most bytes that entries take on disk.
fn cost(tree: TreeId, sizes: Sizes) -> usize {
    let blocks = if tree == TreeId::Data { BLOCK_COST * sizes.blocks } else { 0 };
    ENTRY_COST * sizes.count + sizes.keys + sizes.values + blocks
}

/// The bytes of an entry with a key and a value of these lengths.
fn entry_cost(tree: TreeId, keys: usize, values: usize) -> usize {
    let blocks = usize::from(values == FILE_BLOCK);
    cost(tree, Sizes { count: 1, keys, values, blocks, ..Sizes::default() })
}
