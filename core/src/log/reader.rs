//! Reading the log after a checkpoint, and telling where and why it ends.
//!
//! A group that does not verify, or that binds something which does not, ends the log. It is a torn tail
//! if no later group of the epoch says that it had been flushed; otherwise it is damage: something
//! acknowledged is lost. If the group itself is sound, that is only the values whose bindings fail. A
//! group of the next epoch, which carries the superblock's nonce as the one before its own, means that a
//! superblock is lost. The very last acknowledged group cannot be told from a tail.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use super::{Bindings, Region, Values};
use crate::device::Disk;
use crate::error::{Damage, Error, Fault, Place, Result};
use crate::format::{
    Bound as BoundTo, GROUP_HEADER_BYTES, Group, Key, Magic, Op, Record, RecordMessage, SEAL_BYTES,
    Superblock, block_after, group_length,
};
use crate::ids::*;

/// A group that counts, and where it is.
pub struct Scanned {
    /// The unit where it starts.
    pub unit: u64,
    /// Its bytes, header and records.
    pub bytes: Bytes,
    /// What they say.
    pub group: Group,
}

/// Why the log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// What follows is not of this epoch.
    Clean,
    /// The next group was being written when the power went: it was never acknowledged.
    Torn {
        /// Where it starts.
        byte: u64,
        /// Why it does not count.
        why: String,
    },
    /// A group that had been acknowledged does not verify.
    Damaged {
        /// Where it should start.
        byte: u64,
        /// Why it does not count.
        why: String,
        /// The number of the later group that vouches for it.
        vouched_by: u64,
    },
    /// A group of a later epoch exists: the superblock of that epoch is lost.
    Superseded {
        /// Where that group starts.
        byte: u64,
        /// Its epoch.
        epoch: Epoch,
    },
}

/// Reads the groups that continue a superblock, one by one.
pub struct LogReader<'d> {
    disk: &'d Disk,
    superblock: &'d Superblock,
    region: Region,
    at: Position,
}

/// Where a reader stands.
#[derive(Clone, Copy)]
struct Position {
    /// The unit where the next group starts.
    unit: u64,
    /// Units that the groups before it take.
    used: u64,
    /// Its number.
    number: u64,
    /// The LSN of its first record.
    lsn: Lsn,
}

/// What pass 1 found: how many groups and records count, and where the next group belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Groups that count.
    pub groups: u64,
    /// Their records.
    pub records: u64,
    /// How many records there are of each operation.
    pub operations: BTreeMap<Op, u64>,
    /// Unbound entries in them; each stands for one or more values.
    pub unbound: u64,
    /// Binding entries.
    pub bindings: u64,
    /// Where the values are bound to.
    pub bound: Bound,
    /// The extents that must not be written before their group is unnecessary, by the group's number.
    pub pins: Vec<(u64, Extent)>,
    /// Acknowledged values that are lost, in the order of their messages.
    pub lost: Vec<Lost>,
    /// Records of later groups that verify, but cannot be replayed, because one before them is damaged.
    pub beyond: Vec<LostRecord>,
    /// Why there are no more groups.
    pub end: End,
    /// Where the log ends, in bytes.
    pub end_byte: u64,
    /// The unit after the last group.
    pub next_unit: u64,
    /// The number after the last group's.
    pub next_group: u64,
}

/// How many late-bound values were found where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// In leaves.
    pub in_leaves: u64,
    /// In runs of internal nodes.
    pub in_runs: u64,
    /// In the log itself.
    pub inline: u64,
    /// Nowhere: obsolete at once.
    pub null: u64,
}

impl Bound {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.in_leaves + self.in_runs + self.inline + self.null
    }

    fn add(&mut self, to: &BoundTo, values: u64) {
        *match to {
            BoundTo::Leaf(_) => &mut self.in_leaves,
            BoundTo::Slice(_) => &mut self.in_runs,
            BoundTo::Inline(_) => &mut self.inline,
            BoundTo::Null => &mut self.null,
        } += values;
    }
}

/// An acknowledged value that does not verify where its binding says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its message.
    pub msn: Msn,
    /// Its key in the data index.
    pub key: Key,
    /// Where it should be, and why it does not count.
    pub damage: Damage,
}

