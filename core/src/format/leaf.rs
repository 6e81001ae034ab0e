//! Leaves: the head, and the key sections of its basements.
//!
//! A leaf is one extent: head, basements (each a key section and its small chunks), zeros to a multiple of
//! 4096, 4 KiB blocks of the data index, zeros to the extent's end. The head:
//!
//! ```text
//!   0  seal            72
//!  72  node id          8
//!  80  write sequence   8   grows with each write of the volume within an epoch
//!  88  tree             1
//!  89  height           1   0
//!  90  zero             2
//!  92  basement count   4
//!  96  head length      4   bytes
//! 100  leaf length      4   bytes, up to the last chunk's end
//! 104  bounds               length 2, lower bound; 1 if there is an upper bound: length 2, it
//!      basements            each: offset 4, length of its key section 4, length with its small chunks 4,
//!                           entries 4, hash 32, length 2, first key
//! ```
//!
//! A key section:
//!
//! ```text
//!  0  entry count      4
//!  4  chunk count      4
//!  8  restart count    4
//! 12  entry bytes      4
//! 16  restarts         4 each: offset among the entry bytes of every 16th entry
//!     chunks          44 each: offset in the leaf 4, stored length 4, codec 1 (0 = as it is),
//!                     zero 3, hash 32
//!     entries         12 each and a suffix: shared 2, suffix length 2, chunk 2, offset in chunk 2,
//!                     value length 4, suffix
//! ```
//!
//! A key is the first `shared` bytes of the key before it, and the suffix; at a restart `shared` is 0.
//! Values are put into chunks in key order by one rule ([`chunks_of`]), which a reader checks.

use bytes::Bytes;

use super::fields::{Fields, FormatError, Trace, Writer};
use super::key::{Bounds, Key, shared_prefix};
use super::limits::*;
use super::seal::{Birth, Magic, Seal};
use crate::ids::*;

const RESTART_EVERY: usize = 16;
const ENTRY_BYTES: usize = 12;
/// Bytes of a chunk in a key section.
pub(crate) const CHUNK_BYTES: usize = 44;
const SECTION_HEADER: usize = 16;
/// Bytes of a key section besides its entries and chunks, with a restart that not all of 16 entries share.
pub(crate) const SECTION_BYTES: usize = SECTION_HEADER + 4;
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
    /// The length of its key section and the small chunks behind that: what is read at once.
    pub part: u32,
    /// How many entries it holds.
    pub entries: u32,
    /// The hash of its key section.
    pub hash: Hash,
    /// Its first key.
    pub first: Key,
}

