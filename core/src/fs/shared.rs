//! A file system shared by several threads: many readers, one writer.
//!
//! A change or sync holds the writer lock (`writer`) throughout. The file system itself is locked only during actual
//! changes. So readers wait neither for the flush of a sync nor for that of a checkpoint, and for most writes of a checkpoint
//! only in pieces ([`Shared::checkpoint`]). They do wait for all writes of one that has come due with a change, and for a
//! change that must make room or log space. The holder of the writer lock
//! may wait for the device without the inner lock, since no other thread can change anything.
//!
//! A removal of a name can be put off until it is known whether the object is still in use
//! ([`Shared::unlink_later`]). Whatever could tell the difference carries it out first: every other change, and every
//! read of more than contents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};

use super::{Fs, Object};
use crate::error::{Error, Result};
use crate::ids::Ino;
use crate::poison::Poison;
use crate::tuning::{PRUNINGS, WRITE_BACKS_BEFORE};
use crate::volume::{Due, HoldChange, Pruned};

/// How long a removal that was put off waits for [`Shared::settle`] before it takes the object to be in use: 500
/// microseconds. The kernel's FORGET is read before the next request, by another thread, which may be a little later.
const USE_ENDS: Duration = Duration::from_micros(500);
/// If there is no room for what is taken to be in use, the wait is 1 second: on a busy machine FORGET comes late.
const ROOM_COMES: Duration = Duration::from_secs(1);

/// A file system for several threads.
pub struct Shared {
    writer: Mutex<()>,
    fs: RwLock<Fs>,
    poison: Poison,
    waiting: Waiting,
}

/// A removal that has been put off.
#[derive(Default)]
struct Waiting {
    /// Whether there is one. It is changed under the exclusive lock only.
    is_some: AtomicBool,
    unlink: Mutex<Option<Unlink>>,
    /// The removal is carried out, or its object is not in use any more.
    changed: Condvar,
    /// What has become of the last one that failed.
    failed: Mutex<Option<(Vec<u8>, Error)>>,
}

/// The removal of a name, not of a directory.
pub struct Unlink {
    /// The directory.
    pub directory: Object,
    /// The name there.
    pub name: Vec<u8>,
    /// Its object. Until the removal is carried out, this handle keeps it from being a new one.
    pub object: Object,
    /// Whether it may be in use.
    pub in_use: bool,
}

impl Shared {
    /// Shares a file system.
    pub fn new(fs: Fs) -> Shared {
        let poison = fs.volume.poison().clone();
        Shared { writer: Mutex::new(()), fs: RwLock::new(fs), poison, waiting: Waiting::default() }
    }

    /// Reads under the shared lock.
    pub fn read<T>(&self, look: impl FnOnce(&Fs) -> Result<T>) -> Result<T> {
        let mut fs = self.fs.read();
        if self.waiting.is_some.load(Ordering::Relaxed) {
            drop(fs);
            fs = RwLockWriteGuard::downgrade(self.lock_settled());
        }
        self.poison.check_reads()?;
        look(&fs)
    }

    /// Reads contents of files under the shared lock: they are the same before and after a removal.
    pub fn read_contents<T>(&self, look: impl FnOnce(&Fs) -> Result<T>) -> Result<T> {
        let fs = self.fs.read();
        self.poison.check_reads()?;
        look(&fs)
    }

    /// Puts a removal off, within a change. If the handle of the object is the last one when it is carried out, the object
    /// is deleted at once, otherwise it becomes an orphan, with more work: large parts of it may be moved.
    pub fn unlink_later(&self, unlink: Unlink) {
        *self.waiting.unlink.lock() = Some(unlink);
        self.waiting.is_some.store(true, Ordering::Relaxed);
    }

    /// Says that an object is no longer in use. Returns whether a removal of its last name has been put off, which can be carried
    /// out now ([`Shared::settle`]).
    pub fn end_use(&self, ino: Ino) -> bool {
        if !self.waiting.is_some.load(Ordering::Relaxed) {
            return false;
        }
        let mut unlink = self.waiting.unlink.lock();
        let waits = unlink.as_mut().filter(|unlink| unlink.object.ino() == ino);
        let found = waits.is_some_and(|unlink| {
            unlink.in_use = false;
            true
        });
        self.waiting.changed.notify_all();
        found
    }

    /// Carries out a removal that has been put off, at once: the object is no longer in use, or it was put off long ago.
    pub fn settle(&self) {
        if self.waiting.is_some.load(Ordering::Relaxed) {
            let mut fs = self.fs.write();
            self.carry_out(&mut fs, false);
            RwLockWriteGuard::unlock_fair(fs);
        }
    }

    /// The last name that could not be removed after all, and why.
    pub fn take_unlink_failure(&self) -> Option<(Vec<u8>, Error)> {
        self.waiting.failed.lock().take()
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
        let mut fs = self.lock_settled();
        self.poison.check_reads()?;
        // A panic must be recorded before the lock is released.
        let changing = self.poison.changing();
        let done = act(&mut fs);
        drop(changing);
        RwLockWriteGuard::unlock_fair(fs);
        done
    }

    /// Locks the file system exclusively, with nothing put off. This needs no writer lock: a sync or checkpoint that waits for
    /// the device has found nothing put off, and nothing is while its thread holds the writer lock.
    fn lock_settled(&self) -> RwLockWriteGuard<'_, Fs> {
        self.waiting.wait_for_end_of_use(USE_ENDS);
        let mut fs = self.fs.write();
        if !self.carry_out(&mut fs, false) {
            drop(fs);
            self.waiting.wait_for_end_of_use(ROOM_COMES);
            fs = self.fs.write();
            self.carry_out(&mut fs, true);
        }
        fs
    }

    /// Carries out a removal that has been put off. Returns `false` if there is no room to keep an object that is in use, so
    /// that the removal is still put off; the `last` try fails instead.
    fn carry_out(&self, fs: &mut Fs, last: bool) -> bool {
        if !self.waiting.is_some.swap(false, Ordering::Relaxed) {
            return true;
        }
        let waiting = self.waiting.unlink.lock().take();
        let Some(Unlink { directory, name, object, .. }) = waiting else { return true };
        let changing = self.poison.changing();
        drop(object);
        let done = self.poison.check_reads().and_then(|()| fs.unlink(&directory, &name));
        let again = match &done {
            Err(Error::NoSpace { .. }) if !last => fs.lookup(&directory, &name).ok(),
            _ => None,
        };
        drop(changing);
        if let Some(object) = again {
            self.unlink_later(Unlink { directory, name, object, in_use: true });
            return false;
        }
        if let Err(error) = done {
            *self.waiting.failed.lock() = Some((name, error));
        }
        self.waiting.changed.notify_all();
        true
    }
}

impl Waiting {
    /// Waits until nothing is put off, or its object is not in use any more, but only so long.
    fn wait_for_end_of_use(&self, limit: Duration) {
        if self.is_some.load(Ordering::Relaxed) {
            let in_use = |unlink: &mut Option<Unlink>| unlink.as_ref().is_some_and(|u| u.in_use);
            self.changed.wait_while_for(&mut self.unlink.lock(), in_use, limit);
        }
    }
}
