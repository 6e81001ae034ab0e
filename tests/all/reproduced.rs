//! Repeatable changes: nonces derived from the superblock that was opened (SPEC 14), and the remains of an interrupted
//! attempt.

use std::sync::Arc;

use betr_core::Error;
use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::BLOCK_SIZE;
use betr_core::space::Layout;
use betr_core::volume::{Mode, OpenOptions, Volume};
use betr_tests::{clock, formatted, nonces, roomy, tiny};
use bytes::Bytes;

const BYTES: u64 = 5 << 20;
/// Blocks in each half of the superblock ring.
const RING_BLOCKS: usize = 16;

fn device_of(image: &[u8]) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(image.len() as u64));
    device.write_at(0, image).unwrap();
    device
}

/// An image with some files.
fn image() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(BYTES));
    let mut fs = formatted(device.clone(), tiny(), roomy(), 3);
    change(&mut fs, 0);
    fs.checkpoint().unwrap();
    drop(fs);
    device.snapshot()
}

fn change(fs: &mut Fs, salt: u64) {
    let root = fs.root().unwrap();
    for number in 0..60u64 {
        let name = format!("{}", (number * 7 + salt) % 100).into_bytes();
        if fs.find(&root, &name).unwrap().is_some() {
            fs.unlink(&root, &name).unwrap();
        }
        let new = New::of(FileType::Regular, Attributes::at(fs.now()));
        let file = fs.make(&root, &name, new).unwrap();
        let data = Bytes::from(vec![(number + salt) as u8 | 1; (number * 131 + salt) as usize]);
        fs.write(&file, 0, &data).unwrap();
    }
}

fn reproducible() -> OpenOptions {
    let never = Box::new(|| panic!("nonces follow from the superblock"));
    OpenOptions { reproducible: true, ..OpenOptions::new(Mode::ReadWrite, never) }
}

/// Changes an image as offline tools do. Returns the image before its last checkpoint and after it.
fn changed(image: &[u8], salt: u64) -> [Vec<u8>; 2] {
    let device = device_of(image);
    let volume = Volume::open(device.clone(), reproducible()).unwrap().0;
    let mut fs = Fs::open(volume, clock(10));
    fs.checkpoint().unwrap();
    fs.volume_mut().stop_logging().unwrap();
    let before = device.snapshot();
    change(&mut fs, salt);
    fs.checkpoint().unwrap();
    drop(fs);
    [before, device.snapshot()]
}

fn edited(image: &[u8], salt: u64) -> Vec<u8> {
    let [_, after] = changed(image, salt);
    after
}

/// `newer` with the superblocks of `older`: none of its own became durable.
fn rolled_back(newer: &[u8], older: &[u8]) -> Vec<u8> {
    let ring = Layout::new(BYTES, 128 << 10).unwrap().ring;
    let mut image = newer.to_vec();
    for start in ring {
        let at = start.0 as usize * BLOCK_SIZE;
        let half = at..at + RING_BLOCKS * BLOCK_SIZE;
        image[half.clone()].copy_from_slice(&older[half]);
    }
    image
}

/// All names and contents of an image, which must be undamaged.
fn contents(image: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let device: Arc<dyn Device> = device_of(image);
    let report = check(&device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
    let options = OpenOptions::new(Mode::ReadOnly, nonces(1));
    let (volume, recovery) = Volume::open(device, options).unwrap();
    assert_eq!(recovery.survey.records, 0, "no group that was left behind counts");
    let fs = Fs::open(volume, clock(0));
    let root = fs.root().unwrap();
    let read = |name: u64| {
        let name = name.to_string().into_bytes();
        let file = fs.find(&root, &name).unwrap()?;
        let size = file.inode().size as usize;
        Some((name, fs.read(&file, 0, size).unwrap()))
    };
    (0..100).filter_map(read).collect()
}

#[test]
fn the_same_changes_give_the_same_image() {
    let before = image();
    let (first, second) = (edited(&before, 1), edited(&before, 1));
    assert!(first == second);
    assert!(first != edited(&before, 2));
    assert_ne!(contents(&first), contents(&edited(&before, 2)));
    // The next nonces derive from the new superblock.
    assert!(edited(&first, 2) == edited(&second, 2));
}

#[test]
fn a_try_that_was_cut_off_does_no_harm() {
    let image = image();
    let [before, first] = changed(&image, 1);
    let second = edited(&image, 2);
    let cut_off = rolled_back(&first, &before);
    assert!(cut_off != before, "the try has written something");
    assert_eq!(contents(&cut_off), contents(&image));
    for (salt, expected) in [(1, &first), (2, &second)] {
        let again = edited(&cut_off, salt);
        assert_eq!(contents(&again), contents(expected), "{salt}");
        assert_eq!(contents(&edited(&again, 3)), contents(&edited(expected, 3)), "{salt}");
    }
}

/// The image after a mount, whose nonces are random, has made and synced this change.
fn mounted(image: &[u8], seed: u64) -> Vec<u8> {
    let device = device_of(image);
    let options = OpenOptions::new(Mode::ReadWrite, nonces(seed));
    let mut fs = Fs::open(Volume::open(device.clone(), options).unwrap().0, clock(5));
    fs.checkpoint().unwrap();
    remove_one(&mut fs);
    fs.volume_mut().sync().unwrap();
    let crashed = device.snapshot();
    drop(fs);
    crashed
}

fn remove_one(fs: &mut Fs) {
    let root = fs.root().unwrap();
    fs.unlink(&root, b"7").unwrap();
}

#[test]
fn a_log_with_records_keeps_them_and_has_random_nonces() {
    let image = image();
    let device = device_of(&mounted(&image, 1));
    let options = OpenOptions { nonces: nonces(2), ..reproducible() };
    let (volume, recovery) = Volume::open(device, options).unwrap();
    assert_eq!(recovery.survey.records, 1);
    let fs = Fs::open(volume, clock(0));
    assert!(fs.find(&fs.root().unwrap(), b"7").unwrap().is_none());
}

#[test]
fn groups_that_were_left_behind_do_not_count() {
    let image = image();
    let log = Layout::new(BYTES, 128 << 10).unwrap().log_start.0 as usize * BLOCK_SIZE;
    for seed in 0..20 {
        let mut torn = mounted(&image, seed);
        let unit =
            torn[log..].chunks(BLOCK_SIZE).take(32).position(|unit| unit[..7] == *b"\xbeBETRlg");
        torn[log + unit.unwrap() * BLOCK_SIZE + 200] ^= 1;
        let again = edited(&torn, seed);
        assert_eq!(contents(&again), contents(&edited(&image, seed)));
        assert!(again == edited(&torn, seed));
        assert_eq!(contents(&edited(&again, 1)), contents(&edited(&edited(&image, seed), 1)));
    }
}

#[test]
fn such_a_volume_writes_no_log_groups() {
    let volume = Volume::open(device_of(&image()), reproducible()).unwrap().0;
    let mut fs = Fs::open(volume, clock(10));
    fs.checkpoint().unwrap();
    remove_one(&mut fs);
    let refused = fs.volume_mut().sync();
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
}
