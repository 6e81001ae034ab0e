//! The one state machine over the engine: create, open, commit, sync, checkpoint, recover.
//!
//! An operation is one transaction: a record of resolved messages for both trees, logged and injected
//! together. `sync` makes a prefix of the transactions durable through the log, a checkpoint through
//! the trees. A volume that is being built, or changed in bulk, does not log; then only a checkpoint
//! makes anything durable, and all of it at once.
//!
//! Before the first log group after opening, a checkpoint with a fresh nonce is made durable (the
//! fence), so that an abandoned future can never become valid again.

mod create;
mod layout;
mod open;
mod ring;

use bytes::Bytes;

use crate::cache::Store;
use crate::device::IoCounts;
use crate::error::{Error, Result, after};
use crate::format::{Birth, Identity, Key, Op, Record, RecordMessage, RootRef, Superblock, limits};
use crate::ids::*;
use crate::log::Log;
use crate::tree::{self, Cursor, Scan};

pub use create::CreateOptions;
pub use layout::{Layout, default_log_bytes, slot_block};
pub use open::{Mode, OpenOptions, Recovery, read_identity};
pub use ring::{Ring, RingSlot, SlotState};

/// A log group is sealed when it is this long, in bytes, or a quarter of the log.
const GROUP_BYTES: u64 = 4 << 20;

/// One operation, ready to be made durable as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// What it is, for people.
    pub op: Op,
    /// When it happens.
    pub wall: Time,
    /// Its messages, in order; at least one.
    pub messages: Vec<RecordMessage>,
}

/// Gives out the nonces of epochs: fresh numbers that were never used before.
pub type NonceSource = Box<dyn FnMut() -> u64 + Send>;

/// An open volume.
pub struct Volume {
    store: Store,
    log: Log,
    superblock: Superblock,
    /// The nonce of the epoch before the superblock's.
    nonce_before: Nonce,
    /// Written after the first checkpoint of a new image.
    identity: Identity,
    unidentified: bool,
    nonces: NonceSource,
    next_msn: Msn,
    next_zone: ZoneId,
    next_ino: Ino,
    access: Access,
}

/// What may be done to the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Nothing.
    ReadOnly,
    /// Anything; `fenced` says that the log may be written, `logged` that it is.
    ReadWrite { logged: bool, fenced: bool },
    /// Nothing any more: an operation failed half way.
    Failed,
}

impl Volume {
    /// Who the volume is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The superblock of the last durable checkpoint.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether there has been a checkpoint at all.
    pub fn is_formatted(&self) -> bool {
        self.superblock.birth.epoch > Epoch(0)
    }

    /// The nodes, for those who look at structure.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The MSN that the next message will take.
    pub fn next_msn(&self) -> Msn {
        self.next_msn
    }

    /// What has been asked of the device.
    pub fn io_counts(&self) -> IoCounts {
        self.store.disk.counts()
    }

    /// The next free inode number, which is taken.
    pub fn take_ino(&mut self) -> Result<Ino> {
        let next = Ino(after("next inode", self.next_ino.0)?);
        Ok(std::mem::replace(&mut self.next_ino, next))
    }

    /// The next free zone id, which is taken.
    pub fn take_zone(&mut self) -> Result<ZoneId> {
        let next = ZoneId(after("next zone id", self.next_zone.0)?);
        Ok(std::mem::replace(&mut self.next_zone, next))
    }

