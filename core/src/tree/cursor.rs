//! Scans in both directions: the entries of a range, leaf by leaf, with pending messages applied.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::ahead::Ahead;
use super::descent::{Descent, PathLens};
use crate::error::Result;
use crate::format::{Action, Bounds, Key};
use crate::ids::{Height, TreeId};
use crate::node::{Batch, Internal, Leaf, Node, SharedInternal};
use crate::store::{Store, Use};

/// A scan of a range: the keys still to be read, and the entries ready at both ends. It holds no reference to the
/// store, so it can outlive a borrow. An entry is as of the moment when its leaf was read.
struct Leaves<T> {
    tree: TreeId,
    /// The keys of leaves not yet read; `None` at the end.
    rest: Option<Bounds>,
    /// Whether leaves are read ahead, from the second one on.
    read_ahead: bool,
    /// The end of the keys whose leaves are read ahead, if that is not the end of the scan.
    beyond: Option<Key>,
    front: Side<T>,
    back: Side<T>,
}

/// The state at one end of a scan.
struct Side<T> {
    ready: VecDeque<(Key, T)>,
    /// The leaves that are read before the scan reaches them.
    ahead: Ahead,
}

impl<T> Side<T> {
    fn new(tree: TreeId, end: End) -> Side<T> {
        Side { ready: VecDeque::new(), ahead: Ahead::new(tree, end) }
    }
}

/// An end of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

impl End {
    /// What is left of a range behind some of its keys, which are at this end.
    pub(super) fn behind(self, keys: &Bounds, rest: &Bounds) -> Option<Bounds> {
        match self {
            End::Front => some(Bounds { lo: keys.hi.clone()?, hi: rest.hi.clone() }),
            End::Back => some(Bounds { lo: rest.lo.clone(), hi: Some(keys.lo.clone()) }),
        }
    }

    /// The child with the first or last of some keys.
    pub(super) fn child(self, node: &Internal, keys: &Bounds) -> usize {
        match self {
            End::Front => node.child_for(&keys.lo),
            End::Back => last_child(node, keys),
        }
    }
}

/// The bounds, unless nothing is within them.
fn some(bounds: Bounds) -> Option<Bounds> {
    let is_some = bounds.hi.as_ref().is_none_or(|hi| bounds.lo < *hi);
    is_some.then_some(bounds)
}

impl<T> Leaves<T> {
    fn new(tree: TreeId, lo: Key, hi: Option<Key>, read_ahead: bool) -> Leaves<T> {
        let (front, back) = (Side::new(tree, End::Front), Side::new(tree, End::Back));
        let rest = some(Bounds { lo, hi });
        Leaves { tree, rest, read_ahead, beyond: None, front, back }
    }

    /// The next entry from an end. `stored` reads the entries of a leaf in a range, given the path to it; `after` applies
    /// a pending message to an entry.
    fn next(
        &mut self,
        store: &Store,
        end: End,
        stored: impl Fn(&LeafPath, &Leaf, &[u8], Option<&[u8]>) -> Result<Vec<(Key, T)>>,
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
            let Some(rest) = self.rest.take() else {
                // Where both ends meet, each yields entries that the other has read.
                return Ok(match end {
                    End::Front => self.back.ready.pop_front(),
                    End::Back => self.front.ready.pop_back(),
                });
            };
            let side = match end {
                End::Front => &mut self.front,
                End::Back => &mut self.back,
            };
            let was_ahead = side.ahead.arrive(store, &rest);
            let way = LeafPath::down(store, self.tree, end, &rest)?;
            if way.leaf.is_some() && self.read_ahead {
                let hi = self.beyond.clone().or_else(|| rest.hi.clone());
                let range = (&Bounds { lo: rest.lo.clone(), hi }, self.beyond.is_some());
                side.ahead.go_on(store, was_ahead, way.leaf_keys(), range);
            }
            let Bounds { lo: from, hi: to } = &way.keys;
            let to = to.as_deref();
            store.lost.check(self.tree, from, to)?;
            let entries = match way.leaf() {
                Some(leaf) => {
                    let Bounds { lo, hi } = way.lens.bounds_down(&way.keys);
                    let mut entries = stored(&way, leaf, &lo, hi.as_deref())?;
                    if let Some(lens) = way.lens.lens() {
                        entries.iter_mut().for_each(|(key, _)| *key = lens.up(key));
                    }
                    entries
                }
                None => Vec::new(),
            };
            side.ready = lay_over(entries, &overlay(store, &way.above, &way.keys)?, &after).into();
            way.above.iter().for_each(|stop| store.has_read(stop.node.node()));
            way.leaf.iter().for_each(|leaf| store.has_read(leaf));
            self.rest = end.behind(&way.keys, &rest);
        }
    }
}

/// A scan of entries.
pub struct Scan(Leaves<Bytes>);

