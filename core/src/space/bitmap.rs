//! A bitmap over blocks, with a search for clear runs.

use std::ops::Range;

/// A bitmap with one bit for each block.
#[derive(Clone, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    len: u64,
    set: u64,
}

impl Bitmap {
    /// A bitmap of `len` clear bits.
    pub fn new(len: u64) -> Bitmap {
        Bitmap { words: vec![0; len.div_ceil(64) as usize], len, set: 0 }
    }

    /// Grows the bitmap to `len` bits; the new ones are clear.
    pub fn grow(&mut self, len: u64) {
        self.words.resize(len.div_ceil(64) as usize, 0);
        self.len = self.len.max(len);
    }

    /// Number of bits.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of set bits.
    pub fn set_count(&self) -> u64 {
        self.set
    }

    /// Panics if the count of set bits is wrong, or if a bit past the end is set.
    pub fn check_invariants(&self) {
        let set: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        assert_eq!(self.set, set, "bits that are set");
        let rest = self.words.last().filter(|_| !self.len.is_multiple_of(64));
        assert!(rest.is_none_or(|word| word >> (self.len % 64) == 0), "a bit behind the last one");
    }

    /// Whether every bit set here is also set in `other`, of the same length.
    pub fn is_within(&self, other: &Bitmap) -> bool {
        let mut words = self.words.iter().zip(&other.words);
        self.len == other.len && words.all(|(own, other)| own & !other == 0)
    }

    /// Number of clear bits.
    pub fn clear_count(&self) -> u64 {
        self.len - self.set
    }

