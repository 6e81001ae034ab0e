//! Values and keys of the indexes, and updates of values.

use betr_core::format::limits::VALUE_MAX;
use betr_core::format::*;
use bytes::Bytes;

use super::Input;
use super::structure::plain;

/// Inodes and zone references; keys of both indexes; updates.
pub fn values(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes, 4) else { return false };
    match input.which {
        0 => plain(input.bytes, MetaValue::decode, encode).is_some(),
        1 => MetaKey::decode(input.bytes).is_some_and(|key| {
            meta_key(input.bytes, &key);
            true
        }),
        2 => parse_data_key(input.bytes).is_some_and(|(prefix, block)| {
            assert_eq!(*data_key(prefix, block), *input.bytes);
            for blocks in [0, 1, u32::MAX] {
                let after = block_after(input.bytes, blocks);
                assert_eq!(after.is_some(), block.checked_add(blocks.into()).is_some());
                assert!(after.is_none_or(|after| *after >= *input.bytes));
            }
            true
        }),
        _ => updates(input.bytes),
    }
}

fn encode(value: &MetaValue) -> Vec<u8> {
    match value {
        MetaValue::Inode(inode) => {
            let bytes = inode.encode();
            assert_eq!(bytes.len(), inode.encoded_len());
            bytes
        }
        MetaValue::ZoneRef(reference) => reference.encode(),
    }
}

/// A key has one encoding; keys of its object are within `reach`, and in disjoint ranges.
fn meta_key(bytes: &[u8], key: &MetaKey) {
    let names: Vec<&[u8]> = key.names().collect();
    assert!(names.iter().all(|name| is_name(name)));
    let object = MetaKey::at(key.zone(), &names);
    let again = key.xattr().map_or(object.clone(), |name| object.with_xattr(name));
    assert_eq!((&again, &*again.encode()), (key, bytes));
    assert!(bytes.len() <= key.reach());
    assert_eq!(object, key.object());
    let within = |(lo, hi): (Key, Key), key: &Key| lo <= *key && *key < hi;
    let (xattr, child) = (object.with_xattr(b"x"), object.child(b"n"));
    assert_eq!(MetaKey::decode(&xattr.encode()).as_ref(), Some(&xattr));
    assert_eq!(MetaKey::decode(&child.encode()).as_ref(), Some(&child));
    assert!(within(object.xattr_range(), &xattr.encode()));
    assert!(within(object.entry_range(), &child.encode()));
    for below in [child.encode(), child.with_xattr(b"x").encode(), child.child(b"n").encode()] {
        assert!(within(object.subtree_range(), &below) && below.starts_with(&object.below()));
        assert!(!within(object.xattr_range(), &below));
    }
    assert!(!within(object.subtree_range(), &object.encode()));
}

/// Two updates, each after its length of one byte, and a value.
fn updates(bytes: &[u8]) -> bool {
    let Some((older, rest)) = behind_length(bytes) else { return false };
    let Some((younger, value)) = behind_length(rest) else { return false };
    let value = Bytes::copy_from_slice(&value[..value.len().min(VALUE_MAX)]);
    let decode = |bytes: &[u8]| Update::decode(&Bytes::copy_from_slice(bytes), None);
    let (Ok(older), Ok(younger)) = (decode(older), decode(younger)) else { return false };
    let both = younger.after(&older);
    assert_eq!(Update::decode(both.bytes(), None).as_ref(), Ok(&both), "{older:?}, {younger:?}");
    for update in [&older, &younger, &both] {
        one(update, &value);
    }
    for start in [None, Some(&value)] {
        let between = older.apply(start.map(|value| &**value));
        let expected = younger.apply(between.as_deref());
        assert_eq!(both.apply(start.map(|value| &**value)), expected, "{older:?}, {younger:?}");
    }
    for start in [Action::Delete, Action::Insert(value)] {
        let one_by_one = both.apply(start.apply(None).as_deref());
        let joined = Action::Update(both.clone()).after(&start);
        assert_eq!(joined.apply(None), one_by_one, "{older:?}, {younger:?}");
    }
    true
}

/// The properties that an update reports match its effect.
fn one(update: &Update, value: &Bytes) {
    assert!(update.fits(VALUE_MAX) && !update.stages().is_empty());
    assert_eq!(update.is_anew(), is_anew(update.bytes()));
    for start in [None, Some(value)] {
        let result = update.apply(start.map(|value| &**value));
        let len = result.as_ref().map(Bytes::len);
        assert_eq!(update.apply_len(start.map(Bytes::len)), len, "{update:?}");
        let before = start.map_or(0, Bytes::len);
        assert!(len.is_none_or(|len| len <= before.max(update.growth())), "{update:?}");
        let cut = |result: &Bytes| start.is_none_or(|value| value.starts_with(result));
        assert!(!update.only_trims() || update.is_anew() || result.as_ref().is_none_or(cut));
        if update.is_anew() {
            assert_eq!(result, update.apply(None), "{update:?}");
        }
    }
    if let Some(anew) = update.anew() {
        assert_eq!(anew.apply(Some(value)), update.apply(None), "{update:?}");
    }
}

fn behind_length(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}
