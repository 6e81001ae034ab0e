//! A leaf in memory.
//!
//! A leaf that was read holds its head, and each basement once somebody asked for it. A leaf that is
//! changed holds all of its entries in one list, which is divided into basements when it is
//! written. Layout: `format/SPEC.md`, "Leaf".

mod cuts;
mod image;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::sorted::{Item, Sizes, Sorted};
use super::{Batch, Loaded, check_hash, read_part};
use crate::device::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::{FILE_BLOCK, LEAF_MAX};
use crate::format::{
    Action, BASEMENT_BYTES, BasementRef, Birth, Bounds, CHUNK_BYTES, ChunkRef, Key, KeySection,
    Kind, LeafHead, NO_CHUNK, SECTION_BYTES, chunks_of, encode_section, is_block, shared_prefix,
};
use crate::ids::*;
pub use image::LeafImage;

/// What an entry takes on disk besides key and value, at the most.
const ENTRY_COST: usize = 7;
/// What a block of a file takes in the key section besides its entry.
const BLOCK_COST: usize = CHUNK_BYTES;
/// What a basement takes besides its entries and first key, with its first small chunk.
const BASEMENT_COST: usize = BASEMENT_BYTES + SECTION_BYTES + CHUNK_BYTES;
/// Fewer messages than one of so many entries are applied one by one.
const FEW: usize = 8;

/// A node of height 0.
#[derive(Clone)]
pub struct Leaf {
    /// The leaf's name.
    pub id: NodeId,
    /// The tree that it belongs to.
    pub tree: TreeId,
    /// The keys that it is responsible for.
    pub bounds: Bounds,
    content: Content,
}

#[derive(Clone)]
enum Content {
    /// As it is on disk: its head, and the basements that were asked for.
    Stored {
        extent: Extent,
        leaf_bytes: u32,
        basements: Vec<Basement>,
        /// Bytes of parts: blocks that several basements name must not take more memory than the leaf has
        /// bytes.
        loaded: Loaded,
        /// Bytes of keys and small values in memory.
        keys: Loaded,
    },
    /// All entries, as inserts (of message 0 where they were read), and where they grow.
    Open { entries: Sorted, growth: Growth },
}

/// A basement that may have been read.
#[derive(Clone)]
struct Basement {
    reference: BasementRef,
    part: OnceLock<Arc<Part>>,
}

/// A basement in memory.
struct Part {
    /// Its entries, each as an insert. One of a block of a file has no value here, and as its message's
    /// number the place of the block in `blocks`, counted from 1.
    entries: Sorted,
    blocks: Vec<Block>,
}

/// A block of a file, which is read when it is asked for.
struct Block {
    /// Where it is, in bytes from the start of the leaf.
    offset: u32,
    hash: Hash,
    value: OnceLock<Bytes>,
}

impl Part {
    /// The block of an entry, if it is one.
    fn block_of(&self, item: &Item<'_>) -> Option<&Block> {
        self.blocks.get(item.msn.0.checked_sub(1)? as usize)
    }

    /// The length of an entry's value.
    fn len_of(&self, item: &Item<'_>) -> usize {
        if self.block_of(item).is_some() { FILE_BLOCK } else { item.value().len() }
    }

    fn memory(&self) -> usize {
        let read = self.blocks.iter().filter(|block| block.value.get().is_some()).count();
        self.entries.memory() + self.blocks.len() * size_of::<Block>() + read * FILE_BLOCK
    }
}

/// Where new entries come: a leaf that is filled in the order of keys is split where it grows, so that
/// what is left behind stays full.
#[derive(Clone, Default)]
struct Growth {
    /// The last new entry.
    last: Vec<u8>,
    /// How many came one behind the other.
    run: usize,
}

