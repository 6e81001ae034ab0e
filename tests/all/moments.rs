//! The moments that a log remembers: after a power cut in the middle of a workload, the state after every record of the
//! log is the model's at that operation, and what changed is what the history says. A power cut while a moment is made durable leaves
//! either that or all that was there.

use betr_core::explore::{Flaw, Remembered, Story, Workload};
use betr_tests::rounds;

#[test]
fn every_record_of_a_log_is_a_moment() {
    let mut all = Remembered::default();
    for seed in 0..rounds(2) {
        for workload in Workload::all() {
            let steps = workload.steps(seed);
            let story = Story::record(workload.setup, &steps, seed, Flaw::None).unwrap();
            for cut in 0..3 {
                let found = story.check_moments(seed * 3 + cut).unwrap_or_else(|what| {
                    panic!("{}, seed {seed}, cut {cut}: {what}", workload.name)
                });
                all.moments += found.moments;
                all.blurred += found.blurred;
                all.applied += found.applied;
                all.kept += found.kept;
                all.arrived += found.arrived;
                all.changes += found.changes;
            }
        }
    }
    println!("{all:?}");
    assert!(all.moments > 300 && all.applied > 50 && all.changes > 500, "{all:?}");
    assert!(all.blurred > 10, "{all:?}");
    assert!(all.kept > 300 && all.arrived > 100, "{all:?}");
}
