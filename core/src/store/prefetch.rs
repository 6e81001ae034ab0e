//! Prefetch: jobs read parts of nodes before the foreground needs them, and advise the device of
//! the parts after those.
//! Errors of a prefetch are dropped, since the foreground meets them when it reads.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::cache::{Lru, Use};
use super::job::Job;
use super::{Store, locked};
use crate::format::Entry;
use crate::ids::*;
use crate::node::{Internal, Node};
use crate::pool;
use crate::tuning::{AHEAD_MAX, AHEAD_SHARE};

/// A prefetch in flight. Dropping it waits until all parts are in memory, so that nothing is read after a volume is
/// closed.
pub struct Prefetch {
    /// Nodes to be weighed in the cache when this is dropped. A node that is going to be changed is weighed by the
    /// change.
    weighed: Vec<Arc<Node>>,
    job: Option<Job<()>>,
    cache: Arc<Mutex<Lru>>,
    /// Memory budget of the cache, in bytes.
    bytes: usize,
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        // A thread of the pool would wait for itself. If it skips the wait, missing parts are read on demand.
        if rayon::current_thread_index().is_none() {
            drop(self.job.take().map(Job::wait));
        }
        if self.weighed.is_empty() {
            return;
        }
        let mut cache = locked(&self.cache);
        self.weighed.iter().for_each(|node| cache.weigh(node.id()));
        cache.shrink_to(self.bytes);
    }
}

impl Store {
    /// How many leaves a scan prefetches at once. They must stay in memory until the scan reaches them.
    pub fn leaves_ahead(&self) -> usize {
        let share = self.budget.total_bytes / AHEAD_SHARE;
        (share / self.geometry.leaf_size as usize).clamp(1, AHEAD_MAX)
    }

    /// Starts to prefetch leaves below `parent` with all their values, and the messages pending for them in `parent`.
    pub fn read_ahead(&self, parent: &Arc<Node>, children: Vec<usize>) -> Prefetch {
        let mut nodes = vec![parent.clone()];
        if let Node::Internal(internal) = &**parent {
            let leaf = |at: &usize| self.child_for(internal, *at, Use::Scan).ok();
            nodes.extend(match self.disk.device().requires_serial_io() {
                true => children.iter().filter_map(leaf).collect::<Vec<_>>(),
                false => pool::run(|| children.par_iter().filter_map(leaf).collect()),
            });
        }
        let mut reading = self.start_prefetch(nodes.clone(), children);
        reading.weighed = nodes;
        reading
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
            self.prefetch = Some((leaf, self.start_prefetch(vec![node], Vec::new())));
        }
    }

    /// Waits for the prefetch of a node that is going to be changed.
    pub(super) fn wait_for(&mut self, id: NodeId) {
        drop(self.prefetch.take_if(|(prefetch, _)| *prefetch == id));
    }

    /// Starts a job that reads leaves, and of internal nodes the messages pending for these children.
    fn start_prefetch(&self, nodes: Vec<Arc<Node>>, children: Vec<usize>) -> Prefetch {
        let disk = self.disk.clone();
        let work = move || {
            let pending = |node: &Internal, at: usize| drop(node.load_pending(&disk, at..at + 1));
            let is_serial = disk.device().requires_serial_io();
            let read = |node: &Arc<Node>| match &**node {
                Node::Leaf(leaf) => drop(leaf.read_all(&disk)),
                Node::Internal(node) if is_serial => {
                    children.iter().for_each(|at| pending(node, *at));
                }
                Node::Internal(node) => children.par_iter().for_each(|at| pending(node, *at)),
            };
            match is_serial {
                true => nodes.iter().for_each(read),
                false => nodes.par_iter().for_each(read),
            }
        };
        let job = Some(Job::start(&self.disk, work));
        let (cache, bytes) = (self.cache.clone(), self.budget.total_bytes);
        Prefetch { weighed: Vec::new(), job, cache, bytes }
    }

    /// Advises the device that the head of a node will be read, unless the node is cached.
    pub fn will_read_head(&self, id: NodeId) {
        let known = self.lock().has(id);
        // The reader of the node meets this error again.
        if !known && let Ok(Some(Entry { extent, head_bytes, .. })) = self.table.get(id) {
            self.disk.advise_will_need(extent.start.byte(), head_bytes.into());
        }
    }

    /// Advises the device that consecutive leaves below `parent`, and the messages pending for them, will be read.
    pub fn advise_will_need(&self, parent: &Internal, children: Range<usize>) {
        parent.advise_will_need(&self.disk, children.clone());
        for child in &parent.children()[children] {
            let known = self.lock().has_parts(child.id);
            // The reader of the node meets this error again.
            if !known && let Ok(Some(Entry { extent, .. })) = self.table.get(child.id) {
                self.disk.advise_will_need(extent.start.byte(), extent.bytes());
            }
        }
    }
}
