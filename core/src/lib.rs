//! The betr file system: formats, engine, schema and checker.
//!
//! Imports run downwards in the order of the list below: `format` and `device` know nobody,
//! `volume` owns the engine, `kv`, `fs` and `check` stand on top of it, `mend` repairs what `check` finds, `plan` is
//! about repairs that are looked at first, `anatomy` says what every byte is, `redact` copies an image without
//! contents. There is no global state, no terminal and no argument parsing here; the device, the clock and every source of randomness are
//! handed in, so that a run can be repeated exactly.

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

pub mod compare;
pub mod fs;
pub mod history;
pub mod transfer;

pub mod check;

pub mod mend;

pub mod plan;
mod poison;
mod tuning;

pub mod anatomy;

pub mod redact;

pub use error::{Error, Place, Result};
