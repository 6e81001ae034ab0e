//! Free blocks. A summary of each region of 4,096 blocks makes it possible to find a long enough free extent without a
//! scan of the bitmap, however full the volume is.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Bitmap;

/// 4,096 blocks, 16 MiB: a region. Its 512 bytes of bits are scanned again after each change.
const REGION: u64 = 4096;

/// Summary of the free blocks of one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summary {
    /// Length of the free extent at its start.
    first: u16,
    /// Length of its longest free extent.
    longest: u16,
    /// Length of the free extent at its end.
    last: u16,
}

/// The free blocks; all others are *busy*.
pub(super) struct Free {
    busy: Bitmap,
    regions: Vec<Summary>,
    /// The regions with free blocks, by their longest free extent.
    by_longest: BTreeSet<(u16, u32)>,
}

impl Free {
    /// All blocks free except the busy ones.
    pub(super) fn all_but(busy: Bitmap) -> Free {
        let mut free = Free { busy, regions: Vec::new(), by_longest: BTreeSet::new() };
        free.sum_up(0..free.busy.len());
        free
    }

    /// The busy blocks.
    pub(super) fn busy(&self) -> &Bitmap {
        &self.busy
    }

    /// Grows to `blocks` blocks; the new ones are free.
    pub(super) fn grow(&mut self, blocks: u64) {
        let before = self.busy.len();
        self.busy.grow(blocks);
        self.sum_up(before.saturating_sub(1)..self.busy.len());
    }

    /// Number of free blocks.
    pub(super) fn count(&self) -> u64 {
        self.busy.clear_count()
    }

    /// Makes blocks busy.
    pub(super) fn take(&mut self, start: u64, blocks: u64) {
        if self.busy.set(start, blocks) > 0 {
            self.sum_up(start..start + blocks);
        }
    }

    /// Makes blocks free.
    pub(super) fn give(&mut self, start: u64, blocks: u64) {
        if self.busy.clear(start, blocks) > 0 {
            self.sum_up(start..start + blocks);
        }
    }

    /// The first free extent of `blocks` blocks at or after `from`.
    pub(super) fn first_fit(&self, from: u64, blocks: u64) -> Option<u64> {
        let mut region = from / REGION;
        // Length of the free extent that ends at the start of the region.
        let mut before = 0;
        let end = self.busy.len();
        while from.max(region * REGION) < end {
            let whole = self.extent(region);
            let is_first = from > whole.start;
            let within = from.max(whole.start)..whole.end;
            let summary = match is_first {
                true => sum_up(&self.busy, within.clone()),
                false => self.regions[region as usize],
            };
            if before > 0 && before + u64::from(summary.first) >= blocks {
                return Some(within.start - before);
            }
            if u64::from(summary.longest) >= blocks {
                return self.busy.find_clear(within.start, blocks);
            }
            let is_free = u64::from(summary.last) == within.end - within.start;
            before = u64::from(summary.last) + if is_free { before } else { 0 };
            region += 1;
        }
        None
    }

    /// A free extent of at least `blocks` blocks, and few more. Of the regions whose longest free extent is long
    /// enough, takes the one where it is shortest; in that region, the shortest extent that is long enough.
    pub(super) fn best_fit(&self, blocks: u64) -> Option<u64> {
        let least = u16::try_from(blocks).ok().filter(|least| u64::from(*least) <= REGION);
        match least.and_then(|least| self.by_longest.range((least, 0)..).next()) {
            Some((_, region)) => {
                let stretches =
                    self.stretches(u64::from(*region)).filter(|(_, count)| *count >= blocks);
                stretches.min_by_key(|(_, count)| *count).map(|(start, _)| self.beginning(start))
            }
            // A free extent may cross regions.
            None => self.first_fit(0, blocks),
        }
    }

    /// The start of the free extent that contains a block, which must be the first of its part in the region.
    /// Allocating from the start leaves the rest of the extent in one piece.
    fn beginning(&self, block: u64) -> u64 {
        let mut start = block;
        while start > 0 && start.is_multiple_of(REGION) {
            let before = u64::from(self.regions[(start / REGION - 1) as usize].last);
            if before == 0 {
                break;
            }
            start -= before;
        }
        start
    }

    /// The longest free extent within one region, and its length; of several the first.
    pub(super) fn longest_extent(&self) -> Option<(u64, u64)> {
        let (longest, _) = self.by_longest.last()?;
        let (_, region) = self.by_longest.range((*longest, 0)..).next()?;
        self.stretches(u64::from(*region)).max_by_key(|(start, count)| (*count, u64::MAX - start))
    }

    /// Panics if the summaries are wrong.
    pub(super) fn check_invariants(&self) {
        self.busy.check_invariants();
        let mut longest = BTreeSet::new();
        for (region, summary) in (0..).zip(&self.regions) {
            assert_eq!(
                *summary,
                sum_up(&self.busy, self.extent(region)),
                "sums of region {region}"
            );
            if summary.longest > 0 {
                longest.insert((summary.longest, region as u32));
            }
        }
        assert_eq!(self.regions.len() as u64, self.busy.len().div_ceil(REGION), "regions");
        assert_eq!(self.by_longest, longest, "regions by their longest stretches");
    }

    fn extent(&self, region: u64) -> Range<u64> {
        region * REGION..((region + 1) * REGION).min(self.busy.len())
    }

