//! Snapshots when space is short or a structure of a snapshot is damaged: no drop gets stuck for good, and nothing else
//! is affected.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use betr_core::Error;
use betr_core::device::{DeferringDevice, Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::format::limits::SUPERBLOCK_SLOTS;
use betr_core::format::{Action, Dead, Hold, Key, Op, RecordMessage};
use betr_core::ids::{BLOCK_SIZE, BlockNr, Time, TreeId};
use betr_core::space::{DeadPages, Layout, slot_block};
use betr_core::store::Geometry;
use betr_core::volume::{HoldChange, Mode, OpenOptions, Transaction, Volume, slots_of};
use betr_lab::explore::devices::FaultyDevice;
use betr_tests::{Random, middling, rounds, tiny};

use crate::holds::{Model, all, change, checkpoint, made, opened, options, snapshot, sound};
use crate::mended;

/// A volume that scatters every node of several blocks.
fn scattering(device: &Arc<MemoryDevice>, seed: u64) -> Volume {
    let options = OpenOptions { scatter: true, ..options(Mode::ReadWrite, seed) };
    Volume::open(device.clone(), options).unwrap().0
}

fn names(volume: &Volume) -> Vec<String> {
    volume.holds().unwrap().into_iter().map(|hold| hold.name).collect()
}

/// Inserts or deletes one key.
fn put(volume: &mut Volume, key: &[u8], value: Option<Vec<u8>>) -> Result<(), Error> {
    let action = value.map_or(Action::Delete, |value| Action::Insert(value.into()));
    let messages = vec![RecordMessage::Point(TreeId::Data, Key::copied(key), action)];
    volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).map(drop)
}

/// Whether an operation had space; any other error is a failure.
fn fits<T>(result: Result<T, Error>, what: &str) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::NoSpace { .. }) => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// The damaged structure of the snapshot that is dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damaged {
    /// The scatter map of an extent that would become free.
    Map,
    /// The newest page of the next snapshot's dead list.
    Youngest,
    /// The oldest page of the next snapshot's dead list.
    Oldest,
    /// The newest page of its own dead list, to which records that are still needed move.
    Own,
}

/// The block of that structure; `two` is the dropped snapshot.
fn damaged_block(what: Damaged, disk: &Disk, volume: &Volume) -> BlockNr {
    let [one, two, three, _] = <[Hold; 4]>::try_from(volume.holds().unwrap()).unwrap();
    let list = if what == Damaged::Own { two.dead } else { three.dead };
    let mut pages = DeadPages::new(disk, volume.identity().volume, list);
    let (mut places, mut dead) = (Vec::new(), Vec::<Dead>::new());
    while let Some((at, page)) = pages.next_page().unwrap() {
        places.push(at.block);
        dead.extend(page.dead);
    }
    assert!(places.len() > 1, "{what:?}: {} records", dead.len());
    let map =
        dead.iter().filter(|dead| dead.birth > one.epoch).find_map(|dead| dead.extent.start.map());
    match what {
        Damaged::Map => map.expect("one is scattered").0,
        Damaged::Oldest => *places.last().unwrap(),
        Damaged::Youngest | Damaged::Own => places[0],
    }
}

