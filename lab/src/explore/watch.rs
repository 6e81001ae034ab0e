//! A device that is watched while its state is judged.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::devices::{Event, ForkDevice};
use betr_core::device::Device;
use betr_core::ids::BLOCK_SIZE;

/// A disk that records which blocks were read, and the writes of a recovery.
pub(super) struct Watch {
    disk: ForkDevice,
    /// One bit a block.
    read: Vec<AtomicU64>,
    touched: AtomicBool,
    events: Mutex<Vec<Event>>,
    recovery: Mutex<Option<Vec<Event>>>,
}

impl Watch {
    pub(super) fn new(disk: ForkDevice) -> Watch {
        let words = disk.len().div_ceil(64 * BLOCK_SIZE as u64);
        let read = (0..words).map(|_| AtomicU64::new(0)).collect();
        let (touched, events, recovery) = Default::default();
        Watch { disk, read, touched, events, recovery }
    }

    /// Whether there was no write and no flush.
    pub(super) fn is_untouched(&self) -> bool {
        !self.touched.load(Ordering::Relaxed)
    }

    /// Marks the writes so far as those of the recovery.
    pub(super) fn end_recovery(&self) {
        let events =
            std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        *self.recovery.lock().unwrap_or_else(PoisonError::into_inner) = Some(events);
    }

    /// The blocks that were read, one bit each.
    pub(super) fn read_set(&self) -> Vec<u64> {
        self.read.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// The writes of the recovery, if it was completed.
    pub(super) fn take_recovery(&self) -> Option<Vec<Event>> {
        self.recovery.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn push(&self, event: Event) {
        self.touched.store(true, Ordering::Relaxed);
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Device for Watch {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, buf)?;
        let (first, end) =
            (at / BLOCK_SIZE as u64, (at + buf.len() as u64).div_ceil(BLOCK_SIZE as u64));
        for block in first..end {
            self.read[(block / 64) as usize].fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(at, bytes)?;
        self.push(Event::Write(at, bytes.into()));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.push(Event::Flush);
        Ok(())
    }
}
