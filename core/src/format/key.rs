//! Keys of the trees, and bounds of nodes. Keys compare as plain bytes; ranges are half-open.

use std::borrow::Borrow;
use std::ops::Deref;

use bytes::Bytes;

use super::fields::{Fields, FormatError, Writer};
use super::limits::KEY_MAX;

/// A key of a tree, cheap to clone. Stored keys have at most [`KEY_MAX`] bytes; keys that are looked up may be longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

impl Key {
    /// The key of these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Key {
        Key(bytes.into())
    }

    /// The key of a copy of these bytes.
    pub fn copied(bytes: &[u8]) -> Key {
        Key::new(Bytes::copy_from_slice(bytes))
    }

    /// The first eight bytes as a number with the same order as keys.
    pub fn head(key: &[u8]) -> u64 {
        match key.first_chunk() {
            Some(first) => u64::from_be_bytes(*first),
            None => {
                let mut first = [0; 8];
                first[..key.len()].copy_from_slice(key);
                u64::from_be_bytes(first)
            }
        }
    }

    /// The least key that is greater than this one.
    pub fn successor(&self) -> Key {
        Key::new([&self.0[..], &[0]].concat())
    }

    pub(super) fn decode(f: &mut Fields<'_, '_>, name: &'static str) -> Result<Key, FormatError> {
        Ok(Key::copied(Key::decode_bytes(f, name)?))
    }

    /// As `decode`, without a copy.
    pub(super) fn decode_bytes<'f>(
        f: &mut Fields<'f, '_>,
        name: &'static str,
    ) -> Result<&'f [u8], FormatError> {
        let len = f.short_limited("key length", KEY_MAX)?;
        f.hex(name, len)
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.len16(self.0.len());
        w.bytes(&self.0);
    }
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// The keys that a node is responsible for: `[lo, hi)`. No `hi` means no end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The least key that may be in the node.
    pub lo: Key,
    /// The least key beyond it.
    pub hi: Option<Key>,
}

impl Bounds {
    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        *key >= *self.lo && self.is_below_end(key)
    }

    /// Whether `key` is before the end.
    pub fn is_below_end(&self, key: &[u8]) -> bool {
        self.hi.as_ref().is_none_or(|hi| *key < **hi)
    }

    /// The intersection of both, which may be empty.
    pub fn within(&self, other: &Bounds) -> Bounds {
        let hi = self.hi.iter().chain(&other.hi).min();
        Bounds { lo: self.lo.clone().max(other.lo.clone()), hi: hi.cloned() }
    }

    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<Bounds, FormatError> {
        let lo = Key::decode(f, "lower bound")?;
        let hi = match f.u8("has upper bound")? {
            0 => None,
            1 => Some(Key::decode(f, "upper bound")?),
            other => return Err(f.wrong("has upper bound", "0 or 1", other)),
        };
        if hi.as_ref().is_some_and(|hi| *hi <= lo) {
            return Err(f.wrong("upper bound", "more than the lower bound", "less"));
        }
        Ok(Bounds { lo, hi })
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        self.lo.encode(w);
        match &self.hi {
            None => w.u8(0),
            Some(hi) => {
                w.u8(1);
                hi.encode(w);
            }
        }
    }
}

/// The text of errors for keys that are not [`is_greater`].
pub(super) const GREATER_KEY: &str = "a greater key, with its prefix shared";

/// Whether the key of the first `shared` bytes of `before` and `suffix` is greater than `before`, and shares the
/// longest possible prefix with it.
pub(super) fn is_greater(before: &[u8], shared: usize, suffix: &[u8]) -> bool {
    match (before.get(shared), suffix.first()) {
        (Some(before), Some(now)) => now > before,
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

/// The length of the longest common prefix.
pub(crate) fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest key that is greater than `before`, and not greater than `key`.
pub(crate) fn separator<'k>(before: &[u8], key: &'k [u8]) -> &'k [u8] {
    &key[..(shared_prefix(before, key) + 1).min(key.len())]
}
