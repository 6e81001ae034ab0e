//! Visits: the times when messages come to a node.

/// The times of visits, by a clock that advances with each visit of any node. They predict the next visit: a node that
/// is written before it must be written again after it.
#[derive(Clone, Copy, Default)]
pub(super) struct Visits {
    /// The time of the last visit; 0 if there was none.
    last: u64,
    /// The time between the last two visits; 0 if unknown.
    gap: u64,
}

impl Visits {
    /// Notes a visit.
    pub(super) fn note(&mut self, now: u64) {
        if self.last > 0 && now > self.last {
            self.gap = now - self.last;
        }
        self.last = now;
    }

    /// The expected time until the next visit: as long as the last gap; if the visit is overdue, as long again as the
    /// time since the last one.
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
