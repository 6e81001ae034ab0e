//! A sorted list of keys with a message for each, in few allocations: the messages of a buffer, or the entries of a
//! leaf.
//!
//! Keys and short values are stored in an arena; long values are shared. A slot of 32 bytes for each key has its
//! address, and slots are sorted. A new key first goes to a short list, which is merged into the slots when it is long
//! enough. So most insertions move few bytes. No key or value has an allocation of its own, except long values.

mod arena;
mod gathering;
mod item;
mod joining;

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;

use crate::disk::class_of;
use crate::format::limits::FILE_BLOCK;
use crate::format::{
    Action, Growth, Key, Kind, Lens, MessageRef, Update, apply_stages, growth_of, is_anew,
};
use crate::ids::Msn;
use crate::tuning::{INLINE_VALUE_MAX, LIST_ROOM_MIN, RECENT_MAX, WASTE_MIN};

use arena::Arena;
pub(super) use gathering::Gathering;
pub use item::Item;
use item::Value;
pub(super) use item::{Items, Sizes};
pub(super) use joining::Joining;

/// Sorted keys, each with a message.
#[derive(Clone, Default)]
pub struct Sorted {
    slots: Vec<Slot>,
    /// Recently added keys in order, each with its place among the slots.
    recent: Vec<(Slot, usize)>,
    arena: Arena,
    large: Vec<Bytes>,
    /// Slots of removed keys.
    gone: usize,
    /// Bytes of the arena that nothing refers to.
    waste: usize,
    sizes: Sizes,
    /// Upper bound of the length of all keys.
    longest: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    /// The first bytes of the key; they decide most comparisons.
    head: u64,
    msn: Msn,
    /// The address of the key in the arena; a short value follows it.
    at: u32,
    key: u16,
    kind: SlotKind,
    /// The length of a short value, or the index of a shared one.
    value: u32,
    /// The bytes of the value that an update may make.
    growth: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotKind {
    Short(Kind),
    Shared(Kind),
    Gone,
}

/// The place of a key; valid until the next change.
#[derive(Clone, Copy)]
pub enum Found {
    /// In the slots.
    Slot(usize),
    /// In the recent list.
    Recent(usize),
    /// Absent: its places in the recent list and in the slots.
    Nowhere(usize, usize),
}

impl Sorted {
    /// A list with room for `count` keys whose keys and short values take `bytes` bytes.
    pub fn with_capacity(count: usize, bytes: usize) -> Sorted {
        let (slots, arena) = (Vec::with_capacity(count), Arena::with_capacity(bytes));
        Sorted { slots, arena, ..Sorted::default() }
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.slots.shrink_to_fit();
        self.arena.shrink();
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.sizes.count == 0
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.sizes.count
    }

    /// The sizes of keys and values.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Panics if keys are not in order, or if the counters are wrong.
    pub fn check_invariants(&self) {
        let mut sizes = Sizes::default();
        let mut before: Option<&[u8]> = None;
        for item in self.iter() {
            assert!(before.is_none_or(|before| before < item.key), "keys in order");
            assert!(item.key.len() <= self.longest, "no key is longer than {}", self.longest);
            sizes.add(Sizes::of_item(&item));
            before = Some(item.key);
        }
        assert_eq!(self.sizes, sizes, "what keys and values take");
        let gone = self.slots.iter().filter(|slot| slot.kind == SlotKind::Gone).count();
        assert_eq!(self.gone, gone, "slots whose key is gone");
    }

    /// Upper bound of the length of all keys; a removed key may have had this length.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Bytes of keys and short values.
    pub fn arena(&self) -> usize {
        self.arena.len().saturating_sub(self.waste)
    }

    /// Memory, in bytes.
    pub fn memory(&self) -> usize {
        let slots = self.slots.capacity() * size_of::<Slot>();
        let recent = self.recent.capacity() * size_of::<(Slot, usize)>();
        let large = self.large.capacity() * size_of::<Bytes>();
        slots + recent + large + self.arena.memory() + self.sizes.shared
    }

