//! How much memory things take, counted by the allocator: alone in a process of their own.

use std::sync::Arc;

use betr_core::cache::CacheBudget;
use betr_core::device::{Device, FileDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::Time;
use betr_core::volume::{Mode, OpenOptions, Volume};
use betr_tests::{clock, made, nonces, rounds};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;

/// An image with so many entries in one directory.
fn image(entries: u64) -> Arc<dyn Device> {
    let file = tempfile::tempfile().unwrap();
    let bytes = 64 * MIB as u64 + entries * 512;
    file.set_len(bytes).unwrap();
    let device: Arc<dyn Device> = Arc::new(FileDevice::new(file, bytes));
    let mut fs = made(device.clone(), betr_core::cache::Geometry::new(1 << 20, 64 << 10));
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

/// `BETR_ROUNDS` says how many thousands of entries.
#[test]
fn a_listing_takes_no_memory_for_each_entry() {
    let large = rounds(100) * 1000;
    let [small_peak, large_peak] = [1000, large].map(|entries| listing(image(entries), entries));
    println!("{small_peak} bytes for 1000 entries, {large_peak} for {large}");
    assert!(large_peak <= small_peak + 32 * MIB, "{large_peak} bytes, {small_peak} for 1000");
}
