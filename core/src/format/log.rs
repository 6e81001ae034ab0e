//! Log groups and their records.
//!
//! A group begins on a fresh log unit (4096 bytes) and is padded with zeros to the next. Its header:
//!
//! ```text
//!   0  seal           72   hashes header and records, without the padding
//!  72  number          8
//!  80  flushed         8   the last group whose flush had returned; 0 for none of this epoch
//!  88  record count    4
//!  92  length          4   bytes of header and records
//!  96  first LSN       8
//! 104  next LSN        8   of the record after the last
//! 112  nonce before    8   the nonce of the epoch before this one
//! 120  binding count   4   binding entries, which follow the records
//! 124  zero            4
//! ```
//!
//! A record:
//!
//! ```text
//!  0  length           4   bytes of the record
//!  4  operation        2
//!  6  zero             2
//!  8  LSN              8
//! 16  wall time       12   seconds 8, nanoseconds 4
//! 28  message count    4
//! 32  next zone id     8   after the operation
//! 40  next inode       5
//! 45  next tag         3
//! 48  messages             each: tree 1, kind 1, key length 2, second length 4, key, second
//! ```
//!
//! The second part is the value of an insert; empty for a delete; the upper bound of a range delete; or an update. (An
//! update of the data index has no adds: a recovery may apply it twice.) A range clone ([`RangeClone`]) has the prefix
//! `to` as its key; such messages come first in a record, which is the first one of its group. For an unbound entry, it is the number of its inserts, as four bytes. They are to the entry's key and to the following keys, whose last eight bytes count up. The
//! bindings have the places of their values. Messages take MSNs from the LSN on: an unbound entry takes as many as it
//! has inserts, any other message takes one.

use std::ops::Range;

use bytes::Bytes;

use super::binding::{Binding, MsnRange, bind_all};
use super::clone::RangeClone;
use super::fields::{Fields, FormatError, Trace, Writer};
use super::key::{Bounds, Key};
use super::limits::*;
use super::message::{Action, Kind, RANGE_CLONE, RANGE_DELETE, UNBOUND};
use super::names::{data_key, parse_data_key};
use super::next::NextNumbers;
use super::op::Op;
use super::seal::{Birth, Magic, Seal};
use super::update::Update;
use crate::ids::*;

/// Bytes of a group's header.
pub const GROUP_HEADER_BYTES: usize = 128;
const LENGTH_AT: usize = 92;
const RECORD_HEADER: usize = 48;
const MESSAGE_HEADER: usize = 8;

/// A message of a record, as it was before injection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordMessage {
    /// A message to one key.
    Point(TreeId, Key, Action),
    /// A range delete of `[lo, hi)`.
    RangeDelete(TreeId, Key, Key),
    /// A range clone: from now on the keys of its destination, of which there are none, are those of its source, with
    /// the prefix replaced.
    Clone(TreeId, RangeClone),
    /// Unbound inserts to this number of consecutive blocks of the data index, from this key on.
    Unbound(Key, u32),
}

/// One operation, replayed atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The MSN of its first message.
    pub lsn: Lsn,
    /// Its operation.
    pub op: Op,
    /// Its wall time.
    pub wall: Time,
    /// The next free numbers after it.
    pub next: NextNumbers,
    /// Its messages, in the order of their MSNs.
    pub messages: Vec<RecordMessage>,
}

/// Records that become durable together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number; one more than that of the group before it.
    pub number: u64,
    /// The number of the last group whose flush had returned when this one was written.
    pub flushed: u64,
    /// The nonce of the previous epoch. It proves to a reader that has only that epoch's superblock that this is a
    /// group, and not a user's data.
    pub nonce_before: Nonce,
    /// The LSN of its first record.
    pub first_lsn: Lsn,
    /// The LSN of the record after its last.
    pub next_lsn: Lsn,
    /// Its records, oldest first.
    pub records: Vec<Record>,
    /// The places of the values of their unbound entries.
    pub bindings: Vec<Binding>,
}

/// The length of the group that starts with these bytes, if they look like a group's header. Nothing is verified: the
/// caller reads that many bytes and decodes them.
pub fn group_length(header: &[u8]) -> Option<usize> {
    let length = header.get(LENGTH_AT..LENGTH_AT + 4)?.try_into().ok()?;
    let length = u32::from_le_bytes(length) as usize;
    let sane = length >= GROUP_HEADER_BYTES && length as u64 <= LOG_BYTES_MAX;
    (Magic::of(header) == Some(Magic::LogGroup) && sane).then_some(length)
}

