//! Reads the groups that continue a superblock, one after the other.

use std::ops::Range;

use bytes::Bytes;

use super::Region;
use crate::disk::Disk;
use crate::error::{Fault, Result, after};
use crate::format::{Group, Superblock, group_length};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};

/// A valid group, and its place.
pub struct Scanned {
    /// The unit where it starts.
    pub unit: u64,
    /// Its bytes, header and records.
    pub bytes: Bytes,
    /// The decoded group.
    pub group: Group,
    /// The byte range of the padding of its last unit.
    pub padding: Range<u64>,
    /// Whether the padding is zero. The group is valid in any case.
    pub is_padded: bool,
}

/// Reads the groups that continue a superblock, one by one.
#[derive(Clone)]
pub struct LogReader<'d> {
    pub(super) disk: &'d Disk,
    pub(super) superblock: &'d Superblock,
    pub(super) region: Region,
    /// The unit where the next group starts; not wrapped.
    pub(super) unit: u64,
    /// Number of units of the groups before it.
    pub(super) used: u64,
    /// Its number.
    pub(super) number: u64,
    /// The LSN of its first record.
    pub(super) lsn: Lsn,
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

    /// The unit and the number of the next group.
    pub fn next_group(&self) -> (u64, u64) {
        (self.unit % self.region.units, self.number)
    }

    /// The next group; or, if there is no valid one, the reason.
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
        let is_padded = is_zero(&bytes.split_off(length));
        let Some(number) = after("group number", self.number).ok() else {
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
        let end = self.region.byte(self.unit - 1) + BLOCK_SIZE as u64;
        let padding = end - (whole - length) as u64..end;
        Ok(Ok(Scanned { unit, bytes, group, padding, is_padded }))
    }

    fn decode(&self, bytes: &Bytes) -> std::result::Result<Group, Fault> {
        let (seal, group) = Group::decode(bytes, None)?;
        let superblock = self.superblock;
        if seal.birth.volume != superblock.birth.volume {
            return Err(Fault::mismatch("volume", superblock.birth.volume, seal.birth.volume));
        }
        if is_broken(Mutation::FencedGroupReplayed) {
            return Ok(group);
        }
        let epoch = superblock.log_epoch;
        if (seal.birth.epoch, seal.birth.nonce) != (epoch, superblock.log_nonce) {
            return Err(Fault::mismatch("epoch of the group", epoch, seal.birth.epoch));
        }
        if group.number != self.number {
            return Err(Fault::mismatch("group number", self.number, group.number));
        }
        if group.first_lsn != self.lsn {
            return Err(Fault::mismatch("first LSN of the group", self.lsn, group.first_lsn));
        }
        Ok(group)
    }
}
