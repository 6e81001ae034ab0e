//! What can be wrong with an archive, and where.

use std::fmt;
use std::io;

use betr_core::text::{Brief, printable};

use crate::tar::input::Input;

/// Why an archive could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// It could not be opened, or what it comes from failed.
    #[error("{archive}: cannot be read at byte {offset}: {source}")]
    Io {
        /// The archive, printable.
        archive: String,
        /// How far it had been read.
        offset: u64,
        /// The answer of the host.
        source: io::Error,
    },
    /// It is a compressed archive.
    #[error("{archive}: compressed with {format}")]
    Compressed {
        /// The archive, printable.
        archive: String,
        /// The name of the format.
        format: &'static str,
        /// The program that unpacks it to standard output.
        program: &'static str,
    },
    /// Its beginning is not that of an archive.
    #[error("{archive}: not a tar archive: {fault}")]
    NotTar {
        /// The archive, printable.
        archive: String,
        /// What is wrong with its first block.
        fault: Fault,
    },
    /// It is damaged, or ends too early.
    #[error("{archive}: byte {offset}{}: {fault}", of(member))]
    Corrupt {
        /// The archive, printable.
        archive: String,
        /// The beginning of what is wrong.
        offset: u64,
        /// The member, as far as its name is known.
        member: Option<Vec<u8>>,
        /// What is wrong.
        fault: Fault,
    },
}

impl TarError {
    /// The error, and what to do about it in terms of `command`, which reads an archive from its standard input.
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

/// What was expected and what was found.
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

    /// A fault of a text, which is shown as far as it is short.
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
