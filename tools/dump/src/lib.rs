//! `betr dump`: the structures of an image, field by field, with every byte accounted for.
//!
//! The decoders are those of the engine, with a recorder attached. A structure that does not decode is shown as far as
//! it does, then in hexadecimal with the reason. Nothing is ever written, and damage never ends a dump. Structures are
//! shown as they are on the device, without the log; only `path` and `zones` show the state after a replay in memory.
//! With `--as-of` all of them are those of that moment; a moment after the checkpoint is replayed in memory. The log is
//! shown as it is on the device, up to the moment.

mod all;
pub mod diff;
pub mod explain;
mod log;
mod messages;
mod node;
mod page;
mod path;
mod place;
mod record;
mod space;
mod stats;
mod structure;
mod sum;
mod superblock;
mod tree;
mod zones;

use std::path::PathBuf;
use std::sync::Arc;

use betr_cli::moment;
use betr_cli::view::PastArgs;
use betr_cli::volume::{clock_now, failure, open_view};
use betr_cli::{Exit, Failure, Io, name};
use betr_core::Error;
use betr_core::address::Address;
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::format::{Record, Superblock};
use betr_core::fs::{Fs, open_as_of};
use betr_core::ids::NodeId;
use betr_core::path::Operand;
use betr_core::volume::{
    Mode, Moment, OpenOptions, Ring, Until, Volume, identity_again, raised, read_identity,
};
use clap::Subcommand;
use serde_json::json;

use structure::{Form, Output};

/// Show the structures of an image
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Print JSON, a structure in each line
    #[arg(long, global = true, conflicts_with = "json")]
    ndjson: bool,
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
    /// The messages that are pending for the children of an internal node, child by child
    Buffer {
        /// The node's id
        #[arg(value_parser = node_id)]
        id: NodeId,
        /// Only those for this child
        #[arg(value_parser = node_id)]
        child: Option<NodeId>,
    },
    /// One part of a leaf: its keys and values
    Basement {
        /// The leaf's id
        #[arg(value_parser = node_id)]
        id: NodeId,
        /// Which of its basements, from 0
        basement: usize,
    },
    /// All pending messages, of all internal nodes
    Messages(messages::Filter),
    /// The log: groups that count, their records, and why it ends; of a moment, the records up to it
    Log,
    /// What every block is used for
    Space,
    /// Where a key is: the leaf that holds it, and the messages that are pending for it
    Key {
        /// The key, as k#1:HEX or k#2:HEX
        #[arg(value_parser = name::address())]
        key: Address,
    },
    /// What a byte of the image is, and whose
    Block {
        /// The byte, as b:BYTE
        #[arg(value_parser = name::address())]
        byte: Address,
    },
    /// Numbers: nodes, fill, pending messages, use of space
    Stats,
    /// Every byte of the image: all structures, and what is between them
    All,
    /// The zones: what they hold, what their counters say, and where they are
    Zones,
    /// What a path leads to: keys, inode, extended attributes and blocks
    Path {
        /// A path from the root of the image on
        #[arg(value_parser = name::path())]
        path: Operand,
    },
}

fn node_id(text: &str) -> Result<NodeId, String> {
    let digits = text.strip_prefix("n:").unwrap_or(text);
    let words = "a basement, or a child, is a word of its own, as in 'basement n:2 0'";
    digits.parse().map(NodeId).map_err(|_| match text.contains('/') {
        true => format!("expected n:ID alone: {words}"),
        false => "expected n:ID or a number".into(),
    })
}

/// The image that all parts of the dump read.
struct Image {
    path: PathBuf,
    device: Arc<dyn Device>,
    disk: Disk,
    superblock: Superblock,
    /// Whether a replay includes the log. With `--as-of` it does not, because `device` already has the result.
    mode: Mode,
    /// The name of the snapshot that is shown, if any.
    hold: Option<String>,
    source: Source,
}

/// The structures on the device itself, without the replay in memory.
struct Source {
    device: Arc<dyn Device>,
    superblock: Superblock,
    /// The end of the shown log; `None` if the moment is a checkpoint, so that no record belongs to it.
    until: Option<Until>,
}

