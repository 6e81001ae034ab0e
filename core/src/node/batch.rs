//! A batch of messages in memory: the open run of an internal node for one child, a buffer being flushed, or the
//! overlay of a query.
//!
//! Invariants: at most one point message for each key; a point message is younger than any range delete of the batch
//! that covers its key. So a new range delete removes the older point messages that it covers (Pac-Man, BetrFS 0.2
//! §5.3).

use std::convert::Infallible;
use std::sync::Arc;

use super::ranges::RangeSet;
use super::sorted::{self, Item, Sorted};
use crate::format::{Action, Growth, Key, Kind, Lens, Message, RangeDelete};
use crate::tuning::ONE_BY_ONE;

/// 21 bytes: the weight of a message without key and value; at least its size in a run and in a filter.
const MESSAGE_WEIGHT: usize = 21;

/// Messages, sorted by key. Copies share the point messages until one of them changes.
#[derive(Clone, Default)]
pub struct Batch {
    points: Arc<Sorted>,
    ranges: RangeSet,
}

impl Batch {
    /// A batch of point messages only.
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

    /// The point messages; drops the ranges.
    pub fn into_points(self) -> Arc<Sorted> {
        self.points
    }

    /// The range messages.
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Adds a point message that is younger than all for its key, and combines it with them.
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

    /// Adds messages that are younger than all in the batch: first the ranges, then the points, in order.
    pub fn absorb<'m>(
        &mut self,
        points: impl Iterator<Item = Item<'m>>,
        ranges: impl Iterator<Item = RangeDelete>,
    ) {
        let Ok(()) = self.absorb_within(points, ranges, |_| Ok::<(), Infallible>(()));
    }

    /// As [`Batch::absorb`]. Before a combined message is stored, `grows` gets the number of bytes by which it is
    /// longer than its two sources.
    pub fn absorb_within<'m, E>(
        &mut self,
        points: impl Iterator<Item = Item<'m>>,
        ranges: impl Iterator<Item = RangeDelete>,
        mut grows: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        ranges.for_each(|range| self.insert_range(range));
        let mut points = points.fuse();
        if points.size_hint().0 <= ONE_BY_ONE {
            points.by_ref().take(ONE_BY_ONE).for_each(|item| self.insert(&item));
        }
        let Some(next) = points.next() else { return Ok(()) };
        let count = 1 + points.size_hint().0;
        let mut joining = Arc::make_mut(&mut self.points).join().expecting(count, &next);
        for item in std::iter::once(next).chain(points) {
            let found = joining.find(item.key);
            let older = joining.at(found);
            match combined(&item, older, &self.ranges) {
                None => joining.put(found, &item),
                Some(Message { msn, action }) => {
                    let made = Item::new(item.key, msn, &action);
                    let before = item.value().len() + older.map_or(0, |older| older.value().len());
                    grows(made.value().len().saturating_sub(before))?;
                    joining.put(found, &made);
                }
            }
        }
        Ok(())
    }

    /// A copy of the messages within `[lo, hi)`.
    pub fn within(&self, lo: &[u8], hi: Option<&[u8]>) -> Batch {
        let mut ranges = RangeSet::default();
        self.ranges.clip(lo, hi).into_iter().for_each(|share| ranges.insert(share));
        Batch { points: Arc::new(self.points.within(lo, hi)), ranges }
    }

    /// The messages as they are above a lens.
    pub fn seen_through(&self, lens: &Lens) -> Batch {
        let points = Arc::new(self.points.seen_through(lens));
        Batch { points, ranges: self.ranges.seen_through(lens) }
    }

    /// The action of the point message for `key`, or of the range delete that covers it; `None` if there is neither.
    pub fn get(&self, key: &[u8]) -> Option<Action> {
        match self.points.get(key) {
            Some(item) => Some(item.action()),
            None => self.ranges.covering(key).map(|_| Action::Delete),
        }
    }

    /// The weight of all messages, in bytes.
    pub fn weight(&self) -> usize {
        self.points_weight() + MESSAGE_WEIGHT * self.ranges.len() + self.ranges.key_bytes()
    }

    /// Panics if the cached sums differ from the messages.
    pub fn check_invariants(&self) {
        self.points.check_invariants();
        self.ranges.check_invariants();
    }

    /// The weight of the point messages, in bytes.
    pub fn points_weight(&self) -> usize {
        let sizes = self.points.sizes();
        MESSAGE_WEIGHT * sizes.count + sizes.keys + sizes.values
    }

    /// The bytes of the values that its updates may create.
    pub fn growth(&self) -> usize {
        self.points.sizes().growth
    }

    /// How much its messages may make leaves grow.
    pub fn leaf_growth(&self) -> Growth {
        self.points.sizes().leaf_growth
    }

    /// Takes out all messages; or only the last ones, whose updates create values of not much more than `growth` bytes.
    /// The time is proportional to the number of messages taken out.
    pub fn take_last(&mut self, growth: usize) -> Batch {
        if self.growth() <= growth {
            return std::mem::take(self);
        }
        match Arc::make_mut(&mut self.points).last_of_growth(growth) {
            Some(cut) => self.split_off(&cut),
            None => std::mem::take(self),
        }
    }

    /// Takes out the messages at or after `key`.
    pub fn split_off(&mut self, key: &Key) -> Batch {
        let mut ranges = RangeSet::default();
        self.ranges.clip(key, None).into_iter().for_each(|share| ranges.insert(share));
        self.ranges.cut(key, None);
        Batch { points: Arc::new(Arc::make_mut(&mut self.points).split_off(key)), ranges }
    }

    /// Memory, in bytes.
    pub fn memory(&self) -> usize {
        self.points.memory() + 160 * self.ranges.len() + self.ranges.key_bytes()
    }

    /// The lower key of each message, in order, with the message's weight.
    pub fn weights(&self) -> Vec<(Key, usize)> {
        let points = self.points.iter().map(|item| (Key::copied(item.key), weight_of(&item)));
        let ranges = self.ranges.iter().map(|range| (range.lo.clone(), range_weight(&range)));
        let mut weights: Vec<_> = points.chain(ranges).collect();
        weights.sort_unstable();
        weights
    }
}

