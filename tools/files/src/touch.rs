//! `betr touch`: empty files, and times.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::format::FileType;
use betr_core::fs::Changes;
use betr_core::volume::Mode;

use crate::make;
use crate::{Command, Session};

/// Set the times of files of an image to now, or make them
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Make nothing
    #[arg(short = 'c', long)]
    no_create: bool,
    /// The image
    image: PathBuf,
    /// The files
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        crate::each_path(session, &self.paths, |fs, path| {
            let (directory, name) = fs.resolve_parent(path)?;
            match fs.find(&directory, name)? {
                Some(found) => {
                    let now = Some(fs.now());
                    let changes = Changes { accessed: now, modified: now, ..Changes::default() };
                    fs.set_attributes(&found, changes)
                }
                None if self.no_create => Ok(()),
                None => {
                    let new = make::plain(fs, FileType::Regular, 0o644);
                    make::make(fs, &directory, name, new).map(drop)
                }
            }
        })
    }
}
