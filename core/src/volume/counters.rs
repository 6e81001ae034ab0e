//! Counters of a volume since it was opened, one for each rule of durability.

use crate::format::Binding;
use crate::log::BoundCounts;

/// Monotonic counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Checkpoints of all kinds.
    pub checkpoints: u64,
    /// Checkpoints made as the fence, before the first record after opening.
    pub fences: u64,
    /// Checkpoints made because the log was full.
    pub for_log: u64,
    /// Checkpoints made because free blocks were short.
    pub for_space: u64,
    /// Checkpoints made because the last one was too old.
    pub for_time: u64,
    /// Log groups.
    pub groups: u64,
    /// Where late-bound values were bound.
    pub bound: BoundCounts,
    /// Transactions with a checkpoint of their own.
    pub whole: u64,
    /// Drains: times when all buffers were flushed to free space.
    pub drains: u64,
    /// Encoded nodes that found no contiguous extent.
    pub scattered: u64,
    /// Steps of carves.
    pub carved: u64,
    /// Leaves dropped unread, because range deletes cover all of their keys.
    pub pruned: u64,
    /// Pages of snapshots, and of their dead lists.
    pub hold_pages: u64,
    /// Extents that the log keeps from reuse after their node has moved.
    pub kept: u64,
    /// Log groups written while a transaction was being injected. No rule of durability needs them.
    pub beside: u64,
}

impl Counters {
    pub(super) fn bound(&mut self, bindings: &[Binding]) {
        for binding in bindings {
            let values = binding.values.iter().map(|range| u64::from(range.count)).sum();
            self.bound.add(&binding.to, values);
        }
    }

    /// Each counter with its label.
    pub fn named(&self) -> [(&'static str, u64); 17] {
        [
            ("checkpoint", self.checkpoints),
            ("fence before the first record", self.fences),
            ("checkpoint because the log is full", self.for_log),
            ("checkpoint because space is short", self.for_space),
            ("checkpoint because of the time", self.for_time),
            ("group sealed", self.groups),
            ("value bound to a leaf", self.bound.in_leaves),
            ("value bound to a run", self.bound.in_runs),
            ("value bound inline", self.bound.inline),
            ("value bound to NULL", self.bound.null),
            ("operation through a checkpoint of its own", self.whole),
            ("everything pending carried out for space", self.drains),
            ("image scattered over free blocks", self.scattered),
            ("step of a carve", self.carved),
            ("leaf dropped unread", self.pruned),
            ("page written for snapshots", self.hold_pages),
            ("extent pinned after its node moved on", self.kept),
        ]
    }
}
