//! Packs of images in memory: whatever is damaged, a check finds the same in what is unpacked.

use std::sync::Arc;

use betr_core::anatomy::{Anatomy, Kind};
use betr_core::cache::{CacheBudget, Geometry};
use betr_core::check::{CATALOG, CheckOptions, Report, check};
use betr_core::damage::make_broken;
use betr_core::device::{Device, Disk, MemoryDevice};
use betr_core::format::{FileType, ZoneSizes};
use betr_core::fs::{Attributes, FIRST_INO, FIRST_ZONE, Fs, New};
use betr_core::ids::{BLOCK_SIZE, Time};
use betr_core::volume::{Content, CreateOptions, Mode, OpenOptions, Volume};
use bytes::Bytes;

use crate::file::{Header, PackReader};
use crate::kept::Kept;

const IMAGE: u64 = 6 << 20;
/// What every block of a file has.
const SECRET: &[u8] = b"between you and me";

/// A piece of a file that is like no other.
fn contents(seed: u8, len: usize) -> Bytes {
    let text = [SECRET, &[seed, 0xff]].concat();
    text.into_iter().cycle().take(len).collect::<Vec<_>>().into()
}

/// An image whose log has records of writes to leaves that were there before, bound late; scattered, if so.
fn image(scatter: bool) -> Vec<u8> {
    let device: Arc<MemoryDevice> = Arc::new(MemoryDevice::new(IMAGE));
    let geometry =
        Geometry { node_size: 8192, leaf_size: 32 << 10, basement_size: 2048, fanout: 4 };
    let options = CreateOptions {
        uuid: *b"test volume uuid",
        label: String::new(),
        log_bytes: 128 << 10,
        content: Content::Files,
        geometry,
        zones: ZoneSizes::default(),
        cache: CacheBudget::default(),
        first_zone: FIRST_ZONE,
        first_ino: FIRST_INO,
        nonces: Box::new(|| 7),
    };
    let volume = Volume::create(device.clone(), options).unwrap();
    let clock = || Box::new(|| Time { secs: 5, nanos: 0 });
    let mut fs = Fs::format(volume, clock(), Attributes::at(Time::default())).unwrap();
    fs.checkpoint().unwrap();
    let mut nonce = 100;
    let nonces = Box::new(move || {
        nonce += 1;
        nonce
    });
    let options =
        OpenOptions { scatter, late_bytes: 16 << 10, ..OpenOptions::new(Mode::ReadWrite, nonces) };
    let mut fs = Fs::open(Volume::open(device.clone(), options).unwrap().0, clock());
    let root = fs.root().unwrap();
    let attributes = Attributes::at(Time::default());
    let mut files = Vec::new();
    for at in 0..42 {
        let new = New::of(FileType::Regular, attributes);
        let file = fs.make(&root, format!("file-{at}").as_bytes(), new).unwrap();
        let len = [300, 9000, 60_000][at as usize % 3];
        fs.write(&file, 0, &contents(at, len)).unwrap();
        files.push(file);
    }
    fs.checkpoint().unwrap();
    for at in 0..2 {
        fs.write(&files[at * 9], 100, &contents(0x80, 7)).unwrap();
        fs.write(&files[at * 9 + 2], 8192, &contents(0x90, 24 << 10)).unwrap();
        fs.volume_mut().sync().unwrap();
    }
    drop((fs, files));
    device.snapshot()
}

/// Packs an image, and unpacks it again.
fn through(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    let mut kept = Kept::of(device, false).unwrap();
    let header = Header { contents: false, image_bytes: device.len() };
    let mut pack = Vec::new();
    crate::write(&mut pack, header, &mut kept, device, None).unwrap();
    let unpacked = MemoryDevice::new(device.len());
    let mut reader = PackReader::new(&pack[..]).unwrap();
    while let Some((first, bytes)) = reader.row().unwrap() {
        unpacked.write_at(first * BLOCK_SIZE as u64, bytes).unwrap();
    }
    Arc::new(unpacked)
}

