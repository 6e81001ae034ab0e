//! The I/O cost of lookups and read-ahead, counted exactly by the device.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::format::{Entry, Key};
use betr_core::ids::{Height, NodeId, TreeId};
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::node::Node;
use betr_core::store::{CacheBudget, Geometry};
use betr_core::tree::Scan;
use betr_core::volume::Mode;
use betr_lab::explore::devices::FaultyDevice;
use betr_tests::{Random, nonces};

const MIB: u64 = 1 << 20;

/// With many runs in each node, filters tell which slices need not be read.
#[test]
fn a_cold_lookup_reads_a_head_and_a_part_a_level() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let mut seed = 0;
    let mut options = || {
        seed += 1;
        let geometry = Some(Geometry { fanout: 16, ..Geometry::new(256 << 10, 4096) });
        KvOptions { geometry, ..KvOptions::new(nonces(seed)) }
    };
    let key = |number: u32| number.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let mut kv = Kv::create(device.clone(), *b"a cold lookup!!!", options()).unwrap();
    for first in (0..40_000u32).step_by(200) {
        let mut batch = Batch::new();
        (first..first + 200).for_each(|n| batch.insert(TreeId::Data, &key(n), &[1; 100]));
        kv.commit(batch).unwrap();
        // Each checkpoint adds a run to every node that got messages.
        if first >= 36_000 {
            kv.checkpoint().unwrap();
        }
    }
    kv.checkpoint().unwrap();
    drop(kv);
    let mut open = || Kv::open(device.clone(), Mode::ReadOnly, options()).unwrap().0;
    let kv = open();
    let store = kv.volume().store();
    let levels = u64::from(store.root(TreeId::Data).unwrap().height().0) + 1;
    let nodes = (1..store.next_node().0).map(NodeId);
    let nodes = nodes.filter(|id| store.table.get(*id).unwrap().is_some_and(|e| e.height.0 > 0));
    let runs: Vec<usize> = nodes
        .filter_map(|id| match &*store.node(id).unwrap() {
            Node::Internal(internal) => Some(internal.runs().len()),
            Node::Leaf(_) => None,
        })
        .collect();
    assert!(levels == 3 && runs[0] > 8, "{levels} levels, runs: {runs:?}");
    // Half of the keys exist.
    let lookups = 400;
    let mut reads = 0;
    for number in (0..80_000).step_by(80_000 / lookups) {
        let kv = open();
        let before = kv.volume().io_counts().reads;
        let found = kv.get(TreeId::Data, &key(number)).unwrap();
        assert_eq!(found.is_some(), number < 40_000);
        reads += kv.volume().io_counts().reads - before;
    }
    // The table has one page for all nodes. One or two slices in a thousand are read in vain.
    let most = 2 * levels * lookups as u64 + lookups as u64 / 2;
    println!("{reads} reads for {lookups} lookups on {levels} levels, runs: {runs:?}");
    assert!(reads <= most, "{reads} reads for {lookups} lookups on {levels} levels");
}

/// A device that records read and don't-need advice. It allows reads in parallel with the foreground.
struct Advised {
    device: Arc<dyn Device>,
    coming: Mutex<Vec<Range<u64>>>,
    gone: Mutex<Vec<Range<u64>>>,
}

impl Advised {
    fn new(device: Arc<dyn Device>) -> Arc<Advised> {
        Arc::new(Advised { device, coming: Mutex::default(), gone: Mutex::default() })
    }

    /// The number of bytes announced for reading.
    fn bytes(&self) -> u64 {
        self.coming.lock().unwrap().iter().map(|range| range.end - range.start).sum()
    }

    /// How often exactly this range was announced.
    fn told(&self, range: &Range<u64>) -> usize {
        self.coming.lock().unwrap().iter().filter(|told| *told == range).count()
    }
}

impl Device for Advised {
    fn len(&self) -> u64 {
        self.device.len()
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.device.read_at(at, buf)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.device.write_at(at, bytes)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.device.flush()
    }
    fn advise_will_need(&self, at: u64, len: u64) {
        self.coming.lock().unwrap().push(at..at + len);
    }
    fn advise_dont_need(&self, at: u64, len: u64) {
        self.gone.lock().unwrap().push(at..at + len);
    }
    fn requires_serial_io(&self) -> bool {
        false
    }
}

