//! Checks the runs of an internal node: headers, range messages, slices, and their order.
//!
//! Lookups rely on two rules. Within a run, a point message is younger than a range message that covers it. And of two
//! runs, the later one has the younger messages for each key.

use bytes::Bytes;

use super::nodes::Checker;
use super::owners::Owners;
use super::{Code, Finding, Report};
use crate::error::{Error, Fault, Place, Result};
use crate::format::*;
use crate::ids::*;
use crate::node::{Batch, Internal, Item, RangeSet};

/// Whether a run owns its blocks, and the findings of taking them.
pub(super) struct TakenRun {
    is_own: bool,
    findings: Vec<Finding>,
}

/// Takes the blocks of all runs of a node.
pub(super) fn take(
    checker: &Checker<'_>,
    head: &InternalHead,
    owners: &mut Owners,
) -> Vec<TakenRun> {
    let take = |run: &RunRef| {
        let place = || checker.part_place(run.seq.0, run.extent.start.byte());
        let mut findings = Report::default();
        let is_own = owners.take(run.extent, place, &mut findings);
        TakenRun { is_own, findings: findings.findings }
    };
    head.runs.iter().map(take).collect()
}

/// Checks all runs of a node, whose blocks have been taken.
pub(super) fn check(
    checker: &mut Checker<'_>,
    head: &InternalHead,
    internal: &Internal,
    taken: Vec<TakenRun>,
) {
    checker.report.counts.inflow += internal.inflow();
    let mut runs = Runs { checker, head, internal, before: Batch::default() };
    for (run, TakenRun { is_own, findings }) in head.runs.iter().zip(taken) {
        runs.checker.report.findings.extend(findings);
        if is_own && let Err(error) = runs.run(run) {
            runs.checker.report.add_error(Code::PartInvalid, &error);
        }
    }
}

struct Runs<'r, 'c> {
    checker: &'r mut Checker<'c>,
    head: &'r InternalHead,
    internal: &'r Internal,
    /// The live messages of the runs so far: for each key the youngest, of any kind.
    before: Batch,
}

impl Runs<'_, '_> {
    fn run(&mut self, run: &RunRef) -> Result<()> {
        let start = run.extent.start.byte();
        let bytes = Bytes::from(self.checker.disk.read(start, run.extent.bytes() as usize)?);
        self.header(run, &bytes)?;
        if !is_zero(&bytes[run.bytes as usize..]) {
            self.add(Code::PaddingDirty, run, "the end of a run");
        }
        let mut shares = RangeSet::default();
        self.ranges(run, &bytes)?.into_iter().for_each(|range| shares.insert(range));
        let mut live = Vec::new();
        for (at, child) in self.head.children.iter().enumerate() {
            if child.first_run <= run.seq {
                let bounds = self.internal.child_bounds(at);
                live.extend(shares.clip(&bounds.lo, bounds.hi.as_deref()));
            }
        }
        for range in &live {
            let (lo, hi) = (&*range.lo, Some(&*range.hi));
            let points = self.before.points().range(lo, hi).map(|item| item.msn).max();
            let ranges = self.before.ranges().clip(lo, hi).iter().map(|range| range.msn).max();
            self.note(run, range.msn, points.max(ranges));
        }
        let mut points = Vec::new();
        for (at, slice) in run.slices.iter().enumerate() {
            let next = run.slices.get(at + 1).filter(|next| next.child == slice.child);
            for (key, message) in self.slice(run, slice, &bytes)? {
                if key < slice.first || next.is_some_and(|next| key >= next.first) {
                    self.add(
                        Code::MessageWrong,
                        run,
                        format!("a slice for {}", self.child_of(slice)),
                    );
                }
                if shares.covering(&key).is_some_and(|msn| msn > message.msn) {
                    self.add(Code::MessageWrong, run, "older than a range message that covers it");
                }
                let point = self.before.points().get(&key).map(|item| item.msn);
                self.note(run, message.msn, point.max(self.before.ranges().covering(&key)));
                points.push((key, message.msn));
            }
        }
        live.into_iter().for_each(|range| self.before.insert_range(range));
        for (key, msn) in points {
            self.before.insert(&Item::new(&key, msn, &Action::Delete));
        }
        Ok(())
    }

    /// Checks that a message is younger than those before it, and older than the next MSN.
    fn note(&mut self, run: &RunRef, msn: Msn, before: Option<Msn>) {
        let (before, next) = (before.unwrap_or_default(), self.checker.superblock.next_msn);
        if msn <= before || msn >= next {
            let detail = format!("MSN {msn}: expected more than {before}, less than {next}");
            self.add(Code::MessageWrong, run, detail);
        }
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

    fn child_of(&self, slice: &SliceRef) -> NodeId {
        self.head.children[usize::from(slice.child)].id
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
        let bounds = self.internal.child_bounds(slice.child.into());
        let child = self.child_of(slice);
        let adds =
            |message: &Message| matches!(&message.action, Action::Update(update) if update.adds());
        if self.head.tree == TreeId::Data && messages.iter().any(|(_, message)| adds(message)) {
            self.add(Code::MessageWrong, run, "an addition in the data index");
        }
        let mut filter = Vec::new();
        push_filter(&mut filter, messages.iter().map(|(key, _)| &**key), messages.len());
        if *run.filter(slice) != *filter {
            self.add(Code::MessageWrong, run, format!("the filter for {child}"));
        }
        let greatest = messages.iter().map(|(_, message)| message.msn).max();
        let growth = messages
            .iter()
            .map(|(key, message)| Item::new(key, message.msn, &message.action).leaf_growth());
        let growth: Growth = growth.sum();
        if growth != slice.growth {
            let Growth { messages, bytes } = slice.growth;
            let stated = format!("growth of {messages} messages and {bytes} bytes");
            let Growth { messages, bytes } = growth;
            let detail = format!("{stated} for {child}, not of {messages} and {bytes}");
            self.add(Code::MessageWrong, run, detail);
        }
        if !messages.iter().all(|(key, _)| bounds.contains(key))
            || greatest != Some(slice.section.greatest)
        {
            self.add(Code::MessageWrong, run, format!("messages for {child}"));
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
