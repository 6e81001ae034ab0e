//! `betr prove`: writes a proof that a file belongs to a root hash.

use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use betr_cli::codes::GENERAL;
use betr_cli::image;
use betr_cli::view::ImageArgs;
use betr_cli::volume::{failure, open_view};
use betr_cli::{Exit, Failure, Io, show};
use betr_core::disk::Disk;
use betr_core::error::Refusal;
use betr_core::path::Operand;
use betr_core::text::Printable;
use betr_offline::device::NotingDevice;

use crate::proof::file::{Claim, write};
use crate::proof::{checkpoint, look};

/// Prove that a file belongs to the root hash of an image
///
/// The root hash, which 'betr info' prints, stands for all that the last checkpoint of an image holds. A proof has
/// what leads from it to the inode at PATH and to the contents of a file: 'betr verify-proof' needs nothing
/// else, and believes nothing but the root hash. What is only in the log is not proved.
///
/// The proof is about the canonical path: symbolic links, '.' and '..' are resolved before. A symbolic link at the end of PATH
/// is not followed. A proof may show parts of what is stored beside the file, such as names of neighbours and short
/// files.
#[derive(clap::Args, Debug)]
#[command(after_help = GENERAL.to_string())]
pub struct Args {
    /// Prove the inode only: type, size, owner, permissions, times
    #[arg(long)]
    metadata: bool,
    /// Prove that there is nothing at PATH
    #[arg(long)]
    absent: bool,
    /// What to write: must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    image: ImageArgs,
    /// A path of the image
    path: PathBuf,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    if args.output.is_none() && io.terminal {
        let text = "a proof is not for a terminal: name a file with -o, or send it into a pipe";
        return Err(Failure::usage(text));
    }
    let image = args.image.path();
    let device = open_view(args.image.view())?;
    let superblock = checkpoint(&Disk::new(device.clone()), image, "prove", io)?;
    if superblock.features.incompatible != 0 {
        let bits = superblock.features.incompatible;
        return Err(Failure::failed(format!(
            "{}: it holds no file system that this version knows (incompatible features {bits:#x}): only files are proved",
            show::path(image)
        )));
    }
    let root = superblock.table.page;
    let operand = Operand::new(args.path.as_os_str().as_bytes());
    let failed = |error: betr_core::Error| match &error {
        betr_core::Error::Refused(refusal) => {
            let (name, path) = (show::path(image), Printable(operand.bytes()));
            Failure::failed(format!("{name}: {path}: {refusal}"))
        }
        _ => failure(image, Some(&device), &error),
    };
    // Nodes that are read only to resolve symbolic links are not part of the proof.
    let fs = look::open(device.clone(), root.block, root.hash).map_err(failed)?;
    let Some(path) = look::claimed(&fs, &operand).map_err(failed)? else {
        return Err(failed(Refusal::NotFound.into()));
    };
    let claim = Claim { path, contents: !args.metadata, root: root.block };
    let noting = Arc::new(NotingDevice::new(device.clone()));
    let fs = look::open(noting.clone(), root.block, root.hash).map_err(failed)?;
    let found = look::find(&fs, &claim.path).map_err(failed)?;
    if operand.wants_directory() && found.as_ref().is_some_and(|found| !found.is_directory()) {
        return Err(failed(Refusal::NotADirectory.into()));
    }
    if found.is_some() == args.absent {
        let (name, path) = (show::path(image), Printable(&claim.path));
        let text = match args.absent {
            true => "expected nothing there, found something: prove it without --absent",
            false => "there is no such file in the last checkpoint: --absent proves that",
        };
        return Err(Failure::failed(format!("{name}: {path}: {text}")));
    }
    if let Some(object) = found.filter(|_| claim.contents) {
        look::contents(&fs, &object, |_, _| Ok(())).map_err(failed)?;
    }
    let read = noting.read();
    let Some(output) = &args.output else {
        write(io.data(), &claim, &read, &*device)?;
        return Ok(Exit::DONE);
    };
    let name = show::path(output);
    let new = image::create_new(output)?;
    let bytes = write(BufWriter::new(&*new.file), &claim, &read, &*device)
        .map_err(|error| Failure::failed(format!("{name}: cannot be written: {error}")))?;
    new.commit()?;
    writeln!(io.out, "{name}: {bytes} bytes, {} of root {}", Printable(&claim.path), root.hash)?;
    Ok(Exit::DONE)
}
