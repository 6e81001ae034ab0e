//! Forward cursors: the entries of a range, leaf by leaf, with everything pending laid over.

use std::sync::Arc;

use bytes::Bytes;

use crate::cache::Store;
use crate::error::Result;
use crate::format::{Action, Key};
use crate::ids::TreeId;
use crate::node::{Batch, Leaf, Node};

/// Where a scan stands: in a range of keys, with what is ready of the leaf that was read last. It holds
/// no reference to the store, so that it can outlive a borrow; what it yields is that of the moment when
/// its leaf was read.
struct Leaves<T> {
    tree: TreeId,
    next: Option<Key>,
    hi: Option<Key>,
    ready: std::vec::IntoIter<(Key, T)>,
}

impl<T> Leaves<T> {
    fn new(tree: TreeId, lo: Key, hi: Option<Key>) -> Leaves<T> {
        Leaves { tree, next: Some(lo), hi, ready: Vec::new().into_iter() }
    }

    /// The next entry. `stored` reads what a leaf holds of a range, `after` says what becomes of it when a
    /// pending message is carried out.
    fn next(
        &mut self,
        store: &Store,
        stored: impl Fn(&Leaf, &[u8], Option<&[u8]>) -> Result<Vec<(Key, T)>>,
        after: impl Fn(&Action, Option<&T>) -> Option<T>,
    ) -> Result<Option<(Key, T)>> {
        loop {
            if let Some(entry) = self.ready.next() {
                return Ok(Some(entry));
            }
            let Some(lo) = self.next.take() else { return Ok(None) };
            if self.hi.as_ref().is_some_and(|hi| *hi <= lo) {
                return Ok(None);
            }
            let way = Way::down(store, self.tree, &lo, self.hi.as_ref())?;
            store.lost.check(self.tree, &lo, way.end())?;
            let stored = stored(way.leaf(), &lo, way.end())?;
            self.ready = lay_over(stored, &way.overlay(store, &lo)?, &after).into_iter();
            self.next = way.leaf().bounds.hi.clone();
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
        self.0.next(store, |leaf, lo, hi| leaf.scan(&store.disk, lo, hi), Action::apply)
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
        let after = |action: &Action, len: Option<&usize>| action.apply_len(len.copied());
        self.0.next(store, |leaf, lo, hi| leaf.scan_keys(&store.disk, lo, hi), after)
    }
}

/// A scan that borrows the store: an iterator at a cut.
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

/// The way from the root to the leaf of a key: the internal nodes with the child taken, and the leaf.
struct Way {
    above: Vec<(Arc<Node>, usize)>,
    leaf: Arc<Node>,
    end: Option<Key>,
}

impl Way {
    fn down(store: &Store, tree: TreeId, key: &Key, hi: Option<&Key>) -> Result<Way> {
        let mut above = Vec::new();
        let mut node = store.root(tree)?;
        while let Node::Internal(internal) = &*node {
            let at = internal.child_for(key);
            let child = store.child(internal, at)?;
            above.push((node, at));
            node = child;
        }
        let end = match (&node.bounds().hi, hi) {
            (Some(leaf_hi), Some(hi)) => Some(leaf_hi.min(hi)),
            (leaf_hi, hi) => leaf_hi.as_ref().or(hi),
        };
        let end = end.cloned();
        Ok(Way { above, leaf: node, end })
    }

    fn leaf(&self) -> &Leaf {
        match &*self.leaf {
            Node::Leaf(leaf) => leaf,
            Node::Internal(_) => unreachable!("only a leaf ends the way down"),
        }
    }

    /// Where the leaf or the range ends, whichever is first.
    fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }

    /// Everything pending for the leaf from `lo` to the end, lowest nodes first: those hold the older
    /// messages.
    fn overlay(&self, store: &Store, lo: &[u8]) -> Result<Batch> {
        let mut overlay = Batch::default();
        for (node, at) in self.above.iter().rev() {
            if let Node::Internal(internal) = &**node {
                internal.overlay(&store.disk, *at, lo, self.end(), &mut overlay)?;
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
    for (key, message) in overlay.points() {
        while let Some(entry) = stored.next_if(|(k, _)| k < key) {
            entries.push(entry);
        }
        let here = stored.next_if(|(k, _)| k == key).map(|(_, value)| value);
        if let Some(value) = after(&message.action, here.as_ref()) {
            entries.push((key.clone(), value));
        }
    }
    entries.extend(stored);
    entries
}
