//! `betr clone`: shows a file or directory a second time, without a copy.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::error::Refusal;
use betr_core::fs::LastLink;
use betr_core::path::Last;
use betr_core::volume::Mode;

use crate::session::entry_of;
use crate::{Command, Session};

/// Clone a file or a directory of an image
///
/// The clone is as a copy with owners, permissions, times, attributes and links, but made at once, however large the original is:
/// both share what neither changes. A change of one is not seen in the other. Small files and other objects are copied. The last
/// path is the new name, or an existing directory to put the clone into. Symbolic links are cloned themselves. Hard links
/// to files outside of the original become files of their own.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image
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

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        let source = session.operand(&self.source);
        let mut dest = session.operand(&self.dest);
        if session.directory_at(&dest)?.is_some() {
            let Last::Name(name) = source.last() else {
                return Err(session.refused(&source, Refusal::Invalid));
            };
            dest = entry_of(&dest, name);
        }
        let [at_source, at_dest] = [session.at(&source), session.at(&dest)];
        session.change(|fs| {
            let original = fs.look_up(&source, LastLink::Keep).map_err(&at_source)?.object;
            let slot = fs.slot(&dest).map_err(&at_dest)?;
            slot.vacant(original.kind()).map_err(&at_dest)?;
            fs.clone_object(&original, &slot.directory, &slot.name).map_err(&at_dest)?;
            Ok(Exit::DONE)
        })
    }
}
