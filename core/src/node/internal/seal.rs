//! Sealing: encodes the open run as a sealed run, and the head that refers to all runs.

use super::*;
use crate::format::limits;
use crate::tuning::SLICE_TARGET;

/// An encoded run.
pub struct EncodedRun {
    /// Header, slices and range section, padded to whole blocks.
    pub bytes: Vec<u8>,
    reference: RunRef,
    ranges: Arc<Vec<RangeDelete>>,
    /// The inserts of each slice.
    inserts: Vec<Vec<Msn>>,
}

impl EncodedRun {
    /// The section of each slice, and the MSNs of its inserts.
    pub fn slices(&self) -> impl Iterator<Item = (&SectionRef, &[Msn])> {
        let slices = self.reference.slices.iter().zip(&self.inserts);
        slices.map(|(reference, inserts)| (&reference.section, inserts.as_slice()))
    }

    /// The size of its extent; it has no place yet.
    fn extent(&self) -> Extent {
        self.reference.extent
    }
}

/// An internal node with its encoded runs, before extents are allocated.
pub struct SealedNode {
    /// The node.
    node: Internal,
    /// The runs to be written, which are the node's youngest, the oldest of them first.
    runs: Vec<EncodedRun>,
    /// Extents of runs that it no longer needs.
    freed: Vec<Retired>,
    birth: Birth,
    /// The write sequence number of the head and its length in bytes; `None` if the head is not written.
    head: Option<(u64, usize)>,
}

/// A node that has been written.
pub struct WrittenNode {
    /// The node with its new runs.
    pub node: Internal,
    /// Extent, length in bytes, and hash of the head; `None` if the head was not written.
    pub head: Option<(Extent, u32, Hash)>,
    /// The written runs, without their bytes, each with its extent.
    pub runs: Vec<(EncodedRun, Extent)>,
    /// Extents of runs that it no longer needs.
    pub freed: Vec<Retired>,
}

impl SealedNode {
    /// Block counts of its runs, and then of its head.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        let runs = self.runs.iter().map(|run| u64::from(run.extent().blocks));
        runs.chain(self.head.map(|(_, bytes)| bytes.div_ceil(BLOCK_SIZE) as u64))
    }

    /// Writes it to these extents, whose block counts must match [`SealedNode::blocks`].
    pub fn write(mut self, disk: &Disk, places: &[Extent]) -> Result<WrittenNode> {
        let first = self.node.runs.len() - self.runs.len();
        for (run, place) in self.node.runs[first..].iter_mut().zip(places) {
            run.reference.extent = *place;
        }
        let mut runs: Vec<(EncodedRun, Extent)> =
            self.runs.into_iter().zip(places.iter().copied()).collect();
        for (run, place) in &mut runs {
            disk.write(place.start.byte(), &run.bytes)?;
            disk.recycle(std::mem::take(&mut run.bytes));
        }
        let mut head = None;
        if let Some((write_seq, bytes)) = self.head {
            let (mut image, hash) = self.node.head(write_seq).encode(self.birth);
            let place = places[runs.len()];
            image.resize(place.bytes() as usize, 0);
            disk.write(place.start.byte(), &image)?;
            head = Some((place, bytes as u32, hash));
        }
        Ok(WrittenNode { node: self.node, head, runs, freed: self.freed })
    }
}

impl Internal {
    /// The key at which to cut the open run so that the part before takes about `bytes` bytes. It is greater than the
    /// first message's key. `None` if no cut is needed, or if there is only one key.
    fn end_of_piece(&self, bytes: usize) -> Option<Key> {
        if self.open_weight() <= bytes {
            return None;
        }
        let mut first = None;
        let mut taken = 0;
        for (key, weight) in self.open.iter().flat_map(Batch::weights) {
            let first = first.get_or_insert_with(|| key.clone());
            if taken + weight > bytes && key != *first {
                return Some(key);
            }
            taken += weight;
        }
        None
    }

