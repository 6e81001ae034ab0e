//! Opening a volume, and recovery in two passes.
//!
//! Pass 1 walks the log groups after the checkpoint, verifies them and the extents that they bind, and pins those. Pass
//! 2 injects their records in LSN order. If space is short, it makes a checkpoint between two groups, from which the
//! rest of the log continues. Nothing is written in place except slots of the ring that a power cut has torn, so
//! recovery can start again after a crash at any moment. If the device may not be written, an overlay in memory takes
//! the writes of the replay.

use std::sync::Arc;

use super::holds::{hold_named, superblock_of};
use super::identity::read_identity;
use super::moment::{Stopped, Until};
use super::trees::{Trees, TreesHandle};
use super::{Access, Content, Counters, NonceSource, Ring, Transaction, Volume, content_of};

use crate::device::{Device, OverlayDevice};
use crate::disk::Disk;
use crate::error::{Error, Result, after};
use crate::format::{Birth, Features, Hold, Identity, Op, RecordMessage, Superblock};
use crate::holds::Holds;
use crate::ids::*;
use crate::log::{Log, Region, Survey, scan};
use crate::node::Node;
use crate::space::{DeadStack, Layout, Space};
use crate::store::{CacheBudget, Geometry, Store};
use crate::table::Table;
use crate::tree::Balance;
use crate::tuning::{LATE_BYTES, LEFT_DIRTY};

/// Which state an open volume shows, and whether it may change.
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
    /// The mode.
    pub mode: Mode,
    /// What the trees must hold; `None` accepts any content.
    pub content: Option<Content>,
    /// The slot of the ring to start from, instead of the newest.
    pub slot: Option<u32>,
    /// The name of the snapshot to open; only in [`Mode::Checkpoint`].
    pub hold: Option<String>,
    /// The end of the replay. A writable volume continues from there, and abandons the rest of the log.
    pub until: Until,
    /// The memory budget of the cache.
    pub cache: CacheBudget,
    /// A write of at least this number of bytes of consecutive blocks is bound late.
    pub late_bytes: usize,
    /// The age in seconds, by wall times, at which the first transaction after a checkpoint causes the next one;
    /// besides checkpoints for a full log or for lack of space.
    pub checkpoint_after: Option<u64>,
    /// Whether recovery makes a checkpoint between any two log groups, not only when space is short. For tests of
    /// this rare case.
    pub eager_checkpoints: bool,
    /// Whether every allocation of several blocks is scattered, as if no contiguous extents were free. For tests of
    /// this rare case.
    pub scatter: bool,
    /// Whether blocks that become free are punched out of the device after a checkpoint.
    pub punch: bool,
    /// The source of the nonces of later epochs.
    pub nonces: NonceSource,
    /// Whether nonces are derived from the opened superblock, so that the same changes give the same image (SPEC 14).
    /// No log groups may be written then: only a nonce that was never used before distinguishes new groups from
    /// old ones that a crash left. If the log holds records, nonces are taken from the source nevertheless.
    pub reproducible: bool,
}

impl OpenOptions {
    /// The newest superblock of a file system, with default sizes.
    pub fn new(mode: Mode, nonces: NonceSource) -> OpenOptions {
        let (cache, content) = (CacheBudget::default(), Some(Content::Files));
        let (slot, late_bytes, checkpoint_after) = (None, LATE_BYTES, None);
        let (eager_checkpoints, scatter, punch, reproducible) = (false, false, false, false);
        OpenOptions {
            mode,
            content,
            slot,
            hold: None,
            until: Until::End,
            cache,
            late_bytes,
            checkpoint_after,
            eager_checkpoints,
            scatter,
            punch,
            nonces,
            reproducible,
        }
    }
}

/// The parts of a volume.
pub(crate) struct Parts {
    pub disk: Disk,
    pub identity: Identity,
    pub superblock: Superblock,
    /// The newest epoch in any slot of the ring.
    pub newest: Epoch,
    pub space: Space,
    pub table: Table,
}

