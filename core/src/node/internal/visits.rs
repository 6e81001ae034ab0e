//! When messages come to a node.

/// When messages have come to a node, by a clock that goes on whenever messages come to any. A node that is written before
/// more come to it is written once more for them.
#[derive(Clone, Copy, Default)]
pub(super) struct Visits {
    /// The last time; 0 is before the node was in memory.
    last: u64,
    /// How long before that was the time before, if that is known.
    gap: u64,
}

impl Visits {
    /// Messages come now.
    pub(super) fn note(&mut self, now: u64) {
        if self.last > 0 && now > self.last {
            self.gap = now - self.last;
        }
        self.last = now;
    }

    /// About how long it will be until more come: as long as the last time; where they are overdue, as long again as nothing
    /// has come.
    pub(super) fn until_next(&self, now: u64) -> u64 {
        let since = now.saturating_sub(self.last);
        match self.gap {
            0 => now,
            gap if since > 2 * gap => since,
            gap => gap.saturating_sub(since),
        }
        .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_at_intervals_is_awaited_for_as_long() {
        let mut visits = Visits::default();
        visits.note(10);
        assert_eq!(visits.until_next(15), 15, "nothing is known");
        visits.note(30);
        let waits = [30, 40, 49, 50, 70, 71, 100].map(|now| visits.until_next(now));
        assert_eq!(waits, [20, 10, 1, 1, 1, 41, 70]);
        visits.note(30);
        assert_eq!(visits.until_next(30), 20, "it is the same visit");
    }
}
