//! The key section of a basement: its keys, and the chunks of their values.
//!
//! ```text
//!  0  entry count      4
//!  4  chunk count      4
//!  8  hashes of chunks    32 each
//!     entries             each, short numbers: shared, suffix length, value length; and the suffix
//! ```
//!
//! A key is the first `shared` bytes of the key before it, and the suffix. Values are put into chunks in key order by
//! one rule ([`chunks_of`]), so the lengths of chunks and the places of values follow from the lengths of values. A key
//! section states no offset: equal entries give equal bytes, and an equal hash, wherever the basement is.
//!
//! Up to 255 zeros may follow the entries: a writer makes a basement end at a block boundary, so that the next one is
//! in one block and not in two.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::fields::{Fields, FormatError, Trace, Writer, varint_bytes};
use super::key::{GREATER_KEY, Key, is_greater, shared_prefix};
use super::limits::*;
use crate::ids::*;

/// The shortest entry, in bytes.
const ENTRY_BYTES: usize = 3;
/// Bytes of a chunk in a key section.
pub(crate) const CHUNK_BYTES: usize = 32;
/// Bytes of a key section before its chunks and entries.
pub(crate) const SECTION_BYTES: usize = 8;
/// The chunk number of an empty value.
pub const NO_CHUNK: u16 = u16::MAX;
/// The most zeros after the entries.
pub const SECTION_PADDING_MAX: usize = 255;

/// One chunk of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// Byte offset: of a file block among the basement's file blocks, of any other chunk among its small chunks.
    pub offset: u32,
    /// Its length.
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
    (places, chunks.lengths.into_vec())
}

/// Chunks that are being filled.
pub(crate) struct Chunks {
    tree: TreeId,
    lengths: SmallVec<[usize; 4]>,
    /// The chunk that takes more small values.
    open: Option<usize>,
}

impl Chunks {
    pub(crate) fn new(tree: TreeId) -> Chunks {
        Chunks { tree, lengths: SmallVec::new(), open: None }
    }

    /// The chunk that a value of `len` bytes is added to; `None` if it starts a new one.
    fn takes(&self, len: usize) -> Option<usize> {
        let alone = self.is_alone(len);
        let fits = |all: usize| !alone && all <= SMALL_CHUNK_MAX && !is_block(self.tree, all);
        self.open.filter(|chunk| fits(self.lengths[*chunk] + len))
    }

    fn is_alone(&self, len: usize) -> bool {
        is_block(self.tree, len) || len > SMALL_CHUNK_MAX
    }

    /// The bytes that a value of `len` bytes takes in the key section besides its entry.
    pub(crate) fn cost(&self, len: usize) -> usize {
        match len == 0 || self.takes(len).is_some() {
            true => 0,
            false => CHUNK_BYTES,
        }
    }

    /// The chunk and offset of the next value.
    pub(crate) fn place(&mut self, len: usize) -> (u16, u16) {
        if len == 0 {
            return (NO_CHUNK, 0);
        }
        let chunk = self.takes(len).unwrap_or_else(|| {
            self.lengths.push(0);
            self.lengths.len() - 1
        });
        let offset = self.lengths[chunk];
        self.lengths[chunk] += len;
        if !self.is_alone(len) {
            self.open = Some(chunk);
        }
        (chunk as u16, offset as u16)
    }
}

/// Chunks of these lengths and hashes, with their offsets.
pub fn placed_chunks(
    tree: TreeId,
    chunks: impl Iterator<Item = (usize, Hash)>,
) -> impl Iterator<Item = ChunkRef> {
    let (mut small, mut blocks) = (0, 0);
    chunks.map(move |(bytes, hash)| {
        let end = if is_block(tree, bytes) { &mut blocks } else { &mut small };
        let (offset, bytes) = (*end, bytes as u32);
        *end += bytes;
        ChunkRef { offset, bytes, hash }
    })
}

/// Whether a chunk is a whole file block, which is aligned to 4096 bytes.
pub fn is_block(tree: TreeId, bytes: usize) -> bool {
    tree == TreeId::Data && bytes == FILE_BLOCK
}

/// The keys of a basement, and the places of their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySection {
    /// The chunks of its values.
    pub chunks: Vec<ChunkRef>,
    /// All keys, concatenated.
    keys: Bytes,
    entries: Vec<StoredEntry>,
    /// Number of zeros after the entries.
    padding: u8,
}

/// An entry of a key section.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredEntry {
    /// The range of the key in `keys`.
    key: Range<u32>,
    chunk: u16,
    offset: u16,
    bytes: u32,
}

/// A key of a basement, and the place of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'e> {
    /// The key.
    pub key: &'e [u8],
    /// The chunk of the value; [`NO_CHUNK`] if it is empty.
    pub chunk: u16,
    /// Offset of the value in the chunk.
    pub offset: u16,
    /// Length of the value.
    pub bytes: u32,
}

impl KeySection {
    /// The section of keys with values of these lengths in `chunks`.
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
        KeySection { chunks, keys: keys.into(), entries, padding: 0 }
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