pub(crate) fn scattered_key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

fn small_cache(seed: u64) -> KvOptions {
    let geometry = Some(Geometry::new(64 << 10, 4096));
    let cache = CacheBudget::of(2 << 20);
    KvOptions { geometry, cache, ..KvOptions::new(nonces(seed)) }
}

/// The entries of the nodes of a height.
fn entries_of(kv: &Kv, height: Height) -> Vec<Entry> {
    let store = kv.volume().store();
    let entries = (1..store.next_node().0).filter_map(|id| store.table.get(NodeId(id)).unwrap());
    entries.filter(|entry| entry.height == height).collect()
}

fn extent_of(entry: &Entry) -> Range<u64> {
    let start = entry.extent.start.byte();
    start..start + entry.extent.bytes()
}

/// 100,000 keys with values of 100 bytes, opened read-only with a much smaller cache.
fn many_keys(device: Arc<dyn Device>) -> Kv {
    let mut kv = Kv::create(device.clone(), *b"a small cache!!!", small_cache(1)).unwrap();
    for first in (0..100_000u32).step_by(1000) {
        let mut batch = Batch::new();
        let keys = (first..first + 1000).map(scattered_key);
        keys.for_each(|key| batch.insert(TreeId::Data, &key, &[1; 100]));
        kv.commit(batch).unwrap();
    }
    kv.checkpoint().unwrap();
    drop(kv);
    Kv::open(device, Mode::ReadOnly, small_cache(2)).unwrap().0
}

/// A scan announces each leaf to the device before it reads it, however the volume was opened. Prefetched data is still
/// cached when the scan arrives, even if lookups have filled the cache.
#[test]
fn a_scan_reads_ahead_once() {
    let device = Advised::new(Arc::new(MemoryDevice::new(64 * MIB)));
    let kv = many_keys(device.clone());
    let mut random = Random::new(2);
    let scan = |backwards: bool| {
        let (before, told) = (kv.volume().io_counts(), device.bytes());
        let entries = kv.range(TreeId::Data, b"", None);
        match backwards {
            false => {
                assert_eq!(entries.map(|entry| entry.unwrap().1.len()).sum::<usize>(), 10_000_000)
            }
            true => assert_eq!(
                entries.rev().map(|entry| entry.unwrap().1.len()).sum::<usize>(),
                10_000_000
            ),
        }
        let read = kv.volume().io_counts().read_bytes - before.read_bytes;
        (read, device.bytes() - told)
    };
    for backwards in [false, true, false] {
        for _ in 0..4000 {
            let key = scattered_key(random.below(100_000) as u32);
            assert!(kv.get(TreeId::Data, &key).unwrap().is_some());
        }
        let (read, told) = scan(backwards);
        println!("{read} bytes read, {told} announced");
        assert!(read <= 13_000_000, "{read} bytes read, backwards: {backwards}");
        // All leaves except the first are announced, also when the scan enters the subtree of another node.
        assert!(told >= 10_400_000, "{told} bytes announced, backwards: {backwards}");
    }
}

/// A device that lets the first read of one place wait until three of the other places have been read.
struct Waiting {
    device: MemoryDevice,
    /// The place that waits, once it is known, and the others.
    places: OnceLock<(Range<u64>, Vec<Range<u64>>)>,
    /// The starts of the other places that have been read to their ends.
    read: Mutex<BTreeSet<u64>>,
    changed: Condvar,
    /// How many of them there were when the waiting ended.
    seen: OnceLock<usize>,
}

impl Device for Waiting {
    fn len(&self) -> u64 {
        self.device.len()
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.device.read_at(at, buf)?;
        let Some((waits, others)) = self.places.get() else { return Ok(()) };
        let mut read = self.read.lock().unwrap();
        if waits.contains(&at) && self.seen.get().is_none() {
            let limit = Duration::from_secs(60);
            let few = |read: &mut BTreeSet<u64>| read.len() < 3;
            read = self.changed.wait_timeout_while(read, limit, few).unwrap().0;
            let _ = self.seen.set(read.len());
        }
        let end = at + buf.len() as u64;
        if let Some(other) = others.iter().find(|other| other.contains(&at))
            && end + 4096 > other.end
        {
            read.insert(other.start);
            self.changed.notify_all();
        }
        Ok(())
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.device.write_at(at, bytes)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.device.flush()
    }
    fn requires_serial_io(&self) -> bool {
        false
    }
}

