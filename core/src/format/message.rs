//! Messages: changes on their way to a leaf.
//!
//! Kinds on disk: 1 insert, 2 delete, 3 range delete, 4 update. Reserved: 7 range clone. Only in the log: 16 unbound entry, and 17 to 20 for what binds it.

use bytes::Bytes;

use super::key::Key;
use super::update::Update;
use crate::ids::Msn;

pub(super) const INSERT: u8 = 1;
pub(super) const DELETE: u8 = 2;
pub(super) const RANGE_DELETE: u8 = 3;
pub(super) const UPDATE: u8 = 4;
pub(super) const UNBOUND: u8 = 16;

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

    pub(super) fn kind(&self) -> u8 {
        match self {
            Action::Insert(_) => INSERT,
            Action::Delete => DELETE,
            Action::Update(_) => UPDATE,
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
