//! Opening a volume, and recovery in its two passes.
//!
//! Pass 1 walks the log groups after the checkpoint, verifies them and the extents that they bind, and
//! pins those; pass 2 injects their records in LSN order. Where space is short, it makes a checkpoint
//! between two groups, from which the rest of the log goes on. Nothing is written in place: a crash at any
//! moment leaves what recovery can start from again. Where the device may not be written, an overlay in
//! memory takes what the replay writes.

use std::sync::Arc;

use super::checkpoint::Continued;
use super::{Access, LATE_BYTES, NonceSource, Ring, Volume};
use crate::cache::{CacheBudget, Geometry, Store};
use crate::device::{Device, Disk, OverlayDevice};
use crate::error::{Error, Fault, Place, Result, after};
use crate::format::{
    Action, Birth, Group, IDENTITY_AT, Identity, Magic, Record, RecordMessage, Superblock,
    block_after,
};
use crate::ids::*;
use crate::log::{
    Bindings, Bound, End, Log, LogReader, Lost, Region, Scanned, Survey, Values, scan,
};
use crate::space::Space;
use crate::table::Table;
use crate::tree;

/// Late-bound values that replay holds in memory at a time.
const VALUES_AT_ONCE: usize = 256;

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
    /// A write of so many bytes of consecutive blocks, or more, is bound late.
    pub late_bytes: usize,
    /// The nonces of later epochs.
    pub nonces: NonceSource,
}

impl OpenOptions {
    /// The newest superblock, with the usual sizes.
    pub fn new(mode: Mode, nonces: NonceSource) -> OpenOptions {
        let cache = CacheBudget::default();
        OpenOptions { mode, slot: None, cache, late_bytes: LATE_BYTES, nonces }
    }
}

