//! Opens images (regular files or block devices) safely.
//!
//! [`open`] returns a regular file or block device locked with flock(2) against other betr tools: shared for reading,
//! exclusive for writing. For writing, the image is neither mounted nor attached to a loop device. If the image is a
//! loop device, its backing file is not in use either. An image in use is refused, with a message that names the user
//! and says how to end the use. [`open`] waits only for uses that end by themselves, above all the server of a mount
//! that was unmounted. [`create`] makes a new image that appears only when complete.
//!
//! Every way to a device: [`open`] and the same with other rules (`look`, `OpenImage::part` for a part of the file),
//! [`create`] and [`create_new`] here, and [`device_of`] without a lock, for the files of plans. Callers:
//! `grep -rnE 'image::(open|look|create|device_of)|open_(device|view|fs)\(|\.part\(' tools`. Without this module:
//! `offline::device::scratch` (a temporary file), `dev make-broken` and `dev crash` (files that they write whole),
//! `core/examples`, `bench` and tests.
//!
//! Devices that lie on top of one, or stand for one: `grep -rn 'Device for' --include=*.rs core offline lab tools`. In tools:
//! `OverlayDevice` (a replay in memory, `powercut`), `DeferringDevice` (mount), `PlanView` (plans), `PlanningDevice` (repair,
//! salvage), `LenientDevice` (salvage, pack), `NotingDevice` and `ProofDevice` (proofs), `CachedDevice` (diff), `RecordingDevice`
//! (`powercut`), `Watched` (inspector), `Nowhere` (pack), `MemoryDevice` (the inspector's tour).
//!
//! The lock is advisory and ends when the image and all its devices are dropped. A mount made after the check goes
//! unnoticed, except on block devices, where `O_EXCL` makes the kernel refuse it. This module does not read images,
//! except to find data that `create` would destroy.

mod busy;
mod copy;
mod create;
mod data;
mod error;
mod opened;
mod temp;

pub use busy::{MountedAt, SERVER, what_is_mounted_at};
pub use copy::copy_to;
pub use create::{NewImage, create, create_new, existing_len};
pub use error::OpenError;
pub use opened::{OpenImage, device_of};

use error::doing;
use rustix::fs::OFlags;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// The kind of access for which an image is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, with a shared lock.
    Read,
    /// Reading and writing, with an exclusive lock.
    Write,
}

/// A mount's server makes everything durable after umount(8) has returned: [`open`] waits up to 60 s for it.
const SERVER_ENDS: Duration = Duration::from_secs(60);
/// A lock may outlive its owner briefly (udev examines a block device after it is closed, or a child of the owner is
/// between fork and exec): [`open`] waits up to 500 ms.
const OWNER_ENDS: Duration = Duration::from_millis(500);
/// Loop devices can be stacked; at most 10 levels are followed, as in the kernel.
const LOOPS_MAX: usize = 10;
/// The lock is retried every 25 ms while [`open`] waits.
const LOOK: Duration = Duration::from_millis(25);

/// Opens the image at `path`.
pub fn open(path: impl AsRef<Path>, access: Access) -> Result<OpenImage, OpenError> {
    let path = path.as_ref();
    let begun = Instant::now();
    loop {
        let opened = open_now(path, access);
        let Some(held) = opened.as_ref().err().and_then(OpenError::held) else { return opened };
        let waited = begun.elapsed();
        let served = || fs::metadata(held).is_ok_and(|meta| busy::is_served(&meta));
        if waited > SERVER_ENDS || waited > OWNER_ENDS && !served() {
            return opened;
        }
        std::thread::sleep(LOOK);
    }
}

fn open_now(path: &Path, access: Access) -> Result<OpenImage, OpenError> {
    // Another tool may replace the file between stat(2) and flock(2); the lock would then be on an unlinked file. So
    // the identity is checked again, and the loop starts over on a mismatch.
    for _ in 0..8 {
        let seen = metadata(path)?;
        check_kind(path, &seen)?;
        if access == Access::Write {
            busy::check(path, &seen)?;
        }
        let file = open_file(path, access, &seen)?;
        lock(&file, path, access)?;
        check_backing(path, &seen, access)?;
        let opened = file.metadata().map_err(doing(path, "examine"))?;
        if same_file(&opened, &seen) && same_file(&opened, &metadata(path)?) {
            return finish(file, path, &opened);
        }
    }
    Err(OpenError::Replaced { path: path.into() })
}

