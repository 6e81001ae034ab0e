//! The findings of a check depend on the image alone, not on the number of threads or on timing.

use std::io;
use std::sync::Arc;

use betr_core::check::{CATALOG, CheckOptions, Code, Progress, Report, check, memory_needed};
use betr_core::device::{Device, MemoryDevice};
use betr_core::error::Place;
use betr_core::format::{Action, FileType, Inode, MetaKey, MetaValue, Op, RecordMessage, data_key};
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{BLOCK_SIZE, Time, TreeId};
use betr_core::mend::repair_all;
use betr_core::volume::Transaction;
use betr_lab::damage::make_broken;
use betr_tests::{Random, made, tiny};
use bytes::Bytes;

const ALL: CheckOptions = CheckOptions::ALL;
const ZERO: CheckOptions = CheckOptions { memory: 0, ..ALL };

/// A device that requires serial I/O.
struct Ordered(Arc<dyn Device>);

impl Device for Ordered {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, buf)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(at, bytes)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

fn same(a: &Report, b: &Report, what: &str) {
    assert_eq!(a.findings, b.findings, "{what}");
    assert_eq!(a.counts, b.counts, "{what}");
}

/// Checks an image on all cores and on one, with much memory and with little.
fn check_both_ways(image: Vec<u8>, what: &str) -> Report {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(image));
    assert!(!device.requires_serial_io());
    let ordered: Arc<dyn Device> = Arc::new(Ordered(device.clone()));
    let expected = check(&ordered, ALL, &mut ());
    for _ in 0..3 {
        same(&expected, &check(&device, ALL, &mut ()), what);
    }
    same(&expected, &check(&device, ZERO, &mut ()), what);
    same(&expected, &check(&ordered, ZERO, &mut ()), what);
    expected
}

#[test]
fn every_problem_is_found_the_same_on_all_cores() {
    for problem in CATALOG {
        if let Ok(Some(image)) = make_broken(problem.code) {
            check_both_ways(image, problem.name);
        }
    }
}

/// An image with many files, some large enough for a zone of their own, in trees of many nodes.
fn many_files() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    let mut fs = made(device.clone(), tiny());
    let mut random = Random::new(8);
    let root = fs.root().unwrap();
    for number in 0..600 {
        let name = format!("file-{number:04}").into_bytes();
        let new = New::of(FileType::Regular, Attributes::at(Time::default()));
        let file = fs.make(&root, &name, new).unwrap();
        let bytes = if number % 50 == 0 { 40_000 } else { 100 + number };
        fs.write(&file, 0, &Bytes::from(random.bytes(bytes))).unwrap();
    }
    fs.checkpoint().unwrap();
    drop(fs);
    let mut image = vec![0; device.len() as usize];
    device.read_at(0, &mut image).unwrap();
    image
}

#[test]
fn rot_anywhere_is_found_the_same_on_all_cores() {
    let image = many_files();
    let sound = check_both_ways(image.clone(), "sound");
    assert!(sound.is_clean(), "{:?}", sound.findings);
    assert_eq!(sound.counts.inodes, 601);
    assert!(sound.counts.leaves > 64, "{} leaves make few batches", sound.counts.leaves);
    let mut most = 0;
    for step in [3, 7, 31, 97] {
        let mut image = image.clone();
        // After the fixed structures: all kinds of nodes.
        for block in (400..image.len() / BLOCK_SIZE).step_by(step) {
            image[block * BLOCK_SIZE + 700] ^= 0x10;
        }
        let report = check_both_ways(image, &format!("each {step}th block"));
        most = most.max(report.findings.len());
    }
    assert!(most > 20, "{most} findings");
}

/// Records the progress steps.
#[derive(Default)]
struct Steps {
    states: u32,
    steps: Vec<(u32, u64, u64)>,
}

impl Progress for Steps {
    fn states(&mut self, states: u32) {
        assert!(self.steps.is_empty(), "how many there are is said first");
        self.states = states;
    }

    fn step(&mut self, pass: u32, done: u64, total: u64) {
        self.steps.push((pass, done, total));
    }
}

