//! Packs of images in memory: after any damage, a check of the unpacked image finds the same, and file contents are
//! gone.

use std::sync::Arc;

use betr_core::check::{CATALOG, CheckOptions, Report, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::format::{FileType, Magic, Seal};
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{BLOCK_SIZE, Hash, Time};
use betr_core::log::Survey;
use betr_core::store::Geometry;
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Recovery, Volume};
use betr_lab::damage::{Damage, Verb, make_broken};
use betr_offline::anatomy::{Anatomy, Kind};
use betr_offline::device::Scratch;
use betr_offline::redact::Original;
use bytes::Bytes;

use crate::Source;
use crate::file::{Contents, PackReader};

const IMAGE: u64 = 6 << 20;
/// A marker in every block of a file.
const SECRET: &[u8] = b"between you and me";

/// Unique contents for a piece of a file.
fn contents(seed: u8, len: usize) -> Bytes {
    let text = [SECRET, &[seed, 0xff]].concat();
    text.into_iter().cycle().take(len).collect::<Vec<_>>().into()
}

/// An image whose log has late-bound writes to existing leaves; with scattered nodes if `scatter` is set.
fn image(scatter: bool) -> Vec<u8> {
    let device: Arc<MemoryDevice> = Arc::new(MemoryDevice::new(IMAGE));
    let geometry =
        Geometry { node_size: 8192, leaf_size: 32 << 10, basement_size: 2048, fanout: 4 };
    let options = CreateOptions {
        log_bytes: 128 << 10,
        geometry,
        ..CreateOptions::new(*b"test volume uuid", device.len(), Box::new(|| 7))
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

/// Packs and unpacks an image; also returns the entries for resealed structures.
fn pack(
    device: &Arc<dyn Device>,
    contents: Contents,
) -> betr_core::Result<(Arc<dyn Device>, Vec<Original>)> {
    let draft = Scratch::new(tempfile::tempfile().unwrap(), String::new());
    let mut pack = Vec::new();
    Source::of(device, contents, &draft)?.write(&mut pack).unwrap();
    let unpacked = MemoryDevice::new(device.len());
    let mut reader = PackReader::new(&pack[..]).unwrap();
    while let Some((first, bytes)) = reader.row().unwrap() {
        unpacked.write_at(first * BLOCK_SIZE as u64, bytes).unwrap();
    }
    let originals = std::iter::from_fn(|| reader.original().unwrap()).collect();
    Ok((Arc::new(unpacked), originals))
}

fn through(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    pack(device, Contents::Zeros).unwrap().0
}

fn checked(device: &Arc<dyn Device>, options: CheckOptions) -> Report {
    check(device, options, &mut ())
}

/// Asserts that checks of both images find the same codes at the same places, with and without values of the data
/// index.
fn is_same(unpacked: &Arc<dyn Device>, original: &Arc<dyn Device>, of: &str) {
    for options in [CheckOptions::default(), CheckOptions::ALL] {
        let [found, expected] = [unpacked, original].map(|device| checked(device, options));
        let [codes, expected_codes] = [&found, &expected].map(|report| {
            let findings = report.findings.iter();
            findings.map(|finding| (finding.code, finding.place.clone())).collect::<Vec<_>>()
        });
        assert_eq!(codes, expected_codes, "{of}: {:#?}\n{:#?}", found.findings, expected.findings);
        assert_eq!(found.counts, expected.counts, "{of}");
        let [replay, expected_replay] = [found, expected].map(|report| {
            report.replay.map(|Recovery { survey, checkpoints, stopped }| {
                let Survey { operations, bound, pins, beyond, illegible, end_byte, .. } = survey;
                (operations, bound, pins, beyond, illegible, end_byte, checkpoints, stopped)
            })
        });
        assert_eq!(replay, expected_replay, "{of}");
    }
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
        let report = checked(&sound, CheckOptions::ALL);
        assert!(report.is_clean() && report.needs_replay(), "{:?}", report.findings);
        assert!(report.log.is_some_and(|log| log.bound.in_leaves > 0 && log.bound.inline > 0));
        let unpacked = through(&sound);
        is_same(&unpacked, &sound, "the sound image");
        assert!(secrets(&sound) > 0 && secrets(&unpacked) == 0);
        let anatomy = Anatomy::of(&sound).unwrap();
        let mut tried = 0;
        // Every other part takes 10 seconds. Scattering affects only a few, so a seventh of them suffices.
        for part in anatomy.parts().iter().step_by(if scatter { 7 } else { 2 }) {
            // Values have no hash of their own; they are parts of a structure that has one.
            if matches!(part.kind, Kind::Bytes | Kind::MetaValue | Kind::Update) {
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
            let unpacked = through(&damaged);
            is_same(&unpacked, &damaged, &part.name);
            assert_eq!(secrets(&unpacked), 0, "{}", part.name);
            if tried % 5 == 0 {
                let (kept, _) = pack(&damaged, Contents::OfDamaged).unwrap();
                is_same(&kept, &damaged, &part.name);
            }
            tried += 1;
        }
        assert!(tried > 20, "{tried}");
    }
}

#[test]
fn damage_that_is_sealed_is_found_in_what_is_unpacked() {
    let bytes = image(false);
    let sound: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes.clone()));
    let anatomy = Anatomy::of(&sound).unwrap();
    let disk = Disk::new(sound);
    let mut tried = 0;
    for (number, part) in anatomy.parts().iter().enumerate() {
        let fields = part.fields(&disk).unwrap();
        let fields = fields.iter().filter(|field| !field.bytes.is_empty());
        for field in fields.skip(number % 17).step_by(17) {
            let damaged: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes.clone()));
            let verb = Verb::all(tried)[tried as usize % 8];
            let damage = Damage { part, bytes: field.bytes.clone(), verb, sealed: true };
            if damage.inflict(&damaged, &anatomy).is_err() {
                continue;
            }
            let of = format!("{}, {}, {verb}", part.name, field.name);
            let Ok((unpacked, _)) = pack(&damaged, Contents::Zeros) else {
                assert!(of.starts_with("identity"), "{of}");
                continue;
            };
            is_same(&unpacked, &damaged, &of);
            assert_eq!(secrets(&unpacked), 0, "{of}");
            tried += 1;
        }
    }
    assert!(tried > 120, "{tried}");
}

