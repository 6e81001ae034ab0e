//! Compares embedded key-value engines on the same work.

mod args;
mod child;
mod compare;
mod disk;
mod engine;
mod idle;
mod meter;
mod phase;
mod proc;
mod progress;
mod record;
mod report;
mod stats;
mod store;
mod table;
mod units;
mod work;

mod betr;
mod fjall;
mod lmdb;
mod redb;
mod rocksdb;

use anyhow::Result;
use clap::Parser;

/// All engines allocate with it, those in C and C++ too: their calls to `malloc` come here.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let cli = args::Cli::parse();
    match cli.part {
        Some(args::Part::Child(run)) => child::run(&run),
        None => compare::run(&cli.compare),
    }
}
