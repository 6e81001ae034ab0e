//! The tail: why the log ends where it does.
//!
//! A group that does not verify ends the log, and so does one that binds a value that does not, unless a later group
//! vouches for it (SPEC 9.5). It is a torn tail if no later group
//! of the epoch says that it had been flushed. Otherwise it is damage, and acknowledged data is lost. A group of the
//! next epoch whose previous nonce is the superblock's nonce means that a superblock is lost. Damage of the very last
//! acknowledged group looks like a torn tail.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::LogReader;
use crate::error::{Error, Fault, Place};
use crate::format::{GROUP_HEADER_BYTES, Group, Key, Magic, Op, Record, SEAL_BYTES, group_length};
use crate::ids::*;

/// Why the log ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// What follows is not of this epoch.
    #[default]
    Clean,
    /// A power cut tore the next group, which was never acknowledged.
    Torn {
        /// Where it starts.
        byte: u64,
        /// Why it is invalid.
        why: String,
    },
    /// A group that had been acknowledged does not verify.
    Damaged {
        /// Where it should start.
        byte: u64,
        /// Why it is invalid.
        why: String,
        /// The number of the later group that says it had been flushed.
        vouched_by: u64,
    },
    /// The place of the next group cannot be read, so whether a group follows is unknown.
    Unreadable {
        /// Where it should start.
        byte: u64,
        /// The device's reason.
        why: String,
    },
    /// A group of a later epoch exists: the superblock of that epoch is lost.
    Superseded {
        /// Where that group starts.
        byte: u64,
        /// Its epoch.
        epoch: Epoch,
    },
}

/// A record that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecord {
    /// The MSN of its first message.
    pub lsn: Lsn,
    /// Its operation.
    pub op: Op,
    /// The tree of its first message.
    pub tree: TreeId,
    /// The key of its first message.
    pub key: Key,
    /// Whether its group verifies. If not, its current bytes were decoded without verification.
    pub verifies: bool,
}

/// The groups in the log after the valid ones. It is scanned once, at the first group that fails, and serves for all
/// later ones.
#[derive(Default)]
pub(super) struct Tail {
    /// Where a group of the next epoch starts.
    superseded: Option<u64>,
    /// The greatest group number of this epoch that a group says is flushed, and the number of that group.
    vouched: Option<(u64, u64)>,
    /// The greatest number of a group of this epoch.
    greatest: Option<u64>,
    /// A place that could not be read, and so might hold any of these.
    unreadable: Option<(u64, String)>,
}

impl Tail {
    /// Scans every unit after the reader's position that could hold a group.
    pub(super) fn look(reader: &LogReader<'_>) -> Tail {
        let mut tail = Tail::default();
        let superblock = reader.superblock;
        let log = (superblock.log_epoch, superblock.log_nonce);
        let mut budget = budget(reader);
        let unreadable = each_header(reader, |unit, later| {
            let same = (later.epoch, later.nonce) == log;
            // File contents are in the log too, and could imitate a header; but only the volume's writer knows its
            // nonces.
            let newer = later.epoch.0.checked_sub(1) == Some(superblock.birth.epoch.0)
                && later.nonce_before == superblock.birth.nonce;
            if !newer && !same || group_at(reader, unit, &mut budget).is_none() {
                return;
            }
            if newer {
                tail.superseded = Some(reader.region.byte(unit));
            } else {
                tail.vouched = tail.vouched.max(Some((later.flushed, later.number)));
                tail.greatest = tail.greatest.max(Some(later.number));
            }
        });
        tail.unreadable = unreadable;
        tail
    }

    /// The number of a later group that says that group `number` had been flushed.
    pub(super) fn vouched(&self, number: u64) -> Option<u64> {
        self.vouched.filter(|(flushed, _)| *flushed >= number).map(|(_, by)| by)
    }