#[test]
fn damage_stops_one_drop_and_nothing_else() {
    for damaged in [Damaged::Map, Damaged::Youngest, Damaged::Oldest, Damaged::Own] {
        let what = format!("{damaged:?}");
        let device = Arc::new(MemoryDevice::new(32 << 20));
        drop(made(&device, tiny(), 1));
        let mut volume = scattering(&device, 2);
        let (mut random, mut model, mut held) = (Random::new(3), Model::new(), BTreeMap::new());
        for name in ["one", "two", "three", "four"] {
            // Enough for lists of several pages.
            for number in 0..600 {
                let (key, value) = (format!("more-{number:04}").into_bytes(), random.bytes(900));
                put(&mut volume, &key, Some(value.clone())).unwrap();
                model.insert(key, value);
            }
            for _ in 0..30 {
                volume.commit(change(&mut random, &mut model)).unwrap();
            }
            volume.drain().unwrap();
            volume.take_hold(name).unwrap();
            held.insert(name, model.clone());
        }
        let block = damaged_block(damaged, &Disk::new(device.clone()), &volume);
        drop(volume);
        device.write_at(block.byte() + 200, b"damaged").unwrap();
        // Reopening clears the cached maps.
        volume = scattering(&device, 4);
        match volume.drop_hold("two") {
            // That page is not read: moved records begin a new page.
            Ok(()) => assert_eq!(damaged, Damaged::Own),
            Err(error) => assert!(error.is_damage() && damaged != Damaged::Own, "{what}: {error}"),
        }
        assert!(!volume.has_failed() && !volume.can_drop(), "{what}");
        let going = u32::from(damaged != Damaged::Own);
        assert_eq!(volume.superblock().holds.going, going, "{what}");
        assert_eq!(names(&volume), ["one", "three", "four"], "{what}");
        for name in ["four", "one"] {
            volume.commit(change(&mut random, &mut model)).unwrap();
            volume.checkpoint().unwrap();
            match volume.drop_hold(name) {
                // Only now the next snapshot's list begins with that page.
                Err(error) if damaged == Damaged::Own && name == "one" => {
                    assert!(error.is_damage() && !volume.has_failed(), "{what}: {error}");
                }
                dropped => dropped.unwrap_or_else(|error| panic!("{what}, '{name}': {error}")),
            }
        }
        // Opening the volume again retries the drop, and reports the damage again.
        drop(volume);
        volume = scattering(&device, 5);
        assert!(volume.can_drop(), "{what}");
        assert!(volume.drop_some().unwrap_err().is_damage(), "{what}");
        assert!(!volume.has_failed() && all(&volume) == model, "{what}");
        assert!(snapshot(&device, "three") == held["three"], "{what}");
        volume.commit(change(&mut random, &mut model)).unwrap();
        volume.sync().unwrap();
        drop(volume);
        assert!(mended::mended_on(&what, device.clone()).is_some(), "{what}: it was damaged");
        volume = opened(&device, 6);
        assert_eq!(names(&volume), ["three"], "{what}");
        assert!(!volume.can_drop() && all(&volume) == model, "{what}");
        assert!(snapshot(&device, "three") == held["three"], "{what}");
        volume.drop_hold("three").unwrap();
        assert_eq!(volume.superblock().holds, Default::default(), "{what}");
        sound(&device, &what);
    }
}

#[test]
fn a_repair_right_after_a_snapshot_keeps_it() {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    let mut volume = made(&device, tiny(), 1);
    let (mut random, mut model) = (Random::new(4), Model::new());
    let mut held = Vec::new();
    for name in ["before", "after"] {
        for _ in 0..60 {
            volume.commit(change(&mut random, &mut model)).unwrap();
        }
        volume.take_hold(name).unwrap();
        held.push((name, model.clone()));
    }
    let layout = Layout::of(volume.superblock()).unwrap();
    let slots = |slots: &[u32]| -> Vec<BlockNr> {
        slots.iter().map(|slot| slot_block(layout.ring, *slot)).collect()
    };
    let maps: Vec<BlockNr> = (0..layout.map_pages())
        .flat_map(|page| {
            [0, 1].map(|slot| BlockNr(layout.map.slot(page, slot) / BLOCK_SIZE as u64))
        })
        .collect();
    let image = device.snapshot();
    let cases = [
        ("all superblocks", slots(&(0..SUPERBLOCK_SLOTS).collect::<Vec<_>>())),
        ("the last superblock", slots(&slots_of(volume.superblock().birth.epoch))),
        ("the space map", maps),
    ];
    for (what, blocks) in cases {
        let device = Arc::new(MemoryDevice::from(image.clone()));
        for block in blocks {
            device.write_at(block.byte() + 200, b"damaged").unwrap();
        }
        assert!(mended::mended_on(what, device.clone()).is_some(), "{what}: it was damaged");
        for (name, model) in &held {
            assert!(snapshot(&device, name) == *model, "{what}: '{name}'");
        }
        let mut volume = opened(&device, 9);
        assert!(all(&volume) == model, "{what}");
        volume.commit(change(&mut random, &mut model.clone())).unwrap();
        for (name, _) in &held {
            volume.drop_hold(name).unwrap();
        }
        sound(&device, what);
    }
}

