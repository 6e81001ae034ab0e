//! Updates of a few bytes that produce long values: space for them is reserved before they reach their leaves, and they
//! are applied in pieces.

use std::sync::Arc;

use betr_core::Error;
use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{Time, TreeId};
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::Mode;
use betr_tests::{Random, clock, formatted, middling, open, roomy, tight, tiny};
use bytes::Bytes;

const ALL: CheckOptions = CheckOptions::ALL;

fn options(seed: u64) -> KvOptions {
    let mut random = Random::new(seed);
    KvOptions { cache: tight(), ..KvOptions::new(Box::new(move || random.next())) }
}

fn sound(device: &Arc<MemoryDevice>, what: &str) {
    let device: Arc<dyn Device> = device.clone();
    let report = check(&device, ALL, &mut ());
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
}

/// A batch of patches of one byte, each of which makes a value of 64 KiB.
fn patches(numbers: impl Iterator<Item = u32>) -> Batch {
    let mut batch = Batch::new();
    numbers.for_each(|number| {
        batch.patch(TreeId::Data, &number.to_be_bytes(), 65_535, b"x", true);
    });
    batch
}

#[test]
fn one_byte_makes_a_long_value() {
    for (mib, at_once) in [(8, 1), (16, 7), (32, 1), (32, 60), (32, 2000)] {
        let name = format!("{mib} MiB, {at_once} patches at once");
        let device = Arc::new(MemoryDevice::new(mib << 20));
        let mut kv = Kv::create(device.clone(), *b"patches and long", options(mib)).unwrap();
        let (mut made, mut at_once, mut rounds) = (0, at_once, 0);
        while at_once > 0 {
            match kv.commit(patches(made..made + at_once)) {
                Ok(()) => made += at_once,
                Err(Error::NoSpace { .. }) => at_once /= 2,
                Err(error) => panic!("{name}: {error}"),
            }
            rounds += 1;
            if rounds % 100 == 0 {
                kv.sync().unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            // Pending growth is still counted after the image is opened again.
            if rounds == 20 {
                kv.checkpoint().unwrap();
                drop(kv);
                kv = Kv::open(device.clone(), Mode::ReadWrite, options(99)).unwrap().0;
            }
        }
        kv.sync().unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name}: {made} values");
        // At least half of the image.
        assert!(u64::from(made) >= mib * 8, "{name}: {made}");
        drop(kv);
        sound(&device, &name);
        let (mut kv, _) = Kv::open(device.clone(), Mode::ReadWrite, options(5)).unwrap();
        let value = kv.get(TreeId::Data, &(made - 1).to_be_bytes()).unwrap().unwrap();
        assert_eq!((value.len(), value[65_535]), (65_536, b'x'), "{name}");
        let mut batch = Batch::new();
        batch.delete_range(TreeId::Data, &0u32.to_be_bytes(), &made.to_be_bytes());
        kv.commit(batch).unwrap_or_else(|error| panic!("{name}: {error}"));
        for number in 0..made / 2 {
            kv.commit(patches(number..number + 1)).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        kv.checkpoint().unwrap();
        sound(&device, &name);
    }
}

/// Every leaf that is written can be read again.
#[test]
fn a_batch_of_few_bytes_makes_many_leaves() {
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let mut kv = Kv::create(device.clone(), *b"patches and long", options(3)).unwrap();
    for first in [0, 4600] {
        kv.commit(patches(first..first + 4600)).unwrap();
    }
    kv.checkpoint().unwrap();
    drop(kv);
    let (kv, _) = Kv::open(device.clone(), Mode::ReadOnly, options(4)).unwrap();
    for number in [0, 1, 4599, 4600, 9199] {
        assert_eq!(kv.get(TreeId::Data, &u32::to_be_bytes(number)).unwrap().unwrap().len(), 65_536);
    }
}

/// A patch of a deleted or short value stays short until it reaches a leaf.
#[test]
fn patches_of_what_was_deleted_stay_short() {
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let mut kv = Kv::create(device.clone(), *b"patches and long", options(3)).unwrap();
    let mut batch = Batch::new();
    batch.insert(TreeId::Data, b"short", b"a value");
    batch.patch(TreeId::Data, b"short", 65_535, b"x", false);
    batch.delete_range(TreeId::Data, b"\0", b"\x7f");
    batch.insert(TreeId::Data, b"tiny", b"a value");
    batch.patch(TreeId::Data, b"tiny", 65_535, b"x", false);
    for number in 0..8000u32 {
        batch.patch(TreeId::Data, &number.to_be_bytes(), 65_535, b"x", true);
    }
    kv.commit(batch).unwrap();
    let store = kv.volume().store();
    assert!(store.inflow().growth.bytes > 7000 << 16, "{:?}", store.inflow().growth);
    assert!(store.dirty_bytes() < 16 << 20, "{}", store.dirty_bytes());
    assert_eq!(kv.get(TreeId::Data, b"short").unwrap(), None);
    let value = kv.get(TreeId::Data, b"tiny").unwrap().unwrap();
    assert_eq!((&value[..8], value[65_535]), (&b"a value\0"[..], b'x'));
    kv.checkpoint().unwrap();
    drop(kv);
    sound(&device, "short");
    let (kv, _) = Kv::open(device, Mode::ReadOnly, options(4)).unwrap();
    assert!(kv.volume().store().inflow().growth.bytes > 0);
    assert_eq!(kv.range(TreeId::Data, b"", None).filter(|entry| entry.is_ok()).count(), 8001);
}

/// An unread root leaf becomes the only child of a new root.
#[test]
fn a_leaf_that_was_not_read_goes_down() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let mut kv = Kv::create(device.clone(), *b"patches and long", options(3)).unwrap();
    let mut batch = Batch::new();
    batch.insert(TreeId::Data, b"a", b"1");
    kv.commit(batch).unwrap();
    kv.checkpoint().unwrap();
    drop(kv);
    let (mut kv, _) = Kv::open(device.clone(), Mode::ReadWrite, options(4)).unwrap();
    kv.checkpoint().unwrap();
    let mut batch = Batch::new();
    batch.delete_range(TreeId::Data, b"x", b"y");
    (0..3).for_each(|number: u8| batch.patch(TreeId::Data, &[b'b', number], 65_535, b"x", true));
    kv.commit(batch).unwrap();
    kv.sync().unwrap();
    kv.checkpoint().unwrap();
    assert_eq!(kv.get(TreeId::Data, b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(kv.range(TreeId::Data, b"", None).count(), 4);
    drop(kv);
    sound(&device, "raised");
}

/// Entries that take more space in a leaf than in the record.
#[test]
fn many_short_keys_are_admitted_as_what_they_take() {
    let device = Arc::new(MemoryDevice::new(6 << 20));
    let mut kv = Kv::create(device.clone(), *b"many short keys ", options(3)).unwrap();
    let (mut made, mut at_once) = (0u32, 200_000u32);
    while at_once > 100 {
        let mut batch = Batch::new();
        for number in made..made + at_once {
            batch.insert(TreeId::Metadata, &number.to_be_bytes(), b"");
        }
        match kv.commit(batch) {
            Ok(()) => made += at_once,
            Err(Error::NoSpace { .. }) => at_once /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    println!("{made} keys");
    assert!(made > 50_000, "{made}");
    kv.sync().unwrap();
    sound(&device, "short keys");
}

/// A sparse file with one byte at the end of each of its blocks, on a volume that is nearly full.
#[test]
fn a_sparse_file_grows_into_a_full_volume() {
    let cases = [
        (4, tiny(), tight()),
        (12, middling(), roomy()),
        (64, Geometry::new(256 << 10, 16 << 10), CacheBudget::default()),
    ];
    for (mib, geometry, cache) in cases {
        let name = format!("{mib} MiB");
        let device = Arc::new(MemoryDevice::new(mib << 20));
        let mut fs = formatted(device.clone(), geometry, cache, 1);
        fs.checkpoint().unwrap();
        drop(fs);
        let mut fs = Fs::open(open(device.clone(), Mode::ReadWrite, cache, 1).unwrap().0, clock(9));
        let root = fs.root().unwrap();
        let new = || New::of(FileType::Regular, Attributes::at(Time::default()));
        fs.make(&root, b"large", new()).unwrap();
        let large = fs.lookup(&root, b"large").unwrap();
        let share = (mib as usize) << 14;
        for at in 0..if mib > 12 { 32 } else { 8 } {
            fs.write(&large, at * share as u64, &vec![7; share].into()).unwrap();
        }
        fs.make(&root, b"sparse", new()).unwrap();
        let mut random = Random::new(mib);
        let (mut written, mut refused) = (Vec::new(), 0);
        while refused < 20 {
            let block = random.below(mib * 256);
            let sparse = fs.lookup(&root, b"sparse").unwrap();
            match fs.write(&sparse, block * 4096 + 4095, &Bytes::from_static(b"x")) {
                Ok(_) => written.push(block),
                Err(Error::NoSpace { .. }) => refused += 1,
                Err(error) => panic!("{name}: {error}"),
            }
            if random.below(300) == 0 {
                fs.volume_mut().sync().unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
        println!("{name}: {} bytes written", written.len());
        fs.volume_mut().sync().unwrap_or_else(|error| panic!("{name}: {error}"));
        let sparse = fs.lookup(&root, b"sparse").unwrap();
        for block in &written {
            assert_eq!(&fs.read(&sparse, block * 4096 + 4094, 2).unwrap()[..], b"\0x", "{name}");
        }
        drop(sparse);
        sound(&device, &name);
        // A deletion always works and frees its space.
        fs.unlink(&root, b"sparse").unwrap_or_else(|error| panic!("{name}: {error}"));
        fs.make(&root, b"sparse", new()).unwrap_or_else(|error| panic!("{name}: {error}"));
        for block in &written[written.len() / 3..] {
            let sparse = fs.lookup(&root, b"sparse").unwrap();
            let result = fs.write(&sparse, block * 4096 + 4095, &Bytes::from_static(b"x"));
            result.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        sound(&device, &name);
    }
}
