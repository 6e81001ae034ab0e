//! Mounting and unmounting a FUSE file system: with mount(2) for root, with fusermount for other
//! users.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::image::{MountedAt, what_is_mounted_at};
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use parking_lot::Mutex;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{getgid, getuid};

use crate::adapter::Adapter;
use crate::options::Options;

/// The device through which the kernel lets a process serve a file system.
const FUSE: &str = "/dev/fuse";
/// Threads that serve requests; at most half of them work on changes.
const THREADS: usize = 16;
pub(crate) const CHANGERS: usize = THREADS / 2;

/// A mount that is unmounted when this is dropped, unless it has ended.
pub(crate) struct MountGuard(Unmounter);

/// A handle that unmounts a file system.
#[derive(Clone)]
pub(crate) struct Unmounter(Arc<Mutex<Option<Mechanism>>>);

/// How to unmount. `number` is the device number of the mount: another one may have been mounted at the directory
/// since.
enum Mechanism {
    Unmount { directory: PathBuf, number: Option<u64> },
    Helper(SessionUnmounter),
}

impl MountGuard {
    fn new(way: Mechanism) -> MountGuard {
        MountGuard(Unmounter(Arc::new(Mutex::new(Some(way)))))
    }

    pub(crate) fn unmounter(&self) -> Unmounter {
        self.0.clone()
    }
}

impl Unmounter {
    /// The mount has ended: whatever is mounted there from now on is left alone.
    pub(crate) fn let_be(&self) {
        *self.0.lock() = None;
    }

    /// Unmounts it. Open files stay usable until the server ends.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        let way = self.0.lock().take();
        match way {
            Some(Mechanism::Unmount { directory, number }) if number_at(&directory) == number => {
                Ok(unmount(directory, UnmountFlags::DETACH)?)
            }
            Some(Mechanism::Helper(mut helper)) => helper.unmount(),
            _ => Ok(()),
        }
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        let _ = self.0.unmount();
    }
}

fn number_at(directory: &Path) -> Option<u64> {
    what_is_mounted_at(directory).map(|MountedAt { device, .. }| device)
}

/// Mounts the file system that the adapter serves.
pub(crate) fn mount_at(
    adapter: Adapter,
    options: &Options,
    directory: &Path,
) -> io::Result<(Session<Adapter>, MountGuard)> {
    let mut config = Config::default();
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    if rustix::process::geteuid().is_root() {
        let device = by_root(options, directory)?;
        let number = number_at(directory);
        let placed =
            MountGuard::new(Mechanism::Unmount { directory: directory.to_owned(), number });
        let session = Session::from_fd(adapter, device, config.acl, config)?;
        return Ok((session, placed));
    }
    // The helper takes its options as text, with a comma as the separator.
    let name = options.image.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,");
    config.mount_options = vec![
        MountOption::FSName(name),
        MountOption::Subtype("betr".into()),
        MountOption::DefaultPermissions,
    ];
    let wanted = [
        (options.noexec, MountOption::NoExec),
        (options.noatime, MountOption::NoAtime),
        (options.read_only, MountOption::RO),
    ];
    config.mount_options.extend(wanted.into_iter().filter(|(is, _)| *is).map(|(_, option)| option));
    // The helper reports no reason when it fails, so `/dev/fuse` is tried first.
    OpenOptions::new().read(true).write(true).open(FUSE).map_err(no_fuse)?;
    let mut session = Session::new(adapter, directory, &config)?;
    let placed = MountGuard::new(Mechanism::Helper(session.unmount_callable()));
    Ok((session, placed))
}

/// An error that says that FUSE is missing, or that this user may not use it.
fn no_fuse(error: io::Error) -> io::Error {
    let text = format!(
        "{FUSE}: {error}; betr mount needs FUSE (modprobe fuse; in a container, the device)"
    );
    io::Error::new(error.kind(), text)
}

/// Mounts with mount(2), and returns the descriptor of `/dev/fuse` for the requests.
fn by_root(options: &Options, directory: &Path) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open(FUSE).map_err(no_fuse)?;
    let mode = std::fs::metadata(directory)?.mode();
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw()
    );
    if options.allow_other {
        data += ",allow_other";
    }
    let data = std::ffi::CString::new(data)?;
    mount(&options.image, directory, "fuse.betr", flags(options), Some(data.as_c_str()))?;
    Ok(device.into())
}

/// Restrictions that the kernel enforces.
pub(crate) fn flags(options: &Options) -> MountFlags {
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
        (options.noatime, MountFlags::NOATIME),
        (options.nosymfollow, MountFlags::NOSYMFOLLOW),
    ];
    flags.into_iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| flag).collect()
}
