//! `betr rm`: away with files and trees.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::Error;
use betr_core::error::Refusal;
use betr_core::volume::Mode;

use crate::{Command, Session};

/// Remove files and directories of an image
///
/// All of them go, or, if one cannot, none. A tree goes by as many messages as it has zones.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remove directories with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
    /// What is not there is no error
    #[arg(short, long)]
    force: bool,
    /// The image
    image: PathBuf,
    /// What to remove
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        if self.paths.iter().any(|path| session.absolute(path) == b"/") {
            return Err(Failure::failed("the root directory stays"));
        }
        crate::each_path(session, &self.paths, |fs, path| {
            let removed = fs.resolve_parent(path).and_then(|(directory, name)| {
                let is_directory = fs.lookup(&directory, name)?.is_directory();
                match is_directory {
                    true if self.recursive => fs.remove_tree(&directory, name),
                    true if self.dir => fs.rmdir(&directory, name),
                    true => Err(Refusal::IsADirectory.into()),
                    false => fs.unlink(&directory, name),
                }
            });
            match removed {
                Err(Error::Refused(Refusal::NotFound)) if self.force => Ok(()),
                removed => removed,
            }
        })
    }
}
