//! The log: records gather in an open group in memory. A sync seals the group, writes it and flushes.
//!
//! Groups follow one another in a circular region. A valid group continues the superblock: it has the superblock's
//! epoch and nonce, and its number follows without a gap from the superblock's first group. A group binds the values
//! that its records name only by key, and is valid only if these values are there too.

mod late;
mod reader;
mod survey;
mod tail;
mod values;

pub use late::{Late, LogForm, log_form, outgrows};
pub use reader::{LogReader, Scanned};
pub use survey::{BoundCounts, Lost, Survey, Unpadded, scan};
pub use tail::{End, LostRecord};
pub use values::Values;

use crate::disk::Disk;
use crate::error::{Error, Result, after};
use crate::format::{Binding, Birth, GroupWriter, Record, Superblock};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::tuning::GROUP_KEPT_MAX;

/// The circular region of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first block.
    pub start: BlockNr,
    /// Its length in units of a block.
    pub units: u64,
}

impl Region {
    /// The region of a volume.
    pub fn of(superblock: &Superblock) -> Region {
        Region { start: superblock.log_start, units: superblock.log_units }
    }

    /// The byte address of a unit; numbers past the end wrap.
    pub fn byte(&self, unit: u64) -> u64 {
        BlockNr(self.start.0 + unit % self.units).byte()
    }

    /// Reads `len` bytes from `unit` on; wraps at the end of the region.
    pub fn read(&self, disk: &Disk, unit: u64, len: usize) -> Result<Vec<u8>> {
        let until_end = (self.units - unit % self.units) as usize * BLOCK_SIZE;
        let mut bytes = disk.read(self.byte(unit), len.min(until_end))?;
        if len > until_end {
            bytes.extend(disk.read(self.byte(0), len - until_end)?);
        }
        Ok(bytes)
    }

    /// The byte ranges of `len` bytes from `unit` on: one, or two around the end of the region.
    pub fn byte_ranges(&self, unit: u64, len: usize) -> Vec<(u64, usize)> {
        let until_end = (self.units - unit % self.units) as usize * BLOCK_SIZE;
        let mut ranges = vec![(self.byte(unit), len.min(until_end))];
        if len > until_end {
            ranges.push((self.byte(0), len - until_end));
        }
        ranges
    }

    fn write(&self, disk: &Disk, unit: u64, bytes: &[u8]) -> Result<()> {
        let until_end = (self.units - unit % self.units) as usize * BLOCK_SIZE;
        let (first, rest) = bytes.split_at(bytes.len().min(until_end));
        disk.write(self.byte(unit), first)?;
        if rest.is_empty() { Ok(()) } else { disk.write(self.byte(0), rest) }
    }
}

/// The writer's end of the log.
pub struct Log {
    region: Region,
    /// The unit where the epoch's first group starts.
    start: u64,
    /// The unit where the next group will start; not wrapped.
    head: u64,
    next_group: u64,
    flushed: u64,
    open: GroupWriter,
}

impl Log {
    /// A log whose next group is number `next_group`, at unit `head`.
    pub fn new(region: Region, head: u64, next_group: u64) -> Log {
        Log { region, start: head, head, next_group, flushed: 0, open: GroupWriter::default() }
    }

    /// The unit where the next group will start.
    pub fn head(&self) -> u64 {
        self.head % self.region.units
    }

    /// The number of the next group.
    pub fn next_group(&self) -> u64 {
        self.next_group
    }

    /// Whether the open group has records.
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The bytes of the region that this epoch uses, and its size in bytes.
    pub fn fill(&self) -> (u64, u64) {
        ((self.head - self.start) * BLOCK_SIZE as u64, self.region.units * BLOCK_SIZE as u64)
    }

    /// The number of bytes that the open group may still grow by.
    pub fn room(&self) -> usize {
        let used = if is_broken(Mutation::LogOverrun) { 0 } else { self.head - self.start };
        let units = self.region.units - used;
        (units as usize * BLOCK_SIZE).saturating_sub(self.open.bytes())
    }

    /// The longest record that fits into an empty log, in bytes.
    pub fn record_max(&self) -> usize {
        (self.region.units as usize * BLOCK_SIZE) - crate::format::GROUP_HEADER_BYTES
    }

    /// The length of the open group, in bytes.
    pub fn open_bytes(&self) -> usize {
        self.open.bytes()
    }

    /// Adds a record to the open group; the caller must have checked that it fits.
    pub fn append(&mut self, record: &Record) {
        self.open.push(record);
    }

    /// Writes the open group with its bindings: one write, or two around the region's end. It is durable with the next
    /// flush of the device.
    pub fn write(
        &mut self,
        disk: &Disk,
        birth: Birth,
        nonce_before: Nonce,
        bindings: &[Binding],
    ) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let number = self.next_group;
        let next_group = after("group number", number)?;
        let open = std::mem::take(&mut self.open);
        let group = open.seal(bindings, birth, nonce_before, number, self.flushed);
        let units = (group.len() / BLOCK_SIZE) as u64;
        if self.head - self.start + units > self.region.units && !is_broken(Mutation::LogOverrun) {
            return Err(Error::Bug("a log group outgrew the log".into()));
        }
        self.region.write(disk, self.head, &group)?;
        if group.capacity() <= GROUP_KEPT_MAX {
            self.open = GroupWriter::within(group);
        }
        self.head += units;
        self.next_group = next_group;
        Ok(())
    }

    /// Notes that the device has been flushed since the last group was written.
    pub fn flushed(&mut self) {
        self.flushed = self.next_group - 1;
    }

    /// Whether the device has been flushed since the last group was written.
    pub fn is_flushed(&self) -> bool {
        self.head == self.start || self.flushed == self.next_group - 1
    }

    /// Starts the log afresh, after a checkpoint has made all records unnecessary.
    pub fn checkpointed(&mut self) {
        self.open = GroupWriter::default();
        self.start = self.head;
        self.flushed = 0;
    }
}
