//! Repair: whatever block is damaged, the repaired image is sound and has lost no more than the repair reports.

use std::sync::Arc;

use betr_core::Error;
use betr_core::check::{CheckOptions, Code, Finding, Repairable, Report, Severity, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{
    Action, FileType, Inode, MetaKey, MetaValue, NextNumbers, Op, RecordMessage, ZoneSizes, limits,
};
use betr_core::fs::{Attributes, Fs, New, ROOT_ZONE};
use betr_core::ids::{BLOCK_SIZE, Tag, Time, TreeId, is_zero};
use betr_core::mend::{Missing, MissingPart, Repair, repair_all};
use betr_core::space::slot_block;
use betr_core::store::Geometry;
use betr_core::volume::{Mode, Transaction};
use betr_lab::explore::devices::{ForkDevice, RecordingDevice};
use betr_lab::explore::{Broken, Step, Sweep, perform, random_steps};
use betr_tests::contents::{Contents, all_is_told};
use betr_tests::{
    Random, clock, create_zoned, formatted, middling, open, roomy, rounds, tight, tiny,
};
use bytes::Bytes;

use betr_core::volume::HoldChange;

use crate::hostile;

const ALL: CheckOptions = CheckOptions::ALL;

pub(crate) fn contents(device: &Arc<dyn Device>) -> Contents {
    betr_tests::contents::contents(device).unwrap()
}

/// Repairs an image: returns the findings before, the repair, and the repaired device.
fn mended(what: &str, bytes: Vec<u8>) -> Option<(Report, Repair, Arc<dyn Device>)> {
    mended_on(what, Arc::new(MemoryDevice::from(bytes)))
}

/// The same for a device.
pub(crate) fn mended_on(
    what: &str,
    device: Arc<dyn Device>,
) -> Option<(Report, Repair, Arc<dyn Device>)> {
    let before = check(&device, ALL, &mut ());
    if matches!(before.repairable(), Repairable::Nothing | Repairable::No) {
        return None;
    }
    let (done, after) = repair_all(&device, &before, ALL, Time::default(), Box::new(|| 7))
        .unwrap_or_else(|error| panic!("{what}: {error}: {:?}", before.findings));
    let left = &after.findings;
    assert!(left.is_empty(), "{what}: {left:?}\nbefore: {:?}\n{done:#?}", before.findings);
    Some((before, done, device))
}

/// The ways to damage a block.
const WAYS: [&str; 4] = ["zeroed", "first bit", "last bit", "swapped"];

fn damaged(image: &[u8], block: usize, way: &str) -> Vec<u8> {
    let mut bytes = image.to_vec();
    let range = block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE;
    match way {
        "zeroed" => bytes[range].fill(0),
        "first bit" => bytes[range.start] ^= 0x80,
        "last bit" => bytes[range.end - 1] ^= 1,
        _ => {
            // Swapped with a block far away.
            let other = (block + 77) % (image.len() / BLOCK_SIZE) * BLOCK_SIZE;
            bytes.copy_within(other..other + BLOCK_SIZE, range.start);
            bytes[other..other + BLOCK_SIZE].copy_from_slice(&image[range]);
        }
    }
    bytes
}

/// A number from the environment.
pub(crate) fn setting(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// `BETR_BLOCKS_MIB=64` uses an image of 64 MiB instead of 4 MiB; `BETR_ROUNDS=4` damages each block in all ways, instead
/// of one.
#[test]
fn whatever_block_is_damaged_the_rest_is_repaired() {
    let mib = setting("BETR_BLOCKS_MIB").unwrap_or(4) as u64;
    let image = hostile::image(mib << 20);
    let (repaired, whole) = every_block(&image, |_, _| true);
    println!("{repaired} repaired, {whole} of them without loss");
    assert!(repaired > 30 && whole > 10, "{repaired} repaired, {whole} of them without loss");
    // This image has long values, whose keys are stored together.
    let image = settled();
    let (repaired, whole) = every_block(&image, |_, bytes| !is_zero(bytes));
    println!("{repaired} repaired, {whole} of them without loss");
    assert!(repaired > 10 && whole > 2, "{repaired} repaired, {whole} of them without loss");
}

/// Nodes that several files share. `BETR_ROUNDS=4` damages each block in all ways.
#[test]
fn whatever_block_of_clones_is_damaged_the_rest_is_repaired() {
    let image = cloned();
    let device = Arc::new(MemoryDevice::from(image.clone()));
    let (volume, _) = open(device, Mode::Checkpoint, tight(), 1).unwrap();
    let superblock = volume.superblock();
    // What the log has lost is a finding of its own.
    let log = superblock.log_start.0..superblock.log_start.0 + superblock.log_units;
    let is_wanted = |block: usize, bytes: &[u8]| !is_zero(bytes) && !log.contains(&(block as u64));
    let (repaired, whole) = every_block(&image, is_wanted);
    println!("{repaired} repaired, {whole} of them without loss");
    assert!(repaired > 150 && whole > 20, "{repaired} repaired, {whole} of them without loss");
}

/// Damages the wanted blocks of an image, one at a time, each in one of the ways or more. Returns the number of repairs,
/// and of those without loss.
fn every_block(image: &[u8], is_wanted: impl Fn(usize, &[u8]) -> bool) -> (usize, usize) {
    let sound: Arc<dyn Device> = Arc::new(MemoryDevice::from(image.to_vec()));
    let sound = contents(&sound);
    let (mut repaired, mut whole) = (0, 0);
    let blocks = image.chunks(BLOCK_SIZE).enumerate();
    for (block, _) in blocks.filter(|(block, bytes)| is_wanted(*block, bytes)) {
        for round in 0..WAYS.len().min(rounds(1) as usize) {
            let way = WAYS[(block + round) % WAYS.len()];
            let bytes = damaged(image, block, way);
            if bytes == image {
                continue;
            }
            let what = format!("block {block} {way}");
            let Some((before, done, device)) = mended(&what, bytes) else { continue };
            repaired += 1;
            let after = contents(&device);
            all_is_told(&what, &sound, &after, &done.mended.clone().unwrap_or_default());
            // Tables and maps are reconstructed completely.
            let found = |f: &Finding| {
                f.code.severity() == Severity::Note
                    || f.code.problem().name.starts_with(['I', 'S', 'M', 'T'])
            };
            if way != "swapped" && before.findings.iter().all(found) {
                let losses = done.mended.map_or(Vec::new(), |mended| mended.losses);
                assert_eq!(losses, [], "{what}");
                assert!(after == sound, "{what}");
                whole += 1;
            }
        }
    }
    (repaired, whole)
}

/// An image with all kinds of operations, the last of them in the log.
pub(crate) fn eventful(seed: u64) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let mut fs = formatted(device.clone(), tiny(), tight(), seed);
    let all = random_steps(seed, 400);
    let (steps, last) = all.split_at(300);
    for step in steps {
        let _ = perform(&mut fs, step);
    }
    fs.checkpoint().unwrap();
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, tight(), seed + 1).unwrap().0;
    let mut fs = Fs::open(volume, clock(1000));
    for step in last.iter().filter(|step| !matches!(step, Step::Checkpoint)) {
        let _ = perform(&mut fs, step);
    }
    fs.volume_mut().sync().unwrap();
    drop(fs);
    device.snapshot()
}