    /// Whether the list has `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self.find(key) {
            Found::Slot(at) => self.slots[at].kind != SlotKind::Gone,
            Found::Recent(_) => true,
            Found::Nowhere(..) => false,
        }
    }

    /// The message for `key`.
    pub fn get(&self, key: &[u8]) -> Option<Item<'_>> {
        self.at(self.find(key))
    }

    /// The message at a place.
    pub fn at(&self, found: Found) -> Option<Item<'_>> {
        match found {
            Found::Slot(at) => self.item(&self.slots[at]),
            Found::Recent(at) => self.item(&self.recent[at].0),
            Found::Nowhere(..) => None,
        }
    }

    /// Sets the message of a key, whose place must be given.
    pub fn put(&mut self, found: Found, item: &Item<'_>) {
        self.set(found, item);
        if self.recent.len() >= RECENT_MAX {
            self.merge_recent();
        }
        self.shed();
    }

    /// As [`Sorted::put`], without settling the recent list.
    fn set(&mut self, found: Found, item: &Item<'_>) {
        match found {
            Found::Slot(at) => {
                self.release(self.slots[at]);
                self.gone -= usize::from(self.slots[at].kind == SlotKind::Gone);
            }
            Found::Recent(at) => self.release(self.recent[at].0),
            Found::Nowhere(..) => {}
        }
        let slot = self.store(item);
        match found {
            Found::Slot(at) => self.slots[at] = slot,
            Found::Recent(at) => self.recent[at].0 = slot,
            Found::Nowhere(_, place) if self.recent.is_empty() && place == self.slots.len() => {
                self.push_slot(slot);
            }
            Found::Nowhere(recent, place) => self.recent.insert(recent, (slot, place)),
        }
    }

    /// Copies the list if it wastes much of its arena.
    fn shed(&mut self) {
        if self.waste > WASTE_MIN.max(self.arena.len() / 2) {
            *self = self.within(&[], None);
        }
    }

    /// Starts to add messages in key order.
    pub fn join(&mut self) -> Joining<'_> {
        self.merge_recent();
        Joining { list: self, at: 0 }
    }

    /// Replaces a short value by one of the same length, in place if possible.
    fn overwrite(&mut self, found: Found, value: &[u8]) -> bool {
        let slot = match found {
            Found::Slot(at) => self.slots[at],
            Found::Recent(at) => self.recent[at].0,
            Found::Nowhere(..) => return false,
        };
        let fits = slot.kind == SlotKind::Short(Kind::Insert) && slot.value as usize == value.len();
        if fits {
            self.arena.at_mut(slot.at)[slot.key.into()..][..value.len()].copy_from_slice(value);
        }
        fits
    }

    /// Applies an update to the value at a place; in place if possible. The value keeps its MSN, unless the update
    /// starts a new value. `scratch` is work memory. Returns MSN and value if the value does not fit in place.
    fn change(
        &mut self,
        found: Found,
        update: &Item<'_>,
        scratch: &mut Vec<u8>,
    ) -> Option<(Msn, Bytes)> {
        let old = self.at(found);
        let present = old.is_some();
        let msn = old.filter(|_| !is_anew(update.value())).map_or(update.msn, |old| old.msn);
        scratch.clear();
        scratch.extend_from_slice(old.as_ref().map_or(&[], Item::value));
        let changed = apply_stages(update.value(), scratch, present);
        (changed && !self.overwrite(found, scratch)).then(|| (msn, Bytes::copy_from_slice(scratch)))
    }

    /// Applies an update to the value of its key.
    pub fn update(&mut self, update: &Item<'_>, scratch: &mut Vec<u8>) {
        let found = self.find(update.key);
        if let Some((msn, value)) = self.change(found, update, scratch) {
            self.put(found, &Item::with(update.key, msn, Kind::Insert, Value::of(&value)));
        }
    }

    /// The greatest key.
    pub fn last_key(&self) -> Option<&[u8]> {
        let slots = self.slots.iter().rev().find(|slot| slot.kind != SlotKind::Gone);
        let recent = self.recent.last().map(|(slot, _)| slot);
        slots.into_iter().chain(recent).map(|slot| self.key_of(slot)).max()
    }

    /// Adds a key that is greater than all others.
    pub fn push(&mut self, item: Item<'_>) {
        self.merge_recent();
        let slot = self.store(&item);
        debug_assert!(self.slots.last().is_none_or(|last| self.key_of(last) < item.key));
        self.push_slot(slot);
    }

    fn push_slot(&mut self, slot: Slot) {
        make_room(&mut self.slots, 1);
        self.slots.push(slot);
    }

    /// Adds a key that is greater than all others; a long value is shared.
    pub fn push_value(&mut self, key: &[u8], msn: Msn, kind: Kind, value: &Bytes) {
        self.push(Item::with(key, msn, kind, Value::of(value)));
    }

    /// Adds a key that is greater than all others. The value is copied, so that the buffer it belongs to is not kept.
    pub fn push_copy(&mut self, key: &[u8], msn: Msn, kind: Kind, value: &[u8]) {
        with_copy(key, msn, kind, value, |item| self.push(item));
    }

    /// Removes the key at a place.
    pub fn remove_at(&mut self, found: Found) {
        self.clear(found);
        if self.gone > RECENT_MAX.max(self.slots.len() / 2) {
            self.merge_recent();
        }
    }

    fn clear(&mut self, found: Found) {
        match found {
            Found::Slot(at) if self.slots[at].kind == SlotKind::Gone => {}
            Found::Slot(at) => {
                self.release(self.slots[at]);
                self.slots[at].kind = SlotKind::Gone;
                self.gone += 1;
            }
            Found::Recent(at) => {
                self.release(self.recent[at].0);
                self.recent.remove(at);
            }
            Found::Nowhere(..) => {}
        }
    }

    /// Removes all keys within `[lo, hi)`.
    pub fn remove_range(&mut self, lo: &[u8], hi: Option<&[u8]>) {
        let (range, recent) = (self.slots_within(lo, hi), self.recent_within(lo, hi));
        if range.len() == self.slots.len() && recent.len() == self.recent.len() {
            *self = Sorted::default();
            return;
        }
        for at in recent.clone() {
            self.release(self.recent[at].0);
        }
        for (_, place) in &mut self.recent[recent.end..] {
            *place -= range.len();
        }
        self.recent.drain(recent);
        for at in range.clone() {
            self.gone -= usize::from(self.slots[at].kind == SlotKind::Gone);
            self.release(self.slots[at]);
        }
        // The next change frees the arena's waste, so a range delete takes no time for it.
        self.slots.drain(range);
    }

    /// The first key of the last messages whose updates create values of not much more than `growth` bytes; `None` if
    /// all messages fit.
    pub fn last_of_growth(&mut self, growth: usize) -> Option<Key> {
        if self.sizes.growth <= growth {
            return None;
        }
        self.merge_recent();
        let mut grown = 0;
        let mut last = self.slots.iter().rev().skip_while(|slot| {
            grown += slot.growth as usize;
            grown <= growth
        });
        last.next().map(|slot| Key::copied(self.key_of(slot)))
    }

    /// Moves the keys from `key` on to a new list.
    pub fn split_off(&mut self, key: &[u8]) -> Sorted {
        self.merge_recent();
        let from = self.slots_within(key, None).start;
        if from == 0 {
            return std::mem::take(self);
        }
        let mut part = Sorted::default();
        for at in from..self.slots.len() {
            if let Some(item) = self.item(&self.slots[at]) {
                part.push(item);
            }
            self.release(self.slots[at]);
        }
        self.slots.truncate(from);
        self.shed();
        part
    }

    /// All messages, in key order.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        self.range(&[], None)
    }

    /// The messages within `[lo, hi)`, in key order.
    pub fn range(&self, lo: &[u8], hi: Option<&[u8]>) -> Items<'_> {
        let slots = self.slots_within(lo, hi);
        Items { list: self, slots, recent: &self.recent[self.recent_within(lo, hi)] }
    }

    /// A copy of the list within `[lo, hi)`.
    pub fn within(&self, lo: &[u8], hi: Option<&[u8]>) -> Sorted {
        let mut part = Sorted::default();
        let range = self.range(lo, hi);
        if lo.is_empty() && hi.is_none() {
            part = Sorted::with_capacity(self.len(), self.arena());
        } else {
            make_room(&mut part.slots, range.size_hint().0);
        }
        range.for_each(|item| part.push(item));
        part
    }

    /// A copy of the list with its keys as they are above a lens.
    pub fn seen_through(&self, lens: &Lens) -> Sorted {
        let mut seen = Sorted::with_capacity(self.len(), self.arena());
        self.iter().for_each(|item| seen.push(Item { key: &lens.up(item.key), ..item }));
        seen
    }

    /// Copies of the keys and values within `[lo, hi)`, in one allocation. The list must have inserts only.
    pub fn export(&self, lo: &[u8], hi: Option<&[u8]>) -> Vec<(Key, Bytes)> {
        self.copies(lo, hi, |key, _, value| (key, value))
    }

    /// Copies of all messages, in one allocation.
    pub fn actions(&self) -> Vec<(Key, Action)> {
        self.copies(&[], None, |key, kind, value| match kind {
            Kind::Insert => (key, Action::Insert(value)),
            Kind::Delete => (key, Action::Delete),
            Kind::Update => (key, Action::Update(Update::trusted(value))),
        })
    }

    fn copies<T>(
        &self,
        lo: &[u8],
        hi: Option<&[u8]>,
        of: impl Fn(Key, Kind, Bytes) -> T,
    ) -> Vec<T> {
        let mut arena = Vec::new();
        let mut places = Vec::new();
        for item in self.range(lo, hi) {
            let start = arena.len();
            arena.extend_from_slice(item.key);
            let shared = match item.value {
                Value::Short(value) => {
                    arena.extend_from_slice(value);
                    None
                }
                Value::Shared(value) => Some(value.clone()),
            };
            places.push((start, start + item.key.len(), arena.len(), item.kind, shared));
        }
        let arena = Bytes::from(arena);
        let copy =
            |(start, key_end, end, kind, shared): (usize, usize, usize, Kind, Option<Bytes>)| {
                let value = shared.unwrap_or_else(|| arena.slice(key_end..end));
                of(Key::new(arena.slice(start..key_end)), kind, value)
            };
        places.into_iter().map(copy).collect()
    }

    /// The greatest key below the place of an absent key, and whether a greater key exists.
    pub fn neighbours(&self, found: Found) -> (Option<&[u8]>, bool) {
        let Found::Nowhere(recent, at) = found else { return (None, false) };
        let before = [
            at.checked_sub(1).map(|at| &self.slots[at]),
            recent.checked_sub(1).map(|at| &self.recent[at].0),
        ];
        let before = before.into_iter().flatten().map(|slot| self.key_of(slot)).max();
        (before, at < self.slots.len() || recent < self.recent.len())
    }

    fn slots_within(&self, lo: &[u8], hi: Option<&[u8]>) -> Range<usize> {
        let below = |key: &[u8]| {
            let head = Key::head(key);
            self.slots.partition_point(|slot| self.compare(slot, head, key).is_lt())
        };
        let first = if lo.is_empty() { 0 } else { below(lo) };
        first..hi.map_or(self.slots.len(), below).max(first)
    }

    /// As `slots_within`, for the recent list.
    fn recent_within(&self, lo: &[u8], hi: Option<&[u8]>) -> Range<usize> {
        let below = |key: &[u8]| {
            let head = Key::head(key);
            self.recent.partition_point(|(slot, _)| self.compare(slot, head, key).is_lt())
        };
        let first = below(lo);
        first..hi.map_or(self.recent.len(), below).max(first)
    }

    /// The place of `key`.
    pub fn find(&self, key: &[u8]) -> Found {
        let head = Key::head(key);
        let place = match self.slots.last() {
            // Keys often come in order.
            Some(last) if self.compare(last, head, key).is_lt() => self.slots.len(),
            _ => match self.slots.binary_search_by(|slot| self.compare(slot, head, key)) {
                Ok(at) => return Found::Slot(at),
                Err(place) => place,
            },
        };
        match self.recent.binary_search_by(|(slot, _)| self.compare(slot, head, key)) {
            Ok(at) => Found::Recent(at),
            Err(at) => Found::Nowhere(at, place),
        }
    }

    fn compare(&self, slot: &Slot, head: u64, key: &[u8]) -> Ordering {
        slot.head.cmp(&head).then_with(|| self.key_of(slot).cmp(key))
    }

    fn key_of(&self, slot: &Slot) -> &[u8] {
        &self.arena.at(slot.at)[..usize::from(slot.key)]
    }

    fn item(&self, slot: &Slot) -> Option<Item<'_>> {
        let (key, rest) = self.arena.at(slot.at).split_at(slot.key.into());
        let (kind, value) = match slot.kind {
            SlotKind::Short(kind) => (kind, Value::Short(&rest[..slot.value as usize])),
            SlotKind::Shared(kind) => (kind, Value::Shared(&self.large[slot.value as usize])),
            SlotKind::Gone => return None,
        };
        Some(Item { key, msn: slot.msn, kind, value, growth: slot.growth })
    }

    /// Stores a key and its message in memory.
    fn store(&mut self, item: &Item<'_>) -> Slot {
        self.longest = self.longest.max(item.key.len());
        let short = if let Value::Short(value) = item.value { value } else { &[] };
        let at = self.arena.push(item.key, short);
        let sizes = Sizes::of_item(item);
        self.sizes.add(sizes);
        let (kind, value) = match item.value {
            Value::Short(value) => (SlotKind::Short(item.kind), value.len()),
            Value::Shared(value) => {
                self.large.push(value.clone());
                (SlotKind::Shared(item.kind), self.large.len() - 1)
            }
        };
        Slot {
            head: Key::head(item.key),
            msn: item.msn,
            at,
            key: item.key.len() as u16,
            kind,
            value: value as u32,
            growth: sizes.growth as u32,
        }
    }

    /// Subtracts a slot from the counters before it is replaced or removed.
    fn release(&mut self, slot: Slot) {
        let key = usize::from(slot.key);
        let (kind, value, is_shared) = match slot.kind {
            SlotKind::Short(kind) => (kind, slot.value as usize, false),
            SlotKind::Shared(kind) => {
                (kind, std::mem::take(&mut self.large[slot.value as usize]).len(), true)
            }
            // It was subtracted when its key was removed.
            SlotKind::Gone => return,
        };
        self.sizes.take_off(Sizes::of(kind, key, value, is_shared, slot.growth as usize));
        self.waste += key + if is_shared { size_of::<Bytes>() } else { value };
    }

    /// Merges the recent keys into the slots, and drops slots of removed keys.
    pub fn merge_recent(&mut self) {
        let mut end = self.slots.len();
        if let Some((first, _)) = self.recent.first() {
            make_room(&mut self.slots, self.recent.len());
            self.slots.resize(end + self.recent.len(), *first);
            for (more, (slot, place)) in self.recent.drain(..).enumerate().rev() {
                self.slots.copy_within(place..end, place + more + 1);
                self.slots[place + more] = slot;
                end = place;
            }
        }
        self.recent.shrink_to(RECENT_MAX);
        if self.gone > 0 {
            self.slots.retain(|slot| slot.kind != SlotKind::Gone);
            self.gone = 0;
        }
    }
}

