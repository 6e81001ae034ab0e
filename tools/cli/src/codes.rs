//! The meaning of exit codes, written once for both the help and the manual page of a tool.

use std::fmt;

use crate::Exit;

/// The codes of a tool.
#[derive(Clone, Copy, Debug)]
pub struct ExitCodes {
    /// How the codes combine: `, which add up`, or empty.
    pub how: &'static str,
    /// Each code and its meaning.
    pub codes: &'static [(Exit, &'static str)],
    /// Further text in whole sentences; may be empty.
    pub note: &'static str,
}

/// The codes of a tool without codes of its own.
pub const GENERAL: ExitCodes = ExitCodes {
    how: "",
    codes: &[
        (Exit::DONE, "done"),
        (Exit::FAILED, "failed"),
        (Exit::USAGE, "wrong usage"),
        (Exit::DAMAGED, "the image is damaged, or is none, and the output partial"),
    ],
    note: "",
};

impl fmt::Display for ExitCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exit codes{}: ", self.how)?;
        for (index, (exit, meaning)) in self.codes.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} {meaning}", exit.code())?;
        }
        let space = if self.note.is_empty() { "" } else { " " };
        write!(f, ".{space}{}", self.note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_in_one_line() {
        let codes = ExitCodes {
            how: ", which add up",
            codes: &[(Exit::DONE, "fine"), (Exit::UNCORRECTED, "left")],
            note: "Good.",
        };
        assert_eq!(codes.to_string(), "Exit codes, which add up: 0 fine, 4 left. Good.");
        assert!(GENERAL.to_string().ends_with("partial."));
    }
}
