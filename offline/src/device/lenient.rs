//! A view of a device that is no longer whole: what cannot be read reads as zeros, and it is remembered where.
//!
//! Everything in an image verifies by hashes, so zeros are never taken for contents; but whoever asks what there is
//! must ask [`LenientDevice::missing`] as well. It cannot be written to.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use betr_core::device::{Device, checked_end, pieces};
use betr_core::ids::BLOCK_SIZE;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A device below, of which the end may be missing, and of which blocks may not be readable.
pub struct LenientDevice {
    base: Arc<dyn Device>,
    len: u64,
    /// What could not be read: the first byte of each range, and its end. They neither touch nor overlap.
    missing: Mutex<BTreeMap<u64, u64>>,
}

impl LenientDevice {
    /// A view of `len` bytes, which may be more or less than `base` has.
    pub fn new(base: Arc<dyn Device>, len: u64) -> LenientDevice {
        let end = base.len();
        let missing = (end < len).then_some((end, len)).into_iter().collect();
        LenientDevice { base, len, missing: Mutex::new(missing) }
    }

    /// What could not be read so far, in order: the end that is not there, and blocks that somebody has tried.
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.lock().iter().map(|(start, end)| *start..*end).collect()
    }

    /// Whether a part of these bytes could not be read.
    pub fn misses(&self, bytes: &Range<u64>) -> bool {
        let missing = self.lock();
        missing.range(..bytes.end).next_back().is_some_and(|(_, end)| *end > bytes.start)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn miss(&self, mut bytes: Range<u64>) {
        let mut missing = self.lock();
        while let Some((start, end)) = missing.range(..=bytes.end).next_back()
            && *end >= bytes.start
        {
            let start = *start;
            bytes = bytes.start.min(start)..bytes.end.max(*end);
            missing.remove(&start);
        }
        missing.insert(bytes.start, bytes.end);
    }

    /// Reads what lies in one block.
    fn read_piece(&self, at: u64, buf: &mut [u8]) {
        let there = self.base.len().saturating_sub(at).min(buf.len() as u64) as usize;
        let (there, beyond) = buf.split_at_mut(there);
        beyond.fill(0);
        let range = at..at + there.len() as u64;
        // What has failed once is not tried again: a failing disk takes its time.
        let failed = there.is_empty() || self.misses(&range);
        if failed || self.base.read_at(at, there).is_err() {
            there.fill(0);
            if !failed {
                let block = at / BLOCK * BLOCK;
                self.miss(block..(block + BLOCK).min(self.base.len()));
            }
        }
    }
}

impl Device for LenientDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = checked_end(at, buf.len(), self.len)?;
        if !self.misses(&(at..end)) && self.base.read_at(at, buf).is_ok() {
            return Ok(());
        }
        for (block, within, range) in pieces(at, buf.len()) {
            self.read_piece(block * BLOCK + within.start as u64, &mut buf[range]);
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the image is only read"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        Ok(self.base.next_data(at)?.filter(|at| *at < self.len))
    }

    fn will_read(&self, at: u64, len: u64) {
        self.base.will_read(at, len.min(self.base.len().saturating_sub(at)));
    }

    fn wants_order(&self) -> bool {
        self.base.wants_order()
    }
}