/// Passes a message with a copied value to `take`.
fn with_copy(key: &[u8], msn: Msn, kind: Kind, value: &[u8], take: impl FnOnce(Item<'_>)) {
    if value.len() > INLINE_VALUE_MAX {
        let value = Bytes::copy_from_slice(value);
        return take(Item::with(key, msn, kind, Value::Shared(&value)));
    }
    take(Item::with(key, msn, kind, Value::Short(value)));
}

/// Reserves room for `more` elements. A full list grows by a quarter, since reserved capacity counts as memory.
fn make_room<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        let wanted = list.len() + more.max(list.len() / 4);
        let bytes = class_of((wanted * size_of::<T>()).max(LIST_ROOM_MIN));
        list.reserve_exact(bytes / size_of::<T>() - list.len());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::mutation::assert_caught;

    #[test]
    fn what_does_not_agree_is_noticed() {
        let mut sound = Sorted::default();
        for key in [b"a", b"c", b"e"] {
            let action = Action::Insert(Bytes::from_static(b"value"));
            sound.put(sound.find(key), &Item::new(key, Msn(1), &action));
        }
        sound.check_invariants();
        assert_caught(
            || sound.clone(),
            Sorted::check_invariants,
            &[
                ("the count", |list| list.sizes.count += 1),
                ("the bytes of values", |list| list.sizes.values -= 1),
                ("the growth of leaves", |list| list.sizes.leaf_growth.bytes += 1),
                ("slots that are gone", |list| list.gone += 1),
                ("the longest key", |list| list.longest = 0),
            ],
        );
    }

    /// Checks that the list and its counters equal a map.
    fn same(list: &Sorted, map: &BTreeMap<Vec<u8>, Bytes>, random: &mut dyn FnMut(u64) -> u64) {
        list.check_invariants();
        assert_eq!(list.len(), map.len());
        let found = list.iter().map(|item| (item.key.to_vec(), item.bytes()));
        assert!(found.eq(map.iter().map(|(key, value)| (key.clone(), value.clone()))));
        let [lo, hi] = [0; 2].map(|_| vec![random(256) as u8, random(256) as u8]);
        let part = list.within(&lo, Some(&hi));
        let expected: Vec<_> = map.iter().filter(|(key, _)| **key >= lo && **key < hi).collect();
        part.check_invariants();
        assert_eq!(part.len(), expected.len());
        for (item, (key, value)) in part.iter().zip(&expected) {
            assert_eq!((item.key, item.bytes()), (key.as_slice(), (*value).clone()));
        }
        let exported = list.export(&lo, Some(&hi));
        assert!(
            exported
                .iter()
                .map(|(key, value)| (key.to_vec(), value))
                .eq(expected.iter().map(|(key, value)| ((*key).clone(), *value)))
        );
        let before = map.range(..lo.clone()).next_back().map(|(key, _)| key.as_slice());
        if !map.contains_key(&lo) && list.gone == 0 {
            let expected = (before, map.range(lo.clone()..).next().is_some());
            assert_eq!(list.neighbours(list.find(&lo)), expected);
        }
    }

    #[test]
    fn agrees_with_a_map() {
        let mut seed = 11u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for round in 0..40 {
            let mut list = Sorted::default();
            let mut map: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
            let wide = 10 + random(1500);
            for step in 0..3000u64 {
                let number = if round % 4 == 0 { step % wide } else { random(wide) };
                let mut key = (number as u16).to_be_bytes().to_vec();
                key.extend(std::iter::repeat_n(7, number as usize % 11));
                match random(20) {
                    0..=13 => {
                        let len = [0, 5, 100, 1024, 1025, 4096][random(6) as usize];
                        let value = Bytes::from(vec![step as u8; len]);
                        let action = Action::Insert(value.clone());
                        list.put(list.find(&key), &Item::new(&key, Msn(step), &action));
                        map.insert(key, value);
                    }
                    14..=18 => {
                        list.remove_at(list.find(&key));
                        map.remove(&key);
                    }
                    _ => {
                        let mut hi = key.clone();
                        hi[1] = hi[1].saturating_add(random(20) as u8);
                        list.remove_range(&key, Some(&hi));
                        map.retain(|other, _| *other < key || *other >= hi);
                    }
                }
                let number = random(wide);
                let mut key = (number as u16).to_be_bytes().to_vec();
                key.extend(std::iter::repeat_n(7, number as usize % 11));
                assert_eq!(list.get(&key).map(|item| item.bytes()), map.get(&key).cloned());
                if step % 150 == 149 {
                    same(&list, &map, &mut random);
                }
            }
            same(&list, &map, &mut random);
        }
    }
}
