//! A leaf as stored on disk: its head, and the basements that were read.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::{SmallVec, smallvec};

use super::*;
use crate::error::Place;
use crate::tuning::WARM_SHARE;

/// A leaf that is not open.
#[derive(Clone)]
pub(super) struct Stored {
    extent: Extent,
    head: LeafHead,
    /// Whether all key sections are stored together, by the lengths in the head.
    together: bool,
    parts: Parts,
    /// Bytes of parts that were read. Blocks that several basements name must not take more memory than the leaf has
    /// bytes.
    loaded: Loaded,
    /// Bytes of keys and small values in memory.
    keys: Loaded,
    /// Memory of the basements that were read, without file blocks.
    memory: Loaded,
    /// Set once the device has been advised of the whole leaf.
    announced: OnceLock<()>,
}

/// The basements that were read. Most lookups are the only one in their leaf for a long time, so a single basement
/// needs no list.
#[derive(Default)]
struct Parts {
    one: OnceLock<(usize, Arc<Part>)>,
    others: OnceLock<Box<[Slot]>>,
    /// Held while a basement is added.
    filling: Mutex<()>,
}

/// The place of a basement; empty if it has not been read.
type Slot = OnceLock<Arc<Part>>;

impl Clone for Parts {
    fn clone(&self) -> Parts {
        let _filling = self.lock();
        Parts { one: self.one.clone(), others: self.others.clone(), filling: Mutex::default() }
    }
}

impl Parts {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Basement `at`, if it has been read.
    fn get(&self, at: usize) -> Option<&Arc<Part>> {
        match self.one.get() {
            Some((one, part)) if *one == at => Some(part),
            _ => self.others.get()?[at].get(),
        }
    }

    /// All basements that were read, in order.
    fn iter(&self) -> impl Iterator<Item = &Arc<Part>> {
        let slots = self.others.get().map_or(0, |others| others.len());
        let one = if slots == 0 { self.one.get().map(|(_, part)| part) } else { None };
        one.into_iter().chain((0..slots).filter_map(|at| self.get(at)))
    }

    /// Adds basement `at` of `count`; `alone` says whether it was read by itself. Returns false if it is there already.
    fn put(&self, at: usize, count: usize, alone: bool, part: Arc<Part>) -> bool {
        let _filling = self.lock();
        if self.get(at).is_some() {
            return false;
        }
        let part = match alone {
            true => match self.one.set((at, part)) {
                Ok(()) => return true,
                Err((_, part)) => part,
            },
            false => part,
        };
        self.others.get_or_init(|| vec![Slot::new(); count].into())[at].set(part).is_ok()
    }

    /// Memory of the list.
    fn memory(&self) -> usize {
        self.others.get().map_or(0, |others| size_of_val(&**others))
    }
}

/// A basement in memory.
pub(super) struct Part {
    section: KeySection,
    /// Its verified small chunks.
    small: Bytes,
    /// File blocks, in the order of their chunks.
    blocks: Vec<Block>,
}

/// A file block, which is read on demand.
pub(super) struct Block {
    /// The number of its chunk, which has its hash.
    chunk: u16,
    /// Byte offset in the leaf.
    offset: u32,
    value: OnceLock<Bytes>,
}

impl Block {
    /// Its bytes, if they have been read.
    pub(super) fn value(&self) -> Option<&Bytes> {
        self.value.get()
    }
}

/// A value of a basement.
pub(super) enum Value<'p> {
    /// A small value: its range in the small chunks.
    Small(Range<usize>),
    Block(&'p Block),
}