impl Source {
    /// Whether the moment includes a record, given that it includes all earlier ones.
    fn includes(&self, record: &Record) -> bool {
        self.until.is_some_and(|until| until.includes(record))
    }
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let view = args.image.view();
    let device = open_view(view.clone())?;
    let disk = Disk::new(device.clone());
    let mut output = Output::new(match (args.json, args.ndjson) {
        (true, _) => Form::Json,
        (_, true) => Form::Ndjson,
        _ => Form::Text,
    });
    let what = args.what.clone().unwrap_or(What::Super);
    if let What::Super = what {
        superblock::show(&disk, args.slot, &mut output, io)
            .map_err(|error| failure_of(args, &device, error))?;
        return finish(output, io);
    }
    let path = args.image.path().to_owned();
    let image = match view.as_of {
        Some(_) if args.slot.is_some() => {
            return Err(Failure::usage("-b and --as-of both name a checkpoint: give one of them"));
        }
        Some(as_of) => Image::as_of(path, device, as_of, &mut output, io)?,
        None => {
            let superblock = match chosen(&disk, args.slot) {
                Ok(superblock) => superblock,
                Err(error) => {
                    // Damage does not end the dump as long as another superblock leads into the image.
                    let refused = failure(&path, Some(&device), &error);
                    if args.slot.is_some() || matches!(error, Error::Unsupported(_)) {
                        return Err(refused);
                    }
                    let Some(other) = other_superblock(&disk) else {
                        let is_image = !matches!(error, Error::NotAnImage(_));
                        if !is_image || !matches!(what, What::All) {
                            return Err(refused);
                        }
                        io.note(&format!("betr: {}", refused.message))?;
                        output.damage(io, "there is no way into the image", &error)?;
                        all::raw(&device, &mut output, io)?;
                        return finish(output, io);
                    };
                    io.note(&format!("betr: {}", refused.message))?;
                    output.damage(io, "the superblock is not the newest one", &error)?;
                    other
                }
            };
            let (until, on_device) = (Some(Until::End), superblock.clone());
            let source = Source { device: device.clone(), superblock: on_device, until };
            Image { path, device, disk, superblock, mode: Mode::ReadOnly, hold: None, source }
        }
    };
    match what {
        What::Super => {}
        What::Table => page::show(&image, &mut output, io)?,
        What::Tree => tree::show(&image, &mut output, io)?,
        What::Node { id } => node::show(&image, id, node::All, &mut output, io)?,
        What::Basement { id, basement } => {
            node::show(&image, id, node::Basement(basement), &mut output, io)?;
        }
        What::Buffer { id, child } => messages::buffer(&image, id, child, &mut output, io)?,
        What::Messages(filter) => messages::show(&image, &filter, &mut output, io)?,
        What::Space => space::show(&image, &mut output, io)?,
        What::Key { key } => place::key(&image, &key, &mut output, io)?,
        What::Block { byte } => place::block(&image, &byte, &mut output, io)?,
        What::Stats => stats::show(&image, &mut output, io)?,
        What::All => all::show(&image, &mut output, io)?,
        What::Log => log::show(&image, &mut output, io)?,
        What::Zones => zones::show(&image, &mut output, io)?,
        What::Path { path } => path::show(&image, &path, &mut output, io)?,
    }
    finish(output, io)
}

impl Image {
    /// The structures of a moment: those of a checkpoint, or, after it, those of a replay in memory.
    fn as_of(
        path: PathBuf,
        device: Arc<dyn Device>,
        as_of: Moment,
        output: &mut Output,
        io: &mut Io,
    ) -> Result<Image, Failure> {
        let at_image = |error| failure(&path, Some(&device), &error);
        let (found, mut notes) = moment::find(&as_of, &device).map_err(at_image)?;
        let options = OpenOptions::new(found.mode, Box::new(|| 0));
        let opened = open_as_of(device.clone(), found.clone(), options, Box::new(clock_now));
        let (fs, recovery) = opened.map_err(at_image)?;
        notes.extend(moment::note_of(&recovery));
        let damage = moment::damage_of(&recovery);
        output.damaged |= damage.is_some();
        notes.extend(damage);
        for note in notes {
            io.note(&format!("{}: {note}", betr_cli::show::path(&path)))?;
        }
        let on_device = chosen(&Disk::new(device.clone()), Some(found.slot)).map_err(at_image)?;
        let until = match found.mode {
            Mode::Checkpoint => None,
            Mode::ReadOnly | Mode::ReadWrite => Some(found.until),
        };
        let source = Source { device: device.clone(), superblock: on_device, until };
        let mut volume = fs.into_volume();
        let disk = match found.mode {
            Mode::Checkpoint => Disk::new(device.clone()),
            Mode::ReadOnly | Mode::ReadWrite => volume.settle_in_memory().map_err(at_image)?,
        };
        let (device, superblock) = (disk.device().clone(), volume.superblock().clone());
        let hold = found.snapshot.map(|name| name.to_string());
        Ok(Image { path, device, disk, superblock, mode: Mode::Checkpoint, hold, source })
    }

    /// For a snapshot, the superblock of the volume that contains it.
    fn live(&self) -> Option<&Superblock> {
        self.hold.as_ref().map(|_| &self.source.superblock)
    }

    /// The file system after a replay in memory; a note says that the log was replayed.
    fn replayed(&self, output: &mut Output, io: &mut Io) -> Result<Fs, Failure> {
        let (slot, hold) = (Some(self.superblock.slot), self.hold.clone());
        let options = OpenOptions { slot, hold, ..OpenOptions::new(self.mode, Box::new(|| 0)) };
        let (volume, recovery) = Volume::open(self.device.clone(), options)
            .map_err(|error| failure(&self.path, Some(&self.device), &error))?;
        output.damaged |= moment::damage_of(&recovery).is_some();
        let records = recovery.survey.records;
        if records > 0 {
            let text = format!("after a replay of {records} log records");
            output.line(io, text, || json!({ "replayed": records }))?;
        }
        Ok(Fs::open(volume, Box::new(clock_now)))
    }
}

/// A substitute for a lost newest superblock: its content reconstructed from elsewhere, or an older superblock.
fn other_superblock(disk: &Disk) -> Option<Superblock> {
    let identity = read_identity(disk).ok().or_else(|| identity_again(disk))?;
    let ring = Ring::read(disk, &identity).ok()?;
    raised(disk, &identity, &ring).or_else(|| ring.newest().cloned())
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

fn finish(mut output: Output, io: &mut Io) -> Result<Exit, Failure> {
    output.end(io)?;
    Ok(if output.damaged { Exit::DAMAGED } else { Exit::DONE })
}
