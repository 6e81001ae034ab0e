//! `betr export`: a tree of the image onto the host.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betr_cli::volume::open_fs;
use betr_cli::{Exit, Failure, Io};
use betr_copy::CopyError;
use betr_core::volume::Mode;
use betr_host::HostError;

use crate::{copy_failure, resolve};

/// Copy files and directories out of an image
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Say nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    /// The image
    image: PathBuf,
    /// [PATH] DEST: what to copy (everything by default), and what to make of it: DEST must not exist,
    /// or be an empty directory
    #[arg(required = true, num_args = 1..=2, value_name = "[PATH] DEST")]
    paths: Vec<PathBuf>,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let (path, dest) = match &args.paths[..] {
        [dest] => (Path::new("/"), dest),
        [path, dest] => (path.as_path(), dest),
        _ => return Err(Failure::usage("export takes a path and a destination")),
    };
    let (_image, fs, _) = open_fs(&args.image, Mode::ReadOnly)?;
    let start = resolve(&fs, &args.image, path)?;
    let done = betr_copy::export(&fs, start, dest).map_err(|error| {
        let dest_bytes = dest.as_os_str().as_bytes();
        let refused =
            matches!(&error, CopyError::Host(HostError::Exists { path }) if path == dest_bytes);
        let mut failure = copy_failure(&args.image, error);
        if dest.exists() && !refused {
            failure.message += &format!("\n{} is incomplete.", betr_cli::show::path(dest));
        }
        failure
    })?;
    for warning in &done.warnings {
        io.note(&format!("betr export: warning: {warning}"))?;
    }
    if !args.quiet {
        writeln!(
            io.out,
            "{} files, {} directories, {} others, {} more links",
            done.files, done.directories, done.others, done.links
        )?;
    }
    Ok(Exit::DONE)
}
