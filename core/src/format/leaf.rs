//! Leaves: the head, and the key sections of its basements.
//!
//! A leaf is one extent: head, key sections and small chunks of its basements, zeros to a multiple of 4096,
//! 4 KiB blocks of the data index, zeros to the extent's end. Where values are long all key sections stand
//! in front ([`stand_together`]); else each stands before its own chunks. The head:
//!
//! ```text
//!   0  seal            72
//!  72  node id          8
//!  80  write sequence   8   grows with each write of the volume within an epoch
//!  88  tree             1
//!  89  height           1   0
//!  90  sections         1   1 if all key sections stand together
//!  91  zero             1
//!  92  basement count   4
//!  96  head length      4   bytes
//! 100  leaf length      4   bytes, up to the last chunk's end
//! 104  bounds               length 2, lower bound; 1 if there is an upper bound: length 2, it
//!      basements            each: offset of its key section 4, length 4, length of its small chunks 4,
//!                           entries 4, hash 32, length 2, first key
//! ```
//!
//! A key section:
//!
//! ```text
//!  0  entry count      4
//!  4  chunk count      4
//!  8  chunks          44 each: offset in the leaf 4, stored length 4, codec 1 (0 = as it is),
//!                     zero 3, hash 32
//!     entries             each, short numbers: shared, suffix length, value length; and the suffix
//! ```
//!
//! A key is the first `shared` bytes of the key before it, and the suffix. Values are put into chunks in key
//! order by one rule ([`chunks_of`]), so where each is follows from the lengths.

use std::ops::Range;

use bytes::Bytes;

use super::fields::{Fields, FormatError, Trace, Writer, varint_bytes};
use super::key::{Bounds, GREATER_KEY, Key, is_greater, shared_prefix};
use super::limits::*;
use super::seal::{Birth, Magic, Seal};
use crate::ids::*;

/// The shortest entry, in bytes.
const ENTRY_BYTES: usize = 3;
/// Bytes of a chunk in a key section.
pub(crate) const CHUNK_BYTES: usize = 44;
/// Bytes of a key section besides its entries and chunks.
pub(crate) const SECTION_BYTES: usize = 8;
/// Bytes of a basement in the head, besides its key.
pub(crate) const BASEMENT_BYTES: usize = 50;
/// The chunk number of an empty value.
pub const NO_CHUNK: u16 = u16::MAX;

/// One basement in the directory of a leaf's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasementRef {
    /// Where its key section starts, in bytes from the start of the leaf.
    pub offset: u32,
    /// The length of its key section.
    pub bytes: u32,
    /// Where its small chunks start, in bytes from the start of the leaf.
    pub small_at: u32,
    /// The length of its small chunks.
    pub small: u32,
    /// How many entries it holds.
    pub entries: u32,
    /// The hash of its key section.
    pub hash: Hash,
    /// Its first key.
    pub first: Key,
}

impl BasementRef {
    /// Where its key section is, in bytes from the start of the leaf.
    pub fn keys(&self) -> Range<u32> {
        self.offset..self.offset + self.bytes
    }

    /// Where its small chunks are, in bytes from the start of the leaf.
    pub fn chunks(&self) -> Range<u32> {
        self.small_at..self.small_at + self.small
    }
}

/// Whether so many bytes of key sections stand together in front of so many bytes of small chunks. A lookup
/// then reads twice, but a scan of keys passes over what is more than sixteen times as much.
pub fn stand_together(keys: u64, small: u64) -> bool {
    16 * keys < small
}

/// Where key sections and small chunks stand, one basement after another.
pub struct Places {
    keys_at: u32,
    small_at: u32,
    together: bool,
}

impl Places {
    /// Behind a head of so many bytes; each basement has a length of its key section, and one of its small chunks. There
    /// are none if they reached too far.
    pub fn behind(head_bytes: u32, basements: impl Iterator<Item = (u32, u32)>) -> Option<Places> {
        let add = |(keys, small), (of_keys, of_small)| {
            (keys + u64::from(of_keys), small + u64::from(of_small))
        };
        let (keys, small) = basements.fold((0u64, 0u64), add);
        let small_at = u32::try_from(u64::from(head_bytes) + keys).ok()?;
        u32::try_from(u64::from(small_at) + small).ok()?;
        Some(Places { keys_at: head_bytes, small_at, together: stand_together(keys, small) })
    }

    /// Whether all key sections stand together.
    pub fn are_together(&self) -> bool {
        self.together
    }

