//! The volume: the state machine over the engine. Create, open, commit, sync, checkpoint, recover.
//!
//! An operation is one transaction: a record of resolved messages for both trees, logged and injected together. `sync`
//! makes a prefix of the transactions durable through the log, a checkpoint through the trees. A volume that is being
//! built, or changed in bulk, does not log. Then only a checkpoint makes anything durable, and all of it at once.
//!
//! Large writes are bound late: the log names their keys, and a sealed group says where their values have been written
//! (BetrFS 0.2 §3).
//!
//! Before the first record after opening, a checkpoint with a fresh nonce is made durable (the fence), so that an
//! abandoned future can never become valid again.

mod admission;
mod carve;
mod checkpoint;
mod clone;
mod commit;
mod counters;
mod create;
mod grow;
mod holds;
mod identity;
mod moment;
mod open;
mod raise;
mod replay;
mod reserve;
mod ring;
mod rollback;

mod rooted;
mod trees;

use bytes::Bytes;

use crate::disk::{Disk, IoCounts};
use crate::error::{Error, Result, after};
use crate::format::limits::{INODES_END, TAGS_END};
use crate::format::{Features, Identity, Key, NextNumbers, Op, RecordMessage, Superblock};
use crate::holds::Holds;
use crate::ids::*;
use crate::log::Log;
use crate::poison::Poison;
use crate::store::Store;
use crate::tree::{self, Cursor, Scan};
use trees::TreesHandle;

pub use crate::tuning::LATE_BYTES;
pub use checkpoint::{Checkpoint, Pruned, Syncing};
pub use commit::Due;
pub use counters::Counters;
pub use create::CreateOptions;
pub use holds::{HoldChange, holds_of, no_such_hold, superblock_of};
pub use identity::{identity_again, note_error, read_identity, stated_bytes, write_identity};
pub use moment::{EndOfGroupValue, Found, Moment, Stopped, Until};
pub(crate) use open::Parts;
pub use open::{Mode, OpenOptions, Recovery};
pub use raise::raised;
pub(crate) use raise::{each_used, is_known};
pub use ring::{Ring, RingSlot, SlotState, slots_of};

/// What the trees of a volume hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The file system of [`crate::fs`].
    Files,
    /// Keys and values of an application, through [`crate::kv`].
    Keys,
}

/// One operation, ready to be made durable as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its kind, for display.
    pub op: Op,
    /// Its wall time.
    pub wall: Time,
    /// Its messages, in order; at least one.
    pub messages: Vec<RecordMessage>,
}

/// A source of nonces of epochs: fresh numbers that were never used before.
pub type NonceSource = Box<dyn FnMut() -> u64 + Send + Sync>;

/// An open volume.
pub struct Volume {
    trees: TreesHandle,
    disk: Disk,
    log: Log,
    superblock: Superblock,
    /// The nonce of the epoch before the superblock's.
    nonce_before: Nonce,
    /// Written with the first checkpoint of a new image.
    identity: Identity,
    unidentified: bool,
    nonces: NonceSource,
    /// Whether nonces may repeat: then no log groups may be written.
    is_reproducible: bool,
    next_msn: Msn,
    next: NextNumbers,
    /// From this number of bytes of consecutive blocks on, values are bound late: written with their nodes, not to the
    /// log.
    late_bytes: usize,
    /// The age in seconds at which a checkpoint is made, and the time of the first transaction since the last one.
    checkpoint_after: Option<u64>,
    changed: Option<Time>,
    /// The wall time of the next checkpoint: the latest of transactions, replayed records and `note_time` since the
    /// last checkpoint.
    latest: Option<Time>,
    /// The next MSN at the time of the last complete drain for lack of space.
    drained_at: Msn,
    /// Messages since the last complete drain that can only make leaves shorter.
    deletes: u64,
    access: Access,
    poison: Poison,
    counters: Counters,
    /// The identity with the next checkpoint, if the volume grows.
    larger: Option<Identity>,
    /// A sync or checkpoint that the device had no space for: it is finished before anything changes.
    unfinished: Option<Syncing>,
    /// The holds.
    holds: Holds,
    /// Why the drop in progress cannot continue; `None` after it has been reported.
    drop_blocked: Option<Error>,
    /// Pending deletes in buffers that a drain skipped, because holds keep the nodes below.
    deletes_passed: u64,
    /// The name of the hold that the checkpoint in progress takes.
    taking: Option<String>,
}

