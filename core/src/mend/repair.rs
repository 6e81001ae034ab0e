//! Repairs: what is simple, in place or by a checkpoint; and whatever else there is, by the mender.

use std::sync::{Arc, Mutex, PoisonError};

use super::losses::by_path;
use super::{Mended, mend};
use crate::check::{Code, Report};
use crate::device::{Device, Disk};
use crate::error::{Error, Result};
use crate::format::{IDENTITY_AT, Identity, Superblock};
use crate::fs::Fs;
use crate::ids::{BLOCK_SIZE, Time};
use crate::volume::{
    Content, Mode, NonceSource, OpenOptions, Ring, SlotState, Volume, read_identity,
};

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Log records that were made durable in the trees.
    pub replayed: u64,
    /// Slots of the superblock ring that did not verify and were written afresh.
    pub slots_mended: u32,
    /// Files without a name that were deleted.
    pub orphans: u64,
    /// What the mender did and what is lost, if it was needed.
    pub mended: Option<Mended>,
}

/// What it takes to repair everything that a check has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repairable {
    /// There is nothing to repair.
    Nothing,
    /// What loses nothing, and needs no questions.
    Safely,
    /// More than that: something may be lost.
    WithLoss,
    /// Some of it cannot be repaired.
    No,
}

impl Report {
    /// What it takes to repair everything.
    pub fn repairable(&self) -> Repairable {
        if self.findings.is_empty() {
            return Repairable::Nothing;
        }
        if self.superblock.is_none() {
            return Repairable::No;
        }
        let of = |code| match code {
            Code::LogReplayed | Code::LogTorn | Code::MapSlotInvalid => Repairable::Safely,
            Code::SlotInvalid | Code::SlotTorn | Code::OrphanLeft => Repairable::Safely,
            // Giving up a checkpoint is for whoever says so with -b.
            Code::CheckpointLost if self.slot_chosen => Repairable::Safely,
            Code::CheckpointLost | Code::SuperblockLost | Code::NoSuperblock => Repairable::No,
            Code::FeaturesUnknown | Code::ImageTruncated | Code::ReadFailed => Repairable::No,
            // It takes a place of its own, which nobody has looked for.
            Code::ZoneTooLarge => Repairable::No,
            _ => Repairable::WithLoss,
        };
        let all = || self.findings.iter().map(|finding| of(finding.code));
        match () {
            () if all().any(|found| found == Repairable::No) => Repairable::No,
            () if all().any(|found| found == Repairable::WithLoss) => Repairable::WithLoss,
            () => Repairable::Safely,
        }
    }

    /// Whether there is something to repair, and all of it can be without a loss.
    pub fn is_repairable(&self) -> bool {
        self.repairable() == Repairable::Safely
    }
}

/// Makes a recovered state durable as a checkpoint, and writes afresh the slots of the ring that do not
/// verify: a copy of the other slot of the epoch, or nothing. What is damaged is mended before. The caller has seen that
/// the report is repairable; `slot` is the one that the check was asked to start from.
pub fn repair(
    device: &Arc<dyn Device>,
    report: &Report,
    slot: Option<u32>,
    wall: Time,
    nonces: NonceSource,
) -> Result<Repair> {
    let disk = Disk::new(device.clone());
    mend_identity(&disk, report)?;
    mend_reserved(&disk)?;
    let broken = mend_ring(&disk, false)?;
    let nonces = Arc::new(Mutex::new(nonces));
    let source = || -> NonceSource {
        let nonces = nonces.clone();
        Box::new(move || nonces.lock().unwrap_or_else(PoisonError::into_inner)())
    };
    let mending = |spare| {
        let (mut volume, mended) = mend(device, report, slot, spare, source())?;
        volume.checkpoint_at(wall)?;
        Ok((volume, mended.replayed, Some(mended)))
    };
    let (volume, replayed, mut mended) = match report.repairable() {
        Repairable::WithLoss => match mending(true) {
            // Then what the map says is in use, and nobody owns, is not left alone.
            Err(Error::NoSpace { .. }) => mending(false)?,
            mended => mended?,
        },
        _ => {
            let mode = Mode::ReadWrite;
            let open = OpenOptions { slot, content: None, ..OpenOptions::new(mode, source()) };
            let (mut volume, recovery) = Volume::open(device.clone(), open)?;
            volume.checkpoint_at(wall)?;
            (volume, recovery.survey.records, None)
        }
    };
    let mut orphans = 0;
    if volume.content() == Content::Files {
        let mut fs = Fs::open(volume, Box::new(move || wall));
        orphans = fs.count_orphans()?;
        if orphans > 0 {
            fs.checkpoint()?;
            orphans -= fs.count_orphans()?;
        }
        if let Some(mended) = &mut mended {
            mended.missing = by_path(&fs, &mended.losses)?;
        }
    }
    mend_ring(&disk, true)?;
    disk.flush()?;
    Ok(Repair { replayed, slots_mended: broken, orphans, mended })
}

/// Writes an identity block that does not verify afresh. The volume's id and size stand in the superblocks; its UUID and label
/// are lost.
fn mend_identity(disk: &Disk, report: &Report) -> Result<()> {
    if read_identity(disk).is_ok() {
        return Ok(());
    }
    let Some(superblock) = &report.superblock else { return Ok(()) };
    let volume = superblock.birth.volume;
    let image_blocks = superblock.image_blocks;
    let ring = crate::volume::ring_of(image_blocks);
    let identity = Identity { volume, uuid: volume.0, label: String::new(), image_blocks, ring };
    disk.write(IDENTITY_AT, &identity.encode())?;
    disk.flush()
}

/// What is reserved is zero.
fn mend_reserved(disk: &Disk) -> Result<()> {
    for range in crate::check::reserved() {
        let bytes = disk.read(range.start, (range.end - range.start) as usize)?;
        if bytes.iter().any(|byte| *byte != 0) {
            disk.write(range.start, &vec![0; bytes.len()])?;
        }
    }
    Ok(())
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
