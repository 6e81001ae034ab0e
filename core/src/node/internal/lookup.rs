//! What is pending in a node for a key or a range of keys.

use super::*;

impl Internal {
    /// Combines the node's messages for `key` with the action from above. Stops at a message that decides the value. A
    /// range delete counts as a delete.
    pub fn lookup(
        &self,
        disk: &Disk,
        key: &[u8],
        mut above: Option<Action>,
    ) -> Result<Option<Action>> {
        let decided = |above: &mut Option<Action>, older: &Action| {
            let action = match above.take() {
                Some(above) => above.after(older),
                None => older.clone(),
            };
            above.insert(action).decides()
        };
        let at = self.child_for(key);
        if let Some(action) = self.open[at].get(key)
            && decided(&mut above, &action)
        {
            return Ok(above);
        }
        let child = &self.children[at];
        let (probe, head) = (Probe::of(key), Key::head(key));
        let mut shares = child.shares.iter().rev().peekable();
        let live = |(_, run): &(usize, &Run)| run.reference.seq >= child.first_run;
        for (number, run) in self.runs.iter().enumerate().rev().take_while(live) {
            if let Some(share) = shares.next_if(|share| usize::from(share.run) == number)
                && let Some(at) = run.slice_of(share, head, key)
                && run.may_have(at, probe)
                && let Some(item) = self.slice(disk, run, at)?.get(key)
                && decided(&mut above, &item.action())
            {
                return Ok(above);
            }
            let ranges = self.ranges(disk, run)?;
            let at = ranges.partition_point(|range| *range.lo <= *key);
            if let Some(range) = at.checked_sub(1).map(|at| &ranges[at])
                && *key < *range.hi
            {
                decided(&mut above, &Action::Delete);
                return Ok(above);
            }
        }
        Ok(above)
    }

    /// Adds the messages pending for child `at` within `[lo, hi)` to `overlay`, which holds older messages.
    pub fn overlay(
        &self,
        disk: &Disk,
        at: usize,
        lo: &[u8],
        hi: Option<&[u8]>,
        overlay: &mut Batch,
    ) -> Result<()> {
        let child = &self.children[at];
        if child.sealed() > 0 {
            let runs = self.runs.iter().enumerate();
            for (number, run) in runs.filter(|(_, run)| run.reference.seq >= child.first_run) {
                let ranges = self.ranges(disk, run)?;
                overlay.absorb(std::iter::empty(), shares(ranges, lo, hi));
                let within =
                    child.share_of(number).map_or(0..0, |share| run.slices_within(share, lo, hi));
                self.load_slices(disk, run, within.clone())?;
                let slices = within.map(|at| Ok((at, self.slice(disk, run, at)?)));
                let slices = slices.collect::<Result<Vec<_>>>()?;
                let lists = runs::each_once(slices.iter().map(|(_, slice)| *slice));
                let bytes: usize = lists.map(|slice| slice.arena()).sum();
                let mut all =
                    overlay.points().sizes().keys + overlay.points().sizes().values + bytes;
                self.check_messages(all)?;
                let points = slices.iter().flat_map(|(at, slice)| {
                    // The list may be shared with the next slices.
                    let (first, next) = run.keys_of(*at);
                    let end = next.into_iter().chain(hi).min();
                    slice.range(lo.max(first), end)
                });
                overlay.absorb_within(points, std::iter::empty(), |more| {
                    all += more;
                    self.check_messages(all)
                })?;
            }
        }
        let open = &self.open[at];
        if !open.is_empty() {
            overlay.absorb(open.points().range(lo, hi), open.ranges().clip(lo, hi).into_iter());
        }
        Ok(())
    }

    /// Whether the pending range deletes that are in memory cover all keys of child `at`.
    pub fn is_pruned(&self, at: usize) -> bool {
        self.deletes(at, &self.child_bounds(at))
    }

    /// Whether the pending range deletes that are in memory cover all of `bounds`, which are keys of child `at`.
    fn deletes(&self, at: usize, bounds: &Bounds) -> bool {
        let first = self.children[at].first_run;
        let live = self.runs.iter().filter(|run| run.reference.seq >= first);
        let (lo, hi) = (&*bounds.lo, bounds.hi.as_deref());
        let known = live.filter_map(|run| run.ranges.get());
        let mut sealed = known.flat_map(|ranges| shares(ranges, lo, hi)).peekable();
        if sealed.peek().is_none() {
            return self.open[at].ranges().covers(bounds);
        }
        let mut all = RangeSet::default();
        sealed.chain(self.open[at].ranges().clip(lo, hi)).for_each(|share| all.insert(share));
        all.covers(bounds)
    }

    /// Whether pending range deletes cover all of `bounds`, which are keys of child `at`.
    pub fn has_deleted(&self, disk: &Disk, at: usize, bounds: &Bounds) -> Result<bool> {
        if !self.has_ranges(at) {
            return Ok(false);
        }
        self.load_ranges(disk)?;
        Ok(self.deletes(at, bounds))
    }
}
