//! Making things durable: log groups and checkpoints.

use super::ring::slots_of;
use super::{Access, Volume, slot_block};
use crate::cache::Store;
use crate::error::{Result, after};
use crate::format::{Birth, IDENTITY_AT, RootRef, Superblock, limits};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};

/// Which log groups continue a checkpoint.
#[derive(Clone, Copy)]
pub(super) enum Continued {
    /// Those that are going to be written, from here on.
    Afresh,
    /// Those of the log that is being replayed, from this unit and number on.
    Replay { unit: u64, group: u64 },
}

impl Volume {
    /// Makes every transaction so far durable. Costs one flush of the device.
    pub fn sync(&mut self) -> Result<()> {
        if !self.writable()? {
            return self.checkpoint();
        }
        if !self.log.has_open() {
            return Ok(());
        }
        if self.access == (Access::ReadWrite { logged: true, fenced: false }) {
            // The fence holds everything that the group would: it is dropped.
            self.counters.fences += 1;
            return self.checkpoint();
        }
        // What the last records made obsolete takes room in the bindings, too.
        if self.store.late.bytes_max() > self.log.room() {
            self.counters.for_log += 1;
            return self.checkpoint();
        }
        let result = self.seal_group();
        self.or_fail(result)
    }

    /// Binds what is bound late and writes the group; the order of these writes does not matter, because
    /// the group counts only with all that it binds (the transactional checksum of SwimStore).
    fn seal_group(&mut self) -> Result<()> {
        let room = self.log.room();
        let used = self.store.late.bytes_max();
        self.store.bind_waiting(room.saturating_sub(used))?;
        let bindings = self.store.late.seal()?;
        self.counters.bound(&bindings);
        self.counters.groups += 1;
        let (birth, disk) = (self.superblock.birth, &self.store.disk);
        self.log.sync(disk, birth, self.nonce_before, &bindings)
    }

    /// Makes the state of both trees durable. Then the log starts afresh.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.checkpoint_at(self.superblock.wall)
    }

    /// A checkpoint that carries this wall time.
    pub fn checkpoint_at(&mut self, wall: Time) -> Result<()> {
        self.writable()?;
        let result = self.write_checkpoint(wall, Continued::Afresh);
        self.or_fail(result)?;
        self.punch();
        Ok(())
    }

    /// Gives back to the device what neither this checkpoint nor the one before it uses. Where that fails nothing
    /// is lost but room.
    fn punch(&mut self) {
        for row in self.store.space.take_released() {
            let (at, len) = (BlockNr(row.start).byte(), BlockNr(row.end - row.start).byte());
            if !matches!(self.store.disk.device().punch(at, len), Ok(true)) {
                return;
            }
        }
    }

    pub(super) fn write_checkpoint(&mut self, wall: Time, continued: Continued) -> Result<()> {
        let birth = self.store.birth();
        let next_epoch = Epoch(after("epoch", birth.epoch.0)?);
        self.prune()?;
        self.store.write_all()?;
        let Store { table, space, disk, .. } = &mut self.store;
        let root = table.write(space, birth)?;
        let map_hash = space.write_map(disk, self.superblock.map_start, birth)?;
        if !is_broken(Mutation::SuperblockBeforeFlush) {
            disk.flush()?;
        }
        let mut roots = vec![RootRef { epoch: birth.epoch, held: false, table: root }];
        roots.extend(self.superblock.roots.iter().copied().take(limits::ROOTS_MAX - 1));
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
        let next_msn = match is_broken(Mutation::MsnStale) {
            true => self.superblock.next_msn,
            false => self.next_msn,
        };
        let superblock = Superblock {
            birth,
            slot: slots_of(birth.epoch)[0],
            log_head,
            first_group,
            map_hash,
            table: root,
            next_node: self.store.next_node(),
            next_zone: self.next_zone,
            next_ino: self.next_ino,
            next_msn,
            wall,
            used_blocks: self.store.space.used_blocks(),
            growth: self.store.growth(),
            log_epoch,
            log_nonce,
            roots,
            ..self.superblock.clone()
        };
        self.write_superblock(&superblock)?;
        self.counters.checkpoints += 1;
        self.changed = None;
        self.nonce_before = self.superblock.birth.nonce;
        self.superblock = superblock;
        if self.unidentified {
            self.store.disk.write(IDENTITY_AT, &self.identity.encode())?;
            self.store.disk.flush()?;
            self.unidentified = false;
        }
        self.store.space.checkpointed(first_group);
        let nonce = Nonce((self.nonces)());
        self.store.begin_epoch(Birth { epoch: next_epoch, nonce, ..birth });
        if let Continued::Afresh = continued {
            self.store.late.clear();
            self.log.checkpointed();
            if let Access::ReadWrite { fenced, .. } = &mut self.access {
                *fenced = true;
            }
        }
        Ok(())
    }

    /// Writes the slots of the epoch: the first, durably; then the second, which becomes durable with
    /// the next flush, or at once where no log will bring one soon.
    fn write_superblock(&mut self, superblock: &Superblock) -> Result<()> {
        let slots = slots_of(superblock.birth.epoch);
        if let Some(larger) = &self.larger {
            // The second half of the ring is where only the new identity leads.
            let copy = Superblock { slot: slots[1], ..superblock.clone() };
            let disk = &self.store.disk;
            disk.write(slot_block(larger.ring, slots[1]).byte(), &copy.encode())?;
            disk.flush()?;
            self.identify_larger()?;
        }
        let disk = &self.store.disk;
        for slot in slots {
            let copy = Superblock { slot, ..superblock.clone() };
            disk.write(slot_block(self.identity.ring, slot).byte(), &copy.encode())?;
            if slot == slots[0] && is_broken(Mutation::SlotsAtOnce) {
                continue;
            }
            if slot == slots[0] || !matches!(self.access, Access::ReadWrite { logged: true, .. }) {
                disk.flush()?;
            }
        }
        Ok(())
    }
}
