//! A leaf in memory, and a leaf as bytes.
//!
//! A leaf that was read holds its head, and each basement once somebody asked for it. A leaf that is
//! changed holds all of its entries in one sorted list, which is divided into basements when it is
//! written. Layout: `format/SPEC.md`, "Leaf".

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::{Batch, read_part};
use crate::device::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{
    Action, BasementRef, Birth, Bounds, ChunkRef, Key, KeySection, LeafHead, NO_CHUNK, StoredEntry,
    chunks_of, is_block,
};
use crate::ids::*;

/// What an entry takes on disk besides key and value.
const ENTRY_COST: usize = 16;
/// What a block of a file takes in the key section besides its entry.
const BLOCK_COST: usize = 44;
/// What an entry takes in memory besides key and value.
const ENTRY_MEMORY: usize = 72;

type Entries = Vec<Held>;

/// An entry in memory.
#[derive(Clone)]
struct Held {
    key: Key,
    value: Bytes,
    /// The message that gave the value; 0 if it was read.
    msn: Msn,
}

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
        basements: Vec<(BasementRef, OnceLock<Arc<Entries>>)>,
        loaded: Loaded,
    },
    /// All entries, their size on disk, and where they grow.
    Open { entries: Entries, bytes: usize, growth: Growth },
}

/// Where new entries come: a leaf that is filled in the order of keys is split where it grows, so that
/// what is left behind stays full.
#[derive(Clone, Copy, Default)]
struct Growth {
    /// The place behind the last new entry.
    at: usize,
    /// How many came one behind the other.
    run: usize,
}

impl Growth {
    /// A new entry comes at `at` among `len`.
    fn grew(&mut self, at: usize, len: usize) {
        if at == self.at {
            self.run += 1;
        } else if at == len && self.at < len && self.run > 1 {
            // Making a directory puts the root of its zone behind everything, beside its entry.
            return;
        } else {
            self.run = 1;
        }
        self.at = at + 1;
    }

    /// Where the leaf is to be split, if it is filled in order.
    fn point(self) -> Option<usize> {
        (self.run > 1).then_some(self.at)
    }
}

/// Bytes of values that were loaded: basements whose values overlap must not take more memory than the
/// leaf has bytes.
#[derive(Default)]
struct Loaded(AtomicU64);

impl Clone for Loaded {
    fn clone(&self) -> Loaded {
        Loaded(AtomicU64::new(self.0.load(Ordering::Relaxed)))
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
        Leaf::with_entries(id, tree, bounds, Vec::new())
    }

