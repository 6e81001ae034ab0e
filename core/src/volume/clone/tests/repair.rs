//! Repairs of volumes with cloned ranges: nothing is lost but what stood in the damaged node.

use super::*;
use crate::disk::Disk;
use crate::format::Entry;
use crate::mend::repair_all;
use crate::volume::{Ring, RingSlot, read_identity};

/// A volume with clones of clones, own changes on both sides, messages that are pending, and a log.
fn cloned(seed: u64) -> (Arc<MemoryDevice>, Model) {
    let device = filled(16 << 20, 700, SMALL);
    let mut volume = opened(&(device.clone() as Arc<dyn Device>), seed << 40);
    let mut random = Random::new(seed);
    let mut model = contents(&volume, &[], None);
    for round in 0..6 {
        if seed % 2 == 1 && round % 2 == 1 {
            volume.take_hold(&format!("{round}")).unwrap();
        }
        for _ in 0..20 {
            clone(&mut volume, &mut model, &mut random);
        }
        for _ in 0..4 {
            change(&mut volume, &mut model, &mut random);
        }
    }
    volume.checkpoint().unwrap();
    change(&mut volume, &mut model, &mut random);
    volume.sync().unwrap();
    (device, model)
}

/// What a read of a key meets.
struct Way {
    nodes: Vec<NodeId>,
    /// Nodes that have a message for it.
    pending: Vec<NodeId>,
    /// Nodes whose edge to the next one has a lens.
    lenses: Vec<NodeId>,
}

fn way(volume: &Volume, key: &[u8]) -> Way {
    let mut way = Way { nodes: Vec::new(), pending: Vec::new(), lenses: Vec::new() };
    for stop in tree::explain(volume.store(), TREE, key).unwrap().way {
        way.nodes.push(stop.node);
        if !stop.messages.is_empty() {
            way.pending.push(stop.node);
        }
        if stop.chosen.is_some_and(|chosen| chosen.lens.is_some()) {
            way.lenses.push(stop.node);
        }
    }
    way
}

/// The nodes that paths from the root lead to, in a state without its log.
fn nodes_of(device: &Arc<dyn Device>) -> (Volume, BTreeMap<NodeId, Entry>) {
    let options =
        OpenOptions { content: None, ..OpenOptions::new(Mode::Checkpoint, nonces(1 << 50)) };
    let volume = Volume::open(device.clone(), options).unwrap().0;
    let mut nodes = BTreeMap::new();
    let mut waiting = vec![TREE.root()];
    while let Some(id) = waiting.pop() {
        let store = volume.store();
        nodes.insert(id, store.table.get(id).unwrap().unwrap());
        let node = store.node(id).unwrap();
        let children = node.internal().map_or(&[][..], |internal| internal.children());
        waiting.extend(children.iter().map(|child| child.id));
    }
    (volume, nodes)
}

fn repaired(device: &Arc<dyn Device>, name: &str) -> Volume {
    let report = check(device, CheckOptions::ALL, &mut ());
    assert!(!report.is_clean(), "{name}");
    let (_, again) =
        repair_all(device, &report, CheckOptions::ALL, Time::default(), nonces(1 << 55))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(again.is_clean(), "{name}: {:?}", again.findings);
    opened(device, 1 << 57)
}

#[test]
fn a_lost_node_costs_what_it_held() {
    let (mut tried, mut internal, mut shared) = (0, 0, 0);
    for seed in 0..4 {
        let (memory, model) = cloned(seed);
        let image = memory.snapshot();
        let device: Arc<dyn Device> = memory;
        let (before, nodes) = nodes_of(&device);
        let checkpoint = contents(&before, &[], None);
        let ways: Vec<(Vec<u8>, Way)> =
            checkpoint.keys().map(|key| (key.clone(), way(&before, key))).collect();
        for (id, entry) in &nodes {
            let name = format!("seed {seed}, {id} of height {}", entry.height);
            let damaged = MemoryDevice::from(image.clone());
            damaged.write_at(entry.extent.start.byte() + 80, &[0x5a; 8]).unwrap();
            let damaged: Arc<dyn Device> = Arc::new(damaged);
            let volume = repaired(&damaged, &name);
            let found = contents(&volume, &[], None);
            for (key, way) in &ways {
                // The log has changed it since.
                if model.get(key) != checkpoint.get(key) {
                    continue;
                }
                let is_whole = match entry.height {
                    Height(0) => !way.nodes.contains(id),
                    _ => !way.pending.contains(id) && !way.lenses.contains(id),
                };
                assert!(!is_whole || found.get(key) == model.get(key), "{name}: {key:?}");
            }
            // Nothing comes to be there that was not.
            for key in found.keys().filter(|_| entry.height == Height(0)) {
                assert!(model.contains_key(key), "{name}: {key:?}");
            }
            tried += 1;
            internal += u32::from(entry.height > Height(0));
            shared += u32::from(entry.references > 1);
        }
    }
    println!("{tried} nodes, {internal} internal, {shared} with several edges");
    assert!(internal > 20 && shared > 5);
}

