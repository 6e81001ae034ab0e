//! Scans a whole tree, leaf by leaf in key order. Blocks of one file that are seen through a lens count as one leaf, since a
//! sum over them is all that is needed. Several leaves are read and decoded at once, on all cores, before the consumer
//! needs them.
//!
//! At most two groups of leaves are in memory besides the one being consumed. Over a device that wants one call after
//! another, or on a thread of the pool, leaves are read on demand.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread::Scope;
use std::vec;

use rayon::prelude::*;

use crate::error::Result;
use crate::format::{Bounds, Key};
use crate::ids::*;
use crate::store::Store;
use crate::tree::{Stretch, stretch};

/// 8 bytes of a key: its zone id.
const ZONE_BYTES: usize = 8;
/// 128 leaves: advised to the kernel before they are read.
const ANNOUNCED: usize = 128;

/// The next leaf; also the node below an edge with a lens that shows blocks of one file.
#[derive(Clone, Debug)]
pub(in crate::check) struct NextLeaf {
    /// Its id.
    pub id: NodeId,
    /// Its key bounds, as its parent states; above the lens, if there is one.
    pub bounds: Bounds,
    /// Whether it is seen through a lens.
    pub is_shown: bool,
}

/// Whether a key of the data index is of a file by its path. Behind a data zone there is the number of a block, whose first byte
/// is 0.
pub(super) fn is_of_path(key: &Key) -> bool {
    key.get(ZONE_BYTES).is_some_and(|byte| *byte > 0)
}

/// The entries of a tree in order, as read by a function of its leaves.
pub(in crate::check) struct Leaves<'s, T> {
    leaves: Box<dyn Iterator<Item = Result<Vec<T>>> + 's>,
    ready: vec::IntoIter<T>,
    done: u64,
}

impl<'s, T: Send + 's> Leaves<'s, T> {
    /// All entries of `tree`, `at_once` leaves at a time. `read` is called for each leaf, and `announce` some time
    /// before.
    pub(super) fn new<'env>(
        scope: &'s Scope<'s, 'env>,
        store: &'env Store,
        tree: TreeId,
        at_once: usize,
        announce: impl Fn(&NextLeaf) + Send + 's,
        read: impl Fn(&Store, NextLeaf) -> Result<Vec<T>> + Send + Sync + 's,
    ) -> Leaves<'s, T> {
        let mut leaves = InOrder::new(store, tree);
        let read = move |leaf: Result<NextLeaf>| read(store, leaf?);
        let in_order = store.disk.device().requires_serial_io();
        if in_order || at_once < 2 || rayon::current_thread_index().is_some() {
            return Leaves::of(leaves.map(read));
        }
        let (sender, receiver) = mpsc::sync_channel(at_once);
        scope.spawn(move || {
            let mut announced: VecDeque<Result<NextLeaf>> = VecDeque::new();
            loop {
                let more = ANNOUNCED + at_once - announced.len();
                for leaf in leaves.by_ref().take(more) {
                    leaf.iter().for_each(&announce);
                    announced.push_back(leaf);
                }
                let group: Vec<Result<NextLeaf>> =
                    announced.drain(..at_once.min(announced.len())).collect();
                let leaves: Vec<Result<Vec<T>>> = group.into_par_iter().map(&read).collect();
                // The consumer may have stopped.
                let mut sent = leaves.into_iter().map(|leaf| sender.send(leaf)).peekable();
                if sent.peek().is_none() || !sent.all(|sent| sent.is_ok()) {
                    break;
                }
            }
        });
        Leaves::of(receiver.into_iter())
    }

    fn of(leaves: impl Iterator<Item = Result<Vec<T>>> + 's) -> Leaves<'s, T> {
        Leaves { leaves: Box::new(leaves), ready: Vec::new().into_iter(), done: 0 }
    }

    /// The next entry.
    pub(super) fn take(&mut self) -> Result<Option<T>> {
        self.take_if(|_| true)
    }

    /// The next entry, if it is wanted.
    pub(super) fn take_if(&mut self, is_wanted: impl Fn(&T) -> bool) -> Result<Option<T>> {
        while self.ready.as_slice().is_empty() {
            let Some(leaf) = self.leaves.next() else { return Ok(None) };
            self.ready = leaf?.into_iter();
            self.done += 1;
        }
        Ok(match self.ready.as_slice().first() {
            Some(entry) if is_wanted(entry) => self.ready.next(),
            _ => None,
        })
    }

    /// Number of leaves consumed.
    pub(super) fn done(&self) -> u64 {
        self.done
    }
}

/// The leaves of a tree, in order, each at most once. Those below one parent are known at a time.
struct InOrder<'s> {
    store: &'s Store,
    tree: TreeId,
    known: VecDeque<NextLeaf>,
    /// The lower bound of the next parent; `None` at the end.
    next: Option<Key>,
}

impl InOrder<'_> {
    fn new(store: &Store, tree: TreeId) -> InOrder<'_> {
        InOrder { store, tree, known: VecDeque::new(), next: Some(Key::default()) }
    }

    fn next_stretch(&mut self, from: &Key) -> Result<()> {
        let through_lenses = self.tree == TreeId::Metadata || is_of_path(from);
        match stretch(self.store, self.tree, from, through_lenses)? {
            Stretch::Root(id) => {
                self.next = None;
                self.known.push_back(NextLeaf { id, bounds: Bounds::default(), is_shown: false });
            }
            Stretch::Shown(id, bounds) => {
                self.next.clone_from(&bounds.hi);
                self.known.push_back(NextLeaf { id, bounds, is_shown: true });
            }
            Stretch::Parent(node, lens) => {
                self.next = lens.bounds_up(node.bounds.clone()).hi;
                for at in node.child_for(&lens.down(from))..node.children().len() {
                    let child = &node.children()[at];
                    let bounds = lens.bounds_up(node.child_bounds(at));
                    let is_shown = child.lens.is_some() || lens.lens().is_some();
                    self.known.push_back(NextLeaf { id: child.id, bounds, is_shown });
                }
            }
        }
        Ok(())
    }
}

impl Iterator for InOrder<'_> {
    type Item = Result<NextLeaf>;

    fn next(&mut self) -> Option<Result<NextLeaf>> {
        while self.known.is_empty() {
            let from = self.next.take()?;
            if let Err(error) = self.next_stretch(&from) {
                return Some(Err(error));
            }
        }
        self.known.pop_front().map(Ok)
    }
}
