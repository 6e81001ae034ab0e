//! Opening an image, a file or a block device, without harm.
//!
//! What [`open`] returns is a regular file or a block device, locked with flock(2) against other
//! betr tools (shared for reading, exclusive for writing), and for writing neither mounted nor
//! behind a loop device; the backing file of a loop device is not in use either. What is in use is refused, and the message says who uses it and how to end that; only
//! what ends by itself is waited for, above all the server of a mount that was unmounted. [`create`] makes a new
//! image that appears only when complete.
//!
//! The lock is advisory and ends when the image and its devices are dropped. A mount made after the check is not
//! noticed, except on block devices, where `O_EXCL` makes the kernel refuse it. Images are not
//! read here, apart from looking for data that `create` would destroy.

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

/// What an image is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, together with others that read.
    Read,
    /// Reading and writing, alone.
    Write,
}

/// The server of a mount makes everything durable after umount(8) has returned: it is waited for so long.
const SERVER_ENDS: Duration = Duration::from_secs(60);
/// A lock may outlive its owner for a moment: udev looks at a block device that was closed, a child of the owner is
/// between fork and exec.
const OWNER_ENDS: Duration = Duration::from_millis(500);
/// A loop device may lie on another; at most this many are followed, as in the kernel.
const LOOPS_MAX: usize = 10;
/// Who waits looks so often.
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
    // Between looking at a path and locking what is there, another tool may put a new image in
    // its place; the lock would then be on a file without a name. So look again, and start over.
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

/// Opens what is at `path` for a look, without a lock: it may change meanwhile.
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
        // The metadata of a device has no length.
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

/// Whether both are the same file, whatever its names.
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

/// Opens without ever waiting: `O_NONBLOCK`, should a FIFO have taken the place of the file.
fn open_file(path: &Path, access: Access, meta: &Metadata) -> Result<File, OpenError> {
    let exclusive = access == Access::Write && meta.file_type().is_block_device();
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if exclusive {
        // For a block device this means: fail if the kernel uses it, and keep it from doing so.
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

/// Refuses a loop device whose backing file is in use. The lock on that file is tried, and not kept: from then on the
/// file is refused because of the loop device.
fn check_backing(path: &Path, meta: &Metadata, access: Access) -> Result<(), OpenError> {
    let (mut meta, mut depth) = (meta.clone(), 0);
    while depth < LOOPS_MAX
        && let Some(backing) = busy::backing_file(&meta)
    {
        // One that is gone or may not be read cannot be asked.
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