    /// The key of an entry; all keys share one allocation.
    pub fn key(&self, at: usize) -> Key {
        let Range { start, end } = self.entries[at].key;
        Key::new(self.keys.slice(start as usize..end as usize))
    }

    /// The keys, each with the length of its value.
    pub fn keys(&self) -> impl Iterator<Item = (Key, usize)> {
        (0..self.entries.len()).map(|at| (self.key(at), self.entries[at].bytes as usize))
    }

    /// The index of `key`, if it is in the section.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let of = |entry: &StoredEntry| &self.keys[entry.key.start as usize..entry.key.end as usize];
        self.entries.binary_search_by(|entry| of(entry).cmp(key)).ok()
    }

    /// The indexes of the entries within `[lo, hi)`.
    pub fn within(&self, lo: &[u8], hi: Option<&[u8]>) -> Range<usize> {
        let of = |entry: &StoredEntry| &self.keys[entry.key.start as usize..entry.key.end as usize];
        let below_lo = |entry: &StoredEntry| of(entry) < lo;
        let start = if lo.is_empty() { 0 } else { self.entries.partition_point(below_lo) };
        let end = hi
            .map_or(self.entries.len(), |hi| self.entries.partition_point(|entry| of(entry) < hi));
        start..end.max(start)
    }

    /// Memory, in bytes.
    pub fn memory(&self) -> usize {
        let chunks = self.chunks.len() * size_of::<ChunkRef>();
        self.keys.len() + self.entries.len() * size_of::<StoredEntry>() + chunks
    }

    /// Bytes of all keys.
    pub fn key_bytes(&self) -> usize {
        self.keys.len()
    }

    /// The length of all chunks but file blocks, and the number of file blocks.
    pub fn value_sizes(&self, tree: TreeId) -> (u32, u32) {
        let (mut small, mut blocks) = (0, 0);
        for chunk in &self.chunks {
            match is_block(tree, chunk.bytes as usize) {
                true => blocks += 1,
                false => small += chunk.bytes,
            }
        }
        (small, blocks)
    }

    /// Parses a slice that is exactly a key section.
    pub fn decode(
        section: &[u8],
        tree: TreeId,
        trace: Option<&mut dyn Trace>,
    ) -> Result<KeySection, FormatError> {
        let mut f = Fields::traced(section, trace);
        let entry_count = f.count("entry count", PART_MAX, ENTRY_BYTES)?;
        let chunk_count = f.count("chunk count", usize::from(NO_CHUNK), CHUNK_BYTES)?;
        let first = f.at();
        for index in 0..chunk_count {
            f.enter("chunk", Some(index));
            f.hash("hash")?;
            f.leave();
        }
        let (hashes, _) = section[first..f.at()].as_chunks();
        let mut entries: Vec<StoredEntry> = Vec::with_capacity(entry_count);
        let mut keys: Vec<u8> = Vec::with_capacity(f.left());
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
            f.within(f.at(), "chunks", places.lengths.len() as u64, chunk_count as u64)?;
            let key = start as u32..keys.len() as u32;
            entries.push(StoredEntry { key, chunk, offset, bytes: bytes as u32 });
            f.leave();
        }
        let padding = f.left();
        f.within(f.at(), "padding", padding as u64, SECTION_PADDING_MAX as u64)?;
        f.zeros_to_end()?;
        if places.lengths.len() != chunk_count {
            return Err(f.wrong("chunk count", places.lengths.len(), chunk_count));
        }
        // At most 65,535 chunks of at most 64 KiB: their offsets have 32 bits.
        let mut chunks = Vec::with_capacity(chunk_count);
        chunks.extend(placed_chunks(
            tree,
            places.lengths.into_iter().zip(hashes.iter().copied().map(Hash)),
        ));
        let (keys, padding) = (keys.into_boxed_slice().into(), padding as u8);
        Ok(KeySection { chunks, keys, entries, padding })
    }

    /// The section's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let entries = self.entries().map(|entry| (entry.key, entry.bytes as usize));
        let mut w = Writer::default();
        encode_section(&mut w, &self.chunks, entries);
        w.pad_to(w.len() + usize::from(self.padding));
        w.finish()
    }
}

/// Bytes of an entry whose key has `key` bytes and shares the first `shared` with the key before it, and whose value
/// has `value` bytes.
pub fn section_entry_bytes(shared: usize, key: usize, value: usize) -> usize {
    let numbers = [shared, key - shared, value].map(|number| varint_bytes(number as u64));
    numbers.iter().sum::<usize>() + key - shared
}

/// Writes a key section without padding, with these chunks, and keys with values of these lengths.
pub fn encode_section<'e>(
    w: &mut Writer,
    chunks: &[ChunkRef],
    entries: impl ExactSizeIterator<Item = (&'e [u8], usize)>,
) {
    w.len32(entries.len());
    w.len32(chunks.len());
    chunks.iter().for_each(|chunk| w.hash(&chunk.hash));
    let mut before: &[u8] = &[];
    for (key, value) in entries {
        let shared = shared_prefix(before, key);
        w.varint(shared as u64);
        w.varint((key.len() - shared) as u64);
        w.varint(value as u64);
        w.bytes(&key[shared..]);
        before = key;
    }
}
