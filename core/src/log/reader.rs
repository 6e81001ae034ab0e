//! Reading the log after a checkpoint, and telling where and why it ends.
//!
//! A group that does not verify ends the log. It is a torn tail if no later group of the epoch says
//! that it had been flushed; otherwise it is damage: something acknowledged is lost. A group of the
//! next epoch, which carries the superblock's nonce as the one before its own, means that a superblock is
//! lost. The very last acknowledged group
//! cannot be told from a tail.

use bytes::Bytes;

use super::Region;
use crate::device::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{GROUP_HEADER_BYTES, Group, Magic, SEAL_BYTES, Superblock, group_length};
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
    unit: u64,
    used: u64,
    number: u64,
    lsn: Lsn,
}

/// What pass 1 found: how many groups and records count, and where the next group belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Groups that count.
    pub groups: u64,
    /// Their records.
    pub records: u64,
    /// Why there are no more.
    pub end: End,
    /// The unit after the last group.
    pub next_unit: u64,
    /// The number after the last group's.
    pub next_group: u64,
}

/// Pass 1: walks the groups after the checkpoint and verifies each.
pub fn scan(disk: &Disk, superblock: &Superblock) -> Result<Survey> {
    let mut reader = LogReader::new(disk, superblock);
    let (mut groups, mut records) = (0, 0);
    let why = loop {
        match reader.next()? {
            Ok(scanned) => {
                groups += 1;
                records += scanned.group.records.len() as u64;
            }
            Err(why) => break why,
        }
    };
    let end = reader.end(why)?;
    let next_unit = reader.unit % reader.region.units;
    Ok(Survey { groups, records, end, next_unit, next_group: reader.number })
}

impl<'d> LogReader<'d> {
    /// A reader at the first group after the checkpoint of `superblock`.
    pub fn new(disk: &'d Disk, superblock: &'d Superblock) -> LogReader<'d> {
        LogReader {
            disk,
            superblock,
            region: Region::of(superblock),
            unit: superblock.log_head,
            used: 0,
            number: superblock.first_group,
            lsn: Lsn(superblock.next_msn.0),
        }
    }

    /// The next group; or, if there is none that counts, why what stands there does not.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<std::result::Result<Scanned, Fault>> {
        let left = (self.region.units - self.used) as usize * BLOCK_SIZE;
        if left == 0 {
            return Ok(Err(Fault::Missing("the log is full".into())));
        }
        let header = self.region.read(self.disk, self.unit, BLOCK_SIZE)?;
        let length = match group_length(&header) {
            Some(length) if length <= left => length,
            _ => return Ok(Err(Fault::Missing("no group starts here".into()))),
        };
        let whole = length.next_multiple_of(BLOCK_SIZE);
        let mut bytes = Bytes::from(self.region.read(self.disk, self.unit, whole)?);
        let padding = bytes.split_off(length);
        if !is_zero(&padding) {
            return Ok(Err(Fault::Missing("the padding of the group is not zero".into())));
        }
        let Some(number) = self.number.checked_add(1) else {
            return Ok(Err(Fault::Missing("no number is left for another group".into())));
        };
        let group = match self.decode(&bytes) {
            Ok(group) => group,
            Err(fault) => return Ok(Err(fault)),
        };
        let unit = self.unit % self.region.units;
        let units = length.div_ceil(BLOCK_SIZE) as u64;
        self.unit += units;
        self.used += units;
        self.number = number;
        self.lsn = group.next_lsn;
        Ok(Ok(Scanned { unit, bytes, group }))
    }

    fn decode(&self, bytes: &Bytes) -> std::result::Result<Group, Fault> {
        let (seal, group) = Group::decode(bytes, None)?;
        let expected = self.superblock.birth;
        if seal.birth.volume != expected.volume {
            return Err(Fault::mismatch("volume", expected.volume, seal.birth.volume));
        }
        if (seal.birth.epoch, seal.birth.nonce) != (expected.epoch, expected.nonce) {
            return Err(Fault::mismatch("epoch of the group", expected.epoch, seal.birth.epoch));
        }
        if group.number != self.number {
            return Err(Fault::mismatch("group number", self.number, group.number));
        }
        if group.first_lsn != self.lsn {
            return Err(Fault::mismatch("first LSN of the group", self.lsn, group.first_lsn));
        }
        Ok(group)
    }

    /// Why the log ends where the reader stands: looks at every unit that could hold a later group.
    fn end(&self, why: Fault) -> Result<End> {
        let byte = self.region.byte(self.unit);
        let mut torn = false;
        let mut vouched_by = None;
        let mut superseded = None;
        let mut budget = 4 * self.region.units * BLOCK_SIZE as u64;
        self.headers(|unit, header| {
            let Some(later) = Header::read(header) else { return };
            let ours = self.superblock.birth;
            if later.volume != ours.volume {
                return;
            }
            let same = (later.epoch, later.nonce) == (ours.epoch, ours.nonce);
            torn |= same && unit == self.unit % self.region.units;
            // Contents of files stand in the log too: only who wrote the volume knows its nonces.
            let newer = later.epoch.0.checked_sub(1) == Some(ours.epoch.0)
                && later.nonce_before == ours.nonce;
            if (newer || same && later.number > self.number) && self.verifies(unit, &mut budget) {
                torn |= same;
                if newer && superseded.is_none_or(|(_, epoch)| epoch < later.epoch) {
                    superseded = Some((self.region.byte(unit), later.epoch));
                } else if same && later.flushed >= self.number {
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

    /// Shows the start of every unit that looks like the start of a group and does not belong to a
    /// group that counts.
    fn headers(&self, mut show: impl FnMut(u64, &[u8])) -> Result<()> {
        const AT_ONCE: u64 = 256;
        let mut done = self.used;
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

    /// Whether the group that seems to start at `unit` is whole. `budget` bounds how many bytes are read
    /// for such questions: groups do not overlap, so honest ones fit into the region.
    fn verifies(&self, unit: u64, budget: &mut u64) -> bool {
        let mut whole = || {
            let header = self.region.read(self.disk, unit, BLOCK_SIZE).ok()?;
            let length = group_length(&header)
                .filter(|len| *len as u64 <= self.region.units * BLOCK_SIZE as u64)?;
            *budget = budget.checked_sub(length as u64)?;
            let bytes = Bytes::from(self.region.read(self.disk, unit, length).ok()?);
            Group::decode(&bytes, None).ok()
        };
        whole().is_some()
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
