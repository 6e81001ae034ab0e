//! Reading and writing: ends of files, appending, direct I/O, locks, and unlinked files.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::refused;
use crate::fixture::{Mounted, Random, open};

#[test]
fn what_is_written_is_read() {
    let Some(mut mount) = Mounted::new("") else { return };
    let mut random = Random::new(1, 0);
    // Sizes around those of blocks, pages, requests and late-bound writes.
    let sizes = [0, 1, 4095, 4096, 4097, 65_536, 131_071, 131_073, 1 << 20, (3 << 20) + 17];
    let contents = sizes.map(|size| random.bytes(size));
    for content in &contents {
        let path = mount.at(&format!("f{}", content.len()));
        fs::write(&path, content).unwrap();
        assert!(fs::read(&path).unwrap() == *content);
    }
    mount.settle();
    for content in &contents {
        let file = File::open(mount.at(&format!("f{}", content.len()))).unwrap();
        // Backwards, to defeat read-ahead.
        for at in (0..content.len()).step_by(50_000).rev() {
            let end = content.len().min(at + 1000);
            let mut bytes = vec![0; end - at];
            file.read_exact_at(&mut bytes, at as u64).unwrap();
            assert!(bytes == content[at..end], "at {at} of {}", content.len());
        }
        assert_eq!(file.read_at(&mut [0; 10], content.len() as u64).unwrap(), 0);
        assert_eq!(file.read_at(&mut [0; 10], 1 << 40).unwrap(), 0);
    }
}

#[test]
fn what_was_cut_off_comes_back_as_zeros() {
    let Some(mut mount) = Mounted::new("") else { return };
    let file = open(&mount.at("file"), OFlags::empty());
    for (full, cut) in [(10_000, 5000), (8192, 4096), (3 << 20, 1_000_001), (100, 0)] {
        file.set_len(0).unwrap();
        file.write_all_at(&vec![7; full], 0).unwrap();
        file.set_len(cut).unwrap();
        file.set_len(full as u64 + 5000).unwrap();
        let bytes = fs::read(mount.at("file")).unwrap();
        assert_eq!(bytes.len(), full + 5000);
        assert!(bytes[..cut as usize].iter().all(|byte| *byte == 7));
        assert!(bytes[cut as usize..].iter().all(|byte| *byte == 0), "{full} cut at {cut}");
    }
    // The same with a write after the end, and across a remount.
    file.set_len(10).unwrap();
    file.write_all_at(b"end", 1_000_000).unwrap();
    drop(file);
    mount.settle();
    let bytes = fs::read(mount.at("file")).unwrap();
    assert!(bytes.len() == 1_000_003 && bytes.ends_with(b"\0end"));
    assert!(bytes[10..1_000_000].iter().all(|byte| *byte == 0));
    refused(Errno::INVAL, rustix::fs::ftruncate(File::open(mount.at("file")).unwrap(), 1));
    refused(Errno::ISDIR, File::options().write(true).open(mount.point()));
}

#[test]
fn appending_never_overwrites() {
    let Some(mut mount) = Mounted::new("") else { return };
    let path = mount.at("log");
    let append = || File::options().append(true).create(true).open(&path).unwrap();
    let (mut one, mut two) = (append(), append());
    let mut expected: Vec<u8> = Vec::new();
    for turn in 0..500 {
        let line = format!("{turn} {}\n", "x".repeat(turn % 100));
        (if turn % 3 == 0 { &mut one } else { &mut two }).write_all(line.as_bytes()).unwrap();
        expected.extend(line.as_bytes());
    }
    // With O_APPEND Linux ignores the offset, even after a truncation by another process.
    one.write_all_at(b"positioned", 0).unwrap();
    expected.extend(b"positioned");
    assert_eq!(fs::read(&path).unwrap(), expected);
    File::options().write(true).open(&path).unwrap().set_len(7).unwrap();
    two.write_all(b"rest").unwrap();
    expected.truncate(7);
    expected.extend(b"rest");
    drop((one, two));
    mount.settle();
    assert_eq!(fs::read(mount.at("log")).unwrap(), expected);
}

#[test]
fn direct_and_buffered_access_agree() {
    let Some(mut mount) = Mounted::new("") else { return };
    const LEN: usize = 256 << 10;
    let content = Random::new(2, 0).bytes(LEN);
    // Buffers for direct I/O must be page-aligned.
    let mut memory = vec![0_u8; LEN + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let aligned = &mut memory[start..start + LEN];

    let path = mount.at("file");
    let direct = open(&path, OFlags::DIRECT);
    aligned.copy_from_slice(&content);
    direct.write_all_at(aligned, 0).unwrap();
    assert!(fs::read(&path).unwrap() == content);

    let buffered = open(&path, OFlags::empty());
    buffered.write_all_at(b"buffered", 5000).unwrap();
    aligned.fill(0);
    direct.read_exact_at(aligned, 0).unwrap();
    assert!(&aligned[5000..5008] == b"buffered" && aligned[..5000] == content[..5000]);

    aligned[..4096].fill(9);
    direct.write_all_at(&aligned[..4096], 8192).unwrap();
    let mut bytes = [0; 4096];
    buffered.read_exact_at(&mut bytes, 8192).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 9));
    // After the end there is nothing to read, and a write creates a hole.
    assert_eq!(direct.read_at(&mut aligned[..4096], LEN as u64).unwrap(), 0);
    direct.write_all_at(&aligned[..4096], 1 << 20).unwrap();
    drop((direct, buffered));
    mount.settle();
    let bytes = fs::read(mount.at("file")).unwrap();
    assert_eq!(bytes.len(), (1 << 20) + 4096);
    assert!(bytes[LEN..1 << 20].iter().all(|byte| *byte == 0));
}