#[test]
fn progress_never_goes_back_and_ends() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(many_files()));
    let mut steps = Steps::default();
    assert!(check(&device, ALL, &mut steps).is_clean());
    assert_eq!(steps.states, 1);
    assert!(steps.steps.is_sorted_by_key(|(pass, done, _)| (*pass, *done)), "{:?}", steps.steps);
    for pass in 1..=3 {
        let here: Vec<_> = steps.steps.iter().filter(|step| step.0 == pass).collect();
        assert!(here.iter().all(|(_, done, total)| done <= total && *total == here[0].2));
        assert!(here.last().is_some_and(|(_, done, total)| done == total), "pass {pass}");
    }
    let leaves = steps.steps.iter().filter(|step| step.0 == 3).count();
    assert!(leaves > 10, "{leaves} steps of the pass over leaves");
}

#[test]
fn bitmaps_of_an_image_take_little_of_it() {
    let blocks = |bytes: u64| bytes / BLOCK_SIZE as u64;
    assert!(memory_needed(blocks(8 << 30)) < 8 << 20);
    assert!(memory_needed(u64::MAX) > 1 << 62, "it does not wrap");
}

/// Files of a cloned directory whose inodes disagree with blocks that the original has as well.
#[test]
fn blocks_behind_lenses_are_held_against_their_files() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let mut fs = made(device.clone(), tiny());
    let root = fs.root().unwrap();
    let new = |kind| New::of(kind, Attributes::at(Time::default()));
    let original = fs.make(&root, b"original", new(FileType::Directory)).unwrap();
    for number in 0..20 {
        let name = format!("file {number:02}");
        let file = fs.make(&original, name.as_bytes(), new(FileType::Regular)).unwrap();
        let data = Bytes::from(Random::new(number).bytes(3 * BLOCK_SIZE));
        fs.write(&file, 0, &data).unwrap();
        // A hole, and a block behind it.
        fs.write(&file, 5 * BLOCK_SIZE as u64, &data.slice(..100)).unwrap();
    }
    let clone = fs.clone_directory(&original, &root, b"clone").unwrap();
    fs.checkpoint().unwrap();
    let zone = clone.zone().unwrap();
    let at = |name: &str| MetaKey::root(zone).child(name.as_bytes());
    let changed = |fs: &Fs, name: &str, change: &dyn Fn(&mut Inode)| {
        let key = at(name).encode();
        let value = fs.volume().get(TreeId::Metadata, &key).unwrap().unwrap();
        let Ok(MetaValue::Inode(mut inode)) = MetaValue::decode(&value, None) else { panic!() };
        change(&mut inode);
        RecordMessage::Point(TreeId::Metadata, key, Action::Insert(inode.encode().into()))
    };
    let messages = vec![
        changed(&fs, "file 03", &|inode| inode.size = 2 * BLOCK_SIZE as u64),
        changed(&fs, "file 07", &|inode| inode.sparse = false),
        RecordMessage::Point(TreeId::Metadata, at("file 11").encode(), Action::Delete),
    ];
    let transaction = Transaction { op: Op::Raw, wall: Time::default(), messages };
    fs.volume_mut().commit(transaction).unwrap();
    fs.checkpoint().unwrap();
    drop((root, original, clone, fs));
    let mut bytes = vec![0; 64 << 20];
    device.read_at(0, &mut bytes).unwrap();
    let report = check_both_ways(bytes, "clones");
    let found: Vec<(Code, Vec<u8>)> = report
        .findings
        .iter()
        .filter_map(|finding| match &finding.place {
            Place::Key(_, key) => Some((finding.code, key.clone())),
            _ => None,
        })
        .collect();
    let block = |name, number| data_key(&at(name).encode(), number).to_vec();
    for (name, blocks) in [("file 03", &[2, 5][..]), ("file 11", &[0, 1, 2, 5])] {
        for number in blocks {
            assert!(found.contains(&(Code::DataWrong, block(name, *number))), "{name} {number}");
        }
    }
    assert!(found.contains(&(Code::HolesUnflagged, at("file 07").encode().to_vec())));
    assert_eq!(found.iter().filter(|(code, _)| *code == Code::DataWrong).count(), 6);
    let repaired = repair_all(&device, &report, ALL, Time::default(), Box::new(|| 9)).unwrap().1;
    assert!(repaired.is_clean(), "{:?}", repaired.findings.first());
}
