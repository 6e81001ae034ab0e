//! Cloned ranges beside a model, over power cuts, on full volumes, and with wrong counts.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::*;
use crate::check::{CheckOptions, check};
use crate::device::{Device, MemoryDevice};
use crate::format::{Action, Bounds, Key, Lens, Op, RecordMessage, prefix_end};
use crate::random::Random;
use crate::store::{CacheBudget, Geometry, Store};
use crate::volume::{Content, CreateOptions, Mode, NonceSource, OpenOptions, Pruned, Transaction};

mod holds;
mod repair;
mod replay;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
const TREE: TreeId = TreeId::Data;

fn nonces(mut last: u64) -> NonceSource {
    Box::new(move || {
        last += 1;
        last
    })
}

fn opened(device: &Arc<dyn Device>, nonce: u64) -> Volume {
    let cache = CacheBudget { total_bytes: 64 << 10, dirty_bytes: 24 << 10 };
    let options =
        OpenOptions { content: None, cache, ..OpenOptions::new(Mode::ReadWrite, nonces(nonce)) };
    Volume::open(device.clone(), options).unwrap().0
}

fn volume(bytes: u64) -> (Arc<dyn Device>, Volume) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    let options = CreateOptions {
        geometry: Geometry { node_size: 4096, leaf_size: 4096, basement_size: 1024, fanout: 4 },
        log_bytes: 128 << 10,
        content: Content::Keys,
        ..CreateOptions::new(*b"a volume of keys", bytes, nonces(0))
    };
    Volume::create(device.clone(), options).unwrap().checkpoint().unwrap();
    let volume = opened(&device, 1 << 20);
    (device, volume)
}

fn commit(volume: &mut Volume, messages: Vec<RecordMessage>) {
    volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).unwrap();
}

fn put(key: &[u8], value: &[u8]) -> RecordMessage {
    let action = Action::Insert(Bytes::copy_from_slice(value));
    RecordMessage::Point(TREE, Key::copied(key), action)
}

