//! A device that records which bytes were read.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use betr_core::device::Device;

/// A base device, and the ranges read so far.
pub struct NotingDevice {
    base: Arc<dyn Device>,
    /// The first byte of each range, and its end. They neither touch nor overlap.
    read: Mutex<BTreeMap<u64, u64>>,
}

impl NotingDevice {
    /// Records reads of `base`.
    pub fn new(base: Arc<dyn Device>) -> NotingDevice {
        NotingDevice { base, read: Mutex::default() }
    }

    /// The ranges read so far, in order.
    pub fn read(&self) -> Vec<Range<u64>> {
        self.lock().iter().map(|(start, end)| *start..*end).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, mut bytes: Range<u64>) {
        let mut read = self.lock();
        while let Some((start, end)) = read.range(..=bytes.end).next_back()
            && *end >= bytes.start
        {
            let start = *start;
            bytes = bytes.start.min(start)..bytes.end.max(*end);
            read.remove(&start);
        }
        read.insert(bytes.start, bytes.end);
    }
}

impl Device for NotingDevice {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.base.read_at(at, buf)?;
        if !buf.is_empty() {
            self.note(at..at + buf.len() as u64);
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.base.write_at(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.base.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use betr_core::device::MemoryDevice;

    #[test]
    fn what_is_read_is_known_once() {
        let device = NotingDevice::new(Arc::new(MemoryDevice::new(10_000)));
        for (at, len) in [(0, 10), (100, 50), (10, 5), (140, 20), (300, 0), (90, 80)] {
            device.read_at(at, &mut vec![0; len]).unwrap();
        }
        assert!(device.read_at(9_999, &mut [0; 2]).is_err());
        assert_eq!(device.read(), [0..15, 90..170]);
    }
}
