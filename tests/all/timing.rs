//! What is written does not depend on timing: not on whether nodes are read and written beside the foreground, nor
//! on how long any of it takes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{Action, Key, Op, RecordMessage, Update};
use betr_core::ids::{Time, TreeId};
use betr_core::volume::{Mode, Transaction};
use betr_tests::{Random, create, middling, open, roomy, rounds, tight, tiny};
use bytes::Bytes;

/// A device whose calls take their time, each another one.
struct Unsteady {
    base: MemoryDevice,
    /// Nothing for one that wants its calls one after the other.
    seed: Option<u64>,
    calls: AtomicU64,
}

impl Unsteady {
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
        self.base.write_at(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.base.flush()
    }

    fn wants_order(&self) -> bool {
        self.seed.is_none()
    }
}

/// The image that is left of random operations.
fn worked_on(seed: u64, timing: Option<u64>) -> Vec<u8> {
    let base = MemoryDevice::new(24 << 20);
    let device = Arc::new(Unsteady { base, seed: timing, calls: AtomicU64::new(0) });
    let random = &mut Random::new(seed);
    let geometry = if seed.is_multiple_of(4) { tiny() } else { middling() };
    let cache = if seed.is_multiple_of(2) { tight() } else { roomy() };
    let mut volume = create(device.clone(), geometry, cache, seed).unwrap();
    let steps = if seed.is_multiple_of(4) { 60 } else { 150 };
    for step in 0..steps {
        let messages = (0..1 + random.below(400)).map(|_| message(random)).collect();
        let wall = Time { secs: step, nanos: 0 };
        volume.commit(Transaction { op: Op::Write, wall, messages }).unwrap();
        match random.below(30) {
            0 => volume.checkpoint().unwrap(),
            1..=8 => volume.sync().unwrap(),
            9 => {
                let lo = key(random);
                let found = volume.cursor(TreeId::Metadata, lo, None).take(200);
                assert!(found.count() <= 200);
            }
            10..=12 => drop(volume.get(TreeId::Data, &key(random)).unwrap()),
            13 => {
                volume.sync().unwrap();
                drop(volume);
                volume = open(device.clone(), Mode::ReadWrite, cache, seed).unwrap().0;
            }
            _ => {}
        }
    }
    volume.sync().unwrap();
    drop(volume);
    device.base.snapshot()
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
    for seed in 0..rounds(6) {
        let expected = worked_on(seed, None);
        for timing in 0..3 {
            let found = worked_on(seed, Some(timing));
            let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
            assert_eq!(differs, None, "byte, seed {seed}, timing {timing}");
        }
    }
}
