//! Reading beside the foreground what it is about to need, and telling the device what comes behind that. What cannot be read is
//! met by the foreground.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::cache::{Lru, Use};
use super::job::Job;
use super::{Store, locked};
use crate::format::Entry;
use crate::ids::*;
use crate::node::{Internal, Node};
use crate::tuning::{AHEAD_MAX, AHEAD_SHARE};

/// Parts of nodes are being read. When this is dropped all of them are in memory: nothing is read once a volume has been closed.
pub struct Reading {
    /// The cache then learns what these weigh. A node that is going to be changed is weighed when it is.
    weighed: Vec<Arc<Node>>,
    job: Option<Job<()>>,
    cache: Arc<Mutex<Lru>>,
    /// What the cache may take.
    bytes: usize,
}

impl Drop for Reading {
    fn drop(&mut self) {
        // One of the pool's threads would wait for itself. Without the job, whatever is missing is read when it
        // is needed.
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
    /// How many leaves a scan may read at once: few enough to stay in memory until it comes to them.
    pub fn leaves_ahead(&self) -> usize {
        let share = self.budget.total_bytes / AHEAD_SHARE;
        (share / self.geometry.leaf_size as usize).clamp(1, AHEAD_MAX)
    }

    /// Begins to read leaves below `parent` with all their values, and what is pending for them there.
    pub fn read_ahead(&self, parent: &Arc<Node>, children: Vec<usize>) -> Reading {
        let mut nodes = vec![parent.clone()];
        if let Node::Internal(internal) = &**parent {
            let leaf = |at: &usize| self.child_for(internal, *at, Use::Scan).ok();
            nodes.par_extend(children.par_iter().filter_map(leaf));
        }
        let mut reading = self.read_beside(nodes.clone(), children);
        reading.weighed = nodes;
        reading
    }

    /// Begins to read a leaf below node `id`: its buffer is going to be moved down. What is pending for it there will be
    /// read soon. Nothing is read that may not have to be.
    pub fn read_for_flush(&mut self, id: NodeId, at: usize) {
        let Ok(parent) = self.node(id) else { return };
        let Node::Internal(internal) = &*parent else { return };
        let leaf = internal.children()[at].id;
        if self.coming.as_ref().is_some_and(|(coming, _)| *coming == leaf) {
            return;
        }
        self.coming = None;
        if internal.height > Height(1) || internal.has_ranges(at) {
            return;
        }
        internal.will_read(&self.disk, at..at + 1);
        if let Ok(node) = self.child(internal, at) {
            self.coming = Some((leaf, self.read_beside(vec![node], Vec::new())));
        }
    }

    /// Waits until nobody reads a node beside the foreground that is going to be changed.
    pub(super) fn wait_for(&mut self, id: NodeId) {
        drop(self.coming.take_if(|(coming, _)| *coming == id));
    }

    /// Begins to read leaves, and of internal nodes what is pending for these children.
    fn read_beside(&self, nodes: Vec<Arc<Node>>, children: Vec<usize>) -> Reading {
        let disk = self.disk.clone();
        let work = move || {
            nodes.par_iter().for_each(|node| match &**node {
                Node::Leaf(leaf) => drop(leaf.read_all(&disk)),
                Node::Internal(internal) => {
                    children.par_iter().for_each(|at| drop(internal.load_pending(&disk, *at)));
                }
            });
        };
        let job = Some(Job::start(&self.disk, work));
        let (cache, bytes) = (self.cache.clone(), self.budget.total_bytes);
        Reading { weighed: Vec::new(), job, cache, bytes }
    }

    /// The head of a node will be read soon, unless it is in memory.
    pub fn will_read_head(&self, id: NodeId) {
        let known = self.lock().has(id);
        // An error here is met again when the node is read.
        if !known && let Ok(Some(Entry { extent, head_bytes, .. })) = self.table.get(id) {
            self.disk.will_read(extent.start.byte(), head_bytes.into());
        }
    }

    /// Leaves below `parent`, one beside another, and what is pending for them there, will be read soon.
    pub fn will_read(&self, parent: &Internal, children: Range<usize>) {
        parent.will_read(&self.disk, children.clone());
        for child in &parent.children()[children] {
            let known = self.lock().has_parts(child.id);
            // An error here is met again when the node is read.
            if !known && let Ok(Some(Entry { extent, .. })) = self.table.get(child.id) {
                self.disk.will_read(extent.start.byte(), extent.bytes());
            }
        }
    }
}
