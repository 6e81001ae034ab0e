//! The runs of an internal node: headers, range messages, slices, and the order of all of them.
//!
//! What a lookup relies on: within a run a message to a key is younger than a range message that covers
//! it; and of two runs, the later one holds the younger messages for each child.

use std::collections::HashMap;

use bytes::Bytes;

use super::Code;
use super::nodes::Checker;
use crate::error::{Error, Fault, Place, Result};
use crate::format::*;
use crate::ids::*;
use crate::node::Internal;

/// Checks all runs of a node.
pub(super) fn check(checker: &mut Checker<'_>, head: &InternalHead, internal: &Internal) {
    let mut runs = Runs { checker, head, internal, youngest: HashMap::new() };
    for run in &head.runs {
        let place = runs.place(run, 0);
        if !runs.checker.owners.take(run.extent, || place, runs.checker.report) {
            continue;
        }
        if let Err(error) = runs.run(run) {
            runs.checker.report.add_error(Code::PartInvalid, &error);
        }
    }
}

struct Runs<'r, 'c> {
    checker: &'r mut Checker<'c>,
    head: &'r InternalHead,
    internal: &'r Internal,
    /// The youngest message for each child in the runs so far.
    youngest: HashMap<NodeId, Msn>,
}

impl Runs<'_, '_> {
    fn run(&mut self, run: &RunRef) -> Result<()> {
        let start = run.extent.start.byte();
        let bytes = Bytes::from(self.checker.disk.read(start, run.extent.bytes() as usize)?);
        self.header(run, &bytes)?;
        if !is_zero(&bytes[run.bytes as usize..]) {
            self.add(Code::PaddingDirty, run, "the end of a run");
        }
        let ranges = self.ranges(run, &bytes)?;
        let mut youngest: HashMap<NodeId, Msn> = HashMap::new();
        for (at, child) in self.head.children.iter().enumerate() {
            if child.first_run > run.seq {
                continue;
            }
            let bounds = self.internal.child_bounds(at);
            let first = ranges.partition_point(|range| range.hi <= bounds.lo);
            let inside = |range: &&RangeDelete| bounds.is_below_end(&range.lo);
            for range in ranges[first..].iter().take_while(inside) {
                self.note(run, child.id, range.msn, &mut youngest);
            }
        }
        for slice in &run.slices {
            for (key, message) in self.slice(run, slice, &bytes)? {
                let at = ranges.partition_point(|range| range.lo <= key);
                let covering =
                    at.checked_sub(1).map(|at| &ranges[at]).filter(|range| key < range.hi);
                if covering.is_some_and(|range| range.msn > message.msn) {
                    self.add(Code::MessageWrong, run, "older than a range message that covers it");
                }
                self.note(run, slice.child, message.msn, &mut youngest);
            }
        }
        for (child, msn) in youngest {
            let known = self.youngest.entry(child).or_default();
            *known = (*known).max(msn);
        }
        Ok(())
    }

    /// A message must be younger than those for the child in earlier runs, and not of the future.
    fn note(&mut self, run: &RunRef, child: NodeId, msn: Msn, youngest: &mut HashMap<NodeId, Msn>) {
        let before = self.youngest.get(&child).copied().unwrap_or_default();
        let next = self.checker.superblock.next_msn;
        if msn <= before || msn >= next {
            let detail =
                format!("MSN {msn} for {child}: expected more than {before}, less than {next}");
            self.add(Code::MessageWrong, run, detail);
        }
        let known = youngest.entry(child).or_default();
        *known = (*known).max(msn);
    }

    fn header(&self, run: &RunRef, bytes: &Bytes) -> Result<()> {
        let header = bytes.get(..RUN_HEADER_BYTES).unwrap_or(bytes);
        let (seal, header) =
            RunHeader::decode(header, None).map_err(|e| self.corrupt(run, 0, e))?;
        let (node, tree) = (self.checker.id, self.checker.entry.tree);
        let expected = RunHeader { node, seq: run.seq, tree, bytes: run.bytes };
        if header != expected
            || (seal.hash, seal.birth.epoch) != (run.header_hash, run.birth)
            || seal.birth.volume != self.checker.superblock.birth.volume
        {
            let fault =
                Fault::mismatch("run header", format!("{expected:?}"), format!("{header:?}"));
            return Err(self.corrupt(run, 0, fault));
        }
        Ok(())
    }

    fn ranges(&mut self, run: &RunRef, bytes: &Bytes) -> Result<Vec<RangeDelete>> {
        if run.ranges.count == 0 {
            return Ok(Vec::new());
        }
        let section = self.part(run, bytes, &run.ranges)?;
        let ranges = decode_ranges(&section, run.ranges.count as usize, None)
            .map_err(|error| self.corrupt(run, run.ranges.offset, error))?;
        self.checker.report.counts.pending += ranges.len() as u64;
        let bounds = &self.head.bounds;
        let inside = |range: &RangeDelete| {
            bounds.contains(&range.lo) && bounds.hi.as_ref().is_none_or(|hi| range.hi <= *hi)
        };
        let greatest = ranges.iter().map(|range| range.msn).max();
        if !ranges.iter().all(inside) || greatest != Some(run.ranges.greatest) {
            self.add(Code::MessageWrong, run, "range messages");
        }
        Ok(ranges)
    }

    fn slice(
        &mut self,
        run: &RunRef,
        slice: &SliceRef,
        bytes: &Bytes,
    ) -> Result<Vec<(Key, Message)>> {
        let section = self.part(run, bytes, &slice.section)?;
        let messages = decode_slice(&section, slice.section.count as usize, None)
            .map_err(|error| self.corrupt(run, slice.section.offset, error))?;
        self.checker.report.counts.pending += messages.len() as u64;
        let at = self.internal.children().iter().position(|child| child.id == slice.child);
        let bounds = at.map(|at| self.internal.child_bounds(at));
        let inside = |key: &Key| bounds.as_ref().is_some_and(|bounds| bounds.contains(key));
        let greatest = messages.iter().map(|(_, message)| message.msn).max();
        if !messages.iter().all(|(key, _)| inside(key)) || greatest != Some(slice.section.greatest)
        {
            self.add(Code::MessageWrong, run, format!("messages for {}", slice.child));
        }
        Ok(messages)
    }

    fn part(&self, run: &RunRef, bytes: &Bytes, section: &SectionRef) -> Result<Bytes> {
        let part = bytes.slice(section.offset as usize..(section.offset + section.bytes) as usize);
        let computed = Hash::of(&part);
        if computed != section.hash {
            let fault = Fault::mismatch("hash of messages", section.hash, computed);
            return Err(self.corrupt(run, section.offset, fault));
        }
        Ok(part)
    }

    fn place(&self, run: &RunRef, offset: u32) -> Place {
        self.checker.part_place(run.seq.0, run.extent.start.byte() + u64::from(offset))
    }

    fn corrupt(&self, run: &RunRef, offset: u32, fault: impl Into<Fault>) -> Error {
        Error::corrupt(self.place(run, offset), fault)
    }

    fn add(&mut self, code: Code, run: &RunRef, detail: impl ToString) {
        let place = self.place(run, 0);
        self.checker.report.add(code, place, detail);
    }
}
