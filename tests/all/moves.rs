//! Moves of large objects take what they take, whatever the size: a range clone and a range delete, in one record.

use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::IoCounts;
use betr_core::format::{FileType, Op, ZoneSizes};
use betr_core::fs::{Attributes, Fs, New, Object, Over};
use betr_core::ids::Time;
use betr_core::store::Geometry;
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Volume};
use betr_tests::{Random, clock, nonces, since};
use bytes::Bytes;

const MIB: usize = 1 << 20;

/// A volume with nodes of the usual size and zones without limits.
fn usual(mib: u64) -> (Arc<dyn Device>, Fs) {
    let bytes = mib << 20;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    let options = CreateOptions {
        geometry: Geometry::new(4 << 20, 4096),
        zones: ZoneSizes::UNLIMITED,
        ..CreateOptions::new(*b"test volume uuid", bytes, nonces(1))
    };
    let volume = Volume::create(device.clone(), options).unwrap();
    let at = Attributes::at(Time::default());
    Fs::format(volume, clock(0), at).unwrap().checkpoint().unwrap();
    let fs = reopened(&device, 2);
    (device, fs)
}

fn reopened(device: &Arc<dyn Device>, seed: u64) -> Fs {
    let options = OpenOptions::new(Mode::ReadWrite, nonces(seed << 32));
    Fs::open(Volume::open(device.clone(), options).unwrap().0, clock(1000))
}

fn make(fs: &mut Fs, directory: &Object, name: &str, kind: FileType) -> Object {
    let new = New::of(kind, Attributes::at(Time::default()));
    fs.make(directory, name.as_bytes(), new).unwrap()
}

/// A file of random bytes, which follow from its length.
fn file(fs: &mut Fs, directory: &Object, name: &str, len: usize) -> Object {
    let file = make(fs, directory, name, FileType::Regular);
    for (at, piece) in contents(len).chunks(MIB).enumerate() {
        fs.write(&file, (at * MIB) as u64, &Bytes::copy_from_slice(piece)).unwrap();
    }
    file
}

fn contents(len: usize) -> Vec<u8> {
    Random::new(len as u64).bytes(len)
}

fn assert_sound(device: &Arc<dyn Device>) {
    let report = check(device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings.first());
}

/// What an operation and a sync ask of the device.
fn counted(fs: &mut Fs, act: impl FnOnce(&mut Fs)) -> IoCounts {
    // The first group of an epoch has a fence before it.
    let root = fs.root().unwrap();
    make(fs, &root, "before", FileType::Fifo);
    fs.volume_mut().sync().unwrap();
    fs.unlink(&root, b"before").unwrap();
    fs.volume_mut().sync().unwrap();
    let before = fs.volume().io_counts();
    act(fs);
    fs.volume_mut().sync().unwrap();
    since(fs, before)
}

#[test]
fn a_rename_of_whatever_size_is_one_write() {
    for kind in [FileType::Regular, FileType::Directory] {
        for mib in [1, 4, 16, 64] {
            let (device, mut fs) = usual(512);
            let root = fs.root().unwrap();
            let from = make(&mut fs, &root, "from", FileType::Directory);
            let to = make(&mut fs, &root, "to", FileType::Directory);
            file(&mut fs, &from, "before", 20_000);
            if kind == FileType::Directory {
                let large = make(&mut fs, &from, "large", FileType::Directory);
                for number in 0..mib * 8 {
                    file(&mut fs, &large, &format!("file {number:04}"), MIB / 8);
                }
            } else {
                file(&mut fs, &from, "large", mib * MIB);
            }
            file(&mut fs, &from, "later", 20_000);
            fs.checkpoint().unwrap();
            fs.keep_trail();
            let moved = counted(&mut fs, |fs| {
                fs.rename(&from, b"large", &to, b"moved", Over::Replace).unwrap();
            });
            let what = format!("{kind:?} of {mib} MiB: {moved:?}");
            assert_eq!((moved.writes, moved.flushes, moved.reads), (1, 1, 0), "{what}");
            assert!(moved.written_bytes <= 8 << 10, "{what}");
            let ops: Vec<Op> = fs.take_trail().into_iter().map(|(op, _)| op).collect();
            assert!(ops.ends_with(&[Op::SplitZone, Op::Rename]), "{ops:?}");
            // From now on it has a zone.
            let again = counted(&mut fs, |fs| {
                fs.rename(&to, b"moved", &from, b"back", Over::Replace).unwrap();
            });
            assert_eq!((again.writes, again.flushes, again.reads), (1, 1, 0), "{again:?}");
            assert_eq!(fs.take_trail().last().unwrap().0, Op::Rename);
            let back = fs.lookup(&from, b"back").unwrap();
            match kind {
                FileType::Directory => {
                    assert_eq!(fs.list(&back).unwrap().len(), mib * 8);
                    let last = fs.lookup(&back, format!("file {:04}", mib * 8 - 1).as_bytes());
                    assert!(fs.read(&last.unwrap(), 0, MIB).unwrap() == contents(MIB / 8));
                }
                _ => assert!(fs.read(&back, 0, 1 << 30).unwrap() == contents(mib * MIB)),
            }
            drop((root, from, to, back, fs));
            let mut fs = reopened(&device, 3);
            fs.checkpoint().unwrap();
            drop(fs);
            assert_sound(&device);
        }
    }
}

