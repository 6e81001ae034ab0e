//! The progress and cancellation of a query that runs in another thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use betr_core::device::Device;
use parking_lot::Mutex;

/// A running query.
#[derive(Default)]
pub(crate) struct Work {
    cancelled: AtomicBool,
    read: AtomicU64,
    reads: AtomicU64,
    done: AtomicU64,
    total: AtomicU64,
}

impl Work {
    /// Cancels the query: its reads fail from now on.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Sets the progress.
    pub(crate) fn step(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// The progress in percent; `None` while the total is unknown.
    pub(crate) fn percent(&self) -> Option<u64> {
        let total = self.total.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed);
        done.min(total).saturating_mul(100).checked_div(total)
    }

    /// The bytes read, and the number of reads.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }
}

/// A device that counts the reads of a query and fails them once the query is cancelled. So every operation of the core
/// can be cancelled, without support in the core.
pub(crate) struct Watched {
    below: Arc<dyn Device>,
    work: Mutex<Option<Arc<Work>>>,
}

impl Watched {
    /// A device for a single query.
    pub(crate) fn by(below: Arc<dyn Device>, work: &Arc<Work>) -> Arc<dyn Device> {
        Arc::new(Watched { below, work: Mutex::new(Some(work.clone())) })
    }

    /// A device that serves one query after another.
    pub(crate) fn shared(below: Arc<dyn Device>) -> Arc<Watched> {
        Arc::new(Watched { below, work: Mutex::new(None) })
    }

    /// Sets the query to which reads are charged.
    pub(crate) fn serve(&self, work: Option<&Arc<Work>>) {
        *self.work.lock() = work.cloned();
    }
}

impl Device for Watched {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let work = self.work.lock().clone();
        if let Some(work) = work {
            if work.is_cancelled() {
                return Err(io::Error::other("given up"));
            }
            work.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
            work.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.below.read_at(at, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the inspector only reads"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn advise_will_need(&self, at: u64, len: u64) {
        self.below.advise_will_need(at, len);
    }
}
