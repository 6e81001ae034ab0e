//! Copies the log: every group that verifies, even if it is no longer valid; the extents that groups of the
//! superblock's epoch bind; and readable records of groups of that epoch that do not verify.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

use super::contents::Spans;
use super::copy::{Claim, Copy, Resealed};
use betr_core::error::Result;
use betr_core::format::{
    GROUP_HEADER_BYTES, Group, Magic, Record, RecordMessage, Seal, Superblock, Target, group_length,
};
use betr_core::ids::*;
use betr_core::log::{End, Region, scan};
use betr_core::space::Bitmap;
use betr_core::space::Layout;

/// 4 times the region: the most bytes read to find groups. Valid groups do not overlap, so they fit into the region.
const READ_MAX: u64 = 4;

impl Copy<'_> {
    /// Copies the log of a layout. Which groups are its own is known only with a superblock.
    pub(super) fn log(&mut self, layout: &Layout, superblock: Option<&Superblock>) -> Result<()> {
        let region = Region { start: layout.log_start, units: layout.log_units };
        let mut covered = Bitmap::new(region.units);
        let mut bad = BTreeSet::new();
        let mut budget = READ_MAX * region.units * BLOCK_SIZE as u64;
        let head = superblock.map_or(0, |superblock| superblock.log_head % region.units);
        for step in 0..region.units {
            let unit = (head + step) % region.units;
            if covered.get(unit) {
                continue;
            }
            let Ok(header) = region.read(&self.disk, unit, BLOCK_SIZE) else { continue };
            let birth =
                Seal::birth_of(&header).filter(|_| Magic::of(&header) == Some(Magic::LogGroup));
            let Some(birth) = birth.filter(|birth| self.is_ours(birth.volume)) else { continue };
            let is_own = superblock.is_some_and(|superblock| {
                (birth.epoch, birth.nonce) == (superblock.log_epoch, superblock.log_nonce)
            });
            match self.group_at(region, unit, &header, &mut budget) {
                Some((bytes, group)) => {
                    let units = bytes.len().div_ceil(BLOCK_SIZE) as u64;
                    (unit..unit + units).for_each(|unit| {
                        covered.set(unit % region.units, 1);
                    });
                    self.group(region, unit, &bytes, &group, is_own)?;
                }
                None if is_own => {
                    bad.insert(step);
                }
                None => {}
            }
        }
        self.damaged += bad.len() as u64;
        if self.keep_damaged {
            for unit in (0..region.units).filter(|unit| !covered.get(*unit)) {
                self.keep(&mut Claim::whole(), region.byte(unit), BLOCK_SIZE as u64)?;
            }
            return Ok(());
        }
        let survey = superblock.and_then(|superblock| scan(&self.disk, superblock).ok());
        let is_lost = |end: &End| matches!(end, End::Damaged { .. } | End::Unreadable { .. });
        let lost = survey.filter(|survey| is_lost(&survey.end)).map(|survey| survey.next_unit);
        // The header of the lost group may be damaged, too.
        if let Some(unit) = lost.filter(|unit| !covered.get(*unit % region.units)) {
            bad.insert((unit + region.units - head) % region.units);
        }
        let steps: Vec<u64> = bad.iter().copied().collect();
        for (number, step) in steps.iter().enumerate() {
            let next = steps.get(number + 1).copied().unwrap_or(region.units);
            let is_free = |step: &u64| !covered.get((head + step) % region.units);
            let units = (*step..next).take_while(is_free).count();
            let unit = (head + step) % region.units;
            self.bad_group(region, unit, units * BLOCK_SIZE, lost.is_some())?;
        }
        Ok(())
    }

    /// The group at a unit, if it verifies.
    fn group_at(
        &self,
        region: Region,
        unit: u64,
        header: &[u8],
        budget: &mut u64,
    ) -> Option<(Bytes, Group)> {
        let fits = |len: &usize| *len as u64 <= region.units * BLOCK_SIZE as u64;
        let len = group_length(header).filter(fits)?;
        *budget = budget.checked_sub(len as u64)?;
        let bytes = Bytes::from(region.read(&self.disk, unit, len).ok()?);
        let (_, group) = Group::decode(&bytes, None).ok()?;
        Some((bytes, group))
    }

    fn group(
        &mut self,
        region: Region,
        unit: u64,
        bytes: &Bytes,
        group: &Group,
        is_own: bool,
    ) -> Result<()> {
        let mut spans = Spans::of(&["second", "value", "hash"]);
        let _ = Group::decode(bytes, Some(&mut spans));
        let mut copy = bytes.to_vec();
        let messages = group.records.iter().flat_map(|record| &record.messages);
        self.blank_messages(messages, &spans, &mut copy);
        for value in spans.named("value") {
            self.left_out += value.len() as u64;
            copy[value].fill(0);
        }
        let mut runs = HashMap::new();
        // The first hash is that in the seal.
        let mut hashes = spans.named("hash").skip(1);
        for binding in &group.bindings {
            let (Target::Leaf(_) | Target::Slice(_)) = binding.to else { continue };
            let hash = match &binding.to {
                Target::Leaf(leaf) => {
                    let known = self.sealed.get(&leaf.extent.start.byte()).copied().flatten();
                    let found = match is_own {
                        true => self.node(leaf.extent, leaf.head_bytes)?,
                        false => known,
                    };
                    Resealed::instead_of(found, leaf.hash)
                }
                Target::Slice(slice) if is_own && self.may_read(slice.bytes.into()) => {
                    let at = slice.extent.start.byte() + u64::from(slice.offset);
                    let part = (at, slice.bytes, slice.count);
                    // Slices of one run share its extent.
                    let claim = match runs.entry(slice.extent) {
                        Entry::Occupied(claim) => claim.into_mut(),
                        Entry::Vacant(place) => {
                            self.maps(slice.extent)?;
                            place.insert(self.claim(slice.extent, slice.extent.bytes()))
                        }
                    };
                    match claim {
                        Some(claim) => self.slice(claim, TreeId::Data, part, slice.hash)?,
                        None => slice.hash,
                    }
                }
                Target::Slice(slice) => slice.hash,
                Target::Inline(_) | Target::Null => continue,
            };
            if let Some(at) = hashes.next() {
                copy[at].copy_from_slice(&hash.0);
            }
        }
        runs.into_values().flatten().try_for_each(|claim| self.finish(claim))?;
        let (old, new) = (Seal::hash_of(&copy), Seal::close(&mut copy));
        if let Some(old) = old.filter(|old| *old != new) {
            self.changed(region.byte(unit), copy.len(), old)?;
        }
        self.put_rows(region, unit, &copy)?;
        let units = copy.len().div_ceil(BLOCK_SIZE);
        let padding = units * BLOCK_SIZE - copy.len();
        let last = region.byte(unit + units as u64 - 1) + BLOCK_SIZE as u64;
        self.padding(&mut Claim::whole(), last - padding as u64, padding as u64)
    }

    /// Blanks the second parts of messages; `spans` has their ranges in order.
    fn blank_messages<'m>(
        &mut self,
        messages: impl Iterator<Item = &'m RecordMessage>,
        spans: &Spans,
        copy: &mut [u8],
    ) {
        for (message, second) in messages.zip(spans.named("second")) {
            if let RecordMessage::Point(tree, key, action) = message {
                let value = &mut copy[second];
                self.left_out += self.contents.blank(*tree, key, action.kind(), value);
            }
        }
    }

    /// Copies a group that does not verify, of at most `len` bytes: its header, and if it is a loss, its readable
    /// records, which show the loss.
    fn bad_group(&mut self, region: Region, unit: u64, len: usize, is_lost: bool) -> Result<()> {
        let Ok(header) = region.read(&self.disk, unit, BLOCK_SIZE) else { return Ok(()) };
        let len = group_length(&header).map_or(len, |said| said.min(len));
        let Ok(bytes) = region.read(&self.disk, unit, len).map(Bytes::from) else { return Ok(()) };
        let mut copy = vec![0; bytes.len()];
        let birth = Seal::birth_of(&bytes).filter(|_| Magic::of(&bytes) == Some(Magic::LogGroup));
        if birth.is_some_and(|birth| self.is_ours(birth.volume)) {
            let header = GROUP_HEADER_BYTES.min(bytes.len());
            copy[..header].copy_from_slice(&bytes[..header]);
        }
        for piece in Record::pieces(&bytes).take_while(|_| is_lost) {
            let mut spans = Spans::of(&["second"]);
            let part = bytes.slice(piece.clone());
            match Record::decode_alone(&part, Some(&mut spans)) {
                Ok(record) => {
                    copy[piece.clone()].copy_from_slice(&part);
                    self.blank_messages(record.messages.iter(), &spans, &mut copy[piece]);
                }
                // These bytes are no record.
                Err(error) if error.field == "operation" && part[6..8] != [0; 2] => {}
                // Its length leads to the next record.
                Err(_) => copy[piece][..4].copy_from_slice(&part[..4]),
            }
        }
        // Blanked contents must not make the group verify by chance.
        if copy.len() >= GROUP_HEADER_BYTES && Group::decode(&copy.clone().into(), None).is_ok() {
            Seal::spoil(&mut copy);
        }
        self.put_rows(region, unit, &copy)
    }

    /// Writes bytes to the log; wraps at its end.
    fn put_rows(&self, region: Region, unit: u64, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        for (at, len) in region.byte_ranges(unit, bytes.len()) {
            let (row, behind) = rest.split_at(len);
            self.put(at, row)?;
            rest = behind;
        }
        Ok(())
    }
}
