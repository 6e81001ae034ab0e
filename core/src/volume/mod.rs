//! The one state machine over the engine: create, open, commit, sync, checkpoint, recover.
//!
//! An operation is one transaction: a record of resolved messages for both trees, logged and injected
//! together. `sync` makes a prefix of the transactions durable through the log, a checkpoint through
//! the trees. A volume that is being built, or changed in bulk, does not log; then only a checkpoint
//! makes anything durable, and all of it at once.
//!
//! Large writes are bound late: the log names their keys, and when a group is sealed it says where their
//! values have been written (BetrFS 0.2 §3).
//!
//! Before the first record after opening, a checkpoint with a fresh nonce is made durable (the
//! fence), so that an abandoned future can never become valid again.

mod checkpoint;
mod commit;
mod counters;
mod create;
mod grow;
mod holds;
mod moment;
mod open;
mod raise;
mod reserve;
mod ring;
mod rollback;
mod room;
mod rooted;
mod trees;

use bytes::Bytes;

use crate::disk::{Disk, IoCounts};
use crate::error::{Error, Result, after};
use crate::format::{Features, Identity, Key, Op, RecordMessage, Superblock};
use crate::holds::Holds;
use crate::ids::*;
use crate::log::Log;
use crate::poison::Poison;
use crate::store::Store;
use crate::tree::{self, Cursor, Scan};
use trees::Held;

pub use crate::tuning::LATE_BYTES;
pub use checkpoint::{Checkpoint, Pruned, Syncing};
pub use commit::Due;
pub use counters::Counters;
pub use create::CreateOptions;
pub use holds::{HoldChange, holds_of, no_such_hold, superblock_of};
pub use moment::{Blurred, Found, Moment, Stopped, Until};
pub(crate) use open::Parts;
pub use open::{
    Mode, OpenOptions, Recovery, identity_again, note_error, read_identity, stated_bytes,
    write_identity,
};
pub use raise::raised;
pub(crate) use raise::{each_used, is_known};
pub use ring::{Ring, RingSlot, SlotState, slots_of};

/// What the trees of a volume hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The file system that [`crate::fs`] makes.
    Files,
    /// Keys and values of a program's own, through [`crate::kv`].
    Keys,
}

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
pub type NonceSource = Box<dyn FnMut() -> u64 + Send + Sync>;

/// An open volume.
pub struct Volume {
    trees: Held,
    disk: Disk,
    log: Log,
    superblock: Superblock,
    /// The nonce of the epoch before the superblock's.
    nonce_before: Nonce,
    /// Written after the first checkpoint of a new image.
    identity: Identity,
    unidentified: bool,
    nonces: NonceSource,
    /// Whether nonces may have been used before: then there must be no log groups.
    is_reproducible: bool,
    next_msn: Msn,
    next_zone: ZoneId,
    next_ino: Ino,
    /// From so many bytes of consecutive blocks on, values are written with their nodes, not to the log.
    late_bytes: usize,
    /// Seconds after which a checkpoint is made, and when the first transaction since the last one happened.
    checkpoint_after: Option<u64>,
    changed: Option<Time>,
    /// The latest time since the last checkpoint, of transactions, replayed records and `note_time`: that of the next one.
    latest: Option<Time>,
    /// The MSN that was next when everything pending had been moved to the leaves for lack of space.
    drained: Msn,
    /// Messages that can only make leaves shorter, since buffers were emptied of all of them.
    deletes: u64,
    access: Access,
    poison: Poison,
    counters: Counters,
    /// What the volume becomes with the next checkpoint, if it grows.
    larger: Option<Identity>,
    /// A sync or checkpoint that the device had no room for: it is finished before anything changes.
    unfinished: Option<Syncing>,
    /// The checkpoints that are kept.
    holds: Holds,
    /// Why a hold that is being dropped cannot be dropped any further, until that is told.
    drop_blocked: Option<Error>,
    /// Deletes that wait in buffers which could not be emptied, since holds keep what is below.
    deletes_passed: u64,
    /// The name under which the checkpoint that is being made is kept, if it is.
    taking: Option<String>,
}

/// What may be done to the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Nothing.
    ReadOnly,
    /// Anything; `fenced` says that the log may be written, `logged` that it is.
    ReadWrite { logged: bool, fenced: bool },
}

