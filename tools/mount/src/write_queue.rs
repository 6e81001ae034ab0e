//! The queue of changes, which keeps threads free for reads.
//!
//! Changes run one after another, and some wait for the device. At most `places` threads work on changes; another
//! thread puts its change into the queue, which those threads empty, and returns.

use std::collections::VecDeque;

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// A queue whose jobs a limited number of threads run.
pub(crate) struct WriteQueue {
    places: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    taken: usize,
    waiting: VecDeque<Job>,
}

impl WriteQueue {
    pub(crate) fn new(places: usize) -> WriteQueue {
        WriteQueue { places, inner: Mutex::default() }
    }

    /// Runs a job and then queued ones, or queues it if all places are taken.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut inner = self.inner.lock();
        if inner.taken == self.places {
            return inner.waiting.push_back(Box::new(job));
        }
        inner.taken += 1;
        drop(inner);
        job();
        while let Some(job) = self.next() {
            job();
        }
    }

    /// Takes the next queued job, or gives up the place if there is none.
    fn next(&self) -> Option<Job> {
        let mut inner = self.inner.lock();
        let job = inner.waiting.pop_front();
        inner.taken -= usize::from(job.is_none());
        job
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn a_thread_without_a_place_goes_on_and_the_job_is_done() {
        let queue = Arc::new(WriteQueue::new(2));
        let (go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let done = Arc::new(AtomicUsize::new(0));
        let job = || {
            let (gate, done) = (gate.clone(), done.clone());
            move || {
                gate.lock().recv().unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let at_work: Vec<_> = (0..2)
            .map(|_| {
                let (queue, job) = (queue.clone(), job());
                std::thread::spawn(move || queue.run(job))
            })
            .collect();
        while queue.inner.lock().taken < 2 {
            std::thread::yield_now();
        }
        // These return at once: the running jobs are still blocked.
        (0..10).for_each(|_| queue.run(job()));
        assert_eq!((done.load(Ordering::Relaxed), queue.inner.lock().waiting.len()), (0, 10));
        (0..12).for_each(|_| go.send(()).unwrap());
        at_work.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((done.load(Ordering::Relaxed), queue.inner.lock().taken), (12, 0));
    }
}
