//! Scans in both directions: the entries of a range, leaf by leaf, with pending messages applied.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::descent::{Descent, PathLens};
use crate::error::Result;
use crate::format::{Action, Bounds, Key};
use crate::ids::{Height, TreeId};
use crate::node::{Batch, Internal, Leaf, Node, SharedInternal};
use crate::store::{Prefetch, Store, Use};

/// A scan of a range: the keys still to be read, and the entries ready at both ends. It holds no reference to the
/// store, so it can outlive a borrow. An entry is as of the moment when its leaf was read.
struct Leaves<T> {
    tree: TreeId,
    /// The keys of leaves not yet read; `None` at the end.
    rest: Option<(Key, Option<Key>)>,
    /// Whether several leaves are prefetched at once, from the second one on.
    read_ahead: bool,
    front: Side<T>,
    back: Side<T>,
}

/// The state at one end of a scan.
struct Side<T> {
    ready: VecDeque<(Key, T)>,
    /// Whether a leaf has been read.
    begun: bool,
    /// The keys of the prefetched leaves.
    ahead: Option<Bounds>,
    /// The prefetch in flight, of the leaves after those.
    prefetch: Option<Prefetch>,
}

impl<T> Default for Side<T> {
    fn default() -> Side<T> {
        Side { ready: VecDeque::new(), begun: false, ahead: None, prefetch: None }
    }
}

impl<T> Side<T> {
    /// Finishes the prefetch of a group, starts that of the next, and advises the device of the one after it.
    fn read_ahead(
        &mut self,
        store: &Store,
        tree: TreeId,
        end: End,
        rest: &Bounds,
        here: Option<Group>,
    ) -> Result<()> {
        let prefetch = self.prefetch.take();
        let Some(here) = here else { return Ok(()) };
        match prefetch {
            Some(prefetch) => drop(prefetch),
            None => drop(here.read(store)?),
        }
        self.ahead = here.keys();
        if let Some(next) = here.next(store, tree, end, rest) {
            if let Some(behind) = next.next(store, tree, end, rest) {
                behind.will_be_read(store);
            }
            self.prefetch = next.read(store)?;
        }
        Ok(())
    }
}

/// An end of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl<T> Leaves<T> {
    fn new(tree: TreeId, lo: Key, hi: Option<Key>, read_ahead: bool) -> Leaves<T> {
        let (front, back) = Default::default();
        let mut leaves = Leaves { tree, rest: None, read_ahead, front, back };
        leaves.leave(lo, hi);
        leaves
    }

    fn leave(&mut self, lo: Key, hi: Option<Key>) {
        let some = hi.as_ref().is_none_or(|hi| lo < *hi);
        self.rest = some.then_some((lo, hi));
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
            let Some((lo, hi)) = self.rest.take() else {
                // Where both ends meet, each yields entries that the other has read.
                return Ok(match end {
                    End::Front => self.back.ready.pop_front(),
                    End::Back => self.front.ready.pop_back(),
                });
            };
            let rest = Bounds { lo, hi };
            let way = LeafPath::down(store, self.tree, end, &rest)?;
            let side = match end {
                End::Front => &mut self.front,
                End::Back => &mut self.back,
            };
            if way.leaf.is_some() && self.read_ahead {
                let known = |ahead: &Bounds| ahead.contains(&way.keys.lo);
                if side.begun && !side.ahead.as_ref().is_some_and(known) {
                    let group = Group::new(store, way.above.clone(), end, &rest);
                    side.read_ahead(store, self.tree, end, &rest, group)?;
                }
                side.begun = true;
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
        Scan(Leaves::new(tree, lo, hi, true))
    }

    /// As [`Scan::new`], for a few entries: without prefetch.
    pub fn few(tree: TreeId, lo: Key, hi: Option<Key>) -> Scan {
        Scan(Leaves::new(tree, lo, hi, false))
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

type Above = Vec<Passed>;

impl Passed {
    /// The keys of child `at`.
    fn keys_of(&self, at: usize) -> Bounds {
        self.lens.bounds_up(self.node.child_bounds(at))
    }

    /// The keys that both the node and a range have, as they are in the node.
    fn own_keys(&self, keys: &Bounds) -> Bounds {
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
fn above(store: &Store, tree: TreeId, end: End, rest: &Bounds) -> Result<(Above, Bounds, bool)> {
    let mut above = Above::new();
    let mut keys = rest.clone();
    let mut way = Descent::new(store, tree)?;
    while let Some(node) = SharedInternal::of(way.node().clone()) {
        let lens = way.lens().clone();
        let own = lens.bounds_down(&keys);
        let at = match end {
            End::Front => node.child_for(&own.lo),
            End::Back => last_child(&node, &own),
        };
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

/// Consecutive leaves of one parent that are prefetched together, and the path to them.
struct Group {
    above: Above,
    leaves: Range<usize>,
}

impl Group {
    /// The group with the first or last of some keys, given the path to it.
    fn new(store: &Store, above: Above, end: End, rest: &Bounds) -> Option<Group> {
        let parent = above.last()?;
        let own = parent.own_keys(rest);
        let (first, past) = (parent.node.child_for(&own.lo), last_child(&parent.node, &own) + 1);
        let count = store.leaves_ahead();
        let leaves = match end {
            End::Front => first..(first + count).min(past),
            End::Back => past.saturating_sub(count).max(first)..past,
        };
        Some(Group { above, leaves })
    }

    fn parent(&self) -> Option<&Passed> {
        self.above.last()
    }

    /// The keys of all leaves of the group.
    fn keys(&self) -> Option<Bounds> {
        let parent = self.parent()?;
        let (first, last) = (self.leaves.start, self.leaves.end - 1);
        Some(Bounds { lo: parent.keys_of(first).lo, hi: parent.keys_of(last).hi })
    }

    /// The next group of a scan of some keys, possibly below another parent. Read errors on the way are dropped, since
    /// the scan meets them again.
    fn next(&self, store: &Store, tree: TreeId, end: End, rest: &Bounds) -> Option<Group> {
        let keys = self.keys()?;
        let rest = match end {
            End::Front => Bounds { lo: keys.hi?, hi: rest.hi.clone() },
            End::Back => Bounds { lo: rest.lo.clone(), hi: Some(keys.lo) },
        };
        if rest.hi.as_ref().is_some_and(|hi| *hi <= rest.lo) {
            return None;
        }
        let (above, _, deleted) = above(store, tree, end, &rest).ok()?;
        Group::new(store, above, end, &rest).filter(|_| !deleted)
    }

    /// Starts the prefetch, without leaves that range deletes cover.
    fn read(&self, store: &Store) -> Result<Option<Prefetch>> {
        let Some(parent) = self.parent() else { return Ok(None) };
        let above = &self.above[..self.above.len() - 1];
        let mut wanted = Vec::new();
        for at in self.leaves.clone() {
            if !has_deleted(store, above, &parent.keys_of(at))? && !parent.node.is_pruned(at) {
                wanted.push(at);
            }
        }
        Ok(Some(store.read_ahead(parent.node.node(), wanted)))
    }

    /// Advises the device that the leaves will be read.
    fn will_be_read(&self, store: &Store) {
        if let Some(parent) = self.parent() {
            store.advise_will_need(&parent.node, self.leaves.clone());
        }
    }
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
fn last_child(internal: &Internal, keys: &Bounds) -> usize {
    match &keys.hi {
        Some(hi) => internal.child_before(hi),
        None => internal.children().len() - 1,
    }
}

/// Whether a range delete pending on the path covers all of these keys.
fn has_deleted(store: &Store, above: &[Passed], keys: &Bounds) -> Result<bool> {
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
