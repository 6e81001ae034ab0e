//! Tests that cross crates.

mod crash;
mod dumps;
mod engine;
mod files;
mod format;
mod hostile;
mod placement;