    /// Where the key section and the small chunks of the next basement start.
    pub fn next(&mut self, keys: u32, small: u32) -> (u32, u32) {
        if self.together {
            let places = (self.keys_at, self.small_at);
            self.keys_at += keys;
            self.small_at += small;
            return places;
        }
        let start = self.keys_at;
        self.keys_at += keys + small;
        (start, start + keys)
    }
}

/// The head of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafHead {
    /// The leaf's name.
    pub id: NodeId,
    /// The tree that it belongs to.
    pub tree: TreeId,
    /// Orders several writes of one epoch.
    pub write_seq: u64,
    /// The length of the whole leaf.
    pub leaf_bytes: u32,
    /// The keys that it is responsible for.
    pub bounds: Bounds,
    /// Its basements, in key order.
    pub basements: Vec<BasementRef>,
}

impl LeafHead {
    /// Where the last small chunk ends, in bytes from the start of the leaf.
    pub fn parts_end(&self, head_bytes: u32) -> u32 {
        self.basements.last().map_or(head_bytes, |last| last.chunks().end)
    }

    /// Whether all key sections stand together behind the head.
    pub fn is_together(&self) -> bool {
        let sum =
            |of: fn(&BasementRef) -> u32| self.basements.iter().map(|at| u64::from(of(at))).sum();
        stand_together(sum(|at| at.bytes), sum(|at| at.small))
    }

    /// Where values are in a leaf whose head has so many bytes, in bytes from the start of the leaf, in order: the small
    /// chunks of each basement, and the blocks behind all of them.
    pub fn values(&self, head_bytes: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        let small = self.basements.iter().map(BasementRef::chunks);
        let blocks = self.parts_end(head_bytes).next_multiple_of(BLOCK_SIZE as u32);
        small.chain(std::iter::once(blocks..self.leaf_bytes)).filter(|values| !values.is_empty())
    }

    /// Parses a slice that is exactly the head.
    pub fn decode(
        head: &[u8],
        trace: Option<&mut dyn Trace>,
    ) -> Result<(Seal, LeafHead), FormatError> {
        let mut f = Fields::traced(head, trace);
        let seal = Seal::decode(&mut f, Magic::Leaf)?;
        let id = NodeId(f.u64("node id")?);
        let write_seq = f.u64("write sequence")?;
        let code = f.u8("tree")?;
        let tree = TreeId::from_code(code).ok_or_else(|| f.wrong("tree", "1 or 2", code))?;
        f.zeros("height", 1)?;
        let together = f.limited8("key sections together", 1)?;
        f.zeros("reserved", 1)?;
        let count = f.count("basement count", HEAD_MAX, BASEMENT_BYTES)?;
        let head_bytes = f.u32("head length")?;
        if head_bytes as usize != head.len() {
            return Err(f.wrong("head length", head.len(), head_bytes));
        }
        let leaf_bytes = f.limited("leaf length", LEAF_MAX)? as u32;
        let bounds = Bounds::decode(&mut f)?;
        let mut basements: Vec<BasementRef> = Vec::with_capacity(count);
        let mut at = u64::from(head_bytes);
        for index in 0..count {
            f.enter("basement", Some(index));
            let offset = f.u32("offset")?;
            if u64::from(offset) != at {
                return Err(f.wrong("offset", at, offset));
            }
            let bytes = f.limited("length", PART_MAX)? as u32;
            let small = f.limited("length of small chunks", PART_MAX)? as u32;
            at += u64::from(bytes) + if together == 1 { 0 } else { small.into() };
            f.within(f.at() - 8, "length", at, leaf_bytes.into())?;
            let entries = f.u32("entries")?;
            let hash = f.hash("hash")?;
            let first = Key::decode(&mut f, "first key")?;
            let after = basements.last().map(|b| &b.first);
            if !bounds.contains(&first)
                || after.is_some_and(|before| *before >= first)
                || entries == 0
            {
                return Err(f.wrong("first key", "keys in order, within bounds", "another"));
            }
            let small_at = offset + bytes;
            basements.push(BasementRef { offset, bytes, small_at, small, entries, hash, first });
            f.leave();
        }
        f.end()?;
        let lengths = basements.iter().map(|basement| (basement.bytes, basement.small));
        let places = Places::behind(head_bytes, lengths);
        let Some(mut places) = places.filter(|places| places.are_together() == (together == 1))
        else {
            let expected = format!("{} for these lengths", 1 - together);
            return Err(f.wrong("key sections together", expected, together));
        };
        for basement in &mut basements {
            (_, basement.small_at) = places.next(basement.bytes, basement.small);
        }
        let end = basements.last().map_or(0, |last| last.chunks().end);
        f.within(100, "leaf length", end.into(), leaf_bytes.into())?;
        Ok((seal, LeafHead { id, tree, write_seq, leaf_bytes, bounds, basements }))
    }

