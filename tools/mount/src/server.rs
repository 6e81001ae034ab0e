//! The state that all requests share: the file system, the inodes that the kernel references, and the errors met.
//!
//! A failed read fails only its own request, unless `errors=remount-ro` is set. If the volume is poisoned, the mount
//! becomes read-only; changes since the last sync are lost, and the log says so. After any other error acknowledged
//! changes still become durable.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use betr_cli::image::{OpenImage, what_is_mounted_at};
use betr_core::error::{Blame, Place, Refusal};
use betr_core::fs::{Fs, Shared};
use betr_core::ids::{BLOCK_SIZE, Ino, Msn, Time};
use betr_core::volume::HoldChange;
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::counters::Counters;
use crate::errno::{Answer, Errno, of_error};
use crate::host::{Standing, standing};
use crate::inodes::Inodes;
use crate::log::LogTarget;
use crate::options::Options;
use crate::snapshots::Snapshots;

/// A checkpoint is made once deleted files amount to 16 MiB and 1/64 of the image; the one after it frees their blocks.
const FREED_MIN: u64 = 16 << 20;
const FREED_SHARE: u64 = 64;

/// After 5 seconds without a change the tender drains buffers with deletes, so that the space of a large delete is
/// free well within 30 seconds.
const IDLE: Duration = Duration::from_secs(5);
/// Flushes of a drain per piece, during which other requests wait. A piece ends when its last buffer has been flushed down to its leaves.
const RECLAIMED: u64 = 16;

/// At most 100 errors are logged: with a bad device every request fails.
const ERRORS_TOLD: u64 = 100;

/// How long an unmount retries while the host is full. Commands that wait for the image give up after the same time.
const ROOM_COMES: Duration = Duration::from_secs(60);

/// Interval between reads of the list of mounts, and between retries of an unmount while the host is full.
const LOOK: Duration = Duration::from_millis(100);

/// The server of a mounted image.
pub(crate) struct Server {
    pub shared: Shared,
    pub inodes: Inodes,
    /// Locked shared by each request that uses the file system, except FORGET and RELEASE, by `betr clone`, and by the tender while it
    /// writes access times; exclusively by a rollback, which makes all handles stale.
    pub requests: RwLock<()>,
    /// A rollback is invalidating the kernel's caches.
    pub is_telling: AtomicBool,
    /// Whether opens are answered with ENOSYS.
    pub spares_opens: AtomicBool,
    /// Locked by each command that changes snapshots.
    pub changing_snapshots: Mutex<()>,
    pub options: Options,
    /// The snapshots shown below `.betr`, with `-o snapshots`.
    pub snapshots: Option<Snapshots>,
    /// In the server of a snapshot: the server of the mount, which reports its errors, and the name of the snapshot.
    mount: Option<(Weak<Server>, String)>,
    /// The file of the image, if it has one, and what its path named at the last sync.
    image: Option<OpenImage>,
    standing: Mutex<Standing>,
    /// The mountpoint.
    directory: PathBuf,
    /// The channel for invalidations of the kernel's caches.
    notifier: OnceLock<Notifier>,
    pub counters: Counters,
    /// Pending times of access.
    pub accesses: Mutex<HashMap<Ino, Time>>,
    pub log: LogTarget,
    /// When the mount's options about times of access were last read from the list of mounts, and whether they forbid
    /// updates.
    place: Mutex<(Instant, bool)>,
    /// Whether the mount is read-only, by option or after an error.
    read_only: AtomicBool,
    /// The server was told to stop; requests may still arrive, and changes are refused.
    ending: AtomicBool,
    /// Bytes of files deleted since the last checkpoint.
    freed: AtomicU64,
    /// The host is out of space.
    host_full: AtomicBool,
    /// The number of errors of the image or its device.
    errors: AtomicU64,
    /// The last error, and the one that made the mount read-only.
    told: Mutex<ReportedErrors>,
    /// Wakes [`Server::housekeep`]: a checkpoint is due, or the mount ends.
    due: Mutex<Due>,
    wake: Condvar,
    since: Instant,
}

#[derive(Clone, Copy, Default)]
struct Due {
    checkpoint: bool,
    end: bool,
}

