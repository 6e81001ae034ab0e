//! `betr touch`: empty files, and times.

use std::path::PathBuf;

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
    fn image(&self) -> (&PathBuf, Mode) {
        (&self.image, Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        let targets = self.paths.iter().map(|path| session.target(path));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let errors: Vec<_> = targets.iter().map(|target| session.at(&target.path)).collect();
        session.change(|fs| {
            for (target, at) in targets.iter().zip(errors) {
                match fs.find(&target.directory, &target.name).map_err(&at)? {
                    Some(found) => {
                        let now = Some(fs.now());
                        let changes =
                            Changes { accessed: now, modified: now, ..Changes::default() };
                        fs.set_attributes(&found, changes).map_err(&at)?;
                    }
                    None if self.no_create => {}
                    None => {
                        let new = make::plain(fs, FileType::Regular, 0o644);
                        make::make(fs, &target.directory, &target.name, new).map_err(&at)?;
                    }
                }
            }
            Ok(Exit::DONE)
        })
    }
}
