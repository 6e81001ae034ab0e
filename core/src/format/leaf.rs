//! Leaves: the head. Key sections of basements have a module of their own (`section`).
//!
//! A leaf is one extent: head, key sections and small chunks of its basements, zeros to a multiple of 4096,
//! 4 KiB blocks of the data index, zeros to the extent's end. Where values are long all key sections are
//! in front ([`stand_together`]); else each precedes its own chunks. The head:
//!
//! ```text
//!   0  seal            72
//!  72  node id          8
//!  80  write sequence   8   grows with each write of the volume within an epoch
//!  88  tree             1
//!  89  height           1   0
//!  90  sections         1   1 if all key sections are together
//!  91  zero             1
//!  92  basement count   4
//!  96  head length      4   bytes
//! 100  leaf length      4   bytes, up to the last chunk's end
//! 104  bounds               length 2, lower bound; 1 if there is an upper bound: length 2, it
//!      basements            each, below
//!      padding              up to 255 zeros
//! ```
//!
//! A basement is three short numbers, a hash and a key:
//!
//! ```text
//! length         of its key section
//! small          the length of its small chunks
//! blocks         the number of its 4 KiB blocks; only in the data index
//! entries
//! hash           32
//! first key      its length, a short number, and the key; not for the first basement
//! ```
//!
//! The offsets of parts follow from their lengths, and first keys are shortened: heads of leaves are most of the bytes that cold
//! lookups read, and should take one block. With the padding, a writer can fix the length of the head before its
//! content is known, so that it can make basements end at block boundaries.

use std::ops::Range;

use super::fields::{Fields, FormatError, Trace, Writer, varint_bytes};
use super::key::Bounds;
use super::limits::*;
use super::seal::{Birth, Magic, Seal};
use super::section::{ChunkRef, is_block};
use crate::ids::*;

/// The least and the most bytes of a basement in the head, besides its first key.
const BASEMENT_MIN: usize = 35;
pub(crate) const BASEMENT_MAX: usize = 49;
/// The most zeros after the basements.
pub const HEAD_PADDING_MAX: usize = 255;

/// One basement in the directory of a leaf's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasementRef<'h> {
    /// Byte offset of its key section in the leaf.
    pub offset: u32,
    /// The length of its key section.
    pub bytes: u32,
    /// Byte offset of its small chunks in the leaf.
    pub small_at: u32,
    /// The length of its small chunks.
    pub small: u32,
    /// Byte offset of its file blocks in the leaf.
    pub blocks_at: u32,
    /// Number of its file blocks.
    pub blocks: u32,
    /// Number of entries.
    pub entries: u32,
    /// The hash of its key section.
    pub hash: Hash,
    /// A lower bound of its keys, above all keys of the basement before it; for the first basement, the leaf's lower
    /// bound.
    pub first: &'h [u8],
}

impl BasementRef<'_> {
    /// The byte range of its key section in the leaf.
    pub fn keys(&self) -> Range<u32> {
        self.offset..self.offset + self.bytes
    }

    /// The byte range of its small chunks in the leaf.
    pub fn chunks(&self) -> Range<u32> {
        self.small_at..self.small_at + self.small
    }

    /// What its parts take.
    pub fn sizes(&self) -> PartSizes {
        PartSizes { keys: self.bytes, small: self.small, blocks: self.blocks }
    }

    /// The byte range of one of its chunks in the leaf.
    pub fn chunk(&self, tree: TreeId, chunk: &ChunkRef) -> Range<u32> {
        let row = if is_block(tree, chunk.bytes as usize) { self.blocks_at } else { self.small_at };
        row + chunk.offset..row + chunk.offset + chunk.bytes
    }
}

/// The directory of a leaf's head: its basements, in key order. Most of the cache used by leaves is directories.
/// So fields of fixed length are in one allocation, and all first keys in another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basements {
    fixed: Vec<Fixed>,
    firsts: Vec<u8>,
    /// The end of each first key; the next one begins there.
    ends: Vec<u32>,
    /// Byte offset of the end of the last file block in the leaf.
    blocks_end: u32,
}