/// Figures for `betr status`, besides the counters of operations.
pub(crate) struct State {
    pub read_only: bool,
    pub host_full: bool,
    pub standing: Standing,
    pub errors: u64,
    pub told: ReportedErrors,
    pub uptime: Duration,
}

/// The text of reported errors.
#[derive(Clone, Default)]
pub(crate) struct ReportedErrors {
    /// The last one.
    pub last: Option<String>,
    /// The one that made the mount read-only.
    pub read_only: Option<String>,
}

impl Server {
    pub(crate) fn new(
        fs: Fs,
        image: Option<OpenImage>,
        options: Options,
        directory: &Path,
        log: LogTarget,
    ) -> Server {
        Server {
            shared: Shared::new(fs),
            inodes: Inodes::default(),
            requests: RwLock::default(),
            is_telling: AtomicBool::new(false),
            spares_opens: AtomicBool::new(false),
            changing_snapshots: Mutex::default(),
            read_only: AtomicBool::new(options.read_only),
            snapshots: options.snapshots.then(|| Snapshots::new(&options)),
            options,
            mount: None,
            image,
            standing: Mutex::new(Standing::Same),
            directory: directory.to_owned(),
            notifier: OnceLock::new(),
            counters: Counters::default(),
            accesses: Mutex::default(),
            log,
            place: Mutex::new((Instant::now(), false)),
            ending: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            host_full: AtomicBool::new(false),
            errors: AtomicU64::new(0),
            told: Mutex::default(),
            due: Mutex::default(),
            wake: Condvar::new(),
            since: Instant::now(),
        }
    }

    /// A server for a snapshot of a mount.
    pub(crate) fn of_snapshot(live: &Arc<Server>, name: &str, fs: Fs) -> Server {
        let options = Options { read_only: true, snapshots: false, ..live.options.clone() };
        let server = Server::new(fs, None, options, &live.directory, live.log.clone());
        Server { mount: Some((Arc::downgrade(live), name.to_owned())), ..server }
    }

    pub(crate) fn state(&self) -> State {
        State {
            read_only: self.is_read_only(),
            host_full: self.host_full.load(Ordering::Relaxed),
            standing: self.image.as_ref().map_or(Standing::Same, standing),
            errors: self.errors.load(Ordering::Relaxed),
            told: self.told.lock().clone(),
            uptime: self.since.elapsed(),
        }
    }

