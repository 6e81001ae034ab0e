//! What all requests share: the file system, what the kernel knows of it, what went wrong.
//!
//! What cannot be read is an error of that request alone, unless `errors=remount-ro` is set. When the volume
//! itself has failed, because something that writing depends on cannot be read or written, the mount becomes read-only: what was
//! acknowledged still becomes durable as far as it can.

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
use crate::log::Log;
use crate::options::Options;
use crate::snapshots::Snapshots;

/// Bytes of deleted files, and the share of the image's, from which on a checkpoint gives them back.
const FREED_MIN: u64 = 16 << 20;
const FREED_SHARE: u64 = 64;

/// After 5 seconds without a change the space of deletes is given back: well within the half minute after which who has deleted much
/// looks for it.
const IDLE: Duration = Duration::from_secs(5);
/// Buffers that are drained per piece for that: some 10 ms, during which other requests wait.
const RECLAIMED: u64 = 16;

/// After 100 lines the log has heard enough: a bad device makes an error of each request.
const ERRORS_TOLD: u64 = 100;

/// A mount that ends while the host has no room waits for room so long: those who wait for the image give up then, too.
const ROOM_COMES: Duration = Duration::from_secs(60);

/// So often the list of mounts is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The server of a mounted image.
pub(crate) struct Server {
    pub shared: Shared,
    pub inodes: Inodes,
    /// Held for reading by each request, and for writing where all handles of objects become stale.
    pub requests: RwLock<()>,
    /// The kernel is being told that what it has cached is stale.
    pub is_telling: AtomicBool,
    /// Held while snapshots are changed.
    pub changing_snapshots: Mutex<()>,
    pub options: Options,
    /// What is shown of snapshots, if that was asked for.
    pub snapshots: Option<Snapshots>,
    /// Of a server for a snapshot: that of the mount, which errors are told to, and the name.
    mount: Option<(Weak<Server>, String)>,
    /// The file of the image, if it has one, and where its path led at the last look.
    image: Option<OpenImage>,
    standing: Mutex<Standing>,
    /// Where it is mounted.
    directory: PathBuf,
    /// Tells the kernel what it could not know.
    notifier: OnceLock<Notifier>,
    pub counters: Counters,
    /// Inodes that have been read, and whose time of access has not been changed yet.
    pub accesses: Mutex<HashMap<Ino, Time>>,
    pub log: Log,
    /// When a request looked last at what the kernel has been told of times of access since the mount was made, and
    /// whether they are to be left alone.
    place: Mutex<(Instant, bool)>,
    /// Nothing may change: it was asked for, or something went wrong.
    read_only: AtomicBool,
    /// It is being unmounted, and there are still requests.
    ending: AtomicBool,
    /// Bytes of files that a checkpoint would give back.
    freed: AtomicU64,
    /// The host has no room for what has changed.
    host_full: AtomicBool,
    /// How many errors there were of the image or its device.
    errors: AtomicU64,
    /// What the last of them says, and that after which nothing is changed any more.
    told: Mutex<Told>,
    /// The log is so full that a checkpoint is due; or there is no more to do.
    due: Mutex<Due>,
    wake: Condvar,
    since: Instant,
}

#[derive(Clone, Copy, Default)]
struct Due {
    checkpoint: bool,
    end: bool,
}

/// What the numbers of a mount say, besides those of operations.
pub(crate) struct State {
    pub read_only: bool,
    pub host_full: bool,
    pub standing: Standing,
    pub errors: u64,
    pub told: Told,
    pub uptime: Duration,
}