impl Group {
    /// Parses a slice that is exactly header and records.
    pub fn decode(
        group: &Bytes,
        mut trace: Option<&mut dyn Trace>,
    ) -> Result<(Seal, Group), FormatError> {
        let mut f = match &mut trace {
            Some(trace) => Fields::traced(group, Some(&mut **trace)),
            None => Fields::new(group),
        };
        let seal = Seal::decode(&mut f, Magic::LogGroup)?;
        let number = f.u64("number")?;
        let flushed = f.u64("flushed")?;
        let count = f.count("record count", LOG_BYTES_MAX as usize, RECORD_HEADER)?;
        let length = f.u32("length")? as usize;
        if length != group.len() {
            return Err(f.wrong("length", group.len(), length));
        }
        let first_lsn = Lsn(f.u64("first LSN")?);
        let next_lsn = Lsn(f.u64("next LSN")?);
        let nonce_before = Nonce(f.u64("nonce before")?);
        let binding_count = f.limited("binding count", LATE_VALUES_MAX)?;
        f.zeros("reserved", 4)?;
        let mut lsn = first_lsn;
        let mut records: Vec<Record> = Vec::with_capacity(count);
        for index in 0..count {
            f.enter("record", Some(index));
            let record = Record::decode(&mut f, group)?;
            if record.lsn != lsn {
                return Err(f.wrong("LSN", lsn, record.lsn));
            }
            if index > 0 && record.clones().next().is_some() {
                return Err(f.wrong("kind", "range clones in the first record only", RANGE_CLONE));
            }
            let numbered = record.lsn.0.checked_add(record.width());
            if numbered.is_none_or(|next| next >= NUMBERS_END) {
                return Err(f.wrong("LSN", "one that leaves numbers for all messages", lsn));
            }
            lsn = record.next_lsn();
            records.push(record);
            f.leave();
        }
        let bindings = decode_bindings(&mut f, group, binding_count, &records)?;
        f.end()?;
        if lsn != next_lsn || records.is_empty() {
            return Err(f.wrong("next LSN", lsn, next_lsn));
        }
        if flushed >= number {
            return Err(f.wrong("flushed", format_args!("less than {number}"), flushed));
        }
        let group = Group { number, flushed, nonce_before, first_lsn, next_lsn, records, bindings };
        Ok((seal, group))
    }
}

/// Reads the bindings; they must bind every unbound entry of the records, and nothing else.
fn decode_bindings(
    f: &mut Fields<'_, '_>,
    group: &Bytes,
    count: usize,
    records: &[Record],
) -> Result<Vec<Binding>, FormatError> {
    let unbound: Vec<MsnRange> = records.iter().flat_map(Record::unbound).collect();
    let values: u64 = unbound.iter().map(|range| u64::from(range.count)).sum();
    f.within(f.at(), "unbound entries", values, LATE_VALUES_MAX as u64)?;
    let mut bindings = Vec::with_capacity(count.min(values as usize));
    for index in 0..count {
        f.enter("binding", Some(index));
        bindings.push(Binding::decode(f, group)?);
        f.leave();
    }
    if !bind_all(&bindings, &unbound) {
        return Err(f.wrong("bindings", "one for each unbound entry", "others"));
    }
    Ok(bindings)
}

impl Record {
    /// The LSN of the record that follows.
    pub fn next_lsn(&self) -> Lsn {
        Lsn(self.lsn.0.wrapping_add(self.width()))
    }

    /// Number of MSNs of its messages.
    pub fn width(&self) -> u64 {
        self.messages.iter().map(RecordMessage::width).sum()
    }

    /// Its messages, each with its first MSN.
    pub fn numbered(&self) -> impl Iterator<Item = (Msn, &RecordMessage)> {
        let mut next = self.lsn.0;
        self.messages.iter().map(move |message| {
            let msn = Msn(next);
            next += message.width();
            (msn, message)
        })
    }

    /// The MSNs of its unbound entries.
    pub fn unbound(&self) -> impl Iterator<Item = MsnRange> {
        self.numbered().filter_map(|(first, message)| match message {
            RecordMessage::Unbound(_, count) => Some(MsnRange { first, count: *count }),
            RecordMessage::Point(..)
            | RecordMessage::RangeDelete(..)
            | RecordMessage::Clone(..) => None,
        })
    }

