//! Tests that cross crates.

mod crash;
mod engine;
mod files;
mod format;
mod hostile;
