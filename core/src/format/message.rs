//! Messages: changes on their way to a leaf.
//!
//! Kinds on disk: 1 insert, 2 delete, 3 range delete. Reserved: 4 patch, 5 add, 6 trim, 7 range
//! clone. Only in the log: 16 unbound entry, and 17 to 20 for what binds it.

use bytes::Bytes;

use super::key::Key;
use crate::ids::Msn;

pub(super) const INSERT: u8 = 1;
pub(super) const DELETE: u8 = 2;
pub(super) const RANGE_DELETE: u8 = 3;
pub(super) const UNBOUND: u8 = 16;

/// What a message does to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Gives the key this value.
    Insert(Bytes),
    /// Removes the key.
    Delete,
}

impl Action {
    /// The value that the action carries; empty for a delete.
    pub fn value(&self) -> &[u8] {
        match self {
            Action::Insert(value) => value,
            Action::Delete => &[],
        }
    }

    pub(super) fn kind(&self) -> u8 {
        match self {
            Action::Insert(_) => INSERT,
            Action::Delete => DELETE,
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
