//! The trees, and a thread that brings large transactions into them.
//!
//! Once a large transaction is in the log, what is left of it is done beside whoever committed it: it makes the log
//! durable, and comes with the next transaction, meanwhile. The trees are away as long as that takes, and whoever wants to
//! look at them waits until they are back. So nothing depends on how long it takes.

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
    /// Steps are still to be made for which there was no room: what the operation that they are for may use.
    pub owed: Option<Claim>,
}

impl Trees {
    /// The roots may be too large.
    pub(super) fn look_at_roots(&mut self) -> Result<()> {
        self.balance.look_at_roots(&self.store)
    }
}

/// The trees as a volume has them: here, or on their way back.
pub(super) struct Held {
    here: OnceLock<Box<Trees>>,
    away: Mutex<Option<Receiver<Box<Trees>>>>,
    worker: Option<Worker>,
}

/// The thread, which ends when nobody can send anything to it any more.
struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Held {
    /// Trees that no step is owed to.
    pub(super) fn new(store: Store, balance: Balance) -> Held {
        let here = OnceLock::from(Box::new(Trees { store, balance, owed: None }));
        Held { here, away: Mutex::new(None), worker: None }
    }

    /// Whether whoever wants to look at the trees would have to wait, or would have had to before.
    pub(super) fn are_away(&self) -> bool {
        self.here.get().is_none()
    }

    /// Sends the trees away, to have something done to them. Where there can be no thread, it is done at once. If it panics the
    /// volume is poisoned. What is not needed any more then is dropped when they are on their way back.
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

    /// The trees, once they are back.
    pub(super) fn wait(&self) -> &Trees {
        self.here.get_or_init(|| {
            let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
            let back = away.take().and_then(|receiver| receiver.recv().ok());
            back.expect("trees that were sent away come back")
        })
    }

    /// The same, to change them.
    pub(super) fn wait_mut(&mut self) -> &mut Trees {
        self.wait();
        self.here.get_mut().expect("they are back")
    }
}

impl Drop for Held {
    /// Nothing is done to a volume that has been closed.
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
