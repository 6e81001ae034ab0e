//! An internal node in memory: children, sealed runs on disk, and the open run that takes messages.
//!
//! Sealed runs are immutable; the head records, for each child, the first run whose messages for it
//! are still live. A child's buffer is its live share of all runs, oldest first, and of the open run.
//! Every child's weight (the size of its buffer) is kept, so that the heaviest is found at once.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::batch::{Batch, range_weight, weight_of};
use super::read_part;
use crate::device::Disk;
use crate::error::{Error, Place, Result};
use crate::format::{
    Action, Birth, Bounds, CHILD_BYTES, ChildRef, InternalHead, Key, Message, RUN_BYTES,
    RUN_HEADER_BYTES, RangeDelete, RunHeader, RunRef, SLICE_BYTES, SectionRef, SliceRef, Writer,
    decode_ranges, decode_slice, encode_ranges, encode_slice,
};
use crate::ids::*;

type Slice = Arc<Vec<(Key, Message)>>;

/// A node of height 1 or more.
#[derive(Clone)]
pub struct Internal {
    /// The node's name.
    pub id: NodeId,
    /// The tree that it belongs to.
    pub tree: TreeId,
    /// Its height.
    pub height: Height,
    /// The keys that it is responsible for.
    pub bounds: Bounds,
    children: Vec<Child>,
    runs: Vec<Run>,
    open: Batch,
    next_run: RunSeq,
}

/// An edge to a child, and the weight of its buffer.
#[derive(Clone, Debug)]
pub struct Child {
    /// The child's name.
    pub id: NodeId,
    /// The least key that belongs to it.
    pub pivot: Key,
    first_run: RunSeq,
    weight: usize,
}

/// A sealed run.
#[derive(Clone)]
pub struct Run {
    reference: RunRef,
    slices: Vec<OnceLock<Slice>>,
    ranges: OnceLock<Arc<Vec<RangeDelete>>>,
}

/// A run as bytes, ready to be written.
pub struct RunImage {
    /// Header, slices and range section, padded to whole blocks.
    pub bytes: Vec<u8>,
    run: Run,
}

impl Internal {
    /// A node over `children`, which are in key order, each with its least key; without messages.
    pub fn new(
        id: NodeId,
        tree: TreeId,
        height: Height,
        bounds: Bounds,
        children: Vec<(NodeId, Key)>,
    ) -> Internal {
        let child = |(id, pivot)| Child { id, pivot, first_run: RunSeq(0), weight: 0 };
        Internal {
            id,
            tree,
            height,
            bounds,
            children: children.into_iter().map(child).collect(),
            runs: Vec::new(),
            open: Batch::default(),
            next_run: RunSeq(0),
        }
    }

    pub(super) fn stored(head: InternalHead) -> Internal {
        let children = head.children.into_iter().map(|child| Child {
            id: child.id,
            pivot: child.pivot,
            first_run: child.first_run,
            weight: 0,
        });
        let runs = head.runs.into_iter().map(|reference| Run {
            slices: vec![OnceLock::new(); reference.slices.len()],
            ranges: OnceLock::new(),
            reference,
        });
        let mut node = Internal {
            id: head.id,
            tree: head.tree,
            height: head.height,
            bounds: head.bounds,
            children: children.collect(),
            runs: runs.collect(),
            open: Batch::default(),
            next_run: head.next_run,
        };
        node.weigh();
        node
    }

    /// The children, in key order.
    pub fn children(&self) -> &[Child] {
        &self.children
    }

    /// The sealed runs, oldest first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The index of the child that `key` belongs to.
    pub fn child_for(&self, key: &[u8]) -> usize {
        self.children.partition_point(|child| *child.pivot <= *key).saturating_sub(1)
    }

    /// The index of the last child with keys below `key`, which is not the least of the node.
    pub fn child_before(&self, key: &[u8]) -> usize {
        self.children.partition_point(|child| *child.pivot < *key).saturating_sub(1)
    }

    /// The keys of child `at`.
    pub fn child_bounds(&self, at: usize) -> Bounds {
        let hi = self.children.get(at + 1).map(|next| next.pivot.clone());
        Bounds { lo: self.children[at].pivot.clone(), hi: hi.or_else(|| self.bounds.hi.clone()) }
    }

    /// The weight of child `at`'s buffer; 0 means that nothing is pending for it.
    pub fn pending(&self, at: usize) -> usize {
        debug_assert!(
            self.children[at].weight > 0 || self.is_silent(at),
            "a buffer without weight"
        );
        self.children[at].weight
    }

