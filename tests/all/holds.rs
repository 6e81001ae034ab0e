//! Snapshots of a key-value volume against a model: each shows the state at the time it was taken, whatever follows.
//! Blocks that only snapshots keep are free after those are dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::mended;
use betr_core::Error;
use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::format::{Action, Key, Op, RecordMessage};
use betr_core::ids::{Time, TreeId};
use betr_core::store::Geometry;
use betr_core::volume::{
    Content, CreateOptions, HoldChange, Mode, OpenOptions, Pruned, Ring, Transaction, Volume,
    holds_of, read_identity,
};
use betr_lab::explore::devices::ForkDevice;
use betr_offline::anatomy::{Area, Ground, Purpose};
use betr_tests::{LATE_BYTES, Random, creation, middling, nonces, rounds, tight, tiny};

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn made(device: &Arc<MemoryDevice>, geometry: Geometry, seed: u64) -> Volume {
    let options = CreateOptions { content: Content::Keys, ..creation(geometry, tight(), seed) };
    let mut volume = Volume::create(device.clone(), options).unwrap();
    volume.checkpoint().unwrap();
    drop(volume);
    opened(device, seed + 1)
}

pub(crate) fn options(mode: Mode, seed: u64) -> OpenOptions {
    OpenOptions {
        cache: tight(),
        content: None,
        late_bytes: LATE_BYTES,
        ..OpenOptions::new(mode, nonces(seed))
    }
}

pub(crate) fn opened(device: &Arc<MemoryDevice>, seed: u64) -> Volume {
    Volume::open(device.clone(), options(Mode::ReadWrite, seed)).unwrap().0
}

pub(crate) fn sound(device: &Arc<MemoryDevice>, what: &str) {
    let device: Arc<dyn Device> = device.clone();
    let report = check(&device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}

pub(crate) fn all(volume: &Volume) -> Model {
    let mut model = Model::new();
    for entry in volume.cursor(TreeId::Data, Key::default(), None) {
        let (key, value) = entry.unwrap();
        model.insert(key.to_vec(), value.to_vec());
    }
    model
}

/// The content of a snapshot.
pub(crate) fn snapshot(device: &Arc<MemoryDevice>, name: &str) -> Model {
    let options = OpenOptions { hold: Some(name.into()), ..options(Mode::Checkpoint, 0) };
    all(&Volume::open(device.clone(), options).unwrap().0)
}

/// Makes a few random changes in the model; returns them as a transaction for the volume.
pub(crate) fn change(random: &mut Random, model: &mut Model) -> Transaction {
    let mut messages = Vec::new();
    for _ in 0..1 + random.below(20) {
        let key = format!("key-{:04}", random.below(400)).into_bytes();
        match random.below(12) {
            0 => {
                let end = [&key[..7], b"~"].concat();
                model.retain(|other, _| *other < key || *other >= end);
                messages.push(RecordMessage::RangeDelete(
                    TreeId::Data,
                    Key::copied(&key),
                    Key::copied(&end),
                ));
            }
            1..4 => {
                model.remove(&key);
                messages.push(RecordMessage::Point(
                    TreeId::Data,
                    Key::copied(&key),
                    Action::Delete,
                ));
            }
            _ => {
                let len = random.below(900) as usize;
                let value = random.bytes(len);
                messages.push(RecordMessage::Point(
                    TreeId::Data,
                    Key::copied(&key),
                    Action::Insert(value.clone().into()),
                ));
                model.insert(key, value);
            }
        }
    }
    Transaction { op: Op::Raw, wall: Time::default(), messages }
}

/// Drops a snapshot, and makes the same number of checkpoints of the twin.
fn drop_hold(volume: &mut Volume, twin: &mut Volume, name: &str) {
    let before = volume.counters().checkpoints;
    volume.drop_hold(name).unwrap();
    for _ in before..volume.counters().checkpoints {
        checkpoint(twin);
    }
}

pub(crate) fn checkpoint(twin: &mut Volume) {
    let checkpoint = twin.begin_checkpoint(Pruned::None).unwrap();
    let waited = checkpoint.wait();
    twin.end_checkpoint(checkpoint, waited).unwrap();
}

#[test]
fn snapshots_show_what_there_was_and_give_all_back() {
    for seed in 0..rounds(4) {
        let mut random = Random::new(seed);
        let geometry = if seed % 2 == 0 { tiny() } else { middling() };
        let [device, other] = [0, 1].map(|_| Arc::new(MemoryDevice::new(16 << 20)));
        let (mut volume, mut twin) = (made(&device, geometry, 7), made(&other, geometry, 7));
        let (mut model, mut held) = (Model::new(), BTreeMap::<String, Model>::new());
        // Some snapshots stay open while the volume changes.
        let mut open = BTreeMap::<String, Volume>::new();
        for step in 0..120 {
            for _ in 0..random.below(6) {
                let changes = change(&mut random, &mut model);
                volume.commit(changes.clone()).unwrap();
                twin.commit(changes).unwrap();
            }
            match random.below(10) {
                0..4 if held.len() < 12 => {
                    let name = format!("snapshot {step}");
                    volume.take_hold(&name).unwrap();
                    checkpoint(&mut twin);
                    if random.below(2) == 0 {
                        let hold = volume.hold(&name).unwrap();
                        open.insert(name.clone(), volume.open_hold(&hold, tight()).unwrap());
                    }
                    held.insert(name, model.clone());
                }
                4..7 if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    let name = held.keys().nth(at).unwrap().clone();
                    open.remove(&name);
                    drop_hold(&mut volume, &mut twin, &name);
                    held.remove(&name);
                }
                7 => {
                    volume.checkpoint().unwrap();
                    twin.checkpoint().unwrap();
                }
                8 => {
                    volume.sync().unwrap();
                    twin.sync().unwrap();
                    drop((volume, twin));
                    (volume, twin) = (opened(&device, 100 + step), opened(&other, 100 + step));
                }
                _ => {}
            }
            if step % 10 == 9 {
                sound(&device, &format!("seed {seed}, step {step}"));
                for (name, model) in &held {
                    assert!(snapshot(&device, name) == *model, "seed {seed}, step {step}: {name}");
                    let hold = volume.hold(name).unwrap();
                    let fresh = volume.open_hold(&hold, tight()).unwrap();
                    for shown in open.get(name).into_iter().chain([&fresh]) {
                        assert!(all(shown) == *model, "seed {seed}, step {step}: {name}, open");
                    }
                }
            }
            assert!(
                volume
                    .holds()
                    .unwrap()
                    .iter()
                    .map(|hold| &hold.name)
                    .all(|name| held.contains_key(name))
            );
        }
        for name in std::mem::take(&mut held).into_keys() {
            drop_hold(&mut volume, &mut twin, &name);
        }
        for volume in [&mut volume, &mut twin] {
            volume.checkpoint().unwrap();
            volume.checkpoint().unwrap();
        }
        assert!(all(&volume) == model, "seed {seed}");
        let used = [&volume, &twin].map(|volume| volume.superblock().used_blocks);
        assert_eq!(
            used[0], used[1],
            "seed {seed}: used blocks, and those of a twin without snapshots"
        );
        assert_eq!(volume.superblock().holds, Default::default(), "seed {seed}");
        sound(&device, &format!("seed {seed}"));
    }
}