impl Volume {
    /// Who the volume is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Notes in the image, durably and at once, that an error was met: the next check looks at everything. Nothing comes
    /// of that where the volume is only read, or has no identity block yet. A volume that has failed can be told, too.
    pub fn note_error(&mut self) -> Result<()> {
        if self.access == Access::ReadOnly || self.unidentified || self.identity.error_met {
            return Ok(());
        }
        note_error(&self.disk, true)?;
        self.identity.error_met = true;
        if let Some(larger) = &mut self.larger {
            larger.error_met = true;
        }
        self.unfinished.iter_mut().for_each(Syncing::note_error);
        Ok(())
    }

    /// The first error in reading that has kept a step from being made, and nothing else from going on.
    pub fn error_passed_over(&self) -> Option<&str> {
        self.trees.wait().balance.error_passed_over()
    }

    /// The superblock of the last durable checkpoint.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether an operation failed half way, so that nothing more may be written.
    pub fn has_failed(&self) -> bool {
        self.poison.is_set()
    }

    /// The state that those who share the volume look at without it.
    pub(crate) fn poison(&self) -> &Poison {
        &self.poison
    }

    /// Whether there has been a checkpoint at all.
    pub fn is_formatted(&self) -> bool {
        self.superblock.birth.epoch > Epoch(0)
    }

    /// What the trees hold.
    pub fn content(&self) -> Content {
        content_of(&self.superblock)
    }

    /// The nodes, for those who look at structure.
    pub fn store(&self) -> &Store {
        &self.trees.wait().store
    }

    /// The MSN that the next message will take.
    pub fn next_msn(&self) -> Msn {
        self.next_msn
    }

    /// What has been done since the volume was opened.
    pub fn counters(&self) -> Counters {
        let space = &self.trees.wait().store.space;
        Counters {
            kept: space.kept(),
            scattered: space.scattered(),
            hold_pages: space.hold_pages(),
            ..self.counters
        }
    }

    /// What has been asked of the device.
    pub fn io_counts(&self) -> IoCounts {
        self.disk.counts()
    }

    /// The next free inode number, which is taken.
    pub fn take_ino(&mut self) -> Result<Ino> {
        let next = Ino(after("next inode", self.next_ino.0)?);
        Ok(std::mem::replace(&mut self.next_ino, next))
    }

    /// Sets the time of the next checkpoint, unless a transaction since the last checkpoint is later.
    pub fn note_time(&mut self, now: Time) {
        self.latest = self.latest.max(Some(now));
    }

    /// The inode number that the next new object gets.
    pub fn next_ino(&self) -> Ino {
        self.next_ino
    }

    /// The superblock with the numbers that are given out next as they are now.
    pub(crate) fn superblock_now(&self) -> Superblock {
        let (next_zone, next_ino, next_msn) = (self.next_zone, self.next_ino, self.next_msn);
        Superblock { next_zone, next_ino, next_msn, ..self.superblock.clone() }
    }

    /// These numbers have been given out, and those below them.
    pub fn given(&mut self, zone: Option<ZoneId>, ino: Option<Ino>) -> Result<()> {
        if let Some(zone) = zone {
            self.next_zone = self.next_zone.max(ZoneId(after("next zone id", zone.0)?));
        }
        if let Some(ino) = ino {
            self.next_ino = self.next_ino.max(Ino(after("next inode", ino.0)?));
        }
        Ok(())
    }

    /// The next free zone id, which is taken.
    pub fn take_zone(&mut self) -> Result<ZoneId> {
        let next = ZoneId(after("next zone id", self.next_zone.0)?);
        Ok(std::mem::replace(&mut self.next_zone, next))
    }

