//! The keys, values and updates of the work, all of them computed from a seed.
//!
//! Nothing is stored that would have to be looked up: key number `i` is a bijective mix of `i`, so
//! random order needs no list, and what belongs to a key can be verified at any time.

use anyhow::{Result, ensure};

/// Length of a key.
pub const KEY_BYTES: usize = 16;
/// Length of a value.
pub const VALUE_BYTES: usize = 100;
/// Length of what an update overwrites.
pub const PATCH_BYTES: usize = 4;
/// Where in the value an update overwrites.
pub const PATCH_OFFSET: usize = 8;
/// Operations that are handed over together, and durable together.
pub const BATCH: usize = 10_000;
/// Equal slices of the key space; every second one is deleted as a range.
pub const SLICES: u64 = 64;

/// A key: eight bytes that say where it is in the key space, and eight more.
pub type Key = [u8; KEY_BYTES];
/// A value: the number of its key, then bytes that do not compress.
pub type Value = [u8; VALUE_BYTES];
/// The bytes of an update.
pub type Patch = [u8; PATCH_BYTES];

const POOL_BYTES: usize = 1 << 20;

/// In which order of keys the key numbers count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Key numbers are spread over the whole key space.
    Random,
    /// A larger key number is a larger key.
    Ascending,
}

/// All of the work on a number of keys.
pub struct Work {
    keys: u64,
    seed: u64,
    pool: Vec<u8>,
}

impl Work {
    /// The work on `keys` keys that follows from `seed`.
    pub fn new(keys: u64, seed: u64) -> Self {
        let seed = mix(seed);
        let words = (0..POOL_BYTES as u64 / 8).map(|word| mix(seed ^ mix(word)));
        Work { keys, seed, pool: words.flat_map(u64::to_le_bytes).collect() }
    }

    /// The number of keys.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The first eight bytes of a key as a number: its place in the key space.
    fn place(&self, number: u64, order: Order) -> u64 {
        match order {
            Order::Random => mix(number.wrapping_add(self.seed)),
            Order::Ascending => number,
        }
    }

    /// The key of a key number.
    pub fn key(&self, number: u64, order: Order) -> Key {
        let place = self.place(number, order);
        key_of(place, mix(!place))
    }

    /// The value of a key number, as it was inserted.
    pub fn value(&self, number: u64) -> Value {
        let offset = mix(number ^ self.seed.rotate_left(17)) as usize % (POOL_BYTES - VALUE_BYTES);
        let mut value = [0; VALUE_BYTES];
        value.copy_from_slice(&self.pool[offset..offset + VALUE_BYTES]);
        value[..8].copy_from_slice(&number.to_le_bytes());
        value
    }

    /// What an update writes to a key number; the same each time, so that it can be verified
    /// however often the key was updated.
    pub fn patch(&self, number: u64) -> Patch {
        let bytes = mix(number ^ self.seed.rotate_left(31)).to_le_bytes();
        [bytes[0], bytes[1], bytes[2], bytes[3]]
    }

    /// The value of a key number after updates.
    pub fn patched_value(&self, number: u64) -> Value {
        let mut value = self.value(number);
        apply(&mut value, &self.patch(number));
        value
    }

    /// A random key number, the `draw`th of the series that is called `series`.
    pub fn pick(&self, series: u64, draw: u64) -> u64 {
        let random = mix(self.seed ^ mix(series.wrapping_add(1) << 48).wrapping_add(draw));
        ((u128::from(random) * u128::from(self.keys)) >> 64) as u64
    }

    /// The sum of all bytes of all values as they were inserted.
    pub fn sum(&self) -> u64 {
        (0..self.keys).map(|number| sum_of(&self.value(number))).sum()
    }

    /// Where the slice of the key space begins.
    pub fn slice_start(slice: u64) -> Key {
        key_of(slice * (u64::MAX / SLICES + 1), 0)
    }

    /// How many random keys are in slices whose number is odd.
    pub fn in_odd_slices(&self) -> u64 {
        let slice = |number| self.place(number, Order::Random) / (u64::MAX / SLICES + 1);
        (0..self.keys).filter(|number| slice(*number) % 2 == 1).count() as u64
    }
}

/// Overwrites the bytes of a value that an update overwrites.
pub fn apply(value: &mut [u8], patch: &Patch) {
    value[PATCH_OFFSET..PATCH_OFFSET + PATCH_BYTES].copy_from_slice(patch);
}

/// A stored value with an update applied, for engines that have to read it first.
pub fn patched(stored: &[u8], patch: &Patch) -> Result<Value> {
    ensure!(stored.len() == VALUE_BYTES, "a value of {} bytes", stored.len());
    let mut value = [0; VALUE_BYTES];
    value.copy_from_slice(stored);
    apply(&mut value, patch);
    Ok(value)
}

/// The sum of the bytes.
pub fn sum_of(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>().into()
}

fn key_of(place: u64, rest: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&place.to_be_bytes());
    key[8..].copy_from_slice(&rest.to_be_bytes());
    key
}

/// Mixes the bits of a number. Every step can be undone, so no two numbers give the same.
fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits = (bits ^ (bits >> 29)).wrapping_mul(0xa076_1d64_78bd_642f);
    bits ^ (bits >> 32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_keys_are_the_same() {
        let work = Work::new(50_000, 1);
        let keys: BTreeSet<_> = (0..50_000).map(|number| work.key(number, Order::Random)).collect();
        assert_eq!(keys.len(), 50_000);
    }

    #[test]
    fn random_keys_are_spread_evenly_and_ascending_keys_ascend() {
        let work = Work::new(100_000, 2);
        let odd = work.in_odd_slices();
        assert!((49_000..51_000).contains(&odd), "{odd}");
        let ascending = (0..1000).map(|number| work.key(number, Order::Ascending));
        assert!(ascending.is_sorted());
    }

    #[test]
    fn slices_divide_the_key_space() {
        assert_eq!(Work::slice_start(0), [0; KEY_BYTES]);
        assert_eq!(Work::slice_start(63)[0], 0xfc);
        let work = Work::new(10_000, 3);
        let odd = (0..10_000).filter(|number| {
            let key = work.key(*number, Order::Random);
            (0..32).any(|pair| {
                let from = Work::slice_start(2 * pair + 1);
                key >= from && (pair == 31 || key < Work::slice_start(2 * pair + 2))
            })
        });
        assert_eq!(odd.count() as u64, work.in_odd_slices());
    }

    #[test]
    fn another_seed_is_other_work() {
        let (one, two) = (Work::new(10, 1), Work::new(10, 2));
        assert_ne!(one.key(0, Order::Random), two.key(0, Order::Random));
        assert_ne!(one.value(0), two.value(0));
        assert_eq!(one.value(7), Work::new(10, 1).value(7));
    }

    #[test]
    fn updates_change_four_bytes() {
        let work = Work::new(10, 1);
        let (before, after) = (work.value(3), work.patched_value(3));
        assert_eq!(before[..8], after[..8]);
        assert_ne!(before[8..12], after[8..12]);
        assert_eq!(before[12..], after[12..]);
        assert_eq!(patched(&before, &work.patch(3)).unwrap(), after);
        assert!(patched(&before[1..], &work.patch(3)).is_err());
    }

    #[test]
    fn picks_are_of_all_keys() {
        let work = Work::new(100, 1);
        let picked: BTreeSet<_> = (0..2000).map(|draw| work.pick(0, draw)).collect();
        assert_eq!(picked, (0..100).collect());
        assert!((0..2000).any(|draw| work.pick(0, draw) != work.pick(1, draw)));
    }
}