    /// Sets the channel for invalidations.
    pub(crate) fn tells_kernel(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Invalidates the attributes of an inode in the kernel's cache, also those of a reply that is still in flight.
    pub(crate) fn tell_changed(&self, ino: Ino) {
        if let Some(notifier) = self.notifier.get() {
            // The kernel may have forgotten the inode.
            let _ = notifier.inval_inode(INodeNo(ino.0), -1, 0);
        }
    }

    /// Invalidates an inode in the kernel's cache, its pages included.
    pub(crate) fn tell_stale(&self, ino: Ino) {
        if let Some(notifier) = self.notifier.get() {
            // The kernel may have forgotten the inode.
            let _ = notifier.inval_inode(INodeNo(ino.0), 0, 0);
        }
    }

    /// Invalidates a name in the kernel's cache, with all cached entries below it that are not in use. The kernel
    /// first waits for lookups in the directory to be answered, so no request may wait for this call.
    pub(crate) fn tell_gone(&self, directory: INodeNo, name: &OsStr) {
        if let Some(notifier) = self.notifier.get() {
            // The kernel may have forgotten the directory.
            let _ = notifier.inval_entry(directory, name);
        }
    }

    /// Has the kernel look names up again that were invalidated, in another thread: below a directory that it cannot look
    /// up, it keeps what was in use when it no longer is.
    pub(crate) fn look_up_again(&self, paths: impl Iterator<Item = PathBuf>) {
        let paths: Vec<PathBuf> = paths.map(|path| self.directory.join(path)).collect();
        let look_up = || paths.into_iter().for_each(|path| drop(path.symlink_metadata()));
        // Without the thread, the next lookup by a program does it.
        drop(std::thread::Builder::new().spawn(look_up));
    }

    /// Wakes [`Server::housekeep`].
    pub(crate) fn wake_tender(&self) {
        self.wake.notify_one();
    }

    /// Counts of inodes that the kernel references, and of open handles.
    pub(crate) fn inode_counts(&self) -> (usize, usize) {
        let (inodes, opens) = self.inodes.counts();
        let of_snapshots = self.snapshots.as_ref().map_or((0, 0), Snapshots::counts);
        (inodes + of_snapshots.0, opens + of_snapshots.1)
    }

    /// Whether times of access are left unchanged. The kernel does not tell the server of `mount -o remount,noatime`;
    /// only the list of mounts shows it.
    pub(crate) fn leaves_accesses(&self) -> bool {
        if self.options.noatime || self.is_read_only() {
            return true;
        }
        let mut place = self.place.lock();
        let (looked, left) = &mut *place;
        if looked.elapsed() >= LOOK {
            let mounted = what_is_mounted_at(&self.directory);
            *left = mounted.map_or(*left, |mounted| mounted.noatime || mounted.read_only);
            *looked = Instant::now();
        }
        *left
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Runs a query on contents of files, which do not depend on names.
    pub(crate) fn read_contents<T>(
        &self,
        look: impl FnOnce(&Fs) -> betr_core::Result<T>,
    ) -> Answer<T> {
        self.shared.read_contents(look).map_err(|error| self.failed(&error))
    }

    /// Runs a query on the file system.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Fs) -> betr_core::Result<T>) -> Answer<T> {
        self.shared.read(look).map_err(|error| self.failed(&error))
    }

    /// Runs a change. With `-o sync` it is durable on return.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut Fs) -> betr_core::Result<T>) -> Answer<T> {
        if self.is_read_only() {
            return Err(Errno::EROFS);
        }
        let (mut full, mut late) = (false, false);
        let done = self.shared.change(|fs| {
            // Once the server stops, the last checkpoint may be over: the change would be acknowledged and lost.
            late = self.ending.load(Ordering::Relaxed);
            if late {
                return Err(Refusal::NotPermitted.into());
            }
            let done = act(fs)?;
            full = fs.volume().nears_checkpoint();
            Ok(done)
        });
        if full {
            self.due.lock().checkpoint = true;
            self.wake.notify_one();
        }
        if late {
            return Err(Errno::EROFS);
        }
        let done = done.map_err(|error| self.failed(&error))?;
        if self.options.sync {
            self.sync()?;
        }
        Ok(done)
    }

    /// Counts `bytes` of a deleted file: past a threshold a checkpoint is made early, to free the space.
    pub(crate) fn gives_back(&self, bytes: u64) {
        self.freed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Makes all changes durable, and checks the file of the image first.
    pub(crate) fn sync(&self) -> Answer<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.look_at_host()?;
        self.shared.sync().map_err(|error| self.failed(&error))?;
        self.note_room();
        Ok(())
    }

    /// Checks that the file of the image still has its length, and that its path still names it.
    pub(crate) fn look_at_host(&self) -> Answer<()> {
        let Some(image) = &self.image else { return Ok(()) };
        let standing = standing(image);
        let before = std::mem::replace(&mut *self.standing.lock(), standing);
        if let Some(text) = standing.text().filter(|_| before != standing) {
            self.log.error(&format!("{}: {text}", self.options.shown()));
        }
        image.check_len().map_err(|source| {
            // The file was truncated: its tail is lost, and writes there fail.
            let error = betr_core::Error::Io { op: "sync", place: Place::Image, source };
            self.report(error.to_string(), Blame::Image, true);
            Errno::EIO
        })
    }

    /// The error number for the kernel. Reports the error if the image, its device or the program is to blame.
    pub(crate) fn failed(&self, error: &betr_core::Error) -> Errno {
        if error.is_host_full() && !self.host_full.swap(true, Ordering::Relaxed) {
            let text = "changes wait in memory, and others are refused, until there is room";
            self.log.error(&format!("{}: {error}: {text}", self.options.shown()));
        }
        // A poisoned volume takes no changes, whichever error this is. A refused operation has changed nothing.
        let refused = matches!(error, betr_core::Error::Refused(_));
        let failed = !refused && self.shared.has_failed();
        if error.blame() != Blame::Request || failed {
            let ends = failed || self.options.read_only_after_errors;
            self.report(error.to_string(), error.blame(), ends);
        }
        of_error(error)
    }

