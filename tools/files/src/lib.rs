//! Commands on the files of an image: `ls`, `cat`, `stat`, `import`, `export`.
//!
//! Each opens the image, does one thing, and ends. Those that read show the state after a replay of
//! the log in memory, and never write to the image.

pub mod cat;
pub mod export;
pub mod import;
pub mod ls;
pub mod stat;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use betr_cli::Failure;
use betr_cli::volume::failure;
use betr_copy::CopyError;
use betr_core::fs::{Fs, Object};
use betr_core::text::Printable;

/// What a path of the image leads to.
fn resolve(fs: &Fs, image: &Path, path: &Path) -> Result<Object, Failure> {
    let bytes = path.as_os_str().as_bytes();
    fs.resolve(bytes).map_err(|error| at_path(image, bytes, &error))
}

/// An error about a path within an image.
fn at_path(image: &Path, path: &[u8], error: &betr_core::Error) -> Failure {
    match error {
        betr_core::Error::Refused(refusal) => Failure::failed(format!(
            "{}: {}: {refusal}",
            betr_cli::show::path(image),
            Printable(path)
        )),
        other => failure(image, None, other),
    }
}

/// An error of a copy into or out of an image.
fn copy_failure(image: &Path, error: CopyError) -> Failure {
    match error {
        CopyError::Image(error) => failure(image, None, &error),
        CopyError::Archive(error) => Failure::failed(error.explain("betr import IMAGE - DEST")),
        CopyError::Output(error) => error.into(),
        other => Failure::failed(other.to_string()),
    }
}
