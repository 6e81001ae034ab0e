//! `betr touch`: creates empty files, and changes times.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::fs::Changes;
use betr_core::volume::Mode;

use crate::make::{self, Opened};
use crate::{Command, Session};

/// Set the times of files of an image to now, or make them
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Make nothing
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Change symbolic links themselves, instead of following them; make nothing
    #[arg(long)]
    no_dereference: bool,
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
        let last = crate::last_link(self.no_dereference);
        let create = !self.no_create && !self.no_dereference;
        crate::each_path(session, &self.paths, |fs, path| {
            let Some(Opened::Found(found)) = make::open(fs, path, last, create)? else {
                return Ok(());
            };
            let now = Some(fs.now());
            let changes = Changes { accessed: now, modified: now, ..Changes::default() };
            fs.set_attributes(&found, changes)
        })
    }
}
