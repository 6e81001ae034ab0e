//! How much memory things take, counted by the allocator: alone in a process of their own.

use std::sync::{Arc, Mutex};

use betr_core::device::{Device, FileDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{Time, TreeId};
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::store::CacheBudget;
use betr_core::volume::{Mode, OpenOptions, Volume};
use betr_tests::{clock, made, nonces, rounds};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;

/// One test at a time: all memory of the process counts.
static ALONE: Mutex<()> = Mutex::new(());

/// An image with a number of entries in one directory.
fn image(entries: u64) -> Arc<dyn Device> {
    let file = tempfile::tempfile().unwrap();
    let bytes = 64 * MIB as u64 + entries * 512;
    file.set_len(bytes).unwrap();
    let device: Arc<dyn Device> = Arc::new(FileDevice::new(file, bytes));
    let mut fs = made(device.clone(), betr_core::store::Geometry::new(1 << 20, 64 << 10));
    let root = fs.root().unwrap();
    let new = |kind| New::of(kind, Attributes::at(Time::default()));
    let directory = fs.make(&root, b"directory", new(FileType::Directory)).unwrap();
    for number in 0..entries {
        let name = format!("entry-{number:07}");
        fs.make(&directory, name.as_bytes(), new(FileType::Fifo)).unwrap();
    }
    fs.checkpoint().unwrap();
    device
}

/// What listing the directory takes at most, names and inodes.
fn listing(device: Arc<dyn Device>, entries: u64) -> usize {
    let usual = OpenOptions::new(Mode::ReadOnly, nonces(1));
    let options = OpenOptions { cache: CacheBudget::of(16 << 20), ..usual };
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let fs = Fs::open(Volume::open(device, options).unwrap().0, clock(0));
    let directory = fs.resolve(b"/directory").unwrap();
    let mut listing = fs.listing(&directory, None).unwrap();
    let mut found = 0;
    while let Some(entry) = fs.next_entry(&mut listing).unwrap() {
        assert_eq!(fs.entry_object(entry).unwrap().kind(), FileType::Fifo);
        found += 1;
    }
    assert_eq!(found, entries);
    MEMORY.peak_usage() - before
}

/// Scans that are given up, each behind the first leaf: what was read ahead for them counts as well. Heads of all
/// leaves are in the cache.
#[test]
fn short_scans_stay_within_the_cache() {
    let _alone = ALONE.lock();
    let (key, device) =
        (|n: u64| (n * 2_654_435_761 % 300_000).to_be_bytes(), tempfile::tempfile().unwrap());
    device.set_len(256 * MIB as u64).unwrap();
    let device: Arc<dyn Device> = Arc::new(FileDevice::new(device, 256 * MIB as u64));
    let options = |seed| {
        let geometry = Some(betr_core::store::Geometry::new(512 << 10, 4096));
        KvOptions { geometry, cache: CacheBudget::of(6 << 20), ..KvOptions::new(nonces(seed)) }
    };
    let mut kv = Kv::create(device.clone(), *b"scans given up!!", options(1)).unwrap();
    for first in (0..300_000).step_by(1000) {
        let mut batch = Batch::new();
        (first..first + 1000).for_each(|n| batch.insert(TreeId::Data, &key(n), &[1; 100]));
        kv.commit(batch).unwrap();
    }
    kv.checkpoint().unwrap();
    drop(kv);
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let kv = Kv::open(device, Mode::ReadOnly, options(2)).unwrap().0;
    for number in 0..20_000 {
        assert!(kv.get(TreeId::Data, &key(number * 13)).unwrap().is_some());
    }
    for number in 0..600u64 {
        let start = number * 7_919 * 37 % 300_000;
        let scan = kv.range(TreeId::Data, &start.to_be_bytes(), None);
        assert!(scan.take(1200).all(|entry| entry.is_ok()));
    }
    let peak = MEMORY.peak_usage() - before;
    println!("{peak} bytes for scans that were given up");
    assert!(peak <= 12 * MIB, "{peak} bytes");
}

/// A transaction of many messages comes to many leaves: those that do not fit into the cache together are written while it
/// does, and not when it is done.
#[test]
fn large_transactions_stay_within_the_cache() {
    let _alone = ALONE.lock();
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 30).unwrap();
    let device: Arc<dyn Device> = Arc::new(FileDevice::new(file, 1 << 30));
    let geometry = Some(betr_core::store::Geometry::new(1 << 20, 4096));
    let cache = CacheBudget::of(6 * MIB);
    let options = KvOptions { geometry, cache, ..KvOptions::new(nonces(1)) };
    let mut kv = Kv::create(device, *b"many at a time!!", options).unwrap();
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    for first in (0..2_000_000).step_by(10_000) {
        let mut batch = Batch::with_capacity(10_000);
        (first..first + 10_000)
            .for_each(|n| batch.insert(TreeId::Metadata, &key(n), &[n as u8; 100]));
        kv.commit(batch).unwrap();
        kv.sync().unwrap();
    }
    let peak = MEMORY.peak_usage() - before;
    println!("{peak} bytes for large transactions");
    assert!(peak <= 21 * MIB, "{peak} bytes");
}

/// `BETR_ROUNDS` says how many thousands of entries.
#[test]
fn a_listing_takes_no_memory_for_each_entry() {
    let _alone = ALONE.lock();
    let large = rounds(100) * 1000;
    let [small_peak, large_peak] = [1000, large].map(|entries| listing(image(entries), entries));
    println!("{small_peak} bytes for 1000 entries, {large_peak} for {large}");
    assert!(large_peak <= small_peak + 32 * MIB, "{large_peak} bytes, {small_peak} for 1000");
}
