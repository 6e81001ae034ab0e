//! Bindings: the places of values that a log group names only by key (BetrFS 0.2 §3).
//!
//! They follow the records of a group. Each binds one or more ranges of MSNs, which are those of the group's unbound
//! entries:
//!
//! ```text
//!  0  kind          1   17 leaf, 18 slice, 19 inline, 20 NULL
//!  1  zero          3
//!  4  range count   4
//!  8  ranges       12 each: first MSN 8, count 4
//! ```
//!
//! and then, for a leaf, which holds the values under their keys:
//!
//! ```text
//!  0  node id       8
//!  8  extent start  8
//! 16  blocks        4
//! 20  head length   4
//! 24  birth epoch   8
//! 32  hash         32   of the head
//! 64  map hash     32   of the extent's map, if it is scattered; else zero
//! ```
//!
//! for a slice of a run, which holds them as messages with these MSNs:
//!
//! ```text
//!  0  node id       8
//!  8  extent start  8
//! 16  blocks        4
//! 20  offset        4   in the extent
//! 24  length        4
//! 28  messages      4
//! 32  hash         32   of the slice
//! 64  map hash     32   of the extent's map, if it is scattered; else zero
//! ```
//!
//! for an inline binding, of one MSN, length 4 and the value. A NULL binding has no more fields: an operation of the
//! same group made the value obsolete.

use bytes::Bytes;

use super::fields::{Fields, FormatError, Writer};
use super::limits::*;
use crate::ids::*;

const LEAF: u8 = 17;
const SLICE: u8 = 18;
const INLINE: u8 = 19;
const NULL: u8 = 20;
/// Bytes of a binding before its ranges.
const HEADER: usize = 8;
const RANGE: usize = 12;
const PLACE: usize = 96;

/// The most bytes that binding one value takes, if the value is not inline.
pub const BINDING_BYTES_MAX: usize = HEADER + RANGE + PLACE;

/// Consecutive MSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MsnRange {
    /// The first MSN.
    pub first: Msn,
    /// Number of MSNs; at least 1.
    pub count: u32,
}

impl MsnRange {
    /// The MSN after the last.
    pub fn end(&self) -> Msn {
        Msn(self.first.0.saturating_add(u64::from(self.count)))
    }

    /// Every MSN of the range.
    pub fn iter(&self) -> impl Iterator<Item = Msn> + use<> {
        (self.first.0..self.end().0).map(Msn)
    }

    /// Adds `msn` to ranges in ascending order; `msn` must be greater than all of them.
    pub fn extend(ranges: &mut Vec<MsnRange>, msn: Msn) {
        match ranges.last_mut() {
            Some(last) if last.end() == msn && last.count < u32::MAX => last.count += 1,
            _ => ranges.push(MsnRange { first: msn, count: 1 }),
        }
    }
}

/// A written leaf, with the fields of its table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundLeaf {
    /// The leaf's id.
    pub node: NodeId,
    /// Its extent.
    pub extent: Extent,
    /// The length of its head.
    pub head_bytes: u32,
    /// The epoch that it was written for.
    pub birth: Epoch,
    /// The hash of its head.
    pub hash: Hash,
    /// The hash of the first map, if the extent is scattered; zero otherwise.
    pub map: Hash,
}

/// A slice of a written run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundSlice {
    /// The node that the run was written for.
    pub node: NodeId,
    /// The extent of the run.
    pub extent: Extent,
    /// Byte offset of the slice in the extent.
    pub offset: u32,
    /// The length of the slice.
    pub bytes: u32,
    /// Number of messages.
    pub count: u32,
    /// Its hash.
    pub hash: Hash,
    /// The hash of the first map, if the run is scattered; zero otherwise.
    pub map: Hash,
}

