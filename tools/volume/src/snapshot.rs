//! `betr snapshot`: checkpoints that are kept under names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::image::{self, Access};
use betr_cli::size::human;
use betr_cli::volume::{clock, failure, nonces};
use betr_cli::{Exit, Failure, Io, show, time};
use betr_core::device::Device;
use betr_core::format::Hold;
use betr_core::ids::BLOCK_SIZE;
use betr_core::text::printable;
use betr_core::volume::{Mode, OpenOptions, Volume};
use clap::Subcommand;
use serde_json::{Value, json};

/// Keep the state of an image under a name, and look after what is kept
///
/// A snapshot is a checkpoint that stays as it is. It takes no room when it is made; later it keeps what the image does not use any
/// more. Tools that show what was in an image take --as-of s:NAME.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Keep the present state under a name
    Create {
        #[command(flatten)]
        quiet: Quiet,
        /// The image
        image: PathBuf,
        /// The name: no '/', no '@', no control characters
        name: String,
    },
    /// List all snapshots, the oldest first
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The image
        image: PathBuf,
    },
    /// Show what a snapshot refers to, and what dropping it gives back
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The image
        image: PathBuf,
        /// The snapshot
        name: String,
    },
    /// Give a snapshot another name
    Rename {
        #[command(flatten)]
        quiet: Quiet,
        /// The image
        image: PathBuf,
        /// The snapshot
        name: String,
        /// Its new name
        new: String,
    },
    /// Mark a snapshot, so that nothing but drop takes it away
    Keep {
        #[command(flatten)]
        quiet: Quiet,
        /// The image
        image: PathBuf,
        /// The snapshot
        name: String,
    },
    /// Take that mark away
    Release {
        #[command(flatten)]
        quiet: Quiet,
        /// The image
        image: PathBuf,
        /// The snapshot
        name: String,
    },
    /// Give snapshots up, and back to the image what they alone use
    ///
    /// None is dropped unless there are all of them. A drop that is interrupted goes on with the next command that changes snapshots.
    Drop {
        #[command(flatten)]
        quiet: Quiet,
        /// The image
        image: PathBuf,
        /// The snapshots
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(clap::Args, Debug)]
struct Quiet {
    /// Print nothing on standard output
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Create { quiet, image, name } => change(image, quiet, io, |volume| {
            volume.take_hold(name)?;
            Ok(format!("snapshot '{}' taken", shown(name)))
        }),
        Verb::Rename { quiet, image, name, new } => change(image, quiet, io, |volume| {
            volume.rename_hold(name, new)?;
            Ok(format!("snapshot '{}' is '{}' now", shown(name), shown(new)))
        }),
        Verb::Keep { quiet, image, name } => change(image, quiet, io, |volume| {
            volume.keep_hold(name, true)?;
            Ok(format!("snapshot '{}' is kept", shown(name)))
        }),
        Verb::Release { quiet, image, name } => change(image, quiet, io, |volume| {
            volume.keep_hold(name, false)?;
            Ok(format!("snapshot '{}' is not kept any more", shown(name)))
        }),
        Verb::Drop { quiet, image, names } => change(image, quiet, io, |volume| {
            names.iter().try_for_each(|name| volume.hold(name).map(drop))?;
            let before = volume.superblock().used_blocks;
            names.iter().try_for_each(|name| volume.drop_hold(name))?;
            let freed = before.saturating_sub(volume.superblock().used_blocks);
            let names: Vec<String> =
                names.iter().map(|name| format!("'{}'", shown(name))).collect();
            Ok(format!("dropped {}, {} free", names.join(", "), bytes(freed)))
        }),
        Verb::List { json, image } => list(image, *json, io),
        Verb::Show { json, image, name } => show_one(image, name, *json, io),
    }
}

fn shown(name: &str) -> String {
    printable(name.as_bytes())
}

fn bytes(blocks: u64) -> String {
    human(blocks * BLOCK_SIZE as u64)
}

