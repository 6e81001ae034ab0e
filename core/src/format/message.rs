//! Messages: changes on their way to a leaf.
//!
//! Kinds on disk: 1 insert, 2 delete, 3 range delete, 4 update. Only in the log: 7 range clone, 16 unbound entry, and 17
//! to 20 for its bindings.
//!
//! What a new kind needs, in this order. Most matches over [`Kind`], [`Action`] and
//! [`RecordMessage`](super::RecordMessage) name every kind, and the compiler finds them. The others (`==`, `matches!`,
//! `let … else`, `_ =>`) and all producers are among what these searches show, in `core offline lab tools tests bench`
//! with `--include=*.rs`:
//!
//! - what names a kind: `grep -rnwE '(Kind|Action|RecordMessage)::(Insert|Delete|Update|Point|RangeDelete|Clone|Unbound)'`
//! - messages to ranges: `grep -rniE 'range.?delete|_ranges|\branges\b'`
//! - callers of predicates and sums, which name no kind: `grep -rnE '\b(decides|frees|is_range|is_clone|clones|grows_much|is_rewritten|seen_through|is_anew|adds|only_trims|msn_over|after_range|apply_len|leaf_growth|growth_of|beyond_limits)\('`
//! - numbers on disk: `grep -rnwE 'RANGE_(DELETE|CLONE)|UNBOUND|Kind::from_code'`
//! - names: `grep -rnE '"(insert|delete|update|range delete|range clone|unbound entry)\b'`; the inspector compares one (`query/messages.rs`)
//!
//! 1. The format changes: `limits::FORMAT_VERSION`, CHANGELOG, `format/vectors`, DAMAGE.md. SPEC: its number (8), its bytes in slices (7.4) and records (9.2), its effect on a value, its growth of leaves.
//! 2. Here: encoding and decoding; `Action::apply`, `apply_len`, `after` and `decides`; `Growth::of`.
//! 3. Records (`format::log`): width, tree, whether it only frees, limits. Late binding: what it supersedes, and what
//!    outgrows a binding (`log::late`); which messages of a node wait to be bound (`waiting_in` of `store::writeback`) and of a
//!    slice are bound (`node::internal::seal`); what a binding may name (`log::values`). The last three take inserts only.
//! 4. The tree: entering a node (`tree::inject`: may it overtake others, or be overtaken?), a leaf (`node::leaf`), a buffer
//!    (`node::batch`), moving to a child, and being seen through a lens (`seen_through`). Reading: `node::sorted`, `node::internal::lookup`, `tree::{cursor,sums,explain}`.
//! 5. Room: what it takes and what it may free (`volume::reserve`); which blocked children refuse it (`tree::blocked`); which
//!    lost values it replaces (`volume::replay`); what is refused of it (`volume::commit`), and whether it keeps space
//!    (`volume::admission`); its ranges (`node::ranges`); what a log scan notes of it (`log::survey`), what a replay of a part of a group reads of it (`volume::moment`).
//! 6. Checker and mender: the values and the tree it may apply to (`check::runs`), the repair of one that cannot be
//!    applied (`node::internal::rescue`), and its bytes in a repair (`mend::schema`).
//! 7. History, compare, redaction, dump (`messages`, `explain`, `place`), replay and the inspector: its name, its text, its JSON.
//! 8. What produces it: operations (`fs::{draft,data,allocate,past}`; `fs::{relocate,reflink}` and others through `fs::draft`), `kv`,
//!    records of late-bound values (`log::late`), a replay of bound and lost ones (`volume::{replay,open}`), corrections
//!    (`mend::schema`), received streams (`offline::transfer`), damage (`lab/src/damage/broken/files.rs`).
//! 9. Tests: the models of `tests/all/engine.rs` and `lab/src/explore/model.rs`, `tests/src/fuzz`, fields × verbs, one broken image for each rule, the crash explorer.

use bytes::Bytes;

use super::key::Key;
use super::limits::FILE_BLOCK;
use super::update::{Update, apply_stages, is_rewritten, length_after};
use crate::ids::Msn;

pub(super) const RANGE_DELETE: u8 = 3;
pub(super) const RANGE_CLONE: u8 = 7;
pub(super) const UNBOUND: u8 = 16;

/// The kinds of messages to one key.
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

/// A message to one key, borrowed from any store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef<'m> {
    /// The key.
    pub key: &'m [u8],
    /// Its MSN.
    pub msn: Msn,
    /// Its kind.
    pub kind: Kind,
    /// The value or update; empty for a delete.
    pub value: &'m [u8],
}

