//! `betr pack` and `betr unpack`: an image without the contents of its files, as a small file for a report of a problem.
//!
//! The image is only read, block by block; what goes into the pack is in `kept`, how it is written in `file`.
#![forbid(unsafe_code)]

mod file;
mod kept;
#[cfg(test)]
mod tests;
pub mod unpack;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::codes::GENERAL;
use betr_cli::image;
use betr_cli::image::next_data;
use betr_cli::size::human;
use betr_cli::view::ImageArgs;
use betr_cli::volume::{failure, open_view};
use betr_cli::{Exit, Failure, Io, show};
use betr_core::device::{Device, LenientDevice};
use betr_core::ids::BLOCK_SIZE;

use file::{Header, PackWriter};
use kept::Kept;

/// Blocks that are read at once.
const AT_ONCE: u64 = 256;

/// Write an image into a small file, without the contents of files
///
/// Everything of the image is in the pack but for the contents of files, compressed: 'betr unpack' makes an image of
/// it in which 'betr fsck -fn' finds what it finds in this one, and which every tool shows as it shows this one. The
/// same image gives the same pack, byte for byte. It is for reports of problems.
///
/// Names of files are in the pack, their sizes, owners and times, extended attributes, and the targets of symbolic
/// links; and such contents as stand in the log, or are still on their way to the leaves of the trees. What is damaged is
/// in it as it is: where it cannot be known what is contents, these may be too, and a note says so. To a check with
/// --data all files of an image that was unpacked are damaged.
#[derive(clap::Args, Debug)]
#[command(after_help = GENERAL.to_string())]
pub struct Args {
    /// Pack the contents of files as well
    #[arg(long)]
    data: bool,
    /// Replace FILE if it is there
    #[arg(short, long)]
    force: bool,
    /// Say nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    image: ImageArgs,
    /// What to write; "-" is standard output
    file: PathBuf,
}

/// What came of it.
struct Packed {
    blocks: u64,
    left_out: u64,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let to_stdout = args.file == Path::new("-");
    if to_stdout && io.terminal {
        let text = "a pack is not for a terminal: send it into a file or a pipe";
        return Err(Failure::usage(text));
    }
    let path = args.image.path();
    let (image, base) = open_view(args.image.view())?;
    let lenient = Arc::new(LenientDevice::new(base.clone(), base.len()));
    let device: Arc<dyn Device> = lenient.clone();
    let mut kept =
        Kept::of(&device, args.data).map_err(|error| failure(path, Some(&device), &error))?;
    // A plan that is laid over has blocks where the image may have holes.
    let holes = Some(&image.file).filter(|_| args.image.view().overlay.is_none());
    let header = Header { contents: args.data, image_bytes: device.len() };
    if to_stdout {
        write(io.data(), header, &mut kept, &device, holes)?;
    } else {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("{}: cannot be written: {error}", show::path(&args.file)))
        };
        let new = match args.force {
            true => image::create(&args.file, 0, true)?,
            false => image::create_new(&args.file)?,
        };
        let out = BufWriter::new(&new.file);
        let packed = write(out, header, &mut kept, &device, holes).map_err(failed)?;
        let bytes = new.file.metadata().map_err(failed)?.len();
        new.commit()?;
        if !args.quiet {
            let Packed { blocks, left_out } = packed;
            let name = show::path(&args.file);
            let (of, left_out) = (human(header.image_bytes), human(left_out));
            writeln!(
                io.out,
                "{name}: {bytes} bytes: {blocks} blocks of {of}, {left_out} of contents left out"
            )?;
        }
    }
    let name = show::path(path);
    if !args.data && !kept.all_known {
        io.note(&format!(
            "betr pack: {name}: note: it is damaged: contents of files may be in the pack, where nothing says \
             that they are"
        ))?;
    }
    let missing: u64 = lenient.missing().iter().map(|bytes| bytes.end - bytes.start).sum();
    if missing > 0 {
        io.note(&format!(
            "betr pack: {name}: {missing} bytes cannot be read, and are zeros in the pack: copy the image to \
             a sound disk and pack it there"
        ))?;
        return Ok(Exit::DAMAGED);
    }
    Ok(Exit::DONE)
}

/// Writes what is kept, block by block.
fn write(
    out: impl Write,
    header: Header,
    kept: &mut Kept,
    device: &Arc<dyn Device>,
    holes: Option<&File>,
) -> std::io::Result<Packed> {
    let mut pack = PackWriter::new(out, header)?;
    let mut buffer = vec![0; AT_ONCE as usize * BLOCK_SIZE];
    let (mut at, end) = (0, header.blocks());
    while let Some(row) = kept.next_row(at) {
        let (mut start, row_end) = (row.start, row.end.min(end));
        if let Some(file) = holes.filter(|_| !kept.knows_blocks()) {
            let data = next_data(file, start * BLOCK_SIZE as u64, header.image_bytes)?;
            start = data.map_or(end, |byte| byte / BLOCK_SIZE as u64);
        }
        if start >= end {
            break;
        }
        at = row_end.min(start + AT_ONCE).max(start);
        let from = start * BLOCK_SIZE as u64;
        let len = ((at - start) * BLOCK_SIZE as u64).min(header.image_bytes - from);
        let bytes = &mut buffer[..len as usize];
        device.read_at(from, bytes)?;
        for (block, bytes) in (start..).zip(bytes.chunks_mut(BLOCK_SIZE)) {
            kept.leave_out(block, bytes);
            pack.block(block, bytes)?;
        }
    }
    Ok(Packed { blocks: pack.end()?, left_out: kept.left_out })
}