/// What was said of errors.
#[derive(Clone, Default)]
pub(crate) struct Told {
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
        log: Log,
    ) -> Server {
        Server {
            shared: Shared::new(fs),
            inodes: Inodes::default(),
            requests: RwLock::default(),
            is_telling: AtomicBool::new(false),
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

    /// From now on the kernel can be told something.
    pub(crate) fn tells_kernel(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// The kernel has to ask for the attributes of a node again, those of an answer that is on its way included.
    pub(crate) fn tell_changed(&self, ino: Ino) {
        if let Some(notifier) = self.notifier.get() {
            // It may have forgotten the node.
            let _ = notifier.inval_inode(INodeNo(ino.0), -1, 0);
        }
    }

    /// The kernel has to forget all that it knows of a node, its contents included.
    pub(crate) fn tell_stale(&self, ino: Ino) {
        if let Some(notifier) = self.notifier.get() {
            // It may have forgotten the node.
            let _ = notifier.inval_inode(INodeNo(ino.0), 0, 0);
        }
    }

    /// Invalidates a name in the kernel's cache, with all below it that is not in use. The kernel waits for lookups in the directory first:
    /// no request may wait for this.
    pub(crate) fn tell_gone(&self, directory: INodeNo, name: &OsStr) {
        if let Some(notifier) = self.notifier.get() {
            // It may have forgotten the directory.
            let _ = notifier.inval_entry(directory, name);
        }
    }

    /// There is something for [`Server::tend`] to do.
    pub(crate) fn wake_tender(&self) {
        self.wake.notify_one();
    }

    /// How many inodes the kernel knows, and how many are open how often.
    pub(crate) fn inode_counts(&self) -> (usize, usize) {
        let (inodes, opens) = self.inodes.counts();
        let of_snapshots = self.snapshots.as_ref().map_or((0, 0), Snapshots::counts);
        (inodes + of_snapshots.0, opens + of_snapshots.1)
    }

    /// Whether times of access are not to be changed. `mount -o remount` is between the user and the kernel: it is
    /// seen in the list of mounts.
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

    /// Looks at the file system.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Fs) -> betr_core::Result<T>) -> Answer<T> {
        self.shared.read(look).map_err(|error| self.failed(&error))
    }

    /// Changes it; durably, if that was asked for with each change.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut Fs) -> betr_core::Result<T>) -> Answer<T> {
        if self.is_read_only() {
            return Err(Errno::EROFS);
        }
        let (mut full, mut late) = (false, false);
        let done = self.shared.change(|fs| {
            // A late caller must not be told that it is done.
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

    /// `bytes` of files were deleted: a large amount is not left to the next checkpoint.
    pub(crate) fn gives_back(&self, bytes: u64) {
        self.freed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Makes everything durable.
    pub(crate) fn sync(&self) -> Answer<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.look_at_host()?;
        self.shared.sync().map_err(|error| self.failed(&error))?;
        self.has_room();
        Ok(())
    }

    /// Looks whether the file of the image is still whole, and in its place.
    pub(crate) fn look_at_host(&self) -> Answer<()> {
        let Some(image) = &self.image else { return Ok(()) };
        let standing = standing(image);
        let before = std::mem::replace(&mut *self.standing.lock(), standing);
        if let Some(text) = standing.text().filter(|_| before != standing) {
            self.log.error(&format!("{}: {text}", self.options.shown()));
        }
        image.check_len().map_err(|source| {
            // What is cut off is gone, and nothing can be written there.
            let error = betr_core::Error::Io { op: "sync", place: Place::Image, source };
            self.report(error.to_string(), Blame::Image, true);
            Errno::EIO
        })
    }

    /// The number of an error; one of the image or its device is reported.
    pub(crate) fn failed(&self, error: &betr_core::Error) -> Errno {
        if error.is_host_full() && !self.host_full.swap(true, Ordering::Relaxed) {
            let text = "changes wait in memory, and others are refused, until there is room";
            self.log.error(&format!("{}: {error}: {text}", self.options.shown()));
        }
        // Whatever it was, a volume that has failed takes nothing any more. What is refused has changed nothing.
        let refused = matches!(error, betr_core::Error::Refused(_));
        let failed = !refused && self.look(|fs| fs.volume().has_failed());
        if error.blame() != Blame::Request || failed {
            let ends = failed || self.options.read_only_after_errors;
            self.report(error.to_string(), error.blame(), ends);
        }
        of_error(error)
    }

    /// Everything has become durable: if the host had no room before, it has now.
    fn has_room(&self) {
        if self.host_full.swap(false, Ordering::Relaxed) {
            let text = "there is room again where the image is stored; all changes are durable";
            self.log.error(&format!("{}: {text}", self.options.shown()));
        }
    }

    /// A request has panicked: a mistake of ours.
    pub(crate) fn panicked(&self) -> Errno {
        let text = "a request has panicked: please report this";
        self.report(text.into(), Blame::Program, true);
        Errno::EIO
    }

    /// Tells an error. If it speaks against the image or its device, that is noted in the image. If it `ends` changes the mount
    /// is read-only from now on.
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
        // The same place may be asked for again and again.
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

    /// Makes changes durable each second, or as often as was asked for, and checkpoints, until the end.
    pub(crate) fn tend(&self) {
        let (mut last, mut synced) = (Instant::now(), Instant::now());
        let mut quiet = (Msn(0), Instant::now());
        let mut is_told = false;
        // What had lost its name when the power went.
        if !self.options.read_only
            && let Err(error) = self.shared.tend(Fs::reap)
        {
            self.failed(&error);
        }
        // What a recovery brought back: the first change would wait for it.
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
            // It may have been made since.
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
            drop(request);
            let passed_over = self.look(|fs| fs.volume().error_passed_over().map(str::to_owned));
            if let Some(text) = passed_over.filter(|_| !std::mem::replace(&mut is_told, true)) {
                self.report(text, Blame::Image, self.options.read_only_after_errors);
            }
            let (unsynced, changed, failed, blocks, next) = self.look(|fs| {
                let volume = fs.volume();
                let (blocks, next) = (volume.superblock().image_blocks, volume.next_msn());
                (volume.has_unsynced(), volume.has_changes(), volume.has_failed(), blocks, next)
            });
            let worth = FREED_MIN.max(blocks * BLOCK_SIZE as u64 / FREED_SHARE);
            let checkpoint = checkpoint || self.freed.load(Ordering::Relaxed) >= worth;
            if failed {
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
                    self.shared.tend(Fs::reap).and_then(|()| self.shared.checkpoint())
                }
                // Without room nothing else can be done first.
                false if unsynced && full => self.shared.sync(),
                false if unsynced => self.shared.tend(Fs::reap).and_then(|()| self.shared.sync()),
                false if idle => self.reclaim(next),
                false => Ok(()),
            };
            match done {
                Ok(()) if whole || unsynced => self.has_room(),
                Ok(()) => {}
                Err(error) => {
                    self.failed(&error);
                }
            }
        }
    }

    /// Empties buffers that deletes wait in, then frees what dropped snapshots kept, piece by piece. Stops as soon as the next MSN
    /// is another one: something has been changed.
    fn reclaim(&self, next: Msn) -> betr_core::Result<()> {
        while self.shared.tend(reclaim_some)? {
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

    /// Looks at numbers, which are there whatever has happened.
    pub(crate) fn look<T: Default>(&self, look: impl FnOnce(&Fs) -> T) -> T {
        self.shared.read(|fs| Ok(look(fs))).unwrap_or_default()
    }

    /// Something has gone wrong: what has been acknowledged is made durable as far as that goes, and nothing else.
    fn save(&self) {
        let unsynced = |fs: &Fs| fs.volume().has_unsynced() && !fs.volume().has_failed();
        if self.look(unsynced)
            && let Err(error) = self.shared.sync()
        {
            self.log.error(&format!("{}: not durable: {error}", self.options.shown()));
        }
    }

    /// Ends while there are still requests: what has been answered is durable, and nothing changes any more.
    pub(crate) fn stop(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.finish();
    }

    /// After the last change: makes a checkpoint, and ends what [`Server::tend`] does.
    pub(crate) fn finish(&self) {
        self.due.lock().end = true;
        self.wake.notify_one();
        if self.options.read_only {
            return;
        }
        if self.is_read_only() {
            self.save();
            if self.look(|fs| fs.volume().has_unsynced()) {
                let text = "what changed before the error is not all durable";
                self.log.error(&format!("{}: {text}", self.options.shown()));
            }
            return;
        }
        // As long as the inodes are known.
        self.settle_accesses();
        // The kernel does not say that it forgets everything. What has no name goes now.
        self.inodes.clear();
        let begun = Instant::now();
        while let Err(error) = self.end_all() {
            self.failed(&error);
            if !error.is_host_full() || begun.elapsed() >= ROOM_COMES {
                let text = "what changed last is not all durable";
                self.log.error(&format!("{}: {text}", self.options.shown()));
                return;
            }
            std::thread::sleep(LOOK);
        }
        self.has_room();
    }

    /// Makes a checkpoint of all that changed, with nothing left that has no name.
    fn end_all(&self) -> betr_core::Result<()> {
        self.shared.tend(Fs::reap).and_then(|()| {
            while self.shared.tend(reclaim_some)? {}
            self.end_changes()
        })
    }
}

/// Drops some leaves that range deletes cover, or empties some buffers that deletes wait in. Whether there may be more.
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
        Server::new(fs, None, options, Path::new("/mnt"), Log::Stderr)
    }

    /// Errors met in the image, and whether the mount has become read-only.
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
}
