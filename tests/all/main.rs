//! Tests that cross crates.

mod broken;
mod checks;
mod corpora;
mod costs;
mod crafted;
mod crash;
mod dumps;
mod engine;
mod faults;
mod files;
mod format;
mod full;
mod growth;
mod hostile;
mod keys;
mod lenient;
mod matrix;
mod mended;
mod mounted;
mod placement;
mod plans;
mod rot;
mod shared;
mod sweeps;
mod zones;