impl Growth {
    /// A new entry comes between `before` and, if there are any, greater ones.
    fn grew(&mut self, key: &[u8], (before, more): (Option<&[u8]>, bool)) {
        if self.run > 0 && before == Some(&*self.last) {
            self.run += 1;
        } else if !more && self.run > 1 {
            // Making a directory puts the root of its zone behind everything, beside its entry.
            return;
        } else {
            self.run = 1;
        }
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    /// Behind which key the leaf is to be split, if it is filled in order.
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
        Leaf { id, tree, bounds, content: Content::Open { entries, growth: Growth::default() } }
    }

    pub(super) fn stored(head: LeafHead, extent: Extent) -> Leaf {
        let basement = |reference| Basement { reference, part: OnceLock::new() };
        let basements = head.basements.into_iter().map(basement).collect();
        let content = Content::Stored {
            extent,
            leaf_bytes: head.leaf_bytes,
            basements,
            loaded: Loaded::default(),
            keys: Loaded::default(),
        };
        Leaf { id: head.id, tree: head.tree, bounds: head.bounds, content }
    }

    /// The value of `key`.
    pub fn get(&self, disk: &Disk, key: &[u8]) -> Result<Option<Bytes>> {
        match &self.content {
            Content::Open { entries, .. } => Ok(entries.get(key).map(|item| item.bytes())),
            Content::Stored { basements, .. } => {
                let at = basements.partition_point(|basement| *basement.reference.first <= *key);
                let Some(at) = at.checked_sub(1) else { return Ok(None) };
                let part = self.part(disk, at)?;
                let Some(item) = part.entries.get(key) else { return Ok(None) };
                match part.block_of(&item) {
                    Some(block) => {
                        self.read_blocks(disk, &[(at, block)])?;
                        Ok(block.value.get().cloned())
                    }
                    None => Ok(Some(item.bytes())),
                }
            }
        }
    }

    /// The entries within `[lo, hi)`, in key order.
    pub fn scan(&self, disk: &Disk, lo: &[u8], hi: Option<&[u8]>) -> Result<Vec<(Key, Bytes)>> {
        let Content::Stored { basements, .. } = &self.content else {
            return Ok(self.open_entries().map_or_else(Vec::new, |entries| entries.export(lo, hi)));
        };
        let range = basements_within(basements, lo, hi);
        self.load(disk, range.clone())?;
        let mut found = Vec::new();
        // Blocks of files, each with its basement, and the entries that they belong to.
        let (mut blocks, mut owners) = (Vec::new(), Vec::new());
        for at in range {
            let part = self.part(disk, at)?;
            if !part.blocks.is_empty() {
                for (entry, item) in part.entries.range(lo, hi).enumerate() {
                    if let Some(block) = part.block_of(&item) {
                        blocks.push((at, block));
                        owners.push(found.len() + entry);
                    }
                }
            }
            found.extend(part.entries.export(lo, hi));
        }
        self.read_blocks(disk, &blocks)?;
        for (entry, (_, block)) in owners.into_iter().zip(blocks) {
            if let Some(value) = block.value.get() {
                found[entry].1 = value.clone();
            }
        }
        Ok(found)
    }

