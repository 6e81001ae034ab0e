//! A file system shared by several threads: many readers, one writer.
//!
//! A change or sync holds the writer lock (`writer`) throughout. The file system itself is locked only during actual
//! changes. So readers wait neither for the flush of a sync nor for that of a checkpoint, and for most writes of a checkpoint
//! only in pieces ([`Shared::checkpoint`]). They do wait for all writes of one that has come due with a change, and for a
//! change that must make room or log space. The holder of the writer lock
//! may wait for the device without the inner lock, since no other thread can change anything.

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

use super::Fs;
use crate::error::Result;
use crate::poison::Poison;
use crate::tuning::{PRUNINGS, WRITE_BACKS_BEFORE};
use crate::volume::{Due, HoldChange, Pruned};

/// A file system for several threads.
pub struct Shared {
    writer: Mutex<()>,
    fs: RwLock<Fs>,
    poison: Poison,
}

impl Shared {
    /// Shares a file system.
    pub fn new(fs: Fs) -> Shared {
        let poison = fs.volume.poison().clone();
        Shared { writer: Mutex::new(()), fs: RwLock::new(fs), poison }
    }

    /// Reads under the shared lock.
    pub fn read<T>(&self, look: impl FnOnce(&Fs) -> Result<T>) -> Result<T> {
        let fs = self.fs.read();
        self.poison.check_reads()?;
        look(&fs)
    }

    /// Whether a failure has left a change half done, so that the volume takes no more changes. Tells it even where
    /// reads have ended as well.
    pub fn has_failed(&self) -> bool {
        self.poison.is_set()
    }

    /// Changes under the writer lock.
    pub fn change<T>(&self, act: impl FnOnce(&mut Fs) -> Result<T>) -> Result<T> {
        let _writer = self.writer.lock();
        // Readers can continue meanwhile; within the change they would have to wait.
        let due = self.fs.read().volume.due();
        match due {
            Due::Nothing => {}
            Due::Sync => self.sync_locked()?,
            Due::Checkpoint => self.checkpoint_locked()?,
        }
        self.with_exclusive_fs(act)
    }

    /// As [`Shared::change`], without a due sync or checkpoint before: for housekeeping, which mostly has nothing to
    /// do.
    pub fn change_now<T>(&self, act: impl FnOnce(&mut Fs) -> Result<T>) -> Result<T> {
        let _writer = self.writer.lock();
        self.with_exclusive_fs(act)
    }

    /// Records in the image that an error was met, even after a panic
    /// ([`Volume::note_error`](crate::volume::Volume::note_error)).
    pub fn note_error(&self) -> Result<()> {
        if self.fs.read().volume.identity().error_met {
            return Ok(());
        }
        let _writer = self.writer.lock();
        self.fs.write().volume.note_error()
    }

    /// Makes all earlier changes durable.
    pub fn sync(&self) -> Result<()> {
        let _writer = self.writer.lock();
        self.sync_locked()
    }

    fn sync_locked(&self) -> Result<()> {
        let syncing = self.with_exclusive_fs(|fs| fs.volume.begin_sync())?;
        let waited = syncing.wait();
        self.with_exclusive_fs(|fs| fs.volume.end_sync(syncing, waited))
    }

    /// Makes a checkpoint. Most nodes are written beforehand in pieces, between changes of other threads.
    pub fn checkpoint(&self) -> Result<()> {
        for _ in 0..PRUNINGS {
            if !self.change_now(|fs| fs.volume.prune_some())? {
                break;
            }
        }
        for _ in 0..WRITE_BACKS_BEFORE {
            if !self.change_now(|fs| fs.volume.clean_some())? {
                break;
            }
        }
        let _writer = self.writer.lock();
        self.checkpoint_locked()
    }

    /// Changes snapshots, durably. Most nodes of a new snapshot are written beforehand in pieces.
    pub fn change_holds(&self, change: &HoldChange) -> Result<()> {
        for _ in 0..WRITE_BACKS_BEFORE {
            if !self.change_now(|fs| fs.volume.clean_some())? {
                break;
            }
        }
        let _writer = self.writer.lock();
        let begun = self.with_exclusive_fs(|fs| fs.begin_hold_change(change))?;
        let Some(checkpoint) = begun else { return Ok(()) };
        let waited = checkpoint.wait();
        self.with_exclusive_fs(|fs| fs.volume.end_hold_change(checkpoint, waited))
    }

    fn checkpoint_locked(&self) -> Result<()> {
        let checkpoint = self.with_exclusive_fs(|fs| fs.begin_checkpoint(Pruned::Some))?;
        let waited = checkpoint.wait();
        self.with_exclusive_fs(|fs| fs.volume.end_checkpoint(checkpoint, waited))
    }

    /// Changes the file system; the caller holds the writer lock. Waiting readers come before the next change.
    fn with_exclusive_fs<T>(&self, act: impl FnOnce(&mut Fs) -> Result<T>) -> Result<T> {
        let mut fs = self.fs.write();
        self.poison.check_reads()?;
        // A panic must be recorded before the lock is released.
        let changing = self.poison.changing();
        let done = act(&mut fs);
        drop(changing);
        RwLockWriteGuard::unlock_fair(fs);
        done
    }
}
