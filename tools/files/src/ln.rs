//! `betr ln`: more names for a file, and symbolic links.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::volume::Mode;

use crate::make;
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
    /// What the link leads to
    target: PathBuf,
    /// Its name, or the directory to put it into
    link: PathBuf,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        let sources = [self.target.clone()];
        let link = session.targets(&sources, &self.link)?.remove(0).1;
        let link = session.target_of(&link)?;
        let at = session.at(&link.path);
        let original = match self.symbolic {
            true => None,
            false => Some(session.resolve(&self.target)?),
        };
        match &link.found {
            None => {}
            Some(found) if original.as_ref() == Some(found) => return Ok(Exit::DONE),
            Some(found) if found.is_directory() => return Err(at(Refusal::IsADirectory.into())),
            Some(_) if !self.force => return Err(at(Refusal::Exists.into())),
            Some(_) => {}
        }
        let replaces = link.found.is_some();
        let (directory, name) = (link.directory, link.name);
        drop(link.found);
        session.change(|fs| {
            if replaces {
                fs.unlink(&directory, &name).map_err(&at)?;
            }
            match &original {
                Some(original) => fs.link(original, &directory, &name).map_err(&at)?,
                None => {
                    let mut new = make::plain(fs, FileType::Symlink, 0o777);
                    new.target = self.target.as_os_str().as_bytes().to_vec();
                    make::make(fs, &directory, &name, new).map_err(&at)?;
                }
            }
            Ok(Exit::DONE)
        })
    }
}
