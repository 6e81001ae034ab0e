//! The I/O cost of operations, counted exactly by the device.

use std::fs::File;
use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, FileDevice, MemoryDevice};
use betr_core::disk::IoCounts;
use betr_core::format::{FileType, Key};
use betr_core::fs::{Attributes, Fs, New, Object};
use betr_core::ids::{BLOCK_SIZE, Height, NodeId, Time, TreeId};
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::node::Node;
use betr_core::store::{CacheBudget, Geometry};
use betr_core::tree::KeyScan;
use betr_core::volume::{Mode, OpenOptions, Volume};
use betr_lab::explore::devices::{Event, FaultyDevice, RecordingDevice};
use betr_tests::{Random, clock, made, nonces, rounds, since, tight, tiny};
use bytes::Bytes;

use crate::lookups::scattered_key;

const MIB: u64 = 1 << 20;

fn make(fs: &mut Fs, name: &[u8]) -> Object {
    let root = fs.root().unwrap();
    fs.make(&root, name, New::of(FileType::Regular, Attributes::at(Time::default()))).unwrap()
}

/// Checkpoints also happen by time, so that changes reach the trees even if the log does not fill up.
#[test]
fn checkpoints_come_by_time() {
    let device = Arc::new(MemoryDevice::new(16 * MIB));
    drop(made(device.clone(), tiny()));
    let usual = OpenOptions::new(Mode::ReadWrite, nonces(1));
    let options = OpenOptions { checkpoint_after: Some(30), ..usual };
    // The clock advances by one second per operation.
    let mut fs = Fs::open(Volume::open(device, options).unwrap().0, clock(0));
    for number in 0..100 {
        make(&mut fs, format!("file {number}").as_bytes());
    }
    let counters = fs.volume().counters();
    let all = (counters.fences, counters.for_time, counters.checkpoints);
    assert_eq!(all, (1, 3, 4), "{counters:?}");
}

/// The checkpoint before the first record after opening writes only the superblock and a page of the space map, because
/// nothing has changed yet. The first sync writes a log group, whatever is pending.
#[test]
fn the_first_record_costs_three_writes_and_the_first_sync_one_flush() {
    let device = Arc::new(MemoryDevice::new(16 * MIB));
    let mut fs = made(device.clone(), tiny());
    for number in 0..500 {
        make(&mut fs, format!("before {number}").as_bytes());
    }
    fs.checkpoint().unwrap();
    drop(fs);
    let mut fs = Fs::open(
        Volume::open(device, OpenOptions::new(Mode::ReadWrite, nonces(1))).unwrap().0,
        clock(0),
    );
    let before = fs.volume().io_counts();
    make(&mut fs, b"first");
    let counts = since(&fs, before);
    println!("{counts:?}");
    assert!(counts.writes <= 3 && counts.flushes == 2, "{counts:?}");
    for number in 0..100 {
        make(&mut fs, format!("after {number}").as_bytes());
    }
    let before = fs.volume().io_counts();
    fs.volume_mut().sync().unwrap();
    let counts = since(&fs, before);
    assert!(counts.writes == 1 && counts.flushes == 1, "{counts:?}");
    assert_eq!((fs.volume().counters().fences, fs.volume().counters().groups), (1, 1));
}

/// Writes `bytes` bytes sequentially in pieces and makes them durable. Returns the write amplification: bytes written
/// to the device, metadata included, per byte of data.
fn sequential(device: Arc<dyn Device>, bytes: u64, piece: u64) -> f64 {
    let mut fs = made(device, Geometry::new(4 << 20, 128 << 10));
    let file = make(&mut fs, b"large");
    fs.volume_mut().sync().unwrap();
    let before = fs.volume().io_counts();
    let data = Bytes::from(Random::new(1).bytes(piece as usize));
    for at in (0..bytes).step_by(piece as usize) {
        fs.write(&file, at, &data).unwrap();
    }
    fs.volume_mut().sync().unwrap();
    fs.checkpoint().unwrap();
    let counts = since(&fs, before);
    println!("{bytes} bytes in pieces of {piece}: {counts:?}");
    counts.written_bytes as f64 / bytes as f64
}

