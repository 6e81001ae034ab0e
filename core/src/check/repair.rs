//! Repairs of what is simple: a log that waits to be replayed, a torn tail, slots of the ring and of the
//! space map that do not verify.

use std::sync::Arc;

use super::{Code, Report};
use crate::cache::CacheBudget;
use crate::device::{Device, Disk};
use crate::error::Result;
use crate::ids::{BLOCK_SIZE, Time};
use crate::volume::{Mode, NonceSource, OpenOptions, SlotState, Volume, read_identity, read_ring};

/// What a repair did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Log records that were made durable in the trees.
    pub replayed: u64,
    /// Slots of the superblock ring that were cleared.
    pub slots_cleared: u32,
}

/// Whether everything in `report` is something that [`repair`] mends.
pub(super) fn can_repair(report: &Report) -> bool {
    let simple = |code| {
        matches!(code, Code::LogReplayed | Code::LogTorn | Code::SlotInvalid | Code::MapSlotInvalid)
    };
    report.superblock.is_some() && report.findings.iter().all(|finding| simple(finding.code))
}

impl Report {
    /// Whether there is something to repair, and all of it can be.
    pub fn is_repairable(&self) -> bool {
        !self.findings.is_empty() && can_repair(self)
    }
}

/// Makes a recovered state durable as a checkpoint, and clears slots that do not verify. The caller
/// has seen that the report is repairable.
pub fn repair(
    device: &Arc<dyn Device>,
    slot: Option<u32>,
    wall: Time,
    nonces: NonceSource,
) -> Result<Repair> {
    let open = OpenOptions { mode: Mode::ReadWrite, slot, cache: CacheBudget::default(), nonces };
    let (mut volume, recovery) = Volume::open(device.clone(), open)?;
    volume.checkpoint_at(wall)?;
    drop(volume);
    let disk = Disk::new(device.clone());
    let mut slots_cleared = 0;
    for slot in read_ring(&disk, &read_identity(&disk)?)? {
        if let SlotState::Invalid(_) = slot.state {
            disk.write(slot.byte, &[0; BLOCK_SIZE])?;
            slots_cleared += 1;
        }
    }
    disk.flush()?;
    Ok(Repair { replayed: recovery.records, slots_cleared })
}
