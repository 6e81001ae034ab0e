//! Files with holes: SEEK_DATA and SEEK_HOLE, fallocate(2), and copies of ranges.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use super::refused;
use crate::fixture::{Mounted, Random, System, open, system};

const MIB: u64 = 1 << 20;

/// The ranges of data in a file, as lseek(2) reports them.
fn data(file: &File) -> Vec<(u64, u64)> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    loop {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return ranges,
            Err(errno) => panic!("SEEK_DATA at {at}: {errno}"),
        };
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        assert!(at > start, "the hole behind the data at {start} is at {at}");
        ranges.push((start, at));
    }
}

#[test]
fn holes_are_found() {
    let Some(mut mount) = Mounted::new("") else { return };
    let file = open(&mount.at("file"), OFlags::empty());
    assert_eq!(data(&file), []);
    refused(Errno::NXIO, seek(&file, SeekFrom::Hole(0)));
    file.write_all_at(&[1; 8192], 2 * MIB).unwrap();
    file.write_all_at(&[1; 4096], 5 * MIB).unwrap();
    file.set_len(9 * MIB).unwrap();
    let expected = [(2 * MIB, 2 * MIB + 8192), (5 * MIB, 5 * MIB + 4096)];
    assert_eq!(data(&file), expected);
    // Within data, within a hole, at the end and after it.
    assert_eq!(seek(&file, SeekFrom::Data(2 * MIB + 100)), Ok(2 * MIB + 100));
    assert_eq!(seek(&file, SeekFrom::Hole(2 * MIB + 100)), Ok(2 * MIB + 8192));
    assert_eq!(seek(&file, SeekFrom::Hole(MIB + 5)), Ok(MIB + 5));
    assert_eq!(seek(&file, SeekFrom::Hole(6 * MIB)), Ok(6 * MIB));
    refused(Errno::NXIO, seek(&file, SeekFrom::Data(6 * MIB)));
    refused(Errno::NXIO, seek(&file, SeekFrom::Hole(9 * MIB)));
    refused(Errno::NXIO, seek(&file, SeekFrom::Data(10 * MIB)));
    assert!(file.metadata().unwrap().blocks() * 512 < MIB);
    drop(file);
    mount.settle();
    assert_eq!(data(&File::open(mount.at("file")).unwrap()), expected);
}

#[test]
fn the_end_of_data_is_a_hole() {
    let Some(mount) = Mounted::new("") else { return };
    fs::write(mount.at("file"), vec![1; 10_000]).unwrap();
    let file = File::open(mount.at("file")).unwrap();
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(10_000));
    assert_eq!(seek(&file, SeekFrom::Data(9999)), Ok(9999));
    refused(Errno::NXIO, seek(&file, SeekFrom::Data(10_000)));
}

#[test]
fn a_file_may_be_larger_than_its_image() {
    let Some(mut mount) = Mounted::new("") else { return };
    const FAR: u64 = 1 << 40;
    let file = open(&mount.at("file"), OFlags::empty());
    file.write_all_at(b"far away", FAR).unwrap();
    file.write_all_at(b"near", 4).unwrap();
    drop(file);
    mount.unmount();
    mount.fsck();
    mount.mount("");
    let file = open(&mount.at("file"), OFlags::empty());
    let meta = file.metadata().unwrap();
    assert!(meta.size() == FAR + 8 && meta.blocks() < 1000, "{meta:?}");
    let mut bytes = [0; 12];
    file.read_exact_at(&mut bytes, FAR - 4).unwrap();
    assert_eq!(&bytes, b"\0\0\0\0far away");
    assert_eq!(data(&file).len(), 2);
    file.set_len(8).unwrap();
    drop(file);
    mount.settle();
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"\0\0\0\0near");
}

