//! Checks every node by itself: first the blocks of all nodes, then their content.
//!
//! Block owners are determined one node after another, in disk order, so overlapping nodes are not read twice. Internal
//! nodes are read, hashed and decoded on all cores, each with its own report. Reports are joined in disk order, so
//! results do not depend on timing. Leaves are read in the order that the caller chooses: usually key order, so that
//! the schema is checked with the same reads.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::leaf::{EntrySink, Found, front};
use super::memory::Memory;
use super::owners::Owners;
use super::runs;
use super::{CheckOptions, Code, Counts, Finding, Progress, Report, node_place};
use crate::disk::Disk;
use crate::error::Place;
use crate::format::*;
use crate::ids::*;
use crate::node::{Head, Internal};

/// 32 nodes are checked concurrently at most; fewer if they exceed the memory budget.
const BATCH: usize = 32;

/// The summary of a node for other passes.
pub(super) struct Summary {
    pub tree: TreeId,
    pub height: Height,
    pub bounds: Bounds,
    pub children: Vec<Edge>,
}

/// An edge to a child.
pub(super) struct Edge {
    /// The child.
    pub child: NodeId,
    /// The keys of the child, as they are in it.
    pub keys: Bounds,
    /// Whether they are others above.
    pub has_lens: bool,
}

/// The results for checked nodes.
#[derive(Default)]
pub(super) struct Nodes {
    /// Summaries of nodes whose heads verify.
    pub summaries: HashMap<NodeId, Summary>,
    checked: HashSet<NodeId>,
    counts: Counts,
    findings: Vec<(Extent, Vec<Finding>)>,
}

impl Nodes {
    /// Whether the check can continue past all findings.
    pub(super) fn are_passable(&self) -> bool {
        self.findings.iter().all(|(_, findings)| findings.iter().all(Finding::is_passable))
    }

    /// Adds the result of a checked node.
    pub(super) fn add(&mut self, checker: Checker<'_>, summary: Option<Summary>) {
        let Checker { id, entry, report, .. } = checker;
        self.checked.insert(id);
        self.summaries.extend(summary.map(|summary| (id, summary)));
        self.counts.add_node(report.counts);
        if !report.findings.is_empty() {
            self.findings.push((entry.extent, report.findings));
        }
    }

    /// Reports all findings, in disk order.
    pub(super) fn tell(&mut self, report: &mut Report) {
        self.findings.sort_by_key(|(extent, _)| *extent);
        report.findings.extend(self.findings.drain(..).flat_map(|(_, findings)| findings));
        report.counts.add_node(std::mem::take(&mut self.counts));
    }
}

/// All nodes of the table.
pub(super) struct Pass<'e> {
    pub disk: &'e Disk,
    superblock: &'e Superblock,
    entries: &'e [(NodeId, Entry)],
    options: CheckOptions,
    /// Whether keys and short values of data leaves are interleaved, by the last leaf that was read.
    is_mixed: AtomicBool,
}

