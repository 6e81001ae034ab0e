//! Counts of objects and bytes that this process has copied; progress lines on a terminal show them.

use std::sync::atomic::{AtomicU64, Ordering};

static OBJECTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Objects copied or counted, and bytes of files, since the process started.
pub fn so_far() -> (u64, u64) {
    (OBJECTS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed))
}

pub(crate) fn object() {
    OBJECTS.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn bytes(count: usize) {
    BYTES.fetch_add(count as u64, Ordering::Relaxed);
}