    /// Its range clones, which come before all other messages.
    pub fn clones(&self) -> impl Iterator<Item = (TreeId, &RangeClone)> {
        clones(&self.messages)
    }

    /// The length of a record of these messages in a group.
    pub fn encoded_bytes<'m>(messages: impl IntoIterator<Item = &'m RecordMessage>) -> usize {
        let lengths = messages.into_iter().map(RecordMessage::encoded_bytes);
        RECORD_HEADER + lengths.sum::<usize>()
    }

    /// Decodes records of a group that does not verify. A record that cannot be decoded is skipped, if its length leads
    /// to a later place in the group.
    pub fn legible(group: &Bytes) -> impl Iterator<Item = Record> {
        Record::pieces(group)
            .filter_map(|piece| Record::decode_alone(&group.slice(piece), None).ok())
    }

    /// The byte ranges of records in a group that may not verify, as far as the lengths lead from one to the next.
    pub fn pieces(group: &Bytes) -> impl Iterator<Item = Range<usize>> {
        let mut at = GROUP_HEADER_BYTES;
        std::iter::from_fn(move || {
            let length = group.get(at..at + 4)?.try_into().expect("four bytes");
            let length = u32::from_le_bytes(length) as usize;
            // Ranges do not overlap, whatever length a record states.
            let end = group.len().min(at + length);
            let piece = (length >= RECORD_HEADER).then_some(at..end);
            at = end;
            piece
        })
    }

    /// Decodes a record at the start of some bytes.
    pub fn decode_alone(
        bytes: &Bytes,
        trace: Option<&mut dyn Trace>,
    ) -> Result<Record, FormatError> {
        Record::decode(&mut Fields::traced(bytes, trace), bytes)
    }

    fn decode(f: &mut Fields<'_, '_>, group: &Bytes) -> Result<Record, FormatError> {
        let start = f.at();
        let length = f.u32("length")? as usize;
        let code = f.u16("operation")?;
        let op = Op::ALL.into_iter().find(|op| op.code() == code);
        let op =
            op.ok_or_else(|| f.wrong("operation", format_args!("1 to {}", Op::ALL.len()), code))?;
        f.zeros("reserved", 2)?;
        let lsn = Lsn(f.u64("LSN")?);
        let secs = f.i64("wall seconds")?;
        let nanos = f.limited("wall nanoseconds", 999_999_999)? as u32;
        let count = f.count("message count", RECORD_MESSAGES_MAX as usize, MESSAGE_HEADER)?;
        if count == 0 {
            return Err(f.wrong("message count", "at least 1", 0));
        }
        let next = NextNumbers::decode(f)?;
        let mut messages = Vec::with_capacity(count);
        let mut width = 0;
        for index in 0..count {
            f.enter("message", Some(index));
            let message = RecordMessage::decode(f, group)?;
            width += message.width();
            f.within(f.at(), "messages", width, RECORD_MESSAGES_MAX.into())?;
            if message.is_clone()
                && messages.last().is_some_and(|last| !RecordMessage::is_clone(last))
            {
                return Err(f.wrong("kind", "range clones before all other messages", RANGE_CLONE));
            }
            messages.push(message);
            f.leave();
        }
        if f.at() - start != length {
            return Err(f.wrong("length", f.at() - start, length));
        }
        if !are_apart(clones(&messages)) {
            return Err(f.wrong("prefixes", "those of ranges that are all apart", "others"));
        }
        Ok(Record { lsn, op, wall: Time { secs, nanos }, next, messages })
    }

    /// Appends the record.
    pub fn encode(&self, w: &mut Writer) {
        w.len32(Record::encoded_bytes(&self.messages));
        w.u16(self.op.code());
        w.u16(0);
        w.u64(self.lsn.0);
        w.i64(self.wall.secs);
        w.u32(self.wall.nanos);
        w.len32(self.messages.len());
        self.next.encode(w);
        self.messages.iter().for_each(|message| message.encode(w));
    }
}

/// The range clones among the messages of an operation; they come first.
pub fn clones(messages: &[RecordMessage]) -> impl Iterator<Item = (TreeId, &RangeClone)> {
    messages.iter().map_while(|message| match message {
        RecordMessage::Clone(tree, clone) => Some((*tree, clone)),
        RecordMessage::Point(..) | RecordMessage::RangeDelete(..) | RecordMessage::Unbound(..) => {
            None
        }
    })
}

