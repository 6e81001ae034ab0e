//! The file of the image on the host, which other processes may truncate, rename or remove while it is mounted.
//!
//! Each sync checks it. A shorter file has lost data. If the path names another file, the server goes on writing to
//! the open one, but the next mount will open the other.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use betr_cli::image::OpenImage;

/// What the path of the image names, compared with the open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The open file.
    Same,
    /// Another file.
    Replaced,
    /// Nothing.
    Gone,
}

/// What the path of the image names now. If that cannot be determined, the file counts as the same.
pub(crate) fn standing(image: &OpenImage) -> Standing {
    let Ok(open) = image.metadata() else { return Standing::Same };
    match std::fs::metadata(&image.path) {
        Ok(there) if is_same(&open, &there) => Standing::Same,
        Ok(_) => Standing::Replaced,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Standing::Gone,
        Err(_) => Standing::Same,
    }
}

/// A block device is compared by its device number, too, since udev may recreate its node.
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino()) || a.rdev() != 0 && a.rdev() == b.rdev()
}

impl Standing {
    /// The message for the log; `None` if the path names the open file.
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
