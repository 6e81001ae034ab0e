//! The head of an internal node: its children, and the places of the messages for them.
//!
//! ```text
//!   0  seal            72
//!  72  node id          8
//!  80  write sequence   8
//!  88  tree             1
//!  89  height           1   at least 1
//!  90  zero             2
//!  92  child count      4   at least 1
//!  96  head length      4   bytes
//! 100  run count        4
//! 104  next run         8   sequence number of the next run
//! 112  bounds               as in a leaf
//!      children             each: node id 8, height 1, zero 1, to length 2, from length 2, zero 6,
//!                           first live run 8, length 2, pivot (empty for the first child), from
//!      runs                 each, in order of sequence:
//!        sequence       8
//!        extent        12   block 8, blocks 4
//!        run length     4
//!        birth epoch    8
//!        header hash   32
//!        ranges        52   offset 4, length 4, messages 4, greatest MSN 8, hash 32
//!        unbound count  4   0
//!        slice count    4
//!        slices             each, as below
//! ```
//!
//! A child's pivot is the least key that belongs to it. An edge with a lens states `from`; `to` is the beginning of its
//! least key. A slice of a run whose sequence number is
//! below its child's first live run has been flushed: the encoder leaves it out.
//!
//! A slice is seven short numbers, a hash, a key, and a filter:
//!
//! ```text
//! step           how many children further its child is than that of the slice before it; for the first slice, its place
//! gap            bytes between the slice before it, or the run's header, and this one
//! length
//! messages
//! greatest MSN
//! growing messages   messages that may make a leaf longer
//! growing bytes      upper bound of the bytes that they add
//! hash       32
//! first key      its length, a short number, and the key: only where the slice before it is for the same child
//! filter
//! ```

use std::ops::Range;

use bytes::Bytes;

use super::fields::{Fields, FormatError, Trace, Writer, varint_bytes};
use super::filter::filter_bytes;
use super::growth::{ENTRY_BYTES, Growth};
use super::key::{Bounds, Key};
use super::lens::Lens;
use super::limits::*;
use super::run::{MESSAGE_BYTES, RUN_HEADER_BYTES, SLICE_HEADER};
use super::seal::{Birth, Magic, Seal};
use crate::ids::*;

/// Bytes of a child in the head, besides its pivot and its lens.
pub(crate) const CHILD_BYTES: usize = 30;
const SECTION_BYTES: usize = 52;
/// Everything before the bounds.
const HEAD_BYTES: usize = 112;
/// The least and the most bytes of a slice in the head, besides its first key and its filter: step, gap, length,
/// messages, MSN, growing messages and bytes, hash, and the length of the key.
const SLICE_MIN: usize = 7 + 32 + 2;
const SLICE_MAX: usize = 2 + 4 + 4 + 4 + 9 + 4 + 7 + 32 + 2;
/// Bytes of a slice in head and run, besides its first key, its filter and its messages.
pub(crate) const SLICE_COST: usize = SLICE_MAX + SLICE_HEADER;
/// Bytes of a run in the head, without its slices.
pub(crate) const RUN_BYTES: usize = 64 + SECTION_BYTES + 8;
const CHILDREN_MAX: usize = *FANOUT.end() as usize;

/// An edge to a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildRef {
    /// The child's id.
    pub id: NodeId,
    /// Messages for the child in runs before this one have been flushed.
    pub first_run: RunSeq,
    /// The least key that belongs to the child; for the first child, the node's lower bound.
    pub pivot: Key,
    /// What replaces the prefix of keys on the way to the child.
    pub lens: Option<Lens>,
}

/// A section of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionRef {
    /// Offset from the start of the run; 0 if there are no messages.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
    /// Number of messages.
    pub count: u32,
    /// The greatest MSN among them.
    pub greatest: Msn,
    /// The hash of the bytes.
    pub hash: Hash,
}

/// A slice: some or all messages of a run for one child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceRef {
    /// The index of its child in the node.
    pub child: u16,
    /// A lower bound of its keys, above all keys of the slice before it; empty for the first slice of the child.
    pub first: Key,
    /// How much its messages may make leaves grow.
    pub growth: Growth,
    /// Its section.
    pub section: SectionRef,
    /// The range of its filter in the run's filters.
    pub filter: Range<u32>,
}

