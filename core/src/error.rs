//! Errors, and the places that they name.
//!
//! A place prints as an address that the tools accept. The tools add the name of the image.

use std::fmt;
use std::io;

use crate::format::FormatError;
use crate::format::limits::NUMBERS_END;
use crate::ids::{Lsn, NodeId, TreeId, ZoneId};
use crate::text::Brief;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The operation of read errors.
const READ: &str = "read";

/// An error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device, or the host, failed.
    #[error("{op} at {place}: {source}")]
    Io {
        /// The operation.
        op: &'static str,
        /// Its place.
        place: Place,
        /// The system's reason.
        source: io::Error,
    },
    /// The bytes are not a betr image at all.
    #[error("not a betr image: {0}")]
    NotAnImage(String),
    /// The image is sound, but made by something newer or different.
    #[error("unsupported {0}")]
    Unsupported(String),
    /// Bytes of the image are not what they must be.
    #[error(transparent)]
    Corrupt(Box<Damage>),
    /// The volume has no space for the operation.
    #[error("no space left in the image: {need_blocks} blocks needed, {free_blocks} free{}", held(*held_blocks))]
    NoSpace {
        /// Blocks that the operation would take.
        need_blocks: u64,
        /// Blocks that are available.
        free_blocks: u64,
        /// Blocks that only snapshots use.
        held_blocks: u64,
    },
    /// The host file system of the image is full. Changes wait in memory, and no more are made until there is space.
    #[error("no space left where the image is stored: {source}")]
    HostFull {
        /// The system's reason.
        source: io::Error,
    },
    /// A plan is for another image, or for another state of this one.
    #[error("the plan is not for this image as it is: {0}")]
    OtherImage(Box<Damage>),
    /// A file operation that the rules of POSIX refuse.
    #[error("{0}")]
    Refused(Refusal),
    /// Invalid user input: a size, a name, a time or a place.
    #[error("{0}")]
    Input(String),
    /// Misuse of this library by the calling program.
    #[error("{0}")]
    Misuse(String),
    /// A bug of this library. The image need not be damaged.
    #[error("a mistake in betr, please report it: {0}")]
    Bug(String),
    /// An earlier operation failed half way: the volume is poisoned.
    #[error("an earlier operation failed half way ({why}): open the image again")]
    Poisoned {
        /// The error of that operation.
        why: String,
        /// The cause of that error.
        blame: Blame,
    },
}

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The request: everything else is intact.
    Request,
    /// The image, or its device.
    Image,
    /// This program.
    Program,
}

/// The text on blocks that only snapshots use.
fn held(blocks: u64) -> String {
    match blocks {
        0 => String::new(),
        _ => format!(", and snapshots keep {blocks}, which dropping some of them gives back"),
    }
}

impl Error {
    /// A corruption at `place`.
    pub fn corrupt(place: Place, fault: impl Into<Fault>) -> Error {
        Error::Corrupt(Box::new(Damage { place, fault: fault.into() }))
    }

    /// An error for a plan that does not match the image: the difference, and its place.
    pub fn other_image(place: Place, fault: impl Into<Fault>) -> Error {
        Error::OtherImage(Box::new(Damage { place, fault: fault.into() }))
    }

    /// A read error of the device.
    pub fn read(at: u64, source: io::Error) -> Error {
        Error::Io { op: READ, place: Place::Byte(at), source }
    }

    /// The cause of the error.
    pub fn blame(&self) -> Blame {
        match self {
            Error::Unsupported(_)
            | Error::NoSpace { .. }
            | Error::HostFull { .. }
            | Error::Refused(_)
            | Error::Input(_) => Blame::Request,
            Error::Io { .. } | Error::NotAnImage(_) | Error::Corrupt(_) | Error::OtherImage(_) => {
                Blame::Image
            }
            Error::Misuse(_) | Error::Bug(_) => Blame::Program,
            Error::Poisoned { blame, .. } => *blame,
        }
    }

    /// Whether something is unreadable: the device fails, or the image is damaged.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Error::Corrupt(_) | Error::Io { op: READ, .. })
    }

    /// The damage because of which something could not be read, and whether the device failed to read it, so that it may
    /// be intact. Any other error is returned.
    pub(crate) fn into_damage(self) -> Result<(Damage, bool)> {
        match self {
            Error::Corrupt(damage) => Ok((*damage, false)),
            Error::Io { place, source, .. } => {
                let past_end = source.kind() == io::ErrorKind::UnexpectedEof;
                let fault = Fault::Missing(format!("it cannot be read: {source}"));
                Ok((Damage { place, fault }, !past_end))
            }
            other => Err(other),
        }
    }

    /// Whether the host file system of the image is full.
    pub fn is_host_full(&self) -> bool {
        matches!(self, Error::HostFull { .. })
    }

    /// Whether the error says that the image is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Corrupt(_))
    }
}

