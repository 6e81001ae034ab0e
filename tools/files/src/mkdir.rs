//! `betr mkdir`: directories.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::components;
use betr_core::volume::Mode;

use crate::make::{self, parse_mode};
use crate::{Command, Session};

/// Make directories in an image
///
/// They belong to root, and, in a directory with set-group-id, to the group of that. All are made, or none.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Make the directories above, too; what is there already is no error
    #[arg(short, long)]
    parents: bool,
    /// The permissions, in octal
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = parse_mode)]
    mode: u32,
    /// The image
    image: PathBuf,
    /// What to make
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        crate::each_path(session, &self.paths, |fs, path| {
            let mut directory = fs.root()?;
            let mut names = components(path).peekable();
            if names.peek().is_none() && !self.parents {
                return Err(Refusal::Exists.into());
            }
            while let Some(name) = names.next() {
                let is_last = names.peek().is_none();
                directory = match fs.find(&directory, name)? {
                    Some(_) if is_last && !self.parents => return Err(Refusal::Exists.into()),
                    Some(found) if found.is_directory() => found,
                    Some(_) => return Err(Refusal::NotADirectory.into()),
                    None if is_last || self.parents => {
                        let mode = if is_last { self.mode } else { 0o755 };
                        let new = make::plain(fs, FileType::Directory, mode);
                        make::make(fs, &directory, name, new)?
                    }
                    None => return Err(Refusal::NotFound.into()),
                };
            }
            Ok(())
        })
    }
}
