//! The phases of the work.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A phase, in the order in which they are run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Insert all keys in random order
    RandomInsert,
    /// Look up random keys after the page cache was dropped
    ColdGet,
    /// Read everything in order after the page cache was dropped
    ColdScan,
    /// Read everything in order once more
    WarmScan,
    /// Overwrite four bytes of random values, a fifth as many as there are keys
    BlindUpdate,
    /// Delete half of the key space in 32 ranges
    RangeDelete,
    /// Delete every second key by itself, from a new database
    SingleDelete,
    /// Insert all keys in ascending order into a new database
    SequentialInsert,
}

/// The name that the command line knows.
impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => out.pad(value.get_name()),
            None => Ok(()),
        }
    }
}

impl Phase {
    /// Whether it can be done again on the same database and finds the same work.
    pub fn can_be_repeated(self) -> bool {
        matches!(self, Phase::ColdGet | Phase::ColdScan | Phase::WarmScan | Phase::BlindUpdate)
    }
}

/// What a database holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Contents {
    /// Nothing that a phase could start from.
    #[default]
    Nothing,
    /// All random keys with the values that they were inserted with.
    Inserted,
    /// The same, but some of the values were updated.
    Updated,
}

impl Contents {
    /// What a database holds after the phase, which has inserted what it starts from.
    pub fn after(phase: Phase) -> Self {
        match phase {
            Phase::RandomInsert | Phase::ColdGet | Phase::ColdScan | Phase::WarmScan => {
                Contents::Inserted
            }
            Phase::BlindUpdate => Contents::Updated,
            Phase::RangeDelete | Phase::SingleDelete | Phase::SequentialInsert => Contents::Nothing,
        }
    }
}

/// The name that the command line knows.
impl fmt::Display for Contents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => out.pad(value.get_name()),
            None => Ok(()),
        }
    }
}
