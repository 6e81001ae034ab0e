//! Errors in archives, with their places.

use std::fmt;
use std::io;

use betr_core::text::{Brief, printable};

use crate::tar::input::Input;

/// Why an archive could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// It could not be opened or read.
    #[error("{archive}: cannot be read at byte {offset}: {source}")]
    Io {
        /// The archive, printable.
        archive: String,
        /// The number of bytes read before the error.
        offset: u64,
        /// The error of the system call.
        source: io::Error,
    },
    /// It is compressed in a format that is not supported.
    #[error("{archive}: compressed with {format}")]
    Compressed {
        /// The archive, printable.
        archive: String,
        /// The name of the format.
        format: &'static str,
        /// The program that unpacks it to standard output.
        program: &'static str,
    },
    /// It does not begin with a header.
    #[error("{archive}: not a tar archive: {fault}")]
    NotTar {
        /// The archive, printable.
        archive: String,
        /// The fault of its first block.
        fault: Fault,
    },
    /// It is damaged or truncated.
    #[error("{archive}: byte {offset}{}: {fault}", of(member))]
    Corrupt {
        /// The archive, printable.
        archive: String,
        /// The offset of the fault, in bytes.
        offset: u64,
        /// The member, if its name is known.
        member: Option<Vec<u8>>,
        /// The fault.
        fault: Fault,
    },
}

impl TarError {
    /// The error with a remedy for `command`, which reads an archive from its standard input.
    pub fn explain(&self, command: &str) -> String {
        match self {
            Self::Compressed { archive, program, .. } => {
                let file = if archive == Input::STDIN { "FILE" } else { archive };
                format!("{self}; unpack it on the way, as with: {program} {file} | {command}")
            }
            _ => self.to_string(),
        }
    }
}

/// What was expected, and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(Box<Parts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    what: String,
    expected: String,
    found: String,
}

impl Fault {
    pub(crate) fn new(
        what: impl Into<String>,
        expected: impl ToString,
        found: impl ToString,
    ) -> Fault {
        let (expected, found) = (expected.to_string(), found.to_string());
        Fault(Box::new(Parts { what: what.into(), expected, found }))
    }

    /// A fault of a text, of which at most 64 bytes are shown.
    pub(crate) fn text(what: impl Into<String>, expected: impl ToString, found: &[u8]) -> Fault {
        const SHOWN: usize = 64;
        let shown = printable(&found[..found.len().min(SHOWN)]);
        let more = if found.len() > SHOWN { "…" } else { "" };
        Fault::new(what, expected, format!("'{shown}{more}'"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { what, expected, found } = &*self.0;
        write!(f, "{what}: expected {expected}, found {found}")
    }
}

fn of(member: &Option<Vec<u8>>) -> String {
    match member {
        Some(name) => format!(", member '{}'", Brief(name)),
        None => String::new(),
    }
}
