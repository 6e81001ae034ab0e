//! Nodes that rot while a volume is in use: operations that need them fail, and no others.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::ids::{BLOCK_SIZE, Extent, Height, NodeId, TreeId};
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::node::Node;
use betr_core::volume::Mode;
use betr_tests::{Random, nonces, rounds, tight, tiny};

const DATA: TreeId = TreeId::Data;
const IMAGE: u64 = 16 << 20;
/// The number of possible keys.
const KEYS: u64 = 4000;
/// The number of operations on the damaged volume.
const STEPS: usize = 3000;

/// Blocks that were changed on the device without the volume's knowledge.
struct Rot {
    device: Arc<MemoryDevice>,
    /// For each block: its byte address, its old content and its new content.
    blocks: Vec<(u64, Vec<u8>, Vec<u8>)>,
}

impl Rot {
    fn new(device: &Arc<MemoryDevice>) -> Rot {
        Rot { device: device.clone(), blocks: Vec::new() }
    }

    /// Inverts every byte of an extent.
    fn spoil(&mut self, extent: Extent) {
        for block in extent.start.0..extent.end().0 {
            let at = block * BLOCK_SIZE as u64;
            let mut before = vec![0; BLOCK_SIZE];
            self.device.read_at(at, &mut before).unwrap();
            let after: Vec<u8> = before.iter().map(|byte| !byte).collect();
            self.device.write_at(at, &after).unwrap();
            self.blocks.push((at, before, after));
        }
    }

    /// Restores each block that was not rewritten since.
    fn heal(self) {
        for (at, before, after) in self.blocks {
            let mut now = vec![0; BLOCK_SIZE];
            self.device.read_at(at, &mut now).unwrap();
            if now == after {
                self.device.write_at(at, &before).unwrap();
            }
        }
    }
}