fn contents(volume: &Volume, lo: &[u8], hi: Option<Key>) -> Model {
    let mut found = Model::new();
    let mut scan = Scan::new(TREE, Key::copied(lo), hi);
    while let Some((key, value)) = volume.advance(&mut scan).unwrap() {
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

fn assert_sound(device: &Arc<dyn Device>, name: &str) {
    let report = check(device, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{name}: {:?}", report.findings);
}

/// The messages of a range clone, and of a range rename.
fn cloning(source: &Key, destination: &Key, is_rename: bool) -> Option<Vec<RecordMessage>> {
    let clone: RangeClone = Lens::of_ranges(destination.clone(), source.clone())?.into();
    let Bounds { lo, hi } = clone.source();
    let gone = RecordMessage::RangeDelete(TREE, lo, hi.unwrap());
    let messages = [RecordMessage::Clone(TREE, clone)].into_iter();
    Some(messages.chain(is_rename.then_some(gone)).collect())
}

fn clone_range(volume: &mut Volume, source: &Key, destination: &Key) -> Result<()> {
    let messages =
        cloning(source, destination, false).ok_or_else(|| Error::Misuse("no such lens".into()))?;
    volume.commit(Transaction { op: Op::Clone, wall: Time::default(), messages }).map(drop)
}

/// The prefixes of ranges: one or two letters.
fn prefix(random: &mut Random) -> Vec<u8> {
    let len = 1 + random.below(2) as usize;
    (0..len).map(|_| b"abcd"[random.below(4) as usize]).collect()
}

fn key(random: &mut Random) -> Vec<u8> {
    let mut key = prefix(random);
    key.extend((random.below(300) as u16).to_be_bytes());
    key
}

/// Up to 20 random inserts, deletes and range deletes.
fn change(volume: &mut Volume, model: &mut Model, random: &mut Random) {
    let mut messages = Vec::new();
    for _ in 0..1 + random.below(20) {
        let one = key(random);
        match random.below(40) {
            0 => {
                let lo = prefix(random);
                let hi = prefix_end(&lo).unwrap();
                model.retain(|key, _| !key.starts_with(&lo));
                messages.push(RecordMessage::RangeDelete(TREE, Key::new(lo), hi));
            }
            1 => {
                let other = key(random);
                let (lo, hi) = (one.clone().min(other.clone()), one.max(other));
                if lo < hi {
                    model.retain(|key, _| *key < lo || *key >= hi);
                    let (lo, hi) = (Key::new(lo), Key::new(hi));
                    messages.push(RecordMessage::RangeDelete(TREE, lo, hi));
                }
            }
            2..8 => {
                model.remove(&one);
                messages.push(RecordMessage::Point(TREE, Key::new(one), Action::Delete));
            }
            _ => {
                let len = [0, 9, 100, 700][random.below(4) as usize];
                let value = random.bytes(len);
                messages.push(put(&one, &value));
                model.insert(one, value);
            }
        }
    }
    if !messages.is_empty() {
        commit(volume, messages);
    }
}

/// Clones or renames a range at random, if there is one to be cloned; the destination is emptied first.
fn clone(volume: &mut Volume, model: &mut Model, random: &mut Random) -> bool {
    let (source, destination) = (prefix(random), prefix(random));
    if source.starts_with(&destination)
        || destination.starts_with(&source)
        || destination.len() > source.len()
    {
        return false;
    }
    let lens = Lens::of_ranges(Key::new(destination.clone()), Key::new(source.clone())).unwrap();
    let rest = |random: &mut Random| Key::copied(&(random.below(300) as u16).to_be_bytes());
    let part = match random.below(3) {
        0 => RangeClone::part(lens.clone(), rest(random), None),
        1 => {
            let (start, end) = (rest(random), rest(random));
            RangeClone::part(lens.clone(), start, Some(end))
        }
        _ => None,
    };
    let clone = part.unwrap_or_else(|| lens.into());
    let (from, to) = (clone.source(), clone.destination());
    let message = RecordMessage::Clone(TREE, clone);
    if model.keys().any(|key| to.contains(key)) {
        if random.below(3) == 0 {
            let messages = vec![message.clone()];
            let refused =
                volume.commit(Transaction { op: Op::Clone, wall: Time::default(), messages });
            assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
        }
        let hi = to.hi.clone().unwrap();
        commit(volume, vec![RecordMessage::RangeDelete(TREE, to.lo.clone(), hi)]);
        model.retain(|key, _| !to.contains(key));
    }
    let is_rename = random.below(4) == 0;
    let gone = RecordMessage::RangeDelete(TREE, from.lo.clone(), from.hi.clone().unwrap());
    commit(volume, [message].into_iter().chain(is_rename.then_some(gone)).collect());
    let cloned: Vec<_> = model
        .iter()
        .filter(|(key, _)| from.contains(key))
        .map(|(key, value)| ([&destination[..], &key[source.len()..]].concat(), value.clone()))
        .collect();
    if is_rename {
        model.retain(|key, _| !from.contains(key));
    }
    model.extend(cloned);
    true
}

#[test]
fn clones_read_and_change_as_copies_do() {
    for seed in 0..6 {
        let (device, mut volume) = volume(64 << 20);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let mut clones = 0;
        for round in 0..120 {
            let name = format!("seed {seed}, round {round}");
            for _ in 0..random.below(12) {
                change(&mut volume, &mut model, &mut random);
            }
            while clone(&mut volume, &mut model, &mut random) {
                clones += 1;
                if random.below(2) == 0 {
                    break;
                }
            }
            match random.below(8) {
                0 => {
                    volume.checkpoint().unwrap();
                    assert_sound(&device, &name);
                }
                1 => {
                    volume.drain().unwrap();
                    volume.checkpoint().unwrap();
                    assert_sound(&device, &name);
                }
                2 => {
                    volume.sync().unwrap();
                    assert_sound(&device, &name);
                    drop(volume);
                    volume = opened(&device, round << 30);
                }
                _ => {}
            }
            assert!(contents(&volume, &[], None) == model, "{name}");
            let lo = prefix(&mut random);
            let part = contents(&volume, &lo, prefix_end(&lo));
            let expected = model.iter().filter(|(key, _)| key.starts_with(&lo));
            assert!(part == expected.map(|(k, v)| (k.clone(), v.clone())).collect(), "{name}");
            for _ in 0..20 {
                let key = key(&mut random);
                let found = volume.get(TREE, &key).unwrap();
                assert_eq!(found.as_deref(), model.get(&key).map(|v| &v[..]), "{name}");
                let explained = tree::explain(volume.store(), TREE, &key).unwrap();
                assert_eq!(explained.value.as_deref(), model.get(&key).map(|v| &v[..]), "{name}");
            }
            assert_eq!(volume.error_passed_over(), None, "{name}");
        }
        assert!(clones > 30, "{clones}");
        // Everything deleted comes back.
        let all = RecordMessage::RangeDelete(TREE, Key::default(), Key::copied(&[0xff; 9]));
        commit(&mut volume, vec![all]);
        volume.drain().unwrap();
        for _ in 0..3 {
            volume.checkpoint().unwrap();
        }
        assert_sound(&device, "at the end");
        let store = &volume.trees.wait().store;
        assert_eq!(store.dying(), 0);
        assert!(store.table.nodes() < 20, "{} nodes", store.table.nodes());
    }
}

/// Drops all writes after the first `left` ones, as a power cut does, and reports success.
struct Cut {
    device: MemoryDevice,
    left: AtomicU64,
    writes: AtomicU64,
}

impl Device for Cut {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(at, buf)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        match number < self.left.load(Ordering::Relaxed) {
            true => self.device.write_at(at, bytes),
            false => Ok(()),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
}

fn cut(image: &[u8], left: u64) -> Arc<Cut> {
    let device = MemoryDevice::from(image.to_vec());
    Arc::new(Cut { device, left: AtomicU64::new(left), writes: AtomicU64::new(0) })
}

/// A volume with `count` keys that begin with "a", in memory of this size.
fn filled(bytes: u64, count: u16, geometry: Geometry) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let options = CreateOptions {
        geometry,
        content: Content::Keys,
        ..CreateOptions::new(*b"a volume of keys", bytes, nonces(0))
    };
    Volume::create(device.clone(), options).unwrap().checkpoint().unwrap();
    let mut volume = opened(&(device.clone() as Arc<dyn Device>), 1 << 20);
    for first in (0..count).step_by(100) {
        let one = |number: u16| put(&[b"a", &number.to_be_bytes()[..]].concat(), &[7; 300]);
        commit(&mut volume, (first..(first + 100).min(count)).map(one).collect());
    }
    volume.drain().unwrap();
    volume.checkpoint().unwrap();
    device
}

const SMALL: Geometry =
    Geometry { node_size: 4096, leaf_size: 4096, basement_size: 1024, fanout: 4 };

#[test]
fn after_a_power_cut_a_clone_is_there_or_not() {
    let image = filled(32 << 20, 500, SMALL).snapshot();
    let (source, destination) = (Key::copied(b"a"), Key::copied(b"b"));
    let clone = |device: &Arc<Cut>| {
        let device: Arc<dyn Device> = device.clone();
        let mut volume = opened(&device, 1 << 30);
        // Something that only the log has.
        commit(&mut volume, vec![put(b"a\x01\x02new", b"value")]);
        volume.sync().unwrap();
        clone_range(&mut volume, &source, &destination).unwrap();
        volume.sync().unwrap();
        volume.checkpoint().unwrap();
    };
    let whole = cut(&image, u64::MAX);
    clone(&whole);
    let (mut before, mut after) = (0, 0);
    for left in 0..=whole.writes.load(Ordering::Relaxed) {
        let device = cut(&image, left);
        // The volume may meet what it has not written.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clone(&device)));
        let state: Arc<dyn Device> = Arc::new(MemoryDevice::from(device.device.snapshot()));
        let volume = opened(&state, 1 << 40);
        let (old, new) =
            (contents(&volume, b"a", Some(Key::copied(b"b"))), contents(&volume, b"b", None));
        drop(volume);
        assert!(old.len() >= 500, "{left} writes");
        assert_sound(&state, &format!("{left} writes"));
        match new.is_empty() {
            true => before += 1,
            false => {
                after += 1;
                let shown: Model =
                    old.iter().map(|(k, v)| ([b"b", &k[1..]].concat(), v.clone())).collect();
                assert!(new == shown && new.len() == 501, "{left} writes");
            }
        }
    }
    assert!(before > 10 && after > 0, "{before} before, {after} after");
}

#[test]
fn a_clone_costs_as_much_for_many_keys_as_for_few() {
    let geometry =
        Geometry { node_size: 64 << 10, leaf_size: 16 << 10, basement_size: 4096, fanout: 16 };
    let counts = [1000, 20_000].map(|count| {
        let device = cut(&filled(64 << 20, count, geometry).snapshot(), u64::MAX);
        let mut volume = opened(&(device.clone() as Arc<dyn Device>), 1 << 30);
        // The first clone carves, and divides nodes.
        clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b")).unwrap();
        volume.checkpoint().unwrap();
        let (nodes, used) = {
            let store = &volume.trees.wait().store;
            (store.table.nodes(), store.space.used_blocks())
        };
        device.writes.store(0, Ordering::Relaxed);
        clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"c")).unwrap();
        volume.checkpoint().unwrap();
        let store = &volume.trees.wait().store;
        let more = (store.table.nodes() - nodes, store.space.used_blocks() - used);
        (device.writes.load(Ordering::Relaxed), more)
    });
    println!("{counts:?}");
    let [(few, (_, small)), (many, (nodes, large))] = counts;
    assert!(many <= few + 12 && large <= small + 12 && nodes <= 8, "{counts:?}");
}

#[test]
fn what_a_clone_took_comes_back_when_it_is_deleted() {
    for seed in 0..3 {
        let image = filled(32 << 20, 1500, SMALL).snapshot();
        let sides = [false, true].map(|clones| {
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(image.clone()));
            let mut volume = opened(&device, 1 << 30);
            let mut random = Random::new(seed);
            for name in [&b"b"[..], b"c", b"d"] {
                if clones {
                    clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(name)).unwrap();
                }
                for _ in 0..30 {
                    let number = (random.below(1500) as u16).to_be_bytes();
                    let value = random.bytes(50);
                    let prefix: &[u8] = if clones { name } else { b"a" };
                    if clones || random.below(2) == 0 {
                        commit(&mut volume, vec![put(&[prefix, &number].concat(), &value)]);
                    }
                }
            }
            let (lo, hi) = (Key::copied(b"b"), Key::copied(b"e"));
            commit(&mut volume, vec![RecordMessage::RangeDelete(TREE, lo, hi)]);
            for _ in 0..3 {
                volume.drain().unwrap();
                volume.checkpoint().unwrap();
            }
            let store = &volume.trees.wait().store;
            assert_eq!(store.dying(), 0);
            let height = u64::from(store.root(TREE).unwrap().height().0);
            let found = (store.table.nodes(), height);
            drop(volume);
            assert_sound(&device, &format!("seed {seed}"));
            found
        });
        let [(plain, height), (cloned, _)] = sides;
        assert!(cloned <= plain + 3 * 4 * (height + 1), "seed {seed}: {sides:?}");
    }
}

