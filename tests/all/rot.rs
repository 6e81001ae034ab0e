//! Rot in data that was acknowledged through the log: in each group, and in each extent that a group binds.
//!
//! A later group vouches for all but the last one. Rot in a vouched group is damage: it is reported by path, and never
//! read as other data. Rot in the last group cannot be told from a torn tail.

use std::sync::Arc;

use betr_core::check::{CheckOptions, Code, Finding, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::error::{Error, Place};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{BLOCK_SIZE, Extent, Time};
use betr_core::log::{End, LogReader};
use betr_core::volume::Mode;
use betr_tests::{Random, clock, formatted, middling, open, roomy, tiny};
use bytes::Bytes;

const ALL: CheckOptions = CheckOptions::ALL;
const FILES: usize = 6;

/// A volume with a checkpoint, followed by one log group for each of a few files.
struct Story {
    device: Arc<MemoryDevice>,
    files: Vec<(Vec<u8>, Vec<u8>)>,
    /// The byte range of each group.
    groups: Vec<std::ops::Range<u64>>,
    /// The extents that each group binds.
    bound: Vec<Vec<Extent>>,
    /// The number of operations in each group.
    operations: Vec<usize>,
}

fn tell() -> Story {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let mut fs = formatted(device.clone(), tiny(), roomy(), 3);
    fs.checkpoint().unwrap();
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, roomy(), 4).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    fs.checkpoint().unwrap();
    let mut random = Random::new(5);
    let mut files = Vec::new();
    for number in 0..FILES {
        let name = format!("file-{number}").into_bytes();
        let new = New::of(FileType::Regular, Attributes::at(Time::default()));
        let root = fs.root().unwrap();
        let file = fs.make(&root, &name, new).unwrap();
        let data = random.bytes(17_000 + 11_000 * number);
        fs.write(&file, 0, &Bytes::from(data.clone())).unwrap();
        fs.volume_mut().sync().unwrap();
        files.push((name, data));
    }
    let superblock = fs.volume().superblock().clone();
    drop(fs);
    let disk = Disk::new(device.clone());
    let mut reader = LogReader::new(&disk, &superblock);
    let (mut groups, mut bound, mut operations) = (Vec::new(), Vec::new(), Vec::new());
    while let Ok(scanned) = reader.next().unwrap() {
        let start = superblock.log_start.byte() + scanned.unit * BLOCK_SIZE as u64;
        groups.push(start..start + scanned.bytes.len() as u64);
        let extents = scanned.group.bindings.iter().filter_map(|binding| binding.to.extent());
        bound.push(extents.collect::<Vec<_>>());
        operations.push(scanned.group.records.len());
    }
    assert_eq!(groups.len(), FILES);
    assert!(bound.iter().all(|extents| !extents.is_empty()), "every group binds something");
    Story { device, files, groups, bound, operations }
}

impl Story {
    /// Calls `look` with the image while one byte is changed.
    fn rot(&self, at: u64, look: impl FnOnce(Arc<dyn Device>)) {
        let mut byte = [0];
        self.device.read_at(at, &mut byte).unwrap();
        self.device.write_at(at, &[byte[0] ^ 0x40]).unwrap();
        look(self.device.clone());
        self.device.write_at(at, &byte).unwrap();
    }

    /// Reads file `number`.
    fn read(&self, fs: &Fs, number: usize) -> betr_core::Result<Vec<u8>> {
        let file = fs.lookup(&fs.root()?, &self.files[number].0)?;
        fs.read(&file, 0, 1 << 20)
    }
}

#[test]
fn a_rotten_extent_loses_what_is_in_it_and_says_so() {
    let story = tell();
    let (mut lost, mut unneeded) = (0, 0);
    for (number, extents) in story.bound.iter().enumerate() {
        for extent in extents {
            for at in (0..extent.bytes()).step_by(1021) {
                let place = extent.start.byte() + at;
                story.rot(place, |device| match judge(&story, device, number, place) {
                    true => lost += 1,
                    false => unneeded += 1,
                });
            }
        }
    }
    println!("{lost} places lost something, {unneeded} were not needed");
    assert!(lost > 100, "{lost} lost, {unneeded} not needed");
}

