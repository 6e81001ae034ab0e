//! The inode numbers seen so far: a sparse bitmap. Dense numbers take little more than a bit each, and isolated ones at
//! most a row.

use std::collections::HashMap;

use crate::ids::Ino;

/// Words of 64 bits in an entry of the map.
const WORDS: usize = 8;
/// Inode numbers of an entry of the map.
const ROW: u64 = 64 * WORDS as u64;

/// A set of inode numbers.
#[derive(Default)]
pub(super) struct Numbers(HashMap<u64, [u64; WORDS]>);

impl Numbers {
    /// A set of these numbers.
    pub(super) fn of<const N: usize>(numbers: [Ino; N]) -> Numbers {
        let mut all = Numbers::default();
        for number in numbers {
            all.insert(number);
        }
        all
    }

    /// Number of rows, of 100 bytes each.
    pub(super) fn rows(&self) -> usize {
        self.0.len()
    }

    /// Adds a number; returns false if it is in the set already.
    pub(super) fn insert(&mut self, number: Ino) -> bool {
        let row = self.0.entry(number.0 / ROW).or_default();
        let (at, bit) = ((number.0 % ROW / 64) as usize, 1 << (number.0 % 64));
        let is_new = row[at] & bit == 0;
        row[at] |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_new_once() {
        let mut numbers = Numbers::of([Ino(1)]);
        for number in [0, 63, 64, 511, 512, 1 << 61, u64::MAX] {
            assert!(numbers.insert(Ino(number)), "{number}");
            assert!(!numbers.insert(Ino(number)), "{number}");
        }
        assert!(!numbers.insert(Ino(1)));
    }
}
