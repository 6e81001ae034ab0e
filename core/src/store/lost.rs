//! Keys whose values are lost: a damaged log names them, and the values that it binds are gone. Reads of these keys
//! fail until a later message covers them.

use crate::error::{Damage, Error, Result};
use crate::format::{Key, RangeDelete};
use crate::ids::{Msn, TreeId};
use crate::node::RangeSet;

/// Ranges of lost keys of the data index, each with its damage.
#[derive(Default)]
pub struct LostKeys {
    /// The MSN of each range is an index of `damages`.
    ranges: RangeSet,
    damages: Vec<Damage>,
}

impl LostKeys {
    /// Whether no key is lost.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Marks the keys of `[lo, hi)` as lost.
    pub fn insert(&mut self, lo: Key, hi: Key, damage: Damage) {
        self.ranges.insert(RangeDelete { msn: Msn(self.damages.len() as u64), lo, hi });
        self.damages.push(damage);
    }

    /// Marks the keys of `[lo, hi)` as known again: they have new values, or are deleted.
    pub fn forget(&mut self, lo: &Key, hi: &Key) {
        if !self.ranges.is_empty() {
            self.ranges.cut(lo, Some(hi));
        }
    }

    /// Removes and returns all ranges of lost keys.
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