/// The access mode of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Read-only.
    ReadOnly,
    /// Read and write. `logged`: operations are logged; `fenced`: the fence has been made, so the log may be written.
    ReadWrite { logged: bool, fenced: bool },
}

impl Volume {
    /// The identity of the volume.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Records in the image, durably and at once, that an error was met: the next check looks at everything. Does
    /// nothing if the volume is read-only or has no identity block yet. Works for a poisoned volume, too.
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

    /// The first read error because of which a step was skipped.
    pub fn error_passed_over(&self) -> Option<&str> {
        self.trees.wait().balance.error_passed_over()
    }

    /// The superblock of the last durable checkpoint.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether the volume is poisoned: an operation failed half way, and nothing more may be written.
    pub fn has_failed(&self) -> bool {
        self.poison.is_set()
    }

    /// The poison state, which sharers of the volume read without its lock.
    pub(crate) fn poison(&self) -> &Poison {
        &self.poison
    }

    /// Whether there has been a checkpoint.
    pub fn is_formatted(&self) -> bool {
        self.superblock.birth.epoch > Epoch(0)
    }

    /// What the trees hold.
    pub fn content(&self) -> Content {
        content_of(&self.superblock)
    }

    /// The nodes, for inspection of the structure.
    pub fn store(&self) -> &Store {
        &self.trees.wait().store
    }

    /// The MSN that the next message will take.
    pub fn next_msn(&self) -> Msn {
        self.next_msn
    }

    /// The counters since the volume was opened.
    pub fn counters(&self) -> Counters {
        let space = &self.trees.wait().store.space;
        Counters {
            kept: space.freed_while_pinned(),
            scattered: space.scattered(),
            hold_pages: space.hold_pages(),
            ..self.counters
        }
    }

    /// Counts of device calls.
    pub fn io_counts(&self) -> IoCounts {
        self.disk.counts()
    }

    /// Takes the next free inode number.
    pub fn take_ino(&mut self) -> Result<Ino> {
        let next = Ino(self.next.ino.0 + 1);
        if next >= INODES_END {
            return Err(used_up("inode numbers"));
        }
        Ok(std::mem::replace(&mut self.next.ino, next))
    }

    /// Sets the time of the next checkpoint, unless a transaction since the last checkpoint is later.
    pub fn note_time(&mut self, now: Time) {
        self.latest = self.latest.max(Some(now));
    }

    /// The numbers that are given out next.
    pub fn next_numbers(&self) -> NextNumbers {
        self.next
    }

    /// The superblock with the current values of the next numbers.
    pub(crate) fn superblock_now(&self) -> Superblock {
        let (next, next_msn) = (self.next, self.next_msn);
        Superblock { next, next_msn, ..self.superblock.clone() }
    }

    /// Gives out numbers only from these on.
    pub fn raise_numbers(&mut self, least: NextNumbers) {
        self.next = self.next.max(least);
    }

    /// Takes the next free zone id.
    pub fn take_zone(&mut self) -> Result<ZoneId> {
        let next = ZoneId(after("next zone id", self.next.zone.0)?);
        Ok(std::mem::replace(&mut self.next.zone, next))
    }

