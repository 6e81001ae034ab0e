//! Joins several sorted lists into one.

use super::*;
use crate::format::Message;

/// Several lists of messages, each in key order, that are joined into one. Messages of a list are younger than those of
/// the lists before it. Keys and values are stored once and stay in place; only slots are sorted.
#[derive(Default)]
pub(crate) struct Gathering {
    list: Sorted,
    /// The index of each list's first slot.
    starts: Vec<usize>,
}

impl Gathering {
    /// A gathering with room for `count` messages whose keys and short values take `bytes` bytes.
    pub(crate) fn with_capacity(count: usize, bytes: usize) -> Gathering {
        Gathering { list: Sorted::with_capacity(count, bytes), starts: Vec::new() }
    }

    /// Starts the next list.
    pub(crate) fn begin(&mut self) {
        self.starts.push(self.list.slots.len());
    }

    /// Adds a message to the current list, in key order.
    pub(crate) fn add(&mut self, item: Item<'_>) {
        let slot = self.list.store(&item);
        self.list.push_slot(slot);
    }

    /// As [`Gathering::add`], with a copied value.
    pub(crate) fn add_copy(&mut self, key: &[u8], msn: Msn, kind: Kind, value: &[u8]) {
        with_copy(key, msn, kind, value, |item| self.add(item));
    }

    /// Number of messages added.
    pub(crate) fn len(&self) -> usize {
        self.list.slots.len()
    }

    /// The key of an added message.
    pub(crate) fn key(&self, at: usize) -> Option<&[u8]> {
        self.list.slots.get(at).map(|slot| self.list.key_of(slot))
    }

    /// How much the messages may make leaves grow.
    pub(crate) fn leaf_growth(&self) -> Growth {
        self.list.sizes.leaf_growth
    }

    /// Bytes of keys and short values.
    pub(crate) fn arena(&self) -> usize {
        self.list.arena()
    }

    /// Removes all keys within `[lo, hi)`.
    pub(crate) fn remove_range(&mut self, lo: &[u8], hi: &[u8]) {
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

    /// Joins all lists. `combine` returns the result of a message and the combined older ones for its key; `None` if
    /// the message stays as it is. Before a combined message is stored, `grows` gets the number of bytes by which it is
    /// longer than its sources.
    pub(crate) fn finish<E>(
        self,
        combine: impl Fn(Item<'_>, Option<Item<'_>>) -> Option<Message>,
        mut grows: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Sorted, E> {
        let Gathering { mut list, starts } = self;
        list.merge_recent();
        let mut slots = std::mem::take(&mut list.slots);
        if starts.len() > 1 {
            // A stable sort keeps messages for one key in the order of their lists.
            slots.sort_by(|a, b| list.compare(a, b.head, list.key_of(b)));
        }
        let (mut kept, mut next) = (0, 0);
        while let Some(first) = slots.get(next) {
            let is_same = |slot: &&Slot| list.compare(slot, first.head, list.key_of(first)).is_eq();
            let count = slots[next..].iter().take_while(is_same).count();
            slots[kept] = list.combined(&slots[next..next + count], &combine, &mut grows)?;
            (kept, next) = (kept + 1, next + count);
        }
        slots.truncate(kept);
        list.slots = slots;
        list.shed();
        Ok(list)
    }
}

impl Sorted {
    /// Combines all messages for a key, at least one, the oldest first.
    fn combined<E>(
        &mut self,
        slots: &[Slot],
        combine: impl Fn(Item<'_>, Option<Item<'_>>) -> Option<Message>,
        grows: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Slot, E> {
        // The result so far: the message in the last slot, or a combined one.
        let (mut last, mut made): (Option<&Slot>, Option<Message>) = (None, None);
        for slot in slots {
            let item = self.item(slot).expect("those that are gone have left");
            let older = match &made {
                Some(Message { msn, action }) => Some(Item::new(item.key, *msn, action)),
                None => last.and_then(|last| self.item(last)),
            };
            made = combine(item, older);
            last = Some(slot);
        }
        let (last, older) = slots.split_last().expect("there is one");
        if let Some(Message { msn, action }) = made {
            let key = self.key_of(last).to_vec();
            let item = Item::new(&key, msn, &action);
            let before: usize = slots.iter().filter_map(|slot| self.item(slot)).map(size).sum();
            grows(size(item).saturating_sub(before))?;
            slots.iter().for_each(|slot| self.release(*slot));
            return Ok(self.store(&item));
        }
        older.iter().for_each(|slot| self.release(*slot));
        Ok(*last)
    }
}

/// The bytes of a key and its value or update.
fn size(item: Item<'_>) -> usize {
    item.key.len() + item.value().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins many lists, each of which makes the values of some keys a little longer.
    fn growing(lists: usize, keys: u16, most: usize) -> Result<Sorted, usize> {
        let mut gathering = Gathering::default();
        for list in 0..lists {
            gathering.begin();
            for key in 0..keys {
                gathering.add_copy(&key.to_be_bytes(), Msn(list as u64), Kind::Insert, &[7; 10]);
            }
        }
        let longer = |item: Item<'_>, older: Option<Item<'_>>| {
            let value = [older?.value(), &[8; 10], item.value()].concat();
            Some(Message { msn: item.msn, action: Action::Insert(value.into()) })
        };
        let mut grown = 0;
        gathering.finish(longer, |more| {
            grown += more;
            if grown > most { Err(grown) } else { Ok(()) }
        })
    }

    #[test]
    fn what_many_lists_say_of_a_key_takes_no_more_memory_than_what_it_comes_to() {
        let list = growing(48, 500, usize::MAX).unwrap();
        list.check_invariants();
        assert_eq!(list.len(), 500);
        assert!(list.iter().all(|item| item.value().len() == 950));
        // The bytes of the messages added, and of each result once.
        let bytes = 500 * (48 * 12 + 952);
        assert!(list.arena.len() <= bytes, "{} for {bytes}", list.arena.len());
    }

    #[test]
    fn what_messages_come_to_is_bounded() {
        assert!(growing(48, 500, 500 * 470).is_ok());
        assert!(growing(48, 500, 100 * 470).is_err_and(|grown| grown <= 101 * 470));
    }
}