impl<'e> Pass<'e> {
    /// The nodes of `entries`, which must be in id order.
    pub(super) fn new(
        disk: &'e Disk,
        superblock: &'e Superblock,
        entries: &'e [(NodeId, Entry)],
        options: CheckOptions,
    ) -> Pass<'e> {
        Pass { disk, superblock, entries, options, is_mixed: AtomicBool::new(false) }
    }

    fn checker(&self, (id, entry): &'e (NodeId, Entry)) -> Checker<'e> {
        let Pass { disk, superblock, options, .. } = *self;
        Checker { disk, superblock, id: *id, entry, options, report: Report::default() }
    }

    /// Takes the blocks of all nodes, and checks the internal ones. Returns the leaves that own their blocks, in disk
    /// order.
    pub(super) fn internals(
        &self,
        owners: &mut Owners,
        nodes: &mut Nodes,
        progress: &mut dyn Progress,
    ) -> Vec<&'e (NodeId, Entry)> {
        let mut order: Vec<&(NodeId, Entry)> = self.entries.iter().collect();
        order.sort_by_key(|(_, entry)| entry.extent);
        let internal = |node: &&&(NodeId, Entry)| node.1.height > Height(0);
        let total = order.iter().filter(internal).count() as u64;
        let mut ahead = order.iter().filter(internal);
        let mut fetch = Fetch { disk: self.disk, fetched: 0 };
        ahead.by_ref().take(BATCH).for_each(|(_, entry)| fetch.fetch(entry));
        let mut leaves = Vec::with_capacity(order.len() - total as usize);
        let (mut ready, mut bytes, mut done) = (Vec::new(), 0, 0);
        let mut check = |ready: &mut Vec<Taken<'e>>| {
            progress.step(2, done, total);
            done += ready.len() as u64;
            for (checker, summary) in on_all_cores(self.disk, std::mem::take(ready), Taken::check) {
                nodes.add(checker, summary);
            }
        };
        for node in &order {
            match self.checker(node).take(owners) {
                Taken::Leaf => leaves.push(*node),
                taken => {
                    bytes += taken.bytes();
                    ready.push(taken);
                }
            }
            if ready.len() >= BATCH || bytes > self.memory().nodes() {
                check(&mut ready);
                bytes = 0;
            }
            if node.1.height > Height(0) {
                ahead.next().into_iter().for_each(|(_, entry)| fetch.fetch(entry));
            }
        }
        check(&mut ready);
        progress.step(2, total, total);
        leaves
    }

    fn memory(&self) -> Memory {
        Memory::new(self.options.memory, self.superblock.image_blocks)
    }

    /// Checks some leaves that have not been checked, in their order, without using their entries.
    pub(super) fn leaves(
        &self,
        leaves: &[&'e (NodeId, Entry)],
        nodes: &mut Nodes,
        progress: &mut dyn Progress,
    ) {
        let mut rest: Vec<&(NodeId, Entry)> = leaves.to_vec();
        rest.retain(|(id, _)| !nodes.checked.contains(id));
        let total = leaves.len() as u64;
        let most = self.memory().nodes() / 2;
        let mut rest = &rest[..];
        let mut batch = next_batch(&mut rest, most);
        while !batch.is_empty() {
            let behind = next_batch(&mut rest, most);
            behind.iter().for_each(|(_, entry)| self.announce(entry));
            progress.step(3, total - (batch.len() + behind.len() + rest.len()) as u64, total);
            let check = |node| self.check_leaf(node, &mut |_, _, _| {});
            for (checker, found) in on_all_cores(self.disk, batch.to_vec(), check) {
                nodes.add(checker, found.summary);
            }
            batch = behind;
        }
        progress.step(3, total, total);
    }

    /// Checks a leaf that owns its blocks, and passes on its entries.
    pub(super) fn check_leaf(
        &self,
        node: &'e (NodeId, Entry),
        told: &mut EntrySink<'_>,
    ) -> (Checker<'e>, Found) {
        let (checker, found) = self.checker(node).leaf(told);
        if node.1.tree == TreeId::Data {
            self.is_mixed.store(found.is_mixed, Ordering::Relaxed);
        }
        (checker, found)
    }

    /// A node of the table.
    pub(super) fn node(&self, id: NodeId) -> Option<&'e (NodeId, Entry)> {
        let at = self.entries.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&self.entries[at])
    }

    /// Advises the device of a leaf that will be checked.
    pub(super) fn announce(&self, entry: &Entry) {
        let mixed = self.is_mixed.load(Ordering::Relaxed);
        let whole = mixed || is_read_whole(entry, self.options.data);
        self.disk.advise_will_need(entry.extent.start.byte(), front(entry, whole));
    }
}

/// Maps nodes on all cores; results are in the order of the nodes.
fn on_all_cores<T: Send, U: Send>(
    disk: &Disk,
    nodes: Vec<T>,
    work: impl Fn(T) -> U + Send + Sync,
) -> Vec<U> {
    match disk.device().requires_serial_io() {
        true => nodes.into_iter().map(work).collect(),
        false => nodes.into_par_iter().map(work).collect(),
    }
}

/// The next nodes of `rest`, of at most `most` bytes in total, but at least one. They are removed from `rest`.
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

/// Advises the device of reads. No range is advised twice, even if the table is wrong.
struct Fetch<'c> {
    disk: &'c Disk,
    /// The end of the last range.
    fetched: u64,
}

