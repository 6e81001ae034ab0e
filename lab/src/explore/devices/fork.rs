//! A device of shared blocks: a fork is cheap, and writes to one are not visible in another.
//!
//! Each block caches its hash, so the digest of a whole disk costs only the hashes of changed blocks.

use std::io;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use betr_core::device::{Device, checked_end, pieces};
use betr_core::ids::{BLOCK_SIZE, Hash};

/// A block, whose hash is computed at most once.
pub struct Block {
    bytes: [u8; BLOCK_SIZE],
    digest: OnceLock<u128>,
}

/// Whole blocks in memory; all zero at first.
pub struct ForkDevice {
    blocks: RwLock<Vec<Arc<Block>>>,
}

impl Block {
    /// A block of these bytes.
    pub fn new(bytes: &[u8; BLOCK_SIZE]) -> Block {
        Block { bytes: *bytes, digest: OnceLock::new() }
    }

    /// Half of the hash of the bytes.
    pub fn digest(&self) -> u128 {
        *self.digest.get_or_init(|| {
            let Hash(hash) = Hash::of(&self.bytes);
            u128::from_le_bytes(std::array::from_fn(|at| hash[at]))
        })
    }
}

/// The contribution of a block with this digest and number to the digest of its disk.
pub fn placed(number: usize, digest: u128) -> u128 {
    digest.wrapping_mul(2 * number as u128 + 1)
}

impl ForkDevice {
    /// A device of `blocks` zero blocks.
    pub fn new(blocks: usize) -> ForkDevice {
        let zero = Arc::new(Block::new(&[0; BLOCK_SIZE]));
        ForkDevice { blocks: RwLock::new(vec![zero; blocks]) }
    }

    /// A copy of bytes, in whole blocks.
    pub fn of(bytes: &[u8]) -> ForkDevice {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_SIZE>();
        assert!(rest.is_empty(), "whole blocks");
        let blocks = blocks.iter().map(|block| Arc::new(Block::new(block))).collect();
        ForkDevice { blocks: RwLock::new(blocks) }
    }

    /// A copy of the device that changes independently.
    pub fn fork(&self) -> ForkDevice {
        ForkDevice { blocks: RwLock::new(self.blocks()) }
    }

    /// All blocks.
    pub fn blocks(&self) -> Vec<Arc<Block>> {
        self.blocks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces a block.
    pub fn put(&self, number: usize, block: Arc<Block>) {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner)[number] = block;
    }

    /// A digest of the whole disk.
    pub fn digest(&self) -> u128 {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        let placed = blocks.iter().enumerate().map(|(at, block)| placed(at, block.digest()));
        placed.fold(0, u128::wrapping_add)
    }

    /// Writes the blocks that differ from `before` to `device`.
    pub fn write_difference(&self, device: &dyn Device, before: &ForkDevice) -> io::Result<()> {
        for (number, (wanted, had)) in self.blocks().iter().zip(before.blocks()).enumerate() {
            if wanted.bytes != had.bytes {
                device.write_at((number * BLOCK_SIZE) as u64, &wanted.bytes)?;
            }
        }
        Ok(())
    }

    /// The bytes of the whole disk.
    pub fn snapshot(&self) -> Vec<u8> {
        self.blocks().iter().flat_map(|block| block.bytes).collect()
    }
}

impl Device for ForkDevice {
    fn len(&self) -> u64 {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner).len();
        (blocks * BLOCK_SIZE) as u64
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        checked_end(at, buf.len(), (blocks.len() * BLOCK_SIZE) as u64)?;
        for (number, within, range) in pieces(at, buf.len()) {
            buf[range].copy_from_slice(&blocks[number as usize].bytes[within]);
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        checked_end(at, bytes.len(), (blocks.len() * BLOCK_SIZE) as u64)?;
        for (number, within, range) in pieces(at, bytes.len()) {
            let shared = &mut blocks[number as usize];
            let mut block = shared.bytes;
            block[within].copy_from_slice(&bytes[range]);
            *shared = Arc::new(Block::new(&block));
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_goes_its_own_way() {
        let first = ForkDevice::new(4);
        first.write_at(4000, &[7; 5000]).unwrap();
        let second = first.fork();
        assert_eq!(first.digest(), second.digest());
        second.write_at(16_383, &[1]).unwrap();
        assert!(second.write_at(16_383, &[1, 2]).is_err());
        assert_ne!(first.digest(), second.digest());
        let mut expected = vec![0; 16_384];
        expected[4000..9000].fill(7);
        assert_eq!(first.snapshot(), expected);
        expected[16_383] = 1;
        assert_eq!(second.snapshot(), expected);
        second.write_at(16_383, &[0]).unwrap();
        assert_eq!(first.digest(), second.digest());
    }

    #[test]
    fn a_digest_depends_on_places() {
        let (first, second) = (ForkDevice::new(2), ForkDevice::new(2));
        first.write_at(0, &[1]).unwrap();
        second.write_at(4096, &[1]).unwrap();
        assert_ne!(first.digest(), second.digest());
    }
}
