//! Two files and a model of them in memory, exercised at random in every way in which files can be changed.
//!
//! After the file system exerciser of NeXT, fsx, that every file system has met since. The same seed gives the
//! same operations; when something differs, the last of them are shown.

mod model;
mod operations;

use crate::fixture::{Mounted, amount, can_map, seed};
use operations::Exerciser;

/// Runs a number of operations on files of limited length, and checks the image every now and then.
fn exercise(user: u64, max_len: usize, operations: u64) {
    let Some(mut mount) = can_map().then(|| Mounted::new("")).flatten() else { return };
    let mut exerciser = Exerciser::new(seed(), user, max_len);
    const PARTS: u64 = 3;
    for _ in 0..PARTS {
        exerciser.run(mount.point(), amount("BETR_FSX_OPERATIONS", operations) / PARTS);
        mount.settle();
        exerciser.compare(mount.point());
    }
}

/// Where everything overlaps everything.
#[test]
fn small_files() {
    exercise(1, 200_000, 4500);
}

/// Where there are holes, and writes that are large enough to be bound late.
#[test]
fn large_files() {
    exercise(2, 8 << 20, 1200);
}

/// Where little more than a block is there.
#[test]
fn tiny_files() {
    exercise(3, 9000, 4500);
}