    /// Whether no run has a message for child `at`.
    fn is_silent(&self, at: usize) -> bool {
        let bounds = self.child_bounds(at);
        let (child, hi) = (&self.children[at], bounds.hi.as_deref());
        let live = |run: &Run| {
            run.reference.seq >= child.first_run
                && (run.reference.slices.iter().any(|slice| slice.child == child.id)
                    || run.ranges.get().is_some_and(|ranges| {
                        ranges.iter().any(|range| clip(range, &bounds.lo, hi).is_some())
                    }))
        };
        self.open.points_within(&bounds.lo, hi).next().is_none()
            && self.open.ranges().clip(&bounds.lo, hi).is_empty()
            && !self.runs.iter().any(live)
    }

    /// The weight of all buffers.
    pub fn buffered(&self) -> usize {
        self.children.iter().map(|child| child.weight).sum()
    }

    /// The child with the heaviest buffer.
    pub fn heaviest(&self) -> usize {
        let heaviest = self.children.iter().enumerate().rev().max_by_key(|(_, child)| child.weight);
        heaviest.map_or(0, |(at, _)| at)
    }

    /// About how much memory the node takes.
    pub fn weight(&self) -> usize {
        1024 + self.children.len() * 128 + 2 * self.buffered() + self.runs.len() * 1024
    }

    /// At most how many bytes writing the head, and all buffers as one run, takes.
    pub fn bytes_max(&self) -> usize {
        let edges: usize = self.children.iter().map(|child| CHILD_BYTES + child.pivot.len()).sum();
        let slices: usize = self.runs.iter().map(|run| run.reference.slices.len()).sum();
        let slices = (slices + self.children.len()) * SLICE_BYTES;
        let runs = (self.runs.len() + 1) * RUN_BYTES;
        let bounds = self.bounds.lo.len() + self.bounds.hi.as_ref().map_or(0, |hi| hi.len());
        256 + bounds + edges + slices + runs + RUN_HEADER_BYTES + self.buffered()
    }

    /// Adds a message to the open run.
    pub fn insert(&mut self, key: Key, message: Message) {
        let at = self.child_for(&key);
        let delta = self.open.insert(key, message);
        let weight = &mut self.children[at].weight;
        *weight = weight.saturating_add_signed(delta);
    }

    /// Adds a range delete to the open run.
    pub fn insert_range(&mut self, range: RangeDelete) {
        let (lo, hi) = (range.lo.clone(), range.hi.clone());
        self.open.insert_range(range);
        let first = self.child_for(&lo);
        for at in first..self.children.len() {
            if at > first && self.children[at].pivot >= hi {
                break;
            }
            self.children[at].weight = self.weigh_child(at);
        }
    }

    /// Adds a buffer that came from the parent.
    pub fn absorb(&mut self, batch: Batch) {
        let ranges: Vec<RangeDelete> = batch.ranges().iter().collect();
        ranges.into_iter().for_each(|range| self.insert_range(range));
        for (key, message) in batch.points() {
            self.insert(key.clone(), message.clone());
        }
    }

