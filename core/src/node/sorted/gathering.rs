//! Lists that become one.

use super::*;
use crate::format::Message;

/// Lists of messages, each in the order of keys, that become one: messages of a list are younger than those for the same keys of
/// the lists before it. What is put into memory stays where it is; only slots are sorted.
#[derive(Default)]
pub(crate) struct Gathering {
    list: Sorted,
    /// Where each list begins among the slots.
    starts: Vec<usize>,
}

impl Gathering {
    /// One with room for `count` messages whose keys and short values take `bytes` bytes.
    pub(crate) fn with_capacity(count: usize, bytes: usize) -> Gathering {
        Gathering { list: Sorted::with_capacity(count, bytes), starts: Vec::new() }
    }

    /// Begins the next list.
    pub(crate) fn begin(&mut self) {
        self.starts.push(self.list.slots.len());
    }

    /// Adds the next message of the list.
    pub(crate) fn add(&mut self, item: Item<'_>) {
        let slot = self.list.store(&item);
        self.list.push_slot(slot);
    }

    /// The same with a value that is copied.
    pub(crate) fn add_copy(&mut self, key: &[u8], msn: Msn, kind: Kind, value: &[u8]) {
        with_copy(key, msn, kind, value, |item| self.add(item));
    }

    /// How many messages have been added.
    pub(crate) fn len(&self) -> usize {
        self.list.slots.len()
    }

    /// The key of one of those that have been added.
    pub(crate) fn key(&self, at: usize) -> Option<&[u8]> {
        self.list.slots.get(at).map(|slot| self.list.key_of(slot))
    }

    /// By how much the messages may make leaves longer.
    pub(crate) fn leaf_growth(&self) -> Growth {
        self.list.sizes.leaf_growth
    }

    /// How many bytes keys and short values take.
    pub(crate) fn arena(&self) -> usize {
        self.list.arena()
    }

    /// Removes every key within `[lo, hi)`.
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

    /// All lists as one; `combine` says what becomes of a message and what is left of the older ones for its key, if that is not
    /// the message itself. `grows` is told by how many bytes that is longer than the messages that it is made of, before it is put
    /// into memory.
    pub(crate) fn finish<E>(
        self,
        combine: impl Fn(Item<'_>, Option<Item<'_>>) -> Option<Message>,
        mut grows: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Sorted, E> {
        let Gathering { mut list, starts } = self;
        list.settle();
        let mut slots = std::mem::take(&mut list.slots);
        if starts.len() > 1 {
            // Those for one key stay in the order of their lists.
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
    /// Makes one of all messages for a key, of which there are some, the oldest first.
    fn combined<E>(
        &mut self,
        slots: &[Slot],
        combine: impl Fn(Item<'_>, Option<Item<'_>>) -> Option<Message>,
        grows: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Slot, E> {
        // What the messages so far come to: the one in the last slot, or another.
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

/// The bytes of a key and what it carries.
fn size(item: Item<'_>) -> usize {
    item.key.len() + item.value().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if each of many lists had a little more of a value for each of some keys.
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
        // What came in, and what it has become, once.
        let bytes = 500 * (48 * 12 + 952);
        assert!(list.arena.len() <= bytes, "{} for {bytes}", list.arena.len());
    }

    #[test]
    fn what_messages_come_to_is_bounded() {
        assert!(growing(48, 500, 500 * 470).is_ok());
        assert!(growing(48, 500, 100 * 470).is_err_and(|grown| grown <= 101 * 470));
    }
}
