//! A leaf in memory, and a leaf as bytes.
//!
//! A leaf that was read holds its head, and each basement once somebody asked for it. A leaf that is
//! changed holds all of its entries in one list, which is divided into basements when it is
//! written. Layout: `format/SPEC.md`, "Leaf".

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::sorted::{Item, Sizes, Sorted};
use super::{Batch, Loaded, read_part};
use crate::device::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::FILE_BLOCK;
use crate::format::{
    Action, BasementRef, Birth, Bounds, ChunkRef, EntryRef, Key, KeySection, Kind, LeafHead,
    NO_CHUNK, StoredEntry, chunks_of, encode_section, is_block,
};
use crate::ids::*;

/// What an entry takes on disk besides key and value.
const ENTRY_COST: usize = 16;
/// What a block of a file takes in the key section besides its entry.
const BLOCK_COST: usize = 44;
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
        basements: Vec<(BasementRef, OnceLock<Arc<Sorted>>)>,
        /// Bytes of values: basements whose values overlap must not take more memory than the leaf has bytes.
        loaded: Loaded,
    },
    /// All entries, as inserts (of message 0 where they were read), and where they grow.
    Open { entries: Sorted, growth: Growth },
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

/// A leaf as bytes, ready to be written.
pub struct LeafImage {
    /// Head, keys and values, padded to whole blocks.
    pub bytes: Vec<u8>,
    /// The length of the head.
    pub head_bytes: u32,
    /// The hash in the head's seal.
    pub hash: Hash,
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
        let basements = head.basements.into_iter().map(|b| (b, OnceLock::new())).collect();
        let content = Content::Stored {
            extent,
            leaf_bytes: head.leaf_bytes,
            basements,
            loaded: Loaded::default(),
        };
        Leaf { id: head.id, tree: head.tree, bounds: head.bounds, content }
    }

    /// The value of `key`.
    pub fn get(&self, disk: &Disk, key: &[u8]) -> Result<Option<Bytes>> {
        let find = |entries: &Sorted| entries.get(key).map(|item| item.bytes());
        match &self.content {
            Content::Open { entries, .. } => Ok(find(entries)),
            Content::Stored { basements, .. } => {
                let at = basements.partition_point(|(b, _)| *b.first <= *key);
                match at.checked_sub(1) {
                    Some(at) => Ok(find(&*self.basement(disk, at)?)),
                    None => Ok(None),
                }
            }
        }
    }

    /// The entries within `[lo, hi)`, in key order.
    pub fn scan(&self, disk: &Disk, lo: &[u8], hi: Option<&[u8]>) -> Result<Vec<(Key, Bytes)>> {
        match &self.content {
            Content::Open { entries, .. } => Ok(entries.export(lo, hi)),
            Content::Stored { basements, .. } => {
                let mut found = Vec::new();
                let first = basements.partition_point(|(b, _)| *b.first <= *lo).saturating_sub(1);
                for (at, (basement, _)) in basements.iter().enumerate().skip(first) {
                    if hi.is_some_and(|hi| *basement.first >= *hi) {
                        break;
                    }
                    found.extend(self.basement(disk, at)?.export(lo, hi));
                }
                Ok(found)
            }
        }
    }

    /// The keys within `[lo, hi)` and the lengths of their values. Values are not read.
    pub fn scan_keys(
        &self,
        disk: &Disk,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> Result<Vec<(Key, usize)>> {
        let mut found = Vec::new();
        let mut add = |key: &[u8], len: usize| {
            if *key >= *lo && hi.is_none_or(|hi| *key < *hi) {
                found.push((Key::copied(key), len));
            }
        };
        match &self.content {
            Content::Open { entries, .. } => {
                entries.range(lo, hi).for_each(|item| add(item.key, item.value().len()));
            }
            Content::Stored { basements, .. } => {
                for (at, (_, loaded)) in basements.iter().enumerate() {
                    match loaded.get() {
                        Some(entries) => {
                            entries.iter().for_each(|item| add(item.key, item.value().len()));
                        }
                        None => {
                            let section = self.section(disk, at)?;
                            let entries = section.entries.iter();
                            entries.for_each(|entry| add(&entry.key, entry.bytes as usize));
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    /// Reads basement `at`, unless that was done before.
    fn basement(&self, disk: &Disk, at: usize) -> Result<Arc<Sorted>> {
        let Content::Stored { extent, leaf_bytes, basements, loaded: so_far } = &self.content
        else {
            return Err(Error::Misuse("an open leaf has no basements".into()));
        };
        let (reference, loaded) = &basements[at];
        if let Some(entries) = loaded.get() {
            return Ok(entries.clone());
        }
        let section = self.section(disk, at)?;
        let more = section.chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum::<u64>();
        let all = so_far.bytes() + more;
        if all > u64::from(*leaf_bytes) && loaded.get().is_none() {
            let byte = extent.start.byte() + u64::from(reference.offset);
            let place = Place::Part { id: self.id, part: at as u64, byte };
            let fault = Fault::mismatch("values of a leaf", format!("{leaf_bytes} bytes"), all);
            return Err(Error::corrupt(place, fault));
        }
        let values = read_values(disk, self.id, at, extent.start.byte(), &section)?;
        let mut entries = Sorted::with_capacity(section.entries.len(), reference.bytes as usize);
        for (entry, value) in section.entries.iter().zip(&values) {
            entries.push_value(&entry.key, Msn(0), Kind::Insert, value, 0..value.len());
        }
        let entries = || {
            so_far.add(more);
            Arc::new(entries)
        };
        Ok(loaded.get_or_init(entries).clone())
    }

    /// Reads the key section of basement `at`.
    fn section(&self, disk: &Disk, at: usize) -> Result<KeySection> {
        let Content::Stored { extent, leaf_bytes, basements, .. } = &self.content else {
            return Err(Error::Misuse("an open leaf has no basements".into()));
        };
        let reference = &basements[at].0;
        let byte = extent.start.byte() + u64::from(reference.offset);
        let place = || Place::Part { id: self.id, part: at as u64, byte };
        let section = read_part(disk, place, byte, reference.bytes, &reference.hash)?;
        let section = KeySection::decode(&section, self.tree, *leaf_bytes, None)
            .map_err(|error| Error::corrupt(place(), error))?;
        check_section(&section, reference, basements.get(at + 1).map(|(b, _)| b), &self.bounds)
            .map_err(|fault| Error::corrupt(place(), fault))?;
        Ok(section)
    }

    /// Brings all entries into one list, which can be changed.
    pub fn open(&mut self, disk: &Disk) -> Result<()> {
        let Content::Stored { basements, .. } = &self.content else { return Ok(()) };
        let loaded = (0..basements.len()).map(|at| self.basement(disk, at));
        let loaded = loaded.collect::<Result<Vec<_>>>()?;
        let count = loaded.iter().map(|basement| basement.len()).sum();
        let mut entries =
            Sorted::with_capacity(count, loaded.iter().map(|basement| basement.arena()).sum());
        loaded.iter().for_each(|basement| basement.iter().for_each(|item| entries.push(item)));
        self.content = Content::Open { entries, growth: Growth::default() };
        Ok(())
    }

    /// Applies message `msn` to an open leaf.
    pub fn apply(&mut self, key: &[u8], msn: Msn, action: &Action) {
        let (entries, growth) = self.opened();
        let found = entries.find(key);
        let is_new = entries.at(found).is_none();
        match action {
            Action::Insert(_) => {
                if is_new {
                    growth.grew(key, entries.neighbours(found));
                }
                entries.put_at(found, key, msn, action);
            }
            Action::Delete => {
                if !is_new {
                    *growth = Growth::default();
                }
                entries.remove_at(found);
            }
            Action::Update(update) => {
                let old = entries.at(found);
                // A value stays that of the message that gave it.
                let msn = old.map_or(msn, |old| old.msn);
                if let Some(value) = update.apply(old.as_ref().map(Item::value)) {
                    entries.put_at(found, key, msn, &Action::Insert(value));
                }
            }
        }
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
        if points.len() < entries.len() / FEW {
            points.iter().for_each(|item| self.apply(item.key, item.msn, &item.action()));
            return;
        }
        *growth = Growth::default();
        let old = std::mem::take(entries);
        let arena = old.arena() + points.arena();
        let mut merged = Sorted::with_capacity(old.len() + points.len(), arena);
        let mut old = old.iter().peekable();
        let mut last = None;
        for item in points.iter() {
            while let Some(entry) = old.next_if(|entry| entry.key < item.key) {
                merged.push(entry);
            }
            let here = old.next_if(|entry| entry.key == item.key);
            match item.kind {
                Kind::Insert => merged.push(item),
                Kind::Delete => {}
                Kind::Update => {
                    let value = item.action().apply(here.map(|here| here.bytes()).as_ref());
                    let msn = here.map_or(item.msn, |here| here.msn);
                    if let Some(value) = value {
                        merged.push_value(item.key, msn, Kind::Insert, &value, 0..value.len());
                    }
                }
            }
            last = Some(item.key);
        }
        if old.peek().is_none() && points.len() > 1 {
            growth.last.extend_from_slice(last.unwrap_or_default());
            growth.run = points.len();
        }
        old.for_each(|rest| merged.push(rest));
        *entries = merged;
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
        let next = basements.partition_point(|(basement, _)| *basement.first <= *key);
        basements.get(next).map(|(basement, _)| basement.first.clone())
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

    /// How many bytes of its parts have been read.
    pub(super) fn loaded(&self) -> u64 {
        match &self.content {
            Content::Open { .. } => 0,
            Content::Stored { loaded, .. } => loaded.bytes(),
        }
    }

    /// About how much memory the leaf takes.
    pub fn weight(&self) -> usize {
        match &self.content {
            Content::Open { entries, .. } => 512 + entries.memory(),
            Content::Stored { basements, .. } => {
                let loaded = basements.iter().filter_map(|(_, loaded)| loaded.get());
                512 + basements.len() * 160 + loaded.map(|loaded| loaded.memory()).sum::<usize>()
            }
        }
    }

    /// Where to divide an open leaf that is larger than `limit`: the first keys of all pieces but the
    /// first. A leaf that is filled in order is split where it grows.
    pub fn cuts(&self, limit: usize) -> Vec<Key> {
        let tree = self.tree;
        let Content::Open { entries, growth } = &self.content else { return Vec::new() };
        let bytes = self.bytes();
        if bytes <= limit || entries.len() < 2 {
            return Vec::new();
        }
        let pieces = bytes.div_ceil(limit);
        let point = growth.point();
        let target = if point.is_some() { limit } else { bytes.div_ceil(pieces) };
        let mut cuts = Vec::new();
        let mut piece = 0;
        let mut before: &[u8] = &[];
        for entry in entries.iter() {
            let cost = entry_cost(tree, entry.key.len(), entry.value().len());
            if piece > 0 && (piece + cost > target || point == Some(before)) {
                cuts.push(Key::copied(entry.key));
                piece = 0;
            }
            piece += cost;
            before = entry.key;
        }
        cuts
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

    /// The leaf as bytes. It must be open.
    pub fn image(&self, birth: Birth, write_seq: u64, basement_size: usize) -> LeafImage {
        let Content::Open { entries, .. } = &self.content else {
            panic!("a leaf is opened before it is written");
        };
        debug_assert!(entries.is_counted(), "the size of a leaf is kept");
        let items: Vec<Item<'_>> = entries.iter().collect();
        let plan = Plan::new(self, &items, basement_size);
        plan.fill(self, birth, write_seq)
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

/// A key section must agree with the directory in the head, and stay within its bounds.
pub(crate) fn check_section(
    section: &KeySection,
    reference: &BasementRef,
    next: Option<&BasementRef>,
    bounds: &Bounds,
) -> std::result::Result<(), crate::error::Fault> {
    use crate::error::Fault;
    if section.entries.len() != reference.entries as usize {
        return Err(Fault::mismatch(
            "entries of a basement",
            reference.entries,
            section.entries.len(),
        ));
    }
    let first = section.entries.first().map(|entry| &entry.key);
    let last = section.entries.last().map(|entry| &entry.key);
    let below = |key: &Key| bounds.is_below_end(key) && next.is_none_or(|next| *key < next.first);
    if first != Some(&reference.first) || !last.is_some_and(below) {
        return Err(Fault::Missing("keys of a basement lie outside what the head says".into()));
    }
    Ok(())
}

/// Reads the values of a basement: neighbouring chunks in one read, each verified.
fn read_values(
    disk: &Disk,
    id: NodeId,
    part: usize,
    start: u64,
    section: &KeySection,
) -> Result<Vec<Bytes>> {
    let mut chunks: Vec<Bytes> = vec![Bytes::new(); section.chunks.len()];
    let mut order: Vec<usize> = (0..section.chunks.len()).collect();
    order.sort_by_key(|at| section.chunks[*at].offset);
    let adjoin = |a: &usize, b: &usize| {
        let (a, b) = (&section.chunks[*a], &section.chunks[*b]);
        a.offset + a.bytes == b.offset
    };
    for group in order.chunk_by(adjoin) {
        let first = section.chunks[group[0]].offset;
        let last = &section.chunks[group[group.len() - 1]];
        let len = (last.offset + last.bytes - first) as usize;
        let bytes = Bytes::from(disk.read(start + u64::from(first), len)?);
        for at in group {
            let chunk = &section.chunks[*at];
            let from = (chunk.offset - first) as usize;
            let value = bytes.slice(from..from + chunk.bytes as usize);
            let computed = Hash::of(&value);
            if computed != chunk.hash {
                let byte = start + u64::from(chunk.offset);
                let place = Place::Part { id, part: part as u64, byte };
                let fault =
                    crate::error::Fault::mismatch("hash of a value chunk", chunk.hash, computed);
                return Err(Error::corrupt(place, fault));
            }
            chunks[*at] = value;
        }
    }
    let value = |entry: &StoredEntry| match entry.chunk {
        NO_CHUNK => Bytes::new(),
        chunk => {
            let from = usize::from(entry.offset);
            chunks[usize::from(chunk)].slice(from..from + entry.bytes as usize)
        }
    };
    Ok(section.entries.iter().map(value).collect())
}

/// How an open leaf will lie on disk: basements, and where everything starts.
struct Plan<'l> {
    basements: Vec<BasementPlan<'l>>,
    head_bytes: usize,
    small_at: usize,
    blocks_at: usize,
    end: usize,
}

struct BasementPlan<'l> {
    entries: &'l [Item<'l>],
    places: Vec<(u16, u16)>,
    chunks: Vec<usize>,
    bytes: usize,
}

impl<'l> Plan<'l> {
    fn new(leaf: &Leaf, entries: &'l [Item<'l>], basement_size: usize) -> Plan<'l> {
        let basements = divide(leaf.tree, entries, basement_size);
        let firsts = basements.iter().map(|b| b.entries[0].key.len());
        let head_bytes = LeafHead::encoded_bytes(&leaf.bounds, firsts);
        let small_at = head_bytes + basements.iter().map(|b| b.bytes).sum::<usize>();
        let chunks = || basements.iter().flat_map(|b| &b.chunks).copied();
        let small: usize = chunks().filter(|bytes| !is_block(leaf.tree, *bytes)).sum();
        let blocks: usize = chunks().filter(|bytes| is_block(leaf.tree, *bytes)).sum();
        let small_end = small_at + small;
        let blocks_at = small_end.next_multiple_of(BLOCK_SIZE);
        let end = if blocks > 0 { blocks_at + blocks } else { small_end };
        Plan { basements, head_bytes, small_at, blocks_at, end }
    }

    fn fill(&self, leaf: &Leaf, birth: Birth, write_seq: u64) -> LeafImage {
        let mut bytes = vec![0; self.end.next_multiple_of(BLOCK_SIZE)];
        let (mut small_at, mut block_at) = (self.small_at, self.blocks_at);
        let mut section_at = self.head_bytes;
        let mut references = Vec::with_capacity(self.basements.len());
        for basement in &self.basements {
            let mut chunks = Vec::with_capacity(basement.chunks.len());
            for len in &basement.chunks {
                let at = if is_block(leaf.tree, *len) { &mut block_at } else { &mut small_at };
                chunks.push(ChunkRef {
                    offset: *at as u32,
                    bytes: *len as u32,
                    hash: Hash::default(),
                });
                *at += len;
            }
            for (entry, (chunk, offset)) in basement.entries.iter().zip(&basement.places) {
                if *chunk != NO_CHUNK {
                    let at = chunks[usize::from(*chunk)].offset as usize + usize::from(*offset);
                    let value = entry.value();
                    bytes[at..at + value.len()].copy_from_slice(value);
                }
            }
            for chunk in &mut chunks {
                let at = chunk.offset as usize;
                chunk.hash = Hash::of(&bytes[at..at + chunk.bytes as usize]);
            }
            let section = encode_section(&chunks, basement.stored());
            assert_eq!(section.len(), basement.bytes, "a key section is as long as was planned");
            bytes[section_at..section_at + section.len()].copy_from_slice(&section);
            references.push(BasementRef {
                offset: section_at as u32,
                bytes: section.len() as u32,
                entries: basement.entries.len() as u32,
                hash: Hash::of(&section),
                first: Key::copied(basement.entries[0].key),
            });
            section_at += section.len();
        }
        let head = LeafHead {
            id: leaf.id,
            tree: leaf.tree,
            write_seq,
            leaf_bytes: self.end as u32,
            bounds: leaf.bounds.clone(),
            basements: references,
        };
        let (head, hash) = head.encode(birth);
        bytes[..head.len()].copy_from_slice(&head);
        LeafImage { bytes, head_bytes: head.len() as u32, hash }
    }
}

impl BasementPlan<'_> {
    fn stored(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.entries.iter().zip(&self.places).map(|(entry, (chunk, offset))| EntryRef {
            key: entry.key,
            chunk: *chunk,
            offset: *offset,
            bytes: entry.value().len() as u32,
        })
    }
}

/// Divides entries into basements of about `size` bytes, none of them empty.
fn divide<'l>(tree: TreeId, entries: &'l [Item<'l>], size: usize) -> Vec<BasementPlan<'l>> {
    let mut basements = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for at in 0..=entries.len() {
        let cost = |entry: &Item<'_>| entry_cost(tree, entry.key.len(), entry.value().len());
        let next = entries.get(at).map(cost);
        let full = next.is_none_or(|next| bytes + next > size);
        if full && at > start {
            let entries = &entries[start..at];
            let values = entries.iter().map(|entry| entry.value().len());
            let (places, chunks) = chunks_of(tree, values);
            let keys = entries.iter().map(|entry| entry.key);
            let bytes = KeySection::encoded_bytes(keys, chunks.len());
            basements.push(BasementPlan { entries, places, chunks, bytes });
            start = at;
        }
        bytes = if full { next.unwrap_or(0) } else { bytes + next.unwrap_or(0) };
    }
    basements
}
