//! The threads that the engine works on beside the foreground, one for each core.
//!
//! They are its own. A caller's closure on a shared pool may wait for the trees, which wait for a job of the engine: where one
//! thread did both, that job might wait below the closure that waits for it.

use std::sync::LazyLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Nothing where the system gives no threads.
static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let name = |number| format!("betr-{number}");
    ThreadPoolBuilder::new().thread_name(name).build().ok()
});

/// Begins `work` beside the caller.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    match &*POOL {
        Some(pool) => pool.spawn(work),
        None => work(),
    }
}

/// Does `work`, which may be done on several threads at once. A thread of a pool stays in that.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match &*POOL {
        Some(pool) if rayon::current_thread_index().is_none() => pool.install(work),
        _ => work(),
    }
}
