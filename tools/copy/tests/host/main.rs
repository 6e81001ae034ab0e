//! Reading and writing trees on a real file system.
//!
//! Tests that the host or the user does not support are skipped, with a line that says so.

mod common;
mod reading;
mod round_trip;
mod writing;
