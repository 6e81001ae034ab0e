//! Where bytes live: a regular file or block device, memory, an overlay, one that holds what there is no room for.
//! Devices for offline work are in `betr_offline::device`, those that only tests and the crash explorer need in
//! `betr_lab::explore::devices`.
//!
//! A device reads and writes at byte positions and can be flushed. It knows nothing of formats.

mod file;
mod holding;
mod memory;
mod overlay;

use std::io;
use std::ops::Range;

pub use file::FileDevice;
pub use holding::HoldingDevice;
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;

use crate::ids::BLOCK_SIZE;

/// The unit that a device writes as a whole, in bytes.
pub const SECTOR: usize = 512;

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

    /// Fills several buffers, each from its position. After an error it is not known what is in them.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(at, buf)| self.read_at(*at, buf))
    }

    /// Writes `bytes` at position `at`; past the end is an error.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes what was held in memory because there was no room for it. An error of kind `StorageFull` or
    /// `QuotaExceeded` says that there still is none.
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns when everything written before is durable.
    fn flush(&self) -> io::Result<()>;

    /// The first position from `at` on that may hold a byte other than zero; none if all are known to be zeros.
    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        Ok(Some(at).filter(|at| *at < self.len()))
    }

    /// These bytes will be read soon: they may be fetched meanwhile.
    fn will_read(&self, _at: u64, _len: u64) {}

    /// Nobody will read these bytes soon: memory that holds a copy of them can be had for others.
    fn wont_read(&self, _at: u64, _len: u64) {}

    /// Nobody needs these bytes any more: they may take no room from now on, and read as zeros. Whether that
    /// was possible.
    fn punch(&self, _at: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Whether calls must come one after another in an order that can be repeated: what is recorded, or made to
    /// fail at a certain call. Otherwise writes may come beside one another.
    fn wants_order(&self) -> bool {
        true
    }
}

/// The pieces of `[at, at + len)` that lie in one block each: its number, the range within it, the range
/// of the whole.
pub fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
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
pub fn checked_end(at: u64, len: usize, end: u64) -> io::Result<u64> {
    at.checked_add(len as u64)
        .filter(|after| *after <= end)
        .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the image"))
}
