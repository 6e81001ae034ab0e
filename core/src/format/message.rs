//! Messages: changes on their way to a leaf.
//!
//! Kinds on disk: 1 insert, 2 delete, 3 range delete, 4 update. Reserved: 7 range clone. Only in the log: 16 unbound entry, and 17 to 20 for what binds it.

use bytes::Bytes;

use super::key::Key;
use super::update::Update;
use crate::ids::Msn;

pub(super) const RANGE_DELETE: u8 = 3;
pub(super) const UNBOUND: u8 = 16;

/// What kinds of messages there are to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Gives the key a value.
    Insert = 1,
    /// Removes the key.
    Delete = 2,
    /// Changes its value.
    Update = 4,
}

impl Kind {
    /// The kind that has this number.
    pub fn from_code(code: u8) -> Option<Kind> {
        [Kind::Insert, Kind::Delete, Kind::Update].into_iter().find(|kind| *kind as u8 == code)
    }
}

/// A message to one key, wherever it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef<'m> {
    /// The key.
    pub key: &'m [u8],
    /// When it was injected.
    pub msn: Msn,
    /// What it does.
    pub kind: Kind,
    /// The value or update; empty for a delete.
    pub value: &'m [u8],
}

impl<'m> MessageRef<'m> {
    /// Of a message that is kept with its key.
    pub fn of(key: &'m Key, message: &'m Message) -> MessageRef<'m> {
        let Message { msn, action } = message;
        MessageRef { key, msn: *msn, kind: action.kind(), value: action.value() }
    }
}

/// What a message does to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Gives the key this value.
    Insert(Bytes),
    /// Removes the key.
    Delete,
    /// Changes its value, whatever that is.
    Update(Update),
}

impl Action {
    /// What the action carries besides the key: a value, or an update; empty for a delete.
    pub fn value(&self) -> &[u8] {
        match self {
            Action::Insert(value) => value,
            Action::Delete => &[],
            Action::Update(update) => update.bytes(),
        }
    }

    /// What becomes of a value, or of its absence.
    pub fn apply(&self, value: Option<&Bytes>) -> Option<Bytes> {
        match self {
            Action::Insert(value) => Some(value.clone()),
            Action::Delete => None,
            Action::Update(update) => update.apply(value.map(|value| &**value)),
        }
    }

    /// What becomes of the length of a value, or of its absence.
    pub fn apply_len(&self, len: Option<usize>) -> Option<usize> {
        match self {
            Action::Insert(value) => Some(value.len()),
            Action::Delete => None,
            Action::Update(update) => update.apply_len(len),
        }
    }

    /// What gives a key this value, or removes it.
    pub fn to(value: Option<Bytes>) -> Action {
        value.map_or(Action::Delete, Action::Insert)
    }

    /// The message that a value comes from when the action of message `msn` has been applied to one that
    /// came from `older`: an update leaves a value that of the message that gave it.
    pub fn msn_over(&self, older: Option<Msn>, msn: Msn) -> Msn {
        match self {
            Action::Update(_) => older.unwrap_or(msn),
            Action::Insert(_) | Action::Delete => msn,
        }
    }

    /// The one action that does what `older` does, and then this one.
    pub fn after(self, older: &Action) -> Action {
        match (&self, older) {
            (Action::Insert(_) | Action::Delete, _) => self,
            (Action::Update(update), Action::Update(older)) => Action::Update(update.after(older)),
            (Action::Update(update), Action::Insert(value)) => {
                Action::to(update.apply(Some(value)))
            }
            (Action::Update(update), Action::Delete) => Action::to(update.apply(None)),
        }
    }

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Action::Insert(_) => Kind::Insert,
            Action::Delete => Kind::Delete,
            Action::Update(_) => Kind::Update,
        }
    }
}

/// A message to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// When it was injected.
    pub msn: Msn,
    /// What it does.
    pub action: Action,
}

impl Message {
    /// The one message that does what `older` did to the key, and then this one. Where a value was
    /// given and then updated, it stays that of the message that gave it: a recovery looks for it under
    /// that name, and updates it again.
    pub fn after(self, older: &Message) -> Message {
        let gave = matches!((&self.action, &older.action), (Action::Update(_), Action::Insert(_)));
        let msn = if gave { older.msn } else { self.msn };
        Message { msn, action: self.action.after(&older.action) }
    }

    /// The same, where a range delete has removed the key before.
    pub fn after_range(self) -> Message {
        Message { action: self.action.after(&Action::Delete), ..self }
    }
}

/// A message to every key of `[lo, hi)`: all are removed (BetrFS 0.2 §5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// When it was injected.
    pub msn: Msn,
    /// The first key.
    pub lo: Key,
    /// The first key beyond; greater than `lo`.
    pub hi: Key,
}
