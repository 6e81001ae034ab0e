//! What of an image goes into a pack: the fixed regions, every block in use, and what the log binds; but for the contents of
//! files.
//!
//! Bytes are left out only where a leaf of the data index has its values: one whose head verifies, to which the allocation
//! table leads, whose blocks nothing else claims, and which bringing in the log does not read. Whatever does not verify is
//! kept as it is. So a check that does not look at contents finds the same in what is unpacked.
//!
//! Memory: four bits for each block of the image. Heads are read a second time when their leaves are passed by.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use betr_core::check::{CheckOptions, check_quickly};
use betr_core::device::{Device, Disk, NotingDevice};
use betr_core::format::{
    ENTRIES_PER_PAGE, Entry, Features, InternalHead, LeafHead, POINTERS_PER_PAGE, PageBody,
    Superblock,
};
use betr_core::ids::{BLOCK_SIZE, BlockNr, Extent, Height, NodeId, TreeId};
use betr_core::log;
use betr_core::node::Node;
use betr_core::space::{Bitmap, Space};
use betr_core::table::read_page;
use betr_core::volume::{Layout, Mode, OpenOptions, Ring, Volume, identity_again, read_identity};
use betr_core::{Error, Result};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// Where the head of a leaf says how long it is.
const HEAD_BYTES_AT: usize = 96;

/// What goes into a pack.
pub(crate) struct Kept {
    disk: Disk,
    /// The blocks; none if all do that are not zero, because nothing says which are used.
    blocks: Option<Bitmap>,
    /// First blocks of leaves whose values are left out.
    leaves: Bitmap,
    /// Values that are left out of leaves which lie scattered, in the order of the device.
    scattered: Vec<Range<u64>>,
    /// Blocks that are kept as they are, whatever is in them.
    whole: Bitmap,
    /// Values of the leaf that was passed last.
    passing: VecDeque<Range<u64>>,
    /// Whether it is known of everything in use what it is.
    pub all_known: bool,
    /// Bytes of values that were left out so far.
    pub left_out: u64,
}

impl Kept {
    /// Looks at an image. With `contents`, they stay. An error if there is no image, or one that this version does not
    /// know.
    pub fn of(device: &Arc<dyn Device>, contents: bool) -> Result<Kept> {
        let disk = Disk::new(device.clone());
        let identity = read_identity(&disk);
        let superblock = check_quickly(device, CheckOptions::default()).superblock;
        let identity = match identity {
            Err(error @ Error::Unsupported(_)) => return Err(error),
            Err(error @ Error::NotAnImage(_)) if superblock.is_none() => return Err(error),
            found => found.ok().or_else(|| identity_again(&disk)),
        };
        let superblock = superblock.filter(is_known);
        let stated = [
            identity.as_ref().map(|identity| identity.image_blocks),
            superblock.as_ref().map(|superblock| superblock.image_blocks),
        ];
        let there = device.len().div_ceil(BLOCK);
        let blocks = stated.into_iter().flatten().max().unwrap_or(there).max(there);
        let none = || Bitmap::new(blocks);
        let mut kept = Kept {
            disk: disk.clone(),
            blocks: None,
            leaves: none(),
            scattered: Vec::new(),
            whole: none(),
            passing: VecDeque::new(),
            all_known: false,
            left_out: 0,
        };
        let Some(superblock) = superblock else { return Ok(kept) };
        let mut claimed = none();
        let fixed = Layout::new(superblock.image_blocks * BLOCK, superblock.log_units * BLOCK);
        for (start, count) in fixed.iter().flat_map(Layout::fixed) {
            claimed.set(start.0, count);
        }
        let mut walk = Walk::new(&disk, &superblock, kept, claimed);
        walk.table();
        walk.log();
        let Walk { claimed, maps, complete, .. } = walk;
        kept = walk.kept;
        kept.scattered.sort_by_key(|values| values.start);
        kept.all_known = complete;
        // What the space map does not say, the trees do, if all of them is there.
        let used = Space::load(&disk, &superblock).ok().map(|space| space.used().clone());
        if let Some(mut used) = used.or_else(|| complete.then(none)) {
            used.grow(blocks);
            let ring = identity.and_then(|identity| Ring::read(&disk, &identity).ok());
            for slot in ring.iter().flat_map(Ring::slots) {
                set(&mut used, slot.byte..slot.byte + BLOCK);
            }
            maps.read().into_iter().for_each(|bytes| set(&mut used, bytes));
            for bits in [&claimed, &kept.whole] {
                for row in rows(bits) {
                    used.set(row.start, row.end - row.start);
                }
            }
            kept.blocks = Some(used);
        }
        if contents {
            kept.leaves = none();
            kept.scattered.clear();
        }
        Ok(kept)
    }

