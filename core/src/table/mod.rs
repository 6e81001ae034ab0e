//! The allocation table: node id → where the node is.
//!
//! On disk it is a copy-on-write radix tree of pages; a page pointer carries the hash of its page, so
//! the root's hash stands for everything below. In memory pages are loaded as they are asked for.
//! Changes gather in dirty pages until a checkpoint writes those and their ancestors to new places.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::TABLE_LEVELS_MAX;
use crate::format::{
    Birth, ENTRIES_PER_PAGE, Entry, POINTERS_PER_PAGE, PageBody, PagePointer, TablePage, TableRoot,
};
use crate::ids::*;
use crate::space::Space;

/// Clean pages that stay in memory: 16 MiB.
const CLEAN_PAGES_MAX: usize = 4096;

/// The allocation table of one volume.
pub struct Table {
    disk: Disk,
    volume: VolumeId,
    root: Option<PagePointer>,
    levels: u32,
    /// Entries.
    nodes: u64,
    /// Pages that differ from what is on disk.
    dirty: u64,
    pages: Mutex<BTreeMap<(u8, u64), Slot>>,
}

struct Slot {
    page: TablePage,
    dirty: bool,
}

impl Table {
    /// A table without entries.
    pub fn empty(disk: Disk, volume: VolumeId) -> Table {
        let slot = Slot { page: TablePage::empty(0, 0), dirty: true };
        let pages = Mutex::new(BTreeMap::from([((0, 0), slot)]));
        Table { disk, volume, root: None, levels: 1, nodes: 0, dirty: 1, pages }
    }

    /// The table that begins at `root`.
    pub fn open(disk: Disk, volume: VolumeId, root: TableRoot) -> Table {
        let pages = Mutex::default();
        let (root, levels) = (Some(root.page), root.levels);
        Table { disk, volume, root, levels, nodes: 0, dirty: 0, pages }
    }

    /// The table, which holds `nodes` entries: changes are counted from there.
    pub fn with_nodes(self, nodes: u64) -> Table {
        Table { nodes, ..self }
    }

    /// How many entries there are.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Where node `id` is; nothing if there is no such node.
    pub fn get(&self, id: NodeId) -> Result<Option<Entry>> {
        if id.0 / ENTRIES_PER_PAGE as u64 >= capacity(self.levels) {
            return Ok(None);
        }
        let mut pages = self.lock();
        let (page, at) = place_of(id);
        if !self.load(&mut pages, 0, page)? {
            return Ok(None);
        }
        Ok(entries(&mut pages, page).and_then(|entries| entries[at]))
    }

    /// Changes where node `id` is; returns where it was.
    pub fn set(&mut self, id: NodeId, entry: Option<Entry>) -> Result<Option<Entry>> {
        let (page, at) = place_of(id);
        if page >= capacity(TABLE_LEVELS_MAX) {
            let fault = Fault::mismatch("node id", "one that the table has room for", id);
            return Err(Error::corrupt(Place::Node { id, byte: None }, fault));
        }
        while page >= capacity(self.levels) {
            self.grow();
        }
        let mut pages = self.lock();
        if !self.load(&mut pages, 0, page)? {
            pages.insert((0, page), Slot { page: TablePage::empty(0, page), dirty: false });
        }
        let mut fresh = 0;
        if let Some(slot) = pages.get_mut(&(0, page)) {
            fresh = u64::from(!std::mem::replace(&mut slot.dirty, true));
        }
        let entries = entries(&mut pages, page).expect("the page was just put there");
        let old = std::mem::replace(&mut entries[at], entry);
        drop(pages);
        self.dirty += fresh;
        // An image may state another number than there are, which the checker finds.
        self.nodes = self.nodes.saturating_add(u64::from(entry.is_some()));
        self.nodes = self.nodes.saturating_sub(u64::from(old.is_some()));
        Ok(old)
    }

    /// All pages are written anew at the next checkpoint.
    pub fn move_all(&mut self, end: NodeId) -> Result<()> {
        let mut pages = self.lock();
        let mut fresh = 0;
        for index in 0..end.0.div_ceil(ENTRIES_PER_PAGE as u64).min(capacity(self.levels)) {
            if self.load(&mut pages, 0, index)?
                && let Some(slot) = pages.get_mut(&(0, index))
            {
                fresh += u64::from(!std::mem::replace(&mut slot.dirty, true));
            }
        }
        drop(pages);
        self.dirty += fresh;
        Ok(())
    }

    /// At most how many pages are written if `more` nodes move, none of them named `end` or beyond.
    pub fn blocks_max(&self, more: u64, end: NodeId) -> u64 {
        let mut pages = end.0.div_ceil(ENTRIES_PER_PAGE as u64);
        let mut all = 0;
        // One page of each level may come into being.
        for _ in 0..=self.levels {
            all += pages.min(self.dirty + more) + 1;
            pages = pages.div_ceil(POINTERS_PER_PAGE as u64);
        }
        all
    }

    /// Writes dirty pages and their ancestors to new places; returns the new root.
    pub fn write(&mut self, space: &mut Space, birth: Birth) -> Result<TableRoot> {
        for level in 0..self.levels as u8 {
            let dirty: Vec<u64> = {
                let pages = self.lock();
                let level_pages = pages.range((level, 0)..=(level, u64::MAX));
                level_pages.filter(|(_, slot)| slot.dirty).map(|((_, index), _)| *index).collect()
            };
            for index in dirty {
                self.write_page(space, birth, level, index)?;
            }
        }
        self.dirty = 0;
        self.trim();
        let page = self.root.expect("a table that was written has a root");
        Ok(TableRoot { page, levels: self.levels })
    }

