//! The file system against a model in memory: random operations, with tiny nodes, and with syncs,
//! checkpoints and reopening at random steps.

use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::explore::{Random, Run, Setup, Step, random_steps};
use betr_core::format::ZoneSizes;
use betr_core::fs::{Fs, zone_path};
use betr_tests::rounds;

#[test]
fn agrees_with_a_model() {
    let sizes = [0, 3 << 10, 12 << 10, 512 << 10, u64::MAX];
    for seed in 0..rounds(10) {
        agree(seed, 300, sizes[seed as usize % sizes.len()]);
    }
}

/// `zone` is C1.
fn agree(seed: u64, count: usize, zone: u64) {
    let zones = ZoneSizes::of_max(zone);
    let setup = Setup { log_bytes: 128 << 10, zones, ..Setup::tiny(32 << 20) };
    let device = Arc::new(MemoryDevice::new(setup.image_bytes));
    setup.format(device.clone(), seed).unwrap();
    let mut run = Run::start(setup, device.clone(), seed).unwrap();
    let mut random = Random::new(seed);
    for (at, step) in random_steps(seed, count).iter().enumerate() {
        let taken = run.step(step);
        assert!(taken.is_ok(), "seed {seed}, step {at}, {step}: {taken:?}");
        if *step == Step::Checkpoint {
            sound(seed, &device);
            no_zone_could_merge(run.fs());
        }
        if at % 40 == 0 || at + 1 == count {
            assert_eq!(run.difference(), None, "seed {seed}, after step {at}");
            reads_agree(&run, &mut random);
        }
    }
    run.step(&Step::Sync).unwrap();
    sound(seed, &device);
}

/// The checker finds nothing: neither wrong counters nor links, nor zones that are too large or too small.
fn sound(seed: u64, device: &Arc<MemoryDevice>) {
    let device: Arc<dyn Device> = device.clone();
    let report = check(&device, CheckOptions { data: true, slot: None }, &mut ());
    let first = &report.findings[..report.findings.len().min(5)];
    assert!(report.is_clean(), "seed {seed}: {first:?}");
}

/// A zone that is too small stays where the one above has no room for it.
fn no_zone_could_merge(fs: &Fs) {
    let max = fs.zone_sizes().max;
    let zones = fs.zones().unwrap();
    for (at, zone) in zones.iter().enumerate().filter(|(_, zone)| zone.small) {
        let path = zone_path(&zones, at, 1 << 20).unwrap();
        let object = fs.resolve(&path.path).unwrap();
        let mut above = object.up().unwrap().0;
        let place = above.place().encode().len();
        let mut full = place + zone.path.len() > 500;
        while above.zone().is_none() {
            let sums = above.inode().sums;
            let data = sums.data + zone.counted.data;
            full |= data > max || sums.meta + zone.counted.meta + 300 > max;
            above = above.up().unwrap().0;
        }
        assert!(full, "{zone:?}");
    }
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
