//! Durability: log groups and checkpoints.
//!
//! Each is made in three steps, so that a shared volume can serve readers meanwhile. The first changes the volume and
//! writes; the second waits for the device, writes the superblock, and does not use the volume; the third records the
//! result. No transaction
//! may run between the steps.

use super::ring::slots_of;
use super::{Access, Volume};
use crate::device::SECTOR;
use crate::disk::Disk;
use crate::error::{Error, Result, after};
use crate::format::{
    Binding, Birth, DeadList, Hold, HoldState, IDENTITY_AT, Identity, Superblock, TableRoot,
};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::space::{DeadStack, Layout, slot_block};
use crate::store::Store;
use crate::tuning::PRUNED_IN_CHECKPOINT;

/// The log groups that continue a checkpoint.
#[derive(Clone, Copy)]
pub(super) enum Continued {
    /// Groups that are yet to be written, from here on.
    Afresh,
    /// Groups of the log that is being replayed, from this unit and number on.
    Replay { unit: u64, group: u64 },
}

/// How many of the leaves that range deletes cover are dropped before a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruned {
    /// None.
    None,
    /// At most as many as readers can wait for; the rest later, piece by piece ([`Volume::prune_some`]).
    Some,
    /// All for which there is space.
    All,
}

/// A checkpoint that is written except for its superblock.
pub struct Checkpoint {
    disk: Disk,
    superblock: Superblock,
    /// The identity of the volume after the checkpoint.
    identity: Identity,
    identify: Identify,
    /// Whether no log flush will soon make the second slot durable, so that the checkpoint must flush itself.
    alone: bool,
    continued: Continued,
    next_epoch: Epoch,
}

/// What a checkpoint does with the identity block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identify {
    /// Nothing.
    No,
    /// Writes it for the first time, after the superblock: this makes the device an image.
    First,
    /// Rewrites it, so that it names the second half of the ring of a larger volume.
    Larger,
}

/// What a sync waits for.
pub enum Syncing {
    /// Nothing: everything is durable.
    Nothing,
    /// A flush of the device, after which a log group counts.
    Group(Disk),
    /// A checkpoint.
    Checkpoint(Box<Checkpoint>),
}

impl Syncing {
    /// Sets the error flag in the identity block that the checkpoint in progress writes.
    pub(super) fn note_error(&mut self) {
        if let Syncing::Checkpoint(checkpoint) = self {
            checkpoint.identity.error_met = true;
        }
    }

    /// Waits until all is durable.
    pub fn wait(&self) -> Result<()> {
        match self {
            Syncing::Nothing => Ok(()),
            Syncing::Group(_) if is_broken(Mutation::SyncUnflushed) => Ok(()),
            Syncing::Group(disk) => disk.flush(),
            Syncing::Checkpoint(checkpoint) => checkpoint.wait(),
        }
    }
}

impl Checkpoint {
    /// Flushes what has been written, then writes the superblock and flushes it.
    pub fn wait(&self) -> Result<()> {
        let Checkpoint { disk, identity, superblock, .. } = self;
        if !is_broken(Mutation::SuperblockBeforeFlush) {
            disk.flush()?;
        }
        let write_slot = |slot: u32| {
            let copy = Superblock { slot, ..superblock.clone() };
            disk.write(slot_block(identity.ring, slot).byte(), &copy.encode())
        };
        let slots = slots_of(superblock.birth.epoch);
        if self.identify == Identify::Larger {
            // The second half of the ring is where only the new identity block points. Its sizes and its hash are in
            // the first sector.
            write_slot(slots[1])?;
            disk.flush()?;
            disk.write(IDENTITY_AT, &identity.encode()[..SECTOR])?;
            disk.flush()?;
        }
        // The first slot is flushed before the second is written. The second becomes durable with the next flush, or at
        // once if no log flush comes soon.
        write_slot(slots[0])?;
        if !is_broken(Mutation::SlotsAtOnce) {
            disk.flush()?;
        }
        write_slot(slots[1])?;
        if self.alone {
            disk.flush()?;
        }
        if self.identify == Identify::First {
            disk.write(IDENTITY_AT, &identity.encode())?;
            disk.flush()?;
        }
        Ok(())
    }
}

