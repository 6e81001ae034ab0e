//! Heads of nodes that are read beside the foreground before it asks for them.
//!
//! A promise counts in the cache from the moment that it is given, and becomes a node when the foreground asks for that:
//! what the cache holds, and drops, does not depend on how far the reading is.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::job::Job;
use crate::disk::Disk;
use crate::format::Entry;
use crate::ids::*;
use crate::node::Node;

/// What a head takes in memory is at most so many times what it takes on disk, and so many bytes: that of a leaf, and that of
/// another node, where each child takes some besides.
const LEAF: (usize, usize) = (2, 512);
const INTERNAL: (usize, usize) = (4, 24 << 10);

/// A node that somebody is going to ask for.
pub(super) struct Promise {
    pub id: NodeId,
    entry: Entry,
    volume: VolumeId,
    /// What came of reading it, once somebody has.
    node: OnceLock<Option<Arc<Node>>>,
}

impl Promise {
    /// The node that the allocation table says is at `entry`.
    pub fn new(id: NodeId, entry: Entry, volume: VolumeId) -> Promise {
        Promise { id, entry, volume, node: OnceLock::new() }
    }

    /// What the node will weigh at the most, or a little less.
    pub fn weight(&self) -> usize {
        let (factor, more) = if self.entry.height == Height(0) { LEAF } else { INTERNAL };
        factor * self.entry.head_bytes as usize + more
    }

    /// The node, which is read by whoever comes first. Nothing if it cannot be: whoever needs it meets the reason.
    pub fn node(&self, disk: &Disk) -> Option<Arc<Node>> {
        let load = || {
            let node = Node::load(disk, self.volume, self.id, &self.entry).ok().map(Arc::new);
            // The cache keeps heads for longest: what the kernel has of them besides is better given to what comes next.
            disk.wont_read(self.entry.extent.start.byte(), self.entry.head_bytes.into());
            node
        };
        self.node.get_or_init(load).clone()
    }
}

/// Reads what was promised, beside the foreground.
#[derive(Default)]
pub(super) struct Reader {
    waiting: Arc<Mutex<Waiting>>,
    job: Mutex<Option<Job<()>>>,
}

/// Promises that nobody has looked at yet. Of those that were dropped nothing is read.
#[derive(Default)]
struct Waiting {
    promises: Vec<Weak<Promise>>,
    is_busy: bool,
}

impl Reader {
    /// Begins to read these, after those before them.
    pub fn read(&self, disk: &Disk, promises: impl Iterator<Item = Weak<Promise>>) {
        let mut waiting = locked(&self.waiting);
        waiting.promises.extend(promises);
        if std::mem::replace(&mut waiting.is_busy, true) {
            return;
        }
        drop(waiting);
        let (own, waiting) = (disk.clone(), self.waiting.clone());
        let before = locked(&self.job).replace(Job::start(disk, move || read_all(&own, &waiting)));
        // It has nothing more to do.
        drop(before.map(Job::wait));
    }
}

/// Reads what waits, and what comes while it does. The device is told of all before one more is waited for.
fn read_all(disk: &Disk, waiting: &Mutex<Waiting>) {
    let mut coming = VecDeque::new();
    loop {
        let mut all = locked(waiting);
        let fresh = std::mem::take(&mut all.promises);
        all.is_busy = !(fresh.is_empty() && coming.is_empty());
        if !all.is_busy {
            return;
        }
        drop(all);
        for promise in fresh.iter().filter_map(Weak::upgrade) {
            let Entry { extent, head_bytes, .. } = promise.entry;
            disk.will_read(extent.start.byte(), head_bytes.into());
        }
        coming.extend(fresh);
        if let Some(promise) = coming.pop_front().and_then(|promise| promise.upgrade()) {
            promise.node(disk);
        }
        // Other work does not wait for all of it.
        rayon::yield_now();
    }
}

impl Drop for Reader {
    /// Nobody has the device open once a volume has been closed.
    fn drop(&mut self) {
        locked(&self.waiting).promises.clear();
        let job = self.job.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // One of the pool's threads would wait for itself.
        if rayon::current_thread_index().is_none() {
            drop(job.map(Job::wait));
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, MemoryDevice};
    use crate::kv::{Batch, Kv, KvOptions};

    #[test]
    fn what_is_promised_is_read_once_and_what_is_dropped_is_not() {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        let mut seed = 0;
        let nonces = Box::new(move || {
            seed += 1;
            seed
        });
        let mut kv = Kv::create(device, *b"what is promised", KvOptions::new(nonces)).unwrap();
        let mut batch = Batch::new();
        for number in 0..20_000u32 {
            batch.insert(TreeId::Data, &number.to_be_bytes(), &[1; 100]);
        }
        kv.commit(batch).unwrap();
        kv.checkpoint().unwrap();
        let store = kv.volume().store();
        let promise = |id| {
            let entry = store.table.get(NodeId(id)).unwrap().unwrap();
            Arc::new(Promise::new(NodeId(id), entry, store.birth().volume))
        };
        let promises: Vec<Arc<Promise>> = (1..store.next_node().0).map(promise).collect();
        assert!(promises.len() > 8, "{} nodes", promises.len());
        let disk = Disk::new(store.disk.device().clone() as Arc<dyn Device>);
        let reader = Reader::default();
        let read = |kept: &[Arc<Promise>]| {
            let mut weak: Vec<Weak<Promise>> = kept.iter().map(Arc::downgrade).collect();
            weak.push(Arc::downgrade(&promise(1)));
            reader.read(&disk, weak.into_iter());
            let job = locked(&reader.job).take();
            job.unwrap().wait().unwrap();
            disk.counts().reads
        };
        let half = promises.len() / 2;
        assert_eq!(read(&promises[..half]), half as u64);
        assert_eq!(read(&promises), promises.len() as u64);
        for promise in &promises {
            let node = promise.node.get().and_then(Option::as_ref).expect("it has been read");
            assert_eq!(node.id(), promise.id);
            assert!(promise.weight() > node.weight(), "{} {}", promise.weight(), node.weight());
            assert_eq!(promise.node(&disk).unwrap().id(), promise.id);
        }
        assert_eq!(disk.counts().reads, promises.len() as u64);
    }
}
