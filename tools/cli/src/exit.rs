//! How a tool ends: exit codes, and the error that carries one.
//!
//! A tool returns `Result<Exit, Failure>`; only `main` prints the message and ends the process. Scripts rely on the
//! codes, so they do not change.
//!
//! `fsck` follows fsck(8): its codes are bits that add up, and 1 means "corrected". The general codes must therefore
//! never reach the caller of `fsck`, which sets the code of every [`Failure`] with [`Failure::with_exit`].

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
    /// `fsck`: the check itself failed (the image cannot be opened or read).
    pub const OPERATIONAL: Exit = Exit(8);
    /// `fsck`: the command line is wrong.
    pub const FSCK_USAGE: Exit = Exit(16);
    /// `fsck`: cancelled by the user.
    pub const CANCELLED: Exit = Exit(32);

    /// `mount`: the command line is wrong (mount(8)).
    pub const MOUNT_USAGE: Exit = Exit(1);
    /// `mount`: a system error: the server could not be started in the background.
    pub const MOUNT_SYSTEM: Exit = Exit(2);
    /// `mount`: the mount failed.
    pub const MOUNT_FAILED: Exit = Exit(32);

    /// `probe`: nothing was recognised.
    pub const NOTHING_FOUND: Exit = Exit(2);
    /// `probe`: the command line is wrong, or another error.
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

/// The reason why a tool stopped: a message and the exit code.
///
/// The message is complete: it names the file, what was expected and found, and what to do next. `main` only prefixes
/// the name of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The message for the user: one or more lines, without a newline at the end.
    pub message: String,
    /// The exit code of the process.
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

    /// The same failure with another exit code. `fsck` uses this to translate to its own codes.
    pub fn with_exit(mut self, exit: Exit) -> Failure {
        self.exit = exit;
        self
    }

    /// Whether the reader closed the output. `main` then prints no message, like a program that is ended by SIGPIPE.
    /// [`Failure::cuts_data`] decides the exit code.
    pub fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }

    /// Whether the reader closed the output while it carried data (see [`crate::Io::data`]). Truncated data is a
    /// failure; a truncated listing (`betr ls … | head`) is not.
    pub fn cuts_data(&self) -> bool {
        self.cuts_data
    }

    /// The same failure for an output that carries data.
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

/// For errors of the streams in [`crate::Io`], the only I/O for which a tool may use `?`. An error of a file must first
/// be given the name of the file.
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
        // A full disk is a failure for a listing as well.
        assert!(!failure.of_data().cuts_data());
        let cut = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(!cut.cuts_data() && cut.of_data().cuts_data());
    }
}