/// Several batches that are joined into one, the oldest first.
#[derive(Default)]
pub(super) struct Gathering {
    /// Point messages; those of the current batch are added in key order.
    pub points: sorted::Gathering,
    ranges: RangeSet,
}

impl Gathering {
    /// A gathering with room for `count` point messages whose keys and short values take `bytes` bytes.
    pub(super) fn with_capacity(count: usize, bytes: usize) -> Gathering {
        let points = sorted::Gathering::with_capacity(count, bytes);
        Gathering { points, ranges: RangeSet::default() }
    }

    /// Starts the next batch, which has these range messages.
    pub(super) fn begin(&mut self, ranges: impl Iterator<Item = RangeDelete>) {
        for range in ranges {
            self.points.remove_range(&range.lo, &range.hi);
            self.ranges.insert(range);
        }
        self.points.begin();
    }

    /// Joins all batches. `grows` gets the number of bytes by which a combined message is longer than its sources.
    pub(super) fn finish<E>(self, grows: impl FnMut(usize) -> Result<(), E>) -> Result<Batch, E> {
        let Gathering { points, ranges } = self;
        let points = points.finish(|item, older| combined(&item, older, &ranges), grows)?;
        Ok(Batch { points: Arc::new(points), ranges })
    }
}

/// The result of combining a message with an older one for its key, or with a range delete; `None` if it does not
/// change.
fn combined(item: &Item<'_>, older: Option<Item<'_>>, ranges: &RangeSet) -> Option<Message> {
    match older {
        Some(older) => item.message().after(&older.message()),
        None if item.kind == Kind::Update => {
            ranges.covering(item.key).map(|_| item.message().owned().after_range())
        }
        None => None,
    }
}

/// The weight of a range message: about its bytes in a run.
pub(super) fn range_weight(range: &RangeDelete) -> usize {
    MESSAGE_WEIGHT + range.lo.len() + range.hi.len()
}

/// The weight of a point message: about its bytes in a run.
fn weight_of(item: &Item<'_>) -> usize {
    MESSAGE_WEIGHT + item.key.len() + item.value().len()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::format::Update;
    use crate::ids::Msn;

    #[test]
    fn gathered_at_once_batches_are_what_they_are_one_after_the_other() {
        let mut seed = 5u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for round in 0..300 {
            let (mut one_by_one, mut gathering) = (Batch::default(), Gathering::default());
            let mut msn = 0;
            for _ in 0..1 + random(8) {
                let mut batch = Batch::default();
                for _ in 0..random(60) {
                    msn += 1;
                    let key = |number: u64| Key::copied(&[7, number as u8]);
                    let number = random(40);
                    if round % 2 == 1 && random(12) == 0 {
                        let hi = key(number + 1 + random(10));
                        batch.insert_range(RangeDelete { msn: Msn(msn), lo: key(number), hi });
                        continue;
                    }
                    let action = match random(6) {
                        0 => Action::Delete,
                        1 => Action::Insert(Bytes::from(vec![msn as u8; 2000])),
                        2 => Action::Insert(Bytes::from(vec![msn as u8; random(30) as usize])),
                        3 => {
                            Action::Update(Update::patch(random(9) as usize, &[msn as u8; 3], true))
                        }
                        4 => Action::Update(Update::add(8, msn as i64)),
                        _ => Action::Update(Update::trim(random(20) as usize)),
                    };
                    batch.insert(&Item::new(&key(number), Msn(msn), &action));
                }
                gathering.begin(batch.ranges().iter());
                batch.points().iter().for_each(|item| gathering.points.add(item));
                one_by_one.absorb(batch.points().iter(), batch.ranges().iter());
            }
            let gathered = gathering.finish(|_| Ok::<(), ()>(())).unwrap();
            gathered.check_invariants();
            assert!(gathered.ranges().iter().eq(one_by_one.ranges().iter()));
            let messages = |batch: &Batch| {
                let message = |item: Item<'_>| (Key::copied(item.key), item.msn, item.action());
                batch.points().iter().map(message).collect::<Vec<_>>()
            };
            assert_eq!(messages(&gathered), messages(&one_by_one));
            assert_eq!(gathered.weight(), one_by_one.weight());
        }
    }

    #[test]
    fn what_messages_come_to_is_told_before_it_is_made() {
        let key = |number: u16| number.to_be_bytes();
        let of = |action: &Action, msn| {
            let mut list = Sorted::default();
            (0..500).for_each(|number| list.push(Item::new(&key(number), Msn(msn), action)));
            list
        };
        let short = of(&Action::Insert(vec![7].into()), 1);
        let longer = of(&Action::Update(Update::patch(3999, &[8], false)), 2);
        let all = |most: usize| {
            let mut batch = Batch::of_points(short.clone());
            let mut grown = 0;
            let told = batch.absorb_within(longer.iter(), std::iter::empty(), |more| {
                grown += more;
                if grown > most { Err(grown) } else { Ok(()) }
            });
            (told, batch.points().sizes().values)
        };
        let (told, values) = all(500 * 4000);
        assert_eq!((told, values), (Ok(()), 500 * 4000));
        let (told, values) = all(100 * 4000);
        assert!(told.is_err() && values <= 101 * 4000, "{values}");
    }
}
