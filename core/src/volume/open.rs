//! Opening a volume, and recovery in its two passes.
//!
//! Pass 1 walks the log groups after the checkpoint and verifies them; pass 2 injects their records in
//! LSN order. Nothing is written in place: where the device may not be written, an overlay in memory
//! takes what the replay has no room for.

use std::sync::Arc;

use super::{Access, NonceSource, Ring, Volume};
use crate::cache::{CacheBudget, Geometry, Store};
use crate::device::{Device, Disk, OverlayDevice};
use crate::error::{Error, Fault, Place, Result, after};
use crate::format::{Birth, IDENTITY_AT, Identity, Magic, Superblock};
use crate::ids::*;
use crate::log::{End, Log, LogReader, Region, Survey, scan};
use crate::space::Space;
use crate::table::Table;

/// What an open volume shows, and whether it may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The state of the last checkpoint; the device is only read.
    Checkpoint,
    /// The state after a replay in memory; the device is only read.
    ReadOnly,
    /// The state after a replay; may be changed.
    ReadWrite,
}

/// How to open a volume.
pub struct OpenOptions {
    /// What it shows.
    pub mode: Mode,
    /// The slot of the ring to start from, instead of the newest.
    pub slot: Option<u32>,
    /// How much memory the cache may take.
    pub cache: CacheBudget,
    /// The nonces of later epochs.
    pub nonces: NonceSource,
}

/// What recovery did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Groups that were replayed.
    pub groups: u64,
    /// Records that were replayed.
    pub records: u64,
    /// Why the log ends.
    pub end: End,
}

/// Reads the identity block.
pub fn read_identity(disk: &Disk) -> Result<Identity> {
    if disk.len() < IDENTITY_AT + BLOCK_SIZE as u64 {
        return Err(Error::NotAnImage(format!("it has only {} bytes", disk.len())));
    }
    let block = disk.read(IDENTITY_AT, BLOCK_SIZE)?;
    if Magic::of(&block) != Some(Magic::Identity) {
        return Err(Error::NotAnImage(format!("there is no betr magic at b:{IDENTITY_AT:#x}")));
    }
    let identity = Identity::decode(&block, None).map_err(|error| match error.field.as_str() {
        "version" => Error::Unsupported(format!("format version: {}", error.fault)),
        _ => Error::corrupt(Place::Byte(IDENTITY_AT), error),
    })?;
    let bytes = identity.image_blocks.saturating_mul(BLOCK_SIZE as u64);
    if bytes > disk.len() {
        let fault = Fault::mismatch("size of the image in bytes", bytes, disk.len());
        return Err(Error::corrupt(Place::Image, fault));
    }
    Ok(identity)
}

impl Volume {
    /// Opens the volume over `device` and recovers what its log holds.
    pub fn open(device: Arc<dyn Device>, options: OpenOptions) -> Result<(Volume, Recovery)> {
        let device = match options.mode {
            Mode::ReadWrite => device,
            Mode::ReadOnly | Mode::Checkpoint => Arc::new(OverlayDevice::new(device)),
        };
        let disk = Disk::new(device);
        let identity = read_identity(&disk)?;
        let ring = Ring::read(&disk, &identity)?;
        let superblock = ring.choose(options.slot)?.clone();
        let newest = ring.newest().map_or(superblock.birth.epoch, |newest| newest.birth.epoch);
        check_features(&superblock, options.mode)?;
        let survey = match options.mode {
            Mode::Checkpoint => None,
            Mode::ReadOnly | Mode::ReadWrite => Some(scan(&disk, &superblock)?),
        };
        if let (Mode::ReadWrite, Some(damage)) =
            (options.mode, survey.as_ref().and_then(|s| s.end.damage()))
        {
            return Err(damage);
        }
        let mut volume =
            Volume::at_checkpoint(disk, identity, superblock, newest, options, survey.as_ref())?;
        let recovery = match &survey {
            None => Recovery { groups: 0, records: 0, end: End::Clean },
            Some(survey) => volume.replay(survey)?,
        };
        Ok((volume, recovery))
    }

