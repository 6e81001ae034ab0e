//! Nodes: heads, key sections, and runs with their slices, ranges and filters.

use betr_core::format::*;
use betr_core::ids::{Msn, TreeId};
use bytes::Bytes;

use super::Input;
use super::structure::{plain, sealed};

/// Heads of internal nodes.
pub fn internal(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes, 1) else { return false };
    sealed(&input, Magic::Internal, InternalHead::decode, |(seal, head)| head.encode(seal.birth).0)
        .is_some()
}

/// Heads of leaves; and key sections, after their tree.
pub fn leaf(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes, 2) else { return false };
    if input.which == 0 {
        return sealed(&input, Magic::Leaf, LeafHead::decode, |(seal, head)| {
            head.encode(seal.birth).0
        })
        .is_some();
    }
    let Some((tree, section)) = input.bytes.split_first() else { return false };
    let tree = if tree % 2 == 0 { TreeId::Metadata } else { TreeId::Data };
    let decode =
        |bytes: &[u8], trace: Option<&mut dyn Trace>| KeySection::decode(bytes, tree, trace);
    let Some(section) = plain(section, decode, KeySection::encode) else { return false };
    let keys: Vec<&[u8]> = section.entries().map(|entry| entry.key).collect();
    assert!(keys.is_sorted_by(|before, after| before < after));
    for entry in section.entries() {
        let end = usize::from(entry.offset) + entry.bytes as usize;
        match section.chunks.get(usize::from(entry.chunk)) {
            Some(chunk) => assert!(end <= chunk.bytes as usize, "{entry:?}"),
            None => assert!(entry.chunk == NO_CHUNK && entry.bytes == 0, "{entry:?}"),
        }
    }
    true
}

/// Headers of runs; and slices and sections of ranges, after their message count.
pub fn run(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes, 3) else { return false };
    if input.which == 0 {
        return sealed(&input, Magic::Run, RunHeader::decode, |(seal, header)| {
            header.encode(seal.birth).0
        })
        .is_some();
    }
    let Some((count, part)) = input.bytes.split_first_chunk() else { return false };
    let count = usize::from(u16::from_le_bytes(*count));
    match input.which {
        1 => slice(part, count),
        _ => ranges(part, count),
    }
}

fn slice(part: &[u8], count: usize) -> bool {
    let slice = Bytes::copy_from_slice(part);
    let greatest = part.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    let decode = |bytes: &[u8], trace: Option<&mut dyn Trace>| {
        decode_slice(&slice.slice_ref(bytes), count, trace)
    };
    let encode = |messages: &Vec<(Key, Message)>| {
        let mut w = Writer::default();
        let all = messages.iter().map(|(key, message)| MessageRef::of(key, message));
        encode_slice(&mut w, Msn(greatest), all);
        w.finish()
    };
    let Some(messages) = plain(&slice, decode, encode) else { return false };
    assert_eq!(messages.len(), count);
    assert!(messages.is_sorted_by(|before, after| before.0 < after.0));
    let mut filter = Vec::new();
    push_filter(&mut filter, messages.iter().map(|(key, _)| &**key), count);
    assert_eq!(filter.len(), filter_bytes(count));
    assert!(messages.iter().all(|(key, _)| Probe::of(key).may_be_in(&filter)));
    // An arbitrary filter must not panic.
    for (key, _) in &messages {
        Probe::of(key).may_be_in(part);
        Probe::of(key).may_be_in(&[]);
    }
    true
}

fn ranges(part: &[u8], count: usize) -> bool {
    let decode = |bytes: &[u8], trace: Option<&mut dyn Trace>| decode_ranges(bytes, count, trace);
    let encode = |ranges: &Vec<RangeDelete>| {
        let mut w = Writer::default();
        encode_ranges(&mut w, ranges.iter());
        w.finish()
    };
    plain(part, decode, encode).is_some_and(|ranges| {
        assert_eq!(ranges.len(), count);
        true
    })
}