#[test]
fn space_is_reserved_punched_and_zeroed() {
    let Some(mut mount) = Mounted::new("") else { return };
    let content = Random::new(4, 0).bytes(1 << 20);
    let file = open(&mount.at("file"), OFlags::empty());
    file.write_all_at(&content, 0).unwrap();
    let mut expected = content.clone();
    let (keep, punch, zero) =
        (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE);
    let read = || fs::read(mount.at("file")).unwrap();

    // Existing data stays; the file grows, unless KEEP_SIZE is set.
    fallocate(&file, FallocateFlags::empty(), 1000, 2000).unwrap();
    assert!(read() == expected);
    fallocate(&file, keep, MIB, MIB).unwrap();
    assert!(read() == expected);
    fallocate(&file, FallocateFlags::empty(), MIB + 5000, 1000).unwrap();
    expected.resize((1 << 20) + 6000, 0);
    assert!(read() == expected);

    // Punching a hole, of whole blocks or not, never changes the size.
    for (at, len) in [(65_536, 65_536), (200_001, 50_003), (4096, 100), (MIB + 4000, 1 << 30)] {
        fallocate(&file, punch | keep, at, len).unwrap();
        let end = expected.len().min((at + len) as usize);
        expected[at as usize..end].fill(0);
        assert!(read() == expected, "punched {len} at {at}");
    }
    assert_eq!(seek(&file, SeekFrom::Hole(60_000)), Ok(65_536));

    for (flags, at, len) in
        [(zero, 300_000, 100_000), (zero | keep, MIB, 2 * MIB), (zero, MIB, 50_000)]
    {
        fallocate(&file, flags, at, len).unwrap();
        let end = (at + len) as usize;
        if !flags.contains(keep) {
            expected.resize(expected.len().max(end), 0);
        }
        let end = end.min(expected.len());
        expected[at as usize..end].fill(0);
        assert!(read() == expected, "zeroed {len} at {at} with {flags:?}");
    }
    refused(Errno::INVAL, fallocate(&file, FallocateFlags::empty(), 0, 0));
    refused(Errno::OPNOTSUPP, fallocate(&file, punch, 0, 4096));
    refused(Errno::BADF, fallocate(File::open(mount.at("file")).unwrap(), keep, 0, 1));
    drop(file);
    mount.settle();
    assert!(fs::read(mount.at("file")).unwrap() == expected);
}

/// The kernel rejects these two modes for FUSE file systems.
#[test]
fn ranges_are_collapsed_and_inserted_or_left_alone() {
    let Some(mount) = Mounted::new("") else { return };
    let content = Random::new(5, 0).bytes(64 << 10);
    let file = open(&mount.at("file"), OFlags::empty());
    file.write_all_at(&content, 0).unwrap();
    let collapsed = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 4096, 8192);
    if system() == System::Betr {
        refused(Errno::OPNOTSUPP, collapsed);
        refused(Errno::OPNOTSUPP, fallocate(&file, FallocateFlags::INSERT_RANGE, 4096, 8192));
        assert!(fs::read(mount.at("file")).unwrap() == content);
    } else {
        let expected = [&content[..4096], &content[12_288..]].concat();
        assert!(collapsed.is_ok() && fs::read(mount.at("file")).unwrap() == expected);
    }
}

#[test]
fn ranges_are_copied() {
    let Some(mut mount) = Mounted::new("") else { return };
    let content = Random::new(6, 0).bytes(3 << 20);
    fs::write(mount.at("from"), &content).unwrap();
    let (from, to) =
        (open(&mount.at("from"), OFlags::empty()), open(&mount.at("to"), OFlags::empty()));
    let mut expected = Vec::new();
    let ranges = [(0, 0, 3 << 20), (5, 70_000, 4097), (1 << 20, (5 << 20) + 1, 1 << 20), (0, 9, 0)];
    for (at, target, len) in ranges {
        let (mut in_at, mut out_at) = (at as u64, target as u64);
        let mut left = len;
        while left > 0 {
            let count =
                rustix::fs::copy_file_range(&from, Some(&mut in_at), &to, Some(&mut out_at), left);
            left -= count.unwrap();
        }
        expected.resize(expected.len().max(if len > 0 { target + len } else { 0 }), 0);
        expected[target..target + len].copy_from_slice(&content[at..at + len]);
        assert!(fs::read(mount.at("to")).unwrap() == expected, "{len} bytes from {at} to {target}");
    }
    // After the end there is nothing to copy; within one file, ranges must not overlap.
    let mut end = content.len() as u64;
    assert_eq!(rustix::fs::copy_file_range(&from, Some(&mut end), &to, Some(&mut 0), 10), Ok(0));
    let overlap = rustix::fs::copy_file_range(&from, Some(&mut 0), &from, Some(&mut 4096), 8192);
    refused(Errno::INVAL, overlap);
    drop((from, to));
    mount.settle();
    assert!(fs::read(mount.at("to")).unwrap() == expected);
}