    /// The blocks, from one on, if it is known which.
    pub fn next_row(&self, from: u64) -> Option<Range<u64>> {
        let Some(blocks) = &self.blocks else { return Some(from..u64::MAX) };
        let start = blocks.find_set(from)?;
        Some(start..blocks.find_clear(start, 1).unwrap_or(blocks.len()))
    }

    /// Whether it is known which blocks are in use.
    pub fn knows_blocks(&self) -> bool {
        self.blocks.is_some()
    }

    /// Puts zeros in place of contents into a block, or what the image has of it. Blocks are asked for in their order.
    pub fn leave_out(&mut self, block: u64, bytes: &mut [u8]) {
        if block >= self.leaves.len() {
            return;
        }
        if self.leaves.get(block) {
            // One that begins within another is whole.
            self.passing = leaf_values(&self.disk, block).unwrap_or_default().into();
        }
        if self.whole.get(block) {
            return;
        }
        let here = block * BLOCK..block * BLOCK + bytes.len() as u64;
        while self.passing.front().is_some_and(|values| values.end <= here.start) {
            self.passing.pop_front();
        }
        let first = self.scattered.partition_point(|values| values.end <= here.start);
        let is_here = |values: &&Range<u64>| values.start < here.end;
        let scattered = self.scattered[first..].iter().take_while(is_here);
        for values in self.passing.iter().take_while(is_here).chain(scattered) {
            let (start, end) = (values.start.max(here.start), values.end.min(here.end));
            self.left_out += end - start;
            bytes[(start - here.start) as usize..(end - here.start) as usize].fill(0);
        }
    }
}

/// Whether it has no features of which nothing is known.
fn is_known(superblock: &Superblock) -> bool {
    let features = superblock.features;
    features.incompatible & !Features::KEYS == 0
}

/// Sets the bits of the blocks that these bytes lie in, as far as there are any.
fn set(bits: &mut Bitmap, bytes: Range<u64>) {
    let end = bytes.end.div_ceil(BLOCK).min(bits.len());
    let start = (bytes.start / BLOCK).min(end);
    bits.set(start, end - start);
}

/// Rows of set bits.
fn rows(bits: &Bitmap) -> impl Iterator<Item = Range<u64>> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = bits.find_set(from)?;
        from = bits.find_clear(start, 1).unwrap_or(bits.len());
        Some(start..from)
    })
}

/// Where the values of a leaf are that begins with a block, whose head has been verified before.
fn leaf_values(disk: &Disk, block: u64) -> Option<Vec<Range<u64>>> {
    let start = BlockNr(block).byte();
    let first = disk.read(start + HEAD_BYTES_AT as u64, 4).ok()?;
    let head_bytes = u32::from_le_bytes(first.try_into().ok()?);
    let head = disk.read(start, head_bytes as usize).ok()?;
    let (_, head) = LeafHead::decode(&head, None).ok()?;
    let values = head.values(head_bytes);
    Some(values.map(|at| start + u64::from(at.start)..start + u64::from(at.end)).collect())
}

/// The way through the allocation table.
struct Walk<'w> {
    disk: &'w Disk,
    superblock: &'w Superblock,
    /// Finds where images lie that are scattered, and keeps in mind which maps were read.
    maps: Arc<NotingDevice>,
    finder: Disk,
    claimed: Bitmap,
    kept: Kept,
    /// Whether everything verifies that says what else there is.
    complete: bool,
}

