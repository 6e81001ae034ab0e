//! What is lost, by path: one walk over what is there after the repair.

use super::Loss;
use crate::error::Result;
use crate::format::limits::FILE_BLOCK;
use crate::format::{FileType, Key, data_key};
use crate::fs::{Fs, Object, Walk, data_prefix};
use crate::ids::TreeId;

/// So many paths are told at the most.
const PATHS_MAX: usize = 10_000;

/// What somebody misses at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The path.
    pub path: Vec<u8>,
    /// What is not there, or may not be what it was.
    pub what: MissingPart,
}

/// A part of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPart {
    /// Bytes of a file, the last one included: they read as zeros now, or as what was there before.
    Bytes {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// Entries of a directory, with what was below them: some may have gone, or have come back.
    Entries,
}

/// Tells losses by path; those of what is not there any more have none.
pub(super) fn by_path(fs: &Fs, losses: &[Loss]) -> Result<Vec<Missing>> {
    let mut missing = Vec::new();
    if losses.is_empty() {
        return Ok(missing);
    }
    let mut walk = Walk::new(fs.root()?);
    while let Some((path, object)) = walk.next_object(fs)? {
        if missing.len() >= PATHS_MAX {
            break;
        }
        let path = [b"/", &path[..]].concat();
        let parts = missing_parts(&object, losses).into_iter();
        // That entries are missing is told once.
        let parts = parts.take(if object.is_directory() { 1 } else { PATHS_MAX });
        missing.extend(parts.map(|(_, what)| Missing { path: path.clone(), what }));
    }
    Ok(missing)
}

/// The keys that stand for the contents of a file, or for the entries of a directory; nothing else has any.
pub fn keys_of(object: &Object) -> Option<(TreeId, Key, Key)> {
    match object.kind() {
        FileType::Regular => {
            let blocks = object.inode().size.div_ceil(FILE_BLOCK as u64);
            let [lo, hi] = [0, blocks].map(|block| data_key(&data_prefix(object), block));
            Some((TreeId::Data, lo, hi))
        }
        FileType::Directory => {
            let (lo, hi) = object.place().entry_range();
            Some((TreeId::Metadata, lo, hi))
        }
        _ => None,
    }
}

/// What of one object is among the losses: the place of each that it has a part in, and that part.
pub fn missing_parts(object: &Object, losses: &[Loss]) -> Vec<(usize, MissingPart)> {
    let Some((tree, lo, hi)) = keys_of(object) else { return Vec::new() };
    let found = losses.iter().enumerate().filter(|(_, loss)| overlaps(loss, tree, &lo, &hi));
    if tree == TreeId::Metadata {
        return found.map(|(at, _)| (at, MissingPart::Entries)).collect();
    }
    let (size, block) = (object.inode().size, FILE_BLOCK as u64);
    let prefix = data_prefix(object);
    let part = |loss: &Loss| {
        let first = if loss.keys.lo <= lo { 0 } else { block_at(&prefix, &loss.keys.lo) };
        let end = match &loss.keys.hi {
            Some(end) if *end < hi => block_at(&prefix, end),
            _ => size.div_ceil(block),
        };
        let (first, end) = (first.saturating_mul(block), end.saturating_mul(block).min(size));
        (first < end).then_some(MissingPart::Bytes { first, last: end - 1 })
    };
    found.filter_map(|(at, loss)| Some((at, part(loss)?))).collect()
}

/// Whether what is lost may be within `[lo, hi)`.
fn overlaps(loss: &Loss, tree: TreeId, lo: &Key, hi: &Key) -> bool {
    loss.tree == tree && loss.keys.lo < *hi && loss.keys.hi.as_ref().is_none_or(|end| end > lo)
}

/// The first block of a file whose key is not below a key that may be cut short, or go on.
fn block_at(prefix: &[u8], key: &[u8]) -> u64 {
    let digits = key.strip_prefix(prefix).unwrap_or_default();
    let mut bytes = [0; 8];
    let len = digits.len().min(8);
    bytes[..len].copy_from_slice(&digits[..len]);
    u64::from_be_bytes(bytes).saturating_add(u64::from(digits.len() > 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_a_range_of_keys_stands_for() {
        let prefix = [0, 0, 0, 0, 0, 0, 0, 9, 1, b'f', 0];
        let key = data_key(&prefix, 0x0102);
        assert_eq!(block_at(&prefix, &key), 0x0102);
        // The key after that of a block: what ends there has the block.
        assert_eq!(block_at(&prefix, &key.successor()), 0x0103);
        assert_eq!(block_at(&prefix, &key[..key.len() - 1]), 0x0100);
        assert_eq!(block_at(&prefix, &data_key(&prefix, u64::MAX).successor()), u64::MAX);
    }
}
