//! A file system that several threads use: many read at a time, one changes.
//!
//! Who changes it, or makes it durable, has the *turn*; what others look at is locked only while it really
//! changes. So readers wait neither for the device nor for the bulk of what a checkpoint writes. Whoever has the turn
//! may wait for the device without the lock: nobody else can change anything meanwhile.

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

use super::Fs;
use crate::error::Result;
use crate::poison::Poison;
use crate::tuning::{CLEANINGS, PRUNINGS};
use crate::volume::{Due, HoldChange, Pruned};

/// A file system for several threads.
pub struct Shared {
    turn: Mutex<()>,
    fs: RwLock<Fs>,
    poison: Poison,
}

impl Shared {
    /// Shares a file system.
    pub fn new(fs: Fs) -> Shared {
        let poison = fs.volume.poison().clone();
        Shared { turn: Mutex::new(()), fs: RwLock::new(fs), poison }
    }

    /// Looks at it.
    pub fn read<T>(&self, look: impl FnOnce(&Fs) -> Result<T>) -> Result<T> {
        let fs = self.fs.read();
        self.poison.check_reads()?;
        look(&fs)
    }

    /// Changes it.
    pub fn change<T>(&self, act: impl FnOnce(&mut Fs) -> Result<T>) -> Result<T> {
        let _turn = self.turn.lock();
        // Others read meanwhile; the change itself would keep them waiting.
        let due = self.fs.read().volume.due();
        match due {
            Due::Nothing => {}
            Due::Sync => self.sync_in_turn()?,
            Due::Checkpoint => self.checkpoint_in_turn()?,
        }
        self.alter(act)
    }

    /// Changes it without making before what is due: for housekeeping, which mostly finds nothing to do.
    pub fn tend<T>(&self, act: impl FnOnce(&mut Fs) -> Result<T>) -> Result<T> {
        let _turn = self.turn.lock();
        self.alter(act)
    }

    /// Notes in the image that an error was met, even after a panic ([`Volume::note_error`](crate::volume::Volume::note_error)).
    pub fn note_error(&self) -> Result<()> {
        if self.fs.read().volume.identity().error_met {
            return Ok(());
        }
        let _turn = self.turn.lock();
        self.fs.write().volume.note_error()
    }

    /// Makes every change so far durable.
    pub fn sync(&self) -> Result<()> {
        let _turn = self.turn.lock();
        self.sync_in_turn()
    }

    fn sync_in_turn(&self) -> Result<()> {
        let syncing = self.alter(|fs| fs.volume.begin_sync())?;
        let waited = syncing.wait();
        self.alter(|fs| fs.volume.end_sync(syncing, waited))
    }

    /// Makes a checkpoint. Most of what it writes is written piece by piece, while others may change what they
    /// like.
    pub fn checkpoint(&self) -> Result<()> {
        for _ in 0..PRUNINGS {
            if !self.tend(|fs| fs.volume.prune_some())? {
                break;
            }
        }
        for _ in 0..CLEANINGS {
            if !self.tend(|fs| fs.volume.clean_some())? {
                break;
            }
        }
        let _turn = self.turn.lock();
        self.checkpoint_in_turn()
    }

    /// Changes snapshots, durably. Of a checkpoint that is going to be kept most is written piece by piece.
    pub fn change_holds(&self, change: &HoldChange) -> Result<()> {
        for _ in 0..CLEANINGS {
            if !self.tend(|fs| fs.volume.clean_some())? {
                break;
            }
        }
        let _turn = self.turn.lock();
        let begun = self.alter(|fs| fs.begin_hold_change(change))?;
        let Some(checkpoint) = begun else { return Ok(()) };
        let waited = checkpoint.wait();
        self.alter(|fs| fs.volume.end_hold_change(checkpoint, waited))
    }

    fn checkpoint_in_turn(&self) -> Result<()> {
        let checkpoint = self.alter(|fs| fs.begin_checkpoint(Pruned::Some))?;
        let waited = checkpoint.wait();
        self.alter(|fs| fs.volume.end_checkpoint(checkpoint, waited))
    }

    /// Changes it, for who has the turn. Readers that wait come before the next change.
    fn alter<T>(&self, act: impl FnOnce(&mut Fs) -> Result<T>) -> Result<T> {
        let mut fs = self.fs.write();
        self.poison.check_reads()?;
        // A panic is known before the lock is free.
        let changing = self.poison.changing();
        let done = act(&mut fs);
        drop(changing);
        RwLockWriteGuard::unlock_fair(fs);
        done
    }
}