impl Volume {
    /// Makes every transaction so far durable. Costs one flush of the device, or a checkpoint where one is due.
    pub fn sync(&mut self) -> Result<()> {
        let syncing = self.begin_sync()?;
        let waited = syncing.wait();
        self.end_sync(syncing, waited)
    }

    /// The first step of a sync.
    pub fn begin_sync(&mut self) -> Result<Syncing> {
        if let Some(unfinished) = self.unfinished.take() {
            return Ok(unfinished);
        }
        self.check_writable()?;
        if self.is_logged() && self.log.has_open() && self.trees.are_away() {
            // The transaction being injected holds no late-bound values.
            self.counters.beside += 1;
            let result = self.write_group(&[]);
            self.poison_on_error(result)?;
            return Ok(Syncing::Group(self.disk.clone()));
        }
        self.make_owed_steps()?;
        if !self.is_logged() {
            return self.sync_whole();
        }
        if !self.log.has_open() {
            self.disk.write_deferred()?;
            return Ok(match self.log.is_flushed() {
                true => Syncing::Nothing,
                false => Syncing::Group(self.disk.clone()),
            });
        }
        // Bindings also need log space for values that the last records made obsolete.
        if self.trees.wait().store.late.bytes_max() > self.log.room() {
            self.counters.for_log += 1;
            return self.sync_whole();
        }
        let result = self.seal_group();
        self.poison_on_error(result)?;
        Ok(Syncing::Group(self.disk.clone()))
    }

    /// Makes the checkpoint before the first record after opening, the fence: from then on, groups of an abandoned
    /// future in the log cannot become valid. Nothing has changed yet, so it writes one page of the space map and the
    /// superblock, unless a recovery left more.
    pub(super) fn fence(&mut self) -> Result<()> {
        if !self.needs_fence() {
            return Ok(());
        }
        self.counters.fences += 1;
        self.checkpoint_with(Pruned::None)
    }

    fn sync_whole(&mut self) -> Result<Syncing> {
        let checkpoint = self.begin_checkpoint(Pruned::Some)?;
        Ok(Syncing::Checkpoint(Box::new(checkpoint)))
    }

    /// The last step of a sync; `waited` is the result of waiting.
    pub fn end_sync(&mut self, syncing: Syncing, waited: Result<()>) -> Result<()> {
        if matches!(&waited, Err(error) if error.is_host_full()) {
            self.unfinished = Some(syncing);
            return waited;
        }
        self.poison_on_error(waited)?;
        match syncing {
            Syncing::Nothing => {}
            Syncing::Group(_) => self.log.flushed(),
            Syncing::Checkpoint(checkpoint) => {
                self.start_next_epoch(*checkpoint);
                self.punch();
            }
        }
        Ok(())
    }

    /// Finishes a sync or checkpoint that a full host interrupted. Waiting again writes the same bytes again.
    pub(super) fn finish_interrupted(&mut self) -> Result<()> {
        let Some(unfinished) = self.unfinished.take() else { return Ok(()) };
        let waited = unfinished.wait();
        self.end_sync(unfinished, waited)
    }

    /// Binds the late-bound values and writes the group. The order of these writes does not matter, because the group
    /// is valid only with everything that it binds (the transactional checksum of SwimStore).
    fn seal_group(&mut self) -> Result<()> {
        let room = self.log.room();
        let used = self.trees.wait().store.late.bytes_max();
        self.trees.wait_mut().store.bind_waiting(room.saturating_sub(used))?;
        let bindings = self.trees.wait_mut().store.late.seal()?;
        self.write_group(&bindings)
    }

    /// Ends the open group, so that the next record begins another one. The next flush makes both durable: the second
    /// counts only if the first does.
    pub(super) fn end_group(&mut self) -> Result<()> {
        if !self.log.has_open() || is_broken(Mutation::CloneWithinGroup) {
            return Ok(());
        }
        match self.begin_sync()? {
            Syncing::Nothing | Syncing::Group(_) => Ok(()),
            Syncing::Checkpoint(checkpoint) => {
                let waited = checkpoint.wait();
                self.end_checkpoint(*checkpoint, waited)
            }
        }
    }

