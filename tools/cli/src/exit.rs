//! How a tool ends: exit codes, and the error that carries one.
//!
//! A tool returns `Result<Exit, Failure>`; `main` alone prints the message and leaves the
//! process. The codes are an interface that scripts rely on: they do not change.
//!
//! `fsck` follows fsck(8), where the codes are bits that add up and where 1 means "corrected",
//! so the general codes and those of `fsck` must not be mixed: `fsck` sets the code of every
//! [`Failure`] itself, with [`Failure::with_exit`].

use crate::image::OpenError;
use std::fmt;
use std::io;
use std::ops::{BitOr, BitOrAssign};
use std::process::ExitCode;

/// The exit code of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exit(pub u8);

impl Exit {
    /// The tool did what it was asked to do. For `fsck`: no errors.
    pub const DONE: Exit = Exit(0);
    /// The tool could not do what it was asked to do (not used by `fsck`).
    pub const FAILED: Exit = Exit(1);
    /// The command line is wrong (not used by `fsck`).
    pub const USAGE: Exit = Exit(2);
    /// The image is damaged, or is not a betr image (not used by `fsck`).
    pub const DAMAGED: Exit = Exit(3);

    /// `fsck`: errors were found and corrected.
    pub const CORRECTED: Exit = Exit(1);
    /// `fsck`: errors were found and are still there.
    pub const UNCORRECTED: Exit = Exit(4);
    /// `fsck`: the check itself failed (the image cannot be opened, or not be read).
    pub const OPERATIONAL: Exit = Exit(8);
    /// `fsck`: the command line is wrong.
    pub const FSCK_USAGE: Exit = Exit(16);
    /// `fsck`: cancelled by the user.
    pub const CANCELLED: Exit = Exit(32);

    /// `mount`: the command line is wrong (mount(8)).
    pub const MOUNT_USAGE: Exit = Exit(1);
    /// `mount`: the system does not give what it takes.
    pub const MOUNT_SYSTEM: Exit = Exit(2);
    /// `mount`: it could not be mounted.
    pub const MOUNT_FAILED: Exit = Exit(32);

    /// `probe`: nothing was recognised.
    pub const NOTHING_FOUND: Exit = Exit(2);
    /// `probe`: the command line is wrong, or something else.
    pub const PROBE_USAGE: Exit = Exit(4);
    /// `probe`: a device holds several file systems.
    pub const AMBIVALENT: Exit = Exit(8);

    /// The number the process ends with.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Whether all bits of `bits` are set; for the codes of `fsck`.
    pub const fn has(self, bits: Exit) -> bool {
        self.0 & bits.0 == bits.0
    }
}

impl BitOr for Exit {
    type Output = Exit;
    fn bitor(self, other: Exit) -> Exit {
        Exit(self.0 | other.0)
    }
}

impl BitOrAssign for Exit {
    fn bitor_assign(&mut self, other: Exit) {
        self.0 |= other.0;
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.0)
    }
}

/// Why a tool stopped: a message for people, and the exit code.
///
/// The message is complete: it names the file, what was expected and found, and what to do
/// next. `main` adds only the name of the program before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What to tell the user; may have several lines; no newline at the end.
    pub message: String,
    /// The code to end with.
    pub exit: Exit,
    broken_pipe: bool,
    /// Whether the broken pipe truncated data.
    cuts_data: bool,
}

impl Failure {
    /// A failure with the given code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { message: message.into(), exit, broken_pipe: false, cuts_data: false }
    }

    /// The tool could not do what it was asked to do.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure::new(Exit::FAILED, message)
    }

    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::USAGE, message)
    }

    /// The image is damaged, or is not a betr image.
    pub fn damaged(message: impl Into<String>) -> Failure {
        Failure::new(Exit::DAMAGED, message)
    }

    /// The same failure with another exit code; how `fsck` translates to its own codes.
    pub fn with_exit(mut self, exit: Exit) -> Failure {
        self.exit = exit;
        self
    }

    /// Whether the reader closed the output: `main` then prints no message, as a program that
    /// SIGPIPE ends prints none. [`Failure::cuts_data`] decides about the exit code.
    pub fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }

    /// Whether the reader closed the output, and the output was data (see [`crate::Io::data`]).
    /// Truncated data is a failure; a truncated listing (`betr ls … | head`) is none.
    pub fn cuts_data(&self) -> bool {
        self.cuts_data
    }

    /// The same failure, for output that is data.
    pub(crate) fn of_data(mut self) -> Failure {
        self.cuts_data = self.broken_pipe;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// For the streams of [`crate::Io`], the only input and output that a tool may use `?` on:
/// errors of files must be given the name of the file first.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure {
            message: format!("input or output failed: {error}"),
            exit: Exit::FAILED,
            broken_pipe: error.kind() == io::ErrorKind::BrokenPipe,
            cuts_data: false,
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        Failure::failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsck_codes_add_up() {
        let mut exit = Exit::DONE;
        exit |= Exit::CORRECTED | Exit::UNCORRECTED;
        assert_eq!(exit.code(), 5);
        assert!(exit.has(Exit::UNCORRECTED));
        assert!(!exit.has(Exit::OPERATIONAL));
    }

    #[test]
    fn a_broken_pipe_is_recognised() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(failure.is_broken_pipe());
        let failure = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!failure.is_broken_pipe());
        assert_eq!(failure.exit, Exit::FAILED);
        assert_eq!(failure.clone().with_exit(Exit::OPERATIONAL).exit.code(), 8);
        // A full disk is one, whatever was written to it.
        assert!(!failure.of_data().cuts_data());
        let cut = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(!cut.cuts_data() && cut.of_data().cuts_data());
    }
}
