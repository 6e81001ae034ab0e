//! Every node by itself: the blocks of all, then what is in them.
//!
//! Which node owns which blocks is settled one node after another, in the order of the disk; so what overlaps is
//! not read twice. Internal nodes are read, hashed and decoded on all cores, each with a report of its own, and what was
//! found is put together in the order of the disk: it never depends on timing. Leaves come in an order that suits
//! who asks for them: as a rule that of their keys, so that the schema is looked at with what has been read.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::leaf::{Found, Told, front};
use super::memory::Memory;
use super::owners::Owners;
use super::runs;
use super::{CheckOptions, Code, Counts, Finding, Progress, Report, node_place};
use crate::disk::Disk;
use crate::error::Place;
use crate::format::*;
use crate::ids::*;
use crate::node::{Head, Internal};

/// So many nodes are checked at the same time, or fewer if they have more bytes than fit into the memory for them.
const BATCH: usize = 32;

/// What the other passes need to know of a node.
pub(super) struct Summary {
    pub tree: TreeId,
    pub height: Height,
    pub bounds: Bounds,
    pub children: Vec<(NodeId, Bounds)>,
}

/// What is known of the nodes that have been checked.
#[derive(Default)]
pub(super) struct Nodes {
    /// Those whose heads verify.
    pub summaries: HashMap<NodeId, Summary>,
    checked: HashSet<NodeId>,
    counts: Counts,
    findings: Vec<(Extent, Vec<Finding>)>,
}

impl Nodes {
    /// Whether what was found is in no way of looking further.
    pub(super) fn are_passable(&self) -> bool {
        self.findings.iter().all(|(_, findings)| findings.iter().all(Finding::is_passable))
    }

    /// A node has been checked.
    pub(super) fn add(&mut self, checker: Checker<'_>, summary: Option<Summary>) {
        let Checker { id, entry, report, .. } = checker;
        self.checked.insert(id);
        self.summaries.extend(summary.map(|summary| (id, summary)));
        self.counts.add_node(report.counts);
        if !report.findings.is_empty() {
            self.findings.push((entry.extent, report.findings));
        }
    }

    /// Tells what was found, in the order of the disk.
    pub(super) fn tell(&mut self, report: &mut Report) {
        self.findings.sort_by_key(|(extent, _)| *extent);
        report.findings.extend(self.findings.drain(..).flat_map(|(_, findings)| findings));
        report.counts.add_node(std::mem::take(&mut self.counts));
    }
}

/// The nodes that the table knows.
pub(super) struct Pass<'e> {
    pub disk: &'e Disk,
    superblock: &'e Superblock,
    entries: &'e [(NodeId, Entry)],
    options: CheckOptions,
    /// Whether keys and short values of contents stand mixed, as those of the last leaf do.
    is_mixed: AtomicBool,
}

impl<'e> Pass<'e> {
    /// Those of `entries`, which are in the order of their ids.
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

    /// Takes the blocks of all nodes, and checks the internal ones. Returns the leaves whose blocks are their own, in the
    /// order of the disk.
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

    /// Checks those of some leaves that have not been, in their order. Their entries are nobody's concern.
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

    /// Checks a leaf whose blocks are its own, and tells its entries.
    pub(super) fn check_leaf(
        &self,
        node: &'e (NodeId, Entry),
        told: &mut Told<'_>,
    ) -> (Checker<'e>, Found) {
        let (checker, found) = self.checker(node).leaf(told);
        if node.1.tree == TreeId::Data {
            self.is_mixed.store(found.is_mixed, Ordering::Relaxed);
        }
        (checker, found)
    }

    /// A node, if the table knows it.
    pub(super) fn node(&self, id: NodeId) -> Option<&'e (NodeId, Entry)> {
        let at = self.entries.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&self.entries[at])
    }

    /// A leaf will be checked soon.
    pub(super) fn announce(&self, entry: &Entry) {
        let mixed = self.is_mixed.load(Ordering::Relaxed);
        let whole = mixed || is_read_whole(entry, self.options.data);
        self.disk.will_read(entry.extent.start.byte(), front(entry, whole));
    }
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
    /// Where what has been fetched ends.
    fetched: u64,
}

impl Fetch<'_> {
    fn fetch(&mut self, entry: &Entry) {
        let at = entry.extent.start.byte();
        let (from, end) = (at.max(self.fetched), at.saturating_add(entry.extent.bytes()));
        if from < end {
            self.disk.will_read(from, end - from);
            self.fetched = end;
        }
    }
}

/// Of contents only heads and keys are looked at, unless all are.
pub(super) fn is_read_whole(entry: &Entry, data: bool) -> bool {
    data || entry.tree == TreeId::Metadata
}

/// A node of which is known whether its blocks are its own.
enum Taken<'c> {
    /// They are not, or it is internal and has no head that verifies: no more is to be had of it.
    Lost(Checker<'c>),
    /// A leaf, which has not been read.
    Leaf,
    /// An internal node, and for each of its runs what was found when that was taken.
    Internal(Checker<'c>, InternalHead, Vec<runs::TakenRun>),
}

impl<'c> Taken<'c> {
    /// How many bytes are still to be read.
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
        let children = children.map(|(at, child)| (child.id, internal.child_bounds(at)));
        let summary = Summary {
            tree: internal.tree,
            height: internal.height,
            bounds: internal.bounds.clone(),
            children: children.collect(),
        };
        (checker, Some(summary))
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
                owners.lose_sight();
                return Taken::Lost(self);
            }
        };
        self.report.counts.nodes += 1;
        let taken = runs::take(&self, &head, owners);
        head.runs
            .iter()
            .for_each(|run| self.disk.will_read(run.extent.start.byte(), run.extent.bytes()));
        Taken::Internal(self, head, taken)
    }

    pub(super) fn place(&self) -> Place {
        node_place(self.id, self.entry.extent)
    }

    pub(super) fn part_place(&self, part: u64, byte: u64) -> Place {
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
}