/// Bytes of an image that are wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct Damage {
    /// The place.
    pub place: Place,
    /// What was expected and what was found.
    pub fault: Fault,
}

/// The number after `number`. A sound volume never reaches the last one, but a corrupt image may state it.
pub(crate) fn after(what: &'static str, number: u64) -> Result<u64> {
    number.checked_add(1).filter(|next| *next < NUMBERS_END).ok_or_else(|| {
        let fault = Fault::mismatch(what, "a number that another can follow", number);
        Error::corrupt(Place::Image, fault)
    })
}

/// POSIX refusals, by the name of their error number. Conversions to numbers must match all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// ENOENT
    NotFound,
    /// EEXIST
    Exists,
    /// ENOTDIR
    NotADirectory,
    /// EISDIR
    IsADirectory,
    /// ENOTEMPTY
    NotEmpty,
    /// EINVAL
    Invalid,
    /// ENAMETOOLONG
    NameTooLong,
    /// EFBIG
    TooBig,
    /// EMLINK
    TooManyLinks,
    /// ENODATA
    NoAttribute,
    /// EPERM
    NotPermitted,
    /// EBUSY
    Busy,
    /// EOPNOTSUPP
    NotSupported,
    /// ENXIO
    NoData,
    /// ENOSPC
    TooManyAttributes,
    /// ELOOP
    TooManyLevels,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NotFound => "no such file or directory",
            Refusal::Exists => "file exists",
            Refusal::NotADirectory => "not a directory",
            Refusal::IsADirectory => "is a directory",
            Refusal::NotEmpty => "directory not empty",
            Refusal::Invalid => "invalid argument",
            Refusal::NameTooLong => "name too long",
            Refusal::TooBig => "file too large",
            Refusal::TooManyLinks => "too many links",
            Refusal::NoAttribute => "no such attribute",
            Refusal::NotPermitted => "operation not permitted",
            Refusal::Busy => "in use",
            Refusal::NotSupported => "operation not supported",
            Refusal::NoData => "no data there",
            Refusal::TooManyAttributes => "no room for more attributes",
            Refusal::TooManyLevels => "too many levels of symbolic links",
        })
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused(refusal)
    }
}

/// The fault of bytes of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A structure does not parse.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// A structure parses, but contradicts another.
    #[error("{what}: expected {expected}, found {found}")]
    Mismatch {
        /// The field or property.
        what: &'static str,
        /// What the rest of the image requires.
        expected: String,
        /// What was found.
        found: String,
    },
    /// Something required is missing.
    #[error("{0}")]
    Missing(String),
}

impl Fault {
    /// A mismatch between what the rest of the image requires and what was found.
    pub fn mismatch(
        what: &'static str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Fault {
        Fault::Mismatch { what, expected: expected.to_string(), found: found.to_string() }
    }
}

/// A place in an image. Code that displays places must match all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The image as a whole.
    Image,
    /// A byte address.
    Byte(u64),
    /// A node, by id; with its byte address if known.
    Node {
        /// The node.
        id: NodeId,
        /// The byte address of its head.
        byte: Option<u64>,
    },
    /// A part of a node: a basement of a leaf, or a run or slice of an internal node.
    Part {
        /// The node.
        id: NodeId,
        /// The index of the basement, or the sequence number of the run.
        part: u64,
        /// The byte address of the part.
        byte: u64,
    },
    /// A log record.
    Record(Lsn),
    /// A raw key of a tree.
    Key(TreeId, Vec<u8>),
    /// A zone.
    Zone(ZoneId),
    /// A path of the file system.
    Path(Vec<u8>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Image => f.write_str("image"),
            Place::Byte(at) => write!(f, "b:{at:#x}"),
            Place::Node { id, byte: None } => write!(f, "{id}"),
            Place::Node { id, byte: Some(at) } => write!(f, "{id} (b:{at:#x})"),
            Place::Part { id, part, byte } => write!(f, "{id}/p{part} (b:{byte:#x})"),
            Place::Record(lsn) => write!(f, "{lsn}"),
            Place::Key(tree, key) => {
                write!(f, "k#{}:", tree.code())?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Place::Zone(zone) => write!(f, "{zone}"),
            Place::Path(path) => write!(f, "k:{}", Brief(path)),
        }
    }
}