fn options(seed: u64) -> KvOptions {
    KvOptions {
        cache: tight(),
        geometry: Some(tiny()),
        log_bytes: Some(256 << 10),
        nonces: nonces(seed),
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

/// The extents of leaves of the data index, of nodes above leaves, or of messages pending in those.
fn places(kv: &Kv, what: u64) -> Vec<Extent> {
    let store = kv.volume().store();
    let mut places = Vec::new();
    for id in (1..store.next_node().0).map(NodeId) {
        let Some(entry) = store.table.get(id).unwrap().filter(|entry| entry.tree == DATA) else {
            continue;
        };
        match (what, entry.height) {
            (0, Height(0)) | (1, Height(1)) => places.push(entry.extent),
            (2, Height(1 | 2)) => {
                if let Node::Internal(internal) = &*store.node(id).unwrap() {
                    places.extend(internal.runs().iter().map(|run| run.reference().extent));
                }
            }
            _ => {}
        }
    }
    places
}

/// Single leaves, and nodes above leaves, become unreadable. Changes elsewhere continue, however many they are, and
/// every acknowledged change is there once the nodes are readable again.
#[test]
fn what_cannot_be_read_stops_no_change_elsewhere() {
    for seed in 0..rounds(3) {
        let device = Arc::new(MemoryDevice::new(IMAGE));
        let mut random = Random::new(seed);
        let mut kv = Kv::create(device.clone(), [7; 16], options(seed)).unwrap();
        let mut model = BTreeMap::new();
        for number in 0..KEYS {
            let (key, value) = (key(number), random.bytes(300));
            let mut batch = Batch::new();
            batch.insert(DATA, &key, &value);
            kv.commit(batch).unwrap();
            model.insert(key, value);
        }
        kv.checkpoint().unwrap();
        drop(kv);
        let kv = Kv::open(device.clone(), Mode::ReadWrite, options(seed + 100)).unwrap().0;
        let mut rot = Rot::new(&device);
        let places = places(&kv, seed % 3);
        for _ in 0..1 + seed % 4 {
            let place = places.get(random.below(places.len().max(1) as u64) as usize);
            place.into_iter().for_each(|place| rot.spoil(*place));
        }
        // Reopening clears the cache.
        drop(kv);
        let mut kv = Kv::open(device.clone(), Mode::ReadWrite, options(seed + 150)).unwrap().0;
        let mut refused = 0;
        for step in 0..STEPS {
            let first = random.below(KEYS);
            let mut batch = Batch::new();
            let mut next = model.clone();
            match random.below(10) {
                0 => {
                    let end = first + 1 + random.below(40);
                    batch.delete_range(DATA, &key(first), &key(end));
                    next.retain(|at, _| *at < key(first) || *at >= key(end));
                }
                1 | 2 => {
                    batch.delete(DATA, &key(first));
                    next.remove(&key(first));
                }
                _ => {
                    let value = random.bytes(400);
                    batch.insert(DATA, &key(first), &value);
                    next.insert(key(first), value);
                }
            }
            match kv.commit(batch) {
                Ok(()) => model = next,
                Err(error) => {
                    assert!(error.is_unreadable(), "seed {seed}, step {step}: {error}");
                    assert!(!kv.volume().has_failed(), "seed {seed}, step {step}: {error}");
                    refused += 1;
                }
            }
            if step % 100 == 0 {
                kv.sync().unwrap();
            }
        }
        assert!(refused < STEPS / 5, "seed {seed}: {refused} operations were refused");
        kv.drain().unwrap();
        kv.checkpoint().unwrap();
        let passed_over = kv.volume().error_passed_over().is_some();
        assert!(passed_over || refused == 0, "seed {seed}");
        assert_eq!(kv.volume().identity().error_met, passed_over, "seed {seed}");
        drop(kv);
        rot.heal();
        let kv = Kv::open(device.clone(), Mode::ReadWrite, options(seed + 200)).unwrap().0;
        for (key, value) in &model {
            let found = kv.get(DATA, key).unwrap();
            assert!(found.as_deref() == Some(&value[..]), "seed {seed}: {key:?}");
        }
        let all = kv.range(DATA, &key(0), None).map(|entry| entry.unwrap().0.to_vec());
        assert!(all.eq(model.keys().cloned()), "seed {seed}");
        drop(kv);
        let device: Arc<dyn Device> = device;
        let report = check(&device, CheckOptions::ALL, &mut ());
        assert!(report.is_clean(), "seed {seed}: {:?}", report.findings);
    }
}

/// The data index is a single unreadable leaf: files without contents can still be made and removed.
#[test]
fn a_root_that_cannot_be_read_fails_no_volume() {
    let device = Arc::new(MemoryDevice::new(IMAGE));
    let mut kv = Kv::create(device.clone(), [7; 16], options(1)).unwrap();
    let both = |number: u64, trees: &[TreeId]| {
        let mut batch = Batch::new();
        trees.iter().for_each(|tree| batch.insert(*tree, &key(number), &[7; 100]));
        batch
    };
    kv.commit(both(1, &TreeId::ALL)).unwrap();
    kv.checkpoint().unwrap();
    drop(kv);
    // The head of the root is read while the volume is opened, its entries are not.
    let mut kv = Kv::open(device.clone(), Mode::ReadWrite, options(2)).unwrap().0;
    let mut rot = Rot::new(&device);
    places(&kv, 0).into_iter().for_each(|place| rot.spoil(place));
    let refused = kv.commit(both(2, &TreeId::ALL)).unwrap_err();
    assert!(refused.is_unreadable(), "{refused}");
    kv.commit(both(2, &[TreeId::Metadata])).unwrap();
    kv.checkpoint().unwrap();
    assert!(!kv.volume().has_failed());
    drop(kv);
    rot.heal();
    let kv = Kv::open(device, Mode::ReadWrite, options(4)).unwrap().0;
    assert_eq!(kv.get(DATA, &key(2)).unwrap(), None);
    assert_eq!(kv.get(DATA, &key(1)).unwrap().as_deref(), Some(&[7; 100][..]));
    assert_eq!(kv.get(TreeId::Metadata, &key(2)).unwrap().as_deref(), Some(&[7; 100][..]));
}

/// A lookup that finds an update which first deletes the value reads no leaf.
#[test]
fn a_lookup_ends_where_the_value_does_not_matter_any_more() {
    let device = Arc::new(MemoryDevice::new(IMAGE));
    let mut kv = Kv::create(device.clone(), [7; 16], options(1)).unwrap();
    for number in 0..KEYS {
        let mut batch = Batch::new();
        batch.insert(DATA, &key(number), &[7; 300]);
        kv.commit(batch).unwrap();
    }
    kv.drain().unwrap();
    kv.checkpoint().unwrap();
    drop(kv);
    let mut kv = Kv::open(device.clone(), Mode::ReadWrite, options(2)).unwrap().0;
    let mut rot = Rot::new(&device);
    places(&kv, 0).into_iter().for_each(|place| rot.spoil(place));
    let mut batch = Batch::new();
    batch.delete(DATA, &key(5));
    // As an insert the message would be longer.
    batch.patch(DATA, &key(5), 3000, b"new", true);
    kv.commit(batch).unwrap();
    let value = kv.get(DATA, &key(5)).unwrap().unwrap();
    assert_eq!((value.len(), &value[3000..]), (3003, &b"new"[..]));
    assert!(kv.get(DATA, &key(6)).unwrap_err().is_unreadable());
}
