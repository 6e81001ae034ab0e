//! `betr cat`: the contents of files on standard output.

use std::path::PathBuf;

use betr_cli::volume::{failure, open_fs};
use betr_cli::{Exit, Failure, Io};
use betr_core::Error;
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::volume::Mode;

use crate::{at_path, resolve};

/// Copy files of an image to standard output
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image
    image: PathBuf,
    /// Files of the image, as absolute paths; symbolic links are not followed
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Holes are written in pieces of this size.
const ZEROS: [u8; 4096] = [0; 4096];

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let (_image, fs, _) = open_fs(&args.image, Mode::ReadOnly)?;
    for path in &args.paths {
        let object = resolve(&fs, &args.image, path)?;
        let refused = |refusal| {
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
            at_path(&args.image, bytes, &Error::Refused(refusal))
        };
        match object.inode().kind {
            FileType::Regular => {}
            FileType::Directory => return Err(refused(Refusal::IsADirectory)),
            _ => return Err(refused(Refusal::Invalid)),
        }
        let mut blocks = fs.blocks(&object);
        let mut at = 0;
        let damaged = |error: &Error| failure(&args.image, None, error);
        while let Some((offset, block)) = fs.next_block(&mut blocks).map_err(|e| damaged(&e))? {
            zeros(io, offset - at)?;
            io.out.write_all(&block)?;
            at = offset + block.len() as u64;
        }
        zeros(io, object.inode().size - at)?;
    }
    Ok(Exit::DONE)
}

fn zeros(io: &mut Io, mut count: u64) -> Result<(), Failure> {
    while count > 0 {
        let len = count.min(ZEROS.len() as u64);
        io.out.write_all(&ZEROS[..len as usize])?;
        count -= len;
    }
    Ok(())
}
