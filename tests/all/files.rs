//! The file system against a model in memory: random operations with tiny nodes, and with syncs, checkpoints and
//! reopening at random steps.

use std::sync::Arc;

use betr_core::Error;
use betr_core::check::{CheckOptions, Code, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::error::Refusal;
use betr_core::format::{FileType, ZoneSizes};
use betr_core::fs::{
    Allocate, Attributes, Changes, Contents, Fs, New, Object, Over, Seek, zone_path,
};
use betr_core::ids::Time;
use betr_core::mend::repair;
use betr_core::store::Geometry;
use betr_core::volume::Mode;
use betr_lab::explore::{Random, Run, Setup, Step, random_steps};
use betr_tests::{made, rounds};
use bytes::Bytes;

#[test]
fn agrees_with_a_model() {
    for seed in 0..rounds(10) {
        let mut random = Random::new(seed);
        // No zones, tiny zones, up to the default size, and no limit.
        let zone = match seed % 5 {
            0 => 0,
            1 => 1 + random.below(4 << 10),
            2 => random.below(64 << 10),
            3 => random.below(512 << 10) + 1,
            _ => u64::MAX,
        };
        agree(seed, 300, zone);
    }
}

/// Runs the comparison; `zone` is C1.
fn agree(seed: u64, count: usize, zone: u64) {
    let (zones, log_bytes) = (ZoneSizes::of_max(zone), 128 << 10);
    let log_bytes = if zone > log_bytes { 2 << 20 } else { log_bytes };
    let setup = Setup { log_bytes, zones, ..Setup::tiny(32 << 20) };
    let device = Arc::new(MemoryDevice::new(setup.image_bytes));
    setup.format(device.clone(), seed).unwrap();
    let mut run = Run::start(setup, device.clone(), seed).unwrap();
    let mut random = Random::new(seed);
    for (at, step) in random_steps(seed, count).iter().enumerate() {
        let taken = run.step(step);
        assert!(taken.is_ok(), "seed {seed}, step {at}, {step}: {taken:?}");
        if *step == Step::Checkpoint {
            sound(seed, &device);
            no_zone_could_merge(run.fs());
        }
        if at % 30 == 20 {
            copy_something(&mut run, &mut random);
        }
        if at % 40 == 0 || at + 1 == count {
            assert_eq!(run.difference(), None, "seed {seed}, after step {at}");
            reads_agree(&run, &mut random);
        }
    }
    run.step(&Step::Sync).unwrap();
    sound(seed, &device);
}

/// Copies a small subtree to a new name.
fn copy_something(run: &mut Run, random: &mut Random) {
    let mut pick = |paths: &[Vec<u8>]| paths[random.below(paths.len() as u64) as usize].clone();
    let (paths, directories) = (run.model().paths(false), run.model().paths(true));
    let (from, into) = (pick(&paths), pick(&directories));
    let is_below = |path: &Vec<u8>| *path == from || path.starts_with(&[&from[..], b"/"].concat());
    if from == b"/" || is_below(&into) || paths.iter().filter(|path| is_below(path)).count() > 20 {
        return;
    }
    let into = if into == b"/" { &[][..] } else { &into };
    let to = [into, b"/copy-", paths.len().to_string().as_bytes()].concat();
    if !paths.contains(&to) {
        run.copy(&from, &to).unwrap_or_else(|how| panic!("copying {from:?} to {to:?}: {how}"));
    }
}

/// The checker finds nothing: no wrong counters or links, and no zones that are too large or too small.
fn sound(seed: u64, device: &Arc<MemoryDevice>) {
    let device: Arc<dyn Device> = device.clone();
    let report = check(&device, CheckOptions::ALL, &mut ());
    let first = &report.findings[..report.findings.len().min(5)];
    assert!(report.is_clean(), "seed {seed}: {first:?}");
}

/// A zone that is too small remains only if the zone above has no room for it.
fn no_zone_could_merge(fs: &Fs) {
    let max = fs.zone_sizes().max;
    let zones = fs.zones().unwrap();
    for (at, zone) in zones.iter().enumerate().filter(|(_, zone)| zone.small) {
        let path = zone_path(&zones, at, 1 << 20).unwrap();
        let object = fs.resolve(&path.path).unwrap();
        let mut above = object.up().unwrap().0;
        let place = above.place().encode().len();
        let mut full = place + zone.path.len() > 500;
        while above.zone().is_none() {
            let sums = above.inode().sums;
            let data = sums.data + zone.counted.data;
            full |= data > max || sums.meta + zone.counted.meta + 300 > max;
            above = above.up().unwrap().0;
        }
        assert!(full, "{zone:?}");
    }
}

/// Data and holes alternate up to the end of the file, and holes read as zeros.
fn holes_are_zeros(fs: &Fs, file: &Object) {
    let size = file.inode().size;
    let mut at = 0;
    while at < size {
        let data = match fs.seek(file, at, Seek::Data) {
            Ok(data) => data,
            Err(Error::Refused(Refusal::NoData)) => size,
            Err(error) => panic!("{error}"),
        };
        let hole = fs.read(file, at, (data - at) as usize).unwrap();
        assert!(hole.iter().all(|byte| *byte == 0), "{at} to {data}");
        if data == size {
            break;
        }
        let end = fs.seek(file, data, Seek::Hole).unwrap();
        assert!(end > data && end <= size, "{data} to {end}");
        at = end;
    }
}

fn fresh(image_bytes: u64) -> (Arc<MemoryDevice>, Fs) {
    let setup = Setup::tiny(image_bytes);
    let device = Arc::new(MemoryDevice::new(image_bytes));
    setup.format(device.clone(), 1).unwrap();
    let fs = setup.open(device.clone(), Mode::ReadWrite, 1).unwrap().0;
    (device, fs)
}

fn make(fs: &mut Fs, directory: &Object, name: &[u8], kind: FileType) -> Object {
    fs.make(directory, name, New::of(kind, Attributes::at(Time::default()))).unwrap()
}

/// A file that is made with its contents is as one that is written, whatever the sizes of zones.
#[test]
fn a_file_is_made_with_its_contents() {
    let at = Attributes::at(Time { secs: 7, nanos: 8 });
    let filled = Random::new(3).bytes(70_000);
    let cases = [(0, 0, 0), (5, 0, 5), (70_000, 0, 70_000), (90_000, 4096, 60_000), (9000, 0, 0)];
    for zone in [0, 8192, u64::MAX] {
        let setup = Setup { zones: ZoneSizes::of_max(zone), ..Setup::tiny(32 << 20) };
        let device = Arc::new(MemoryDevice::new(32 << 20));
        setup.format(device.clone(), 1).unwrap();
        let mut fs = setup.open(device.clone(), Mode::ReadWrite, 1).unwrap().0;
        let root = fs.root().unwrap();
        for (number, (size, start, len)) in (0..).zip(cases) {
            for own in [false, true] {
                let mut bytes = filled[..len].to_vec();
                // A block of zeros in a long file.
                if let Some(block) = bytes.get_mut(8192..12_288) {
                    block.fill(0);
                }
                let bytes = Bytes::from(bytes);
                let name = |what: &str| format!("{what} {number} {own}").into_bytes();
                let new = New { zone: own, ..New::of(FileType::Regular, at) };
                let written = fs.make(&root, &name("written"), new.clone()).unwrap();
                fs.write(&written, start, &bytes).unwrap();
                fs.truncate(&written, size).unwrap();
                let contents = Contents { size, start, bytes };
                let made = fs.make(&root, &name("made"), New { contents, ..new }).unwrap();
                let whole = |file| fs.read(file, 0, 100_000).unwrap();
                assert_eq!((whole(&made).len() as u64, whole(&made)), (size, whole(&written)));
                let (one, other) = (made.inode(), written.inode());
                assert_eq!((one.modified, one.accessed), (at.modified, at.accessed));
                assert_eq!(one.sparse, other.sparse, "{size} bytes, {len} at {start}");
                assert_eq!(one.data_zone.is_some(), other.data_zone.is_some());
                let stored = |file| fs.stored_bytes(file).unwrap();
                assert_eq!(stored(&made), stored(&written));
            }
        }
        let refused = |kind, size, start, len| {
            let contents = Contents { size, start, bytes: vec![1; len].into() };
            New { contents, ..New::of(kind, at) }
        };
        for new in [
            refused(FileType::Regular, 10, 0, 11),
            refused(FileType::Regular, 10, u64::MAX, 2),
            refused(FileType::Directory, 10, 0, 10),
            refused(FileType::Regular, 17 << 20, 0, 17 << 20),
        ] {
            assert!(matches!(fs.make(&root, b"refused", new), Err(Error::Misuse(_))));
        }
        let huge = refused(FileType::Regular, u64::MAX, 0, 1);
        let failed = fs.make(&root, b"refused", huge);
        assert!(matches!(failed, Err(Error::Refused(Refusal::TooBig))));
        assert!(fs.find(&root, b"refused").unwrap().is_none());
        fs.checkpoint().unwrap();
        drop((root, fs));
        sound(zone, &device);
    }
}

/// No entry can be made in an open directory that was removed.
#[test]
fn nothing_enters_a_removed_directory() {
    let (device, mut fs) = fresh(2 << 20);
    let root = fs.root().unwrap();
    let gone = make(&mut fs, &root, b"gone", FileType::Directory);
    let file = make(&mut fs, &root, b"file", FileType::Regular);
    fs.rmdir(&root, b"gone").unwrap();
    let refused = |result: betr_core::Result<()>| {
        assert!(matches!(result, Err(Error::Refused(Refusal::NotFound))), "{result:?}");
    };
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    refused(fs.make(&gone, b"x", new).map(drop));
    refused(fs.link(&file, &gone, b"x"));
    refused(fs.rename(&root, b"file", &gone, b"x", Over::Replace));
    assert!(fs.list(&gone).unwrap().is_empty());
    fs.checkpoint().unwrap();
    sound(0, &device);
    drop(gone);
    fs.checkpoint().unwrap();
    assert_eq!(fs.zones().unwrap().len(), 2);
    sound(0, &device);
}

/// An unlinked file stays readable and writable through its handle.
#[test]
fn an_orphan_keeps_its_contents() {
    let (device, mut fs) = fresh(4 << 20);
    let root = fs.root().unwrap();
    let mut kept = Vec::new();
    for number in 0..6u8 {
        let name = [b'f', b'0' + number];
        let file = make(&mut fs, &root, &name, FileType::Regular);
        fs.write(&file, 0, &Bytes::from(vec![number + 1; 9000 * usize::from(number)])).unwrap();
        fs.set_xattrs(&file, &[(b"user.x".to_vec(), vec![number; 100])]).unwrap();
        if number % 2 == 0 {
            fs.link(&file, &root, &[b'l', b'0' + number]).unwrap();
            fs.unlink(&root, &[b'l', b'0' + number]).unwrap();
        }
        fs.unlink(&root, &name).unwrap();
        fs.write(&file, 3, &Bytes::from_static(b"later")).unwrap();
        kept.push(file);
    }
    fs.checkpoint().unwrap();
    sound(0, &device);
    for (number, file) in kept.iter().enumerate() {
        let mut expected = vec![number as u8 + 1; (9000 * number).max(8)];
        if number == 0 {
            expected[..3].fill(0);
        }
        expected[3..8].copy_from_slice(b"later");
        assert!(fs.read(file, 0, 1 << 20).unwrap() == expected, "file {number}");
        assert_eq!(fs.xattr(file, b"user.x").unwrap(), vec![number as u8; 100]);
        assert_eq!(file.inode().links, 0);
    }
    let before = fs.volume().blocks().unwrap().available;
    drop(kept);
    fs.checkpoint().unwrap();
    fs.checkpoint().unwrap();
    assert!(fs.volume().blocks().unwrap().available >= before + 30);
    sound(0, &device);
}

/// The times that each operation changes: mtime and ctime of the object and of the directories.
#[test]
fn times_change_as_posix_says() {
    let (_, mut fs) = fresh(4 << 20);
    let root = fs.root().unwrap();
    let [a, b] = [&b"a"[..], b"b"].map(|name| make(&mut fs, &root, name, FileType::Directory));
    let file = make(&mut fs, &a, b"file", FileType::Regular);
    type Act = fn(&mut Fs, &Object, &Object, &Object);
    // For each operation, whether mtime and ctime advance: of the file, of a, of b.
    let cases: &[(&str, Act, [&str; 3])] = &[
        ("write", |fs, f, _, _| fs.write(f, 0, &Bytes::from_static(b"x")).unwrap(), ["mc", "", ""]),
        ("truncate", |fs, f, _, _| fs.truncate(f, 9000).unwrap(), ["mc", "", ""]),
        (
            "punch",
            |fs, f, _, _| fs.allocate(f, Allocate::Punch, 0, 100, true).unwrap(),
            ["mc", "", ""],
        ),
        (
            "chmod",
            |fs, f, _, _| {
                let changes = Changes { perm: Some(0o640), ..Changes::default() };
                fs.set_attributes(f, changes).unwrap();
            },
            ["c", "", ""],
        ),
        (
            "setxattr",
            |fs, f, _, _| fs.set_xattrs(f, &[(b"user.x".to_vec(), vec![1])]).unwrap(),
            ["c", "", ""],
        ),
        ("removexattr", |fs, f, _, _| fs.remove_xattr(f, b"user.x").unwrap(), ["c", "", ""]),
        ("link", |fs, f, _, b| fs.link(f, b, b"link").unwrap(), ["c", "", "mc"]),
        ("unlink", |fs, _, _, b| fs.unlink(b, b"link").unwrap(), ["c", "", "mc"]),
        (
            "rename",
            |fs, _, a, b| fs.rename(a, b"file", b, b"moved", Over::Replace).unwrap(),
            ["c", "mc", "mc"],
        ),
        ("mkdir", |fs, _, a, _| drop(make(fs, a, b"d", FileType::Directory)), ["", "mc", ""]),
        (
            "exchange",
            |fs, _, a, b| fs.rename(a, b"d", b, b"moved", Over::Exchange).unwrap(),
            ["c", "mc", "mc"],
        ),
        ("rmdir", |fs, _, _, b| fs.rmdir(b, b"moved").unwrap(), ["", "", "mc"]),
        ("read", |fs, f, _, _| drop(fs.read(f, 0, 10).unwrap()), ["", "", ""]),
        ("checkpoint", |fs, _, _, _| fs.checkpoint().unwrap(), ["", "", ""]),
    ];
    for (name, act, expected) in cases {
        let inodes = || [&file, &a, &b].map(|object| object.inode());
        let before = inodes();
        act(&mut fs, &file, &a, &b);
        for ((before, after), expected) in before.iter().zip(inodes()).zip(expected) {
            let mut moved = String::new();
            moved.extend((after.modified > before.modified).then_some('m'));
            moved.extend((after.changed > before.changed).then_some('c'));
            assert_eq!(moved, *expected, "{name}");
            assert_eq!((after.accessed, after.born), (before.accessed, before.born), "{name}");
        }
    }
}

/// Orphans left by a power cut are found, and deleted by a repair.
#[test]
fn a_repair_deletes_orphans() {
    let (device, mut fs) = fresh(4 << 20);
    let root = fs.root().unwrap();
    let mut kept = Vec::new();
    for name in [&b"one"[..], b"two"] {
        let file = make(&mut fs, &root, name, FileType::Regular);
        fs.write(&file, 0, &Bytes::from(vec![5; 30_000])).unwrap();
        fs.unlink(&root, name).unwrap();
        kept.push(file);
    }
    fs.checkpoint().unwrap();
    drop(fs);
    let found = |device: &Arc<dyn Device>| {
        let report = check(device, CheckOptions::ALL, &mut ());
        report.findings.iter().map(|finding| finding.code).collect::<Vec<_>>()
    };
    let device: Arc<dyn Device> = device;
    assert_eq!(found(&device), [Code::OrphanLeft]);
    let report = check(&device, CheckOptions::ALL, &mut ());
    let done = repair(&device, &report, None, Time::default(), Box::new(|| 77)).unwrap();
    assert_eq!(done.orphans, 2);
    assert_eq!(found(&device), []);
}

/// An open handle of a file with several names does not prevent deleting the directories through which it was opened.
#[test]
fn a_link_that_is_held_elsewhere_lets_its_tree_go() {
    let (device, mut fs) = fresh(2 << 20);
    let root = fs.root().unwrap();
    let a = make(&mut fs, &root, b"a", FileType::Directory);
    let b = make(&mut fs, &a, b"b", FileType::Directory);
    let file = make(&mut fs, &b, b"f", FileType::Regular);
    fs.link(&file, &root, b"g").unwrap();
    drop((a, b));
    let held = fs.resolve(b"/a/b/f").unwrap();
    fs.remove_tree(&root, b"a").unwrap();
    assert_eq!(held.inode().links, 1);
    fs.checkpoint().unwrap();
    sound(0, &device);
}

/// Access times follow relatime; set-user-ID bits follow write(2) and chown(2).
#[test]
fn reading_and_writing_change_what_posix_says() {
    let (_, mut fs) = fresh(2 << 20);
    let root = fs.root().unwrap();
    let file = make(&mut fs, &root, b"file", FileType::Regular);
    fs.write(&file, 0, &Bytes::from_static(b"x")).unwrap();
    let now = fs.now();
    fs.note_access(&file, now).unwrap();
    let first = file.inode().accessed;
    assert!(first > file.inode().modified, "it was older than the last change");
    let now = fs.now();
    fs.note_access(&file, now).unwrap();
    assert_eq!(file.inode().accessed, first, "it is younger, and not a day old");
    let old = Time { secs: first.secs - 100_000, nanos: 0 };
    let past = Some(Time { secs: old.secs - 1, nanos: 0 });
    let changes = Changes { accessed: Some(old), modified: past, ..Changes::default() };
    fs.set_attributes(&file, changes).unwrap();
    let now = fs.now();
    fs.note_access(&file, now).unwrap();
    assert!(file.inode().accessed > first);

    for (before, written, given) in [
        (0o6755, 0o755, 0o755),
        (0o4644, 0o644, 0o644),
        (0o2644, 0o2644, 0o2644),
        (0o2755, 0o755, 0o755),
        (0o1755, 0o1755, 0o1755),
    ] {
        let set = Changes { perm: Some(before), ..Changes::default() };
        fs.set_attributes(&file, set).unwrap();
        fs.drop_set_ids(&file, true).unwrap();
        assert_eq!(file.inode().perm, written, "{before:o} written by a member of the group");
        fs.set_attributes(&file, set).unwrap();
        fs.drop_set_ids(&file, false).unwrap();
        assert_eq!(file.inode().perm, before & 0o1777, "{before:o} written by another");
        fs.set_attributes(&file, set).unwrap();
        fs.set_attributes(&file, Changes { uid: Some(7), ..Changes::default() }).unwrap();
        assert_eq!(file.inode().perm, given, "{before:o} given away");
        fs.set_attributes(&file, Changes { uid: Some(8), ..set }).unwrap();
        assert_eq!(file.inode().perm, before, "{before:o} given away with these bits");
    }
}

/// The space that statfs reports as free can be filled, except for the share of the trees.
#[test]
fn free_blocks_are_free() {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let mut fs = made(device, Geometry::new(128 << 10, 16 << 10));
    let root = fs.root().unwrap();
    let file = make(&mut fs, &root, b"file", FileType::Regular);
    let free = fs.volume().blocks().unwrap().available;
    let mut random = Random::new(9);
    let mut written = 0;
    let failed = loop {
        let data = Bytes::from(random.bytes(4096));
        if let Err(error) = fs.write(&file, written * 4096, &data) {
            break error;
        }
        written += 1;
    };
    assert!(matches!(failed, Error::NoSpace { .. }), "{failed}");
    assert!(written <= free && written >= free * 8 / 10, "{written} of {free} blocks");
    assert!(fs.volume().blocks().unwrap().available <= free / 10);
    fs.unlink(&root, b"file").unwrap();
    drop(file);
    fs.checkpoint().unwrap();
    fs.checkpoint().unwrap();
    let left = fs.volume().blocks().unwrap().available;
    assert!(left >= free * 98 / 100, "{left} of {free} blocks");
}

/// Names of maximal length at any depth: a directory whose keys are too long to be split off or moved at once is
/// handled in steps.
#[test]
fn long_paths_move_and_go() {
    let (device, mut fs) = fresh(8 << 20);
    let root = fs.root().unwrap();
    let mut at = root.clone();
    for depth in 0..12u8 {
        at = make(&mut fs, &at, &[b'A' + depth; 255], FileType::Directory);
        let file = make(&mut fs, &at, &[b'f'; 255], FileType::Regular);
        fs.set_xattrs(&file, &[(vec![b'x'; 255], vec![1; 10])]).unwrap();
        fs.write(&file, 0, &Bytes::from(vec![7; 3000])).unwrap();
    }
    drop(at);
    fs.checkpoint().unwrap();
    sound(0, &device);
    let deep = fs.resolve(&[&b"/"[..], &[b'A'; 255], b"/", &[b'B'; 255]].concat()).unwrap();
    fs.rename(&deep, &[b'C'; 255], &root, b"c", Over::Replace).unwrap();
    fs.rename(&root, b"c", &deep, &[b'z'; 255], Over::Replace).unwrap();
    fs.rename(&root, &[b'A'; 255], &root, b"a", Over::Replace).unwrap();
    drop(deep);
    fs.checkpoint().unwrap();
    sound(0, &device);
    fs.remove_tree(&root, b"a").unwrap();
    fs.checkpoint().unwrap();
    sound(0, &device);
    assert_eq!(fs.zones().unwrap().len(), 2);
}

/// Reading any range of any file returns the bytes of the model.
fn reads_agree(run: &Run, random: &mut Random) {
    for path in run.model().paths(false) {
        let (offset, len) = (random.below(30_000), random.below(30_000) as usize);
        let Ok(expected) = run.model().read(&path, offset, len) else { continue };
        let object = run.fs().resolve(&path).unwrap();
        assert!(run.fs().read(&object, offset, len).unwrap() == expected, "{path:?} at {offset}");
        holes_are_zeros(run.fs(), &object);
    }
}
