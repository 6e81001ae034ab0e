//! `betr unpack`: rebuilds the image of a pack, as far as the pack contains it.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use betr_cli::codes::GENERAL;
use betr_cli::image;
use betr_cli::size::human;
use betr_cli::{Exit, Failure, Io, show};
use betr_core::ids::BLOCK_SIZE;
use betr_offline::redact::Original;

use crate::file::{Contents, PackError, PackReader};

/// Make an image of a pack
///
/// The image has the length of the one that was packed, and zeros where the pack has nothing: it takes little room. Files
/// have their names and sizes in it, and zeros for contents, unless they were packed with --data. The image is there once
/// all of the pack has been verified, or not at all.
///
/// Structures that had contents were sealed afresh when they were packed. --originals lists them with the hashes that
/// they had: address, length and SHA-256 hash, one a line; by these, contents that are known can be confirmed.
#[derive(clap::Args, Debug)]
#[command(after_help = GENERAL.to_string())]
pub struct Args {
    /// Replace what is in IMAGE
    #[arg(short, long)]
    force: bool,
    /// Say nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    /// Write the list of structures that were sealed afresh, with their original hashes, into a new file
    #[arg(long, value_name = "LIST")]
    originals: Option<PathBuf>,
    /// The pack; "-" is standard input
    file: PathBuf,
    /// The image to make: a file
    image: PathBuf,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    if args.file != Path::new("-") {
        let name = show::path(&args.file);
        let failed = |error| {
            Failure::failed(format!(
                "{name}: {error}; expected a pack, as 'betr pack' has written it"
            ))
        };
        let file = File::open(&args.file).map_err(failed)?;
        return unpack(args, &name, BufReader::new(file), io);
    }
    let input = std::io::stdin();
    if input.is_terminal() {
        let text = "a pack does not come from a terminal: send it from a file or a pipe";
        return Err(Failure::usage(text));
    }
    unpack(args, "standard input", input.lock(), io)
}

fn unpack(args: &Args, name: &str, input: impl BufRead, io: &mut Io) -> Result<Exit, Failure> {
    let damaged = |error: PackError| {
        let found = match &error {
            PackError::Newer(_) => {
                return Failure::failed(format!(
                    "{name}: the pack was written by a newer version of betr: {error}: use that version"
                ));
            }
            PackError::Short(0) => format!("{name}: it is empty"),
            _ => format!("{name}: the pack does not verify: {error}"),
        };
        let expected = "expected a pack, as 'betr pack' has written it: fetch it again, as it is";
        Failure::damaged(format!("{found}; {expected}"))
    };
    let mut pack = PackReader::new(input).map_err(damaged)?;
    let header = pack.header();
    let new = image::create(&args.image, header.image_bytes, args.force)?;
    let path = show::path(&args.image);
    if new.is_device() {
        return Err(Failure::failed(format!(
            "{path} is a block device; expected a file: give another path, and copy the image from there"
        )));
    }
    new.begin()?;
    let mut blocks = 0;
    while let Some((first, bytes)) = pack.row().map_err(damaged)? {
        new.file.write_all_at(bytes, first * BLOCK_SIZE as u64).map_err(|error| {
            Failure::failed(format!("{path}: cannot be written, and is not made: {error}"))
        })?;
        blocks += bytes.len().div_ceil(BLOCK_SIZE);
    }
    let list = args.originals.as_deref().map(image::create_new).transpose()?;
    let mut lines = list.as_ref().map(|list| BufWriter::new(&*list.file));
    while let Some(original) = pack.original().map_err(damaged)? {
        if let Some(lines) = &mut lines {
            let Original { byte, bytes, hash } = original;
            writeln!(lines, "b:{byte:#x} {bytes} {hash}")?;
        }
    }
    lines.map(|mut lines| lines.flush()).transpose()?;
    new.commit()?;
    list.map(|list| list.commit()).transpose()?;
    if !args.quiet {
        let what = match header.contents {
            Contents::All => "contents of files included",
            Contents::Zeros => "with zeros for contents of files",
            Contents::OfDamaged => "with zeros for contents of files, but in what does not verify",
        };
        writeln!(io.out, "{path}: {}, {blocks} blocks, {what}", human(header.image_bytes))?;
    }
    Ok(Exit::DONE)
}