#[test]
fn what_nothing_leads_to_is_packed_without_contents() {
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
            // The scatter map translates the addresses of a scattered node.
            for (at, len) in disk.places(*at, *len).unwrap() {
                damaged.write_at(at, &vec![0; len]).unwrap();
            }
        }
        assert!(!checked(&damaged, CheckOptions::default()).is_clean(), "{names:?}");
        match pack(&damaged, Contents::Zeros) {
            Ok((unpacked, _)) => {
                is_same(&unpacked, &damaged, &names.join(", "));
                assert_eq!(secrets(&unpacked), 0, "{names:?}");
            }
            // Without these structures the file is no longer an image.
            Err(error) => assert_eq!(names, ["identity", "super"], "{error}"),
        }
        if let Ok((kept, _)) = pack(&damaged, Contents::OfDamaged) {
            is_same(&kept, &damaged, &names.join(", "));
        }
    }
}

#[test]
fn each_problem_is_found_in_what_is_unpacked() {
    let mut found = 0;
    for problem in CATALOG {
        let Some(bytes) = make_broken(problem.code).unwrap() else { continue };
        let broken: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes));
        let report = checked(&broken, CheckOptions::default());
        assert!(!report.findings.is_empty() || problem.name == "N06", "{}", problem.name);
        for contents in [Contents::Zeros, Contents::OfDamaged, Contents::All] {
            let (unpacked, _) = pack(&broken, contents).unwrap();
            is_same(&unpacked, &broken, &format!("{}, {contents:?}", problem.name));
        }
        found += 1;
    }
    assert!(found > 40, "{found}");
}

#[test]
fn the_originals_of_what_was_sealed_afresh_are_listed() {
    let sound: Arc<dyn Device> = Arc::new(MemoryDevice::from(image(false)));
    let (unpacked, originals) = pack(&sound, Contents::Zeros).unwrap();
    let hashes = |device: &Arc<dyn Device>, Original { byte, bytes, .. }: Original| {
        let bytes = Disk::new(device.clone()).read(byte, bytes as usize).unwrap();
        [Seal::hash_of(&bytes), Some(Hash::of(&bytes))]
    };
    for original in &originals {
        let hash = Some(original.hash);
        assert!(hashes(&sound, *original).contains(&hash), "{original:?}");
        assert!(!hashes(&unpacked, *original).contains(&hash), "{original:?}");
    }
    let has = |magic| {
        let is_there = |original: &Original| {
            let begins = Disk::new(sound.clone()).read(original.byte, 8).unwrap();
            Magic::of(&begins) == magic
        };
        originals.iter().any(is_there)
    };
    use Magic::*;
    for magic in [Superblock, TablePage, Leaf, LogGroup].map(Some).into_iter().chain([None]) {
        assert!(has(magic), "{magic:?}");
    }
    // An image without contents is packed unchanged.
    let (again, originals) = pack(&unpacked, Contents::Zeros).unwrap();
    assert!(originals.is_empty());
    let all = |device: &Arc<dyn Device>| Disk::new(device.clone()).read(0, IMAGE as usize).unwrap();
    assert!(all(&again) == all(&unpacked));
}
