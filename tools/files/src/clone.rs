//! `betr clone`: shows a file or directory a second time, without a copy.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use betr_cli::clones::{self, CloneFailed, CloneRequest};
use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io, server};
use betr_core::volume::Mode;

use crate::{Command, Session};

/// Clone a file or a directory of an image
///
/// The clone is as a copy with owners, permissions, times, attributes and links, but made at once, however large the original is:
/// both share what neither changes. A change of one is not seen in the other. Small files and other objects are copied. The last
/// path is the new name, or an existing directory to put the clone into. Symbolic links are cloned themselves. Hard links
/// to files outside of the original become files of their own.
///
/// On a mount all that was written before is written back first, and the clone is durable.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, or a directory of a mount of it; the paths are those of the image
    image: PathBuf,
    /// What to clone
    source: PathBuf,
    /// The new name, or the directory for it
    dest: PathBuf,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn by_server(&self) -> Option<Result<Exit, Failure>> {
        if !self.image.is_dir() {
            return None;
        }
        let [source, dest] =
            [&self.source, &self.dest].map(|path| path.as_os_str().as_bytes().to_vec());
        let request = CloneRequest { source, dest };
        Some(server::ask(&self.image, &request.value(), true).map(|_| Exit::DONE))
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        let [source, dest] = [&self.source, &self.dest].map(|path| session.operand(path));
        let image = session.image().to_owned();
        session.change(|fs| {
            let made = clones::plan(fs, &source, &dest).and_then(|planned| planned.make(fs));
            made.map_err(|CloneFailed { path, error }| {
                crate::at_path(&image, &path.shown(), &error)
            })?;
            Ok(Exit::DONE)
        })
    }
}
