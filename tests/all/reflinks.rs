//! Files that share blocks: copies cost nothing until they change, and all space comes back.

use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::error::{Error, Refusal};
use betr_core::format::{FileType, ZoneSizes};
use betr_core::fs::{Attributes, Fs, New, Object, Seek};
use betr_core::ids::{BLOCK_SIZE, Time};
use betr_core::store::Geometry;
use betr_core::volume::Mode;
use betr_lab::explore::Random;
use betr_tests::{clock, create_zoned, made, open, rounds, tight, tiny};
use bytes::Bytes;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A file system of this size, with the defaults of mkfs.
fn usual(bytes: u64) -> (Arc<dyn Device>, Fs) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    let fs = made(device.clone(), Geometry::of_image(bytes));
    (device, fs)
}

fn reopened(device: &Arc<dyn Device>, seed: u64) -> Fs {
    let (volume, _) = open(device.clone(), Mode::ReadWrite, tight(), seed).unwrap();
    Fs::open(volume, clock(1000))
}

fn file(fs: &mut Fs, name: &str) -> Object {
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let root = fs.root().unwrap();
    fs.make(&root, name.as_bytes(), new).unwrap()
}

fn written(fs: &mut Fs, name: &str, bytes: &[u8]) -> Object {
    let object = file(fs, name);
    for (at, part) in bytes.chunks(1 << 20).enumerate() {
        fs.write(&object, (at as u64) << 20, &Bytes::copy_from_slice(part)).unwrap();
    }
    object
}

/// Copies as a loop over copy_file_range(2) does.
fn copied(fs: &mut Fs, from: &Object, to: &Object, at: u64, len: u64) {
    let (mut done, mut shares) = (0, true);
    while done < len {
        let rest = len - done;
        let count = fs.copy_range((from, at + done), (to, at + done), rest, &mut shares).unwrap();
        if count == 0 {
            break;
        }
        done += count;
    }
}

fn all(fs: &Fs, object: &Object) -> Vec<u8> {
    fs.read(object, 0, object.inode().size as usize).unwrap()
}

fn used(fs: &Fs) -> u64 {
    fs.volume().store().space.used_blocks()
}

fn assert_sound(device: &Arc<dyn Device>) {
    let report = check(device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
}

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(len).collect()
}

#[test]
fn a_copy_takes_no_space_until_it_changes() {
    let (device, mut fs) = usual(256 << 20);
    let mut original = random_bytes(1, (12 << 20) + 1234);
    let from = written(&mut fs, "from", &original);
    fs.checkpoint().unwrap();
    let root = fs.root().unwrap();
    let before = used(&fs);
    for number in 0..10 {
        fs.copy(&from, &root, format!("copy {number}").as_bytes()).unwrap();
    }
    fs.checkpoint().unwrap();
    let shared = used(&fs) - before;
    assert!(shared < 600, "{shared} blocks for ten copies of 3,000");
    // 100 bytes in one copy and in the original: the nodes on their paths are copied.
    let copy = fs.resolve(b"/copy 3").unwrap();
    let mut changed = original.clone();
    changed[5 << 20..][..100].fill(7);
    fs.write(&copy, 5 << 20, &vec![7; 100].into()).unwrap();
    original[1 << 20..][..9].fill(9);
    fs.write(&from, 1 << 20, &vec![9; 9].into()).unwrap();
    fs.volume_mut().drain().unwrap();
    fs.checkpoint().unwrap();
    let more = used(&fs) - before - shared;
    assert!(more < 1000, "{more} blocks for two changes");
    assert!(all(&fs, &copy) == changed && all(&fs, &from) == original);
    original[1 << 20..][..9].copy_from_slice(&random_bytes(1, (12 << 20) + 1234)[1 << 20..][..9]);
    let other = fs.resolve(b"/copy 4").unwrap();
    assert!(all(&fs, &other) == original);
    drop((copy, other, from));
    fs.volume_mut().sync().unwrap();
    assert_sound(&device);
    for number in 0..10 {
        fs.unlink(&root, format!("copy {number}").as_bytes()).unwrap();
    }
    fs.unlink(&root, b"from").unwrap();
    for _ in 0..3 {
        fs.volume_mut().drain().unwrap();
        fs.checkpoint().unwrap();
    }
    let left = used(&fs);
    assert!(left + 2800 < before, "{left} blocks, {before} with the file");
    drop((root, fs));
    assert_sound(&device);
}

