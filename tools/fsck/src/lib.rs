//! `betr fsck`: checks an image, and repairs what is simple.
//!
//! Options and exit codes are those of fsck(8). Without `-f` a volume that was closed cleanly gets one
//! line; with `-n` nothing is ever written.

mod explain;
mod progress;
mod show;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::image::Access;
use betr_cli::volume::{clock_now, failure, nonces, open_device};
use betr_cli::{Exit, ExitCodes, Failure, Io};
use betr_core::Error;
use betr_core::check::{CheckOptions, Code, Report, check, check_quickly};
use betr_core::device::{Device, Disk};
use betr_core::mend::{Repair, Repairable, repair};
use betr_core::volume::read_identity;

use progress::Meter;

/// How it ends, as fsck(8) says.
pub const EXIT_CODES: ExitCodes = ExitCodes {
    how: ", which add up",
    codes: &[
        (Exit::DONE, "nothing wrong"),
        (Exit::CORRECTED, "errors corrected"),
        (Exit::UNCORRECTED, "errors left"),
        (Exit::OPERATIONAL, "the check itself failed"),
        (Exit::FSCK_USAGE, "wrong usage"),
    ],
    note: "A log that was only replayed is no error.",
};

/// Check a betr image, and repair it
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES.to_string())]
pub struct Args {
    /// Only check: write nothing
    #[arg(short = 'n', group = "mode")]
    no: bool,
    /// Repair what is safe to repair without questions
    #[arg(short = 'p', visible_short_alias = 'a', group = "mode")]
    preen: bool,
    /// Repair everything that can be repaired
    #[arg(short = 'y', group = "mode")]
    yes: bool,
    /// Check even if the volume was closed cleanly
    #[arg(short = 'f')]
    force: bool,
    /// Verify the contents of files too
    #[arg(long)]
    data: bool,
    /// Start from this slot of the superblock ring
    #[arg(short = 'b', value_name = "SLOT", value_parser = clap::value_parser!(u32).range(..32))]
    slot: Option<u32>,
    /// Write progress to this file descriptor, as lines of pass, done, total and image; 0 draws a line on
    /// the terminal
    #[arg(short = 'C', value_name = "FD", allow_negative_numbers = true)]
    progress: Option<i32>,
    /// Show numbers about what was checked
    #[arg(short = 'v')]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Say what a code means, and end
    #[arg(long, value_name = "CODE", exclusive = true)]
    explain: Option<String>,
    /// The image
    #[arg(required_unless_present = "explain")]
    image: Option<PathBuf>,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let operational = |failure: Failure| match failure.exit {
        Exit::USAGE => failure.with_exit(Exit::FSCK_USAGE),
        _ => failure.with_exit(Exit::OPERATIONAL),
    };
    if let Some(code) = &args.explain {
        return explain::explain(code, io).map_err(operational);
    }
    let image = args.image.as_deref().unwrap_or(Path::new(""));
    examine(args, image, io).map_err(operational)
}

fn examine(args: &Args, path: &Path, io: &mut Io) -> Result<Exit, Failure> {
    let interactive = !(args.no || args.preen || args.yes);
    if interactive && !io.terminal {
        let text = "without a terminal there is nobody to ask: use -n to check, -p or -y to repair";
        return Err(Failure::failed(text));
    }
    let access = if args.no || interactive { Access::Read } else { Access::Write };
    let (_image, device) = open_device(path, access)?;
    let identity = read_identity(&Disk::new(device.clone()));
    if let Err(error @ Error::Unsupported(_)) = &identity {
        return Err(failure(path, None, error));
    }
    let options = CheckOptions { data: args.data, slot: args.slot };
    let mut meter = Meter::new(args.progress, path)?;
    if !args.force && !args.data {
        let report = check_quickly(&device, options);
        if report.findings.is_empty() {
            show::one_line(path, &report, io, args.json)?;
            return Ok(Exit::DONE);
        }
    }
    let report = check(&device, options, &mut meter);
    meter.done();
    // Without a superblock either it is not a damaged image but something else.
    if let (Err(error @ Error::NotAnImage(_)), None) = (&identity, &report.superblock) {
        return Err(failure(path, Some(&device), error));
    }
    if args.no || interactive || report.findings.is_empty() {
        show::report(args.verbose, args.json, path, &report, None, io)?;
        if interactive && !report.findings.is_empty() {
            io.note("Run again with -p or -y to repair.")?;
        }
        return Ok(outcome(&report));
    }
    mend(args, path, &device, options, &report, io)
}

fn mend(
    args: &Args,
    path: &Path,
    device: &Arc<dyn Device>,
    options: CheckOptions,
    report: &Report,
    io: &mut Io,
) -> Result<Exit, Failure> {
    let can = match report.repairable() {
        Repairable::Safely => true,
        Repairable::WithLoss => args.yes,
        Repairable::Nothing | Repairable::No => false,
    };
    if !can {
        show::report(args.verbose, args.json, path, report, None, io)?;
        if !report.is_clean() {
            let text = match report.repairable() {
                Repairable::WithLoss => {
                    "Something may be lost by a repair: that takes -y. Nothing was written."
                }
                _ => "This version cannot repair all of that; nothing was written.",
            };
            io.note(text)?;
        }
        return Ok(outcome(report));
    }
    let done: Repair = repair(device, report, args.slot, clock_now(), nonces()?)
        .map_err(|error| failure(path, None, &error))?;
    let again = check(device, CheckOptions { slot: None, ..options }, &mut ());
    show::report(args.verbose, args.json, path, report, Some((&done, &again)), io)?;
    let corrected = if report.is_clean() { Exit::DONE } else { Exit::CORRECTED };
    Ok(corrected | outcome(&again))
}

/// The exit code of a check after which nothing was repaired.
fn outcome(report: &Report) -> Exit {
    let failed_to_read = report.findings.iter().any(|finding| finding.code == Code::ReadFailed);
    let left = if report.is_clean() { Exit::DONE } else { Exit::UNCORRECTED };
    left | if failed_to_read { Exit::OPERATIONAL } else { Exit::DONE }
}