/// Slices of a run in order. First keys share one allocation, and filters another.
#[derive(Default)]
pub struct SliceList {
    slices: Vec<SliceRef>,
    /// All first keys.
    firsts: Vec<u8>,
    ends: Vec<usize>,
    filters: Vec<u8>,
}

/// A run, as the head lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRef {
    /// Its sequence number; greater is younger.
    pub seq: RunSeq,
    /// Its extent.
    pub extent: Extent,
    /// Its length in bytes.
    pub bytes: u32,
    /// The epoch that it was written for.
    pub birth: Epoch,
    /// The hash in its header's seal.
    pub header_hash: Hash,
    /// Its range messages.
    pub ranges: SectionRef,
    /// Its slices of point messages, in the order of children, and for each child in key order.
    pub slices: Vec<SliceRef>,
    /// The filters of all slices.
    pub filters: Bytes,
}

/// The head of an internal node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalHead {
    /// The node's id.
    pub id: NodeId,
    /// The tree that it belongs to.
    pub tree: TreeId,
    /// Its height; its children are one lower.
    pub height: Height,
    /// Orders several writes of one epoch.
    pub write_seq: u64,
    /// The sequence number of the next run.
    pub next_run: RunSeq,
    /// The keys that it is responsible for.
    pub bounds: Bounds,
    /// Its children, in key order; at least one.
    pub children: Vec<ChildRef>,
    /// Its runs, oldest first.
    pub runs: Vec<RunRef>,
}

impl InternalHead {
    /// Parses a slice that is exactly the head.
    pub fn decode(
        head: &[u8],
        trace: Option<&mut dyn Trace>,
    ) -> Result<(Seal, InternalHead), FormatError> {
        let mut f = Fields::traced(head, trace);
        let seal = Seal::decode(&mut f, Magic::Internal)?;
        let id = NodeId(f.u64("node id")?);
        let write_seq = f.u64("write sequence")?;
        let code = f.u8("tree")?;
        let tree = TreeId::from_code(code).ok_or_else(|| f.wrong("tree", "1 or 2", code))?;
        let height = Height(f.u8("height")?);
        if height.0 == 0 || height.0 > HEIGHT_MAX {
            return Err(f.wrong("height", format_args!("1 to {HEIGHT_MAX}"), height));
        }
        f.zeros("reserved", 2)?;
        let child_count = f.count("child count", CHILDREN_MAX, CHILD_BYTES)?;
        if child_count == 0 {
            return Err(f.wrong("child count", "at least 1", 0));
        }
        let head_bytes = f.u32("head length")?;
        if head_bytes as usize != head.len() {
            return Err(f.wrong("head length", head.len(), head_bytes));
        }
        let run_count = f.count("run count", RUNS_MAX, RUN_BYTES)?;
        let next_run = RunSeq(f.u64("next run")?);
        let bounds = Bounds::decode(&mut f)?;
        let children = decode_children(&mut f, child_count, height, &bounds, next_run)?;
        let mut runs: Vec<RunRef> = Vec::with_capacity(run_count);
        for index in 0..run_count {
            f.enter("run", Some(index));
            let run = RunRef::decode(&mut f, &children)?;
            if run.seq >= next_run || runs.last().is_some_and(|before| before.seq >= run.seq) {
                return Err(f.wrong("sequence", "growing numbers below next run", run.seq));
            }
            runs.push(run);
            f.leave();
        }
        f.end()?;
        if let Some(run) = runs.iter().find(|run| run.birth > seal.birth.epoch) {
            return Err(f.wrong("birth epoch", "none beyond the head's own", run.birth));
        }
        Ok((seal, InternalHead { id, tree, height, write_seq, next_run, bounds, children, runs }))
    }

    /// Bytes of the head; they do not depend on the places of runs.
    pub fn encoded_bytes(&self) -> usize {
        let bounds =
            3 + self.bounds.lo.len() + self.bounds.hi.as_ref().map_or(0, |hi| 2 + hi.len());
        let pivots: usize = self.children.iter().skip(1).map(|child| child.pivot.len()).sum();
        let lenses = self.children.iter().filter_map(|child| child.lens.as_ref());
        let lenses: usize = lenses.map(|lens| lens.from().len()).sum();
        let slices = self.runs.iter().flat_map(RunRef::listed);
        let slices = slices.map(|listed| listed.bytes());
        HEAD_BYTES
            + bounds
            + self.children.len() * CHILD_BYTES
            + pivots
            + lenses
            + self.runs.len() * RUN_BYTES
            + slices.sum::<usize>()
    }