/// The place of bound values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// In a leaf, under their keys.
    Leaf(BoundLeaf),
    /// In a slice of a run, as messages of their MSNs.
    Slice(BoundSlice),
    /// In the binding itself.
    Inline(Bytes),
    /// NULL: an operation of the same group made the values obsolete.
    Null,
}

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The unbound entries that it binds, by MSN, in order.
    pub values: Vec<MsnRange>,
    /// The place of their values.
    pub to: Target,
}

impl Target {
    /// The extent that must not be reused while the log needs it.
    pub fn extent(&self) -> Option<Extent> {
        match self {
            Target::Leaf(leaf) => Some(leaf.extent),
            Target::Slice(slice) => Some(slice.extent),
            Target::Inline(_) | Target::Null => None,
        }
    }

    /// The hash of the extent's first map, if it is scattered.
    pub fn map(&self) -> Option<Hash> {
        let (extent, map) = match self {
            Target::Leaf(leaf) => (leaf.extent, leaf.map),
            Target::Slice(slice) => (slice.extent, slice.map),
            Target::Inline(_) | Target::Null => return None,
        };
        extent.start.map().map(|_| map)
    }

    /// The byte address of the place; 0 for inline and NULL.
    pub fn place(&self) -> u64 {
        match self {
            Target::Leaf(leaf) => leaf.extent.start.byte(),
            Target::Slice(slice) => slice.extent.start.byte() + u64::from(slice.offset),
            Target::Inline(_) | Target::Null => 0,
        }
    }

    /// The length of a binding of `ranges` ranges.
    pub fn encoded_bytes(&self, ranges: usize) -> usize {
        let place = match self {
            Target::Leaf(_) | Target::Slice(_) => PLACE,
            Target::Inline(value) => 4 + value.len(),
            Target::Null => 0,
        };
        HEADER + RANGE * ranges + place
    }
}

impl Binding {
    /// The length of the binding in a group.
    pub fn encoded_bytes(&self) -> usize {
        self.to.encoded_bytes(self.values.len())
    }

    pub(super) fn decode(f: &mut Fields<'_, '_>, group: &Bytes) -> Result<Binding, FormatError> {
        let kind = f.u8("kind")?;
        f.zeros("reserved", 3)?;
        let count = f.count("range count", LATE_VALUES_MAX, RANGE)?;
        if count == 0 || (kind == INLINE && count != 1) {
            return Err(f.wrong("range count", "at least 1; 1 for an inline binding", count));
        }
        let mut values: Vec<MsnRange> = Vec::with_capacity(count);
        for index in 0..count {
            f.enter("values", Some(index));
            let first = Msn(f.u64("first MSN")?);
            let count = f.limited("count", LATE_VALUES_MAX)? as u32;
            let range = MsnRange { first, count };
            let fits = first.0.checked_add(count.into()).is_some();
            if count == 0 || !fits || values.last().is_some_and(|before| before.end() >= first) {
                return Err(f.wrong("values", "ranges in order and apart", first));
            }
            if kind == INLINE && count != 1 {
                return Err(f.wrong("count", "1 for an inline binding", count));
            }
            values.push(range);
            f.leave();
        }
        let to = match kind {
            LEAF => Target::Leaf(BoundLeaf::decode(f)?),
            SLICE => Target::Slice(BoundSlice::decode(f)?),
            INLINE => {
                let len = f.limited("value length", FILE_BLOCK)?;
                let at = f.at();
                f.hex("value", len)?;
                Target::Inline(group.slice(at..at + len))
            }
            NULL => Target::Null,
            other => return Err(f.wrong("kind", "17 to 20", other)),
        };
        Ok(Binding { values, to })
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u8(match self.to {
            Target::Leaf(_) => LEAF,
            Target::Slice(_) => SLICE,
            Target::Inline(_) => INLINE,
            Target::Null => NULL,
        });
        w.bytes(&[0; 3]);
        w.len32(self.values.len());
        for range in &self.values {
            w.u64(range.first.0);
            w.u32(range.count);
        }
        match &self.to {
            Target::Leaf(leaf) => leaf.encode(w),
            Target::Slice(slice) => slice.encode(w),
            Target::Inline(value) => {
                w.len32(value.len());
                w.bytes(value);
            }
            Target::Null => {}
        }
    }
}

