//! Every node by itself: head, parts, messages, padding, values.
//!
//! Nodes come in the order of the disk, in batches. Which node owns which blocks is settled one node after
//! another; the nodes of a batch that own theirs are then read, hashed and decoded on all cores, each with a
//! report of its own, and the reports are put together in the order of the nodes. So what is found never
//! depends on timing, and what overlaps is not read twice.

use std::collections::HashMap;

use rayon::prelude::*;

use super::memory::Memory;
use super::owners::Owners;
use super::runs;
use super::{CheckOptions, Code, Progress, Report, node_place};
use crate::device::Disk;
use crate::error::{Place, Result};
use crate::format::*;
use crate::ids::*;
use crate::node::{Internal, Node, check_section, read_part};

/// So many nodes make a batch, or fewer if they have more bytes than fit into the memory for them; those of the next
/// batch are fetched meanwhile.
const BATCH: usize = 32;

/// What the other passes need to know of a node.
pub(super) struct Summary {
    pub tree: TreeId,
    pub height: Height,
    pub bounds: Bounds,
    pub children: Vec<(NodeId, Bounds)>,
}

/// Checks every node of the table, in the order of the disk.
pub(super) fn check<'e>(
    disk: &'e Disk,
    superblock: &'e Superblock,
    entries: &'e [(NodeId, Entry)],
    options: CheckOptions,
    owners: &mut Owners,
    report: &mut Report,
    progress: &mut dyn Progress,
) -> HashMap<NodeId, Summary> {
    let mut order: Vec<&(NodeId, Entry)> = entries.iter().collect();
    order.sort_by_key(|(_, entry)| entry.extent);
    let mut summaries = HashMap::with_capacity(entries.len());
    let total = order.len() as u64;
    let mut fetch = Fetch { disk, data: options.data, fetched: 0 };
    let mut rest = &order[..];
    // The memory is for two batches: one that is checked, and one of which the heads are known.
    let bytes = Memory::new(options.memory, superblock.image_blocks).nodes() / 2;
    let mut next_batch = || {
        let batch = next_batch(&mut rest, bytes);
        fetch.batch(batch);
        batch
    };
    let mut prepare = |batch: &[&'e (NodeId, Entry)]| {
        let nodes = batch.iter().map(|(id, entry)| {
            let report = Report::default();
            Checker { disk, superblock, id: *id, entry, options, report }.take(owners)
        });
        let nodes: Vec<Taken> = nodes.collect();
        on_all_cores(disk, nodes, Taken::with_head)
    };
    let mut ready = prepare(next_batch());
    let mut batch = next_batch();
    let mut done = 0;
    while !ready.is_empty() {
        progress.step(2, done, total);
        let behind = next_batch();
        let next = prepare(batch);
        done += ready.len() as u64;
        for (id, summary, found) in on_all_cores(disk, ready, Taken::check) {
            summaries.extend(summary.map(|summary| (id, summary)));
            report.absorb(found);
        }
        (ready, batch) = (next, behind);
    }
    progress.step(2, total, total);
    summaries
}

/// What becomes of each node, in their order.
fn on_all_cores<T: Send, U: Send>(
    disk: &Disk,
    nodes: Vec<T>,
    work: impl Fn(T) -> U + Send + Sync,
) -> Vec<U> {
    match disk.device().wants_order() {
        true => nodes.into_iter().map(work).collect(),
        false => nodes.into_par_iter().map(work).collect(),
    }
}

/// The first nodes of the rest, with at most so many bytes unless it is one alone. They leave the rest.
fn next_batch<'o, 'e>(
    rest: &mut &'o [&'e (NodeId, Entry)],
    most: u64,
) -> &'o [&'e (NodeId, Entry)] {
    let mut bytes = 0;
    let fits = |(_, entry): &&&(NodeId, Entry)| {
        bytes += entry.extent.bytes();
        bytes <= most
    };
    let count = rest.iter().take(BATCH).take_while(fits).count();
    let (batch, behind) = rest.split_at(count.max(1).min(rest.len()));
    *rest = behind;
    batch
}

/// Tells the device what will be read. Nothing is fetched twice, whatever the table says of its places.
struct Fetch<'c> {
    disk: &'c Disk,
    data: bool,
    /// Where what has been fetched ends.
    fetched: u64,
}

