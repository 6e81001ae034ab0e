//! An internal node in memory: children, sealed runs on disk, and the open run that takes messages.
//!
//! Sealed runs are immutable. For each child, the head states the first run whose messages for it are still live. A
//! child's buffer is its live part of all runs, oldest first, and of the open run, which is one batch for each child.
//! The weight of the sealed part is cached for each child, so that the heaviest buffer is found at once.

mod buffers;
mod compact;
mod differences;
mod lookup;
mod pending;
mod rescue;
mod runs;
mod seal;
mod shape;
mod visits;

use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use super::batch::{Batch, Gathering, range_weight};
use super::ranges::RangeSet;
use super::sorted::{Item, Sorted};
use super::{Loaded, check_hash, read_part};
use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::{KEY_MAX, MESSAGES_MAX};
use crate::format::{
    Action, Birth, Bounds, CHILD_BYTES, ChildRef, Growth, Inflow, InternalHead, Joined, Key, Kind,
    Lens, MESSAGE_BYTES, Probe, RUN_BYTES, RUN_HEADER_BYTES, RangeDelete, RunHeader, RunRef,
    SLICE_COST, SectionRef, SliceList, SliceRef, Writer, decode_ranges, encode_ranges,
    encode_slice, push_filter, read_slice, separator, shared_prefix,
};
use crate::ids::*;
use crate::pool;
use crate::space::{Owner, Retired};
use crate::tuning::SLICE_TARGET;
pub use differences::SlicePlace;
pub use pending::{Deed, Pending};
pub use runs::Run;
pub use seal::{EncodedRun, SealedNode, WrittenNode};
use visits::Visits;

/// 256 bytes: the fixed part of a head, rounded up.
const HEAD_MIN: usize = 256;
type Slice = Arc<Sorted>;

/// A node of height 1 or more.
#[derive(Clone)]
pub struct Internal {
    /// The node's id.
    pub id: NodeId,
    /// The tree that it belongs to.
    pub tree: TreeId,
    /// Its height.
    pub height: Height,
    /// The keys that it is responsible for.
    pub bounds: Bounds,
    children: Vec<Child>,
    runs: Vec<Run>,
    /// The open run: the messages for each child.
    open: Vec<Batch>,
    next_run: RunSeq,
    loaded: Loaded,
    visits: Visits,
}

/// An edge to a child.
#[derive(Clone, Debug)]
pub struct Child {
    /// The child's id.
    pub id: NodeId,
    /// The least key that belongs to it.
    pub pivot: Key,
    /// What replaces the prefix of keys on the way to it.
    pub lens: Option<Arc<Lens>>,
    /// The first bytes of the pivot; they decide most comparisons.
    head: u64,
    first_run: RunSeq,
    /// Bytes of the slices that sealed runs hold for it.
    slices: usize,
    /// The weight of range deletes that sealed runs hold for it.
    ranges: usize,
    /// How much these messages may make leaves grow.
    growth: Growth,
    /// The slices for it: by live run, oldest first.
    shares: Vec<Share>,
}

/// An edge that a node gets: the child, the pivot, and the lens.
pub type NewEdge = (NodeId, Key, Option<Arc<Lens>>);

/// The slices of a run for a child.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    /// The index of the run in the node.
    run: u16,
    start: u16,
    end: u16,
}

impl Share {
    fn slices(&self) -> Range<usize> {
        self.start.into()..self.end.into()
    }
}

impl Internal {
    /// A node without messages over `children`, given in key order, each with its pivot.
    pub fn new(
        id: NodeId,
        tree: TreeId,
        height: Height,
        bounds: Bounds,
        children: Vec<(NodeId, Key)>,
    ) -> Internal {
        let edges = children.into_iter().map(|(id, pivot)| (id, pivot, None));
        Internal::over(id, tree, height, bounds, edges.collect())
    }

