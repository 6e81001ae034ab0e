//! Checks a single leaf: head, key sections, places of values, padding, and values on request.
//!
//! Everything between values of the data index, including padding, is checked only together with them. So usually only
//! the first block of such a leaf is read, with head and keys.

use std::ops::Range;

use bytes::Bytes;

use super::Code;
use super::nodes::{Checker, Summary, is_read_whole};
use crate::error::{Place, Result};
use crate::format::*;
use crate::ids::*;
use crate::node::{Head, check_hash, verified_section};

/// 1 MiB: the most bytes of a leaf that are read at once.
const WINDOW: u32 = 1 << 20;

/// 1/32: an estimate of the share of keys in a leaf whose key sections are stored together, with a margin.
const KEYS_SHARE: u64 = 32;

/// Receives the entries of a leaf: key, value, and its length. Values of the data index are left out.
pub(super) type EntrySink<'t> = dyn FnMut(Key, Bytes, usize) + 't;

/// The number of bytes of a leaf that are read first: all of it, or head and keys, by an estimate of their share if
/// they are stored together.
pub(super) fn front(entry: &Entry, whole: bool) -> u64 {
    let all = entry.extent.bytes();
    let keys = u64::from(entry.head_bytes) + all / KEYS_SHARE;
    if whole { all } else { keys.next_multiple_of(BLOCK_SIZE as u64).min(all) }
}

/// The result of checking a leaf.
pub(super) struct Found {
    /// `None` if its head does not verify.
    pub summary: Option<Summary>,
    /// Whether all of its entries were passed on.
    pub is_whole: bool,
    /// Whether values are stored between its keys.
    pub is_mixed: bool,
}

/// The bytes of a leaf that were read last.
struct Window<'c> {
    checker: Checker<'c>,
    at: u32,
    bytes: Bytes,
}

impl Window<'_> {
    /// The bytes of a place in the leaf. If they have not been read, reads everything up to `until`, limited by the
    /// window size.
    fn get(&mut self, place: Range<u32>, until: u32) -> Result<Bytes> {
        if place.is_empty() {
            return Ok(Bytes::new());
        }
        let end = u64::from(self.at) + self.bytes.len() as u64;
        if place.start < self.at || u64::from(place.end) > end {
            let most = place.start.saturating_add(WINDOW);
            let end = until.min(most).max(place.end);
            self.bytes = match self.read(place.start..end) {
                // Other bytes may be unreadable; then only this place is read.
                Err(_) if end > place.end => self.read(place.clone())?,
                read => read?,
            };
            self.at = place.start;
        }
        Ok(self.bytes.slice((place.start - self.at) as usize..(place.end - self.at) as usize))
    }

    fn read(&self, place: Range<u32>) -> Result<Bytes> {
        let at = self.checker.entry.extent.start.byte() + u64::from(place.start);
        Ok(self.checker.disk.read(at, place.len())?.into())
    }

    /// A verified part of basement `number`.
    fn part(&mut self, number: usize, place: Range<u32>, until: u32, hash: &Hash) -> Result<Bytes> {
        let byte = self.checker.entry.extent.start.byte() + u64::from(place.start);
        let bytes = self.get(place, until)?;
        check_hash(&bytes, hash, || self.checker.part_place(number as u64, byte))?;
        Ok(bytes)
    }

    fn zeros(&mut self, place: Range<u32>, until: u32) {
        let at = self.checker.entry.extent.start.byte() + u64::from(place.start);
        let len = place.len();
        match self.get(place, until) {
            Ok(padding) if is_zero(&padding) => {}
            Ok(_) => {
                let detail = format!("{len} bytes at b:{at:#x}");
                self.checker.report.add(Code::PaddingDirty, self.checker.place(), detail);
            }
            Err(error) => self.checker.report.add_error(Code::PaddingDirty, &error),
        }
    }
}

impl<'c> Checker<'c> {
    /// Checks a leaf that owns its blocks.
    pub(super) fn leaf(self, told: &mut EntrySink<'_>) -> (Checker<'c>, Found) {
        let mut window = Window { checker: self, at: 0, bytes: Bytes::new() };
        let found = check(&mut window, told);
        (window.checker, found)
    }
}

