//! The engine against a `BTreeMap`: random transactions with tiny nodes and a cache that evicts all the time, and with
//! syncs, checkpoints, reopening and recovery at random steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::check::{CheckOptions, Finding, Severity, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{Action, Key, Op, RecordMessage, Update, data_key};
use betr_core::ids::{Msn, Time, TreeId};
use betr_core::log::BoundCounts;
use betr_core::tree::KeyScan;
use betr_core::volume::{Mode, Transaction, Volume};
use betr_tests::{Random, create, middling, open, roomy, rounds, tight, tiny};
use bytes::Bytes;

type Model = BTreeMap<(TreeId, Vec<u8>), Bytes>;

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
        6..=10 => RecordMessage::Point(tree, Key::new(key), random_update(random, tree)),
        _ => RecordMessage::Point(
            tree,
            Key::new(key),
            Action::Insert(Bytes::from(random_value(random))),
        ),
    }
}

fn random_update(random: &mut Random, tree: TreeId) -> Action {
    let offset = match random.below(8) {
        0 => random.below(4000),
        _ => random.below(50),
    } as usize;
    Action::Update(match random.below(5) {
        0 => Update::trim(offset),
        1 if tree == TreeId::Metadata => Update::add(offset / 8 * 8, random.next() as i64),
        kind => {
            let len = random.below(30) as usize;
            Update::patch(offset, &random.bytes(len), kind > 2)
        }
    })
}

