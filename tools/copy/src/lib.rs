//! Trees between the host and an image, in both directions: what `mkfs -d`, `import` and `export`
//! share.
//!
//! It joins `betr-host`, which knows files of the host, with the file system of `betr-core`. Whether
//! and when anything becomes durable is the caller's to say.

mod export;
mod import;

use betr_core::ids::Time;

pub use export::{Exported, export};
pub use import::{ImportOptions, Imported, import_entry, import_tree, root_attributes};

/// Why a copy stopped.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The host failed, or a source changed.
    #[error(transparent)]
    Host(#[from] betr_host::HostError),
    /// The image failed, or is full.
    #[error(transparent)]
    Image(#[from] betr_core::Error),
    /// The image cannot hold what the host has, or the other way round.
    #[error("{path}: {why}")]
    Unfit {
        /// The path, printable.
        path: String,
        /// Why.
        why: String,
    },
}

impl CopyError {
    fn unfit(path: &[u8], why: impl ToString) -> CopyError {
        CopyError::Unfit { path: betr_core::text::printable(path), why: why.to_string() }
    }
}

fn time_of(time: betr_host::Time) -> Time {
    Time { secs: time.secs, nanos: time.nanos }
}

fn host_time(time: Time) -> betr_host::Time {
    betr_host::Time { secs: time.secs, nanos: time.nanos }
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
