//! Scans of a whole tree, leaf by leaf in the order of keys: whoever consumes one finds the next ready, since
//! several are read and decoded at once, on all cores.
//!
//! At most two groups of leaves are in memory besides the one that is consumed. Over a device that wants one call
//! after the other, or on one of the pool's own threads, leaves are read when they are asked for.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread::Scope;
use std::vec;

use rayon::prelude::*;

use super::shape::node_at;
use crate::cache::Store;
use crate::error::Result;
use crate::format::{Bounds, Key};
use crate::ids::*;
use crate::node::Node;

/// The entries of a tree in order, as a function of the bounds of a leaf gives them.
pub struct Leaves<'s, T> {
    leaves: Box<dyn Iterator<Item = Result<Vec<T>>> + 's>,
    ready: vec::IntoIter<T>,
    done: u64,
}

impl<'s, T: Send + 's> Leaves<'s, T> {
    /// All entries of `tree`, so many leaves at once. `read` is asked for each leaf.
    pub fn new<'env>(
        scope: &'s Scope<'s, 'env>,
        store: &'env Store,
        tree: TreeId,
        at_once: usize,
        read: impl Fn(&Store, Bounds) -> Result<Vec<T>> + Send + Sync + 's,
    ) -> Leaves<'s, T> {
        let mut bounds = LeafBounds::new(store, tree);
        let read = move |bounds: Result<Bounds>| read(store, bounds?);
        let in_order = store.disk.device().wants_order();
        if in_order || at_once < 2 || rayon::current_thread_index().is_some() {
            return Leaves::of(bounds.map(read));
        }
        let (sender, receiver) = mpsc::sync_channel(at_once);
        scope.spawn(move || {
            loop {
                let group: Vec<Result<Bounds>> = bounds.by_ref().take(at_once).collect();
                let leaves: Vec<Result<Vec<T>>> = group.into_par_iter().map(&read).collect();
                // Nobody may want to know any more.
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

    /// The next entry, if there is one.
    pub fn take(&mut self) -> Result<Option<T>> {
        self.take_if(|_| true)
    }

    /// The next entry, if there is one that is wanted.
    pub fn take_if(&mut self, is_wanted: impl Fn(&T) -> bool) -> Result<Option<T>> {
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

    /// How many leaves have been asked for.
    pub fn done(&self) -> u64 {
        self.done
    }
}

/// The bounds of the leaves of a tree, in order. Those below one parent are known at a time.
struct LeafBounds<'s> {
    store: &'s Store,
    tree: TreeId,
    known: VecDeque<Bounds>,
    /// The least key behind them; nothing at the end.
    next: Option<Key>,
}

impl LeafBounds<'_> {
    fn new(store: &Store, tree: TreeId) -> LeafBounds<'_> {
        LeafBounds { store, tree, known: VecDeque::new(), next: Some(Key::default()) }
    }

    fn below_next_parent(&mut self, from: &Key) -> Result<()> {
        let parent = node_at(self.store, self.tree, from, Height(1))?;
        let parent = self.store.node(parent)?;
        self.next = parent.bounds().hi.clone();
        match &*parent {
            Node::Leaf(leaf) => self.known.push_back(leaf.bounds.clone()),
            Node::Internal(internal) => {
                let all = 0..internal.children().len();
                self.known.extend(all.map(|at| internal.child_bounds(at)));
            }
        }
        Ok(())
    }
}

impl Iterator for LeafBounds<'_> {
    type Item = Result<Bounds>;

    fn next(&mut self) -> Option<Result<Bounds>> {
        while self.known.is_empty() {
            let from = self.next.take()?;
            if let Err(error) = self.below_next_parent(&from) {
                return Some(Err(error));
            }
        }
        self.known.pop_front().map(Ok)
    }
}
