//! Lists that become one.

use super::*;
use crate::format::Message;

/// Lists of messages, each in the order of keys, that become one: messages of a list are younger than those for the same keys of
/// the lists before it. What is put into memory stays where it is; only slots are sorted.
#[derive(Default)]
pub struct Gathering {
    list: Sorted,
    /// Where each list begins among the slots.
    starts: Vec<usize>,
}

impl Gathering {
    /// One with room for `count` messages whose keys and short values take `bytes` bytes.
    pub fn with_capacity(count: usize, bytes: usize) -> Gathering {
        Gathering { list: Sorted::with_capacity(count, bytes), starts: Vec::new() }
    }

    /// Begins the next list.
    pub fn begin(&mut self) {
        self.starts.push(self.list.slots.len());
    }

    /// Adds the next message of the list.
    pub fn add(&mut self, item: Item<'_>) {
        let slot = self.list.store(&item);
        self.list.push_slot(slot);
    }

    /// The same with a value that is copied.
    pub fn add_copy(&mut self, key: &[u8], msn: Msn, kind: Kind, value: &[u8]) {
        with_copy(key, msn, kind, value, |item| self.add(item));
    }

    /// How many messages have been added.
    pub fn len(&self) -> usize {
        self.list.slots.len()
    }

    /// The key of one of those that have been added.
    pub fn key(&self, at: usize) -> Option<&[u8]> {
        self.list.slots.get(at).map(|slot| self.list.key_of(slot))
    }

    /// The bytes of the values that updates may make.
    pub fn growth(&self) -> usize {
        self.list.sizes.growth
    }

    /// How many bytes keys and short values take.
    pub fn arena(&self) -> usize {
        self.list.arena()
    }

    /// Removes every key within `[lo, hi)`.
    pub fn remove_range(&mut self, lo: &[u8], hi: &[u8]) {
        let ends = self.starts.iter().skip(1).copied().chain([self.list.slots.len()]);
        let lists: Vec<Range<usize>> = self.starts.iter().zip(ends).map(|(s, e)| *s..e).collect();
        for range in lists {
            let slots = &self.list.slots[range.clone()];
            let below = |end: &[u8]| slots.partition_point(|slot| self.list.key_of(slot) < end);
            for at in range.start + below(lo)..range.start + below(hi) {
                self.list.clear(Found::Slot(at));
            }
        }
    }

    /// All lists as one; `combine` says what becomes of a message and what is left of the one before it for its key, if that
    /// is not the message itself.
    pub fn finish(self, combine: impl Fn(Item<'_>, Option<Item<'_>>) -> Option<Message>) -> Sorted {
        let Gathering { mut list, starts } = self;
        list.settle();
        let mut slots = std::mem::take(&mut list.slots);
        if starts.len() > 1 {
            // Those for one key stay in the order of their lists.
            slots.sort_by(|a, b| list.compare(a, b.head, list.key_of(b)));
        }
        let mut kept = 0usize;
        for at in 0..slots.len() {
            let slot = slots[at];
            let is_same =
                |last: &usize| list.compare(&slots[*last], slot.head, list.key_of(&slot)).is_eq();
            let older = kept.checked_sub(1).filter(is_same);
            let item = list.item(&slot).expect("those that are gone have left");
            let message = combine(item, older.and_then(|older| list.item(&slots[older])));
            if let Some(older) = older {
                list.release(slots[older]);
                kept = older;
            }
            slots[kept] = match message {
                None => slot,
                Some(Message { msn, action }) => {
                    let key = list.key_of(&slot).to_vec();
                    list.release(slot);
                    list.store(&Item::new(&key, msn, &action))
                }
            };
            kept += 1;
        }
        slots.truncate(kept);
        list.slots = slots;
        list.shed();
        list
    }
}