    /// The parts of free extents in a region: start and length.
    fn stretches(&self, region: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.busy.clear_runs(self.extent(region))
    }

    /// Updates the summaries of the regions of these blocks.
    fn sum_up(&mut self, blocks: Range<u64>) {
        self.regions.resize(self.busy.len().div_ceil(REGION) as usize, Summary::default());
        if blocks.is_empty() {
            return;
        }
        for region in blocks.start / REGION..=(blocks.end - 1) / REGION {
            let now = sum_up(&self.busy, self.extent(region));
            let before = std::mem::replace(&mut self.regions[region as usize], now);
            if before.longest != now.longest {
                self.by_longest.remove(&(before.longest, region as u32));
                if now.longest > 0 {
                    self.by_longest.insert((now.longest, region as u32));
                }
            }
        }
    }
}

/// The summary of these blocks, at most one region.
fn sum_up(busy: &Bitmap, blocks: Range<u64>) -> Summary {
    let (mut stretch, mut longest, mut first) = (0, 0, None);
    for (free, bits) in busy.clear_words(blocks) {
        let lead = free.trailing_ones();
        stretch += lead;
        if lead == bits {
            continue;
        }
        first.get_or_insert(stretch);
        longest = longest.max(stretch).max(longest_ones(free));
        stretch = (free << (64 - bits)).leading_ones();
    }
    let of = |count: u32| count as u16;
    Summary {
        first: of(first.unwrap_or(stretch)),
        longest: of(longest.max(stretch)),
        last: of(stretch),
    }
}

/// The length of the longest run of ones.
fn longest_ones(mut word: u64) -> u32 {
    let mut count = 0;
    while word != 0 {
        word &= word << 1;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutation::assert_caught;

    struct Lcg(u64);

    impl Lcg {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % n
        }
    }

    #[test]
    fn what_does_not_agree_is_noticed() {
        let sound = || {
            let mut free = Free::all_but(Bitmap::new(3 * REGION + 100));
            free.take(10, 2 * REGION);
            free.check_invariants();
            free
        };
        assert_caught(
            sound,
            Free::check_invariants,
            &[
                ("a stretch that is not there", |free| free.regions[1].longest = 1),
                ("a stretch that is not counted", |free| free.regions[3].last = 0),
                ("a region that is not listed", |free| free.by_longest.clear()),
                ("a block that was taken unseen", |free| {
                    assert_eq!(free.busy.set(3 * REGION, 1), 1)
                }),
            ],
        );
    }

    #[test]
    fn rows_are_those_of_a_plain_search() {
        for seed in 0..60 {
            let mut random = Lcg(seed);
            let len = 1 + random.below(4 * REGION);
            let mut free = Free::all_but(Bitmap::new(len));
            let longest = 1 + random.below([3, 70, 3000][seed as usize % 3]);
            for _ in 0..random.below(6 * REGION / longest) {
                let start = random.below(len);
                let count = (1 + random.below(longest)).min(len - start);
                match random.below(3) {
                    0 => free.give(start, count),
                    _ => free.take(start, count),
                }
            }
            if seed % 4 == 0 {
                free.grow(len + 1 + random.below(REGION));
            }
            free.check_invariants();
            for _ in 0..50 {
                let (from, count) = (random.below(len + 10), 1 + random.below(2 * longest));
                let found = free.first_fit(from, count);
                assert_eq!(found, free.busy().find_clear(from, count), "{count} from {from}");
                let fits = |start: &u64| free.busy().find_clear(*start, count) == Some(*start);
                let shortest = free.best_fit(count);
                assert_eq!(shortest.is_some(), free.busy().find_clear(0, count).is_some());
                assert!(shortest.iter().all(fits), "{count} at {shortest:?}");
            }
            let (_, longest) = free.longest_extent().unwrap_or_default();
            let pieces = (0..free.regions.len() as u64).flat_map(|region| free.stretches(region));
            assert_eq!(longest, pieces.map(|(_, count)| count).max().unwrap_or(0));
        }
    }

    #[test]
    fn a_short_row_is_taken_before_a_long_one() {
        let mut free = Free::all_but(Bitmap::new(4 * REGION));
        free.take(0, 4 * REGION);
        for (start, count) in [(100, 40), (REGION + 7, 9), (2 * REGION - 2, 4), (3 * REGION, 12)] {
            free.give(start, count);
        }
        assert_eq!(free.best_fit(3), Some(REGION + 7));
        assert_eq!(free.best_fit(10), Some(3 * REGION));
        assert_eq!(free.best_fit(41), None);
        free.give(2 * REGION + 2, 38);
        assert_eq!(free.best_fit(42), Some(2 * REGION - 2), "over the end of a region");
        assert_eq!(free.longest_extent(), Some((100, 40)), "the first of two");
    }

    #[test]
    fn what_is_taken_leaves_the_rest_of_a_row_in_one_piece() {
        let mut free = Free::all_but(Bitmap::new(4 * REGION));
        free.take(0, 4 * REGION);
        free.give(REGION - 10, 110);
        for (count, start) in [(60, REGION - 10), (50, REGION + 50)] {
            assert_eq!(free.best_fit(count), Some(start));
            free.take(start, count);
        }
        free.give(REGION - 10, 2 * REGION + 20);
        assert_eq!(free.best_fit(REGION), Some(REGION - 10), "through a region that is free");
    }
}