#[test]
fn names_that_cannot_be_are_refused() {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let mut volume = made(&device, tiny(), 1);
    volume.take_hold("one").unwrap();
    for name in ["", ".", "..", "a/b", "a@b", "a\nb", "\u{1b}[31m", &"x".repeat(256)] {
        assert!(matches!(volume.take_hold(name), Err(Error::Input(_))), "{name:?}");
        assert!(matches!(volume.rename_hold("one", name), Err(Error::Input(_))), "{name:?}");
    }
    let error = volume.take_hold("one").unwrap_err().to_string();
    assert_eq!(error, "there is a snapshot 'one' already");
    let error = volume.drop_hold("two").unwrap_err().to_string();
    assert_eq!(error, "there is no snapshot 'two'; there is 'one'");
    volume.rename_hold("one", "ünd so weiter").unwrap();
    volume.keep_hold("ünd so weiter", true).unwrap();
    let holds = volume.holds().unwrap();
    assert_eq!(
        holds.iter().map(|hold| (&*hold.name, hold.kept)).collect::<Vec<_>>(),
        [("ünd so weiter", true)]
    );
    sound(&device, "named anew");
    volume.drop_hold("ünd so weiter").unwrap();
    sound(&device, "dropped");
}

/// Blocks that are free, or given up by the volume.
fn free(volume: &Volume) -> u64 {
    volume.blocks().unwrap().free
}

