//! The trees, and the thread that injects large transactions into them.
//!
//! Once a large transaction is in the log, this thread does the rest. Meanwhile the committing thread makes the log
//! durable, and prepares the next transaction. The trees are away during that time, and all other uses of them wait. So
//! no result depends on how long it takes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use super::reserve::Claim;
use crate::error::Result;
use crate::store::Store;
use crate::tree::Balance;

/// Both trees.
pub(super) struct Trees {
    pub store: Store,
    pub balance: Balance,
    /// The claim of the operation whose steps are still to be made, because there was no space for them.
    pub owed: Option<Claim>,
}

impl Trees {
    /// Queues the roots, which may be too large.
    pub(super) fn enqueue_roots(&mut self) -> Result<()> {
        self.balance.enqueue_roots(&self.store)
    }

    /// Whether a carve has made all its keys boundaries.
    pub(super) fn is_carved(&self) -> Result<bool> {
        self.balance.is_carved(&self.store)
    }
}

/// The trees of a volume: here, or away.
pub(super) struct TreesHandle {
    here: OnceLock<Box<Trees>>,
    away: Mutex<Option<Receiver<Box<Trees>>>>,
    worker: Option<Worker>,
}

/// The thread of the trees; it ends when its sender is dropped.
struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

type Job = Box<dyn FnOnce() + Send>;

impl TreesHandle {
    /// Trees without owed steps.
    pub(super) fn new(store: Store, balance: Balance) -> TreesHandle {
        let here = OnceLock::from(Box::new(Trees { store, balance, owed: None }));
        TreesHandle { here, away: Mutex::new(None), worker: None }
    }

    /// Whether the trees have been sent away and were not waited for since.
    pub(super) fn are_away(&self) -> bool {
        self.here.get().is_none()
    }

    /// Sends the trees away to run `work` on them. Without a thread, it runs at once. If it panics the volume is
    /// poisoned. The result of `work` is dropped after the trees are sent back.
    pub(super) fn send<T>(&mut self, work: impl FnOnce(&mut Trees) -> T + Send + 'static) {
        self.wait();
        let Some(mut trees) = self.here.take() else { return };
        let (sender, receiver) = channel();
        let job: Job = Box::new(move || {
            let poison = trees.store.poison.clone();
            let rest = catch_unwind(AssertUnwindSafe(|| {
                let _changing = poison.changing();
                work(&mut trees)
            }));
            let _ = sender.send(trees);
            drop(rest);
        });
        *self.away.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
        if self.worker.is_none() {
            self.worker = Worker::start();
        }
        match &self.worker {
            Some(worker) => {
                if let Err(returned) = worker.jobs.send(job) {
                    (returned.0)();
                }
            }
            None => job(),
        }
    }

    /// Waits for the trees.
    pub(super) fn wait(&self) -> &Trees {
        self.here.get_or_init(|| {
            let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
            let back = away.take().and_then(|receiver| receiver.recv().ok());
            back.expect("trees that were sent away come back")
        })
    }

    /// As [`TreesHandle::wait`], for changes.
    pub(super) fn wait_mut(&mut self) -> &mut Trees {
        self.wait();
        self.here.get_mut().expect("they are back")
    }
}

impl Drop for TreesHandle {
    /// Waits for the thread, so that nothing runs after the volume is closed.
    fn drop(&mut self) {
        self.wait();
        if let Some(Worker { jobs, thread }) = self.worker.take() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn start() -> Option<Worker> {
        let (jobs, work) = channel::<Job>();
        let run = move || work.into_iter().for_each(|job| job());
        let thread = std::thread::Builder::new().name("trees".into()).spawn(run).ok()?;
        Some(Worker { jobs, thread })
    }
}