/// Parts that are shared or copied, at any offsets, with holes and over what is there: as reading and writing does.
#[test]
fn parts_are_copied_whether_or_not_they_are_shared() {
    for seed in 0..rounds(6) {
        let mut random = Random::new(seed);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let zones = ZoneSizes::of_max([4 << 10, 64 << 10, u64::MAX][seed as usize % 3]);
        let volume = create_zoned(device.clone(), tiny(), tight(), zones, seed).unwrap();
        Fs::format(volume, clock(0), Attributes::at(Time::default()))
            .unwrap()
            .checkpoint()
            .unwrap();
        let mut fs = reopened(&device, seed + 1);
        let mut files: Vec<(Object, Vec<u8>)> =
            (0..4).map(|number| (file(&mut fs, &format!("{number}")), Vec::new())).collect();
        for round in 0..120 {
            let name = format!("seed {seed}, round {round}");
            let (a, b) = (random.below(4) as usize, random.below(4) as usize);
            match random.below(8) {
                0..=3 if a != b => {
                    let at = random.below(30) * BLOCK + random.below(8).saturating_sub(6);
                    let len = [random.below(90_000), u64::from(u32::MAX)][random.below(2) as usize];
                    let (from, bytes) = files[a].clone();
                    let (to, old) = &mut files[b];
                    copied(&mut fs, &from, to, at, len);
                    let end = bytes.len().min(at.saturating_add(len) as usize);
                    if (at as usize) < end {
                        old.resize(old.len().max(end), 0);
                        old[at as usize..end].copy_from_slice(&bytes[at as usize..end]);
                    }
                }
                4 | 5 => {
                    let at = random.below(100_000);
                    let bytes = random.bytes(random.clone().below(30_000) as usize + 1);
                    let (to, old) = &mut files[a];
                    fs.write(to, at, &bytes.clone().into()).unwrap();
                    let end = at as usize + bytes.len();
                    old.resize(old.len().max(end), 0);
                    old[at as usize..end].copy_from_slice(&bytes);
                }
                6 => {
                    let size = random.below(120_000);
                    fs.truncate(&files[a].0, size).unwrap();
                    files[a].1.resize(size as usize, 0);
                }
                _ => fs.checkpoint().unwrap(),
            }
            for (object, bytes) in &files {
                assert!(all(&fs, object) == *bytes, "{name}, inode {}", object.ino());
            }
            if round % 20 == 0 {
                fs.volume_mut().sync().unwrap();
                assert_sound(&device);
            }
        }
        assert!(fs.volume().store().table.shares(), "seed {seed}: nothing was shared");
        fs.checkpoint().unwrap();
        assert_sound(&device);
    }
}

#[test]
fn holes_are_shared_as_holes() {
    let (device, mut fs) = usual(64 << 20);
    let from = file(&mut fs, "from");
    fs.write(&from, 3 << 20, &random_bytes(2, 1 << 20).into()).unwrap();
    fs.truncate(&from, 1 << 40).unwrap();
    let root = fs.root().unwrap();
    fs.copy(&from, &root, b"to").unwrap();
    let to = fs.resolve(b"/to").unwrap();
    assert_eq!(to.inode().size, 1 << 40);
    assert_eq!(fs.stored_bytes(&to).unwrap(), 1 << 20);
    assert_eq!(fs.seek(&to, 0, Seek::Data).unwrap(), 3 << 20);
    assert!(matches!(fs.seek(&to, 4 << 20, Seek::Data), Err(Error::Refused(Refusal::NoData))));
    drop((from, to, root));
    fs.checkpoint().unwrap();
    drop(fs);
    assert_sound(&device);
}