    fn with_entries(id: NodeId, tree: TreeId, bounds: Bounds, entries: Entries) -> Leaf {
        let bytes = entries.iter().map(|entry| entry.cost(tree)).sum();
        Leaf {
            id,
            tree,
            bounds,
            content: Content::Open { entries, bytes, growth: Growth::default() },
        }
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
        let find = |entries: &Entries| match entries.binary_search_by(|e| (*e.key).cmp(key)) {
            Ok(at) => Some(entries[at].value.clone()),
            Err(_) => None,
        };
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
        let mut found = Vec::new();
        let mut add = |entries: &Entries| {
            let start = entries.partition_point(|entry| *entry.key < *lo);
            let end =
                hi.map_or(entries.len(), |hi| entries.partition_point(|entry| *entry.key < *hi));
            let inside = &entries[start..end.max(start)];
            found.extend(inside.iter().map(|entry| (entry.key.clone(), entry.value.clone())));
        };
        match &self.content {
            Content::Open { entries, .. } => add(entries),
            Content::Stored { basements, .. } => {
                let first = basements.partition_point(|(b, _)| *b.first <= *lo).saturating_sub(1);
                for (at, (basement, _)) in basements.iter().enumerate().skip(first) {
                    if hi.is_some_and(|hi| *basement.first >= *hi) {
                        break;
                    }
                    add(&*self.basement(disk, at)?);
                }
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
        let mut found = Vec::new();
        let mut add = |key: &Key, len: usize| {
            if **key >= *lo && hi.is_none_or(|hi| **key < *hi) {
                found.push((key.clone(), len));
            }
        };
        match &self.content {
            Content::Open { entries, .. } => {
                entries.iter().for_each(|entry| add(&entry.key, entry.value.len()))
            }
            Content::Stored { basements, .. } => {
                for (at, (_, loaded)) in basements.iter().enumerate() {
                    match loaded.get() {
                        Some(entries) => {
                            entries.iter().for_each(|entry| add(&entry.key, entry.value.len()))
                        }
                        None => {
                            let section = self.section(disk, at)?;
                            section
                                .entries
                                .iter()
                                .for_each(|entry| add(&entry.key, entry.bytes as usize));
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    /// Reads basement `at`, unless that was done before.
    fn basement(&self, disk: &Disk, at: usize) -> Result<Arc<Entries>> {
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
        let all = so_far.0.load(Ordering::Relaxed) + more;
        if all > u64::from(*leaf_bytes) && loaded.get().is_none() {
            let byte = extent.start.byte() + u64::from(reference.offset);
            let place = Place::Part { id: self.id, part: at as u64, byte };
            let fault = Fault::mismatch("values of a leaf", format!("{leaf_bytes} bytes"), all);
            return Err(Error::corrupt(place, fault));
        }
        let values = read_values(disk, self.id, at, extent.start.byte(), &section)?;
        let held =
            |(entry, value): (StoredEntry, Bytes)| Held { key: entry.key, value, msn: Msn(0) };
        let entries = section.entries.into_iter().zip(values).map(held);
        let entries = || {
            so_far.0.fetch_add(more, Ordering::Relaxed);
            Arc::new(entries.collect())
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
        let mut entries = Vec::new();
        for at in 0..basements.len() {
            entries.extend_from_slice(&self.basement(disk, at)?);
        }
        let open = Leaf::with_entries(self.id, self.tree, Bounds::default(), entries);
        self.content = open.content;
        Ok(())
    }

    /// Applies message `msn` to an open leaf.
    pub fn apply(&mut self, key: Key, msn: Msn, action: &Action) {
        let tree = self.tree;
        let (entries, bytes, growth) = self.opened();
        let at = match entries.last() {
            Some(last) if last.key < key => Err(entries.len()),
            _ => entries.binary_search_by(|entry| entry.key.cmp(&key)),
        };
        let old = at.ok().map(|at| &entries[at]);
        let value = action.apply(old.map(|old| &old.value));
        let msn = action.msn_over(old.map(|old| old.msn), msn);
        match (at, value) {
            (Ok(at), Some(value)) => {
                *bytes -= entries[at].cost(tree);
                entries[at] = Held { key, value, msn };
                *bytes += entries[at].cost(tree);
            }
            (Err(at), Some(value)) => {
                *bytes += cost(tree, &key, &value);
                growth.grew(at, entries.len());
                entries.insert(at, Held { key, value, msn });
            }
            (Ok(at), None) => {
                *bytes -= entries[at].cost(tree);
                *growth = Growth::default();
                entries.remove(at);
            }
            (Err(_), None) => {}
        }
    }

    /// Forgets all entries, without reading them.
    pub fn clear(&mut self) {
        let (id, tree, bounds) = (self.id, self.tree, self.bounds.clone());
        *self = Leaf::empty(id, tree, bounds);
    }

    /// Applies the messages of a buffer, which are younger than everything here, to an open leaf.
    pub fn apply_batch(&mut self, batch: &Batch) {
        let tree = self.tree;
        let (entries, bytes, growth) = self.opened();
        *growth = Growth::default();
        let old = std::mem::take(entries);
        let alive = |entry: &Held| batch.ranges().covering(&entry.key).is_none();
        let mut old = old.into_iter().filter(alive).peekable();
        for (key, message) in batch.points() {
            while let Some(entry) = old.next_if(|entry| entry.key < *key) {
                entries.push(entry);
            }
            let here = old.next_if(|entry| entry.key == *key);
            let value = message.action.apply(here.as_ref().map(|here| &here.value));
            let msn = message.action.msn_over(here.map(|here| here.msn), message.msn);
            if let Some(value) = value {
                entries.push(Held { key: key.clone(), value, msn });
            }
        }
        if old.peek().is_none() && batch.points().len() > 1 {
            *growth = Growth { at: entries.len(), run: batch.points().len() };
        }
        entries.extend(old);
        *bytes = entries.iter().map(|entry| entry.cost(tree)).sum();
    }

    /// Values that messages gave since the leaf was opened, with the MSNs of those messages.
    pub fn fresh(&self) -> impl Iterator<Item = (Msn, &Bytes)> {
        let entries = match &self.content {
            Content::Open { entries, .. } => entries.as_slice(),
            Content::Stored { .. } => &[],
        };
        let fresh = entries.iter().filter(|entry| entry.msn > Msn(0));
        fresh.map(|entry| (entry.msn, &entry.value))
    }

    fn opened(&mut self) -> (&mut Entries, &mut usize, &mut Growth) {
        match &mut self.content {
            Content::Open { entries, bytes, growth } => (entries, bytes, growth),
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
            Content::Open { bytes, .. } => *bytes,
            Content::Stored { leaf_bytes, .. } => *leaf_bytes as usize,
        }
    }

    /// About how much memory the leaf takes.
    pub fn weight(&self) -> usize {
        match &self.content {
            Content::Open { entries, bytes, .. } => bytes + entries.len() * ENTRY_MEMORY,
            Content::Stored { basements, leaf_bytes, .. } => {
                let loaded = basements.iter().filter(|(_, loaded)| loaded.get().is_some());
                let entries: usize = loaded.clone().map(|(b, _)| b.entries as usize).sum();
                let share = *leaf_bytes as usize / basements.len().max(1);
                512 + basements.len() * 128 + loaded.count() * share + entries * ENTRY_MEMORY
            }
        }
    }

    /// Where to divide an open leaf that is larger than `limit`: the places of the first entries of all
    /// pieces but the first. A leaf that is filled in order is split where it grows.
    pub fn cuts(&self, limit: usize) -> Vec<usize> {
        let tree = self.tree;
        let Content::Open { entries, bytes, growth } = &self.content else { return Vec::new() };
        if *bytes <= limit || entries.len() < 2 {
            return Vec::new();
        }
        let pieces = bytes.div_ceil(limit);
        let point = growth.point();
        let target = if point.is_some() { limit } else { bytes.div_ceil(pieces) };
        let mut cuts = Vec::new();
        let mut piece = 0;
        for (at, entry) in entries.iter().enumerate() {
            let cost = entry.cost(tree);
            if piece > 0 && (piece + cost > target || point == Some(at)) {
                cuts.push(at);
                piece = 0;
            }
            piece += cost;
        }
        cuts
    }

    /// Divides an open leaf. What stays is the first piece; returned are the others, each with its first
    /// key.
    pub fn split(&mut self, cuts: &[usize]) -> Vec<(Key, SplitLeaf)> {
        let tree = self.tree;
        let (entries, bytes, growth) = self.opened();
        let mut parts = Vec::with_capacity(cuts.len());
        for at in cuts.iter().rev() {
            let part = entries.split_off(*at);
            parts.push((part[0].key.clone(), SplitLeaf(part)));
        }
        parts.reverse();
        *bytes = entries.iter().map(|entry| entry.cost(tree)).sum();
        *growth = Growth::default();
        parts
    }

    /// Gives a piece of a split its name and bounds.
    pub fn from_split(id: NodeId, tree: TreeId, bounds: Bounds, part: SplitLeaf) -> Leaf {
        Leaf::with_entries(id, tree, bounds, part.0)
    }

    /// Appends the entries of the leaf to the right, both open, and takes over its keys.
    pub fn merge(&mut self, right: Leaf) {
        let Content::Open { entries: mut more, bytes: more_bytes, .. } = right.content else {
            panic!("a leaf is opened before it is merged");
        };
        self.bounds.hi = right.bounds.hi;
        let (entries, bytes, _) = self.opened();
        entries.append(&mut more);
        *bytes += more_bytes;
    }

    /// The leaf as bytes. It must be open.
    pub fn image(&self, birth: Birth, write_seq: u64, basement_size: usize) -> LeafImage {
        let Content::Open { entries, .. } = &self.content else {
            panic!("a leaf is opened before it is written");
        };
        debug_assert_eq!(
            self.bytes(),
            entries.iter().map(|entry| entry.cost(self.tree)).sum::<usize>(),
            "the size of a leaf is kept"
        );
        let plan = Plan::new(self, entries, basement_size);
        plan.fill(self, birth, write_seq)
    }
}

/// The entries of a piece of a leaf that was split.
pub struct SplitLeaf(Entries);

impl Held {
    fn cost(&self, tree: TreeId) -> usize {
        cost(tree, &self.key, &self.value)
    }
}

/// What an entry takes on disk, at the most.
fn cost(tree: TreeId, key: &[u8], value: &[u8]) -> usize {
    let block = if is_block(tree, value.len()) { BLOCK_COST } else { 0 };
    ENTRY_COST + key.len() + value.len() + block
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
    entries: &'l [Held],
    places: Vec<(u16, u16)>,
    chunks: Vec<usize>,
    bytes: usize,
}

impl<'l> Plan<'l> {
    fn new(leaf: &Leaf, entries: &'l Entries, basement_size: usize) -> Plan<'l> {
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
                    bytes[at..at + entry.value.len()].copy_from_slice(&entry.value);
                }
            }
            for chunk in &mut chunks {
                let at = chunk.offset as usize;
                chunk.hash = Hash::of(&bytes[at..at + chunk.bytes as usize]);
            }
            let section = basement.section(chunks).encode();
            assert_eq!(section.len(), basement.bytes, "a key section is as long as was planned");
            bytes[section_at..section_at + section.len()].copy_from_slice(&section);
            references.push(BasementRef {
                offset: section_at as u32,
                bytes: section.len() as u32,
                entries: basement.entries.len() as u32,
                hash: Hash::of(&section),
                first: basement.entries[0].key.clone(),
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
    fn section(&self, chunks: Vec<ChunkRef>) -> KeySection {
        let entry = |(held, (chunk, offset)): (&Held, &(u16, u16))| StoredEntry {
            key: held.key.clone(),
            chunk: *chunk,
            offset: *offset,
            bytes: held.value.len() as u32,
        };
        KeySection { chunks, entries: self.entries.iter().zip(&self.places).map(entry).collect() }
    }
}

/// Divides entries into basements of about `size` bytes, none of them empty.
fn divide(tree: TreeId, entries: &Entries, size: usize) -> Vec<BasementPlan<'_>> {
    let mut basements = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for at in 0..=entries.len() {
        let next = entries.get(at).map(|entry| entry.cost(tree));
        let full = next.is_none_or(|next| bytes + next > size);
        if full && at > start {
            let entries = &entries[start..at];
            let values = entries.iter().map(|entry| entry.value.len());
            let (places, chunks) = chunks_of(tree, values);
            let keys = entries.iter().map(|entry| &entry.key);
            let bytes = KeySection::encoded_bytes(keys, chunks.len());
            basements.push(BasementPlan { entries, places, chunks, bytes });
            start = at;
        }
        bytes = if full { next.unwrap_or(0) } else { bytes + next.unwrap_or(0) };
    }
    basements
}
