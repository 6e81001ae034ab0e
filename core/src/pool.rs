//! The thread pool of the engine, one thread for each core.
//!
//! The engine has its own pool. On a shared one, a caller's closure may wait for the trees, which wait for a job of the
//! engine. If one thread ran both, that job could be queued below the closure that waits for it: a deadlock.

use std::sync::LazyLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// `None` if the system cannot create threads.
static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let name = |number| format!("betr-{number}");
    ThreadPoolBuilder::new().thread_name(name).build().ok()
});

/// Starts `work` on a thread of the pool.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    match &*POOL {
        Some(pool) => pool.spawn(work),
        None => work(),
    }
}

/// Runs `work` on the pool, where it may use several threads. A thread of any pool stays in its own.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match &*POOL {
        Some(pool) if rayon::current_thread_index().is_none() => pool.install(work),
        _ => work(),
    }
}
