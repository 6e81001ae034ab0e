//! Read-ahead of scans: leaves are read and verified, several at a time, before a scan reaches them.

use std::collections::VecDeque;
use std::ops::Range;

use super::cursor::{Above, End, above, has_deleted, last_child};
use crate::format::Bounds;
use crate::ids::TreeId;
use crate::node::SharedInternal;
use crate::store::{Prefetch, Store};

/// The leaves that a scan comes to next, in its order: the first ones are being read, and the device has been advised of
/// as many behind them. Errors are dropped, since the scan meets them again.
pub(super) struct Ahead {
    tree: TreeId,
    end: End,
    /// The keys of the leaf that the scan has come to, and whether it was read whole.
    current: Option<(Bounds, bool)>,
    /// Leaves that are being read, with their keys.
    reading: VecDeque<(Bounds, Prefetch)>,
    /// Leaves that the device has been advised of.
    advised: VecDeque<Coming>,
    /// Leaves of one parent behind those.
    row: Option<Row>,
    /// The keys behind all these leaves.
    rest: Option<Bounds>,
}

/// A leaf that a scan comes to.
struct Coming {
    parent: SharedInternal,
    at: usize,
    keys: Bounds,
}

/// Consecutive leaves of one parent, and the path to them.
struct Row {
    above: Above,
    leaves: Range<usize>,
}

impl Ahead {
    pub(super) fn new(tree: TreeId, end: End) -> Ahead {
        let (reading, advised) = Default::default();
        Ahead { tree, end, current: None, reading, advised, row: None, rest: None }
    }

    /// Waits for the leaf with the first or last keys of `rest`, and puts it into the cache, with those before it. Returns
    /// whether it was among those being read.
    pub(super) fn arrive(&mut self, store: &Store, rest: &Bounds) -> bool {
        let mut is_there = false;
        while let Some((keys, _)) = self.reading.front() {
            let (is_reached, contains) = match (self.end, &keys.hi, &rest.hi) {
                (End::Front, hi, _) => {
                    (keys.lo <= rest.lo, hi.as_ref().is_none_or(|hi| rest.lo < *hi))
                }
                (End::Back, Some(hi), Some(end)) => (hi >= end, keys.lo < *end),
                (End::Back, Some(_), None) => (false, false),
                (End::Back, None, end) => (true, end.as_ref().is_none_or(|end| keys.lo < *end)),
            };
            if !is_reached {
                break;
            }
            is_there = contains;
            if let Some((_, prefetch)) = self.reading.pop_front() {
                store.finish(prefetch);
            }
        }
        is_there
    }

    /// The keys of the leaf that the scan has come to, and of the next one if that is being read.
    pub(super) fn near(&self) -> Option<Bounds> {
        let (current, _) = self.current.as_ref()?;
        let last = self.reading.front().map_or(current, |(keys, _)| keys);
        Some(Bounds { lo: current.lo.clone(), hi: last.hi.clone() })
    }

    /// Notes that the scan has come to a leaf with these keys, and starts to read further ones. If this one was not ahead,
    /// but is the next one in order, it is read whole, and then those behind it for keys of `range`. With `reads_on` that
    /// begins where the scan comes to a leaf a second time.
    pub(super) fn go_on(
        &mut self,
        store: &Store,
        was_ahead: bool,
        keys: Bounds,
        (range, reads_on): (&Bounds, bool),
    ) {
        let (is_same, is_whole, is_next) = match (&self.current, self.end) {
            (Some((before, whole)), end) => {
                let is_next = match end {
                    End::Front => before.hi.as_ref() == Some(&keys.lo),
                    End::Back => keys.hi.as_ref() == Some(&before.lo),
                };
                (*before == keys, *whole, is_next)
            }
            (None, _) => (false, false, false),
        };
        if is_same && (is_whole || !reads_on) {
            return;
        }
        let follows = is_same || is_next;
        self.current = Some((keys.clone(), was_ahead || follows));
        if was_ahead {
            return self.start(store);
        }
        if follows {
            let rest = match self.end {
                End::Front => Bounds { lo: keys.lo, hi: range.hi.clone() },
                End::Back => Bounds { lo: range.lo.clone(), hi: keys.hi },
            };
            let current = self.current.take();
            *self = Ahead { rest: Some(rest), current, ..Ahead::new(self.tree, self.end) };
            self.start(store);
            self.arrive(store, range);
        }
    }

    /// Starts to read as many leaves as may be in flight.
    fn start(&mut self, store: &Store) {
        let most = store.leaves_ahead();
        loop {
            while self.advised.len() <= most
                && let Some(coming) = self.next(store)
            {
                store.advise_will_need(&coming.parent, coming.at);
                self.advised.push_back(coming);
            }
            if self.reading.len() >= most {
                return;
            }
            let Some(Coming { parent, at, keys }) = self.advised.pop_front() else { return };
            if let Ok(prefetch) = store.prefetch(&parent, at) {
                self.reading.push_back((keys, prefetch));
            }
        }
    }

    /// The next leaf that no range delete covers. `None` at the end, and where a range delete covers a whole subtree.
    fn next(&mut self, store: &Store) -> Option<Coming> {
        loop {
            while let Some(Row { above, leaves }) = &mut self.row
                && let Some(at) = match self.end {
                    End::Front => leaves.next(),
                    End::Back => leaves.next_back(),
                }
            {
                let (parent, higher) = above.split_last()?;
                let keys = parent.keys_of(at);
                if !parent.node.is_pruned(at) && !has_deleted(store, higher, &keys).ok()? {
                    return Some(Coming { parent: parent.node.clone(), at, keys });
                }
            }
            self.row = None;
            let rest = self.rest.take()?;
            let (above, keys, deleted) = above(store, self.tree, self.end, &rest).ok()?;
            if deleted {
                self.rest = self.end.behind(&keys, &rest);
                return None;
            }
            let parent = above.last()?;
            let own = parent.own_keys(&rest);
            let mut leaves = parent.node.child_for(&own.lo)..last_child(&parent.node, &own) + 1;
            let last = match self.end {
                End::Front => leaves.end - 1,
                End::Back => leaves.start,
            };
            let last_keys = parent.keys_of(last);
            self.rest = self.end.behind(&last_keys, &rest);
            if last_keys.within(&rest) != last_keys {
                // The scan reads what it needs of it.
                match self.end {
                    End::Front => leaves.end -= 1,
                    End::Back => leaves.start += 1,
                }
            }
            self.row = Some(Row { above, leaves });
        }
    }
}