/// Files that are linked, replaced or removed while they are open, and directories with links, zones and attributes.
#[test]
fn what_moves_takes_all_along_and_leaves_nothing_behind() {
    let (device, mut fs) = usual(256);
    let root = fs.root().unwrap();
    let free = |fs: &mut Fs| {
        for _ in 0..3 {
            fs.volume_mut().drain().unwrap();
            fs.checkpoint().unwrap();
        }
        fs.volume().blocks().unwrap().free
    };
    let before = free(&mut fs);
    let len = 3 * MIB;
    let open = file(&mut fs, &root, "open", len);
    fs.set_xattrs(&open, &[(b"user.note".to_vec(), vec![7; 40])]).unwrap();
    fs.unlink(&root, b"open").unwrap();
    assert!(fs.read(&open, 0, 1 << 30).unwrap() == contents(len), "an orphan keeps its contents");

    let linked = file(&mut fs, &root, "linked", len + 1);
    fs.link(&linked, &root, b"another name").unwrap();
    let replaced = file(&mut fs, &root, "replaced", len + 2);
    file(&mut fs, &root, "new", len + 3);
    fs.rename(&root, b"new", &root, b"replaced", Over::Replace).unwrap();
    assert!(fs.read(&replaced, 0, 1 << 30).unwrap() == contents(len + 2));
    let there = fs.lookup(&root, b"replaced").unwrap();
    assert!(fs.read(&there, 0, 1 << 30).unwrap() == contents(len + 3));

    let tree = make(&mut fs, &root, "tree", FileType::Directory);
    fs.set_xattrs(&tree, &[(b"user.note".to_vec(), vec![8; 40])]).unwrap();
    let inner = make(&mut fs, &tree, "inner", FileType::Directory);
    for number in 0..20 {
        file(&mut fs, &inner, &format!("{number}"), 100_000 + number);
    }
    fs.link(&linked, &inner, b"third name").unwrap();
    let other = make(&mut fs, &root, "other", FileType::Directory);
    fs.rename(&root, b"another name", &other, b"another name", Over::Replace).unwrap();
    // First the directory below, so that the one above has a reference.
    for (from, name, to) in [(&tree, &b"inner"[..], &other), (&other, b"inner", &tree)] {
        fs.rename(from, name, to, name, Over::Replace).unwrap();
    }
    for number in 20..40 {
        file(&mut fs, &tree, &format!("{number}"), 100_000 + number);
    }
    fs.rename(&root, b"tree", &other, b"moved", Over::Replace).unwrap();
    let exchanged = file(&mut fs, &root, "exchanged", len + 4);
    fs.rename(&root, b"exchanged", &other, b"moved", Over::Exchange).unwrap();
    assert_eq!(exchanged.up().unwrap().0, other);
    let tree = fs.lookup(&root, b"exchanged").unwrap();
    assert_eq!(fs.xattr(&tree, b"user.note").unwrap(), vec![8; 40]);
    let inner = fs.lookup(&tree, b"inner").unwrap();
    for number in 0..40 {
        let at = if number < 20 { &inner } else { &tree };
        let file = fs.lookup(at, number.to_string().as_bytes()).unwrap();
        assert!(fs.read(&file, 0, MIB).unwrap() == contents(100_000 + number), "{number}");
    }
    assert_eq!((linked.inode().links, inner.inode().links), (3, 2));
    fs.checkpoint().unwrap();
    assert!(fs.read(&linked, 0, 1 << 30).unwrap() == contents(len + 1));
    drop((open, linked, replaced, there, tree, inner, other, exchanged));
    fs.volume_mut().sync().unwrap();
    assert_eq!(fs.count_orphans().unwrap(), 2);
    drop((root, fs));
    let mut fs = reopened(&device, 4);
    let root = fs.root().unwrap();
    for entry in fs.list(&root).unwrap() {
        fs.remove_tree(&root, &entry.name).unwrap();
    }
    let after = free(&mut fs);
    assert!(after + 8 >= before, "{} blocks have not come back", before - after);
    assert_eq!(fs.count_orphans().unwrap(), 0);
    drop((root, fs));
    assert_sound(&device);
}

