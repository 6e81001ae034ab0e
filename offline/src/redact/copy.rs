//! The copy: writes structures, and tracks their new hashes.
//!
//! Each block belongs to the first structure with a verified part in it. Parts that do not verify own no blocks, which
//! stay free for structures that do.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::contents::Contents;
use super::{Original, Originals};
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::error::{Error, Place, Result};
use betr_core::format::{Magic, ScatterMap};
use betr_core::ids::*;
use betr_core::space::Bitmap;

const BLOCK: u64 = BLOCK_SIZE as u64;
/// 16: the average number of reads of a block, so that the work is proportional to the image, even if that is corrupt.
const READS_MAX: u64 = 16;
/// 1 MiB is copied with one read: it bounds the memory for a copy.
const AT_ONCE: usize = 1 << 20;

/// The hash of a seal before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resealed {
    /// The hash in the original.
    pub old: Hash,
    /// The hash in the copy.
    pub new: Hash,
}

impl Resealed {
    /// The new hash for a reference that was `said`.
    pub(super) fn instead_of(resealed: Option<Resealed>, said: Hash) -> Hash {
        resealed.filter(|resealed| resealed.old == said).map_or(said, |resealed| resealed.new)
    }
}

/// The blocks of an extent, and which of them the structure owns.
pub(super) struct Claim {
    /// The first block.
    start: u64,
    /// The owned blocks; `None` if it owns all, as structures at fixed places do.
    mine: Option<Bitmap>,
    /// Parts that do not verify: addresses and lengths.
    unverified: Vec<(u64, u64)>,
    /// Whether it takes no more blocks.
    is_closed: bool,
}

impl Claim {
    /// A claim without blocks yet, of the first `bytes` bytes of an extent.
    fn of(extent: Extent, bytes: u64) -> Claim {
        let blocks = bytes.min(extent.bytes()).div_ceil(BLOCK);
        Claim {
            start: extent.start.0,
            mine: Some(Bitmap::new(blocks)),
            unverified: Vec::new(),
            is_closed: false,
        }
    }

    /// Bytes of the blocks that it may own.
    pub(super) fn bytes(&self) -> u64 {
        self.mine.as_ref().map_or(0, |mine| mine.len() * BLOCK)
    }

    /// A claim of all blocks, for structures at fixed places.
    pub(super) fn whole() -> Claim {
        Claim { start: 0, mine: None, unverified: Vec::new(), is_closed: false }
    }
}

/// A copy in progress.
pub(super) struct Copy<'c> {
    pub disk: Disk,
    out: Arc<dyn Device>,
    /// Blocks with an owner, or at fixed places.
    pub taken: Bitmap,
    /// Blocks with parts that do not verify.
    pub suspect: Bitmap,
    /// Bytes read so far.
    read: u64,
    /// Visited structures with seals, by address; `None` if they do not verify.
    pub sealed: HashMap<u64, Option<Resealed>>,
    /// Runs that several heads may share, by address, with the new hashes of their slices.
    pub runs: HashMap<u64, (Claim, HashMap<u64, Hash>)>,
    /// Whether there are snapshots, so that heads may share runs.
    pub has_holds: bool,
    pub volume: Option<VolumeId>,
    pub contents: Contents,
    pub keep_damaged: bool,
    originals: &'c mut Originals<'c>,
    pub left_out: u64,
    pub damaged: u64,
    pub is_whole: bool,
}

