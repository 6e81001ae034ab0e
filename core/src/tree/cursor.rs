//! Scans in both directions: the entries of a range, leaf by leaf, with everything pending laid over.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::cache::{Store, Use};
use crate::error::Result;
use crate::format::{Action, Key};
use crate::ids::TreeId;
use crate::node::{Batch, Internal, Leaf, Node};

/// What is left of a range of keys, and what is ready of the leaves that were read at both of its ends. It
/// holds no reference to the store, so that it can outlive a borrow; what it yields is that of the moment
/// when its leaf was read.
struct Leaves<T> {
    tree: TreeId,
    /// How many leaves were read, and after how many the next ones are read ahead.
    done: usize,
    ahead: usize,
    /// The keys that no leaf was read for; nothing if there are none.
    rest: Option<(Key, Option<Key>)>,
    front: VecDeque<(Key, T)>,
    back: VecDeque<(Key, T)>,
}

/// An end of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl<T> Leaves<T> {
    fn new(tree: TreeId, lo: Key, hi: Option<Key>) -> Leaves<T> {
        let (front, back) = Default::default();
        let mut leaves = Leaves { tree, done: 0, ahead: 1, rest: None, front, back };
        leaves.leave(lo, hi);
        leaves
    }

    fn leave(&mut self, lo: Key, hi: Option<Key>) {
        let some = hi.as_ref().is_none_or(|hi| lo < *hi);
        self.rest = some.then_some((lo, hi));
    }

    /// The next entry from an end. `stored` reads what a leaf holds of a range, `after` says what becomes of
    /// it when a pending message is carried out. From the second leaf on, values of several are read at once
    /// if `read_ahead`.
    fn next(
        &mut self,
        store: &Store,
        end: End,
        read_ahead: bool,
        stored: impl Fn(&Leaf, &[u8], Option<&[u8]>) -> Result<Vec<(Key, T)>>,
        after: impl Fn(&Action, Option<&T>) -> Option<T>,
    ) -> Result<Option<(Key, T)>> {
        loop {
            let ready = match end {
                End::Front => self.front.pop_front(),
                End::Back => self.back.pop_back(),
            };
            if ready.is_some() {
                return Ok(ready);
            }
            let Some((lo, hi)) = self.rest.take() else {
                // Where both ends meet, one yields what the other has read.
                return Ok(match end {
                    End::Front => self.back.pop_front(),
                    End::Back => self.front.pop_back(),
                });
            };
            let way = Way::down(store, self.tree, |internal| match (end, &hi) {
                (End::Front, _) => internal.child_for(&lo),
                (End::Back, Some(hi)) => internal.child_before(hi),
                (End::Back, None) => internal.children().len() - 1,
            })?;
            if self.done == self.ahead && read_ahead {
                self.ahead += way.read_ahead(store, end, hi.as_deref())?;
            }
            self.done += 1;
            let bounds = &way.leaf().bounds;
            let from = bounds.lo.clone().max(lo.clone());
            let to = match (&bounds.hi, &hi) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.as_ref().or(b.as_ref()),
            };
            let to = to.map(|to| &**to);
            store.lost.check(self.tree, &from, to)?;
            let entries = stored(way.leaf(), &from, to)?;
            let entries = lay_over(entries, &way.overlay(store, &from, to)?, &after).into();
            way.above.iter().for_each(|(node, _)| store.has_read(node));
            store.has_read(&way.leaf);
            match end {
                End::Front => {
                    self.front = entries;
                    if let Some(next) = bounds.hi.clone() {
                        self.leave(next, hi);
                    }
                }
                End::Back => {
                    self.back = entries;
                    self.leave(lo, Some(bounds.lo.clone()));
                }
            }
        }
    }
}

/// A scan of entries.
pub struct Scan(Leaves<Bytes>);

impl Scan {
    /// The entries within `[lo, hi)`; no `hi` means to the end.
    pub fn new(tree: TreeId, lo: Key, hi: Option<Key>) -> Scan {
        Scan(Leaves::new(tree, lo, hi))
    }

    /// The next entry.
    pub fn next(&mut self, store: &Store) -> Result<Option<(Key, Bytes)>> {
        self.from(store, End::Front)
    }

    /// The last entry that has not been yielded.
    pub fn next_back(&mut self, store: &Store) -> Result<Option<(Key, Bytes)>> {
        self.from(store, End::Back)
    }

    fn from(&mut self, store: &Store, end: End) -> Result<Option<(Key, Bytes)>> {
        let stored = |leaf: &Leaf, lo: &[u8], hi: Option<&[u8]>| leaf.scan(&store.disk, lo, hi);
        self.0.next(store, end, true, stored, Action::apply)
    }
}