/// Keys written since the last snapshot free their space when they are deleted, although all keys before them are kept
/// and nothing is pending there.
#[test]
fn what_no_snapshot_keeps_comes_back_on_a_full_volume() {
    for (name, geometry, mib) in [("tiny", tiny(), 12), ("middling", middling(), 8)] {
        let mut random = Random::new(5);
        let device = Arc::new(MemoryDevice::new(mib << 20));
        let mut volume = made(&device, geometry, 7);
        let mut fill = |volume: &mut Volume, kind: &str, most: u64| {
            let insert = |number: &u64| {
                let value = random.bytes(1000);
                !fits(put(volume, format!("{kind}{number:06}").as_bytes(), Some(value)), name)
            };
            (0..most).find(insert).unwrap_or(most)
        };
        fill(&mut volume, "kept", 1500);
        volume.drain().unwrap();
        volume.take_hold("kept").unwrap();
        let first = fill(&mut volume, "more", u64::MAX);
        for round in 0..3 {
            for number in 0..first {
                put(&mut volume, format!("more{number:06}").as_bytes(), None).unwrap();
            }
            volume.drain().unwrap();
            let again = fill(&mut volume, "more", first);
            println!("{name}, round {round}: {again} of {first} entries");
            assert!(again >= first * 9 / 10, "{name}, round {round}: {again} of {first}");
        }
        sound(&device, name);
    }
}

#[test]
fn a_drop_lets_a_full_volume_be_written_again() {
    let deep =
        Geometry { node_size: 16 << 10, leaf_size: 16 << 10, basement_size: 4096, fanout: 4 };
    for (name, geometry) in [("tiny", tiny()), ("deep", deep), ("middling", middling())] {
        let mut random = Random::new(6);
        let device = Arc::new(MemoryDevice::new(12 << 20));
        let mut volume = made(&device, geometry, 7);
        let mut model = Model::new();
        let (mut all_written, mut fitted, mut freed) = (0, 0, None);
        for round in 0..12 {
            let what = format!("{name}, round {round}");
            let mut written = 0;
            let full = loop {
                let key = format!("{:05}", random.below(6000)).into_bytes();
                let len = 200 + random.below(800) as usize;
                let value = random.bytes(len);
                match put(&mut volume, &key, Some(value.clone())) {
                    Ok(()) => {}
                    Err(error @ Error::NoSpace { .. }) => break error,
                    Err(error) => panic!("{what}: {error}"),
                }
                model.insert(key, value);
                written += 1;
                if (all_written + written) % 400 == 0 {
                    fits(volume.take_hold(&format!("{}", all_written + written)), &what);
                }
            };
            println!("{what}: {written} entries after a drop of {freed:?} blocks, then {full}");
            (all_written, fitted) =
                (all_written + written, fitted + u32::from(round > 0 && written > 0));
            let doomed = model.keys().step_by(3).filter(|_| round % 3 == 2).cloned();
            let doomed: Vec<_> = doomed.collect();
            for key in doomed {
                if !fits(put(&mut volume, &key, None), &what) {
                    break;
                }
                model.remove(&key);
            }
            volume.drain().unwrap();
            let Some(oldest) = names(&volume).first().cloned() else { continue };
            freed = Some(volume.dropping_frees(&oldest).unwrap());
            volume.drop_hold(&oldest).unwrap();
            assert!(all(&volume) == model, "{what}");
        }
        // Not after each drop: the reserve may exceed the free space by more than one drop frees.
        assert!(fitted >= 5, "{name}: after {fitted} of 11 drops something fits");
        for oldest in names(&volume) {
            volume.drop_hold(&oldest).unwrap();
        }
        for number in 0..100 {
            put(&mut volume, format!("{number:05}").as_bytes(), Some(vec![1; 500])).unwrap();
        }
        sound(&device, name);
    }
}