    /// The state of a checkpoint, which the caller has chosen and found sound; only to be read.
    pub(crate) fn of_checkpoint(disk: &Disk, superblock: Superblock) -> Result<Volume> {
        let identity = read_identity(disk)?;
        let newest = superblock.birth.epoch;
        let options = OpenOptions {
            mode: Mode::Checkpoint,
            slot: None,
            cache: CacheBudget::default(),
            nonces: Box::new(|| 0),
        };
        Volume::at_checkpoint(disk.clone(), identity, superblock, newest, options, None)
    }

    fn at_checkpoint(
        disk: Disk,
        identity: Identity,
        superblock: Superblock,
        newest: Epoch,
        mut options: OpenOptions,
        survey: Option<&Survey>,
    ) -> Result<Volume> {
        let space = Space::load(&disk, &superblock)?;
        let table = Table::open(disk.clone(), identity.volume, superblock.table);
        let geometry = Geometry {
            node_size: superblock.node_size,
            leaf_size: superblock.leaf_size,
            basement_size: superblock.basement_size,
            fanout: superblock.fanout,
        };
        // Whoever starts from an older slot must not be overtaken by the newer ones.
        let epoch = Epoch(after("epoch", newest.0)?);
        let birth = Birth { epoch, nonce: Nonce((options.nonces)()), ..superblock.birth };
        let store =
            Store::new(disk, space, table, geometry, birth, superblock.next_node, options.cache);
        let (head, group) = survey.map_or((0, 1), |survey| (survey.next_unit, survey.next_group));
        let access = match options.mode {
            Mode::ReadWrite => Access::ReadWrite { logged: true, fenced: false },
            Mode::ReadOnly | Mode::Checkpoint => Access::ReadOnly,
        };
        Ok(Volume {
            store,
            log: Log::new(Region::of(&superblock), head, group),
            next_msn: superblock.next_msn,
            next_zone: superblock.next_zone,
            next_ino: superblock.next_ino,
            superblock,
            nonce_before: Nonce(0),
            identity,
            unidentified: false,
            nonces: options.nonces,
            access,
        })
    }

    /// Pass 2: injects the records of the groups that pass 1 found sound.
    fn replay(&mut self, survey: &Survey) -> Result<Recovery> {
        let superblock = self.superblock.clone();
        let disk = self.store.disk.clone();
        let mut reader = LogReader::new(&disk, &superblock);
        for _ in 0..survey.groups {
            let group = match reader.next()? {
                Ok(scanned) => scanned.group,
                Err(fault) => return Err(Error::corrupt(Place::Image, fault)),
            };
            for record in &group.records {
                self.inject(record)?;
                self.next_zone = self.next_zone.max(record.next_zone);
                self.next_ino = self.next_ino.max(record.next_ino);
                self.store.make_room()?;
            }
        }
        Ok(Recovery { groups: survey.groups, records: survey.records, end: survey.end.clone() })
    }

    /// Makes a recovered state durable in the overlay of a volume that is only read, so that the
    /// checker can look at it like at any other checkpoint. The device itself is not touched.
    pub fn settle_in_memory(&mut self) -> Result<Disk> {
        if self.access == Access::ReadOnly {
            self.access = Access::ReadWrite { logged: false, fenced: true };
            let result = self.checkpoint();
            self.access = Access::ReadOnly;
            result?;
        }
        Ok(self.store.disk.clone())
    }
}

/// Features that this code does not know forbid writing, or everything.
fn check_features(superblock: &Superblock, mode: Mode) -> Result<()> {
    let features = superblock.features;
    if features.incompatible != 0 {
        return Err(Error::Unsupported(format!(
            "incompatible features {:#x}",
            features.incompatible
        )));
    }
    if features.read_only != 0 && mode == Mode::ReadWrite {
        let bits = features.read_only;
        return Err(Error::Unsupported(format!("features {bits:#x}, which allow reading only")));
    }
    Ok(())
}