    /// The keys within `[lo, hi)` and the lengths of their values. Values are not read.
    pub fn scan_keys(
        &self,
        disk: &Disk,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> Result<Vec<(Key, usize)>> {
        let Content::Stored { basements, .. } = &self.content else {
            let entries = self.open_entries().into_iter().flat_map(|entries| entries.range(lo, hi));
            return Ok(entries.map(|item| (Key::copied(item.key), item.value().len())).collect());
        };
        let mut found = Vec::new();
        for at in basements_within(basements, lo, hi) {
            match basements[at].part.get() {
                Some(part) => {
                    let items = part.entries.range(lo, hi);
                    found.extend(items.map(|item| (Key::copied(item.key), part.len_of(&item))));
                }
                None => {
                    let section = self.section(disk, at)?;
                    let inside = |key: &[u8]| *key >= *lo && hi.is_none_or(|hi| *key < *hi);
                    found.extend(section.keys().filter(|(key, _)| inside(key)));
                }
            }
        }
        Ok(found)
    }

    fn open_entries(&self) -> Option<&Sorted> {
        match &self.content {
            Content::Open { entries, .. } => Some(entries),
            Content::Stored { .. } => None,
        }
    }

    /// Basement `at`, which is read if it has not been.
    fn part(&self, disk: &Disk, at: usize) -> Result<&Arc<Part>> {
        self.load(disk, at..at + 1)?;
        let Content::Stored { basements, .. } = &self.content else {
            return Err(Error::Misuse("an open leaf has no basements".into()));
        };
        Ok(basements[at].part.get().expect("it was just loaded"))
    }

    /// Reads basements that have not been, those in a row together.
    fn load(&self, disk: &Disk, range: Range<usize>) -> Result<()> {
        let Content::Stored { extent, basements, loaded, keys, .. } = &self.content else {
            return Ok(());
        };
        let missing: Vec<usize> = range.filter(|at| basements[*at].part.get().is_none()).collect();
        for row in missing.chunk_by(|a, b| a + 1 == *b) {
            let start = basements[row[0]].reference.offset;
            let end = basements[row[row.len() - 1]].reference.end();
            let at = extent.start.byte() + u64::from(start);
            let bytes = disk.read_buffer(at, (end - start) as usize)?;
            for at in row {
                let reference = &basements[*at].reference;
                let from = (reference.offset - start) as usize;
                let part = self.parse(*at, &bytes[from..from + reference.part as usize])?;
                // Several may have read it at the same time; one of them is kept, and counts.
                basements[*at].part.get_or_init(|| {
                    loaded.add(reference.part.into());
                    keys.add(part.entries.arena() as u64);
                    Arc::new(part)
                });
            }
            disk.recycle(bytes);
        }
        Ok(())
    }

    /// Takes the bytes of basement `at` apart, and verifies them.
    fn parse(&self, at: usize, bytes: &[u8]) -> Result<Part> {
        let Content::Stored { extent, basements, keys: in_memory, .. } = &self.content else {
            return Err(Error::Misuse("an open leaf has no basements".into()));
        };
        let reference = &basements[at].reference;
        let place = |offset: u32| {
            let byte = extent.start.byte() + u64::from(offset);
            Place::Part { id: self.id, part: at as u64, byte }
        };
        let (keys, _) = bytes.split_at(reference.bytes as usize);
        check_hash(keys, &reference.hash, || place(reference.offset))?;
        let section = self.decode(at, keys)?;
        let mut blocks: Vec<Block> = Vec::new();
        // For each chunk its bytes, or the number of its block.
        let mut chunks: Vec<(&[u8], u64)> = Vec::with_capacity(section.chunks.len());
        for chunk in &section.chunks {
            if is_block(self.tree, chunk.bytes as usize) {
                let (offset, hash) = (chunk.offset, chunk.hash);
                blocks.push(Block { offset, hash, value: OnceLock::new() });
                chunks.push((&[], blocks.len() as u64));
            } else {
                let from = (chunk.offset - reference.offset) as usize;
                let chunk_bytes = &bytes[from..from + chunk.bytes as usize];
                check_hash(chunk_bytes, &chunk.hash, || place(chunk.offset))?;
                chunks.push((chunk_bytes, 0));
            }
        }
        let mut entries = Sorted::with_capacity(section.entries().len(), bytes.len());
        for entry in section.entries() {
            let (value, block) = match entry.chunk {
                NO_CHUNK => (&[][..], 0),
                chunk => match chunks[usize::from(chunk)] {
                    (_, block) if block > 0 && entry.bytes as usize == FILE_BLOCK => {
                        (&[][..], block)
                    }
                    (bytes, _) => {
                        let from = usize::from(entry.offset);
                        (&bytes[from..from + entry.bytes as usize], 0)
                    }
                },
            };
            entries.push_copy(entry.key, Msn(block), Kind::Insert, value);
        }
        entries.shrink();
        // Keys may share most of their bytes on disk, but a leaf is as long as they are without that.
        if in_memory.bytes() + entries.arena() as u64 > LEAF_MAX as u64 {
            let fault = Fault::mismatch("keys of a leaf", format!("{LEAF_MAX} bytes"), "more");
            return Err(Error::corrupt(place(reference.offset), fault));
        }
        Ok(Part { entries, blocks })
    }

    /// Reads blocks, each with its basement, that have not been read, those in a row together.
    fn read_blocks(&self, disk: &Disk, blocks: &[(usize, &Block)]) -> Result<()> {
        let Content::Stored { extent, leaf_bytes, loaded, .. } = &self.content else {
            return Ok(());
        };
        let missing: Vec<(usize, &Block)> =
            blocks.iter().copied().filter(|(_, block)| block.value.get().is_none()).collect();
        for row in missing.chunk_by(|(_, a), (_, b)| a.offset + FILE_BLOCK as u32 == b.offset) {
            let byte = extent.start.byte() + u64::from(row[0].1.offset);
            let place = |part: usize, byte| Place::Part { id: self.id, part: part as u64, byte };
            let len = row.len() * FILE_BLOCK;
            let all = loaded.bytes() + len as u64;
            if all > 2 * u64::from(*leaf_bytes) {
                let fault = Fault::mismatch("values of a leaf", format!("{leaf_bytes} bytes"), all);
                return Err(Error::corrupt(place(row[0].0, byte), fault));
            }
            let bytes = Bytes::from(disk.read(byte, len)?);
            for (number, (part, block)) in row.iter().enumerate() {
                let value = bytes.slice(number * FILE_BLOCK..(number + 1) * FILE_BLOCK);
                let place = || place(*part, byte + (number * FILE_BLOCK) as u64);
                check_hash(&value, &block.hash, place)?;
                block.value.get_or_init(|| {
                    loaded.add(FILE_BLOCK as u64);
                    value
                });
            }
        }
        Ok(())
    }

    /// Reads the key section of basement `at`.
    fn section(&self, disk: &Disk, at: usize) -> Result<KeySection> {
        let Content::Stored { extent, basements, .. } = &self.content else {
            return Err(Error::Misuse("an open leaf has no basements".into()));
        };
        let reference = &basements[at].reference;
        let byte = extent.start.byte() + u64::from(reference.offset);
        let place = || Place::Part { id: self.id, part: at as u64, byte };
        let section = read_part(disk, place, byte, reference.bytes, &reference.hash)?;
        self.decode(at, &section)
    }

    /// Takes the bytes of a key section apart.
    fn decode(&self, at: usize, section: &[u8]) -> Result<KeySection> {
        let Content::Stored { extent, leaf_bytes, basements, .. } = &self.content else {
            return Err(Error::Misuse("an open leaf has no basements".into()));
        };
        let reference = &basements[at].reference;
        let byte = extent.start.byte() + u64::from(reference.offset);
        let corrupt =
            |fault| Error::corrupt(Place::Part { id: self.id, part: at as u64, byte }, fault);
        let section = KeySection::decode(section, self.tree, *leaf_bytes, None)
            .map_err(|error| corrupt(error.into()))?;
        let next = basements.get(at + 1).map(|basement| &basement.reference);
        let end = basements.last().map_or(0, |last| last.reference.end());
        check_section(&section, self.tree, reference, next, end, &self.bounds).map_err(corrupt)?;
        Ok(section)
    }

    /// Reads what has not been read.
    pub fn read_all(&self, disk: &Disk) -> Result<()> {
        let Content::Stored { basements, .. } = &self.content else { return Ok(()) };
        self.load(disk, 0..basements.len())?;
        let parts = basements.iter().filter_map(|basement| basement.part.get()).enumerate();
        let blocks: Vec<(usize, &Block)> =
            parts.flat_map(|(at, part)| part.blocks.iter().map(move |b| (at, b))).collect();
        self.read_blocks(disk, &blocks)
    }

    /// Brings all entries into one list, which can be changed.
    pub fn open(&mut self, disk: &Disk) -> Result<()> {
        self.read_all(disk)?;
        let Content::Stored { basements, .. } = &self.content else { return Ok(()) };
        let parts: Vec<&Arc<Part>> = basements.iter().filter_map(|b| b.part.get()).collect();
        let count = parts.iter().map(|part| part.entries.len()).sum();
        let arena = parts.iter().map(|part| part.entries.arena()).sum();
        let mut entries = Sorted::with_capacity(count, arena);
        for part in parts {
            for item in part.entries.iter() {
                match part.block_of(&item).and_then(|block| block.value.get()) {
                    Some(value) => {
                        entries.push_value(item.key, Msn(0), Kind::Insert, value);
                    }
                    None => entries.push(item),
                }
            }
        }
        self.content = Content::Open { entries, growth: Growth::default() };
        Ok(())
    }

    /// A leaf of all entries within `bounds` that can be read. Those that cannot are told.
    pub fn rescue(
        &self,
        disk: &Disk,
        id: NodeId,
        bounds: Bounds,
        lost: &mut dyn FnMut(Bounds, &Error),
    ) -> Leaf {
        let mut entries = Sorted::default();
        let Content::Stored { basements, .. } = &self.content else {
            let entries = self.opened_within(&bounds);
            return Leaf::with_entries(id, self.tree, bounds, entries);
        };
        for at in 0..basements.len() {
            let next = basements.get(at + 1).map(|next| next.reference.first.clone());
            let lo = basements[at].reference.first.clone();
            let part = match self.part(disk, at) {
                Ok(part) => part,
                Err(error) => {
                    lost(Bounds { lo, hi: next.or_else(|| self.bounds.hi.clone()) }, &error);
                    continue;
                }
            };
            for item in part.entries.range(&bounds.lo, bounds.hi.as_deref()) {
                let Some(block) = part.block_of(&item) else {
                    entries.push(item);
                    continue;
                };
                match (self.read_blocks(disk, &[(at, block)]), block.value.get()) {
                    (Ok(()), Some(value)) => {
                        entries.push_value(item.key, Msn(0), Kind::Insert, value);
                    }
                    (Ok(()), None) => {}
                    (Err(error), _) => {
                        let lo = Key::copied(item.key);
                        lost(Bounds { hi: Some(lo.successor()), lo }, &error);
                    }
                }
            }
        }
        Leaf::with_entries(id, self.tree, bounds, entries)
    }

    fn opened_within(&self, bounds: &Bounds) -> Sorted {
        let all = self.open_entries();
        all.map_or_else(Sorted::default, |all| all.within(&bounds.lo, bounds.hi.as_deref()))
    }

    /// Applies message `msn` to an open leaf.
    pub fn apply(&mut self, key: &[u8], msn: Msn, action: &Action) {
        let (entries, growth) = self.opened();
        if let Action::Update(_) = action {
            return entries.update(&Item::new(key, msn, action), &mut Vec::new());
        }
        let found = entries.find(key);
        let is_new = entries.at(found).is_none();
        if let Action::Delete = action {
            if !is_new {
                *growth = Growth::default();
            }
            return entries.remove_at(found);
        }
        if is_new {
            growth.grew(key, entries.neighbours(found));
        }
        entries.put(found, &Item::new(key, msn, action));
    }

    /// Removes the entries within `[lo, hi)` from an open leaf.
    pub fn remove_range(&mut self, lo: &[u8], hi: &[u8]) {
        let (entries, growth) = self.opened();
        *growth = Growth::default();
        entries.remove_range(lo, Some(hi));
    }

    /// Forgets all entries, without reading them.
    pub fn clear(&mut self) {
        let (id, tree, bounds) = (self.id, self.tree, self.bounds.clone());
        *self = Leaf::empty(id, tree, bounds);
    }

    /// Applies the messages of a buffer, which are younger than everything here, to an open leaf.
    pub fn apply_batch(&mut self, batch: &Batch) {
        let (entries, growth) = self.opened();
        for range in batch.ranges().iter() {
            entries.remove_range(&range.lo, Some(&range.hi));
        }
        let points = batch.points();
        let mut scratch = Vec::new();
        // Updates of what is there, for the most part, move nothing.
        let moving = points.iter().filter(|item| item.kind != Kind::Update).count();
        if moving < entries.len() / FEW {
            for item in points.iter() {
                if item.kind == Kind::Update {
                    self.opened().0.update(&item, &mut scratch);
                } else {
                    self.apply(item.key, item.msn, &item.action());
                }
            }
            return;
        }
        *growth = Growth::default();
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
            growth.last.extend_from_slice(last.unwrap_or_default());
            growth.run = points.len();
        }
    }