/// The result of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Pass 1: the valid groups, and why they end. All were replayed, unless the replay was to stop before.
    pub survey: Survey,
    /// Checkpoints made between groups, because space was short.
    pub checkpoints: u64,
    /// Where the replay ended, if it ended before the log.
    pub stopped: Option<Stopped>,
}

impl Volume {
    /// Opens the volume on `device` and recovers the records of its log.
    pub fn open(device: Arc<dyn Device>, options: OpenOptions) -> Result<(Volume, Recovery)> {
        let disk = Disk::new(match options.mode {
            Mode::ReadWrite => device.clone(),
            Mode::ReadOnly | Mode::Checkpoint => Arc::new(OverlayDevice::new(device.clone())),
        });
        let identity = read_identity(&disk)?;
        let ring = Ring::read(&disk, &identity)?;
        let mut superblock = ring.choose(options.slot)?.clone();
        let newest = ring.newest().map_or(superblock.birth.epoch, |newest| newest.birth.epoch);
        if let Some(name) = &options.hold {
            if options.mode != Mode::Checkpoint {
                return Err(Error::Misuse("a snapshot has no log, and cannot be changed".into()));
            }
            superblock = hold_named(&disk, &superblock, name)?;
        }
        check_features(&superblock, &options)?;
        let (eager, until) = (options.eager_checkpoints, options.until);
        let survey = match options.mode {
            Mode::Checkpoint => None,
            Mode::ReadOnly | Mode::ReadWrite => Some(scan(&disk, &superblock)?),
        };
        let writes = options.mode == Mode::ReadWrite;
        let damage = match survey.as_ref().and_then(Survey::damage).filter(|_| writes) {
            Some(damage) if until == Until::End => return Err(damage),
            damage => damage,
        };
        if writes {
            ring.check_readable()?;
            ring.mend_slots(&disk)?;
        }
        let mut volume =
            Volume::at_checkpoint(disk, identity, superblock, newest, options, survey.as_ref())?;
        let recovery = match survey {
            None => Recovery::default(),
            Some(survey) => {
                let first = volume.next_msn;
                let result = volume.replay(&survey, eager, until).and_then(|done| {
                    // Some of them may have been deletes.
                    volume.deletes = volume.next_msn.0.saturating_sub(first.0);
                    if writes {
                        let Trees { store, balance, .. } = volume.trees.wait_mut();
                        balance.enqueue_roots(store)?;
                        volume.trees.wait_mut().store.make_room(LEFT_DIRTY)?;
                    }
                    Ok(done)
                });
                let (checkpoints, stopped) = volume.poison_on_error(result)?;
                Recovery { survey, checkpoints, stopped }
            }
        };
        until.within(volume.next_msn)?;
        // Damage behind the end of the replay is abandoned with the rest of the log.
        match damage {
            Some(damage) if recovery.stopped.is_none() || !volume.store().lost.is_empty() => {
                Err(damage)
            }
            _ => Ok((volume, recovery)),
        }
    }

    /// The state of a checkpoint that the caller has chosen and verified; read-only.
    pub fn of_checkpoint(
        disk: &Disk,
        superblock: Superblock,
        cache: CacheBudget,
    ) -> Result<Volume> {
        let identity = read_identity(disk)?;
        let newest = superblock.birth.epoch;
        let options = OpenOptions { cache, ..OpenOptions::new(Mode::Checkpoint, Box::new(|| 0)) };
        Volume::at_checkpoint(disk.clone(), identity, superblock, newest, options, None)
    }

    /// Opens a hold of this volume as a read-only volume over the same device. It is valid only while the hold exists.
    /// This volume may change meanwhile.
    pub fn open_hold(&self, hold: &Hold, cache: CacheBudget) -> Result<Volume> {
        let superblock = superblock_of(&self.superblock, hold);
        let newest = self.trees.wait().store.birth().epoch;
        let options = OpenOptions { cache, ..OpenOptions::new(Mode::Checkpoint, Box::new(|| 0)) };
        let (disk, identity) = (self.disk.clone(), self.identity.clone());
        Volume::at_checkpoint(disk, identity, superblock, newest, options, None)
    }

