//! Single calls and their errors, as POSIX and Linux specify them; and the behaviour of `betr mount` itself.

mod acls;
mod attributes;
mod clones;
mod daemon;
mod damage;
mod directories;
mod files;
mod forgotten;
mod holes;
mod host;
mod links;
mod mapped;
mod names;
mod nodes;
mod options;
mod owners;
mod rename;
mod requests;
mod snapshots;
mod space;
mod status;
mod times;

use std::io;

use rustix::io::Errno;

/// Asserts that a call failed with this error.
#[track_caller]
fn refused<T>(expected: Errno, result: Result<T, impl Into<io::Error>>) {
    match result {
        Ok(_) => panic!("expected {expected:?}, and it was done"),
        Err(error) => {
            let error = error.into();
            assert_eq!(Errno::from_io_error(&error), Some(expected), "{error}");
        }
    }
}
