//! `betr mount`: an image as a live file system, through FUSE; and `betr status`, the state of its server.
//!
//! The kernel's requests arrive on several threads (`adapter`), are translated into operations (`requests`), and read
//! or change the one file system (`server`). Each shown snapshot is a file system of its own (`snapshots`). Without
//! `-f` the command starts itself a second time in the background (`background`), and ends when that process reports
//! that the mount works.

mod adapter;
mod attr;
mod background;
mod clones;
mod counters;
mod directory;
mod errno;
mod host;
mod inodes;
mod live;
mod log;
mod mountpoint;
mod options;
mod remount;
mod replies;
mod requests;
mod rollback;
mod server;
mod snapshots;
pub mod status;
mod write_queue;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use betr_cli::{Exit, ExitCodes, Failure, Io, show};

use betr_core::fs::Fs;
use log::LogTarget;
use mountpoint::Unmounter;
use options::Options;

/// Exit codes, with the meanings of mount(8).
pub const EXIT_CODES: ExitCodes = ExitCodes {
    how: "",
    codes: &[
        (Exit::DONE, "mounted"),
        (Exit::MOUNT_USAGE, "wrong usage"),
        (Exit::MOUNT_SYSTEM, "the system does not give what it takes"),
        (Exit::MOUNT_FAILED, "not mounted, or with -f: errors were met while it was"),
    ],
    note: "",
};

/// Mount an image
///
/// Permissions decide who may use the files, as with other file systems. What another user than root mounts is visible to that
/// user alone, unless allow_other is given. Blocks that become free are given back to the host with
/// each checkpoint (discard), so that fstrim(8) has nothing to do here, and is not supported.
///
/// Without relatime and sync, files are opened and closed without a request to the server, which makes reading small files twice as
/// fast. Then O_NOATIME says nothing new, a file can be opened for writing on a mount that an error has made read-only, where
/// writes fail, and a rollback to a snapshot waits until nothing below the root is in use, working directories included.
///
/// fallocate(2) succeeds if the whole range could be written now, and keeps or changes the size as asked. It sets nothing aside:
/// each write of a block goes to a new place, so that what is written by others until then may take the room.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES.to_string())]
pub struct Args {
    /// Stay in the foreground; called as mount.betr, as mount(8) does it: only look whether all is in place
    #[arg(short = 'f', long)]
    foreground: bool,
    /// Options, separated by commas: ro, norecovery, snapshot=NAME (with ro: what the snapshot keeps; see betr
    /// snapshot), snapshots (all snapshots are shown, read-only, below .betr/snapshots in the root; .betr is found by its name and listed
    /// nowhere, so that no copy of the tree takes it along; refused if the root has an entry .betr), overlay=PLAN (with ro: the image as
    /// the repair in this file leaves it; see betr fsck --overlay),
    /// offset=BYTES, allow_other, noallow_other, uid=ID, gid=ID, sync,
    /// noatime (reading leaves times of access unchanged; the default), relatime, discard, nodiscard,
    /// errors=continue|remount-ro (whether an error of the image ends all changes, or is only that of who met it; either is
    /// noted in the image, for the next betr fsck),
    /// commit=SECONDS (changes are durable after so long at the latest; 1), checkpoint=SECONDS (60), cache=BYTES
    /// (256M), nosuid, nodev, noexec, nosymfollow. Other words of fstab(5) are accepted, and named if they mean nothing here
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Mount read-only, as -o ro
    #[arg(short = 'r')]
    read_only: bool,
    /// Mount for reading and writing, as -o rw
    #[arg(short = 'w', conflicts_with = "read_only")]
    read_write: bool,
    /// The command line is that of a helper of mount(8)
    #[arg(long, hide = true)]
    helper: bool,
    /// Helpers are told to be verbose, sloppy, to leave mtab alone, the type and a namespace
    #[arg(short = 'v', hide = true)]
    verbose: bool,
    #[arg(short = 's', hide = true)]
    sloppy: bool,
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    #[arg(short = 't', hide = true)]
    type_: Option<String>,
    #[arg(short = 'N', hide = true)]
    namespace: Option<PathBuf>,
    /// Say on standard output when the mount works, and let go of the terminal
    #[arg(long, hide = true)]
    ready: bool,
    /// The image
    image: PathBuf,
    /// The directory to mount it at
    directory: PathBuf,
}

