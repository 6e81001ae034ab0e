//! What is fuzzed: functions of any bytes, which panic when those are not treated as they must be.
//!
//! A fuzzer calls them with what it makes up, a test of the workspace with the corpora that it has left. Each says whether
//! its input got past the front door: a corpus in which nothing does has grown stale.
//!
//! The first byte of an input chooses one of the target's structures, and whether the others are that as they are, or
//! only what a fuzzer can find: then magic, hash, lengths and the like are made right (`structure`).

mod blocks;
mod image;
mod log;
mod nodes;
mod plan;
mod seeds;
mod structure;
mod tar;
mod values;

pub use blocks::{superblock, table};
pub use image::image;
pub use log::log;
pub use nodes::{internal, leaf, run};
pub use plan::plan;
pub use seeds::seeds;
pub use tar::tar;
pub use values::values;

/// A function of any bytes; whether they meant something.
pub type Target = fn(&[u8]) -> bool;

/// All targets, by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("superblock", superblock),
    ("table", table),
    ("internal", internal),
    ("leaf", leaf),
    ("run", run),
    ("log", log),
    ("values", values),
    ("plan", plan),
    ("tar", tar),
    ("image", image),
];

/// An input, taken apart.
struct Input<'i> {
    /// Which of the target's structures it is.
    which: u8,
    /// Whether nothing is to be made right.
    as_it_is: bool,
    bytes: &'i [u8],
}

impl Input<'_> {
    /// An input for one of `count` structures.
    fn of(bytes: &[u8], count: u8) -> Option<Input<'_>> {
        let (first, bytes) = bytes.split_first()?;
        Some(Input { which: (first & 0x7f) % count, as_it_is: first & 0x80 != 0, bytes })
    }
}
