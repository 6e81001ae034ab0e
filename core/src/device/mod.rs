//! Devices: files and block devices, memory, and two layers over other devices: an overlay, and one that holds writes while
//! there is no space. `betr_offline::{device, plan}` have those of offline tools (a plan, a recorder of what changes, of
//! reads, a read cache, a lenient view of a failing device), `betr_lab::explore::devices` those of tests and the crash explorer.
//!
//! A device reads and writes at byte positions and can be flushed. It knows no formats.

mod deferring;
mod file;
mod memory;
mod overlay;

use std::io;
use std::ops::Range;

pub use deferring::DeferringDevice;
pub use file::FileDevice;
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;

use crate::ids::BLOCK_SIZE;

/// 512 bytes: a device writes a sector atomically.
pub const SECTOR: usize = 512;

/// Random-access storage of bytes.
pub trait Device: Send + Sync {
    /// Size in bytes.
    fn len(&self) -> u64;

    /// Whether the size is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from position `at`; fails past the end.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Fills several buffers, each from its position. After an error their contents are undefined.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(at, buf)| self.read_at(*at, buf))
    }

    /// Writes `bytes` at position `at`; fails past the end.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes data that was held in memory for lack of space. An error of kind `StorageFull` or `QuotaExceeded` means
    /// that there still is none.
    fn write_deferred(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns when all earlier writes are durable, except those that are deferred ([`Device::write_deferred`]): while
    /// one thread waits here, writes of others may be deferred.
    fn flush(&self) -> io::Result<()>;

    /// The first position from `at` on that may hold a byte other than zero; `None` if all are known to be zeros.
    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        Ok(Some(at).filter(|at| *at < self.len()))
    }

    /// Advises that these bytes will be read soon, so that they can be prefetched.
    fn advise_will_need(&self, _at: u64, _len: u64) {}

    /// Advises that these bytes will not be read soon, so that caches can drop them.
    fn advise_dont_need(&self, _at: u64, _len: u64) {}

    /// Discards bytes that are not needed any more: they may free space, and read as zeros. Returns whether that was
    /// possible.
    fn punch(&self, _at: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Whether calls must come one after another in a reproducible order, because they are recorded, or fail at a
    /// certain call. If not, writes may be concurrent.
    fn requires_serial_io(&self) -> bool {
        true
    }
}

/// Splits `[at, at + len)` by blocks: the block number, the range within the block, and the range within the whole.
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

/// The position past `len` bytes at `at`; fails if it exceeds `end`.
pub fn checked_end(at: u64, len: usize, end: u64) -> io::Result<u64> {
    at.checked_add(len as u64)
        .filter(|after| *after <= end)
        .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the image"))
}
