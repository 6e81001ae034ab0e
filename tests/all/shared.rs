//! A file system shared by threads: a reader waits neither for a sync nor for a checkpoint of another thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use betr_core::device::MemoryDevice;
use betr_core::error::Blame;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New, Object, Shared, Unlink};
use betr_core::ids::Time;
use betr_tests::{Gate, Keeper, Random, formatted, made, tight, tiny};
use bytes::Bytes;

#[test]
fn who_reads_does_not_wait_for_the_device() {
    let (gate, Keeper { flushes, let_through }) = Gate::new(4 << 20);
    let mut fs = formatted(gate.clone(), tiny(), tight(), 1);
    let root = fs.root().unwrap();
    let file = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", file).unwrap();
    fs.checkpoint().unwrap();
    gate.close(true);

    let shared = Shared::new(fs);
    let text = Bytes::from_static(b"there");
    for whole in [false, true] {
        shared.change(|fs| fs.write(&file, 0, &text)).unwrap();
        thread::scope(|scope| {
            let ends = scope.spawn(|| if whole { shared.checkpoint() } else { shared.sync() });
            while !ends.is_finished() {
                if flushes.recv_timeout(Duration::from_millis(20)).is_err() {
                    continue;
                }
                // The sync waits for the device now.
                let read = shared.read(|fs| fs.read(&file, 0, 5)).unwrap();
                assert_eq!(read, b"there");
                assert!(!ends.is_finished());
                let_through.send(()).unwrap();
            }
            ends.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_panic_within_a_change_ends_reads_and_changes() {
    let fs = formatted(Arc::new(MemoryDevice::new(4 << 20)), tiny(), tight(), 1);
    let shared = Shared::new(fs);
    // A panic in a reader does not poison, because it changes nothing.
    let looks = || shared.read(|_| -> betr_core::Result<()> { resume_unwind(Box::new(())) });
    assert!(catch_unwind(AssertUnwindSafe(looks)).is_err());
    shared.change(|fs| fs.root().map(drop)).unwrap();

    let changes = || shared.change(|_| -> betr_core::Result<()> { resume_unwind(Box::new(())) });
    assert!(catch_unwind(AssertUnwindSafe(changes)).is_err());
    let after = [shared.read(|fs| fs.root().map(drop)), shared.change(|_| Ok(())), shared.sync()];
    for error in after.map(Result::unwrap_err) {
        assert_eq!(error.blame(), Blame::Program, "{error}");
        assert!(error.to_string().contains("failed half way"), "{error}");
    }
}

/// A shared file system with files in its root, each with a block of content.
fn with_files<const N: usize>(names: [&str; N]) -> (Shared, Object, [Object; N]) {
    let mut fs = formatted(Arc::new(MemoryDevice::new(4 << 20)), tiny(), tight(), 1);
    let root = fs.root().unwrap();
    let files = names.map(|name| {
        let file = New::of(FileType::Regular, Attributes::at(Time::default()));
        let file = fs.make(&root, name.as_bytes(), file).unwrap();
        fs.write(&file, 0, &Bytes::copy_from_slice(name.as_bytes())).unwrap();
        file
    });
    (Shared::new(fs), root, files)
}

fn unlink_later(shared: &Shared, directory: &Object, name: &[u8]) {
    let put_off = |fs: &mut Fs| {
        let (directory, object) = (directory.clone(), fs.lookup(directory, name)?);
        shared.unlink_later(Unlink { directory, name: name.to_vec(), object, in_use: true });
        Ok(())
    };
    shared.change(put_off).unwrap();
}

/// A removal that is put off is seen by all that come after it. It makes an orphan of a file that is still in use, and of no
/// other.
#[test]
fn a_removal_that_is_put_off_comes_before_all_that_could_tell() {
    let names = ["read", "listed", "made", "synced", "settled"];
    for used in [true, false] {
        let (shared, root, files) = with_files(names);
        let mut files = files.map(Some);
        for (number, name) in names.into_iter().enumerate() {
            let file = files[number].take().unwrap();
            unlink_later(&shared, &root, name.as_bytes());
            // Contents tell nothing.
            let read = || shared.read_contents(|fs| fs.read(&file, 0, 10)).unwrap();
            assert_eq!(read(), name.as_bytes());
            let kept = used.then(|| file.clone());
            let ino = file.ino();
            drop(file);
            assert!(used || shared.end_use(ino));
            match name {
                "read" => assert!(shared.read(|fs| fs.lookup(&root, b"read").map(drop)).is_err()),
                "listed" => {
                    let left = shared.read(|fs| fs.list(&root)).unwrap();
                    assert_eq!(left.len(), names.len() - 2);
                }
                "made" => {
                    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
                    shared.change(|fs| fs.make(&root, b"made", new)).map(drop).unwrap();
                }
                "synced" => shared.sync().unwrap(),
                _ => shared.settle(),
            }
            assert!(!shared.end_use(ino), "{name}");
            if let Some(file) = &kept {
                let read = shared.read(|fs| fs.read(file, 0, 10)).unwrap();
                assert_eq!((read, file.inode().links), (name.as_bytes().to_vec(), 0));
            }
            files[number] = kept;
            let orphans = shared.read(Fs::count_orphans).unwrap();
            assert_eq!(orphans, if used { number as u64 + 1 } else { 0 }, "{name}");
        }
        drop(files);
        shared.change(Fs::reap).unwrap();
        assert_eq!(shared.read(Fs::count_orphans).unwrap(), 0);
        assert!(shared.take_unlink_failure().is_none());
    }
}

/// If the removal fails, the name is there again, and the failure is told.
#[test]
fn a_removal_that_fails_is_told() {
    let (shared, root, files) = with_files(["file"]);
    unlink_later(&shared, &root, b"file");
    // In place of an error of the image.
    let [file] = files;
    let (directory, name) = (root.clone(), b"another".to_vec());
    let stale = Unlink { directory, name, object: file, in_use: false };
    shared.unlink_later(stale);
    assert_eq!(shared.read(|fs| fs.list(&root)).unwrap().len(), 1);
    let (name, error) = shared.take_unlink_failure().unwrap();
    assert_eq!(name, b"another");
    assert!(error.to_string().contains("no such"), "{error}");
    assert!(shared.take_unlink_failure().is_none());
}

/// A full volume with a file.
fn full() -> (Shared, Object, Object) {
    let mut fs = made(Arc::new(MemoryDevice::new(4 << 20)), tiny());
    let root = fs.root().unwrap();
    let new = || New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", new()).unwrap();
    let mut random = Random::new(1);
    fs.write(&file, 0, &Bytes::from(random.bytes(256 << 10))).unwrap();
    let filler = fs.make(&root, b"filler", new()).unwrap();
    let mut at = 0;
    for size in [1 << 16, 1 << 14, 1 << 12, 1 << 10] {
        while fs.write(&filler, at, &Bytes::from(random.bytes(size))).is_ok() {
            at += size as u64;
        }
    }
    (Shared::new(fs), root, file)
}

/// Where there is no room for an orphan, a removal waits longer for the end of a use. If that does not come, the name is
/// there again.
#[test]
fn a_removal_from_a_full_volume_waits_for_the_end_of_a_use() {
    for ends in [true, false] {
        let (shared, root, file) = full();
        unlink_later(&shared, &root, b"file");
        let ino = file.ino();
        let kept = thread::scope(|scope| {
            let user = scope.spawn(|| {
                // Longer than a removal waits for what may become an orphan.
                thread::sleep(Duration::from_millis(50));
                if ends {
                    drop(file);
                    assert!(shared.end_use(ino));
                    shared.settle();
                    return None;
                }
                Some(file)
            });
            let found = shared.read(|fs| fs.find(&root, b"file")).unwrap();
            assert_eq!(found.is_some(), !ends);
            user.join().unwrap()
        });
        assert!(!shared.end_use(ino));
        assert_eq!(shared.read(Fs::count_orphans).unwrap(), 0);
        let failed = shared.take_unlink_failure();
        assert_eq!(failed.map(|(name, _)| name), kept.as_ref().map(|_| b"file".to_vec()));
        if let Some(file) = kept {
            assert_eq!(shared.read(|fs| fs.read(&file, 0, 10)).unwrap().len(), 10);
        }
        // All that was taken by the file can be used again.
        shared.change(|fs| fs.unlink(&root, b"filler")).unwrap();
    }
}
