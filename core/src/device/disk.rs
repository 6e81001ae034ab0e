//! A device with its counters, whose errors name a place; and images that lie scattered over it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::Device;
use super::buffers::{Block, Buffers};
use crate::error::{Error, Fault, Place, Result};
use crate::format::{MAP_EXTENTS, ScatterMap};
use crate::ids::*;

/// The most bytes that are fetched at once, whatever an image says.
const FETCH_MAX: u64 = 64 << 20;
/// Extents of scattered images that are known at once.
const KNOWN_MAX: usize = 1 << 18;

/// What has been asked of a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Calls to read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Calls to write.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Calls to flush.
    pub flushes: u64,
}

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
}

/// Positions and lengths, in their order.
type Places = SmallVec<[(u64, usize); 1]>;

/// A device, its counters, and errors that name a place. Clones share all of it.
///
/// Addresses from [`SCATTERED`] blocks on are those of images that lie scattered: their maps say where each
/// block is, and they are read and written like all others.
#[derive(Clone)]
pub struct Disk {
    device: Arc<dyn Device>,
    counters: Arc<Counters>,
    scattered: Arc<Mutex<Known>>,
    buffers: Arc<Buffers>,
}

/// Scattered images by the blocks of their first maps.
#[derive(Default)]
struct Known {
    images: HashMap<BlockNr, Arc<Scattered>>,
    /// The extents of all of them.
    extents: usize,
}

impl Known {
    fn insert(&mut self, map: BlockNr, image: Arc<Scattered>) {
        self.remove(map);
        if self.extents > KNOWN_MAX {
            *self = Known::default();
        }
        self.extents += image.extents.len();
        self.images.insert(map, image);
    }

    fn remove(&mut self, map: BlockNr) {
        self.extents -= self.images.remove(&map).map_or(0, |image| image.extents.len());
    }
}

/// Where a scattered image lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scattered {
    /// The hash in the seal of its first map.
    pub hash: Hash,
    /// The blocks of its maps.
    pub maps: Vec<BlockNr>,
    /// Its own blocks, in their order.
    pub extents: Vec<Extent>,
}

impl Disk {
    /// A disk over `device`, with all counts at zero.
    pub fn new(device: Arc<dyn Device>) -> Disk {
        let (counters, scattered, buffers) = Default::default();
        Disk { device, counters, scattered, buffers }
    }

    /// Memory of so many bytes, whatever they are, to be read into or written from.
    pub fn buffer(&self, len: usize) -> Vec<u8> {
        self.buffers.take(len)
    }

    /// Takes memory back.
    pub fn recycle(&self, buffer: Vec<u8>) {
        self.buffers.give(buffer);
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// How many bytes there are.
    pub fn len(&self) -> u64 {
        self.device.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.device.is_empty()
    }

    /// Reads `len` bytes at `at`. The caller has compared `len` with its limit.
    pub fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let places = self.places_to_read(at, len)?;
        // Only what can be there is worth memory.
        let mut memory = self.buffers.take_exactly(len);
        self.read_places(at, places, &mut memory)?;
        Ok(memory)
    }

    /// The same into memory of the disk's.
    pub fn read_buffer(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let places = self.places_to_read(at, len)?;
        let mut memory = self.buffer(len);
        self.read_places(at, places, &mut memory)?;
        Ok(memory)
    }

    /// The same, to be shared.
    pub fn read_shared(&self, at: u64, len: usize) -> Result<Bytes> {
        if !Block::suits(len) {
            return Ok(self.read(at, len)?.into());
        }
        let places = self.places_to_read(at, len)?;
        let mut block = Block::of(&self.buffers);
        self.read_places(at, places, &mut block.memory()[..len])?;
        Ok(block.share(len))
    }

    /// Where bytes are that are all there.
    fn places_to_read(&self, at: u64, len: usize) -> Result<Places> {
        let places = self.places(at, len)?;
        let is_there = |(at, len): &(u64, usize)| {
            at.checked_add(*len as u64).is_some_and(|end| end <= self.len())
        };
        if places.iter().all(is_there) {
            return Ok(places);
        }
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the image");
        Err(Error::read(at, source))
    }

