//! Scans in both directions: the entries of a range, leaf by leaf, with everything pending laid over.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::cache::{Ahead, Store, Use};
use crate::error::Result;
use crate::format::{Action, Bounds, Key};
use crate::ids::{Height, TreeId};
use crate::node::{Batch, Internal, Leaf, Node};

/// What is left of a range of keys, and what is ready of the leaves that were read at both of its ends. It
/// holds no reference to the store, so that it can outlive a borrow; what it yields is that of the moment
/// when its leaf was read.
struct Leaves<T> {
    tree: TreeId,
    /// The keys that no leaf was read for; nothing if there are none.
    rest: Option<(Key, Option<Key>)>,
    front: Side<T>,
    back: Side<T>,
}

/// What is known at one end.
struct Side<T> {
    ready: VecDeque<(Key, T)>,
    /// Whether a leaf was read.
    begun: bool,
    /// The keys of the leaves that were read ahead.
    ahead: Option<Bounds>,
    /// Those that come behind them are being read.
    coming: Option<Ahead>,
}

impl<T> Default for Side<T> {
    fn default() -> Side<T> {
        Side { ready: VecDeque::new(), begun: false, ahead: None, coming: None }
    }
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
        let mut leaves = Leaves { tree, rest: None, front, back };
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
                End::Front => self.front.ready.pop_front(),
                End::Back => self.back.ready.pop_back(),
            };
            if ready.is_some() {
                return Ok(ready);
            }
            let Some((lo, hi)) = self.rest.take() else {
                // Where both ends meet, one yields what the other has read.
                return Ok(match end {
                    End::Front => self.back.ready.pop_front(),
                    End::Back => self.front.ready.pop_back(),
                });
            };
            let rest = Bounds { lo, hi };
            let way = Way::down(store, self.tree, end, &rest)?;
            let side = match end {
                End::Front => &mut self.front,
                End::Back => &mut self.back,
            };
            if way.leaf.is_some() && read_ahead {
                let known = |ahead: &Bounds| ahead.contains(&way.keys.lo);
                if side.begun && !side.ahead.as_ref().is_some_and(known) {
                    way.read_ahead(store, end, &rest, side)?;
                }
                side.begun = true;
            }
            let Bounds { lo: from, hi: to } = &way.keys;
            let to = to.as_deref();
            store.lost.check(self.tree, from, to)?;
            let entries = match way.leaf() {
                Some(leaf) => stored(leaf, from, to)?,
                None => Vec::new(),
            };
            side.ready = lay_over(entries, &way.overlay(store, from, to)?, &after).into();
            way.above.iter().for_each(|(node, _)| store.has_read(node));
            way.leaf.iter().for_each(|leaf| store.has_read(leaf));
            let Bounds { lo, hi } = rest;
            match (end, way.keys) {
                (End::Front, Bounds { hi: Some(next), .. }) => self.leave(next, hi),
                (End::Front, Bounds { hi: None, .. }) => {}
                (End::Back, Bounds { lo: next, .. }) => self.leave(lo, Some(next)),
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

/// The way from the root to a leaf: the internal nodes with the child taken, and the leaf. It ends before,
/// without a leaf, where a range delete is pending for all keys below that are asked for.
struct Way {
    above: Vec<(Arc<Node>, usize)>,
    leaf: Option<Arc<Node>>,
    /// The keys that it speaks of.
    keys: Bounds,
}

impl Way {
    /// The way to the first or last of some keys.
    fn down(store: &Store, tree: TreeId, end: End, rest: &Bounds) -> Result<Way> {
        let mut way = Way { above: Vec::new(), leaf: None, keys: rest.clone() };
        let mut node = store.root(tree)?;
        while let Node::Internal(internal) = &*node {
            let at = match end {
                End::Front => internal.child_for(&rest.lo),
                End::Back => last_child(internal, rest),
            };
            way.keys = rest.within(&internal.child_bounds(at));
            way.above.push((node.clone(), at));
            if has_deleted(store, &way.above, &way.keys)? {
                return Ok(way);
            }
            node = store.child_for(internal, at, Use::Scan)?;
        }
        way.leaf = Some(node);
        Ok(way)
    }

    /// Reads this leaf and those that come next below the same node, if that has not begun yet, and begins to
    /// read those behind them.
    fn read_ahead<T>(
        &self,
        store: &Store,
        end: End,
        rest: &Bounds,
        side: &mut Side<T>,
    ) -> Result<()> {
        let Some((node, at)) = self.above.last() else { return Ok(()) };
        let Node::Internal(parent) = &**node else { return Ok(()) };
        let (count, first) = (store.leaves_ahead(), parent.child_for(&rest.lo));
        let past = last_child(parent, rest) + 1;
        let group = |from: usize| match end {
            End::Front => from..(from + count).min(past).max(from),
            End::Back => from.saturating_sub(count).max(first).min(from)..from,
        };
        let behind = |group: &Range<usize>| match end {
            End::Front => group.end,
            End::Back => group.start,
        };
        let read = |group: Range<usize>| -> Result<Ahead> {
            let mut wanted = Vec::new();
            for at in group {
                let above = &self.above[..self.above.len() - 1];
                if !has_deleted(store, above, &parent.child_bounds(at))? && !parent.is_pruned(at) {
                    wanted.push(at);
                }
            }
            Ok(store.read_ahead(node, wanted))
        };
        let here = group(if end == End::Front { *at } else { *at + 1 });
        let next = group(behind(&here));
        match side.coming.take() {
            Some(coming) => drop(coming),
            None => drop(read(here.clone())?),
        }
        let (lo, hi) = (parent.child_bounds(here.start).lo, parent.child_bounds(here.end - 1).hi);
        side.ahead = Some(Bounds { lo, hi });
        if !next.is_empty() {
            store.will_read(parent, group(behind(&next)));
            side.coming = Some(read(next)?);
        }
        Ok(())
    }

    fn leaf(&self) -> Option<&Leaf> {
        match self.leaf.as_deref()? {
            Node::Leaf(leaf) => Some(leaf),
            Node::Internal(_) => unreachable!("only a leaf ends the way down"),
        }
    }

    /// Everything pending for the leaf within `[lo, hi)`.
    fn overlay(&self, store: &Store, lo: &[u8], hi: Option<&[u8]>) -> Result<Batch> {
        overlay(store, &self.above, lo, hi)
    }
}

/// Everything pending on a way within `[lo, hi)`, lowest nodes first: those hold the older messages.
fn overlay(
    store: &Store,
    above: &[(Arc<Node>, usize)],
    lo: &[u8],
    hi: Option<&[u8]>,
) -> Result<Batch> {
    let mut overlay = Batch::default();
    for (node, at) in above.iter().rev() {
        if let Node::Internal(internal) = &**node {
            internal.overlay(&store.disk, *at, lo, hi, &mut overlay)?;
        }
    }
    Ok(overlay)
}

/// Everything pending for a leaf that is responsible for these keys. The leaf is not read.
pub fn pending(store: &Store, tree: TreeId, keys: &Bounds) -> Result<Batch> {
    let mut above = Vec::new();
    let mut node = store.root(tree)?;
    while let Node::Internal(internal) = &*node {
        let at = internal.child_for(&keys.lo);
        above.push((node.clone(), at));
        if internal.height == Height(1) {
            break;
        }
        node = store.child(internal, at)?;
    }
    let pending = overlay(store, &above, &keys.lo, keys.hi.as_deref())?;
    above.iter().for_each(|(node, _)| store.has_read(node));
    Ok(pending)
}

/// The child with the last of some keys.
fn last_child(internal: &Internal, keys: &Bounds) -> usize {
    match &keys.hi {
        Some(hi) => internal.child_before(hi),
        None => internal.children().len() - 1,
    }
}

/// Whether some keys have been deleted, all of them, by what is pending in a node on the way to them.
fn has_deleted(store: &Store, above: &[(Arc<Node>, usize)], keys: &Bounds) -> Result<bool> {
    for (node, at) in above {
        if let Node::Internal(internal) = &**node
            && internal.has_deleted(&store.disk, *at, keys)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Entries with younger messages applied; `after` says what becomes of one.
pub fn lay_over<T>(
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
