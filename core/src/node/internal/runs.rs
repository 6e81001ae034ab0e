//! Sealed runs: reads slices and range messages, and keeps them in memory.

use bytes::Bytes;

use super::*;
use crate::tuning::GAP_MAX;

/// A sealed run.
#[derive(Clone)]
pub struct Run {
    pub(super) reference: RunRef,
    /// The slice index of lookups.
    index: Vec<Spot>,
    /// Slices that have been read. Slices of one child that were written from one list share it.
    pub(super) slices: Vec<OnceLock<Slice>>,
    pub(super) ranges: OnceLock<Arc<Vec<RangeDelete>>>,
    /// Bytes of keys and values of the slices in memory, and their total memory.
    arena: Loaded,
    memory: Loaded,
}

/// The index entry of a slice: whether it may have a message for a key.
#[derive(Clone, Copy)]
struct Spot {
    /// The first bytes of the slice's first key.
    head: u64,
    /// The range of its filter in the run's filters.
    filter: (u32, u32),
}

/// Slices as they were read, with verified hashes.
#[derive(Default)]
pub(super) struct Read {
    /// Each with its index in the run, in order.
    pub slices: Vec<(usize, Bytes)>,
    /// The buffers that were read, each for one or more slices.
    rows: Vec<Bytes>,
}

impl Read {
    /// Returns the memory to the disk's buffers, unless parts of it are still used.
    pub(super) fn give_back(self, disk: &Disk) {
        drop(self.slices);
        let rows = self.rows.into_iter().filter(Bytes::is_unique);
        rows.for_each(|row| disk.recycle(row.into()));
    }
}

/// The most messages that a slice can have, by its stated count and by its bytes: a corrupt image may state any count.
pub(super) fn messages_max(section: &SectionRef) -> usize {
    (section.count as usize).min(section.bytes as usize / MESSAGE_BYTES)
}

/// 160 bytes: the memory of a slice of which nothing was read, besides its filter.
const SLICE_MEMORY: usize = 160;

