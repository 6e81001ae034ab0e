//! `betr diff`: what is different between two images, by their files and by their structure.

mod structure;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::moment::{damage_of, find, note_of, parse_moment};
use betr_cli::volume::{clock_now, failure, open_device};
use betr_cli::{Exit, ExitCodes, Failure, Io, JsonList, changes, image::Access, show};
use betr_core::compare::{Side as Of, compare_sides};
use betr_core::device::Device;
use betr_core::fs::{Fs, open_as_of};
use betr_core::volume::{Moment, OpenOptions};

/// The exit codes of diff(1).
pub const EXIT_CODES: ExitCodes = ExitCodes {
    how: "",
    codes: &[
        (Exit::DONE, "the images hold the same"),
        (Exit::FAILED, "they differ"),
        (Exit::USAGE, "one of them cannot be read, or the command line is wrong"),
    ],
    note: "",
};

/// Show what is different between two images
///
/// Files are compared by path: types, permissions, owners, links, sizes, times of modification, devices, targets, extended
/// attributes and contents. Inode numbers, and how an image came to be, make no difference.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES.to_string())]
pub struct Args {
    /// The first image
    a: PathBuf,
    /// The second
    b: PathBuf,
    /// The moment of the first: checkpoint, now, l:LSN, t:TIME or e:EPOCH
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment, default_value = "now")]
    a_as_of: Moment,
    /// The moment of the second
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment, default_value = "now")]
    b_as_of: Moment,
    /// Compare superblocks, tables and nodes of the checkpoints instead of files
    #[arg(short, long)]
    structure: bool,
    /// Say nothing; the exit code tells
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One of the images.
struct Side<'a> {
    path: &'a Path,
    device: Arc<dyn Device>,
}

impl Side<'_> {
    fn open(path: &Path) -> Result<Side<'_>, Failure> {
        Ok(Side { path, device: open_device(path, Access::Read)? })
    }

    fn failure(&self, error: &betr_core::Error) -> Failure {
        failure(self.path, Some(&self.device), error)
    }

    fn files(&self, moment: &Moment, io: &mut Io) -> Result<Fs, Failure> {
        let at_image = |error| self.failure(&error);
        let (found, mut notes) = find(moment, &self.device).map_err(at_image)?;
        let options = OpenOptions::new(found.mode, Box::new(|| 0));
        let opened = open_as_of(self.device.clone(), found, options, Box::new(clock_now));
        let (fs, recovery) = opened.map_err(at_image)?;
        notes.extend(note_of(&recovery));
        if let Some(damage) = damage_of(&recovery) {
            let name = show::path(self.path);
            return Err(Failure::damaged(format!("{name}: {damage}")));
        }
        for note in notes {
            io.note(&format!("{}: {note}", show::path(self.path)))?;
        }
        Ok(fs)
    }
}

/// Runs the tool. Trouble of any kind ends with 2, as with diff(1).
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    different(args, io)
        .map(|different| if different { Exit::FAILED } else { Exit::DONE })
        .map_err(|failure| failure.with_exit(Exit::USAGE))
}

fn different(args: &Args, io: &mut Io) -> Result<bool, Failure> {
    let (a, b) = (Side::open(&args.a)?, Side::open(&args.b)?);
    let mut list = (args.json && !args.quiet).then(|| JsonList::new("betr.diff", 1, "changes"));
    let mut different = false;
    if args.structure {
        for change in structure::changes(&a, &b)? {
            different = true;
            match &mut list {
                Some(list) => list.push(io, &change.object())?,
                None if args.quiet => break,
                None => writeln!(io.out, "{}", change.line())?,
            }
        }
    } else {
        let (x, y) = (a.files(&args.a_as_of, io)?, b.files(&args.b_as_of, io)?);
        let mut failed = Ok(());
        compare_sides(&x, &y, None, &mut |change| {
            different = true;
            failed = match &mut list {
                Some(list) => list.push(io, &changes::object(&change)),
                None if args.quiet => return ControlFlow::Break(()),
                None => writeln!(io.out, "{}", changes::line(&change)),
            };
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .map_err(|unread| match unread.side {
            Of::First => a.failure(&unread.error),
            Of::Second => b.failure(&unread.error),
        })?;
        failed?;
    }
    list.map_or(Ok(()), |list| list.end(io))?;
    Ok(different)
}