/// Applies a patch, an add or a trim.
fn updated(value: Option<&Bytes>, update: &Update) -> Option<Bytes> {
    let [step] = &update.stages()[..] else { panic!("one at a time") };
    let mut value = value.map(|value| value.to_vec()).or(step.create.then(Vec::new))?;
    value.truncate(step.trim.unwrap_or(usize::MAX));
    value.resize(value.len().max(step.extend), 0);
    for (offset, bytes) in &step.pieces {
        value[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    for (offset, delta) in &step.adds {
        if let Some(cell) = value.get_mut(*offset..offset + 8) {
            let sum = i64::from_le_bytes((*cell).try_into().unwrap()).wrapping_add(*delta);
            cell.copy_from_slice(&sum.to_le_bytes());
        }
    }
    Some(value.into())
}

/// A large write to one of three files: consecutive blocks, sometimes after a range delete of them, enough to be bound
/// late.
fn random_row(random: &mut Random) -> Vec<RecordMessage> {
    let prefix = [b'f', b'i', b'l', b'e', 0, 0, 0, random.below(3) as u8];
    let first = random.below(60);
    let count = 1 + random.below(40);
    let mut messages = Vec::new();
    let key = |block| data_key(&prefix, block);
    if random.below(3) == 0 {
        messages.push(RecordMessage::RangeDelete(TreeId::Data, key(first), key(first + count)));
    }
    if random.below(6) == 0 {
        return vec![RecordMessage::RangeDelete(TreeId::Data, key(first), key(first + count))];
    }
    if random.below(4) == 0 {
        let update = |random: &mut Random, block| {
            let action = random_update(random, TreeId::Data);
            RecordMessage::Point(TreeId::Data, key(block), action)
        };
        return (first..first + count).map(|block| update(random, block)).collect();
    }
    for block in first..first + count {
        let len = if random.below(9) == 0 { 1 + random.below(4096) } else { 4096 };
        let value = Bytes::from(random.bytes(len as usize));
        messages.push(RecordMessage::Point(TreeId::Data, key(block), Action::Insert(value)));
    }
    messages
}

fn apply(model: &mut Model, message: &RecordMessage) {
    match message {
        RecordMessage::Unbound(..) => unreachable!("messages come with their values"),
        RecordMessage::Point(tree, key, Action::Insert(value)) => {
            model.insert((*tree, key.to_vec()), value.clone());
        }
        RecordMessage::Point(tree, key, Action::Delete) => {
            model.remove(&(*tree, key.to_vec()));
        }
        RecordMessage::Point(tree, key, Action::Update(update)) => {
            let key = (*tree, key.to_vec());
            match updated(model.get(&key), update) {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
        RecordMessage::RangeDelete(tree, lo, hi) => {
            let covered =
                |key: &(TreeId, Vec<u8>)| key.0 == *tree && key.1[..] >= **lo && key.1[..] < **hi;
            model.retain(|key, _| !covered(key));
        }
        RecordMessage::Clone(tree, clone) => {
            let (source, lens) = (clone.source(), clone.lens());
            let is_of_source =
                |(key, _): &(&(TreeId, Vec<u8>), &Bytes)| key.0 == *tree && source.contains(&key.1);
            let cloned: Vec<_> = model
                .iter()
                .filter(is_of_source)
                .map(|((tree, key), value)| ((*tree, lens.up(key).to_vec()), value.clone()))
                .collect();
            model.extend(cloned);
        }
    }
}

fn contents(volume: &Volume) -> Model {
    let mut found = Model::new();
    for tree in TreeId::ALL {
        for entry in volume.cursor(tree, Key::default(), None) {
            let (key, value) = entry.unwrap();
            assert!(found.insert((tree, key.to_vec()), value).is_none());
        }
    }
    found
}

/// A scan of keys alone returns the lengths of all values.
fn lengths(volume: &Volume, model: &Model) {
    for tree in TreeId::ALL {
        let mut scan = KeyScan::new(tree, Key::default(), None);
        let mut expected = model.iter().filter(|((other, _), _)| *other == tree);
        while let Some((key, len)) = scan.next(volume.store()).unwrap() {
            let ((_, other), value) = expected.next().unwrap();
            assert_eq!((&*key, len), (other.as_slice(), value.len()));
        }
        assert!(expected.next().is_none());
    }
}

/// Asserts that both are equal; the failure lists the keys that differ.
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

/// The checker finds nothing. Findings of the schema are ignored, because the keys of these tests have no meaning in
/// it.
fn sound(device: Arc<MemoryDevice>, seed: u64) {
    let device: Arc<dyn Device> = device;
    let report = check(&device, CheckOptions::ALL, &mut ());
    let schema = |finding: &&Finding| finding.code.name().starts_with('F');
    let note = |finding: &&Finding| finding.code.severity() == Severity::Note;
    let bad: Vec<_> = report.findings.iter().filter(|f| !schema(f) && !note(f)).collect();
    assert!(bad.is_empty(), "seed {seed}: {} findings: {:?}", bad.len(), &bad[..bad.len().min(5)]);
}

#[test]
fn agrees_with_a_map() {
    let mut bound = [0; 4];
    for seed in 0..rounds(12) {
        let more = run(seed, 700);
        let more = [more.in_leaves, more.in_runs, more.inline, more.null];
        bound.iter_mut().zip(more).for_each(|(all, more)| *all += more);
    }
    println!("late-bound values recovered from leaves, runs, the log, nowhere: {bound:?}");
    assert!(bound.iter().all(|count| *count > 0), "{bound:?}");
}

/// Many more operations than nodes have room for, with few full comparisons.
#[test]
fn hundreds_of_thousands_of_operations_agree_with_a_map() {
    let operations = 200_000 * rounds(1) as usize;
    let mut random = Random::new(77);
    let device = Arc::new(MemoryDevice::new(256 << 20));
    let mut volume = create(device.clone(), tiny(), roomy(), 4).unwrap();
    volume.checkpoint().unwrap();
    let mut model = Model::new();
    let (mut done, mut looked) = (0, 0);
    while done < operations {
        let messages: Vec<_> = (0..1 + random.below(40)).map(|_| few_ranges(&mut random)).collect();
        done += messages.len();
        messages.iter().for_each(|message| apply(&mut model, message));
        let transaction = Transaction { op: Op::Raw, wall: Time::default(), messages };
        volume.commit(transaction).unwrap();
        let key = (TreeId::ALL[random.below(2) as usize], random_key(&mut random));
        assert_eq!(volume.get(key.0, &key.1).unwrap(), model.get(&key).cloned(), "{done}");
        if done / 100_000 > looked {
            looked = done / 100_000;
            volume.sync().unwrap();
            drop(volume);
            volume = open(device.clone(), Mode::ReadWrite, roomy(), looked as u64).unwrap().0;
            same(&contents(&volume), &model, 77, done);
            lengths(&volume, &model);
        }
    }
    println!("{} keys, {} checkpoints", model.len(), volume.superblock().birth.epoch.0);
    volume.sync().unwrap();
    sound(device, 77);
}

/// A random message, rarely a range delete, because range deletes would leave few keys.
fn few_ranges(random: &mut Random) -> RecordMessage {
    loop {
        let message = random_message(random);
        if !matches!(message, RecordMessage::RangeDelete(..)) || random.below(200) == 0 {
            return message;
        }
    }
}

/// Returns the places at which recoveries found late-bound values.
fn run(seed: u64, steps: usize) -> BoundCounts {
    let mut random = Random::new(seed);
    let device = Arc::new(MemoryDevice::new(24 << 20));
    let (geometry, cache) = if seed % 3 == 2 { (middling(), roomy()) } else { (tiny(), tight()) };
    let mut volume = create(device.clone(), geometry, cache, seed).unwrap();
    volume.checkpoint().unwrap();
    drop(volume);
    let mut volume = open(device.clone(), Mode::ReadWrite, cache, seed).unwrap().0;
    let mut model = Model::new();
    // The content at each MSN to which a crash may return.
    let mut history: Vec<(Msn, Model)> = vec![(volume.next_msn(), model.clone())];
    let mut bound = BoundCounts::default();
    for step in 0..steps {
        match random.below(40) {
            0 => volume.checkpoint().unwrap(),
            1 => volume.sync().unwrap(),
            2 => {
                drop(volume);
                let recovery;
                (volume, recovery) =
                    open(device.clone(), Mode::ReadWrite, cache, seed + step as u64).unwrap();
                bound.in_leaves += recovery.survey.bound.in_leaves;
                bound.in_runs += recovery.survey.bound.in_runs;
                bound.inline += recovery.survey.bound.inline;
                bound.null += recovery.survey.bound.null;
                let msn = volume.next_msn();
                // Later states are abandoned: their MSNs will be reused.
                history.retain(|(at, _)| *at <= msn);
                let (last, state) = history.last().expect("a state that was acknowledged");
                assert_eq!(*last, msn);
                model = state.clone();
                same(&contents(&volume), &model, seed, step);
            }
            3 => {
                let view = open(device.clone(), Mode::ReadOnly, cache, seed).unwrap().0;
                let msn = view.next_msn();
                let expected = &history.iter().find(|(at, _)| *at == msn).unwrap().1;
                same(&contents(&view), expected, seed, step);
            }
            4 => {
                assert_eq!(contents(&volume), model, "seed {seed}, step {step}");
                lengths(&volume, &model);
            }
            5 => {
                let (mut lo, mut hi) = (random_key(&mut random), random_key(&mut random));
                if lo > hi {
                    std::mem::swap(&mut lo, &mut hi);
                }
                let scan = volume.cursor(TreeId::Data, Key::copied(&lo), Some(Key::copied(&hi)));
                let found: Vec<_> =
                    scan.map(|e| e.map(|(k, v)| (k.to_vec(), v)).unwrap()).collect();
                let range = model.range((TreeId::Data, lo)..(TreeId::Data, hi));
                let expected: Vec<_> = range.map(|((_, k), v)| (k.clone(), v.clone())).collect();
                assert_eq!(found, expected);
            }
            _ => {
                let count = 1 + random.below(12);
                let mut messages: Vec<_> =
                    (0..count).map(|_| random_message(&mut random)).collect();
                if random.below(5) == 0 {
                    messages.extend(random_row(&mut random));
                }
                messages.iter().for_each(|message| apply(&mut model, message));
                volume
                    .commit(Transaction { op: Op::Raw, wall: Time::default(), messages })
                    .unwrap();
                history.push((volume.next_msn(), model.clone()));
            }
        }
        let key = random_key(&mut random);
        let tree = TreeId::ALL[random.below(2) as usize];
        let found = volume.get(tree, &key).unwrap();
        assert_eq!(found, model.get(&(tree, key)).cloned(), "seed {seed}, step {step}");
    }
    same(&contents(&volume), &model, seed, steps);
    volume.sync().unwrap();
    sound(device, seed);
    bound
}