    /// All changes are durable: if the host was full, it has space again.
    fn note_room(&self) {
        if self.host_full.swap(false, Ordering::Relaxed) {
            let text = "there is room again where the image is stored; all changes are durable";
            self.log.error(&format!("{}: {text}", self.options.shown()));
        }
    }

    /// Reports a panic in a request, which is a bug.
    pub(crate) fn panicked(&self) -> Errno {
        let text = "a request has panicked: please report this";
        self.report(text.into(), Blame::Program, true);
        Errno::EIO
    }

    /// Reports an error. Damage of the image or its device sets the error flag in the image. With `ends` the mount
    /// becomes read-only.
    fn report(&self, text: String, blame: Blame, ends: bool) {
        if let Some((mount, name)) = &self.mount {
            let Some(mount) = mount.upgrade() else { return };
            return mount.report(format!("snapshot '{name}': {text}"), blame, ends);
        }
        let before = self.errors.fetch_add(1, Ordering::Relaxed);
        if blame == Blame::Image
            && let Err(error) = self.shared.note_error()
        {
            let text = "that an error was met is not noted in the image";
            self.log.error(&format!("{}: {text}: {error}", self.options.shown()));
        }
        let mut told = self.told.lock();
        // Repeated reads of one damaged place are logged once.
        if before < ERRORS_TOLD && told.last.as_ref() != Some(&text) {
            self.log.error(&format!("{}: {text}", self.options.shown()));
        }
        if ends && !self.read_only.swap(true, Ordering::Relaxed) {
            told.read_only = Some(text.clone());
            let text = "nothing is changed any more; unmount, and check it with 'betr fsck -fn'";
            self.log.error(&format!("{}: {text}", self.options.shown()));
        } else if before == 0 && !ends {
            let text = "other files are not concerned; unmount, and check it with 'betr fsck -fn'";
            self.log.error(&format!("{}: {text}", self.options.shown()));
        }
        told.last = Some(text);
    }