/// A scan of keys alone, with the lengths of their values: leaves are read without values.
pub struct KeyScan(Leaves<usize>);

impl KeyScan {
    /// The keys within `[lo, hi)`; no `hi` means to the end.
    pub fn new(tree: TreeId, lo: Key, hi: Option<Key>) -> KeyScan {
        KeyScan(Leaves::new(tree, lo, hi))
    }

    /// The next key, and the length of its value.
    pub fn next(&mut self, store: &Store) -> Result<Option<(Key, usize)>> {
        let stored =
            |leaf: &Leaf, lo: &[u8], hi: Option<&[u8]>| leaf.scan_keys(&store.disk, lo, hi);
        let after = |action: &Action, len: Option<&usize>| action.apply_len(len.copied());
        self.0.next(store, End::Front, false, stored, after)
    }
}

/// A scan that borrows the store: an iterator at a cut, from both ends.
pub struct Cursor<'s> {
    store: &'s Store,
    scan: Scan,
}

impl<'s> Cursor<'s> {
    /// The entries of `tree` within `[lo, hi)`.
    pub fn new(store: &'s Store, tree: TreeId, lo: Key, hi: Option<Key>) -> Cursor<'s> {
        Cursor { store, scan: Scan::new(tree, lo, hi) }
    }
}

impl Iterator for Cursor<'_> {
    type Item = Result<(Key, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scan.next(self.store).transpose()
    }
}

impl DoubleEndedIterator for Cursor<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.scan.next_back(self.store).transpose()
    }
}

/// The way from the root to a leaf: the internal nodes with the child taken, and the leaf.
struct Way {
    above: Vec<(Arc<Node>, usize)>,
    leaf: Arc<Node>,
}

impl Way {
    fn down(store: &Store, tree: TreeId, choose: impl Fn(&Internal) -> usize) -> Result<Way> {
        let mut above = Vec::new();
        let mut node = store.root(tree)?;
        while let Node::Internal(internal) = &*node {
            let at = choose(internal);
            let child = store.child_for(internal, at, Use::Scan)?;
            above.push((node, at));
            node = child;
        }
        Ok(Way { above, leaf: node })
    }

    /// Reads this leaf and those that come next below the same node; returns how many.
    fn read_ahead(&self, store: &Store, end: End, hi: Option<&[u8]>) -> Result<usize> {
        let Some((parent, at)) = self.above.last() else { return Ok(1) };
        let Node::Internal(parent) = &**parent else { return Ok(1) };
        let count = store.leaves_ahead();
        let last = match hi {
            Some(hi) => parent.child_before(hi),
            None => parent.children().len() - 1,
        };
        let range = match end {
            End::Front => *at..(at + count).min(last + 1).max(at + 1),
            End::Back => (at + 1).saturating_sub(count)..at + 1,
        };
        let count = range.len();
        store.read_ahead(parent, range);
        Ok(count)
    }

    fn leaf(&self) -> &Leaf {
        match &*self.leaf {
            Node::Leaf(leaf) => leaf,
            Node::Internal(_) => unreachable!("only a leaf ends the way down"),
        }
    }

    /// Everything pending for the leaf within `[lo, hi)`, lowest nodes first: those hold the older messages.
    fn overlay(&self, store: &Store, lo: &[u8], hi: Option<&[u8]>) -> Result<Batch> {
        let mut overlay = Batch::default();
        for (node, at) in self.above.iter().rev() {
            if let Node::Internal(internal) = &**node {
                internal.overlay(&store.disk, *at, lo, hi, &mut overlay)?;
            }
        }
        Ok(overlay)
    }
}

/// Entries with younger messages applied.
fn lay_over<T>(
    stored: Vec<(Key, T)>,
    overlay: &Batch,
    after: impl Fn(&Action, Option<&T>) -> Option<T>,
) -> Vec<(Key, T)> {
    if overlay.is_empty() {
        return stored;
    }
    let alive = |(key, _): &(Key, T)| overlay.ranges().covering(key).is_none();
    let mut stored = stored.into_iter().filter(alive).peekable();
    let mut entries = Vec::new();
    for (key, action) in overlay.points().actions() {
        while let Some(entry) = stored.next_if(|(other, _)| *other < key) {
            entries.push(entry);
        }
        let here = stored.next_if(|(other, _)| *other == key).map(|(_, value)| value);
        if let Some(value) = after(&action, here.as_ref()) {
            entries.push((key, value));
        }
    }
    entries.extend(stored);
    entries
}
