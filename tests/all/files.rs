//! The file system against a model in memory: random operations, with tiny nodes, and with syncs,
//! checkpoints and reopening at random steps.

use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::explore::{Random, Run, Setup, random_steps};
use betr_tests::rounds;

#[test]
fn agrees_with_a_model() {
    for seed in 0..rounds(6) {
        agree(seed, 300);
    }
}

fn agree(seed: u64, count: usize) {
    let setup = Setup { log_bytes: 128 << 10, ..Setup::tiny(32 << 20) };
    let device = Arc::new(MemoryDevice::new(setup.image_bytes));
    setup.format(device.clone(), seed).unwrap();
    let mut run = Run::start(setup, device.clone(), seed).unwrap();
    let mut random = Random::new(seed);
    for (at, step) in random_steps(seed, count).iter().enumerate() {
        let taken = run.step(step);
        assert!(taken.is_ok(), "seed {seed}, step {at}, {step}: {taken:?}");
        if at % 40 == 0 || at + 1 == count {
            assert_eq!(run.difference(), None, "seed {seed}, after step {at}");
            reads_agree(&run, &mut random);
        }
    }
    run.step(&betr_core::explore::Step::Sync).unwrap();
    let device: Arc<dyn Device> = device.clone();
    let report = check(&device, CheckOptions { data: true, slot: None }, &mut ());
    let first = &report.findings[..report.findings.len().min(5)];
    assert!(report.is_clean(), "seed {seed}: {first:?}");
}

/// Reading any part of any file gives what the model says.
fn reads_agree(run: &Run, random: &mut Random) {
    for path in run.model().paths(false) {
        let (offset, len) = (random.below(30_000), random.below(30_000) as usize);
        let Ok(expected) = run.model().read(&path, offset, len) else { continue };
        let object = run.fs().resolve(&path).unwrap();
        assert!(run.fs().read(&object, offset, len).unwrap() == expected, "{path:?} at {offset}");
    }
}
