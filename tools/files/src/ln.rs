//! `betr ln`: creates hard links and symbolic links.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{LastLink, Slot};
use betr_core::path::{Last, Operand};
use betr_core::volume::Mode;

use crate::make;
use crate::session::entry_of;
use crate::{Command, Session};

/// Make a link in an image
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Make a symbolic link; TARGET is what it says, and need not be there
    #[arg(short, long)]
    symbolic: bool,
    /// Replace what has the name, if it is not a directory
    #[arg(short, long)]
    force: bool,
    /// The image
    image: PathBuf,
    /// What the link leads to; without -s a symbolic link is not followed, but gets the other name itself
    target: PathBuf,
    /// Its name, or the directory to put it into
    link: PathBuf,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        let target = Operand::new(self.target.as_os_str().as_bytes());
        let mut link = session.operand(&self.link);
        if session.directory_at(&link)?.is_some() {
            // The link gets the name of its target. The names `.` and `..` always exist.
            link = match target.last() {
                Last::Name(name) => entry_of(&link, name),
                _ => return Err(session.refused(&link, Refusal::Exists)),
            };
        }
        let at = session.at(&link);
        let kind = FileType::Symlink;
        let slot = session.fs().slot(&link).and_then(|slot| slot.takes(kind).map(|()| slot));
        let Slot { directory, name, found, .. } = slot.map_err(&at)?;
        let original = match self.symbolic {
            true => None,
            false => {
                let target = session.operand(&self.target);
                Some(session.look_up(&target, LastLink::Keep)?.object)
            }
        };
        match found {
            None => {}
            Some((_, ino)) if original.as_ref().is_some_and(|original| original.ino() == ino) => {
                return Ok(Exit::DONE);
            }
            Some((FileType::Directory, _)) => return Err(at(Refusal::IsADirectory.into())),
            Some(_) if !self.force => return Err(at(Refusal::Exists.into())),
            Some(_) => {}
        }
        session.change(|fs| {
            if found.is_some() {
                fs.unlink(&directory, &name).map_err(&at)?;
            }
            match &original {
                Some(original) => fs.link(original, &directory, &name).map_err(&at)?,
                None => {
                    let mut new = make::plain(fs, kind, 0o777);
                    new.target = target.bytes().to_vec();
                    make::make(fs, &directory, &name, new).map_err(&at)?;
                }
            }
            Ok(Exit::DONE)
        })
    }
}
