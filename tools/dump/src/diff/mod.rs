//! `betr diff`: the differences between two images, by files or by structure.

mod structure;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::moment::{damage_of, find, note_of, parse_moment, split_snapshot};
use betr_cli::volume::{clock_now, failure, open_device};
use betr_cli::{Exit, ExitCodes, Failure, Io, JsonList, changes, image::Access, show};
use betr_core::device::Device;
use betr_core::fs::{Fs, open_as_of};
use betr_core::ids::Msn;
use betr_core::volume::{Moment, OpenOptions};
use betr_offline::compare::{Side as Of, Touched, compare_sides, touched};
use betr_offline::device::CachedDevice;
use betr_offline::history::touched_since_checkpoint;

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
/// attributes and contents. Inode numbers, and how an image came to be, make no difference. Of two moments of one image only that is read
/// in which they can differ.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES.to_string())]
pub struct Args {
    /// The first image, or IMAGE@SNAPSHOT
    a: PathBuf,
    /// The second
    b: PathBuf,
    /// The moment of the first: checkpoint, now, s:SNAPSHOT, l:LSN, t:TIME or e:EPOCH
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    a_as_of: Option<Moment>,
    /// The moment of the second
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    b_as_of: Option<Moment>,
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

/// One of the two images.
struct Side {
    path: PathBuf,
    moment: Moment,
    device: Arc<dyn Device>,
}

impl Side {
    fn open(path: &Path, as_of: Option<&Moment>, structure: bool) -> Result<Side, Failure> {
        let (path, snapshot) = split_snapshot(path);
        if structure && (snapshot.is_some() || as_of.is_some()) {
            let text = "the structure of the newest checkpoint is compared, and of no other moment";
            return Err(Failure::usage(format!("--structure: {text}")));
        }
        if let (Some(Moment::Snapshot(name)), Some(_)) = (&snapshot, as_of) {
            let (path, name) = (show::path(&path), show::bytes(name.as_bytes()));
            return Err(Failure::usage(format!("{path}@{name}: that is a moment already")));
        }
        let moment = snapshot.or(as_of.cloned()).unwrap_or(Moment::Now);
        let device = open_device(&path, Access::Read)?;
        Ok(Side { path, moment, device: Arc::new(CachedDevice::new(device)) })
    }

    fn failure(&self, error: &betr_core::Error) -> Failure {
        failure(&self.path, Some(&self.device), error)
    }

    /// The files of the image, and the keys that the records of its log have touched.
    fn files(&self, io: &mut Io) -> Result<(Fs, Touched), Failure> {
        let at_image = |error| self.failure(&error);
        let (found, mut notes) = find(&self.moment, &self.device).map_err(at_image)?;
        let options = OpenOptions::new(found.mode, Box::new(|| 0));
        let opened = open_as_of(self.device.clone(), found.clone(), options, Box::new(clock_now));
        let (fs, recovery) = opened.map_err(at_image)?;
        let end = recovery.stopped.as_ref().map(|stopped| Msn(stopped.before.0));
        let end = end.unwrap_or(fs.volume().next_msn());
        let logged = touched_since_checkpoint(&self.device, &found, end).map_err(at_image)?;
        notes.extend(note_of(&recovery));
        if let Some(damage) = damage_of(&recovery) {
            let name = show::path(&self.path);
            return Err(Failure::damaged(format!("{name}: {damage}")));
        }
        for note in notes {
            io.note(&format!("{}: {note}", show::path(&self.path)))?;
        }
        Ok((fs, logged))
    }
}

/// Runs the tool. Every failure ends with exit code 2, as in diff(1).
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    different(args, io)
        .map(|different| if different { Exit::FAILED } else { Exit::DONE })
        .map_err(|failure| failure.with_exit(Exit::USAGE))
}

fn different(args: &Args, io: &mut Io) -> Result<bool, Failure> {
    let a = Side::open(&args.a, args.a_as_of.as_ref(), args.structure)?;
    let mut b = Side::open(&args.b, args.b_as_of.as_ref(), args.structure)?;
    let whole = |side: &Side| std::fs::canonicalize(&side.path).ok();
    let is_one = whole(&a).is_some() && whole(&a) == whole(&b);
    if is_one {
        // Both sides share the device, so that shared blocks are read once.
        b.device = a.device.clone();
    }
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
        let ((x, before), (y, after)) = (a.files(io)?, b.files(io)?);
        // Two copies of an image are compared in full, because one of them may be damaged.
        let touched = is_one.then(|| touched(x.volume(), y.volume(), [before, after])).flatten();
        let mut failed = Ok(());
        compare_sides(&x, &y, touched.as_ref(), &mut |change| {
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