impl Fetch<'_> {
    fn fetch(&mut self, entry: &Entry) {
        let at = entry.extent.start.byte();
        let (from, end) = (at.max(self.fetched), at.saturating_add(entry.extent.bytes()));
        if from < end {
            self.disk.advise_will_need(from, end - from);
            self.fetched = end;
        }
    }
}

/// Of data leaves only heads and keys are read, unless `data`.
pub(super) fn is_read_whole(entry: &Entry, data: bool) -> bool {
    data || entry.tree == TreeId::Metadata
}

/// A node after taking its blocks.
enum Taken<'c> {
    /// Its blocks are not its own, or it is internal and its head does not verify: it is not checked further.
    Lost(Checker<'c>),
    /// A leaf, which has not been read.
    Leaf,
    /// An internal node, and for each run the findings of taking it.
    Internal(Checker<'c>, InternalHead, Vec<runs::TakenRun>),
}

impl<'c> Taken<'c> {
    /// Number of bytes still to be read.
    fn bytes(&self) -> u64 {
        match self {
            Taken::Lost(_) | Taken::Leaf => 0,
            Taken::Internal(checker, head, _) => {
                let runs = head.runs.iter().map(|run| run.extent.bytes());
                checker.entry.extent.bytes() + runs.fold(0u64, u64::saturating_add)
            }
        }
    }

    fn check(self) -> (Checker<'c>, Option<Summary>) {
        let (mut checker, head, taken) = match self {
            Taken::Internal(checker, head, taken) => (checker, head, taken),
            Taken::Lost(checker) => return (checker, None),
            Taken::Leaf => unreachable!("leaves are checked apart"),
        };
        let internal = Internal::stored(head.clone());
        checker.padding(u64::from(checker.entry.head_bytes), checker.entry.extent);
        runs::check(&mut checker, &head, &internal, taken);
        let children = internal.children().iter().enumerate();
        let children = children.map(|(at, child)| {
            let keys = internal.bounds_below(at);
            Edge { child: child.id, keys, has_lens: child.lens.is_some() }
        });
        let summary = Summary {
            tree: internal.tree,
            height: internal.height,
            bounds: internal.bounds.clone(),
            children: children.collect(),
        };
        (checker, Some(summary))
    }
}

/// A node, and what its check needs.
pub(super) struct Checker<'c> {
    pub disk: &'c Disk,
    pub superblock: &'c Superblock,
    pub id: NodeId,
    pub entry: &'c Entry,
    pub options: CheckOptions,
    /// Findings of this node.
    pub report: Report,
}

impl<'c> Checker<'c> {
    /// Takes the blocks of the node, and those of the runs of an internal node.
    fn take(mut self, owners: &mut Owners) -> Taken<'c> {
        let (id, extent) = (self.id, self.entry.extent);
        if !owners.take(extent, || node_place(id, extent), &mut self.report) {
            return Taken::Lost(self);
        }
        if self.entry.height == Height(0) {
            return Taken::Leaf;
        }
        let head = self.disk.read(extent.start.byte(), self.entry.head_bytes as usize);
        let volume = self.superblock.birth.volume;
        let head = head.and_then(|head| Head::verified(&head, volume, id, self.entry));
        let head = match head {
            Ok(Head::Internal(head)) => head,
            Ok(Head::Leaf(_)) => unreachable!("the entry says that it is internal"),
            Err(error) => {
                self.report.add_error(Code::HeadInvalid, &error);
                owners.mark_incomplete();
                return Taken::Lost(self);
            }
        };
        self.report.counts.nodes += 1;
        let taken = runs::take(&self, &head, owners);
        head.runs.iter().for_each(|run| {
            self.disk.advise_will_need(run.extent.start.byte(), run.extent.bytes())
        });
        Taken::Internal(self, head, taken)
    }

    pub(super) fn place(&self) -> Place {
        node_place(self.id, self.entry.extent)
    }

    pub(super) fn part_place(&self, part: u64, byte: u64) -> Place {
        Place::Part { id: self.id, part, byte }
    }

    /// Checks that the bytes of an extent from `used` on are zero.
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
}
