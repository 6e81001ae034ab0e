//! `betr verify`, `betr prove` and `betr verify-proof`: proofs relative to a root hash.
//!
//! The root hash of an image is the hash of the root page of its allocation table, which 'betr info' prints. It covers
//! all names, attributes and contents of the last checkpoint. A proof (`file`) is a file with all bytes that a lookup
//! reads, recorded during the lookup. A verifier repeats the lookup (`look`) with the code of the engine on these bytes
//! alone.

mod file;
mod hash;
mod look;
pub mod prove;
#[cfg(test)]
mod tests;
pub mod verify;
pub mod verify_proof;

use std::path::Path;

use betr_cli::volume::failure;
use betr_cli::{Exit, ExitCodes, Failure, Io, show};
use betr_core::disk::Disk;
use betr_core::format::Superblock;
use betr_core::log;
use betr_core::volume::{Ring, read_identity};

use hash::parse_hash;

/// The exit codes of the verifying commands.
pub const EXIT_CODES: ExitCodes = ExitCodes {
    how: "",
    codes: &[
        (Exit::DONE, "it is so"),
        (Exit::FAILED, "it is not so, or cannot be found out"),
        (Exit::USAGE, "wrong usage"),
        (Exit::DAMAGED, "what should show it does not verify"),
    ],
    note: "",
};

/// The superblock of the last checkpoint. A note says if the log holds records after it.
fn checkpoint(disk: &Disk, path: &Path, tool: &str, io: &mut Io) -> Result<Superblock, Failure> {
    let read = || {
        let ring = Ring::read(disk, &read_identity(disk)?)?;
        let superblock = ring.choose(None)?.clone();
        let records = log::scan(disk, &superblock)?.records;
        Ok((superblock, records))
    };
    let (superblock, records) =
        read().map_err(|error| failure(path, Some(disk.device()), &error))?;
    if records > 0 {
        let (name, epoch) = (show::path(path), superblock.birth.epoch.0);
        io.note(&format!(
            "betr {tool}: {name}: note: {records} records of the log are not in the trees yet: this is about the \
             checkpoint of epoch {epoch}, without them; 'betr fsck -p' brings them in"
        ))?;
    }
    Ok(superblock)
}