/// Whether rot at `place`, in an extent bound by group `number`, loses anything.
fn judge(story: &Story, device: Arc<dyn Device>, number: usize, place: u64) -> bool {
    let name = format!("group {number}, b:{place:#x}");
    let report = check(&device, ALL, &mut ());
    let survey = report.log.clone().unwrap();
    let view = open(device.clone(), Mode::ReadOnly, roomy(), 6).unwrap().0;
    let fs = Fs::open(view, clock(0));
    let writable = open(device, Mode::ReadWrite, roomy(), 8);
    if survey.groups as usize == FILES && survey.lost.is_empty() {
        assert!(report.is_clean(), "{name}: {:?}", report.findings);
        assert!((0..FILES).all(|n| story.read(&fs, n).unwrap() == story.files[n].1), "{name}");
        return false;
    }
    if number == FILES - 1 {
        assert!(matches!(survey.end, End::Torn { .. }), "{name}: {:?}", survey.end);
        assert!(report.is_clean() && writable.is_ok(), "{name}: {:?}", report.findings);
        assert!((0..number).all(|n| story.read(&fs, n).unwrap() == story.files[n].1), "{name}");
        assert!(story.read(&fs, number).is_err(), "{name}");
        return true;
    }
    assert_eq!(survey.groups as usize, FILES, "{name}: the rest of the log counts");
    assert!(writable.is_err(), "{name}: damage opens for reading only");
    let path = [b"/", &story.files[number].0[..]].concat();
    assert!(!survey.lost.is_empty());
    for finding in report.findings.iter().filter(|f| f.code == Code::ValueLost) {
        assert_eq!(finding.place, Place::Path(path.clone()), "{name}");
    }
    let said = report.findings.iter().filter(|f| f.code == Code::ValueLost).count();
    assert_eq!(said, survey.lost.len(), "{name}: {:?}", report.findings);
    assert!(survey.lost_values() >= said as u64);
    for other in 0..FILES {
        match story.read(&fs, other) {
            Ok(data) => assert!(other != number && data == story.files[other].1, "{name}"),
            Err(error) => assert!(other == number && error.is_damage(), "{name}: {error}"),
        }
    }
    true
}

#[test]
fn a_rotten_group_stops_the_replay_and_lists_what_is_beyond() {
    let story = tell();
    for (number, range) in story.groups.iter().enumerate() {
        for at in range.clone().step_by(37) {
            story.rot(at, |device| {
                let report = check(&device, ALL, &mut ());
                let survey = report.log.as_ref().unwrap();
                assert_eq!(survey.groups as usize, number, "b:{at:#x}");
                let last = number == FILES - 1;
                assert_eq!(report.is_clean(), last, "b:{at:#x}: {:?}", report.findings);
                let lost = report.findings.iter().filter(|f| f.code == Code::OperationLost);
                let (unsure, sure): (Vec<&Finding>, Vec<_>) =
                    lost.partition(|f| f.detail.ends_with("read"));
                let beyond: usize = story.operations[number + 1..].iter().sum();
                assert_eq!(sure.len(), beyond, "b:{at:#x}");
                // Operations of the damaged group are reported by path as far as they can be read; the rest is reported
                // as unreadable.
                let legible = unsure.iter().filter(|f| matches!(f.place, Place::Path(_))).count();
                let own = if last { 0 } else { story.operations[number] };
                assert!(
                    legible == own || legible + 1 == own && unsure.len() == own,
                    "b:{at:#x}: {unsure:?}"
                );
                match open(device, Mode::ReadWrite, roomy(), 8) {
                    Ok(_) => assert!(last),
                    Err(Error::Corrupt(_)) => assert!(!last),
                    Err(error) => panic!("b:{at:#x}: {error}"),
                }
            });
        }
    }
}

/// A rotten block in a bound leaf loses its own value, and no other of the same basement.
#[test]
fn a_rotten_block_of_a_bound_leaf_loses_one_value() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let mut fs = formatted(device.clone(), middling(), roomy(), 3);
    fs.checkpoint().unwrap();
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, roomy(), 4).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    fs.checkpoint().unwrap();
    let root = fs.root().unwrap();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", new).unwrap();
    let blocks = 24;
    let data = Random::new(5).bytes(blocks * BLOCK_SIZE);
    fs.write(&file, 0, &Bytes::from(data.clone())).unwrap();
    fs.volume_mut().sync().unwrap();
    fs.make(&root, b"another", New::of(FileType::Regular, Attributes::at(Time::default())))
        .unwrap();
    fs.volume_mut().sync().unwrap();
    drop((root, file, fs));
    let image = device.snapshot();
    for block in 0..blocks {
        let mark = &data[block * BLOCK_SIZE..][..16];
        let at = image.windows(16).position(|bytes| bytes == mark).unwrap();
        let mut rotten = image.clone();
        rotten[at + 100] ^= 1;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(rotten));
        let report = check(&device, ALL, &mut ());
        let log = report.log.unwrap();
        assert_eq!(log.lost_values(), 1, "block {block}: {:?}", report.findings);
    }
}
