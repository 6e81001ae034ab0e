//! Log groups, with their records and bindings.

use betr_core::format::*;
use betr_core::ids::{Lsn, is_zero};
use bytes::Bytes;

use super::Input;
use super::structure::sealed;

/// Log groups without their padding.
pub fn log(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes, 1) else { return false };
    let decode = |bytes: &[u8], trace: Option<&mut dyn Trace>| {
        Group::decode(&Bytes::copy_from_slice(bytes), trace)
    };
    let Some((_, group)) = sealed(&input, Magic::LogGroup, decode, encode) else { return false };
    let mut next = group.first_lsn;
    for record in &group.records {
        assert_eq!(record.lsn, next);
        next = record.next_lsn();
        let numbered = record.numbered().map(|(msn, message)| msn.0 + message.width());
        assert_eq!(numbered.max().map(Lsn), Some(next));
        assert!(record.unbound().all(|range| range.end().0 <= next.0));
    }
    assert_eq!(next, group.next_lsn);
    true
}

fn encode((seal, group): &(Seal, Group)) -> Vec<u8> {
    let mut writer = GroupWriter::default();
    group.records.iter().for_each(|record| writer.push(record));
    let Group { bindings, nonce_before, number, flushed, .. } = group;
    let mut padded = writer.seal(bindings, seal.birth, *nonce_before, *number, *flushed);
    let length = group_length(&padded).expect("a group has a length");
    assert!(is_zero(&padded[length..]));
    padded.truncate(length);
    padded
}
