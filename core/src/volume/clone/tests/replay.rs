//! Clones in the log: what they cost, what a replay makes of them, and late-bound values in their source.

use super::*;
use crate::disk::Disk;
use crate::format::{PageBody, data_key};
use crate::table::read_page;

/// Two files; the second is the clone of the first.
const A: &[u8] = b"a file__";
const B: &[u8] = b"b file__";

/// A value of 4 KiB for each of `count` consecutive blocks of a file with this name.
fn blocks(name: &[u8], first: u64, count: u64, byte: u8) -> Vec<RecordMessage> {
    let insert = |block| {
        let action = Action::Insert(Bytes::from(vec![byte; 4096]));
        RecordMessage::Point(TREE, data_key(name, block), action)
    };
    (first..first + count).map(insert).collect()
}

fn block(volume: &Volume, name: &[u8], block: u64) -> Result<Option<u8>> {
    let value = volume.get(TREE, &data_key(name, block))?;
    Ok(value.map(|value| value[0]))
}

fn opened_as(device: &Arc<dyn Device>, mode: Mode) -> Result<Volume> {
    let options = OpenOptions { content: None, ..OpenOptions::new(mode, nonces(1 << 50)) };
    Volume::open(device.clone(), options).map(|(volume, _)| volume)
}

/// An empty volume of large nodes, opened.
fn large() -> (Arc<MemoryDevice>, Volume) {
    let bytes = 64 << 20;
    let device = Arc::new(MemoryDevice::new(bytes));
    let options = CreateOptions {
        content: Content::Keys,
        ..CreateOptions::new(*b"a volume of keys", bytes, nonces(0))
    };
    Volume::create(device.clone(), options).unwrap().checkpoint().unwrap();
    let volume = opened_as(&(device.clone() as Arc<dyn Device>), Mode::ReadWrite).unwrap();
    (device, volume)
}

#[test]
fn a_clone_and_its_sync_are_one_write_and_one_flush() {
    let geometry =
        Geometry { node_size: 64 << 10, leaf_size: 16 << 10, basement_size: 4096, fanout: 16 };
    let device: Arc<dyn Device> = filled(64 << 20, 20_000, geometry);
    let mut volume = opened_as(&device, Mode::ReadWrite).unwrap();
    let (source, end) = (Key::copied(b"a"), Key::copied(b"b"));
    // The first one carves the source.
    clone_range(&mut volume, &source, &end).unwrap();
    volume.checkpoint().unwrap();
    for name in [b"c", b"d", b"e"] {
        let before = volume.io_counts();
        clone_range(&mut volume, &source, &Key::copied(name)).unwrap();
        volume.sync().unwrap();
        let after = volume.io_counts();
        let found = (after.reads - before.reads, after.writes - before.writes);
        assert_eq!((found, after.flushes - before.flushes), ((0, 1), 1));
        assert_eq!(after.written_bytes - before.written_bytes, 4096);
    }
    // A group that is open ends before a clone, without a flush of its own.
    commit(&mut volume, vec![put(b"z", b"")]);
    let before = volume.io_counts();
    clone_range(&mut volume, &source, &Key::copied(b"f")).unwrap();
    assert!(volume.has_unsynced());
    volume.sync().unwrap();
    let after = volume.io_counts();
    assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (2, 1));
    assert!(!volume.has_unsynced());
}

/// A clone costs the same however much it covers: with a cold cache, heads on the paths to both ends of both ranges,
/// and as much at the next checkpoint.
#[test]
fn a_cold_clone_reads_paths_and_the_next_checkpoint_writes_them() {
    let geometry =
        Geometry { node_size: 64 << 10, leaf_size: 16 << 10, basement_size: 4096, fanout: 16 };
    let device: Arc<dyn Device> = filled(256 << 20, 60_000, geometry);
    let mut volume = opened_as(&device, Mode::ReadWrite).unwrap();
    let around = vec![put(b"Z", b"before"), put(b"z", b"behind")];
    commit(&mut volume, around);
    volume.drain().unwrap();
    volume.checkpoint().unwrap();
    let height = u64::from(volume.store().root(TREE).unwrap().height().0);
    assert!(height >= 2);
    drop(volume);
    let nodes = |volume: &Volume, epoch| {
        let table = &volume.store().table;
        let ids = (0..volume.store().next_node().0).map(NodeId);
        ids.filter(|id| table.get(*id).unwrap().is_some_and(|entry| entry.birth == epoch)).count()
    };
    let mut found = Vec::new();
    for is_cloned in [false, true] {
        let mut volume = opened_as(&device, Mode::ReadWrite).unwrap();
        volume.fence().unwrap();
        let before = volume.io_counts();
        commit(&mut volume, vec![put(b"Z", b"again")]);
        if is_cloned {
            clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b")).unwrap();
        }
        let reads = volume.io_counts().reads - before.reads;
        let epoch = volume.store().birth().epoch;
        volume.checkpoint().unwrap();
        found.push((reads, nodes(&volume, epoch) as u64));
    }
    println!("height {height}: {found:?}");
    let [(reads, written), (cold, more)] = found[..] else { unreachable!() };
    // Four paths: a read for the head of each node, and up to four more for a leaf that is divided.
    assert!(cold - reads <= 4 * (height + 4), "{found:?}");
    assert!(more - written <= 4 * (height + 1), "{found:?}");
}

