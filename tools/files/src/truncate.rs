//! `betr truncate`: sizes of files.

use std::path::PathBuf;

use betr_cli::size::parse_size;
use betr_cli::{Exit, Failure, Io};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::volume::Mode;

use crate::make;
use crate::{Command, Session};

/// Set the size of files of an image
///
/// What is added reads as zeros and takes no room. A file that does not exist is made.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The size; with + or - before it by how much it grows or shrinks
    #[arg(short, long, value_parser = parse_change, allow_hyphen_values = true)]
    size: Change,
    /// Make nothing
    #[arg(short = 'c', long)]
    no_create: bool,
    /// The image
    image: PathBuf,
    /// The files
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    To(u64),
    Grow(u64),
    Shrink(u64),
}

fn parse_change(text: &str) -> Result<Change, String> {
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(by), _) => parse_size(by).map(Change::Grow),
        (_, Some(by)) => parse_size(by).map(Change::Shrink),
        _ => parse_size(text).map(Change::To),
    }
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
                let file = match fs.find(&target.directory, &target.name).map_err(&at)? {
                    Some(file) => file,
                    None if self.no_create => continue,
                    None => {
                        let new = make::plain(fs, FileType::Regular, 0o644);
                        make::make(fs, &target.directory, &target.name, new).map_err(&at)?
                    }
                };
                let old = file.inode().size;
                let size = match self.size {
                    Change::To(size) => Some(size),
                    Change::Grow(by) => old.checked_add(by),
                    Change::Shrink(by) => Some(old.saturating_sub(by)),
                };
                let size = size.ok_or(Refusal::TooBig).map_err(|refusal| at(refusal.into()))?;
                fs.truncate(&file, size).map_err(&at)?;
            }
            Ok(Exit::DONE)
        })
    }
}