/// An image with a few files of all types, one leaf per tree and nothing pending.
pub(crate) fn settled() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let mut fs = formatted(device.clone(), middling(), roomy(), 3);
    let root = fs.root().unwrap();
    let new = |kind| New::of(kind, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", new(FileType::Regular)).unwrap();
    fs.write(&file, 0, &Bytes::from(Random::new(3).bytes(10_000))).unwrap();
    let mut link = new(FileType::Symlink);
    link.target = b"file".to_vec();
    fs.make(&root, b"link", link).unwrap();
    let directory = fs.make(&root, b"directory", new(FileType::Directory)).unwrap();
    fs.link(&file, &directory, b"another name").unwrap();
    fs.make(&directory, b"device", new(FileType::CharDevice)).unwrap();
    // Long values, whose keys are stored together.
    for number in 0..6 {
        let name = format!("page {number}");
        let page = fs.make(&directory, name.as_bytes(), new(FileType::Regular)).unwrap();
        fs.write(&page, 0, &Bytes::from(Random::new(number).bytes(3000))).unwrap();
    }
    fs.checkpoint().unwrap();
    fs.set_xattrs(&directory, &[(b"user.note".to_vec(), vec![7; 40])]).unwrap();
    fs.checkpoint().unwrap();
    drop((root, file, directory, fs));
    device.snapshot()
}

