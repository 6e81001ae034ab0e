//! Runs: immutable, sorted batches of messages in an internal node.
//!
//! A run is one extent: a header, slices of point messages by child, a section of range messages, and zeros to the
//! extent's end. The head of the node has the offsets of the slices.
//!
//! ```text
//!   0  seal          72   hashes the header alone
//!  72  node id        8
//!  80  run sequence   8
//!  88  tree           1
//!  89  zero           3
//!  92  run length     4   bytes, header included
//!  96  zero          32
//! ```
//!
//! A slice is the greatest MSN of its messages, 8 bytes, and then the messages in key order, one for each key. Numbers
//! are variable-length:
//!
//! ```text
//! kind           1 byte: 1 insert, 2 delete, 4 update
//! shared         bytes of the key before it that it begins with
//! suffix length
//! value length   or that of the update
//! age            the greatest MSN, less that of the message
//! suffix, value or update
//! ```
//!
//! A range message; they are in key order and disjoint:
//!
//! ```text
//!  0  kind           1   3 range delete
//!  1  zero           7
//!  8  MSN            8
//! 16  length 2, lo; length 2, hi
//! ```

use std::ops::Range;

use bytes::Bytes;

use super::fields::{Fields, FormatError, Trace, Writer};
use super::key::{GREATER_KEY, Key, is_greater, shared_prefix};
use super::limits::{KEY_MAX, KEYS_MAX, PART_MAX, VALUE_MAX};
use super::message::{Action, Kind, Message, MessageRef, RANGE_DELETE, RangeDelete};
use super::seal::{Birth, Magic, Seal};
use super::update::Update;
use crate::ids::*;

/// Bytes of a run's header.
pub const RUN_HEADER_BYTES: usize = 128;
/// The shortest message of a slice, in bytes.
pub(crate) const MESSAGE_BYTES: usize = 5;
/// Bytes of a slice besides its messages.
pub(crate) const SLICE_HEADER: usize = 8;

/// The header of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHeader {
    /// The node that the run was written for.
    pub node: NodeId,
    /// Its sequence number in that node.
    pub seq: RunSeq,
    /// The tree that it belongs to.
    pub tree: TreeId,
    /// The length of the run, header included.
    pub bytes: u32,
}

impl RunHeader {
    /// Parses a slice that is exactly the header.
    pub fn decode(
        header: &[u8],
        trace: Option<&mut dyn Trace>,
    ) -> Result<(Seal, RunHeader), FormatError> {
        let mut f = Fields::traced(header, trace);
        let seal = Seal::decode(&mut f, Magic::Run)?;
        let node = NodeId(f.u64("node id")?);
        let seq = RunSeq(f.u64("run sequence")?);
        let code = f.u8("tree")?;
        let tree = TreeId::from_code(code).ok_or_else(|| f.wrong("tree", "1 or 2", code))?;
        f.zeros("reserved", 3)?;
        let bytes = f.limited("run length", PART_MAX)? as u32;
        f.zeros("reserved", 32)?;
        f.end()?;
        Ok((seal, RunHeader { node, seq, tree, bytes }))
    }

    /// The header's bytes, and the hash in its seal.
    pub fn encode(&self, birth: Birth) -> (Vec<u8>, Hash) {
        let mut w = Writer::with_capacity(RUN_HEADER_BYTES);
        Seal::open(&mut w, Magic::Run, birth);
        w.u64(self.node.0);
        w.u64(self.seq.0);
        w.u8(self.tree.code());
        w.pad_to(92);
        w.u32(self.bytes);
        w.pad_to(RUN_HEADER_BYTES);
        let mut header = w.finish();
        let hash = Seal::close(&mut header);
        (header, hash)
    }
}

/// Parses a slice of `count` messages. Values share the slice's memory.
pub fn decode_slice(
    slice: &Bytes,
    count: usize,
    trace: Option<&mut dyn Trace>,
) -> Result<Vec<(Key, Message)>, FormatError> {
    let mut messages: Vec<(Key, Message)> = Vec::new();
    read_slice(slice, count, trace, |key, msn, kind, value| {
        let action = match kind {
            Kind::Insert => Action::Insert(slice.slice(value)),
            Kind::Delete => Action::Delete,
            Kind::Update => Action::Update(Update::trusted(slice.slice(value))),
        };
        messages.push((Key::copied(key), Message { msn, action }));
    })?;
    Ok(messages)
}

