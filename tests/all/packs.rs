//! Packs contain no file contents: not eight consecutive bytes of them, from any place in the image.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{Time, TreeId};
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Volume};
use betr_lab::explore::Random;
use betr_offline::anatomy::Anatomy;
use betr_tests::creation;
use bytes::Bytes;

const IMAGE: u64 = 24 << 20;
/// The number of content bytes that are searched for.
const WINDOW: usize = 8;
/// The size of the pack header; the rest is compressed.
const PACK_HEADER: usize = 24;

/// All contents that were written, as windows of 8 bytes.
struct Written {
    random: Random,
    windows: HashSet<[u8; WINDOW]>,
}

impl Written {
    fn new() -> Written {
        Written { random: Random::new(11), windows: HashSet::new() }
    }

    /// Random bytes, recorded as contents.
    fn bytes(&mut self, len: usize) -> Bytes {
        let bytes = Bytes::from(self.random.bytes(len));
        self.windows
            .extend(bytes.windows(WINDOW).map(|window| <[u8; 8]>::try_from(window).unwrap()));
        bytes
    }

    /// The number of windows in `bytes` that are contents.
    fn count(&self, bytes: &[u8]) -> usize {
        let windows = bytes.windows(WINDOW).filter(|window| window[0] != 0 || window[7] != 0);
        windows.filter(|window| self.windows.contains::<[u8]>(window)).count()
    }
}

fn created() -> (Arc<MemoryDevice>, Volume) {
    let device: Arc<MemoryDevice> = Arc::new(MemoryDevice::new(IMAGE));
    let geometry =
        Geometry { node_size: 32 << 10, leaf_size: 32 << 10, basement_size: 2048, fanout: 4 };
    let options = creation(geometry, CacheBudget::default(), 7);
    let options = CreateOptions { log_bytes: 2 << 20, ..options };
    let volume = Volume::create(device.clone(), options).unwrap();
    (device, volume)
}

/// Opens a volume for writing; values of 16 KiB and more are bound late.
fn opened(device: &Arc<MemoryDevice>) -> Volume {
    let mut nonce = 100;
    let nonces = Box::new(move || {
        nonce += 1;
        nonce
    });
    let options = OpenOptions { late_bytes: 16 << 10, ..OpenOptions::new(Mode::ReadWrite, nonces) };
    Volume::open(device.clone(), options).unwrap().0
}

fn clock() -> Box<dyn Fn() -> Time + Send + Sync> {
    Box::new(|| Time { secs: 5, nanos: 0 })
}

/// An image with contents in every possible place.
fn image(written: &mut Written) -> Arc<MemoryDevice> {
    let (device, volume) = created();
    let mut fs = Fs::format(volume, clock(), Attributes::at(Time::default())).unwrap();
    fs.checkpoint().unwrap();
    drop(fs);
    let mut fs = Fs::open(opened(&device), clock());
    let root = fs.root().unwrap();
    let new = || New::of(FileType::Regular, Attributes::at(Time::default()));
    let mut files = Vec::new();
    for at in 0..120usize {
        let file = fs.make(&root, format!("file-{at}").as_bytes(), new()).unwrap();
        let len = [16, 17, 100, 1000, 4095, 4096, 4097, 20_000][at % 8];
        fs.write(&file, 0, &written.bytes(len)).unwrap();
        let mut attribute =
            |name: &str, len| (name.as_bytes().to_vec(), written.bytes(len).to_vec());
        let attributes = [("user.a", 16), ("user.b", 900)].map(|(name, len)| attribute(name, len));
        fs.set_xattrs(&file, &attributes).unwrap();
        files.push(file);
    }
    let large = fs.make(&root, b"large", new()).unwrap();
    fs.write(&large, 0, &written.bytes(1 << 20)).unwrap();
    fs.volume_mut().sync().unwrap();
    fs.checkpoint().unwrap();
    // Small changes in all files stay pending.
    for (at, file) in files.iter().enumerate() {
        fs.write(file, 3 * at as u64, &written.bytes(16 + at)).unwrap();
        fs.set_xattrs(file, &[(b"user.a".to_vec(), written.bytes(40).to_vec())]).unwrap();
    }
    for at in (0..200).rev() {
        fs.write(&large, at * 5000, &written.bytes(300)).unwrap();
    }
    fs.volume_mut().sync().unwrap();
    fs.checkpoint().unwrap();
    fs.unlink(&root, b"file-7").unwrap();
    fs.remove_xattr(&files[12], b"user.b").unwrap();
    fs.volume_mut().sync().unwrap();
    fs.checkpoint().unwrap();
    // The following writes are only in the log, or bound late.
    let late = fs.make(&root, b"late", new()).unwrap();
    fs.write(&late, 0, &written.bytes(200_000)).unwrap();
    fs.write(&files[0], 10, &written.bytes(50)).unwrap();
    fs.set_xattrs(&files[1], &[(b"user.c".to_vec(), written.bytes(3000).to_vec())]).unwrap();
    fs.volume_mut().sync().unwrap();
    for at in 0..6 {
        fs.write(&large, at * 150_001, &written.bytes(40_000)).unwrap();
        fs.volume_mut().sync().unwrap();
    }
    fs.unlink(&root, b"file-20").unwrap();
    fs.volume_mut().sync().unwrap();
    drop((root, large, late, files, fs));
    device
}

