//! What is pending for children: reading it, and taking it out on its way down.

use super::*;

impl Internal {
    /// Reads what sealed runs hold for child `at`, on all cores if it is much.
    pub fn load_pending(&self, disk: &Disk, at: usize) -> Result<()> {
        self.load_for(disk, &[at], true)
    }

    /// The same for some children, in their order; on all cores only if that is allowed.
    pub(super) fn load_for(&self, disk: &Disk, children: &[usize], on_all: bool) -> Result<()> {
        let mut slices = vec![Vec::new(); self.runs.len()];
        for share in children.iter().flat_map(|at| &self.children[*at].shares) {
            slices[usize::from(share.run)].extend(share.slices());
        }
        let is_missing = |run: &Run, at: &usize| run.slices[*at].get().is_none();
        let runs = self.runs.iter().zip(slices);
        let missing: Vec<(&Run, Vec<usize>)> =
            runs.filter(|(run, live)| live.iter().any(|at| is_missing(run, at))).collect();
        let read = |(run, slices): &(&Run, Vec<usize>)| {
            self.load_slices(disk, run, slices.iter().copied())
        };
        match on_all && missing.len() >= MANY && !disk.device().wants_order() {
            true => missing.par_iter().try_for_each(read),
            false => missing.iter().try_for_each(read),
        }
    }

    /// What sealed runs hold for some children, one beside another, will be read soon.
    pub fn will_read(&self, disk: &Disk, children: Range<usize>) {
        let mut wanted = vec![(u32::MAX, 0); self.runs.len()];
        for share in self.children[children].iter().flat_map(|child| &child.shares) {
            let (run, (start, end)) =
                (&self.runs[usize::from(share.run)], &mut wanted[usize::from(share.run)]);
            for at in share.slices().filter(|at| run.slices[*at].get().is_none()) {
                let part = &run.reference.slices[at].section;
                *start = part.offset.min(*start);
                *end = part.offset.saturating_add(part.bytes).max(*end);
            }
        }
        for (run, (start, end)) in self.runs.iter().zip(wanted) {
            let at = run.reference.extent.start.byte() + u64::from(start);
            disk.will_read(at, end.saturating_sub(start).into());
        }
    }

    /// Reads the range messages of live runs.
    pub fn load_ranges(&self, disk: &Disk) -> Result<()> {
        self.runs.iter().try_for_each(|run| self.ranges(disk, run).map(|_| ()))
    }

    /// Takes the buffer of child `at` out of the node; or the last part of it, whose updates make values
    /// of not much more than `growth` bytes. The rest of it is then in the open run.
    pub fn take_buffer(&mut self, disk: &Disk, at: usize, growth: usize) -> Result<Batch> {
        let mut batch = self.gather(disk, at)?;
        self.flushed(at);
        let taken = batch.take_last(growth);
        self.open[at] = batch;
        Ok(taken)
    }

    /// Children one beside another, the first of them `children.start`, become that one: all their keys are
    /// deleted, and what is younger than that stays pending.
    pub fn collapse(&mut self, disk: &Disk, children: Range<usize>) -> Result<()> {
        let mut younger = Sorted::default();
        for at in children.clone() {
            let bounds = self.child_bounds(at);
            let mut batch = Batch::default();
            let covered = self.open[at].ranges().covers(&bounds);
            if !covered {
                self.overlay(disk, at, &bounds.lo, bounds.hi.as_deref(), &mut batch)?;
            }
            let batch = if covered { &self.open[at] } else { &batch };
            batch.points().iter().for_each(|item| younger.push(item));
        }
        self.children.drain(children.start + 1..children.end);
        self.open.drain(children.start + 1..children.end);
        self.open[children.start] = Batch::of_points(younger);
        self.flushed(children.start);
        Ok(())
    }

    /// Whether a range delete is pending for child `at`.
    pub fn has_ranges(&self, at: usize) -> bool {
        let first = self.children[at].first_run;
        let live = self.runs.iter().filter(|run| run.reference.seq >= first);
        !self.open[at].ranges().is_empty() || { live }.any(|run| run.reference.ranges.count > 0)
    }

    /// The first children one beside another all of whose keys a pending range delete covers, as far as is
    /// known without reading.
    pub fn covered(&self) -> Option<Range<usize>> {
        let count = self.children.len();
        let first = (0..count).find(|at| self.is_pruned(*at))?;
        let end = (first..count).find(|at| !self.is_pruned(*at)).unwrap_or(count);
        Some(first..end)
    }

    /// All that is pending for child `at`, in one batch.
    fn gather(&mut self, disk: &Disk, at: usize) -> Result<Batch> {
        if self.children[at].sealed == 0 {
            return Ok(std::mem::take(&mut self.open[at]));
        }
        // It is little, and a thread of the pool may first have much else to do.
        self.will_read(disk, at..at + 1);
        self.load_for(disk, &[at], false)?;
        self.all_pending(disk, at)
    }

    pub(super) fn all_pending(&self, disk: &Disk, at: usize) -> Result<Batch> {
        let bounds = self.child_bounds(at);
        let mut batch = Batch::of_points(self.room_for(at));
        self.overlay(disk, at, &bounds.lo, bounds.hi.as_deref(), &mut batch)?;
        Ok(batch)
    }

    /// A list with room for all messages for child `at` that are in memory.
    fn room_for(&self, at: usize) -> Sorted {
        let slices = self.children[at]
            .shares
            .iter()
            .flat_map(|share| &self.runs[usize::from(share.run)].slices[share.slices()]);
        let lists = runs::each_once(slices.filter_map(OnceLock::get)).map(|slice| &**slice);
        let lists = lists.chain([self.open[at].points()]);
        let (count, bytes) =
            lists.fold((0, 0), |(count, bytes), list| (count + list.len(), bytes + list.arena()));
        Sorted::with_capacity(count, bytes)
    }
}