/// An image with three snapshots, one of them being dropped, and with dead records before and after each.
pub(crate) fn held() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(2 << 20));
    let mut fs = formatted(device.clone(), tiny(), roomy(), 3);
    hostile::fill(&mut fs, 0..20, 60);
    fs.checkpoint().unwrap();
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, roomy(), 4).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
        fs.volume_mut().take_hold(name).unwrap();
        let root = fs.root().unwrap();
        for file in 5 * number..5 * number + 4 {
            fs.unlink(&root, format!("file-{file:03}").as_bytes()).unwrap();
        }
        let more = 20 + 2 * number as u32;
        hostile::fill(&mut fs, more..more + 2, 60);
        fs.volume_mut().drain().unwrap();
        fs.checkpoint().unwrap();
    }
    fs.volume_mut().change_holds(&HoldChange::Drop("two".into())).unwrap();
    assert!(fs.volume().can_drop(), "it is not done");
    drop(fs);
    device.snapshot()
}

/// An image with files that share blocks, changed since, with nodes without edges, a snapshot, a cloned directory, and clones
/// in the log.
pub(crate) fn cloned() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let zones = ZoneSizes::of_max(8 << 10);
    let volume = create_zoned(device.clone(), tiny(), tight(), zones, 3).unwrap();
    Fs::format(volume, clock(0), Attributes::at(Time::default())).unwrap().checkpoint().unwrap();
    let volume = open(device.clone(), Mode::ReadWrite, tight(), 4).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    let mut random = Random::new(3);
    let root = fs.root().unwrap();
    for number in 0..4 {
        let new = New::of(FileType::Regular, Attributes::at(Time::default()));
        let name = format!("file-{number}");
        let file = fs.make(&root, name.as_bytes(), new).unwrap();
        fs.write(&file, 0, &Bytes::from(random.bytes(20_000 + 7000 * number))).unwrap();
    }
    fs.checkpoint().unwrap();
    for round in 0..12 {
        let from = fs.resolve(format!("/file-{}", random.below(4 + round)).as_bytes()).unwrap();
        fs.copy(&from, &root, format!("file-{}", 4 + round).as_bytes()).unwrap();
        let changed = fs.resolve(format!("/file-{}", random.below(5 + round)).as_bytes()).unwrap();
        let at = random.below(20_000);
        fs.write(&changed, at, &Bytes::from(random.bytes(50))).unwrap();
        match round {
            2 => clone_directory(&mut fs),
            5 => fs.volume_mut().take_hold("held").unwrap(),
            8 => fs.truncate(&changed, 9000).unwrap(),
            9 => fs.checkpoint().unwrap(),
            _ => {}
        }
    }
    fs.volume_mut().sync().unwrap();
    assert!(fs.volume().store().table.shares());
    drop((root, fs));
    device.snapshot()
}

/// Makes a directory with a small file, a link and a directory, and a clone of it.
fn clone_directory(fs: &mut Fs) {
    let root = fs.root().unwrap();
    let new = |kind| New::of(kind, Attributes::at(Time::default()));
    let directory = fs.make(&root, b"directory", new(FileType::Directory)).unwrap();
    let file = fs.make(&directory, b"file", new(FileType::Regular)).unwrap();
    fs.write(&file, 0, &Bytes::from_static(b"short")).unwrap();
    fs.link(&file, &directory, b"another name").unwrap();
    fs.make(&directory, b"below", new(FileType::Directory)).unwrap();
    fs.clone_directory(&directory, &root, b"clone").unwrap();
}

