//! `betr dump`: what is in an image, field by field, with every byte accounted for.
//!
//! The decoders are those of the engine; a recorder listens to them. What does not decode is shown as
//! far as it does, then in hexadecimal with the reason. Nothing is ever written, and damage never ends
//! a dump. Structures are shown as they are on the device, without the log replayed; `path` and `zones` show
//! the state after a replay in memory. With `--as-of` all of them are those of that moment; of a moment behind the
//! checkpoint, as a replay makes them in memory.

mod log;
mod node;
mod page;
mod path;
mod record;
mod structure;
mod superblock;
mod tree;
mod zones;

use std::path::PathBuf;
use std::sync::Arc;

use betr_cli::moment;
use betr_cli::view::PastArgs;
use betr_cli::volume::{clock_now, failure, open_view};
use betr_cli::{Exit, Failure, Io};
use betr_core::device::{Device, Disk};
use betr_core::format::Superblock;
use betr_core::fs::{Fs, open_as_of};
use betr_core::ids::NodeId;
use betr_core::volume::{Mode, Moment, OpenOptions, Ring, Volume, read_identity};
use clap::Subcommand;
use serde_json::json;

use structure::Output;

/// Show the structures of an image
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Start from this slot of the superblock ring
    #[arg(short = 'b', value_name = "SLOT", global = true,
        value_parser = clap::value_parser!(u32).range(..32))]
    slot: Option<u32>,
    #[command(flatten)]
    image: PastArgs,
    #[command(subcommand)]
    what: Option<What>,
}

/// What to show.
#[derive(Subcommand, Clone, Debug)]
enum What {
    /// The identity block and the superblock ring
    Super,
    /// The allocation table: every page, field by field
    Table,
    /// Both trees: a line for each node
    Tree,
    /// A node: head, parts, messages and values
    Node {
        /// The node's id, as n:ID or a number
        #[arg(value_parser = node_id)]
        id: NodeId,
    },
    /// The log: groups that count, their records, and why it ends
    Log,
    /// The zones: what they hold, what their counters say, and where they are
    Zones,
    /// What a path leads to: keys, inode, extended attributes and blocks
    Path {
        /// An absolute path of the image
        path: PathBuf,
    },
}

fn node_id(text: &str) -> Result<NodeId, String> {
    let digits = text.strip_prefix("n:").unwrap_or(text);
    digits.parse().map(NodeId).map_err(|error| format!("{text} is no node id: {error}"))
}

/// What the parts of the dump work on.
struct Image {
    path: PathBuf,
    device: Arc<dyn Device>,
    disk: Disk,
    superblock: Superblock,
    /// What the log holds besides; nothing where a moment has been asked for.
    mode: Mode,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let view = args.image.view();
    let (_image, device) = open_view(view)?;
    let disk = Disk::new(device.clone());
    let mut output = Output::new(args.json);
    let what = args.what.clone().unwrap_or(What::Super);
    if let What::Super = what {
        superblock::show(&disk, args.slot, &mut output, io)
            .map_err(|error| failure_of(args, &device, error))?;
        return finish(output, io);
    }
    let path = args.image.path().to_owned();
    let image = match view.as_of {
        Some(as_of) => Image::as_of(path, device, as_of, io)?,
        None => {
            let superblock = chosen(&disk, args.slot);
            let superblock = superblock.map_err(|error| failure(&path, Some(&device), &error))?;
            Image { path, device, disk, superblock, mode: Mode::ReadOnly }
        }
    };
    match what {
        What::Super => {}
        What::Table => page::show(&image, &mut output, io)?,
        What::Tree => tree::show(&image, &mut output, io)?,
        What::Node { id } => node::show(&image, id, &mut output, io)?,
        What::Log => log::show(&image, &mut output, io)?,
        What::Zones => zones::show(&image, &mut output, io)?,
        What::Path { path } => path::show(&image, &path, &mut output, io)?,
    }
    finish(output, io)
}

impl Image {
    /// The structures of a moment: those of a checkpoint; or, behind it, those that a replay makes in memory.
    fn as_of(
        path: PathBuf,
        device: Arc<dyn Device>,
        as_of: Moment,
        io: &mut Io,
    ) -> Result<Image, Failure> {
        let at_image = |error| failure(&path, Some(&device), &error);
        let (found, mut notes) = moment::find(as_of, &device).map_err(at_image)?;
        let options = OpenOptions::new(found.mode, Box::new(|| 0));
        let opened = open_as_of(device.clone(), found, options, Box::new(clock_now));
        let (fs, recovery) = opened.map_err(at_image)?;
        notes.extend(moment::note_of(&recovery));
        for note in notes {
            io.note(&format!("{}: {note}", betr_cli::show::path(&path)))?;
        }
        let mut volume = fs.into_volume();
        let disk = match found.mode {
            Mode::Checkpoint => Disk::new(device.clone()),
            Mode::ReadOnly | Mode::ReadWrite => volume.settle_in_memory().map_err(at_image)?,
        };
        let (device, superblock) = (disk.device().clone(), volume.superblock().clone());
        Ok(Image { path, device, disk, superblock, mode: Mode::Checkpoint })
    }

    /// The file system after a replay in memory, which is said.
    fn replayed(&self, output: &mut Output, io: &mut Io) -> Result<Fs, Failure> {
        let slot = Some(self.superblock.slot);
        let options = OpenOptions { slot, ..OpenOptions::new(self.mode, Box::new(|| 0)) };
        let (volume, recovery) = Volume::open(self.device.clone(), options)
            .map_err(|error| failure(&self.path, Some(&self.device), &error))?;
        let records = recovery.survey.records;
        if records > 0 {
            let text = format!("after a replay of {records} log records");
            output.line(io, text, || json!({ "replayed": records }))?;
        }
        Ok(Fs::open(volume, Box::new(clock_now)))
    }
}

fn chosen(disk: &Disk, slot: Option<u32>) -> betr_core::Result<Superblock> {
    let identity = read_identity(disk)?;
    Ring::read(disk, &identity)?.choose(slot).cloned()
}

fn failure_of(args: &Args, device: &Arc<dyn Device>, error: superblock::ShowError) -> Failure {
    match error {
        superblock::ShowError::Image(error) => failure(args.image.path(), Some(device), &error),
        superblock::ShowError::Output(failure) => failure,
    }
}

fn finish(output: Output, io: &mut Io) -> Result<Exit, Failure> {
    let damaged = output.damaged;
    if let Some(structures) = output.json {
        io.json("betr.dump", 1, json!({ "structures": structures }))?;
    }
    Ok(if damaged { Exit::DAMAGED } else { Exit::DONE })
}