#[test]
fn a_group_that_a_refused_clone_ended_is_flushed_by_the_next_sync() {
    let (_, mut volume) = large();
    commit(&mut volume, vec![put(b"a", b"")]);
    let lens = Lens::of_ranges(Key::copied(b"b"), Key::copied(b"a")).unwrap();
    let too_long = put(b"c", &[0; 70_000]);
    let wall = Time::default();
    let messages = vec![RecordMessage::Clone(TREE, lens.clone().into()), too_long];
    volume.commit(Transaction { op: Op::Raw, wall, messages }).unwrap_err();
    let messages = vec![put(b"c", b""), RecordMessage::Clone(TREE, lens.into())];
    volume.commit(Transaction { op: Op::Raw, wall, messages }).unwrap_err();
    assert!(volume.has_unsynced());
    volume.end_group().unwrap();
    assert!(volume.has_unsynced());
    let before = volume.io_counts().flushes;
    volume.sync().unwrap();
    assert_eq!(volume.io_counts().flushes - before, 1);
    volume.sync().unwrap();
    assert_eq!(volume.io_counts().flushes - before, 1);
}

#[test]
fn values_that_were_unbound_are_those_of_the_moment_of_the_clone() {
    let (device, mut volume) = large();
    commit(&mut volume, blocks(A, 0, 600, 1));
    clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b")).unwrap();
    // Neither a patch nor a delete of the source reaches the clone.
    commit(&mut volume, blocks(A, 0, 300, 2));
    let (lo, hi) = (data_key(A, 300), data_key(A, 600));
    commit(&mut volume, vec![RecordMessage::RangeDelete(TREE, lo, hi)]);
    volume.sync().unwrap();
    assert!(volume.counters().bound.total() >= 900);
    drop(volume);
    let device: Arc<dyn Device> = device;
    assert_sound(&device, "with its log");
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let volume = opened_as(&device, mode).unwrap();
        for number in [0, 150, 299, 300, 450, 599] {
            let own = (number < 300).then_some(2);
            assert_eq!(block(&volume, A, number).unwrap(), own, "block {number}");
            assert_eq!(block(&volume, B, number).unwrap(), Some(1), "block {number}");
        }
    }
}

#[test]
fn what_the_log_has_lost_of_the_source_is_lost_in_the_clone() {
    let (device, mut volume) = large();
    commit(&mut volume, blocks(A, 0, 600, 7));
    volume.sync().unwrap();
    clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b")).unwrap();
    commit(&mut volume, blocks(B, 0, 2, 8));
    volume.sync().unwrap();
    // A witness that the groups had been flushed.
    commit(&mut volume, vec![put(b"z", b"")]);
    volume.sync().unwrap();
    drop(volume);
    let image = device.snapshot();
    let value = |at: &usize| image[*at..*at + 4096].iter().all(|byte| *byte == 7);
    let places: Vec<usize> = (0..image.len()).step_by(4096).filter(value).collect();
    assert!(places.len() >= 600, "{}", places.len());
    for at in places {
        device.write_at(at as u64 + 9, &[1]).unwrap();
    }
    let device: Arc<dyn Device> = device;
    let error = opened_as(&device, Mode::ReadWrite).err().unwrap();
    assert!(error.is_damage(), "{error}");
    let volume = opened_as(&device, Mode::ReadOnly).unwrap();
    for number in [0, 1, 2, 300, 599] {
        assert!(block(&volume, A, number).unwrap_err().is_damage(), "block {number}");
        match block(&volume, B, number) {
            Ok(value) => assert_eq!((value, number < 2), (Some(8), true), "block {number}"),
            Err(error) => assert!(error.is_damage() && number >= 2, "block {number}: {error}"),
        }
    }
    assert_eq!(block(&volume, B, 600).unwrap(), None);
}

