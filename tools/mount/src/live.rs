//! A mount: opening the image, serving it, unmounting at a signal.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use betr_cli::image::{self, Access, OpenImage, what_is_mounted_at};
use betr_cli::volume::{clock_now, failure, nonces};
use betr_cli::{Exit, Failure, Io, show};
use betr_core::device::{DeferringDevice, Device};
use betr_core::disk::Disk;
use betr_core::fs::Fs;
use betr_core::store::CacheBudget;
use betr_core::volume::{Mode, NonceSource, OpenOptions, Volume, note_error};
use fuser::Session;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::adapter::Adapter;
use crate::background;
use crate::log::LogTarget;
use crate::mountpoint::{MountGuard, Unmounter, mount_at};
use crate::options::Options;
use crate::server::Server;
use crate::snapshots;
use crate::status::Socket;

/// Time after a signal in which programs can close their files, before the server refuses changes and exits.
const GRACE: Duration = Duration::from_secs(2);
/// While the host is full, a mount keeps written blocks in memory, up to the size of its cache, and at least 64 MiB:
/// a checkpoint writes at most the dirty part of the cache.
const DEFERRED_MIN: usize = 64 << 20;
/// The kernel's read-ahead, in KiB.
const READ_AHEAD: &str = "1024";

/// Mounts an image at a directory, and serves it until it is unmounted.
pub(crate) fn serve(
    mut options: Options,
    directory: &Path,
    in_background: bool,
    io: &mut Io,
) -> Result<Exit, Failure> {
    if in_background {
        background::leave_session();
    }
    let shown = options.shown();
    background::lift_limits().map_err(|error| {
        Failure::failed(format!("{shown}: the limits of this process: {error}"))
    })?;
    // Commands that wait for the image recognise the server by its thread name.
    let name = std::ffi::CString::new(image::SERVER).expect("it has no zeros");
    let _ = rustix::thread::set_name(&name);
    let (image, fs) = open(&mut options, io)?;
    if options.snapshots {
        snapshots::check(&fs, &options)?;
    }
    let log = if in_background { LogTarget::System } else { LogTarget::Stderr };
    let not_mounted = |error: std::io::Error| {
        let at = show::path(directory);
        Failure::failed(format!("{shown}: cannot be mounted at {at}: {error}"))
    };
    // From here on a signal is queued until the file system can be unmounted.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(not_mounted)?;
    let mount = Mount::new(fs, Some(image), options, directory, log);
    let mount = mount.map_err(not_mounted)?;
    let (ended, end) = mpsc::channel();
    end_at_signals(signals, &mount.server, mount.unmounter(), end);
    let socket = Socket::open(&mount.server, directory);
    if in_background {
        background::ready().map_err(not_mounted)?;
    }
    let server = mount.server.clone();
    let served = mount.serve();
    let _ = ended.send(());
    drop(socket);
    served.map_err(|error| Failure::failed(format!("{shown}: the mount has ended: {error}")))?;
    Ok(if server.state().errors == 0 { Exit::DONE } else { Exit::MOUNT_FAILED })
}

/// A mounted file system that does not answer requests yet.
pub(crate) struct Mount {
    pub server: Arc<Server>,
    session: Session<Adapter>,
    placed: MountGuard,
}

impl Mount {
    pub(crate) fn new(
        fs: Fs,
        image: Option<OpenImage>,
        options: Options,
        directory: &Path,
        log: LogTarget,
    ) -> std::io::Result<Mount> {
        let server = Arc::new(Server::new(fs, image, options, directory, log));
        let root = server.shared.read(Fs::root).map_err(std::io::Error::other)?;
        server.inodes.enter(&root, 0);
        drop(root);
        let adapter = Adapter::new(server.clone());
        let (session, placed) = mount_at(adapter, &server.options, directory)?;
        server.tells_kernel(session.notifier());
        read_ahead(directory);
        Ok(Mount { server, session, placed })
    }

    /// A handle that unmounts it.
    pub(crate) fn unmounter(&self) -> Unmounter {
        self.placed.unmounter()
    }

