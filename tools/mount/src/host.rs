//! The file of the image on the host, which others may cut, rename or remove while it is mounted.
//!
//! Each sync looks at it. A file that has become shorter has lost data; one whose path leads elsewhere is written
//! on as long as it is open, but the next mount will find another.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use betr_cli::image::OpenImage;

/// What the path of the image leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The file that is open.
    Same,
    /// Another one.
    Replaced,
    /// Nothing.
    Gone,
}

/// Where the path of the image leads. What cannot be looked at counts as the same.
pub(crate) fn standing(image: &OpenImage) -> Standing {
    let Ok(open) = image.metadata() else { return Standing::Same };
    match std::fs::metadata(&image.path) {
        Ok(there) if is_same(&open, &there) => Standing::Same,
        Ok(_) => Standing::Replaced,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Standing::Gone,
        Err(_) => Standing::Same,
    }
}

/// A block device stays the same when udev makes its node anew.
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino()) || a.rdev() != 0 && a.rdev() == b.rdev()
}

impl Standing {
    /// What it means for the mount; nothing if the path leads to the open file.
    pub(crate) fn text(self) -> Option<&'static str> {
        match self {
            Standing::Same => None,
            Standing::Replaced => Some(
                "the path leads to another file now; the mount goes on with the one that is open",
            ),
            Standing::Gone => {
                Some("the path leads to nothing now; the mount goes on with the file that is open")
            }
        }
    }
}