    /// The head's bytes, and the hash in its seal.
    pub fn encode(&self, birth: Birth) -> (Vec<u8>, Hash) {
        // The capacity leaves room for padding to whole blocks.
        let mut w = Writer::with_capacity(self.encoded_bytes().next_multiple_of(BLOCK_SIZE));
        Seal::open(&mut w, Magic::Internal, birth);
        w.u64(self.id.0);
        w.u64(self.write_seq);
        w.u8(self.tree.code());
        w.u8(self.height.0);
        w.u16(0);
        w.len32(self.children.len());
        let length_at = w.len();
        w.u32(0);
        w.len32(self.runs.len());
        w.u64(self.next_run.0);
        self.bounds.encode(&mut w);
        for (index, child) in self.children.iter().enumerate() {
            w.u64(child.id.0);
            w.u8(self.height.0 - 1);
            w.u8(0);
            let lens = child.lens.as_ref();
            w.len16(lens.map_or(0, |lens| lens.to().len()));
            w.len16(lens.map_or(0, |lens| lens.from().len()));
            w.u32(0);
            w.u16(0);
            w.u64(child.first_run.0);
            if index == 0 {
                Key::default().encode(&mut w)
            } else {
                child.pivot.encode(&mut w)
            }
            lens.into_iter().for_each(|lens| w.bytes(lens.from()));
        }
        for run in &self.runs {
            run.encode(&mut w);
        }
        let length = u32::try_from(w.len()).expect("a head within its limit");
        w.patch(length_at, &length.to_le_bytes());
        debug_assert_eq!(w.len(), self.encoded_bytes());
        let mut head = w.finish();
        let hash = Seal::close(&mut head);
        (head, hash)
    }
}

fn decode_children(
    f: &mut Fields<'_, '_>,
    count: usize,
    height: Height,
    bounds: &Bounds,
    next_run: RunSeq,
) -> Result<Vec<ChildRef>, FormatError> {
    let mut children: Vec<ChildRef> = Vec::with_capacity(count);
    for index in 0..count {
        f.enter("child", Some(index));
        let id = NodeId(f.u64("node id")?);
        let child_height = f.u8("height")?;
        if child_height != height.0 - 1 {
            return Err(f.wrong("height", height.0 - 1, child_height));
        }
        f.zeros("reserved", 1)?;
        let to_bytes = f.short_limited("to length", KEY_MAX)?;
        let from_bytes = f.short_limited("from length", KEY_MAX)?;
        f.zeros("reserved", 6)?;
        let first_run = RunSeq(f.u64("first live run")?);
        if first_run > next_run {
            return Err(f.wrong("first live run", format_args!("at most {next_run}"), first_run));
        }
        let mut pivot = Key::decode(f, "pivot")?;
        match children.last() {
            None if !pivot.is_empty() => return Err(f.wrong("pivot", "none", "one")),
            None => pivot = bounds.lo.clone(),
            Some(before) => {
                if pivot <= before.pivot || !bounds.contains(&pivot) {
                    return Err(f.wrong("pivot", "growing keys within the bounds", "another"));
                }
            }
        }
        let lens = match (to_bytes, from_bytes) {
            (0, 0) => None,
            _ => {
                let from = f.hex("from", from_bytes)?;
                let to = pivot.get(..to_bytes).unwrap_or_default();
                let lens = Lens::new(Key::copied(to), Key::copied(from));
                let lens = lens.filter(|lens| lens.to().len() == to_bytes);
                let expected = "two prefixes that differ, the lower one no shorter";
                Some(lens.ok_or_else(|| f.wrong("lens", expected, "others"))?)
            }
        };
        children.push(ChildRef { id, first_run, pivot, lens });
        f.leave();
    }
    // The last key of a child is known with its neighbour.
    let ends = children.iter().skip(1).map(|next| Some(&next.pivot)).chain([bounds.hi.as_ref()]);
    for (child, hi) in children.iter().zip(ends) {
        let keys = Bounds { lo: child.pivot.clone(), hi: hi.cloned() };
        if child.lens.as_ref().is_some_and(|lens| !lens.spans(&keys)) {
            return Err(f.wrong("lens", "one for all keys of its child", "another"));
        }
    }
    Ok(children)
}