    /// Takes the next free tag of a cloned directory.
    pub fn take_tag(&mut self) -> Result<Tag> {
        let next = Tag(self.next.tag.0 + 1);
        if next.0 > TAGS_END {
            return Err(used_up("tags of cloned directories"));
        }
        Ok(std::mem::replace(&mut self.next.tag, next))
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

    /// Begins each operation. Nothing changes while the device has unwritten data for lack of space, or while a sync or
    /// checkpoint is unfinished. So unwritten data is bounded by the writes of one operation. Owed steps also come
    /// first.
    fn ensure_ready(&mut self) -> Result<()> {
        self.check_writable()?;
        self.disk.write_deferred()?;
        self.finish_interrupted()?;
        self.make_owed_steps()
    }

    /// Fails if the volume cannot be changed.
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

    /// Whether the fence is missing: no checkpoint has been made since the volume was opened for logging.
    pub fn needs_fence(&self) -> bool {
        self.access == (Access::ReadWrite { logged: true, fenced: false })
    }

    /// Makes the steps that an earlier operation had no space for.
    fn make_owed_steps(&mut self) -> Result<()> {
        let owed = self.trees.wait_mut().owed.take();
        // Work of the thread of the trees may have failed.
        self.poison.check_changes()?;
        let Some(claim) = owed else { return Ok(()) };
        let result = self.make_steps(claim).and_then(|()| self.evict(claim));
        if matches!(&result, Err(error) if error.is_host_full()) {
            self.trees.wait_mut().owed = Some(claim);
        }
        self.poison_on_error(result)
    }

    /// Poisons the volume after an error inside the engine. A sync or checkpoint that found no space on the device does
    /// not poison: it is complete, and is finished later.
    fn poison_on_error<T>(&self, result: Result<T>) -> Result<T> {
        self.poison.poison_on_error(result)
    }

    /// Whether something has changed since the last checkpoint.
    pub fn has_changes(&self) -> bool {
        self.log.has_open() || self.log.fill().0 > 0 || self.trees.wait().store.dirty_bytes() > 0
    }

    /// Whether a power cut now would lose something.
    pub fn has_unsynced(&self) -> bool {
        match self.access {
            _ if self.unfinished.is_some() => true,
            Access::ReadWrite { logged: false, .. } => self.trees.wait().store.dirty_bytes() > 0,
            _ => self.log.has_open() || !self.log.is_flushed(),
        }
    }

    /// Bytes of the log that this epoch uses, and the size of the log in bytes.
    pub fn log_fill(&self) -> (u64, u64) {
        self.log.fill()
    }

    /// Blocks that two more checkpoints free: only the last one and the one before it use them.
    pub fn freed_soon_blocks(&self) -> u64 {
        self.trees.wait().store.space.freed_soon_blocks()
    }

    /// The error that there is no space, with the free and held blocks.
    fn no_space(&self, need_blocks: u64) -> Error {
        let space = &self.trees.wait().store.space;
        let (free_blocks, held_blocks) = (space.free_blocks(), space.held_blocks());
        Error::NoSpace { need_blocks, free_blocks, held_blocks }
    }

    /// Total, free and available blocks of the image, as statfs shows them. The reserve depends on the roots of the
    /// trees: fails if one cannot be read.
    pub fn blocks(&self) -> Result<Blocks> {
        TreeId::ALL
            .into_iter()
            .try_for_each(|tree| self.trees.wait().store.root(tree).map(drop))?;
        let space = &self.trees.wait().store.space;
        let free = space.free_blocks() + space.freed_soon_blocks();
        let available = free.saturating_sub(self.reserved_blocks());
        Ok(Blocks { total: self.superblock.image_blocks, free, available })
    }
}

/// Counts of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// All blocks of the image.
    pub total: u64,
    /// Free blocks, including those that two more checkpoints free.
    pub free: u64,
    /// Blocks that operations may take. The others are the reserve, for draining buffers and for deletes.
    pub available: u64,
}

/// What the trees of a volume hold.
pub fn content_of(superblock: &Superblock) -> Content {
    match superblock.features.incompatible & Features::KEYS {
        0 => Content::Files,
        _ => Content::Keys,
    }
}

/// The error that all numbers of a kind are given out. Nothing gives them back, so a copy of the volume helps.
fn used_up(what: &str) -> Error {
    Error::Unsupported(format!("more {what}: all are given out; a copy of the volume has new ones"))
}