impl BasementRef {
    /// Where its small chunks end, in bytes from the start of the leaf.
    pub fn end(&self) -> u32 {
        self.offset + self.part
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
    /// Where the last basement ends, with its small chunks, in bytes from the start of the leaf.
    pub fn parts_end(&self, head_bytes: u32) -> u32 {
        self.basements.last().map_or(head_bytes, BasementRef::end)
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
        f.zeros("reserved", 2)?;
        let count = f.count("basement count", HEAD_MAX, BASEMENT_BYTES)?;
        let head_bytes = f.u32("head length")?;
        if head_bytes as usize != head.len() {
            return Err(f.wrong("head length", head.len(), head_bytes));
        }
        let leaf_bytes = f.limited("leaf length", LEAF_MAX)? as u32;
        let bounds = Bounds::decode(&mut f)?;
        let mut basements: Vec<BasementRef> = Vec::with_capacity(count);
        let mut at = head_bytes;
        for index in 0..count {
            f.enter("basement", Some(index));
            let offset = f.u32("offset")?;
            if offset != at {
                return Err(f.wrong("offset", at, offset));
            }
            let bytes = f.limited("length", PART_MAX)? as u32;
            let part = f.limited("length with chunks", PART_MAX)? as u32;
            f.within(f.at() - 4, "length", part.into(), leaf_bytes.saturating_sub(offset).into())?;
            f.within(f.at() - 8, "length", bytes.into(), part.into())?;
            at = offset + part;
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
            basements.push(BasementRef { offset, bytes, part, entries, hash, first });
            f.leave();
        }
        f.end()?;
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
        w.u16(0);
        w.len32(self.basements.len());
        w.len32(bytes);
        w.u32(self.leaf_bytes);
        self.bounds.encode(&mut w);
        for basement in &self.basements {
            w.u32(basement.offset);
            w.u32(basement.bytes);
            w.u32(basement.part);
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

/// One key of a basement, and where its value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The key.
    pub key: Key,
    /// The chunk that holds the value; [`NO_CHUNK`] if it is empty.
    pub chunk: u16,
    /// Where in the chunk the value starts.
    pub offset: u16,
    /// How long the value is.
    pub bytes: u32,
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
    let mut places = Vec::with_capacity(lengths.size_hint().0);
    let mut chunks: Vec<usize> = Vec::new();
    let mut open: Option<usize> = None;
    for len in lengths {
        if len == 0 {
            places.push((NO_CHUNK, 0));
            continue;
        }
        let alone = is_block(tree, len) || len > SMALL_CHUNK_MAX;
        let fits = |all: usize| !alone && all <= SMALL_CHUNK_MAX && !is_block(tree, all);
        let (chunk, offset) = match open {
            Some(chunk) if fits(chunks[chunk] + len) => (chunk, chunks[chunk]),
            _ => {
                chunks.push(0);
                (chunks.len() - 1, 0)
            }
        };
        chunks[chunk] += len;
        if !alone {
            open = Some(chunk);
        }
        places.push((chunk as u16, offset as u16));
    }
    (places, chunks)
}

/// Whether a chunk is a whole block of a file, which is aligned to 4096 bytes.
pub fn is_block(tree: TreeId, bytes: usize) -> bool {
    tree == TreeId::Data && bytes == FILE_BLOCK
}

/// The keys of a basement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySection {
    /// The chunks that hold its values.
    pub chunks: Vec<ChunkRef>,
    /// Its entries, in key order.
    pub entries: Vec<StoredEntry>,
}

impl KeySection {
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
        let restarts = f.u32("restart count")? as usize;
        if restarts != entry_count.div_ceil(RESTART_EVERY) {
            return Err(f.wrong("restart count", entry_count.div_ceil(RESTART_EVERY), restarts));
        }
        let entry_bytes = f.limited("entry bytes", PART_MAX)?;
        let mut restart_at = Vec::with_capacity(restarts);
        for index in 0..restarts {
            f.enter("restart", Some(index));
            restart_at.push(f.u32("offset")? as usize);
            f.leave();
        }
        let mut chunks = Vec::with_capacity(chunk_count);
        for index in 0..chunk_count {
            chunks.push(ChunkRef::decode(&mut f, index, leaf_bytes)?);
        }
        if f.left() != entry_bytes {
            return Err(f.wrong("entry bytes", f.left(), entry_bytes));
        }
        let entries = decode_entries(&mut f, entry_count, &restart_at)?;
        f.end()?;
        let section = KeySection { chunks, entries };
        section.check_chunks(&f, tree)?;
        Ok(section)
    }

    /// The chunks must be those that the rule gives.
    fn check_chunks(&self, f: &Fields<'_, '_>, tree: TreeId) -> Result<(), FormatError> {
        let (places, lengths) = chunks_of(tree, self.entries.iter().map(|e| e.bytes as usize));
        let found = self.chunks.iter().map(|chunk| chunk.bytes as usize);
        let ordered = self.entries.windows(2).all(|pair| pair[0].key < pair[1].key);
        let in_row = |block: bool| {
            let chunks = self.chunks.iter();
            let mut row = chunks.filter(|chunk| is_block(tree, chunk.bytes as usize) == block);
            let mut at = row.next().map(|first| first.offset + first.bytes);
            row.all(|chunk| at.replace(chunk.offset + chunk.bytes) == Some(chunk.offset))
        };
        if !in_row(false) || !in_row(true) {
            return Err(f.wrong("chunks", "chunks one behind another", "others"));
        }
        let placed = self.entries.iter().map(|e| (e.chunk, e.offset)).eq(places);
        if !ordered || !placed || !found.eq(lengths) {
            return Err(f.wrong("entries", "keys in order and values in their chunks", "others"));
        }
        Ok(())
    }

    /// How long the section of these keys will be.
    pub fn encoded_bytes<'k>(keys: impl Iterator<Item = &'k [u8]>, chunks: usize) -> usize {
        let mut bytes = SECTION_HEADER + chunks * CHUNK_BYTES;
        let mut before: &[u8] = &[];
        for (index, key) in keys.enumerate() {
            if index % RESTART_EVERY == 0 {
                bytes += 4;
                before = &[];
            }
            bytes += ENTRY_BYTES + key.len() - shared_prefix(before, key);
            before = key;
        }
        bytes
    }

