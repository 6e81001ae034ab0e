//! The written image does not depend on timing: neither on parallel reads and writes of nodes nor on their duration. If
//! writing fails, nothing acknowledged is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use betr_core::Result;
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{Action, Key, Op, RecordMessage, Update};
use betr_core::ids::{Msn, Time, TreeId};
use betr_core::store::CacheBudget;
use betr_core::volume::{Mode, Transaction, Volume};
use betr_tests::{Random, create, middling, open, roomy, rounds, tight, tiny};
use bytes::Bytes;
use rayon::prelude::*;

/// A device whose calls take varying times.
struct Unsteady {
    base: MemoryDevice,
    /// The seed of the delays; `None` for a device that requires serial I/O.
    seed: Option<u64>,
    calls: AtomicU64,
    /// The device accepts this many writes, then fails.
    writes_max: u64,
    writes: AtomicU64,
}

impl Unsteady {
    fn new(seed: Option<u64>, writes_max: u64) -> Arc<Unsteady> {
        let base = MemoryDevice::new(24 << 20);
        let [calls, writes] = [0; 2].map(AtomicU64::new);
        Arc::new(Unsteady { base, seed, calls, writes_max, writes })
    }

    fn wait(&self) {
        let Some(seed) = self.seed else { return };
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if let micros @ 1..40 = Random::new(seed ^ call).below(400) {
            std::thread::sleep(Duration::from_micros(10 * micros));
        }
    }
}

impl Device for Unsteady {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.wait();
        self.base.read_at(at, buf)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.wait();
        if self.writes.fetch_add(1, Ordering::Relaxed) >= self.writes_max {
            return Err(io::Error::other("it is full of holes"));
        }
        self.base.write_at(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.base.flush()
    }

    fn requires_serial_io(&self) -> bool {
        self.seed.is_none()
    }
}

/// A volume under random operations.
struct Work {
    device: Arc<Unsteady>,
    cache: CacheBudget,
    seed: u64,
    volume: Option<Volume>,
    /// Every transaction before this MSN is durable.
    acknowledged: Msn,
}

impl Work {
    fn new(seed: u64, device: &Arc<Unsteady>) -> Work {
        let geometry = if seed.is_multiple_of(4) { tiny() } else { middling() };
        let cache = if seed.is_multiple_of(2) { tight() } else { roomy() };
        let mut volume = create(device.clone(), geometry, cache, seed).unwrap();
        volume.checkpoint().unwrap();
        let acknowledged = volume.next_msn();
        Work { device: device.clone(), cache, seed, volume: Some(volume), acknowledged }
    }

    fn volume(&mut self) -> &mut Volume {
        self.volume.as_mut().expect("it is open")
    }

    fn sync(&mut self) -> Result<()> {
        self.volume().sync()?;
        self.acknowledged = self.volume().next_msn();
        Ok(())
    }

    /// Carries out all operations; or those before `until`, which is the first MSN of a transaction.
    fn go(&mut self, until: Option<Msn>) -> Result<()> {
        let random = &mut Random::new(self.seed);
        let steps = if self.seed.is_multiple_of(4) { 60 } else { 150 };
        for step in 0..steps {
            if until.is_some_and(|until| self.volume().next_msn() >= until) {
                return Ok(());
            }
            let messages = (0..1 + random.below(500)).map(|_| message(random)).collect();
            let wall = Time { secs: step, nanos: 0 };
            self.volume().commit(Transaction { op: Op::Write, wall, messages })?;
            match random.below(30) {
                0 => {
                    self.volume().checkpoint()?;
                    self.acknowledged = self.volume().next_msn();
                }
                1..=8 => self.sync()?,
                9 => {
                    let lo = key(random);
                    let found = self.volume().cursor(TreeId::Metadata, lo, None).take(200);
                    assert!(found.count() <= 200);
                }
                // Enough lookups for heads to be read in parallel.
                10..=12 => {
                    for _ in 0..20 {
                        let tree = TreeId::ALL[random.below(2) as usize];
                        self.volume().get(tree, &key(random))?;
                    }
                }
                13 => {
                    self.sync()?;
                    drop(self.volume.take());
                    let (device, cache) = (self.device.clone(), self.cache);
                    self.volume = Some(open(device, Mode::ReadWrite, cache, self.seed)?.0);
                }
                _ => {}
            }
        }
        self.sync()
    }
}

/// The image after random operations, and the number of log groups written in parallel with other work.
fn worked_on(seed: u64, timing: Option<u64>) -> (Vec<u8>, u64) {
    let device = Unsteady::new(timing, u64::MAX);
    let mut work = Work::new(seed, &device);
    work.go(None).unwrap();
    let beside = work.volume().counters().beside;
    // Dropping the volume waits for write-back in flight.
    drop(work);
    (device.base.snapshot(), beside)
}

/// All entries of both trees.
fn entries(volume: &Volume) -> Vec<(Key, Bytes)> {
    let all = TreeId::ALL.map(|tree| volume.cursor(tree, Key::default(), None));
    all.into_iter().flatten().map(Result::unwrap).collect()
}

fn key(random: &mut Random) -> Key {
    Key::new(random.below(12_000).wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec())
}

