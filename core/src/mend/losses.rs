//! Losses by path: one walk over the repaired file system.

use super::Loss;
use crate::error::Result;
use crate::format::limits::FILE_BLOCK;
use crate::format::{Bounds, FileType, Key, MetaKey, data_key};
use crate::fs::{Fs, Object, Walk, data_prefix};
use crate::ids::TreeId;

/// 10,000 paths are reported at most.
const LOST_PATHS_MAX: usize = 10_000;

/// A loss at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The path.
    pub path: Vec<u8>,
    /// What is missing, or may have changed.
    pub what: MissingPart,
}

/// A part of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPart {
    /// Bytes of a file, the last one included: they read as zeros now, or as older content.
    Bytes {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: u64,
    },
    /// Entries of a directory, with everything below them: some may be missing, or deleted ones may exist again.
    Entries,
    /// Owner, permissions, times and extended attributes of an object with a zone of its own: they may be made up, or
    /// older ones. In a cloned directory all inode numbers may be others.
    Attributes,
}

/// Losses by path, and whether there are more. Losses without an existing path are left out.
pub(super) fn by_path(fs: &Fs, losses: &[Loss]) -> Result<(Vec<Missing>, bool)> {
    let mut missing = Vec::new();
    if losses.is_empty() {
        return Ok((missing, false));
    }
    let [metadata, data] = [TreeId::Metadata, TreeId::Data].map(|tree| Ranges::of(losses, tree));
    let mut walk = Walk::new(fs.root()?);
    while let Some((path, object)) = walk.next_object(fs)? {
        if missing.len() >= LOST_PATHS_MAX {
            return Ok((missing, true));
        }
        let path = [b"/", &path[..]].concat();
        if let Some((lo, hi)) = attribute_keys(&object)
            && metadata.overlap(&lo, Some(&hi))
        {
            missing.push(Missing { path: path.clone(), what: MissingPart::Attributes });
        }
        match object.kind() {
            FileType::Regular => of_file(&object, &path, &data, &mut missing),
            FileType::Directory => {
                let (lo, hi) = object.place().entry_range();
                if metadata.overlap(&lo, Some(&hi)) {
                    missing.push(Missing { path, what: MissingPart::Entries });
                }
            }
            _ => {}
        }
    }
    Ok((missing, false))
}

/// Disjoint ranges of keys, in order.
pub(super) struct Ranges(Vec<Bounds>);

impl Ranges {
    /// All losses of a tree; `losses` must be in key order.
    pub(super) fn of(losses: &[Loss], tree: TreeId) -> Ranges {
        let mut ranges: Vec<Bounds> = Vec::new();
        for loss in losses.iter().filter(|loss| loss.tree == tree) {
            match ranges.last_mut() {
                Some(last) if last.hi.as_ref().is_none_or(|hi| *hi >= loss.keys.lo) => {
                    last.hi = match (last.hi.take(), &loss.keys.hi) {
                        (Some(a), Some(b)) => Some(a.max(b.clone())),
                        _ => None,
                    };
                }
                _ => ranges.push(loss.keys.clone()),
            }
        }
        Ranges(ranges)
    }

    /// The ranges with keys within `[lo, hi)`.
    fn within(&self, lo: &Key, hi: Option<&Key>) -> &[Bounds] {
        let ended = |range: &Bounds| range.hi.as_ref().is_some_and(|end| end <= lo);
        let from = self.0.partition_point(ended);
        let to = self.0.partition_point(|range| hi.is_none_or(|hi| range.lo < *hi));
        &self.0[from..to.max(from)]
    }

    /// Whether a range has a key of `[lo, hi)`.
    pub(super) fn overlap(&self, lo: &Key, hi: Option<&Key>) -> bool {
        !self.within(lo, hi).is_empty()
    }
}

/// The keys of a file's contents, or of a directory's entries; `None` for other objects.
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

/// The keys of the inode and the attributes of an object with a zone of its own. Those of others are among the entries of a
/// directory.
fn attribute_keys(object: &Object) -> Option<(Key, Key)> {
    let root = MetaKey::root(object.zone()?);
    Some((root.encode(), root.xattr_range().1))
}

/// The losses that concern the contents or entries of an object: the index of each, and the missing part.
pub fn missing_parts(object: &Object, losses: &[Loss]) -> Vec<(usize, MissingPart)> {
    let Some((tree, lo, hi)) = keys_of(object) else { return Vec::new() };
    let found = losses.iter().enumerate().filter(|(_, Loss { tree: of, keys, .. })| {
        *of == tree && keys.lo < hi && keys.hi.as_ref().is_none_or(|end| *end > lo)
    });
    if tree == TreeId::Metadata {
        return found.map(|(at, _)| (at, MissingPart::Entries)).collect();
    }
    let (prefix, size) = (data_prefix(object), object.inode().size);
    let part = |(at, loss): (usize, &Loss)| Some((at, bytes_of(&prefix, size, &loss.keys)?));
    found.filter_map(part).collect()
}

fn of_file(file: &Object, path: &[u8], lost: &Ranges, missing: &mut Vec<Missing>) {
    let Some((_, lo, hi)) = keys_of(file) else { return };
    let (prefix, size) = (data_prefix(file), file.inode().size);
    for range in lost.within(&lo, Some(&hi)).iter().take(LOST_PATHS_MAX) {
        if let Some(what) = bytes_of(&prefix, size, range) {
            missing.push(Missing { path: path.to_vec(), what });
        }
    }
}

/// The bytes of a file that a range of keys represents, if any.
fn bytes_of(prefix: &[u8], size: u64, keys: &Bounds) -> Option<MissingPart> {
    let block = FILE_BLOCK as u64;
    let [lo, hi] = [0, size.div_ceil(block)].map(|block| data_key(prefix, block));
    let first = if keys.lo <= lo { 0 } else { block_at(prefix, &keys.lo) };
    let end = match &keys.hi {
        Some(end) if *end < hi => block_at(prefix, end),
        _ => size.div_ceil(block),
    };
    let (first, end) = (first.saturating_mul(block), end.saturating_mul(block).min(size));
    (first < end).then(|| MissingPart::Bytes { first, last: end - 1 })
}

/// The first block of a file whose key is at or after `key`, which may be a truncated bound.
fn block_at(prefix: &[u8], key: &[u8]) -> u64 {
    let digits = key.strip_prefix(prefix).unwrap_or_default();
    let mut bytes = [0; 8];
    let len = digits.len().min(8);
    bytes[..len].copy_from_slice(&digits[..len]);
    // A longer key lies after the block's key.
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
        // The successor of a block's key: a range that ends there includes the block.
        assert_eq!(block_at(&prefix, &key.successor()), 0x0103);
        assert_eq!(block_at(&prefix, &key[..key.len() - 1]), 0x0100);
        assert_eq!(block_at(&prefix, &data_key(&prefix, u64::MAX).successor()), u64::MAX);
    }
}