    /// As [`Internal::new`], with the lenses of the edges.
    pub fn over(
        id: NodeId,
        tree: TreeId,
        height: Height,
        bounds: Bounds,
        children: Vec<NewEdge>,
    ) -> Internal {
        let child = |(id, pivot, lens)| Child::new(id, pivot, lens, RunSeq(0));
        let open = vec![Batch::default(); children.len()];
        Internal {
            id,
            tree,
            height,
            bounds,
            children: children.into_iter().map(child).collect(),
            runs: Vec::new(),
            open,
            next_run: RunSeq(0),
            loaded: Loaded::default(),
            visits: Visits::default(),
        }
    }

    pub(crate) fn stored(head: InternalHead) -> Internal {
        let children = head.children.into_iter();
        let child = |child: ChildRef| {
            Child::new(child.id, child.pivot, child.lens.map(Arc::new), child.first_run)
        };
        let children: Vec<Child> = children.map(child).collect();
        let runs = head.runs.into_iter().map(|reference| {
            let slices = vec![OnceLock::new(); reference.slices.len()];
            Run::new(reference, slices, OnceLock::new())
        });
        let mut node = Internal {
            id: head.id,
            tree: head.tree,
            height: head.height,
            bounds: head.bounds,
            open: vec![Batch::default(); children.len()],
            children,
            runs: runs.collect(),
            next_run: head.next_run,
            loaded: Loaded::default(),
            visits: Visits::default(),
        };
        node.find_shares();
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

    /// The extents of all sealed runs, of a node that is dropped.
    pub fn retired_runs(&self) -> impl Iterator<Item = Retired> {
        self.runs.iter().map(|run| run.retired(self.id))
    }

    /// The index of the child that is responsible for `key`.
    pub fn child_for(&self, key: &[u8]) -> usize {
        let head = Key::head(key);
        let is_behind =
            |child: &Child| child.head < head || child.head == head && *child.pivot <= *key;
        self.children.partition_point(is_behind).saturating_sub(1)
    }

    /// The index of the last child with keys below `key`; `key` must not be the node's lower bound.
    pub fn child_before(&self, key: &[u8]) -> usize {
        self.children.partition_point(|child| *child.pivot < *key).saturating_sub(1)
    }

    /// The keys of child `at`.
    pub fn child_bounds(&self, at: usize) -> Bounds {
        let hi = self.children.get(at + 1).map(|next| next.pivot.clone());
        Bounds { lo: self.children[at].pivot.clone(), hi: hi.or_else(|| self.bounds.hi.clone()) }
    }

    /// The keys of child `at` in the child itself: those of its edge, through its lens.
    pub fn bounds_below(&self, at: usize) -> Bounds {
        let bounds = self.child_bounds(at);
        match &self.children[at].lens {
            Some(lens) => lens.bounds_down(&bounds),
            None => bounds,
        }
    }

    /// The weight of child `at`'s buffer; 0 means that it is empty.
    pub fn pending(&self, at: usize) -> usize {
        debug_assert!(
            self.children[at].sealed() > 0 || !self.is_sealed_for(at),
            "a buffer without weight"
        );
        self.children[at].sealed() + self.open[at].weight()
    }

    /// Whether a sealed run is known to have a message for child `at`.
    fn is_sealed_for(&self, at: usize) -> bool {
        let bounds = self.child_bounds(at);
        let (child, hi) = (&self.children[at], bounds.hi.as_deref());
        let live = |run: &Run| {
            run.reference.seq >= child.first_run
                && (run.reference.slices.iter().any(|slice| usize::from(slice.child) == at)
                    || run
                        .ranges
                        .get()
                        .is_some_and(|ranges| shares(ranges, &bounds.lo, hi).next().is_some()))
        };
        self.runs.iter().any(live)
    }

    /// The weight of all buffers.
    pub fn buffered(&self) -> usize {
        (0..self.children.len()).map(|at| self.pending(at)).sum()
    }

    /// Number of pending messages, without those that a child has taken from its run.
    pub fn messages(&self) -> u64 {
        let open = |batch: &Batch| (batch.points().len() + batch.ranges().len()) as u64;
        let live = |run: &Run| {
            let slices = run.live_slices(&self.children);
            slices.map(|slice| u64::from(slice.section.count)).sum::<u64>()
                + u64::from(run.reference.ranges.count)
        };
        self.open.iter().map(open).sum::<u64>() + self.runs.iter().map(live).sum::<u64>()
    }

    /// The inflow of leaves from all buffers. At height 1 the number of leaves that grow is known.
    pub fn inflow(&self) -> Inflow {
        let of = |at: usize| Inflow {
            bytes: (self.children[at].slices + self.open[at].points_weight()) as u64,
            growth: self.growth_for(at).at(self.height),
        };
        (0..self.children.len()).map(of).sum()
    }

    /// How much the messages pending for child `at` may make leaves grow.
    pub fn growth_for(&self, at: usize) -> Growth {
        self.children[at].growth + self.open[at].leaf_growth()
    }

    /// The child with the heaviest buffer.
    pub fn heaviest(&self) -> usize {
        (0..self.children.len()).rev().max_by_key(|at| self.pending(*at)).unwrap_or(0)
    }

    /// Notes that messages come to the node at clock time `now`.
    pub fn visited(&mut self, now: u64) {
        self.visits.note(now);
    }

    /// The expected time until more messages come.
    pub fn until_next(&self, now: u64) -> u64 {
        self.visits.until_next(now)
    }

    pub(super) fn forget_parts(&mut self) {
        self.runs.iter_mut().for_each(Run::forget_all);
        self.loaded = Loaded::default();
    }

    /// Bytes of its runs that have been read.
    pub(super) fn loaded(&self) -> u64 {
        self.loaded.bytes()
    }

    /// Approximate memory of the node.
    pub fn weight(&self) -> usize {
        self.own_weight() + self.runs.iter().map(Run::read_memory).sum::<usize>()
    }

    /// As [`Internal::weight`], without parts of runs that were read.
    pub(super) fn own_weight(&self) -> usize {
        let open: usize = self.open.iter().map(Batch::memory).sum();
        1024 + self.children.len() * 320 + open + self.runs.iter().map(Run::memory).sum::<usize>()
    }

    /// The most bytes that writing the head, and all buffers as one run, takes.
    pub fn bytes_max(&self) -> usize {
        let edges = self.edge_bytes();
        let slices = self.runs.iter().flat_map(|run| &run.reference.slices);
        let slices: usize = slices.map(|s| SLICE_COST + s.first.len()).sum();
        let filters: usize = self.runs.iter().map(|run| run.reference.filters.len()).sum();
        let (open, all) = (self.open_weight(), self.buffered());
        // Sealed runs stay, or are joined with the open run.
        let stay = slices + filters + self.runs.len() * RUN_BYTES + fresh_slices(open);
        let bounds = self.bounds.lo.len() + self.bounds.hi.as_ref().map_or(0, |hi| hi.len());
        let head = HEAD_MIN + bounds + edges + self.children.len() * SLICE_COST + RUN_BYTES;
        head + stay.max(fresh_slices(all)) + RUN_HEADER_BYTES + all
    }

    /// Upper bound of [`Internal::bytes_max`] for a node with one run: `buffers` and `edges` in bytes, `children` as a
    /// count.
    pub fn bytes_with(buffers: usize, children: usize, edges: usize) -> usize {
        let head = HEAD_MIN + 2 * KEY_MAX + edges + children * SLICE_COST + RUN_BYTES;
        head + fresh_slices(buffers) + RUN_HEADER_BYTES + buffers
    }

    /// Bytes of the edges to children in the head.
    pub fn edge_bytes(&self) -> usize {
        let lens = |child: &Child| child.lens.as_ref().map_or(0, |lens| lens.from().len());
        self.children.iter().map(|child| CHILD_BYTES + child.pivot.len() + lens(child)).sum()
    }

    /// Adds messages for child `at`, in key order, to the open run.
    pub fn insert<'m>(&mut self, at: usize, points: impl Iterator<Item = Item<'m>>) {
        self.open[at].absorb(points, std::iter::empty());
    }