/// Decodes a slice of `count` messages, and passes each to `show`: its key, MSN and kind, and the range of its value or
/// update in the slice.
pub fn read_slice(
    slice: &Bytes,
    count: usize,
    trace: Option<&mut dyn Trace>,
    mut show: impl FnMut(&[u8], Msn, Kind, Range<usize>),
) -> Result<(), FormatError> {
    let mut f = Fields::traced(slice, trace);
    let greatest = f.u64("greatest MSN")?;
    f.within(0, "message count", count as u64, (f.left() / MESSAGE_BYTES) as u64)?;
    let mut key: Vec<u8> = Vec::new();
    let mut unfolded = 0;
    let mut youngest = u64::MAX;
    for index in 0..count {
        f.enter("message", Some(index));
        let code = f.u8("kind")?;
        let shared = f.length("shared", key.len())?;
        let suffix = f.length("suffix length", KEY_MAX - shared)?;
        let kind = Kind::from_code(code);
        let value_max = if kind == Some(Kind::Update) { PART_MAX } else { VALUE_MAX };
        let len = f.length("value length", value_max)?;
        let age_at = f.at();
        let age = f.varint("age")?;
        f.within(age_at, "age", age, greatest)?;
        let msn = Msn(greatest - age);
        youngest = youngest.min(age);
        let suffix = f.hex("suffix", suffix)?;
        unfolded += shared + suffix.len();
        f.within(f.at(), "keys", unfolded as u64, KEYS_MAX as u64)?;
        if !is_greater(&key, shared, suffix) && index > 0 {
            return Err(f.wrong("suffix", GREATER_KEY, "another"));
        }
        key.truncate(shared);
        key.extend_from_slice(suffix);
        let value = f.at()..f.at() + len;
        f.hex("value", len)?;
        match kind {
            Some(Kind::Insert) => {}
            Some(Kind::Delete) if len == 0 => {}
            Some(Kind::Update) => {
                Update::verify(&slice[value.clone()], None)
                    .map_err(|error| error.within(value.start))?;
            }
            _ => return Err(f.wrong("kind", "1, 2 without a value, or 4", code)),
        }
        show(&key, msn, kind.expect("it was just matched"), value);
        f.leave();
    }
    if count > 0 && youngest > 0 {
        return Err(f.wrong("greatest MSN", greatest - youngest, greatest));
    }
    f.end()
}

/// Appends a slice of messages, which are in key order; `greatest` is the greatest MSN among them.
pub fn encode_slice<'m>(
    w: &mut Writer,
    greatest: Msn,
    messages: impl Iterator<Item = MessageRef<'m>>,
) {
    w.u64(greatest.0);
    let mut before: &[u8] = &[];
    for MessageRef { key, msn, kind, value } in messages {
        let shared = shared_prefix(before, key);
        w.u8(kind as u8);
        w.varint(shared as u64);
        w.varint((key.len() - shared) as u64);
        w.varint(value.len() as u64);
        w.varint(greatest.0 - msn.0);
        w.bytes(&key[shared..]);
        w.bytes(value);
        before = key;
    }
}

/// Parses a section of `count` range messages.
pub fn decode_ranges(
    section: &[u8],
    count: usize,
    trace: Option<&mut dyn Trace>,
) -> Result<Vec<RangeDelete>, FormatError> {
    let mut f = Fields::traced(section, trace);
    f.within(0, "message count", count as u64, (section.len() / 20) as u64)?;
    let mut ranges: Vec<RangeDelete> = Vec::with_capacity(count);
    for index in 0..count {
        f.enter("range message", Some(index));
        let kind = f.u8("kind")?;
        if kind != RANGE_DELETE {
            return Err(f.wrong("kind", RANGE_DELETE, kind));
        }
        f.zeros("reserved", 7)?;
        let msn = Msn(f.u64("MSN")?);
        let lo = Key::decode(&mut f, "lo")?;
        let hi = Key::decode(&mut f, "hi")?;
        if lo >= hi || ranges.last().is_some_and(|before| before.hi > lo) {
            return Err(f.wrong("lo", "ranges in order and apart", "others"));
        }
        ranges.push(RangeDelete { msn, lo, hi });
        f.leave();
    }
    f.end()?;
    Ok(ranges)
}

/// Appends a section of range messages, which must be in key order and disjoint.
pub fn encode_ranges<'m>(w: &mut Writer, ranges: impl Iterator<Item = &'m RangeDelete>) {
    for range in ranges {
        w.u8(RANGE_DELETE);
        w.bytes(&[0; 7]);
        w.u64(range.msn.0);
        range.lo.encode(w);
        range.hi.encode(w);
    }
}