/// Whatever nodes are lost together, the root included: no key is there, or has a value, that was not.
#[test]
fn no_repair_brings_back_what_was_deleted() {
    let mut left = 0;
    for seed in 0..6 {
        let (memory, mut model) = cloned(seed);
        let mut volume = opened(&(memory.clone() as Arc<dyn Device>), 1 << 52);
        volume.drain().unwrap();
        volume.checkpoint().unwrap();
        let mut random = Random::new(seed);
        for _ in 0..4 {
            // Deleted ranges, of which nodes without edges may be left.
            clone(&mut volume, &mut model, &mut random);
        }
        volume.checkpoint_with(Pruned::None).unwrap();
        drop(volume);
        let image = memory.snapshot();
        let (before, nodes) = nodes_of(&(memory as Arc<dyn Device>));
        assert!(contents(&before, &[], None) == model);
        left += before.superblock().dying;
        let extents: Vec<u64> = nodes.values().map(|entry| entry.extent.start.byte()).collect();
        let root = nodes[&TREE.root()].extent.start.byte();
        let pending = nodes.keys().any(|id| {
            let node = before.store().node(*id).unwrap();
            node.internal().is_some_and(|internal| internal.buffered() > 0)
        });
        for round in 0..25 {
            let name = format!("seed {seed}, round {round}");
            let damaged = MemoryDevice::from(image.clone());
            for _ in 0..1 + random.below(5) {
                let at = extents[random.below(extents.len() as u64) as usize];
                let at = if random.below(4) == 0 { root } else { at };
                damaged.write_at(at + 80, &[0x5a; 8]).unwrap();
            }
            let damaged: Arc<dyn Device> = Arc::new(damaged);
            let volume = repaired(&damaged, &name);
            for (key, value) in contents(&volume, &[], None) {
                // A delete that was pending may be lost.
                assert!(pending || model.get(&key) == Some(&value), "{name}: {key:?}");
            }
        }
    }
    println!("{left} nodes without edges");
}

#[test]
fn a_lost_table_or_superblock_costs_nothing() {
    for seed in 2..5 {
        let (memory, model) = cloned(seed);
        let image = memory.snapshot();
        let device: Arc<dyn Device> = memory;
        let superblock = nodes_of(&device).0.superblock().clone();
        let disk = Disk::new(device.clone());
        let ring = Ring::read(&disk, &read_identity(&disk).unwrap()).unwrap();
        let newest = |slot: &&RingSlot| {
            slot.superblock().is_some_and(|found| found.birth.epoch == superblock.birth.epoch)
        };
        let slots: Vec<u64> = ring.slots().iter().filter(newest).map(|slot| slot.byte).collect();
        assert_eq!(slots.len(), 2);
        let table = vec![superblock.table.page.block.byte()];
        for (what, places) in [("root of the table", table), ("newest superblock", slots)] {
            let name = format!("seed {seed}, {what}");
            let damaged = MemoryDevice::from(image.clone());
            for at in places {
                damaged.write_at(at + 80, &[0x5a; 8]).unwrap();
            }
            let damaged: Arc<dyn Device> = Arc::new(damaged);
            let volume = repaired(&damaged, &name);
            assert!(contents(&volume, &[], None) == model, "{name}");
        }
    }
}

/// Only a snapshot shares nodes, and all superblocks are lost: it reads as before.
#[test]
fn a_snapshot_with_clones_survives_the_loss_of_all_superblocks() {
    let memory = filled(16 << 20, 700, SMALL);
    let device: Arc<dyn Device> = memory.clone();
    let mut volume = opened(&device, 1 << 30);
    let (a, b) = (Key::copied(b"a"), Key::copied(b"b"));
    clone_range(&mut volume, &a, &b).unwrap();
    volume.take_hold("one").unwrap();
    let hold = volume.hold("one").unwrap();
    let cache = CacheBudget { total_bytes: 64 << 10, dirty_bytes: 24 << 10 };
    let held = |volume: &Volume| contents(&volume.open_hold(&hold, cache).unwrap(), &[], None);
    let before = held(&volume);
    assert_eq!(before.len(), 1400);
    let all = RecordMessage::RangeDelete(TREE, Key::default(), Key::copied(b"c"));
    commit(&mut volume, vec![all]);
    volume.drain().unwrap();
    for _ in 0..3 {
        volume.checkpoint().unwrap();
    }
    assert_eq!(volume.trees.wait().store.dying(), 0);
    drop(volume);
    let identity = read_identity(&Disk::new(device.clone())).unwrap();
    for slot in 0..32 {
        let at = crate::space::slot_block(identity.ring, slot).byte();
        device.write_at(at, &[0; 4096]).unwrap();
    }
    let volume = repaired(&device, "all superblocks");
    assert!(contents(&volume, &[], None).is_empty());
    assert!(volume.superblock().features.shares());
    assert!(held(&volume) == before);
}