#[test]
fn a_sequential_write_is_written_once() {
    let file = tempfile::tempfile().unwrap();
    let device = |len: u64| -> Arc<dyn Device> {
        let file: File = file.try_clone().unwrap();
        file.set_len(0).unwrap();
        file.set_len(len).unwrap();
        Arc::new(FileDevice::new(file, len))
    };
    // The share of checkpoints falls with the amount written: 4 GiB (`BETR_ROUNDS=4`) give 1.018.
    let large_bytes = rounds(1) << 30;
    let large = sequential(device(large_bytes + (1 << 30)), large_bytes, MIB);
    assert!(large <= 1.02, "{large_bytes} bytes are written {large} times");
    let small = sequential(device(1 << 30), 256 * MIB, 4 * MIB);
    assert!(small <= 1.03, "256 MiB are written {small} times");
}

#[test]
fn a_sync_after_a_small_write_costs_one_write_and_one_flush() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let mut fs = made(device, Geometry::new(256 << 10, 64 << 10));
    let file = make(&mut fs, b"small");
    // The roots are read on first use.
    fs.write(&file, 0, &Bytes::from_static(b"first")).unwrap();
    fs.volume_mut().sync().unwrap();
    for round in 0..20u64 {
        let before = fs.volume().io_counts();
        fs.write(&file, 100 * round, &Bytes::from(vec![7; 100])).unwrap();
        assert_eq!(since(&fs, before), IoCounts::default(), "a write asks nothing of the device");
        fs.volume_mut().sync().unwrap();
        let counts = since(&fs, before);
        assert_eq!((counts.reads, counts.writes, counts.flushes), (0, 1, 1), "round {round}");
        assert!(counts.written_bytes <= 2 * BLOCK_SIZE as u64, "{counts:?}");
    }
}

#[test]
fn a_sync_after_a_large_write_costs_one_flush() {
    let device = Arc::new(MemoryDevice::new(256 * MIB));
    let mut fs = made(device, Geometry::new(1 << 20, 64 << 10));
    let file = make(&mut fs, b"large");
    fs.volume_mut().sync().unwrap();
    let data = Bytes::from(Random::new(2).bytes(4 << 20));
    for round in 0..8u64 {
        let before = fs.volume().io_counts();
        fs.write(&file, round * data.len() as u64, &data).unwrap();
        fs.volume_mut().sync().unwrap();
        let counts = since(&fs, before);
        assert_eq!(counts.flushes, 1, "round {round}");
        let share = counts.written_bytes as f64 / data.len() as f64;
        assert!(share < 1.2, "round {round}: {share} times its bytes: {counts:?}");
    }
}

