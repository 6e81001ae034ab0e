//! Jobs of the thread pool.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError, mpsc};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::pool;

/// A job of the thread pool. Over a device that wants one call after the other, it runs at once on the caller's thread.
pub(super) struct Job<T>(Mutex<mpsc::Receiver<T>>);

impl<T: Send + 'static> Job<T> {
    /// Starts a job that reads or writes `disk`.
    pub(super) fn start(disk: &Disk, work: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // A panic on a thread of the pool would end the process. Without a result, `wait` fails.
        let run = move || {
            if let Ok(result) = catch_unwind(AssertUnwindSafe(work)) {
                // The receiver may have been dropped; then the result is not needed.
                drop(sender.send(result));
            }
        };
        // A thread of the pool that waits for a job of the pool could deadlock, so it runs the job itself.
        let can_wait = rayon::current_thread_index().is_none();
        if can_wait && !disk.device().requires_serial_io() {
            pool::spawn(run)
        } else {
            run()
        }
        Job(Mutex::new(receiver))
    }

    /// Waits for the job, and returns its result.
    pub(super) fn wait(self) -> Result<T> {
        let receiver = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        receiver.recv().map_err(|_| Error::Bug("work beside the foreground has failed".into()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::MemoryDevice;

    #[test]
    fn waiting_for_a_job_that_panics_fails() {
        let disk = Disk::new(Arc::new(MemoryDevice::new(4096)));
        let panicked = Job::start(&disk, || -> u32 { std::panic::resume_unwind(Box::new(())) });
        assert!(matches!(panicked.wait(), Err(Error::Bug(_))));
        assert_eq!(Job::start(&disk, || 7).wait().unwrap(), 7);
    }
}
