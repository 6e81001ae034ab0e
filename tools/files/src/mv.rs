//! `betr mv`: renames and moves.

use std::collections::HashSet;
use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::error::Refusal;
use betr_core::fs::Over;
use betr_core::path::Last;
use betr_core::volume::Mode;

use crate::session::entry_of;
use crate::{Command, Session};

/// Rename files and directories of an image
///
/// The last path is the new name, or a directory to move the others into. All are moved, or none. Symbolic links are moved
/// themselves. The last path may be a symbolic link to a directory.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Replace nothing: what has the new name is an error
    #[arg(short, long, conflicts_with = "exchange")]
    no_clobber: bool,
    /// Let two paths change places
    #[arg(long)]
    exchange: bool,
    /// The image
    image: PathBuf,
    /// What to rename, and at the end the new name or the directory
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DEST"])]
    paths: Vec<PathBuf>,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        let Some((dest, sources)) = self.paths.split_last() else { return Ok(Exit::DONE) };
        let dest = session.operand(dest);
        let sources: Vec<_> = sources.iter().map(|source| session.operand(source)).collect();
        if self.exchange && sources.len() > 1 {
            return Err(Failure::usage("--exchange takes two paths"));
        }
        let into = match self.exchange {
            true => None,
            false => session.directory_at(&dest)?,
        };
        if into.is_none() && sources.len() > 1 {
            return Err(session.refused(&dest, Refusal::NotADirectory));
        }
        let over = match (self.exchange, self.no_clobber) {
            (true, _) => Over::Exchange,
            (_, true) => Over::Refuse,
            _ => Over::Replace,
        };
        let mut moves = Vec::new();
        for source in sources {
            // rename(2) refuses `.` and `..`.
            let Last::Name(name) = source.last() else {
                return Err(session.refused(&source, Refusal::Invalid));
            };
            let dest = into.as_ref().map_or(dest.clone(), |_| entry_of(&dest, name));
            let errors = [session.at(&source), session.at(&dest)];
            moves.push((source, dest, errors));
        }
        drop(into);
        session.change(|fs| {
            let mut moved = HashSet::new();
            for (source, dest, [at_source, at_dest]) in moves {
                let from = fs.slot(&source).map_err(&at_source)?;
                let (kind, ino) = from.existing().map_err(&at_source)?;
                let to = fs.slot(&dest).map_err(&at_dest)?;
                if let (Some((other, _)), Over::Exchange) = (to.found, over) {
                    to.existing().map_err(&at_dest)?;
                    from.takes(other).map_err(&at_source)?;
                }
                to.takes(kind).map_err(&at_dest)?;
                // Two sources with the same name: the second would replace the first.
                if to.found.is_some_and(|(_, found)| moved.contains(&found)) {
                    return Err(at_dest(Refusal::Exists.into()));
                }
                fs.rename(&from.directory, &from.name, &to.directory, &to.name, over)
                    .map_err(&at_dest)?;
                moved.insert(ino);
            }
            Ok(Exit::DONE)
        })
    }
}