#[test]
fn a_full_volume_refuses_a_clone_and_takes_its_removal() {
    let device: Arc<dyn Device> = filled(8 << 20, 1500, SMALL);
    let mut volume = opened(&device, 1 << 30);
    clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b")).unwrap();
    let mut count = 1500;
    for number in 0u32.. {
        let key = [b"f", &number.to_be_bytes()[..]].concat();
        let messages = vec![put(&key, &[3; 900])];
        let transaction = Transaction { op: Op::Raw, wall: Time::default(), messages };
        match volume.commit(transaction) {
            Ok(_) => count += 1,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                break;
            }
        }
    }
    let mut refused = 0;
    for name in b'c'..b'f' {
        match clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(&[name])) {
            Ok(()) => count += 1500,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                refused += 1;
            }
        }
    }
    println!("{refused} of 3 refused");
    assert_eq!(contents(&volume, &[], None).len(), count + 1500);
    // The source and all that fills the volume go; the clone stays.
    for (lo, hi) in [(&b"a"[..], &b"b"[..]), (b"c", b"g")] {
        let delete = RecordMessage::RangeDelete(TREE, Key::copied(lo), Key::copied(hi));
        commit(&mut volume, vec![delete]);
    }
    volume.drain().unwrap();
    volume.checkpoint().unwrap();
    volume.checkpoint().unwrap();
    assert_eq!(contents(&volume, &[], None).len(), 1500);
    let store = &volume.trees.wait().store;
    assert!(store.space.used_blocks() < 700, "{}", store.space.used_blocks());
    drop(volume);
    assert_sound(&device, "at the end");
}