    fn write_group(&mut self, bindings: &[Binding]) -> Result<()> {
        debug_assert!(!self.needs_fence(), "a log group before the fence");
        self.counters.bound(bindings);
        self.counters.groups += 1;
        if self.is_reproducible {
            let text = "a log group in an epoch whose nonce may have been used before";
            return Err(Error::Misuse(text.into()));
        }
        self.log.write(&self.disk, self.superblock.birth, self.nonce_before, bindings)
    }

    /// Makes the state of both trees durable, without the leaves that range deletes cover. Then the log starts afresh.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.checkpoint_with(Pruned::All)
    }

    /// As [`Volume::checkpoint`], with a given amount of pruning.
    pub fn checkpoint_with(&mut self, pruned: Pruned) -> Result<()> {
        let checkpoint = self.begin_checkpoint(pruned)?;
        let waited = checkpoint.wait();
        self.end_checkpoint(checkpoint, waited)
    }

    /// Writes some of the dirty nodes ahead of a checkpoint. Returns whether many more are dirty.
    pub fn clean_some(&mut self) -> Result<bool> {
        self.ensure_ready()?;
        let result = self.trees.wait_mut().store.clean_some();
        self.poison_on_error(result)
    }

    /// The first step of a checkpoint.
    pub fn begin_checkpoint(&mut self, pruned: Pruned) -> Result<Checkpoint> {
        self.check_writable()?;
        self.finish_interrupted()?;
        self.make_owed_steps()?;
        if self.error_passed_over().is_some() {
            self.note_error()?;
        }
        let result = self.prepare(Continued::Afresh, pruned);
        self.poison_on_error(result)
    }

    /// The last step of a checkpoint; `waited` is the result of waiting.
    pub fn end_checkpoint(&mut self, checkpoint: Checkpoint, waited: Result<()>) -> Result<()> {
        self.end_sync(Syncing::Checkpoint(Box::new(checkpoint)), waited)
    }

    /// Punches blocks out of the device that neither this checkpoint nor the one before it uses. An error only costs
    /// space on the host.
    fn punch(&mut self) {
        for row in self.trees.wait_mut().store.space.take_released() {
            let (at, len) = (BlockNr(row.start).byte(), BlockNr(row.end - row.start).byte());
            if !matches!(self.trees.wait().store.disk.device().punch(at, len), Ok(true)) {
                return;
            }
        }
    }

    pub(super) fn write_checkpoint(&mut self, continued: Continued) -> Result<()> {
        let checkpoint = self.prepare(continued, Pruned::All)?;
        checkpoint.wait()?;
        self.start_next_epoch(checkpoint);
        Ok(())
    }

    /// Writes everything except the superblock. The checkpoint's wall time is the latest of the transactions, replayed
    /// records and calls of [`Volume::note_time`] since the last checkpoint; callers do not pass one, which could be
    /// stale.
    pub(super) fn prepare(&mut self, continued: Continued, pruned: Pruned) -> Result<Checkpoint> {
        let birth = self.trees.wait().store.birth();
        let next_epoch = Epoch(after("epoch", birth.epoch.0)?);
        let compact = self.trees.wait().store.writes_compactly();
        self.prune(match pruned {
            Pruned::None => 0,
            Pruned::Some => PRUNED_IN_CHECKPOINT,
            Pruned::All => u64::MAX,
        })?;
        self.trees.wait_mut().store.write_all()?;
        self.trees.wait_mut().store.set_compact_writes(compact);
        let next_msn = match is_broken(Mutation::MsnStale) {
            true => self.superblock.next_msn,
            false => self.next_msn,
        };
        let wall = self.latest.unwrap_or(self.superblock.wall);
        let Store { table, space, .. } = &mut self.trees.wait_mut().store;
        let root = table.write(space, birth)?;
        let mut dead = space.seal_dead(birth)?;
        if let Some(name) = self.taking.take() {
            self.hold_checkpoint(name, root, dead, (next_msn, wall))?;
            dead = DeadList::default();
        }
        let Store { space, disk, .. } = &mut self.trees.wait_mut().store;
        let holds = self.holds.write(space, dead, birth)?;
        let map_hash = space.write_map(disk, birth, next_msn)?;
        let (log_head, first_group) = match continued {
            Continued::Afresh => (self.log.head(), self.log.next_group()),
            Continued::Replay { unit, group } => (unit, group),
        };
        let (log_epoch, log_nonce) = match continued {
            Continued::Afresh => (birth.epoch, birth.nonce),
            Continued::Replay { .. } if is_broken(Mutation::ReplayCutOff) => {
                (birth.epoch, birth.nonce)
            }
            Continued::Replay { .. } => (self.superblock.log_epoch, self.superblock.log_nonce),
        };
        let superblock = Superblock {
            birth,
            slot: slots_of(birth.epoch)[0],
            log_head,
            first_group,
            map_hash,
            table: root,
            next_node: self.trees.wait().store.next_node(),
            next: self.next,
            next_msn,
            wall,
            used_blocks: self.trees.wait().store.space.used_blocks(),
            inflow: self.trees.wait().store.inflow(),
            nodes: self.trees.wait().store.table.nodes(),
            log_epoch,
            log_nonce,
            holds,
            prunes: self.trees.wait().balance.prunes_left(),
            dying: self.trees.wait().store.dying(),
            ..self.superblock.clone()
        };
        let (identity, identify) = match (self.larger.take(), self.unidentified) {
            (Some(larger), _) => (larger, Identify::Larger),
            (None, true) => (self.identity.clone(), Identify::First),
            (None, false) => (self.identity.clone(), Identify::No),
        };
        let alone = !self.is_logged();
        let disk = self.disk.clone();
        Ok(Checkpoint { disk, superblock, identity, identify, alone, continued, next_epoch })
    }

    /// Adds a hold for the checkpoint whose nodes and table have been written. `dead` is the dead list since the hold
    /// before.
    fn hold_checkpoint(
        &mut self,
        name: String,
        table: TableRoot,
        dead: DeadList,
        (next_msn, wall): (Msn, Time),
    ) -> Result<()> {
        let fixed: u64 =
            Layout::of(&self.superblock)?.fixed().iter().map(|(_, blocks)| blocks).sum();
        let store = &mut self.trees.wait_mut().store;
        let Birth { epoch, nonce, .. } = store.birth();
        let alone = fixed.saturating_add(store.space.held_blocks());
        let used_blocks = store.space.used_blocks().saturating_sub(alone);
        let (next_node, inflow) = (store.next_node(), store.inflow());
        let (nodes, dying) = (store.table.nodes(), store.dying());
        store.space.replace_newest_hold(epoch, DeadStack::default());
        self.holds.put(Hold {
            state: HoldState::Held,
            kept: false,
            epoch,
            nonce,
            wall,
            table,
            next_node,
            next: self.next,
            next_msn,
            inflow,
            nodes,
            dying,
            image_blocks: self.superblock.image_blocks,
            used_blocks,
            dead,
            name,
        });
        Ok(())
    }

    /// Starts the next epoch: the checkpoint is durable.
    fn start_next_epoch(&mut self, checkpoint: Checkpoint) {
        let Checkpoint { superblock, identity, continued, next_epoch, .. } = checkpoint;
        self.counters.checkpoints += 1;
        (self.changed, self.latest) = (None, None);
        self.nonce_before = self.superblock.birth.nonce;
        let error_met = self.identity.error_met || identity.error_met;
        (self.identity, self.unidentified) = (Identity { error_met, ..identity }, false);
        self.trees.wait_mut().store.space.checkpointed(superblock.first_group);
        let nonce = Nonce((self.nonces)());
        self.trees.wait_mut().store.begin_epoch(Birth {
            epoch: next_epoch,
            nonce,
            ..superblock.birth
        });
        self.superblock = superblock;
        if let Continued::Afresh = continued {
            self.trees.wait_mut().store.late.clear();
            self.log.checkpointed();
            if let Access::ReadWrite { fenced, .. } = &mut self.access {
                *fenced = true;
            }
        }
    }
}
