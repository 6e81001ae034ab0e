//! `betr pack` and `betr unpack`: a compressed image without file contents, for problem reports.
//!
//! The image is only read. [`betr_offline::redact`] copies it without contents to a temporary file. The non-zero blocks
//! of the copy are written as a pack (`file`).
#![forbid(unsafe_code)]

mod file;
mod list;
pub mod proof;
#[cfg(test)]
mod tests;
pub mod unpack;

use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use betr_cli::codes::GENERAL;
use betr_cli::image;
use betr_cli::progress::Meter;
use betr_cli::size::human;
use betr_cli::view::ImageArgs;
use betr_cli::volume::{failure, open_view};
use betr_cli::{Exit, Failure, Io, scratch, show};
use betr_core::device::Device;
use betr_core::ids::BLOCK_SIZE;
use betr_core::space::Bitmap;
use betr_offline::device::{LenientDevice, Scratch};
use betr_offline::redact::{Redacted, redact};

use file::{Contents, Header, PackWriter};
use list::List;

/// Blocks per read.
const AT_ONCE: u64 = 256;

/// Write an image into a small file, without the contents of files
///
/// The pack has every structure of the image that is in use, compressed: 'betr unpack' makes an image of it in which
/// 'betr fsck -fn' finds the same problems at the same places, and which every tool shows as it shows this one. The same
/// image gives the same pack, byte for byte. It is for reports of problems.
///
/// Names of files are in the pack, their sizes, owners and times, names of extended attributes, and targets of symbolic
/// links. Zeros stand in place of contents of files and values of extended attributes, wherever those are: in leaves,
/// pending messages, and the log. Structures that had contents are sealed afresh over the zeros, and the pack lists
/// their original hashes: by these, contents that are known can be confirmed. What is free is not in the pack.
///
/// A structure that does not verify may have any contents. In its place are bytes that do not verify either, unless
/// --keep-damaged is given.
#[derive(clap::Args, Debug)]
#[command(after_help = GENERAL.to_string())]
pub struct Args {
    /// Pack the contents of files as well
    #[arg(long)]
    data: bool,
    /// Pack structures that do not verify as they are, with whatever contents they have
    #[arg(long, conflicts_with = "data")]
    keep_damaged: bool,
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

/// Counts the bytes that are written.
struct Counted<'c, W>(W, &'c AtomicU64);

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.1.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let to_stdout = args.file == Path::new("-");
    if to_stdout && io.terminal {
        let text = "a pack is not for a terminal: send it into a file or a pipe";
        return Err(Failure::usage(text));
    }
    let path = args.image.path();
    let base = open_view(args.image.view())?;
    let lenient = Arc::new(LenientDevice::new(base.clone(), base.len()));
    let device: Arc<dyn Device> = lenient.clone();
    let contents = match (args.data, args.keep_damaged) {
        (true, _) => Contents::All,
        (false, true) => Contents::OfDamaged,
        (false, false) => Contents::Zeros,
    };
    let draft = scratch::for_image(path)?;
    let written = Arc::new(AtomicU64::new(0));
    let shown = written.clone();
    let meter = Meter::text(!args.quiet, move || match shown.load(Ordering::Relaxed) {
        0 => "Reading the structure".into(),
        bytes => format!("Packing: {}", human(bytes)),
    });
    let source = Source::of(&device, contents, &draft)
        .map_err(|error| failure(path, Some(&device), &error))?;
    if to_stdout {
        source.write(Counted(io.data(), &written))?;
    } else {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("{}: cannot be written: {error}", show::path(&args.file)))
        };
        let new = match args.force {
            true => image::create(&args.file, 0, true)?,
            false => image::create_new(&args.file)?,
        };
        new.begin()?;
        let blocks = source.write(Counted(BufWriter::new(&*new.file), &written)).map_err(failed)?;
        let bytes = new.file.metadata().map_err(failed)?.len();
        new.commit()?;
        drop(meter);
        if !args.quiet {
            let (name, of) = (show::path(&args.file), human(device.len()));
            let what = match contents {
                Contents::All => "contents of files included".into(),
                _ => format!(
                    "zeros for {} of contents of files; hashes of {} originals remain, by which known contents \
                     can be confirmed",
                    human(source.found.left_out),
                    source.list.len()
                ),
            };
            writeln!(io.out, "{name}: {bytes} bytes: {blocks} blocks of {of}, {what}")?;
        }
    }
    let (name, damaged) = (show::path(path), source.found.damaged);
    let note = match contents {
        Contents::Zeros => {
            "they are not in the pack: --keep-damaged packs them, with whatever contents they have"
        }
        _ => "they are in the pack as they are, with whatever contents they have",
    };
    if damaged > 0 && contents != Contents::All {
        io.note(&format!(
            "betr pack: {name}: note: structures that do not verify: {damaged}; {note}"
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

/// The input of a pack.
struct Source<'s> {
    header: Header,
    /// The image, or its copy without contents.
    device: Arc<dyn Device>,
    /// The blocks in use. `None` if the used blocks are unknown: then all non-zero blocks are packed.
    blocks: Option<Bitmap>,
    found: Redacted,
    list: List<'s>,
}

impl<'s> Source<'s> {
    /// Prepares an image for packing. `draft` is an empty file for its copy.
    fn of(
        device: &Arc<dyn Device>,
        contents: Contents,
        draft: &'s Scratch,
    ) -> betr_core::Result<Source<'s>> {
        let header = Header { contents, image_bytes: device.len() };
        let failed = |source| betr_core::Error::Io {
            op: "make a temporary file",
            place: betr_core::Place::Image,
            source,
        };
        let copy = draft.device(header.image_bytes).map_err(failed)?;
        let mut list = List::behind(draft.file(), header.image_bytes);
        let keep_damaged = contents == Contents::OfDamaged;
        if contents == Contents::All {
            let nowhere = Arc::new(Nowhere(header.image_bytes));
            let found = redact(device, nowhere, keep_damaged, &mut |_| Ok(()))?;
            let blocks =
                found.used.clone().or_else(|| found.is_whole.then(|| found.blocks.clone()));
            let blocks = blocks.map(|mut blocks| {
                blocks.join(&found.blocks);
                blocks
            });
            return Ok(Source { header, device: device.clone(), blocks, found, list });
        }
        let found =
            redact(device, copy.clone(), keep_damaged, &mut |original| list.push(&original))?;
        list.flush().map_err(failed)?;
        let blocks = Some(found.blocks.clone());
        Ok(Source { header, device: copy, blocks, found, list })
    }

    /// The next extent of blocks, at or after `from`, that may be non-zero.
    fn next_row(&self, from: u64) -> std::io::Result<Option<Range<u64>>> {
        let end = self.header.blocks();
        let mut at = from;
        loop {
            let row = match &self.blocks {
                None => at..end,
                Some(blocks) => match blocks.find_set(at) {
                    Some(start) => start..blocks.find_clear(start, 1).unwrap_or(blocks.len()),
                    None => return Ok(None),
                },
            };
            let row = row.start..row.end.min(end);
            if row.is_empty() {
                return Ok(None);
            }
            let byte = row.start * BLOCK_SIZE as u64;
            let Some(data) = self.device.next_data(byte)? else { return Ok(None) };
            at = data / BLOCK_SIZE as u64;
            if row.contains(&at) {
                return Ok(Some(at..row.end.min(at + AT_ONCE)));
            }
        }
    }

    /// Writes the pack; returns the number of blocks in it.
    fn write(&self, out: impl Write) -> std::io::Result<u64> {
        let mut pack = PackWriter::new(out, self.header)?;
        let mut buffer = vec![0; AT_ONCE as usize * BLOCK_SIZE];
        let mut at = 0;
        while let Some(row) = self.next_row(at)? {
            let from = row.start * BLOCK_SIZE as u64;
            let len = (row.end - row.start) * BLOCK_SIZE as u64;
            let bytes = &mut buffer[..len.min(self.header.image_bytes - from) as usize];
            self.device.read_at(from, bytes)?;
            for (block, bytes) in (row.start..).zip(bytes.chunks(BLOCK_SIZE)) {
                pack.block(block, bytes)?;
            }
            at = row.end;
        }
        pack.end(self.list.len(), self.list.reader())
    }
}

/// A device of this length that discards all writes.
struct Nowhere(u64);

impl Device for Nowhere {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}
