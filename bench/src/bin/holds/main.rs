//! Counts the pages that checkpoints write for snapshots, for each block operation, as in §6.2.1 of Backlog (FAST 2010).

mod schedule;
mod work;

use clap::Parser;

/// Count the pages that checkpoints write for snapshots, for each block operation
///
/// A block operation is a block that a checkpoint uses and the one before it does not, or the other way round; what snapshots take
/// and give back is none. Nothing is timed. The image is in memory.
#[derive(Parser)]
struct Args {
    /// Checkpoints
    #[arg(long, default_value_t = 1000)]
    checkpoints: u64,
    /// Block operations of a checkpoint, about
    #[arg(long, default_value_t = 32_000)]
    operations: u64,
    /// Entries of 4 KiB
    #[arg(long, default_value_t = 200_000)]
    entries: u64,
    /// The image's size, in GiB
    #[arg(long, default_value_t = 14)]
    gib: u64,
    /// Nodes of this size in KiB instead of the usual ones, with leaves of as much up to 64 KiB
    #[arg(long, value_name = "KIB")]
    node: Option<u32>,
    /// Checkpoints from one hourly snapshot to the next; the last four are kept
    #[arg(long, default_value_t = 20)]
    hour: u64,
    /// Hours from one daily snapshot to the next; the last four are kept
    #[arg(long, default_value_t = 6)]
    day: u64,
    /// Everything random follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(work::run(&Args::parse())?)
}