    /// The children that have keys within `[lo, hi)`, which is not empty.
    pub fn children_within(&self, lo: &[u8], hi: &[u8]) -> Range<usize> {
        self.child_for(lo)..self.child_before(hi) + 1
    }

    /// Adds a range delete to the open run, clipped to each child.
    pub fn insert_range(&mut self, range: &RangeDelete) {
        for at in self.children_within(&range.lo, &range.hi) {
            let bounds = self.child_bounds(at);
            if let Some(share) = clip(range, &bounds.lo, bounds.hi.as_deref()) {
                self.open[at].insert_range(share);
            }
        }
    }

    /// Adds a buffer that came from the parent.
    pub fn absorb(&mut self, batch: Batch) {
        let Ok(()) = self.absorb_within(batch, |_| Ok::<(), Infallible>(()));
    }

    /// As [`Internal::absorb`]. `grows` gets the number of bytes by which a combined message is longer than its
    /// sources.
    fn absorb_within<E>(
        &mut self,
        batch: Batch,
        mut grows: impl FnMut(usize) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for at in 0..self.children.len() {
            let Bounds { lo, hi } = self.child_bounds(at);
            let points = batch.points().range(&lo, hi.as_deref());
            let ranges = batch.ranges().clip(&lo, hi.as_deref());
            self.open[at].absorb_within(points, ranges.into_iter(), &mut grows)?;
        }
        Ok(())
    }

