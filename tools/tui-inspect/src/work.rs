//! What runs beside the interface: its progress, and whether it was cancelled.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use betr_core::device::Device;
use parking_lot::Mutex;

/// A query that runs.
#[derive(Default)]
pub(crate) struct Work {
    cancelled: AtomicBool,
    read: AtomicU64,
    reads: AtomicU64,
    done: AtomicU64,
    total: AtomicU64,
}

impl Work {
    /// Gives it up: what it reads fails from now on.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// How much is done, and of how much.
    pub(crate) fn step(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// Percent of what is known to be all; nothing as long as that is unknown.
    pub(crate) fn percent(&self) -> Option<u64> {
        let total = self.total.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed);
        done.min(total).saturating_mul(100).checked_div(total)
    }

    /// Bytes that were read, and how often.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }
}

/// A device that counts what some work reads, and fails for it once it has been given up. So everything in the core can
/// be given up, and none of it needs to know.
pub(crate) struct Watched {
    below: Arc<dyn Device>,
    work: Mutex<Option<Arc<Work>>>,
}

impl Watched {
    /// For one piece of work.
    pub(crate) fn by(below: Arc<dyn Device>, work: &Arc<Work>) -> Arc<dyn Device> {
        Arc::new(Watched { below, work: Mutex::new(Some(work.clone())) })
    }

    /// For work that comes and goes.
    pub(crate) fn shared(below: Arc<dyn Device>) -> Arc<Watched> {
        Arc::new(Watched { below, work: Mutex::new(None) })
    }

    /// From now on it is this work that reads.
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