/// Whether no range of these clones, source or destination, overlaps another one.
pub fn are_apart<'c>(clones: impl Iterator<Item = (TreeId, &'c RangeClone)>) -> bool {
    let ranges = clones
        .flat_map(|(tree, clone)| [clone.source(), clone.destination()].map(|keys| (tree, keys)));
    let mut ranges: Vec<(TreeId, Bounds)> = ranges.collect();
    ranges.sort_unstable_by(|a, b| (a.0, &a.1.lo).cmp(&(b.0, &b.1.lo)));
    let ends_before = |hi: &Option<Key>, lo: &Key| hi.as_ref().is_some_and(|hi| hi <= lo);
    ranges.is_sorted_by(|a, b| a.0 != b.0 || ends_before(&a.1.hi, &b.1.lo))
}

impl RecordMessage {
    /// The tree that the message is for.
    pub fn tree(&self) -> TreeId {
        match self {
            RecordMessage::Point(tree, ..)
            | RecordMessage::RangeDelete(tree, ..)
            | RecordMessage::Clone(tree, _) => *tree,
            RecordMessage::Unbound(..) => TreeId::Data,
        }
    }

    /// Whether it is a range delete.
    pub fn is_range(&self) -> bool {
        matches!(self, RecordMessage::RangeDelete(..))
    }

    /// Whether it is a range clone.
    pub fn is_clone(&self) -> bool {
        matches!(self, RecordMessage::Clone(..))
    }

    /// Whether it can only make leaves shorter: a delete, or an update that only trims.
    pub fn frees(&self) -> bool {
        match self {
            RecordMessage::RangeDelete(..) | RecordMessage::Point(_, _, Action::Delete) => true,
            RecordMessage::Point(_, _, Action::Update(update)) => update.only_trims(),
            RecordMessage::Point(_, _, Action::Insert(_))
            | RecordMessage::Clone(..)
            | RecordMessage::Unbound(..) => false,
        }
    }

    /// Number of MSNs that it takes.
    pub fn width(&self) -> u64 {
        match self {
            RecordMessage::Unbound(_, count) => (*count).into(),
            RecordMessage::Point(..)
            | RecordMessage::RangeDelete(..)
            | RecordMessage::Clone(..) => 1,
        }
    }

    /// The length of the message in a record.
    pub fn encoded_bytes(&self) -> usize {
        let second = match self {
            RecordMessage::Point(_, _, action) => action.value().len(),
            RecordMessage::RangeDelete(_, _, hi) => hi.len(),
            RecordMessage::Clone(_, clone) => clone.encoded_bytes(),
            RecordMessage::Unbound(..) => 4,
        };
        MESSAGE_HEADER + self.key().len() + second
    }

    /// Its key; the lower bound of a range delete; the prefix of the keys that a range clone makes; the first key of
    /// unbound inserts.
    pub fn key(&self) -> &Key {
        match self {
            RecordMessage::Point(_, key, _)
            | RecordMessage::RangeDelete(_, key, _)
            | RecordMessage::Unbound(key, _) => key,
            RecordMessage::Clone(_, clone) => clone.lens().to(),
        }
    }

    /// The bounds of its keys: the first key, and the successor of the last.
    pub fn bounds(&self) -> (Key, Key) {
        match self {
            RecordMessage::Point(_, key, _) => (key.clone(), key.successor()),
            RecordMessage::RangeDelete(_, lo, hi) => (lo.clone(), hi.clone()),
            RecordMessage::Clone(_, clone) => {
                let Bounds { lo, hi } = clone.destination();
                (lo, hi.expect("a prefix of a lens has keys behind it"))
            }
            RecordMessage::Unbound(first, count) => {
                let last = block_after(first, count - 1).unwrap_or_else(|| first.clone());
                (first.clone(), last.successor())
            }
        }
    }

