//! Shared parts of tests: small volumes, seeded randomness, and a deterministic clock.

pub mod clones;
pub mod contents;
pub mod fuzz;
mod gate;

use std::sync::Arc;

use betr_core::Result;
use betr_core::device::Device;
use betr_core::disk::IoCounts;
use betr_core::format::ZoneSizes;
use betr_core::fs::{Attributes, Fs};
use betr_core::ids::Time;
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Recovery, Volume};

pub use betr_lab::explore::Random;
pub use gate::{Gate, Keeper};

/// Tiny nodes: deep trees from little data.
pub fn tiny() -> Geometry {
    Geometry { node_size: 4096, leaf_size: 4096, basement_size: 1024, fanout: 4 }
}

/// Leaves of many blocks, which are not worth writing for a few late-bound values.
pub fn middling() -> Geometry {
    Geometry { node_size: 64 << 10, leaf_size: 96 << 10, basement_size: 16 << 10, fanout: 8 }
}

/// A cache that evicts all the time.
pub fn tight() -> CacheBudget {
    CacheBudget { total_bytes: 64 << 10, dirty_bytes: 24 << 10 }
}

/// 16 KiB: writes of this size are bound late.
pub const LATE_BYTES: usize = 16 << 10;

/// A cache with space for everything.
pub fn roomy() -> CacheBudget {
    CacheBudget { total_bytes: 2 << 20, dirty_bytes: 1 << 20 }
}

/// The number of rounds of a randomised test: `default`, or that of the variable `BETR_ROUNDS`.
pub fn rounds(default: u64) -> u64 {
    std::env::var("BETR_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Pseudo-random nonces from a seed.
pub fn nonces(seed: u64) -> Box<dyn FnMut() -> u64 + Send + Sync> {
    let mut random = Random::new(seed ^ 0xabcd);
    Box::new(move || random.next())
}

/// A clock that advances by a second on each call.
pub fn clock(start: i64) -> betr_core::fs::Clock {
    let mut secs = start;
    Box::new(move || {
        secs += 1;
        Time { secs, nanos: 0 }
    })
}

/// An empty volume with small zones, which does not log before it is opened again.
pub fn create(
    device: Arc<dyn Device>,
    geometry: Geometry,
    cache: CacheBudget,
    seed: u64,
) -> Result<Volume> {
    create_zoned(device, geometry, cache, ZoneSizes::of_max(64 << 10), seed)
}

/// As [`create`], with given zone sizes.
pub fn create_zoned(
    device: Arc<dyn Device>,
    geometry: Geometry,
    cache: CacheBudget,
    zones: ZoneSizes,
    seed: u64,
) -> Result<Volume> {
    Volume::create(device, CreateOptions { zones, ..creation(geometry, cache, seed) })
}

/// An empty file system, not logged and without a checkpoint.
pub fn formatted(device: Arc<dyn Device>, geometry: Geometry, cache: CacheBudget, seed: u64) -> Fs {
    let volume = create(device, geometry, cache, seed).unwrap();
    Fs::format(volume, clock(0), Attributes::at(Time::default())).unwrap()
}

/// The options of such volumes.
pub fn creation(geometry: Geometry, cache: CacheBudget, seed: u64) -> CreateOptions {
    CreateOptions {
        label: "test".into(),
        log_bytes: 128 << 10,
        geometry,
        cache,
        ..CreateOptions::new(*b"test volume uuid", 0, nonces(seed))
    }
}

/// Opens a volume.
pub fn open(
    device: Arc<dyn Device>,
    mode: Mode,
    cache: CacheBudget,
    seed: u64,
) -> Result<(Volume, Recovery)> {
    let options = OpenOptions {
        cache,
        late_bytes: LATE_BYTES,
        eager_checkpoints: seed % 2 == 1,
        ..OpenOptions::new(mode, nonces(seed))
    };
    Volume::open(device, options)
}

/// A file system as `mkfs` makes it, open for writing.
pub fn made(device: Arc<dyn Device>, geometry: Geometry) -> Fs {
    let options = CreateOptions {
        geometry,
        zones: ZoneSizes::of_max(512 << 10),
        ..CreateOptions::new(*b"test volume uuid", device.len(), Box::new(|| 7))
    };
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut fs = Fs::format(volume, clock(0), Attributes::at(Time::default())).unwrap();
    fs.checkpoint().unwrap();
    drop(fs);
    let mut nonce = 100;
    let nonces = Box::new(move || {
        nonce += 1;
        nonce
    });
    let volume = Volume::open(device, OpenOptions::new(Mode::ReadWrite, nonces)).unwrap().0;
    let mut fs = Fs::open(volume, clock(10));
    fs.checkpoint().unwrap();
    fs
}

/// The device calls since `before`.
pub fn since(fs: &Fs, before: IoCounts) -> IoCounts {
    let now = fs.volume().io_counts();
    IoCounts {
        reads: now.reads - before.reads,
        read_bytes: now.read_bytes - before.read_bytes,
        writes: now.writes - before.writes,
        written_bytes: now.written_bytes - before.written_bytes,
        flushes: now.flushes - before.flushes,
    }
}
