//! Fuzz targets: functions of any bytes, which panic if these are handled wrongly.
//!
//! A fuzzer calls them with generated inputs, and a test of the workspace with the stored corpora. Each returns whether
//! its input was accepted: a corpus with no accepted input is outdated.
//!
//! The first byte of an input chooses one of the target's structures. It also says whether the other bytes are used as
//! they are. If not, they are only the part that a fuzzer can find: magic, hash, lengths and similar fields are
//! corrected (`structure`).

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

/// A function of any bytes; returns whether it accepted them.
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

/// A parsed input.
struct Input<'i> {
    /// The index of the structure in the target.
    which: u8,
    /// Whether the bytes are used without corrections.
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