/// A record that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecord {
    /// The MSN of its first message.
    pub lsn: Lsn,
    /// What it was.
    pub op: Op,
    /// The tree of its first message.
    pub tree: TreeId,
    /// The key of its first message.
    pub key: Key,
}

/// Pass 1: walks the groups after the checkpoint and verifies each, and what it binds.
pub fn scan(disk: &Disk, superblock: &Superblock) -> Result<Survey> {
    let mut reader = LogReader::new(disk, superblock);
    let mut survey = Survey {
        groups: 0,
        records: 0,
        operations: BTreeMap::new(),
        unbound: 0,
        bindings: 0,
        bound: Bound::default(),
        pins: Vec::new(),
        lost: Vec::new(),
        beyond: Vec::new(),
        end: End::Clean,
        end_byte: 0,
        next_unit: 0,
        next_group: 0,
    };
    survey.end = loop {
        let before = reader.at();
        match reader.next()? {
            Err(why) => break reader.end(why)?,
            Ok(Scanned { group, .. }) => {
                let lost = verify_values(disk, superblock.birth.volume, &group)?;
                if let Some(first) = lost.first() {
                    let why = format!("what it binds does not verify: {}", first.damage);
                    reader.go_back(before);
                    let end = reader.end(Fault::Missing(why))?;
                    if !matches!(end, End::Damaged { .. }) {
                        break end;
                    }
                    reader.next()?.ok();
                }
                survey.add(&group, lost);
            }
        }
    };
    (survey.next_unit, survey.next_group) = reader.next_group();
    survey.end_byte = reader.region.byte(survey.next_unit);
    if matches!(survey.end, End::Damaged { .. }) {
        survey.beyond = reader.beyond()?;
    }
    Ok(survey)
}

/// Reads every value that the group binds outside itself; returns those that do not verify.
fn verify_values(disk: &Disk, volume: VolumeId, group: &Group) -> Result<Vec<Lost>> {
    let mut lost = Vec::new();
    let bindings = Bindings::new(&group.bindings);
    let mut values = Values::new(disk, volume);
    each_unbound(group, |msn, key| {
        match values.get(bindings.of(msn), &key, msn) {
            Ok(_) => {}
            Err(Error::Corrupt(damage)) => lost.push(Lost { msn, key, damage: *damage }),
            Err(Error::Io { place, source, .. }) => {
                let fault = Fault::Missing(format!("it cannot be read: {source}"));
                lost.push(Lost { msn, key, damage: Damage { place, fault } });
            }
            Err(other) => return Err(other),
        }
        Ok(())
    })?;
    Ok(lost)
}

/// Shows every unbound entry of a group: its MSN and its key.
fn each_unbound(group: &Group, mut show: impl FnMut(Msn, Key) -> Result<()>) -> Result<()> {
    for record in &group.records {
        for (first, message) in record.numbered() {
            let RecordMessage::Unbound(key, count) = message else { continue };
            for at in 0..*count {
                let key = block_after(key, at).expect("the decoder has looked at the last key");
                show(Msn(first.0 + u64::from(at)), key)?;
            }
        }
    }
    Ok(())
}

impl Survey {
    fn add(&mut self, group: &Group, lost: Vec<Lost>) {
        self.groups += 1;
        self.records += group.records.len() as u64;
        for record in &group.records {
            *self.operations.entry(record.op).or_default() += 1;
            self.unbound += record.unbound().count() as u64;
        }
        self.bindings += group.bindings.len() as u64;
        for binding in &group.bindings {
            let values = binding.values.iter().map(|range| u64::from(range.count)).sum();
            self.bound.add(&binding.to, values);
            self.pins.extend(binding.to.extent().map(|extent| (group.number, extent)));
        }
        self.lost.extend(lost);
    }

    /// The extents that are pinned, each once, and their bytes.
    pub fn pinned(&self) -> (u64, u64) {
        let extents: HashSet<Extent> = self.pins.iter().map(|(_, extent)| *extent).collect();
        (extents.len() as u64, extents.iter().map(|extent| extent.bytes()).sum())
    }

    /// What was acknowledged and is lost, as an error.
    pub fn damage(&self) -> Option<Error> {
        let lost = self.lost.first().map(|lost| Error::Corrupt(Box::new(lost.damage.clone())));
        self.end.damage().or(lost)
    }
}

