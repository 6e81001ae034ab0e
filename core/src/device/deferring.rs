//! A device over one that may be out of space for a while, such as a sparse file on a full file system.
//!
//! A write that the base refuses for lack of space succeeds here, and its blocks are deferred in memory until
//! [`Device::write_deferred`] writes them. Reads see them. Deferred data is not durable, and a flush leaves it in memory: [`Disk::flush`](crate::disk::Disk::flush) writes it
//! before. This is like the volatile write cache of a disk, which may write in any order between two
//! flushes. Errors of other kinds pass through.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Device, pieces};
use crate::ids::BLOCK_SIZE;

/// Contents of blocks, by number.
type Blocks = BTreeMap<u64, Box<[u8]>>;

/// A base device, and the blocks that it has no space for.
pub struct DeferringDevice {
    base: Arc<dyn Device>,
    deferred: Mutex<Blocks>,
    /// Number of deferred blocks, readable without the lock.
    count: AtomicUsize,
    /// Limit of deferred blocks.
    most: usize,
}

impl DeferringDevice {
    /// A view of `base` that defers at most `bytes` bytes; writes beyond that fail as on the base.
    pub fn new(base: Arc<dyn Device>, bytes: usize) -> DeferringDevice {
        let most = bytes / BLOCK_SIZE;
        DeferringDevice { base, deferred: Mutex::default(), count: AtomicUsize::new(0), most }
    }

    /// Bytes deferred.
    pub fn deferred_bytes(&self) -> usize {
        self.count.load(Ordering::Acquire) * BLOCK_SIZE
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_count(&self, deferred: &Blocks) {
        self.count.store(deferred.len(), Ordering::Release);
    }

    /// Holds a write; `refused` is the base's error.
    fn defer(
        &self,
        deferred: &mut Blocks,
        at: u64,
        bytes: &[u8],
        refused: io::Error,
    ) -> io::Result<()> {
        let fresh =
            pieces(at, bytes.len()).filter(|(block, ..)| !deferred.contains_key(block)).count();
        if deferred.len() + fresh > self.most {
            return Err(refused);
        }
        for (block, within, of_bytes) in pieces(at, bytes.len()) {
            let memory = match deferred.entry(block) {
                Entry::Occupied(deferred) => deferred.into_mut(),
                Entry::Vacant(place) => {
                    let mut memory = vec![0; BLOCK_SIZE].into_boxed_slice();
                    if within.len() < BLOCK_SIZE {
                        self.read_base_block(block, &mut memory)?;
                    }
                    place.insert(memory)
                }
            };
            memory[within].copy_from_slice(&bytes[of_bytes]);
            // Even if the rest cannot be deferred.
            self.note_count(deferred);
        }
        Ok(())
    }

    /// Reads a block; the last block of a device may be partial.
    fn read_base_block(&self, block: u64, memory: &mut [u8]) -> io::Result<()> {
        let at = block * BLOCK_SIZE as u64;
        let len = (self.len() - at).min(BLOCK_SIZE as u64) as usize;
        self.base.read_at(at, &mut memory[..len])
    }
}

/// Whether an error means lack of space.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl Device for DeferringDevice {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.deferred_bytes() == 0 {
            return self.base.read_at(at, buf);
        }
        let deferred = self.lock();
        self.base.read_at(at, buf)?;
        for (block, within, of_buf) in pieces(at, buf.len()) {
            if let Some(memory) = deferred.get(&block) {
                buf[of_buf].copy_from_slice(&memory[within]);
            }
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        super::checked_end(at, bytes.len(), self.len())?;
        if self.deferred_bytes() == 0 {
            return match self.base.write_at(at, bytes) {
                Err(error) if is_full(&error) => self.defer(&mut self.lock(), at, bytes, error),
                done => done,
            };
        }
        let mut deferred = self.lock();
        // Older deferred content of these blocks must not overwrite this write later.
        let is_deferred = pieces(at, bytes.len()).any(|(block, ..)| deferred.contains_key(&block));
        let full = || io::Error::from(ErrorKind::StorageFull);
        match is_deferred {
            true => self.defer(&mut deferred, at, bytes, full()),
            false => match self.base.write_at(at, bytes) {
                Err(error) if is_full(&error) => self.defer(&mut deferred, at, bytes, error),
                done => done,
            },
        }
    }

    fn write_deferred(&self) -> io::Result<()> {
        if self.deferred_bytes() == 0 {
            return Ok(());
        }
        let mut deferred = self.lock();
        while let Some(first) = deferred.first_entry() {
            let at = first.key() * BLOCK_SIZE as u64;
            let len = (self.len() - at).min(BLOCK_SIZE as u64) as usize;
            let written = self.base.write_at(at, &first.get()[..len]);
            if written.is_ok() {
                first.remove();
            }
            self.note_count(&deferred);
            written?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.base.flush()
    }

    fn advise_will_need(&self, at: u64, len: u64) {
        self.base.advise_will_need(at, len);
    }

    fn advise_dont_need(&self, at: u64, len: u64) {
        self.base.advise_dont_need(at, len);
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<bool> {
        // Deferred blocks stay until they are written, so that reads do not depend on punched ranges.
        self.base.punch(at, len)
    }

    fn requires_serial_io(&self) -> bool {
        self.base.requires_serial_io()
    }
}
