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
//! 120  zero            8
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
//! 40  next inode       8
//! 48  messages             each: tree 1, kind 1, key length 2, second length 4, key, second
//! ```
//!
//! The second part is the value of an insert, nothing for a delete, the upper bound of a range delete.
//! The n-th message of a record has MSN LSN+n.

use bytes::Bytes;

use super::fields::{Fields, FormatError, Trace, Writer};
use super::key::Key;
use super::limits::*;
use super::message::{Action, DELETE, INSERT, RANGE_DELETE};
use super::seal::{Birth, Magic, Seal};
use crate::ids::*;

/// Bytes of a group's header.
pub const GROUP_HEADER_BYTES: usize = 128;
const LENGTH_AT: usize = 92;
const RECORD_HEADER: usize = 48;
const MESSAGE_HEADER: usize = 8;

/// What an operation was, for people; replay needs only its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Op {
    Create,
    Mkdir,
    Symlink,
    Mknod,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Write,
    Truncate,
    SetAttributes,
    SetXattr,
    RemoveXattr,
    Format,
    Raw,
}

impl Op {
    /// Every operation, in the order of their codes, which start at 1.
    pub const ALL: [Op; 15] = [
        Op::Create,
        Op::Mkdir,
        Op::Symlink,
        Op::Mknod,
        Op::Link,
        Op::Unlink,
        Op::Rmdir,
        Op::Rename,
        Op::Write,
        Op::Truncate,
        Op::SetAttributes,
        Op::SetXattr,
        Op::RemoveXattr,
        Op::Format,
        Op::Raw,
    ];

    fn code(self) -> u16 {
        self as u16 + 1
    }

    /// The operation's name.
    pub fn name(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::Mkdir => "mkdir",
            Op::Symlink => "symlink",
            Op::Mknod => "mknod",
            Op::Link => "link",
            Op::Unlink => "unlink",
            Op::Rmdir => "rmdir",
            Op::Rename => "rename",
            Op::Write => "write",
            Op::Truncate => "truncate",
            Op::SetAttributes => "setattr",
            Op::SetXattr => "setxattr",
            Op::RemoveXattr => "removexattr",
            Op::Format => "format",
            Op::Raw => "raw",
        }
    }
}

/// A message of a record, as it stood before injection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordMessage {
    /// To one key.
    Point(TreeId, Key, Action),
    /// A range delete of `[lo, hi)`.
    RangeDelete(TreeId, Key, Key),
}

/// One operation: all of it, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The MSN of its first message.
    pub lsn: Lsn,
    /// What it was.
    pub op: Op,
    /// When it happened.
    pub wall: Time,
    /// The next free zone id after it.
    pub next_zone: ZoneId,
    /// The next free inode number after it.
    pub next_ino: Ino,
    /// Its messages, in the order of their MSNs.
    pub messages: Vec<RecordMessage>,
}

/// Records that become durable together, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number; one more than that of the group before it.
    pub number: u64,
    /// The last group whose flush had returned when this one was written.
    pub flushed: u64,
    /// The nonce of the epoch before: proof, to whoever has only that epoch's superblock, that the
    /// group is what it seems and not a user's data.
    pub nonce_before: Nonce,
    /// The LSN of its first record.
    pub first_lsn: Lsn,
    /// The LSN of the record after its last.
    pub next_lsn: Lsn,
    /// Its records, oldest first.
    pub records: Vec<Record>,
}

/// The length of the group that begins with these bytes, if they look like the start of one.
/// Nothing is verified: the caller reads as many bytes and decodes them.
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
        f.zeros("reserved", 8)?;
        let mut lsn = first_lsn;
        let mut records = Vec::with_capacity(count);
        for index in 0..count {
            f.enter("record", Some(index));
            let record = Record::decode(&mut f, group)?;
            if record.lsn != lsn {
                return Err(f.wrong("LSN", lsn, record.lsn));
            }
            if record.lsn.0.checked_add(record.messages.len() as u64).is_none() {
                return Err(f.wrong("LSN", "one that leaves numbers for all messages", lsn));
            }
            lsn = record.next_lsn();
            records.push(record);
            f.leave();
        }
        f.end()?;
        if lsn != next_lsn || records.is_empty() {
            return Err(f.wrong("next LSN", lsn, next_lsn));
        }
        if flushed >= number {
            return Err(f.wrong("flushed", format_args!("less than {number}"), flushed));
        }
        Ok((seal, Group { number, flushed, nonce_before, first_lsn, next_lsn, records }))
    }
}

impl Record {
    /// The LSN of the record that follows.
    pub fn next_lsn(&self) -> Lsn {
        Lsn(self.lsn.0.wrapping_add(self.messages.len() as u64))
    }

    /// The length of the record in a group.
    pub fn encoded_bytes(messages: &[RecordMessage]) -> usize {
        let lengths = messages.iter().map(|message| {
            let (key, second) = message.parts();
            MESSAGE_HEADER + key.len() + second.len()
        });
        RECORD_HEADER + lengths.sum::<usize>()
    }