/// Why mounting failed.
enum Trouble {
    /// The command line is wrong.
    Usage(Failure),
    /// The server cannot be started.
    System(Failure),
    /// Anything else.
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Failed(failure)
    }
}

/// Runs the tool. It prints errors itself, since its exit codes differ from those of other tools.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let (exit, failure) = match run_mount(args, io) {
        Ok(exit) => return Ok(exit),
        Err(Trouble::Usage(failure)) => (Exit::MOUNT_USAGE, failure),
        Err(Trouble::System(failure)) => (Exit::MOUNT_SYSTEM, failure),
        Err(Trouble::Failed(failure)) => (Exit::MOUNT_FAILED, failure),
    };
    io.note(&format!("betr: {failure}"))?;
    Ok(exit)
}

fn run_mount(args: &Args, io: &mut Io) -> Result<Exit, Trouble> {
    // A path that cannot be resolved is reported when the image is opened.
    let image = args.image.canonicalize().unwrap_or_else(|_| args.image.clone());
    let directory = whole(&args.directory)?;
    if !directory.is_dir() {
        let text = format!("{} is not a directory to mount at", show::path(&args.directory));
        return Err(Failure::failed(text).into());
    }
    let mut words = args.options.clone();
    words.extend(args.read_only.then(|| "ro".into()));
    words.extend(args.read_write.then(|| "rw".into()));
    let options = Options::parse(image, &words, args.sloppy).map_err(Trouble::Usage)?;
    if args.namespace.is_some() {
        let text = "-N: enter the namespace first, with nsenter(1)";
        return Err(Trouble::Usage(Failure::usage(text)));
    }
    if args.helper && args.foreground {
        return Ok(Exit::DONE);
    }
    // The server in the background parses the same words, and would repeat these notes.
    for (word, why) in options.ignored.iter().filter(|_| !args.ready) {
        io.note(&format!(
            "betr: -o {}: nothing changes by that: {why}",
            show::bytes(word.as_bytes())
        ))
        .map_err(Failure::from)?;
    }
    if options.remount {
        return Ok(remount::remount(&options, &directory)?);
    }
    match args.foreground {
        true => Ok(live::serve(options, &directory, args.ready, io)?),
        false => background::start(&options.image, &directory, &words, args.sloppy)
            .map_err(Trouble::System),
    }
}

/// A file system that threads of this process serve. Dropping it unmounts.
pub struct Mounted {
    unmounter: Unmounter,
    serving: Option<JoinHandle<std::io::Result<()>>>,
}

impl Mounted {
    /// Mounts a file system at a directory; `name` is its source in the list of mounts.
    pub fn new(fs: Fs, name: &Path, directory: &Path) -> Result<Mounted, Failure> {
        let directory = whole(directory)?;
        let options = Options::parse(name.into(), &[], false)?;
        let mount = live::Mount::new(fs, None, options, &directory, LogTarget::Stderr)
            .map_err(|error| Failure::failed(format!("{}: {error}", show::path(&directory))))?;
        let unmounter = mount.unmounter();
        let serving = Some(std::thread::spawn(move || mount.serve()));
        Ok(Mounted { unmounter, serving })
    }

    /// Unmounts it, after which all changes are durable.
    pub fn unmount(mut self) -> std::io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> std::io::Result<()> {
        let Some(serving) = self.serving.take() else { return Ok(()) };
        self.unmounter.unmount()?;
        let panicked = |_| std::io::Error::other("the server has panicked");
        serving.join().map_err(panicked)?
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The absolute path, independent of the working directory.
fn whole(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| Failure::failed(format!("{}: {error}", show::path(path))))
}
