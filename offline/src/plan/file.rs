//! A verified plan file.
//!
//! The whole file is hashed before its content is used. Memory holds the explanation and 16 bytes for each change.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::base::hash_of;
use super::write::write;
use betr_core::device::Device;
use betr_core::error::{Error, Fault, Place, Result};
use betr_core::format::{CHANGE_BYTES, Change, PlanHeader, PlanKind};
use betr_core::ids::*;

/// 64 changes are read at once.
const AT_ONCE: u64 = 64;

/// An open plan.
pub struct Plan {
    file: Arc<dyn Device>,
    header: PlanHeader,
    explanation: String,
    /// All changes, by block and then by group.
    index: Vec<Entry>,
}

/// The place of a change of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    block: u64,
    group: u32,
    number: u32,
}

/// Which bytes of changes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The bytes before the first change of a block.
    Old,
    /// The bytes after the last change of a block.
    New,
}

/// The neighbours of a change among the changes of its block.
pub(super) struct Neighbours {
    /// The group of the change before it; 0 if there is none.
    pub before: u32,
    /// Whether it is the last one.
    pub last: bool,
}

impl Plan {
    /// Opens the plan in `file`, and verifies all of it. Errors name places in the file.
    pub fn open(file: Arc<dyn Device>) -> Result<Plan> {
        if file.len() < BLOCK_SIZE as u64 {
            let fault = Fault::mismatch("length of the plan", "4096 bytes or more", file.len());
            return Err(Error::corrupt(Place::Byte(0), fault));
        }
        let mut block = vec![0; BLOCK_SIZE];
        read(&*file, 0, &mut block)?;
        let header = PlanHeader::decode(&block, None)
            .map_err(|error| Error::corrupt(Place::Byte(0), error))?;
        if header.file_bytes() != file.len() {
            let fault = Fault::mismatch("length of the plan", header.file_bytes(), file.len());
            return Err(Error::corrupt(Place::Byte(0), fault));
        }
        let mut plan = Plan { file, header, explanation: String::new(), index: Vec::new() };
        plan.verify()?;
        Ok(plan)
    }

    /// Reads everything after the header once. A fault of a field is reported only if the hash is right: otherwise the
    /// file is damaged.
    fn verify(&mut self) -> Result<()> {
        let mut hash = Sha256::new();
        // The length has been compared with that of the file.
        let mut text = vec![0; self.header.changes_at() as usize - BLOCK_SIZE];
        read(&*self.file, BLOCK_SIZE as u64, &mut text)?;
        hash.update(&text);
        let mut wrong = self.read_explanation(text).err();
        let (mut buffer, mut group, mut number) = (Vec::new(), 0, 0);
        while number < self.header.changes {
            let count = AT_ONCE.min(self.header.changes - number);
            buffer.resize(count as usize * CHANGE_BYTES, 0);
            read(&*self.file, self.header.change_at(number), &mut buffer)?;
            hash.update(&buffer);
            for bytes in buffer.chunks(CHANGE_BYTES) {
                let taken = self.take(number, bytes, group);
                number += 1;
                match taken {
                    Ok(next) => group = next,
                    Err(error) => wrong = wrong.or(Some(error)),
                }
            }
        }
        let computed = Hash(hash.finalize().into());
        if computed != self.header.body {
            let fault = Fault::mismatch("hash of the plan", self.header.body, computed);
            return Err(Error::corrupt(Place::Byte(BLOCK_SIZE as u64), fault));
        }
        if let Some(error) = wrong {
            return Err(error);
        }
        if group != self.header.groups {
            let fault = Fault::mismatch("groups", self.header.groups, group);
            return Err(Error::corrupt(Place::Byte(0), fault));
        }
        self.index.sort_unstable();
        self.index.shrink_to_fit();
        self.verify_chains()
    }

    fn read_explanation(&mut self, mut text: Vec<u8>) -> Result<()> {
        let at = Place::Byte(BLOCK_SIZE as u64);
        let wrong = |expected, found| {
            let fault = Fault::mismatch("explanation", expected, found);
            Err(Error::corrupt(at.clone(), fault))
        };
        if !is_zero(&text[self.header.explanation_bytes..]) {
            return wrong("zeros behind it", "something else");
        }
        text.truncate(self.header.explanation_bytes);
        match String::from_utf8(text) {
            Ok(text) => {
                self.explanation = text;
                Ok(())
            }
            Err(_) => wrong("UTF-8", "other bytes"),
        }
    }

    /// Adds a change that follows one of group `before` to the index; returns its group.
    fn take(&mut self, number: u64, bytes: &[u8], before: u32) -> Result<u32> {
        let change = self.decode(number, bytes)?;
        if change.group != before && Some(change.group) != before.checked_add(1) {
            let expected = format_args!("{before}, or the one after it");
            return Err(self.wrong(number, "group", expected, change.group));
        }
        let number = number as u32;
        self.index.push(Entry { block: change.block.0, group: change.group, number });
        Ok(change.group)
    }

    /// Checks that a block changes once in a group, and that each change starts from the result of the one before.
    fn verify_chains(&self) -> Result<()> {
        for pair in self.index.windows(2).filter(|pair| pair[0].block == pair[1].block) {
            let [first, second] = [pair[0], pair[1]].map(|place| u64::from(place.number));
            if pair[0].group == pair[1].group {
                return Err(self.wrong(second, "block", "one that the group has not", "the same"));
            }
            if self.change(first)?.new != self.change(second)?.old {
                let expected = format_args!("what change {first} of the block has left");
                return Err(self.wrong(second, "old bytes", expected, "others"));
            }
        }
        Ok(())
    }

