//! Opens a damaged image as a file system that can be walked: repaired on a view, with a record of all losses.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use betr_cli::progress::CheckMeter;
use betr_cli::volume::{clock_now, failure, nonces, open_view};
use betr_cli::{Failure, show};
use betr_core::Error;
use betr_core::check::{CheckOptions, Code, Finding, Repairable, Report, check};
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::format::{Bounds, Superblock};
use betr_core::fs::Fs;
use betr_core::ids::{BLOCK_SIZE, TreeId};
use betr_core::mend::{Change, Loss, Mended, repair_all};
use betr_core::space::{Layout, slot_block};
use betr_core::store::CacheBudget;
use betr_core::volume::{Mode, OpenOptions, Ring, Volume, read_identity, stated_bytes};
use betr_offline::device::{LenientDevice, PlanningDevice};

use crate::salvage::Args;

/// The cache in bytes (12 MiB); each node is read once.
const CACHE: usize = 12 << 20;
/// An image of which less than 1/1024 is left is refused: a forged size would otherwise not be bounded by the file.
const SHARE: u64 = 1024;

/// The file system, as far as it could be opened.
pub(crate) struct Opened {
    pub fs: Fs,
    pub found: Found,
}

/// The findings made while opening.
pub(crate) struct Found {
    /// The superblock from which the image was opened.
    pub superblock: Superblock,
    /// Notes about the image as a whole, as sentences without a full stop.
    pub notes: Vec<String>,
    /// Whether something may be lost that no other field reports.
    pub doubtful: bool,
    /// The losses of the trees, sorted by tree and key.
    pub losses: Vec<Loss>,
    /// The changes that made the indexes consistent.
    pub changes: Vec<Change>,
    /// The operations that the log has lost.
    pub operations: Vec<Finding>,
    image: Arc<LenientDevice>,
}

impl Found {
    /// The byte ranges of the image that are missing or unreadable.
    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        self.image.missing()
    }

    /// Whether anything was lost or changed.
    pub(super) fn is_damaged(&self) -> bool {
        self.doubtful
            || !(self.losses.is_empty() && self.changes.is_empty() && self.operations.is_empty())
    }
}

/// Opens the image that `args` names.
pub(crate) fn open(args: &Args) -> Result<Opened, Failure> {
    let path = args.image.path();
    let base = open_view(args.image.view())?;
    let (there, stated) = (base.len(), stated_bytes(&base));
    if let Some(stated) = stated.filter(|stated| stated / SHARE > there) {
        let name = show::path(path);
        return Err(Failure::damaged(format!(
            "{name}: too little is left of it: expected {stated} bytes, found {there}"
        )));
    }
    let lenient = Arc::new(LenientDevice::new(base.clone(), stated.unwrap_or(there)));
    let device: Arc<dyn Device> = lenient.clone();
    let options = CheckOptions { slot: args.slot, ..CheckOptions::ALL };
    let mut report = check(&device, options, &mut CheckMeter::new(true, false));
    let superblock = superblock(args, &device, &report)?;
    let mut found = Found {
        superblock,
        notes: Vec::new(),
        doubtful: false,
        losses: Vec::new(),
        changes: Vec::new(),
        operations: Vec::new(),
        image: lenient,
    };
    if let Some(stated) = stated.filter(|stated| *stated > there) {
        let what = format!("it is shorter than it says: expected {stated} bytes, found {there}");
        found.notes.push(what);
    }
    let raised = args.slot.is_none() && is_reconstructed(&device, &found.superblock);
    look_through(&mut report, args.slot, raised, &mut found);
    let slot = Some(found.superblock.slot).filter(|_| !raised);
    let volume = match mended(path, &device, &report, slot, &mut found)? {
        Some(view) => open_volume(view, None),
        None => open_volume(device.clone(), slot),
    };
    let volume = volume.map_err(|error| failure(path, Some(&device), &error))?;
    let fs = Fs::open(volume, Box::new(clock_now));
    Ok(Opened { fs, found })
}

/// Chooses the superblock; fails if there is none, or none that this version supports.
fn superblock(
    args: &Args,
    device: &Arc<dyn Device>,
    report: &Report,
) -> Result<Superblock, Failure> {
    let path = args.image.path();
    let identity = read_identity(&Disk::new(device.clone()));
    if let Err(error @ Error::Unsupported(_)) = &identity {
        return Err(failure(path, None, error));
    }
    let unknown = report.findings.iter().find(|finding| finding.code == Code::FeaturesUnknown);
    match (&report.superblock, unknown, identity) {
        (_, Some(unknown), _) => {
            let error = Error::Unsupported(format!("features: {}", unknown.detail));
            Err(failure(path, None, &error))
        }
        // After a replay in memory the report describes the state after it, so the superblock comes from the ring.
        (Some(_), _, Ok(identity)) if report.replay.is_some() => {
            let ring = Ring::read(&Disk::new(device.clone()), &identity);
            let chosen = ring.and_then(|ring| ring.choose(args.slot).cloned());
            chosen.map_err(|error| failure(path, None, &error))
        }
        (Some(superblock), ..) => Ok(superblock.clone()),
        (None, _, Err(error @ Error::NotAnImage(_))) => Err(failure(path, Some(device), &error)),
        (None, ..) => {
            let name = show::path(path);
            let which = match args.slot {
                Some(slot) => format!("superblock slot {slot} does not verify: choose another"),
                None => "no superblock slot verifies".into(),
            };
            Err(Failure::damaged(format!(
                "{name}: {which}; without a superblock this version cannot find the trees"
            )))
        }
    }
}

