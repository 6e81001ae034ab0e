//! `betr mkdir`: creates directories.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::Error;
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{Fs, LastLink};
use betr_core::path::Operand;
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
        crate::each_path(session, &self.paths, |fs, path| match self.parents {
            true => self.make_all(fs, path),
            false => make_one(fs, path, self.mode),
        })
    }
}

impl Args {
    /// Creates a directory and its missing parents.
    fn make_all(&self, fs: &mut Fs, path: &Operand) -> betr_core::Result<()> {
        let names: Vec<&[u8]> = path.components().filter(|name| *name != b".").collect();
        let mut way = b"/".to_vec();
        for (index, name) in names.iter().enumerate() {
            way.extend_from_slice(name);
            way.push(b'/');
            let step = Operand::new(way.clone());
            match fs.look_up(&step, LastLink::Follow) {
                Ok(_) => {}
                Err(Error::Refused(Refusal::NotFound)) => {
                    let mode = if index + 1 == names.len() { self.mode } else { 0o755 };
                    make_one(fs, &step, mode)?;
                }
                Err(error) => return Err(error),
            }
        }
        fs.look_up(path, LastLink::Follow).map(drop)
    }
}

fn make_one(fs: &mut Fs, path: &Operand, mode: u32) -> betr_core::Result<()> {
    let slot = fs.slot(path)?;
    slot.vacant(FileType::Directory)?;
    let new = make::plain(fs, FileType::Directory, mode);
    make::make(fs, &slot.directory, &slot.name, new).map(drop)
}