    /// The length of a key or value that exceeds its limit, if any.
    pub fn beyond_limits(&self) -> Option<usize> {
        let (second, second_max) = match self {
            RecordMessage::Point(_, _, Action::Update(update)) => match update.fits(VALUE_MAX) {
                true => (update.bytes().len(), UPDATE_MAX),
                false => (VALUE_MAX + 1, VALUE_MAX),
            },
            RecordMessage::Point(_, _, action) => (action.value().len(), VALUE_MAX),
            RecordMessage::RangeDelete(_, _, hi) => (hi.len(), KEY_MAX),
            RecordMessage::Clone(_, clone) => (clone.lens().from().len(), KEY_MAX),
            RecordMessage::Unbound(..) => (0, 0),
        };
        let over = |bytes: usize, max: usize| (bytes > max).then_some(bytes);
        over(self.key().len(), KEY_MAX).or_else(|| over(second, second_max))
    }

    fn encode(&self, w: &mut Writer) {
        let (count, clone);
        let (kind, second): (u8, &[u8]) = match self {
            RecordMessage::Point(_, _, action) => (action.kind() as u8, action.value()),
            RecordMessage::RangeDelete(_, _, hi) => (RANGE_DELETE, hi),
            RecordMessage::Clone(_, range) => {
                clone = range.encode();
                (RANGE_CLONE, &clone)
            }
            RecordMessage::Unbound(_, n) => {
                count = n.to_le_bytes();
                (UNBOUND, &count)
            }
        };
        w.u8(self.tree().code());
        w.u8(kind);
        w.len16(self.key().len());
        w.len32(second.len());
        w.bytes(self.key());
        w.bytes(second);
    }

    fn decode(f: &mut Fields<'_, '_>, group: &Bytes) -> Result<RecordMessage, FormatError> {
        let code = f.u8("tree")?;
        let tree = TreeId::from_code(code).ok_or_else(|| f.wrong("tree", "1 or 2", code))?;
        let kind = f.u8("kind")?;
        let key_bytes = f.short_limited("key length", KEY_MAX)?;
        let second_max = if kind == Kind::Update as u8 { UPDATE_MAX } else { VALUE_MAX };
        let second_bytes = f.limited("second length", second_max)?;
        let key_at = f.at();
        f.hex("key", key_bytes)?;
        let second_at = f.at();
        f.hex("second", second_bytes)?;
        let key = Key::new(group.slice(key_at..second_at));
        let second = group.slice(second_at..second_at + second_bytes);
        let point = |action| Ok(RecordMessage::Point(tree, key.clone(), action));
        match (Kind::from_code(kind), kind) {
            (Some(Kind::Insert), _) => point(Action::Insert(second)),
            (Some(Kind::Delete), _) if second.is_empty() => point(Action::Delete),
            (Some(Kind::Update), _) => {
                match Update::decode(&second, None).map_err(|error| error.within(second_at))? {
                    update if tree == TreeId::Data && update.adds() => {
                        let expected = "one without additions in the data index";
                        Err(f.wrong("update", expected, "an addition"))
                    }
                    update if update.is_anew() => {
                        Err(f.wrong("update", "what an operation makes", "one that deletes first"))
                    }
                    update => point(Action::Update(update)),
                }
            }
            (None, RANGE_DELETE) if second.len() <= KEY_MAX && *key < *second => {
                Ok(RecordMessage::RangeDelete(tree, key, Key::new(second)))
            }
            (None, RANGE_CLONE) => {
                let clone = RangeClone::decode(key, &second);
                clone.map(|clone| RecordMessage::Clone(tree, clone)).ok_or_else(|| {
                    f.wrong(
                        "prefixes",
                        "two that are apart, the first no longer, and a range behind",
                        "others",
                    )
                })
            }
            (None, UNBOUND) if tree == TreeId::Data => {
                let count = second[..].try_into().map_or(0, u32::from_le_bytes);
                match count > 0 && block_after(&key, count - 1).is_some() {
                    true => Ok(RecordMessage::Unbound(key, count)),
                    false => Err(f.wrong("second", "a count of blocks from the key on", count)),
                }
            }
            (_, other) => {
                Err(f.wrong("kind", "1, 2 without a value, 3 with a range, 4, 7 or 16", other))
            }
        }
    }
}

/// The key of the data index that is `blocks` blocks after `key`.
pub fn block_after(key: &[u8], blocks: u32) -> Option<Key> {
    let (prefix, first) = parse_data_key(key)?;
    Some(data_key(prefix, first.checked_add(blocks.into())?))
}

/// Builds an encoded group in memory, record by record.
pub struct GroupWriter {
    w: Writer,
    records: u32,
    first: Option<Lsn>,
    next: Lsn,
}

