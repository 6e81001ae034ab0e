//! Keys whose values are lost: a damaged log names them, and the values that it binds are gone; or a range clone of the
//! log made them, and its source could not be read. Reads of these keys fail until a later message covers them.

use crate::error::{Damage, Error, Result};
use crate::format::{Key, RangeClone, RangeDelete};
use crate::ids::{Msn, TreeId};
use crate::node::RangeSet;

/// Ranges of lost keys of each tree, each with its damage.
#[derive(Default)]
pub struct LostKeys {
    /// The MSN of each range is an index of `damages`.
    ranges: [RangeSet; 2],
    damages: Vec<Damage>,
}

impl LostKeys {
    /// Whether no key is lost.
    pub fn is_empty(&self) -> bool {
        self.ranges.iter().all(RangeSet::is_empty)
    }

    /// Marks the keys of `[lo, hi)` as lost.
    pub fn insert(&mut self, tree: TreeId, lo: Key, hi: Key, damage: Damage) {
        let msn = Msn(self.damages.len() as u64);
        self.ranges[at(tree)].insert(RangeDelete { msn, lo, hi });
        self.damages.push(damage);
    }

    /// Marks the keys of `[lo, hi)` as known again: they have new values, or are deleted.
    pub fn forget(&mut self, tree: TreeId, lo: &Key, hi: &Key) {
        let ranges = &mut self.ranges[at(tree)];
        if !ranges.is_empty() {
            ranges.cut(lo, Some(hi));
        }
    }

    /// After a range clone: what was lost in its source is lost in its destination, and nothing else there.
    pub fn clone_range(&mut self, tree: TreeId, clone: &RangeClone) {
        let (source, destination) = (clone.source(), clone.destination());
        let lens = clone.lens();
        if let Some(hi) = &destination.hi {
            self.forget(tree, &destination.lo, hi);
        }
        for range in self.ranges[at(tree)].clip(&source.lo, source.hi.as_deref()) {
            let (lo, hi) = (lens.up(&range.lo), lens.end_up(&range.hi));
            self.ranges[at(tree)].insert(RangeDelete { msn: range.msn, lo, hi });
        }
    }

    /// Removes and returns all ranges of lost keys.
    pub fn take(&mut self) -> Vec<(TreeId, Key, Key)> {
        let lost = std::mem::take(self);
        let of_tree = |tree: TreeId| lost.ranges[at(tree)].iter().map(move |r| (tree, r.lo, r.hi));
        TreeId::ALL.into_iter().flat_map(of_tree).collect()
    }

    /// An error if `key` is lost.
    pub fn check_key(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        match self.ranges[at(tree)].is_empty() {
            true => Ok(()),
            false => self.check(tree, key, Some(&[key, &[0]].concat())),
        }
    }

    /// An error if any key of `[lo, hi)` is lost; no `hi` means to the end.
    pub fn check(&self, tree: TreeId, lo: &[u8], hi: Option<&[u8]>) -> Result<()> {
        let ranges = &self.ranges[at(tree)];
        if ranges.is_empty() {
            return Ok(());
        }
        match ranges.clip(lo, hi).first() {
            None => Ok(()),
            Some(range) => {
                Err(Error::Corrupt(Box::new(self.damages[range.msn.0 as usize].clone())))
            }
        }
    }
}

fn at(tree: TreeId) -> usize {
    usize::from(tree == TreeId::Data)
}