impl SliceList {
    /// Adds a slice; `filter` appends its filter to those of earlier slices.
    pub fn push(
        &mut self,
        child: u16,
        first: &[u8],
        growth: Growth,
        section: SectionRef,
        filter: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.filters.len() as u32;
        filter(&mut self.filters);
        let filter = start..self.filters.len() as u32;
        self.firsts.extend_from_slice(first);
        self.ends.push(self.firsts.len());
        self.slices.push(SliceRef { child, first: Key::default(), growth, section, filter });
    }

    /// The child of the last slice, and its first key.
    fn last(&self) -> Option<(u16, &[u8])> {
        let (last, before) = (self.slices.last()?, self.ends.iter().rev().nth(1));
        Some((last.child, &self.firsts[before.copied().unwrap_or(0)..]))
    }

    /// The slices, and all filters.
    pub fn finish(self) -> (Vec<SliceRef>, Bytes) {
        let SliceList { mut slices, firsts, ends, filters } = self;
        let mut firsts = Bytes::from(firsts);
        let mut start = 0;
        for (slice, end) in slices.iter_mut().zip(ends) {
            if end > start {
                slice.first = Key::new(firsts.split_to(end - start));
            }
            start = end;
        }
        (slices, filters.into())
    }
}

/// A slice as it is listed in the head.
struct Listed<'r> {
    numbers: [u64; 7],
    hash: &'r Hash,
    /// Its first key, if the slice before it is for the same child.
    first: Option<&'r [u8]>,
    filter: &'r [u8],
}

impl Listed<'_> {
    fn bytes(&self) -> usize {
        let numbers: usize = self.numbers.iter().map(|number| varint_bytes(*number)).sum();
        let first = self.first.map_or(0, |first| varint_bytes(first.len() as u64) + first.len());
        numbers + 32 + first + self.filter.len()
    }

    fn encode(&self, w: &mut Writer) {
        self.numbers.iter().for_each(|number| w.varint(*number));
        w.hash(self.hash);
        if let Some(first) = self.first {
            w.varint(first.len() as u64);
            w.bytes(first);
        }
        w.bytes(self.filter);
    }
}

impl RunRef {
    fn decode(f: &mut Fields<'_, '_>, children: &[ChildRef]) -> Result<RunRef, FormatError> {
        let seq = RunSeq(f.u64("sequence")?);
        let start = BlockNr(f.u64("extent start")?);
        let blocks = f.u32("extent blocks")?;
        let bytes = f.limited("run length", PART_MAX)? as u32;
        if (bytes as usize) < RUN_HEADER_BYTES {
            return Err(f.wrong("run length", format_args!("at least {RUN_HEADER_BYTES}"), bytes));
        }
        let extent = Extent { start, blocks };
        if !extent.is_place() || u64::from(blocks) != u64::from(bytes).div_ceil(BLOCK_SIZE as u64) {
            return Err(f.wrong(
                "extent",
                "a place that the run fills",
                format_args!("{}+{blocks}", start.0),
            ));
        }
        let birth = Epoch(f.u64("birth epoch")?);
        let header_hash = f.hash("header hash")?;
        f.enter("ranges", None);
        let ranges = SectionRef::decode(f, bytes)?;
        f.leave();
        f.zeros("unbound count", 4)?;
        let slice_count = f.count("slice count", SLICES_MAX, SLICE_MIN)?;
        let mut slices = SliceList::default();
        let (mut place, mut end) = (0, RUN_HEADER_BYTES as u64);
        for index in 0..slice_count {
            f.enter("slice", Some(index));
            let before = slices.last();
            place += f.length("step", children.len() - 1 - place)?;
            let (child, ChildRef { id, first_run, .. }) = (place as u16, &children[place]);
            let before = before.filter(|(before, _)| *before == child).map(|(_, first)| first);
            if *first_run > seq {
                return Err(f.wrong("step", "one to a child whose messages are live", id));
            }
            let section = SectionRef::decode_short(f, end, bytes)?;
            end = u64::from(section.offset) + u64::from(section.bytes);
            let at = f.at();
            let messages = f.varint("growing messages")?;
            f.within(at, "growing messages", messages, section.count.into())?;
            let at = f.at();
            let bytes_max = messages * (ENTRY_BYTES + (KEY_MAX + VALUE_MAX) as u64);
            let growth = Growth { messages, bytes: f.varint("growing bytes")? };
            f.within(at, "growing bytes", growth.bytes, bytes_max)?;
            let hash = f.hash("hash")?;
            let mut first: &[u8] = &[];
            if let Some(before) = before {
                let len = f.length("key length", KEY_MAX)?;
                first = f.hex("first key", len)?;
                if first <= before {
                    return Err(f.wrong("first key", "growing keys", "another"));
                }
            }
            let filter = f.hex("filter", filter_bytes(section.count as usize))?;
            let section = SectionRef { hash, ..section };
            slices.push(child, first, growth, section, |all| all.extend_from_slice(filter));
            f.leave();
        }
        let (slices, filters) = slices.finish();
        Ok(RunRef { seq, extent, bytes, birth, header_hash, ranges, slices, filters })
    }