    /// The messages of the open run for each child.
    pub fn open(&self) -> &[Batch] {
        &self.open
    }

    /// The weight of the open run.
    pub fn open_weight(&self) -> usize {
        self.open.iter().map(Batch::weight).sum()
    }

    /// Whether the open run has messages.
    pub fn has_open(&self) -> bool {
        self.open.iter().any(|batch| !batch.is_empty())
    }

    /// Changes the child indexes of slices after children were added or removed. Slices of a removed child get one for
    /// which all sealed messages are dead.
    fn renumber(&mut self, place: impl Fn(usize) -> usize) {
        for slice in self.runs.iter_mut().flat_map(|run| &mut run.reference.slices) {
            slice.child = place(slice.child.into()) as u16;
        }
    }

    /// Panics if edges, shares of runs, weights and growth contradict each other or the messages. The weight of range
    /// messages becomes exact only as they are read.
    pub fn check_invariants(&self) {
        let Bounds { lo, hi } = &self.bounds;
        assert_eq!(self.children.len(), self.open.len(), "an open buffer for each child");
        assert!(self.children.first().is_some_and(|first| first.pivot == *lo), "the first pivot");
        assert!(self.children.is_sorted_by(|a, b| a.pivot < b.pivot), "pivots in order");
        let last = self.children.last().map(|last| &last.pivot);
        assert!(hi.as_ref().is_none_or(|hi| last.is_some_and(|last| last < hi)), "the last pivot");
        assert!(self.runs.is_sorted_by(|a, b| a.reference.seq < b.reference.seq), "runs in order");
        assert!(self.runs.iter().all(|run| run.reference.seq < self.next_run), "the next run");
        let mut fresh = self.clone();
        fresh.find_shares();
        fresh.weigh();
        for (at, (child, fresh)) in self.children.iter().zip(&fresh.children).enumerate() {
            assert_eq!(child.head, Key::head(&child.pivot), "the first bytes of pivot {at}");
            assert!(child.first_run <= self.next_run, "the first run for child {at}");
            assert_eq!(child.shares, fresh.shares, "the slices for child {at}");
            assert_eq!(child.slices, fresh.slices, "the bytes of the slices for child {at}");
            assert_eq!(child.growth, fresh.growth, "the growth by the slices for child {at}");
            let (bounds, open) = (self.child_bounds(at), &self.open[at]);
            open.check_invariants();
            let is_inside = |item: Item<'_>| bounds.contains(item.key);
            assert!(open.points().iter().all(is_inside), "a message for child {at}");
            let is_inside = |range: RangeDelete| {
                bounds.lo <= range.lo && bounds.hi.as_ref().is_none_or(|hi| range.hi <= *hi)
            };
            assert!(open.ranges().iter().all(is_inside), "a range message for child {at}");
        }
    }

