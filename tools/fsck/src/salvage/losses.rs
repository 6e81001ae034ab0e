//! Maps the losses of the trees to objects.

use std::ops::Range;

use betr_core::format::Key;
use betr_core::fs::Object;
use betr_core::ids::TreeId;
use betr_core::mend::{Loss, MissingPart, keys_of, missing_parts};

/// The losses of both trees.
pub(crate) struct Losses<'l> {
    /// The losses of the metadata index and of the data index.
    trees: [Tree<'l>; 2],
}

/// The losses of one tree, sorted by first key.
struct Tree<'l> {
    losses: &'l [Loss],
    /// For each loss, the largest end of it and all earlier ones; `None` is the end of the key space.
    reach: Vec<Option<&'l Key>>,
    /// Whether each loss was assigned to an object.
    seen: Vec<bool>,
}

/// The missing parts of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Byte ranges of a file that are lost.
    pub bytes: Vec<Range<u64>>,
    /// Byte ranges of a file whose newest writes may be lost.
    pub older: Vec<Range<u64>>,
    /// Whether entries of a directory may be lost.
    pub entries: bool,
}

impl Missing {
    /// Adds lost byte ranges.
    pub(super) fn lack(&mut self, bytes: Vec<Range<u64>>) {
        self.bytes.extend(bytes);
        join(&mut self.bytes);
    }
}

impl<'l> Losses<'l> {
    /// Takes losses sorted by tree and key.
    pub(super) fn new(losses: &'l [Loss]) -> Losses<'l> {
        let data = losses.partition_point(|loss| loss.tree == TreeId::Metadata);
        let (metadata, data) = losses.split_at(data);
        Losses { trees: [Tree::new(metadata), Tree::new(data)] }
    }

    /// The missing parts of an object.
    pub(super) fn of(&mut self, object: &Object) -> Missing {
        let tree = &mut self.trees[usize::from(!object.is_directory())];
        let mut missing = Missing::default();
        for (at, part) in tree.parts(object) {
            tree.seen[at] = true;
            match part {
                MissingPart::Entries => missing.entries = true,
                // The change of the inode tells it.
                MissingPart::Attributes => {}
                MissingPart::Bytes { first, last } => {
                    let ranges = match tree.losses[at].pending {
                        true => &mut missing.older,
                        false => &mut missing.bytes,
                    };
                    ranges.push(first..last + 1);
                }
            }
        }
        join(&mut missing.bytes);
        join(&mut missing.older);
        missing
    }

    /// The losses that stand for files that are lost entirely: all losses of the metadata index, and, because those may
    /// have contained inodes, the losses of the data index that were assigned to no object.
    pub(super) fn left(&self) -> impl Iterator<Item = &'l Loss> {
        let [metadata, data] = &self.trees;
        let unseen = data.losses.iter().zip(&data.seen).filter(|(_, seen)| !**seen);
        let unseen = unseen.map(|(loss, _)| loss).filter(|_| !metadata.losses.is_empty());
        metadata.losses.iter().chain(unseen)
    }
}

impl<'l> Tree<'l> {
    fn new(losses: &'l [Loss]) -> Tree<'l> {
        let mut reach: Vec<Option<&Key>> = Vec::with_capacity(losses.len());
        for loss in losses {
            let end = loss.keys.hi.as_ref();
            let furthest = reach.last().copied().unwrap_or(end);
            reach.push(furthest.zip(end).map(|(furthest, end)| furthest.max(end)));
        }
        Tree { losses, reach, seen: vec![false; losses.len()] }
    }

    /// The losses that affect an object, by index.
    fn parts(&self, object: &Object) -> Vec<(usize, MissingPart)> {
        let Some((_, lo, hi)) = keys_of(object) else { return Vec::new() };
        let end = self.losses.partition_point(|loss| loss.keys.lo < hi);
        let near = |at: &usize| self.reach[*at].is_none_or(|reach| *reach > lo);
        let first = (0..end).rev().take_while(near).last().unwrap_or(end);
        let parts = missing_parts(object, &self.losses[first..end]).into_iter();
        parts.map(|(at, part)| (first + at, part)).collect()
    }
}

/// Sorts ranges and merges those that touch or overlap.
fn join(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|range, last| {
        let touches = last.end >= range.start;
        if touches {
            last.end = last.end.max(range.end);
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined() {
        let mut missing = Missing { bytes: vec![8..12, 20..24], ..Missing::default() };
        missing.lack(vec![0..4, 4..6, 9..11, 12..13, 24..25]);
        assert_eq!(missing.bytes, [0..6, 8..13, 20..25]);
    }
}
