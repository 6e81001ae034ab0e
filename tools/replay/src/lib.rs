//! `betr replay`: shows the history in the log of an image, and the image as of any of its records.
//!
//! The image is never written, except by `apply --in-place`. The history comes from [`betr_offline::history`]. States
//! come from the replay of recovery, stopped at the requested record.

mod apply;
mod blame;
mod diff;
mod event;
mod filter;
mod list;
mod show;
mod timeline;
mod verify;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use betr_cli::image::Access;
use betr_cli::view::ImageArgs;
use betr_cli::volume::{failure, open_device, open_view};
use betr_cli::{Exit, Failure, Io};
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::format::Superblock;
use betr_core::log::Survey;
use betr_core::volume::{Ring, read_identity};
use betr_offline::history::{Event, tell};
use clap::Subcommand;

/// Show what the log of an image says that happened, and what the image was at any record of it
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Start from this slot of the superblock ring: the log of an older checkpoint, as far as it is still there
    #[arg(short = 'b', value_name = "SLOT", global = true,
        value_parser = clap::value_parser!(u32).range(..32))]
    slot: Option<u32>,
    #[command(flatten)]
    image: ImageArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List the records of the log: when, what, to which paths, and where late-bound values are
    List(list::Args),
    /// Show a record in full: its messages, and what is bound
    Show(show::Args),
    /// Verify the log and all that it binds, and say why it ends where it does
    Verify(verify::Args),
    /// Make a new image with the log replayed, to its end or up to a record or a time
    Apply(apply::Args),
    /// Show what changed between two moments, as paths and as keys
    Diff(diff::Args),
    /// List the records that touched a path, a key, a node or a byte
    Blame(blame::Args),
    /// Print what happened for a timeline of files: as a bodyfile for mactime, CSV or JSON
    Timeline(timeline::Args),
}

/// The log that all verbs read.
struct Log {
    path: PathBuf,
    /// Whether the user chose a slot, so that the log may be that of an older checkpoint.
    is_older: bool,
    device: Arc<dyn Device>,
    superblock: Superblock,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let view = args.image.view();
    let device = match &args.verb {
        Verb::Apply(apply) if apply.in_place && view.overlay.is_some() => {
            return Err(Failure::usage("--in-place: what a plan is laid over can only be read"));
        }
        Verb::Apply(apply) if apply.in_place => open_device(view.image, Access::Write)?,
        _ => open_view(view)?,
    };
    let path = args.image.path().to_owned();
    let at_image = |error| failure(&path, Some(&device), &error);
    let disk = Disk::new(device.clone());
    let ring = read_identity(&disk).and_then(|identity| Ring::read(&disk, &identity));
    let ring = ring.map_err(at_image)?;
    let superblock = ring.choose(args.slot).map_err(at_image)?.clone();
    let is_older = args.slot.is_some();
    let log = Log { path, is_older, device, superblock };
    match &args.verb {
        Verb::List(args) => args.run(&log, io),
        Verb::Show(args) => args.run(&log, io),
        Verb::Verify(args) => args.run(&log, io),
        Verb::Apply(args) => args.run(&log, io),
        Verb::Diff(args) => args.run(&log, io),
        Verb::Blame(args) => args.run(&log, io),
        Verb::Timeline(args) => args.run(&log, io),
    }
}

impl Log {
    /// The name of the image, escaped for printing.
    fn name(&self) -> String {
        betr_cli::show::path(&self.path)
    }

    fn failure(&self, error: &betr_core::Error) -> Failure {
        failure(&self.path, Some(&self.device), error)
    }

    /// Passes each event to `show`; a failure ends the walk.
    fn tell(
        &self,
        mut show: impl FnMut(&Event<'_>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<Survey, Failure> {
        let mut failed = None;
        let survey = tell(&self.device, &self.superblock, &mut |event| match show(event) {
            Ok(flow) => flow,
            Err(failure) => {
                failed = Some(failure);
                ControlFlow::Break(())
            }
        });
        match failed {
            Some(failure) => Err(failure),
            None => survey.map_err(|error| self.failure(&error)),
        }
    }

    /// The exit code of a verb that read the whole log. A note reports damage, after which records may be missing.
    fn end(&self, survey: &Survey, io: &mut Io) -> Result<Exit, Failure> {
        let Some(damage) = survey.damage() else { return Ok(Exit::DONE) };
        let name = self.name();
        io.note(&format!("betr: {name}: {damage}\nRun 'betr fsck -fn {name}' to see all damage."))?;
        Ok(Exit::DAMAGED)
    }
}