    /// The filter of one of the run's slices.
    pub fn filter(&self, slice: &SliceRef) -> &[u8] {
        &self.filters[slice.filter.start as usize..slice.filter.end as usize]
    }

    /// The slices as they are listed in the head.
    fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        let mut end = RUN_HEADER_BYTES as u32;
        let mut before = None;
        self.slices.iter().map(move |slice| {
            let SectionRef { offset, bytes, count, greatest, hash } = &slice.section;
            // Children are in order. If an encoder listed them in another order, it would write step 0, and the checker
            // finds keys of another child.
            let step = u64::from(slice.child.saturating_sub(before.unwrap_or(0)));
            let gap = u64::from(offset.saturating_sub(end));
            end = offset.saturating_add(*bytes);
            let Growth { messages: growing, bytes: growth } = slice.growth;
            let (length, count) = (u64::from(*bytes), u64::from(*count));
            let numbers = [step, gap, length, count, greatest.0, growing, growth];
            let again = before.replace(slice.child) == Some(slice.child);
            let first = again.then_some(&*slice.first);
            Listed { numbers, hash, first, filter: self.filter(slice) }
        })
    }

    fn encode(&self, w: &mut Writer) {
        w.u64(self.seq.0);
        w.u64(self.extent.start.0);
        w.u32(self.extent.blocks);
        w.u32(self.bytes);
        w.u64(self.birth.0);
        w.hash(&self.header_hash);
        self.ranges.encode(w);
        w.u32(0);
        w.len32(self.slices.len());
        self.listed().for_each(|listed| listed.encode(w));
    }
}

impl SectionRef {
    fn decode(f: &mut Fields<'_, '_>, run_bytes: u32) -> Result<SectionRef, FormatError> {
        let offset = f.u32("offset")?;
        let bytes = f.u32("length")?;
        let end = u64::from(offset) + u64::from(bytes);
        f.within(f.at() - 8, "offset", end, run_bytes.into())?;
        let count = f.u32("messages")?;
        let greatest = Msn(f.u64("greatest MSN")?);
        let hash = f.hash("hash")?;
        let section = SectionRef { offset, bytes, count, greatest, hash };
        if count == 0 && section != SectionRef::default() {
            return Err(f.wrong("messages", "all zero if there are none", "a place"));
        }
        if count > 0 && (offset as usize) < RUN_HEADER_BYTES {
            return Err(f.wrong("offset", "a place behind the run's header", offset));
        }
        Ok(section)
    }

    /// Reads a section whose offset is given as a gap after byte `end` of a run of `run_bytes` bytes. Its hash is read
    /// later.
    fn decode_short(
        f: &mut Fields<'_, '_>,
        end: u64,
        run_bytes: u32,
    ) -> Result<SectionRef, FormatError> {
        let gap = f.length("gap", PART_MAX)?;
        let at = f.at();
        let bytes = f.length("length", PART_MAX)?;
        let offset = end + gap as u64;
        f.within(at, "end", offset + bytes as u64, run_bytes.into())?;
        let count = f.length("messages", bytes / MESSAGE_BYTES)?;
        if count == 0 {
            return Err(f.wrong("messages", "at least 1", 0));
        }
        let greatest = Msn(f.varint("greatest MSN")?);
        let (offset, bytes, count) = (offset as u32, bytes as u32, count as u32);
        Ok(SectionRef { offset, bytes, count, greatest, hash: Hash::default() })
    }

    fn encode(&self, w: &mut Writer) {
        w.u32(self.offset);
        w.u32(self.bytes);
        w.u32(self.count);
        w.u64(self.greatest.0);
        w.hash(&self.hash);
    }
}