impl Fetch<'_> {
    fn batch(&mut self, batch: &[&(NodeId, Entry)]) {
        for (_, entry) in batch {
            let whole = is_read_whole(entry, self.data);
            let bytes = if whole { entry.extent.bytes() } else { entry.head_bytes.into() };
            let at = entry.extent.start.byte();
            let (from, end) = (at.max(self.fetched), at.saturating_add(bytes));
            if from < end {
                self.disk.will_read(from, end - from);
                self.fetched = end;
            }
        }
    }
}

/// Of contents only heads and keys are looked at, unless all are.
fn is_read_whole(entry: &Entry, data: bool) -> bool {
    data || entry.tree == TreeId::Metadata || entry.height > Height(0)
}

/// A node of which is known whether its blocks are its own.
enum Taken<'c> {
    /// They are not, or it has no head that verifies: no more is to be had of it.
    Lost(Checker<'c>),
    /// A leaf, which has not been read.
    Unread(Checker<'c>),
    /// A leaf with its head.
    Leaf(Checker<'c>, LeafHead),
    /// An internal node, and for each of its runs what was found when that was taken.
    Internal(Checker<'c>, InternalHead, Box<Internal>, Vec<runs::TakenRun>),
}

impl Taken<'_> {
    /// Reads the head of a leaf, and fetches the rest.
    fn with_head(self) -> Self {
        let Taken::Unread(mut checker) = self else { return self };
        match checker.leaf_head() {
            Some(head) => {
                checker.fetch(&head);
                Taken::Leaf(checker, head)
            }
            None => Taken::Lost(checker),
        }
    }

    fn check(self) -> (NodeId, Option<Summary>, Report) {
        match self.with_head() {
            Taken::Lost(checker) | Taken::Unread(checker) => (checker.id, None, checker.report),
            Taken::Leaf(mut checker, head) => {
                checker.leaf(&head, checker.options.data || head.tree == TreeId::Metadata);
                let LeafHead { tree, bounds, .. } = head;
                let summary = Summary { tree, height: Height(0), bounds, children: Vec::new() };
                (checker.id, Some(summary), checker.report)
            }
            Taken::Internal(mut checker, head, internal, taken) => {
                checker.padding(u64::from(checker.entry.head_bytes), checker.entry.extent);
                runs::check(&mut checker, &head, &internal, taken);
                let children = internal.children().iter().enumerate();
                let children = children.map(|(at, child)| (child.id, internal.child_bounds(at)));
                let summary = Summary {
                    tree: internal.tree,
                    height: internal.height,
                    bounds: internal.bounds.clone(),
                    children: children.collect(),
                };
                (checker.id, Some(summary), checker.report)
            }
        }
    }
}

/// One node, and what its check needs.
pub(super) struct Checker<'c> {
    pub disk: &'c Disk,
    pub superblock: &'c Superblock,
    pub id: NodeId,
    pub entry: &'c Entry,
    pub options: CheckOptions,
    /// What is found in this node.
    pub report: Report,
}

impl<'c> Checker<'c> {
    /// Takes the blocks of the node, and of the runs of an internal node.
    fn take(mut self, owners: &mut Owners) -> Taken<'c> {
        let (id, extent) = (self.id, self.entry.extent);
        if !owners.take(extent, || node_place(id, extent), &mut self.report) {
            return Taken::Lost(self);
        }
        if self.entry.height == Height(0) {
            return Taken::Unread(self);
        }
        let Some(Node::Internal(internal)) = self.load() else {
            owners.lose_sight();
            return Taken::Lost(self);
        };
        let Some((_, head)) = self.head().and_then(|head| InternalHead::decode(&head, None).ok())
        else {
            return Taken::Lost(self);
        };
        let taken = runs::take(&self, &head, owners);
        Taken::Internal(self, head, Box::new(internal), taken)
    }

    /// The node, if its head verifies.
    fn load(&mut self) -> Option<Node> {
        match Node::load(self.disk, self.superblock.birth.volume, self.id, self.entry) {
            Ok(node) => {
                self.report.counts.nodes += 1;
                Some(node)
            }
            Err(error) => {
                self.report.add_error(Code::HeadInvalid, &error);
                None
            }
        }
    }

    /// The bytes of its head.
    fn head(&self) -> Option<Vec<u8>> {
        self.disk.read(self.entry.extent.start.byte(), self.entry.head_bytes as usize).ok()
    }

    fn leaf_head(&mut self) -> Option<LeafHead> {
        self.load()?;
        self.report.counts.leaves += 1;
        LeafHead::decode(&self.head()?, None).ok().map(|(_, head)| head)
    }

    /// Fetches the keys of a leaf that is not read as a whole: with the small values between them, which take less than
    /// many calls do.
    fn fetch(&self, head: &LeafHead) {
        if !is_read_whole(self.entry, self.options.data) {
            let start = self.entry.head_bytes;
            let bytes = head.parts_end(start) - start;
            self.disk.will_read(self.entry.extent.start.byte() + u64::from(start), bytes.into());
        }
    }

    fn place(&self) -> Place {
        node_place(self.id, self.entry.extent)
    }

    pub fn part_place(&self, part: u64, byte: u64) -> Place {
        Place::Part { id: self.id, part, byte }
    }

    /// The bytes of an extent from `used` on must be zero.
    fn padding(&mut self, used: u64, extent: Extent) {
        self.zeros(extent.start.byte() + used, extent.bytes().saturating_sub(used));
    }

    fn zeros(&mut self, at: u64, bytes: u64) {
        match self.disk.read(at, bytes as usize) {
            Ok(padding) if is_zero(&padding) => {}
            Ok(_) => self.report.add(
                Code::PaddingDirty,
                self.place(),
                format!("{bytes} bytes at b:{at:#x}"),
            ),
            Err(error) => self.report.add_error(Code::PaddingDirty, &error),
        }
    }

    fn leaf(&mut self, head: &LeafHead, values: bool) {
        let start = self.entry.extent.start.byte();
        let mut sections = Vec::with_capacity(head.basements.len());
        for (at, basement) in head.basements.iter().enumerate() {
            match self.section(head, at, basement) {
                Ok(section) => sections.push(section),
                Err(error) => self.report.add_error(Code::PartInvalid, &error),
            }
        }
        if sections.len() < head.basements.len() {
            return;
        }
        match self.blocks(head, &sections) {
            Some((small_end, blocks_at)) => {
                self.zeros(start + small_end, blocks_at - small_end);
                self.padding(head.leaf_bytes.into(), self.entry.extent);
                if values {
                    self.values(&sections);
                }
            }
            None => self.report.add(
                Code::PartInvalid,
                self.place(),
                "blocks of files do not lie one after another",
            ),
        }
    }

    fn section(&self, head: &LeafHead, at: usize, basement: &BasementRef) -> Result<KeySection> {
        let byte = self.entry.extent.start.byte() + u64::from(basement.offset);
        let place = || self.part_place(at as u64, byte);
        let bytes = read_part(self.disk, place, byte, basement.bytes, &basement.hash)?;
        let corrupt = |fault| crate::error::Error::corrupt(place(), fault);
        let section = KeySection::decode(&bytes, head.tree, head.leaf_bytes, None)
            .map_err(|e| corrupt(e.into()))?;
        let (next, end) = (head.basements.get(at + 1), head.parts_end(self.entry.head_bytes));
        check_section(&section, head.tree, basement, next, end, &head.bounds).map_err(corrupt)?;
        Ok(section)
    }

    /// Behind the basements the leaf must have blocks of files in their order, and nothing else. Returns
    /// where basements end and where the blocks start.
    fn blocks(&self, head: &LeafHead, sections: &[KeySection]) -> Option<(u64, u64)> {
        let all = || sections.iter().flat_map(|section| &section.chunks);
        let blocks = || all().filter(|chunk| is_block(head.tree, chunk.bytes as usize));
        let small_end = u64::from(head.parts_end(self.entry.head_bytes));
        let bytes: u64 = blocks().map(|chunk| u64::from(chunk.bytes)).sum();
        let start = match bytes {
            0 => small_end,
            _ => small_end.next_multiple_of(BLOCK_SIZE as u64),
        };
        let mut at = start;
        let in_order = blocks().all(|chunk| {
            let expected = at;
            at += u64::from(chunk.bytes);
            u64::from(chunk.offset) == expected
        });
        (in_order && start + bytes == u64::from(head.leaf_bytes)).then_some((small_end, start))
    }

    fn values(&mut self, sections: &[KeySection]) {
        let start = self.entry.extent.start.byte();
        for (at, section) in sections.iter().enumerate() {
            for chunk in &section.chunks {
                let byte = start + u64::from(chunk.offset);
                let place = || self.part_place(at as u64, byte);
                if let Err(error) = read_part(self.disk, place, byte, chunk.bytes, &chunk.hash) {
                    self.report.add_error(Code::ValueInvalid, &error);
                }
            }
        }
    }
}