    /// Writes a page to a new place. One without entries, or without pages below it, goes instead: ids are not
    /// given out again.
    fn write_page(&mut self, space: &mut Space, birth: Birth, level: u8, index: u64) -> Result<()> {
        let is_root = u32::from(level) + 1 == self.levels;
        let mut pages = self.lock();
        let slot = pages.get_mut(&(level, index)).expect("a dirty page is in memory");
        slot.dirty = false;
        let pointer = if slot.page.is_empty() && !is_root {
            pages.remove(&(level, index));
            None
        } else {
            let (block, hash) = slot.page.encode(birth);
            let page = space.allocate()?;
            self.disk.write(page.byte(), &block)?;
            Some(PagePointer { block: page, birth: birth.epoch, hash })
        };
        let old = if is_root {
            drop(pages);
            std::mem::replace(&mut self.root, pointer)
        } else {
            let parent = (level + 1, index / POINTERS_PER_PAGE as u64);
            if !self.load(&mut pages, parent.0, parent.1)? {
                let page = TablePage::empty(parent.0, parent.1);
                pages.insert(parent, Slot { page, dirty: true });
            }
            let slot = pages.get_mut(&parent).expect("the parent was just put there");
            slot.dirty = true;
            let pointers =
                pointers_of(&mut slot.page).expect("a page above level 0 holds pointers");
            let at = (index % POINTERS_PER_PAGE as u64) as usize;
            std::mem::replace(&mut pointers[at], pointer)
        };
        if let Some(old) = old {
            let extent = Extent { start: old.block, blocks: 1 };
            space.free(extent, old.birth, birth.epoch)?;
        }
        Ok(())
    }

    /// One level more: the old root becomes the first page below a new one.
    fn grow(&mut self) {
        let level = self.levels as u8;
        let mut page = TablePage::empty(level, 0);
        if let Some(pointers) = pointers_of(&mut page) {
            pointers[0] = self.root.take();
        }
        self.lock().insert((level, 0), Slot { page, dirty: true });
        self.levels += 1;
        self.dirty += 1;
        assert!(self.levels <= TABLE_LEVELS_MAX, "node ids are below the table's capacity");
    }

    /// Brings a page into memory; false if it does not exist.
    fn load(&self, pages: &mut BTreeMap<(u8, u64), Slot>, level: u8, index: u64) -> Result<bool> {
        if pages.contains_key(&(level, index)) {
            return Ok(true);
        }
        let pointer = if u32::from(level) + 1 == self.levels {
            self.root
        } else {
            let parent = (level + 1, index / POINTERS_PER_PAGE as u64);
            if !self.load(pages, parent.0, parent.1)? {
                return Ok(false);
            }
            let slot = pages.get_mut(&parent).expect("the parent was just loaded");
            let at = (index % POINTERS_PER_PAGE as u64) as usize;
            pointers_of(&mut slot.page).and_then(|pointers| pointers[at])
        };
        let Some(pointer) = pointer else { return Ok(false) };
        let page = read_page(&self.disk, self.volume, &pointer, level, index)?;
        pages.insert((level, index), Slot { page, dirty: false });
        Ok(true)
    }

    fn trim(&mut self) {
        let mut pages = self.lock();
        if pages.len() > CLEAN_PAGES_MAX {
            pages.retain(|_, slot| slot.dirty);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u8, u64), Slot>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a page and verifies that it is the one that `pointer` means.
pub fn read_page(
    disk: &Disk,
    volume: VolumeId,
    pointer: &PagePointer,
    level: u8,
    index: u64,
) -> Result<TablePage> {
    let place = Place::Byte(pointer.block.byte());
    let block = disk.read(pointer.block.byte(), BLOCK_SIZE)?;
    let (seal, page) =
        TablePage::decode(&block, None).map_err(|error| Error::corrupt(place.clone(), error))?;
    let fault = if seal.hash != pointer.hash {
        Fault::mismatch("hash of a table page", pointer.hash, seal.hash)
    } else if seal.birth.volume != volume {
        Fault::mismatch("volume of a table page", volume, seal.birth.volume)
    } else if seal.birth.epoch != pointer.birth {
        Fault::mismatch("epoch of a table page", pointer.birth, seal.birth.epoch)
    } else if (page.level, page.index) != (level, index) {
        let found = format_args!("{}/{}", page.level, page.index);
        Fault::mismatch("level and index of a table page", format_args!("{level}/{index}"), found)
    } else {
        return Ok(page);
    };
    Err(Error::corrupt(place, fault))
}

/// How many pages of entries a table of so many levels has room for.
pub fn capacity(levels: u32) -> u64 {
    (POINTERS_PER_PAGE as u64).saturating_pow(levels - 1)
}

fn place_of(id: NodeId) -> (u64, usize) {
    let per_page = ENTRIES_PER_PAGE as u64;
    (id.0 / per_page, (id.0 % per_page) as usize)
}

fn entries(
    pages: &mut BTreeMap<(u8, u64), Slot>,
    page: u64,
) -> Option<&mut [Option<Entry>; ENTRIES_PER_PAGE]> {
    match &mut pages.get_mut(&(0, page))?.page.body {
        PageBody::Entries(entries) => Some(entries),
        PageBody::Pointers(_) => None,
    }
}

fn pointers_of(page: &mut TablePage) -> Option<&mut [Option<PagePointer>; POINTERS_PER_PAGE]> {
    match &mut page.body {
        PageBody::Pointers(pointers) => Some(pointers),
        PageBody::Entries(_) => None,
    }
}