    /// Assembles a volume of verified parts. Nodes may be missing until [`Volume::put_node`] adds them.
    pub(crate) fn assemble(parts: Parts, survey: &Survey, options: OpenOptions) -> Result<Volume> {
        Volume::of_parts(parts, options, Some(survey))
    }

    /// Adds a node that is not written yet.
    pub(crate) fn put_node(&mut self, node: Node) -> Result<()> {
        self.trees.wait_mut().store.add(node);
        self.trees.wait_mut().store.make_room(1.0)
    }

    /// Replays the valid groups of the log. Its lost values are given up: their keys of the data index become holes, with
    /// what was patched there later, since an older value would contradict the acknowledgement.
    pub(crate) fn replay_sound(&mut self, survey: &Survey) -> Result<()> {
        let result = self.replay(survey, false, Until::End);
        self.poison_on_error(result)?;
        let ranges: Vec<RecordMessage> = self
            .trees
            .wait_mut()
            .store
            .lost
            .take()
            .into_iter()
            .map(|(tree, lo, hi)| RecordMessage::RangeDelete(tree, lo, hi))
            .collect();
        if ranges.is_empty() {
            return Ok(());
        }
        let wall = self.superblock.wall;
        self.commit(Transaction { op: Op::Truncate, wall, messages: ranges }).map(drop)
    }

    fn at_checkpoint(
        disk: Disk,
        identity: Identity,
        superblock: Superblock,
        newest: Epoch,
        options: OpenOptions,
        survey: Option<&Survey>,
    ) -> Result<Volume> {
        // Pages of the space map that an older checkpoint used have been overwritten. A snapshot needs not even the
        // newest ones, 2 blocks for each 125 MiB of the volume, since nothing is allocated for it.
        let space = match options.mode {
            Mode::Checkpoint if options.hold.is_some() || superblock.birth.epoch < newest => {
                Space::empty(disk.clone(), &Layout::of(&superblock)?)
            }
            _ => Space::load(&disk, &superblock)?,
        };
        let table = Table::open(disk.clone(), identity.volume, superblock.table);
        let table = table.with_nodes(superblock.nodes).sharing(superblock.features.shares());
        let parts = Parts { disk, identity, superblock, newest, space, table };
        Volume::of_parts(parts, options, survey)
    }