fn message(random: &mut Random) -> RecordMessage {
    let tree = TreeId::ALL[random.below(2) as usize];
    let key = key(random);
    match random.below(600) {
        0 => {
            let mut hi = key.to_vec();
            hi[4] = hi[4].saturating_add(9);
            hi.push(1);
            RecordMessage::RangeDelete(tree, key, Key::new(hi))
        }
        1..=60 => RecordMessage::Point(tree, key, Action::Delete),
        61..=300 => {
            let bytes = random.bytes(4);
            RecordMessage::Point(tree, key, Action::Update(Update::patch(20, &bytes, true)))
        }
        _ => {
            let len = if tree == TreeId::Data && random.below(20) == 0 { 4096 } else { 80 };
            RecordMessage::Point(tree, key, Action::Insert(Bytes::from(random.bytes(len))))
        }
    }
}

#[test]
fn the_image_is_the_same() {
    let mut beside = 0;
    for seed in 0..rounds(3) {
        let (expected, none) = worked_on(seed, None);
        assert_eq!(none, 0);
        for timing in 0..3 {
            let (found, groups) = worked_on(seed, Some(timing));
            beside += groups;
            let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
            assert_eq!(differs, None, "byte, seed {seed}, timing {timing}");
        }
    }
    assert!(beside > 10, "{beside} groups were written beside others");
}

/// Cached knowledge from lookups does not influence the shape of the trees.
#[test]
fn the_image_does_not_depend_on_what_was_read() {
    let shaped = |seed: u64, looks: bool| {
        let device = Arc::new(MemoryDevice::new(24 << 20));
        let mut volume = create(device.clone(), tiny(), CacheBudget::of(64 << 20), seed).unwrap();
        let mut random = Random::new(seed);
        for step in 0..60 {
            let (wall, op) = (Time { secs: step, nanos: 0 }, Op::Write);
            let count = if step % 4 == 0 { 200 } else { 12 };
            let mut messages: Vec<_> = (0..count).map(|_| message(&mut random)).collect();
            for _ in 0..random.below(3) {
                // Some hundred keys in several leaves.
                let lo = key(&mut random);
                let mut hi = lo.to_vec();
                hi[3] = lo[3].saturating_add(random.below(200) as u8);
                let hi = Key::new([&hi[..], &[0]].concat());
                messages.extend(
                    TreeId::ALL
                        .map(|tree| RecordMessage::RangeDelete(tree, lo.clone(), hi.clone())),
                );
            }
            volume.commit(Transaction { op, wall, messages }).unwrap();
            volume.checkpoint().unwrap();
            drop(volume);
            volume =
                open(device.clone(), Mode::ReadWrite, CacheBudget::of(64 << 20), seed).unwrap().0;
            if looks {
                assert!(entries(&volume).len() < 12_000);
            }
        }
        drop(volume);
        device.snapshot()
    };
    for seed in 0..rounds(2) {
        let differs = shaped(seed, false).iter().zip(&shaped(seed, true)).position(|(a, b)| a != b);
        assert_eq!(differs, None, "byte, seed {seed}");
    }
}

/// All threads of the pool wait to read while a transaction is injected, which itself needs jobs of the pool.
#[test]
fn the_pool_can_wait_for_itself() {
    let mut random = Random::new(1);
    let device = Unsteady::new(Some(1), u64::MAX);
    let mut volume = create(device.clone(), middling(), tight(), 1).unwrap();
    volume.checkpoint().unwrap();
    drop(volume);
    let mut volume = open(device, Mode::ReadWrite, tight(), 2).unwrap().0;
    for step in 0..30 {
        let keys: Vec<Key> = (0..400).map(|_| key(&mut random)).collect();
        let insert = |key: &Key| {
            let action = Action::Insert(Bytes::from(vec![step as u8; 80]));
            RecordMessage::Point(TreeId::Metadata, key.clone(), action)
        };
        let messages = keys.iter().map(insert).collect();
        let wall = Time { secs: step, nanos: 0 };
        volume.commit(Transaction { op: Op::Write, wall, messages }).unwrap();
        let found = |key: &Key| volume.get(TreeId::Metadata, key).unwrap();
        assert!(keys.par_iter().all(|key| found(key) == Some(vec![step as u8; 80].into())));
        volume.sync().unwrap();
    }
}

/// Background writes of leaves and of internal nodes fail.
#[test]
fn nothing_acknowledged_is_lost_when_writing_fails() {
    let mut failures = 0;
    for seed in 0..rounds(1) {
        let sound = Unsteady::new(Some(seed), u64::MAX);
        let mut work = Work::new(seed, &sound);
        let first = sound.writes.load(Ordering::Relaxed);
        work.go(None).unwrap();
        let writes = sound.writes.load(Ordering::Relaxed);
        for part in 0..12 {
            let writes_max = first + (writes - first) * part / 12;
            let device = Unsteady::new(Some(seed), writes_max);
            let mut work = Work::new(seed, &device);
            let name = format!("seed {seed}, {writes_max} writes");
            work.go(None).expect_err(&name);
            failures += 1;
            if let Some(volume) = &mut work.volume {
                assert!(volume.sync().is_err() && volume.checkpoint().is_err(), "{name}");
            }
            let (acknowledged, cache) = (work.acknowledged, work.cache);
            drop(work);
            let left = Arc::new(MemoryDevice::from(device.base.snapshot()));
            let recovered = open(left, Mode::ReadWrite, cache, seed).expect(&name).0;
            let until = recovered.next_msn();
            assert!(until >= acknowledged, "{name}: {until} is left of {acknowledged}");
            let mut expected = Work::new(seed, &Unsteady::new(None, u64::MAX));
            expected.go(Some(until)).unwrap();
            assert_eq!(expected.volume().next_msn(), until, "{name}");
            assert!(entries(expected.volume()) == entries(&recovered), "{name}");
        }
    }
    assert!(failures > 11, "{failures}");
}
