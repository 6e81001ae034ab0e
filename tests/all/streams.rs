//! Reads of contents that follow one another: by the walk of a tree, and by separate requests.

use std::sync::Arc;
use std::thread;

use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Blocks, Fs, New, Object, Walk};
use betr_core::ids::{Height, NodeId, Time, TreeId};
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Volume};
use betr_tests::{Random, clock, nonces, since};
use bytes::Bytes;

const FILES: u64 = 2000;
const FILE_BYTES: usize = 3000;
const LARGE_BYTES: usize = 8 << 20;
const LARGE: &[u8] = b"large";

/// The contents of file `number`.
fn contents(number: u64) -> Vec<u8> {
    Random::new(number).bytes(FILE_BYTES)
}

fn empty() -> (Arc<dyn Device>, Fs) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let options = CreateOptions {
        geometry: Geometry::new(1 << 20, 4096),
        ..CreateOptions::new(*b"test volume uuid", device.len(), nonces(1))
    };
    let volume = Volume::create(device.clone(), options).unwrap();
    (device, Fs::format(volume, clock(0), Attributes::at(Time::default())).unwrap())
}

/// The file system of a device, opened with a cache of 4 MiB, of which nothing has been read.
fn opened(device: Arc<dyn Device>, mode: Mode) -> Fs {
    let usual = OpenOptions::new(mode, nonces(2));
    let options = OpenOptions { cache: CacheBudget::of(4 << 20), ..usual };
    Fs::open(Volume::open(device, options).unwrap().0, clock(0))
}

/// Directories in one another, with 100 small files each, and a large file in the root.
fn tree() -> Fs {
    let (device, mut fs) = empty();
    let at = Attributes::at(Time::default());
    let mut above = fs.root().unwrap();
    let large = fs.make(&above, LARGE, New::of(FileType::Regular, at)).unwrap();
    fs.write(&large, 0, &Bytes::from(Random::new(FILES).bytes(LARGE_BYTES))).unwrap();
    for number in 0..FILES {
        if number % 100 == 0 {
            let name = format!("dir {number}");
            above = fs.make(&above, name.as_bytes(), New::of(FileType::Directory, at)).unwrap();
        }
        let name = format!("file {number:04}");
        let file = fs.make(&above, name.as_bytes(), New::of(FileType::Regular, at)).unwrap();
        fs.write(&file, 0, &Bytes::from(contents(number))).unwrap();
    }
    fs.checkpoint().unwrap();
    drop((above, large, fs));
    opened(device, Mode::ReadOnly)
}

/// The number of leaves of an index.
fn leaves(fs: &Fs, tree: TreeId) -> u64 {
    let store = fs.volume().store();
    let nodes = (1..store.next_node().0).filter_map(|id| store.table.get(NodeId(id)).unwrap());
    nodes.filter(|entry| entry.height == Height(0) && entry.tree == tree).count() as u64
}

/// The small files, in the order of a walk.
fn small_files(fs: &Fs) -> Vec<Object> {
    let (mut walk, mut files) = (Walk::new(fs.root().unwrap()), Vec::new());
    while let Some((path, object)) = walk.next_object(fs).unwrap() {
        if object.kind() == FileType::Regular && path != LARGE {
            files.push(object);
        }
    }
    files
}

/// Files in the order of a walk are read leaf by leaf, however small they are: two requests for each leaf.
#[test]
fn small_files_in_order_are_read_leaf_by_leaf() {
    let fs = tree();
    let (files, leaves) = (small_files(&fs), leaves(&fs, TreeId::Data));
    let before = fs.volume().io_counts();
    let mut blocks: Option<Blocks> = None;
    for (number, file) in (0..).zip(&files) {
        let mut all = match blocks.take() {
            Some(before) => fs.blocks_after(before, file),
            None => fs.blocks(file),
        };
        let (at, block) = fs.next_block(&mut all).unwrap().unwrap();
        assert_eq!((at, &block[..]), (0, &contents(number)[..]));
        assert!(fs.next_block(&mut all).unwrap().is_none());
        blocks = Some(all);
    }
    let reads = since(&fs, before).reads;
    println!("{reads} reads for {leaves} leaves");
    assert!(leaves > 40 && reads <= 2 * leaves, "{reads} reads for {leaves} leaves");
}

/// The same by a request for each file, as a mount reads them: they follow one another without a walk.
#[test]
fn requests_for_files_in_order_read_leaf_by_leaf() {
    let fs = tree();
    let (files, leaves) = (small_files(&fs), leaves(&fs, TreeId::Data));
    let before = fs.volume().io_counts();
    for (number, file) in (0..).zip(&files) {
        assert_eq!(fs.read(file, 0, FILE_BYTES).unwrap(), contents(number));
    }
    let reads = since(&fs, before).reads;
    println!("{reads} reads for {leaves} leaves");
    assert!(leaves > 40 && reads <= 2 * leaves, "{reads} reads for {leaves} leaves");
}