    pub(super) fn of_parts(
        parts: Parts,
        options: OpenOptions,
        survey: Option<&Survey>,
    ) -> Result<Volume> {
        let Parts { disk, identity, superblock, newest, mut space, table } = parts;
        for (group, extent) in survey.iter().flat_map(|survey| &survey.pins) {
            space.pin_logged(*group, *extent)?;
        }
        let holds = &superblock.holds;
        space.hold(holds.newest, DeadStack::stored(holds.dead), holds.blocks);
        space.scatter_all(options.scatter);
        if options.punch {
            space.keep_released();
        }
        let geometry = Geometry {
            node_size: superblock.node_size,
            leaf_size: superblock.leaf_size,
            basement_size: superblock.basement_size,
            fanout: superblock.fanout,
        };
        // A volume that starts from an older slot must get an epoch above all newer slots.
        let epoch = Epoch(after("epoch", newest.0)?);
        let has_records = |survey: &Survey| survey.records > 0;
        let is_reproducible = options.reproducible && !survey.is_some_and(has_records);
        let mut nonces = match is_reproducible {
            true => derived_nonces(&superblock, newest),
            false => options.nonces,
        };
        let birth = Birth { epoch, nonce: Nonce(nonces()), ..superblock.birth };
        let dying = match options.mode {
            Mode::ReadWrite => table.dying(superblock.dying),
            Mode::ReadOnly | Mode::Checkpoint => Vec::new(),
        };
        let store =
            Store::new(disk, space, table, geometry, birth, superblock.next_node, options.cache)
                .with_inflow(superblock.inflow)
                .with_dying(dying, superblock.dying);
        let (head, group) = survey.map_or((0, 1), |survey| (survey.next_unit, survey.next_group));
        let access = match options.mode {
            Mode::ReadWrite => Access::ReadWrite { logged: true, fenced: false },
            Mode::ReadOnly | Mode::Checkpoint => Access::ReadOnly,
        };
        let prunes: &[_] = if access == Access::ReadOnly { &[] } else { &superblock.prunes };
        Ok(Volume {
            disk: store.disk.clone(),
            poison: store.poison.clone(),
            trees: TreesHandle::new(store, Balance::default().with_prunes(prunes)),
            log: Log::new(Region::of(&superblock), head, group),
            next_msn: superblock.next_msn,
            next: superblock.next,
            holds: Holds::of(superblock.holds.clone()),
            drop_blocked: None,
            deletes_passed: 0,
            taking: None,
            superblock,
            nonce_before: Nonce(0),
            identity,
            unidentified: false,
            nonces,
            is_reproducible,
            late_bytes: options.late_bytes,
            checkpoint_after: options.checkpoint_after,
            changed: None,
            latest: None,
            drained_at: Msn(0),
            deletes: 0,
            counters: Counters::default(),
            larger: None,
            unfinished: None,
            access,
        })
    }

    /// Changes the state after a replay, before it is used; in memory only, if the volume is read-only.
    pub(crate) fn amend(&mut self, messages: Vec<RecordMessage>) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let unlogged = Access::ReadWrite { logged: false, fenced: true };
        let before = std::mem::replace(&mut self.access, unlogged);
        let wall = self.superblock.wall;
        self.commit(Transaction { op: Op::Truncate, wall, messages })?;
        self.access = before;
        Ok(())
    }

    /// Makes a recovered state durable in the overlay of a read-only volume, so that the checker can read it like any
    /// other checkpoint. The device itself is not touched.
    pub fn settle_in_memory(&mut self) -> Result<Disk> {
        if self.access == Access::ReadOnly {
            self.access = Access::ReadWrite { logged: false, fenced: true };
            let result = self.checkpoint();
            self.access = Access::ReadOnly;
            result?;
        }
        Ok(self.trees.wait().store.disk.clone())
    }
}

/// Nonces derived from a superblock and from the newest epoch in any superblock.
fn derived_nonces(superblock: &Superblock, newest: Epoch) -> NonceSource {
    let before = Hash::of(&superblock.encode());
    let Birth { volume, .. } = superblock.birth;
    let mut epoch = newest.0;
    Box::new(move || {
        epoch = epoch.wrapping_add(1);
        let parts = [b"betr ", &volume.0[..], b"nonce", &epoch.to_le_bytes(), &before.0[..]];
        let hash = Hash::of(&parts.concat());
        u64::from_le_bytes(std::array::from_fn(|at| hash.0[at]))
    })
}

/// Checks the feature flags: an unknown one forbids writing, or any use.
fn check_features(superblock: &Superblock, options: &OpenOptions) -> Result<()> {
    let features = superblock.features;
    let unknown = features.incompatible & !Features::KEYS;
    if unknown != 0 {
        return Err(Error::Unsupported(format!("incompatible features {unknown:#x}")));
    }
    let content = content_of(superblock);
    if options.content.is_some_and(|wanted| wanted != content) {
        let text = match content {
            Content::Files => "it holds a file system, not keys and values of a program's own",
            Content::Keys => "it holds keys and values of a program's own, not a file system",
        };
        return Err(Error::Input(text.into()));
    }
    let bits = features.unknown_read_only();
    if bits != 0 && options.mode == Mode::ReadWrite {
        return Err(Error::Unsupported(format!("features {bits:#x}, which allow reading only")));
    }
    Ok(())
}
