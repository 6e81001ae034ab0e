//! A device with counters, whose errors name a place; and scattered extents on it.

mod buffers;
mod scattered;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::device::Device;
use crate::error::{Error, Place, Result};
use crate::ids::*;
use crate::tuning::{FETCH_MAX, TRIES};
pub(crate) use buffers::class_of;
use buffers::{Buffer, Buffers};
use scattered::Known;
pub use scattered::Scattered;

/// Counts of calls to a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Calls to read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Calls to write.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Calls to flush.
    pub flushes: u64,
}

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
}

/// Positions and lengths, in order.
type Places = SmallVec<[(u64, usize); 1]>;

/// A device with counters, whose errors name a place. Clones share all state.
///
/// Addresses from [`SCATTERED`] blocks on are those of scattered extents. Their maps have the place of each block, and
/// they are read and written like all others.
#[derive(Clone)]
pub struct Disk {
    device: Arc<dyn Device>,
    counters: Arc<Counters>,
    known: Arc<Known>,
    buffers: Arc<Buffers>,
}

impl Disk {
    /// A disk over `device`, with all counts at zero.
    pub fn new(device: Arc<dyn Device>) -> Disk {
        let (counters, known, buffers) = Default::default();
        Disk { device, counters, known, buffers }
    }

    /// A buffer of `len` bytes with arbitrary content, to read into or write from.
    pub fn buffer(&self, len: usize) -> Vec<u8> {
        self.buffers.take(len)
    }

    /// Returns a buffer for reuse.
    pub fn recycle(&self, buffer: Vec<u8>) {
        self.buffers.give(buffer);
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Size of the device, in bytes.
    pub fn len(&self) -> u64 {
        self.device.len()
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.device.is_empty()
    }

    /// Reads `len` bytes at `at`. The caller must have compared `len` with its limit.
    pub fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let places = self.places_to_read(at, len)?;
        // Memory is allocated only for bytes within the device.
        let mut memory = self.buffers.take_exactly(len);
        self.read_places(at, places, &mut memory)?;
        Ok(memory)
    }

    /// As [`Disk::read`], into a reused buffer.
    pub fn read_buffer(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let places = self.places_to_read(at, len)?;
        let mut memory = self.buffer(len);
        self.read_places(at, places, &mut memory)?;
        Ok(memory)
    }

    /// As [`Disk::read`], into shared bytes; the memory is reused when the last of them are dropped.
    pub fn read_shared(&self, at: u64, len: usize) -> Result<Bytes> {
        let places = self.places_to_read(at, len)?;
        let Some(mut buffer) = Buffer::of(&self.buffers, len) else {
            let mut memory = vec![0; len];
            self.read_places(at, places, &mut memory)?;
            return Ok(memory.into());
        };
        self.read_places(at, places, &mut buffer.memory()[..len])?;
        Ok(buffer.share(len))
    }

    /// The places of `len` bytes, all of which must be within the device.
    fn places_to_read(&self, at: u64, len: usize) -> Result<Places> {
        let places = self.places(at, len)?;
        let is_there = |(at, len): &(u64, usize)| {
            at.checked_add(*len as u64).is_some_and(|end| end <= self.len())
        };
        if places.iter().all(is_there) {
            return Ok(places);
        }
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the image");
        Err(Error::read(at, source))
    }

    fn read_places(&self, at: u64, places: Places, mut memory: &mut [u8]) -> Result<()> {
        let failed = |source| Error::read(at, source);
        let mut reads = SmallVec::<[(u64, &mut [u8]); 1]>::new();
        for (at, len) in places {
            self.counters.reads.fetch_add(1, Ordering::Relaxed);
            self.counters.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
            let (part, behind) = memory.split_at_mut(len);
            reads.push((at, part));
            memory = behind;
        }
        tried(|| self.device.read_many(&mut reads)).map_err(failed)
    }

    /// Advises the device that `len` bytes at `at`, as far as they exist, will be read. Does nothing for scattered
    /// extents.
    pub fn advise_will_need(&self, at: u64, len: u64) {
        let len = len.min(FETCH_MAX).min(self.len().saturating_sub(at));
        if len > 0 && BlockNr(at / BLOCK_SIZE as u64).map().is_none() {
            self.device.advise_will_need(at, len);
        }
    }

    /// Advises the device that `len` bytes at `at`, as far as they exist, will not be read soon. Does nothing for
    /// scattered extents.
    pub fn advise_dont_need(&self, at: u64, len: u64) {
        let len = len.min(self.len().saturating_sub(at));
        if len > 0 && BlockNr(at / BLOCK_SIZE as u64).map().is_none() {
            self.device.advise_dont_need(at, len);
        }
    }

    /// Writes `bytes` at `at`.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let failed = |source| Error::Io { op: "write", place: Place::Byte(at), source };
        let mut rest = bytes;
        for (at, len) in self.places(at, bytes.len())? {
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
            self.counters.written_bytes.fetch_add(len as u64, Ordering::Relaxed);
            let (part, behind) = rest.split_at(len);
            tried(|| self.device.write_at(at, part)).map_err(failed)?;
            rest = behind;
        }
        Ok(())
    }

    /// Writes the data that the device holds for lack of space; [`Error::HostFull`] if there still is none.
    pub fn write_deferred(&self) -> Result<()> {
        self.device.write_deferred().map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::HostFull { source },
            _ => Error::Io { op: "write", place: Place::Image, source },
        })
    }

    /// Makes all earlier writes durable. After [`Error::HostFull`] nothing is lost, and the call may be repeated.
    pub fn flush(&self) -> Result<()> {
        self.write_deferred()?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        let failed = |source| Error::Io { op: "flush", place: Place::Image, source };
        self.device.flush().map_err(failed)
    }

    /// The counts so far.
    pub fn counts(&self) -> IoCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoCounts {
            reads: get(&self.counters.reads),
            read_bytes: get(&self.counters.read_bytes),
            writes: get(&self.counters.writes),
            written_bytes: get(&self.counters.written_bytes),
            flushes: get(&self.counters.flushes),
        }
    }
}

/// Retries a device call while its error is transient, up to [`TRIES`] times in all. A flush is never retried: the
/// kernel reports a failed write-back once, and forgets it.
fn tried(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    for _ in 1..TRIES {
        match call() {
            Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => {}
            done => return done,
        }
    }
    call()
}