    /// The loop of the tender thread: a sync per second, or per `-o commit` seconds, checkpoints, and draining when
    /// idle. Returns when the mount ends.
    pub(crate) fn housekeep(&self) {
        let (mut last, mut synced) = (Instant::now(), Instant::now());
        let mut quiet = (Msn(0), Instant::now());
        let mut is_told = false;
        // Delete orphans that a power cut left.
        if !self.options.read_only
            && let Err(error) = self.shared.change_now(Fs::reap)
        {
            self.failed(&error);
        }
        // Make a recovery durable now, so that the first change need not wait for it.
        if !self.options.read_only
            && self.look(|fs| fs.volume().needs_fence() && fs.volume().has_changes())
            && let Err(error) = self.shared.checkpoint()
        {
            self.failed(&error);
        }
        loop {
            let mut due = self.due.lock();
            if !due.end && !due.checkpoint {
                self.wake.wait_for(&mut due, self.options.commit.min(IDLE));
            }
            let Due { checkpoint, end } = std::mem::take(&mut *due);
            drop(due);
            // Another thread may have made the checkpoint in the meantime.
            let checkpoint = checkpoint && self.look(|fs| fs.volume().nears_checkpoint());
            if end {
                return;
            }
            if let Some(snapshots) = &self.snapshots {
                snapshots.close_some(self);
            }
            if self.options.read_only {
                continue;
            }
            if self.is_read_only() {
                self.save();
                continue;
            }
            let request = self.requests.read();
            self.settle_accesses();
            self.shared.settle();
            drop(request);
            self.report_unlink_failure();
            let passed_over = self.look(|fs| fs.volume().error_passed_over().map(str::to_owned));
            if let Some(text) = passed_over.filter(|_| !std::mem::replace(&mut is_told, true)) {
                self.report(text, Blame::Image, self.options.read_only_after_errors);
            }
            let (unsynced, changed, blocks, next) = self.look(|fs| {
                let volume = fs.volume();
                let (blocks, next) = (volume.superblock().image_blocks, volume.next_msn());
                (volume.has_unsynced(), volume.has_changes(), blocks, next)
            });
            let worth = FREED_MIN.max(blocks * BLOCK_SIZE as u64 / FREED_SHARE);
            let checkpoint = checkpoint || self.freed.load(Ordering::Relaxed) >= worth;
            if self.shared.has_failed() {
                continue;
            }
            if !changed {
                last = Instant::now();
            }
            if quiet.0 != next {
                quiet = (next, Instant::now());
            }
            let idle = quiet.1.elapsed() >= IDLE
                && self.look(|fs| {
                    let volume = fs.volume();
                    volume.can_reclaim() || volume.can_prune() || volume.can_drop()
                });
            let old = last.elapsed() >= self.options.checkpoint;
            let full = self.host_full.load(Ordering::Relaxed);
            let unsynced = (unsynced || full) && synced.elapsed() >= self.options.commit;
            if unsynced {
                synced = Instant::now();
            }
            let whole = checkpoint || (changed && old);
            if (whole || unsynced) && self.look_at_host().is_err() {
                continue;
            }
            let done = match whole {
                true => {
                    last = Instant::now();
                    self.freed.store(0, Ordering::Relaxed);
                    self.shared.change_now(Fs::reap).and_then(|()| self.shared.checkpoint())
                }
                // While the host is full only a sync can make progress.
                false if unsynced && full => self.shared.sync(),
                false if unsynced => {
                    self.shared.change_now(Fs::reap).and_then(|()| self.shared.sync())
                }
                false if idle => self.reclaim(next),
                false => Ok(()),
            };
            match done {
                Ok(()) if whole || unsynced => self.note_room(),
                Ok(()) => {}
                Err(error) => {
                    self.failed(&error);
                }
            }
        }
    }

    /// Logs that a name which was removed is there again.
    fn report_unlink_failure(&self) {
        if let Some((name, error)) = self.shared.take_unlink_failure() {
            self.failed(&error);
            let (shown, name) = (self.options.shown(), betr_cli::show::bytes(&name));
            self.log.error(&format!("{shown}: '{name}' was removed, and is there again: {error}"));
        }
    }

    /// Drains buffers with deletes, then frees, in pieces, the blocks that dropped snapshots used. Stops after any
    /// change, which shows as a new next MSN.
    fn reclaim(&self, next: Msn) -> betr_core::Result<()> {
        while self.shared.change_now(reclaim_some)? {
            if self.due.lock().end || self.look(|fs| fs.volume().next_msn()) != next {
                return Ok(());
            }
        }
        while self.look(|fs| fs.volume().can_drop()) {
            if self.due.lock().end || self.look(|fs| fs.volume().next_msn()) != next {
                return Ok(());
            }
            self.shared.change_holds(&HoldChange::SOME)?;
        }
        self.end_changes()
    }

    /// Makes a checkpoint, if anything has changed.
    fn end_changes(&self) -> betr_core::Result<()> {
        match self.look(|fs| fs.volume().has_changes()) {
            true => self.shared.checkpoint(),
            false => Ok(()),
        }
    }

    /// Reads figures from the file system; zeros and the like where reads have ended ([`Shared::has_failed`]).
    pub(crate) fn look<T: Default>(&self, look: impl FnOnce(&Fs) -> T) -> T {
        self.shared.read(|fs| Ok(look(fs))).unwrap_or_default()
    }

    /// After an error: makes acknowledged changes durable as far as possible, and changes nothing else.
    fn save(&self) {
        if !self.shared.has_failed()
            && self.look(|fs| fs.volume().has_unsynced())
            && let Err(error) = self.shared.sync()
        {
            self.log.error(&format!("{}: not durable: {error}", self.options.shown()));
        }
    }

    /// Refuses further changes while requests still arrive, and makes acknowledged changes durable; returns whether they
    /// are.
    pub(crate) fn stop(&self) -> bool {
        self.ending.store(true, Ordering::Relaxed);
        self.finish()
    }