    fn read_places(&self, at: u64, places: Places, mut memory: &mut [u8]) -> Result<()> {
        let failed = |source| Error::read(at, source);
        for (at, len) in places {
            self.counters.reads.fetch_add(1, Ordering::Relaxed);
            self.counters.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
            let (part, behind) = memory.split_at_mut(len);
            self.device.read_at(at, part).map_err(failed)?;
            memory = behind;
        }
        Ok(())
    }

    /// `len` bytes at `at`, or those of them that there are, will be read soon. Where they lie scattered this says
    /// nothing.
    pub fn will_read(&self, at: u64, len: u64) {
        let len = len.min(FETCH_MAX).min(self.len().saturating_sub(at));
        if len > 0 && BlockNr(at / BLOCK_SIZE as u64).map().is_none() {
            self.device.will_read(at, len);
        }
    }

    /// Nobody will read the `len` bytes at `at` soon, or those of them that there are. Where they lie scattered this says
    /// nothing.
    pub fn wont_read(&self, at: u64, len: u64) {
        let len = len.min(self.len().saturating_sub(at));
        if len > 0 && BlockNr(at / BLOCK_SIZE as u64).map().is_none() {
            self.device.wont_read(at, len);
        }
    }

    /// Writes `bytes` at `at`.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let failed = |source| Error::Io { op: "write", place: Place::Byte(at), source };
        let mut rest = bytes;
        for (at, len) in self.places(at, bytes.len())? {
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
            self.counters.written_bytes.fetch_add(len as u64, Ordering::Relaxed);
            let (part, behind) = rest.split_at(len);
            self.device.write_at(at, part).map_err(failed)?;
            rest = behind;
        }
        Ok(())
    }

    /// Writes what the device holds for lack of room: [`Error::HostFull`] where there still is none.
    pub fn settle(&self) -> Result<()> {
        self.device.settle().map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::HostFull { source },
            _ => Error::Io { op: "write", place: Place::Image, source },
        })
    }

    /// Makes everything written before durable. After [`Error::HostFull`] nothing is lost, and the call may be repeated.
    pub fn flush(&self) -> Result<()> {
        self.settle()?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        let failed = |source| Error::Io { op: "flush", place: Place::Image, source };
        self.device.flush().map_err(failed)
    }

    /// The counts so far.
    pub fn counts(&self) -> IoCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoCounts {
            reads: get(&self.counters.reads),
            read_bytes: get(&self.counters.read_bytes),
            writes: get(&self.counters.writes),
            written_bytes: get(&self.counters.written_bytes),
            flushes: get(&self.counters.flushes),
        }
    }

    /// The blocks of the device that an image takes, those of its maps included.
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

    /// The hash that a scattered image's first map must have; zero for any other image.
    pub fn map_hash(&self, extent: Extent) -> Result<Hash> {
        match extent.start.map() {
            Some((map, _)) => Ok(self.scattered(map)?.hash),
            None => Ok(Hash::default()),
        }
    }

    /// Whether the map of a scattered image is the one of this hash, and speaks of as many blocks.
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

    /// From now on the image of this map lies there; or nowhere.
    pub(crate) fn place_scattered(&self, map: BlockNr, place: Option<Scattered>) {
        let mut known = self.known();
        match place {
            Some(place) => known.insert(map, Arc::new(place)),
            None => known.remove(map),
        }
    }

    /// The places of `[at, at + len)` on the device: positions and lengths, in their order.
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
        if let Some(known) = self.known().images.get(&first) {
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
        // What is known already is younger than what somebody has read beside the foreground.
        let mut known = self.known();
        if let Some(known) = known.images.get(&first) {
            return Ok(known.clone());
        }
        let found = Arc::new(found);
        known.insert(first, found.clone());
        Ok(found)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.scattered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