/// Pieces of a file in order, and files in order between them, are two streams.
#[test]
fn two_readers_in_turns_do_not_disturb_each_other() {
    let fs = tree();
    let (files, leaves) = (small_files(&fs), leaves(&fs, TreeId::Data));
    let large = fs.resolve(LARGE).unwrap();
    let expected = Random::new(FILES).bytes(LARGE_BYTES);
    let before = fs.volume().io_counts();
    let piece = 4096;
    for (number, file) in (0..).zip(&files) {
        assert_eq!(fs.read(file, 0, FILE_BYTES).unwrap(), contents(number));
        let at = number as usize * piece;
        assert_eq!(fs.read(&large, at as u64, piece).unwrap(), expected[at..at + piece]);
    }
    let reads = since(&fs, before).reads;
    println!("{reads} reads for {leaves} leaves");
    assert!(reads <= 5 * leaves / 2, "{reads} reads for {leaves} leaves");
}

const DIRECTORIES: usize = 1000;

/// Small directories with three files each, with long names.
fn directories() -> Arc<dyn Device> {
    let (device, mut fs) = empty();
    let (root, at) = (fs.root().unwrap(), Attributes::at(Time::default()));
    for number in 0..DIRECTORIES {
        let name = |what: &str| format!("{what}{number:0200}").into_bytes();
        let made = fs.make(&root, &name("d"), New::of(FileType::Directory, at)).unwrap();
        for what in ["a", "b", "c"] {
            fs.make(&made, &name(what), New::of(FileType::Regular, at)).unwrap();
        }
    }
    fs.checkpoint().unwrap();
    device
}

/// Small directories in the order of a walk are read leaf by leaf as well.
#[test]
fn listings_in_order_read_leaf_by_leaf() {
    let fs = opened(directories(), Mode::ReadOnly);
    let leaves = leaves(&fs, TreeId::Metadata);
    let before = fs.volume().io_counts();
    let (mut walk, mut objects) = (Walk::new(fs.root().unwrap()), 0);
    while walk.next_object(&fs).unwrap().is_some() {
        objects += 1;
    }
    let reads = since(&fs, before).reads;
    println!("{reads} reads for {leaves} leaves");
    assert_eq!(objects, 1 + 4 * DIRECTORIES);
    assert!(leaves > 10 && reads <= 4 * leaves, "{reads} reads for {leaves} leaves");
}

/// A tree that is removed as rm does it, directory by directory, is read about as often as its listing alone: what a
/// listing has read ahead serves the next one, although the tree changes in between.
#[test]
fn removing_directory_by_directory_reads_no_leaf_often() {
    let mut fs = opened(directories(), Mode::ReadWrite);
    let leaves = leaves(&fs, TreeId::Metadata);
    let root = fs.root().unwrap();
    let before = fs.volume().io_counts();
    for entry in fs.list(&root).unwrap() {
        let (name, directory) = (entry.name.clone(), fs.entry_object(entry).unwrap());
        for file in fs.list(&directory).unwrap() {
            fs.unlink(&directory, &file.name).unwrap();
        }
        drop(directory);
        fs.rmdir(&root, &name).unwrap();
    }
    let after = since(&fs, before);
    println!("{after:?} for {leaves} leaves");
    assert!(fs.list(&root).unwrap().is_empty());
    assert!(after.reads <= 5 * leaves, "{after:?} for {leaves} leaves");
}

/// Random reads do not read ahead: one takes a block, and the first ones of a leaf its head and a key section.
#[test]
fn random_reads_read_nothing_ahead() {
    let fs = tree();
    let large = fs.resolve(LARGE).unwrap();
    let expected = Random::new(FILES).bytes(LARGE_BYTES);
    let mut random = Random::new(1);
    let before = fs.volume().io_counts();
    let count = 200;
    for _ in 0..count {
        let at = random.below(LARGE_BYTES as u64 / 4096) as usize * 4096;
        assert_eq!(fs.read(&large, at as u64, 4096).unwrap(), expected[at..at + 4096]);
    }
    let after = since(&fs, before);
    println!("{after:?}");
    assert!(after.read_bytes <= count * 6_000, "{after:?}");
}

/// Several threads read pieces of the same files, in order and not, while files are written.
#[test]
fn threads_that_read_in_order_get_what_was_written() {
    let fs = tree();
    let (files, large) = (small_files(&fs), fs.resolve(LARGE).unwrap());
    let expected = Random::new(FILES).bytes(LARGE_BYTES);
    thread::scope(|scope| {
        for thread in 0..6 {
            let (fs, files, large, expected) = (&fs, &files, &large, &expected);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for round in 0..300 {
                    let first = random.below(FILES - 8);
                    for number in first..first + 8 {
                        let read = fs.read(&files[number as usize], 0, FILE_BYTES).unwrap();
                        assert_eq!(read, contents(number));
                    }
                    let at = (round * 20_000 + thread as usize * 10_000) % (LARGE_BYTES - 50_000);
                    let len = random.below(50_000) as usize;
                    let read = fs.read(large, at as u64, len).unwrap();
                    assert!(read == expected[at..at + len], "{len} bytes at {at}");
                }
            });
        }
    });
}