/// A basement without its first key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fixed {
    offset: u32,
    bytes: u32,
    small_at: u32,
    small: u32,
    /// The blocks of the next basement begin where those of this one end.
    blocks_at: u32,
    entries: u32,
    hash: Hash,
}

impl Basements {
    /// An empty directory with room for `count` basements, whose first keys have `firsts` bytes in total.
    pub fn with_capacity(count: usize, firsts: usize) -> Basements {
        let (fixed, ends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        Basements { fixed, firsts: Vec::with_capacity(firsts), ends, blocks_end: 0 }
    }

    /// Number of basements.
    pub fn len(&self) -> usize {
        self.fixed.len()
    }

    /// Whether there are no basements.
    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty()
    }

    /// Appends a basement.
    pub fn push(&mut self, basement: BasementRef<'_>) {
        let BasementRef { offset, bytes, small_at, small, blocks_at, .. } = basement;
        let BasementRef { blocks, entries, hash, first, .. } = basement;
        self.firsts.extend_from_slice(first);
        // A head has less than 4 GiB.
        self.ends.push(self.firsts.len() as u32);
        self.fixed.push(Fixed { offset, bytes, small_at, small, blocks_at, entries, hash });
        self.blocks_end = blocks_at + blocks * FILE_BLOCK as u32;
    }

    /// The first key of basement `at`; panics if there is none.
    pub fn first(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.firsts[start as usize..self.ends[at] as usize]
    }

    /// Basement `at`, if it exists.
    pub fn get(&self, at: usize) -> Option<BasementRef<'_>> {
        let Fixed { offset, bytes, small_at, small, blocks_at, entries, hash } =
            *self.fixed.get(at)?;
        let blocks_end = self.fixed.get(at + 1).map_or(self.blocks_end, |next| next.blocks_at);
        let blocks = (blocks_end - blocks_at) / FILE_BLOCK as u32;
        let first = self.first(at);
        Some(BasementRef {
            offset,
            bytes,
            small_at,
            small,
            blocks_at,
            blocks,
            entries,
            hash,
            first,
        })
    }

    /// Basement `at`; panics if there is none.
    pub fn at(&self, at: usize) -> BasementRef<'_> {
        self.get(at).expect("a basement that there is")
    }

    /// The last basement.
    pub fn last(&self) -> Option<BasementRef<'_>> {
        self.get(self.len().checked_sub(1)?)
    }

    /// All basements, in order.
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = BasementRef<'_>> + ExactSizeIterator + Clone {
        (0..self.len()).map(|at| self.at(at))
    }

    /// Number of basements whose first key is less than `key`; if `counts`, or equal to it.
    pub fn before(&self, key: &[u8], counts: bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let first = self.first(middle);
            match first < key || counts && first == key {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Sets the offsets of all parts.
    fn place(&mut self, mut places: Places) {
        for at in 0..self.len() {
            let offsets = places.next(self.at(at).sizes());
            let basement = &mut self.fixed[at];
            basement.offset = offsets.keys;
            (basement.small_at, basement.blocks_at) = (offsets.small, offsets.blocks);
        }
        self.blocks_end = places.end();
    }

    /// Memory, in bytes.
    pub fn memory(&self) -> usize {
        self.fixed.capacity() * size_of::<Fixed>()
            + self.firsts.capacity()
            + 4 * self.ends.capacity()
    }
}

impl<'h> FromIterator<BasementRef<'h>> for Basements {
    fn from_iter<I: IntoIterator<Item = BasementRef<'h>>>(basements: I) -> Basements {
        let mut all = Basements::default();
        basements.into_iter().for_each(|basement| all.push(basement));
        all
    }
}

/// Whether all key sections, of `keys` bytes, are stored together before all small chunks, of `small` bytes. A lookup
/// then reads twice, but a scan of keys skips more than sixteen times as many bytes.
pub fn stand_together(keys: u64, small: u64) -> bool {
    16 * keys < small
}

/// What the parts of a basement take in a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartSizes {
    /// Bytes of its key section.
    pub keys: u32,
    /// Bytes of its small chunks.
    pub small: u32,
    /// Number of its file blocks.
    pub blocks: u32,
}