    /// Encodes the open run, or the part of it before `end`, into one of the disk's buffers.
    pub(super) fn seal_image(&self, disk: &Disk, birth: Birth, end: Option<&Key>) -> EncodedRun {
        let seq = self.next_run;
        let mut buffer = disk.buffer(RUN_HEADER_BYTES + self.open_weight() + BLOCK_SIZE);
        buffer.clear();
        let mut w = Writer::from(buffer);
        w.pad_to(RUN_HEADER_BYTES);
        let mut list = SliceList::default();
        let mut inserts = Vec::new();
        let mut ranges: Vec<RangeDelete> = Vec::new();
        for ((child, open), place) in self.children.iter().zip(&self.open).zip(0u16..) {
            if end.is_some_and(|end| child.pivot >= *end) {
                break;
            }
            for share in open.ranges().clip(&[], end.map(|end| &**end)) {
                match ranges.last_mut() {
                    // Neighbouring parts of one range delete are joined again.
                    Some(last) if (last.msn, &last.hi) == (share.msn, &share.lo) => {
                        last.hi = share.hi;
                    }
                    _ => ranges.push(share),
                }
            }
            let points: Vec<Item<'_>> = open.points().range(&[], end.map(|end| &**end)).collect();
            let mut before = None;
            for points in pieces(&points) {
                let all = || points.iter();
                let key = points[0].key;
                let first = before.map_or(&[][..], |before| separator(before, key));
                before = points.last().map(|last| last.key);
                let greatest = all().map(|item| item.msn).max().unwrap_or_default();
                let start = w.len();
                encode_slice(&mut w, greatest, all().map(|item| item.message()));
                let growth = all().map(|item| item.leaf_growth()).sum();
                let section = section(&w, start, points.len(), Some(greatest));
                list.push(place, first, growth, section, |filters| {
                    push_filter(filters, all().map(|item| item.key), points.len());
                });
                let insert = all().filter(|item| item.kind == Kind::Insert);
                inserts.push(insert.map(|item| item.msn).collect());
            }
        }
        let (mut slices, filters) = list.finish();
        let start = w.len();
        encode_ranges(&mut w, ranges.iter());
        let range_section = match ranges.is_empty() {
            true => SectionRef::default(),
            false => {
                let greatest = ranges.iter().map(|range| range.msn).max();
                let hash = Hash::of(&w.as_slice()[start..]);
                SectionRef { hash, ..section(&w, start, ranges.len(), greatest) }
            }
        };
        // Hashing takes most of the time.
        slices.par_iter_mut().for_each(|slice| {
            let from = slice.section.offset as usize;
            slice.section.hash = Hash::of(&w.as_slice()[from..from + slice.section.bytes as usize]);
        });
        let bytes = w.len() as u32;
        let (header, header_hash) =
            RunHeader { node: self.id, seq, tree: self.tree, bytes }.encode(birth);
        w.patch(0, &header);
        w.pad_to(w.len().next_multiple_of(BLOCK_SIZE));
        let image = w.finish();
        let extent = Extent { start: BlockNr(0), blocks: (image.len() / BLOCK_SIZE) as u32 };
        let reference = RunRef {
            seq,
            extent,
            bytes,
            birth: birth.epoch,
            header_hash,
            ranges: range_section,
            slices,
            filters,
        };
        EncodedRun { bytes: image, reference, ranges: Arc::new(ranges), inserts }
    }

    /// Prepares the node for writing: drops dead runs, joins runs if there are too many (as far as they are readable),
    /// and seals the open run. A `compact` node keeps no run that is partly dead.
    pub fn seal(
        mut self,
        disk: &Disk,
        birth: Birth,
        write_seq: u64,
        compact: bool,
    ) -> Result<SealedNode> {
        let mut freed = self.drop_dead_runs();
        if self.wants_compaction() || compact && self.has_dead_parts() {
            freed.extend(self.unseal_readable(disk)?);
        }
        let runs = self.seal_runs(disk, birth)?;
        let head = Some((write_seq, self.head(write_seq).encoded_bytes()));
        Ok(SealedNode { node: self, runs, freed, birth, head })
    }

    /// Prepares the open run for writing, without the head: a log group binds values in the run.
    pub fn seal_open(mut self, disk: &Disk, birth: Birth) -> Result<SealedNode> {
        let runs = self.seal_runs(disk, birth)?;
        Ok(SealedNode { node: self, runs, freed: Vec::new(), birth, head: None })
    }

