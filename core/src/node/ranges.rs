//! The range deletes of one run, made disjoint: where two overlap, the younger one covers the keys.
//!
//! An older range delete has no effect on keys that a younger one covers, so a run needs at most one for any key.
//! Finding it costs O(log n).

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::format::{Bounds, Key, Lens, RangeDelete};
use crate::ids::Msn;

/// Disjoint ranges, each with the MSN of its range delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: BTreeMap<Key, (Key, Msn)>,
    /// Bytes of all keys.
    keys: usize,
}

impl RangeSet {
    /// Whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Panics if ranges overlap, or if the byte count of keys is wrong.
    pub fn check_invariants(&self) {
        let mut end: Option<&Key> = None;
        for (lo, (hi, _)) in &self.ranges {
            assert!(lo < hi && end.is_none_or(|end| end <= lo), "ranges apart and in order");
            end = Some(hi);
        }
        let keys: usize = self.ranges.iter().map(|(lo, (hi, _))| lo.len() + hi.len()).sum();
        assert_eq!(self.keys, keys, "the bytes of the keys of ranges");
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The ranges as they are above a lens.
    pub fn seen_through(&self, lens: &Lens) -> RangeSet {
        let mut seen = RangeSet::default();
        for (lo, (hi, msn)) in &self.ranges {
            seen.add(lens.up(lo), lens.end_up(hi), *msn);
        }
        seen
    }

    /// Adds a range delete that is younger than all others.
    pub fn insert(&mut self, range: RangeDelete) {
        self.cut(&range.lo, Some(&range.hi));
        // The keys are copied: a reference into a larger buffer would keep all of it in memory.
        self.add(Key::copied(&range.lo), Key::copied(&range.hi), range.msn);
    }

    /// The bytes of the keys of all ranges.
    pub fn key_bytes(&self) -> usize {
        self.keys
    }

    fn add(&mut self, lo: Key, hi: Key, msn: Msn) {
        self.keys += lo.len() + hi.len();
        self.ranges.insert(lo, (hi, msn));
    }

    /// The range delete that covers `key`.
    pub fn covering(&self, key: &[u8]) -> Option<Msn> {
        let (_, (hi, msn)) =
            self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        (*key < **hi).then_some(*msn)
    }

    /// Whether the ranges together cover all keys within the bounds.
    pub fn covers(&self, bounds: &Bounds) -> bool {
        let Some(hi) = &bounds.hi else { return false };
        let mut at: &[u8] = &bounds.lo;
        while *at < **hi {
            let mut before = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(at)));
            match before.next_back() {
                Some((_, (end, _))) if **end > *at => at = end,
                _ => return false,
            }
        }
        true
    }

    /// All ranges clipped to `[lo, hi)`, in key order.
    pub fn clip(&self, lo: &[u8], hi: Option<&[u8]>) -> Vec<RangeDelete> {
        let before =
            self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(lo))).next_back();
        let after = self.ranges.range::<[u8], _>((Bound::Included(lo), Bound::Unbounded));
        let mut shares = Vec::new();
        for (start, (end, msn)) in before.into_iter().chain(after) {
            if hi.is_some_and(|hi| **start >= *hi) {
                break;
            }
            let start = if **start < *lo { Key::copied(lo) } else { start.clone() };
            let end = match hi {
                Some(hi) if **end > *hi => Key::copied(hi),
                _ => end.clone(),
            };
            if start < end {
                shares.push(RangeDelete { msn: *msn, lo: start, hi: end });
            }
        }
        shares
    }

    /// Removes the ranges within `[lo, hi)`; a range that extends beyond is shortened or split.
    pub fn cut(&mut self, lo: &[u8], hi: Option<&[u8]>) {
        let shares = self.clip(lo, hi);
        for share in shares {
            let (start, (end, msn)) = self
                .ranges
                .range::<[u8], _>((Bound::Unbounded, Bound::Included(&*share.lo)))
                .next_back()
                .map(|(start, rest)| (start.clone(), rest.clone()))
                .expect("a share comes from a range");
            self.ranges.remove(&start);
            self.keys -= start.len() + end.len();
            if start < share.lo {
                self.add(start, share.lo, msn);
            }
            if share.hi < end {
                self.add(share.hi, end, msn);
            }
        }
    }

    /// All ranges, in key order.
    pub fn iter(&self) -> impl Iterator<Item = RangeDelete> + '_ {
        self.ranges.iter().map(|(lo, (hi, msn))| RangeDelete {
            msn: *msn,
            lo: lo.clone(),
            hi: hi.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_younger_range_has_the_keys() {
        let mut seed = 3u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let mut set = RangeSet::default();
            let mut plain = [None; 40];
            for msn in 1..12 {
                let lo = random(39) as u8;
                let hi = lo + 1 + random(39 - u64::from(lo)) as u8;
                if msn % 5 == 0 {
                    set.cut(&[lo], Some(&[hi]));
                    plain[lo as usize..hi as usize].fill(None);
                } else {
                    let range = RangeDelete {
                        msn: Msn(msn),
                        lo: Key::copied(&[lo]),
                        hi: Key::copied(&[hi]),
                    };
                    set.insert(range);
                    plain[lo as usize..hi as usize].fill(Some(Msn(msn)));
                }
            }
            for key in 0..40u8 {
                assert_eq!(set.covering(&[key]), plain[key as usize]);
            }
            let (lo, hi) = (random(20) as u8, 20 + random(20) as u8);
            for share in set.clip(&[lo], Some(&[hi])) {
                assert!(share.lo[0] >= lo && share.hi[0] <= hi && share.lo < share.hi);
                (share.lo[0]..share.hi[0])
                    .for_each(|key| assert_eq!(plain[key as usize], Some(share.msn)));
            }
        }
    }
}