fn check(window: &mut Window<'_>, told: &mut EntrySink<'_>) -> Found {
    let Checker { superblock, id, entry, options, .. } = window.checker;
    let whole = is_read_whole(entry, options.data);
    // The extent is as long as its leaf, which is within its limit.
    let extent_end = u32::try_from(entry.extent.bytes()).unwrap_or(u32::MAX);
    let first = u32::try_from(front(entry, whole)).unwrap_or(u32::MAX);
    let head = window
        .get(0..entry.head_bytes, first.min(extent_end))
        .and_then(|head| Head::verified(&head, superblock.birth.volume, id, entry));
    let head = match head {
        Ok(Head::Leaf(head)) => head,
        Ok(Head::Internal(_)) => unreachable!("the entry says that it is a leaf"),
        Err(error) => {
            window.checker.report.add_error(Code::HeadInvalid, &error);
            return Found { summary: None, is_whole: false, is_mixed: false };
        }
    };
    window.checker.report.counts.nodes += 1;
    window.checker.report.counts.leaves += 1;
    let is_whole = parts(window, &head, (whole, extent_end), told);
    let has_values = head.basements.iter().rev().skip(1).any(|basement| basement.small > 0);
    let is_mixed = has_values && !head.is_together();
    let LeafHead { tree, bounds, .. } = head;
    let summary = Summary { tree, height: Height(0), bounds, children: Vec::new() };
    Found { summary: Some(summary), is_whole, is_mixed }
}

/// Checks all parts of a leaf, and the gaps between them. `whole` says whether values are checked.
fn parts(
    window: &mut Window<'_>,
    head: &LeafHead,
    (whole, extent_end): (bool, u32),
    told: &mut EntrySink<'_>,
) -> bool {
    let findings = window.checker.report.findings.len();
    let keys_end =
        head.basements.last().map_or(window.checker.entry.head_bytes, |last| last.keys().end);
    let start = window.checker.entry.extent.start.byte();
    let mut sections = Vec::with_capacity(head.basements.len());
    for (at, basement) in head.basements.iter().enumerate() {
        let until = match whole {
            true => extent_end,
            false if head.is_together() => keys_end,
            false => basement.keys().end,
        };
        let byte = start + u64::from(basement.offset);
        let place = || Place::Part { id: head.id, part: at as u64, byte };
        let section = window.get(basement.keys(), until);
        match section.and_then(|section| verified_section(head, at, &section, place)) {
            Ok(section) => sections.push(section),
            Err(error) => window.checker.report.add_error(Code::PartInvalid, &error),
        }
    }
    if sections.len() < head.basements.len() {
        return false;
    }
    let blocks_at = head.basements.iter().next().map_or(head.leaf_bytes, |first| first.blocks_at);
    let small_end = head.parts_end(window.checker.entry.head_bytes);
    let until = if whole { extent_end } else { 0 };
    if whole || small_end == keys_end {
        window.zeros(small_end..blocks_at, until);
    }
    if whole || head.leaf_bytes == keys_end {
        window.zeros(head.leaf_bytes..extent_end, until);
    }
    if whole {
        for blocks in [false, true] {
            values(window, head, &sections, blocks);
        }
    }
    let is_sound = window.checker.report.findings[findings..]
        .iter()
        .all(|finding| finding.code == Code::PaddingDirty);
    is_sound && tell(window, head, &sections, extent_end, told).is_ok()
}

/// Verifies small values, or file blocks.
fn values(window: &mut Window<'_>, head: &LeafHead, sections: &[KeySection], of_blocks: bool) {
    let until = if of_blocks { head.leaf_bytes } else { head.parts_end(0) };
    for (at, (basement, section)) in head.basements.iter().zip(sections).enumerate() {
        for chunk in &section.chunks {
            if is_block(head.tree, chunk.bytes as usize) != of_blocks {
                continue;
            }
            let place = basement.chunk(head.tree, chunk);
            if let Err(error) = window.part(at, place, until, &chunk.hash) {
                window.checker.report.add_error(Code::ValueInvalid, &error);
            }
        }
    }
}

/// Passes on all entries of a leaf that verifies.
fn tell(
    window: &mut Window<'_>,
    head: &LeafHead,
    sections: &[KeySection],
    extent_end: u32,
    told: &mut EntrySink<'_>,
) -> Result<()> {
    for (basement, section) in head.basements.iter().zip(sections) {
        if head.tree == TreeId::Data {
            section.keys().for_each(|(key, len)| told(key, Bytes::new(), len));
            continue;
        }
        let values = window.get(basement.chunks(), extent_end)?;
        for ((key, len), entry) in section.keys().zip(section.entries()) {
            let value = match section.chunks.get(usize::from(entry.chunk)) {
                Some(chunk) => {
                    let from = chunk.offset as usize + usize::from(entry.offset);
                    values.slice(from..from + len)
                }
                None => Bytes::new(),
            };
            told(key, value, len);
        }
    }
    Ok(())
}
