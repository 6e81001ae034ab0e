//! `betr import`: a file or tree of the host into the image.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use betr_cli::volume::{failure, open_fs};
use betr_cli::{Exit, Failure, Io, time};
use betr_copy::{ImportOptions, import_entry};
use betr_core::error::Refusal;
use betr_core::volume::Mode;
use betr_host::Source;

use crate::{at_path, copy_failure};

/// Copy a file or directory into an image
///
/// All of it becomes durable at once: after an error, or a power cut, the image is what it was before.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Take only the tag of directories that are tagged as caches (CACHEDIR.TAG)
    #[arg(long)]
    exclude_caches: bool,
    /// Say nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    /// The image
    image: PathBuf,
    /// A file or directory of the host
    source: PathBuf,
    /// What it becomes: a path of the image that does not exist, in a directory that does
    dest: PathBuf,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let epoch = time::source_date_epoch().map_err(Failure::usage)?;
    let host = |error: betr_host::HostError| Failure::failed(error.to_string());
    let source = Source::open(&args.source).map_err(host)?.exclude_caches(args.exclude_caches);
    let survey = source.survey().map_err(host)?;
    let (_image, mut fs, _) = open_fs(&args.image, Mode::ReadWrite)?;
    let at = |error: &betr_core::Error| failure(&args.image, None, error);
    let dest = args.dest.as_os_str().as_bytes();
    let refused = |error: &betr_core::Error| at_path(&args.image, dest, error);
    let (directory, name) = fs.resolve_parent(dest).map_err(|error| refused(&error))?;
    if fs.find(&directory, name).map_err(|error| refused(&error))?.is_some() {
        return Err(refused(&Refusal::Exists.into()));
    }
    // What the log holds becomes durable first; from then on nothing is, until all is there.
    fs.checkpoint().map_err(|error| at(&error))?;
    fs.volume_mut().stop_logging().map_err(|error| at(&error))?;
    let done = import_entry(&mut fs, &source, &survey, &directory, name, ImportOptions { epoch })
        .map_err(|error| copy_failure(&args.image, error))?;
    fs.checkpoint().map_err(|error| at(&error))?;
    if !args.quiet {
        writeln!(
            io.out,
            "{} files of {} bytes, {} directories, {} others, {} more links",
            done.files, done.bytes, done.directories, done.others, done.links
        )?;
    }
    Ok(Exit::DONE)
}