    /// What the node's messages do to `key`, on top of what is pending above; no further than to what says
    /// everything. A range delete is a delete here.
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
            !matches!(above.insert(action), Action::Update(_))
        };
        if let Some(action) = self.open.get(key)
            && decided(&mut above, action)
        {
            return Ok(above);
        }
        let child = &self.children[self.child_for(key)];
        for run in self.runs.iter().rev().take_while(|run| run.reference.seq >= child.first_run) {
            if let Some(slice) = self.slice(disk, run, child.id)?
                && let Ok(at) = slice.binary_search_by(|(k, _)| (**k).cmp(key))
                && decided(&mut above, &slice[at].1.action)
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

    /// Adds what is pending for child `at` within `[lo, hi)` to `overlay`, which holds older messages.
    pub fn overlay(
        &self,
        disk: &Disk,
        at: usize,
        lo: &[u8],
        hi: Option<&[u8]>,
        overlay: &mut Batch,
    ) -> Result<()> {
        let child = &self.children[at];
        if child.weight == 0 {
            return Ok(());
        }
        for run in self.runs.iter().filter(|run| run.reference.seq >= child.first_run) {
            let ranges = self.ranges(disk, run)?;
            let shares = ranges.iter().filter_map(|range| clip(range, lo, hi));
            match self.slice(disk, run, child.id)? {
                None => overlay.absorb(std::iter::empty(), shares),
                Some(slice) => {
                    let start = slice.partition_point(|(key, _)| **key < *lo);
                    let end =
                        hi.map_or(slice.len(), |hi| slice.partition_point(|(key, _)| **key < *hi));
                    overlay.absorb(slice[start..end.max(start)].iter().cloned(), shares);
                }
            }
        }
        let (points, ranges) = self.open.copy_within(lo, hi);
        overlay.absorb(points.into_iter(), ranges.into_iter());
        Ok(())
    }

    /// Whether a range delete that is pending for child `at` covers all of its keys, and nothing that is
    /// read from disk has to be looked at to know.
    pub fn is_pruned(&self, at: usize) -> bool {
        let bounds = self.child_bounds(at);
        let first = self.children[at].first_run;
        let live = self.runs.iter().filter(|run| run.reference.seq >= first);
        let covers = |run: &Run| {
            let ranges = run.ranges.get().map_or(&[][..], |ranges| ranges.as_slice());
            ranges.iter().any(|range| {
                range.lo <= bounds.lo && bounds.hi.as_ref().is_some_and(|hi| range.hi >= *hi)
            })
        };
        self.open.ranges().covers(&bounds) || live.into_iter().any(covers)
    }

    /// Takes the buffer of child `at` out of the node.
    pub fn take_buffer(&mut self, disk: &Disk, at: usize) -> Result<Batch> {
        let bounds = self.child_bounds(at);
        let mut batch = Batch::default();
        self.overlay(disk, at, &bounds.lo, bounds.hi.as_deref(), &mut batch)?;
        self.open.take(&bounds.lo, bounds.hi.as_ref());
        let child = &mut self.children[at];
        child.first_run = self.next_run;
        child.weight = 0;
        Ok(batch)
    }

    /// Brings all live messages of sealed runs back into the open run. Returned are the extents that
    /// the runs lay in, with the epochs that they were written for.
    pub fn unseal(&mut self, disk: &Disk) -> Result<Vec<(Extent, Epoch)>> {
        let mut all = Batch::default();
        for at in 0..self.children.len() {
            let bounds = self.child_bounds(at);
            self.overlay(disk, at, &bounds.lo, bounds.hi.as_deref(), &mut all)?;
        }
        self.open = all;
        self.weigh();
        Ok(self.drop_runs())
    }

    fn drop_runs(&mut self) -> Vec<(Extent, Epoch)> {
        self.children.iter_mut().for_each(|child| child.first_run = RunSeq(0));
        self.next_run = RunSeq(0);
        self.runs.drain(..).map(|run| (run.reference.extent, run.reference.birth)).collect()
    }

    /// Drops runs without live messages; returns their extents and epochs.
    pub fn drop_dead_runs(&mut self) -> Vec<(Extent, Epoch)> {
        let mut dead = Vec::new();
        let firsts = self.first_runs();
        self.runs.retain(|run| {
            let live = run.live_bytes(&firsts) > 0;
            if !live {
                dead.push((run.reference.extent, run.reference.birth));
            }
            live
        });
        dead
    }

    /// Whether more than half of what the sealed runs hold is dead, or there are too many of them, or no
    /// number is left for another.
    pub fn wants_compaction(&self, runs_max: usize) -> bool {
        let stored: usize =
            self.runs.iter().map(|run| run.reference.bytes as usize - RUN_HEADER_BYTES).sum();
        let firsts = self.first_runs();
        let live: usize = self.runs.iter().map(|run| run.live_bytes(&firsts)).sum();
        self.runs.len() > runs_max || 2 * live < stored || self.next_run == RunSeq(u64::MAX)
    }

    /// Replaces child `at`, whose buffer is empty, by itself and `more` to its right.
    pub fn add_children(&mut self, at: usize, more: Vec<(NodeId, Key)>) {
        debug_assert_eq!(self.children[at].weight, 0, "a child is flushed before it is split");
        let first_run = self.next_run;
        self.children[at].first_run = first_run;
        let more = more.into_iter().map(|(id, pivot)| Child { id, pivot, first_run, weight: 0 });
        self.children.splice(at + 1..at + 1, more);
    }

    /// Removes child `at + 1`, whose keys child `at` has taken over; both buffers are empty.
    pub fn remove_right_of(&mut self, at: usize) {
        debug_assert_eq!(self.children[at].weight + self.children[at + 1].weight, 0);
        self.children.remove(at + 1);
        self.children[at].first_run = self.next_run;
    }

    /// Moves the right part of a node without sealed runs into a new node named `id`.
    pub fn split_off(&mut self, at: usize, id: NodeId) -> Internal {
        assert!(self.runs.is_empty(), "a node is unsealed before it is split");
        let children = self.children.split_off(at);
        let pivot = children[0].pivot.clone();
        let open = self.open.take(&pivot, self.bounds.hi.as_ref());
        let hi = self.bounds.hi.replace(pivot.clone());
        let bounds = Bounds { lo: pivot, hi };
        let (tree, height) = (self.tree, self.height);
        Internal { id, tree, height, bounds, children, runs: Vec::new(), open, next_run: RunSeq(0) }
    }

    /// Joins a right neighbour; neither has sealed runs.
    pub fn merge(&mut self, right: Internal) {
        assert!(
            self.runs.is_empty() && right.runs.is_empty(),
            "nodes are unsealed before they merge"
        );
        self.bounds.hi = right.bounds.hi.clone();
        self.children
            .extend(right.children.iter().cloned().map(|child| Child { weight: 0, ..child }));
        self.absorb(right.open);
        self.weigh();
    }

    /// The messages of the open run.
    pub fn open(&self) -> &Batch {
        &self.open
    }

    /// Whether the open run has messages.
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The open run, or what of it lies before `end`, as bytes of a sealed one.
    pub fn seal_image(&self, birth: Birth, end: Option<&Key>) -> RunImage {
        let seq = self.next_run;
        let mut w = Writer::default();
        w.pad_to(RUN_HEADER_BYTES);
        let mut references = Vec::new();
        let mut slices = Vec::new();
        for at in 0..self.children.len() {
            let bounds = self.child_bounds(at);
            let hi = match (&bounds.hi, end) {
                (Some(hi), Some(end)) => Some(hi.min(end)),
                (hi, end) => hi.as_ref().or(end),
            };
            let (points, _) = self.open.copy_within(&bounds.lo, hi.map(|hi| &**hi));
            if points.is_empty() {
                continue;
            }
            let start = w.len();
            encode_slice(&mut w, points.iter().map(|(key, message)| (key, message)));
            let greatest = points.iter().map(|(_, message)| message.msn).max();
            let section = section(&w, start, points.len(), greatest);
            references.push(SliceRef { child: self.children[at].id, section });
            slices.push(OnceLock::from(Arc::new(points)));
        }
        let ranges = self.open.ranges().clip(&[], end.map(|end| &**end));
        let start = w.len();
        encode_ranges(&mut w, ranges.iter());
        let range_section = match ranges.is_empty() {
            true => SectionRef::default(),
            false => section(&w, start, ranges.len(), ranges.iter().map(|range| range.msn).max()),
        };
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
            slices: references,
        };
        RunImage {
            bytes: image,
            run: Run { reference, slices, ranges: OnceLock::from(Arc::new(ranges)) },
        }
    }

    /// What of the open run lies before `end` has been written to `extent`: it becomes a sealed run, still
    /// in memory.
    pub fn sealed(&mut self, image: RunImage, extent: Extent, end: Option<&Key>) {
        let mut run = image.run;
        run.reference.extent = extent;
        self.runs.push(run);
        self.next_run = RunSeq(self.next_run.0 + 1);
        self.open.take(&Key::default(), end);
    }

    /// The head, which leaves flushed slices out.
    pub fn head(&self, write_seq: u64) -> InternalHead {
        let children = self.children.iter();
        let firsts = self.first_runs();
        let live = |run: &Run| {
            let mut reference = run.reference.clone();
            reference
                .slices
                .retain(|slice| firsts.get(&slice.child).is_some_and(|seq| reference.seq >= *seq));
            reference
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
                })
                .collect(),
            runs: self.runs.iter().map(live).collect(),
        }
    }

    fn slice(&self, disk: &Disk, run: &Run, child: NodeId) -> Result<Option<Slice>> {
        let Some(at) = run.reference.slices.iter().position(|slice| slice.child == child) else {
            return Ok(None);
        };
        if let Some(slice) = run.slices[at].get() {
            return Ok(Some(slice.clone()));
        }
        let section = &run.reference.slices[at].section;
        let bytes = self.part(disk, run, section)?;
        let messages = decode_slice(&bytes.into(), section.count as usize, None)
            .map_err(|error| Error::corrupt(self.part_place(run, section), error))?;
        Ok(Some(run.slices[at].get_or_init(|| Arc::new(messages)).clone()))
    }

    fn ranges(&self, disk: &Disk, run: &Run) -> Result<Arc<Vec<RangeDelete>>> {
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
        read_part(disk, || self.part_place(run, section), at, section.bytes, &section.hash)
    }

    fn part_place(&self, run: &Run, section: &SectionRef) -> Place {
        let byte = run.reference.extent.start.byte() + u64::from(section.offset);
        Place::Part { id: self.id, part: run.reference.seq.0, byte }
    }

    /// The first live run of each child.
    fn first_runs(&self) -> HashMap<NodeId, RunSeq> {
        self.children.iter().map(|child| (child.id, child.first_run)).collect()
    }

    /// Computes all weights afresh, in one pass over the slices.
    fn weigh(&mut self) {
        let firsts = self.first_runs();
        let mut slices: HashMap<NodeId, usize> = HashMap::with_capacity(firsts.len());
        for run in &self.runs {
            for slice in run.live_slices(&firsts) {
                *slices.entry(slice.child).or_default() += slice.section.bytes as usize;
            }
        }
        for at in 0..self.children.len() {
            let sealed = slices.get(&self.children[at].id).copied().unwrap_or(0);
            self.children[at].weight = sealed + self.weigh_rest(at);
        }
    }

    fn weigh_child(&self, at: usize) -> usize {
        let child = &self.children[at];
        let live = self.runs.iter().filter(|run| run.reference.seq >= child.first_run);
        let slices = live.flat_map(|run| &run.reference.slices);
        let sealed = slices.filter(|slice| slice.child == child.id);
        sealed.map(|slice| slice.section.bytes as usize).sum::<usize>() + self.weigh_rest(at)
    }

    /// The weight of what is pending for child `at` besides the slices of sealed runs.
    fn weigh_rest(&self, at: usize) -> usize {
        let bounds = self.child_bounds(at);
        let child = &self.children[at];
        let hi = bounds.hi.as_deref();
        let points: usize =
            self.open.points_within(&bounds.lo, hi).map(|(key, m)| weight_of(key, m)).sum();
        let ranges = self.open.ranges().clip(&bounds.lo, hi);
        let ranges: usize = ranges.iter().map(range_weight).sum();
        let sealed =
            self.runs.iter().filter(|run| run.reference.seq >= child.first_run).map(|run| {
                // A range section speaks for all children; until it is read, each must reckon with it.
                match run.ranges.get() {
                    Some(ranges) => {
                        let shares = ranges.iter().filter_map(|range| clip(range, &bounds.lo, hi));
                        shares.map(|share| range_weight(&share)).sum::<usize>()
                    }
                    None => (run.reference.ranges.bytes as usize).div_ceil(self.children.len()),
                }
            });
        points + ranges + sealed.sum::<usize>()
    }
}