    /// Computes again which slices belong to which child, in one pass.
    fn find_shares(&mut self) {
        self.children.iter_mut().for_each(|child| child.shares.clear());
        for (run, number) in self.runs.iter().zip(0u16..) {
            for (slice, at) in run.reference.slices.iter().zip(0u16..) {
                let child = &mut self.children[usize::from(slice.child)];
                match child.shares.last_mut() {
                    _ if run.reference.seq < child.first_run => {}
                    Some(share) if share.run == number => share.end = at + 1,
                    _ => child.shares.push(Share { run: number, start: at, end: at + 1 }),
                }
            }
        }
    }

    /// Computes all weights again.
    fn weigh(&mut self) {
        for at in 0..self.children.len() {
            let shares = self.children[at].shares.iter();
            let slices = shares.flat_map(|share| {
                &self.runs[usize::from(share.run)].reference.slices[share.slices()]
            });
            let (bytes, growth) = slices.fold((0, Growth::default()), |(bytes, growth), slice| {
                (bytes + slice.section.bytes as usize, growth + slice.growth)
            });
            self.children[at].ranges = self.weigh_ranges(at);
            self.children[at].slices = bytes;
            self.children[at].growth = growth;
        }
    }

    /// The weight of the range messages of sealed runs for child `at`.
    fn weigh_ranges(&self, at: usize) -> usize {
        let bounds = self.child_bounds(at);
        let child = &self.children[at];
        let live = self.runs.iter().filter(|run| run.reference.seq >= child.first_run);
        live.map(|run| match run.ranges.get() {
            // A range section is for all children. Until it is read, each child counts an equal share.
            None => (run.reference.ranges.bytes as usize).div_ceil(self.children.len()),
            Some(ranges) => {
                let hi = bounds.hi.as_deref();
                shares(ranges, &bounds.lo, hi).map(|share| range_weight(&share)).sum::<usize>()
            }
        })
        .sum()
    }
}

/// Bytes in a head for the slices of `bytes` bytes of messages, without the last slice of each child.
fn fresh_slices(bytes: usize) -> usize {
    bytes / SLICE_TARGET * (SLICE_COST + KEY_MAX)
}

impl Child {
    /// A child for which no sealed run has a message.
    fn new(id: NodeId, pivot: Key, lens: Option<Arc<Lens>>, first_run: RunSeq) -> Child {
        let head = Key::head(&pivot);
        Child {
            id,
            pivot,
            lens,
            head,
            first_run,
            slices: 0,
            ranges: 0,
            growth: Growth::default(),
            shares: Vec::new(),
        }
    }

    /// The same edge, when all messages of runs before `first_run` have been flushed.
    fn emptied(&self, first_run: RunSeq) -> Child {
        Child::new(self.id, self.pivot.clone(), self.lens.clone(), first_run)
    }

    /// The weight of its messages in sealed runs.
    fn sealed(&self) -> usize {
        self.slices + self.ranges
    }

    /// Its slices in run number `run` of the node.
    fn share_of(&self, run: usize) -> Option<&Share> {
        self.shares.iter().find(|share| usize::from(share.run) == run)
    }
}

