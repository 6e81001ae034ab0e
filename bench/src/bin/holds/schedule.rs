//! Which snapshots there are: the last four hourly ones, and the last four daily ones.

use std::collections::VecDeque;

/// How many of each kind are kept.
const KEPT: usize = 4;

/// Snapshots by kind, the oldest first.
#[derive(Default)]
pub(crate) struct Schedule {
    hourly: VecDeque<String>,
    daily: VecDeque<String>,
}

impl Schedule {
    /// Another hour is over, and with it a day if `daily`. The snapshot to take, and the one to drop then, if any.
    pub(crate) fn hour(&mut self, number: u64, daily: bool) -> (String, Option<String>) {
        let (kind, row) = match daily {
            true => ("day", &mut self.daily),
            false => ("hour", &mut self.hourly),
        };
        let name = format!("{kind} {number}");
        row.push_back(name.clone());
        let old = (row.len() > KEPT).then(|| row.pop_front()).flatten();
        (name, old)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.hourly.len() + self.daily.len()
    }
}