/// Whether a superblock was reconstructed from other structures: the ring has none of its epoch.
fn is_reconstructed(device: &Arc<dyn Device>, superblock: &Superblock) -> bool {
    let disk = Disk::new(device.clone());
    let ring = read_identity(&disk).and_then(|identity| Ring::read(&disk, &identity));
    let newest = ring.ok().and_then(|ring| Some(ring.newest()?.birth.epoch));
    newest.is_none_or(|newest| newest < superblock.birth.epoch)
}

/// Removes findings that would stop the repair from the report, and keeps their meaning in `found`.
fn look_through(report: &mut Report, slot: Option<u32>, raised: bool, found: &mut Found) {
    let epoch = found.superblock.birth.epoch.0;
    if raised {
        let what = format!(
            "the superblock of epoch {epoch} is lost: what it said was found elsewhere in the image"
        );
        found.notes.push(what);
    }
    for finding in &mut report.findings {
        match finding.code {
            Code::CheckpointLost if slot.is_none() && !raised => {
                found.doubtful = true;
                let what = format!(
                    "the newest checkpoint is lost ({}): this is the older one of epoch {epoch}",
                    finding.detail
                );
                found.notes.push(what);
            }
            Code::SuperblockLost if !raised => {
                found.doubtful = true;
                let what = format!(
                    "the log is younger than the newest superblock that verifies: this is the \
                     older state of epoch {epoch}"
                );
                found.notes.push(what);
                finding.code = Code::LogDamaged;
            }
            Code::LogDamaged => {
                found.doubtful = true;
                let what = format!("the log is damaged at {}: {}", finding.place, finding.detail);
                found.notes.push(what);
            }
            Code::OperationLost => found.operations.push(finding.clone()),
            _ => {}
        }
    }
    if report.findings.iter().any(|finding| finding.code == Code::TablePageInvalid) {
        // For each node id the newest node that verifies is taken; a newer one may have existed.
        found.doubtful = true;
        let what = "a part of the allocation table is lost: nodes were looked for, and some of what \
                    was found may be older than it was";
        found.notes.push(what.into());
    }
    if let Some(slot) = slot {
        found.notes.push(format!("slot {slot} was chosen: this is the state of epoch {epoch}"));
    }
    // Unreadable bytes were read as zeros; the resulting damage to the trees has findings of its own.
    let no = [Code::ReadFailed, Code::ImageTruncated, Code::ZoneTooLarge];
    let given_up = |code| code == Code::CheckpointLost && !raised;
    report.findings.retain(|finding| !no.contains(&finding.code) && !given_up(finding.code));
    for lost in report.log.iter().flat_map(|log| &log.lost) {
        let keys = Bounds { lo: lost.key.clone(), hi: Some(lost.end()) };
        let why = lost.damage.to_string();
        found.losses.push(Loss { tree: TreeId::Data, keys, pending: false, why });
    }
    if newest_may_be_missing(found) {
        found.doubtful = true;
        let what = "superblocks or a part of the log cannot be read: what was changed last may be \
                    missing";
        found.notes.push(what.into());
    }
}

/// Whether unreadable blocks may have held the newest state: a part of the log, or both slots of an epoch.
fn newest_may_be_missing(found: &Found) -> bool {
    let Superblock { log_start, log_units, .. } = found.superblock;
    let (image, block) = (&found.image, BLOCK_SIZE as u64);
    let log = log_start.byte()..log_start.byte() + log_units * block;
    let Ok(layout) = Layout::new(image.len(), log_units * block) else { return true };
    let gone = |slot| {
        let at = slot_block(layout.ring, slot).byte();
        image.misses(&(at..at + block))
    };
    image.misses(&log) || (0..16).any(|pair| gone(2 * pair) && gone(2 * pair + 1))
}

/// A repaired view of the image; `None` if the image is sound, or if it cannot be repaired.
fn mended(
    path: &Path,
    device: &Arc<dyn Device>,
    report: &Report,
    slot: Option<u32>,
    found: &mut Found,
) -> Result<Option<Arc<dyn Device>>, Failure> {
    if report.is_clean() || report.repairable() == Repairable::No {
        return Ok(None);
    }
    let scratch = betr_cli::scratch::for_image(path)?;
    let view: Arc<dyn Device> = Arc::new(PlanningDevice::new(device.clone(), scratch));
    let options = CheckOptions { slot, ..CheckOptions::ALL };
    match repair_all(&view, report, options, clock_now(), nonces()?) {
        Ok((done, _)) => {
            let Mended { losses, changes, .. } = done.mended.unwrap_or_default();
            found.losses.extend(losses);
            found.losses.sort_by(|a, b| (a.tree, &a.keys.lo).cmp(&(b.tree, &b.keys.lo)));
            found.changes = changes;
            Ok(Some(view))
        }
        Err(error) => {
            found.doubtful = true;
            let what = format!("it cannot be repaired: {error}; only what stands in place is read");
            found.notes.push(what);
            Ok(None)
        }
    }
}

fn open_volume(device: Arc<dyn Device>, slot: Option<u32>) -> betr_core::Result<Volume> {
    let nonces = Box::new(|| 0);
    let cache = CacheBudget::of(CACHE);
    let options = OpenOptions { slot, cache, ..OpenOptions::new(Mode::ReadOnly, nonces) };
    Ok(Volume::open(device, options)?.0)
}