/// Range deletes, which are ordered and disjoint, clipped to `[lo, hi)`. Skips those outside in O(log n).
fn shares<'r>(
    ranges: &'r [RangeDelete],
    lo: &'r [u8],
    hi: Option<&'r [u8]>,
) -> impl Iterator<Item = RangeDelete> + 'r {
    let first = ranges.partition_point(|range| *range.hi <= *lo);
    let within =
        ranges[first..].iter().take_while(move |range| hi.is_none_or(|hi| *range.lo < *hi));
    within.filter_map(move |range| clip(range, lo, hi))
}

/// A range delete clipped to `[lo, hi)`.
fn clip(range: &RangeDelete, lo: &[u8], hi: Option<&[u8]>) -> Option<RangeDelete> {
    let start = if *range.lo < *lo { Key::copied(lo) } else { range.lo.clone() };
    let end = match hi {
        Some(hi) if *range.hi > *hi => Key::copied(hi),
        _ => range.hi.clone(),
    };
    (start < end).then_some(RangeDelete { msn: range.msn, lo: start, hi: end })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ids::{Msn, Nonce, VolumeId};
    use crate::mutation::assert_caught;

    /// A node with two children, a sealed run and messages that are not sealed.
    fn node() -> Internal {
        let key = |byte: u8| Key::copied(&[byte]);
        let children = vec![(NodeId(5), Key::default()), (NodeId(6), key(b'm'))];
        let mut node =
            Internal::new(NodeId(1), TreeId::Data, Height(1), Bounds::default(), children);
        let insert = |node: &mut Internal, at: usize, byte: u8| {
            let action = Action::Insert(Bytes::from(vec![byte; 100]));
            node.insert(at, std::iter::once(Item::new(&[byte], Msn(1), &action)));
        };
        insert(&mut node, 0, b'a');
        insert(&mut node, 1, b'n');
        let disk = Disk::new(Arc::new(crate::device::MemoryDevice::new(1 << 20)));
        let birth = Birth { volume: VolumeId([1; 16]), epoch: Epoch(1), nonce: Nonce(1) };
        let image = node.seal_image(&disk, birth, None);
        let extent = Extent { start: BlockNr(9), blocks: (image.bytes.len() / BLOCK_SIZE) as u32 };
        node.sealed(&image, extent, None);
        insert(&mut node, 0, b'b');
        node
    }

    #[test]
    fn what_does_not_agree_is_noticed() {
        assert_caught(
            node,
            Internal::check_invariants,
            &[
                ("pivots", |node| node.children.swap(0, 1)),
                ("the first bytes of a pivot", |node| node.children[1].head += 1),
                ("the bytes of slices", |node| node.children[0].slices += 1),
                ("growth", |node| node.children[0].growth.messages += 1),
                ("shares", |node| node.children[1].shares[0].end += 1),
                ("the next run", |node| node.next_run = RunSeq(0)),
                ("an open buffer for each child", |node| drop(node.open.pop())),
                ("buffers of children", |node| node.open.swap(0, 1)),
                ("the first run", |node| node.children[0].first_run = RunSeq(9)),
            ],
        );
    }

    #[test]
    fn what_a_child_has_taken_is_pending_no_more() {
        let disk = Disk::new(Arc::new(crate::device::MemoryDevice::new(1 << 20)));
        let mut node = node();
        let before = node.inflow();
        assert_eq!((before.growth.messages, node.messages()), (2, 3));
        let batch = node.take_buffer(&disk, 0, usize::MAX).unwrap();
        node.check_invariants();
        assert_eq!(batch.points().len(), 2);
        assert_eq!((node.pending(0), node.messages()), (0, 1));
        node.take_buffer(&disk, 1, usize::MAX).unwrap();
        node.check_invariants();
        assert_eq!(node.inflow(), Inflow::default());
        assert_eq!(node.drop_dead_runs().len(), 1);
    }
}