impl<'w> Walk<'w> {
    fn new(disk: &'w Disk, superblock: &'w Superblock, kept: Kept, claimed: Bitmap) -> Walk<'w> {
        let maps = Arc::new(NotingDevice::new(disk.device().clone()));
        let finder = Disk::new(maps.clone());
        Walk { disk, superblock, maps, finder, claimed, kept, complete: true }
    }

    /// Something lies there. False if it was claimed before, or cannot lie there.
    fn claim(&mut self, extent: Extent) -> bool {
        let Ok(found) = self.finder.blocks_of(extent) else {
            self.complete = false;
            return false;
        };
        let mut alone = true;
        for row in found {
            let end = row.start.0.saturating_add(row.blocks.into()).min(self.claimed.len());
            let count = end.saturating_sub(row.start.0);
            if count < row.blocks.into() {
                (alone, self.complete) = (false, false);
            }
            if count > 0 && self.claimed.set(row.start.0, count) < count {
                alone = false;
                self.kept.whole.set(row.start.0, count);
            }
        }
        alone
    }

    fn table(&mut self) {
        let root = self.superblock.table;
        let mut waiting = vec![(root.levels as u8 - 1, 0, root.page)];
        while let Some((level, index, pointer)) = waiting.pop() {
            // A page that is claimed already is not read again: this ends every cycle.
            if !self.claim(Extent { start: pointer.block, blocks: 1 }) {
                self.complete = false;
                continue;
            }
            let volume = self.superblock.birth.volume;
            let Ok(page) = read_page(self.disk, volume, &pointer, level, index) else {
                self.complete = false;
                continue;
            };
            match &page.body {
                PageBody::Pointers(found) => {
                    for (slot, pointer) in found.iter().enumerate() {
                        let below = index * POINTERS_PER_PAGE as u64 + slot as u64;
                        waiting.extend(pointer.map(|pointer| (level - 1, below, pointer)));
                    }
                }
                PageBody::Entries(found) => {
                    for (slot, entry) in found.iter().enumerate() {
                        let id = NodeId(index * ENTRIES_PER_PAGE as u64 + slot as u64);
                        if let Some(entry) = entry {
                            self.node(id, entry);
                        }
                    }
                }
            }
        }
    }

    fn node(&mut self, id: NodeId, entry: &Entry) {
        let alone = self.claim(entry.extent);
        let volume = self.superblock.birth.volume;
        if Node::load(&self.finder, volume, id, entry).is_err() {
            self.complete = false;
            return;
        }
        let (start, head_bytes) = (entry.extent.start, entry.head_bytes);
        let Ok(head) = self.finder.read(start.byte(), head_bytes as usize) else { return };
        if entry.height > Height(0) {
            let runs = InternalHead::decode(&head, None).map(|(_, head)| head.runs);
            for run in runs.unwrap_or_default() {
                self.claim(run.extent);
            }
        } else if entry.tree == TreeId::Data && alone {
            if start.map().is_none() {
                self.kept.leaves.set(start.0, 1);
            } else if let Ok((_, head)) = LeafHead::decode(&head, None) {
                for at in head.values(head_bytes) {
                    let place = start.byte() + u64::from(at.start);
                    let places = self.finder.places(place, at.len()).unwrap_or_default();
                    let places = places.into_iter().map(|(at, len)| at..at + len as u64);
                    self.kept.scattered.extend(places);
                }
            }
        }
    }

    /// What the log binds stays, and so does what is read when its records are brought into the trees.
    fn log(&mut self) {
        let noting = Arc::new(NotingDevice::new(self.disk.device().clone()));
        let device: Arc<dyn Device> = noting.clone();
        let survey = log::scan(&Disk::new(device.clone()), self.superblock);
        if survey.is_ok_and(|survey| survey.groups > 0) {
            let open = OpenOptions::new(Mode::ReadOnly, Box::new(|| 0));
            let open = OpenOptions { slot: Some(self.superblock.slot), content: None, ..open };
            // What does not work will not work with what is unpacked either, nor read more.
            let _ =
                Volume::open(device, open).and_then(|(mut volume, _)| volume.settle_in_memory());
        }
        noting.read().into_iter().for_each(|bytes| set(&mut self.kept.whole, bytes));
    }
}
