//! Messages: changes on their way to a leaf.
//!
//! Kinds on disk: 1 insert, 2 delete, 3 range delete, 4 update. Reserved: 7 range clone. Only in the log: 16 unbound entry, and 17 to 20 for what binds it.
//!
//! What a new kind needs, in this order; matches over [`Kind`], [`Action`] and
//! [`RecordMessage`](super::RecordMessage) name every kind, so that the compiler finds the places:
//!
//! 1. SPEC: its number (8), its bytes in slices (7.4) and records (9.2), what it does to a value, by how much it may make leaves longer.
//! 2. Here: encoding and decoding; `Action::apply`, `apply_len`, `after` and `decides`; `Growth::of`.
//! 3. Records (`format::log`): width, tree, whether it only frees, limits. Late binding (`log::late`): what it supersedes, what
//!    outgrows a binding.
//! 4. The tree: entering a node (`tree::inject`: may it overtake others, or be overtaken?), a leaf (`node::leaf`), a buffer
//!    (`node::batch`), and moving to a child.
//! 5. Room: what it takes and what it may free (`volume::reserve`); what lost values it covers (`volume::open`).
//! 6. Checker and mender: what it may be for, what becomes of one that cannot be carried out.
//! 7. History, compare, dump, replay and the inspector: its name, its text, its JSON.
//! 8. Tests: the model of `tests/src`, fields × verbs, one broken image for each rule, the crash explorer.

use bytes::Bytes;

use super::key::Key;
use super::limits::FILE_BLOCK;
use super::update::{Update, carry_out, is_rewritten, length_after};
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

    /// The one message that does what `older` did to the same key, and then this one; nothing if this one says all.
    pub fn after(&self, older: &MessageRef<'_>) -> Option<Message> {
        match older.kind {
            _ if self.kind != Kind::Update => None,
            Kind::Update if is_rewritten(older.value, self.value) => None,
            Kind::Insert if !grows_much(self.value, older.value) => {
                let mut value = older.value.to_vec();
                carry_out(self.value, &mut value, true);
                Some(Message { msn: older.msn, action: Action::Insert(value.into()) })
            }
            _ => Some(self.owned().after(&older.owned())),
        }
    }

    /// The same in memory of its own.
    pub fn owned(&self) -> Message {
        let value = || Bytes::copy_from_slice(self.value);
        let action = match self.kind {
            Kind::Insert => Action::Insert(value()),
            Kind::Delete => Action::Delete,
            Kind::Update => Action::Update(Update::trusted(value())),
        };
        Message { msn: self.msn, action }
    }
}

/// Whether an update makes a short value a long one, which stays short on its way.
fn grows_much(update: &[u8], value: &[u8]) -> bool {
    let len = length_after(update, Some(value.len()));
    len.is_some_and(|len| len > FILE_BLOCK.max(2 * value.len()))
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

    /// Whether it does not matter what was there before.
    pub fn decides(&self) -> bool {
        match self {
            Action::Insert(_) | Action::Delete => true,
            Action::Update(update) => update.is_anew(),
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
            Action::Update(update) if !update.is_anew() => older.unwrap_or(msn),
            Action::Insert(_) | Action::Delete | Action::Update(_) => msn,
        }
    }

    /// The one action that does what `older` does, and then this one.
    pub fn after(self, older: &Action) -> Action {
        match (&self, older) {
            (Action::Insert(_) | Action::Delete, _) => self,
            (Action::Update(update), Action::Update(older)) => Action::Update(update.after(older)),
            (Action::Update(update), Action::Insert(value)) => {
                match grows_much(update.bytes(), value) {
                    true => Action::Update(update.after(&Update::insert(value))),
                    false => Action::to(update.apply(Some(value))),
                }
            }
            (Action::Update(update), Action::Delete) => match update.anew() {
                Some(anew) if update.apply_len(None) > Some(anew.bytes().len()) => {
                    Action::Update(anew)
                }
                _ => Action::to(update.apply(None)),
            },
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
        let (msn, updates) = (self.msn, matches!(&self.action, Action::Update(_)));
        let action = self.action.after(&older.action);
        let gave = matches!((&older.action, &action), (Action::Insert(_), Action::Insert(_)));
        Message { msn: if updates && gave { older.msn } else { msn }, action }
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

impl RangeDelete {
    /// How many bytes it takes in a range section: kind, zeros and MSN, and two keys with their lengths.
    pub fn encoded_bytes(&self) -> usize {
        16 + 2 + self.lo.len() + 2 + self.hi.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_in_any_order_actions_do_what_they_do_one_by_one() {
        let mut seed = 11u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let mut short = 0;
        for round in 0..20_000 {
            let mut any = || {
                // Short values, and far from them.
                let len = random(60) as usize + if random(4) == 0 { 5000 } else { 0 };
                match random(9) {
                    0 => Action::Delete,
                    1 | 2 => Action::Insert(vec![len as u8; len].into()),
                    3 => Action::Update(Update::trim(len)),
                    4 => Action::Update(Update::add(8 * random(6) as usize, 77)),
                    kind => {
                        let bytes = vec![kind as u8; random(12) as usize];
                        Action::Update(Update::patch(len, &bytes, kind < 8))
                    }
                }
            };
            let count = 2 + round % 6;
            let actions: Vec<Action> = (0..count).map(|_| any()).collect();
            let mut combined = actions.clone();
            while combined.len() > 1 {
                let at = random(combined.len() as u64 - 1) as usize;
                let younger = Message { msn: Msn(9), action: combined.remove(at + 1) };
                let older = Message { msn: Msn(5), action: combined[at].clone() };
                let key = Key::default();
                let [one, other] = [&younger, &older].map(|message| MessageRef::of(&key, message));
                let both = younger.clone().after(&older);
                assert_eq!(one.after(&other).unwrap_or(younger), both);
                combined[at] = both.action;
            }
            for start in [None, Some(Bytes::from_static(b"what was there"))] {
                let expected = actions
                    .iter()
                    .fold(start.clone(), |value, action| action.apply(value.as_ref()));
                assert_eq!(combined[0].apply(start.as_ref()), expected, "{round}: {actions:?}");
                let len = combined[0].apply_len(start.map(|start| start.len()));
                assert_eq!(len, expected.map(|value| value.len()));
            }
            if let Action::Update(update) = &combined[0] {
                assert_eq!(Update::decode(update.bytes(), None).as_ref(), Ok(update));
                short += u32::from(update.is_anew());
            }
        }
        assert!(short > 500, "{short}");
    }
}
