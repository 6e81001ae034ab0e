//! Where bytes live: a regular file or block device, memory, an overlay, shared blocks, a recorder, a
//! device that fails.
//!
//! A device reads and writes at byte positions and can be flushed. It knows nothing of formats.
//! [`Disk`] is what the rest of the core holds: a device with its counters, whose errors name a place.

mod faulty;
mod file;
mod fork;
mod memory;
mod overlay;
mod powercut;
mod recording;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use faulty::{Call, FaultyDevice, Trouble};
pub use file::FileDevice;
pub use fork::{Block, ForkDevice, placed};
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use powercut::{Fate, SECTOR, cut_power};
pub use recording::{Event, RecordingDevice};

use crate::error::{Error, Place, Result};
use crate::ids::BLOCK_SIZE;

/// Bytes at positions.
pub trait Device: Send + Sync {
    /// How many bytes there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from position `at`; past the end is an error.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `bytes` at position `at`; past the end is an error.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything written before is durable.
    fn flush(&self) -> io::Result<()>;
}

/// What has been asked of a device since it was opened.
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

/// A device, its counters, and errors that name a place. Clones share all of it.
#[derive(Clone)]
pub struct Disk {
    device: Arc<dyn Device>,
    counters: Arc<Counters>,
}

impl Disk {
    /// A disk over `device`, with all counts at zero.
    pub fn new(device: Arc<dyn Device>) -> Disk {
        Disk { device, counters: Arc::default() }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// How many bytes there are.
    pub fn len(&self) -> u64 {
        self.device.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.device.is_empty()
    }

    /// Reads `len` bytes at `at`. The caller has compared `len` with its limit.
    pub fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        let failed = |source| Error::Io { op: "read", place: Place::Byte(at), source };
        if at.checked_add(len as u64).is_none_or(|end| end > self.len()) {
            let end = io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the image");
            return Err(failed(end));
        }
        let mut buf = vec![0; len];
        self.device.read_at(at, &mut buf).map_err(failed)?;
        Ok(buf)
    }

    /// Writes `bytes` at `at`.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let failed = |source| Error::Io { op: "write", place: Place::Byte(at), source };
        self.device.write_at(at, bytes).map_err(failed)
    }

    /// Makes everything written before durable.
    pub fn flush(&self) -> Result<()> {
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

/// The pieces of `[at, at + len)` that lie in one block each: its number, the range within it, the range
/// of the whole.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let here = at + done as u64;
        let offset = (here % BLOCK_SIZE as u64) as usize;
        let size = (BLOCK_SIZE - offset).min(len - done);
        let range = done..done + size;
        done += size;
        (size > 0).then_some((here / BLOCK_SIZE as u64, offset..offset + size, range))
    })
}

/// The position past `len` bytes at `at`, if that is within `end`.
fn checked_end(at: u64, len: usize, end: u64) -> io::Result<u64> {
    at.checked_add(len as u64)
        .filter(|after| *after <= end)
        .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the image"))
}