impl Default for GroupWriter {
    fn default() -> GroupWriter {
        GroupWriter::within(Vec::new())
    }
}

impl GroupWriter {
    /// An empty group in reused memory.
    pub fn within(mut memory: Vec<u8>) -> GroupWriter {
        memory.clear();
        let mut w = Writer::from(memory);
        w.pad_to(GROUP_HEADER_BYTES);
        GroupWriter { w, records: 0, first: None, next: Lsn(0) }
    }

    /// Appends a record.
    pub fn push(&mut self, record: &Record) {
        record.encode(&mut self.w);
        self.records += 1;
        self.first.get_or_insert(record.lsn);
        self.next = record.next_lsn();
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The length of header and records so far.
    pub fn bytes(&self) -> usize {
        self.w.len()
    }

    /// The group's bytes, padded to whole log units.
    pub fn seal(
        mut self,
        bindings: &[Binding],
        birth: Birth,
        nonce_before: Nonce,
        number: u64,
        flushed: u64,
    ) -> Vec<u8> {
        bindings.iter().for_each(|binding| binding.encode(&mut self.w));
        let mut header = Writer::with_capacity(GROUP_HEADER_BYTES);
        Seal::open(&mut header, Magic::LogGroup, birth);
        header.u64(number);
        header.u64(flushed);
        header.u32(self.records);
        header.len32(self.w.len());
        header.u64(self.first.unwrap_or(self.next).0);
        header.u64(self.next.0);
        header.u64(nonce_before.0);
        header.len32(bindings.len());
        header.pad_to(GROUP_HEADER_BYTES);
        let mut group = self.w.finish();
        group[..GROUP_HEADER_BYTES].copy_from_slice(header.as_slice());
        Seal::close(&mut group);
        group.resize(group.len().next_multiple_of(BLOCK_SIZE), 0);
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(lsn: u64, value: usize) -> Record {
        let action = Action::Insert(Bytes::from(vec![7; value]));
        let message = RecordMessage::Point(TreeId::Metadata, Key::copied(&[lsn as u8]), action);
        let (op, wall, messages) = (Op::Raw, Time::default(), vec![message]);
        Record { lsn: Lsn(lsn), op, wall, next: NextNumbers::FIRST, messages }
    }

    fn group_of(records: &[Record]) -> Vec<u8> {
        let mut w = Writer::from(vec![0; GROUP_HEADER_BYTES]);
        records.iter().for_each(|record| record.encode(&mut w));
        w.finish()
    }

    #[test]
    fn what_is_legible_is_found_around_what_is_not() {
        let records = [1, 2, 3].map(|lsn| record(lsn, 50));
        let group = group_of(&records);
        assert!(Record::legible(&Bytes::from(group.clone())).eq(records.clone()));
        let second = GROUP_HEADER_BYTES + Record::encoded_bytes(&records[0].messages);
        // The record's operation, and the tree of its message.
        for at in [second + 4, second + RECORD_HEADER] {
            let mut group = group.clone();
            group[at] = 77;
            let found: Vec<_> = Record::legible(&Bytes::from(group)).collect();
            assert_eq!(found, [records[0].clone(), records[2].clone()]);
        }
        // If it states another length, the start of the next record is unknown.
        for length in [0, 47, 48, 60, u32::MAX] {
            let mut group = group.clone();
            group[second..second + 4].copy_from_slice(&length.to_le_bytes());
            let found: Vec<_> = Record::legible(&Bytes::from(group)).collect();
            assert_eq!(found[0], records[0], "{length}");
            assert!(found.len() < 3, "{length}");
        }
    }

    /// Records each of which claims the others as its messages, ten billion in total.
    #[test]
    fn records_within_records_are_looked_at_once() {
        let mut group = vec![0; GROUP_HEADER_BYTES];
        for _ in 0..200_000 {
            let start = group.len();
            let mut w = Writer::from(group);
            record(1, RECORD_HEADER).encode(&mut w);
            group = w.finish();
            // The value is the next record's header.
            group.truncate(start + RECORD_HEADER + MESSAGE_HEADER + 1);
            let length = (group.len() - start) as u32;
            group[start..start + 4].copy_from_slice(&length.to_le_bytes());
            group[start + 28..start + 32].copy_from_slice(&100_000u32.to_le_bytes());
        }
        assert_eq!(Record::legible(&Bytes::from(group)).next(), None);
    }
}