/// What recovery did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Groups that were replayed.
    pub groups: u64,
    /// Records that were replayed.
    pub records: u64,
    /// Where the late-bound values of those records were.
    pub bound: Bound,
    /// Why the log ends.
    pub end: End,
    /// Checkpoints that were made on the way, because space was short.
    pub checkpoints: u64,
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
            (options.mode, survey.as_ref().and_then(Survey::damage))
        {
            return Err(damage);
        }
        if options.mode == Mode::ReadWrite {
            ring.spoil_torn(&disk)?;
        }
        let mut volume =
            Volume::at_checkpoint(disk, identity, superblock, newest, options, survey.as_ref())?;
        let recovery = match &survey {
            None => Recovery {
                groups: 0,
                records: 0,
                bound: Bound::default(),
                end: End::Clean,
                checkpoints: 0,
            },
            Some(survey) => {
                let result = volume.replay(survey);
                volume.or_fail(result)?
            }
        };
        Ok((volume, recovery))
    }

    /// The state of a checkpoint, which the caller has chosen and found sound; only to be read.
    pub(crate) fn of_checkpoint(disk: &Disk, superblock: Superblock) -> Result<Volume> {
        let identity = read_identity(disk)?;
        let newest = superblock.birth.epoch;
        let options = OpenOptions::new(Mode::Checkpoint, Box::new(|| 0));
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
        let mut space = Space::load(&disk, &superblock)?;
        for (group, extent) in survey.iter().flat_map(|survey| &survey.pins) {
            space.pin_logged(*group, *extent)?;
        }
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
            late_bytes: options.late_bytes,
            access,
        })
    }

    /// Pass 2: injects the records of the groups that pass 1 found sound.
    fn replay(&mut self, survey: &Survey) -> Result<Recovery> {
        let superblock = self.superblock.clone();
        let disk = self.store.disk.clone();
        let mut reader = LogReader::new(&disk, &superblock);
        let mut checkpoints = 0;
        for _ in 0..survey.groups {
            let before = reader.next_group();
            let Scanned { bytes, group, .. } = match reader.next()? {
                Ok(scanned) => scanned,
                Err(fault) => return Err(Error::corrupt(Place::Image, fault)),
            };
            checkpoints += u64::from(self.make_replay_room(before, bytes.len(), &group)?);
            self.replay_group(&disk, &group, &survey.lost)?;
        }
        Ok(Recovery {
            groups: survey.groups,
            records: survey.records,
            bound: survey.bound,
            end: survey.end.clone(),
            checkpoints,
        })
    }

    /// Makes a checkpoint before a group if there may be too little space for it: what the groups before
    /// it bound is not needed any more then.
    fn make_replay_room(
        &mut self,
        (unit, number): (u64, u64),
        bytes: usize,
        group: &Group,
    ) -> Result<bool> {
        let unbound = group.records.iter().flat_map(Record::unbound);
        let late: u64 = unbound.map(|range| u64::from(range.count)).sum();
        let need = self.need_blocks(bytes) + late;
        let gain = self.store.space.pinned_blocks() > 0 || self.store.dirty_bytes() > 0;
        if need <= self.store.space.free_blocks() || number == self.superblock.first_group || !gain
        {
            return Ok(false);
        }
        let wall = self.superblock.wall;
        self.write_checkpoint(wall, Continued::Replay { unit, group: number })?;
        Ok(true)
    }

    fn replay_group(&mut self, disk: &Disk, group: &Group, lost: &[Lost]) -> Result<()> {
        let bindings = Bindings::new(&group.bindings);
        let mut values = Values::new(disk, self.identity.volume);
        for record in &group.records {
            let mut waiting = Waiting { first: record.lsn, messages: Vec::new() };
            for (first, message) in record.numbered() {
                self.forget_lost(message);
                let RecordMessage::Unbound(key, count) = message else {
                    self.inject(&mut waiting, first, message.clone())?;
                    continue;
                };
                for at in 0..*count {
                    let msn = Msn(first.0 + u64::from(at));
                    let key = block_after(key, at).expect("the decoder has looked at the last");
                    let known = lost.binary_search_by_key(&msn, |lost| lost.msn).ok();
                    let value = match known.map(|at| &lost[at]) {
                        Some(lost) => {
                            self.store.lost.insert(key.clone(), lost.damage.clone());
                            Some(Default::default())
                        }
                        None => values.get(bindings.of(msn), &key, msn)?,
                    };
                    if let Some(value) = value {
                        let insert = RecordMessage::Point(TreeId::Data, key, Action::Insert(value));
                        self.inject(&mut waiting, msn, insert)?;
                    }
                }
            }
            self.flush_waiting(&mut waiting)?;
            self.next_msn = Msn(record.next_lsn().0);
            self.next_zone = self.next_zone.max(record.next_zone);
            self.next_ino = self.next_ino.max(record.next_ino);
        }
        Ok(())
    }

    /// Adds a message to those that are injected together, which have MSNs without a gap.
    fn inject(&mut self, waiting: &mut Waiting, msn: Msn, message: RecordMessage) -> Result<()> {
        let next = waiting.first.0 + waiting.messages.len() as u64;
        if next != msn.0 || waiting.messages.len() == VALUES_AT_ONCE {
            self.flush_waiting(waiting)?;
            waiting.first = Lsn(msn.0);
        }
        waiting.messages.push(message);
        Ok(())
    }

    fn flush_waiting(&mut self, waiting: &mut Waiting) -> Result<()> {
        tree::inject(&mut self.store, Msn(waiting.first.0), &waiting.messages)?;
        waiting.messages.clear();
        self.store.make_room()
    }

    /// A lost value that a later message covers is missed by nobody.
    fn forget_lost(&mut self, message: &RecordMessage) {
        let lost = &mut self.store.lost;
        if lost.is_empty() || message.tree() != TreeId::Data {
            return;
        }
        match message {
            RecordMessage::Point(_, key, _) => drop(lost.remove(key)),
            RecordMessage::RangeDelete(_, lo, hi) => lost.retain(|key, _| key < lo || key >= hi),
            RecordMessage::Unbound(first, count) => {
                let last = block_after(first, count - 1).unwrap_or_default();
                lost.retain(|key, _| key < first || *key > last || key.len() != first.len());
            }
        }
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

/// Messages of one record that are injected together, the first of which has this MSN.
struct Waiting {
    first: Lsn,
    messages: Vec<RecordMessage>,
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