#[test]
fn many_clones_in_a_row_leave_no_node_too_wide() {
    let geometry =
        Geometry { node_size: 64 << 10, leaf_size: 4096, basement_size: 1024, fanout: 64 };
    let device: Arc<dyn Device> = filled(64 << 20, 500, geometry);
    let mut volume = opened(&device, 1 << 30);
    for number in 0..80u8 {
        let name = Key::copied(&[b'b', number]);
        let source = Key::copied(b"a\x01");
        clone_range(&mut volume, &source, &name).unwrap();
    }
    volume.sync().unwrap();
    let all = contents(&volume, &[], None).len();
    drop(volume);
    assert_sound(&device, "after all");
    let volume = opened(&device, 1 << 40);
    assert_eq!(contents(&volume, &[], None).len(), all);
    assert_eq!(all, 500 + 80 * (500 - 256));
    let store = &volume.trees.wait().store;
    let mut waiting = vec![TREE.root()];
    while let Some(id) = waiting.pop() {
        let node = store.node(id).unwrap();
        let children = node.internal().map_or(&[][..], |internal| internal.children());
        assert!(children.len() <= 64, "{}", children.len());
        waiting.extend(children.iter().map(|child| child.id));
    }
}

#[test]
fn nodes_that_wait_to_be_freed_are_counted_beside_a_log() {
    let device: Arc<dyn Device> = filled(32 << 20, 1500, SMALL);
    let mut volume = opened(&device, 1 << 30);
    let clone = |volume: &mut Volume, name: &[u8]| {
        clone_range(volume, &Key::copied(b"a"), &Key::copied(name)).unwrap();
        volume.checkpoint_with(Pruned::None).unwrap();
    };
    clone(&mut volume, b"b");
    // The nodes of the second clone lose their edges when the third takes its place.
    clone(&mut volume, b"c");
    let (lo, hi) = (Key::copied(b"c"), Key::copied(b"d"));
    let first = [&b"a"[..], &0u16.to_be_bytes()].concat();
    commit(&mut volume, vec![put(&[&b"c"[..], &first[1..]].concat(), b"own")]);
    volume.drain().unwrap();
    commit(&mut volume, vec![RecordMessage::RangeDelete(TREE, lo, hi)]);
    clone(&mut volume, b"c");
    let dying = volume.superblock().dying;
    commit(&mut volume, vec![put(b"z", b"in the log")]);
    volume.sync().unwrap();
    drop(volume);
    println!("{dying} nodes wait");
    assert_sound(&device, "beside a log");
    let mut volume = opened(&device, 1 << 40);
    volume.checkpoint().unwrap();
    volume.checkpoint().unwrap();
    assert_eq!(volume.superblock().dying, 0);
    drop(volume);
    assert_sound(&device, "freed");
}

