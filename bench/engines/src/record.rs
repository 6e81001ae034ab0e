//! What is measured of a phase.

use serde::{Deserialize, Serialize};

use crate::phase::Phase;
use crate::proc::Io;

/// The outcome of a phase of a run of an engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The name of the engine.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// The run, from 1 on.
    pub run: u32,
    /// The phase.
    pub phase: Phase,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was done.
    Measured(Box<Measured>),
    /// It could not be done, for this reason.
    Skipped(String),
}

/// The numbers of a phase. Times are in seconds or microseconds, sizes in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Operations: keys that were inserted, read, updated or deleted.
    pub operations: u64,
    /// Time inside the engine.
    pub seconds: f64,
    /// Time from the first operation to the last, making keys and values included.
    pub wall_seconds: f64,
    /// Operations in a second of the time inside the engine.
    pub rate: f64,
    /// Time from then on until the engine's work in the background was done.
    pub seconds_until_idle: f64,
    /// Bytes up to the last operation.
    pub io: Io,
    /// Bytes until the work in the background was done.
    pub io_until_idle: Io,
    /// Bytes that the user handed over, if they mean something.
    pub user_bytes: Option<u64>,
    /// Bytes that the disk was given to write, by everybody on the machine, until idle and synced.
    pub device_bytes: Option<u64>,
    /// Bytes handed to calls that write, until idle, for each of the user's.
    pub write_amplification: Option<f64>,
    /// Bytes that became dirty in the page cache, until idle, for each of the user's.
    pub dirty_amplification: Option<f64>,
    /// Bytes that the disk was given to write for each of the user's.
    pub device_amplification: Option<f64>,
    /// Size on the disk at the end: blocks of all files.
    pub disk_bytes: u64,
    /// Memory.
    pub memory: Usage,
    /// How long the calls took: batches of operations, or single gets.
    pub calls: Calls,
    /// How the database was opened anew before.
    pub reopened: Option<Reopened>,
    /// How a deletion of ranges came to be durable.
    pub ranges: Option<Ranges>,
}

/// The memory that a phase used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// The most that was resident, pages of mapped files included.
    pub peak: u64,
    /// Whether the peak is that of this phase, or of all phases up to it.
    pub peak_of_phase: bool,
    /// The most that was resident and belonged to no file, looked at after each batch.
    pub anonymous_peak: u64,
    /// What was resident at the end and belonged to no file.
    pub anonymous_at_end: u64,
    /// What was resident at the end of mapped files.
    pub file_at_end: u64,
}

/// How long the calls of a phase took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Calls {
    /// The number of calls.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_micros: f64,
    /// All but one in a hundred took no longer.
    pub p99_micros: f64,
    /// The longest.
    pub max_micros: f64,
}

/// How a database was closed and opened anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reopened {
    /// How long closing took.
    pub close_seconds: f64,
    /// How long opening took.
    pub open_seconds: f64,
    /// Bytes for both.
    pub io: Io,
}

/// How a deletion of ranges went on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ranges {
    /// Time until all ranges were handed over.
    pub handed_over_seconds: f64,
    /// Time until they were durable.
    pub durable_seconds: f64,
    /// Time for reading what was left, when the engine was idle.
    pub scan_seconds: f64,
}