#[test]
fn full_volumes_with_a_hundred_snapshots_are_not_stuck() {
    for (seed, percent) in [(1, 95), (2, 100), (3, 100)] {
        let mut random = Random::new(seed);
        let mib = 8 + 8 * seed;
        let device = Arc::new(MemoryDevice::new(mib << 20));
        let mut volume = made(&device, tiny(), 7);
        let mut model = Model::new();
        let insert = |number: u64, random: &mut Random| {
            let key = number.to_be_bytes().to_vec();
            let len = 200 + random.below(800) as usize;
            (key, random.bytes(len))
        };
        let commit = |volume: &mut Volume, key: &[u8], value: Option<Vec<u8>>| {
            let action = value.map_or(Action::Delete, |value| Action::Insert(value.into()));
            let message = RecordMessage::Point(TreeId::Data, Key::copied(key), action);
            volume.commit(Transaction {
                op: Op::Raw,
                wall: Time::default(),
                messages: vec![message],
            })
        };
        // A hundred snapshots while the volume fills up, each of a different state.
        let (mut taken, mut number, total) = (0, 0, volume.blocks().unwrap().total);
        let mut is_full = false;
        while !is_full {
            let (key, value) = match random.below(3) {
                0 if number > 0 => insert(random.below(number), &mut random),
                _ => insert(number, &mut random),
            };
            match commit(&mut volume, &key, Some(value.clone())) {
                Ok(_) => {
                    number = number.max(1 + u64::from_be_bytes(*key.first_chunk().unwrap()));
                    model.insert(key, value);
                }
                Err(Error::NoSpace { held_blocks, .. }) => {
                    assert!(held_blocks > 0, "the snapshots are named");
                    is_full = true;
                }
                Err(error) => panic!("{error}"),
            }
            let used = total - volume.blocks().unwrap().available;
            is_full |= used * 100 >= total * percent;
            while taken < 100 && used * 100 >= total * (taken + 1) * 9 / 10 {
                match volume.take_hold(&format!("{taken}")) {
                    Ok(()) => taken += 1,
                    Err(Error::NoSpace { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        println!("{mib} MiB, {percent} %: {taken} snapshots, {} entries", model.len());
        assert!(taken >= 90, "{taken} snapshots");
        sound(&device, "full");
        // Deletes continue until there is no space for them; lack of space is the only error allowed.
        let mut refused = 0;
        for key in model.keys().cloned().collect::<Vec<_>>().iter().step_by(2) {
            match commit(&mut volume, key, None) {
                Ok(_) => {
                    model.remove(key);
                }
                Err(Error::NoSpace { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            if refused > 20 {
                break;
            }
        }
        println!("{} entries, {refused} deletes refused", model.len());
        // Reopens the volume on the way, as after a crash.
        volume.sync().unwrap();
        drop(volume);
        volume = opened(&device, 200 + seed);
        assert!(all(&volume) == model);
        volume.checkpoint().unwrap();
        let names: Vec<String> =
            volume.holds().unwrap().into_iter().map(|hold| hold.name).collect();
        for (at, name) in names.iter().enumerate() {
            let told = volume.dropping_frees(name).unwrap();
            let before = volume.superblock().used_blocks;
            volume.drop_hold(name).unwrap();
            let after = volume.superblock().used_blocks;
            assert_eq!(before - after, told, "{name}");
            if at == names.len() / 2 {
                drop(volume);
                sound(&device, "half of them dropped");
                volume = opened(&device, 300 + seed);
            }
        }
        assert!(all(&volume) == model);
        let (key, value) = insert(number, &mut random);
        commit(&mut volume, &key, Some(value)).unwrap();
        for key in model.keys() {
            commit(&mut volume, key, None).unwrap();
        }
        volume.drain().unwrap();
        (0..3).for_each(|_| volume.checkpoint().unwrap());
        assert!(free(&volume) > total * 8 / 10, "{} of {total} blocks", free(&volume));
        sound(&device, "all dropped");
    }
}

#[test]
fn a_snapshot_is_a_checkpoint_and_two_pages() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let mut volume = made(&device, tiny(), 1);
    let mut random = Random::new(5);
    let mut model = Model::new();
    let mut writes = Vec::new();
    let count = |volume: &Volume| volume.io_counts().writes;
    for taken in 0..1000 {
        if taken % 100 == 0 {
            volume.commit(change(&mut random, &mut model)).unwrap();
        }
        volume.checkpoint().unwrap();
        // An empty checkpoint, then one with a snapshot.
        let before = count(&volume);
        volume.checkpoint().unwrap();
        let plain = count(&volume) - before;
        let before = count(&volume);
        volume.take_hold(&format!("{taken}")).unwrap();
        let with = count(&volume) - before;
        // The space map has both pages, and the pages they replace.
        assert_eq!(with - plain, 2, "{taken} snapshots");
        writes.push(plain);
    }
    assert_eq!(writes[1], writes[999], "a checkpoint writes what it writes with one snapshot");
    sound(&device, "a thousand");
}

/// Every 37th byte that only snapshots use (each byte with `BETR_FLIP=all`) is zeroed, and has a bit flipped. The live
/// volume stays unchanged, and no snapshot is lost without a finding.
#[test]
fn whatever_is_damaged_of_snapshots_the_live_volume_is_whole() {
    let base = ForkDevice::of(&mended::held());
    let sound: Arc<dyn Device> = Arc::new(base.fork());
    let disk = Disk::new(sound.clone());
    let superblock = Ring::read(&disk, &read_identity(&disk).unwrap()).unwrap();
    let superblock = superblock.choose(None).unwrap().clone();
    let ground = Ground::of(&disk, &superblock, None);
    let is_theirs = |area: &&Area| {
        matches!(area.purpose, Purpose::Holds(..) | Purpose::DeadList | Purpose::Kept(_))
    };
    let areas = ground.areas.iter().filter(is_theirs);
    let blocks: Vec<u64> = areas.flat_map(|area| area.start..area.start + area.blocks).collect();
    assert!(blocks.len() > 10, "{blocks:?}");
    let names = |device: &Arc<dyn Device>| -> Vec<String> {
        let disk = Disk::new(device.clone());
        let ring = Ring::read(&disk, &read_identity(&disk).unwrap()).unwrap();
        let holds = holds_of(&disk, ring.choose(None).unwrap()).unwrap();
        holds.into_iter().map(|hold| hold.name).collect()
    };
    let (live, before) = (mended::contents(&sound), names(&sound));
    assert_eq!(before, ["one", "three"]);
    let (mut found, mut lost) = (0, 0);
    let all = std::env::var("BETR_FLIP").is_ok_and(|what| what == "all");
    let step = if all { 1 } else { 37 };
    for byte in
        blocks.iter().flat_map(|block| (0..4096).step_by(step).map(move |at| block * 4096 + at))
    {
        let was = disk.read(byte, 1).unwrap()[0];
        for now in [0, was ^ 0x40].into_iter().filter(|now| *now != was) {
            let what = format!("byte {byte:#x} made {now:#x}");
            let device = Arc::new(base.fork());
            device.write_at(byte, &[now]).unwrap();
            let Some((_, done, device)) = mended::mended_on(&what, device) else {
                // A byte that nothing reads: the end of a block.
                continue;
            };
            found += 1;
            assert!(mended::contents(&device) == live, "{what}");
            let changes = done.mended.unwrap_or_default().changes;
            let after = names(&device);
            for name in before.iter().filter(|name| !after.contains(name)) {
                lost += 1;
                let told = |change: &betr_core::mend::Change| change.what.contains("given up");
                assert!(changes.iter().any(told), "{what}: nothing is said of '{name}'");
            }
        }
    }
    println!("{found} damages found, {lost} snapshots lost");
    assert!(found > 500 && lost < 2 * found, "{found} found, {lost} snapshots lost");
}

#[test]
fn rollbacks_bring_back_what_there_was() {
    for seed in 0..rounds(6) {
        let mut random = Random::new(100 + seed);
        let geometry = if seed % 2 == 0 { tiny() } else { middling() };
        let device = Arc::new(MemoryDevice::new(16 << 20));
        let mut volume = made(&device, geometry, 7);
        // By age: the content of each snapshot, and the blocks in use after it was taken.
        let (mut model, mut held) = (Model::new(), Vec::<(String, Model)>::new());
        let mut back = 0;
        for step in 0..150 {
            for _ in 0..random.below(8) {
                volume.commit(change(&mut random, &mut model)).unwrap();
            }
            let msn = volume.next_msn();
            match random.below(12) {
                0..4 if held.len() < 10 => {
                    volume.take_hold(&format!("{step}")).unwrap();
                    held.push((format!("{step}"), model.clone()));
                }
                // Some drops are left unfinished.
                4 | 5 if !held.is_empty() => {
                    let (name, _) = held.remove(random.below(held.len() as u64) as usize);
                    volume.change_holds(&HoldChange::Drop(name)).unwrap();
                    for _ in 0..random.below(3) {
                        volume.change_holds(&HoldChange::Piece(1 + random.below(30))).unwrap();
                    }
                }
                6 | 7 if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    let name = held[at].0.clone();
                    if at + 1 < held.len() {
                        let error = volume.roll_back(&name, false).unwrap_err().to_string();
                        assert!(
                            error.contains("have to be dropped before that or with it: '"),
                            "{error}"
                        );
                        assert!(all(&volume) == model, "seed {seed}, step {step}: it was refused");
                    }
                    volume.roll_back(&name, true).unwrap();
                    held.truncate(at + 1);
                    model = held[at].1.clone();
                    back += 1;
                    assert!(all(&volume) == model, "seed {seed}, step {step}: back");
                    sound(&device, &format!("seed {seed}, step {step}: back"));
                }
                8 => volume.checkpoint().unwrap(),
                9 => {
                    volume.sync().unwrap();
                    drop(volume);
                    volume = opened(&device, 200 + step);
                }
                _ => {}
            }
            assert!(volume.next_msn() >= msn, "numbers never go back");
            assert!(all(&volume) == model, "seed {seed}, step {step}");
            let names: Vec<String> =
                volume.holds().unwrap().into_iter().map(|hold| hold.name).collect();
            assert!(names.iter().eq(held.iter().map(|(name, _)| name)), "seed {seed}, step {step}");
            if step % 15 == 14 {
                volume.sync().unwrap();
                sound(&device, &format!("seed {seed}, step {step}"));
                for (name, model) in &held {
                    assert!(snapshot(&device, name) == *model, "seed {seed}, step {step}: {name}");
                }
            }
        }
        println!("seed {seed}: {back} rollbacks");
        assert!(back > 5);
        held.into_iter().for_each(|(name, _)| volume.drop_hold(&name).unwrap());
        while volume.drop_some().unwrap() {}
        (0..2).for_each(|_| volume.checkpoint().unwrap());
        assert!(all(&volume) == model, "seed {seed}");
        assert_eq!(volume.superblock().holds, Default::default(), "seed {seed}");
        sound(&device, &format!("seed {seed}"));
    }
}

#[test]
fn a_rollback_gives_back_all_that_came_after() {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let mut volume = made(&device, tiny(), 1);
    let (mut random, mut model) = (Random::new(9), Model::new());
    let mut fill = |volume: &mut Volume, model: &mut Model| {
        for _ in 0..200 {
            volume.commit(change(&mut random, model)).unwrap();
        }
    };
    fill(&mut volume, &mut model);
    volume.checkpoint().unwrap();
    volume.take_hold("before").unwrap();
    (0..2).for_each(|_| checkpoint(&mut volume));
    let (then, used, numbers) =
        (model.clone(), volume.superblock().used_blocks, volume.superblock().clone());
    for name in ["one", "two"] {
        fill(&mut volume, &mut model);
        volume.take_hold(name).unwrap();
    }
    volume.keep_hold("one", true).unwrap();
    let error = volume.roll_back("before", true).unwrap_err().to_string();
    assert_eq!(error, "younger snapshots are kept: 'one'; release them first");
    volume.keep_hold("one", false).unwrap();
    fill(&mut volume, &mut model);
    volume.roll_back("before", true).unwrap();
    (0..2).for_each(|_| checkpoint(&mut volume));
    assert!(all(&volume) == then);
    let now = volume.superblock();
    // The root of the table was rewritten, perhaps with more levels. The snapshot's root is on a page of a dead list.
    let more = u64::from(now.table.levels - numbers.table.levels) + 2;
    assert!((used + 1..=used + more).contains(&now.used_blocks), "{used}, now {}", now.used_blocks);
    assert!(now.next_node > numbers.next_node && now.next_msn > numbers.next_msn);
    sound(&device, "back");
}

#[test]
fn a_rollback_that_meets_damage_changes_nothing() {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let mut volume = made(&device, tiny(), 1);
    let (mut random, mut model) = (Random::new(9), Model::new());
    for name in ["one", "two"] {
        for _ in 0..100 {
            volume.commit(change(&mut random, &mut model)).unwrap();
        }
        volume.take_hold(name).unwrap();
    }
    for _ in 0..100 {
        volume.commit(change(&mut random, &mut model)).unwrap();
    }
    volume.checkpoint().unwrap();
    let list = volume.holds().unwrap()[1].dead.newest.unwrap();
    device.write_at(list.block.byte() + 200, b"damaged").unwrap();
    let error = volume.roll_back("one", true).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert!(!volume.has_failed());
    assert!(all(&volume) == model);
    volume.commit(change(&mut random, &mut model)).unwrap();
    volume.checkpoint().unwrap();
    // A rollback that does not need the damaged page works.
    volume.roll_back("two", true).unwrap();
    assert_eq!(volume.holds().unwrap().len(), 2);
}