    /// The value of `key`.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>> {
        tree::get(&self.store, tree, key)
    }

    /// The entries of `tree` within `[lo, hi)`.
    pub fn cursor(&self, tree: TreeId, lo: Key, hi: Option<Key>) -> Cursor<'_> {
        Cursor::new(&self.store, tree, lo, hi)
    }

    /// The next entry of a scan that does not borrow the volume.
    pub fn advance(&self, scan: &mut Scan) -> Result<Option<(Key, Bytes)>> {
        scan.next(&self.store)
    }

    /// From now on transactions are not logged: durable is what a checkpoint makes so.
    pub fn stop_logging(&mut self) -> Result<()> {
        self.checkpoint_if_logged()?;
        if let Access::ReadWrite { logged, .. } = &mut self.access {
            *logged = false;
        }
        Ok(())
    }

    fn checkpoint_if_logged(&mut self) -> Result<()> {
        if self.log.has_open() { self.sync() } else { Ok(()) }
    }

    /// Carries out a transaction: all of it, or, if there is an error, nothing that will be durable.
    /// Returns its LSN.
    pub fn commit(&mut self, transaction: Transaction) -> Result<Lsn> {
        let logged = self.writable()?;
        let count = transaction.messages.len();
        if count == 0 || count > limits::RECORD_MESSAGES_MAX as usize {
            return Err(Error::Misuse(format!("an operation of {count} messages")));
        }
        if let Some(bytes) = transaction.messages.iter().find_map(RecordMessage::beyond_limits) {
            return Err(Error::Misuse(format!("a message with a key or value of {bytes} bytes")));
        }
        after("next MSN", self.next_msn.0.saturating_add(count as u64 - 1))?;
        let bytes = Record::encoded_bytes(&transaction.messages);
        if logged && bytes > self.log.record_max() {
            let max = self.log.record_max();
            return Err(Error::Misuse(format!(
                "an operation of {bytes} bytes, but the log holds {max}"
            )));
        }
        self.admit(bytes, logged)?;
        let result = self.carry_out(transaction, bytes, logged);
        self.or_fail(result)
    }

    fn carry_out(&mut self, transaction: Transaction, bytes: usize, logged: bool) -> Result<Lsn> {
        let Transaction { op, wall, messages } = transaction;
        if logged {
            self.make_log_room(bytes)?;
        }
        let lsn = Lsn(self.next_msn.0);
        let (next_zone, next_ino) = (self.next_zone, self.next_ino);
        let record = Record { lsn, op, wall, next_zone, next_ino, messages };
        if logged {
            self.log.append(&record);
        }
        self.inject(&record)?;
        self.store.make_room()?;
        Ok(lsn)
    }

    fn inject(&mut self, record: &Record) -> Result<()> {
        tree::inject(&mut self.store, Msn(record.lsn.0), &record.messages)?;
        self.next_msn = Msn(record.next_lsn().0);
        Ok(())
    }

    /// Seals the open group where it is long enough, and checkpoints where the log is full.
    fn make_log_room(&mut self, bytes: usize) -> Result<()> {
        let (_, size) = self.log.fill();
        if self.log.has_open()
            && self.log.open_bytes() as u64 + bytes as u64 > GROUP_BYTES.min(size / 4)
        {
            self.sync()?;
        }
        if !self.log.fits(bytes) { self.checkpoint() } else { Ok(()) }
    }

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
            return self.checkpoint();
        }
        let result = self.log.sync(&self.store.disk, self.superblock.birth, self.nonce_before);
        self.or_fail(result)
    }

    /// Makes the state of both trees durable. Then the log starts afresh.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.checkpoint_at(self.superblock.wall)
    }

    /// A checkpoint that carries this wall time.
    pub fn checkpoint_at(&mut self, wall: Time) -> Result<()> {
        self.writable()?;
        let result = self.write_checkpoint(wall);
        self.or_fail(result)
    }

    fn write_checkpoint(&mut self, wall: Time) -> Result<()> {
        let birth = self.store.birth();
        let next_epoch = Epoch(after("epoch", birth.epoch.0)?);
        self.store.write_all()?;
        let Store { table, space, disk, .. } = &mut self.store;
        let root = table.write(space, birth)?;
        let map_hash = space.write_map(disk, self.superblock.map_start, birth)?;
        disk.flush()?;
        let mut roots = vec![RootRef { epoch: birth.epoch, held: false, table: root }];
        roots.extend(self.superblock.roots.iter().copied().take(limits::ROOTS_MAX - 1));
        let superblock = Superblock {
            birth,
            slot: ring::slots_of(birth.epoch)[0],
            log_head: self.log.head(),
            first_group: self.log.next_group(),
            map_hash,
            table: root,
            next_node: self.store.next_node(),
            next_zone: self.next_zone,
            next_ino: self.next_ino,
            next_msn: self.next_msn,
            wall,
            used_blocks: self.store.space.used_blocks(),
            roots,
            ..self.superblock.clone()
        };
        self.write_superblock(&superblock)?;
        self.nonce_before = self.superblock.birth.nonce;
        self.superblock = superblock;
        if self.unidentified {
            self.store.disk.write(crate::format::IDENTITY_AT, &self.identity.encode())?;
            self.store.disk.flush()?;
            self.unidentified = false;
        }
        self.store.space.checkpointed();
        self.log.checkpointed();
        let nonce = Nonce((self.nonces)());
        self.store.begin_epoch(Birth { epoch: next_epoch, nonce, ..birth });
        if let Access::ReadWrite { fenced, .. } = &mut self.access {
            *fenced = true;
        }
        Ok(())
    }

    /// Writes the slots of the epoch: the first, durably; then the second, which becomes durable with
    /// the next flush, or at once where no log will bring one soon.
    fn write_superblock(&mut self, superblock: &Superblock) -> Result<()> {
        let disk = &self.store.disk;
        let slots = ring::slots_of(superblock.birth.epoch);
        for slot in slots {
            let copy = Superblock { slot, ..superblock.clone() };
            disk.write(slot_block(self.identity.ring, slot).byte(), &copy.encode())?;
            if slot == slots[0] || !matches!(self.access, Access::ReadWrite { logged: true, .. }) {
                disk.flush()?;
            }
        }
        Ok(())
    }

    /// Refuses, before anything has changed, what the volume has no room for.
    fn admit(&mut self, bytes: usize, logged: bool) -> Result<()> {
        for attempt in 0..3 {
            let need = self.need_blocks(bytes);
            let free = self.store.space.free_blocks();
            if need <= free {
                return Ok(());
            }
            let gain = self.store.space.held_blocks() > 0 || self.store.dirty_bytes() > 0;
            // What is not logged becomes durable all at once, so no checkpoint may come in between.
            if attempt == 2 || !gain || !logged {
                return Err(Error::NoSpace { need_blocks: need, free_blocks: free });
            }
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Blocks that must be free: for what is dirty, for the operation, and for the flushes and the
    /// checkpoint that follow.
    fn need_blocks(&self, bytes: usize) -> u64 {
        let geometry = self.store.geometry;
        let dirty = self.store.dirty_bytes() as u64;
        let reserve =
            4 * u64::from(geometry.leaf_size) + u64::from(geometry.node_size) + (64 << 10);
        (dirty + dirty / 8 + bytes as u64 + reserve) / BLOCK_SIZE as u64
    }

    /// Whether the volume logs; an error if it cannot be written.
    fn writable(&self) -> Result<bool> {
        match self.access {
            Access::ReadWrite { logged, .. } => Ok(logged),
            Access::ReadOnly => Err(Error::Misuse("the volume is open for reading only".into())),
            Access::Failed => Err(Error::Misuse(
                "an earlier operation failed half way; nothing more is written: open the image again".into(),
            )),
        }
    }

    /// After an error inside the engine nothing more may be written: memory may be half changed.
    fn or_fail<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.access = Access::Failed;
        }
        result
    }

    /// How much of the log this epoch uses, and how large the log is, in bytes.
    pub fn log_fill(&self) -> (u64, u64) {
        self.log.fill()
    }

    /// Free and total blocks of the image, as statfs shows them.
    pub fn free_blocks(&self) -> (u64, u64) {
        let space = &self.store.space;
        (space.free_blocks() + space.held_blocks(), self.superblock.image_blocks)
    }
}
