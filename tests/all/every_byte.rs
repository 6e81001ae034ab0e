//! Repair: whatever byte is damaged, what comes of it is sound, and what is lost is told by path.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use betr_core::Place;
use betr_core::check::{CheckOptions, Code, Report, check};
use betr_core::device::{Device, ForkDevice, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{BLOCK_SIZE, Time};
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Volume};
use betr_tests::contents::{Contents, all_is_told};
use betr_tests::{Random, clock, creation, nonces, open, tight, tiny};
use bytes::Bytes;

use crate::hostile::fill;
use crate::mended::{contents, mended_on, setting};

/// An image that uses at most 256 KiB, with nodes on two levels, pending messages, range deletes, and groups in the log, one
/// of which binds a value late.
struct Image {
    bytes: Vec<u8>,
    /// What is in it, and what was when the log was a group shorter, two, or empty.
    states: Vec<Contents>,
    /// The bytes of the last group, which is the only one that nothing vouches for.
    last_group: Range<usize>,
    /// The bytes that are in use, but for the zeros between the fixed blocks.
    used: Vec<usize>,
}

impl Image {
    fn make() -> Image {
        let device = Arc::new(MemoryDevice::new(1 << 20));
        let options = CreateOptions { log_bytes: 64 << 10, ..creation(tiny(), tight(), 1) };
        let volume = Volume::create(device.clone(), options).unwrap();
        let at = Attributes::at(Time::default());
        let mut fs = Fs::format(volume, clock(0), at).unwrap();
        fill(&mut fs, 0..20, 60);
        fs.checkpoint().unwrap();
        drop(fs);
        let mut options = OpenOptions::new(Mode::ReadWrite, nonces(2));
        (options.cache, options.late_bytes) = (tight(), BLOCK_SIZE);
        let volume = Volume::open(device.clone(), options).unwrap().0;
        let mut fs = Fs::open(volume, clock(1000));
        fill(&mut fs, 20..24, 60);
        fs.checkpoint().unwrap();
        let device_now = || -> Arc<dyn Device> { Arc::new(MemoryDevice::from(device.snapshot())) };
        let mut states = vec![contents(&device_now())];
        let mut sync = |fs: &mut Fs| {
            fs.volume_mut().sync().unwrap();
            states.insert(0, contents(&device_now()));
        };
        let root = fs.root().unwrap();
        fill(&mut fs, 24..25, 60);
        sync(&mut fs);
        let late = fs.make(&root, b"late", New::of(FileType::Regular, at)).unwrap();
        fs.write(&late, 0, &Bytes::from(Random::new(3).bytes(BLOCK_SIZE))).unwrap();
        sync(&mut fs);
        fs.unlink(&root, b"file-003").unwrap();
        fs.write(&late, 100, &Bytes::from_static(b"short")).unwrap();
        sync(&mut fs);
        drop((root, late, fs));

        let sound = device_now();
        let Report { findings, counts, log, .. } = check(&sound, CheckOptions::ALL, &mut ());
        assert!(findings.iter().all(|f| f.code == Code::LogReplayed), "{findings:?}");
        assert!(counts.pending > 5 && counts.nodes - counts.leaves > 1, "{counts:?}");
        let log = log.unwrap();
        assert!(log.bound.in_leaves + log.bound.in_runs > 0, "{log:?}");
        let end = log.end_byte as usize;
        let blocks =
            open(sound, Mode::ReadOnly, tight(), 1).unwrap().0.store().space.used().clone();
        let fixed = |block| block < 16 || (17..32).contains(&block) || (48..64).contains(&block);
        let used = (0..1 << 20).filter(|at| {
            let block = (at / BLOCK_SIZE) as u64;
            blocks.get(block) && !fixed(block)
        });
        Image {
            bytes: device.snapshot(),
            states,
            last_group: end - BLOCK_SIZE..end,
            used: used.collect(),
        }
    }

    /// Repairs the image with a byte made another, and compares what is there then. Whether there was something to repair,
    /// and whether anything is other than it was.
    fn damage(&self, base: &ForkDevice, at: usize, byte: u8) -> (bool, bool) {
        let device: Arc<dyn Device> = Arc::new(base.fork());
        device.write_at(at as u64, &[byte]).unwrap();
        let what = format!("byte {at:#x} made {byte:#x}");
        let Some((before, done, device)) = mended_on(&what, device.clone()) else {
            // The log should have been replayed, at least.
            assert!(betr_tests::contents::contents(&device).is_err(), "{what}: it is not found");
            return (false, true);
        };
        let after = contents(&device);
        let sound = &self.states[0];
        let found = |code| before.findings.iter().any(|f| f.code == code);
        // Without its header the last group looks like nothing.
        let unvouched = self.last_group.contains(&at) || found(Code::LogTorn);
        let shorter = unvouched || found(Code::LogDamaged);
        if !shorter && !found(Code::ValueLost) {
            all_is_told(&what, sound, &after, &done.mended.unwrap_or_default());
            return (true, after != *sound);
        }
        // A log that is shorter leaves what was there before. What was acknowledged behind its end is told, but for the
        // times of directories; and that a record cannot be read.
        assert!(!shorter || self.states.contains(&after), "{what}: {:?}", before.findings);
        let lost = before.findings.iter();
        let lost = lost.filter(|f| [Code::OperationLost, Code::ValueLost].contains(&f.code));
        let garbled = lost.clone().any(|f| f.detail.ends_with("read"));
        let told = |path: &Vec<u8>| lost.clone().any(|f| f.place == Place::Path(path.clone()));
        let other = sound.keys().filter(|path| after.get(*path) != sound.get(*path));
        let untold: Vec<_> = other.filter(|path| **path != b"/" && !told(path)).collect();
        assert!(
            unvouched || untold.len() <= usize::from(garbled),
            "{what}: {untold:?} {:?}",
            before.findings
        );
        (true, after != *sound)
    }
}

/// Each byte is zeroed, and all of its bits are flipped; of what nobody uses a sample. `BETR_BYTES_APART=N` takes every Nth.
#[test]
fn whatever_byte_is_damaged_the_rest_is_repaired() {
    let image = Image::make();
    let used = image.used.len();
    assert!(used > 200 << 10 && used <= 256 << 10, "{used} bytes are in use");
    let unused = (5..image.bytes.len()).step_by(31 * BLOCK_SIZE);
    let bytes: Vec<usize> = image.used.iter().copied().chain(unused).collect();
    let apart = setting("BETR_BYTES_APART").unwrap_or(1);
    let bytes: Vec<usize> = bytes.into_iter().step_by(apart).collect();
    let [repaired, other] = [0; 2].map(AtomicUsize::new);
    let base = ForkDevice::of(&image.bytes);
    let damage = |at: &usize| {
        let was = image.bytes[*at];
        for byte in [0, !was].into_iter().filter(|byte| *byte != was) {
            let (is_repaired, is_other) = image.damage(&base, *at, byte);
            repaired.fetch_add(is_repaired.into(), Ordering::Relaxed);
            other.fetch_add(is_other.into(), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let (damage, bytes) = (&damage, &bytes);
        for half in 0..2 {
            scope.spawn(move || bytes.iter().skip(half).step_by(2).for_each(damage));
        }
    });
    let [repaired, other] = [repaired, other].map(AtomicUsize::into_inner);
    println!("{} bytes, {repaired} repairs, {other} times something was lost", bytes.len());
    assert!(repaired > bytes.len() && other < repaired / 4, "{repaired}, {other}");
}
