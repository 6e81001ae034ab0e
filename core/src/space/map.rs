//! The space map on disk: each page has two slots. The newest slot counts that verifies and is not younger than the
//! superblock. The superblock has a hash over the hashes of all current pages, so the fallback of a page to its older
//! slot is detected.

use sha2::{Digest, Sha256};

use super::{Bitmap, Free, Space};
use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{BITS_PER_PAGE, Birth, MapPage, Seal, Superblock};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::space::Layout;

/// The state of a page's two slots.
#[derive(Clone, Copy, Default)]
pub(super) struct PageState {
    /// The slot that counts.
    slot: u8,
    /// The hash in its seal.
    hash: Hash,
}

/// Chooses the slot of a page that counts: the newest that verifies and is not younger than the superblock. Also
/// returns whether the next checkpoint must overwrite the other slot, because it is younger (a checkpoint that never
/// became durable), unreadable, or corrupt.
pub fn choose_slot(
    disk: &Disk,
    superblock: &Superblock,
    page: u64,
) -> Result<(u8, MapPage, Hash, bool)> {
    let mut best: Option<(Epoch, u8, MapPage, Hash)> = None;
    let mut abandoned = false;
    let mut fault = None;
    let mut unreadable = None;
    for slot in 0..2 {
        let block = match disk.read(superblock.map.slot(page, slot), BLOCK_SIZE) {
            Ok(block) => block,
            // The hash over all pages shows whether this slot was the valid one.
            Err(error) => {
                unreadable = Some(error);
                continue;
            }
        };
        match MapPage::decode(&block, None) {
            Ok((seal, map)) if is_page(&seal, &map, superblock, page) => {
                let epoch = seal.birth.epoch;
                if epoch > superblock.birth.epoch {
                    abandoned = true;
                } else if best.as_ref().is_none_or(|(other, ..)| *other < epoch) {
                    best = Some((epoch, slot, map, seal.hash));
                }
            }
            Ok(_) => fault = Some(Fault::Missing("a page of another place or volume".into())),
            Err(_) if is_zero(&block) => {}
            Err(error) => fault = Some(error.into()),
        }
    }
    match best {
        Some((_, slot, map, hash)) => {
            Ok((slot, map, hash, abandoned || fault.is_some() || unreadable.is_some()))
        }
        None => {
            if let Some(error) = unreadable {
                return Err(error);
            }
            let place = Place::Byte(superblock.map.slot(page, 0));
            Err(Error::corrupt(place, fault.unwrap_or(Fault::Missing("no space-map page".into()))))
        }
    }
}

/// Whether a page belongs to the volume and to this place. A page of the superblock's epoch must also have its nonce
/// and next MSN.
pub fn is_page(seal: &Seal, map: &MapPage, superblock: &Superblock, page: u64) -> bool {
    let (birth, ours) = (seal.birth, superblock.birth);
    let same = birth == ours && map.next_msn == superblock.next_msn;
    birth.volume == ours.volume && map.page == page && (birth.epoch != ours.epoch || same)
}

/// The hash over the hashes of all current pages.
pub fn map_hash(hashes: impl Iterator<Item = Hash>) -> Hash {
    let mut sha = Sha256::new();
    hashes.for_each(|hash| sha.update(hash.0));
    Hash(sha.finalize().into())
}

impl Space {
    /// Reads the space map that `superblock` states.
    pub fn load(disk: &Disk, superblock: &Superblock) -> Result<Space> {
        let layout = Layout::of(superblock)?;
        let mut space = Space::empty(disk.clone(), &layout);
        space.dirty.clear();
        for segment in superblock.map.iter() {
            disk.advise_will_need(segment.start.byte(), segment.blocks() * BLOCK_SIZE as u64);
        }
        for page in 0..superblock.map_pages {
            let (slot, map, hash, abandoned) = choose_slot(disk, superblock, page)?;
            space.pages[page as usize] = PageState { slot, hash };
            load_bits(&mut space.used, &map).map_err(|fault| {
                Error::corrupt(Place::Byte(superblock.map.slot(page, slot)), fault)
            })?;
            if abandoned {
                space.dirty.insert(page);
            }
        }
        let found = map_hash(space.pages.iter().map(|page| page.hash));
        if found != superblock.map_hash {
            let place = Place::Byte(superblock.map.start().byte());
            let fault = Fault::mismatch("space map hash", superblock.map_hash, found);
            return Err(Error::corrupt(place, fault));
        }
        for (start, count) in layout.fixed() {
            if !(start.0..start.0 + count).all(|block| space.used.get(block)) {
                let fault = Fault::mismatch("space map", "fixed regions in use", "free ones");
                return Err(Error::corrupt(Place::Byte(start.byte()), fault));
            }
        }
        space.free = Free::all_but(space.used.clone());
        Ok(space)
    }