impl<'d> LogReader<'d> {
    /// A reader at the first group after the checkpoint of `superblock`.
    pub fn new(disk: &'d Disk, superblock: &'d Superblock) -> LogReader<'d> {
        LogReader {
            disk,
            superblock,
            region: Region::of(superblock),
            at: Position {
                unit: superblock.log_head,
                used: 0,
                number: superblock.first_group,
                lsn: Lsn(superblock.next_msn.0),
            },
        }
    }

    fn at(&self) -> Position {
        self.at
    }

    /// The unit where the next group starts, and its number.
    pub fn next_group(&self) -> (u64, u64) {
        (self.at.unit % self.region.units, self.at.number)
    }

    fn go_back(&mut self, at: Position) {
        self.at = at;
    }

    /// The next group; or, if there is none that counts, why what stands there does not.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<std::result::Result<Scanned, Fault>> {
        let left = (self.region.units - self.at.used) as usize * BLOCK_SIZE;
        if left == 0 {
            return Ok(Err(Fault::Missing("the log is full".into())));
        }
        let header = self.region.read(self.disk, self.at.unit, BLOCK_SIZE)?;
        let length = match group_length(&header) {
            Some(length) if length <= left => length,
            _ => return Ok(Err(Fault::Missing("no group starts here".into()))),
        };
        let whole = length.next_multiple_of(BLOCK_SIZE);
        let mut bytes = Bytes::from(self.region.read(self.disk, self.at.unit, whole)?);
        let padding = bytes.split_off(length);
        if !is_zero(&padding) {
            return Ok(Err(Fault::Missing("the padding of the group is not zero".into())));
        }
        let Some(number) = self.at.number.checked_add(1) else {
            return Ok(Err(Fault::Missing("no number is left for another group".into())));
        };
        let group = match self.decode(&bytes) {
            Ok(group) => group,
            Err(fault) => return Ok(Err(fault)),
        };
        let unit = self.at.unit % self.region.units;
        let units = length.div_ceil(BLOCK_SIZE) as u64;
        self.at.unit += units;
        self.at.used += units;
        self.at.number = number;
        self.at.lsn = group.next_lsn;
        Ok(Ok(Scanned { unit, bytes, group }))
    }

    fn decode(&self, bytes: &Bytes) -> std::result::Result<Group, Fault> {
        let (seal, group) = Group::decode(bytes, None)?;
        let superblock = self.superblock;
        if seal.birth.volume != superblock.birth.volume {
            return Err(Fault::mismatch("volume", superblock.birth.volume, seal.birth.volume));
        }
        let epoch = superblock.log_epoch;
        if (seal.birth.epoch, seal.birth.nonce) != (epoch, superblock.log_nonce) {
            return Err(Fault::mismatch("epoch of the group", epoch, seal.birth.epoch));
        }
        if group.number != self.at.number {
            return Err(Fault::mismatch("group number", self.at.number, group.number));
        }
        if group.first_lsn != self.at.lsn {
            return Err(Fault::mismatch("first LSN of the group", self.at.lsn, group.first_lsn));
        }
        Ok(group)
    }

    /// Why the log ends where the reader stands: looks at every unit that could hold a later group.
    fn end(&self, why: Fault) -> Result<End> {
        let byte = self.region.byte(self.at.unit);
        let mut torn = false;
        let mut vouched_by = None;
        let mut superseded = None;
        let mut budget = self.budget();
        self.headers(|unit, header| {
            let Some(later) = Header::read(header) else { return };
            let superblock = self.superblock;
            let ours = superblock.birth;
            if later.volume != ours.volume {
                return;
            }
            let log = (superblock.log_epoch, superblock.log_nonce);
            let same = (later.epoch, later.nonce) == log;
            torn |= same && unit == self.at.unit % self.region.units;
            // Contents of files stand in the log too: only who wrote the volume knows its nonces.
            let newer = later.epoch.0.checked_sub(1) == Some(ours.epoch.0)
                && later.nonce_before == ours.nonce;
            if (newer || same && later.number > self.at.number)
                && self.group_at(unit, &mut budget).is_some()
            {
                torn |= same;
                if newer && superseded.is_none_or(|(_, epoch)| epoch < later.epoch) {
                    superseded = Some((self.region.byte(unit), later.epoch));
                } else if same && later.flushed >= self.at.number {
                    vouched_by = Some(later.number);
                }
            }
        })?;
        if let Some((byte, epoch)) = superseded {
            return Ok(End::Superseded { byte, epoch });
        }
        if let Some(vouched_by) = vouched_by {
            return Ok(End::Damaged { byte, why: why.to_string(), vouched_by });
        }
        Ok(if torn { End::Torn { byte, why: why.to_string() } } else { End::Clean })
    }

    /// The records of the groups of this epoch behind the one that the reader stands at.
    fn beyond(&self) -> Result<Vec<LostRecord>> {
        let mut groups = BTreeMap::new();
        let mut budget = self.budget();
        self.headers(|unit, header| {
            let superblock = self.superblock;
            let log = (superblock.log_epoch, superblock.log_nonce);
            let Some(later) = Header::read(header) else { return };
            let same = later.volume == superblock.birth.volume && (later.epoch, later.nonce) == log;
            if same
                && later.number > self.at.number
                && let Some(group) = self.group_at(unit, &mut budget)
            {
                groups.insert(group.number, group.records);
            }
        })?;
        let lost = |record: Record| {
            let first = record.messages.first()?;
            let (tree, key) = (first.tree(), first.key().clone());
            Some(LostRecord { lsn: record.lsn, op: record.op, tree, key: Key::copied(&key) })
        };
        Ok(groups.into_values().flatten().filter_map(lost).collect())
    }

    /// How many bytes are read to look at groups out of order: they do not overlap, so honest ones fit
    /// into the region.
    fn budget(&self) -> u64 {
        4 * self.region.units * BLOCK_SIZE as u64
    }

    /// Shows the start of every unit that looks like the start of a group and does not belong to a
    /// group that counts.
    fn headers(&self, mut show: impl FnMut(u64, &[u8])) -> Result<()> {
        const AT_ONCE: u64 = 256;
        let mut done = self.at.used;
        while done < self.region.units {
            let unit = (self.superblock.log_head + done) % self.region.units;
            let count = AT_ONCE.min(self.region.units - done).min(self.region.units - unit);
            let bytes = self.disk.read(self.region.byte(unit), count as usize * BLOCK_SIZE)?;
            for (at, block) in bytes.chunks(BLOCK_SIZE).enumerate() {
                if Magic::of(block) == Some(Magic::LogGroup) {
                    show(unit + at as u64, &block[..GROUP_HEADER_BYTES]);
                }
            }
            done += count;
        }
        Ok(())
    }

    /// The group that starts at `unit`, if it is whole.
    fn group_at(&self, unit: u64, budget: &mut u64) -> Option<Group> {
        let header = self.region.read(self.disk, unit, BLOCK_SIZE).ok()?;
        let length = group_length(&header)
            .filter(|len| *len as u64 <= self.region.units * BLOCK_SIZE as u64)?;
        *budget = budget.checked_sub(length as u64)?;
        let bytes = Bytes::from(self.region.read(self.disk, unit, length).ok()?);
        Group::decode(&bytes, None).ok().map(|(_, group)| group)
    }
}