    /// Answers requests until it is unmounted. On return all changes are durable.
    pub(crate) fn serve(self) -> std::io::Result<()> {
        let Mount { server, session, placed } = self;
        let housekeeping = thread::spawn(move || server.housekeep());
        let served = session.run();
        if served.is_ok() {
            placed.unmounter().let_be();
        }
        let _ = housekeeping.join();
        served
    }
}

/// Opens the image, read-only if it is write-protected or damaged.
fn open(options: &mut Options, io: &mut Io) -> Result<(OpenImage, Fs), Failure> {
    let image = match options.read_only {
        true => image::open(&options.image, Access::Read)?,
        false => match image::open(&options.image, Access::Write) {
            Err(error) if error.is_write_protected() => {
                let image = image::open(&options.image, Access::Read)?;
                io.note(&format!("{}: write-protected, mounted read-only", options.shown()))?;
                options.read_only = true;
                image
            }
            opened => opened?,
        },
    };
    let len = image.len.checked_sub(options.offset).ok_or_else(|| {
        let text = format!("{}: it ends before -o offset={}", options.shown(), options.offset);
        Failure::usage(text)
    })?;
    let file = image.part(options.offset, len);
    let device: Arc<dyn Device> = match &options.overlay {
        Some(overlay) => betr_cli::plan::lay_over(file, &options.image, overlay)?,
        None => Arc::new(DeferringDevice::new(file, options.cache.max(DEFERRED_MIN))),
    };
    let opened = match open_volume(options, &device, nonces()?) {
        // A damaged image that cannot be opened for writing may still be readable.
        Err(error) if error.is_damage() && !options.read_only => {
            io.note(&format!(
                "{}: damaged, mounted read-only: {error}; check it with 'betr fsck -fn'",
                options.shown()
            ))?;
            options.read_only = true;
            // Fails if the identity block itself is damaged.
            let _ = note_error(&Disk::new(device.clone()), true);
            open_volume(options, &device, nonces()?)
        }
        opened => opened,
    };
    let volume = opened.map_err(|error| failure(&options.image, Some(&device), &error))?;
    if volume.identity().error_met {
        io.note(&format!(
            "{}: an error was met in it before; check it with 'betr fsck -fn'",
            options.shown()
        ))?;
    }
    Ok((image, Fs::open(volume, Box::new(clock_now))))
}

fn open_volume(
    options: &Options,
    device: &Arc<dyn Device>,
    nonces: NonceSource,
) -> betr_core::Result<Volume> {
    let mode = match (options.read_only, options.no_recovery || options.snapshot.is_some()) {
        (true, true) => Mode::Checkpoint,
        (true, false) => Mode::ReadOnly,
        (false, _) => Mode::ReadWrite,
    };
    let cache = CacheBudget::of(options.cache);
    let hold = options.snapshot.clone();
    let usual = OpenOptions::new(mode, nonces);
    let open = OpenOptions { punch: options.discard, hold, cache, ..usual };
    Ok(Volume::open(device.clone(), open)?.0)
}

/// Sets the kernel's read-ahead to the size of one request. Without the right to do so, the kernel's smaller default
/// stays.
fn read_ahead(directory: &Path) {
    if let Some(mounted) = what_is_mounted_at(directory) {
        let (major, minor) = (rustix::fs::major(mounted.device), rustix::fs::minor(mounted.device));
        let _ = std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READ_AHEAD);
    }
}

/// Unmounts at SIGTERM, SIGINT and SIGHUP. If files are still open after the grace time, the server makes
/// acknowledged changes durable and exits; operations on those files fail then.
fn end_at_signals(
    mut signals: Signals,
    server: &Arc<Server>,
    unmounter: Unmounter,
    end: mpsc::Receiver<()>,
) {
    let server = server.clone();
    thread::spawn(move || {
        if signals.forever().next().is_none() {
            return;
        }
        let _ = unmounter.unmount();
        if end.recv_timeout(GRACE) == Err(mpsc::RecvTimeoutError::Timeout) {
            let durable = server.stop();
            std::process::exit(i32::from(!durable));
        }
    });
}