impl Scan {
    /// The entries within `[lo, hi)`; no `hi` means to the end.
    pub fn new(tree: TreeId, lo: Key, hi: Option<Key>) -> Scan {
        Scan(Leaves::new(tree, lo, hi, true))
    }

    /// As [`Scan::new`], for a few entries: without prefetch.
    pub fn few(tree: TreeId, lo: Key, hi: Option<Key>) -> Scan {
        Scan(Leaves::new(tree, lo, hi, false))
    }

    /// Goes on with the range `[lo, hi)`, from its front. What is being read ahead stays. With `beyond`, leaves behind the
    /// range are read ahead up to there: ranges follow one another.
    pub fn go_to(&mut self, lo: Key, hi: Key, beyond: Option<Key>) {
        let leaves = &mut self.0;
        leaves.rest = some(Bounds { lo, hi: Some(hi) });
        leaves.beyond = beyond;
        leaves.front.ready.clear();
        leaves.back = Side::new(leaves.tree, End::Back);
    }

    /// The keys of the leaf that the scan has come to, and of the next one if that is read ahead.
    pub(super) fn near(&self) -> Option<Bounds> {
        self.0.front.ahead.near()
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
        let stored = |_: &LeafPath, leaf: &Leaf, lo: &[u8], hi: Option<&[u8]>| {
            leaf.scan(&store.disk, lo, hi)
        };
        self.0.next(store, end, stored, Action::apply)
    }
}

/// A scan of keys and the lengths of their values; values are not read.
pub struct KeyScan(Leaves<usize>);

impl KeyScan {
    /// The keys within `[lo, hi)`; no `hi` means to the end.
    pub fn new(tree: TreeId, lo: Key, hi: Option<Key>) -> KeyScan {
        KeyScan(Leaves::new(tree, lo, hi, false))
    }

    /// The next key, and the length of its value.
    pub fn next(&mut self, store: &Store) -> Result<Option<(Key, usize)>> {
        let stored = |_: &LeafPath, leaf: &Leaf, lo: &[u8], hi: Option<&[u8]>| {
            leaf.scan_keys(&store.disk, lo, hi)
        };
        let after = |action: &Action, len: Option<&usize>| action.apply_len(len.copied());
        self.0.next(store, End::Front, stored, after)
    }
}

/// Where the value of a key is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// In a leaf whose extent a hold shares, or that is shared in the tree.
    Shared,
    /// In a leaf of its own that was written after the newest hold, or is only in memory.
    Alone,
    /// In a buffer: the message has not reached its leaf.
    Pending,
}

/// A scan of keys and of where their values are stored; values are not read.
pub struct PlaceScan(Leaves<(usize, ValuePlace)>);

impl PlaceScan {
    /// The keys within `[lo, hi)`.
    pub fn new(tree: TreeId, lo: Key, hi: Key) -> PlaceScan {
        PlaceScan(Leaves::new(tree, lo, Some(hi), false))
    }

    /// The next key, and where its value is stored.
    pub fn next(&mut self, store: &Store) -> Result<Option<(Key, ValuePlace)>> {
        let stored = |path: &LeafPath, leaf: &Leaf, lo: &[u8], hi: Option<&[u8]>| {
            let is_shared = store.shares_leaf(leaf.id)? || path.is_shared(store)?;
            let lies = if is_shared { ValuePlace::Shared } else { ValuePlace::Alone };
            let keys = leaf.scan_keys(&store.disk, lo, hi)?;
            Ok(keys.into_iter().map(|(key, len)| (key, (len, lies))).collect())
        };
        let after = |action: &Action, before: Option<&(usize, ValuePlace)>| {
            let len = action.apply_len(before.map(|(len, _)| *len));
            len.map(|len| (len, ValuePlace::Pending))
        };
        let next = self.0.next(store, End::Front, stored, after)?;
        Ok(next.map(|(key, (_, lies))| (key, lies)))
    }
}

/// A scan that borrows the store: an iterator over one state of it, from both ends.
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

/// The path from the root to a leaf: the internal nodes with the index of the child taken, and the leaf. It ends early,
/// without a leaf, at a range delete that covers all requested keys below.
struct LeafPath {
    above: Above,
    leaf: Option<Arc<Node>>,
    /// What the path to the leaf replaces.
    lens: PathLens,
    /// The requested keys that the leaf is responsible for.
    keys: Bounds,
}

/// An internal node of a path from the root.
#[derive(Clone)]
pub(super) struct Passed {
    pub(super) node: SharedInternal,
    /// The index of the child taken.
    pub(super) at: usize,
    /// What the path to the node replaces.
    pub(super) lens: PathLens,
}

pub(super) type Above = Vec<Passed>;

impl Passed {
    /// The keys of child `at`.
    pub(super) fn keys_of(&self, at: usize) -> Bounds {
        self.lens.bounds_up(self.node.child_bounds(at))
    }

    /// The keys that both the node and a range have, as they are in the node.
    pub(super) fn own_keys(&self, keys: &Bounds) -> Bounds {
        let own = self.lens.bounds_up(self.node.bounds.clone());
        self.lens.bounds_down(&keys.within(&own))
    }
}