    /// The value of `key`.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>> {
        tree::get(&self.trees.wait().store, tree, key)
    }

    /// The entries of `tree` within `[lo, hi)`.
    pub fn cursor(&self, tree: TreeId, lo: Key, hi: Option<Key>) -> Cursor<'_> {
        Cursor::new(&self.trees.wait().store, tree, lo, hi)
    }

    /// The next entry of a scan that does not borrow the volume.
    pub fn advance(&self, scan: &mut Scan) -> Result<Option<(Key, Bytes)>> {
        scan.next(&self.trees.wait().store)
    }

    /// Each operation begins with this: nothing changes while the device holds something that it has no room for, or
    /// while a sync or checkpoint waits for room. So what is held is bounded by what one operation writes. The steps that
    /// are owed come first, too.
    fn ensure_ready(&mut self) -> Result<()> {
        self.check_writable()?;
        self.disk.settle()?;
        self.finish()?;
        self.make_owed_steps()
    }

    /// An error if the volume cannot be changed.
    fn check_writable(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::Misuse("the volume is open for reading only".into()));
        }
        self.poison.check_changes()
    }

    /// Whether operations are logged.
    fn is_logged(&self) -> bool {
        matches!(self.access, Access::ReadWrite { logged: true, .. })
    }

    /// Whether a checkpoint has to come before the first record: none has been made since the volume was opened.
    pub fn needs_fence(&self) -> bool {
        self.access == (Access::ReadWrite { logged: true, fenced: false })
    }

    /// Makes the steps that an earlier operation had no room for.
    fn make_owed_steps(&mut self) -> Result<()> {
        let owed = self.trees.wait_mut().owed.take();
        // What was done beside the foreground may have failed.
        self.poison.check_changes()?;
        let Some(claim) = owed else { return Ok(()) };
        let result = self.settle(claim).and_then(|()| self.evict(claim));
        if matches!(&result, Err(error) if error.is_host_full()) {
            self.trees.wait_mut().owed = Some(claim);
        }
        self.whole(result)
    }

    /// After an error inside the engine nothing more may be written. Not so where a checkpoint or a sync within an operation
    /// found no room on the device: it is whole, and goes on where it was.
    fn whole<T>(&self, result: Result<T>) -> Result<T> {
        self.poison.unless_whole(result)
    }

    /// Whether there is anything that the last checkpoint does not hold.
    pub fn has_changes(&self) -> bool {
        self.log.has_open() || self.log.fill().0 > 0 || self.trees.wait().store.dirty_bytes() > 0
    }

    /// Whether there is anything that would be lost if the power went now.
    pub fn has_unsynced(&self) -> bool {
        match self.access {
            _ if self.unfinished.is_some() => true,
            Access::ReadWrite { logged: false, .. } => self.trees.wait().store.dirty_bytes() > 0,
            _ => self.log.has_open(),
        }
    }

    /// How much of the log this epoch uses, and how large the log is, in bytes.
    pub fn log_fill(&self) -> (u64, u64) {
        self.log.fill()
    }

    /// Blocks that two more checkpoints give back: only the last one and the one before it use them.
    pub fn leaving_blocks(&self) -> u64 {
        self.trees.wait().store.space.leaving_blocks()
    }

    /// The error that there is no room, with what might make some.
    fn no_space(&self, need_blocks: u64) -> Error {
        let space = &self.trees.wait().store.space;
        let (free_blocks, held_blocks) = (space.free_blocks(), space.held_blocks());
        Error::NoSpace { need_blocks, free_blocks, held_blocks }
    }

    /// Total, free and available blocks of the image, as statfs shows them. How much is set aside depends on the roots of the trees:
    /// an error if one cannot be read.
    pub fn blocks(&self) -> Result<Blocks> {
        TreeId::ALL
            .into_iter()
            .try_for_each(|tree| self.trees.wait().store.root(tree).map(drop))?;
        let space = &self.trees.wait().store.space;
        let free = space.free_blocks() + space.leaving_blocks();
        let available = free.saturating_sub(self.reserved_blocks());
        Ok(Blocks { total: self.superblock.image_blocks, free, available })
    }
}

/// Counts of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// All of the image.
    pub total: u64,
    /// Those that hold nothing, or only what two more checkpoints give back.
    pub free: u64,
    /// Those that operations may take: the others are set aside so that nothing gets stuck, for moving pending messages to the
    /// leaves, and for deletes.
    pub available: u64,
}

/// What the trees of a volume hold.
pub fn content_of(superblock: &Superblock) -> Content {
    match superblock.features.incompatible & Features::KEYS {
        0 => Content::Files,
        _ => Content::Keys,
    }
}
