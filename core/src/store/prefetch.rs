//! Prefetch: jobs read leaves before the foreground needs them, and the device is advised of those behind them.
//! Errors of a prefetch are dropped, since the foreground meets them when it reads.

use std::sync::{Arc, Mutex};

use super::cache::{Lru, Use};
use super::job::Job;
use super::{Store, locked};
use crate::error::Result;
use crate::format::Entry;
use crate::ids::*;
use crate::node::{Internal, Node, SharedInternal};
use crate::tuning::{AHEAD_MAX, AHEAD_SHARE};

/// A leaf that is being read, with all its values. Dropping it waits until that is done, so that nothing is read after
/// a volume is closed.
pub struct Prefetch {
    job: Option<Job<Option<Arc<Node>>>>,
    /// The table entry of a leaf that is not in the cache.
    entry: Option<Entry>,
    /// Cached nodes to be weighed when this is dropped. A node that is going to be changed is weighed by the change.
    weighed: Vec<NodeId>,
    cache: Arc<Mutex<Lru>>,
    /// Memory budget of the cache, in bytes.
    bytes: usize,
}

impl Prefetch {
    /// Waits for the leaf. `None` if it could not be read.
    fn wait(&mut self) -> Option<Arc<Node>> {
        let job = self.job.take()?;
        // A thread of the pool would wait for itself. If it skips the wait, missing parts are read on demand.
        if rayon::current_thread_index().is_some() {
            return None;
        }
        job.wait().ok()?
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.wait();
        if self.weighed.is_empty() {
            return;
        }
        let mut cache = locked(&self.cache);
        self.weighed.iter().for_each(|id| cache.weigh(*id));
        cache.shrink_to(self.bytes);
    }
}

impl Store {
    /// How many leaves a scan reads ahead.
    pub fn leaves_ahead(&self) -> usize {
        let share = self.budget.total_bytes / AHEAD_SHARE;
        (share / self.geometry.leaf_size as usize).clamp(1, AHEAD_MAX)
    }

    /// Starts to read the leaf that is child `at`, and the messages pending for it in its parent.
    pub fn prefetch(&self, parent: &SharedInternal, at: usize) -> Result<Prefetch> {
        let id = parent.children()[at].id;
        let known = self.lock().get(id, Use::Scan);
        let entry = match known {
            Some(_) => None,
            None => self.table.get(id)?,
        };
        let mut weighed = vec![parent.id];
        weighed.extend(known.as_ref().map(|_| id));
        let (disk, volume, above) = (self.disk.clone(), self.birth.volume, parent.clone());
        let work = move || {
            let load = |entry| Node::load(&disk, volume, id, &entry).ok().map(Arc::new);
            let node = known.or_else(|| load(entry?))?;
            if let Node::Leaf(leaf) = &*node {
                drop(leaf.read_all(&disk));
            }
            drop(above.load_pending(&disk, at..at + 1));
            Some(node)
        };
        Ok(self.start(work, entry, weighed))
    }

    fn start(
        &self,
        work: impl FnOnce() -> Option<Arc<Node>> + Send + 'static,
        entry: Option<Entry>,
        weighed: Vec<NodeId>,
    ) -> Prefetch {
        let job = Some(Job::start(&self.disk, work));
        let (cache, bytes) = (self.cache.clone(), self.budget.total_bytes);
        Prefetch { job, entry, weighed, cache, bytes }
    }

    /// Waits for a leaf, and puts it into the cache, unless it has changed since.
    pub fn finish(&self, mut prefetch: Prefetch) {
        let Some(node) = prefetch.wait() else { return };
        let id = node.id();
        let is_current = || {
            let now = self.table.get(id).ok().flatten();
            now.is_some() && now == prefetch.entry
        };
        if !self.lock().has(id) && is_current() {
            self.enter(node, Use::Scan);
        }
    }

    /// Starts to prefetch the leaf that a buffer of node `id` will be flushed to, and advises the device of the
    /// buffer's slices. Skips cases where the flush may not need to read the leaf.
    pub fn read_for_flush(&mut self, id: NodeId, at: usize) {
        let Ok(parent) = self.node(id) else { return };
        let Node::Internal(internal) = &*parent else { return };
        let leaf = internal.children()[at].id;
        if self.prefetch.as_ref().is_some_and(|(prefetch, _)| *prefetch == leaf) {
            return;
        }
        self.prefetch = None;
        if internal.height > Height(1) || internal.has_ranges(at) {
            return;
        }
        internal.advise_will_need(&self.disk, at..at + 1);
        if let Ok(node) = self.child(internal, at) {
            let disk = self.disk.clone();
            let work = move || {
                if let Node::Leaf(leaf) = &*node {
                    drop(leaf.read_all(&disk));
                }
                None
            };
            self.prefetch = Some((leaf, self.start(work, None, Vec::new())));
        }
    }

    /// Waits for the prefetch of a node that is going to be changed.
    pub(super) fn wait_for(&mut self, id: NodeId) {
        drop(self.prefetch.take_if(|(prefetch, _)| *prefetch == id));
    }

    /// Advises the device that the head of a node will be read, unless the node is cached.
    pub fn will_read_head(&self, id: NodeId) {
        let known = self.lock().has(id);
        // The reader of the node meets this error again.
        if !known && let Ok(Some(Entry { extent, head_bytes, .. })) = self.table.get(id) {
            self.disk.advise_will_need(extent.start.byte(), head_bytes.into());
        }
    }

    /// Advises the device that the leaf that is child `at`, and the messages pending for it, will be read.
    pub fn advise_will_need(&self, parent: &Internal, at: usize) {
        parent.advise_will_need(&self.disk, at..at + 1);
        let id = parent.children()[at].id;
        // The reader of the node meets this error again.
        if let Ok(Some(Entry { extent, .. })) = self.table.get(id)
            && !self.lock().has_most(id, extent.bytes())
        {
            self.disk.advise_will_need(extent.start.byte(), extent.bytes());
        }
    }
}