    /// How long the head will be.
    pub fn encoded_bytes(bounds: &Bounds, first_keys: impl Iterator<Item = usize>) -> usize {
        let hi = bounds.hi.as_ref().map_or(0, |hi| 2 + hi.len());
        104 + 2
            + bounds.lo.len()
            + 1
            + hi
            + first_keys.map(|len| BASEMENT_BYTES + len).sum::<usize>()
    }

    /// The head's bytes, and the hash in its seal.
    pub fn encode(&self, birth: Birth) -> (Vec<u8>, Hash) {
        let lens = self.basements.iter().map(|b| b.first.len());
        let bytes = LeafHead::encoded_bytes(&self.bounds, lens);
        let mut w = Writer::with_capacity(bytes);
        Seal::open(&mut w, Magic::Leaf, birth);
        w.u64(self.id.0);
        w.u64(self.write_seq);
        w.u8(self.tree.code());
        w.u8(0);
        w.u8(self.is_together().into());
        w.u8(0);
        w.len32(self.basements.len());
        w.len32(bytes);
        w.u32(self.leaf_bytes);
        self.bounds.encode(&mut w);
        for basement in &self.basements {
            w.u32(basement.offset);
            w.u32(basement.bytes);
            w.u32(basement.small);
            w.u32(basement.entries);
            w.hash(&basement.hash);
            basement.first.encode(&mut w);
        }
        let mut head = w.finish();
        assert_eq!(head.len(), bytes, "a leaf head is as long as was planned");
        let hash = Seal::close(&mut head);
        (head, hash)
    }
}

/// One chunk of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// Where it starts, in bytes from the start of the leaf.
    pub offset: u32,
    /// How long it is.
    pub bytes: u32,
    /// The hash of its bytes.
    pub hash: Hash,
}

/// Puts values of these lengths into chunks: the chunk and offset of each, and the chunks' lengths.
///
/// A value of 4096 bytes of the data index is a chunk of its own, and so is one of more than 16 KiB.
/// Other values follow one another in chunks of at most 16 KiB, none of which is as long as a block of the
/// data index. An empty value is in no chunk.
pub fn chunks_of(
    tree: TreeId,
    lengths: impl Iterator<Item = usize>,
) -> (Vec<(u16, u16)>, Vec<usize>) {
    let mut chunks = Chunks::new(tree);
    let places = lengths.map(|len| chunks.place(len)).collect();
    (places, chunks.lengths)
}

/// Chunks that are being filled.
struct Chunks {
    tree: TreeId,
    lengths: Vec<usize>,
    /// The one that takes more.
    open: Option<usize>,
}

impl Chunks {
    fn new(tree: TreeId) -> Chunks {
        Chunks { tree, lengths: Vec::new(), open: None }
    }

    /// The chunk and offset of the next value.
    fn place(&mut self, len: usize) -> (u16, u16) {
        if len == 0 {
            return (NO_CHUNK, 0);
        }
        let alone = is_block(self.tree, len) || len > SMALL_CHUNK_MAX;
        let fits = |all: usize| !alone && all <= SMALL_CHUNK_MAX && !is_block(self.tree, all);
        let (chunk, offset) = match self.open {
            Some(chunk) if fits(self.lengths[chunk] + len) => (chunk, self.lengths[chunk]),
            _ => {
                self.lengths.push(0);
                (self.lengths.len() - 1, 0)
            }
        };
        self.lengths[chunk] += len;
        if !alone {
            self.open = Some(chunk);
        }
        (chunk as u16, offset as u16)
    }
}

/// Whether a chunk is a whole block of a file, which is aligned to 4096 bytes.
pub fn is_block(tree: TreeId, bytes: usize) -> bool {
    tree == TreeId::Data && bytes == FILE_BLOCK
}

/// The keys of a basement, and where their values are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySection {
    /// The chunks that hold its values.
    pub chunks: Vec<ChunkRef>,
    /// All keys, one behind another.
    keys: Bytes,
    entries: Vec<StoredEntry>,
}

