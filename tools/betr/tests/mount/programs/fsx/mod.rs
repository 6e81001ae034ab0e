//! Two files and a model of them in memory: random operations of every kind that changes files.
//!
//! Modelled on fsx, the file system exerciser of NeXT. The same seed gives the same operations; on a difference the
//! most recent ones are printed.

mod model;
mod operations;

use crate::fixture::{Mounted, amount, can_map, seed};
use operations::Exerciser;

/// Runs a number of operations on files of limited length, and checks the image from time to time.
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

/// Small enough that most operations overlap.
#[test]
fn small_files() {
    exercise(1, 200_000, 4500);
}

/// Large enough for holes, and for writes that are bound late.
#[test]
fn large_files() {
    exercise(2, 8 << 20, 1200);
}

/// Little more than a block.
#[test]
fn tiny_files() {
    exercise(3, 9000, 4500);
}
