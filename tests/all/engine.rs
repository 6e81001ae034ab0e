//! The engine against a `BTreeMap`: random transactions, with tiny nodes and a cache that evicts all
//! the time, and with syncs, checkpoints, reopening and recovery at random steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::check::{CheckOptions, Finding, Severity, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{Action, Key, Op, RecordMessage};
use betr_core::ids::{Msn, Time, TreeId};
use betr_core::volume::{Mode, Transaction, Volume};
use betr_tests::{Random, create, open, rounds, tight, tiny};
use bytes::Bytes;

type Model = BTreeMap<(TreeId, Vec<u8>), Vec<u8>>;

fn random_key(random: &mut Random) -> Vec<u8> {
    let len = 1 + random.below(3) as usize;
    (0..len).map(|_| b'a' + random.below(20) as u8).collect()
}

fn random_value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(10) {
        0 => 0,
        1 => 4096,
        2 => 700,
        _ => random.below(60) as usize,
    };
    random.bytes(len)
}

fn random_message(random: &mut Random) -> RecordMessage {
    let tree = TreeId::ALL[random.below(2) as usize];
    let key = random_key(random);
    match random.below(20) {
        0 => {
            let mut ends = [key, random_key(random)];
            ends.sort();
            if ends[0] == ends[1] {
                ends[1].push(b'a');
            }
            let [lo, hi] = ends.map(Key::new);
            RecordMessage::RangeDelete(tree, lo, hi)
        }
        1..=5 => RecordMessage::Point(tree, Key::new(key), Action::Delete),
        _ => RecordMessage::Point(
            tree,
            Key::new(key),
            Action::Insert(Bytes::from(random_value(random))),
        ),
    }
}

fn apply(model: &mut Model, message: &RecordMessage) {
    match message {
        RecordMessage::Point(tree, key, Action::Insert(value)) => {
            model.insert((*tree, key.to_vec()), value.to_vec());
        }
        RecordMessage::Point(tree, key, Action::Delete) => {
            model.remove(&(*tree, key.to_vec()));
        }
        RecordMessage::RangeDelete(tree, lo, hi) => {
            let covered =
                |key: &(TreeId, Vec<u8>)| key.0 == *tree && key.1[..] >= **lo && key.1[..] < **hi;
            model.retain(|key, _| !covered(key));
        }
    }
}

fn contents(volume: &Volume) -> Model {
    let mut found = Model::new();
    for tree in TreeId::ALL {
        for entry in volume.cursor(tree, Key::default(), None) {
            let (key, value) = entry.unwrap();
            assert!(found.insert((tree, key.to_vec()), value.to_vec()).is_none());
        }
    }
    found
}

/// Both hold the same; if not, says which keys differ.
fn same(found: &Model, expected: &Model, seed: u64, step: usize) {
    let differ = |key: &&(TreeId, Vec<u8>)| found.get(*key) != expected.get(*key);
    let keys: Vec<_> = found.keys().chain(expected.keys()).filter(differ).collect();
    assert!(
        keys.is_empty(),
        "seed {seed}, step {step}: {} keys differ: {:?}",
        keys.len(),
        &keys[..keys.len().min(8)]
    );
}

/// The checker finds nothing; keys of these tests mean nothing to the schema, so that is left out.
fn sound(device: Arc<MemoryDevice>, seed: u64) {
    let device: Arc<dyn Device> = device;
    let report = check(&device, CheckOptions { data: true, slot: None }, &mut ());
    let schema = |finding: &&Finding| finding.code.name().starts_with('F');
    let note = |finding: &&Finding| finding.code.severity() == Severity::Note;
    let bad: Vec<_> = report.findings.iter().filter(|f| !schema(f) && !note(f)).collect();
    assert!(bad.is_empty(), "seed {seed}: {} findings: {:?}", bad.len(), &bad[..bad.len().min(5)]);
}

#[test]
fn agrees_with_a_map() {
    for seed in 0..rounds(12) {
        run(seed, 700);
    }
}

fn run(seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let device = Arc::new(MemoryDevice::new(24 << 20));
    let mut volume = create(device.clone(), tiny(), tight(), seed).unwrap();
    volume.checkpoint().unwrap();
    drop(volume);
    let mut volume = open(device.clone(), Mode::ReadWrite, tight(), seed).unwrap().0;
    let mut model = Model::new();
    // What the volume held at each MSN that a crash may fall back to.
    let mut history: Vec<(Msn, Model)> = vec![(volume.next_msn(), model.clone())];
    for step in 0..steps {
        match random.below(40) {
            0 => volume.checkpoint().unwrap(),
            1 => volume.sync().unwrap(),
            2 => {
                drop(volume);
                volume =
                    open(device.clone(), Mode::ReadWrite, tight(), seed + step as u64).unwrap().0;
                let msn = volume.next_msn();
                // What came after is an abandoned future: its MSNs will be given out again.
                history.retain(|(at, _)| *at <= msn);
                let (last, state) = history.last().expect("a state that was acknowledged");
                assert_eq!(*last, msn);
                model = state.clone();
                same(&contents(&volume), &model, seed, step);
            }
            3 => {
                let view = open(device.clone(), Mode::ReadOnly, tight(), seed).unwrap().0;
                let msn = view.next_msn();
                let expected = &history.iter().find(|(at, _)| *at == msn).unwrap().1;
                same(&contents(&view), expected, seed, step);
            }
            4 => assert_eq!(contents(&volume), model, "seed {seed}, step {step}"),
            5 => {
                let (mut lo, mut hi) = (random_key(&mut random), random_key(&mut random));
                if lo > hi {
                    std::mem::swap(&mut lo, &mut hi);
                }
                let scan = volume.cursor(TreeId::Data, Key::copied(&lo), Some(Key::copied(&hi)));
                let found: Vec<_> =
                    scan.map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
                let range = model.range((TreeId::Data, lo)..(TreeId::Data, hi));
                let expected: Vec<_> = range.map(|((_, k), v)| (k.clone(), v.clone())).collect();
                assert_eq!(found, expected);
            }
            _ => {
                let count = 1 + random.below(12);
                let messages: Vec<_> = (0..count).map(|_| random_message(&mut random)).collect();
                messages.iter().for_each(|message| apply(&mut model, message));
                volume
                    .commit(Transaction { op: Op::Raw, wall: Time::default(), messages })
                    .unwrap();
                history.push((volume.next_msn(), model.clone()));
            }
        }
        let key = random_key(&mut random);
        let tree = TreeId::ALL[random.below(2) as usize];
        let found = volume.get(tree, &key).unwrap().map(|value| value.to_vec());
        assert_eq!(found, model.get(&(tree, key)).cloned(), "seed {seed}, step {step}");
    }
    same(&contents(&volume), &model, seed, steps);
    volume.sync().unwrap();
    sound(device, seed);
}