    /// Seals the open run; as several runs if it is longer than one may be.
    fn seal_runs(&mut self, disk: &Disk, birth: Birth) -> Result<Vec<EncodedRun>> {
        let mut runs = Vec::new();
        while self.has_open() {
            self.check_runs()?;
            let end = self.end_of_piece(limits::PART_MAX / 2);
            let image = self.seal_image(disk, birth, end.as_ref());
            self.sealed(&image, Extent { start: BlockNr(0), ..image.extent() }, end.as_ref());
            runs.push(image);
        }
        Ok(runs)
    }

    /// Checks that the node can have another run.
    fn check_runs(&self) -> Result<()> {
        match self.runs.len() >= limits::RUNS_MAX {
            true => {
                let fewer = format!("fewer than {}", limits::RUNS_MAX);
                let fault = Fault::mismatch("runs that cannot be joined", fewer, self.runs.len());
                Err(Error::corrupt(Place::Node { id: self.id, byte: None }, fault))
            }
            false => Ok(()),
        }
    }

    /// Turns the part of the open run before `end`, which has an extent, into a sealed run that is still in memory.
    pub(super) fn sealed(&mut self, image: &EncodedRun, extent: Extent, end: Option<&Key>) {
        let reference = RunRef { extent, ..image.reference.clone() };
        let run = self.runs.len() as u16;
        let mut slices = Vec::with_capacity(reference.slices.len());
        for at in 0..self.children.len() {
            let taken = match end {
                Some(end) if self.children[at].pivot >= *end => break,
                Some(end) => {
                    let rest = self.open[at].within(end, None);
                    let taken = self.open[at].within(&[], Some(end));
                    self.open[at] = rest;
                    taken
                }
                None => std::mem::take(&mut self.open[at]),
            };
            let shares: usize = taken.ranges().iter().map(|range| range_weight(&range)).sum();
            let child = &mut self.children[at];
            child.ranges += shares;
            let start = slices.len() as u16;
            let own = reference.slices[slices.len()..].iter();
            let points = taken.into_points();
            for slice in own.take_while(|slice| usize::from(slice.child) == at) {
                child.slices += slice.section.bytes as usize;
                child.growth += slice.growth;
                slices.push(OnceLock::from(points.clone()));
            }
            let end = slices.len() as u16;
            if end > start {
                child.shares.push(Share { run, start, end });
            }
        }
        let ranges = OnceLock::from(image.ranges.clone());
        self.runs.push(Run::new(reference, slices, ranges));
        self.next_run = RunSeq(self.next_run.0 + 1);
    }

    /// The head, without flushed slices.
    pub fn head(&self, write_seq: u64) -> InternalHead {
        let children = self.children.iter();
        let live = |run: &Run| RunRef {
            slices: run.live_slices(&self.children).cloned().collect(),
            ..run.reference.clone()
        };
        InternalHead {
            id: self.id,
            tree: self.tree,
            height: self.height,
            write_seq,
            next_run: self.next_run,
            bounds: self.bounds.clone(),
            children: children
                .map(|child| ChildRef {
                    id: child.id,
                    first_run: child.first_run,
                    pivot: child.pivot.clone(),
                    lens: child.lens.as_deref().cloned(),
                })
                .collect(),
            runs: self.runs.iter().map(live).collect(),
        }
    }
}

/// The messages for a child, cut into slices of about `SLICE_TARGET` bytes, so that a lookup reads little.
fn pieces<'p, 'm>(mut points: &'p [Item<'m>]) -> impl Iterator<Item = &'p [Item<'m>]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |item: &&Item<'_>| {
            bytes += MESSAGE_BYTES + item.key.len() + item.value().len();
            bytes <= SLICE_TARGET
        };
        let count = points.iter().take_while(fits).count().max(1);
        let (piece, rest) = points.split_at_checked(count)?;
        points = rest;
        Some(piece)
    })
}

/// A section from `start` to the end of the written bytes, without its hash.
fn section(w: &Writer, start: usize, count: usize, greatest: Option<Msn>) -> SectionRef {
    SectionRef {
        offset: start as u32,
        bytes: (w.len() - start) as u32,
        count: count as u32,
        greatest: greatest.unwrap_or_default(),
        hash: Hash::default(),
    }
}
