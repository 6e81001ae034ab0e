//! Putting a FUSE file system in its place, and taking it away: mount(2) for root, the helper of libfuse for others.

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

/// Where the kernel lets programs serve a file system.
const FUSE: &str = "/dev/fuse";
/// Threads that serve requests; those that change something have half of them.
const THREADS: usize = 16;
pub(crate) const CHANGERS: usize = THREADS / 2;

/// A mount that is unmounted when this is dropped, unless it is gone already.
pub(crate) struct Mounted(Unmounter);

/// Takes a mount away.
#[derive(Clone)]
pub(crate) struct Unmounter(Arc<Mutex<Option<Mechanism>>>);

/// How a mount is taken away. What is mounted there has a number: another may have come in its place.
enum Mechanism {
    Unmount { directory: PathBuf, number: Option<u64> },
    Helper(SessionUnmounter),
}

impl Mounted {
    fn new(way: Mechanism) -> Mounted {
        Mounted(Unmounter(Arc::new(Mutex::new(Some(way)))))
    }

    pub(crate) fn unmounter(&self) -> Unmounter {
        self.0.clone()
    }
}

impl Unmounter {
    /// It has been unmounted: what is mounted there from now on is not ours.
    pub(crate) fn let_be(&self) {
        *self.0.lock() = None;
    }

    /// Unmounts it. Open files remain usable until the server ends.
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

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.0.unmount();
    }
}

fn number_at(directory: &Path) -> Option<u64> {
    what_is_mounted_at(directory).map(|MountedAt { device, .. }| device)
}

/// Mounts what the adapter answers for.
pub(crate) fn mount_at(
    adapter: Adapter,
    options: &Options,
    directory: &Path,
) -> io::Result<(Session<Adapter>, Mounted)> {
    let mut config = Config::default();
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    if rustix::process::geteuid().is_root() {
        let device = by_root(options, directory)?;
        let number = number_at(directory);
        let placed = Mounted::new(Mechanism::Unmount { directory: directory.to_owned(), number });
        let session = Session::from_fd(adapter, device, config.acl, config)?;
        return Ok((session, placed));
    }
    // The helper does as it is told in text, where a comma ends a word.
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
    // The helper says only that it has failed.
    OpenOptions::new().read(true).write(true).open(FUSE).map_err(no_fuse)?;
    let mut session = Session::new(adapter, directory, &config)?;
    let placed = Mounted::new(Mechanism::Helper(session.unmount_callable()));
    Ok((session, placed))
}

/// An error that says that the kernel has no FUSE, or keeps it to others.
fn no_fuse(error: io::Error) -> io::Error {
    let text = format!(
        "{FUSE}: {error}; betr mount needs FUSE (modprobe fuse; in a container, the device)"
    );
    io::Error::new(error.kind(), text)
}

/// Mounts, and returns the kernel's end of it.
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

/// What the kernel shall forbid.
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
