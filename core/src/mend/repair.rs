//! Repairs: simple ones in place or by a checkpoint, others by the mender.

use std::sync::{Arc, Mutex, PoisonError};

use super::losses::by_path;
use super::{Change, Mended, mend};
use crate::check::{CheckOptions, Code, Finding, Repairable, Report, check};
use crate::device::Device;
use crate::disk::Disk;
use crate::error::{Error, Place, Result};
use crate::format::{IDENTITY_AT, MetaKey};
use crate::fs::Fs;
use crate::ids::{Time, TreeId, is_zero};
use crate::volume::{
    Content, Mode, NonceSource, OpenOptions, Ring, SlotState, Volume, identity_again, note_error,
    read_identity,
};

/// 4 rounds: damage may hide other damage, so the check and repair are repeated.
const ROUNDS: usize = 4;

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Number of log records made durable in the trees.
    pub replayed: u64,
    /// Number of damaged slots of the superblock ring and of the space map that were rewritten.
    pub slots_mended: u32,
    /// Number of orphans deleted.
    pub orphans: u64,
    /// Number of directories and files that were too large for their zone, and got their own.
    pub split: u64,
    /// The result of the mender, if it was needed.
    pub mended: Option<Mended>,
}

impl Report {
    /// What it takes to repair all findings.
    pub fn repairable(&self) -> Repairable {
        if self.findings.is_empty() {
            return Repairable::Nothing;
        }
        if self.superblock.is_none() {
            return Repairable::No;
        }
        let of = |code: Code| match code {
            // A checkpoint may be given up only on request: -b chose the slot.
            Code::CheckpointLost if self.slot_chosen => Repairable::Safely,
            code => code.problem().repairable,
        };
        self.findings.iter().map(|finding| of(finding.code)).max().unwrap_or(Repairable::Nothing)
    }

    /// Whether there is something to repair, and nothing would be lost.
    pub fn is_repairable(&self) -> bool {
        self.repairable() == Repairable::Safely
    }
}

/// Makes a recovered state durable as a checkpoint, and rewrites damaged slots of the ring: as a copy of the other slot
/// of the epoch, or as zeros. Damaged structure is mended first. The caller has checked that the report is repairable;
/// `slot` is the one that the check started from.
pub fn repair(
    device: &Arc<dyn Device>,
    report: &Report,
    slot: Option<u32>,
    wall: Time,
    nonces: NonceSource,
) -> Result<Repair> {
    once(device, report, slot, wall, &Nonces::new(nonces))
}

/// A nonce source shared by several volumes, one after another.
struct Nonces(Arc<Mutex<NonceSource>>);

impl Nonces {
    fn new(source: NonceSource) -> Nonces {
        Nonces(Arc::new(Mutex::new(source)))
    }

    fn source(&self) -> NonceSource {
        let shared = self.0.clone();
        Box::new(move || shared.lock().unwrap_or_else(PoisonError::into_inner)())
    }
}

fn once(
    device: &Arc<dyn Device>,
    report: &Report,
    slot: Option<u32>,
    wall: Time,
    nonces: &Nonces,
) -> Result<Repair> {
    let disk = Disk::new(device.clone());
    mend_identity(&disk, report)?;
    mend_reserved(&disk)?;
    let is_map =
        |finding: &&Finding| matches!(finding.code, Code::MapSlotInvalid | Code::MapSlotTorn);
    let maps = report.findings.iter().filter(is_map).count() as u32;
    let broken = maps + mend_ring(&disk, false)?;
    let mut found = Mended::default();
    let mut mending = |spare| {
        let mut volume = mend(device, report, slot, spare, nonces.source(), &mut found)?;
        volume.note_time(wall);
        volume.checkpoint()?;
        Ok(volume)
    };
    let (volume, replayed, mut mended) = match report.repairable() {
        Repairable::WithLoss => {
            let volume = match mending(true) {
                // Without space, blocks that the map has in use but that nothing owns are used, too.
                Err(Error::NoSpace { .. }) => mending(false)?,
                volume => volume?,
            };
            (volume, found.replayed, Some(found))
        }
        _ => {
            let mode = Mode::ReadWrite;
            let open =
                OpenOptions { slot, content: None, ..OpenOptions::new(mode, nonces.source()) };
            let (mut volume, recovery) = Volume::open(device.clone(), open)?;
            volume.note_time(wall);
            volume.checkpoint()?;
            (volume, recovery.survey.records, None)
        }
    };
    let mut volume = volume;
    if let Some(mended) = mended.as_mut().filter(|_| volume.superblock().holds.held > 0) {
        drop_damaged(device, &mut volume, &mut mended.changes)?;
    }
    let (mut orphans, mut split) = (0, 0);
    if volume.content() == Content::Files {
        let mut fs = Fs::open(volume, Box::new(move || wall));
        orphans = fs.count_orphans()?;
        if orphans > 0 {
            fs.checkpoint()?;
            orphans -= fs.count_orphans()?;
        }
        split = split_large(&mut fs, report)?;
        if let Some(mended) = &mut mended {
            (mended.missing, mended.more_missing) = by_path(&fs, &mended.losses)?;
        }
    }
    mend_ring(&disk, true)?;
    disk.flush()?;
    note_error(&disk, false)?;
    Ok(Repair { replayed, slots_mended: broken, orphans, split, mended })
}

