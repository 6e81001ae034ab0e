//! The changes of a field's bytes.

use std::fmt;

use crate::explore::Random;

/// A change of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Sets all bits to 0.
    Zero,
    /// Sets all bits to 1.
    Ones,
    /// Flips the lowest bit of the first byte.
    FirstBit,
    /// Flips the lowest bit of the middle byte.
    MiddleBit,
    /// Flips the highest bit of the last byte.
    LastBit,
    /// Increments a little-endian number; wraps around.
    Add,
    /// Decrements a little-endian number; wraps around.
    Sub,
    /// Replaces them by pseudo-random bytes from this seed.
    Random(u64),
}

impl Verb {
    /// All changes.
    pub fn all(seed: u64) -> [Verb; 8] {
        [
            Verb::Zero,
            Verb::Ones,
            Verb::FirstBit,
            Verb::MiddleBit,
            Verb::LastBit,
            Verb::Add,
            Verb::Sub,
            Verb::Random(seed),
        ]
    }

    /// Changes `bytes`.
    pub fn apply(self, bytes: &mut [u8]) {
        let (middle, last) = (bytes.len() / 2, bytes.len().saturating_sub(1));
        let flip = |bytes: &mut [u8], at: usize, bit: u8| {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bit;
            }
        };
        match self {
            Verb::Zero => bytes.fill(0),
            Verb::Ones => bytes.fill(0xff),
            Verb::FirstBit => flip(bytes, 0, 1),
            Verb::MiddleBit => flip(bytes, middle, 1),
            Verb::LastBit => flip(bytes, last, 0x80),
            Verb::Add => {
                for byte in bytes {
                    *byte = byte.wrapping_add(1);
                    if *byte != 0 {
                        break;
                    }
                }
            }
            Verb::Sub => {
                for byte in bytes {
                    *byte = byte.wrapping_sub(1);
                    if *byte != 0xff {
                        break;
                    }
                }
            }
            Verb::Random(seed) => {
                let random = Random::new(seed).bytes(bytes.len());
                bytes.copy_from_slice(&random);
            }
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Zero => "zero",
            Verb::Ones => "ones",
            Verb::FirstBit => "first-bit",
            Verb::MiddleBit => "middle-bit",
            Verb::LastBit => "last-bit",
            Verb::Add => "add",
            Verb::Sub => "sub",
            Verb::Random(_) => "random",
        })
    }
}
