//! Reading and writing trees on a real file system.
//!
//! What the host or the user cannot do is skipped with a line that says so.

mod common;
mod reading;
mod round_trip;
mod writing;
