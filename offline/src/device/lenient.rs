//! A view of a damaged device: unreadable ranges read as zeros, and are recorded.
//!
//! Everything in an image is verified by hashes, so zeros are never taken for contents. But a search for what exists
//! must ask [`LenientDevice::missing`] as well. The view is read-only.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use betr_core::device::{Device, checked_end, pieces};
use betr_core::ids::BLOCK_SIZE;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A base device whose end may be missing, and some of whose blocks may be unreadable.
pub struct LenientDevice {
    base: Arc<dyn Device>,
    len: u64,
    /// Unreadable ranges: the first byte of each, and its end. They neither touch nor overlap.
    missing: Mutex<BTreeMap<u64, u64>>,
}

impl LenientDevice {
    /// A view of `len` bytes, which may be more or less than `base` has.
    pub fn new(base: Arc<dyn Device>, len: u64) -> LenientDevice {
        let end = base.len();
        let missing = (end < len).then_some((end, len)).into_iter().collect();
        LenientDevice { base, len, missing: Mutex::new(missing) }
    }

    /// The unreadable ranges so far, in order: the missing end, and blocks whose reads failed.
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.lock().iter().map(|(start, end)| *start..*end).collect()
    }

    /// Whether a part of these bytes is unreadable.
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

    /// Reads a range within one block.
    fn read_piece(&self, at: u64, buf: &mut [u8]) {
        let there = self.base.len().saturating_sub(at).min(buf.len() as u64) as usize;
        let (there, beyond) = buf.split_at_mut(there);
        beyond.fill(0);
        let range = at..at + there.len() as u64;
        // A failed read is not repeated: a failing disk is slow.
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

    fn advise_will_need(&self, at: u64, len: u64) {
        self.base.advise_will_need(at, len.min(self.base.len().saturating_sub(at)));
    }

    fn requires_serial_io(&self) -> bool {
        self.base.requires_serial_io()
    }
}