/// Leaves covered by a range delete are dropped without being read, and their space is freed. Reading any of them would
/// fail here.
#[test]
fn a_range_delete_reads_no_leaf() {
    let image = Arc::new(MemoryDevice::new(96 << 20));
    let mut seed = 0;
    let mut options = || {
        seed += 1;
        KvOptions { cache: tight(), geometry: Some(tiny()), ..KvOptions::new(nonces(seed)) }
    };
    let key = |number: u32| number.to_be_bytes();
    write_keys(&image, options());

    let device = Arc::new(FaultyDevice::new(image.clone()));
    let mut open = || Kv::open(device.clone(), Mode::ReadWrite, options()).unwrap().0;
    let mut kv = open();
    let (lo, hi) = (key(1000), key(23_000));
    let store = kv.volume().store();
    let mut leaves = 0;
    for id in (1..store.next_node().0).map(NodeId) {
        let Some(entry) = store.table.get(id).unwrap() else { continue };
        if entry.height == Height(0) && entry.tree == TreeId::Metadata {
            let node = store.node(id).unwrap();
            let bounds = node.bounds();
            if *bounds.lo >= lo[..] && bounds.hi.as_ref().is_some_and(|end| **end <= hi[..]) {
                device.spoil(entry.extent.start.byte()..entry.extent.end().byte());
                leaves += 1;
            }
        }
    }
    assert!(leaves >= 1000, "only {leaves} leaves");
    drop(kv);
    let used = |kv: &Kv| kv.volume().store().space.used_blocks();
    kv = open();
    let before = used(&kv);
    let mut batch = Batch::new();
    batch.delete_range(TreeId::Metadata, &lo, &hi);
    kv.commit(batch).unwrap();
    // A scan from either end does not read the leaves in the range either.
    assert_eq!(kv.range(TreeId::Metadata, b"", None).filter(|entry| entry.is_ok()).count(), 2001);
    assert_eq!(kv.range(TreeId::Metadata, b"", None).rev().filter(|e| e.is_ok()).count(), 2001);
    // Leaves are dropped in steps; each step covers the subtrees of at most 16 nodes.
    let (mut pieces, mut dropped) = (0, 0);
    let mut more = true;
    while more {
        more = kv.prune_some().unwrap();
        let so_far = kv.volume().counters().pruned;
        assert!(so_far - dropped <= 16 * 2 * u64::from(tiny().fanout), "{dropped}, then {so_far}");
        (pieces, dropped) = (pieces + 1, so_far);
    }
    assert!(pieces >= 8 && dropped > leaves / 2, "{dropped} leaves dropped in {pieces} pieces");
    kv.sync().unwrap();
    kv.checkpoint().unwrap();
    assert_eq!(kv.volume().counters().pruned, dropped);
    drop(kv);
    drop(open());
    // From here on, new writes may reuse the blocks of the dropped leaves.
    let mut kv = Kv::open(image.clone(), Mode::ReadWrite, options()).unwrap().0;
    assert_eq!(kv.range(TreeId::Metadata, b"", None).filter(|entry| entry.is_ok()).count(), 2001);
    kv.checkpoint().unwrap();
    let after = used(&kv);
    println!("{leaves} leaves dropped: {before} blocks in use before, {after} after");
    // The internal nodes above them have been freed as well.
    assert!(before - after > 2 * leaves, "{before} blocks before, {after} after");
    drop(kv);
    let device: Arc<dyn Device> = image;
    let report = check(&device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Writes 24,000 keys of 4 bytes with values of 180 bytes, into leaves of 4 KiB.
fn write_keys(image: &Arc<MemoryDevice>, options: KvOptions) {
    let mut kv = Kv::create(image.clone(), *b"deleted by range", options).unwrap();
    for first in (0..24_000u32).step_by(100) {
        let mut batch = Batch::new();
        for number in first..first + 100 {
            let key = (number * 7919 % 24_001).to_be_bytes();
            batch.insert(TreeId::Metadata, &key, &[7; 180]);
        }
        kv.commit(batch).unwrap();
    }
    kv.checkpoint().unwrap();
}

/// A deletion that a checkpoint has left half done continues after the image is opened again, without reading the
/// leaves.
#[test]
fn leaves_are_dropped_after_opening_again() {
    let image = Arc::new(MemoryDevice::new(96 << 20));
    let mut seed = 0;
    let mut open = |device: Arc<dyn Device>| {
        seed += 1;
        let options = KvOptions { cache: tight(), ..KvOptions::new(nonces(seed)) };
        Kv::open(device, Mode::ReadWrite, options).unwrap().0
    };
    let tiny = KvOptions { cache: tight(), geometry: Some(tiny()), ..KvOptions::new(nonces(99)) };
    write_keys(&image, tiny);
    let mut kv = open(image.clone());
    let mut batch = Batch::new();
    batch.delete_range(TreeId::Metadata, &[], &[0xff]);
    kv.commit(batch).unwrap();
    let checkpoints = kv.volume().counters().checkpoints;
    while kv.volume().counters().checkpoints == checkpoints {
        let mut batch = Batch::new();
        batch.insert(TreeId::Data, b"key", &[1; 5000]);
        kv.commit(batch).unwrap();
    }
    drop(kv);
    let device = Arc::new(FaultyDevice::new(image.clone()));
    let mut kv = open(device.clone());
    let left = kv.volume().superblock().prunes.clone();
    assert_eq!(left.len(), 1, "{left:?}");
    let used = |kv: &Kv| kv.volume().store().space.used_blocks();
    let before = used(&kv);
    let store = kv.volume().store();
    let entries = (1..store.next_node().0).filter_map(|id| store.table.get(NodeId(id)).unwrap());
    let leaves =
        entries.filter(|entry| entry.tree == TreeId::Metadata && entry.height == Height(0));
    leaves.for_each(|leaf| device.spoil(leaf.extent.start.byte()..leaf.extent.end().byte()));
    // The first change does not wait for the deletion: it writes a page of the space map and the superblock twice.
    let writes = device.calls().1;
    let mut batch = Batch::new();
    batch.insert(TreeId::Data, b"key", &[2; 50]);
    kv.commit(batch).unwrap();
    assert_eq!(device.calls().1 - writes, 3);
    kv.checkpoint().unwrap();
    kv.checkpoint().unwrap();
    let after = used(&kv);
    println!("{before} blocks in use before, {after} after");
    assert!(before > 2000 && after < 1000, "{before} blocks before, {after} after");
    assert!(kv.volume().superblock().prunes.is_empty());
    drop(kv);
    let report = check(&(image as Arc<dyn Device>), CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Leaves that are overwritten completely are abandoned without being read.
#[test]
fn a_large_overwrite_reads_no_leaf() {
    let image = Arc::new(MemoryDevice::new(128 * MIB));
    let mut fs = made(image.clone(), Geometry::new(1 << 20, 16 << 10));
    let file = make(&mut fs, b"file");
    let content = |round: u8| Bytes::from(vec![round; 16 << 20]);
    fs.write(&file, 0, &content(1)).unwrap();
    fs.checkpoint().unwrap();
    drop(fs);
    let device = Arc::new(FaultyDevice::new(image.clone()));
    let open = |device: Arc<dyn Device>| {
        let options =
            OpenOptions { cache: tight(), ..OpenOptions::new(Mode::ReadWrite, nonces(9)) };
        Fs::open(Volume::open(device, options).unwrap().0, clock(1000))
    };
    let fs = open(device.clone());
    let store = fs.volume().store();
    let mut leaves = 0;
    for id in (1..store.next_node().0).map(NodeId) {
        let Some(entry) = store.table.get(id).unwrap() else { continue };
        // The first and the last leaf also cover keys outside the file.
        let is_inside = |node: &Node| !node.bounds().lo.is_empty() && node.bounds().hi.is_some();
        if entry.height == Height(0)
            && entry.tree == TreeId::Data
            && is_inside(&store.node(id).unwrap())
        {
            device.spoil(entry.extent.start.byte()..entry.extent.end().byte());
            leaves += 1;
        }
    }
    assert!(leaves > 50, "only {leaves} leaves");
    drop(fs);
    let mut fs = open(device.clone());
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    for part in 0..4 {
        fs.write(&file, part << 22, &content(2).slice(..4 << 20)).unwrap();
        fs.volume_mut().sync().unwrap();
    }
    fs.checkpoint().unwrap();
    drop(fs);
    let fs = open(image);
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    assert!(fs.read(&file, 0, 16 << 20).unwrap() == content(2));
}

/// A scan of keys alone reads no values. A full scan reads each leaf once, in few reads.
#[test]
fn scans_read_what_they_need() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let mut seed = 0;
    let mut options = || {
        seed += 1;
        let geometry = Some(Geometry::new(256 << 10, 16 << 10));
        KvOptions { geometry, ..KvOptions::new(nonces(seed)) }
    };
    let mut kv = Kv::create(device.clone(), *b"a scanned image!", options()).unwrap();
    for first in (0..20_000u32).step_by(500) {
        let mut batch = Batch::new();
        for number in first..first + 500 {
            let key = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
            batch.insert(TreeId::Data, &key, &vec![1; if number % 5 == 0 { 4096 } else { 300 }]);
        }
        kv.commit(batch).unwrap();
    }
    kv.checkpoint().unwrap();
    drop(kv);
    let mut open = || Kv::open(device.clone(), Mode::ReadOnly, options()).unwrap().0;
    let mut cost = |scan: &dyn Fn(&Kv) -> usize| {
        let kv = open();
        let before = kv.volume().io_counts();
        assert_eq!(scan(&kv), 20_000);
        let after = kv.volume().io_counts();
        (after.reads - before.reads, after.read_bytes - before.read_bytes)
    };
    let all = cost(&|kv| kv.range(TreeId::Data, b"", None).filter(|entry| entry.is_ok()).count());
    let keys = cost(&|kv| {
        let mut scan = KeyScan::new(TreeId::Data, Key::default(), None);
        std::iter::from_fn(|| scan.next(kv.volume().store()).unwrap()).count()
    });
    let kv = open();
    let store = kv.volume().store();
    let (mut leaves, mut bytes) = (0, 0);
    for id in (1..store.next_node().0).map(NodeId) {
        let Some(entry) = store.table.get(id).unwrap() else { continue };
        bytes += entry.extent.bytes();
        if entry.height == Height(0) {
            leaves += 1;
        } else if let Node::Internal(internal) = &*store.node(id).unwrap() {
            bytes += internal.runs().iter().map(|run| run.reference().extent.bytes()).sum::<u64>();
        }
    }
    println!("all: {all:?}, keys: {keys:?} of {bytes} bytes in {leaves} leaves");
    assert!(all.1 <= bytes && all.1 > bytes / 2, "{all:?} of {bytes} bytes");
    // Per leaf: a head, the basements, the blocks, and the slices of messages pending for it.
    assert!(all.0 < 6 * leaves, "{all:?} for {leaves} leaves");
    // Pending messages are read with their values.
    assert!(keys.1 < bytes / 4, "{keys:?} of {bytes} bytes");
}

/// Repeated overwrites reuse blocks, so the written area of the image stays bounded.
#[test]
fn an_image_does_not_spread_over_its_file() {
    let device = Arc::new(RecordingDevice::new(Arc::new(MemoryDevice::new(256 * MIB))));
    let mut fs = made(device.clone(), Geometry::new(1 << 20, 64 << 10));
    let file = make(&mut fs, b"again");
    fs.checkpoint().unwrap();
    let start = device.position();
    let size = 2 * MIB;
    for round in 0..60 {
        fs.write(&file, 0, &Bytes::from(Random::new(round).bytes(size as usize))).unwrap();
        fs.checkpoint().unwrap();
    }
    let blocks: std::collections::HashSet<u64> = device.events()[start..]
        .iter()
        .filter_map(|event| match event {
            Event::Write(at, bytes) => {
                Some(at / BLOCK_SIZE as u64..(at + bytes.len() as u64).div_ceil(BLOCK_SIZE as u64))
            }
            _ => None,
        })
        .flatten()
        .collect();
    let written = blocks.len() as u64 * BLOCK_SIZE as u64;
    // Three states and the log.
    println!("{written} bytes hold {size}");
    assert!(written <= 6 * size, "{written} bytes hold {size}");
}

/// Leaves are dropped even if their parents, which hold the range deletes, have left the cache. Table pages without
/// entries are freed, however many nodes were made and dropped.
#[test]
fn what_is_deleted_leaves_nothing_behind() {
    let device = Arc::new(MemoryDevice::new(16 * MIB));
    let mut seed = 0;
    let mut options = || {
        seed += 1;
        let geometry = Some(Geometry::new(256 << 10, 512));
        KvOptions { cache: tight(), geometry, ..KvOptions::new(nonces(seed)) }
    };
    let mut kv = Kv::create(device.clone(), *b"nothing is left!", options()).unwrap();
    let used = |kv: &Kv| kv.volume().store().space.used_blocks();
    let insert = |kv: &mut Kv, tree, numbers: std::ops::Range<u32>, len| {
        let mut batch = Batch::new();
        numbers.for_each(|n| batch.insert(tree, &(n * 7919 % 3001).to_be_bytes(), &vec![1; len]));
        kv.commit(batch).unwrap();
    };
    kv.checkpoint().unwrap();
    let empty = used(&kv);
    let mut most = Vec::new();
    for round in 0..60 {
        (0..15).for_each(|part| {
            insert(&mut kv, TreeId::Metadata, 200 * part..200 * (part + 1), 1000);
        });
        (0..2).for_each(|_| kv.checkpoint().unwrap());
        let full = used(&kv);
        let mut batch = Batch::new();
        batch.delete_range(TreeId::Metadata, &[0; 4], &[0xff; 4]);
        kv.commit(batch).unwrap();
        // These inserts evict the root, which holds the range delete, from the cache.
        (0..8).for_each(|part| insert(&mut kv, TreeId::Data, 10 * part..10 * (part + 1), 300));
        (0..4).for_each(|_| kv.checkpoint().unwrap());
        most.push(used(&kv));
        assert!(used(&kv) < empty + (full - empty) / 4, "round {round}: {empty}, {full}, {most:?}");
    }
    println!("{empty} blocks when empty, {most:?} after deletions");
    assert!(most[59] < most[5] + 10, "{most:?}");
    kv.sync().unwrap();
    let device: Arc<dyn Device> = device;
    let report = check(&device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// All but one key in sixty are deleted in random order. Their leaves are merged, then the internal nodes, until the
/// tree is little larger than one that never had more keys.
#[test]
fn what_is_left_of_many_keys_is_a_shallow_tree() {
    const KEYS: u32 = 60_000;
    let is_left = |number: &u32| number.is_multiple_of(60);
    let make = |grown: bool| {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
        let options =
            KvOptions { cache: tight(), geometry: Some(tiny()), ..KvOptions::new(nonces(0)) };
        let mut kv = Kv::create(device.clone(), *b"shallow again !!", options).unwrap();
        let each = |kv: &mut Kv, numbers: Vec<u32>, change: &dyn Fn(&mut Batch, &[u8])| {
            for numbers in numbers.chunks(500) {
                let mut batch = Batch::new();
                numbers.iter().for_each(|number| change(&mut batch, &scattered_key(*number)));
                kv.commit(batch).unwrap();
            }
            kv.checkpoint().unwrap();
        };
        let insert = |batch: &mut Batch, key: &[u8]| batch.insert(TreeId::Metadata, key, &[1; 40]);
        let numbers = (0..KEYS).filter(|number| grown || is_left(number));
        each(&mut kv, numbers.collect(), &insert);
        let most = kv.volume().store().root(TreeId::Metadata).unwrap().height();
        if grown {
            let gone = (0..KEYS).filter(|number| !is_left(number)).collect();
            each(&mut kv, gone, &|batch, key| batch.delete(TreeId::Metadata, key));
            kv.drain().unwrap();
            kv.checkpoint().unwrap();
        }
        let height = kv.volume().store().root(TreeId::Metadata).unwrap().height();
        drop(kv);
        let report = check(&device, CheckOptions::ALL, &mut ());
        assert!(report.is_clean(), "{:?}", report.findings);
        (most, height, report.counts)
    };
    let (_, small, never) = make(false);
    let (most, height, after) = make(true);
    println!(
        "{most:?}, then {height:?} with {after:?}; without the others {small:?} with {never:?}"
    );
    assert!(most > height && height.0 <= small.0 + 1, "{most:?}, {height:?}, {small:?}");
    assert!(after.leaves <= 2 * never.leaves, "{after:?}, {never:?}");
}

/// Long values are stored apart from keys. A lookup reads a head, a key section and a chunk; a scan of keys reads only
/// heads and key sections.
#[test]
fn keys_of_long_values_are_read_without_them() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let mut seed = 0;
    let mut options = || {
        seed += 1;
        let geometry = Some(Geometry::new(256 << 10, 16 << 10));
        KvOptions { geometry, ..KvOptions::new(nonces(seed)) }
    };
    let (count, bytes) = (10_000u32, 1500);
    let mut kv = Kv::create(device.clone(), *b"keys, and values", options()).unwrap();
    for first in (0..count).step_by(100) {
        let mut batch = Batch::new();
        let value = vec![1; bytes];
        (first..first + 100).for_each(|n| batch.insert(TreeId::Data, &n.to_be_bytes(), &value));
        kv.commit(batch).unwrap();
    }
    kv.checkpoint().unwrap();
    drop(kv);
    let kv = Kv::open(device.clone(), Mode::ReadOnly, options()).unwrap().0;
    let store = kv.volume().store();
    let height = u64::from(store.root(TreeId::Data).unwrap().height().0);
    let before = kv.volume().io_counts();
    assert!(kv.get(TreeId::Data, &77u32.to_be_bytes()).unwrap().is_some());
    let after = kv.volume().io_counts();
    // The root is in memory, and the table has one page.
    assert_eq!(after.reads - before.reads, height + 3, "at a height of {height}");
    let least = u64::from(count) * bytes as u64;
    let (mut scan, mut keys) = (KeyScan::new(TreeId::Data, Key::default(), None), 0);
    while scan.next(store).unwrap().is_some() {
        keys += 1;
    }
    let scanned = kv.volume().io_counts().read_bytes - after.read_bytes;
    assert_eq!(keys, count);
    assert!(scanned < least / 40, "{scanned} of {least} bytes");
}

/// A check reads each leaf once: whole in the metadata index, head and keys in the data index, in one read.
#[test]
fn a_check_reads_each_leaf_once() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let mut fs = made(device.clone(), Geometry::new(256 << 10, 16 << 10));
    for number in 0..4000 {
        let file = make(&mut fs, format!("file {number}").as_bytes());
        fs.write(&file, 0, &Bytes::from(vec![1; 1500])).unwrap();
    }
    fs.checkpoint().unwrap();
    drop(fs);
    let faulty = Arc::new(FaultyDevice::new(device));
    let device: Arc<dyn Device> = faulty.clone();
    let report = check(&device, CheckOptions::default(), &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
    let (counts, reads) = (report.counts, faulty.calls().0);
    println!("{reads} reads for {counts:?}");
    assert!(counts.leaves > 100 && counts.inodes > 4000);
    // One more read per leaf for the messages pending for it, plus the fixed structures, slot by slot.
    assert!(reads < 2 * counts.leaves + 60, "{reads} reads for {} leaves", counts.leaves);
}

/// If memory is short, write-back picks the node that will wait longest for its next message, so that each write
/// carries many messages.
#[test]
fn nodes_are_written_for_many_messages_at_once() {
    // Enough nodes that the levels between root and leaves matter.
    let device = Arc::new(MemoryDevice::new(512 * MIB));
    let geometry = Some(Geometry { fanout: 16, ..Geometry::new(256 << 10, 4096) });
    let cache = CacheBudget::of(5 << 20);
    let options = KvOptions { geometry, cache, ..KvOptions::new(nonces(1)) };
    let mut kv = Kv::create(device, *b"much is updated!", options).unwrap();
    let count = 300_000u32;
    for first in (0..count).step_by(1000) {
        let mut batch = Batch::new();
        (first..first + 1000).for_each(|n| batch.insert(TreeId::Data, &scattered_key(n), &[1; 60]));
        kv.commit(batch).unwrap();
    }
    kv.checkpoint().unwrap();
    let before = kv.volume().io_counts().written_bytes;
    let mut random = Random::new(1);
    let patches = 200_000;
    for _ in 0..patches / 1000 {
        let mut batch = Batch::new();
        for _ in 0..1000 {
            let key = scattered_key(random.below(count.into()) as u32);
            batch.patch(TreeId::Data, &key, 10, b"four", false);
        }
        kv.commit(batch).unwrap();
    }
    kv.checkpoint().unwrap();
    let written = kv.volume().io_counts().written_bytes - before;
    let nodes = kv.volume().store().next_node().0;
    println!("{patches} patches in {nodes} nodes: {} bytes each", written / patches);
    // Writing the node that was changed longest ago would cost 100 bytes.
    assert!(written / patches <= 90, "{} bytes a patch", written / patches);
}
