//! Sealed runs: what of them is in memory, and reading the rest.

use super::*;

/// A sealed run.
#[derive(Clone)]
pub struct Run {
    pub(super) reference: RunRef,
    /// The slices by their children's names.
    pub(super) order: Vec<(NodeId, u16)>,
    pub(super) slices: Vec<OnceLock<Slice>>,
    pub(super) ranges: OnceLock<Arc<Vec<RangeDelete>>>,
}

impl Internal {
    /// Slice `at` of a run, which is read if it has not been.
    pub(super) fn slice<'r>(&self, disk: &Disk, run: &'r Run, at: usize) -> Result<&'r Slice> {
        if let Some(slice) = run.slices[at].get() {
            return Ok(slice);
        }
        let section = &run.reference.slices[at].section;
        let bytes = self.part(disk, run, section)?;
        let bytes = bytes.into();
        // The count is what an image says; each message has its length at least.
        let count = (section.count as usize).min(section.bytes as usize / MESSAGE_BYTES);
        let mut messages = Sorted::with_capacity(count, section.bytes as usize);
        read_slice(&bytes, section.count as usize, None, |key, msn, kind, value| {
            messages.push_copy(key, msn, kind, &bytes[value]);
        })
        .map_err(|error| Error::corrupt(self.part_place(run, section), error))?;
        messages.shrink();
        let loaded = self.runs.iter().flat_map(|run| run.slices.iter().filter_map(OnceLock::get));
        let keys: usize = loaded.map(|slice| slice.arena()).sum();
        self.check_messages(keys + messages.arena())?;
        let (growth, found) = (run.reference.slices[at].growth, messages.sizes().growth as u64);
        if growth != found {
            let fault = Fault::mismatch("growth of a slice", growth, found);
            return Err(Error::corrupt(self.part_place(run, section), fault));
        }
        Ok(run.slices[at].get_or_init(|| Arc::new(messages)))
    }

    /// Keys may share most of their bytes on disk; in memory they do not.
    pub(super) fn check_messages(&self, bytes: usize) -> Result<()> {
        if bytes <= MESSAGES_MAX {
            return Ok(());
        }
        let fault = Fault::mismatch("messages", format!("{MESSAGES_MAX} bytes at the most"), bytes);
        Err(Error::corrupt(Place::Node { id: self.id, byte: None }, fault))
    }

    pub(super) fn ranges(&self, disk: &Disk, run: &Run) -> Result<Arc<Vec<RangeDelete>>> {
        if let Some(ranges) = run.ranges.get() {
            return Ok(ranges.clone());
        }
        let section = &run.reference.ranges;
        let ranges = if section.count == 0 {
            Vec::new()
        } else {
            let bytes = self.part(disk, run, section)?;
            decode_ranges(&bytes, section.count as usize, None)
                .map_err(|error| Error::corrupt(self.part_place(run, section), error))?
        };
        Ok(run.ranges.get_or_init(|| Arc::new(ranges)).clone())
    }

    fn part(&self, disk: &Disk, run: &Run, section: &SectionRef) -> Result<Vec<u8>> {
        let at = run.reference.extent.start.byte() + u64::from(section.offset);
        self.loaded.add(section.bytes.into());
        read_part(disk, || self.part_place(run, section), at, section.bytes, &section.hash)
    }

    fn part_place(&self, run: &Run, section: &SectionRef) -> Place {
        let byte = run.reference.extent.start.byte() + u64::from(section.offset);
        Place::Part { id: self.id, part: run.reference.seq.0, byte }
    }
}

impl Run {
    /// Where and what the run is.
    pub fn reference(&self) -> &RunRef {
        &self.reference
    }

    /// The slice for a child.
    pub(super) fn slice_for(&self, child: NodeId) -> Option<usize> {
        let at = self.order.binary_search_by_key(&child, |(id, _)| *id).ok()?;
        Some(self.order[at].1.into())
    }

    /// The bytes of all filters.
    pub(super) fn filters(&self) -> usize {
        self.reference.slices.iter().map(|slice| slice.filter.len()).sum()
    }

    /// How much memory it takes.
    pub(super) fn memory(&self) -> usize {
        let slices: usize =
            self.slices.iter().filter_map(|slice| slice.get()).map(|s| s.memory()).sum();
        let ranges = self.ranges.get().map_or(0, |ranges| ranges.len() * 128);
        256 + self.slices.len() * 160 + self.filters() + slices + ranges
    }

    /// The slices that have not been flushed, where `firsts` has the first live run of each child.
    pub(super) fn live_slices(
        &self,
        firsts: &HashMap<NodeId, RunSeq>,
    ) -> impl Iterator<Item = &SliceRef> {
        let seq = self.reference.seq;
        let live =
            move |slice: &&SliceRef| firsts.get(&slice.child).is_some_and(|first| seq >= *first);
        self.reference.slices.iter().filter(live)
    }

    /// Bytes of messages that have not been flushed to all children.
    pub(super) fn live_bytes(&self, firsts: &HashMap<NodeId, RunSeq>) -> usize {
        let points: usize = self.live_slices(firsts).map(|s| s.section.bytes as usize).sum();
        let ranges_live = firsts.values().any(|first| self.reference.seq >= *first);
        points + if ranges_live { self.reference.ranges.bytes as usize } else { 0 }
    }
}

/// The slices of a run by their children's names.
pub(super) fn order_of(run: &RunRef) -> Vec<(NodeId, u16)> {
    let slices = run.slices.iter().enumerate();
    let mut order: Vec<_> = slices.map(|(at, slice)| (slice.child, at as u16)).collect();
    order.sort_unstable();
    order
}
