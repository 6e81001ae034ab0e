//! `betr cat`: the contents of files on standard output.

use std::path::PathBuf;

use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::LastLink;
use betr_core::volume::Mode;

use crate::{Command, Session};

/// Copy files of an image to standard output
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    image: PastArgs,
    /// Files of the image; symbolic links are followed
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Holes are written in pieces of this size.
const ZEROS: [u8; 4096] = [0; 4096];

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (self.image.view(), Mode::ReadOnly)
    }

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        let at_image = session.at_image();
        for path in &self.paths {
            let path = session.operand(path);
            let object = session.look_up(&path, LastLink::Follow)?.object;
            match object.kind() {
                FileType::Regular => {}
                kind => {
                    let refusal = match kind {
                        FileType::Directory => Refusal::IsADirectory,
                        _ => Refusal::Invalid,
                    };
                    return Err(session.refused(&path, refusal));
                }
            }
            let mut blocks = session.fs().blocks(&object);
            let mut at = 0;
            while let Some((offset, block)) =
                session.fs().next_block(&mut blocks).map_err(&at_image)?
            {
                zeros(io, offset - at)?;
                io.data().write_all(&block)?;
                at = offset + block.len() as u64;
            }
            zeros(io, object.inode().size - at)?;
        }
        Ok(Exit::DONE)
    }
}

fn zeros(io: &mut Io, mut count: u64) -> Result<(), Failure> {
    while count > 0 {
        let len = count.min(ZEROS.len() as u64);
        io.data().write_all(&ZEROS[..len as usize])?;
        count -= len;
    }
    Ok(())
}