#[derive(clap::Parser)]
struct PackLine {
    #[command(flatten)]
    args: betr_pack::Args,
}

#[derive(clap::Parser)]
struct UnpackLine {
    #[command(flatten)]
    args: betr_pack::unpack::Args,
}

/// Packs and unpacks an image in a directory; returns the decompressed pack and the unpacked image.
fn through(dir: &Path, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let [image, pack, new] =
        ["t.img", "t.pack", "new.img"].map(|name| dir.join(name).to_str().unwrap().to_owned());
    fs::write(&image, bytes).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut io = betr_cli::Io::plain(&mut out, &mut err);
    let args = <PackLine as clap::Parser>::parse_from(["pack", "-f", &image, &pack]).args;
    betr_pack::run(&args, &mut io).unwrap();
    let args = <UnpackLine as clap::Parser>::parse_from(["unpack", "-f", &pack, &new]).args;
    betr_pack::unpack::run(&args, &mut io).unwrap();
    let pack = fs::read(pack).unwrap();
    let mut all = Vec::new();
    zstd::Decoder::new(&pack[PACK_HEADER..]).unwrap().read_to_end(&mut all).unwrap();
    (all, fs::read(new).unwrap())
}

#[test]
fn no_window_of_contents_is_in_a_pack() {
    let mut written = Written::new();
    let device = image(&mut written);
    let bytes = device.snapshot();
    let device: Arc<dyn Device> = device;
    let report = check(&device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean() && report.needs_replay(), "{:?}", report.findings);
    let bound = report.log.as_ref().unwrap().bound;
    assert!(bound.in_leaves > 0 && bound.in_runs > 0 && bound.inline > 0, "{bound:?}");
    // Every kind of structure that can hold contents does.
    let anatomy = Anatomy::of(&device).unwrap();
    let disk = Disk::new(device.clone());
    for (tree, within) in
        [(1, "/basement:"), (2, "/basement:"), (1, "/slice:"), (2, "/slice:"), (2, "/binding:")]
    {
        let is_one = |part: &&betr_offline::anatomy::Part| {
            part.name.contains(within) && part.key.as_ref().is_some_and(|key| key.0.code() == tree)
        };
        let mut parts = anatomy.parts().iter().filter(is_one);
        let has =
            |part: &betr_offline::anatomy::Part| written.count(&part.read(&disk, 0).unwrap()) > 0;
        assert!(parts.any(has), "tree {tree}, {within}");
    }
    let log = anatomy.parts().iter().filter(|part| part.name.starts_with("log:"));
    assert!(log.clone().any(|part| written.count(&part.read(&disk, 0).unwrap()) > 0));
    let superblock = report.superblock.unwrap();
    let log = superblock.log_start.byte() as usize..superblock.map.start().byte() as usize;
    assert!(written.count(&bytes[log]) > 100_000);

    let dir = tempfile::tempdir().unwrap();
    let (packed, unpacked) = through(dir.path(), &bytes);
    assert_eq!(written.count(&packed), 0);
    assert_eq!(written.count(&unpacked), 0);
    let unpacked: Arc<dyn Device> = Arc::new(MemoryDevice::from(unpacked));
    let found = check(&unpacked, CheckOptions::ALL, &mut ());
    assert_eq!(found.findings, report.findings);
    assert_eq!(found.counts, report.counts);
}

#[test]
fn no_window_of_a_value_of_keys_is_in_a_pack() {
    let mut written = Written::new();
    let device: Arc<MemoryDevice> = Arc::new(MemoryDevice::new(IMAGE));
    let options = KvOptions::new(Box::new(|| 7));
    let mut store = Kv::create(device.clone(), *b"test volume uuid", options).unwrap();
    for round in 0..3u64 {
        let mut batch = Batch::new();
        for at in 0..1000u64 {
            let key = (1000 * round + at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            let tree = [TreeId::Metadata, TreeId::Data][at as usize % 2];
            batch.insert(tree, &key, &written.bytes(16 + at as usize % 500));
            batch.patch(tree, &key, 7, &written.bytes(20), true);
            let delta = written.bytes(8);
            let delta = i64::from_le_bytes(delta[..].try_into().unwrap());
            batch.add(&[b"n", &key[..]].concat(), 8, delta);
        }
        store.commit(batch).unwrap();
        match round {
            2 => store.sync().unwrap(),
            _ => store.checkpoint().unwrap(),
        }
    }
    drop(store);
    let bytes = device.snapshot();
    assert!(written.count(&bytes) > 500_000);
    let dir = tempfile::tempdir().unwrap();
    let (packed, unpacked) = through(dir.path(), &bytes);
    assert_eq!((written.count(&packed), written.count(&unpacked)), (0, 0));
    let [found, expected] = [unpacked, bytes].map(|bytes| {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes));
        check(&device, CheckOptions::ALL, &mut ())
    });
    assert_eq!(found.findings, expected.findings);
    assert_eq!(found.counts, expected.counts);
}
