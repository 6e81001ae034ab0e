//! Edits of an image: a few bytes each, so that a fuzzer can make many of them, and remove them again.
//!
//! An edit is an operation and a field of the image, of one and two bytes, and the operands. Sealed edits come first,
//! and all hashes are then corrected; raw edits follow, without that.

use std::ops::Range;
use std::sync::Arc;

use betr_core::device::Device;
use betr_core::ids::BLOCK_SIZE;

use super::parts::Parts;

/// 16: the most edits of an input.
const EDITS_MAX: usize = 16;
const RAW: u8 = 0x80;

/// A write.
struct Edit {
    at: usize,
    bytes: Vec<u8>,
    raw: bool,
}

/// Applies the edits of `input` to a copy of the image of `parts`. Returns whether there were any, and whether all were
/// raw.
pub(super) fn apply_edits(input: &[u8], parts: &Parts, device: &Arc<dyn Device>) -> (bool, bool) {
    let mut rest = input;
    let mut edits = Vec::new();
    while let Some(edit) = next(&mut rest, parts, &**device).filter(|_| edits.len() < EDITS_MAX) {
        edits.push(edit);
    }
    let (raw, sealed): (Vec<&Edit>, Vec<&Edit>) = edits.iter().partition(|edit| edit.raw);
    let write = |edit: &&Edit| device.write_at(edit.at as u64, &edit.bytes).unwrap();
    sealed.iter().for_each(write);
    let changed: Vec<usize> = sealed.iter().map(|edit| edit.at).collect();
    parts.seal(device, &changed);
    raw.iter().for_each(write);
    (!edits.is_empty(), sealed.is_empty())
}

fn next(rest: &mut &[u8], parts: &Parts, device: &dyn Device) -> Option<Edit> {
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at_checked(count)?;
        *rest = after;
        Some(taken)
    };
    let operation = take(1)?[0];
    let mut index = || Some(usize::from(u16::from_le_bytes(*take(2)?.first_chunk()?)));
    let read = |range: Range<usize>| {
        let mut bytes = vec![0; range.len()];
        device.read_at(range.start as u64, &mut bytes).unwrap();
        bytes
    };
    let raw = operation & RAW != 0;
    let first = index()?;
    let field = parts.field(first);
    let edit = |at: usize, bytes: Vec<u8>| Some(Edit { at, bytes, raw });
    match operation & !RAW {
        // Some bytes, from an offset in the field.
        0 => {
            let from = index()? % field.len();
            let count = (field.len() - from).min(usize::from(take(1)?[0]) % 16 + 1);
            edit(field.start + from, take(count)?.to_vec())
        }
        // Adds a small number to the field, or subtracts it.
        1 => {
            let mut bytes = read(field.start..field.end.min(field.start + 8));
            let mut number = [0; 8];
            number[..bytes.len()].copy_from_slice(&bytes);
            let sum = u64::from_le_bytes(number).wrapping_add_signed((take(1)?[0] as i8).into());
            let len = bytes.len();
            bytes.copy_from_slice(&sum.to_le_bytes()[..len]);
            edit(field.start, bytes)
        }
        // The bytes of another field.
        2 => {
            let other = parts.field(index()?);
            let count = field.len().min(other.len());
            edit(field.start, read(other.start..other.start + count))
        }
        // One byte repeated over the field.
        3 => edit(field.start, vec![take(1)?[0]; field.len()]),
        // The bytes of another part.
        4 => {
            let [part, other] = [first, index()?].map(|number| parts.part(number));
            let count = part.len().min(other.len());
            edit(part.start, read(other.start..other.start + count))
        }
        // Flips a bit of a part.
        5 => {
            let part = parts.part(first);
            let bit = index()? % (8 * part.len());
            let at = part.start + bit / 8;
            edit(at, vec![read(at..at + 1)[0] ^ 1 << (bit % 8)])
        }
        // Fills a whole block, anywhere.
        _ => {
            let blocks = device.len() as usize / BLOCK_SIZE;
            let at = first % blocks * BLOCK_SIZE;
            Some(Edit { at, bytes: vec![take(1)?[0]; BLOCK_SIZE], raw: true })
        }
    }
}
