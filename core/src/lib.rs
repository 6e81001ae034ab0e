//! The betr file system: formats, engine, schema and checker.
//!
//! Imports run downwards; ARCHITECTURE.md has the layers, and a test compares them. `format` and `device` are below the
//! engine, `volume` owns it, `kv`, `fs` and `check` use it, and `mend` repairs the findings of `check`. There is no
//! global state except the thread pool (and, in debug builds, the rule that a mutation breaks), no terminal and no
//! argument parsing here. The device, the clock and every source of randomness are passed in, so that a run can be
//! repeated exactly.

pub mod address;
pub mod error;
pub mod ids;
pub mod mutation;
pub mod path;
mod pool;
#[cfg(test)]
mod random;
pub mod text;

pub mod device;
pub mod format;

pub mod disk;

mod page;
pub mod space;
pub mod table;

pub mod holds;

pub mod node;

pub mod log;

pub mod store;

pub mod tree;

pub mod volume;

pub mod kv;

pub mod fs;

pub mod check;

pub mod mend;

mod poison;
mod tuning;

pub use error::{Error, Place, Result};
