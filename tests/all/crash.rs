//! Crash exploration: every write boundary of a few workloads, and at each several of the states that a
//! power cut may leave there.
//!
//! Each state must recover to what the file system was after some operation between the last sync that
//! had returned and the cut; the checker must find nothing then; a second recovery must give the same.

use std::sync::Arc;

use betr_core::check::{CheckOptions, Code, Severity, check};
use betr_core::device::{Device, Event, Fate, MemoryDevice, RecordingDevice, cut_power};
use betr_core::fs::{Attributes, Fs};
use betr_core::ids::{Msn, Time};
use betr_core::volume::Mode;
use betr_tests::{Random, clock, create, open, rounds, tight, tiny};

use crate::files::{Model, Run, same};

/// A workload as it reached the device.
struct Story {
    /// The device before the first event.
    base: Vec<u8>,
    events: Vec<Event>,
    /// What the file system was at each operation boundary.
    states: Vec<(Msn, Model)>,
    /// After how many events which operations had been acknowledged.
    acknowledged: Vec<(usize, Msn)>,
}

fn tell(seed: u64, steps: u64) -> Story {
    let memory = Arc::new(MemoryDevice::new(3 << 20));
    let volume = create(memory.clone(), tiny(), tight(), seed).unwrap();
    let mut fs = Fs::format(volume, clock(0), Attributes::at(Time::default())).unwrap();
    fs.checkpoint().unwrap();
    drop(fs);
    let base = memory.snapshot();
    let device = Arc::new(RecordingDevice::new(memory));
    let volume = open(device.clone(), Mode::ReadWrite, tight(), seed).unwrap().0;
    let start = volume.next_msn();
    let mut run =
        Run { fs: Fs::open(volume, clock(100)), model: Model::new(), random: Random::new(seed) };
    let mut states = vec![(start, run.model.clone())];
    let mut acknowledged = vec![(0, start)];
    for _ in 0..steps {
        match run.random.below(14) {
            0 => run.fs.checkpoint().unwrap(),
            1..=3 => run.fs.volume_mut().sync().unwrap(),
            _ => {
                run.step();
                let msn = run.fs.volume().next_msn();
                if states.last().is_some_and(|(last, _)| *last != msn) {
                    states.push((msn, run.model.clone()));
                }
                continue;
            }
        }
        acknowledged.push((device.position(), run.fs.volume().next_msn()));
    }
    Story { base, events: device.events(), states, acknowledged }
}

#[test]
fn every_cut_recovers_to_an_operation_boundary() {
    let mut explored = 0;
    for seed in 0..rounds(3) {
        let story = tell(seed, 120);
        for at in 0..=story.events.len() {
            explored += explore(&story, at, seed);
        }
    }
    assert!(explored > 100, "only {explored} states");
}

/// Several states after `at` events: nothing since the last flush arrived, all of it, and random parts.
fn explore(story: &Story, at: usize, seed: u64) -> u64 {
    let events = &story.events[..at];
    let open_writes = events.iter().rev().take_while(|event| **event != Event::Flush).count();
    let samples = if open_writes == 0 { 1 } else { 2 + rounds(3).min(50) };
    for sample in 0..samples {
        let mut random = Random::new(seed ^ (at as u64) << 8 ^ sample);
        let device = Arc::new(MemoryDevice::from(story.base.clone()));
        let fate = |_| match (sample, random.below(4)) {
            (0, _) => Fate::Lost,
            (1, _) | (_, 0) => Fate::Whole,
            (_, 1) => Fate::Lost,
            _ => Fate::Torn(random.next()),
        };
        cut_power(&*device, events, fate).unwrap();
        recover(story, at, device, &format!("seed {seed}, event {at}, sample {sample}"));
    }
    samples
}

fn recover(story: &Story, at: usize, device: Arc<MemoryDevice>, name: &str) {
    let state: Arc<dyn Device> = device.clone();
    // A second slot of the ring that was being written cannot be told from rot, and is said.
    let report = check(&state, CheckOptions { data: true, slot: None }, &mut ());
    let harmless = |code: Code| {
        code.severity() == Severity::Note
            || matches!(code, Code::SlotInvalid | Code::MapSlotInvalid)
    };
    assert!(report.findings.iter().all(|f| harmless(f.code)), "{name}: {:?}", report.findings);

    let before = device.snapshot();
    let view = open(device.clone(), Mode::ReadOnly, tight(), 7).unwrap().0;
    let msn = view.next_msn();
    assert!(device.snapshot() == before, "{name}: a read-only recovery wrote");
    let acknowledged = story.acknowledged.iter().rev().find(|(events, _)| *events <= at);
    assert!(
        acknowledged.is_some_and(|(_, acknowledged)| msn >= *acknowledged),
        "{name}: lost what was acknowledged"
    );
    let (_, model) = story
        .states
        .iter()
        .find(|(at, _)| *at == msn)
        .unwrap_or_else(|| panic!("{name}: half an operation"));
    same(&Fs::open(view, clock(0)), model);

    let mut volume = open(device.clone(), Mode::ReadWrite, tight(), 9).unwrap().0;
    assert_eq!(volume.next_msn(), msn, "{name}: a second recovery differs");
    volume.checkpoint().unwrap();
    same(&Fs::open(volume, clock(0)), model);
    let report = check(&state, CheckOptions { data: true, slot: None }, &mut ());
    assert!(
        report.findings.is_empty() || report.findings.iter().all(|f| f.code == Code::SlotInvalid),
        "{name}: {:?}",
        report.findings
    );
}