/// The fields of a group's header that say where it belongs, before anything is verified.
struct Header {
    volume: VolumeId,
    epoch: Epoch,
    nonce: Nonce,
    number: u64,
    flushed: u64,
    nonce_before: Nonce,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Header> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Header {
            volume: VolumeId(bytes.get(40..56)?.try_into().ok()?),
            epoch: Epoch(number(56)?),
            nonce: Nonce(number(64)?),
            number: number(SEAL_BYTES)?,
            flushed: number(SEAL_BYTES + 8)?,
            nonce_before: Nonce(number(GROUP_HEADER_BYTES - 16)?),
        })
    }
}

impl End {
    /// The end as an error, if it means that something acknowledged is lost.
    pub fn damage(&self) -> Option<Error> {
        match self {
            End::Clean | End::Torn { .. } => None,
            End::Damaged { byte, why, vouched_by } => {
                let text = format!(
                    "a log group that group {vouched_by} calls flushed does not verify: {why}"
                );
                Some(Error::corrupt(Place::Byte(*byte), Fault::Missing(text)))
            }
            End::Superseded { byte, epoch } => {
                let text = format!("a log group of epoch {}, but no superblock of it", epoch.0);
                Some(Error::corrupt(Place::Byte(*byte), Fault::Missing(text)))
            }
        }
    }
}
