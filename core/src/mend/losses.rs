//! What is lost, by path: one walk over what is there after the repair.

use super::Loss;
use crate::error::Result;
use crate::format::limits::FILE_BLOCK;
use crate::format::{Bounds, FileType, Key, data_key};
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

/// Tells losses by path, and whether there are more; those of what is not there any more have none.
pub(super) fn by_path(fs: &Fs, losses: &[Loss]) -> Result<(Vec<Missing>, bool)> {
    let mut missing = Vec::new();
    if losses.is_empty() {
        return Ok((missing, false));
    }
    let [metadata, data] = [TreeId::Metadata, TreeId::Data].map(|tree| Ranges::of(losses, tree));
    let mut walk = Walk::new(fs.root()?);
    while let Some((path, object)) = walk.next_object(fs)? {
        if missing.len() >= PATHS_MAX {
            return Ok((missing, true));
        }
        let path = [b"/", &path[..]].concat();
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

/// Ranges of keys that lie apart, in order.
pub(super) struct Ranges(Vec<Bounds>);

impl Ranges {
    /// All that is lost of a tree; losses are in the order of their keys.
    pub fn of(losses: &[Loss], tree: TreeId) -> Ranges {
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

    /// Those that have keys within `[lo, hi)`.
    fn within(&self, lo: &Key, hi: Option<&Key>) -> &[Bounds] {
        let ended = |range: &Bounds| range.hi.as_ref().is_some_and(|end| end <= lo);
        let from = self.0.partition_point(ended);
        let to = self.0.partition_point(|range| hi.is_none_or(|hi| range.lo < *hi));
        &self.0[from..to.max(from)]
    }

    /// Whether any key of `[lo, hi)` is in one.
    pub fn overlap(&self, lo: &Key, hi: Option<&Key>) -> bool {
        !self.within(lo, hi).is_empty()
    }
}

fn of_file(file: &Object, path: &[u8], lost: &Ranges, missing: &mut Vec<Missing>) {
    let size = file.inode().size;
    let block = FILE_BLOCK as u64;
    let prefix = data_prefix(file);
    let [lo, hi] = [0, size.div_ceil(block)].map(|block| data_key(&prefix, block));
    for range in lost.within(&lo, Some(&hi)).iter().take(PATHS_MAX) {
        let first = if range.lo <= lo { 0 } else { block_at(&prefix, &range.lo) };
        let end = match &range.hi {
            Some(end) if *end < hi => block_at(&prefix, end),
            _ => size.div_ceil(block),
        };
        let (first, end) = (first.saturating_mul(block), end.saturating_mul(block).min(size));
        if first < end {
            let what = MissingPart::Bytes { first, last: end - 1 };
            missing.push(Missing { path: path.to_vec(), what });
        }
    }
}

/// The first block of a file whose key is not before this one, which may be cut short.
fn block_at(prefix: &[u8], key: &[u8]) -> u64 {
    let digits = key.strip_prefix(prefix).unwrap_or_default();
    let mut bytes = [0; 8];
    let len = digits.len().min(8);
    bytes[..len].copy_from_slice(&digits[..len]);
    // What is longer is behind the block.
    u64::from_be_bytes(bytes).saturating_add(u64::from(digits.len() > 8))
}
