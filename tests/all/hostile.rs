//! Damaged images: the checker reports every flipped bit of a structure, and nothing panics.
//!
//! By default a sample of the bits is flipped; `BETR_FLIP=all` flips every one.

use std::ops::Range;
use std::sync::Arc;

use betr_core::check::{CheckOptions, Code, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{FileType, group_length};
use betr_core::fs::{Attributes, Fs, New, Walk};
use betr_core::ids::{BLOCK_SIZE, Time};
use betr_core::volume::Mode;
use betr_tests::{clock, formatted, open, tight, tiny};
use bytes::Bytes;

const IMAGE: u64 = 2 << 20;
const ALL: CheckOptions = CheckOptions::ALL;

/// Makes files whose lengths are multiples of `unit`; some get attributes, some are removed again.
pub(crate) fn fill(fs: &mut Fs, numbers: Range<u32>, unit: usize) {
    let root = fs.root().unwrap();
    let attributes = Attributes::at(Time::default());
    for number in numbers {
        let name = format!("file-{number:03}");
        let file = fs.make(&root, name.as_bytes(), New::of(FileType::Regular, attributes)).unwrap();
        let data = vec![number as u8 + 1; unit * (1 + number as usize % 9)];
        fs.write(&file, 0, &Bytes::from(data)).unwrap();
        if number % 3 == 0 {
            fs.set_xattrs(&file, &[(b"user.note".to_vec(), vec![7; 40])]).unwrap();
        }
        if number % 5 == 4 {
            fs.unlink(&root, name.as_bytes()).unwrap();
        }
    }
}

/// An image with deep trees, pending messages, range deletes and a few checkpoints.
pub(crate) fn image(len: u64) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(len));
    let mut fs = formatted(device.clone(), tiny(), tight(), 1);
    fill(&mut fs, 0..30, 90);
    fs.checkpoint().unwrap();
    drop(fs);
    for round in 1..4 {
        let volume = open(device.clone(), Mode::ReadWrite, tight(), round).unwrap().0;
        let mut fs = Fs::open(volume, clock(1000));
        fill(&mut fs, 20 + 10 * round as u32..30 + 10 * round as u32, 90);
        fs.checkpoint().unwrap();
    }
    device.snapshot()
}

/// The bits to flip: in every used block outside the log, in the slots of the ring, and in the space map. The area
/// around the identity block is among the fixed blocks.
fn bits(image: &[u8]) -> Vec<u64> {
    let device = Arc::new(MemoryDevice::from(image.to_vec()));
    let (volume, _) = open(device, Mode::Checkpoint, tight(), 1).unwrap();
    let superblock = volume.superblock();
    let log = superblock.log_start.0..superblock.log_start.0 + superblock.log_units;
    let used = volume.store().space.used();
    let blocks = (0..used.len()).filter(|block| used.get(*block) && !log.contains(block));
    let all = std::env::var("BETR_FLIP").is_ok_and(|what| what == "all");
    let per_block = 8 * BLOCK_SIZE as u64;
    let chosen = |block: u64| {
        // A different bit of every byte, and more bits where a head is likely.
        let step = if all { 1 } else { 997 };
        (0..per_block).filter(move |bit| {
            bit % step == block % step.min(per_block) || (!all && *bit < 640 && bit % 37 == 0)
        })
    };
    // The boot area consists of zeros, so a sample is enough.
    let boot = |block: u64| block < 32 && block != 16 || (48..64).contains(&block);
    blocks
        .filter(|block| !boot(*block) || block % 8 == 0)
        .flat_map(|block| chosen(block).map(move |bit| block * per_block + bit))
        .collect()
}