    /// Values that messages gave since the leaf was opened, with the MSNs of those messages.
    pub fn fresh(&self) -> impl Iterator<Item = Item<'_>> {
        let entries = match &self.content {
            Content::Open { entries, .. } => Some(entries),
            Content::Stored { .. } => None,
        };
        entries.into_iter().flat_map(Sorted::iter).filter(|entry| entry.msn > Msn(0))
    }

    fn opened(&mut self) -> (&mut Sorted, &mut Growth) {
        match &mut self.content {
            Content::Open { entries, growth } => (entries, growth),
            Content::Stored { .. } => panic!("a leaf is opened before it is changed"),
        }
    }

    /// The first key of the basement behind that of `key`; nothing if there is none, or if no part has to be
    /// read.
    pub fn part_end(&self, key: &[u8]) -> Option<Key> {
        let Content::Stored { basements, .. } = &self.content else { return None };
        let next = basements.partition_point(|basement| *basement.reference.first <= *key);
        basements.get(next).map(|basement| basement.reference.first.clone())
    }

    /// Whether all entries are in memory, in a list that can be changed.
    pub fn is_open(&self) -> bool {
        matches!(self.content, Content::Open { .. })
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        match &self.content {
            Content::Open { entries, .. } => entries.is_empty(),
            Content::Stored { basements, .. } => basements.is_empty(),
        }
    }

    /// About how many bytes the leaf takes on disk.
    pub fn bytes(&self) -> usize {
        match &self.content {
            Content::Open { entries, .. } => cost(self.tree, entries.sizes()),
            Content::Stored { leaf_bytes, .. } => *leaf_bytes as usize,
        }
    }

    /// At most how many bytes the leaf takes on disk, with basements of this size: two in a row are larger
    /// together, and two small chunks in a row longer than a block of a file.
    pub(super) fn bytes_max(&self, basement_size: usize) -> usize {
        let Content::Open { entries, .. } = &self.content else { return self.bytes() };
        let blocks = if self.tree == TreeId::Data { entries.sizes().blocks } else { 0 };
        let small = self.bytes() - blocks * FILE_BLOCK;
        let chunks = 2 * small / FILE_BLOCK * CHUNK_BYTES;
        let basements = (2 * small / basement_size + 1) * (BASEMENT_COST + entries.longest());
        LeafHead::encoded_bytes(&self.bounds, std::iter::empty())
            + basements
            + chunks
            + self.bytes()
    }

    /// How many bytes of its parts have been read.
    pub(super) fn loaded(&self) -> u64 {
        match &self.content {
            Content::Open { .. } => 0,
            Content::Stored { loaded, .. } => loaded.bytes(),
        }
    }

    pub(super) fn forget_parts(&mut self) {
        if let Content::Stored { basements, loaded, keys, .. } = &mut self.content {
            basements.iter_mut().for_each(|basement| drop(basement.part.take()));
            (*loaded, *keys) = Default::default();
        }
    }

    /// About how much memory the leaf takes.
    pub fn weight(&self) -> usize {
        match &self.content {
            Content::Open { entries, .. } => 512 + entries.memory(),
            Content::Stored { basements, .. } => {
                let parts = basements.iter().filter_map(|basement| basement.part.get());
                512 + basements.len() * 160 + parts.map(|part| part.memory()).sum::<usize>()
            }
        }
    }

    /// Divides an open leaf. What stays is the first piece; returned are the others, each with its first
    /// key.
    pub fn split(&mut self, cuts: Vec<Key>) -> Vec<(Key, SplitLeaf)> {
        let (entries, growth) = self.opened();
        *growth = Growth::default();
        let all = std::mem::take(entries);
        *entries = all.within(&[], cuts.first().map(|cut| &**cut));
        let ends: Vec<Option<Key>> = cuts.iter().skip(1).cloned().map(Some).chain([None]).collect();
        let parts = cuts.into_iter().zip(ends).map(|(cut, end)| {
            let part = SplitLeaf(all.within(&cut, end.as_deref()));
            (cut, part)
        });
        parts.collect()
    }

    /// Gives a piece of a split its name and bounds.
    pub fn from_split(id: NodeId, tree: TreeId, bounds: Bounds, part: SplitLeaf) -> Leaf {
        Leaf::with_entries(id, tree, bounds, part.0)
    }

    /// Appends the entries of the leaf to the right, both open, and takes over its keys.
    pub fn merge(&mut self, right: Leaf) {
        let Content::Open { entries: more, .. } = right.content else {
            panic!("a leaf is opened before it is merged");
        };
        self.bounds.hi = right.bounds.hi;
        let (entries, growth) = self.opened();
        *growth = Growth::default();
        more.iter().for_each(|item| entries.push(item));
    }
}