impl LeafPath {
    /// The path to the first or last of some keys.
    fn down(store: &Store, tree: TreeId, end: End, rest: &Bounds) -> Result<LeafPath> {
        let (above, keys, deleted) = above(store, tree, end, rest)?;
        let (leaf, lens) = match above.last() {
            _ if deleted => (None, PathLens::default()),
            Some(Passed { node, at, lens }) => {
                (Some(store.child_for(node, *at, Use::Scan)?), lens.through(node, *at)?)
            }
            None => (Some(store.root(tree)?), PathLens::default()),
        };
        Ok(LeafPath { above, leaf, lens, keys })
    }

    /// The keys that the leaf is responsible for, requested or not.
    fn leaf_keys(&self) -> Bounds {
        self.above.last().map_or_else(Bounds::default, |parent| parent.keys_of(parent.at))
    }

    fn leaf(&self) -> Option<&Leaf> {
        self.leaf.as_deref()?.leaf()
    }

    /// Whether other paths lead to the leaf as well, or did.
    fn is_shared(&self, store: &Store) -> Result<bool> {
        for Passed { node, at, .. } in &self.above {
            if store.is_shared(node, *at)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The path to the first or last of some keys, down to height 1; the requested keys that the leaf below is responsible
/// for; and whether the path ended early because these keys have been deleted.
pub(super) fn above(
    store: &Store,
    tree: TreeId,
    end: End,
    rest: &Bounds,
) -> Result<(Above, Bounds, bool)> {
    let mut above = Above::new();
    let mut keys = rest.clone();
    let mut way = Descent::new(store, tree)?;
    while let Some(node) = SharedInternal::of(way.node().clone()) {
        let lens = way.lens().clone();
        let own = lens.bounds_down(&keys);
        let at = end.child(&node, &own);
        let height = node.height;
        let passed = Passed { node, at, lens };
        keys = keys.within(&passed.keys_of(at));
        above.push(passed);
        if has_deleted(store, &above, &keys)? {
            return Ok((above, keys, true));
        }
        if height == Height(1) {
            break;
        }
        way.enter(at, Use::Scan)?;
    }
    Ok((above, keys, false))
}

/// The messages pending on a path for keys of the child taken last. Lower nodes hold the older messages and come first.
pub(super) fn overlay(store: &Store, above: &[Passed], keys: &Bounds) -> Result<Batch> {
    let mut overlay = Batch::default();
    for Passed { node, at, lens } in above.iter().rev() {
        let Bounds { lo, hi } = lens.bounds_down(keys);
        match lens.lens() {
            None => node.overlay(&store.disk, *at, &lo, hi.as_deref(), &mut overlay)?,
            Some(lens) => {
                let mut own = Batch::default();
                node.overlay(&store.disk, *at, &lo, hi.as_deref(), &mut own)?;
                let own = own.seen_through(lens);
                overlay.absorb(own.points().iter(), own.ranges().iter());
            }
        }
    }
    Ok(overlay)
}

/// The messages pending for the leaf that is responsible for `keys`. The leaf is not read.
pub fn pending(store: &Store, tree: TreeId, keys: &Bounds) -> Result<Batch> {
    let mut above = Above::new();
    let mut way = Descent::new(store, tree)?;
    while let Some(node) = SharedInternal::of(way.node().clone()) {
        let (at, height) = (node.child_for(&way.lens().down(&keys.lo)), node.height);
        above.push(Passed { node, at, lens: way.lens().clone() });
        if height == Height(1) {
            break;
        }
        way.enter(at, Use::Other)?;
    }
    let pending = overlay(store, &above, keys)?;
    above.iter().for_each(|stop| store.has_read(stop.node.node()));
    Ok(pending)
}

/// The index of the child with the last of some keys.
pub(super) fn last_child(internal: &Internal, keys: &Bounds) -> usize {
    match &keys.hi {
        Some(hi) => internal.child_before(hi),
        None => internal.children().len() - 1,
    }
}

/// Whether a range delete pending on the path covers all of these keys.
pub(super) fn has_deleted(store: &Store, above: &[Passed], keys: &Bounds) -> Result<bool> {
    for Passed { node, at, lens } in above {
        if node.has_deleted(&store.disk, *at, &lens.bounds_down(keys))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Applies younger messages to entries; `after` applies one message to an entry.
pub fn lay_over<T>(
    stored: Vec<(Key, T)>,
    overlay: &Batch,
    after: impl Fn(&Action, Option<&T>) -> Option<T>,
) -> Vec<(Key, T)> {
    if overlay.is_empty() {
        return stored;
    }
    let mut entries = Vec::with_capacity(stored.len() + overlay.points().len());
    let alive = |(key, _): &(Key, T)| overlay.ranges().covering(key).is_none();
    let mut stored = stored.into_iter().filter(alive).peekable();
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
