//! `betr mv`: other names.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::fs::Over;
use betr_core::volume::Mode;

use crate::{Command, Session};

/// Rename files and directories of an image
///
/// The last path is the new name, or a directory to move the others into. All are moved, or none.
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
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = match (self.exchange, sources) {
            (false, _) => {
                let pairs = session.targets(sources, dest)?.into_iter();
                pairs.map(|(source, dest)| (session.absolute(source), dest)).collect()
            }
            (true, [source]) => vec![(session.absolute(source), session.absolute(dest))],
            (true, _) => return Err(Failure::usage("--exchange takes two paths")),
        };
        let over = match (self.exchange, self.no_clobber) {
            (true, _) => Over::Exchange,
            (_, true) => Over::Refuse,
            _ => Over::Replace,
        };
        let errors: Vec<_> =
            pairs.iter().map(|pair| [&pair.0, &pair.1].map(|path| session.at(path))).collect();
        session.change(|fs| {
            for ((source, dest), [at_source, at_dest]) in pairs.iter().zip(errors) {
                let (from, name) = fs.resolve_parent(source).map_err(&at_source)?;
                fs.lookup(&from, name).map_err(&at_source)?;
                let (to, new_name) = fs.resolve_parent(dest).map_err(&at_dest)?;
                fs.rename(&from, name, &to, new_name, over).map_err(&at_dest)?;
            }
            Ok(Exit::DONE)
        })
    }
}