#[test]
fn drops_in_pieces_among_all_else_give_all_back() {
    for seed in 0..rounds(4) {
        let mut random = Random::new(300 + seed);
        let device = Arc::new(MemoryDevice::new(16 << 20));
        let geometry = if seed % 2 == 0 { tiny() } else { middling() };
        let mut volume = made(&device, geometry, 7);
        let mut model = Model::new();
        for _ in 0..60 {
            volume.commit(change(&mut random, &mut model)).unwrap();
        }
        volume.drain().unwrap();
        volume.take_hold("base").unwrap();
        (0..2).for_each(|_| checkpoint(&mut volume));
        let before = volume.superblock().clone();
        let mut held = vec![("base".to_owned(), model.clone())];
        let (mut going, mut back) = (0, 0);
        for step in 0..250 {
            for _ in 0..random.below(5) {
                volume.commit(change(&mut random, &mut model)).unwrap();
            }
            // Any snapshot except the first.
            let at = 1 + random.below(held.len().max(2) as u64 - 1) as usize;
            match random.below(20) {
                0..6 if held.len() < 16 => {
                    volume.take_hold(&format!("{step}")).unwrap();
                    held.push((format!("{step}"), model.clone()));
                }
                6..10 if at < held.len() => {
                    let (name, _) = held.remove(at);
                    volume.change_holds(&HoldChange::Drop(name)).unwrap();
                }
                10..13 => volume.change_holds(&HoldChange::Piece(1 + random.below(20))).unwrap(),
                13..15 if at < held.len() => {
                    let new = format!("again {step}");
                    volume.rename_hold(&held[at].0, &new).unwrap();
                    held[at].0 = new;
                }
                15 if at < held.len() && step % 3 == 0 => {
                    volume.roll_back(&held[at].0, true).unwrap();
                    held.truncate(at + 1);
                    model = held[at].1.clone();
                    back += 1;
                }
                16 => volume.checkpoint().unwrap(),
                17 => {
                    volume.sync().unwrap();
                    drop(volume);
                    volume = opened(&device, 400 + step);
                }
                _ => {}
            }
            going = going.max(volume.superblock().holds.going);
            assert!(names(&volume).iter().eq(held.iter().map(|(name, _)| name)), "step {step}");
            if step % 25 == 24 {
                volume.sync().unwrap();
                sound(&device, &format!("seed {seed}, step {step}"));
                for (name, model) in &held {
                    assert!(snapshot(&device, name) == *model, "seed {seed}, step {step}: {name}");
                }
            }
        }
        println!("seed {seed}: up to {going} going at once, {back} rollbacks");
        assert!(going > 2 && back > 0, "{going} going at once, {back} rollbacks");
        while held.len() > 1 {
            let (name, _) = held.remove(1 + random.below(held.len() as u64 - 1) as usize);
            volume.change_holds(&HoldChange::Drop(name)).unwrap();
            volume.change_holds(&HoldChange::Piece(1 + random.below(20))).unwrap();
        }
        assert!(all(&volume) == model, "seed {seed}");
        volume.roll_back("base", false).unwrap();
        volume.change_holds(&HoldChange::Drop("base".into())).unwrap();
        while volume.can_drop() {
            volume.change_holds(&HoldChange::Piece(1 + random.below(20))).unwrap();
        }
        (0..2).for_each(|_| checkpoint(&mut volume));
        assert!(all(&volume) == held[0].1, "seed {seed}");
        let after = volume.superblock();
        assert_eq!(after.holds, Default::default(), "seed {seed}");
        // The two pages of the first snapshot are freed; the table may have gained levels.
        let levels = u64::from(after.table.levels - before.table.levels);
        assert_eq!(after.used_blocks, before.used_blocks - 2 + levels, "seed {seed}");
        sound(&device, &format!("seed {seed}"));
    }
}

