//! `betr chown`: changes owners and groups.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::fs::Changes;
use betr_core::volume::Mode;

use crate::{Command, Session};

/// Change the owners of files of an image
///
/// Users and groups are numbers: names of this machine mean nothing in an image.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Change everything below, too; no symbolic link is followed then
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links themselves, instead of following them
    #[arg(long)]
    no_dereference: bool,
    /// The image
    image: PathBuf,
    /// UID, UID:GID or :GID
    #[arg(value_parser = parse_owner)]
    owner: Owner,
    /// What to change
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

fn parse_owner(text: &str) -> Result<Owner, String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    let number = |text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            format!("{text:?} is no number; users and groups of an image have no names")
        }),
    };
    let owner = Owner { uid: number(uid)?, gid: number(gid)? };
    match (owner.uid, owner.gid) {
        (None, None) => Err("expected UID, UID:GID or :GID".into()),
        _ => Ok(owner),
    }
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        let Owner { uid, gid } = self.owner;
        let last = crate::last_link(self.no_dereference || self.recursive);
        crate::each(session, &self.paths, last, self.recursive, |fs, object| {
            fs.set_attributes(object, Changes { uid, gid, ..Changes::default() })
        })
    }
}