#[test]
fn every_flipped_bit_is_found() {
    let image = image(IMAGE);
    let sound: Arc<dyn Device> = Arc::new(MemoryDevice::from(image.clone()));
    let report = check(&sound, ALL, &mut ());
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert!(report.counts.pending > 10 && report.counts.nodes > 12, "{:?}", report.counts);
    let bits = bits(&image);
    let halves = bits.chunks(bits.len().div_ceil(2));
    let missed: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = halves.map(|bits| scope.spawn(|| missed(&image, bits))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    println!("{} bits flipped, {:?}", bits.len(), report.counts);
    let at = |bit: &u64| format!("b:{:#x} bit {}", bit / 8, bit % 8);
    assert!(
        missed.is_empty(),
        "{} bits missed, such as {:?}",
        missed.len(),
        missed.iter().take(9).map(at).collect::<Vec<_>>()
    );
}

/// The bits whose change the checker does not notice.
fn missed(image: &[u8], bits: &[u64]) -> Vec<u64> {
    let device = Arc::new(MemoryDevice::from(image.to_vec()));
    let state: Arc<dyn Device> = device.clone();
    let flip = |bit: u64| {
        let mut byte = [0];
        device.read_at(bit / 8, &mut byte).unwrap();
        device.write_at(bit / 8, &[byte[0] ^ 1 << (bit % 8)]).unwrap();
    };
    let mut missed = Vec::new();
    for bit in bits {
        flip(*bit);
        if check(&state, ALL, &mut ()).findings.is_empty() {
            missed.push(*bit);
        }
        flip(*bit);
    }
    missed
}

/// Reads everything; errors are allowed, panics are not.
pub(crate) fn read_all(device: Arc<dyn Device>) -> betr_core::Result<()> {
    let volume = open(device, Mode::ReadOnly, tight(), 3)?.0;
    let fs = Fs::open(volume, clock(0));
    let mut walk = Walk::new(fs.root()?);
    while let Some((_, object)) = walk.next_object(&fs)? {
        fs.xattrs(&object)?;
        if object.inode().kind == FileType::Regular {
            fs.read(&object, 0, 1 << 20)?;
        }
    }
    Ok(())
}

#[test]
fn readers_never_believe_a_flipped_bit() {
    let image = image(IMAGE);
    let original: Arc<dyn Device> = Arc::new(MemoryDevice::from(image.clone()));
    read_all(original).unwrap();
    let device = Arc::new(MemoryDevice::from(image.clone()));
    for bit in bits(&image).iter().step_by(7) {
        let at = (bit / 8) as usize;
        device.write_at(bit / 8, &[image[at] ^ 1 << (bit % 8)]).unwrap();
        // Bytes that no read needs may be damaged without an error.
        let _ = read_all(device.clone());
        device.write_at(bit / 8, &[image[at]]).unwrap();
    }
}

#[test]
fn damage_in_the_log_is_told_from_its_tail() {
    let device = Arc::new(MemoryDevice::from(image(IMAGE)));
    let volume = open(device.clone(), Mode::ReadWrite, tight(), 5).unwrap().0;
    let mut fs = Fs::open(volume, clock(5000));
    fs.checkpoint().unwrap();
    let start = fs.volume().superblock().log_start.byte();
    let head = fs.volume().superblock().log_head;
    let mut ends = vec![head];
    for round in 0..3 {
        fill(&mut fs, 100 + round..101 + round, 90);
        fs.volume_mut().sync().unwrap();
        ends.push(head + fs.volume().log_fill().0 / BLOCK_SIZE as u64);
    }
    drop(fs);
    let image = device.snapshot();
    let state: Arc<dyn Device> = device.clone();
    assert!(check(&state, ALL, &mut ()).is_clean());
    for group in 0..3 {
        let range =
            start + ends[group] * BLOCK_SIZE as u64..start + ends[group + 1] * BLOCK_SIZE as u64;
        let length = group_length(&image[range.start as usize..]).unwrap() as u64;
        let padding = range.start + length..range.end;
        for at in range.step_by(61) {
            device.write_at(at, &[image[at as usize] ^ 0x10]).unwrap();
            let report = check(&state, ALL, &mut ());
            let found = |code| report.findings.iter().any(|f| f.code == code);
            let damaged = found(Code::LogDamaged);
            let groups = report.log.as_ref().map_or(0, |log| log.groups);
            // The last acknowledged group cannot be told from a torn tail.
            if padding.contains(&at) {
                let code = if group < 2 { Code::PaddingDirty } else { Code::LogTorn };
                assert!(found(code) && !damaged, "b:{at:#x}: {:?}", report.findings);
                assert_eq!(groups, 3, "b:{at:#x}");
            } else {
                assert_eq!(damaged, group < 2, "group {group}, b:{at:#x}: {:?}", report.findings);
                assert_eq!(groups, group as u64, "group {group}, b:{at:#x}");
            }
            assert_eq!(open(device.clone(), Mode::ReadWrite, tight(), 6).is_err(), damaged);
            device.write_at(at, &[image[at as usize]]).unwrap();
        }
    }
}
