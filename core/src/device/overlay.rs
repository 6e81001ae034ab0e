//! A copy-on-write view: writes stay in memory, and the base device is never written.
//!
//! It allows a log to be replayed, or a repair to be tried, on a read-only image.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use super::{Device, checked_end, pieces};
use crate::ids::BLOCK_SIZE;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A base device, and the blocks that differ from it.
pub struct OverlayDevice {
    base: Arc<dyn Device>,
    blocks: RwLock<HashMap<u64, Box<[u8; BLOCK_SIZE]>>>,
}

impl OverlayDevice {
    /// A view of `base` without differences.
    pub fn new(base: Arc<dyn Device>) -> OverlayDevice {
        OverlayDevice { base, blocks: RwLock::default() }
    }

    /// A block of the base; zeros past its end.
    fn base_block(&self, block: u64) -> io::Result<Box<[u8; BLOCK_SIZE]>> {
        let mut bytes = Box::new([0; BLOCK_SIZE]);
        let len = BLOCK.min(self.base.len().saturating_sub(block * BLOCK)) as usize;
        self.base.read_at(block * BLOCK, &mut bytes[..len])?;
        Ok(bytes)
    }
}

impl Device for OverlayDevice {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        checked_end(at, buf.len(), self.len())?;
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        self.base.read_at(at, buf)?;
        if blocks.is_empty() {
            return Ok(());
        }
        for (block, within, range) in pieces(at, buf.len()) {
            if let Some(bytes) = blocks.get(&block) {
                buf[range].copy_from_slice(&bytes[within]);
            }
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        checked_end(at, bytes.len(), self.len())?;
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        for (block, within, range) in pieces(at, bytes.len()) {
            let mut copy = match blocks.remove(&block) {
                Some(copy) => copy,
                None => self.base_block(block)?,
            };
            copy[within].copy_from_slice(&bytes[range]);
            blocks.insert(block, copy);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn advise_will_need(&self, at: u64, len: u64) {
        self.base.advise_will_need(at, len);
    }

    fn requires_serial_io(&self) -> bool {
        self.base.requires_serial_io()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    #[test]
    fn writes_stay_above() {
        let base =
            Arc::new(MemoryDevice::from((0..20_000u32).map(|i| i as u8).collect::<Vec<_>>()));
        let before = base.snapshot();
        let view = OverlayDevice::new(base.clone());
        view.write_at(4000, &[0xee; 5000]).unwrap();
        view.write_at(19_999, &[0xdd]).unwrap();
        assert!(view.write_at(19_999, &[1, 2]).is_err());
        let mut all = vec![0; 20_000];
        view.read_at(0, &mut all).unwrap();
        let mut expected = before.clone();
        expected[4000..9000].fill(0xee);
        expected[19_999] = 0xdd;
        assert_eq!(all, expected);
        assert_eq!(base.snapshot(), before);
    }
}
