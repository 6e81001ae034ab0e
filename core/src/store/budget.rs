//! How much memory nodes may take.

/// How much memory the cache may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBudget {
    /// For all nodes, and for what a step takes to work with, in bytes.
    pub total_bytes: usize,
    /// For dirty nodes, in bytes; beyond it the oldest are written.
    pub dirty_bytes: usize,
}

impl CacheBudget {
    /// What is left for nodes beside what one step takes to work with: a buffer that moves, of as much as one node holds at the
    /// most, as it was read and as messages.
    pub(super) fn without_work(self, node_size: u32) -> CacheBudget {
        let work = (2 * node_size as usize).min(self.total_bytes / 2);
        let share = |bytes: usize| {
            bytes - (work as f64 * bytes as f64 / self.total_bytes.max(1) as f64) as usize
        };
        CacheBudget { total_bytes: share(self.total_bytes), dirty_bytes: share(self.dirty_bytes) }
    }

    /// `total_bytes`, of which three quarters may be dirty: most of what is worth having in memory are
    /// buffers that are being filled.
    pub fn of(total_bytes: usize) -> CacheBudget {
        CacheBudget { total_bytes, dirty_bytes: total_bytes / 4 * 3 }
    }
}

impl Default for CacheBudget {
    fn default() -> CacheBudget {
        CacheBudget::of(128 << 20)
    }
}