/// While a read of a leaf waits for the device, the leaves behind it are read and verified. Each is read by a job of its
/// own, on a thread that has verified its leaf before it reads the next one.
#[test]
fn other_leaves_are_verified_while_one_waits_for_the_device() {
    if std::thread::available_parallelism().is_ok_and(|threads| threads.get() < 2) {
        println!("skipped: this machine has one core");
        return;
    }
    let device = MemoryDevice::new(64 * MIB);
    let (places, read, seen) = Default::default();
    let device = Arc::new(Waiting { device, places, read, changed: Condvar::new(), seen });
    let kv = many_keys(device.clone());
    let store = kv.volume().store();
    let mut node = store.root(TreeId::Data).unwrap();
    while node.height() > Height(1) {
        node = store.child(node.internal().unwrap(), 0).unwrap();
    }
    let leaves = node.internal().unwrap().children().iter();
    let extent = |id| extent_of(&store.table.get(id).unwrap().unwrap());
    let leaves: Vec<Range<u64>> = leaves.map(|child| extent(child.id)).collect();
    assert!(leaves.len() > 8, "{}", leaves.len());
    device.places.set((leaves[4].clone(), leaves[5..].to_vec())).unwrap();
    let entries = kv.range(TreeId::Data, b"", None);
    assert_eq!(entries.map(|entry| entry.unwrap().1.len()).sum::<usize>(), 10_000_000);
    assert!(device.seen.get().is_some_and(|seen| *seen >= 3), "{:?}", device.seen);
}

/// A leaf that was read ahead of a scan, and changed and written before the scan comes to it, is read again.
#[test]
fn what_was_read_ahead_and_has_changed_is_read_again() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    drop(many_keys(device.clone()));
    let mut kv = Kv::open(device, Mode::ReadWrite, small_cache(5)).unwrap().0;
    let mut scan = Scan::new(TreeId::Data, Key::default(), None);
    // Some leaves: those behind them are being read.
    let mut next = |kv: &Kv| kv.volume().advance(&mut scan).unwrap();
    for _ in 0..3000 {
        assert_eq!(next(&kv).unwrap().1[..], [1; 100]);
    }
    for first in (0..100_000u32).step_by(1000) {
        let mut batch = Batch::new();
        let keys = (first..first + 1000).map(scattered_key);
        keys.for_each(|key| batch.insert(TreeId::Data, &key, &[2; 100]));
        kv.commit(batch).unwrap();
    }
    kv.checkpoint().unwrap();
    let (mut old, mut new) = (0, 0);
    while let Some((_, value)) = next(&kv) {
        match value[..] == [2; 100] {
            true => new += 1,
            false => old += 1,
        }
    }
    // Only what the scan had taken from its current leaf is as it was.
    println!("{old} old and {new} new values");
    assert!(old + new == 97_000 && old < 1000, "{old} old and {new} new values");
}

/// A leaf that many lookups read in pieces is fetched as a whole: the device is told once, after an eighth of the leaf
/// was read.
#[test]
fn a_leaf_that_is_read_piece_by_piece_is_fetched_once() {
    let device = Advised::new(Arc::new(MemoryDevice::new(64 * MIB)));
    let kv = many_keys(device.clone());
    let mut keys: Vec<[u8; 4]> = (0..100_000).map(scattered_key).collect();
    keys.sort_unstable();
    let leaves = entries_of(&kv, Height(0));
    let fetched = || leaves.iter().map(|leaf| device.told(&extent_of(leaf))).collect::<Vec<_>>();
    let look_up = |key: &[u8; 4]| assert!(kv.get(TreeId::Data, key).unwrap().is_some());
    // One or two pieces of each leaf.
    keys.iter().step_by(keys.len() / leaves.len()).for_each(look_up);
    let before = fetched();
    assert!(before.iter().sum::<usize>() <= leaves.len() / 4, "{before:?}");
    keys.iter().step_by(20).for_each(look_up);
    let after = fetched();
    let (count, most) = (after.iter().sum::<usize>(), after.iter().max().unwrap());
    println!("{} of {} leaves were fetched", count, leaves.len());
    assert!(count > leaves.len() / 10 * 9 && *most == 1, "{after:?}");
}

