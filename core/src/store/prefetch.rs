//! Reading beside the foreground what it is about to need.

use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::cache::{Lru, Use};
use super::job::Job;
use super::{Store, locked};
use crate::ids::*;
use crate::node::Node;

/// Leaves that a scan reads at once.
const AHEAD_MAX: usize = 8;
/// They take one of so many parts of the cache at most.
const AHEAD_SHARE: usize = 32;

/// Nodes of which is being read what is to be scanned next. When this is dropped all of it is in memory, and
/// counts: nothing is read once a volume has been closed.
pub struct Ahead {
    nodes: Vec<Arc<Node>>,
    job: Option<Job<()>>,
    cache: Arc<Mutex<Lru>>,
    /// What the cache may take.
    bytes: usize,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // One of the pool's threads would wait for itself. Without the job, whatever is missing is read when it
        // is needed.
        if rayon::current_thread_index().is_none() {
            drop(self.job.take().map(Job::wait));
        }
        let mut cache = locked(&self.cache);
        self.nodes.iter().for_each(|node| cache.weigh(node.id()));
        cache.shrink_to(self.bytes);
    }
}

/// A leaf that a buffer is going to be moved down to, which is being read.
pub(super) struct Coming {
    leaf: NodeId,
    job: Option<Job<()>>,
}

impl Drop for Coming {
    /// Nothing is read once a volume has been closed, or while somebody changes what is read.
    fn drop(&mut self) {
        // What could not be read is met by the foreground.
        drop(self.job.take().map(Job::wait));
    }
}

impl Store {
    /// How many leaves a scan may read at once: few enough to stay in memory until it comes to them.
    pub fn leaves_ahead(&self) -> usize {
        let share = self.budget.total_bytes / AHEAD_SHARE;
        (share / self.geometry.leaf_size as usize).clamp(1, AHEAD_MAX)
    }

    /// Begins to read leaves below `parent` with all their values, and what is pending for them there, on all
    /// cores. What cannot be read is met by whoever asks for it.
    pub fn read_ahead(&self, parent: &Arc<Node>, children: Vec<usize>) -> Ahead {
        let mut nodes = vec![parent.clone()];
        if let Node::Internal(internal) = &**parent {
            let leaf = |at: &usize| self.child_for(internal, *at, Use::Scan).ok();
            nodes.par_extend(children.par_iter().filter_map(leaf));
        }
        let (disk, parent, read) = (self.disk.clone(), parent.clone(), nodes.clone());
        let work = move || {
            if let Node::Internal(internal) = &*parent {
                children.par_iter().for_each(|at| drop(internal.load_pending(&disk, *at)));
            }
            read.par_iter().for_each(|node| {
                if let Node::Leaf(leaf) = &**node {
                    drop(leaf.read_all(&disk));
                }
            });
        };
        let (cache, bytes) = (self.cache.clone(), self.budget.total_bytes);
        Ahead { nodes, job: Some(Job::start(&self.disk, work)), cache, bytes }
    }

    /// Begins to read a leaf below node `id`: its buffer is going to be moved down. What is pending for it there will be
    /// read soon. What cannot be read is met by whoever does that. Nothing is read that may not have to be.
    pub fn read_for_flush(&mut self, id: NodeId, at: usize) {
        let Ok(parent) = self.node(id) else { return };
        let Node::Internal(internal) = &*parent else { return };
        let leaf = internal.children()[at].id;
        if self.coming.as_ref().is_some_and(|coming| coming.leaf == leaf) {
            return;
        }
        self.coming = None;
        if internal.height > Height(1) || internal.has_ranges(at) {
            return;
        }
        internal.will_read(&self.disk, at..at + 1);
        let Ok(node) = self.child(internal, at) else { return };
        let disk = self.disk.clone();
        let job = Job::start(&self.disk, move || {
            if let Node::Leaf(leaf) = &*node {
                drop(leaf.read_all(&disk));
            }
        });
        self.coming = Some(Coming { leaf, job: Some(job) });
    }

    /// Waits until nobody reads a node beside the foreground that is going to be changed.
    pub(super) fn wait_for(&mut self, id: NodeId) {
        drop(self.coming.take_if(|coming| coming.leaf == id));
    }
}
