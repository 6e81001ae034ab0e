//! Scattered extents: if no contiguous extent was free, maps of one block each list the blocks (SPEC 1.4).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::{SmallVec, smallvec};

use super::{Disk, Places};
use crate::error::{Error, Fault, Place, Result};
use crate::format::{Birth, MAP_EXTENTS, ScatterMap};
use crate::ids::*;
use crate::tuning::SCATTERED_KNOWN;

/// The places of a scattered extent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scattered {
    /// The hash in the seal of its first map.
    pub hash: Hash,
    /// The blocks of its maps.
    pub maps: Vec<BlockNr>,
    /// Its data extents, in order.
    pub extents: Vec<Extent>,
}

/// Scattered extents whose maps have been read or written.
#[derive(Default)]
pub(super) struct Known(Mutex<Images>);

/// Scattered extents by the blocks of their first maps.
#[derive(Default)]
struct Images {
    images: HashMap<BlockNr, Arc<Scattered>>,
    /// Number of extents in all of them.
    extents: usize,
}

impl Images {
    fn insert(&mut self, map: BlockNr, image: Arc<Scattered>) {
        self.remove(map);
        if self.extents > SCATTERED_KNOWN {
            *self = Images::default();
        }
        self.extents += image.extents.len();
        self.images.insert(map, image);
    }

    fn remove(&mut self, map: BlockNr) {
        self.extents -= self.images.remove(&map).map_or(0, |image| image.extents.len());
    }
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Images> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    /// Writes the maps of a scattered extent with data in `extents`, one block of `maps` for each map. Returns its
    /// start.
    pub(crate) fn scatter(
        &self,
        extents: &[Extent],
        maps: &[BlockNr],
        birth: Birth,
    ) -> Result<BlockNr> {
        // From the last to the first, since each map has the hash of the next.
        let mut next = None;
        for (block, extents) in maps.iter().zip(extents.chunks(MAP_EXTENTS)).rev() {
            let (map, hash) = ScatterMap { next, extents: extents.to_vec() }.encode(birth);
            self.write(block.byte(), &map)?;
            next = Some((*block, hash));
        }
        let (first, hash) = next.expect("an image has at least one extent");
        let place = Scattered { hash, maps: maps.to_vec(), extents: extents.to_vec() };
        self.known.lock().insert(first, Arc::new(place));
        Ok(BlockNr::scattered(first))
    }

    /// Forgets a scattered extent, which is not used any more.
    pub(crate) fn forget_scattered(&self, map: BlockNr) {
        self.known.lock().remove(map);
    }

    /// The device blocks of an extent, including its maps.
    pub fn blocks_of(&self, extent: Extent) -> Result<Vec<Extent>> {
        let Some((map, _)) = extent.start.map() else { return Ok(vec![extent]) };
        let scattered = self.scattered(map)?;
        let blocks: u64 = scattered.extents.iter().map(|extent| u64::from(extent.blocks)).sum();
        if blocks != u64::from(extent.blocks) {
            let fault = Fault::mismatch("blocks of a scattered image", extent.blocks, blocks);
            return Err(Error::corrupt(Place::Byte(map.byte()), fault));
        }
        let maps = scattered.maps.iter().map(|map| Extent { start: *map, blocks: 1 });
        Ok(maps.chain(scattered.extents.iter().copied()).collect())
    }

    /// Number of device blocks of an extent, including its maps.
    pub fn blocks_in(&self, extent: Extent) -> Result<u64> {
        match extent.is_scattered() {
            false => Ok(extent.blocks.into()),
            true => Ok(self.blocks_of(extent)?.iter().map(|part| u64::from(part.blocks)).sum()),
        }
    }

    /// The hash of the first map of a scattered extent; zero for a contiguous one.
    pub fn map_hash(&self, extent: Extent) -> Result<Hash> {
        match extent.start.map() {
            Some((map, _)) => Ok(self.scattered(map)?.hash),
            None => Ok(Hash::default()),
        }
    }

    /// Checks that the first map of a scattered extent has this hash, and that the maps list as many blocks as the
    /// extent has.
    pub fn verify_map(&self, extent: Extent, hash: Hash) -> Result<()> {
        self.blocks_of(extent)?;
        match self.map_hash(extent)? {
            found if found == hash => Ok(()),
            found => {
                let fault = Fault::mismatch("hash of a map", hash, found);
                Err(Error::corrupt(Place::Byte(extent.start.byte()), fault))
            }
        }
    }

    /// The places of `[at, at + len)` on the device: positions and lengths, in order.
    pub fn places(&self, at: u64, len: usize) -> Result<Places> {
        let block = BlockNr(at / BLOCK_SIZE as u64);
        let Some((map, index)) = block.map() else { return Ok(smallvec![(at, len)]) };
        let scattered = self.scattered(map)?;
        let mut skip = index * BLOCK_SIZE as u64 + at % BLOCK_SIZE as u64;
        let mut left = len;
        let mut places = SmallVec::new();
        for extent in &scattered.extents {
            let here = extent.bytes().saturating_sub(skip).min(left as u64);
            if here > 0 {
                places.push((extent.start.byte() + skip, here as usize));
            }
            skip = skip.saturating_sub(extent.bytes());
            left -= here as usize;
        }
        if left > 0 {
            let fault = Fault::mismatch("blocks of a scattered image", "enough", "too few");
            return Err(Error::corrupt(Place::Byte(map.byte()), fault));
        }
        Ok(places)
    }

    fn scattered(&self, first: BlockNr) -> Result<Arc<Scattered>> {
        if let Some(known) = self.known.lock().images.get(&first) {
            return Ok(known.clone());
        }
        let mut found = Scattered::default();
        let (mut blocks, all) = (0, self.len() / BLOCK_SIZE as u64);
        let mut next = Some((first, None));
        while let Some((block, hash)) = next {
            let bytes = self.read(block.byte(), BLOCK_SIZE)?;
            let corrupt = |fault: Fault| Error::corrupt(Place::Byte(block.byte()), fault);
            let (seal, map) =
                ScatterMap::decode(&bytes, None).map_err(|error| corrupt(error.into()))?;
            match hash {
                None => found.hash = seal.hash,
                Some(hash) if hash == seal.hash => {}
                Some(hash) => {
                    return Err(corrupt(Fault::mismatch("hash of a map", hash, seal.hash)));
                }
            }
            blocks += map.extents.iter().map(|extent| u64::from(extent.blocks)).sum::<u64>();
            if map.next.is_some() && map.extents.len() < MAP_EXTENTS {
                let fault = Fault::mismatch("extents of a map", MAP_EXTENTS, map.extents.len());
                return Err(corrupt(fault));
            }
            if blocks >= SCATTERED_MAX || blocks > all {
                let fault = Fault::mismatch("blocks of a scattered image", "fewer", blocks);
                return Err(corrupt(fault));
            }
            found.maps.push(block);
            found.extents.extend(map.extents);
            next = map.next.map(|(block, hash)| (block, Some(hash)));
        }
        // A map that another thread entered meanwhile is younger, and stays.
        let mut known = self.known.lock();
        if let Some(known) = known.images.get(&first) {
            return Ok(known.clone());
        }
        let found = Arc::new(found);
        known.insert(first, found.clone());
        Ok(found)
    }
}
