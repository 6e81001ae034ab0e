//! Files without a name, for trial repairs.

use std::path::{Path, PathBuf};

use betr_offline::device::Scratch;

use crate::{Failure, show};

/// A scratch file in `TMPDIR`, the image's directory or /dev/shm, whichever works first: a repair must be possible on a
/// machine with little writable space.
pub fn for_image(image: &Path) -> Result<Scratch, Failure> {
    let chosen = (std::env::temp_dir(), " (TMPDIR names another)");
    first_of([chosen, (directory(image), ""), ("/dev/shm".into(), "")])
}

/// A scratch file in the directory of a file that will be kept.
pub fn beside(file: &Path) -> Result<Scratch, Failure> {
    first_of([(directory(file), "")])
}

/// A scratch file in the first usable directory. Each directory comes with a hint for the error when it is full.
fn first_of(places: impl IntoIterator<Item = (PathBuf, &'static str)>) -> Result<Scratch, Failure> {
    let mut failed = Vec::new();
    for (place, hint) in places {
        let name = show::path(&place);
        match tempfile::tempfile_in(&place) {
            Ok(file) => return Ok(Scratch::new(file, name + hint)),
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    Err(Failure::failed(format!(
        "no temporary file can be made: {}; set TMPDIR to a directory that can be written to",
        failed.join("; ")
    )))
}

/// The directory of a file.
fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => ".".into(),
    }
}