/// The entries of a piece of a leaf that was split.
pub struct SplitLeaf(Sorted);

/// What entries take on disk, at the most.
fn cost(tree: TreeId, sizes: Sizes) -> usize {
    let blocks = if tree == TreeId::Data { BLOCK_COST * sizes.blocks } else { 0 };
    ENTRY_COST * sizes.count + sizes.keys + sizes.values + blocks
}

/// What an entry with a key and a value of so many bytes takes.
fn entry_cost(tree: TreeId, keys: usize, values: usize) -> usize {
    let blocks = usize::from(values == FILE_BLOCK);
    cost(tree, Sizes { count: 1, keys, values, blocks, ..Sizes::default() })
}

/// The basements that may have keys within `[lo, hi)`.
fn basements_within(basements: &[Basement], lo: &[u8], hi: Option<&[u8]>) -> Range<usize> {
    let first = basements.partition_point(|basement| *basement.reference.first <= *lo);
    let end = hi.map_or(basements.len(), |hi| {
        basements.partition_point(|basement| *basement.reference.first < *hi)
    });
    let first = first.saturating_sub(1);
    first..end.max(first)
}

/// A key section must agree with the directory in the head, and stay within its bounds; its small chunks
/// fill its part of the leaf, and its blocks come behind all parts, which end at `end`.
pub(crate) fn check_section(
    section: &KeySection,
    tree: TreeId,
    reference: &BasementRef,
    next: Option<&BasementRef>,
    end: u32,
    bounds: &Bounds,
) -> std::result::Result<(), Fault> {
    let mut entries = section.entries();
    if entries.len() != reference.entries as usize {
        return Err(Fault::mismatch("entries of a basement", reference.entries, entries.len()));
    }
    let first = entries.next().map(|entry| entry.key);
    let last = entries.next_back().map(|entry| entry.key).or(first);
    let below = |key: &[u8]| bounds.is_below_end(key) && next.is_none_or(|next| *key < *next.first);
    if first != Some(&*reference.first) || !last.is_some_and(below) {
        return Err(Fault::Missing("keys of a basement lie outside what the head says".into()));
    }
    let mut at = reference.offset + reference.bytes;
    for chunk in &section.chunks {
        let (expected, found) = match is_block(tree, chunk.bytes as usize) {
            true => (chunk.offset.max(end).next_multiple_of(FILE_BLOCK as u32), chunk.offset),
            false => (at, chunk.offset),
        };
        if expected != found {
            return Err(Fault::mismatch("place of a value chunk", expected, found));
        }
        at += if is_block(tree, chunk.bytes as usize) { 0 } else { chunk.bytes };
    }
    match at == reference.end() {
        true => Ok(()),
        false => Err(Fault::mismatch("end of a basement's small chunks", reference.end(), at)),
    }
}
