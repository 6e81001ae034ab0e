//! The key-value view: ranges from both ends, reopening, and the reaction of file system tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::ids::TreeId;
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::volume::{Mode, OpenOptions, Volume};
use betr_tests::{Random, tight, tiny};
use bytes::Bytes;

fn options(seed: u64) -> KvOptions {
    let mut random = Random::new(seed);
    let nonces = Box::new(move || random.next());
    KvOptions { cache: tight(), geometry: Some(tiny()), ..KvOptions::new(nonces) }
}

fn made() -> (Arc<MemoryDevice>, Kv) {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let kv = Kv::create(device.clone(), *b"a key-value name", options(1)).unwrap();
    (device, kv)
}

#[test]
fn ranges_are_the_same_from_both_ends() {
    let (device, mut kv) = made();
    let mut random = Random::new(7);
    let mut model: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
    let any_key = |random: &mut Random| (random.below(3000) as u16).to_be_bytes().to_vec();
    for round in 0..60 {
        let mut batch = Batch::new();
        for _ in 0..100 {
            let key = any_key(&mut random);
            let len = random.below(70) as usize;
            let value = Bytes::from(random.bytes(len));
            batch.insert_shared(TreeId::Data, &key, value.clone());
            model.insert(key, value);
        }
        if round % 7 == 3 {
            let lo = any_key(&mut random);
            let hi = (u16::from_be_bytes([lo[0], lo[1]]) + 90).to_be_bytes().to_vec();
            batch.delete_range(TreeId::Data, &lo, &hi);
            model.retain(|key, _| *key < lo || *key >= hi);
        }
        kv.commit(batch).unwrap();
        let (lo, hi) = (any_key(&mut random), any_key(&mut random));
        let inside = |key: &Vec<u8>| *key >= lo && *key < hi;
        let expected: Vec<_> = model.iter().filter(|(key, _)| inside(key)).collect();
        // Takes each entry from a random end.
        let mut cursor = kv.range(TreeId::Data, &lo, Some(&hi));
        let mut expected = expected.into_iter();
        loop {
            let (found, expected) = match random.below(2) {
                0 => (cursor.next(), expected.next()),
                _ => (cursor.next_back(), expected.next_back()),
            };
            let found = found.map(|entry| entry.unwrap()).map(|(key, value)| (key.to_vec(), value));
            let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
            assert_eq!(found, expected, "round {round}");
            if found.is_none() {
                break;
            }
        }
        if round % 9 == 8 {
            kv.sync().unwrap();
            drop(kv);
            kv = Kv::open(device.clone(), Mode::ReadWrite, options(round)).unwrap().0;
        }
    }
    let all: Vec<_> = kv.range(TreeId::Data, b"", None).rev().map(|e| e.unwrap()).collect();
    assert!(
        all.iter().map(|(key, value)| (key.to_vec(), value.clone())).eq(model.into_iter().rev())
    );
    assert!(kv.range(TreeId::Metadata, b"", None).next_back().is_none());
}

