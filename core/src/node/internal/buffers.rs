//! Buffers of children: reads them, and takes them out for a flush.

use bytes::Bytes;

use super::runs::Read;
use super::*;
use crate::tuning::{EXPECTED_MAX, READ_APART_MIN};

impl Internal {
    /// Reads the slices for consecutive children from sealed runs; on all cores if there are many runs.
    pub fn load_pending(&self, disk: &Disk, children: Range<usize>) -> Result<()> {
        let read =
            |(run, slices): (&Run, Vec<usize>)| self.load_slices(disk, run, slices.into_iter());
        let mut missing = self.missing(children);
        missing.retain(|(_, slices)| !slices.is_empty());
        match missing.len() >= READ_APART_MIN && !disk.device().requires_serial_io() {
            true => pool::run(|| missing.into_par_iter().try_for_each(read)),
            false => missing.into_iter().try_for_each(read),
        }
    }

    /// Reads the slices for some children, given in order, that are not in memory; on all cores only if `on_all`. The
    /// result does not stay in memory with the node.
    pub(super) fn fetch(&self, disk: &Disk, children: &[usize], on_all: bool) -> Result<Fetched> {
        let read = |(run, slices): (&Run, Vec<usize>)| self.read_slices(disk, run, &slices);
        let runs = self.missing(children.iter().copied());
        let bytes = |(run, slices): &(&Run, Vec<usize>)| {
            let section = |at: &usize| &run.reference.slices[*at].section;
            slices.iter().map(|at| section(at).bytes as usize).sum::<usize>()
        };
        self.check_messages(runs.iter().map(bytes).sum())?;
        let is_many =
            runs.iter().filter(|(_, slices)| !slices.is_empty()).count() >= READ_APART_MIN;
        let fetched: Result<Vec<Read>> =
            match on_all && is_many && !disk.device().requires_serial_io() {
                true => pool::run(|| runs.into_par_iter().map(read).collect()),
                false => runs.into_iter().map(read).collect(),
            };
        Ok(Fetched(fetched?))
    }

    /// For each run, its slices for some children that are not in memory.
    fn missing(&self, children: impl Iterator<Item = usize>) -> Vec<(&Run, Vec<usize>)> {
        let mut missing: Vec<_> = self.runs.iter().map(|run| (run, Vec::new())).collect();
        for share in children.flat_map(|at| &self.children[at].shares) {
            let (run, slices) = &mut missing[usize::from(share.run)];
            slices.extend(share.slices().filter(|at| run.slices[*at].get().is_none()));
        }
        missing
    }