    /// Why the log ends at the reader's position; `why` is the fault of the group there.
    pub(super) fn end(&self, reader: &LogReader<'_>, why: &Fault) -> End {
        let byte = reader.region.byte(reader.unit);
        let why = why.to_string();
        if let Some(byte) = self.superseded {
            let epoch = Epoch(reader.superblock.birth.epoch.0.saturating_add(1));
            return End::Superseded { byte, epoch };
        }
        if let Some(vouched_by) = self.vouched(reader.number) {
            return End::Damaged { byte, why, vouched_by };
        }
        if let Some((byte, why)) = self.unreadable.clone() {
            return End::Unreadable { byte, why };
        }
        match starts_here(reader) || self.greatest.is_some_and(|number| number > reader.number) {
            true => End::Torn { byte, why },
            false => End::Clean,
        }
    }
}

/// Whether a header of this epoch is at the reader's position.
fn starts_here(reader: &LogReader<'_>) -> bool {
    let superblock = reader.superblock;
    let log = (superblock.log_epoch, superblock.log_nonce);
    let block = match reader.used < reader.region.units {
        true => reader.region.read(reader.disk, reader.unit, BLOCK_SIZE).ok(),
        false => None,
    };
    let header = block.filter(|block| Magic::of(block) == Some(Magic::LogGroup));
    header.and_then(|block| Header::read(&block)).is_some_and(|header| {
        header.volume == superblock.birth.volume && (header.epoch, header.nonce) == log
    })
}

/// A group of this epoch at or after the reader's position.
struct Beyond {
    /// Where it starts.
    unit: u64,
    /// The LSNs of its first record and after its last, if it verifies.
    lsns: Option<Range<Lsn>>,
    /// Its records, if it verifies.
    records: Vec<LostRecord>,
}

/// The records of the groups of this epoch from the reader's position on, and the LSN ranges of which no record could
/// be read.
pub(super) fn beyond(reader: &LogReader<'_>) -> (Vec<LostRecord>, Vec<Range<Lsn>>) {
    let superblock = reader.superblock;
    let log = (superblock.log_epoch, superblock.log_nonce);
    let mut budget = budget(reader);
    // Its header may be unreadable.
    let first = Beyond { unit: reader.unit % reader.region.units, lsns: None, records: Vec::new() };
    let mut groups = BTreeMap::from([(reader.number, first)]);
    each_header(reader, |unit, later| {
        if (later.epoch, later.nonce) == log && later.number >= reader.number {
            let group = group_at(reader, unit, &mut budget);
            let lsns = group.as_ref().map(|group| group.first_lsn..group.next_lsn);
            let records = group.iter().flat_map(|group| &group.records);
            let records = records.filter_map(|record| lost(record, true)).collect();
            if lsns.is_some() || !groups.contains_key(&later.number) {
                groups.insert(later.number, Beyond { unit, lsns, records });
            }
        }
    });
    let (mut records, mut illegible) = (Vec::new(), Vec::new());
    let mut next = reader.lsn;
    let mut groups = groups.into_values().peekable();
    while let Some(group) = groups.next() {
        let Some(lsns) = group.lsns else {
            // An unverified group ends where the next group begins, and its LSNs before the next group that verifies.
            let end = groups.peek().map(|group| group.unit);
            let limit = groups.peek().and_then(|group| Some(group.lsns.as_ref()?.start));
            let bytes = unverified(reader, group.unit, end, &mut budget);
            for record in Record::legible(&bytes) {
                let fits =
                    record.lsn >= next && limit.is_none_or(|limit| record.next_lsn() <= limit);
                if fits && record.next_lsn() > record.lsn {
                    illegible.push(next..record.lsn);
                    next = record.next_lsn();
                    records.extend(lost(&record, false));
                }
            }
            continue;
        };
        illegible.push(next..lsns.start);
        records.extend(group.records);
        next = lsns.end;
    }
    illegible.retain(|lsns| !lsns.is_empty());
    (records, illegible)
}

/// The bytes of a group at `unit` that does not verify; at most up to the unit `end`.
fn unverified(reader: &LogReader<'_>, unit: u64, end: Option<u64>, budget: &mut u64) -> Bytes {
    let region = reader.region;
    let all =
        end.map_or(region.units, |end| (end + region.units - unit % region.units) % region.units);
    let length = all as usize * BLOCK_SIZE;
    let header = region.read(reader.disk, unit, BLOCK_SIZE).unwrap_or_default();
    let length = group_length(&header).map_or(length, |said| said.min(length));
    let Some(left) = budget.checked_sub(length as u64) else { return Bytes::new() };
    *budget = left;
    region.read(reader.disk, unit, length).unwrap_or_default().into()
}

