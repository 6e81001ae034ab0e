//! Keys whose values are lost: a damaged log named them, and what it bound is gone. Whoever asks gets an
//! error, until a later message covers them.

use crate::error::{Damage, Error, Result};
use crate::format::{Key, RangeDelete};
use crate::ids::{Msn, TreeId};
use crate::node::RangeSet;

/// Ranges of keys of the data index, each with what is wrong.
#[derive(Default)]
pub struct LostKeys {
    /// The number of each range is the index of its damage.
    ranges: RangeSet,
    damages: Vec<Damage>,
}

impl LostKeys {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The keys of `[lo, hi)` are lost.
    pub fn insert(&mut self, lo: Key, hi: Key, damage: Damage) {
        self.ranges.insert(RangeDelete { msn: Msn(self.damages.len() as u64), lo, hi });
        self.damages.push(damage);
    }

    /// The keys of `[lo, hi)` have values again, or are gone for good.
    pub fn forget(&mut self, lo: &Key, hi: &Key) {
        if !self.ranges.is_empty() {
            self.ranges.cut(lo, Some(hi));
        }
    }

    /// Takes out all ranges of keys that are lost still.
    pub fn take(&mut self) -> Vec<(Key, Key)> {
        let lost = std::mem::take(self);
        lost.ranges.iter().map(|range| (range.lo, range.hi)).collect()
    }

    /// An error if `key` is lost.
    pub fn check_key(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        match self.ranges.is_empty() {
            true => Ok(()),
            false => self.check(tree, key, Some(&[key, &[0]].concat())),
        }
    }

    /// An error if any key of `[lo, hi)` is lost; no `hi` means to the end.
    pub fn check(&self, tree: TreeId, lo: &[u8], hi: Option<&[u8]>) -> Result<()> {
        if self.ranges.is_empty() || tree != TreeId::Data {
            return Ok(());
        }
        match self.ranges.clip(lo, hi).first() {
            None => Ok(()),
            Some(range) => {
                Err(Error::Corrupt(Box::new(self.damages[range.msn.0 as usize].clone())))
            }
        }
    }
}