#[test]
fn keys_are_no_files() {
    let (device, mut kv) = made();
    // Each sync makes a log group.
    for value in ["old", "new"] {
        let mut batch = Batch::new();
        batch.insert(TreeId::Data, b"no path at all", value.as_bytes());
        kv.commit(batch).unwrap();
        kv.sync().unwrap();
    }
    drop(kv);
    let files = OpenOptions::new(Mode::ReadOnly, Box::new(|| 1));
    let error = Volume::open(device.clone(), files).err().unwrap();
    assert!(error.to_string().contains("not a file system"), "{error}");
    // The log is replayed and checked, without the rules of file systems.
    let device: Arc<dyn Device> = device;
    let report = check(&device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!(report.replay.unwrap().survey.records, 2);
}

#[test]
fn ranges_are_cloned_and_renamed() {
    let (device, mut kv) = made();
    let mut batch = Batch::new();
    for number in 0..2000u16 {
        let key = [&b"tree/main/"[..], &number.to_be_bytes()].concat();
        batch.insert(TreeId::Data, &key, &number.to_le_bytes());
    }
    kv.commit(batch).unwrap();
    let of = |kv: &Kv, name: &[u8]| {
        let end = [name, b"\xff"].concat();
        let entries = kv.range(TreeId::Data, name, Some(&end)).map(|entry| entry.unwrap());
        entries.map(|(key, value)| (key[name.len()..].to_vec(), value)).collect::<Vec<_>>()
    };
    let all = of(&kv, b"tree/main/");
    assert_eq!(all.len(), 2000);
    kv.clone_range(TreeId::Data, b"tree/main/", b"tree/copy/").unwrap();
    assert!(kv.clone_range(TreeId::Data, b"tree/main/", b"tree/copy/").is_err());
    let mut batch = Batch::new();
    batch.insert(TreeId::Data, b"tree/copy/new", b"only here");
    batch.delete_range(TreeId::Data, b"tree/main/\x01", b"tree/main/\x02");
    kv.commit(batch).unwrap();
    kv.rename_range(TreeId::Data, b"tree/main/", b"tree/old/").unwrap();
    for is_reopened in [false, true] {
        if is_reopened {
            kv.sync().unwrap();
            drop(kv);
            kv = Kv::open(device.clone(), Mode::ReadWrite, options(2)).unwrap().0;
        }
        assert!(of(&kv, b"tree/main/").is_empty());
        let mut copy = all.clone();
        copy.push((b"new".to_vec(), Bytes::from_static(b"only here")));
        copy.sort();
        assert!(of(&kv, b"tree/copy/") == copy);
        let old: Vec<_> = all.iter().filter(|(key, _)| key[0] != 1).cloned().collect();
        assert!(of(&kv, b"tree/old/") == old);
    }
    kv.checkpoint().unwrap();
    let device: Arc<dyn Device> = device;
    let report = check(&device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// A root that splits into more nodes than the fanout gets several new levels at once.
#[test]
fn a_large_batch_makes_a_high_tree() {
    let (device, mut kv) = made();
    let mut batch = Batch::new();
    for number in 0..800u32 {
        batch.insert(TreeId::Data, &number.to_be_bytes(), &[7; 4000]);
    }
    kv.commit(batch).unwrap();
    kv.checkpoint().unwrap();
    drop(kv);
    let kv = Kv::open(device, Mode::ReadWrite, options(2)).unwrap().0;
    assert_eq!(kv.range(TreeId::Data, b"", None).filter(|entry| entry.is_ok()).count(), 800);
}

/// A late-bound value that would grow beyond a block is bound first.
#[test]
fn a_late_value_may_outgrow_a_block() {
    let key = |block: u64| [&b"some row"[..], &block.to_be_bytes()].concat();
    for together in [false, true] {
        let (device, mut kv) = made();
        kv.sync().unwrap();
        let mut batch = Batch::new();
        (0..300).for_each(|block| batch.insert(TreeId::Data, &key(block), &[block as u8; 4096]));
        if !together {
            kv.commit(std::mem::take(&mut batch)).unwrap();
        }
        batch.patch(TreeId::Data, &key(5), 4096, b"x", false);
        kv.commit(batch).unwrap();
        kv.sync().unwrap();
        drop(kv);
        let kv = Kv::open(device, Mode::ReadWrite, options(3)).unwrap().0;
        let entries = kv.range(TreeId::Data, b"", None).map(|entry| entry.unwrap());
        let lengths: Vec<usize> = entries.map(|(_, value)| value.len()).collect();
        assert_eq!((lengths.len(), lengths[5], lengths[6]), (300, 4097, 4096));
    }
}

#[test]
fn what_is_too_long_is_refused_and_changes_nothing() {
    let (_, mut kv) = made();
    let long = vec![7; 64 << 10];
    let refused = |kv: &mut Kv, fill: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new();
        batch.insert(TreeId::Data, b"sound", b"value");
        fill(&mut batch);
        assert!(kv.commit(batch).is_err());
        assert_eq!(kv.get(TreeId::Data, b"sound").unwrap(), None);
    };
    refused(&mut kv, &|batch| batch.insert(TreeId::Data, &[1; 1025], b"value"));
    refused(&mut kv, &|batch| batch.insert(TreeId::Data, b"key", &[1; (64 << 10) + 1]));
    refused(&mut kv, &|batch| batch.patch(TreeId::Data, b"key", 1, &long, true));
    refused(&mut kv, &|batch| batch.patch(TreeId::Data, &[1; 1025], 1, b"x", true));
    refused(&mut kv, &|batch| batch.trim(TreeId::Data, &[1; 70_000], 1));
    refused(&mut kv, &|batch| batch.add(b"key", 4, 1));
    refused(&mut kv, &|batch| batch.trim(TreeId::Data, b"key", usize::MAX));
    refused(&mut kv, &|batch| batch.add(b"key", 64 << 10, 1));
    let mut batch = Batch::new();
    batch.insert(TreeId::Data, &[1; 1024], &long);
    batch.patch(TreeId::Data, b"key", 0, &long, true);
    batch.delete_range(TreeId::Data, b"b", b"a");
    kv.commit(batch).unwrap();
    assert_eq!(kv.get(TreeId::Data, b"key").unwrap().as_deref(), Some(&long[..]));
    kv.commit(Batch::new()).unwrap();
}