#[test]
fn a_source_that_cannot_be_read_costs_a_reader_the_clone_alone() {
    let device = filled(32 << 20, 1500, SMALL);
    let mut volume = opened_as(&(device.clone() as Arc<dyn Device>), Mode::ReadWrite).unwrap();
    // Keys on both sides of the source in its first and last leaf, so that the replay must divide them.
    commit(&mut volume, vec![put(b"Z", b"before"), put(b"z", b"behind")]);
    volume.drain().unwrap();
    volume.checkpoint().unwrap();
    let store = &volume.trees.wait().store;
    let mut id = TREE.root();
    while let Some(internal) = store.node(id).unwrap().internal() {
        id = internal.children().last().unwrap().id;
    }
    let leaf = store.table.get(id).unwrap().unwrap().extent.start.byte();
    clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b")).unwrap();
    commit(&mut volume, vec![put(b"b\0\x05", b"new"), put(b"y", b"also")]);
    volume.sync().unwrap();
    drop(volume);
    let image = device.snapshot();
    device.write_at(leaf + 100, &[image[leaf as usize + 100] ^ 1]).unwrap();
    let device: Arc<dyn Device> = device;
    let error = opened_as(&device, Mode::ReadWrite).err().unwrap();
    assert!(error.is_damage(), "{error}");
    let volume = opened_as(&device, Mode::ReadOnly).unwrap();
    assert!(volume.get(TREE, b"b\0\x07").unwrap_err().is_damage());
    assert_eq!(volume.get(TREE, b"b\0\x05").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(volume.get(TREE, b"a\0\x07").unwrap().as_deref(), Some(&[7; 300][..]));
    assert_eq!(volume.get(TREE, b"y").unwrap().as_deref(), Some(&b"also"[..]));
}

/// Blocks that later groups pin stay as they are, however many checkpoints a replay makes for space.
#[test]
fn checkpoints_for_the_space_of_a_replay_come_to_an_end() {
    let (device, mut volume) = large();
    commit(&mut volume, blocks(A, 0, 600, 1));
    volume.sync().unwrap();
    let superblock = volume.superblock().clone();
    drop(volume);
    let device: Arc<dyn Device> = device;
    let mut volume = opened_as(&device, Mode::ReadWrite).unwrap();
    assert!(volume.store().space.pinned_blocks() > 0);
    let (unit, group) = (superblock.log_head, superblock.first_group);
    let gains =
        |volume: &mut Volume| volume.checkpoint_before(Continued::Replay { unit, group }).unwrap();
    assert!(gains(&mut volume), "what is dirty is written");
    assert!((0..5).any(|_| !gains(&mut volume)));
}

#[test]
fn a_table_page_that_cannot_be_read_refuses_a_clone_before_anything_changes() {
    let memory = filled(32 << 20, 3000, SMALL);
    let image = memory.snapshot();
    let device: Arc<dyn Device> = memory;
    let volume = opened_as(&device, Mode::ReadOnly).unwrap();
    let (disk, root) = (Disk::new(device.clone()), volume.superblock().table);
    let id = volume.identity().volume;
    drop(volume);
    assert_eq!(root.levels, 2);
    let PageBody::Pointers(pages) = read_page(&disk, id, &root.page, 1, 0).unwrap().body else {
        panic!("two levels")
    };
    let mut refused = 0;
    for page in pages.iter().flatten() {
        let damaged = MemoryDevice::from(image.clone());
        damaged.write_at(page.block.byte() + 99, &[0x5a; 4]).unwrap();
        let damaged: Arc<dyn Device> = Arc::new(damaged);
        let Ok(mut volume) = opened_as(&damaged, Mode::ReadWrite) else { continue };
        let cloned = clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b"));
        assert!(!volume.has_failed(), "{cloned:?}");
        refused += u32::from(cloned.is_err_and(|error| error.is_unreadable()));
    }
    assert!(refused > 1, "{refused}");
}

/// All whole ranges of a copy of this volume can be deleted, and their space comes back.
fn assert_can_be_emptied(device: &Arc<MemoryDevice>, name: &str) {
    let copy: Arc<dyn Device> = Arc::new(MemoryDevice::from(device.snapshot()));
    let mut volume = opened(&copy, 1 << 60);
    for lo in [&b"f"[..], b"a", b"b", b"c", b"d"] {
        let range = RecordMessage::RangeDelete(TREE, Key::copied(lo), prefix_end(lo).unwrap());
        let transaction = Transaction { op: Op::Raw, wall: Time::default(), messages: vec![range] };
        volume.commit(transaction).unwrap_or_else(|error| panic!("{name}, {lo:?}: {error}"));
    }
    for _ in 0..3 {
        volume.drain().unwrap();
        volume.checkpoint().unwrap();
    }
    assert!(contents(&volume, &[], None).is_empty(), "{name}");
    let nodes = volume.trees.wait().store.table.nodes();
    assert!(nodes < 40, "{name}: {nodes} nodes left");
}

#[test]
fn what_a_nearly_full_volume_has_acknowledged_can_be_replayed() {
    // More by hand.
    let seeds = std::env::var("BETR_SEEDS").map_or(4, |seeds| seeds.parse().unwrap());
    let (mut clones, mut refused, mut on_the_way, mut for_space) = (0, 0, 0, 0);
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let geometry = match seed % 3 {
            0 => Geometry { fanout: 64, ..SMALL },
            1 => SMALL,
            _ => Geometry { node_size: 16 << 10, leaf_size: 8 << 10, ..SMALL },
        };
        let memory = filled(8 << 20, 1000, geometry);
        let device: Arc<dyn Device> = memory.clone();
        let mut volume = opened(&device, seed << 40);
        let mut model = contents(&volume, &[], None);
        let free = random.below(300);
        for number in 0u32.. {
            if volume.trees.wait().store.space.free_blocks() < 250 + free {
                break;
            }
            let key = [b"f", &number.to_be_bytes()[..]].concat();
            let messages = vec![put(&key, &[3; 900])];
            if volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).is_err()
            {
                break;
            }
            model.insert(key, vec![3; 900]);
        }
        for round in 0..8 {
            for _ in 0..random.below(40) {
                let transaction =
                    |messages| Transaction { op: Op::Raw, wall: Time::default(), messages };
                let (source, destination) = (prefix(&mut random), prefix(&mut random));
                let (from, to) = (Key::new(source.clone()), Key::new(destination.clone()));
                let key =
                    [&prefix(&mut random)[..], &(random.below(999) as u16).to_be_bytes()].concat();
                let value = random.bytes(500);
                let messages = match cloning(&from, &to, random.below(3) == 0) {
                    Some(messages) if random.below(3) == 0 => messages,
                    _ => vec![put(&key, &value)],
                };
                let is_clone = messages[0].is_clone();
                if is_clone && random.below(2) == 0 {
                    let hi = prefix_end(&destination).unwrap();
                    commit(&mut volume, vec![RecordMessage::RangeDelete(TREE, to, hi)]);
                    model.retain(|key, _| !key.starts_with(&destination));
                }
                let is_rename = is_clone && messages.len() == 2;
                match volume.commit(transaction(messages)) {
                    Err(Error::Misuse(_)) => continue,
                    Err(Error::NoSpace { .. }) => refused += 1,
                    Err(error) => panic!("seed {seed}, round {round}: {error}"),
                    Ok(_) if is_clone => {
                        clones += 1;
                        let old = model
                            .range(source.clone()..)
                            .take_while(|(key, _)| key.starts_with(&source));
                        let old: Vec<_> =
                            old.map(|(key, value)| (key.clone(), value.clone())).collect();
                        for (key, value) in old {
                            if is_rename {
                                model.remove(&key);
                            }
                            model.insert([&destination[..], &key[source.len()..]].concat(), value);
                        }
                    }
                    Ok(_) => {
                        model.insert(key, value);
                    }
                }
            }
            volume.sync().unwrap();
            drop(volume);
            let name = format!("seed {seed}, round {round}");
            if round % 4 == 3 {
                assert_sound(&device, &name);
            }
            let options = OpenOptions {
                content: None,
                eager_checkpoints: random.below(3) == 0,
                cache: CacheBudget::of([64 << 10, 8 << 20][random.below(2) as usize]),
                ..OpenOptions::new(Mode::ReadWrite, nonces((seed * 10 + round + 1) << 32))
            };
            let (again, recovery) = Volume::open(device.clone(), options)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            volume = again;
            on_the_way += recovery.checkpoints;
            for_space += volume.counters().for_space;
            assert!(contents(&volume, &[], None) == model, "{name}");
            volume.sync().unwrap();
            assert_can_be_emptied(&memory, &name);
        }
    }
    println!(
        "{clones} clones, {refused} refused, {on_the_way} checkpoints on the way, {for_space} in carves"
    );
    assert!(clones > 30 && refused > 5 && on_the_way > 0, "{clones} clones, {refused} refused");
}