/// Opens the image at `path` for reading without a lock: it may change at any time.
pub fn look(path: impl AsRef<Path>) -> Result<OpenImage, OpenError> {
    let path = path.as_ref();
    let seen = metadata(path)?;
    check_kind(path, &seen)?;
    let file = open_file(path, Access::Read, &seen)?;
    let opened = file.metadata().map_err(doing(path, "examine"))?;
    check_kind(path, &opened)?;
    finish(file, path, &opened)
}

fn finish(mut file: File, path: &Path, opened: &Metadata) -> Result<OpenImage, OpenError> {
    let is_block_device = opened.file_type().is_block_device();
    let len = if is_block_device {
        // st_size of a block device is 0, so the length comes from a seek to its end.
        let len = file.seek(SeekFrom::End(0)).map_err(doing(path, "find the length of"))?;
        file.rewind().map_err(doing(path, "seek in"))?;
        len
    } else {
        opened.len()
    };
    Ok(OpenImage::new(file, len, is_block_device, path.into()))
}

fn metadata(path: &Path) -> Result<Metadata, OpenError> {
    fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => OpenError::NotFound { path: path.into() },
        _ => OpenError::Io { path: path.into(), doing: "examine", source },
    })
}

/// Whether both are the same inode, whatever the names.
fn same_file(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

fn check_kind(path: &Path, meta: &Metadata) -> Result<(), OpenError> {
    let kind = meta.file_type();
    let found = if kind.is_file() || kind.is_block_device() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe (FIFO)"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() {
        "a character device"
    } else {
        "of an unknown type"
    };
    Err(OpenError::Kind { path: path.into(), found })
}

/// Opens without blocking: `O_NONBLOCK` covers a FIFO that has replaced the file since stat(2).
fn open_file(path: &Path, access: Access, meta: &Metadata) -> Result<File, OpenError> {
    let exclusive = access == Access::Write && meta.file_type().is_block_device();
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if exclusive {
        // On a block device `O_EXCL` fails if the kernel uses it, and keeps the kernel from using it later.
        flags |= OFlags::EXCL;
    }
    let opened = OpenOptions::new()
        .read(true)
        .write(access == Access::Write)
        .custom_flags(flags.bits() as i32)
        .open(path);
    opened.map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => OpenError::NotFound { path: path.into() },
        std::io::ErrorKind::ResourceBusy if exclusive => {
            OpenError::Busy { path: path.into(), users: busy::device_holders(meta.rdev()) }
        }
        _ if access == Access::Write => doing(path, "write to")(source),
        _ => doing(path, "read")(source),
    })
}

/// Refuses a loop device whose backing file is in use. The lock on the backing file is tested and then released: from
/// then on the loop device itself makes tools refuse the file.
fn check_backing(path: &Path, meta: &Metadata, access: Access) -> Result<(), OpenError> {
    let (mut meta, mut depth) = (meta.clone(), 0);
    while depth < LOOPS_MAX
        && let Some(backing) = busy::backing_file(&meta)
    {
        // A backing file that is deleted or not readable cannot be tested.
        let Ok(under) = fs::metadata(&backing) else { break };
        let Ok(file) = open_file(&backing, Access::Read, &under) else { break };
        lock(&file, &backing, access).map_err(|source| OpenError::Backing {
            device: path.into(),
            source: Box::new(source),
        })?;
        (meta, depth) = (under, depth + 1);
    }
    Ok(())
}

fn lock(file: &File, path: &Path, access: Access) -> Result<(), OpenError> {
    let meta = file.metadata().map_err(doing(path, "examine"))?;
    let result = match access {
        Access::Read => file.try_lock_shared(),
        Access::Write => file.try_lock(),
    };
    match result {
        Ok(()) => return Ok(()),
        Err(TryLockError::Error(source)) => return Err(doing(path, "lock")(source)),
        Err(TryLockError::WouldBlock) => {}
    }
    if let Some(at) = busy::mounted_at(path, &meta) {
        return Err(OpenError::Mounted { path: path.into(), at });
    }
    Err(OpenError::Locked { path: path.into(), holders: busy::lock_holders(&meta), access })
}
