//! Work beside the foreground.

use std::sync::{Mutex, PoisonError, mpsc};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::pool;

/// Something that is done beside the foreground, or, over a device that wants one call after the other, at
/// once.
pub(super) struct Job<T>(Mutex<mpsc::Receiver<T>>);

impl<T: Send + 'static> Job<T> {
    /// Begins to work on something that reads or writes `disk`.
    pub(super) fn start(disk: &Disk, work: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Nobody may want to know any more.
        let run = move || drop(sender.send(work()));
        // Whoever is one of the pool's threads would wait for itself.
        let can_wait = rayon::current_thread_index().is_none();
        if can_wait && !disk.device().wants_order() {
            pool::spawn(run)
        } else {
            run()
        }
        Job(Mutex::new(receiver))
    }

    /// What came of it, when it is done.
    pub(super) fn wait(self) -> Result<T> {
        let receiver = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        receiver.recv().map_err(|_| Error::Bug("work beside the foreground has failed".into()))
    }
}
