//! Filters: Bloom filters of the keys that a slice has messages for, with fourteen bits for each key.
//!
//! The filter of *n* keys has 8·⌈14·*n* / 8⌉ bits, numbered from the lowest of each byte. For each key ten of them are
//! set. *a* is the lower half and *b* the upper half of the XXH64 hash of the key (seed 0). Bit *i* of the ten is ((*a*
//! + *i*·*b*) mod 2³²) · bits / 2³², rounded down. The false-positive rate is 0.1 to 0.2 %.

use xxhash_rust::xxh64::xxh64;

const BITS_PER_KEY: usize = 14;
const PROBES: u32 = 10;

/// The hash of a key, to be looked up in filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe(u64);

impl Probe {
    /// The hash of `key`.
    pub fn of(key: &[u8]) -> Probe {
        Probe(xxh64(key, 0))
    }

    fn bits(self, filter: usize) -> impl Iterator<Item = (usize, u8)> {
        let (a, b) = (self.0 as u32, (self.0 >> 32) as u32);
        (0..PROBES).map(move |i| {
            let hash = a.wrapping_add(i.wrapping_mul(b));
            let bit = (u64::from(hash) * (8 * filter as u64)) >> 32;
            (bit as usize / 8, 1 << (bit % 8))
        })
    }

    /// Whether a slice with this filter may have the key.
    pub fn may_be_in(self, filter: &[u8]) -> bool {
        self.bits(filter.len()).all(|(at, bit)| filter.get(at).is_some_and(|byte| byte & bit != 0))
    }
}

/// The length of the filter of `keys` keys, in bytes.
pub fn filter_bytes(keys: usize) -> usize {
    (BITS_PER_KEY * keys).div_ceil(8)
}

/// Appends the filter of `count` keys.
pub fn push_filter<'k>(filters: &mut Vec<u8>, keys: impl Iterator<Item = &'k [u8]>, count: usize) {
    let start = filters.len();
    filters.resize(start + filter_bytes(count), 0);
    let filter = &mut filters[start..];
    for key in keys {
        Probe::of(key).bits(filter.len()).for_each(|(at, bit)| filter[at] |= bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_and_little_else() {
        for count in [1usize, 2, 30, 1000] {
            let key = |n: usize| (n as u64).to_be_bytes();
            let keys: Vec<_> = (0..count).map(key).collect();
            let mut filter = Vec::new();
            push_filter(&mut filter, keys.iter().map(|key| &key[..]), count);
            assert_eq!(filter.len(), filter_bytes(count));
            assert!(keys.iter().all(|key| Probe::of(key).may_be_in(&filter)));
            let others = (count..count + 10_000).map(key);
            let wrong = others.filter(|key| Probe::of(key).may_be_in(&filter)).count();
            println!("{wrong} of 10000 with {count} keys");
            // In the filter of one or two keys, a large part of the bits is set.
            let limit = if count <= 2 { 300 } else { 40 };
            assert!(wrong < limit, "{wrong} of 10000 with {count} keys");
        }
    }
}
