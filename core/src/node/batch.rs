//! A batch of messages in memory: the open run of an internal node, a buffer on its way down, the
//! overlay of a query.
//!
//! Invariants: at most one point message a key; a point message is younger than any range delete of
//! the batch that covers its key. Pac-Man follows: a range delete that joins devours the older point
//! messages that it covers (BetrFS 0.2 §5.3).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use super::ranges::RangeSet;
use crate::format::{Action, Key, Message, RangeDelete};
use crate::ids::Msn;

/// What a message weighs besides key and value.
const MESSAGE_WEIGHT: usize = 24;

/// Messages, sorted by key.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    points: BTreeMap<Key, Message>,
    ranges: RangeSet,
}

impl Batch {
    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.ranges.is_empty()
    }

    /// The point messages, in key order.
    pub fn points(&self) -> &BTreeMap<Key, Message> {
        &self.points
    }

    /// The range messages.
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Adds a point message that is younger than all for its key, and combines with them; returns the
    /// change in weight.
    pub fn insert(&mut self, key: Key, message: Message) -> isize {
        match self.points.entry(key) {
            Entry::Vacant(slot) => {
                let covered = self.ranges.covering(slot.key()).is_some();
                let message = if covered { message.after_range() } else { message };
                let weight = weight_of(slot.key(), &message) as isize;
                slot.insert(message);
                weight
            }
            Entry::Occupied(mut slot) => {
                let before = weight_of(slot.key(), slot.get()) as isize;
                let message = message.after(slot.get());
                let weight = weight_of(slot.key(), &message) as isize;
                slot.insert(message);
                weight - before
            }
        }
    }

    /// Adds a range delete that is younger than all messages in its range.
    pub fn insert_range(&mut self, range: RangeDelete) {
        let covered: Vec<Key> = self.keys_within(&range.lo, Some(&range.hi));
        for key in covered {
            self.points.remove(&key);
        }
        self.ranges.insert(range);
    }

    /// Adds a run that is younger than all that is here: first its ranges, then its points.
    pub fn absorb(
        &mut self,
        points: impl Iterator<Item = (Key, Message)>,
        ranges: impl Iterator<Item = RangeDelete>,
    ) {
        ranges.for_each(|range| self.insert_range(range));
        points.for_each(|(key, message)| {
            self.insert(key, message);
        });
    }

    /// Takes everything within `[lo, hi)` out.
    pub fn take(&mut self, lo: &Key, hi: Option<&Key>) -> Batch {
        let hi_bytes = hi.map(|hi| &**hi);
        let mut points = self.points.split_off(lo);
        if let Some(hi) = hi {
            self.points.append(&mut points.split_off(hi));
        }
        let mut ranges = RangeSet::default();
        self.ranges.clip(lo, hi_bytes).into_iter().for_each(|share| ranges.insert(share));
        self.ranges.cut(lo, hi_bytes);
        Batch { points, ranges }
    }

    /// Copies of the messages within `[lo, hi)`.
    pub fn copy_within(
        &self,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> (Vec<(Key, Message)>, Vec<RangeDelete>) {
        let points = self.points_within(lo, hi).map(|(key, m)| (key.clone(), m.clone())).collect();
        (points, self.ranges.clip(lo, hi))
    }

    /// The point messages within `[lo, hi)`.
    pub fn points_within(
        &self,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> impl Iterator<Item = (&Key, &Message)> {
        let hi = hi.map_or(Bound::Unbounded, Bound::Excluded);
        let empty = matches!(hi, Bound::Excluded(hi) if *hi <= *lo);
        let range = (!empty).then(|| self.points.range::<[u8], _>((Bound::Included(lo), hi)));
        range.into_iter().flatten()
    }

    fn keys_within(&self, lo: &[u8], hi: Option<&[u8]>) -> Vec<Key> {
        self.points_within(lo, hi).map(|(key, _)| key.clone()).collect()
    }

    /// Where the batch is to be cut so that what comes before takes about `bytes` bytes in a run: a key
    /// behind that of the first message. Nothing if there is no need, or only one key.
    pub fn end_of_piece(&self, bytes: usize) -> Option<Key> {
        let points =
            self.points.iter().map(|(key, message)| (key.clone(), weight_of(key, message)));
        let ranges = self.ranges.iter().map(|range| (range.lo.clone(), range_weight(&range)));
        let mut items: Vec<(Key, usize)> = points.chain(ranges).collect();
        items.sort_unstable();
        let first = items.first()?.0.clone();
        let mut taken = 0;
        let mut items = items.into_iter();
        items
            .find(|(key, weight)| {
                let full = taken + weight > bytes && *key != first;
                taken += weight;
                full
            })
            .map(|(key, _)| key)
    }

    /// What the batch says about `key`; nothing if it is silent.
    pub fn get(&self, key: &[u8]) -> Option<&Action> {
        match self.points.get(key) {
            Some(message) => Some(&message.action),
            None => self.ranges.covering(key).map(|_| &Action::Delete),
        }
    }

    /// The weight of all messages, in bytes.
    pub fn weight(&self) -> usize {
        let points: usize = self.points.iter().map(|(key, m)| weight_of(key, m)).sum();
        points + self.ranges.iter().map(|range| range_weight(&range)).sum::<usize>()
    }

    /// The youngest MSN of all messages.
    pub fn greatest(&self) -> Option<Msn> {
        let points = self.points.values().map(|message| message.msn);
        points.chain(self.ranges.iter().map(|range| range.msn)).max()
    }
}

/// What a range message weighs: about its bytes in a run.
pub(super) fn range_weight(range: &RangeDelete) -> usize {
    MESSAGE_WEIGHT + range.lo.len() + range.hi.len()
}

/// What a point message weighs: about its bytes in a run.
pub(super) fn weight_of(key: &[u8], message: &Message) -> usize {
    MESSAGE_WEIGHT + key.len() + message.action.value().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn pieces_are_few_and_none_is_empty() {
        let key = |number: u32| Key::new(number.to_be_bytes().to_vec());
        for (points, ranges, limit) in [(1000, 0, 40 * 4096), (300, 300, 9000), (0, 900, 4096)] {
            let mut batch = Batch::default();
            for number in 0..ranges {
                let (lo, hi) = (key(10 * number), key(10 * number + 7));
                batch.insert_range(RangeDelete { msn: Msn(u64::from(number) + 1), lo, hi });
            }
            for number in 0..points {
                let action = Action::Insert(Bytes::from(vec![1; 4096]));
                batch.insert(key(10 * number + 3), Message { msn: Msn(5000), action });
            }
            let (whole, mut pieces) = (batch.weight(), 0);
            while !batch.is_empty() {
                let end = batch.end_of_piece(limit);
                let piece = batch.take(&Key::default(), end.as_ref());
                assert!(!piece.is_empty());
                assert!(piece.weight() <= limit + 64, "{} bytes", piece.weight());
                pieces += 1;
            }
            assert!(pieces <= 2 * whole / limit + 2, "{pieces} pieces of {whole} bytes");
        }
    }
}