/// A volume with a directory and a clone of it; and the zone of the clone.
fn with_clone() -> (Arc<MemoryDevice>, Fs, MetaKey) {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let mut fs = formatted(device.clone(), tiny(), roomy(), 3);
    clone_directory(&mut fs);
    let name = MetaKey::root(ROOT_ZONE).child(b"clone").encode();
    let value = fs.volume().get(TreeId::Metadata, &name).unwrap().unwrap();
    let MetaValue::ZoneRef(clone) = MetaValue::decode(&value, None).unwrap() else {
        panic!("a reference");
    };
    (device, fs, MetaKey::root(clone.zone))
}

/// Does something to an entry of the metadata, behind the file system's back.
fn change(fs: &mut Fs, place: &MetaKey, action: Action) {
    let message = RecordMessage::Point(TreeId::Metadata, place.encode(), action);
    let change = Transaction { op: Op::Raw, wall: Time::default(), messages: vec![message] };
    fs.volume_mut().commit(change).unwrap();
}

/// Without its root a clone has lost its tag. Its objects get numbers that no other object has: with a new tag, or each
/// a new one if there is no tag left.
#[test]
fn a_clone_without_a_root_gets_numbers_of_its_own() {
    for tags_left in [true, false] {
        let (device, mut fs, zone) = with_clone();
        if !tags_left {
            let next = fs.volume().next_numbers();
            let tag = Tag(limits::TAGS_END);
            fs.volume_mut().raise_numbers(NextNumbers { tag, ..next });
        }
        change(&mut fs, &zone, Action::Delete);
        fs.checkpoint().unwrap();
        drop(fs);
        let (_, done, repaired) = mended("no root", device.snapshot()).unwrap();
        let changes = done.mended.unwrap().changes;
        let says = |what: &str| changes.iter().any(|change| change.what.contains(what));
        assert_eq!(
            (says("with tag"), says("inode number")),
            (tags_left, !tags_left),
            "{changes:?}"
        );
        let after = contents(&repaired);
        for name in ["file", "another name", "below"] {
            let [original, clone] =
                ["directory", "clone"].map(|above| &after[format!("/{above}/{name}").as_bytes()]);
            assert_ne!(number(&original.0), number(&clone.0), "{name}");
            assert_eq!(original.1, clone.1, "{name}");
        }
    }
}

/// A clone that has lost the message about a name of a file with a zone shows the original's reference.
#[test]
fn names_that_a_clone_has_from_its_original_are_dropped() {
    let (device, mut fs, zone) = with_clone();
    fs.checkpoint().unwrap();
    let sound: Arc<dyn Device> = Arc::new(MemoryDevice::from(device.snapshot()));
    let before = contents(&sound);
    let root = MetaKey::root(ROOT_ZONE).child(b"directory");
    let original = root.child(b"file").encode();
    let value = fs.volume().get(TreeId::Metadata, &original).unwrap().unwrap();
    for name in [&b"file"[..], b"another name"] {
        change(&mut fs, &zone.child(name), Action::Insert(value.clone()));
    }
    fs.checkpoint().unwrap();
    drop(fs);
    let (_, _, repaired) = mended("names of the original", device.snapshot()).unwrap();
    let after = contents(&repaired);
    for name in ["/directory/file", "/directory/another name"] {
        assert_eq!(before[name.as_bytes()], after[name.as_bytes()], "{name}");
    }
    for name in ["/clone/file", "/clone/another name"] {
        assert!(!after.contains_key(name.as_bytes()), "{name}");
    }
    // The clone's own file has lost its names.
    assert!(
        after.iter().any(|(path, (_, data))| path.starts_with(b"/lost+found/") && data == b"short")
    );
}

/// An image with several log groups that bind values late.
pub(crate) fn logged() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let mut fs = formatted(device.clone(), tiny(), roomy(), 3);
    fs.checkpoint().unwrap();
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, roomy(), 4).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    let root = fs.root().unwrap();
    let new = || New::of(FileType::Regular, Attributes::at(Time::default()));
    for number in 0..5u64 {
        let name = format!("file-{number}");
        let file = fs.make(&root, name.as_bytes(), new()).unwrap();
        let bytes = if number % 2 == 0 { 40_000 } else { 3000 };
        fs.write(&file, 0, &Bytes::from(Random::new(number).bytes(bytes))).unwrap();
        fs.volume_mut().sync().unwrap();
    }
    drop((root, fs));
    device.snapshot()
}