#[test]
fn a_full_volume_of_clones_can_be_emptied() {
    let volumes = [(8 << 20, 3000, SMALL), (32 << 20, 6000, Geometry::of_image(32 << 20))];
    for (bytes, entries, geometry) in volumes {
        let device: Arc<dyn Device> = filled(bytes, entries, geometry);
        let mut volume = opened(&device, 1 << 30);
        clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b")).unwrap();
        let one =
            |message| Transaction { op: Op::Raw, wall: Time::default(), messages: vec![message] };
        let full = |number: u32| {
            let key = [&b"f"[..], &number.wrapping_mul(0x9e37_79b9).to_be_bytes()].concat();
            volume.commit(one(put(&key, &[3; 700]))).is_err()
        };
        assert!((0..).any(full));
        // Deletes of what is shared free nothing: they may be refused in the end.
        let mut deleted = 0;
        for number in 0..entries {
            let name = [b"a", b"b"][usize::from(number % 2)];
            let key = Key::new([&name[..], &number.to_be_bytes()].concat());
            match volume.commit(one(RecordMessage::Point(TREE, key, Action::Delete))) {
                Ok(_) => deleted += 1,
                Err(error) => {
                    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                    break;
                }
            }
        }
        // The removal of a whole clone is not.
        for (lo, hi) in [(b"b", b"c"), (b"a", b"b"), (b"f", b"g")] {
            let delete = RecordMessage::RangeDelete(TREE, Key::copied(lo), Key::copied(hi));
            volume.commit(one(delete)).unwrap();
        }
        for _ in 0..3 {
            volume.drain().unwrap();
            volume.checkpoint().unwrap();
        }
        assert!(contents(&volume, &[], None).is_empty());
        let store = &volume.trees.wait().store;
        println!("{deleted} deleted, {} nodes left", store.table.nodes());
        assert!(store.table.nodes() < 40 && store.dying() == 0, "{}", store.table.nodes());
        drop(volume);
        assert_sound(&device, "at the end");
    }
}

