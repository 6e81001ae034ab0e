//! How much memory is allocated while files are read, counted by the allocator. A process of its own, for it counts all
//! threads.

use std::alloc::System;
use std::sync::Arc;

use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::Time;
use betr_core::store::CacheBudget;
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Volume};
use betr_tests::{Random, clock, nonces};
use bytes::Bytes;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MIB: usize = 1 << 20;
const FILE: usize = 192 * MIB;
/// 32 MiB fill the cache, whose memory is used again from then on.
const BEFORE: usize = 32 * MIB;

fn opened(device: Arc<dyn Device>) -> Fs {
    let cache = CacheBudget::of(12 * MIB);
    let options = OpenOptions { cache, ..OpenOptions::new(Mode::ReadOnly, nonces(2)) };
    Fs::open(Volume::open(device, options).unwrap().0, clock(1000))
}

/// A large file is read with at most 1.1 bytes of allocated memory a byte: block by block, and in pieces that the reader
/// gets as his own.
#[test]
fn what_is_read_is_allocated_once() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(2 * FILE as u64));
    let options = CreateOptions::new(*b"test volume uuid", device.len(), nonces(1));
    let volume = Volume::create(device.clone(), options).unwrap();
    let at = Attributes::at(Time::default());
    let mut fs = Fs::format(volume, clock(0), at).unwrap();
    let root = fs.root().unwrap();
    let file = fs.make(&root, b"file", New::of(FileType::Regular, at)).unwrap();
    let mut random = Random::new(5);
    for piece in 0..FILE / MIB {
        fs.write(&file, (piece * MIB) as u64, &Bytes::from(random.bytes(MIB))).unwrap();
    }
    fs.checkpoint().unwrap();
    drop((root, file, fs));

    let fs = opened(device.clone());
    let file = fs.resolve(b"file").unwrap();
    let mut blocks = fs.blocks(&file);
    assert_allocated("blocks", |at| {
        let (from, block) = fs.next_block(&mut blocks).unwrap().unwrap();
        assert_eq!(from, at as u64);
        block.len()
    });
    let fs = opened(device);
    let file = fs.resolve(b"file").unwrap();
    assert_allocated("pieces", |at| fs.read(&file, at as u64, MIB).unwrap().len());
}

/// Reads the file to its end by `read`, which gets an offset and returns how much it has read.
fn assert_allocated(what: &str, mut read: impl FnMut(usize) -> usize) {
    let mut at = 0;
    while at < BEFORE {
        at += read(at);
    }
    let (region, from) = (Region::new(ALLOCATOR), at);
    while at < FILE {
        at += read(at);
    }
    let change = region.change();
    let allocated = change.bytes_allocated as i64 + change.bytes_reallocated as i64;
    let read = (at - from) as i64;
    println!("{what}: {allocated} bytes allocated for {read}");
    assert!(allocated <= read / 10 * 11, "{what}: {allocated} bytes allocated for {read}");
}