/// Damages several blocks at once, in images with directories, links, zones, holes, attributes and a log.
#[test]
fn whatever_blocks_are_damaged_what_is_left_is_sound() {
    let (mut repaired, mut left) = (0, 0);
    for seed in 0..rounds(40) {
        let image = eventful(seed);
        let device = Arc::new(MemoryDevice::from(image.clone()));
        let (volume, _) = open(device, Mode::ReadOnly, tight(), 1).unwrap();
        let used = volume.store().space.used();
        let blocks: Vec<usize> =
            (16..used.len()).filter(|block| used.get(*block)).map(|block| block as usize).collect();
        let mut random = Random::new(seed + 99);
        for round in 0..6 {
            let mut bytes = image.clone();
            let mut what = format!("seed {seed}, round {round}:");
            for _ in 0..1 + random.below(5) {
                let block = blocks[random.below(blocks.len() as u64) as usize];
                let way = WAYS[random.below(4) as usize];
                bytes = damaged(&bytes, block, way);
                what += &format!(" block {block} {way}");
            }
            match mended(&what, bytes) {
                Some((.., device)) => {
                    contents(&device);
                    repaired += 1;
                }
                None => left += 1,
            }
        }
    }
    println!("{repaired} repaired, {left} had nothing to be repaired, or could not be");
    assert!(repaired > 2 * left, "{repaired} repaired, {left} left");
}

/// The inode number in this text.
fn number(inode: &str) -> Option<&str> {
    Some(inode.split_once("ino: ")?.1.split_once(',')?.0)
}

/// Contents without the inode numbers that a repair assigned to files with lost inodes: a second repair continues after
/// those of the first.
fn without_new_numbers(contents: Contents, old: &Contents) -> Contents {
    let told = |path: &[u8], inode: String| {
        let before = old.get(path).and_then(|(inode, _)| number(inode));
        match number(&inode) {
            Some(new) if before != Some(new) => inode.replace(&format!("ino: {new}"), "ino: new"),
            _ => inode,
        }
    };
    let each = contents.into_iter();
    each.map(|(path, (inode, bytes))| (path.clone(), (told(&path, inode), bytes))).collect()
}

/// A repair with losses is written like any checkpoint: an interruption leaves the damaged image or an intermediate
/// state, and the same repair completes it.
#[test]
fn a_repair_can_be_cut_off_anywhere() {
    let image = hostile::image(2 << 20);
    let device = Arc::new(MemoryDevice::from(image.clone()));
    let (volume, _) = open(device.clone(), Mode::Checkpoint, tight(), 1).unwrap();
    let superblock = volume.superblock().clone();
    let old = contents(&(device as Arc<dyn Device>));
    let used = volume.store().space.used().clone();
    let nodes: Vec<u64> = (104..used.len() - 16).filter(|block| used.get(*block)).collect();
    let table = superblock.table.page.block.0;
    // Damaged are: nodes; nodes and the table; nodes and the space map; both slots of the newest superblock, and all
    // slots; and the latter two with nodes.
    let map = superblock.map.start().0;
    let slots: Vec<u64> = (0..32).map(|slot| slot_block(volume.identity().ring, slot).0).collect();
    let newest = superblock.slot & !1;
    let newest = &slots[newest as usize..newest as usize + 2];
    let two = [nodes[3], nodes[7]];
    let with = |more: &[u64]| [&two[..], more].concat();
    let damages = [
        with(&[]),
        with(&[table]),
        with(&[map]),
        with(&[map + 1]),
        newest.to_vec(),
        slots.clone(),
        with(newest),
        with(&slots),
    ];
    let mut states = 0;
    for blocks in damages {
        let mut bytes = image.clone();
        for block in &blocks {
            bytes = damaged(&bytes, *block as usize, "zeroed");
        }
        let base = ForkDevice::of(&bytes);
        let recorder = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
        let device: Arc<dyn Device> = recorder.clone();
        let mend = |device: &Arc<dyn Device>| {
            let report = check(device, ALL, &mut ());
            if report.findings.is_empty() {
                return Ok(());
            }
            let done = repair_all(device, &report, ALL, Time::default(), Box::new(|| 9));
            match done.map_err(|error| error.to_string())?.1.findings.first() {
                None => Ok(()),
                Some(left) => Err(format!("{left:?}")),
            }
        };
        mend(&device).unwrap();
        let expected = without_new_numbers(contents(&device), &old);
        let sweep = Sweep { base, events: recorder.events(), seed: 5, states: 400 };
        let judged = sweep.run(|device, _| {
            mend(&device)?;
            match without_new_numbers(contents(&device), &old) == expected {
                true => Ok(()),
                false => Err("something else is left".into()),
            }
        });
        states += judged.unwrap_or_else(|broken| {
            let Broken { cut, description, what, .. } = *broken;
            panic!(
                "blocks {blocks:?}, after event {}: {what}\n{}",
                cut.events,
                description.join("\n")
            )
        });
    }
    println!("{states} distinct states");
    assert!(states > 80, "{states} states");
}