    /// The space of an image whose map is not trusted: only fixed parts are in use, and [`Space::claim`] adds the rest.
    /// With `spare`, blocks that the map of `superblock` has in use are not allocated, so that writes destroy nothing.
    pub fn rebuilt(disk: &Disk, superblock: &Superblock, spare: bool) -> Result<Space> {
        let layout = Layout::of(superblock)?;
        let mut space = Space::empty(disk.clone(), &layout);
        let mut spared = Bitmap::new(layout.image_blocks);
        for page in 0..superblock.map_pages.min(space.pages.len() as u64) {
            // If no slot counts, the state of the page does not matter.
            let Ok((slot, map, hash, _)) = choose_slot(disk, superblock, page) else { continue };
            space.pages[page as usize] = PageState { slot, hash };
            if spare {
                let _ = load_bits(&mut spared, &map);
            }
        }
        space.free = Free::all_but(spared);
        layout.fixed().into_iter().for_each(|(start, count)| space.reserve(start, count));
        Ok(space)
    }

    /// Excludes these extents from allocation, as far as they are in the image.
    pub fn spare(&mut self, extents: &[Extent]) {
        for part in extents {
            let start = part.start.0.min(self.blocks());
            let end = start.saturating_add(part.blocks.into()).min(self.blocks());
            self.keep_out(start..end);
        }
    }

    /// Ends the claims: spared blocks that nothing claimed are freed as if they had been in use until now, except the
    /// extents that a log is going to pin.
    pub fn release_spared(&mut self, pins: &[(u64, Extent)]) {
        let mut pinned = Bitmap::new(self.blocks());
        let extents = pins.iter().filter_map(|(_, extent)| self.disk.blocks_of(*extent).ok());
        let all = pinned.len();
        for part in extents.flatten().filter(|part| part.end().0 <= all) {
            pinned.set(part.start.0, part.blocks.into());
        }
        let spared = |block: &u64| {
            self.free.busy().get(*block) && !self.used.get(*block) && !pinned.get(*block)
        };
        let mut extents: Vec<Extent> = Vec::new();
        for block in (0..self.blocks()).filter(spared) {
            match extents.last_mut() {
                Some(part) if part.end().0 == block && part.blocks < u32::MAX => part.blocks += 1,
                _ => extents.push(Extent { start: BlockNr(block), blocks: 1 }),
            }
        }
        self.freed_this_epoch.extend(extents);
    }

    /// Marks extents as in use. Returns false if they are outside the blocks of nodes, overlap, or are in use already.
    pub fn claim(&mut self, extents: &[Extent]) -> bool {
        let inside = |part: &Extent| {
            let (start, blocks) = (part.start.0, u64::from(part.blocks));
            start.checked_add(blocks).is_some_and(|end| self.is_for_nodes(start, end))
                && !(start..start + blocks).any(|block| self.used.get(block))
        };
        let mut sorted = extents.to_vec();
        sorted.sort_unstable();
        if !extents.iter().all(inside) || sorted.windows(2).any(|two| two[0].end() > two[1].start) {
            return false;
        }
        extents.iter().for_each(|part| self.reserve(part.start, part.blocks.into()));
        true
    }

    /// Writes the changed pages into their other slots. At least the first page is written, so that a page states the
    /// newest checkpoint and its next MSN. Returns the hash over all pages.
    pub fn write_map(&mut self, disk: &Disk, birth: Birth, next_msn: Msn) -> Result<Hash> {
        if self.dirty.is_empty() {
            self.dirty.insert(0);
        }
        for page in std::mem::take(&mut self.dirty) {
            let state = &mut self.pages[page as usize];
            let slot = if is_broken(Mutation::MapInPlace) { state.slot } else { 1 - state.slot };
            let (block, hash) = page_of(&self.used, page, next_msn).encode(birth);
            disk.write(self.map.slot(page, slot), &block)?;
            *state = PageState { slot, hash };
        }
        Ok(map_hash(self.pages.iter().map(|page| page.hash)))
    }
}

/// Copies the bits of a page; those past the end of the image must be clear.
pub fn load_bits(bits: &mut Bitmap, map: &MapPage) -> std::result::Result<(), Fault> {
    let first = map.page * BITS_PER_PAGE as u64;
    let count = (bits.len() - first).min(BITS_PER_PAGE as u64);
    for (at, byte) in map.bitmap.iter().enumerate() {
        let mut left = *byte;
        while left != 0 {
            let at = at as u64 * 8 + u64::from(left.trailing_zeros());
            left &= left - 1;
            if at >= count {
                let expected = "nothing past the image's end";
                return Err(Fault::mismatch("space map", expected, "a used block"));
            }
            bits.set(first + at, 1);
        }
    }
    Ok(())
}

fn page_of(bits: &Bitmap, page: u64, next_msn: Msn) -> MapPage {
    let first = page * BITS_PER_PAGE as u64;
    let count = (bits.len() - first).min(BITS_PER_PAGE as u64);
    let mut bitmap = Box::new([0u8; BITS_PER_PAGE / 8]);
    for at in (0..count).filter(|at| bits.get(first + at)) {
        bitmap[(at / 8) as usize] |= 1 << (at % 8);
    }
    MapPage { page, next_msn, bitmap }
}
