//! Putting a FUSE file system in its place: mount(2) for root, the helper of libfuse for others.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{getgid, getuid};

use crate::adapter::Adapter;
use crate::options::Options;

/// Threads that serve requests. Those that change or sync wait for one another: there must be others left to read.
const THREADS: usize = 16;

/// A mount that goes when this is dropped, unless somebody else has taken it away.
pub(crate) struct Placed {
    directory: Option<PathBuf>,
}

impl Placed {
    /// It has been unmounted: what is mounted there from now on is not ours.
    pub fn let_be(mut self) {
        self.directory = None;
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            let _ = unmount(directory, UnmountFlags::DETACH);
        }
    }
}

/// Mounts what the adapter answers for.
pub(crate) fn place(
    adapter: Adapter,
    options: &Options,
    directory: &Path,
) -> io::Result<(Session<Adapter>, Placed)> {
    let mut config = Config::default();
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    if rustix::process::geteuid().is_root() {
        let device = by_root(options, directory)?;
        let placed = Placed { directory: Some(directory.to_owned()) };
        let session = Session::from_fd(adapter, device, config.acl, config)?;
        return Ok((session, placed));
    }
    // The helper does as it is told in text.
    let name = options.image.to_string_lossy().into_owned();
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
    let session = Session::new(adapter, directory, &config)?;
    Ok((session, Placed { directory: None }))
}

/// Mounts, and returns the kernel's end of it.
fn by_root(options: &Options, directory: &Path) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
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
    ];
    flags.into_iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| flag).collect()
}
