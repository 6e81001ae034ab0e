//! Every node by itself: head, parts, messages, padding, values.

use std::collections::HashMap;

use super::owners::Owners;
use super::runs;
use super::{CheckOptions, Code, Progress, Report, node_place};
use crate::device::Disk;
use crate::error::{Place, Result};
use crate::format::*;
use crate::ids::*;
use crate::node::{Node, check_section, read_part};

/// So many nodes are fetched ahead.
const FETCHED: usize = 8;

/// What the other passes need to know of a node.
pub(super) struct Summary {
    pub tree: TreeId,
    pub height: Height,
    pub bounds: Bounds,
    pub children: Vec<(NodeId, Bounds)>,
}

/// Checks every node of the table, in the order of the disk.
pub(super) fn check(
    disk: &Disk,
    superblock: &Superblock,
    entries: &[(NodeId, Entry)],
    options: CheckOptions,
    owners: &mut Owners,
    report: &mut Report,
    progress: &mut dyn Progress,
) -> HashMap<NodeId, Summary> {
    let mut order: Vec<&(NodeId, Entry)> = entries.iter().collect();
    order.sort_by_key(|(_, entry)| entry.extent);
    let mut summaries = HashMap::with_capacity(entries.len());
    let total = order.len() as u64;
    // Nothing is fetched twice, whatever the table says of its places.
    let mut fetched = 0;
    let mut fetch = |entry: &Entry| {
        // Of contents only heads and keys are looked at, unless all are.
        let whole = options.data || entry.tree == TreeId::Metadata || entry.height > Height(0);
        let bytes = if whole { entry.extent.bytes() } else { entry.head_bytes.into() };
        let at = entry.extent.start.byte();
        let (from, end) = (at.max(fetched), at.saturating_add(bytes));
        if from < end {
            disk.will_read(from, end - from);
            fetched = end;
        }
    };
    order.iter().take(FETCHED).for_each(|(_, entry)| fetch(entry));
    for (done, (id, entry)) in order.iter().enumerate() {
        if done % 64 == 0 {
            progress.step(2, done as u64, total);
        }
        order.get(done + FETCHED).into_iter().for_each(|(_, entry)| fetch(entry));
        if !owners.take(entry.extent, || node_place(*id, entry.extent), report) {
            continue;
        }
        let mut checker = Checker { disk, superblock, id: *id, entry, owners, report };
        if let Some(summary) = checker.node(options) {
            summaries.insert(*id, summary);
        }
    }
    progress.step(2, total, total);
    summaries
}

/// One node, and what its check needs.
pub(super) struct Checker<'c> {
    pub disk: &'c Disk,
    pub superblock: &'c Superblock,
    pub id: NodeId,
    pub entry: &'c Entry,
    pub owners: &'c mut Owners,
    pub report: &'c mut Report,
}

impl Checker<'_> {
    fn node(&mut self, options: CheckOptions) -> Option<Summary> {
        let volume = self.superblock.birth.volume;
        let node = match Node::load(self.disk, volume, self.id, self.entry) {
            Ok(node) => node,
            Err(error) => {
                self.report.add_error(Code::HeadInvalid, &error);
                if self.entry.height > Height(0) {
                    self.owners.lose_sight();
                }
                return None;
            }
        };
        self.report.counts.nodes += 1;
        let head =
            self.disk.read(self.entry.extent.start.byte(), self.entry.head_bytes as usize).ok()?;
        let children = match &node {
            Node::Leaf(_) => {
                self.report.counts.leaves += 1;
                let (_, head) = LeafHead::decode(&head, None).ok()?;
                let values = options.data || self.entry.tree == TreeId::Metadata;
                self.leaf(&head, values);
                Vec::new()
            }
            Node::Internal(internal) => {
                let (_, head) = InternalHead::decode(&head, None).ok()?;
                self.padding(u64::from(self.entry.head_bytes), self.entry.extent);
                runs::check(self, &head, internal);
                let children = internal.children().iter().enumerate();
                children.map(|(at, child)| (child.id, internal.child_bounds(at))).collect()
            }
        };
        Some(Summary {
            tree: node.tree(),
            height: node.height(),
            bounds: node.bounds().clone(),
            children,
        })
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
