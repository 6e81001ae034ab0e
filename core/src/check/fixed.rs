//! Checks fixed places: identity block, superblock ring, log, and the boot area.

use super::{CheckOptions, Code, Report};
use crate::disk::Disk;
use crate::error::{Error, Fault, Place};
use crate::format::{Features, IDENTITY_AT, Identity, Superblock};
use crate::ids::*;
use crate::log::{End, Unpadded, scan};
use crate::volume::{Ring, SlotState, identity_again, raised, read_identity};

/// Checks the fixed places; returns the superblock to continue with.
pub(super) fn check(disk: &Disk, options: CheckOptions, report: &mut Report) -> Option<Superblock> {
    let identity = identity(disk, report)?;
    report.label.clone_from(&identity.label);
    if identity.error_met && read_identity(disk).is_ok() {
        let detail = "everything is checked, contents of files included";
        report.add(Code::ErrorMet, Place::Byte(IDENTITY_AT), detail);
    }
    let ring = match Ring::read(disk, &identity) {
        Ok(ring) => ring,
        Err(error) => {
            report.add_error(Code::NoSuperblock, &error);
            return None;
        }
    };
    slots(disk, &ring, report);
    let superblock = choose(disk, &identity, &ring, options, report)?;
    report.superblock = Some(superblock.clone());
    let features = superblock.features;
    if features.incompatible & !Features::KEYS | features.unknown_read_only() != 0 {
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

/// Reports slots that do not verify, unless another finding covers them.
fn slots(disk: &Disk, ring: &Ring, report: &mut Report) {
    let torn = [ring.torn(), ring.torn_copy()].map(|slot| slot.map(|slot| slot.slot));
    let none = ring.newest().is_none();
    let mut lost = Vec::new();
    // If the image is too short, that has been reported.
    for slot in ring.slots().iter().filter(|slot| slot.byte + BLOCK_SIZE as u64 <= disk.len()) {
        let SlotState::Invalid(fault) = &slot.state else { continue };
        let detail = format!("slot {}: {fault}", slot.slot);
        let code = match torn.contains(&Some(slot.slot)) {
            _ if slot.unreadable => Code::ReadFailed,
            _ if none => continue,
            true => Code::SlotTorn,
            false if ring.is_lost(slot.slot) => {
                lost.push(detail);
                continue;
            }
            false => Code::SlotInvalid,
        };
        report.add(code, Place::Byte(slot.byte), detail);
    }
    if let Some(epoch) = ring.lost() {
        let detail = format!("epoch {}: {}", epoch.0, lost.join("; "));
        report.add(Code::CheckpointLost, Place::Image, detail);
    }
}

/// The superblock to start from: of the chosen slot; or the newest; or if that is lost, its reconstruction.
fn choose(
    disk: &Disk,
    identity: &Identity,
    ring: &Ring,
    options: CheckOptions,
    report: &mut Report,
) -> Option<Superblock> {
    let found = match ring.choose(options.slot.or_else(|| Some(ring.newest()?.slot))) {
        Ok(superblock) => Some(superblock.clone()),
        Err(error) => {
            report.add_error(Code::NoSuperblock, &error);
            None
        }
    };
    if options.slot.is_some() {
        return found;
    }
    let younger = found.as_ref().and_then(|found| match scan(disk, found).ok()?.end {
        End::Superseded { byte, epoch } => Some((byte, epoch)),
        _ => None,
    });
    if let Some((byte, epoch)) = younger {
        let detail = format!("a log group of epoch {}", epoch.0);
        report.add(Code::SuperblockLost, Place::Byte(byte), detail);
    }
    raised(disk, identity, ring).or(found)
}

/// The identity block; if it does not verify or does not match the superblocks, its reconstruction from those.
fn identity(disk: &Disk, report: &mut Report) -> Option<Identity> {
    let again = identity_again(disk);
    let error = match (read_identity(disk), &again) {
        (Ok(identity), Some(again)) if is_other(disk, &identity, again) => {
            let said = |of: &Identity| format!("{} of {} blocks", of.volume, of.image_blocks);
            let fault = Fault::mismatch("volume", said(again), said(&identity));
            Error::corrupt(Place::Byte(IDENTITY_AT), fault)
        }
        (Ok(identity), _) => return Some(identity),
        (Err(error), _) => error,
    };
    let fits = |again: &Identity| again.image_blocks <= disk.len() / BLOCK_SIZE as u64;
    let code = match &error {
        Error::Corrupt(damage)
            if damage.place == Place::Image && !again.as_ref().is_some_and(fits) =>
        {
            Code::ImageTruncated
        }
        _ => Code::IdentityInvalid,
    };
    report.add_error(code, &error);
    if let Some(again) = again.as_ref().filter(|again| !fits(again))
        && code != Code::ImageTruncated
    {
        let (stated, blocks) = (again.image_blocks, disk.len() / BLOCK_SIZE as u64);
        let detail = format!("the superblock says {stated} blocks, and there are {blocks}");
        report.add(Code::ImageTruncated, Place::Image, detail);
    }
    again
}

/// Whether there are superblocks, but none of the volume of the identity block.
fn is_other(disk: &Disk, identity: &Identity, again: &Identity) -> bool {
    let is_theirs = |identity| Ring::read(disk, identity).is_ok_and(|ring| ring.newest().is_some());
    !is_theirs(identity) && is_theirs(again)
}

/// The unused byte ranges before the log; they must be zero.
pub fn reserved() -> [std::ops::Range<u64>; 3] {
    let block = BLOCK_SIZE as u64;
    [0..IDENTITY_AT, IDENTITY_AT + block..32 * block, 48 * block..64 * block]
}

/// Checks that the area around the identity block is zero.
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
    for Unpadded { group, byte, is_vouched } in &survey.unpadded {
        let detail = format!("the padding of log group {group}, all of which is there");
        // A power cut may have torn it, unless a later group says that it was flushed.
        let code = if *is_vouched { Code::PaddingDirty } else { Code::LogTorn };
        report.add(code, Place::Byte(*byte), detail);
    }
    match &survey.end {
        End::Clean => {}
        End::Torn { byte, why } => report.add(Code::LogTorn, Place::Byte(*byte), why),
        End::Damaged { byte, .. } => {
            let detail = survey.end.damage().map_or_else(String::new, |error| error.to_string());
            report.add(Code::LogDamaged, Place::Byte(*byte), detail);
        }
        // If the image is too short, that has been reported.
        End::Unreadable { byte, .. } if *byte >= disk.len() => {}
        End::Unreadable { byte, why } => report.add(Code::ReadFailed, Place::Byte(*byte), why),
        // It has been reported.
        End::Superseded { .. } => {}
    }
    report.log = Some(survey);
}
