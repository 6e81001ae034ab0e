//! Commands on the files of an image, each on its own or in a shell.
//!
//! A command opens the image, makes one change atomically, and ends. Commands that only read replay the log in
//! memory, and never write to the image.
//!
//! Paths within an image are relative to its root, or in a shell to the current directory. `betr_core::fs` resolves
//! them by the rules of POSIX. Each command documents whether it follows a symbolic link as the last component.

mod cat;
mod chmod;
mod chown;
mod clone;
mod cp;
mod du;
mod export;
mod find;
mod import;
mod ln;
mod ls;
mod make;
mod mkdir;
mod mknod;
mod mv;
mod rm;
mod session;
pub mod shell;
mod stat;
mod touch;
mod truncate;
mod xattr;

use std::path::{Path, PathBuf};

use betr_cli::view::View;
use betr_cli::volume::failure;
use betr_cli::{Exit, Failure, Io};
use betr_copy::{CopyError, Exported};
use betr_core::fs::{Fs, LastLink, Object, Walk};
use betr_core::path::Operand;
use betr_core::text::Brief;
use betr_core::volume::Mode;
use clap::Subcommand;

use session::Session;

/// A command on the files of an image.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// List directories
    Ls(ls::Args),
    /// Copy files to standard output
    Cat(cat::Args),
    /// Show inodes
    Stat(stat::Args),
    /// Find files
    Find(find::Args),
    /// Show how much files take
    Du(du::Args),
    /// Copy files in, out, or within
    Cp(cp::Args),
    /// Clone a file or a directory
    Clone(clone::Args),
    /// Rename files and directories
    Mv(mv::Args),
    /// Remove files and directories
    Rm(rm::Args),
    /// Make directories
    Mkdir(mkdir::Args),
    /// Make links
    Ln(ln::Args),
    /// Change permissions
    Chmod(chmod::Args),
    /// Change owners
    Chown(chown::Args),
    /// Show extended attributes
    Getfattr(xattr::GetArgs),
    /// Set extended attributes
    Setfattr(xattr::SetArgs),
    /// Set sizes
    Truncate(truncate::Args),
    /// Make devices, pipes and sockets
    Mknod(mknod::Args),
    /// Make empty files, and set times
    Touch(touch::Args),
    /// Copy from the host
    Import(import::Args),
    /// Copy to the host
    Export(export::Args),
}

/// A command on the files of an image.
trait Command {
    /// The image and the mode to open it in.
    fn image(&self) -> (View<'_>, Mode);

    /// Carries out the command by the server of a mount, if it is given one.
    fn by_server(&self) -> Option<Result<Exit, Failure>> {
        None
    }

    /// Carries out the command.
    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure>;
}

impl Verb {
    fn command(&self) -> &dyn Command {
        match self {
            Verb::Ls(args) => args,
            Verb::Cat(args) => args,
            Verb::Stat(args) => args,
            Verb::Find(args) => args,
            Verb::Du(args) => args,
            Verb::Cp(args) => args,
            Verb::Clone(args) => args,
            Verb::Mv(args) => args,
            Verb::Rm(args) => args,
            Verb::Mkdir(args) => args,
            Verb::Ln(args) => args,
            Verb::Chmod(args) => args,
            Verb::Chown(args) => args,
            Verb::Getfattr(args) => args,
            Verb::Setfattr(args) => args,
            Verb::Truncate(args) => args,
            Verb::Mknod(args) => args,
            Verb::Touch(args) => args,
            Verb::Import(args) => args,
            Verb::Export(args) => args,
        }
    }

    /// Runs the command outside a shell.
    pub fn run(&self, io: &mut Io) -> Result<Exit, Failure> {
        let command = self.command();
        if let Some(done) = command.by_server() {
            return done;
        }
        let (image, mode) = command.image();
        let mut session = Session::open(image, mode, io)?;
        let exit = command.act(&mut session, io)?;
        // The image lacks acknowledged data, so the output is incomplete.
        Ok(if exit == Exit::DONE && session.is_damaged { Exit::DAMAGED } else { exit })
    }
}

/// Applies a change to each of several paths, atomically.
fn each_path(
    session: &mut Session,
    paths: &[PathBuf],
    change: impl Fn(&mut Fs, &Operand) -> betr_core::Result<()>,
) -> Result<Exit, Failure> {
    let paths: Vec<_> = paths.iter().map(|path| session.operand(path)).collect();
    let errors: Vec<_> = paths.iter().map(|path| session.at(path)).collect();
    session.change(|fs| {
        for (path, at) in paths.iter().zip(errors) {
            change(fs, path).map_err(at)?;
        }
        Ok(Exit::DONE)
    })
}

/// Applies a change to each of several objects and, with `recursive`, to everything below, atomically.
fn each(
    session: &mut Session,
    paths: &[PathBuf],
    last: LastLink,
    recursive: bool,
    change: impl Fn(&mut Fs, &Object) -> betr_core::Result<()>,
) -> Result<Exit, Failure> {
    each_path(session, paths, |fs, path| {
        let object = fs.look_up(path, last)?.object;
        if !recursive || !object.is_directory() {
            return change(fs, &object);
        }
        let mut walk = Walk::new(object);
        while let Some((_, object)) = walk.next_object(fs)? {
            change(fs, &object)?;
        }
        Ok(())
    })
}

/// Whether to follow a symbolic link as the last component of a path.
fn last_link(no_dereference: bool) -> LastLink {
    if no_dereference { LastLink::Keep } else { LastLink::Follow }
}

/// An error about a path within an image.
fn at_path(image: &Path, path: &[u8], error: &betr_core::Error) -> Failure {
    match error {
        betr_core::Error::Refused(refusal) => {
            Failure::failed(format!("{}: {}: {refusal}", betr_cli::show::path(image), Brief(path)))
        }
        other => failure(image, None, other),
    }
}

/// An error for a directory that a walk meets inside itself.
fn below_itself(path: &[u8]) -> Failure {
    Failure::damaged(format!("{}: a directory that is below itself: run betr fsck", Brief(path)))
}

/// The exit code of a copy to the host: failed if the host refused a detail.
fn exit_of(done: &Exported) -> Exit {
    if done.warnings.is_empty() { Exit::DONE } else { Exit::FAILED }
}

/// An error of a copy into or out of an image.
fn copy_failure(image: &Path, error: CopyError) -> Failure {
    match error {
        CopyError::Image(error) => failure(image, None, &error),
        CopyError::Archive(error) => Failure::failed(error.explain("betr import IMAGE - DEST")),
        CopyError::Output(error) => error.into(),
        other => Failure::failed(other.to_string()),
    }
}
