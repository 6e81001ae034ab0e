//! `betr truncate`: changes sizes of files.

use std::path::PathBuf;

use betr_cli::size::parse_size;
use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::error::Refusal;
use betr_core::fs::LastLink;
use betr_core::volume::Mode;

use crate::make::{self, Opened};
use crate::{Command, Session};

/// Set the size of files of an image
///
/// What is added reads as zeros and takes no room. A file that does not exist is made. Symbolic links are followed.
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
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        crate::each_path(session, &self.paths, |fs, path| {
            let file = match make::open(fs, path, LastLink::Follow, !self.no_create)? {
                Some(Opened::Found(file) | Opened::Made(file)) => file,
                None => return Ok(()),
            };
            let old = file.inode().size;
            let size = match self.size {
                Change::To(size) => size,
                Change::Grow(by) => old.checked_add(by).ok_or(Refusal::TooBig)?,
                Change::Shrink(by) => old.saturating_sub(by),
            };
            fs.truncate(&file, size)
        })
    }
}