/// Blocks that a newer checkpoint no longer needs are useless in the page cache: the kernel is advised to drop these,
/// and no others.
#[test]
fn what_has_gone_need_not_be_kept_in_memory() {
    let device = Advised::new(Arc::new(MemoryDevice::new(64 * MIB)));
    drop(many_keys(device.clone()));
    device.gone.lock().unwrap().clear();
    let mut kv = Kv::open(device.clone(), Mode::ReadWrite, small_cache(3)).unwrap().0;
    let nodes = |kv: &Kv| -> Vec<Entry> { [0, 1, 2].map(|h| entries_of(kv, Height(h))).concat() };
    let before = nodes(&kv);
    let mut batch = Batch::new();
    for number in 0..1000 {
        batch.insert(TreeId::Data, &scattered_key(number), &[2; 100]);
    }
    kv.commit(batch).unwrap();
    kv.checkpoint().unwrap();
    let after = nodes(&kv);
    let mut gone = device.gone.lock().unwrap().clone();
    gone.sort_unstable_by_key(|range| range.start);
    let moved: Vec<_> = before.iter().filter(|entry| !after.contains(entry)).collect();
    println!("{} of {} nodes moved; {} places are gone", moved.len(), before.len(), gone.len());
    assert!(!moved.is_empty());
    for entry in moved {
        assert!(gone.contains(&extent_of(entry)), "nobody said that {entry:?} is gone");
    }
    for range in after.iter().map(extent_of) {
        let meets = |gone: &&Range<u64>| gone.start < range.end && range.start < gone.end;
        assert_eq!(gone.iter().find(meets), None, "{range:?} is there");
    }
}

/// A hostile image may name places beyond its end: no advice is given about these.
#[test]
fn nobody_is_told_of_what_is_not_there() {
    let device = Advised::new(Arc::new(MemoryDevice::new(MIB)));
    let disk = Disk::new(device.clone());
    for (at, len) in [(u64::MAX - 4096, 4096), (MIB, 1), (0, 0), (MIB - 10, u64::MAX)] {
        disk.advise_will_need(at, len);
        disk.advise_dont_need(at, len);
    }
    for told in [&device.coming, &device.gone] {
        let told = told.lock().unwrap();
        assert_eq!((told.len(), told.first()), (1, Some(&(MIB - 10..MIB))));
    }
}

/// A failed prefetch only fails the requests for that data, each of them.
#[test]
fn a_head_that_cannot_be_read_before_is_met_by_who_needs_it() {
    let below = Arc::new(MemoryDevice::new(64 * MIB));
    drop(many_keys(below.clone()));
    let device = Arc::new(FaultyDevice::new(below));
    let beside = Advised::new(device.clone());
    let kv = Kv::open(beside, Mode::ReadOnly, small_cache(3)).unwrap().0;
    let leaves = entries_of(&kv, Height(0));
    let bad = leaves[leaves.len() / 2].extent.start.byte();
    device.spoil(bad..bad + 512);
    let mut random = Random::new(1);
    let mut failed = 0;
    for _ in 0..4000 {
        let key = scattered_key(random.below(100_000) as u32);
        match kv.get(TreeId::Data, &key) {
            Ok(value) => assert!(value.is_some()),
            Err(error) => {
                assert!(error.to_string().contains(&format!("b:{bad:#x}")), "{error}");
                failed += 1;
            }
        }
    }
    println!("{failed} of 4000 lookups in {} leaves came to the bad one", leaves.len());
    assert!((1..80).contains(&failed), "{failed} lookups failed");
}

