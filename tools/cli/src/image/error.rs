//! Errors of opening and creating images.
//!
//! Each message names the file, what was found, what was expected and what to do next.

use super::Access;
use crate::show;
use crate::size::human;
use std::io;
use std::path::{Path, PathBuf};

impl OpenError {
    /// The path whose use may end soon, so that waiting makes sense: a locked file, a busy block device, the loop device
    /// that the file backs, or the locked backing file of a loop device. `None` for other errors.
    pub(super) fn held(&self) -> Option<&Path> {
        match self {
            OpenError::Locked { path, .. } | OpenError::Busy { path, .. } => Some(path),
            OpenError::Loop { device, at: None, .. } => Some(Path::new(device)),
            OpenError::Backing { source, .. } => source.held(),
            _ => None,
        }
    }

    /// Whether the image exists but may not be written.
    pub fn is_write_protected(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        match self {
            OpenError::Io { source, .. } => {
                matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem)
            }
            _ => false,
        }
    }
}

/// The reason why an image could not be opened, created or committed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say")]
pub enum OpenError {
    /// A system call failed.
    #[error("{}: cannot {doing} it: {source}", show::path(.path))]
    Io { path: PathBuf, doing: &'static str, source: io::Error },

    /// The path does not exist.
    #[error(
        "{} does not exist; expected an image file or a block device: check the path, or make an \
         image with `betr mkfs`", show::path(.path)
    )]
    NotFound { path: PathBuf },

    /// The path is neither a regular file nor a block device.
    #[error(
        "{} is {found}; expected an image file or a block device: give the path of one",
        show::path(.path)
    )]
    Kind { path: PathBuf, found: &'static str },

    /// Another process holds a lock on the image.
    #[error(
        "{} is in use: locked by {}; expected {}: wait until that ends, or end it, then try again",
        show::path(.path), named(.holders), wanted(.access)
    )]
    Locked { path: PathBuf, holders: Vec<String>, access: Access },

    /// The image is mounted.
    #[error(
        "{} is mounted at {at}; expected that nothing has it mounted: unmount it first \
         (umount {at})", show::path(.path), at = show::path(.at)
    )]
    Mounted { path: PathBuf, at: PathBuf },

    /// The image backs a loop device.
    #[error(
        "{} is the backing file of the loop device {device}{}; expected that nothing else uses \
         it: {}detach it first (losetup -d {device})", show::path(.path),
        .at.as_ref().map(|at| format!(", mounted at {}", show::path(at))).unwrap_or_default(),
        .at.as_ref().map(|at| format!("unmount it (umount {}) and ", show::path(at)))
            .unwrap_or_default()
    )]
    Loop { path: PathBuf, device: String, at: Option<PathBuf> },

    /// The image is a loop device whose backing file is in use.
    #[error("{} is a loop device, and its backing file {source}", show::path(.device))]
    Backing { device: PathBuf, source: Box<OpenError> },

    /// The kernel uses the block device in another way.
    #[error(
        "{} is in use by {}; expected a block device that nothing uses: take it out of use first \
         (lsblk shows what it is part of)", show::path(.path),
        if .users.is_empty() { "the kernel".into() } else { .users.join(", ") }
    )]
    Busy { path: PathBuf, users: Vec<String> },

    /// Creating the image would destroy data.
    #[error(
        "{} already holds {found}; expected an empty or new image: choose another path, or \
         replace what is there with -f", show::path(.path)
    )]
    HasData { path: PathBuf, found: String },

    /// A new file is requested, but the path exists.
    #[error(
        "{} is there already; expected nothing, and left it as it is: choose another name, or \
         remove it first", show::path(.path)
    )]
    Exists { path: PathBuf },

    /// The directory of the new image does not exist.
    #[error(
        "{} cannot be created: there is no directory {dir}: make it first (mkdir -p {dir}), or \
         choose another path", show::path(.path), dir = show::path(.dir)
    )]
    NoParent { path: PathBuf, dir: PathBuf },

    /// The block device is too small.
    #[error(
        "{} has {have} bytes ({}); expected at least {want} bytes ({}): ask for a smaller size, \
         or use a larger device", show::path(.path), human(*.have), human(*.want)
    )]
    TooSmall { path: PathBuf, have: u64, want: u64 },

    /// A file appeared at the path while the image was being made.
    #[error(
        "{} was created by something else meanwhile; expected nothing there, and left it as it \
         is: look what it is, then try again", show::path(.path)
    )]
    Appeared { path: PathBuf },

    /// Another file replaced the one that was opened.
    #[error(
        "{} was replaced by something else meanwhile; expected it to stay in place: find out what \
         replaces it, then try again", show::path(.path)
    )]
    Replaced { path: PathBuf },
}

/// For `map_err`: makes the error of an operation on `path`. `what` is a verb phrase that takes the path as its object.
pub(super) fn doing(path: &Path, what: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::Io { path: path.into(), doing: what, source }
}

fn named(holders: &[String]) -> String {
    match holders {
        [] => "another process (`lslocks` may show it)".into(),
        holders => holders.join(", "),
    }
}

fn wanted(access: &Access) -> &'static str {
    match access {
        Access::Read => "to read it while nothing writes it",
        Access::Write => "to write it while nothing else uses it",
    }
}
