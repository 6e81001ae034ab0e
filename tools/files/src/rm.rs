//! `betr rm`: removes files and trees.

use std::cell::Cell;
use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::Error;
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::path::Last;
use betr_core::text::Printable;
use betr_core::volume::Mode;

use crate::{Command, Session};

/// Remove files and directories of an image
///
/// All of them go, or, if one cannot, none; but where the image is so full that they cannot go at once, they go in several pieces.
/// A tree goes by as many messages as it has zones. Symbolic links are removed
/// themselves. A path that ends in '.' or '..' is refused, and so is the root.
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

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        for path in self.paths.iter().map(|path| session.operand(path)) {
            // POSIX requires an error for these paths.
            let refused = match path.last() {
                Last::Name(_) => continue,
                Last::Root if path.is_empty() => continue,
                Last::Root => "the root directory stays".into(),
                Last::Dot | Last::DotDot => {
                    let given = Printable(path.bytes()).to_string();
                    format!("{given}: a path that ends in '.' or '..' is not removed")
                }
            };
            return Err(Failure::failed(refused));
        }
        let mut waiting = vec![&self.paths[..]];
        let mut pieces = 0;
        while let Some(paths) = waiting.pop() {
            let is_full = Cell::new(false);
            match self.remove(session, paths, &is_full) {
                Ok(_) => pieces += 1,
                Err(_) if is_full.get() && paths.len() > 1 => {
                    let (first, rest) = paths.split_at(paths.len() / 2);
                    waiting.extend([rest, first]);
                }
                Err(failure) => return Err(failure),
            }
        }
        if pieces > 1 {
            let why = "the image has no room to remove everything at once";
            io.note(&format!("betr rm: {why}: it went in {pieces} pieces"))?;
        }
        Ok(Exit::DONE)
    }
}

impl Args {
    /// Removes all of several paths, atomically. Sets `is_full` if there is not enough free space for that.
    fn remove(
        &self,
        session: &mut Session,
        paths: &[PathBuf],
        is_full: &Cell<bool>,
    ) -> Result<Exit, Failure> {
        crate::each_path(session, paths, |fs, path| {
            let removed = fs.slot(path).and_then(|slot| {
                let (kind, _) = slot.existing()?;
                match kind {
                    FileType::Directory if self.recursive => {
                        fs.remove_tree(&slot.directory, &slot.name)
                    }
                    FileType::Directory if self.dir => fs.rmdir(&slot.directory, &slot.name),
                    FileType::Directory => Err(Refusal::IsADirectory.into()),
                    _ => fs.unlink(&slot.directory, &slot.name),
                }
            });
            is_full.set(matches!(removed, Err(Error::NoSpace { .. })));
            match removed {
                Err(Error::Refused(Refusal::NotFound)) if self.force => Ok(()),
                removed => removed,
            }
        })
    }
}
