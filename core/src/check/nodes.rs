//! Every node by itself: head, parts, messages, padding, values.

use std::collections::HashMap;

use bytes::Bytes;

use super::owners::Owners;
use super::{CheckOptions, Code, Progress, Report, is_zero, node_place};
use crate::device::Disk;
use crate::error::{Place, Result};
use crate::format::*;
use crate::ids::*;
use crate::node::{Node, check_section, read_part};

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
    for (done, (id, entry)) in order.into_iter().enumerate() {
        if done % 64 == 0 {
            progress.step(2, done as u64, total);
        }
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

struct Checker<'c> {
    disk: &'c Disk,
    superblock: &'c Superblock,
    id: NodeId,
    entry: &'c Entry,
    owners: &'c mut Owners,
    report: &'c mut Report,
}

impl Checker<'_> {
    fn node(&mut self, options: CheckOptions) -> Option<Summary> {
        let volume = self.superblock.birth.volume;
        let node = match Node::load(self.disk, volume, self.id, self.entry) {
            Ok(node) => node,
            Err(error) => {
                self.report.add_error(Code::HeadInvalid, &error);
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
                let blocks = u64::from(self.entry.head_bytes).div_ceil(BLOCK_SIZE as u64);
                if blocks != u64::from(self.entry.extent.blocks) {
                    let detail = format!("a head of {blocks} blocks in {}", self.entry.extent);
                    self.report.add(Code::EntryWrong, self.place(), detail);
                } else {
                    self.padding(u64::from(self.entry.head_bytes), self.entry.extent);
                }
                self.runs(&head, internal);
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

    fn part_place(&self, part: u64, byte: u64) -> Place {
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
        if u64::from(head.leaf_bytes).div_ceil(BLOCK_SIZE as u64)
            != u64::from(self.entry.extent.blocks)
        {
            let detail =
                format!("a leaf of {} bytes in blocks {}", head.leaf_bytes, self.entry.extent);
            return self.report.add(Code::EntryWrong, self.place(), detail);
        }
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
        let sections_end =
            head.basements.last().map_or(self.entry.head_bytes, |b| b.offset + b.bytes);
        match self.chunks(head, &sections, sections_end) {
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
                "value chunks do not lie one after another",
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
        check_section(&section, basement, head.basements.get(at + 1), &head.bounds)
            .map_err(corrupt)?;
        Ok(section)
    }

    /// The chunks must fill the rest of the leaf in their order: first the small ones, then, aligned,
    /// blocks of files. Returns where the small ones end and where the blocks start.
    fn chunks(&self, head: &LeafHead, sections: &[KeySection], start: u32) -> Option<(u64, u64)> {
        let all = || sections.iter().flat_map(|section| &section.chunks);
        let (mut small, mut blocks) = (u64::from(start), 0);
        for chunk in all() {
            match is_block(head.tree, chunk.bytes as usize) {
                true => blocks += u64::from(chunk.bytes),
                false => small += u64::from(chunk.bytes),
            }
        }
        let aligned = small.next_multiple_of(BLOCK_SIZE as u64);
        let blocks_at = if blocks > 0 { aligned } else { small };
        if blocks_at + blocks != u64::from(head.leaf_bytes) {
            return None;
        }
        let (mut small_at, mut block_at) = (u64::from(start), blocks_at);
        let in_order = all().all(|chunk| {
            let at = if is_block(head.tree, chunk.bytes as usize) {
                &mut block_at
            } else {
                &mut small_at
            };
            let expected = *at;
            *at += u64::from(chunk.bytes);
            u64::from(chunk.offset) == expected
        });
        in_order.then_some((small, blocks_at))
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

    fn runs(&mut self, head: &InternalHead, internal: &crate::node::Internal) {
        let children = internal.children().iter().enumerate();
        let bounds = children.map(|(at, child)| (child.id, internal.child_bounds(at))).collect();
        for run in &head.runs {
            let place = self.part_place(run.seq.0, run.extent.start.byte());
            if !self.owners.take(run.extent, || place, self.report) {
                continue;
            }
            if let Err(error) = self.run(head, run, &bounds) {
                self.report.add_error(Code::PartInvalid, &error);
            }
        }
    }

    fn run(
        &mut self,
        head: &InternalHead,
        run: &RunRef,
        bounds: &HashMap<NodeId, Bounds>,
    ) -> Result<()> {
        let start = run.extent.start.byte();
        let bytes = Bytes::from(self.disk.read(start, run.extent.bytes() as usize)?);
        self.run_header(run, &bytes)?;
        if !is_zero(&bytes[run.bytes as usize..]) {
            self.report.add(
                Code::PaddingDirty,
                self.part_place(run.seq.0, start),
                "the end of a run",
            );
        }
        if run.ranges.count > 0 {
            let section = self.part(run, &bytes, &run.ranges)?;
            let ranges = decode_ranges(&section, run.ranges.count as usize, None);
            let ranges = ranges
                .map_err(|e| crate::error::Error::corrupt(self.part_place(run.seq.0, start), e))?;
            self.report.counts.pending += ranges.len() as u64;
            let inside = |r: &RangeDelete| {
                head.bounds.contains(&r.lo) && head.bounds.hi.as_ref().is_none_or(|hi| r.hi <= *hi)
            };
            let greatest = ranges.iter().map(|r| r.msn).max();
            if !ranges.iter().all(inside) || greatest != Some(run.ranges.greatest) {
                self.report.add(
                    Code::MessageWrong,
                    self.part_place(run.seq.0, start),
                    "range messages",
                );
            }
            self.msn(run, run.ranges.greatest);
        }
        for slice in &run.slices {
            let section = self.part(run, &bytes, &slice.section)?;
            let messages = decode_slice(&section, slice.section.count as usize, None)
                .map_err(|e| crate::error::Error::corrupt(self.part_place(run.seq.0, start), e))?;
            self.report.counts.pending += messages.len() as u64;
            let bounds = bounds.get(&slice.child);
            let inside = |key: &Key| bounds.is_some_and(|bounds| bounds.contains(key));
            let greatest = messages.iter().map(|(_, m)| m.msn).max();
            if !messages.iter().all(|(key, _)| inside(key))
                || greatest != Some(slice.section.greatest)
            {
                let detail = format!("messages for {}", slice.child);
                self.report.add(Code::MessageWrong, self.part_place(run.seq.0, start), detail);
            }
            self.msn(run, slice.section.greatest);
        }
        Ok(())
    }

    fn run_header(&self, run: &RunRef, bytes: &Bytes) -> Result<()> {
        let place = || self.part_place(run.seq.0, run.extent.start.byte());
        let header = bytes.get(..RUN_HEADER_BYTES).unwrap_or(bytes);
        let (seal, header) = RunHeader::decode(header, None)
            .map_err(|e| crate::error::Error::corrupt(place(), e))?;
        let expected =
            RunHeader { node: self.id, seq: run.seq, tree: self.entry.tree, bytes: run.bytes };
        if header != expected
            || (seal.hash, seal.birth.epoch) != (run.header_hash, run.birth)
            || seal.birth.volume != self.superblock.birth.volume
        {
            let fault = crate::error::Fault::mismatch(
                "run header",
                format!("{expected:?}"),
                format!("{header:?}"),
            );
            return Err(crate::error::Error::corrupt(place(), fault));
        }
        Ok(())
    }

    fn part(&self, run: &RunRef, bytes: &Bytes, section: &SectionRef) -> Result<Bytes> {
        let range = section.offset as usize..(section.offset + section.bytes) as usize;
        let part = bytes.slice(range);
        let computed = Hash::of(&part);
        if computed != section.hash {
            let byte = run.extent.start.byte() + u64::from(section.offset);
            let fault = crate::error::Fault::mismatch("hash of messages", section.hash, computed);
            return Err(crate::error::Error::corrupt(self.part_place(run.seq.0, byte), fault));
        }
        Ok(part)
    }

    fn msn(&mut self, run: &RunRef, msn: Msn) {
        if msn >= self.superblock.next_msn {
            let detail = format!("MSN {msn}, but the next is {}", self.superblock.next_msn);
            self.report.add(
                Code::MessageWrong,
                self.part_place(run.seq.0, run.extent.start.byte()),
                detail,
            );
        }
    }
}
