//! A key with its message, and the sizes of keys and messages.

use super::*;
use crate::tuning::INLINE_VALUE_MAX;

/// A key and its message.
#[derive(Clone, Copy)]
pub struct Item<'s> {
    /// The key.
    pub key: &'s [u8],
    /// The message's MSN.
    pub msn: Msn,
    /// The kind of the message.
    pub kind: Kind,
    pub(super) value: Value<'s>,
    /// The bytes of the value that an update may create.
    pub(super) growth: u32,
}

#[derive(Clone, Copy)]
pub(super) enum Value<'s> {
    Short(&'s [u8]),
    Shared(&'s Bytes),
}

impl Value<'_> {
    pub(super) fn of(value: &Bytes) -> Value<'_> {
        if value.len() > INLINE_VALUE_MAX { Value::Shared(value) } else { Value::Short(value) }
    }
}

impl<'s> Item<'s> {
    /// A message for `key`.
    pub fn new(key: &'s [u8], msn: Msn, action: &'s Action) -> Item<'s> {
        let (kind, value) = match action {
            Action::Insert(value) => (Kind::Insert, Value::of(value)),
            Action::Delete => (Kind::Delete, Value::Short(&[])),
            Action::Update(update) => (Kind::Update, Value::of(update.bytes())),
        };
        Item::with(key, msn, kind, value)
    }

    /// The message with its MSN clamped to these limits.
    pub fn numbered_within(self, least: Msn, greatest: Msn) -> Item<'s> {
        Item { msn: self.msn.clamp(least, greatest), ..self }
    }

    pub(super) fn with(key: &'s [u8], msn: Msn, kind: Kind, value: Value<'s>) -> Item<'s> {
        let growth = match (kind, value) {
            (Kind::Update, Value::Short(update)) => growth_of(update) as u32,
            (Kind::Update, Value::Shared(update)) => growth_of(update) as u32,
            (Kind::Insert | Kind::Delete, _) => 0,
        };
        Item { key, msn, kind, value, growth }
    }

    /// The value or update; empty for a delete.
    pub fn value(&self) -> &'s [u8] {
        match self.value {
            Value::Short(value) => value,
            Value::Shared(value) => value,
        }
    }

    /// The value or update as owned bytes.
    pub fn bytes(&self) -> Bytes {
        match self.value {
            Value::Short(value) => Bytes::copy_from_slice(value),
            Value::Shared(value) => value.clone(),
        }
    }

    /// The bytes of the item in an arena.
    pub(super) fn in_arena(&self) -> usize {
        self.key.len() + if let Value::Short(value) = self.value { value.len() } else { 0 }
    }

    /// The action, as owned data.
    pub fn action(&self) -> Action {
        match self.kind {
            Kind::Insert => Action::Insert(self.bytes()),
            Kind::Delete => Action::Delete,
            Kind::Update => Action::Update(Update::trusted(self.bytes())),
        }
    }

    /// The bytes of the value that an update may create.
    pub fn growth(&self) -> usize {
        self.growth as usize
    }

    /// Whether the message can only make a leaf shorter.
    pub fn frees(&self) -> bool {
        match self.kind {
            Kind::Insert => false,
            Kind::Delete => true,
            Kind::Update => Update::trusted(self.bytes()).only_trims(),
        }
    }

    /// How much the message may make a leaf grow.
    pub fn leaf_growth(&self) -> Growth {
        Growth::of(self.kind, self.key.len(), self.value().len(), self.growth())
    }

    /// The message as it is encoded.
    pub fn message(&self) -> MessageRef<'s> {
        MessageRef { key: self.key, msn: self.msn, kind: self.kind, value: self.value() }
    }
}

/// An iterator over messages, in key order.
pub struct Items<'s> {
    pub(super) list: &'s Sorted,
    pub(super) slots: Range<usize>,
    pub(super) recent: &'s [(Slot, usize)],
}

impl<'s> Iterator for Items<'s> {
    type Item = Item<'s>;

    fn next(&mut self) -> Option<Item<'s>> {
        loop {
            let slot = match self.recent {
                [(slot, place), rest @ ..] if *place <= self.slots.start => {
                    self.recent = rest;
                    slot
                }
                _ => &self.list.slots[self.slots.next()?],
            };
            if let Some(item) = self.list.item(slot) {
                return Some(item);
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let all = self.slots.len() + self.recent.len();
        (all.saturating_sub(self.list.gone), Some(all))
    }
}

/// Total sizes of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Number of keys.
    pub count: usize,
    /// The bytes of all keys.
    pub keys: usize,
    /// The bytes of all values and updates.
    pub values: usize,
    /// Number of values of the length of a file block.
    pub blocks: usize,
    /// The bytes of values that are shared.
    pub shared: usize,
    /// The bytes of the values that updates may create, if there is no value or a short one.
    pub growth: usize,
    /// How much all messages may make leaves grow.
    pub leaf_growth: Growth,
}

impl Sizes {
    pub(super) fn of(
        kind: Kind,
        key: usize,
        value: usize,
        is_shared: bool,
        growth: usize,
    ) -> Sizes {
        Sizes {
            count: 1,
            keys: key,
            values: value,
            blocks: usize::from(value == FILE_BLOCK),
            shared: if is_shared { value } else { 0 },
            growth,
            leaf_growth: Growth::of(kind, key, value, growth),
        }
    }

    pub(super) fn of_item(item: &Item<'_>) -> Sizes {
        let is_shared = matches!(item.value, Value::Shared(_));
        Sizes::of(item.kind, item.key.len(), item.value().len(), is_shared, item.growth())
    }

    pub(super) fn add(&mut self, more: Sizes) {
        self.count += more.count;
        self.keys += more.keys;
        self.values += more.values;
        self.blocks += more.blocks;
        self.shared += more.shared;
        self.growth += more.growth;
        self.leaf_growth += more.leaf_growth;
    }

    pub(super) fn take_off(&mut self, less: Sizes) {
        self.count -= less.count;
        self.keys -= less.keys;
        self.values -= less.values;
        self.blocks -= less.blocks;
        self.shared -= less.shared;
        self.growth -= less.growth;
        self.leaf_growth -= less.leaf_growth;
    }
}