fn lost(record: &Record, verifies: bool) -> Option<LostRecord> {
    let first = record.messages.first()?;
    let (tree, key) = (first.tree(), Key::copied(first.key()));
    Some(LostRecord { lsn: record.lsn, op: record.op, tree, key, verifies })
}

/// The most bytes that are read to scan groups out of order. Valid groups do not overlap, so they fit into the region.
fn budget(reader: &LogReader<'_>) -> u64 {
    4 * reader.region.units * BLOCK_SIZE as u64
}

/// Passes the header of every unit that looks like the start of a group of this volume, outside the valid groups.
/// Returns the first place that could not be read.
fn each_header(reader: &LogReader<'_>, mut show: impl FnMut(u64, Header)) -> Option<(u64, String)> {
    const AT_ONCE: u64 = 256;
    let (region, units) = (reader.region, reader.region.units);
    let mut unreadable = None;
    let mut done = reader.used;
    let mut step = AT_ONCE;
    while done < units {
        let unit = (reader.superblock.log_head + done) % units;
        let count = step.min(units - done).min(units - unit);
        match reader.disk.read(region.byte(unit), count as usize * BLOCK_SIZE) {
            Ok(bytes) => {
                for (at, block) in bytes.chunks(BLOCK_SIZE).enumerate() {
                    if Magic::of(block) == Some(Magic::LogGroup)
                        && let Some(header) = Header::read(block)
                        && header.volume == reader.superblock.birth.volume
                    {
                        show(unit + at as u64, header);
                    }
                }
                done += count;
                step = AT_ONCE;
            }
            // Block by block, so that the readable ones are seen.
            Err(_) if count > 1 => step = 1,
            Err(error) => {
                unreadable.get_or_insert((region.byte(unit), error.to_string()));
                done += 1;
            }
        }
    }
    unreadable
}

/// The group at `unit`, if it verifies.
fn group_at(reader: &LogReader<'_>, unit: u64, budget: &mut u64) -> Option<Group> {
    let region = reader.region;
    let header = region.read(reader.disk, unit, BLOCK_SIZE).ok()?;
    let fits = |len: &usize| *len as u64 <= region.units * BLOCK_SIZE as u64;
    let length = group_length(&header).filter(fits)?;
    *budget = budget.checked_sub(length as u64)?;
    let bytes = Bytes::from(region.read(reader.disk, unit, length).ok()?);
    Group::decode(&bytes, None).ok().map(|(_, group)| group)
}

/// The fields of a group's header that identify it, before anything is verified.
struct Header {
    volume: VolumeId,
    epoch: Epoch,
    nonce: Nonce,
    number: u64,
    flushed: u64,
    nonce_before: Nonce,
}

impl Header {
    fn read(block: &[u8]) -> Option<Header> {
        let number = |at: usize| Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?));
        Some(Header {
            volume: VolumeId(block.get(40..56)?.try_into().ok()?),
            epoch: Epoch(number(56)?),
            nonce: Nonce(number(64)?),
            number: number(SEAL_BYTES)?,
            flushed: number(SEAL_BYTES + 8)?,
            nonce_before: Nonce(number(GROUP_HEADER_BYTES - 16)?),
        })
    }
}

impl End {
    /// The end as an error, if it means that acknowledged data is lost.
    pub fn damage(&self) -> Option<Error> {
        match self {
            End::Clean | End::Torn { .. } => None,
            End::Damaged { byte, why, vouched_by } => {
                let text = format!(
                    "a log group that group {vouched_by} calls flushed does not verify: {why}"
                );
                Some(Error::corrupt(Place::Byte(*byte), Fault::Missing(text)))
            }
            End::Unreadable { byte, why } => {
                let text = format!("the log cannot be read here: {why}");
                Some(Error::corrupt(Place::Byte(*byte), Fault::Missing(text)))
            }
            End::Superseded { byte, epoch } => {
                let text = format!("a log group of epoch {}, but no superblock of it", epoch.0);
                Some(Error::corrupt(Place::Byte(*byte), Fault::Missing(text)))
            }
        }
    }
}