    /// Advises the device that the slices for consecutive children will be read.
    pub fn advise_will_need(&self, disk: &Disk, children: Range<usize>) {
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
            disk.advise_will_need(at, end.saturating_sub(start).into());
        }
    }

    /// Reads the range messages of all runs.
    pub fn load_ranges(&self, disk: &Disk) -> Result<()> {
        self.runs.iter().try_for_each(|run| self.ranges(disk, run).map(|_| ()))
    }

    /// Takes out the buffer of child `at`; or only its last part, whose updates create values of not much more than
    /// `growth` bytes. The rest is then in the open run.
    pub fn take_buffer(&mut self, disk: &Disk, at: usize, growth: usize) -> Result<Batch> {
        let mut batch = self.gather(disk, at)?;
        self.flushed(at);
        let taken = batch.take_last(growth);
        self.open[at] = batch;
        Ok(taken)
    }

    /// Replaces consecutive children by node `id`. All their keys are deleted; messages younger than the delete stay
    /// pending.
    pub fn collapse(&mut self, disk: &Disk, children: Range<usize>, id: NodeId) -> Result<()> {
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
        let gone = children.len() - 1;
        let place = |other: usize| match other {
            _ if other >= children.end => other - gone,
            _ => other.min(children.start),
        };
        self.renumber(place);
        self.children.drain(children.start + 1..children.end);
        self.open.drain(children.start + 1..children.end);
        self.open[children.start] = Batch::of_points(younger);
        self.flushed(children.start);
        self.replace_child(children.start, id);
        Ok(())
    }

    /// Whether a range delete is pending for child `at`.
    pub fn has_ranges(&self, at: usize) -> bool {
        let first = self.children[at].first_run;
        let live = self.runs.iter().filter(|run| run.reference.seq >= first);
        !self.open[at].ranges().is_empty() || { live }.any(|run| run.reference.ranges.count > 0)
    }

    /// Whether a delete, or an update that only truncates, is pending for child `at`. Reads sections only if they may
    /// hold such messages.
    pub fn has_deletes(&self, disk: &Disk, at: usize) -> Result<bool> {
        let open = &self.open[at];
        let frees = |batch: &Batch| {
            batch.points().iter().any(|item| item.frees()) || !batch.ranges().is_empty()
        };
        if frees(open) {
            return Ok(true);
        }
        let bounds = self.child_bounds(at);
        let first = self.children[at].first_run;
        for run in self.runs.iter().filter(|run| run.reference.seq >= first) {
            if run.reference.ranges.count > 0
                && shares(self.ranges(disk, run)?, &bounds.lo, bounds.hi.as_deref())
                    .next()
                    .is_some()
            {
                return Ok(true);
            }
        }
        let shares = &self.children[at].shares;
        let mut slices = shares.iter().flat_map(|share| {
            let run = &self.runs[usize::from(share.run)];
            run.reference.slices[share.slices()].iter()
        });
        if slices.all(|slice| slice.growth.messages >= u64::from(slice.section.count)) {
            return Ok(false);
        }
        let mut all = Batch::default();
        self.overlay(disk, at, &bounds.lo, bounds.hi.as_deref(), &mut all)?;
        Ok(frees(&all))
    }

    /// The first consecutive children that pending range deletes cover entirely, as far as is known without reading.
    pub fn covered(&self) -> Option<Range<usize>> {
        let count = self.children.len();
        let first = (0..count).find(|at| self.is_pruned(*at))?;
        let end = (first..count).find(|at| !self.is_pruned(*at)).unwrap_or(count);
        Some(first..end)
    }

    /// Takes all messages pending for child `at` as one batch.
    pub(super) fn gather(&mut self, disk: &Disk, at: usize) -> Result<Batch> {
        if self.children[at].sealed() == 0 {
            return Ok(std::mem::take(&mut self.open[at]));
        }
        // One thread: there is little to read, and a thread of the pool may be busy.
        self.advise_will_need(disk, at..at + 1);
        let fetched = self.fetch(disk, &[at], false)?;
        let batch = self.all_pending(disk, at, &fetched, &Loaded::default())?;
        fetched.give_back(disk);
        Ok(batch)
    }

    /// The messages pending for child `at`, if those not in memory have been fetched. `gathered` counts the bytes of
    /// messages taken from runs, for this child and others.
    pub(super) fn all_pending(
        &self,
        disk: &Disk,
        at: usize,
        fetched: &Fetched,
        gathered: &Loaded,
    ) -> Result<Batch> {
        let (bounds, child, open) = (self.child_bounds(at), &self.children[at], &self.open[at]);
        let (lo, hi) = (&*bounds.lo, bounds.hi.as_deref());
        let sections = child.shares.iter().flat_map(|share| {
            let slices = &self.runs[usize::from(share.run)].reference.slices[share.slices()];
            slices.iter().map(|slice| &slice.section)
        });
        let (count, bytes) = sections.fold((0, 0), |(count, bytes), section| {
            (count + runs::messages_max(section), bytes + section.bytes as usize)
        });
        let points = open.points();
        let count = count.min(EXPECTED_MAX) + points.len();
        let mut all = Gathering::with_capacity(count, bytes + points.arena());
        let count_in = |bytes: usize| {
            gathered.add(bytes as u64);
            self.check_messages(gathered.bytes() as usize)
        };
        let mut shares = child.shares.iter().peekable();
        let live = |(_, run): &(usize, &Run)| run.reference.seq >= child.first_run;
        for (number, run) in self.runs.iter().enumerate().filter(live) {
            all.begin(super::shares(self.ranges(disk, run)?, lo, hi));
            if let Some(share) = shares.next_if(|share| usize::from(share.run) == number) {
                for at in share.slices() {
                    let before = all.points.arena();
                    self.gather_slice(run, at, &bounds, fetched.bytes(number, at), &mut all)?;
                    count_in(all.points.arena() - before)?;
                }
            }
        }
        all.begin(open.ranges().iter());
        points.iter().for_each(|item| all.points.add(item));
        all.finish(|bytes| if bytes == 0 { Ok(()) } else { count_in(bytes) })
    }

    /// Adds the messages of a slice, fetched or in memory, to a gathering.
    fn gather_slice(
        &self,
        run: &Run,
        at: usize,
        bounds: &Bounds,
        fetched: Option<&Bytes>,
        all: &mut Gathering,
    ) -> Result<()> {
        let Some(bytes) = fetched else {
            let (first, next) = run.keys_of(at);
            let lo = first.max(&bounds.lo);
            let hi = next.into_iter().chain(bounds.hi.as_deref()).min();
            let slice = run.slices[at].get().expect("what is not in memory has been fetched");
            // The list may be shared with the next slices.
            slice.range(lo, hi).for_each(|item| all.points.add(item));
            return Ok(());
        };
        let (section, all) = (&run.reference.slices[at].section, &mut all.points);
        let (before, growth) = (all.len(), all.leaf_growth());
        read_slice(bytes, section.count as usize, None, |key, msn, kind, value| {
            all.add_copy(key, msn, kind, &bytes[value]);
        })
        .map_err(|error| Error::corrupt(self.part_place(run, section), error))?;
        let ends = match before < all.len() {
            true => (all.key(before), all.key(all.len() - 1)),
            false => (None, None),
        };
        self.check_slice(run, at, ends, all.leaf_growth() - growth)
    }
}

/// The slices for some children that were read because they were not in memory, by run.
pub(super) struct Fetched(Vec<Read>);

impl Fetched {
    /// Slice `at` of run `number` of the node.
    fn bytes(&self, number: usize, at: usize) -> Option<&Bytes> {
        let slices = &self.0[number].slices;
        let found = slices.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(&slices[found].1)
    }

    /// Returns the memory to the disk's buffers.
    pub(super) fn give_back(self, disk: &Disk) {
        self.0.into_iter().for_each(|read| read.give_back(disk));
    }
}