impl<'m> MessageRef<'m> {
    /// A message that is stored with its key.
    pub fn of(key: &'m Key, message: &'m Message) -> MessageRef<'m> {
        let Message { msn, action } = message;
        MessageRef { key, msn: *msn, kind: action.kind(), value: action.value() }
    }

    /// Combines this message with an `older` one for the same key. `None` if this one alone has the same effect.
    pub fn after(&self, older: &MessageRef<'_>) -> Option<Message> {
        match older.kind {
            _ if self.kind != Kind::Update => None,
            Kind::Update if is_rewritten(older.value, self.value) => None,
            Kind::Insert if !grows_much(self.value, older.value) => {
                let mut value = older.value.to_vec();
                apply_stages(self.value, &mut value, true);
                Some(Message { msn: older.msn, action: Action::Insert(value.into()) })
            }
            _ => Some(self.owned().after(&older.owned())),
        }
    }

    /// An owned copy.
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

/// Whether an update makes a short value a long one, so that it is stored as an update on its way.
fn grows_much(update: &[u8], value: &[u8]) -> bool {
    let len = length_after(update, Some(value.len()));
    len.is_some_and(|len| len > FILE_BLOCK.max(2 * value.len()))
}

/// The effect of a message on its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Gives the key this value.
    Insert(Bytes),
    /// Removes the key.
    Delete,
    /// Changes its value.
    Update(Update),
}

impl Action {
    /// The value or update of the action; empty for a delete.
    pub fn value(&self) -> &[u8] {
        match self {
            Action::Insert(value) => value,
            Action::Delete => &[],
            Action::Update(update) => update.bytes(),
        }
    }

    /// The value after the action; `None` for no value.
    pub fn apply(&self, value: Option<&Bytes>) -> Option<Bytes> {
        match self {
            Action::Insert(value) => Some(value.clone()),
            Action::Delete => None,
            Action::Update(update) => update.apply(value.map(|value| &**value)),
        }
    }

    /// Whether the result does not depend on the old value.
    pub fn decides(&self) -> bool {
        match self {
            Action::Insert(_) | Action::Delete => true,
            Action::Update(update) => update.is_anew(),
        }
    }

    /// The length of the value after the action; `None` for no value.
    pub fn apply_len(&self, len: Option<usize>) -> Option<usize> {
        match self {
            Action::Insert(value) => Some(value.len()),
            Action::Delete => None,
            Action::Update(update) => update.apply_len(len),
        }
    }

    /// The action that sets a key to this value, or removes it.
    pub fn to(value: Option<Bytes>) -> Action {
        value.map_or(Action::Delete, Action::Insert)
    }

    /// The MSN of a value after the action of message `msn`, given the MSN of the old value. An update keeps the MSN of
    /// the message that gave the value.
    pub fn msn_over(&self, older: Option<Msn>, msn: Msn) -> Msn {
        match self {
            Action::Update(update) if !update.is_anew() => older.unwrap_or(msn),
            Action::Insert(_) | Action::Delete | Action::Update(_) => msn,
        }
    }

    /// Combines this action with an `older` one.
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

    /// The kind of the action.
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
    /// Its MSN.
    pub msn: Msn,
    /// Its action.
    pub action: Action,
}

impl Message {
    /// Combines this message with an `older` one. A value that was inserted and then updated keeps the MSN of the
    /// insert: a recovery looks for it by that MSN, and applies the update again.
    pub fn after(self, older: &Message) -> Message {
        let (msn, updates) = (self.msn, matches!(&self.action, Action::Update(_)));
        let action = self.action.after(&older.action);
        let gave = matches!((&older.action, &action), (Action::Insert(_), Action::Insert(_)));
        Message { msn: if updates && gave { older.msn } else { msn }, action }
    }

    /// The message combined with a range delete that removed the key before.
    pub fn after_range(self) -> Message {
        Message { action: self.action.after(&Action::Delete), ..self }
    }
}

/// A range delete: removes every key of `[lo, hi)` (BetrFS 0.2 §5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// Its MSN.
    pub msn: Msn,
    /// The first key.
    pub lo: Key,
    /// The first key beyond; greater than `lo`.
    pub hi: Key,
}

impl RangeDelete {
    /// Its bytes in a range section: kind, zeros and MSN, and two keys with their lengths.
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
                // Short values, and much longer ones.
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