    /// The header.
    pub fn header(&self) -> &PlanHeader {
        &self.header
    }

    /// The explanation, by the tool that made the plan.
    pub fn explanation(&self) -> &str {
        &self.explanation
    }

    /// Number of different blocks that change.
    pub fn blocks(&self) -> u64 {
        self.index.chunk_by(|a, b| a.block == b.block).count() as u64
    }

    /// A change; numbers are in the order of groups.
    pub fn change(&self, number: u64) -> Result<Change> {
        let mut bytes = vec![0; CHANGE_BYTES];
        read(&*self.file, self.header.change_at(number), &mut bytes)?;
        self.decode(number, &bytes)
    }

    fn decode(&self, number: u64, bytes: &[u8]) -> Result<Change> {
        Change::decode(bytes, &self.header)
            .map_err(|error| Error::corrupt(Place::Byte(self.header.change_at(number)), error))
    }

    fn wrong(
        &self,
        number: u64,
        what: &'static str,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Error {
        let fault = Fault::mismatch(what, expected, found);
        Error::corrupt(Place::Byte(self.header.change_at(number)), fault)
    }

    /// The changes of each block, in the order of blocks.
    pub(super) fn by_block(&self) -> impl Iterator<Item = Vec<u64>> {
        let chunks = self.index.chunk_by(|a, b| a.block == b.block);
        chunks.map(|places| places.iter().map(|place| u64::from(place.number)).collect())
    }

    /// The neighbours of a change among those of its block.
    pub(super) fn neighbours(&self, change: &Change) -> Neighbours {
        let (block, group) = (change.block.0, change.group);
        let at = self.index.partition_point(|place| (place.block, place.group) < (block, group));
        let before = at.checked_sub(1).map(|at| self.index[at]);
        let before = before.filter(|place| place.block == block).map_or(0, |place| place.group);
        let last = self.index.get(at + 1).is_none_or(|place| place.block != block);
        Neighbours { before, last }
    }

    /// Replaces the changed blocks in `buf`, which has the bytes of the image at `at`.
    pub(super) fn lay_over(&self, at: u64, buf: &mut [u8], side: Side) -> Result<()> {
        let size = BLOCK_SIZE as u64;
        let blocks = at / size..(at + buf.len() as u64).div_ceil(size);
        for places in self.within(blocks).chunk_by(|a, b| a.block == b.block) {
            let place = if side == Side::Old { places.first() } else { places.last() };
            let Some(place) = place else { continue };
            let start = place.block * size;
            let (from, to) = (start.max(at), (start + size).min(at + buf.len() as u64));
            // The change has been verified, so only the bytes are read.
            let side_at = if side == Side::Old { 16 } else { 16 + size };
            let change = self.header.change_at(u64::from(place.number));
            let into = &mut buf[(from - at) as usize..(to - at) as usize];
            read(&*self.file, change + side_at + (from - start), into)?;
        }
        Ok(())
    }

    fn within(&self, blocks: Range<u64>) -> &[Entry] {
        let start = self.index.partition_point(|place| place.block < blocks.start);
        let end = self.index.partition_point(|place| place.block < blocks.end);
        &self.index[start..end.max(start)]
    }

    /// Fails unless `device` is the image that the plan was made for; only the plan itself may have changed it.
    pub fn verify_base(&self, device: &dyn Device) -> Result<()> {
        let blocks = device.len() / BLOCK_SIZE as u64;
        if blocks != self.header.image_blocks {
            let fault = Fault::mismatch("blocks of the image", self.header.image_blocks, blocks);
            return Err(Error::other_image(Place::Image, fault));
        }
        let found = hash_of(blocks, &self.header.fixed, |at, buf| {
            read(device, at, buf)?;
            self.lay_over(at, buf, Side::Old)
        })?;
        if found != self.header.base {
            let what = "hash of its superblocks and log";
            let fault = Fault::mismatch(what, self.header.base, found);
            return Err(Error::other_image(Place::Image, fault));
        }
        Ok(())
    }

    /// Writes the inverse of this plan to an empty file.
    pub fn write_inverse(&self, file: &File) -> Result<()> {
        let header = self.inverse_header();
        let changes = (0..self.header.changes).map(|number| self.inverse_change(number));
        write(file, header, &self.explanation, changes)
    }

    fn inverse_header(&self) -> PlanHeader {
        let kind = match self.header.kind {
            PlanKind::Repair => PlanKind::Undo,
            PlanKind::Undo => PlanKind::Repair,
        };
        let PlanHeader { base, result, .. } = self.header;
        PlanHeader { kind, base: result, result: base, ..self.header.clone() }
    }

    /// A change of the inverse, in which changes are in reverse order.
    fn inverse_change(&self, number: u64) -> Result<Change> {
        let Change { block, group, old, new } = self.change(self.header.changes - 1 - number)?;
        Ok(Change { block, group: self.header.groups + 1 - group, old: new, new: old })
    }

    /// Whether the other plan is the inverse of this one.
    pub fn is_inverse(&self, other: &Plan) -> Result<bool> {
        let body = other.header.body;
        if other.header != (PlanHeader { body, ..self.inverse_header() }) {
            return Ok(false);
        }
        for number in 0..self.header.changes {
            if other.change(number)? != self.inverse_change(number)? {
                return Ok(false);
            }
        }
        Ok(other.explanation == self.explanation)
    }
}

/// Fills `buf`.
pub(super) fn read(device: &dyn Device, at: u64, buf: &mut [u8]) -> Result<()> {
    let failed = |source| Error::read(at, source);
    device.read_at(at, buf).map_err(failed)
}