impl RunImage {
    /// Where each slice is in the run, and its messages.
    pub fn slices(&self) -> impl Iterator<Item = (&SectionRef, &[(Key, Message)])> {
        let slices = self.run.reference.slices.iter().zip(&self.run.slices);
        slices.filter_map(|(reference, slice)| Some((&reference.section, slice.get()?.as_slice())))
    }
}

impl Run {
    /// Where and what the run is.
    pub fn reference(&self) -> &RunRef {
        &self.reference
    }

    /// The slices that have not been flushed, where `firsts` has the first live run of each child.
    fn live_slices(&self, firsts: &HashMap<NodeId, RunSeq>) -> impl Iterator<Item = &SliceRef> {
        let seq = self.reference.seq;
        let live =
            move |slice: &&SliceRef| firsts.get(&slice.child).is_some_and(|first| seq >= *first);
        self.reference.slices.iter().filter(live)
    }

    /// Bytes of messages that have not been flushed to all children.
    fn live_bytes(&self, firsts: &HashMap<NodeId, RunSeq>) -> usize {
        let points: usize = self.live_slices(firsts).map(|s| s.section.bytes as usize).sum();
        let ranges_live = firsts.values().any(|first| self.reference.seq >= *first);
        points + if ranges_live { self.reference.ranges.bytes as usize } else { 0 }
    }
}

fn section(w: &Writer, start: usize, count: usize, greatest: Option<Msn>) -> SectionRef {
    let bytes = &w.as_slice()[start..];
    SectionRef {
        offset: start as u32,
        bytes: bytes.len() as u32,
        count: count as u32,
        greatest: greatest.unwrap_or_default(),
        hash: Hash::of(bytes),
    }
}

/// The share of a range delete within `[lo, hi)`.
fn clip(range: &RangeDelete, lo: &[u8], hi: Option<&[u8]>) -> Option<RangeDelete> {
    let start = if *range.lo < *lo { Key::copied(lo) } else { range.lo.clone() };
    let end = match hi {
        Some(hi) if *range.hi > *hi => Key::copied(hi),
        _ => range.hi.clone(),
    };
    (start < end).then_some(RangeDelete { msn: range.msn, lo: start, hi: end })
}
