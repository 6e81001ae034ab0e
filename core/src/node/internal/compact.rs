//! Compaction: frees runs that are flushed, and joins runs.

use super::*;
use crate::tuning::{RUNS_APART, UNSEALED_AT_ONCE};

impl Internal {
    /// Moves all live messages of sealed runs into the open run. Returns the extents of those runs.
    pub fn unseal(&mut self, disk: &Disk) -> Result<Vec<Retired>> {
        if self.runs.is_empty() {
            return Ok(self.drop_runs());
        }
        self.advise_will_need(disk, 0..self.children.len());
        // A few children at a time: if one cannot be read, the earlier ones are complete.
        let sealed = (0..self.children.len()).filter(|at| self.children[*at].sealed() > 0);
        let at_once = if disk.device().requires_serial_io() { 1 } else { UNSEALED_AT_ONCE };
        let gathered = Loaded::default();
        for some in sealed.collect::<Vec<_>>().chunks(at_once) {
            let fetched = self.fetch(disk, some, true)?;
            let pending = |at: &usize| self.all_pending(disk, *at, &fetched, &gathered);
            let batches = pool::run(|| some.par_iter().map(pending).collect::<Result<Vec<_>>>());
            for (at, batch) in some.iter().zip(batches?) {
                self.open[*at] = batch;
                self.flushed(*at);
            }
            fetched.give_back(disk);
        }
        Ok(self.drop_runs())
    }

    /// As [`Internal::unseal`], but messages that cannot be read stay in their runs.
    pub(super) fn unseal_readable(&mut self, disk: &Disk) -> Result<Vec<Retired>> {
        match self.unseal(disk) {
            Err(error) if error.is_unreadable() => {}
            unsealed => return unsealed,
        }
        for at in (0..self.children.len())
            .filter(|at| self.children[*at].sealed() > 0)
            .collect::<Vec<_>>()
        {
            match self.gather(disk, at) {
                Err(error) if error.is_unreadable() => {}
                batch => {
                    self.open[at] = batch?;
                    self.flushed(at);
                }
            }
        }
        Ok(self.drop_dead_runs())
    }

    /// Marks the sealed messages for child `at` as flushed, and evicts them.
    pub(super) fn flushed(&mut self, at: usize) {
        let child = &mut self.children[at];
        let emptied = child.emptied(self.next_run);
        for share in std::mem::replace(child, emptied).shares {
            self.runs[usize::from(share.run)].forget(share.slices());
        }
    }

    fn drop_runs(&mut self) -> Vec<Retired> {
        for child in &mut self.children {
            *child = child.emptied(RunSeq(0));
        }
        self.next_run = RunSeq(0);
        let id = self.id;
        self.runs.drain(..).map(|run| run.retired(id)).collect()
    }

    /// Drops runs without live messages; returns their extents.
    pub fn drop_dead_runs(&mut self) -> Vec<Retired> {
        let (id, mut dead) = (self.id, Vec::new());
        self.runs.retain(|run| {
            let live = live_bytes(&self.children, run) > 0;
            if !live {
                dead.push(run.retired(id));
            }
            live
        });
        if !dead.is_empty() {
            self.find_shares();
        }
        dead
    }

    /// Whether the next write of the node joins its runs, unless some die before.
    pub fn has_many_runs(&self) -> bool {
        self.runs.len() >= RUNS_APART
    }

    /// Whether there are more runs than there could be if all of them were readable.
    pub fn has_unreadable_runs(&self) -> bool {
        self.runs.len() > 2 * RUNS_APART
    }

    /// Whether the runs must be joined: more than half of their bytes are dead, there are too many runs, or no run
    /// number is left.
    pub(super) fn wants_compaction(&self) -> bool {
        let (stored, live) = self.stored_and_live();
        self.runs.len() > RUNS_APART || 2 * live < stored || self.next_run == RunSeq(u64::MAX)
    }

    /// Whether the node has dead messages in sealed runs, or would have more than one run: then its runs take more
    /// blocks than one run would.
    pub(super) fn has_dead_parts(&self) -> bool {
        let (stored, live) = self.stored_and_live();
        live < stored || !self.runs.is_empty() && self.has_open() || self.runs.len() > 1
    }