fn checked(device: &Arc<dyn Device>) -> Report {
    check(device, CheckOptions::default(), &mut ())
}

fn is_same(found: &Report, expected: &Report, of: &str) {
    assert_eq!(found.findings, expected.findings, "{of}");
    assert_eq!(found.counts, expected.counts, "{of}");
    assert_eq!(found.replay, expected.replay, "{of}");
}

fn secrets(device: &Arc<dyn Device>) -> usize {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes.windows(SECRET.len()).filter(|window| *window == SECRET).count()
}

#[test]
fn damage_anywhere_is_found_in_what_is_unpacked() {
    for scatter in [false, true] {
        let bytes = image(scatter);
        let sound: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes.clone()));
        let report = checked(&sound);
        assert!(report.is_clean() && report.needs_replay(), "{:?}", report.findings);
        let unpacked = through(&sound);
        is_same(&checked(&unpacked), &report, "the sound image");
        // What the log binds, or brings leaves back for, stays.
        let (before, after) = (secrets(&sound), secrets(&unpacked));
        assert!(after * 2 < before, "{after} of {before}");
        let anatomy = Anatomy::of(&sound).unwrap();
        let mut tried = 0;
        // Where leaves lie scattered makes a difference to few of them.
        for part in anatomy.parts().iter().step_by(if scatter { 3 } else { 1 }) {
            // Contents have no parts of their own that a check without them looks at.
            if matches!(part.kind, Kind::Bytes | Kind::Chunk | Kind::MetaValue | Kind::Update) {
                continue;
            }
            let damaged: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes.clone()));
            let disk = Disk::new(damaged.clone());
            for copy in 0..part.copies.len() {
                let mut found = part.read(&disk, copy).unwrap();
                let at = found.len() / 2;
                found[at] ^= 1 << (tried % 8);
                part.write(&disk, copy, &found).unwrap();
            }
            is_same(&checked(&through(&damaged)), &checked(&damaged), &part.name);
            tried += 1;
        }
        assert!(tried > 50, "{tried}");
    }
}

#[test]
fn what_nothing_leads_to_is_packed_as_it_is() {
    let bytes = image(false);
    let sound: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes.clone()));
    let anatomy = Anatomy::of(&sound).unwrap();
    let disk = Disk::new(sound);
    let named = |names: &'static [&'static str]| {
        let is_named = move |name: &str| names.iter().any(|start| name.starts_with(start));
        anatomy.parts().iter().filter(move |part| is_named(&part.name))
    };
    for names in [
        &["identity"][..],
        &["super"],
        &["identity", "super"],
        &["map"],
        &["table"],
        &["map", "table"],
        &["map", "super"],
        &["map", "n:2"],
        &["log", "super"],
    ] {
        let damaged: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes.clone()));
        for (at, len) in named(names).flat_map(|part| part.copies.iter().flatten()) {
            // Where what is scattered lies, its map says.
            for (at, len) in disk.places(*at, *len).unwrap() {
                damaged.write_at(at, &vec![0; len]).unwrap();
            }
        }
        let found = checked(&damaged);
        assert!(!found.is_clean(), "{names:?}");
        match Kept::of(&damaged, false) {
            Ok(_) => is_same(&checked(&through(&damaged)), &found, &names.join(", ")),
            // There is no image any more.
            Err(error) => assert_eq!(names, ["identity", "super"], "{error}"),
        }
    }
}

#[test]
fn each_problem_is_found_in_what_is_unpacked() {
    let mut found = 0;
    for problem in CATALOG {
        let Some(bytes) = make_broken(problem.code).unwrap() else { continue };
        let broken: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes));
        let report = checked(&broken);
        assert!(!report.findings.is_empty() || problem.name == "N06", "{}", problem.name);
        is_same(&checked(&through(&broken)), &report, problem.name);
        found += 1;
    }
    assert!(found > 40, "{found}");
}
