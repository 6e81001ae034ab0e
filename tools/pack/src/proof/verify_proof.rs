//! `betr verify-proof`: verifies a proof against a root hash.

use std::fs::File;
use std::io;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::{Exit, Failure, Io, show};
use betr_core::Error;
use betr_core::format::FileType;
use betr_core::fs::{Fs, Object};
use betr_core::ids::{Hash, is_zero};
use betr_core::path::Operand;
use betr_core::text::Printable;

use crate::proof::file::ProofDevice;
use crate::proof::{EXIT_CODES, look, parse_hash};

/// Verify, without the image, that a file belongs to a root hash
///
/// The lookup that the proof is of is done again, on what the proof has and nothing else; everything that is read of it
/// verifies by hashes from the root hash on. Without an error, what is printed is what an image of this root hash has at this
/// path. A proof of absence is a failure unless it is asked for.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES.to_string())]
pub struct Args {
    /// The root hash, as 'betr info' prints it, from a trusted source
    #[arg(long, value_name = "HASH", value_parser = parse_hash)]
    root: Hash,
    /// Accept a proof of this path only
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Compare the contents with those of this file of the host
    #[arg(long, value_name = "LOCALFILE", conflicts_with = "absent")]
    contents: Option<PathBuf>,
    /// Accept only a proof that there is nothing
    #[arg(long)]
    absent: bool,
    /// The proof
    file: PathBuf,
}

/// The reason why a comparison of contents failed.
enum Unlike {
    Proof(Error),
    Failed(Failure),
}

impl From<Error> for Unlike {
    fn from(error: Error) -> Unlike {
        Unlike::Proof(error)
    }
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let name = show::path(&args.file);
    let host = |error: io::Error| {
        Failure::failed(format!(
            "{name}: {error}; expected a proof, as 'betr prove' has written it"
        ))
    };
    // Opening a pipe would block.
    if !std::fs::metadata(&args.file).map_err(host)?.is_file() {
        return Err(Failure::failed(format!("{name} is no file; expected a proof")));
    }
    let file = File::open(&args.file).map_err(host)?;
    let (claim, device) = ProofDevice::open(file).map_err(|error| {
        Failure::damaged(format!(
            "{name}: this is no proof: {error}; expected it as 'betr prove' has written it"
        ))
    })?;
    let path = Printable(&claim.path);
    let operand = args.path.as_ref().map(|path| Operand::new(path.as_os_str().as_bytes()));
    if let Some(operand) = &operand {
        let Some(expected) = operand.plain() else {
            let text = "--path: '..' depends on the tree: give the path as the proof has it";
            return Err(Failure::usage(text));
        };
        if expected != claim.path {
            let expected = Printable(&expected);
            let text = format!("{name}: it is of another path: expected {expected}, found {path}");
            return Err(Failure::failed(text));
        }
    }
    let unproved = |error: Error| {
        Failure::damaged(format!(
            "{name}: it does not show what root {} has at {path}: {error}: ask for another proof, or for the \
             root hash that it belongs to",
            args.root
        ))
    };
    let fs = look::open(Arc::new(device), claim.root, args.root).map_err(unproved)?;
    let found = look::find(&fs, &claim.path).map_err(unproved)?;
    let Some(object) = found else {
        let text = format!("{path}: nothing is there, by root {}", args.root);
        if !args.absent {
            return Err(Failure::failed(format!(
                "{name}: {text}; expected a file: --absent accepts that"
            )));
        }
        writeln!(io.out, "{text}")?;
        return Ok(Exit::DONE);
    };
    let inode = object.inode();
    let what = look::describe(&inode);
    if operand.is_some_and(|operand| operand.wants_directory()) && !object.is_directory() {
        let text = format!("{name}: {path}: expected a directory, found {what}");
        return Err(Failure::failed(text));
    }
    if args.absent {
        let text = format!("{name}: {path}: expected nothing there, found {what}");
        return Err(Failure::failed(text));
    }
    let regular = inode.kind == FileType::Regular;
    if let Some(local) = &args.contents {
        if !(regular && claim.contents) {
            return Err(Failure::failed(format!(
                "{name}: {path}: {what}: the proof has no contents to compare: make one of a regular file, \
                 without --metadata"
            )));
        }
        compare(&fs, &object, local).map_err(|unlike| match unlike {
            Unlike::Proof(error) => unproved(error),
            Unlike::Failed(failure) => failure,
        })?;
    } else if claim.contents {
        look::contents(&fs, &object, |_, _| Ok(())).map_err(unproved)?;
    }
    let contents = match (regular && claim.contents, &args.contents) {
        (true, Some(local)) => format!(", with the contents of {}", show::path(local)),
        (true, None) => ", with its contents".into(),
        (false, _) => String::new(),
    };
    writeln!(io.out, "{path}: {what}{contents}, by root {}", args.root)?;
    Ok(Exit::DONE)
}

/// Compares the contents of a regular file with a file of the host.
fn compare(fs: &Fs, object: &Object, local: &Path) -> Result<(), Unlike> {
    let name = show::path(local);
    let host = |error: io::Error| Unlike::Failed(Failure::failed(format!("{name}: {error}")));
    let unlike = |text: String| Unlike::Failed(Failure::failed(format!("{name}: {text}")));
    let meta = std::fs::metadata(local).map_err(host)?;
    if !meta.is_file() {
        return Err(unlike("expected a regular file to compare with, found something else".into()));
    }
    let size = object.inode().size;
    if meta.len() != size {
        return Err(unlike(format!("other contents: expected {size} bytes, found {}", meta.len())));
    }
    let mut file = Local { file: File::open(local).map_err(host)?, at: 0, buffer: Vec::new() };
    let differ = |at: u64| unlike(format!("other contents: they differ in the block at byte {at}"));
    look::contents(fs, object, |at, bytes| {
        while file.at < at {
            let (here, found) = file.next((at - file.at).min(1 << 16)).map_err(host)?;
            if !is_zero(found) {
                return Err(differ(here));
            }
        }
        let (here, found) = file.next(bytes.len() as u64).map_err(host)?;
        if found == bytes { Ok(()) } else { Err(differ(here)) }
    })?;
    while file.at < size {
        let (here, found) = file.next((size - file.at).min(1 << 16)).map_err(host)?;
        if !is_zero(found) {
            return Err(differ(here));
        }
    }
    Ok(())
}

/// A file of the host, read sequentially.
struct Local {
    file: File,
    at: u64,
    buffer: Vec<u8>,
}

impl Local {
    /// Reads the next `len` bytes; also returns their offset.
    fn next(&mut self, len: u64) -> io::Result<(u64, &[u8])> {
        let at = self.at;
        self.buffer.resize(len as usize, 0);
        self.file.read_exact(&mut self.buffer)?;
        self.at += len;
        Ok((at, &self.buffer))
    }
}