    /// After the last change: makes a checkpoint, and ends [`Server::housekeep`]. Returns whether all changes are
    /// durable.
    pub(crate) fn finish(&self) -> bool {
        self.due.lock().end = true;
        self.wake.notify_one();
        if self.options.read_only {
            return true;
        }
        if self.is_read_only() {
            self.save();
            let unsynced = |fs: &Fs| Ok(fs.volume().has_unsynced());
            let lacks = self.shared.read(unsynced).unwrap_or(true);
            if lacks {
                let text = "what changed before the error is not all durable";
                self.log.error(&format!("{}: {text}", self.options.shown()));
            }
            return !lacks;
        }
        // Before the inodes are dropped below.
        self.settle_accesses();
        // At an unmount the kernel sends no FORGET for cached inodes. Dropping the handles lets `end_all` delete the
        // orphans.
        self.inodes.clear();
        let begun = Instant::now();
        while let Err(error) = self.end_all() {
            self.failed(&error);
            if !error.is_host_full() || begun.elapsed() >= ROOM_COMES {
                let text = "what changed last is not all durable";
                self.log.error(&format!("{}: {text}", self.options.shown()));
                return false;
            }
            std::thread::sleep(LOOK);
        }
        self.note_room();
        true
    }

    /// Deletes orphans, drains, and makes a checkpoint.
    fn end_all(&self) -> betr_core::Result<()> {
        self.shared.change_now(Fs::reap).and_then(|()| {
            while self.shared.change_now(reclaim_some)? {}
            self.end_changes()
        })
    }
}

/// Drops some leaves that range deletes cover, or drains some buffers with deletes. Returns whether more may remain.
fn reclaim_some(fs: &mut Fs) -> betr_core::Result<bool> {
    let volume = fs.volume_mut();
    Ok(volume.prune_some()? || volume.reclaim(RECLAIMED)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use betr_core::Error;
    use betr_core::device::{Device, MemoryDevice};
    use betr_core::error::Fault;
    use betr_core::fs::Attributes;
    use betr_core::volume::{CreateOptions, Mode, OpenOptions, Volume};

    use super::*;

    fn server() -> Server {
        let device = Arc::new(MemoryDevice::new(4 << 20));
        let options = CreateOptions::new([1; 16], device.len(), Box::new(|| 7));
        let volume = Volume::create(device.clone(), options).unwrap();
        let attributes = Attributes::at(Time::default());
        Fs::format(volume, Box::new(Time::default), attributes).unwrap().checkpoint().unwrap();
        let options = OpenOptions::new(Mode::ReadWrite, Box::new(|| 8));
        let fs = Fs::open(Volume::open(device, options).unwrap().0, Box::new(Time::default));
        let options = Options::parse("/image".into(), &[], false).unwrap();
        Server::new(fs, None, options, Path::new("/mnt"), LogTarget::Stderr)
    }

    /// Whether the error flag in the image is set after an error, and whether the mount is read-only.
    fn after(error: &Error) -> (bool, bool) {
        let server = server();
        server.failed(error);
        (server.look(|fs| fs.volume().identity().error_met), server.is_read_only())
    }

    #[test]
    fn only_what_speaks_against_the_image_is_noted_in_it() {
        let damage = Error::corrupt(Place::Image, Fault::Missing("a node".into()));
        assert_eq!(after(&damage), (true, false));
        assert_eq!(after(&Error::Misuse("a bug".into())), (false, false));
        assert_eq!(after(&Error::Refused(Refusal::NotFound)), (false, false));
        let server = server();
        server.panicked();
        assert!(!server.look(|fs| fs.volume().identity().error_met));
        assert!(server.is_read_only());
    }

    /// A panic within a change leaves memory half changed: reads end, and the mount becomes read-only nevertheless.
    #[test]
    fn a_mount_whose_reads_have_ended_is_read_only() {
        let server = server();
        let panics = || server.shared.change::<()>(|_| std::panic::resume_unwind(Box::new(())));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        let error = server.shared.read(|_| Ok(())).unwrap_err();
        assert!(!server.is_read_only());
        server.failed(&error);
        assert!(server.is_read_only());
    }
}