/// A scan prefetches the nodes after the current one. If one is unreadable, the scan still returns everything before
/// it.
#[test]
fn a_scan_comes_as_far_as_there_is_something_to_read() {
    let below = Arc::new(MemoryDevice::new(64 * MIB));
    let kv = many_keys(below.clone());
    let store = kv.volume().store();
    let above_leaves = (1..store.next_node().0).map(NodeId).filter_map(|id| {
        let entry = store.table.get(id).unwrap().filter(|entry| entry.height == Height(1))?;
        let node = store.node(id).unwrap();
        let ends = node.bounds().hi.clone().filter(|_| !node.bounds().lo.is_empty())?;
        (node.tree() == TreeId::Data).then(|| (entry, node.bounds().lo.clone(), ends))
    });
    let (entry, lo, hi) = above_leaves.last().expect("there are some");
    let mut keys: Vec<[u8; 4]> = (0..100_000).map(scattered_key).collect();
    keys.sort_unstable();
    let (before, end) =
        (keys.partition_point(|key| key[..] < *lo), keys.partition_point(|key| key[..] < *hi));
    assert!(0 < before && before < end && end < keys.len());
    drop(kv);
    let device = Arc::new(FaultyDevice::new(below));
    let beside = Advised::new(device.clone());
    let kv = Kv::open(beside, Mode::ReadOnly, small_cache(4)).unwrap().0;
    let bad = entry.extent.start.byte();
    device.spoil(bad..bad + 512);
    let error = |found: Option<betr_core::error::Result<_>>| {
        let error = found.expect("it does not end there").expect_err("it cannot be read");
        assert!(error.to_string().contains(&format!("b:{bad:#x}")), "{error}");
    };
    let mut scan = kv.range(TreeId::Data, b"", None);
    for key in &keys[..before] {
        assert_eq!(*scan.next().unwrap().unwrap().0, key[..]);
    }
    error(scan.next());
    let mut scan = kv.range(TreeId::Data, b"", None);
    for key in keys[end..].iter().rev() {
        assert_eq!(*scan.next_back().unwrap().unwrap().0, key[..]);
    }
    error(scan.next_back());
}

/// A cache too small for parts still holds heads: a lookup reads one part, and no head twice.
#[test]
fn heads_stay_in_a_small_cache() {
    let kv = many_keys(Arc::new(MemoryDevice::new(64 * MIB)));
    let mut random = Random::new(1);
    let mut reads = |lookups: u64| {
        let before = kv.volume().io_counts().reads;
        for _ in 0..lookups {
            let key = scattered_key(random.below(100_000) as u32);
            assert!(kv.get(TreeId::Data, &key).unwrap().is_some());
        }
        kv.volume().io_counts().reads - before
    };
    // Enough lookups to reach every leaf.
    reads(4000);
    let (lookups, found) = (4000, reads(4000));
    println!("{found} reads for {lookups} lookups");
    assert!(found <= lookups + lookups / 20, "{found} reads for {lookups} lookups");
}

/// With many dirty nodes, and changes in the log, lookups stay within the cache budget and find space for the nodes
/// they read. This also holds right after a recovery, before any write-back starts.
#[test]
fn lookups_among_dirty_nodes_keep_to_the_budget() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    drop(many_keys(device.clone()));
    let mut kv = Kv::open(device.clone(), Mode::ReadWrite, small_cache(3)).unwrap().0;
    let mut random = Random::new(1);
    for _ in 0..10 {
        let mut batch = Batch::new();
        for _ in 0..1000 {
            let key = scattered_key(random.below(100_000) as u32);
            batch.patch(TreeId::Data, &key, 10, b"four", false);
        }
        kv.commit(batch).unwrap();
        kv.sync().unwrap();
    }
    let mut look_up = |kv: &Kv, what: &str| {
        let (before, count) = (kv.volume().io_counts(), 4000);
        for _ in 0..count {
            let key = scattered_key(random.below(100_000) as u32);
            assert!(kv.get(TreeId::Data, &key).unwrap().is_some());
        }
        let (store, after) = (kv.volume().store(), kv.volume().io_counts());
        let (cached, dirty) = (store.cached_bytes(), store.dirty_bytes());
        let (budget, reads) = (store.budget().total_bytes, after.reads - before.reads);
        println!(
            "{what}: {cached} bytes, {dirty} of them dirty, {reads} reads for {count} lookups"
        );
        assert!(cached <= budget, "{what}: {cached} of {budget} bytes");
        (dirty, reads)
    };
    let (dirty, reads) = look_up(&kv, "before");
    assert!(reads < 4000 / 3 * 4, "{reads} reads for 4000 lookups");
    drop(kv);
    let kv = Kv::open(device, Mode::ReadWrite, small_cache(4)).unwrap().0;
    look_up(&kv, "to begin with");
    let (left, reads) = look_up(&kv, "recovered");
    assert!(left < dirty / 2, "{left} of {dirty} bytes are dirty");
    assert!(reads < 4000 * 5 / 4, "{reads} reads for 4000 lookups");
}
