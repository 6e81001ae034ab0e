//! Copies table pages, nodes and their parts: each is sealed after everything below it.

use std::ops::Range;

use std::collections::HashMap;

use bytes::Bytes;

use super::copy::{Claim, Copy, Resealed};
use betr_core::error::Result;
use betr_core::format::*;
use betr_core::ids::*;

/// 1 MiB: the bytes of a leaf that are read at once.
const WINDOW: u32 = 1 << 20;

/// A leaf in progress: its blocks, tree, and the bytes that were read last.
struct Leaf {
    claim: Claim,
    tree: TreeId,
    start: u64,
    /// The end of its extent, in bytes from its start.
    end: u32,
    at: u32,
    bytes: Bytes,
}

impl Copy<'_> {
    /// Copies everything below the table of a superblock.
    pub(super) fn table(&mut self, superblock: &Superblock) -> Result<()> {
        let TableRoot { page, levels } = superblock.table;
        self.page(&page, levels as u8 - 1).map(drop)
    }

    /// Copies a page of the table at a level, and everything below. Levels descend, so this ends.
    pub(super) fn page(&mut self, pointer: &PagePointer, level: u8) -> Result<Option<Resealed>> {
        let at = pointer.block.byte();
        if let Some(known) = self.sealed.get(&at) {
            return Ok(*known);
        }
        let extent = Extent { start: pointer.block, blocks: 1 };
        let block = self.disk.read(at, BLOCK_SIZE).unwrap_or_default();
        let found = TablePage::decode(&block, None).ok();
        let ours = |(seal, page): &(Seal, TablePage)| {
            self.is_ours(seal.birth.volume) && page.level == level
        };
        let Some((seal, mut page)) = found.filter(ours) else {
            // Another reference, at another level, may be right.
            self.is_whole = false;
            self.damaged += 1;
            self.suspect(at, BLOCK_SIZE as u64);
            return Ok(None);
        };
        self.is_whole &= seal.hash == pointer.hash;
        let Some(mut claim) = self.claim(extent, BLOCK_SIZE as u64) else { return Ok(None) };
        match &mut page.body {
            PageBody::Pointers(pointers) => {
                for below in pointers.iter_mut().flatten() {
                    let found = self.page(below, level - 1)?;
                    below.hash = Resealed::instead_of(found, below.hash);
                }
            }
            PageBody::Entries(entries) => {
                for entry in entries.iter_mut().flatten() {
                    let found = self.node(entry.extent, entry.head_bytes)?;
                    self.is_whole &= found.is_some_and(|found| found.old == entry.hash);
                    entry.hash = Resealed::instead_of(found, entry.hash);
                }
            }
        }
        let (block, new) = page.encode(seal.birth);
        self.write(&mut claim, at, &block)?;
        self.resealed(at, BLOCK_SIZE, seal.hash, new).map(Some)
    }

    /// Copies a node, and its runs or basements.
    pub(super) fn node(&mut self, extent: Extent, head_bytes: u32) -> Result<Option<Resealed>> {
        let at = extent.start.byte();
        if let Some(known) = self.sealed.get(&at) {
            return Ok(*known);
        }
        self.maps(extent)?;
        let fits = u64::from(head_bytes) <= extent.bytes() && self.may_read(head_bytes.into());
        let head = fits.then(|| self.disk.read(at, head_bytes as usize).ok()).flatten();
        let head = head.unwrap_or_default();
        let ours = |seal: &Seal| self.is_ours(seal.birth.volume);
        let leaf = LeafHead::decode(&head, None).ok().filter(|(seal, _)| ours(seal));
        let internal = InternalHead::decode(&head, None).ok().filter(|(seal, _)| ours(seal));
        let resealed = match (leaf, internal) {
            (Some((seal, head)), _) => self.leaf(extent, seal, head)?,
            (None, Some((seal, head))) => self.internal(extent, seal, head)?,
            (None, None) => None,
        };
        if resealed.is_none() {
            self.sealed.insert(at, None);
            self.damaged += 1;
            self.suspect(at, extent.bytes());
        }
        Ok(resealed)
    }

    fn leaf(&mut self, extent: Extent, seal: Seal, mut head: LeafHead) -> Result<Option<Resealed>> {
        let Some(claim) = self.claim(extent, head.leaf_bytes.into()) else { return Ok(None) };
        let (start, tree) = (extent.start.byte(), head.tree);
        // A leaf has less than 4 GiB.
        let end = claim.bytes() as u32;
        let mut leaf = Leaf { claim, tree, start, end, at: 0, bytes: Bytes::new() };
        let mut basements = Basements::default();
        for basement in head.basements.iter() {
            let hash = self.basement(&mut leaf, &basement)?;
            basements.push(BasementRef { hash, ..basement });
        }
        head.basements = basements;
        let (bytes, new) = head.encode(seal.birth);
        let small_end = head.parts_end(bytes.len() as u32);
        let blocks_at = head.basements.iter().next().map_or(small_end, |first| first.blocks_at);
        let mut claim = leaf.claim;
        self.write(&mut claim, start, &bytes)?;
        for gap in [small_end..blocks_at, head.leaf_bytes..end] {
            let len = gap.end.saturating_sub(gap.start);
            self.padding(&mut claim, start + u64::from(gap.start), len.into())?;
        }
        self.finish(claim)?;
        self.resealed(start, bytes.len(), seal.hash, new).map(Some)
    }

    /// Copies the key section of a basement, and its values. Returns its hash.
    fn basement(&mut self, leaf: &mut Leaf, basement: &BasementRef<'_>) -> Result<Hash> {
        let (at, said) = (leaf.start + u64::from(basement.offset), basement.hash);
        let bytes = self.part(leaf, basement.offset, basement.bytes, said);
        let found = bytes.and_then(|bytes| KeySection::decode(&bytes, leaf.tree, None).ok());
        let sizes = (basement.small, basement.blocks);
        let Some(mut section) = found.filter(|section| section.value_sizes(leaf.tree) == sizes)
        else {
            self.unverified(&mut leaf.claim, at, basement.bytes.into(), Some(said))?;
            return Ok(said);
        };
        let mut chunks = section.chunks.clone();
        let mut entries: Vec<Vec<EntryRef<'_>>> = vec![Vec::new(); chunks.len()];
        if !self.contents.has_all(leaf.tree) {
            for entry in section.entries().filter(|entry| entry.chunk != NO_CHUNK) {
                entries[usize::from(entry.chunk)].push(entry);
            }
        }
        for (chunk, entries) in chunks.iter_mut().zip(&entries) {
            let place = basement.chunk(leaf.tree, chunk);
            chunk.hash = self.chunk(leaf, place, chunk.hash, entries)?;
        }
        section.chunks = chunks;
        let bytes = section.encode();
        self.write(&mut leaf.claim, at, &bytes)?;
        self.hashed(at, &bytes, said)
    }

    /// Copies a chunk: file blocks, or the values of these entries. Returns the hash.
    fn chunk(
        &mut self,
        leaf: &mut Leaf,
        place: Range<u32>,
        hash: Hash,
        entries: &[EntryRef<'_>],
    ) -> Result<Hash> {
        let (at, len) = (leaf.start + u64::from(place.start), place.len() as u32);
        let Some(bytes) = self.part(leaf, place.start, len, hash) else {
            self.unverified(&mut leaf.claim, at, len.into(), Some(hash))?;
            return Ok(hash);
        };
        let mut copy = vec![0; bytes.len()];
        let mut blank = bytes.len() as u64;
        for entry in entries {
            let from = usize::from(entry.offset);
            let value = from..from + entry.bytes as usize;
            if let (Some(copy), Some(value)) = (copy.get_mut(value.clone()), bytes.get(value)) {
                copy.copy_from_slice(value);
                let contents = self.contents.blank(leaf.tree, entry.key, Kind::Insert, copy);
                blank -= copy.len() as u64 - contents;
            }
        }
        self.left_out += blank;
        self.write(&mut leaf.claim, at, &copy)?;
        self.hashed(at, &copy, hash)
    }

    /// A part of a leaf, if it is readable and verifies.
    fn part(&self, leaf: &mut Leaf, at: u32, len: u32, hash: Hash) -> Option<Bytes> {
        let end = at.checked_add(len).filter(|end| *end <= leaf.end)?;
        if at < leaf.at || u64::from(end) > u64::from(leaf.at) + leaf.bytes.len() as u64 {
            let until = at.saturating_add(WINDOW).clamp(end, leaf.end);
            let read = |to: u32| self.disk.read(leaf.start + u64::from(at), (to - at) as usize);
            // Other bytes may be unreadable; then only this part is read.
            leaf.bytes = read(until).or_else(|_| read(end)).unwrap_or_default().into();
            leaf.at = at;
        }
        let from = (at - leaf.at) as usize;
        let found = leaf.bytes.get(from..from + len as usize)?;
        (Hash::of(found) == hash).then(|| leaf.bytes.slice(from..from + len as usize))
    }

    /// The hash of a part in the copy; reports it if it has changed.
    fn hashed(&mut self, at: u64, copy: &[u8], old: Hash) -> Result<Hash> {
        let new = Hash::of(copy);
        if new != old {
            self.changed(at, copy.len(), old)?;
        }
        Ok(new)
    }

    fn internal(
        &mut self,
        extent: Extent,
        seal: Seal,
        mut head: InternalHead,
    ) -> Result<Option<Resealed>> {
        let (start, len) = (extent.start.byte(), head.encoded_bytes() as u64);
        let Some(mut claim) = self.claim(extent, len) else { return Ok(None) };
        for run in &mut head.runs {
            self.run(head.tree, run)?;
        }
        let (bytes, new) = head.encode(seal.birth);
        self.write(&mut claim, start, &bytes)?;
        let padding = claim.bytes().saturating_sub(len);
        self.padding(&mut claim, start + len, padding)?;
        self.finish(claim)?;
        self.resealed(start, bytes.len(), seal.hash, new).map(Some)
    }

    /// Copies the header, slices and range messages of a run. Bytes between them are not copied.
    fn run(&mut self, tree: TreeId, run: &mut RunRef) -> Result<()> {
        let start = run.extent.start.byte();
        let known = self.runs.remove(&start);
        let is_known = known.is_some();
        let (mut claim, mut slices) = match known {
            Some(known) => known,
            None => {
                self.maps(run.extent)?;
                let Some(claim) = self.claim(run.extent, run.bytes.into()) else { return Ok(()) };
                (claim, HashMap::new())
            }
        };
        let all = claim.bytes();
        if !is_known && self.run_header(&mut claim, start)? {
            // So the gaps between its parts are not copied as unknown blocks.
            self.own(&mut claim, start, all)?;
        }
        let inside =
            |section: &SectionRef| u64::from(section.offset) + u64::from(section.bytes) <= all;
        for slice in run.slices.iter_mut().filter(|slice| inside(&slice.section)) {
            let SectionRef { offset, bytes, count, hash, .. } = slice.section;
            let at = start + u64::from(offset);
            slice.section.hash = match slices.get(&at) {
                Some(hash) => *hash,
                None => self.slice(&mut claim, tree, (at, bytes, count), hash)?,
            };
            slices.insert(at, slice.section.hash);
        }
        let ranges = run.ranges;
        if ranges.count > 0 && inside(&ranges) {
            let at = start + u64::from(ranges.offset);
            let bytes = self.disk.read(at, ranges.bytes as usize).unwrap_or_default();
            match decode_ranges(&bytes, ranges.count as usize, None) {
                Ok(_) if Hash::of(&bytes) == ranges.hash => self.write(&mut claim, at, &bytes)?,
                _ => self.unverified(&mut claim, at, ranges.bytes.into(), Some(ranges.hash))?,
            }
        }
        let len = u64::from(run.bytes);
        if !is_known {
            self.padding(&mut claim, start + len, all.saturating_sub(len))?;
        }
        self.close(&mut claim)?;
        if self.has_holds {
            self.runs.insert(start, (claim, slices));
        }
        Ok(())
    }

    /// Copies the header of a run, which has no hash of the rest. Returns whether it verifies.
    fn run_header(&mut self, claim: &mut Claim, at: u64) -> Result<bool> {
        let header = self.disk.read(at, RUN_HEADER_BYTES).unwrap_or_default();
        let is_ours =
            RunHeader::decode(&header, None).is_ok_and(|(seal, _)| self.is_ours(seal.birth.volume));
        match is_ours {
            true => self.write(claim, at, &header)?,
            false => self.unverified(claim, at, RUN_HEADER_BYTES as u64, None)?,
        }
        Ok(is_ours)
    }

    /// Copies the messages for one child, given by address, length and count. Returns their hash.
    pub(super) fn slice(
        &mut self,
        claim: &mut Claim,
        tree: TreeId,
        (at, len, count): (u64, u32, u32),
        said: Hash,
    ) -> Result<Hash> {
        let bytes = Bytes::from(self.disk.read(at, len as usize).unwrap_or_default());
        let (contents, mut copy, mut blank) = (self.contents, bytes.to_vec(), 0);
        let read = read_slice(&bytes, count as usize, None, |key, _, kind, value| {
            blank += contents.blank(tree, key, kind, &mut copy[value]);
        });
        if read.is_err() || Hash::of(&bytes) != said {
            self.unverified(claim, at, len.into(), Some(said))?;
            return Ok(said);
        }
        self.left_out += blank;
        self.write(claim, at, &copy)?;
        self.hashed(at, &copy, said)
    }
}