/// A hash of the model.
fn digest(model: &Model) -> u64 {
    let mut hasher = DefaultHasher::new();
    model.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn a_full_volume_with_a_hundred_snapshots_grows() {
    let small = Arc::new(MemoryDevice::new(16 << 20));
    let mut volume = made(&small, tiny(), 7);
    let (mut random, mut model, mut held) = (Random::new(8), Model::new(), Vec::new());
    let total = volume.blocks().unwrap().total;
    let value = |random: &mut Random| {
        let len = 200 + random.below(800) as usize;
        random.bytes(len)
    };
    for number in 0.. {
        // Every third key exists already.
        let key = if number % 3 == 2 { random.below(number) } else { number };
        let (key, value) = (format!("{key:05}").into_bytes(), value(&mut random));
        if !fits(put(&mut volume, &key, Some(value.clone())), "filling") {
            break;
        }
        model.insert(key, value);
        let used = total - volume.blocks().unwrap().available;
        if used * 110 > total * (held.len() as u64 + 1)
            && fits(volume.take_hold(&format!("{}", held.len())), "filling")
        {
            held.push(digest(&model));
        }
    }
    println!("{} snapshots, {} entries", held.len(), model.len());
    assert!(held.len() >= 100, "{} snapshots", held.len());
    let frees = |volume: &Volume, at: usize| volume.dropping_frees(&format!("{at}")).unwrap();
    volume.checkpoint().unwrap();
    let told: Vec<u64> = (0..held.len()).map(|at| frees(&volume, at)).collect();
    drop(volume);

    let mut image = small.snapshot();
    image.resize(40 << 20, 0);
    let device = Arc::new(MemoryDevice::from(image));
    volume = opened(&device, 9);
    volume.grow(40 << 20).unwrap();
    assert_eq!(volume.blocks().unwrap().total, (40 << 20) / BLOCK_SIZE as u64);
    for (at, told) in told.iter().enumerate() {
        assert_eq!(frees(&volume, at), *told, "snapshot {at}, and before it grew");
        assert_eq!(digest(&snapshot(&device, &format!("{at}"))), held[at], "snapshot {at}");
    }
    sound(&device, "grown");
    for number in 0..2000 {
        let (key, value) = (format!("{number:05}").into_bytes(), value(&mut random));
        put(&mut volume, &key, Some(value.clone())).unwrap();
        model.insert(key, value);
    }
    volume.checkpoint().unwrap();
    let mut left: Vec<usize> = (0..held.len()).collect();
    while !left.is_empty() {
        let at = left.swap_remove(random.below(left.len() as u64) as usize);
        let (told, before) = (frees(&volume, at), volume.superblock().used_blocks);
        volume.drop_hold(&format!("{at}")).unwrap();
        assert_eq!(before - volume.superblock().used_blocks, told, "snapshot {at}");
    }
    assert!(all(&volume) == model);
    assert_eq!(volume.superblock().holds, Default::default());
    sound(&device, "all dropped");
}

/// If the host has no space, the snapshot waits in memory and is completed when there is space. After that error the
/// snapshot may exist.
#[test]
fn a_snapshot_that_the_host_has_no_room_for_is_taken_later() {
    let below = Arc::new(MemoryDevice::new(16 << 20));
    drop(made(&below, tiny(), 7));
    let faulty = Arc::new(FaultyDevice::new(below.clone()));
    let device = Arc::new(DeferringDevice::new(faulty.clone(), 16 << 20));
    let mut volume = Volume::open(device.clone(), options(Mode::ReadWrite, 8)).unwrap().0;
    let (mut random, mut model, mut held) = (Random::new(9), Model::new(), BTreeMap::new());
    let is_full = |error: Error| assert!(error.is_host_full(), "{error}");
    for round in 0..10 {
        for _ in 0..20 {
            volume.commit(change(&mut random, &mut model)).unwrap();
        }
        volume.sync().unwrap();
        let (before, durable) = (names(&volume), model.clone());
        faulty.fill_up(true);
        // In every other round a snapshot is pending already: then no other one is begun.
        let is_begun = round % 2 == 0;
        if !is_begun {
            volume.commit(change(&mut random, &mut model)).unwrap();
            is_full(volume.sync().unwrap_err());
        }
        let name = format!("{round}");
        for _ in 0..2 {
            is_full(volume.take_hold(&name).unwrap_err());
            assert!(!volume.has_failed() && volume.has_unsynced(), "round {round}");
            // The device holds the state before the snapshot.
            let copy = Arc::new(MemoryDevice::from(below.snapshot()));
            sound(&copy, &format!("round {round}: on the device"));
            let there = opened(&copy, 10);
            assert_eq!(names(&there), before, "round {round}: on the device");
            assert!(all(&there) == durable, "round {round}: on the device");
        }
        assert!(all(&volume) == model, "round {round}");
        faulty.fill_up(false);
        match volume.take_hold(&name) {
            Ok(()) => assert!(!is_begun, "round {round}: it had been begun"),
            Err(error) => {
                assert_eq!(error.to_string(), format!("there is a snapshot '{name}' already"));
                assert!(is_begun, "round {round}: it had not been begun");
            }
        }
        held.insert(name, model.clone());
        assert_eq!(device.deferred_bytes(), 0, "round {round}");
        sound(&below, &format!("round {round}"));
        for (name, model) in &held {
            assert!(snapshot(&below, name) == *model, "round {round}: '{name}'");
        }
    }
    // A drop continues in the same way.
    for name in held.keys() {
        faulty.fill_up(true);
        is_full(volume.drop_hold(name).unwrap_err());
        assert!(!volume.has_failed());
        faulty.fill_up(false);
        volume.sync().unwrap();
        while volume.drop_some().unwrap() {}
        assert!(volume.hold(name).is_err(), "'{name}' has been dropped");
    }
    assert_eq!(volume.superblock().holds, Default::default());
    assert!(all(&volume) == model);
    sound(&below, "all dropped");
}
