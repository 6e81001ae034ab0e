//! The betr file system: formats, engine, schema and checker.
//!
//! Imports run downwards in the order of the list below. `format` and `device` import no other module, `volume` owns
//! the engine, and `kv`, `fs` and `check` use it. `mend` repairs the findings of `check`, `plan` stores repairs for
//! review, `anatomy` explains every byte, `redact` copies an image without contents, `explore` tests everything, and
//! `damage` corrupts images. There is no global state except the thread pool, no terminal and no argument parsing here.
//! The device, the clock and every source of randomness are passed in, so that a run can be repeated exactly.

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
