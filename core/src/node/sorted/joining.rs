//! Adds messages to a list in key order.

use super::*;
use crate::tuning::NEAR;

/// Adds messages to a list in key order. The search for a place starts at the last one, and slots are moved once.
pub struct Joining<'s> {
    pub(super) list: &'s mut Sorted,
    pub(super) at: usize,
}

impl Joining<'_> {
    /// Reserves memory for `count` messages similar to `first`.
    pub fn expecting(self, count: usize, first: &Item<'_>) -> Self {
        let head = Key::head(first.key);
        let is_behind = |last: &Slot| self.list.compare(last, head, first.key).is_lt();
        match self.list.slots.last().is_none_or(is_behind) {
            true => make_room(&mut self.list.slots, count),
            false => self.list.recent.reserve(count),
        }
        self.list.arena.expect(count.saturating_mul(first.in_arena()));
        self
    }

    /// The place of a key; keys must be asked for in ascending order.
    pub fn find(&mut self, key: &[u8]) -> Found {
        let list = &*self.list;
        let head = Key::head(key);
        let recent = match list.recent.last() {
            Some((last, _)) => match list.compare(last, head, key) {
                Ordering::Equal => return Found::Recent(list.recent.len() - 1),
                order => {
                    debug_assert!(order.is_lt(), "keys join in order");
                    list.recent.len()
                }
            },
            None => 0,
        };
        let is_below = |slot: &Slot| list.compare(slot, head, key).is_lt();
        let rest = &list.slots[self.at..];
        let mut below = rest.iter().take(NEAR).take_while(|slot| is_below(slot)).count();
        if below == NEAR {
            let mut wide = 2 * NEAR;
            while rest.get(wide).is_some_and(is_below) {
                wide *= 2;
            }
            below += rest[NEAR..rest.len().min(wide + 1)].partition_point(is_below);
        }
        self.at += below;
        match list.slots.get(self.at) {
            Some(slot) if list.compare(slot, head, key).is_eq() => Found::Slot(self.at),
            _ => Found::Nowhere(recent, self.at),
        }
    }

    /// The message at a place.
    pub fn at(&self, found: Found) -> Option<Item<'_>> {
        self.list.at(found)
    }

    /// Sets the message of the key that was found last.
    pub fn put(&mut self, found: Found, item: &Item<'_>) {
        self.list.set(found, item);
    }

    /// Removes the key that was found last.
    pub fn remove(&mut self, found: Found) {
        self.list.clear(found);
    }

    /// Applies an update to the value of the key that was found last.
    pub fn update(&mut self, found: Found, update: &Item<'_>, scratch: &mut Vec<u8>) {
        if let Some((msn, value)) = self.list.change(found, update, scratch) {
            let item = Item::with(update.key, msn, Kind::Insert, Value::of(&value));
            self.list.set(found, &item);
        }
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.list.arena.expect(0);
        self.list.merge_recent();
        self.list.shed();
    }
}
