//! A device that records writes and flushes in order.
//!
//! All states that a power cut may leave can be built from its events.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use betr_core::device::Device;

/// Something that reached the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written at a position.
    Write(u64, Arc<[u8]>),
    /// All earlier writes became durable.
    Flush,
}

/// A base device, and its events so far.
pub struct RecordingDevice {
    base: Arc<dyn Device>,
    events: Mutex<Vec<Event>>,
}

impl RecordingDevice {
    /// Records the events of `base`.
    pub fn new(base: Arc<dyn Device>) -> RecordingDevice {
        RecordingDevice { base, events: Mutex::default() }
    }

    /// Number of events so far.
    pub fn position(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn push(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Device for RecordingDevice {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.base.read_at(at, buf)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.base.write_at(at, bytes)?;
        self.push(Event::Write(at, bytes.into()));
        Ok(())
    }

    /// Recorded as a write of zeros, which may arrive or not, like any write.
    fn punch(&self, at: u64, len: u64) -> io::Result<bool> {
        self.write_at(at, &vec![0; len as usize])?;
        Ok(true)
    }

    fn flush(&self) -> io::Result<()> {
        self.base.flush()?;
        self.push(Event::Flush);
        Ok(())
    }
}
