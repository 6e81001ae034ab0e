//! The benefit of zones, counted: rename, recursive deletion and walks in a tree of 80,000 files.

use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{FileType, Key};
use betr_core::fs::{Attributes, Fs, New, Object, Over, Visit, Walk, ZoneKind};
use betr_core::ids::{BLOCK_SIZE, Height, NodeId, Time, TreeId};
use betr_core::store::Geometry;
use betr_core::volume::{Mode, OpenOptions, Volume};
use betr_lab::explore::devices::FaultyDevice;
use betr_tests::{Random, clock, made, nonces, rounds, since};
use bytes::Bytes;

const GIB: u64 = 1 << 30;

fn new(kind: FileType) -> New {
    New::of(kind, Attributes::at(Time::default()))
}

fn make(fs: &mut Fs, directory: &Object, name: &str, kind: FileType) -> Object {
    fs.make(directory, name.as_bytes(), new(kind)).unwrap()
}

/// 80 directories with 9 subdirectories each, 100 files in each of these, and one directory with 8,000 files.
fn tree(device: Arc<dyn Device>) -> Fs {
    let mut fs = made(device, Geometry::new(1 << 20, 64 << 10));
    let root = fs.root().unwrap();
    let top = make(&mut fs, &root, "tree", FileType::Directory);
    for outer in 0..80 {
        let outer = make(&mut fs, &top, &format!("outer-{outer:02}"), FileType::Directory);
        for inner in 0..9 {
            let inner = make(&mut fs, &outer, &format!("inner-{inner}"), FileType::Directory);
            for file in 0..100 {
                let file = make(&mut fs, &inner, &format!("file-{file:03}"), FileType::Regular);
                if file.ino().0.is_multiple_of(50) {
                    fs.write(&file, 0, &Bytes::from(vec![7; 1000])).unwrap();
                }
            }
        }
    }
    let many = make(&mut fs, &top, "many", FileType::Directory);
    for file in 0..8000 {
        make(&mut fs, &many, &format!("file-{file:04}"), FileType::Regular);
    }
    drop((top, many));
    fs.checkpoint().unwrap();
    fs
}

fn messages(fs: &mut Fs, act: impl FnOnce(&mut Fs)) -> u64 {
    let before = fs.volume().next_msn().0;
    act(fs);
    fs.volume().next_msn().0 - before
}

#[test]
fn a_deep_tree_takes_messages_in_proportion_to_its_depth() {
    const LEVELS: u64 = 3000;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(GIB));
    let mut fs = made(device.clone(), Geometry::new(1 << 20, 64 << 10));
    let mut directory = fs.root().unwrap();
    // Merging at a checkpoint does not make zones deep again.
    for _ in 0..3 {
        let taken = messages(&mut fs, |fs| {
            for _ in 0..LEVELS / 3 {
                directory = make(fs, &directory, "d", FileType::Directory);
            }
        });
        assert!(taken < LEVELS / 3 * 50, "{taken} messages for {} directories", LEVELS / 3);
        fs.checkpoint().unwrap();
    }
    let depth = std::iter::successors(Some(directory), |at| at.up().map(|(up, _)| up)).count();
    assert_eq!(depth as u64, LEVELS + 1);
    drop(fs);
    assert_sound(&device);
}

fn assert_sound(device: &Arc<dyn Device>) {
    let report = check(device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings.first());
}

#[test]
fn a_large_tree_is_renamed_walked_and_deleted() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(512 << 20));
    let mut fs = tree(device.clone());
    let zones = fs.zones().unwrap();
    let directories = zones.iter().filter(|zone| zone.kind == ZoneKind::Directory).count();
    assert!((4..100).contains(&directories), "{directories} zones");
    let root = fs.root().unwrap();

    let renamed = messages(&mut fs, |fs| {
        fs.rename(&root, b"tree", &root, b"forest", Over::Replace).unwrap();
    });
    assert!(renamed <= 8, "renaming the root of the tree takes {renamed} messages");
    fs.volume_mut().sync().unwrap();

    // Any directory, including those that are not zones.
    let max = fs.zone_sizes().max;
    for path in ["/forest/outer-07", "/forest/outer-11/inner-3", "/forest/many"] {
        let (directory, name) = fs.resolve_parent(path.as_bytes()).unwrap();
        let before = fs.volume().io_counts();
        fs.rename(&directory, name, &root, b"moved", Over::Replace).unwrap();
        fs.volume_mut().sync().unwrap();
        let written = since(&fs, before).written_bytes;
        assert!(written <= max + max / 4, "{path}: {written} bytes");
        fs.rename(&root, b"moved", &directory, name, Over::Replace).unwrap();
    }
    fs.checkpoint().unwrap();
    assert_sound(&device);
    drop((root, fs));
    walks_once(&device);

    let open = OpenOptions::new(Mode::ReadWrite, nonces(5));
    let mut fs = Fs::open(Volume::open(device.clone(), open).unwrap().0, clock(1 << 20));
    let root = fs.root().unwrap();
    let free = fs.volume().blocks().unwrap().available;
    let deleted = messages(&mut fs, |fs| fs.remove_tree(&root, b"forest").unwrap());
    let bound = 4 * zones.len() as u64 + 8;
    assert!(deleted <= bound, "deleting {} zones takes {deleted} messages", zones.len());
    fs.checkpoint().unwrap();
    fs.checkpoint().unwrap();
    assert!(fs.list(&root).unwrap().is_empty());
    assert!(fs.volume().blocks().unwrap().available > free + 1000);
    assert_eq!(fs.zones().unwrap().len(), 2);
    assert_sound(&device);
}

