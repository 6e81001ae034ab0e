//! Power cuts of cloned and renamed ranges: whatever arrived, a clone is there as a whole or not at all.

use betr_tests::clones::sweep;
use betr_tests::rounds;

#[test]
fn every_power_cut_of_clones_leaves_an_acknowledged_state() {
    let mut states = 0;
    for seed in 0..rounds(6) {
        match sweep(seed, 60, 5) {
            Ok(found) => states += found,
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    println!("{states} distinct states");
    assert!(states > 1000, "only {states} states");
}