/// The nodes below edges with a lens.
fn seen_through(store: &Store) -> Vec<NodeId> {
    let mut waiting = vec![TREE.root()];
    let mut found = Vec::new();
    while let Some(id) = waiting.pop() {
        let node = store.node(id).unwrap();
        let children = node.internal().map_or(&[][..], |internal| internal.children());
        found.extend(children.iter().filter(|child| child.lens.is_some()).map(|child| child.id));
        waiting.extend(children.iter().map(|child| child.id));
    }
    found
}

#[test]
fn wrong_counts_of_edges_are_found_and_never_panic() {
    let image = filled(16 << 20, 400, SMALL).snapshot();
    for wrong in [0, 1, 3, u32::MAX] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(image.clone()));
        let mut volume = opened(&device, 1 << 30);
        clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b")).unwrap();
        let store = &mut volume.trees.wait_mut().store;
        let shared = seen_through(store);
        assert!(shared.len() > 1);
        store.table.set_references(shared[0], wrong).unwrap();
        commit(&mut volume, vec![put(b"z", b"")]);
        volume.checkpoint().unwrap();
        drop(volume);
        let report = check(&device, CheckOptions::ALL, &mut ());
        assert!(!report.is_clean(), "{wrong} edges");
        // Operations may fail, but nothing else happens.
        let mut volume = opened(&device, 1 << 40);
        let mut random = Random::new(u64::from(wrong));
        for round in 0..60 {
            let wall = Time::default();
            let messages = match random.below(8) {
                0 => vec![RecordMessage::RangeDelete(
                    TREE,
                    Key::copied(&[b'a' + random.below(2) as u8]),
                    Key::copied(b"c"),
                )],
                _ => {
                    let number = (random.below(400) as u16).to_be_bytes();
                    let name = [b"a", b"b"][random.below(2) as usize];
                    vec![put(&[&name[..], &number].concat(), &random.bytes(300))]
                }
            };
            let _ = volume.commit(Transaction { op: Op::Raw, wall, messages });
            if round % 20 == 19 {
                let _ = volume.drain();
                let _ = volume.checkpoint();
            }
            let mut scan = Scan::new(TREE, Key::default(), None);
            while let Ok(Some(_)) = volume.advance(&mut scan) {}
        }
        let _ = clone_range(&mut volume, &Key::copied(b"b"), &Key::copied(b"d"));
    }
}

#[test]
fn what_cannot_be_cloned_is_refused() {
    let device: Arc<dyn Device> = filled(8 << 20, 100, SMALL);
    let mut volume = opened(&device, 1 << 30);
    let before = contents(&volume, &[], None);
    for (source, destination) in
        [("a", "ab"), ("ab", "a"), ("a", "a"), ("a", "bc"), ("", "b"), ("a", "")]
    {
        let (source, destination) =
            (Key::copied(source.as_bytes()), Key::copied(destination.as_bytes()));
        let refused = clone_range(&mut volume, &source, &destination);
        assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    }
    let lens = |to: &[u8], from: &[u8]| {
        RecordMessage::Clone(
            TREE,
            Lens::of_ranges(Key::copied(to), Key::copied(from)).unwrap().into(),
        )
    };
    let wall = Time::default();
    for two in
        [[(b"b", b"a"), (b"c", b"a")], [(b"b", b"a"), (b"b", b"c")], [(b"b", b"a"), (b"c", b"b")]]
    {
        let messages = two.map(|(to, from)| lens(to, from)).to_vec();
        let refused = volume.commit(Transaction { op: Op::Clone, wall, messages });
        assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    }
    // A node would get a child for each.
    let many = (0..400u16).map(|number| {
        let [high, low] = number.to_be_bytes();
        lens(&[b'c', high, low], &[b'a', high, low])
    });
    let many = Transaction { op: Op::Clone, wall, messages: many.collect() };
    let refused = volume.commit(many);
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    assert!(contents(&volume, &[], None) == before);
}