impl Internal {
    /// Slice `at` of a run; reads it if necessary.
    pub(super) fn slice<'r>(&self, disk: &Disk, run: &'r Run, at: usize) -> Result<&'r Slice> {
        if let Some(slice) = run.slices[at].get() {
            return Ok(slice);
        }
        let section = &run.reference.slices[at].section;
        let bytes = self.part(disk, run, section)?;
        let slice = self.take_apart(run, at, bytes)?;
        self.loaded.add(section.bytes.into());
        Ok(slice)
    }

    /// Reads the missing ones of some slices of a run, given in order. Slices near one another are read at once.
    pub(super) fn load_slices(
        &self,
        disk: &Disk,
        run: &Run,
        slices: impl Iterator<Item = usize>,
    ) -> Result<()> {
        let missing: Vec<usize> = slices.filter(|at| run.slices[*at].get().is_none()).collect();
        let mut read = self.read_slices(disk, run, &missing)?;
        for (at, bytes) in read.slices.drain(..) {
            let len = bytes.len() as u64;
            self.take_apart(run, at, bytes)?;
            self.loaded.add(len);
        }
        read.give_back(disk);
        Ok(())
    }

    /// The bytes of slices of a run, given in order, with verified hashes. Slices near one another are read at once.
    pub(super) fn read_slices(&self, disk: &Disk, run: &Run, slices: &[usize]) -> Result<Read> {
        let section = |at: usize| &run.reference.slices[at].section;
        let end = |at: usize| section(at).offset.saturating_add(section(at).bytes);
        let near = |a: &usize, b: &usize| {
            let gap = section(*b).offset.checked_sub(end(*a));
            gap.is_some_and(|gap| gap <= GAP_MAX)
        };
        let mut read = Read::default();
        for row in slices.chunk_by(near) {
            let start = section(row[0]).offset;
            let len = end(row[row.len() - 1]) - start;
            let place = run.reference.extent.start.byte() + u64::from(start);
            let Ok(bytes) = disk.read(place, len as usize) else {
                // The gap between slices need not be readable.
                for at in row {
                    read.slices.push((*at, self.part(disk, run, section(*at))?));
                }
                continue;
            };
            let bytes = Bytes::from(bytes);
            for at in row {
                let part = bytes
                    .slice((section(*at).offset - start) as usize..(end(*at) - start) as usize);
                check_hash(&part, &section(*at).hash, || self.part_place(run, section(*at)))?;
                read.slices.push((*at, part));
            }
            read.rows.push(bytes);
        }
        Ok(read)
    }

    /// Decodes slice `at` of a run, whose hash has been verified.
    fn take_apart<'r>(&self, run: &'r Run, at: usize, bytes: Bytes) -> Result<&'r Slice> {
        let section = &run.reference.slices[at].section;
        let mut messages = Sorted::with_capacity(messages_max(section), section.bytes as usize);
        read_slice(&bytes, section.count as usize, None, |key, msn, kind, value| {
            messages.push_copy(key, msn, kind, &bytes[value]);
        })
        .map_err(|error| Error::corrupt(self.part_place(run, section), error))?;
        messages.shrink();
        let first = messages.iter().next().map(|item| item.key);
        let growth = messages.sizes().leaf_growth;
        self.check_slice(run, at, (first, messages.last_key()), growth)?;
        let keys: u64 = self.runs.iter().map(|run| run.arena.bytes()).sum();
        self.check_messages(keys as usize + messages.arena())?;
        Ok(run.slices[at].get_or_init(|| {
            run.arena.add(messages.arena() as u64);
            run.memory.add(messages.memory() as u64);
            Arc::new(messages)
        }))
    }

    /// Checks a decoded slice: its first and last keys are within its keys and those of its child, and its growth is as
    /// the head states.
    pub(super) fn check_slice(
        &self,
        run: &Run,
        at: usize,
        (first, last): (Option<&[u8]>, Option<&[u8]>),
        growth: Growth,
    ) -> Result<()> {
        let reference = &run.reference.slices[at];
        let corrupt = |fault| Error::corrupt(self.part_place(run, &reference.section), fault);
        let (lo, hi) = run.keys_of(at);
        let is_own = |key: &[u8]| {
            let own = self.child_for(key);
            own == usize::from(reference.child)
                && self.bounds.contains(key)
                && key >= lo
                && hi.is_none_or(|hi| key < hi)
        };
        if ![first, last].into_iter().flatten().all(is_own) {
            let fault = Fault::mismatch("keys of a slice", "those it is said to have", "others");
            return Err(corrupt(fault));
        }
        match reference.growth == growth {
            true => Ok(()),
            false => {
                let text =
                    |Growth { messages, bytes }| format!("{messages} messages, {bytes} bytes");
                let (stated, found) = (text(reference.growth), text(growth));
                Err(corrupt(Fault::mismatch("growth of a slice", stated, found)))
            }
        }
    }

    /// Limits the memory of messages: on disk their keys may share most of their bytes, in memory they do not.
    pub(super) fn check_messages(&self, bytes: usize) -> Result<()> {
        if bytes <= MESSAGES_MAX {
            return Ok(());
        }
        let fault = Fault::mismatch("messages", format!("{MESSAGES_MAX} bytes at the most"), bytes);
        Err(Error::corrupt(Place::Node { id: self.id, byte: None }, fault))
    }

    pub(super) fn ranges<'r>(&self, disk: &Disk, run: &'r Run) -> Result<&'r [RangeDelete]> {
        let section = &run.reference.ranges;
        if section.count == 0 {
            return Ok(&[]);
        }
        if let Some(ranges) = run.ranges.get() {
            return Ok(ranges);
        }
        let bytes = self.part(disk, run, section)?;
        let ranges = decode_ranges(&bytes, section.count as usize, None)
            .map_err(|error| Error::corrupt(self.part_place(run, section), error))?;
        let ranges = run.ranges.get_or_init(|| Arc::new(ranges));
        self.loaded.add(section.bytes.into());
        Ok(ranges)
    }

    fn part(&self, disk: &Disk, run: &Run, section: &SectionRef) -> Result<Bytes> {
        let at = run.reference.extent.start.byte() + u64::from(section.offset);
        read_part(disk, || self.part_place(run, section), at, section.bytes, &section.hash)
    }

    pub(super) fn part_place(&self, run: &Run, section: &SectionRef) -> Place {
        let byte = run.reference.extent.start.byte() + u64::from(section.offset);
        Place::Part { id: self.id, part: run.reference.seq.0, byte }
    }
}

impl Internal {
    /// For each run, whether its range messages and which of its slices are in memory.
    pub fn known(&self) -> Vec<(bool, Vec<bool>)> {
        let slices = |run: &Run| run.slices.iter().map(|slice| slice.get().is_some()).collect();
        self.runs.iter().map(|run| (run.ranges.get().is_some(), slices(run))).collect()
    }

    /// The node without parts of runs that were read since `known` was taken.
    pub fn without_others(mut self, known: &[(bool, Vec<bool>)]) -> Internal {
        for (run, (ranges, known)) in self.runs.iter_mut().zip(known) {
            if !ranges {
                run.ranges.take();
            }
            let others = run.slices.iter_mut().zip(known).filter(|(_, known)| !**known);
            let gone: Vec<Slice> = others.filter_map(|(slice, _)| slice.take()).collect();
            run.gone(&gone);
        }
        self
    }
}