/// A lost superblock is reconstructed and written even on a full volume.
#[test]
fn a_full_volume_gets_its_superblock_back() {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    // A C1 would be lost, and with it what directories count.
    let zones = ZoneSizes::UNLIMITED;
    let volume = create_zoned(device.clone(), tiny(), tight(), zones, 3).unwrap();
    let mut fs = Fs::format(volume, clock(0), Attributes::at(Time::default())).unwrap();
    let root = fs.root().unwrap();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", new).unwrap();
    let mut random = Random::new(3);
    let full = (0..).find_map(|at| {
        let written = fs.write(&file, at * 4096, &Bytes::from(random.bytes(4096)));
        written.err()
    });
    assert!(matches!(full, Some(Error::NoSpace { .. })), "{full:?}");
    fs.checkpoint().unwrap();
    let (ring, slot) = (fs.volume().identity().ring, fs.volume().superblock().slot & !1);
    drop((root, file, fs));
    let sound = contents(&(device.clone() as Arc<dyn Device>));
    let mut bytes = device.snapshot();
    for lost in [vec![slot, slot + 1], (0..32).collect()] {
        for slot in lost {
            let at = slot_block(ring, slot).byte() as usize;
            bytes[at..at + BLOCK_SIZE].fill(0);
        }
        let (before, done, device) = mended("superblocks", bytes.clone()).expect("they are lost");
        assert!(contents(&device) == sound, "{:?} {done:?}", before.findings);
    }
}

/// A value that the log has lost and that was overwritten later is not reported as a loss.
#[test]
fn what_was_written_again_is_not_given_up() {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let mut fs = formatted(device.clone(), tiny(), roomy(), 3);
    fs.checkpoint().unwrap();
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, roomy(), 4).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    let root = fs.root().unwrap();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", new).unwrap();
    fs.volume_mut().sync().unwrap();
    let old = Random::new(3).bytes(40_000);
    fs.write(&file, 0, &Bytes::from(old.clone())).unwrap();
    fs.volume_mut().sync().unwrap();
    let fresh = Random::new(4).bytes(BLOCK_SIZE);
    fs.write(&file, BLOCK_SIZE as u64, &Bytes::from(fresh.clone())).unwrap();
    fs.volume_mut().sync().unwrap();
    drop((root, file, fs));
    let mut bytes = device.snapshot();
    let block = &old[BLOCK_SIZE..2 * BLOCK_SIZE];
    let at = bytes.windows(BLOCK_SIZE).position(|window| window == block);
    bytes[at.expect("it is bound late") + 5] ^= 1;
    let (before, done, device) = mended("a bound block", bytes).expect("there is something wrong");
    let lost = |f: &Finding| f.code == Code::LogDamaged || f.code == Code::ValueLost;
    assert!(before.findings.iter().any(lost), "{:?} {done:?}", before.findings);
    let after = contents(&device);
    let (_, data) = &after[&b"/file"[..]];
    assert!(data[BLOCK_SIZE..2 * BLOCK_SIZE] == fresh, "{:?}", before.findings);
}