/// A directory without links, references and data zones below, whatever its size.
#[test]
fn a_large_directory_is_removed_unread() {
    let (device, mut fs) = usual(256);
    let before = fs.volume().blocks().unwrap().free;
    let root = fs.root().unwrap();
    let tree = make(&mut fs, &root, "tree", FileType::Directory);
    for outer in 0..50 {
        let inner = make(&mut fs, &tree, &format!("{outer:02}"), FileType::Directory);
        (0..100).for_each(|number| drop(file(&mut fs, &inner, &format!("{number}"), 6000)));
    }
    let copy = fs.clone_directory(&tree, &root, b"copy").unwrap();
    let one = fs.resolve(b"/copy/17/3").unwrap();
    fs.write(&one, 100, &Bytes::from_static(b"later")).unwrap();
    fs.checkpoint().unwrap();
    drop((one, copy, tree, root, fs));
    let mut fs = reopened(&device, 3);
    let root = fs.root().unwrap();
    make(&mut fs, &root, "before", FileType::Fifo);
    for name in [&b"copy"[..], b"tree"] {
        let (counts, msn) = (fs.volume().io_counts(), fs.volume().next_msn());
        fs.remove_tree(&root, name).unwrap();
        let (reads, messages) = (since(&fs, counts).reads, fs.volume().next_msn().0 - msn.0);
        assert!(reads <= 12 && messages <= 8, "{reads} reads, {messages} messages");
    }
    for _ in 0..3 {
        fs.volume_mut().drain().unwrap();
        fs.checkpoint().unwrap();
    }
    assert!(fs.volume().blocks().unwrap().free + 8 >= before);
    drop((root, fs));
    assert_sound(&device);
}

/// What is moved into a clone while it is small, and gets a zone there later, keeps its number.
#[test]
fn what_moved_into_a_clone_keeps_its_number_in_a_zone() {
    let (device, mut fs) = usual(256);
    let root = fs.root().unwrap();
    let original = make(&mut fs, &root, "original", FileType::Directory);
    file(&mut fs, &original, "file", 100);
    let moved = make(&mut fs, &root, "moved", FileType::Directory);
    let linked = file(&mut fs, &root, "linked", 200);
    let numbers = [moved.ino(), linked.ino(), linked.ino()];
    let clone = fs.clone_directory(&original, &root, b"clone").unwrap();
    for name in [&b"moved"[..], b"linked"] {
        fs.rename(&root, name, &clone, name, Over::Refuse).unwrap();
    }
    fs.link(&linked, &clone, b"another name").unwrap();
    file(&mut fs, &moved, "large", 1 << 20);
    fs.rename(&clone, b"moved", &clone, b"again", Over::Refuse).unwrap();
    fs.volume_mut().sync().unwrap();
    assert!(moved.zone().is_some() && linked.zone().is_some());
    drop((root, original, moved, linked, clone, fs));
    assert_sound(&device);
    let fs = reopened(&device, 9);
    for (path, ino) in
        ["clone/again", "clone/linked", "clone/another name"].into_iter().zip(numbers)
    {
        assert_eq!(fs.resolve(path.as_bytes()).unwrap().ino(), ino, "{path}");
    }
}

/// The directory clone of BetrFS 0.5: 8 directories of 8 files of 4 MiB; eight rounds of a clone of the last clone, 16 bytes into
/// each of its files, and a reader that begins cold.
#[test]
fn a_clone_of_a_clone_asks_for_the_same_in_each_round() {
    let (device, mut fs) = usual(512);
    let mut last = {
        let root = fs.root().unwrap();
        make(&mut fs, &root, "0", FileType::Directory)
    };
    for number in 0..64 {
        let name = format!("{}", number / 8);
        if number % 8 == 0 {
            make(&mut fs, &last, &name, FileType::Directory);
        }
        let directory = fs.lookup(&last, name.as_bytes()).unwrap();
        file(&mut fs, &directory, &format!("{}", number % 8), 4 << 20);
    }
    let mut reads = Vec::new();
    for round in 1..=8 {
        drop(last);
        fs.checkpoint().unwrap();
        drop(fs);
        fs = reopened(&device, 10 + round);
        let before = fs.volume().store().space.used_blocks();
        let root = fs.root().unwrap();
        let from = fs.resolve(format!("{}", round - 1).as_bytes()).unwrap();
        let name = format!("{round}");
        let counts = counted(&mut fs, |fs| {
            fs.clone_directory(&from, &root, name.as_bytes()).unwrap();
        });
        assert_eq!((counts.writes, counts.flushes), (1, 1), "round {round}: {counts:?}");
        reads.push(counts.reads);
        for number in 0..64 {
            let path = format!("{round}/{}/{}", number / 8, number % 8);
            let file = fs.resolve(path.as_bytes()).unwrap();
            fs.write(&file, (2 << 20) + 5, &Bytes::from_static(b"a few other byte")).unwrap();
        }
        fs.checkpoint().unwrap();
        let more = fs.volume().store().space.used_blocks() - before;
        assert!(more <= 256, "{more} blocks in round {round}");
        last = fs.resolve(name.as_bytes()).unwrap();
    }
    // Paths to the ends of the ranges, as for any clone; and for each of the 15 nodes above the leaves of the data that
    // have messages of the round before: its head, these messages, and for half of them a page of the table.
    assert!(reads.iter().all(|reads| *reads <= 60), "{reads:?}");
}