#[test]
fn an_open_file_outlives_its_name() {
    let Some(mut mount) = Mounted::new("") else { return };
    let content = Random::new(3, 0).bytes(2 << 20);
    for how in ["unlink", "rename over"] {
        let path = mount.at("file");
        let mut file = open(&path, OFlags::empty());
        file.write_all(&content).unwrap();
        let second = File::open(&path).unwrap();
        if how == "unlink" {
            fs::remove_file(&path).unwrap();
        } else {
            fs::write(mount.at("other"), "other").unwrap();
            fs::rename(mount.at("other"), &path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "other");
        }
        assert_eq!(file.metadata().unwrap().nlink(), 0, "{how}");
        // The unlinked file works like any other.
        file.seek(SeekFrom::Start(100)).unwrap();
        file.write_all(b"after").unwrap();
        file.set_len((2 << 20) + 50).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR).unwrap();
        let (mut bytes, meta) = (Vec::new(), second.metadata().unwrap());
        (&second).read_to_end(&mut bytes).unwrap();
        assert_eq!((meta.nlink(), meta.mode(), meta.size()), (0, 0o100_400, (2 << 20) + 50));
        assert!(bytes[105..2 << 20] == content[105..] && &bytes[100..105] == b"after");
        assert!(bytes[2 << 20..] == [0; 50]);
    }
    // A new file with the old name is another file.
    fs::remove_file(mount.at("file")).unwrap();
    let old = open(&mount.at("file"), OFlags::empty());
    fs::remove_file(mount.at("file")).unwrap();
    fs::write(mount.at("file"), "new").unwrap();
    assert_ne!(old.metadata().unwrap().ino(), fs::metadata(mount.at("file")).unwrap().ino());
    assert_eq!(old.metadata().unwrap().size(), 0);
    drop(old);
    mount.settle();
}

#[test]
fn a_directory_that_is_removed_while_open_is_empty() {
    let Some(mut mount) = Mounted::new("") else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    let dir = File::open(mount.at("dir")).unwrap();
    fs::remove_dir(mount.at("dir")).unwrap();
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
    let flags = OFlags::CREATE | OFlags::WRONLY;
    refused(Errno::NOENT, rustix::fs::openat(&dir, "file", flags, rustix::fs::Mode::RUSR));
    refused(Errno::NOENT, rustix::fs::mkdirat(&dir, "sub", rustix::fs::Mode::RWXU));
    let left: Vec<_> = rustix::fs::Dir::read_from(&dir).unwrap().collect();
    assert!(left.iter().flatten().all(|entry| entry.file_name().to_bytes().starts_with(b".")));
    drop((dir, left));
    mount.settle();
}

#[test]
fn locks_exclude_others() {
    let Some(mount) = Mounted::new("") else { return };
    let path = mount.at("file");
    let (one, two) = (open(&path, OFlags::empty()), open(&path, OFlags::empty()));
    flock(&one, FlockOperation::LockExclusive).unwrap();
    refused(Errno::WOULDBLOCK, flock(&two, FlockOperation::NonBlockingLockShared));
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&one, FlockOperation::LockShared).unwrap();
    flock(&two, FlockOperation::NonBlockingLockShared).unwrap();
    refused(Errno::WOULDBLOCK, flock(&two, FlockOperation::NonBlockingLockExclusive));
    drop(one);
    flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
}

#[test]
fn what_cannot_be_opened_says_why() {
    let Some(mount) = Mounted::new("") else { return };
    fs::write(mount.at("file"), "").unwrap();
    fs::create_dir(mount.at("dir")).unwrap();
    refused(Errno::NOENT, File::open(mount.at("none")));
    refused(Errno::NOTDIR, File::open(mount.at("file/below")));
    refused(Errno::EXIST, File::create_new(mount.at("file")));
    refused(Errno::EXIST, fs::create_dir(mount.at("file")));
    refused(Errno::NOTDIR, fs::read_dir(mount.at("file")));
    refused(Errno::ISDIR, fs::remove_file(mount.at("dir")));
    refused(Errno::NOTDIR, fs::remove_dir(mount.at("file")));
    refused(Errno::BUSY, fs::remove_dir(mount.point()));
    refused(Errno::ISDIR, fs::read(mount.at("dir")));
    let read_only = File::open(mount.at("file")).unwrap();
    refused(Errno::BADF, read_only.write_at(b"x", 0));
    let path = rustix::fs::open(mount.at("file"), OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    refused(Errno::BADF, rustix::io::read(&path, &mut [0; 1]));
}