/// Drops snapshots with damaged parts. Parts that several share are found again in the next older one.
fn drop_damaged(
    device: &Arc<dyn Device>,
    volume: &mut Volume,
    changes: &mut Vec<Change>,
) -> Result<()> {
    loop {
        let found = check(device, CheckOptions::ALL, &mut ());
        if found.damaged_holds.is_empty() {
            return Ok(());
        }
        for name in &found.damaged_holds {
            volume.drop_hold(name)?;
            let name = crate::text::printable(name.as_bytes());
            let what = format!("snapshot '{name}' is given up: parts of it do not verify");
            changes.push(Change { place: Place::Image, what });
        }
    }
}

/// Gives objects that are too large for their zone their own. Where that fails, the finding stays.
fn split_large(fs: &mut Fs, report: &Report) -> Result<u64> {
    let mut split = 0;
    for finding in &report.findings {
        let Place::Key(TreeId::Metadata, key) = &finding.place else { continue };
        if let Some(place) = MetaKey::decode(key).filter(|_| finding.code == Code::ZoneTooLarge) {
            match fs.split_large(&place) {
                Ok(was_large) => split += u64::from(was_large),
                Err(error) if fs.volume().has_failed() => return Err(error),
                Err(_) => {}
            }
        }
    }
    if split > 0 {
        fs.checkpoint()?;
    }
    Ok(split)
}

/// Repairs until a check finds nothing more to repair: a repair may reveal damage that was hidden. Returns the sum of
/// all repairs, and the last check.
pub fn repair_all(
    device: &Arc<dyn Device>,
    report: &Report,
    options: CheckOptions,
    wall: Time,
    nonces: NonceSource,
) -> Result<(Repair, Report)> {
    let consent = report.repairable();
    let nonces = Nonces::new(nonces);
    let mut done = once(device, report, options.slot, wall, &nonces)?;
    let options = CheckOptions { slot: None, ..options };
    let mut again = check(device, options, &mut ());
    for _ in 1..ROUNDS {
        let more = again.repairable();
        if more == Repairable::Nothing || more == Repairable::No || more > consent {
            break;
        }
        done.add(once(device, &again, None, wall, &nonces)?);
        again = check(device, options, &mut ());
    }
    if !again.is_clean() {
        note_error(&Disk::new(device.clone()), true)?;
    }
    Ok((done, again))
}

impl Repair {
    /// Adds the results of a further repair.
    fn add(&mut self, more: Repair) {
        self.replayed += more.replayed;
        self.slots_mended += more.slots_mended;
        self.orphans += more.orphans;
        self.split += more.split;
        match (&mut self.mended, more.mended) {
            (Some(mended), Some(more)) => {
                mended.nodes += more.nodes;
                mended.losses.extend(more.losses);
                mended.missing.extend(more.missing);
                mended.more_missing |= more.more_missing;
                mended.changes.extend(more.changes);
            }
            (mended, more) => *mended = more.or(mended.take()),
        }
    }
}

/// Rewrites an identity block that does not verify, or does not match the superblocks, from those. UUID and label are
/// lost if it does not verify.
fn mend_identity(disk: &Disk, report: &Report) -> Result<()> {
    let found = |finding: &Finding| finding.code == Code::IdentityInvalid;
    let wrong = report.findings.iter().any(found);
    let Some(identity) = identity_again(disk).filter(|_| wrong) else { return Ok(()) };
    disk.write(IDENTITY_AT, &identity.encode())?;
    disk.flush()
}

/// Zeroes the reserved areas.
fn mend_reserved(disk: &Disk) -> Result<()> {
    for range in crate::check::reserved() {
        let bytes = disk.read(range.start, (range.end - range.start) as usize)?;
        if !is_zero(&bytes) {
            disk.write(range.start, &vec![0; bytes.len()])?;
        }
    }
    Ok(())
}

/// Counts the damaged slots; rewrites them if `write`.
fn mend_ring(disk: &Disk, write: bool) -> Result<u32> {
    let ring = Ring::read(disk, &read_identity(disk)?)?;
    let mut broken = 0;
    for slot in ring.slots() {
        let SlotState::Invalid(_) = slot.state else { continue };
        broken += 1;
        if write {
            disk.write(slot.byte, &ring.fresh(slot))?;
        }
    }
    Ok(broken)
}