/// A walk over all names reads as much as a scan of the metadata index.
fn walks_once(device: &Arc<dyn Device>) {
    let open = || {
        let usual = OpenOptions::new(Mode::ReadOnly, nonces(3));
        let cache = betr_core::store::CacheBudget::of(4 << 20);
        Volume::open(device.clone(), OpenOptions { cache, ..usual }).unwrap().0
    };
    let volume = open();
    let before = volume.io_counts();
    let keys = volume.cursor(TreeId::Metadata, Key::default(), None).map(|entry| entry.unwrap());
    assert!(keys.count() > 80_000);
    let scanned = volume.io_counts().read_bytes - before.read_bytes;

    let fs = Fs::open(open(), clock(0));
    let before = fs.volume().io_counts();
    let (mut files, mut walk) = (0, Walk::new(fs.root().unwrap()));
    while let Some(visit) = walk.next(&fs).unwrap() {
        files += u64::from(matches!(visit, Visit::Entry(..)));
    }
    assert_eq!(files, 80_000);
    let walked = since(&fs, before).read_bytes;
    assert!(walked <= scanned + scanned / 20, "{walked} bytes, of {scanned}");
}

/// Unlinking is one record, whatever the size, and reads no leaf. Recovery, and the checkpoint that frees the space,
/// read only the one or two leaves that may also hold keys of others.
fn unlink_reads_no_leaf(image: Arc<dyn Device>, fill: impl FnOnce(&mut Fs, &Object)) {
    let [none, edges_only] = [(); 2].map(|()| Arc::new(FaultyDevice::new(image.clone())));
    let mut fs = made(image, Geometry::new(4 << 20, 128 << 10));
    fs.checkpoint().unwrap();
    let before = fs.volume().blocks().unwrap().available;
    let root = fs.root().unwrap();
    let file = make(&mut fs, &root, "large", FileType::Regular);
    fill(&mut fs, &file);
    fs.checkpoint().unwrap();
    let zone = file.inode().data_zone.expect("a zone for its contents").0;
    let [lo, hi] = [zone, zone + 1].map(u64::to_be_bytes);
    let store = fs.volume().store();
    // The first and the last leaf may hold keys beyond those of the file.
    let (mut inner, mut edges) = (0, 0);
    for id in (1..store.next_node().0).map(NodeId) {
        let Some(entry) = store.table.get(id).unwrap() else { continue };
        if entry.height == Height(0) && entry.tree == TreeId::Data {
            let bounds = store.node(id).unwrap().bounds().clone();
            let bytes = entry.extent.start.byte()..entry.extent.end().byte();
            none.spoil(bytes.clone());
            if *bounds.lo >= lo[..] && bounds.hi.is_some_and(|end| *end <= hi[..]) {
                edges_only.spoil(bytes);
                inner += 1;
            } else {
                edges += 1;
            }
        }
    }
    assert!(inner >= 10 && edges <= 2, "{inner} leaves, and {edges} at the edges");
    drop((file, root, fs));
    let open = |device| {
        let options = OpenOptions::new(Mode::ReadWrite, nonces(5));
        Fs::open(Volume::open(device, options).unwrap().0, clock(1 << 20))
    };
    let mut fs = open(none);
    let root = fs.root().unwrap();
    make(&mut fs, &root, "other", FileType::Fifo);
    fs.volume_mut().sync().unwrap();
    fs.keep_trail();
    let count = messages(&mut fs, |fs| fs.unlink(&root, b"large").unwrap());
    assert_eq!((fs.take_trail().len(), count <= 8), (1, true), "{count} messages");
    fs.volume_mut().sync().unwrap();
    drop((root, fs));
    let mut fs = open(edges_only);
    assert_eq!(fs.list(&fs.root().unwrap()).unwrap().len(), 1);
    // The next checkpoint frees the internal nodes and table pages of the previous one.
    for most in [256, 64] {
        fs.checkpoint().unwrap();
        let left = before - fs.volume().blocks().unwrap().available.min(before);
        assert!(left <= most, "{left} blocks of {BLOCK_SIZE} bytes have not come back");
    }
}

#[test]
fn a_large_file_goes_unread() {
    // `BETR_ROUNDS=4` takes a file of 4 GiB.
    let (file, len) = (tempfile::tempfile().unwrap(), rounds(1) * GIB);
    file.set_len(len + GIB).unwrap();
    let device = Arc::new(betr_core::device::FileDevice::new(file, len + GIB));
    unlink_reads_no_leaf(device, |fs, file| {
        let data = Bytes::from(Random::new(4).bytes(4 << 20));
        for at in (0..len).step_by(data.len()) {
            fs.write(file, at, &data).unwrap();
        }
    });
}

#[test]
fn a_sparse_file_of_16_tib_goes_unread() {
    unlink_reads_no_leaf(Arc::new(MemoryDevice::new(256 << 20)), |fs, file| {
        let data = Bytes::from(Random::new(4).bytes(4096));
        for at in (0..16 << 10).map(|number| number * GIB) {
            fs.write(file, at, &data).unwrap();
        }
    });
}