/// The byte offsets of a basement's parts in the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOffsets {
    /// Of its key section.
    pub keys: u32,
    /// Of its small chunks.
    pub small: u32,
    /// Of its file blocks.
    pub blocks: u32,
}

/// The offsets of the parts of all basements, one basement after another.
pub struct Places {
    next: PartOffsets,
    together: bool,
    /// The end of the last part.
    end: u32,
}

impl Places {
    /// Offsets after a head of `head_bytes` bytes. `None` if the leaf would be longer than `LEAF_MAX`.
    pub fn behind(head_bytes: u32, basements: impl Iterator<Item = PartSizes>) -> Option<Places> {
        let (mut keys, mut small, mut blocks) = (0u64, 0u64, 0u64);
        for sizes in basements {
            keys += u64::from(sizes.keys);
            small += u64::from(sizes.small);
            blocks += u64::from(sizes.blocks) * FILE_BLOCK as u64;
        }
        let small_at = u64::from(head_bytes) + keys;
        let small_end = small_at + small;
        let blocks_at = match blocks {
            0 => small_end,
            _ => small_end.next_multiple_of(FILE_BLOCK as u64),
        };
        let offset = |at: u64| u32::try_from(at).ok().filter(|at| *at as usize <= LEAF_MAX);
        let end = offset(blocks_at + blocks)?;
        let next =
            PartOffsets { keys: head_bytes, small: offset(small_at)?, blocks: offset(blocks_at)? };
        Some(Places { next, together: stand_together(keys, small), end })
    }

    /// Whether all key sections are stored together.
    pub fn are_together(&self) -> bool {
        self.together
    }

    /// The length of the leaf.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// The offsets of the parts of the next basement.
    pub fn next(&mut self, sizes: PartSizes) -> PartOffsets {
        let next = &mut self.next;
        if !self.together {
            next.small = next.keys + sizes.keys;
        }
        let offsets = *next;
        next.small += sizes.small;
        next.keys = if self.together { next.keys + sizes.keys } else { next.small };
        next.blocks += sizes.blocks * FILE_BLOCK as u32;
        offsets
    }
}

/// The values that determine the length of a basement in the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasementSize {
    /// The length of its key section.
    pub bytes: u32,
    /// The length of its small chunks.
    pub small: u32,
    /// Number of its file blocks.
    pub blocks: u32,
    /// Number of entries.
    pub entries: u32,
    /// The length of its first key.
    pub first: usize,
}

impl BasementSize {
    /// The length of the basement in the head.
    fn encoded_bytes(&self, tree: TreeId, is_first: bool) -> usize {
        let BasementSize { bytes, small, blocks, entries, first } = *self;
        let numbers: usize = [bytes, small, entries].map(|n| varint_bytes(n.into())).iter().sum();
        let blocks = if tree == TreeId::Data { varint_bytes(blocks.into()) } else { 0 };
        let first = if is_first { 0 } else { varint_bytes(first as u64) + first };
        numbers + blocks + 32 + first
    }
}

/// The head of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafHead {
    /// The leaf's id.
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
    pub basements: Basements,
    /// Number of zeros after the basements.
    pub padding: u8,
}

impl LeafHead {
    /// Byte offset of the end of the last small chunk in the leaf.
    pub fn parts_end(&self, head_bytes: u32) -> u32 {
        self.basements.last().map_or(head_bytes, |last| last.chunks().end)
    }

