//! Copies trees between the host or a tar archive and an image, in both directions, for `mkfs -d`, `import`, `export`
//! and `salvage`.
//!
//! It connects [`host`] (trees of the host) and [`tar`] (archives) with the file system of `betr-core`. Durability is
//! up to the caller.

mod ahead;
mod archive_in;
mod archive_out;
mod args;
mod export;
mod fill;
pub mod host;
mod import;
mod meta;
mod needs;
mod options;
mod put;
mod salvage;
pub mod tally;
pub mod tar;

pub use archive_in::{ArchiveOptions, import_archive};
pub use archive_out::export_archive;
pub use args::{ExcludeArgs, OwnerArgs};
pub use export::{ExportInto, Exported, export};
pub use fill::empty_directory;
pub use import::{ImportLinks, import_entry, import_over, import_tree, merge_tree};
pub use meta::file_type;
pub use needs::{Needs, archive_links};
pub use options::{ImportOptions, Imported, Numbers, Owners};
pub use salvage::{Salvaged, salvage};

/// Why a copy stopped.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The host failed, or a source changed while it was read.
    #[error(transparent)]
    Host(#[from] crate::host::HostError),
    /// An archive is damaged, or could not be read.
    #[error(transparent)]
    Archive(#[from] crate::tar::TarError),
    /// The image failed, or is full.
    #[error(transparent)]
    Image(#[from] betr_core::Error),
    /// An archive could not be written.
    #[error("the archive cannot be written: {0}")]
    Output(#[from] std::io::Error),
    /// The file system refused an operation.
    #[error("{}: {refusal}", shown(path))]
    Refused {
        /// The path.
        path: Vec<u8>,
        /// The reason.
        refusal: betr_core::error::Refusal,
    },
    /// The image cannot store an object of the host, or the host one of the image.
    #[error("{path}: {why}")]
    Unfit {
        /// The path, printable.
        path: String,
        /// The reason.
        why: String,
    },
}

impl CopyError {
    fn unfit(path: &[u8], why: impl ToString) -> CopyError {
        CopyError::Unfit { path: shown(path), why: why.to_string() }
    }

    /// An error for a directory that a walk meets inside itself.
    fn cycle(path: &[u8], entry: &betr_core::fs::DirEntry) -> CopyError {
        let why = format!("directory {} is below itself: run betr fsck", entry.ino);
        CopyError::unfit(path, why)
    }

    /// An error of the file system, with `path` if it is a refusal.
    fn at(path: &[u8], error: betr_core::Error) -> CopyError {
        match error {
            betr_core::Error::Refused(refusal) => {
                CopyError::Refused { path: path.to_vec(), refusal }
            }
            other => other.into(),
        }
    }
}

/// A path below the start of a copy, printable.
fn shown(path: &[u8]) -> String {
    betr_core::text::Brief(if path.is_empty() { b"/" } else { path }).to_string()
}

/// `directory`/`name`, or `name` if the directory is the root.
fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
