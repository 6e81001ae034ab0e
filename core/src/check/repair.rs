//! Repairs of what is simple: a log that waits to be replayed, a torn tail, slots of the ring and of the
//! space map that do not verify, files that wait to be deleted.

use std::sync::Arc;

use super::{Code, Report};
use crate::device::{Device, Disk};
use crate::error::Result;
use crate::format::Superblock;
use crate::fs::Fs;
use crate::ids::{BLOCK_SIZE, Time};
use crate::volume::{
    Content, Mode, NonceSource, OpenOptions, Ring, SlotState, Volume, read_identity,
};

/// What a repair did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Log records that were made durable in the trees.
    pub replayed: u64,
    /// Slots of the superblock ring that did not verify and were written afresh.
    pub slots_mended: u32,
    /// Files without a name that were deleted.
    pub orphans: u64,
}

impl Report {
    /// Whether there is something to repair, and all of it can be.
    pub fn is_repairable(&self) -> bool {
        let simple = |code| match code {
            Code::LogReplayed | Code::LogTorn | Code::MapSlotInvalid => true,
            Code::SlotInvalid | Code::SlotTorn | Code::OrphanLeft => true,
            // Giving up a checkpoint is for whoever says so with -b.
            Code::CheckpointLost => self.slot_chosen,
            _ => false,
        };
        let all = self.findings.iter().all(|finding| simple(finding.code));
        self.superblock.is_some() && !self.findings.is_empty() && all
    }
}

/// Makes a recovered state durable as a checkpoint, and writes afresh the slots of the ring that do not
/// verify: a copy of the other slot of the epoch, or nothing. The caller has seen that the report is
/// repairable.
pub fn repair(
    device: &Arc<dyn Device>,
    slot: Option<u32>,
    wall: Time,
    nonces: NonceSource,
) -> Result<Repair> {
    let disk = Disk::new(device.clone());
    let broken = mend_ring(&disk, false)?;
    let open = OpenOptions { slot, content: None, ..OpenOptions::new(Mode::ReadWrite, nonces) };
    let (mut volume, recovery) = Volume::open(device.clone(), open)?;
    volume.checkpoint_at(wall)?;
    let mut orphans = 0;
    if volume.content() == Content::Files {
        let mut fs = Fs::open(volume, Box::new(move || wall));
        orphans = fs.count_orphans()?;
        if orphans > 0 {
            fs.checkpoint()?;
            orphans -= fs.count_orphans()?;
        }
    }
    mend_ring(&disk, true)?;
    disk.flush()?;
    Ok(Repair { replayed: recovery.survey.records, slots_mended: broken, orphans })
}

/// Counts the slots that do not verify; and, if asked, writes them afresh.
fn mend_ring(disk: &Disk, write: bool) -> Result<u32> {
    let ring = Ring::read(disk, &read_identity(disk)?)?;
    let mut broken = 0;
    for slot in ring.slots() {
        let SlotState::Invalid(_) = slot.state else { continue };
        broken += 1;
        if write {
            let twin = ring.slots()[slot.slot as usize ^ 1].superblock();
            let copy = twin.map(|twin| Superblock { slot: slot.slot, ..twin.clone() }.encode());
            disk.write(slot.byte, &copy.unwrap_or_else(|| vec![0; BLOCK_SIZE]))?;
        }
    }
    Ok(broken)
}
