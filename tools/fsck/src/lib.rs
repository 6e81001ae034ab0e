//! `betr fsck`: checks an image and repairs it.
//!
//! Options and exit codes are those of fsck(8). Without `-f` a volume that was closed cleanly only gets one line of
//! output. With `-n` nothing is ever written. Every repair is made on a view of the image and becomes a plan. Only the
//! plan is written to the image, and only if the view is no worse than the image.

mod apply;
mod ask;
mod explain;
mod paths;
mod plan;
mod progress;
mod repair;
pub mod salvage;
mod show;
pub mod undo;

use std::path::{Path, PathBuf};

use betr_cli::image::Access;
use betr_cli::size::{human, parse_size};
use betr_cli::view::View;
use betr_cli::volume::{failure, open_device, open_view};
use betr_cli::{Exit, ExitCodes, Failure, Io};
use betr_core::Error;
use betr_core::check::{
    CheckOptions, Code, MEMORY, Repairable, Report, check, check_quickly, memory_needed,
};
use betr_core::disk::Disk;
use betr_core::volume::read_identity;

use progress::Meter;

/// The exit codes, as in fsck(8).
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
///
/// A repair is first made on a view of the image, and checked again there: if the outcome is worse, nothing is written.
/// Otherwise it is a plan, of all blocks that change, which is applied to the image. A power cut leaves the image as it
/// was, or repaired, or on the way, which the same command finishes. With --overlay the plan is kept in a file, and the
/// image stays as it is: what only reads can show the repaired image (betr ls --overlay), and --apply writes it.
///
/// Without -n, -p and -y each kind of problem is a question on a terminal, and one no leaves the image as it is. Without a
/// terminal it is a check, as with -n.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXIT_CODES.to_string(), after_long_help = explain::manual())]
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
    /// With -p or -y: write the repair to this new file, and leave the image as it is; with -n: check the image as
    /// the repair in this file leaves it
    #[arg(long, value_name = "PLAN")]
    overlay: Option<PathBuf>,
    /// Print as JSON what -y, -p or --apply would change: every block, and why; nothing is written but what --overlay
    /// asks for
    #[arg(long, conflicts_with = "no")]
    plan: bool,
    /// Write the repair in this file to the image that it was made for
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["mode", "overlay", "slot"])]
    apply: Option<PathBuf>,
    /// First keep in this new file what betr undo takes the repair back with
    #[arg(short = 'z', long, value_name = "FILE", conflicts_with_all = ["no", "overlay", "plan"])]
    undo: Option<PathBuf>,
    /// Write progress to this file descriptor, as lines of pass, done, total and image; 0 draws a bar, as a
    /// terminal gets it anyway, and a negative number nothing
    #[arg(short = 'C', value_name = "FD", allow_negative_numbers = true)]
    progress: Option<i32>,
    /// Take at most about this much memory for the check; by default 48M, or what an image needs that is too large for
    /// that. What it finds does not depend on it; with little it takes longer
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_mem: Option<u64>,
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
    match &args.apply {
        Some(plan) => apply::run(args, image, plan, io),
        None => examine(args, image, io),
    }
    .map_err(operational)
}

impl Args {
    /// Whether a repair is requested, to the image or to a plan.
    fn repairs(&self) -> bool {
        self.preen || self.yes || self.plan
    }

    /// Whether the repair is written to the image itself.
    fn writes(&self) -> bool {
        self.repairs() && !self.plan && self.overlay.is_none()
    }

    fn options(&self) -> CheckOptions {
        let memory = self.max_mem.unwrap_or(MEMORY);
        CheckOptions { data: self.data, slot: self.slot, memory }
    }
}

fn examine(args: &Args, path: &Path, io: &mut Io) -> Result<Exit, Failure> {
    let interactive = !(args.no || args.repairs());
    let asks = interactive && !args.json && ask::can_ask(io);
    let device = match (args.repairs(), args.writes()) {
        (true, true) => open_device(path, Access::Write)?,
        (true, false) => open_device(path, Access::Read)?,
        (false, _) => open_view(View { overlay: args.overlay.as_deref(), ..path.into() })?,
    };
    repair::check_new_files(args)?;
    let identity = read_identity(&Disk::new(device.clone()));
    if let Err(error @ Error::Unsupported(_)) = &identity {
        return Err(failure(path, None, error));
    }
    if let (Some(most), Ok(identity)) = (args.max_mem, &identity) {
        check_memory(most, identity.image_blocks)?;
    }
    let mut meter = Meter::new(args.progress, path, !args.json)?;
    if !args.force && !args.data {
        let report = check_quickly(&device, args.options());
        if report.findings.is_empty() {
            return match args.repairs() {
                true => repair::nothing_to_do(args, path, &report, true, io),
                false => show::one_line(path, &report, io, args.json).map(|()| Exit::DONE),
            };
        }
    }
    let mut report = check(&device, args.options(), &mut meter);
    drop(meter);
    paths::name(&mut report, &device);
    // Without identity block and superblock the file is not a damaged image but something else.
    if let (Err(error @ Error::NotAnImage(_)), None) = (&identity, &report.superblock) {
        return Err(failure(path, Some(&device), error));
    }
    if args.repairs() {
        return match report.findings.is_empty() {
            true => repair::nothing_to_do(args, path, &report, false, io),
            false => repair::mend(args, path, &device, &report, io),
        };
    }
    show::report(args.verbose, args.json, path, &report, None, io)?;
    if !interactive || report.findings.is_empty() {
        return Ok(outcome(&report));
    }
    let repairable = report.repairable() != Repairable::No;
    if !asks || args.overlay.is_some() || !repairable {
        let why = if asks {
            ""
        } else {
            "There is no terminal to ask on, so this was a check, as with -n. "
        };
        io.note(&format!("{why}Run again with -p or -y to repair."))?;
        return Ok(outcome(&report));
    }
    if !ask::wants_repair(&report, io)? {
        io.note("Nothing was written.")?;
        return Ok(outcome(&report));
    }
    // The shared lock is released before the exclusive one is taken. Another process may change the image in between,
    // so it is checked again.
    drop(device);
    examine(&Args { yes: true, force: true, ..args.clone() }, path, io)
}

/// The bitmaps of block ownership are the least memory that any check needs.
fn check_memory(most: u64, image_blocks: u64) -> Result<(), Failure> {
    let needed = memory_needed(image_blocks);
    if most >= needed {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "--max-mem {}: checking {image_blocks} blocks takes {} at least, for bitmaps of them and for a few nodes",
        human(most),
        human(needed)
    )))
}

/// The exit code of a check without repair.
fn outcome(report: &Report) -> Exit {
    let failed_to_read = report.findings.iter().any(|finding| finding.code == Code::ReadFailed);
    let left = if report.is_clean() { Exit::DONE } else { Exit::UNCORRECTED };
    left | if failed_to_read { Exit::OPERATIONAL } else { Exit::DONE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_memory_is_that_of_the_checker() {
        assert_eq!(parse_size("48M"), Ok(MEMORY));
    }
}