/// Opens a volume, changes it, and finishes what was left of drops.
fn change(
    path: &Path,
    quiet: &Quiet,
    io: &mut Io,
    act: impl FnOnce(&mut Volume) -> betr_core::Result<String>,
) -> Result<Exit, Failure> {
    let device: Arc<dyn Device> = image::open(path, Access::Write)?.device();
    let now = clock()?();
    let options =
        OpenOptions { content: None, punch: true, ..OpenOptions::new(Mode::ReadWrite, nonces()?) };
    let changed = Volume::open(device.clone(), options).and_then(|(mut volume, _)| {
        volume.note_time(now);
        let text = act(&mut volume)?;
        while volume.can_drop() {
            volume.drop_some()?;
        }
        // What was given up takes no room in the image file when the command ends.
        for _ in 0..2 {
            if volume.leaving_blocks() > 0 {
                volume.checkpoint()?;
            }
        }
        Ok(text)
    });
    let text = changed.map_err(|error| failure(path, Some(&device), &error))?;
    if !quiet.quiet {
        writeln!(io.out, "{}: {text}", show::path(path))?;
    }
    Ok(Exit::DONE)
}

fn open(path: &Path) -> Result<(Arc<dyn Device>, Volume), Failure> {
    let device: Arc<dyn Device> = image::open(path, Access::Read)?.device();
    let options = OpenOptions { content: None, ..OpenOptions::new(Mode::Checkpoint, nonces()?) };
    let opened = Volume::open(device.clone(), options);
    let (volume, _) = opened.map_err(|error| failure(path, Some(&device), &error))?;
    Ok((device, volume))
}

fn list(path: &Path, as_json: bool, io: &mut Io) -> Result<Exit, Failure> {
    let (device, volume) = open(path)?;
    let holds = volume.holds().map_err(|error| failure(path, Some(&device), &error))?;
    if as_json {
        let holds: Vec<Value> = holds.iter().map(value).collect();
        io.json("betr.snapshots", 1, json!({ "snapshots": holds }))?;
        return Ok(Exit::DONE);
    }
    for hold in &holds {
        let at = time::format_utc(hold.wall.secs, hold.wall.nanos);
        let kept = if hold.kept { "  kept" } else { "" };
        let refers = bytes(hold.used_blocks);
        writeln!(
            io.out,
            "{at}  {:>8}  {refers:>10}  {}{kept}",
            hold.epoch.to_string(),
            shown(&hold.name)
        )?;
    }
    Ok(Exit::DONE)
}

fn show_one(path: &Path, name: &str, as_json: bool, io: &mut Io) -> Result<Exit, Failure> {
    let (device, volume) = open(path)?;
    let at_image = |error| failure(path, Some(&device), &error);
    let hold = volume.hold(name).map_err(at_image)?;
    let freed = volume.dropping_frees(name).map_err(at_image)?;
    if as_json {
        let mut value = value(&hold);
        value["frees_bytes"] = json!(freed * BLOCK_SIZE as u64);
        io.json("betr.snapshot", 1, value)?;
        return Ok(Exit::DONE);
    }
    let at = time::format_utc(hold.wall.secs, hold.wall.nanos);
    writeln!(io.out, " Snapshot: {}", shown(&hold.name))?;
    writeln!(io.out, "    Taken: {at}, epoch {}", hold.epoch.0)?;
    writeln!(io.out, "     Kept: {}", if hold.kept { "yes, pruning leaves it" } else { "no" })?;
    writeln!(io.out, "Refers to: {} in {} nodes", bytes(hold.used_blocks), hold.nodes)?;
    writeln!(io.out, "    Frees: {} if it is dropped", bytes(freed))?;
    writeln!(io.out, "     Root: {} at block {}", hold.table.page.hash, hold.table.page.block)?;
    Ok(Exit::DONE)
}

fn value(hold: &Hold) -> Value {
    json!({
        "name": hold.name, "epoch": hold.epoch.0, "seconds": hold.wall.secs, "nanoseconds": hold.wall.nanos,
        "kept": hold.kept, "refers_bytes": hold.used_blocks * BLOCK_SIZE as u64, "nodes": hold.nodes,
        "root": hold.table.page.hash.to_string(), "root_block": hold.table.page.block.0,
    })
}