/// A full volume of copies and snapshots: what is deleted as a whole always can be, and each snapshot dropped.
#[test]
fn a_full_volume_of_copies_can_be_emptied() {
    for seed in 0..rounds(4) {
        let (device, mut fs) = usual(48 << 20);
        let mut random = Random::new(seed);
        let root = fs.root().unwrap();
        let from = written(&mut fs, "from", &random_bytes(seed, 6 << 20));
        let (mut names, mut snapshots) = (vec!["from".to_owned()], 0);
        'full: for number in 0.. {
            let name = format!("copy {number}");
            match fs.copy(&from, &root, name.as_bytes()) {
                Ok(_) => names.push(name),
                Err(Error::NoSpace { .. }) => {
                    names.extend(fs.find(&root, name.as_bytes()).unwrap().map(|_| name));
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            let copy = fs.resolve(names[names.len() - 1].as_bytes()).unwrap();
            for _ in 0..3 {
                let at = random.below(6 << 20);
                match fs.write(&copy, at, &random.bytes(5000).into()) {
                    Ok(()) => {}
                    Err(Error::NoSpace { .. }) => break 'full,
                    Err(error) => panic!("{error}"),
                }
            }
            if number % 16 == 3 && fs.volume_mut().take_hold(&format!("{number}")).is_ok() {
                snapshots += 1;
            }
        }
        assert!(names.len() > 6 && snapshots > 0, "{} copies, {snapshots}", names.len());
        fs.volume_mut().sync().unwrap();
        assert_sound(&device);
        drop((from, root, fs));
        let mut fs = reopened(&device, 70 + seed);
        let root = fs.root().unwrap();
        for hold in fs.volume().holds().unwrap() {
            fs.volume_mut().drop_hold(&hold.name).unwrap();
        }
        random.shuffle(&mut names);
        for name in &names {
            fs.unlink(&root, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for _ in 0..3 {
            fs.volume_mut().drain().unwrap();
            fs.checkpoint().unwrap();
        }
        assert!(used(&fs) < 3500, "{} blocks", used(&fs));
        drop((root, fs));
        assert_sound(&device);
    }
}

/// A directory cloned and changed again and again, each clone from the last, until the volume refuses: it is full then. Of
/// a change above a leaf that is too large for a copy half is in use and half is set aside. Each removal succeeds.
#[test]
fn changed_clones_of_a_directory_fill_a_volume() {
    for (size, least, most) in [(3000, 15_000, 7), (1 << 20, 8000, 11)] {
        let (device, mut fs) = usual(64 << 20);
        let root = fs.root().unwrap();
        let directory = New::of(FileType::Directory, Attributes::at(Time::default()));
        let directory = fs.make(&root, b"0", directory).unwrap();
        for number in 0..4 {
            let new = New::of(FileType::Regular, Attributes::at(Time::default()));
            let file = fs.make(&directory, format!("{number}").as_bytes(), new).unwrap();
            fs.write(&file, 0, &random_bytes(number, size).into()).unwrap();
        }
        fs.checkpoint().unwrap();
        let before = used(&fs);
        let mut clones = 0;
        let refused = loop {
            let last = fs.resolve(format!("{clones}").as_bytes()).unwrap();
            let name = format!("{}", clones + 1);
            if let Err(error) = fs.clone_directory(&last, &root, name.as_bytes()) {
                break error;
            }
            clones += 1;
            let file = fs.resolve(format!("{clones}/2").as_bytes()).unwrap();
            if let Err(error) = fs.write(&file, 100, &Bytes::from_static(b"changed")) {
                break error;
            }
        };
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        assert!(used(&fs) > least, "{} blocks in use, and {refused}", used(&fs));
        let left = (64 << 8) - before;
        assert!(clones * most > left, "{clones} clones in {left} blocks");
        assert_sound(&device);
        let mut names: Vec<u64> = (1..=clones).collect();
        Random::new(size as u64).shuffle(&mut names);
        for name in names {
            let name = format!("{name}");
            fs.remove_tree(&root, name.as_bytes())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for _ in 0..3 {
            fs.volume_mut().drain().unwrap();
            fs.checkpoint().unwrap();
        }
        assert!(used(&fs) < before + 40, "{} blocks, and {before} before", used(&fs));
        drop((root, directory, fs));
        assert_sound(&device);
    }
}