    /// Bytes of the sealed runs, and of their live messages.
    fn stored_and_live(&self) -> (usize, usize) {
        let stored: usize =
            self.runs.iter().map(|run| run.reference.bytes as usize - RUN_HEADER_BYTES).sum();
        let live = |run: &Run| live_bytes(&self.children, run);
        (stored, self.runs.iter().map(live).sum())
    }
}

/// Bytes of the messages of a run that are not yet flushed to all their children, as far as is known without reading.
fn live_bytes(children: &[Child], run: &Run) -> usize {
    let points: usize = run.live_slices(children).map(|slice| slice.section.bytes as usize).sum();
    points + run.reference.ranges.bytes as usize - dead_range_bytes(children, run)
}

/// Bytes of the range messages of a run that are flushed to all children that they cover a part of, as far as is known
/// without reading. A range covers consecutive children, so it is dead if the children that took the run cover it.
fn dead_range_bytes(children: &[Child], run: &Run) -> usize {
    let is_live = |child: &Child| run.reference.seq >= child.first_run;
    let Some(ranges) = run.ranges.get() else {
        let all_are_dead = !children.iter().any(is_live);
        return if all_are_dead { run.reference.ranges.bytes as usize } else { 0 };
    };
    let mut bytes = 0;
    let mut at = 0;
    for alike in children.chunk_by(|left, right| is_live(left) == is_live(right)) {
        let behind = at + alike.len();
        if !is_live(&alike[0]) {
            // Ranges are ordered and disjoint, so those within these bounds are consecutive.
            let first = match at {
                0 => 0,
                _ => ranges.partition_point(|range| range.lo < alike[0].pivot),
            };
            let end = match children.get(behind) {
                None => ranges.len(),
                Some(next) => ranges.partition_point(|range| range.hi <= next.pivot),
            };
            let dead = ranges.get(first..end).unwrap_or_default();
            bytes += dead.iter().map(RangeDelete::encoded_bytes).sum::<usize>();
        }
        at = behind;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a range message counts as dead, for each subset of four children that has taken a run.
    #[test]
    fn a_range_is_dead_when_all_children_that_it_covers_have_taken_it() {
        let key = |name: &str| Key::copied(name.as_bytes());
        let bounds = ["", "d", "h", "p"];
        let ranges = [("", "b"), ("c", "e"), ("f", "h"), ("h", "k"), ("k", "r"), ("r", "z")];
        let covered: [&[usize]; 6] = [&[0], &[0, 1], &[1], &[2], &[2, 3], &[3]];
        let list: Vec<RangeDelete> = ranges
            .map(|(lo, hi)| RangeDelete { msn: Msn(1), lo: key(lo), hi: key(hi) })
            .into_iter()
            .collect();
        let section = list.iter().map(RangeDelete::encoded_bytes).sum::<usize>() as u32;
        let reference = RunRef {
            seq: RunSeq(0),
            extent: Extent { start: BlockNr(9), blocks: 1 },
            bytes: 0,
            birth: Epoch(1),
            header_hash: Hash::default(),
            ranges: SectionRef { bytes: section, ..SectionRef::default() },
            slices: Vec::new(),
            filters: bytes::Bytes::new(),
        };
        let loaded =
            Run::new(reference.clone(), Vec::new(), OnceLock::from(Arc::new(list.clone())));
        let unread = Run::new(reference, Vec::new(), OnceLock::new());
        for taken in 0..16_u64 {
            let is_taken = |at: usize| taken >> at & 1 == 1;
            let children: Vec<Child> = (bounds.iter().zip(0..))
                .map(|(pivot, at)| {
                    let first_run = RunSeq(u64::from(is_taken(at)));
                    Child::new(NodeId(5 + at as u64), key(pivot), None, first_run)
                })
                .collect();
            let live: usize = (list.iter().zip(covered))
                .filter(|(_, covered)| !covered.iter().all(|at| is_taken(*at)))
                .map(|(range, _)| range.encoded_bytes())
                .sum();
            assert_eq!(live_bytes(&children, &loaded), live, "taken by {taken:04b}");
            let all_or_nothing = if taken == 15 { 0 } else { section as usize };
            assert_eq!(live_bytes(&children, &unread), all_or_nothing, "unread, {taken:04b}");
        }
    }
}
