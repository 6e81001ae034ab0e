//! What stands at fixed places: identity block, superblock ring, log, and the boot area.

use super::{CheckOptions, Code, Report};
use crate::device::Disk;
use crate::error::{Error, Place};
use crate::format::{Features, IDENTITY_AT, Identity, Superblock};
use crate::ids::*;
use crate::log::{End, scan};
use crate::volume::{Layout, Ring, SlotState, read_identity};

/// Checks the fixed places; returns the superblock to go on with.
pub(super) fn check(disk: &Disk, options: CheckOptions, report: &mut Report) -> Option<Superblock> {
    let identity = identity(disk, report)?;
    report.label.clone_from(&identity.label);
    let ring = match Ring::read(disk, &identity) {
        Ok(ring) => ring,
        Err(error) => {
            report.add_error(Code::NoSuperblock, &error);
            return None;
        }
    };
    let torn = ring.torn().map(|slot| slot.slot);
    for slot in ring.slots() {
        if let SlotState::Invalid(fault) = &slot.state {
            let code = match torn == Some(slot.slot) {
                _ if slot.unreadable => Code::ReadFailed,
                true => Code::SlotTorn,
                false => Code::SlotInvalid,
            };
            report.add(code, Place::Byte(slot.byte), format!("slot {}: {fault}", slot.slot));
        }
    }
    if let Some(epoch) = ring.lost() {
        report.add(Code::CheckpointLost, Place::Image, format!("epoch {}", epoch.0));
    }
    let superblock = match ring.choose(options.slot.or_else(|| Some(ring.newest()?.slot))) {
        Ok(superblock) => superblock.clone(),
        Err(error) => {
            report.add_error(Code::NoSuperblock, &error);
            return None;
        }
    };
    report.superblock = Some(superblock.clone());
    let features = superblock.features;
    if features.incompatible & !Features::KEYS | features.read_only != 0 {
        let detail = format!(
            "incompatible {:#x}, read-only {:#x}",
            features.incompatible, features.read_only
        );
        report.add(Code::FeaturesUnknown, Place::Image, detail);
        return None;
    }
    unused(disk, report);
    log(disk, &superblock, report);
    Some(superblock)
}

/// The identity block; or, if it does not verify, what the length of the image suggests.
fn identity(disk: &Disk, report: &mut Report) -> Option<Identity> {
    let error = match read_identity(disk) {
        Ok(identity) => return Some(identity),
        Err(error) => error,
    };
    let code = match &error {
        Error::Corrupt(damage) if damage.place == Place::Image => Code::ImageTruncated,
        _ => Code::IdentityInvalid,
    };
    report.add_error(code, &error);
    let layout = Layout::new(disk.len(), crate::format::limits::LOG_BYTES_MIN).ok()?;
    let mut guess = Identity {
        volume: VolumeId::default(),
        uuid: [0; 16],
        label: String::new(),
        image_blocks: layout.image_blocks,
        ring: layout.ring,
    };
    let slots = (0..crate::format::limits::SUPERBLOCK_SLOTS)
        .map(|slot| crate::volume::slot_block(guess.ring, slot));
    let found = slots.filter_map(|block| disk.read(block.byte(), BLOCK_SIZE).ok());
    let superblock = found
        .filter_map(|block| Superblock::decode(&block, None).ok())
        .max_by_key(|s| s.birth.epoch)?;
    guess.volume = superblock.birth.volume;
    Some(guess)
}

/// What nothing uses before the log, in bytes.
pub(crate) fn reserved() -> [std::ops::Range<u64>; 3] {
    let block = BLOCK_SIZE as u64;
    [0..IDENTITY_AT, IDENTITY_AT + block..32 * block, 48 * block..64 * block]
}

/// The area before and around the identity block must be zero.
fn unused(disk: &Disk, report: &mut Report) {
    for range in reserved() {
        if let Ok(bytes) = disk.read(range.start, (range.end - range.start) as usize)
            && !is_zero(&bytes)
        {
            report.add(Code::PaddingDirty, Place::Byte(range.start), "the reserved area is zero");
        }
    }
}

fn log(disk: &Disk, superblock: &Superblock, report: &mut Report) {
    let survey = match scan(disk, superblock) {
        Ok(survey) => survey,
        Err(error) => {
            report.add_error(Code::LogDamaged, &error);
            return;
        }
    };
    if survey.groups > 0 {
        let detail = format!("{} records in {} groups", survey.records, survey.groups);
        report.add(Code::LogReplayed, Place::Record(Lsn(superblock.next_msn.0)), detail);
    }
    match &survey.end {
        End::Clean => {}
        End::Torn { byte, why } => report.add(Code::LogTorn, Place::Byte(*byte), why),
        End::Damaged { byte, .. } => {
            let detail = survey.end.damage().map_or_else(String::new, |error| error.to_string());
            report.add(Code::LogDamaged, Place::Byte(*byte), detail);
        }
        End::Unreadable { byte, why } => report.add(Code::ReadFailed, Place::Byte(*byte), why),
        End::Superseded { byte, epoch } => {
            report.add(
                Code::SuperblockLost,
                Place::Byte(*byte),
                format!("a log group of epoch {}", epoch.0),
            );
        }
    }
    report.log = Some(survey);
}
