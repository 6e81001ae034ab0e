//! Tests that cross crates.

mod engine;
mod files;