/// Exactly the damaged blocks of a file are reported.
#[test]
fn bytes_of_a_file_are_lost_by_blocks() {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let mut fs = formatted(device.clone(), tiny(), roomy(), 3);
    let root = fs.root().unwrap();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", new).unwrap();
    let data = Random::new(3).bytes(40_000);
    fs.write(&file, 0, &Bytes::from(data.clone())).unwrap();
    fs.checkpoint().unwrap();
    drop((root, file, fs));
    for block in 0..data.len() / BLOCK_SIZE {
        let range = block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE;
        let mut bytes = device.snapshot();
        let at = bytes.windows(BLOCK_SIZE).position(|window| *window == data[range.clone()]);
        bytes[at.unwrap() + 5] ^= 1;
        let (_, done, repaired) = mended(&format!("block {block}"), bytes).unwrap();
        let (first, last) = (range.start as u64, range.end as u64 - 1);
        let what = MissingPart::Bytes { first, last };
        let path = b"/file".to_vec();
        assert_eq!(done.mended.unwrap().missing, [Missing { path, what }]);
        let mut expected = data.clone();
        expected[range].fill(0);
        assert!(contents(&repaired)[&b"/file"[..]].1 == expected);
    }
}

/// A volume of `bytes` bytes, filled until ENOSPC. The inodes of the first `wrong_links` files have a link count of 7
/// instead of 1.
fn full(bytes: u64, wrong_links: u32) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let mut fs = formatted(device.clone(), Geometry::of_image(bytes), roomy(), 3);
    fs.checkpoint().unwrap();
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, roomy(), 4).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    let root = fs.root().unwrap();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let mut random = Random::new(3);
    let full = (0..).find_map(|number: u64| {
        let name = number.to_string();
        let contents = random.bytes(1 + random.clone().below(3000) as usize);
        let made = fs.make(&root, name.as_bytes(), new.clone());
        let written = made.and_then(|file| fs.write(&file, 0, &Bytes::from(contents)));
        if number < wrong_links.into() {
            let place = MetaKey::root(ROOT_ZONE).child(name.as_bytes());
            let key = place.encode();
            let value = fs.volume().get(TreeId::Metadata, &key).unwrap().unwrap();
            let MetaValue::Inode(inode) = MetaValue::decode(&value, None).unwrap() else {
                panic!("an inode");
            };
            let wrong = Inode { links: 7, ..inode }.encode();
            let message = RecordMessage::Point(TreeId::Metadata, key, Action::Insert(wrong.into()));
            let wall = Time::default();
            let change = Transaction { op: Op::Raw, wall, messages: vec![message] };
            fs.volume_mut().commit(change).unwrap();
        }
        written.err()
    });
    assert!(matches!(full, Some(Error::NoSpace { .. })), "{full:?}");
    fs.checkpoint().unwrap();
    device
}

/// Inconsistent counts on a full volume are repaired within the reserve.
#[test]
fn a_full_volume_gets_its_counts_right() {
    for bytes in [4 << 20, 16 << 20] {
        let wrong = 1000;
        let device = full(bytes, wrong);
        let (before, _, device) = mended("links", device.snapshot()).expect("they are wrong");
        assert_eq!(before.findings.len(), wrong as usize);
        assert!(contents(&device).len() > wrong as usize);
    }
}

/// Whatever table page of a full volume is damaged, the reserve suffices for the repair.
#[test]
fn a_full_volume_gets_its_table_back() {
    let device = full(16 << 20, 0);
    let sound = contents(&(device.clone() as Arc<dyn Device>));
    let image = device.snapshot();
    let pages =
        image.chunks(BLOCK_SIZE).zip(0..).filter(|(block, _)| block.starts_with(b"\xbeBETRtp"));
    let pages: Vec<usize> = pages.map(|(_, block)| block * BLOCK_SIZE).collect();
    let mut repaired = 0;
    for at in pages {
        let mut bytes = image.clone();
        bytes[at + 100] ^= 1;
        let Some((before, done, device)) = mended("a page of the table", bytes) else { continue };
        assert!(contents(&device) == sound, "{:?} {done:?}", before.findings);
        repaired += 1;
    }
    assert!(repaired > 2, "{repaired}");
}