impl<'c> Copy<'c> {
    pub(super) fn new(
        disk: Disk,
        out: Arc<dyn Device>,
        blocks: u64,
        keep_damaged: bool,
        originals: &'c mut Originals<'c>,
    ) -> Copy<'c> {
        Copy {
            disk,
            out,
            taken: Bitmap::new(blocks),
            suspect: Bitmap::new(blocks),
            read: 0,
            sealed: HashMap::new(),
            runs: HashMap::new(),
            has_holds: false,
            volume: None,
            contents: Contents::All,
            keep_damaged,
            originals,
            left_out: 0,
            damaged: 0,
            is_whole: true,
        }
    }

    /// Starts a structure that takes `bytes` bytes of an extent. `None` if the extent's map does not verify, or if the
    /// limit of reads is reached.
    pub(super) fn claim(&mut self, extent: Extent, bytes: u64) -> Option<Claim> {
        let is_there = self.disk.blocks_of(extent).is_ok() && self.may_read(bytes);
        self.is_whole &= is_there;
        is_there.then(|| Claim::of(extent, bytes))
    }

    /// Ends a structure: its parts that do not verify are copied or given up.
    pub(super) fn finish(&mut self, mut claim: Claim) -> Result<()> {
        self.close(&mut claim)
    }

    /// As [`Copy::finish`], for a structure that may write more into blocks that it owns.
    pub(super) fn close(&mut self, claim: &mut Claim) -> Result<()> {
        claim.is_closed = true;
        for (at, len) in std::mem::take(&mut claim.unverified) {
            self.suspect(at, len);
            if self.keep_damaged {
                self.keep(claim, at, len)?;
            }
        }
        Ok(())
    }

    /// Marks blocks with a part that does not verify.
    pub(super) fn suspect(&mut self, at: u64, len: u64) {
        let at_most = len.min(self.taken.len().saturating_mul(BLOCK)) as usize;
        let places = self.disk.places(at, at_most).unwrap_or_default();
        for (at, len) in places {
            let end = (at.saturating_add(len as u64)).div_ceil(BLOCK).min(self.suspect.len());
            let start = (at / BLOCK).min(end);
            self.suspect.set(start, end - start);
        }
    }

    /// Counts `bytes` bytes as read; returns whether that is within the limit of reads.
    pub(super) fn may_read(&mut self, bytes: u64) -> bool {
        self.read = self.read.saturating_add(bytes);
        self.read / BLOCK <= READS_MAX.saturating_mul(self.taken.len())
    }

    /// Whether a structure owns `block` of the device, which is block `own` of its extent. It takes the block if that
    /// has no owner.
    fn owns(&mut self, claim: &mut Claim, own: u64, block: u64) -> bool {
        let Some(mine) = &mut claim.mine else { return true };
        let Some(own) = own.checked_sub(claim.start).filter(|own| *own < mine.len()) else {
            return false;
        };
        if !claim.is_closed && block < self.taken.len() && !self.taken.get(block) {
            self.taken.set(block, 1);
            mine.set(own, 1);
        }
        mine.get(own)
    }

    /// Copies the maps of a scattered extent, which have no contents.
    pub(super) fn maps(&mut self, extent: Extent) -> Result<()> {
        let mut next = extent.start.map().map(|(map, _)| map);
        while let Some(block) = next.take() {
            if block.0 >= self.taken.len() || self.taken.get(block.0) {
                return Ok(());
            }
            let Ok(bytes) = self.disk.read(block.byte(), BLOCK_SIZE) else { return Ok(()) };
            match ScatterMap::decode(&bytes, None) {
                Ok((seal, map)) if self.is_ours(seal.birth.volume) => {
                    let mut claim = Claim::of(Extent { start: block, blocks: 1 }, BLOCK);
                    self.write(&mut claim, block.byte(), &bytes)?;
                    next = map.next.map(|(block, _)| block);
                }
                _ => {
                    self.damaged += 1;
                    self.suspect(block.byte(), BLOCK);
                }
            }
        }
        Ok(())
    }

    /// Whether a volume id is that of this volume, as far as known.
    pub(super) fn is_ours(&self, volume: VolumeId) -> bool {
        self.volume.is_none_or(|ours| ours == volume)
    }

    /// Writes bytes to an address of the image, into blocks that the structure owns.
    pub(super) fn write(&mut self, claim: &mut Claim, at: u64, bytes: &[u8]) -> Result<()> {
        let Ok(places) = self.disk.places(at, bytes.len()) else { return Ok(()) };
        let (mut own, mut rest) = (at, bytes);
        for (mut at, len) in places {
            let (mut row, behind) = rest.split_at(len);
            rest = behind;
            while !row.is_empty() {
                let (piece, left) = row.split_at(row.len().min((BLOCK - at % BLOCK) as usize));
                if self.owns(claim, own / BLOCK, at / BLOCK) && !is_zero(piece) {
                    self.put(at, piece)?;
                }
                at += piece.len() as u64;
                own += piece.len() as u64;
                row = left;
            }
        }
        Ok(())
    }

    /// Takes blocks for a structure without writing.
    pub(super) fn own(&mut self, claim: &mut Claim, at: u64, len: u64) -> Result<()> {
        for from in (0..len).step_by(AT_ONCE) {
            self.write(claim, at + from, &vec![0; (len - from).min(AT_ONCE as u64) as usize])?;
        }
        Ok(())
    }

    /// Writes bytes to a place on the device, as far as it reaches.
    pub(super) fn put(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let inside = (self.out.len().saturating_sub(at)).min(bytes.len() as u64) as usize;
        let failed =
            |source: io::Error| Error::Io { op: "write a copy", place: Place::Byte(at), source };
        self.out.write_at(at, &bytes[..inside]).map_err(failed)
    }

    /// Handles a part that does not verify: the copy has zeros, which do not verify either, or the original bytes.
    /// `hash` is the expected hash, if another structure states it.
    pub(super) fn unverified(
        &mut self,
        claim: &mut Claim,
        at: u64,
        len: u64,
        hash: Option<Hash>,
    ) -> Result<()> {
        self.damaged += 1;
        claim.unverified.push((at, len));
        match hash.filter(|_| !self.keep_damaged) {
            Some(hash) if Hash::of(&vec![0; len as usize]) == hash => self.write(claim, at, &[1]),
            _ => Ok(()),
        }
    }

    /// Copies original bytes into blocks that the structure owns.
    pub(super) fn keep(&mut self, claim: &mut Claim, at: u64, len: u64) -> Result<()> {
        for from in (0..len).step_by(AT_ONCE) {
            let count = (len - from).min(AT_ONCE as u64) as usize;
            if let Ok(bytes) = self.disk.read(at + from, count) {
                self.write(claim, at + from, &bytes)?;
            }
        }
        Ok(())
    }

    /// Handles padding: if it is not zero, the copy has another non-zero byte.
    pub(super) fn padding(&mut self, claim: &mut Claim, at: u64, len: u64) -> Result<()> {
        if self.is_clear(at, len) {
            return Ok(());
        }
        self.damaged += 1;
        match self.keep_damaged {
            true => self.keep(claim, at, len),
            false => self.write(claim, at, &[0xff]),
        }
    }

    /// Whether bytes are zero or unreadable.
    pub(super) fn is_clear(&self, at: u64, len: u64) -> bool {
        (0..len).step_by(AT_ONCE).all(|from| {
            let count = (len - from).min(AT_ONCE as u64) as usize;
            self.disk.read(at + from, count).map_or(true, |bytes| is_zero(&bytes))
        })
    }

    /// Reports a structure whose hash has changed.
    pub(super) fn changed(&mut self, byte: u64, bytes: usize, hash: Hash) -> Result<()> {
        let original = Original { byte, bytes: bytes as u32, hash };
        (self.originals)(original).map_err(|source| Error::Io {
            op: "list an original",
            place: Place::Byte(byte),
            source,
        })
    }

    /// Records the new hash of a seal, and reports it.
    pub(super) fn resealed(
        &mut self,
        byte: u64,
        bytes: usize,
        old: Hash,
        new: Hash,
    ) -> Result<Resealed> {
        let resealed = Resealed { old, new };
        self.sealed.insert(byte, Some(resealed));
        if old != new {
            self.changed(byte, bytes, old)?;
        }
        Ok(resealed)
    }

    /// The kind of the structure at an address.
    pub(super) fn magic_at(&self, at: u64) -> Option<Magic> {
        Magic::of(&self.disk.read(at, 8).ok()?)
    }
}