/// An entry of a key section.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredEntry {
    /// Where the key stands among all keys.
    key: Range<u32>,
    chunk: u16,
    offset: u16,
    bytes: u32,
}

/// One key of a basement, and where its value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'e> {
    /// The key.
    pub key: &'e [u8],
    /// The chunk that holds the value; [`NO_CHUNK`] if it is empty.
    pub chunk: u16,
    /// Where in the chunk the value starts.
    pub offset: u16,
    /// How long the value is.
    pub bytes: u32,
}

impl KeySection {
    /// The section of keys with values of these lengths, which stand in `chunks`.
    pub fn new<'k>(
        tree: TreeId,
        chunks: Vec<ChunkRef>,
        entries: impl Iterator<Item = (&'k [u8], usize)>,
    ) -> KeySection {
        let mut keys = Vec::new();
        let mut places = Chunks::new(tree);
        let entries = entries.map(|(key, bytes)| {
            let start = keys.len() as u32;
            keys.extend_from_slice(key);
            let (chunk, offset) = places.place(bytes);
            StoredEntry { key: start..keys.len() as u32, chunk, offset, bytes: bytes as u32 }
        });
        let entries = entries.collect();
        KeySection { chunks, keys: keys.into(), entries }
    }

    /// The entries, in key order.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = EntryRef<'_>> + ExactSizeIterator {
        (0..self.entries.len()).map(|at| self.entry(at))
    }

    /// One of the entries.
    pub fn entry(&self, at: usize) -> EntryRef<'_> {
        let entry = &self.entries[at];
        EntryRef {
            key: &self.keys[entry.key.start as usize..entry.key.end as usize],
            chunk: entry.chunk,
            offset: entry.offset,
            bytes: entry.bytes,
        }
    }

    /// The key of an entry, in memory that all of them share.
    pub fn key(&self, at: usize) -> Key {
        let Range { start, end } = self.entries[at].key;
        Key::new(self.keys.slice(start as usize..end as usize))
    }

    /// The keys, each with the length of its value.
    pub fn keys(&self) -> impl Iterator<Item = (Key, usize)> {
        (0..self.entries.len()).map(|at| (self.key(at), self.entries[at].bytes as usize))
    }

    /// The entry of `key`, if there is one.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let of = |entry: &StoredEntry| &self.keys[entry.key.start as usize..entry.key.end as usize];
        self.entries.binary_search_by(|entry| of(entry).cmp(key)).ok()
    }

    /// The entries within `[lo, hi)`.
    pub fn within(&self, lo: &[u8], hi: Option<&[u8]>) -> Range<usize> {
        let of = |entry: &StoredEntry| &self.keys[entry.key.start as usize..entry.key.end as usize];
        let start = self.entries.partition_point(|entry| of(entry) < lo);
        let end = hi
            .map_or(self.entries.len(), |hi| self.entries.partition_point(|entry| of(entry) < hi));
        start..end.max(start)
    }

    /// How much memory it takes, in bytes.
    pub fn memory(&self) -> usize {
        let chunks = self.chunks.len() * size_of::<ChunkRef>();
        self.keys.len() + self.entries.len() * size_of::<StoredEntry>() + chunks
    }

    /// How many bytes all keys have.
    pub fn key_bytes(&self) -> usize {
        self.keys.len()
    }

    /// Parses a slice that is exactly the key section of a leaf of `leaf_bytes` bytes.
    pub fn decode(
        section: &[u8],
        tree: TreeId,
        leaf_bytes: u32,
        trace: Option<&mut dyn Trace>,
    ) -> Result<KeySection, FormatError> {
        let mut f = Fields::traced(section, trace);
        let entry_count = f.count("entry count", PART_MAX, ENTRY_BYTES)?;
        let chunk_count = f.count("chunk count", usize::from(NO_CHUNK), CHUNK_BYTES)?;
        let mut chunks = Vec::with_capacity(chunk_count);
        for index in 0..chunk_count {
            chunks.push(ChunkRef::decode(&mut f, index, leaf_bytes)?);
        }
        let mut entries: Vec<StoredEntry> = Vec::with_capacity(entry_count);
        let mut keys: Vec<u8> = Vec::with_capacity(2 * f.left());
        let mut places = Chunks::new(tree);
        let mut before = 0..0;
        for index in 0..entry_count {
            f.enter("entry", Some(index));
            let shared = f.length("shared", before.len())?;
            let suffix = f.length("suffix length", KEY_MAX - shared)?;
            let bytes = f.length("value length", VALUE_MAX)?;
            let suffix = f.hex("suffix", suffix)?;
            let start = keys.len();
            f.within(f.at(), "keys", (start + shared + suffix.len()) as u64, KEYS_MAX as u64)?;
            if !is_greater(&keys[before.clone()], shared, suffix) && index > 0 {
                return Err(f.wrong("suffix", GREATER_KEY, "another"));
            }
            keys.extend_from_within(before.start..before.start + shared);
            keys.extend_from_slice(suffix);
            before = start..keys.len();
            let (chunk, offset) = places.place(bytes);
            let key = start as u32..keys.len() as u32;
            entries.push(StoredEntry { key, chunk, offset, bytes: bytes as u32 });
            f.leave();
        }
        f.end()?;
        check_chunks(&f, tree, &chunks, &places.lengths)?;
        Ok(KeySection { chunks, keys: keys.into_boxed_slice().into(), entries })
    }

    /// How long the section of these keys, with values of these lengths, will be.
    pub fn encoded_bytes<'k>(
        entries: impl Iterator<Item = (&'k [u8], usize)>,
        chunks: usize,
    ) -> usize {
        let mut before: &[u8] = &[];
        let entries = entries.map(|(key, value)| {
            let shared = shared_prefix(before, key);
            before = key;
            let suffix = key.len() - shared;
            let numbers = [shared, suffix, value].map(|number| varint_bytes(number as u64));
            numbers.iter().sum::<usize>() + suffix
        });
        SECTION_BYTES + chunks * CHUNK_BYTES + entries.sum::<usize>()
    }

    /// The section's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let entries = || self.entries().map(|entry| (entry.key, entry.bytes as usize));
        let bytes = KeySection::encoded_bytes(entries(), self.chunks.len());
        encode_section(&self.chunks, entries(), bytes)
    }
}