impl Run {
    /// Its extent, to be retired by node `id`.
    pub(super) fn retired(&self, id: NodeId) -> Retired {
        let RunRef { extent, birth, seq, .. } = self.reference;
        Retired { extent, birth, owner: Owner::Run(id, seq) }
    }

    /// A run with the parts of it that are in memory.
    pub(super) fn new(
        reference: RunRef,
        slices: Vec<OnceLock<Slice>>,
        ranges: OnceLock<Arc<Vec<RangeDelete>>>,
    ) -> Run {
        let spot = |slice: &SliceRef| Spot {
            head: Key::head(&slice.first),
            filter: (slice.filter.start, slice.filter.end),
        };
        let index = reference.slices.iter().map(spot).collect();
        let (arena, memory) = (Loaded::default(), Loaded::default());
        let run = Run { reference, index, slices, ranges, arena, memory };
        for slice in each_once(run.slices.iter().filter_map(OnceLock::get)) {
            run.arena.add(slice.arena() as u64);
            run.memory.add(slice.memory() as u64);
        }
        run
    }

    /// Evicts some slices.
    pub(super) fn forget(&mut self, slices: Range<usize>) {
        let gone: Vec<Slice> = self.slices[slices].iter_mut().filter_map(OnceLock::take).collect();
        self.gone(&gone);
    }

    fn gone(&mut self, slices: &[Slice]) {
        for slice in each_once(slices.iter()) {
            self.arena.take_off(slice.arena() as u64);
            self.memory.take_off(slice.memory() as u64);
        }
    }

    /// Evicts everything that was read.
    pub(super) fn forget_all(&mut self) {
        self.slices.iter_mut().for_each(|slice| drop(slice.take()));
        (self.arena, self.memory) = Default::default();
        self.ranges.take();
    }

    /// The reference in the head: place and shape of the run.
    pub fn reference(&self) -> &RunRef {
        &self.reference
    }

    /// The slices of a child that may have messages within `[lo, hi)`.
    pub(super) fn slices_within(
        &self,
        share: &Share,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> Range<usize> {
        let start = self.slice_of(share, Key::head(lo), lo).unwrap_or(share.slices().start);
        let slices = &self.reference.slices[share.slices()];
        let end = hi.map_or(slices.len(), |hi| slices.partition_point(|s| *s.first < *hi));
        start..(share.slices().start + end).max(start)
    }

    /// The slice of a child that may have a message for a key; `head` are the key's first bytes.
    pub(super) fn slice_of(&self, share: &Share, head: u64, key: &[u8]) -> Option<usize> {
        let all = share.slices();
        if all.len() == 1 {
            // The first slice covers the keys from the child's pivot on.
            return Some(all.start);
        }
        let index = &self.index[all.clone()];
        let mut end = all.start + index.partition_point(|spot| spot.head <= head);
        while end > all.start
            && self.index[end - 1].head == head
            && *self.reference.slices[end - 1].first > *key
        {
            end -= 1;
        }
        end.checked_sub(1).filter(|at| *at >= all.start)
    }

    /// Whether slice `at` may have a message for a key, by its filter.
    pub(super) fn may_have(&self, at: usize, key: Probe) -> bool {
        let (start, end) = self.index[at].filter;
        key.may_be_in(&self.reference.filters[start as usize..end as usize])
    }

    /// The keys of slice `at`: from the first to the second; without a second, to the child's end.
    pub(super) fn keys_of(&self, at: usize) -> (&[u8], Option<&[u8]>) {
        let slices = &self.reference.slices;
        let next = slices.get(at + 1).filter(|next| next.child == slices[at].child);
        (&slices[at].first, next.map(|next| &*next.first))
    }

    /// Its memory, without parts that were read.
    pub(super) fn memory(&self) -> usize {
        256 + self.slices.len() * SLICE_MEMORY + self.reference.filters.len()
    }

    /// The memory of parts that were read: slices and range messages.
    pub(super) fn read_memory(&self) -> usize {
        let ranges = self.ranges.get().map_or(0, |ranges| ranges.len() * 128);
        self.memory.bytes() as usize + ranges
    }

    /// The slices that have not been flushed to their children.
    pub(super) fn live_slices<'r>(
        &'r self,
        children: &[Child],
    ) -> impl Iterator<Item = &'r SliceRef> {
        let seq = self.reference.seq;
        let slices = self.reference.slices.iter();
        slices.filter(move |slice| seq >= children[usize::from(slice.child)].first_run)
    }
}

/// Skips neighbours that share a list.
pub(super) fn each_once<'s>(
    slices: impl Iterator<Item = &'s Slice>,
) -> impl Iterator<Item = &'s Slice> {
    let mut last: Option<&Slice> = None;
    slices.filter(move |slice| !last.replace(slice).is_some_and(|last| Arc::ptr_eq(last, slice)))
}
