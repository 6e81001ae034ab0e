//! `betr send`: writes a snapshot, or the difference from another one, as a stream.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use betr_cli::codes::GENERAL;
use betr_cli::image::{self, Access};
use betr_cli::moment::split_snapshot;
use betr_cli::size::human;
use betr_cli::volume::{failure, open_device};
use betr_cli::{Exit, Failure, Io, show};
use betr_core::format::is_hold_name;
use betr_core::ids::BLOCK_SIZE;
use betr_core::store::CacheBudget;
use betr_core::volume::{Mode, Moment, OpenOptions, Volume};
use betr_offline::compare::{Touched, touched};
use betr_offline::transfer::Changes;

use super::stream::{Header, StreamWriter};
use super::{Moved, hash};

/// Write a snapshot as a stream, for betr receive
///
/// The stream has all names, attributes and contents, as keys and values; with --from only those in which the snapshot differs from another one
/// of the same image, which the receiver must have. The same snapshots give the same stream, byte for byte. All of both is read for the
/// hashes by which the receiver knows that it has what the stream is based on, and that it has become what was sent.
#[derive(clap::Args, Debug)]
#[command(after_help = GENERAL.to_string())]
pub struct Args {
    /// Send what makes the snapshot of this one
    #[arg(long, value_name = "SNAPSHOT", value_parser = snapshot_name)]
    from: Option<String>,
    /// Leave out the first bytes of the stream: betr receive says how many it has
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    skip: u64,
    /// Write to this file, which must not be there, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Say nothing on standard output but the stream
    #[arg(short, long)]
    quiet: bool,
    /// The image and its snapshot
    #[arg(value_name = "IMAGE@SNAPSHOT")]
    snapshot: PathBuf,
}

fn snapshot_name(text: &str) -> Result<String, String> {
    match is_hold_name(text) {
        true => Ok(text.to_owned()),
        false => Err("expected the name of a snapshot".to_owned()),
    }
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let (path, moment) = split_snapshot(&args.snapshot);
    let Some(Moment::Snapshot(name)) = moment else {
        let shown = show::path(&args.snapshot);
        return Err(Failure::usage(format!("{shown}: expected IMAGE@SNAPSHOT")));
    };
    if args.output.is_none() && io.terminal {
        let text = "a stream is not for a terminal: send it into a file or a pipe";
        return Err(Failure::usage(text));
    }
    let device = open_device(&path, Access::Read)?;
    let at_image = |error: betr_core::Error| failure(&path, Some(&device), &error);
    let options = OpenOptions::new(Mode::Checkpoint, Box::new(|| 0));
    let options = OpenOptions { content: None, ..options };
    let (live, _) = Volume::open(device.clone(), options).map_err(at_image)?;
    let open = |name: &str| {
        let hold = live.hold(name)?;
        Ok((live.open_hold(&hold, CacheBudget::default())?, hold))
    };
    let (volume, hold) = open(&name).map_err(at_image)?;
    let base = args.from.as_deref().map(open).transpose().map_err(at_image)?;
    let of_base = base
        .as_ref()
        .map(|(base, hold)| Ok((hash(base, !args.quiet, "Hashing the base")?, hold.name.clone())));
    let superblock = volume.superblock();
    let header = Header {
        volume: volume.identity().volume,
        epoch: hold.epoch,
        wall: hold.wall,
        incompatible: superblock.features.incompatible,
        zones: superblock.zones,
        next: hold.next,
        image_bytes: superblock.image_blocks * BLOCK_SIZE as u64,
        log_bytes: superblock.log_units * BLOCK_SIZE as u64,
        content: hash(&volume, !args.quiet, "Hashing").map_err(at_image)?,
        name: hold.name.clone(),
        base: of_base.transpose().map_err(at_image)?,
        label: volume.identity().label.clone(),
    };
    let changes = match &base {
        None => Changes::all(&volume),
        Some((base, _)) => {
            let touched = touched(base, &volume, <[Touched; 2]>::default());
            Changes::between(base, &volume, touched)
        }
    };
    let Some(output) = &args.output else {
        return write(io.data(), &header, args, changes, at_image).map(|_| Exit::DONE);
    };
    let new = image::create_new(output)?;
    let file = BufWriter::with_capacity(1 << 20, &*new.file);
    let bytes = write(file, &header, args, changes, at_image)?;
    new.commit()?;
    if !args.quiet {
        writeln!(io.out, "{}: {} sent", show::path(output), human(bytes))?;
    }
    Ok(Exit::DONE)
}

/// Writes the stream. Returns its length.
fn write(
    out: impl Write,
    header: &Header,
    args: &Args,
    mut changes: Changes<'_>,
    at_image: impl Fn(betr_core::Error) -> Failure,
) -> Result<u64, Failure> {
    let moved = Moved::default();
    let _meter = moved.meter(!args.quiet, "Sending");
    let mut writer = StreamWriter::new(out, header, args.skip)?;
    let mut before = 0;
    while let Some(change) = changes.next_change().map_err(|unread| at_image(unread.error))? {
        writer.put(&change)?;
        moved.add(writer.bytes - before);
        before = writer.bytes;
    }
    Ok(writer.end()?)
}