    /// Whether bit `at` is set.
    pub fn get(&self, at: u64) -> bool {
        self.words[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    /// Sets `count` bits; returns how many of them were clear.
    pub fn set(&mut self, start: u64, count: u64) -> u64 {
        let before = self.set;
        self.masks(start, count, |word, mask| {
            let fresh = (mask & !*word).count_ones();
            *word |= mask;
            i64::from(fresh)
        });
        self.set - before
    }

    /// Clears `count` bits; returns how many of them were set.
    pub fn clear(&mut self, start: u64, count: u64) -> u64 {
        let before = self.set;
        self.masks(start, count, |word, mask| {
            let gone = (mask & *word).count_ones();
            *word &= !mask;
            -i64::from(gone)
        });
        before - self.set
    }

    fn masks(&mut self, start: u64, count: u64, mut change: impl FnMut(&mut u64, u64) -> i64) {
        assert!(start + count <= self.len, "blocks within the image");
        let end = start + count;
        let mut at = start;
        while at < end {
            let bit = at % 64;
            let bits = (64 - bit).min(end - at);
            let mask = (u64::MAX >> (64 - bits)) << bit;
            let delta = change(&mut self.words[(at / 64) as usize], mask);
            self.set = self.set.wrapping_add_signed(delta);
            at += bits;
        }
    }

    /// The runs of clear bits in a range: first bit and length.
    pub fn clear_runs(&self, bits: Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        let Range { start: mut at, end } = bits;
        std::iter::from_fn(move || {
            let start = self.find(at..end, u64::MAX)?;
            at = self.find(start..end, 0).unwrap_or(end);
            Some((start, at - start))
        })
    }

    /// The bits of a range by words: ones where bits are clear, zeros past the range, and the number of bits in the
    /// word. Each word is shifted so that its lowest bit is the first bit of the range in it.
    pub fn clear_words(&self, bits: Range<u64>) -> impl Iterator<Item = (u64, u32)> + '_ {
        let Range { start: mut at, end } = bits;
        std::iter::from_fn(move || {
            let (word, shift) = (at / 64, at % 64);
            let count = (64 - shift).min(end.checked_sub(at).filter(|left| *left > 0)?);
            at += count;
            let clear = !self.words[word as usize] >> shift;
            Some((clear & (u64::MAX >> (64 - count)), count as u32))
        })
    }

    /// The runs of set bits: start and length.
    pub fn set_runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let start = self.find_set(from)?;
            from = self.find_clear(start, 1).unwrap_or(self.len);
            Some((start, from - start))
        })
    }

    /// Sets all bits that are set in `other`, as far as this bitmap reaches.
    pub fn join(&mut self, other: &Bitmap) {
        for (start, count) in other.set_runs() {
            let end = (start + count).min(self.len);
            self.set(start.min(end), end - start.min(end));
        }
    }

    /// The first set bit at or after `from`.
    pub fn find_set(&self, from: u64) -> Option<u64> {
        self.find(from..self.len, 0)
    }

    /// The first set bit of a range; with all ones in `flip`, the first clear one.
    fn find(&self, bits: Range<u64>, flip: u64) -> Option<u64> {
        let mut at = bits.start;
        while at < bits.end {
            let word = (self.words[(at / 64) as usize] ^ flip) >> (at % 64);
            if word != 0 {
                let found = at + u64::from(word.trailing_zeros());
                return Some(found).filter(|found| *found < bits.end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The first of `count` consecutive clear bits, at or after `from`.
    pub fn find_clear(&self, from: u64, count: u64) -> Option<u64> {
        let mut start = from;
        let mut at = from;
        while at < self.len && start + count <= self.len {
            let word = self.words[(at / 64) as usize] >> (at % 64);
            let left = 64 - at % 64;
            let clear = u64::from(word.trailing_zeros()).min(left);
            at += clear;
            if at - start >= count {
                return Some(start);
            }
            if clear < left {
                at += u64::from((word >> clear).trailing_ones()).min(left - clear);
                start = at;
            }
        }
        (at.min(self.len) >= start + count && start + count <= self.len).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutation::assert_caught;

    #[test]
    fn what_does_not_agree_is_noticed() {
        let mut sound = Bitmap::new(100);
        sound.set(10, 20);
        sound.check_invariants();
        assert_caught(
            || sound.clone(),
            Bitmap::check_invariants,
            &[
                ("a count that is too large", |bits| bits.set += 1),
                ("a bit behind the last one", |bits| {
                    (bits.words[1], bits.set) = (1 << 63, bits.set + 1)
                }),
            ],
        );
        let mut other = sound.clone();
        assert!(sound.is_within(&other));
        other.clear(12, 1);
        assert!(!sound.is_within(&other) && other.is_within(&sound));
    }

    #[test]
    fn finds_the_first_gap_that_is_wide_enough() {
        let mut bits = Bitmap::new(300);
        assert_eq!(bits.find_clear(0, 300), Some(0));
        assert_eq!(bits.find_clear(0, 301), None);
        assert_eq!(bits.set(0, 10), 10);
        assert_eq!(bits.set(5, 10), 5);
        bits.set(64, 64);
        bits.set(290, 10);
        assert_eq!(bits.find_clear(0, 49), Some(15));
        assert_eq!(bits.find_clear(0, 50), Some(128));
        assert_eq!(bits.find_clear(20, 49), Some(128));
        assert_eq!(bits.find_clear(0, 162), Some(128));
        assert_eq!(bits.find_clear(0, 163), None);
        assert_eq!(bits.clear(60, 10), 6);
        assert_eq!(bits.find_clear(0, 55), Some(15));
        assert_eq!(bits.set_count(), 15 + 58 + 10);
    }

    #[test]
    fn agrees_with_a_plain_search() {
        let mut seed = 7u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..300 {
            let mut bits = Bitmap::new(200);
            let mut plain = [false; 200];
            for _ in 0..random(12) {
                let start = random(200);
                let count = random(30).min(200 - start);
                bits.set(start, count);
                plain[start as usize..(start + count) as usize].fill(true);
            }
            let (from, want) = (random(200) as usize, 1 + random(40) as usize);
            let slow = (from..=200usize.saturating_sub(want))
                .find(|s| !plain[*s..s + want].contains(&true));
            assert_eq!(bits.find_clear(from as u64, want as u64), slow.map(|s| s as u64));
            let runs = plain.split(|set| *set).map(|run| run.len() as u64).filter(|len| *len > 0);
            assert!(bits.clear_runs(0..200).map(|(_, count)| count).eq(runs));
        }
    }
}
