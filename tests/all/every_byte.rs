//! Repair: whatever byte is damaged, the repaired image is sound, and losses are reported by path.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use betr_core::Place;
use betr_core::check::{CheckOptions, Code, Finding, Report, check, reserved};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{BLOCK_SIZE, Time};
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Volume};
use betr_lab::explore::devices::ForkDevice;
use betr_tests::contents::{Contents, all_is_told, contents};
use betr_tests::{Random, clock, creation, nonces, open, tight, tiny};
use bytes::Bytes;

use crate::hostile::fill;
use crate::mended::{mended_on, setting};

/// Every 37th byte is damaged; all bytes would take 15 minutes of processor time. 37 is odd, and fields begin at
/// multiples of 2, 4 and 8, so each byte of a field is tested in some structure.
const BYTES_APART: usize = 61;

/// An image of at most 256 KiB, with nodes on two levels, pending messages, range deletes, and log groups, one of which
/// binds a value late.
struct Image {
    device: ForkDevice,
    /// Its contents; then its contents with one or two groups less, and with an empty log.
    states: Vec<Contents>,
    /// The bytes of the last group, for which no later group vouches.
    last_group: Range<usize>,
    /// The blocks in use; the reserved blocks, which are zero; and all others.
    used: Vec<usize>,
    reserved: Vec<usize>,
    free: Vec<usize>,
    /// The index of the state that a repaired image has, by its digest.
    known: Mutex<HashMap<u128, usize>>,
}

/// The outcome of a repair: the findings before it, and whether the contents differ.
struct Outcome {
    findings: Vec<Finding>,
    is_other: bool,
    device: Arc<ForkDevice>,
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
        let mut states = vec![contents(&device_now()).unwrap()];
        let mut sync = |fs: &mut Fs| {
            fs.volume_mut().sync().unwrap();
            states.insert(0, contents(&device_now()).unwrap());
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
        let (used, free): (Vec<_>, Vec<_>) = (0..256).partition(|block| blocks.get(*block as u64));
        let is_reserved = |block: &usize| {
            let byte = (block * BLOCK_SIZE) as u64;
            reserved().iter().any(|range| range.contains(&byte))
        };
        let (reserved, used): (Vec<_>, Vec<_>) = used.into_iter().partition(is_reserved);
        assert_eq!(reserved.len(), 47);
        Image {
            device: ForkDevice::of(&device.snapshot()),
            states,
            last_group: end - BLOCK_SIZE..end,
            used,
            reserved,
            free,
            known: Mutex::default(),
        }
    }

    /// The contents of a repaired image. Most repaired images are equal, so they are looked up by digest.
    fn contents(&self, device: &Arc<ForkDevice>) -> Cow<'_, Contents> {
        let digest = device.digest();
        if let Some(state) = self.known.lock().unwrap().get(&digest) {
            return Cow::Borrowed(&self.states[*state]);
        }
        let device: Arc<dyn Device> = device.clone();
        let found = contents(&device).unwrap();
        if let Some(state) = self.states.iter().position(|state| *state == found) {
            self.known.lock().unwrap().insert(digest, state);
        }
        Cow::Owned(found)
    }

    /// Repairs `base`, which is the image with one changed byte, and compares the contents.
    fn damage(&self, base: &ForkDevice, at: usize, byte: u8) -> Option<Outcome> {
        let device = Arc::new(base.fork());
        device.write_at(at as u64, &[byte]).unwrap();
        let what = format!("byte {at:#x} made {byte:#x}");
        let outcome = |findings, is_other| Outcome { findings, is_other, device: device.clone() };
        let Some((before, done, _)) = mended_on(&what, device.clone()) else {
            // The check must at least require a replay.
            let device: Arc<dyn Device> = device.clone();
            assert!(contents(&device).is_err(), "{what}: it is not found");
            return None;
        };
        let after = self.contents(&device);
        let sound = &self.states[0];
        let found = |code| before.findings.iter().any(|f| f.code == code);
        // Without a valid header the last group looks like the end of the log.
        let unvouched = self.last_group.contains(&at) || found(Code::LogTorn);
        let shorter = unvouched || found(Code::LogDamaged);
        if !shorter && !found(Code::ValueLost) {
            all_is_told(&what, sound, &after, &done.mended.unwrap_or_default());
            return Some(outcome(before.findings, *after != *sound));
        }
        // A shorter log leaves an earlier state. Acknowledged operations after its end are reported, except directory
        // times and records that cannot be read.
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
        Some(outcome(before.findings, *after != *sound))
    }
}

/// Bytes in use are zeroed, and all of their bits are flipped; unused bytes are sampled. `BETR_BYTES_APART=1` takes all
/// bytes.
#[test]
fn whatever_byte_is_damaged_the_rest_is_repaired() {
    let image = Image::make();
    let used = image.used.len() * BLOCK_SIZE;
    assert!(used > 200 << 10 && used <= 256 << 10, "{used} bytes are in use");
    let used = bytes_of(&image.used);
    let unused = bytes_of(&image.free).step_by(509);
    let [repaired, other] = [0; 2].map(AtomicUsize::new);
    let count = on_all_cores(used.chain(unused), |at| {
        let mut was = [0];
        image.device.read_at(at as u64, &mut was).unwrap();
        for byte in [0, !was[0]].into_iter().filter(|byte| *byte != was[0]) {
            if let Some(outcome) = image.damage(&image.device, at, byte) {
                repaired.fetch_add(1, Ordering::Relaxed);
                other.fetch_add(outcome.is_other.into(), Ordering::Relaxed);
            } else {
                other.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let [repaired, other] = [repaired, other].map(AtomicUsize::into_inner);
    println!("{count} bytes, {repaired} repairs, {other} times something was lost");
    assert!(repaired > count && other < repaired / 4, "{repaired}, {other}");
}

/// Reserved bytes are zero: flipped bits in them are found and cleared. The log has been replayed before, to shorten
/// the test.
#[test]
fn whatever_reserved_byte_is_damaged_nothing_is_lost() {
    let image = Image::make();
    let clean = Arc::new(image.device.fork());
    mended_on("the image", clean.clone()).unwrap();
    let count = on_all_cores(bytes_of(&image.reserved), |at| {
        let Outcome { findings, is_other, device } = image.damage(&clean, at, 0xff).unwrap();
        let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [Code::PaddingDirty], "byte {at:#x}: {findings:?}");
        let mut is = [1];
        device.read_at(at as u64, &mut is).unwrap();
        assert!(!is_other && is == [0], "byte {at:#x}");
    });
    println!("{count} bytes");
}

/// The byte addresses in some blocks.
fn bytes_of(blocks: &[usize]) -> impl Iterator<Item = usize> {
    blocks.iter().flat_map(|block| block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE)
}

/// Calls `act` for every Nth place, on all cores. Returns the number of calls.
fn on_all_cores(places: impl Iterator<Item = usize>, act: impl Fn(usize) + Sync) -> usize {
    let places: Vec<usize> =
        places.step_by(setting("BETR_BYTES_APART").unwrap_or(BYTES_APART)).collect();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let mine = places.iter().skip(half).step_by(2);
            scope.spawn(|| mine.for_each(|at| act(*at)));
        }
    });
    places.len()
}