    /// The section's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let entries = self.entries.iter().map(|entry| EntryRef {
            key: &entry.key,
            chunk: entry.chunk,
            offset: entry.offset,
            bytes: entry.bytes,
        });
        encode_section(&self.chunks, entries)
    }
}

/// An entry of a key section, wherever its key is kept.
#[derive(Clone, Copy, Debug)]
pub struct EntryRef<'e> {
    /// The key.
    pub key: &'e [u8],
    /// The chunk that holds the value.
    pub chunk: u16,
    /// Where in the chunk.
    pub offset: u16,
    /// The length of the value.
    pub bytes: u32,
}

/// The bytes of a key section of these chunks and entries.
pub fn encode_section<'e>(
    chunks: &[ChunkRef],
    section: impl Iterator<Item = EntryRef<'e>>,
) -> Vec<u8> {
    let mut entries = Writer::default();
    let mut restart_at = Vec::new();
    let mut count = 0;
    let mut before: &[u8] = &[];
    for (index, entry) in section.enumerate() {
        if index % RESTART_EVERY == 0 {
            restart_at.push(entries.len());
            before = &[];
        }
        let shared = shared_prefix(before, entry.key);
        entries.len16(shared);
        entries.len16(entry.key.len() - shared);
        entries.u16(entry.chunk);
        entries.u16(entry.offset);
        entries.u32(entry.bytes);
        entries.bytes(&entry.key[shared..]);
        before = entry.key;
        count = index + 1;
    }
    let total = SECTION_HEADER + 4 * restart_at.len() + CHUNK_BYTES * chunks.len() + entries.len();
    let mut w = Writer::with_capacity(total);
    w.len32(count);
    w.len32(chunks.len());
    w.len32(restart_at.len());
    w.len32(entries.len());
    restart_at.iter().for_each(|at| w.len32(*at));
    for chunk in chunks {
        w.u32(chunk.offset);
        w.u32(chunk.bytes);
        w.u32(0);
        w.hash(&chunk.hash);
    }
    w.bytes(entries.as_slice());
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

fn decode_entries(
    f: &mut Fields<'_, '_>,
    count: usize,
    restart_at: &[usize],
) -> Result<Vec<StoredEntry>, FormatError> {
    let start = f.at();
    let mut places = Vec::with_capacity(count);
    let mut keys: Vec<u8> = Vec::with_capacity(f.left());
    let mut before = 0..0;
    for index in 0..count {
        f.enter("entry", Some(index));
        if index % RESTART_EVERY == 0 {
            let at = restart_at[index / RESTART_EVERY];
            if at != f.at() - start {
                return Err(f.wrong("restart", f.at() - start, at));
            }
            before = 0..0;
        }
        let shared = f.short_limited("shared", before.len())?;
        let suffix = f.short_limited("suffix length", KEY_MAX - shared)?;
        let chunk = f.u16("chunk")?;
        let offset = f.u16("offset in chunk")?;
        let bytes = f.limited("value length", VALUE_MAX)? as u32;
        let suffix = f.hex("suffix", suffix)?;
        let key = keys.len()..keys.len() + shared + suffix.len();
        f.within(f.at(), "keys", key.end as u64, KEYS_MAX as u64)?;
        let next = (before.start + shared < before.end).then(|| keys[before.start + shared]);
        if next.is_some() && next == suffix.first().copied() {
            return Err(f.wrong("shared", "the longest common prefix", shared));
        }
        keys.extend_from_within(before.start..before.start + shared);
        keys.extend_from_slice(suffix);
        before = key.clone();
        places.push((key, chunk, offset, bytes));
        f.leave();
    }
    let keys = Bytes::from(keys);
    let entries = places.into_iter().map(|(key, chunk, offset, bytes)| {
        let key = Key::new(keys.slice(key));
        StoredEntry { key, chunk, offset, bytes }
    });
    Ok(entries.collect())
}
