//! The memory budget of nodes.

use crate::tuning::{ALLOCATOR_SHARE, FLIGHTS_SHARE};

/// The memory budget of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBudget {
    /// For all nodes, and for the work memory of one step, in bytes.
    pub total_bytes: usize,
    /// For dirty nodes, in bytes; above it some are written back ([`Store::make_room`](super::Store::make_room)).
    pub dirty_bytes: usize,
}

impl CacheBudget {
    /// The budget without the work memory of one step and of write-back. A step usually moves one buffer of at most one node
    /// size, and holds it twice: as it was read, and as messages. Nodes that are being written are there twice: as they
    /// are, and encoded. An allocator needs more than what it is asked for.
    pub(super) fn without_work(self, node_size: u32) -> CacheBudget {
        let encoded = self.dirty_bytes / FLIGHTS_SHARE;
        let work = 2 * node_size as usize + encoded + self.total_bytes / ALLOCATOR_SHARE;
        let work = work.min(self.total_bytes / 2);
        let share = |bytes: usize| {
            bytes - (work as f64 * bytes as f64 / self.total_bytes.max(1) as f64) as usize
        };
        CacheBudget { total_bytes: share(self.total_bytes), dirty_bytes: share(self.dirty_bytes) }
    }

    /// A budget of `total_bytes`, 3/4 of which may be dirty: buffers that are being filled are worth most in memory.
    pub fn of(total_bytes: usize) -> CacheBudget {
        CacheBudget { total_bytes, dirty_bytes: total_bytes / 4 * 3 }
    }
}

impl Default for CacheBudget {
    fn default() -> CacheBudget {
        CacheBudget::of(128 << 20)
    }
}