fn decode_extent(f: &mut Fields<'_, '_>) -> Result<Extent, FormatError> {
    let start = BlockNr(f.u64("extent start")?);
    let blocks = f.limited("blocks", LEAF_MAX / BLOCK_SIZE)? as u32;
    let extent = Extent { start, blocks };
    if !extent.is_place() {
        return Err(f.wrong("extent", "a place", format_args!("{}+{blocks}", start.0)));
    }
    Ok(extent)
}

/// Reads the hash of an extent's map; it must be zero unless the extent is scattered.
fn decode_map(f: &mut Fields<'_, '_>, extent: Extent) -> Result<Hash, FormatError> {
    let map = f.hash("map hash")?;
    if extent.start.map().is_none() && map != Hash::default() {
        return Err(f.wrong("map hash", "zero for what is not scattered", map));
    }
    Ok(map)
}

impl BoundLeaf {
    fn decode(f: &mut Fields<'_, '_>) -> Result<BoundLeaf, FormatError> {
        let node = NodeId(f.u64("node id")?);
        let extent = decode_extent(f)?;
        let head_max = HEAD_MAX.min(extent.bytes() as usize);
        let head_bytes = f.limited("head length", head_max)? as u32;
        let birth = Epoch(f.u64("birth epoch")?);
        let hash = f.hash("hash")?;
        let map = decode_map(f, extent)?;
        Ok(BoundLeaf { node, extent, head_bytes, birth, hash, map })
    }

    fn encode(&self, w: &mut Writer) {
        w.u64(self.node.0);
        w.u64(self.extent.start.0);
        w.u32(self.extent.blocks);
        w.u32(self.head_bytes);
        w.u64(self.birth.0);
        w.hash(&self.hash);
        w.hash(&self.map);
    }
}

impl BoundSlice {
    fn decode(f: &mut Fields<'_, '_>) -> Result<BoundSlice, FormatError> {
        let node = NodeId(f.u64("node id")?);
        let extent = decode_extent(f)?;
        let offset = f.u32("offset")?;
        let bytes = f.limited("length", PART_MAX)? as u32;
        let end = u64::from(offset) + u64::from(bytes);
        f.within(f.at() - 8, "offset", end, extent.bytes())?;
        let count = f.limited("messages", bytes as usize)? as u32;
        let hash = f.hash("hash")?;
        let map = decode_map(f, extent)?;
        Ok(BoundSlice { node, extent, offset, bytes, count, hash, map })
    }

    fn encode(&self, w: &mut Writer) {
        w.u64(self.node.0);
        w.u64(self.extent.start.0);
        w.u32(self.extent.blocks);
        w.u32(self.offset);
        w.u32(self.bytes);
        w.u32(self.count);
        w.hash(&self.hash);
        w.hash(&self.map);
    }
}

/// Whether the bindings bind every MSN of `unbound`, which is in order, exactly once.
pub(super) fn bind_all(bindings: &[Binding], unbound: &[MsnRange]) -> bool {
    let mut bound: Vec<MsnRange> = bindings.iter().flat_map(|b| b.values.iter().copied()).collect();
    bound.sort_unstable();
    let apart = bound.windows(2).all(|pair| pair[0].end() <= pair[1].first);
    apart && join(&bound) == join(unbound)
}

/// Ordered ranges, joined into intervals that do not touch.
fn join(ranges: &[MsnRange]) -> Vec<(Msn, Msn)> {
    let mut joined: Vec<(Msn, Msn)> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some((_, end)) if *end == range.first => *end = range.end(),
            _ => joined.push((range.first, range.end())),
        }
    }
    joined
}