impl Part {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.section.entries().len()
    }

    /// The entries within `[lo, hi)`, each with its index.
    pub(super) fn range(
        &self,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> impl Iterator<Item = (usize, EntryRef<'_>)> {
        self.section.within(lo, hi).map(|at| (at, self.section.entry(at)))
    }

    /// The value of an entry.
    pub(super) fn value(&self, entry: &EntryRef<'_>) -> Value<'_> {
        if entry.chunk == NO_CHUNK {
            return Value::Small(0..0);
        }
        if let Ok(at) = self.blocks.binary_search_by_key(&entry.chunk, |block| block.chunk) {
            return Value::Block(&self.blocks[at]);
        }
        let chunk = self.section.chunks[usize::from(entry.chunk)].offset;
        let start = chunk as usize + usize::from(entry.offset);
        Value::Small(start..start + entry.bytes as usize)
    }

    /// A small value.
    pub(super) fn small(&self, range: Range<usize>) -> &[u8] {
        &self.small[range]
    }

    /// Bytes of keys and small values.
    pub(super) fn bytes(&self) -> usize {
        self.section.key_bytes() + self.small.len()
    }

    /// Memory, without file blocks.
    fn memory(&self) -> usize {
        let blocks = self.blocks.len() * size_of::<Block>();
        size_of::<Part>() + self.section.memory() + self.small.len() + blocks
    }

    /// Memory of the file blocks that were read.
    fn blocks_memory(&self) -> usize {
        let read = self.blocks.iter().filter(|block| block.value.get().is_some()).count();
        read * FILE_BLOCK
    }
}

/// Parts of a leaf that were read: one stretch; or one of key sections and one of small chunks.
struct Stretches(SmallVec<[(u32, Bytes); 2]>);

impl Stretches {
    /// The bytes of a range, if one of the stretches contains it.
    fn find(&self, place: &Range<u32>) -> Option<Bytes> {
        let holds = |(start, bytes): &&(u32, Bytes)| {
            *start <= place.start && u64::from(place.end) <= u64::from(*start) + bytes.len() as u64
        };
        let (start, bytes) = self.0.iter().find(holds).filter(|_| !place.is_empty())?;
        Some(bytes.slice((place.start - start) as usize..(place.end - start) as usize))
    }

    /// The bytes of a range that one of the stretches contains; none for an empty range.
    fn bytes(&self, place: Range<u32>) -> Bytes {
        self.find(&place).unwrap_or_default()
    }
}

impl Stored {
    pub(super) fn new(head: LeafHead, extent: Extent) -> Stored {
        let (parts, loaded, keys, memory, announced) = Default::default();
        let together = head.is_together();
        Stored { extent, head, together, parts, loaded, keys, memory, announced }
    }

    /// The length of the leaf in bytes.
    pub(super) fn bytes(&self) -> u32 {
        self.head.leaf_bytes
    }

    /// Bytes of its parts that have been read.
    pub(super) fn loaded(&self) -> u64 {
        self.loaded.bytes()
    }

    pub(super) fn forget_parts(&mut self) {
        (self.parts, self.loaded, self.keys, self.memory) = Default::default();
    }

    /// Its basements on disk.
    pub(super) fn into_basements(self) -> Basements {
        self.head.basements
    }

    /// Approximate memory.
    pub(super) fn weight(&self) -> usize {
        let parts = self.parts.memory() + self.memory.bytes() as usize;
        let blocks = match self.head.tree {
            TreeId::Metadata => 0,
            TreeId::Data => self.parts().map(|part| part.blocks_memory()).sum(),
        };
        512 + self.head.basements.memory() + parts + blocks
    }

    /// The first key of the basement after that of `key`.
    pub(super) fn first_behind(&self, key: &[u8]) -> Option<Key> {
        self.head.basements.get(self.behind(key)).map(|basement| Key::copied(basement.first))
    }

    /// Number of basements whose first key is `key` or less.
    fn behind(&self, key: &[u8]) -> usize {
        self.head.basements.before(key, true)
    }

    /// The basements that may have keys within `[lo, hi)`.
    fn within(&self, lo: &[u8], hi: Option<&[u8]>) -> Range<usize> {
        let first = self.behind(lo).saturating_sub(1);
        let end = hi.map_or(self.len(), |hi| self.head.basements.before(hi, false));
        first..end.max(first)
    }

    /// Number of basements.
    pub(super) fn len(&self) -> usize {
        self.head.basements.len()
    }

    /// The key bounds of each basement, and the hash of its key section, which contains the hashes of all values.
    pub(super) fn basements(&self) -> impl Iterator<Item = (Bounds, Hash)> + '_ {
        let hash = |at| self.head.basements.get(at).map(|basement| basement.hash);
        (0..self.len()).filter_map(move |at| Some((self.bounds_of(at), hash(at)?)))
    }

    /// The keys that basement `at` may hold.
    pub(super) fn bounds_of(&self, at: usize) -> Bounds {
        let next = self.head.basements.get(at + 1).map(|next| Key::copied(next.first));
        Bounds {
            lo: Key::copied(self.head.basements.first(at)),
            hi: next.or_else(|| self.head.bounds.hi.clone()),
        }
    }

    /// The value of `key`.
    pub(super) fn get(&self, disk: &Disk, key: &[u8]) -> Result<Option<Bytes>> {
        let Some(at) = self.behind(key).checked_sub(1) else { return Ok(None) };
        self.announce_if_warm(disk);
        let part = self.part(disk, at)?;
        let Some(found) = part.section.find(key) else { return Ok(None) };
        match part.value(&part.section.entry(found)) {
            Value::Small(range) => Ok(Some(part.small.slice(range))),
            Value::Block(block) => {
                self.read_blocks(disk, &[(at, block)])?;
                Ok(block.value.get().cloned())
            }
        }
    }

    /// Advises the device once of the whole leaf, when lookups have read `1/WARM_SHARE` of it piece by piece: later
    /// lookups will need the rest, and by then waiting has cost as much as reading all of it.
    fn announce_if_warm(&self, disk: &Disk) {
        if self.loaded() * WARM_SHARE >= u64::from(self.bytes()) && self.announced.set(()).is_ok() {
            disk.advise_will_need(self.extent.start.byte(), self.extent.bytes());
        }
    }

    /// The entries within `[lo, hi)`, in key order.
    pub(super) fn scan(
        &self,
        disk: &Disk,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> Result<Vec<(Key, Bytes)>> {
        let range = self.within(lo, hi);
        self.load(disk, range.clone())?;
        let parts = range.clone().map(|at| self.part(disk, at)).collect::<Result<Vec<_>>>()?;
        let count = |part: &&Arc<Part>| part.section.within(lo, hi).len();
        let mut found = Vec::with_capacity(parts.iter().map(count).sum());
        // File blocks that have not been read, each with its basement, and the indexes of their entries.
        let (mut blocks, mut owners) = (Vec::new(), Vec::new());
        for (at, part) in range.clone().zip(parts) {
            // Only the first and last basements may have entries outside the range.
            let lo = if at == range.start { lo } else { &[] };
            let hi = if at + 1 == range.end { hi } else { None };
            for (place, entry) in part.range(lo, hi) {
                let value = match part.value(&entry) {
                    Value::Small(range) => part.small.slice(range),
                    Value::Block(block) => block.value().cloned().unwrap_or_else(|| {
                        blocks.push((at, block));
                        owners.push(found.len());
                        Bytes::new()
                    }),
                };
                found.push((part.section.key(place), value));
            }
        }
        self.read_blocks(disk, &blocks)?;
        for (entry, (_, block)) in owners.into_iter().zip(blocks) {
            if let Some(value) = block.value.get() {
                found[entry].1 = value.clone();
            }
        }
        Ok(found)
    }

    /// The keys within `[lo, hi)` and the lengths of their values. Values are not read.
    pub(super) fn scan_keys(
        &self,
        disk: &Disk,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> Result<Vec<(Key, usize)>> {
        let mut found = Vec::new();
        let range = self.within(lo, hi);
        let missing: Vec<usize> = self.missing(range.clone());
        let stretches = match missing[..] {
            [first, .., last] if self.together => {
                let basements = &self.head.basements;
                let keys = basements.at(first).offset..basements.at(last).keys().end;
                Some(Stretches(smallvec![self.read(disk, keys)?]))
            }
            _ => None,
        };
        for at in range {
            let read;
            let section = match self.known(at) {
                Some(part) => &part.section,
                None => {
                    let keys = self.head.basements.at(at).keys();
                    let bytes = match &stretches {
                        Some(stretches) => stretches.bytes(keys),
                        None => self.read(disk, keys)?.1,
                    };
                    read = self.section(at, &bytes)?;
                    &read
                }
            };
            let inside = section.within(lo, hi);
            found.extend(inside.map(|at| (section.key(at), section.entry(at).bytes as usize)));
        }
        Ok(found)
    }

    /// Whether the basement of `key` can be read.
    pub(super) fn has_part(&self, disk: &Disk, key: &[u8]) -> bool {
        self.behind(key).checked_sub(1).is_none_or(|at| self.part(disk, at).is_ok())
    }

    /// Basement `at`; reads it if necessary.
    pub(super) fn part(&self, disk: &Disk, at: usize) -> Result<&Arc<Part>> {
        if self.known(at).is_none() {
            self.load_row(disk, at..at + 1)?;
        }
        Ok(self.known(at).expect("it was just loaded"))
    }

    /// All basements that have been read, in order.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Arc<Part>> {
        self.parts.iter()
    }

    /// Basement `at`, if it has been read.
    fn known(&self, at: usize) -> Option<&Arc<Part>> {
        self.parts.get(at)
    }

    /// Reads everything that has not been read; with one request if nothing has.
    pub(super) fn read_all(&self, disk: &Disk) -> Result<()> {
        if self.loaded() == 0 && self.len() > 0 {
            // If not all of it can be read, some parts may be.
            if let Ok(all) = self.read(disk, self.head.basements.at(0).offset..self.bytes()) {
                return self.add_row(0..self.len(), &Stretches(smallvec![all]));
            }
        }
        self.load(disk, 0..self.len())?;
        let parts = self.parts().enumerate();
        let blocks: Vec<(usize, &Block)> =
            parts.flat_map(|(at, part)| part.blocks.iter().map(move |block| (at, block))).collect();
        self.read_blocks(disk, &blocks)
    }

    /// The basements of a range that have not been read.
    fn missing(&self, range: Range<usize>) -> Vec<usize> {
        range.filter(|at| self.known(*at).is_none()).collect()
    }

    /// Reads missing basements; consecutive ones together.
    fn load(&self, disk: &Disk, range: Range<usize>) -> Result<()> {
        let missing = self.missing(range);
        let mut rows = missing.chunk_by(|a, b| a + 1 == *b);
        rows.try_for_each(|row| self.load_row(disk, row[0]..row[row.len() - 1] + 1))
    }

    fn load_row(&self, disk: &Disk, row: Range<usize>) -> Result<()> {
        let stretches = self.read_row(disk, row.clone())?;
        self.add_row(row, &stretches)
    }

    /// Decodes and verifies consecutive basements that have been read.
    fn add_row(&self, row: Range<usize>, stretches: &Stretches) -> Result<()> {
        let (count, alone) = (self.len(), row.len() == 1);
        for at in row {
            let part = Arc::new(self.parse(at, stretches)?);
            let (bytes, memory) = (part.bytes() as u64, part.memory() as u64);
            let blocks = part.blocks_memory() as u64;
            // Several threads may read it at the same time; the first result is kept and counted.
            if self.parts.put(at, count, alone, part) {
                let basement = self.head.basements.at(at);
                self.keys.add(bytes);
                // The buffer of the key section stays in memory together with the values behind it.
                self.memory.add(memory + u64::from(basement.bytes));
                self.loaded.add(u64::from(basement.bytes) + u64::from(basement.small) + blocks);
            }
        }
        Ok(())
    }

    /// Reads key sections and small chunks of consecutive basements.
    fn read_row(&self, disk: &Disk, row: Range<usize>) -> Result<Stretches> {
        let basements = &self.head.basements;
        let (first, last) = (basements.at(row.start), basements.at(row.end - 1));
        if !self.together || row.len() == basements.len() {
            return Ok(Stretches(smallvec![self.read(disk, first.offset..last.chunks().end)?]));
        }
        let chunks = first.small_at..last.chunks().end;
        // So that both are read at the same time.
        let at = self.extent.start.byte() + u64::from(chunks.start);
        disk.advise_will_need(at, chunks.len() as u64);
        let keys = self.read(disk, first.offset..last.keys().end)?;
        Ok(Stretches(smallvec![keys, self.read(disk, chunks)?]))
    }

    /// Reads a piece of the leaf; returns it with its offset.
    fn read(&self, disk: &Disk, piece: Range<u32>) -> Result<(u32, Bytes)> {
        let at = self.extent.start.byte() + u64::from(piece.start);
        Ok((piece.start, disk.read_shared(at, piece.len())?))
    }

    fn place(&self, part: usize, offset: u32) -> Place {
        let byte = self.extent.start.byte() + u64::from(offset);
        Place::Part { id: self.head.id, part: part as u64, byte }
    }

    /// Decodes and verifies basement `at`, with those of its file blocks that have been read.
    fn parse(&self, at: usize, stretches: &Stretches) -> Result<Part> {
        let tree = self.head.tree;
        let basement = self.head.basements.at(at);
        let section = self.section(at, &stretches.bytes(basement.keys()))?;
        let mut blocks = Vec::with_capacity((basement.blocks as usize).min(section.chunks.len()));
        for (number, chunk) in section.chunks.iter().enumerate() {
            let place = basement.chunk(tree, chunk);
            let (offset, hash) = (place.start, chunk.hash);
            let is_block = is_block(tree, chunk.bytes as usize);
            let read = stretches.find(&place);
            if read.is_some() || !is_block {
                check_hash(read.as_deref().unwrap_or_default(), &hash, || self.place(at, offset))?;
            }
            if is_block {
                let value = read.map_or_else(OnceLock::new, OnceLock::from);
                blocks.push(Block { chunk: number as u16, offset, value });
            }
        }
        let small = stretches.bytes(basement.chunks());
        let part = Part { section, small, blocks };
        // On disk keys may share most of their bytes; in memory they must not exceed the longest leaf.
        if self.keys.bytes() + part.bytes() as u64 > LEAF_MAX as u64 {
            let fault = Fault::mismatch("keys of a leaf", format!("{LEAF_MAX} bytes"), "more");
            return Err(Error::corrupt(self.place(at, basement.offset), fault));
        }
        Ok(part)
    }

    /// Reads the missing ones of some blocks, each given with its basement; consecutive ones together.
    pub(super) fn read_blocks(&self, disk: &Disk, blocks: &[(usize, &Block)]) -> Result<()> {
        let is_missing = |(_, block): &&(usize, &Block)| block.value.get().is_none();
        let missing = match blocks.iter().all(|block| is_missing(&block)) {
            true => Cow::Borrowed(blocks),
            false => blocks.iter().filter(is_missing).copied().collect(),
        };
        for row in missing.chunk_by(|(_, a), (_, b)| a.offset + FILE_BLOCK as u32 == b.offset) {
            let len = row.len() * FILE_BLOCK;
            let first = row[0].1.offset;
            let (_, bytes) = self.read(disk, first..first + len as u32)?;
            for (number, (part, block)) in row.iter().enumerate() {
                let value = bytes.slice(number * FILE_BLOCK..(number + 1) * FILE_BLOCK);
                let of = self.known(*part).expect("the basement of a block has been read");
                let hash = &of.section.chunks[usize::from(block.chunk)].hash;
                check_hash(&value, hash, || self.place(*part, block.offset))?;
                if block.value.set(value).is_ok() {
                    self.loaded.add(FILE_BLOCK as u64);
                }
            }
        }
        Ok(())
    }

    /// Decodes and verifies the key section of basement `at`.
    fn section(&self, at: usize, section: &[u8]) -> Result<KeySection> {
        let place = || self.place(at, self.head.basements.at(at).offset);
        verified_section(&self.head, at, section, place)
    }
}

/// Decodes and verifies the key section of basement `at` of a leaf.
pub(crate) fn verified_section(
    head: &LeafHead,
    at: usize,
    section: &[u8],
    place: impl Fn() -> Place,
) -> Result<KeySection> {
    check_hash(section, &head.basements.at(at).hash, &place)?;
    let corrupt = |fault| Error::corrupt(place(), fault);
    let section =
        KeySection::decode(section, head.tree, None).map_err(|error| corrupt(error.into()))?;
    check_section(&section, head, at).map_err(corrupt)?;
    Ok(section)
}

/// Checks that a key section matches the directory in the head and stays within its bounds.
fn check_section(
    section: &KeySection,
    head: &LeafHead,
    at: usize,
) -> std::result::Result<(), Fault> {
    let (reference, next) = (head.basements.at(at), head.basements.get(at + 1));
    let mut entries = section.entries();
    if entries.len() != reference.entries as usize {
        return Err(Fault::mismatch("entries of a basement", reference.entries, entries.len()));
    }
    let first = entries.next().map(|entry| entry.key);
    let last = entries.next_back().map(|entry| entry.key).or(first);
    let below =
        |key: &[u8]| head.bounds.is_below_end(key) && next.is_none_or(|next| key < next.first);
    let is_from = |first: &[u8]| first >= reference.first;
    if !first.is_some_and(is_from) || !last.is_some_and(below) {
        return Err(Fault::Missing("keys of a basement lie outside what the head says".into()));
    }
    let (small, blocks) = section.value_sizes(head.tree);
    if small != reference.small {
        return Err(Fault::mismatch("length of a basement's small chunks", reference.small, small));
    }
    if blocks != reference.blocks {
        return Err(Fault::mismatch("file blocks of a basement", reference.blocks, blocks));
    }
    Ok(())
}