    fn decode(f: &mut Fields<'_, '_>, group: &Bytes) -> Result<Record, FormatError> {
        let start = f.at();
        let length = f.u32("length")? as usize;
        let code = f.u16("operation")?;
        let op = Op::ALL.into_iter().find(|op| op.code() == code);
        let op = op.ok_or_else(|| f.wrong("operation", "1 to 15", code))?;
        f.zeros("reserved", 2)?;
        let lsn = Lsn(f.u64("LSN")?);
        let secs = f.i64("wall seconds")?;
        let nanos = f.limited("wall nanoseconds", 999_999_999)? as u32;
        let count = f.count("message count", RECORD_MESSAGES_MAX as usize, MESSAGE_HEADER)?;
        if count == 0 {
            return Err(f.wrong("message count", "at least 1", 0));
        }
        let next_zone = ZoneId(f.u64("next zone id")?);
        let next_ino = Ino(f.u64("next inode")?);
        let mut messages = Vec::with_capacity(count);
        for index in 0..count {
            f.enter("message", Some(index));
            messages.push(RecordMessage::decode(f, group)?);
            f.leave();
        }
        if f.at() - start != length {
            return Err(f.wrong("length", f.at() - start, length));
        }
        Ok(Record { lsn, op, wall: Time { secs, nanos }, next_zone, next_ino, messages })
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
        w.u64(self.next_zone.0);
        w.u64(self.next_ino.0);
        for message in &self.messages {
            let (key, second) = message.parts();
            w.u8(message.tree().code());
            w.u8(message.kind());
            w.len16(key.len());
            w.len32(second.len());
            w.bytes(key);
            w.bytes(second);
        }
    }
}

impl RecordMessage {
    /// The tree that the message is for.
    pub fn tree(&self) -> TreeId {
        match self {
            RecordMessage::Point(tree, ..) | RecordMessage::RangeDelete(tree, ..) => *tree,
        }
    }

    /// The length of a key or value that is longer than may be.
    pub(crate) fn beyond_limits(&self) -> Option<usize> {
        let (key, second) = self.parts();
        let second_max = match self {
            RecordMessage::Point(..) => VALUE_MAX,
            RecordMessage::RangeDelete(..) => KEY_MAX,
        };
        let over = |bytes: usize, max: usize| (bytes > max).then_some(bytes);
        over(key.len(), KEY_MAX).or_else(|| over(second.len(), second_max))
    }

    fn kind(&self) -> u8 {
        match self {
            RecordMessage::Point(_, _, action) => action.kind(),
            RecordMessage::RangeDelete(..) => RANGE_DELETE,
        }
    }

    /// Its key, and its value or upper bound.
    fn parts(&self) -> (&[u8], &[u8]) {
        match self {
            RecordMessage::Point(_, key, action) => (key, action.value()),
            RecordMessage::RangeDelete(_, lo, hi) => (lo, hi),
        }
    }

    fn decode(f: &mut Fields<'_, '_>, group: &Bytes) -> Result<RecordMessage, FormatError> {
        let code = f.u8("tree")?;
        let tree = TreeId::from_code(code).ok_or_else(|| f.wrong("tree", "1 or 2", code))?;
        let kind = f.u8("kind")?;
        let key_bytes = f.short_limited("key length", KEY_MAX)?;
        let second_bytes = f.limited("second length", VALUE_MAX)?;
        let key_at = f.at();
        f.hex("key", key_bytes)?;
        let second_at = f.at();
        f.hex("second", second_bytes)?;
        let key = Key::new(group.slice(key_at..second_at));
        let second = group.slice(second_at..second_at + second_bytes);
        match kind {
            INSERT => Ok(RecordMessage::Point(tree, key, Action::Insert(second))),
            DELETE if second.is_empty() => Ok(RecordMessage::Point(tree, key, Action::Delete)),
            RANGE_DELETE if second.len() <= KEY_MAX && *key < *second => {
                Ok(RecordMessage::RangeDelete(tree, key, Key::new(second)))
            }
            other => Err(f.wrong("kind", "1, 2 without a value, or 3 with a range", other)),
        }
    }
}

/// Builds a group in memory, record by record.
pub struct GroupWriter {
    w: Writer,
    records: u32,
    first: Option<Lsn>,
    next: Lsn,
}

impl Default for GroupWriter {
    fn default() -> GroupWriter {
        let mut w = Writer::default();
        w.pad_to(GROUP_HEADER_BYTES);
        GroupWriter { w, records: 0, first: None, next: Lsn(0) }
    }
}

impl GroupWriter {
    /// Appends a record.
    pub fn push(&mut self, record: &Record) {
        record.encode(&mut self.w);
        self.records += 1;
        self.first.get_or_insert(record.lsn);
        self.next = record.next_lsn();
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The length of header and records so far.
    pub fn bytes(&self) -> usize {
        self.w.len()
    }

    /// The group's bytes, padded to whole log units.
    pub fn seal(self, birth: Birth, nonce_before: Nonce, number: u64, flushed: u64) -> Vec<u8> {
        let mut header = Writer::with_capacity(GROUP_HEADER_BYTES);
        Seal::open(&mut header, Magic::LogGroup, birth);
        header.u64(number);
        header.u64(flushed);
        header.u32(self.records);
        header.len32(self.w.len());
        header.u64(self.first.unwrap_or(self.next).0);
        header.u64(self.next.0);
        header.u64(nonce_before.0);
        header.pad_to(GROUP_HEADER_BYTES);
        let mut group = self.w.finish();
        group[..GROUP_HEADER_BYTES].copy_from_slice(header.as_slice());
        Seal::close(&mut group);
        group.resize(group.len().next_multiple_of(BLOCK_SIZE), 0);
        group
    }
}
