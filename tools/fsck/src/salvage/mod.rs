//! `betr salvage`: copies all readable files out of a damaged image.
//!
//! The image is only read. The mender repairs a view of it, backed by a file without a name. From this view everything
//! readable is copied, and missing parts are reported file by file. Nothing is copied unless it verifies.

mod losses;
mod opened;
mod report;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betr_cli::progress::Meter;
use betr_cli::view::ImageArgs;
use betr_cli::volume::failure;
use betr_cli::{Exit, ExitCodes, Failure, Io, show};
use betr_copy::host::HostError;
use betr_copy::{CopyError, tally};
use betr_core::fs::{LastLink, Resolved};
use betr_core::path::Operand;
use betr_core::text::Printable;

use report::Reporter;

/// The exit codes.
pub const EXIT_CODES: ExitCodes = ExitCodes {
    how: "",
    codes: &[
        (Exit::DONE, "all is there"),
        (Exit::FAILED, "failed, or the host would not take something"),
        (Exit::USAGE, "wrong usage"),
        (Exit::DAMAGED, "something is missing, or the image is none"),
    ],
    note: "",
};

/// Copy all that is readable out of a damaged image
///
/// The image is never written to. It may be damaged anywhere, its end may be missing, and blocks of it may be
/// unreadable: what 'betr fsck -y' would make of it is made in a temporary file, and copied from there as 'betr export'
/// does, but behind every error it goes on. Only what verifies is copied: where bytes of a file are missing, the copy has
/// a hole. What has lost its name is in lost+found.
///
/// The report has a line for everything that is not complete, and what is the matter with it; then one of how much
/// is complete, partial and lost. Lost are places where files may have been of which nothing is left, not even their
/// number.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES.to_string())]
pub struct Args {
    /// Copy nothing: only report what could be copied
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Show the paths of what is complete, too
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Start from this slot of the superblock ring [default: the newest that verifies]
    #[arg(short = 'b', value_name = "SLOT", value_parser = clap::value_parser!(u32).range(..32))]
    slot: Option<u32>,
    /// Copy only what is at PATH, and below it
    #[arg(long, value_name = "PATH")]
    only: Option<PathBuf>,
    #[command(flatten)]
    image: ImageArgs,
    /// What to make: must not exist, or be an empty directory
    #[arg(required_unless_present = "dry_run")]
    dest: Option<PathBuf>,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let dest = args.dest.as_deref().filter(|_| !args.dry_run);
    if let Some(dest) = dest
        && dest.symlink_metadata().is_ok()
        && !dest.read_dir().is_ok_and(|mut entries| entries.next().is_none())
    {
        // Opening the image takes long, so this is reported first.
        return Err(Failure::failed(exists(dest).to_string()));
    }
    let image = args.image.path();
    let opened = opened::open(args)?;
    let only = args.only.as_ref().map_or(&b"/"[..], |path| path.as_os_str().as_bytes());
    let only = Operand::new(only);
    let fs = &opened.fs;
    let found = fs.look_up(&only, LastLink::Keep).map_err(|error| match &error {
        betr_core::Error::Refused(refusal) => {
            let found = &opened.found;
            let text = format!("{}: {}: {refusal}", show::path(image), Printable(only.bytes()));
            Failure::new(if found.is_damaged() { Exit::DAMAGED } else { Exit::FAILED }, text)
        }
        _ => failure(image, None, &error),
    })?;
    let Resolved { object: start, path } = found;
    let meter = Meter::counting(true, "Copying", tally::so_far);
    let mut reporter = Reporter::new(args, &path, &opened.found, io)?;
    betr_copy::salvage(fs, start, dest, &mut |salvaged| reporter.tell(salvaged)).map_err(
        |error| match (error, dest) {
            (CopyError::Output(error), _) => error.into(),
            (CopyError::Host(error @ HostError::Exists { .. }), Some(dest))
                if error.path() == dest.as_os_str().as_bytes() =>
            {
                Failure::failed(error.to_string())
            }
            (error, Some(dest)) if dest.exists() => {
                Failure::failed(format!("{error}\n{} is incomplete.", show::path(dest)))
            }
            (error, _) => Failure::failed(error.to_string()),
        },
    )?;
    drop(meter);
    // The report includes read errors that occurred during the copy.
    Ok(reporter.end(&opened.found)?)
}

/// The failure if `dest` exists.
fn exists(dest: &Path) -> HostError {
    HostError::Exists { path: dest.as_os_str().as_bytes().to_vec() }
}