    /// Whether all key sections are stored together after the head.
    pub fn is_together(&self) -> bool {
        let sum =
            |of: fn(&Fixed) -> u32| self.basements.fixed.iter().map(|at| u64::from(of(at))).sum();
        stand_together(sum(|at| at.bytes), sum(|at| at.small))
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
        let count = f.count("basement count", HEAD_MAX, BASEMENT_MIN)?;
        let head_bytes = f.u32("head length")?;
        if head_bytes as usize != head.len() {
            return Err(f.wrong("head length", head.len(), head_bytes));
        }
        let leaf_bytes = f.limited("leaf length", LEAF_MAX)? as u32;
        let bounds = Bounds::decode(&mut f)?;
        // The rest of the head are basements.
        let firsts = bounds.lo.len() + f.left().saturating_sub(count * BASEMENT_MIN);
        let mut basements = Basements::with_capacity(count, firsts);
        let (mut at, mut blocks_at) = (u64::from(head_bytes), 0);
        for index in 0..count {
            f.enter("basement", Some(index));
            let start = f.at();
            let bytes = f.length("length", PART_MAX)? as u32;
            let small = f.length("length of small chunks", PART_MAX)? as u32;
            at += u64::from(bytes) + u64::from(small);
            f.within(start, "length", at, leaf_bytes.into())?;
            let blocks = match tree {
                TreeId::Metadata => 0,
                TreeId::Data => f.length("file blocks", LEAF_MAX / FILE_BLOCK)? as u32,
            };
            let blocks_from = blocks_at;
            blocks_at += u64::from(blocks) * FILE_BLOCK as u64;
            f.within(start, "file blocks", blocks_at, leaf_bytes.into())?;
            let entries = f.length("entries", PART_MAX)? as u32;
            if entries == 0 {
                return Err(f.wrong("entries", "at least 1", entries));
            }
            let hash = f.hash("hash")?;
            let first = match basements.last().map(|before| before.first) {
                None => &*bounds.lo,
                Some(before) => {
                    let len = f.length("first key length", KEY_MAX)?;
                    let first = f.hex("first key", len)?;
                    if !bounds.contains(first) || before >= first {
                        return Err(f.wrong(
                            "first key",
                            "keys in order, within bounds",
                            "another",
                        ));
                    }
                    first
                }
            };
            // The offsets follow from the lengths of all basements, below.
            let blocks_at = blocks_from as u32;
            let (offset, small_at) = (0, 0);
            basements.push(BasementRef {
                offset,
                bytes,
                small_at,
                small,
                blocks_at,
                blocks,
                entries,
                hash,
                first,
            });
            f.leave();
        }
        let padding = f.left();
        f.within(f.at(), "padding", padding as u64, HEAD_PADDING_MAX as u64)?;
        f.zeros_to_end()?;
        let places = Places::behind(head_bytes, basements.iter().map(|basement| basement.sizes()));
        let Some(places) = places.filter(|places| places.are_together() == (together == 1)) else {
            let expected = format!("{} for these lengths", 1 - together);
            return Err(f.wrong("key sections together", expected, together));
        };
        if places.end() != leaf_bytes {
            return Err(f.wrong("leaf length", places.end(), leaf_bytes));
        }
        basements.place(places);
        let padding = padding as u8;
        Ok((seal, LeafHead { id, tree, write_seq, leaf_bytes, bounds, basements, padding }))
    }

    /// The length of the head without padding.
    pub fn encoded_bytes(
        tree: TreeId,
        bounds: &Bounds,
        basements: impl Iterator<Item = BasementSize>,
    ) -> usize {
        let hi = bounds.hi.as_ref().map_or(0, |hi| 2 + hi.len());
        let basements = basements.enumerate();
        let basements: usize = basements.map(|(at, size)| size.encoded_bytes(tree, at == 0)).sum();
        104 + 2 + bounds.lo.len() + 1 + hi + basements
    }

    /// The head's bytes, and the hash in its seal.
    pub fn encode(&self, birth: Birth) -> (Vec<u8>, Hash) {
        let sizes = self.basements.iter().map(|basement| {
            let BasementRef { bytes, small, blocks, entries, first, .. } = basement;
            BasementSize { bytes, small, blocks, entries, first: first.len() }
        });
        let bytes =
            LeafHead::encoded_bytes(self.tree, &self.bounds, sizes) + usize::from(self.padding);
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
        for (at, basement) in self.basements.iter().enumerate() {
            w.varint(basement.bytes.into());
            w.varint(basement.small.into());
            if self.tree == TreeId::Data {
                w.varint(basement.blocks.into());
            }
            w.varint(basement.entries.into());
            w.hash(&basement.hash);
            if at > 0 {
                w.varint(basement.first.len() as u64);
                w.bytes(basement.first);
            }
        }
        w.pad_to(w.len() + usize::from(self.padding));
        let mut head = w.finish();
        assert_eq!(head.len(), bytes, "a leaf head is as long as was planned");
        let hash = Seal::close(&mut head);
        (head, hash)
    }
}
