//! A batch of messages in memory: what the open run of an internal node holds for a child, a buffer on its
//! way down, the overlay of a query.
//!
//! Invariants: at most one point message a key; a point message is younger than any range delete of
//! the batch that covers its key. Pac-Man follows: a range delete that joins devours the older point
//! messages that it covers (BetrFS 0.2 §5.3).

use std::sync::Arc;

use super::ranges::RangeSet;
use super::sorted::{Item, Sorted};
use crate::format::{Action, Key, Kind, Message, RangeDelete};

/// What a message weighs besides key and value: no less than it takes in a run, and in a filter.
const MESSAGE_WEIGHT: usize = 21;
/// Unless more are known to come, the first messages that join are put in one by one.
const FEW: usize = 16;

/// Messages, sorted by key. Copies share the point messages until one of them changes.
#[derive(Clone, Default)]
pub struct Batch {
    points: Arc<Sorted>,
    ranges: RangeSet,
}

impl Batch {
    /// One of point messages alone.
    pub fn of_points(points: Sorted) -> Batch {
        Batch { points: Arc::new(points), ranges: RangeSet::default() }
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.ranges.is_empty()
    }

    /// The point messages.
    pub fn points(&self) -> &Sorted {
        &self.points
    }

    /// The point messages alone.
    pub fn into_points(self) -> Arc<Sorted> {
        self.points
    }

    /// The range messages.
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Adds a point message that is younger than all for its key, and combines with them.
    pub fn insert(&mut self, item: &Item<'_>) {
        let found = self.points.find(item.key);
        let combined = combined(item, self.points.at(found), &self.ranges);
        let points = Arc::make_mut(&mut self.points);
        match combined {
            None => points.put(found, item),
            Some(Message { msn, action }) => points.put(found, &Item::new(item.key, msn, &action)),
        }
    }

    /// Adds a range delete that is younger than all messages in its range.
    pub fn insert_range(&mut self, range: RangeDelete) {
        Arc::make_mut(&mut self.points).remove_range(&range.lo, Some(&range.hi));
        self.ranges.insert(range);
    }

    /// Adds messages that are younger than all that are here: first the ranges, then the points, in order.
    pub fn absorb<'m>(
        &mut self,
        points: impl Iterator<Item = Item<'m>>,
        ranges: impl Iterator<Item = RangeDelete>,
    ) {
        ranges.for_each(|range| self.insert_range(range));
        let mut points = points.fuse();
        if points.size_hint().0 <= FEW {
            points.by_ref().take(FEW).for_each(|item| self.insert(&item));
        }
        let Some(next) = points.next() else { return };
        let count = 1 + points.size_hint().0;
        let mut joining = Arc::make_mut(&mut self.points).join().expecting(count, &next);
        for item in std::iter::once(next).chain(points) {
            let found = joining.find(item.key);
            match combined(&item, joining.at(found), &self.ranges) {
                None => joining.put(found, &item),
                Some(Message { msn, action }) => {
                    joining.put(found, &Item::new(item.key, msn, &action));
                }
            }
        }
    }

    /// A copy of what lies within `[lo, hi)`.
    pub fn within(&self, lo: &[u8], hi: Option<&[u8]>) -> Batch {
        let mut ranges = RangeSet::default();
        self.ranges.clip(lo, hi).into_iter().for_each(|share| ranges.insert(share));
        Batch { points: Arc::new(self.points.within(lo, hi)), ranges }
    }

    /// What becomes of a value when the message of the batch to its key, or the range delete over it, is
    /// carried out; nothing if there is none.
    pub fn get(&self, key: &[u8]) -> Option<Action> {
        match self.points.get(key) {
            Some(item) => Some(item.action()),
            None => self.ranges.covering(key).map(|_| Action::Delete),
        }
    }

    /// The weight of all messages, in bytes.
    pub fn weight(&self) -> usize {
        let sizes = self.points.sizes();
        let points = MESSAGE_WEIGHT * sizes.count + sizes.keys + sizes.values;
        points + MESSAGE_WEIGHT * self.ranges.len() + self.ranges.key_bytes()
    }

    /// The bytes of the values that its updates may make.
    pub fn growth(&self) -> usize {
        self.points.sizes().growth
    }

    /// Takes out all messages; or the last ones, whose updates make values of not much more than `growth`
    /// bytes together. That costs what is taken out.
    pub fn take_last(&mut self, growth: usize) -> Batch {
        if self.growth() <= growth {
            return std::mem::take(self);
        }
        match Arc::make_mut(&mut self.points).last_of_growth(growth) {
            Some(cut) => self.split_off(&cut),
            None => std::mem::take(self),
        }
    }

    /// Takes out what lies at `key` or behind it.
    pub fn split_off(&mut self, key: &Key) -> Batch {
        let mut ranges = RangeSet::default();
        self.ranges.clip(key, None).into_iter().for_each(|share| ranges.insert(share));
        self.ranges.cut(key, None);
        Batch { points: Arc::new(Arc::make_mut(&mut self.points).split_off(key)), ranges }
    }

    /// How much memory it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.points.memory() + 160 * self.ranges.len() + self.ranges.key_bytes()
    }

    /// The lower keys of all messages, in order, each with its message's weight.
    pub fn weights(&self) -> Vec<(Key, usize)> {
        let points = self.points.iter().map(|item| (Key::copied(item.key), weight_of(&item)));
        let ranges = self.ranges.iter().map(|range| (range.lo.clone(), range_weight(&range)));
        let mut weights: Vec<_> = points.chain(ranges).collect();
        weights.sort_unstable();
        weights
    }
}

/// What becomes of a message where it meets an older one for its key, or a range delete; nothing if it stays
/// as it is.
fn combined(item: &Item<'_>, older: Option<Item<'_>>, ranges: &RangeSet) -> Option<Message> {
    match older {
        _ if item.kind != Kind::Update => None,
        Some(older) => Some(message_of(item).after(&message_of(&older))),
        None => ranges.covering(item.key).map(|_| message_of(item).after_range()),
    }
}

fn message_of(item: &Item<'_>) -> Message {
    Message { msn: item.msn, action: item.action() }
}

/// What a range message weighs: about its bytes in a run.
pub(super) fn range_weight(range: &RangeDelete) -> usize {
    MESSAGE_WEIGHT + range.lo.len() + range.hi.len()
}

/// What a point message weighs: about its bytes in a run.
fn weight_of(item: &Item<'_>) -> usize {
    MESSAGE_WEIGHT + item.key.len() + item.value().len()
}