/// The chunks must be as long as the rule says, and stand one behind another.
fn check_chunks(
    f: &Fields<'_, '_>,
    tree: TreeId,
    chunks: &[ChunkRef],
    lengths: &[usize],
) -> Result<(), FormatError> {
    let in_row = |block: bool| {
        let mut row = chunks.iter().filter(|chunk| is_block(tree, chunk.bytes as usize) == block);
        let mut at = row.next().map(|first| first.offset + first.bytes);
        row.all(|chunk| at.replace(chunk.offset + chunk.bytes) == Some(chunk.offset))
    };
    if !in_row(false) || !in_row(true) {
        return Err(f.wrong("chunks", "chunks one behind another", "others"));
    }
    if !chunks.iter().map(|chunk| chunk.bytes as usize).eq(lengths.iter().copied()) {
        return Err(f.wrong("chunks", "chunks as long as their values", "others"));
    }
    Ok(())
}

/// The bytes of a key section of these chunks, and keys with values of these lengths; it has `bytes` bytes.
pub fn encode_section<'e>(
    chunks: &[ChunkRef],
    entries: impl ExactSizeIterator<Item = (&'e [u8], usize)>,
    bytes: usize,
) -> Vec<u8> {
    let mut w = Writer::with_capacity(bytes);
    w.len32(entries.len());
    w.len32(chunks.len());
    for chunk in chunks {
        w.u32(chunk.offset);
        w.u32(chunk.bytes);
        w.u32(0);
        w.hash(&chunk.hash);
    }
    let mut before: &[u8] = &[];
    for (key, value) in entries {
        let shared = shared_prefix(before, key);
        w.varint(shared as u64);
        w.varint((key.len() - shared) as u64);
        w.varint(value as u64);
        w.bytes(&key[shared..]);
        before = key;
    }
    w.finish()
}

impl ChunkRef {
    fn decode(
        f: &mut Fields<'_, '_>,
        index: usize,
        leaf_bytes: u32,
    ) -> Result<ChunkRef, FormatError> {
        f.enter("chunk", Some(index));
        let offset = f.u32("offset")?;
        let bytes = f.limited("stored length", VALUE_MAX)? as u32;
        let end = u64::from(offset) + u64::from(bytes);
        f.within(f.at() - 8, "offset", end, leaf_bytes.into())?;
        let codec = f.u8("codec")?;
        if codec != 0 {
            return Err(f.wrong("codec", 0, codec));
        }
        f.zeros("reserved", 3)?;
        let hash = f.hash("hash")?;
        f.leave();
        Ok(ChunkRef { offset, bytes, hash })
    }
}
