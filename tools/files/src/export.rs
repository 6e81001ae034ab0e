//! `betr export`: copies a tree of the image to the host, or into a tar archive.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betr_cli::progress::{self, Meter};
use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io};
use betr_copy::host::{Excludes, HostError};
use betr_copy::{CopyError, ExcludeArgs, tally};
use betr_core::fs::{Fs, LastLink, Object, Resolved, components};
use betr_core::volume::Mode;

use crate::{Command, Session, copy_failure};

/// Copy files and directories out of an image
///
/// If the host refuses an owner, a device or an attribute, that is a warning, and the exit code is 1. The rest is copied.
///
/// An archive is in the pax format, with extended attributes and with sparse files in GNU's format 1.0. It depends
/// on nothing but the files. Sockets, which an archive cannot hold, are left out with a warning.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    excludes: ExcludeArgs,
    /// Say nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    image: PastArgs,
    /// [PATH] DEST: what to copy (everything by default), and what to make of it: DEST must not exist,
    /// or be an empty directory; "-" is a tar archive on standard output
    #[arg(required = true, num_args = 1..=2, value_name = "[PATH] DEST")]
    paths: Vec<PathBuf>,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (self.image.view(), Mode::ReadOnly)
    }

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        export(self, session, io)
    }
}

fn export(args: &Args, session: &Session, io: &mut Io) -> Result<Exit, Failure> {
    let (path, dest) = match &args.paths[..] {
        [dest] => (Path::new("/"), dest),
        [path, dest] => (path.as_path(), dest),
        _ => return Err(Failure::usage("export takes a path and a destination")),
    };
    let to_archive = dest == Path::new("-");
    if to_archive && io.terminal {
        let text = "an archive is not for a terminal: send it into a file or a pipe";
        return Err(Failure::usage(text));
    }
    let excludes = args.excludes.excludes().map_err(Failure::usage)?;
    let Resolved { object: start, path } =
        session.look_up(&session.operand(path), LastLink::Keep)?;
    let fs = session.fs();
    let meter = Meter::counting(!args.quiet, "Exporting", tally::so_far);
    if to_archive {
        return archive(args, fs, start, &path, &excludes, io);
    }
    let done = betr_copy::export(fs, start, dest, &excludes).map_err(|error| {
        let dest_bytes = dest.as_os_str().as_bytes();
        let refused =
            matches!(&error, CopyError::Host(HostError::Exists { path }) if path == dest_bytes);
        let mut failure = copy_failure(args.image.path(), error);
        if dest.exists() && !refused {
            failure.message += &format!("\n{} is incomplete.", betr_cli::show::path(dest));
        }
        failure
    })?;
    drop(meter);
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
    Ok(crate::exit_of(&done))
}

/// Writes an archive to standard output, which must contain nothing else.
fn archive(
    args: &Args,
    fs: &Fs,
    start: Object,
    path: &[u8],
    excludes: &Excludes,
    io: &mut Io,
) -> Result<Exit, Failure> {
    let name = components(path).last().unwrap_or_default();
    io.data();
    let Io { out, err, .. } = io;
    let done = betr_copy::export_archive(fs, start, name, excludes, out, &mut |warning| {
        // A failure to print the warning must not fail the export.
        let _ = progress::beside(|| writeln!(err, "betr export: warning: {warning}"));
    });
    match done {
        Ok(_) => Ok(Exit::DONE),
        Err(error) => {
            let mut failure = copy_failure(args.image.path(), error);
            failure.message += "\nThe archive is incomplete.";
            Err(failure)
        }
    }
}
