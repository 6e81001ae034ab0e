//! `betr resize`: enlarges an image.

use std::path::PathBuf;
use std::sync::Arc;

use betr_cli::image::{self, Access};
use betr_cli::size::{human, parse_size};
use betr_cli::volume::{clock, failure, nonces};
use betr_cli::{Exit, Failure, Io, show};
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::ids::{BLOCK_SIZE, Time};
use betr_core::volume::{Mode, NonceSource, OpenOptions, Ring, Volume, read_identity};
use serde_json::json;

/// Make an image larger
///
/// An image file is extended; what is new takes no room until it is used. A device must have the size already. Contents,
/// UUID and label stay. After an error or a power cut the image has its old size or the new one. Images do not
/// become smaller.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image
    image: PathBuf,
    /// Its new size; without a unit in bytes [default: that of the device]
    #[arg(value_parser = parse_size)]
    size: Option<u64>,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let image = image::open(&args.image, Access::Write)?;
    let name = show::path(&args.image);
    let host =
        |what: &str, error: std::io::Error| Failure::failed(format!("{name}: {what}: {error}"));
    let device = image.device();
    let as_it_is = Disk::new(device.clone());
    let failed = |error: betr_core::Error| failure(&args.image, Some(&device), &error);
    let identity = read_identity(&as_it_is).map_err(failed)?;
    // After a rollback to a checkpoint before an earlier growth, the superblock has the smaller size.
    let ring = Ring::read(&as_it_is, &identity).map_err(failed)?;
    let blocks = ring.newest().map_or(identity.image_blocks, |newest| newest.image_blocks);
    let before = blocks * BLOCK_SIZE as u64;
    let asked = args.size.unwrap_or(image.len) / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
    if asked < before {
        return Err(Failure::failed(format!(
            "{name}: has {before} bytes, and does not become smaller: {asked} bytes are asked for"
        )));
    }
    let known = identity.image_blocks * BLOCK_SIZE as u64;
    if asked > before && asked < known {
        return Err(Failure::failed(format!(
            "{name}: has {before} bytes since it went back to a checkpoint of before it grew to {known}: the next size is {known}"
        )));
    }
    if image.is_block_device && asked > image.len {
        return Err(Failure::failed(format!("{name}: the device has only {} bytes", image.len)));
    }
    if asked > before {
        if asked > image.len {
            image.set_len(asked).map_err(|error| host("cannot be extended", error))?;
        }
        let now = clock()?();
        let grown = grow(image.part(0, asked), nonces()?, now);
        if grown.is_err() && asked > image.len {
            // Truncate the file again, but not below its old length or the size that the identity block has now.
            let now = read_identity(&as_it_is).map_or(asked, |identity| {
                (identity.image_blocks * BLOCK_SIZE as u64).max(image.len)
            });
            let cut = image.set_len(now);
            cut.map_err(|error| host("cannot be made as short as it was", error))?;
        }
        grown.map_err(failed)?;
    }
    if args.json {
        let changed = asked > before;
        let value = json!({ "before": before, "bytes": asked, "changed": changed });
        io.json("betr.resize", 1, value)?;
    } else if !args.quiet {
        let word = if asked > before { "" } else { " already" };
        writeln!(io.out, "{name}: {} ({asked} bytes){word}", human(asked))?;
    }
    Ok(Exit::DONE)
}

fn grow(device: Arc<dyn Device>, nonces: NonceSource, now: Time) -> betr_core::Result<()> {
    let bytes = device.len();
    let options = OpenOptions { content: None, ..OpenOptions::new(Mode::ReadWrite, nonces) };
    let (mut volume, _) = Volume::open(device, options)?;
    volume.note_time(now);
    volume.grow(bytes)
}
