//! The allocation table: maps node ids to extents.
//!
//! On disk it is a copy-on-write radix tree of pages. A page pointer has the hash of its page, so the root's hash
//! covers the whole table. In memory, pages are loaded on demand. Changes collect in dirty pages, until a checkpoint
//! writes those and their ancestors to new places.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::TABLE_LEVELS_MAX;
use crate::format::{
    Birth, ENTRIES_PER_PAGE, Entry, POINTERS_PER_PAGE, PageBody, PagePointer, TablePage, TableRoot,
};
use crate::ids::*;
use crate::page;
use crate::space::{Owner, Retired, Space};
use crate::tuning::CLEAN_PAGES_MAX;

/// The allocation table of one volume.
pub struct Table {
    disk: Disk,
    volume: VolumeId,
    root: Option<PagePointer>,
    levels: u32,
    /// Number of entries.
    nodes: u64,
    /// Number of dirty pages.
    dirty: u64,
    /// Whether nodes may have several edges.
    shares: bool,
    /// The numbers of edges of nodes that have no entries yet, where they are not 1.
    unwritten: BTreeMap<NodeId, u32>,
    pages: Mutex<Pages>,
}

/// Pages in memory, by level and index. Only changes of the table evict pages.
type Pages = BTreeMap<(u8, u64), Slot>;

struct Slot {
    page: TablePage,
    dirty: bool,
}

impl Table {
    /// A table without entries.
    pub fn empty(disk: Disk, volume: VolumeId) -> Table {
        let slot = Slot { page: TablePage::empty(0, 0), dirty: true };
        let pages = Mutex::new(BTreeMap::from([((0, 0), slot)]));
        Table { dirty: 1, pages, ..Table::unloaded(disk, volume, None, 1) }
    }

    /// Opens the table at `root`.
    pub fn open(disk: Disk, volume: VolumeId, root: TableRoot) -> Table {
        Table::unloaded(disk, volume, Some(root.page), root.levels)
    }

    fn unloaded(disk: Disk, volume: VolumeId, root: Option<PagePointer>, levels: u32) -> Table {
        let (unwritten, pages) = (BTreeMap::new(), Mutex::default());
        Table { disk, volume, root, levels, nodes: 0, dirty: 0, shares: false, unwritten, pages }
    }

    /// Sets the number of entries, which later changes count from.
    pub fn with_nodes(self, nodes: u64) -> Table {
        Table { nodes, ..self }
    }

    /// As the table, of a volume whose nodes may have several edges (SPEC 6).
    pub fn sharing(self, shares: bool) -> Table {
        Table { shares, ..self }
    }

    /// From now on nodes may have several edges.
    pub fn share(&mut self) {
        self.shares = true;
    }

    /// Whether nodes may have several edges.
    pub fn shares(&self) -> bool {
        self.shares
    }

    /// Number of entries.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The entry of node `id`; `None` if there is none.
    pub fn get(&self, id: NodeId) -> Result<Option<Entry>> {
        if id.0 / ENTRIES_PER_PAGE as u64 >= capacity(self.levels) {
            return Ok(None);
        }
        let (page, at) = place_of(id);
        if !self.load(0, page)? {
            return Ok(None);
        }
        let entry = match &page_of(&self.lock(), (0, page)).body {
            PageBody::Entries(entries) => entries[at],
            PageBody::Pointers(_) => None,
        };
        entry.map(|entry| self.expect_one_reference(id, entry)).transpose()
    }

    /// Sets the entry of node `id`; returns the old one. The number of its edges stays.
    pub fn place(&mut self, id: NodeId, entry: Entry) -> Result<Option<Entry>> {
        let references = self.references(id)?;
        self.unwritten.remove(&id);
        self.set(id, Some(Entry { references, ..entry }))
    }

    /// The number of edges to node `id`; 1 for one that has not been written, unless it was set (invariant 6).
    pub fn references(&self, id: NodeId) -> Result<u32> {
        let unwritten = || self.unwritten.get(&id).copied().unwrap_or(1);
        Ok(self.get(id)?.map_or_else(unwritten, |entry| entry.references))
    }

    /// Changes the number of edges of node `id`, which may not have been written yet.
    pub fn set_references(&mut self, id: NodeId, references: u32) -> Result<()> {
        match self.get(id)? {
            Some(entry) => self.set(id, Some(Entry { references, ..entry })).map(drop),
            None => {
                self.unwritten.insert(id, references);
                Ok(())
            }
        }
    }

    /// The nodes without edges, which wait to be freed. Reads the whole table, which must be as on disk, until it has
    /// found `count` of them. What cannot be read is left out.
    pub fn dying(&self, count: u64) -> Vec<NodeId> {
        let mut dying = Vec::new();
        let mut waiting: Vec<(u8, u64, PagePointer)> =
            self.root.iter().map(|root| (self.levels as u8 - 1, 0, *root)).collect();
        while let Some((level, index, pointer)) = waiting.pop()
            && (dying.len() as u64) < count
        {
            let read = read_page(&self.disk, self.volume, &pointer, level, index);
            let Ok(page) = read else { continue };
            match page.body {
                PageBody::Entries(entries) => {
                    let numbered = (index * ENTRIES_PER_PAGE as u64..).map(NodeId).zip(*entries);
                    let is_dying = |(_, entry): &(NodeId, Option<Entry>)| {
                        entry.is_some_and(|entry| entry.references == 0)
                    };
                    dying.extend(numbered.filter(is_dying).map(|(id, _)| id));
                }
                PageBody::Pointers(pointers) => {
                    let below = (index * POINTERS_PER_PAGE as u64..).zip(*pointers);
                    let below = below.filter_map(|(at, to)| Some((level - 1, at, to?)));
                    waiting.extend(below);
                }
            }
        }
        dying
    }

    /// Removes the entry of node `id`, whose last edge was removed; returns it. Where nothing is shared it had no other
    /// (invariant 6).
    pub fn remove(&mut self, id: NodeId) -> Result<Option<Entry>> {
        self.unwritten.remove(&id);
        match self.get(id)? {
            Some(_) => self.set(id, None),
            None => Ok(None),
        }
    }

    fn set(&mut self, id: NodeId, entry: Option<Entry>) -> Result<Option<Entry>> {
        self.get(id)?;
        let (page, at) = place_of(id);
        if page >= capacity(TABLE_LEVELS_MAX) {
            let fault = Fault::mismatch("node id", "one that the table has room for", id);
            return Err(Error::corrupt(Place::Node { id, byte: None }, fault));
        }
        while page >= capacity(self.levels) {
            self.grow();
        }
        let slot = self.slot(0, page)?;
        let fresh = u64::from(!std::mem::replace(&mut slot.dirty, true));
        let PageBody::Entries(entries) = &mut slot.page.body else {
            unreachable!("a page of level 0 holds entries")
        };
        let old = std::mem::replace(&mut entries[at], entry);
        self.dirty += fresh;
        // A corrupt image may state a wrong number, which the checker finds.
        self.nodes = self.nodes.saturating_add(u64::from(entry.is_some()));
        self.nodes = self.nodes.saturating_sub(u64::from(old.is_some()));
        Ok(old)
    }

    /// The most pages that are written if `more` nodes move, all with ids below `end`.
    pub fn blocks_max(&self, more: u64, end: NodeId) -> u64 {
        let mut pages = end.0.div_ceil(ENTRIES_PER_PAGE as u64);
        let mut all = 0;
        // Each level may get one new page.
        for _ in 0..=self.levels {
            all += pages.min(self.dirty + more) + 1;
            pages = pages.div_ceil(POINTERS_PER_PAGE as u64);
        }
        all
    }

    /// Writes dirty pages and their ancestors to new places; returns the new root.
    pub fn write(&mut self, space: &mut Space, birth: Birth) -> Result<TableRoot> {
        for level in 0..self.levels as u8 {
            let level_pages = own(&mut self.pages).range((level, 0)..=(level, u64::MAX));
            let dirty: Vec<u64> =
                level_pages.filter(|(_, slot)| slot.dirty).map(|((_, index), _)| *index).collect();
            for index in dirty {
                self.write_page(space, birth, level, index)?;
            }
        }
        self.dirty = 0;
        self.trim();
        let page = self.root.expect("a table that was written has a root");
        Ok(TableRoot { page, levels: self.levels })
    }

    /// Writes a page to a new place. An empty page other than the root is removed instead: ids are not reused.
    fn write_page(&mut self, space: &mut Space, birth: Birth, level: u8, index: u64) -> Result<()> {
        let is_root = u32::from(level) + 1 == self.levels;
        let pages = own(&mut self.pages);
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
            std::mem::replace(&mut self.root, pointer)
        } else {
            let (parent, at) = pointer_place(level, index);
            let slot = self.slot(parent.0, parent.1)?;
            slot.dirty = true;
            let pointers =
                pointers_of(&mut slot.page).expect("a page above level 0 holds pointers");
            std::mem::replace(&mut pointers[at], pointer)
        };
        if let Some(old) = old {
            let extent = Extent { start: old.block, blocks: 1 };
            let owner = Owner::TablePage(level, index);
            space.retire(Retired { extent, birth: old.birth, owner }, birth)?;
        }
        Ok(())
    }

    /// Adds a level: the old root becomes the first page below a new one.
    fn grow(&mut self) {
        let level = self.levels as u8;
        let mut page = TablePage::empty(level, 0);
        if let Some(pointers) = pointers_of(&mut page) {
            pointers[0] = self.root.take();
        }
        own(&mut self.pages).insert((level, 0), Slot { page, dirty: true });
        self.levels += 1;
        self.dirty += 1;
        assert!(self.levels <= TABLE_LEVELS_MAX, "node ids are below the table's capacity");
    }

    /// The entry, if a node of this volume may have as many edges: one where nothing is shared (invariant 6).
    fn expect_one_reference(&self, id: NodeId, entry: Entry) -> Result<Entry> {
        match entry.references {
            1 => Ok(entry),
            _ if self.shares => Ok(entry),
            count => {
                let fault =
                    Fault::mismatch("references of a node in the allocation table", 1, count);
                Err(Error::corrupt(Place::Node { id, byte: None }, fault))
            }
        }
    }

    /// Marks the root as dirty; first adds levels until there are `levels`.
    pub fn renew_root(&mut self, levels: u32) -> Result<()> {
        while self.levels < levels {
            self.grow();
        }
        let slot = self.slot(self.levels as u8 - 1, 0)?;
        let fresh = u64::from(!std::mem::replace(&mut slot.dirty, true));
        self.dirty += fresh;
        Ok(())
    }

    /// Loads a page; returns false if it does not exist. It is read without the lock, so that lookups of other pages do
    /// not wait for the device.
    fn load(&self, level: u8, index: u64) -> Result<bool> {
        if self.lock().contains_key(&(level, index)) {
            return Ok(true);
        }
        let pointer = if u32::from(level) + 1 == self.levels {
            self.root
        } else {
            let (parent, at) = pointer_place(level, index);
            if !self.load(parent.0, parent.1)? {
                return Ok(false);
            }
            match &page_of(&self.lock(), parent).body {
                PageBody::Pointers(pointers) => pointers[at],
                PageBody::Entries(_) => None,
            }
        };
        let Some(pointer) = pointer else { return Ok(false) };
        let page = read_page(&self.disk, self.volume, &pointer, level, index)?;
        // Another thread may have read it meanwhile.
        self.lock().entry((level, index)).or_insert(Slot { page, dirty: false });
        Ok(true)
    }

    /// A page to be changed; an empty one if it did not exist.
    fn slot(&mut self, level: u8, index: u64) -> Result<&mut Slot> {
        self.load(level, index)?;
        let empty = || Slot { page: TablePage::empty(level, index), dirty: false };
        Ok(own(&mut self.pages).entry((level, index)).or_insert_with(empty))
    }

    fn trim(&mut self) {
        let pages = own(&mut self.pages);
        if pages.len() > CLEAN_PAGES_MAX {
            pages.retain(|_, slot| slot.dirty);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NAMES: page::Names = page::Names {
    hash: "hash of a table page",
    volume: "volume of a table page",
    epoch: "epoch of a table page",
};

/// Reads a page, and verifies that it matches `pointer`.
pub fn read_page(
    disk: &Disk,
    volume: VolumeId,
    pointer: &PagePointer,
    level: u8,
    index: u64,
) -> Result<TablePage> {
    let page = page::read(disk, volume, pointer, TablePage::decode, &NAMES)?;
    if (page.level, page.index) == (level, index) {
        return Ok(page);
    }
    let (expected, found) = (format!("{level}/{index}"), format!("{}/{}", page.level, page.index));
    let fault = Fault::mismatch("level and index of a table page", expected, found);
    Err(Error::corrupt(Place::Byte(pointer.block.byte()), fault))
}

/// The number of entry pages that a table of `levels` levels can have.
pub fn capacity(levels: u32) -> u64 {
    (POINTERS_PER_PAGE as u64).saturating_pow(levels - 1)
}

fn place_of(id: NodeId) -> (u64, usize) {
    let per_page = ENTRIES_PER_PAGE as u64;
    (id.0 / per_page, (id.0 % per_page) as usize)
}

/// The page above another one, and the index of its pointer there.
fn pointer_place(level: u8, index: u64) -> ((u8, u64), usize) {
    let per_page = POINTERS_PER_PAGE as u64;
    ((level + 1, index / per_page), (index % per_page) as usize)
}

/// A loaded page.
fn page_of(pages: &Pages, place: (u8, u64)) -> &TablePage {
    &pages.get(&place).expect("pages stay while the table is only read").page
}

/// The pages, for exclusive access.
fn own(pages: &mut Mutex<Pages>) -> &mut Pages {
    pages.get_mut().unwrap_or_else(PoisonError::into_inner)
}

fn pointers_of(page: &mut TablePage) -> Option<&mut [Option<PagePointer>; POINTERS_PER_PAGE]> {
    match &mut page.body {
        PageBody::Pointers(pointers) => Some(pointers),
        PageBody::Entries(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::device::{Device, MemoryDevice};
    use crate::space::Layout;

    const BLOCKS: u64 = 2000;

    fn birth(epoch: u64) -> Birth {
        Birth { volume: VolumeId([1; 16]), epoch: Epoch(epoch), nonce: Nonce(epoch) }
    }

    fn entry(number: u64) -> Entry {
        Entry {
            extent: Extent { start: BlockNr(100 + number), blocks: 1 },
            references: 1,
            birth: Epoch(1),
            height: Height(0),
            tree: TreeId::Data,
            head_bytes: 200,
            hash: Hash([number as u8; 32]),
        }
    }

    fn written(device: Arc<dyn Device>, ids: &[u64]) -> (Table, Space, TableRoot) {
        let disk = Disk::new(device);
        let mut space = Space::empty(disk.clone(), &Layout::of_nodes(10, BLOCKS));
        space.reserve(BlockNr(0), 10);
        let mut table = Table::empty(disk, VolumeId([1; 16]));
        for id in ids {
            assert_eq!(table.place(NodeId(*id), entry(*id)).unwrap(), None);
        }
        let root = table.write(&mut space, birth(1)).unwrap();
        (table, space, root)
    }

    #[test]
    fn what_was_set_is_there_when_it_is_opened_again() {
        // One page, several, one level more, and two more.
        let cases: [(&[u64], u32, usize); 4] =
            [(&[1], 1, 1), (&[1, 70], 2, 3), (&[1, 62 * 60], 2, 3), (&[1, 62 * 5000], 3, 5)];
        for (ids, levels, pages) in cases {
            let device = Arc::new(MemoryDevice::new(BLOCKS * BLOCK_SIZE as u64));
            let (mut table, mut space, root) = written(device.clone(), ids);
            assert_eq!((root.levels, table.nodes()), (levels, ids.len() as u64), "{ids:?}");
            let used = space.used_blocks();
            assert_eq!(used, 10 + pages as u64, "{ids:?}");
            let again = Table::open(Disk::new(device), VolumeId([1; 16]), root);
            for id in ids {
                assert_eq!(again.get(NodeId(*id)).unwrap(), Some(entry(*id)), "{ids:?}");
                assert_eq!(again.get(NodeId(id + 1)).unwrap(), None, "{ids:?}");
            }
            assert_eq!(again.get(NodeId(u64::MAX)).unwrap(), None);
            // Empty pages are removed.
            for id in ids {
                assert_eq!(table.remove(NodeId(*id)).unwrap(), Some(entry(*id)));
            }
            table.write(&mut space, birth(2)).unwrap();
            assert_eq!((table.nodes(), space.used_blocks()), (0, 11), "{ids:?}");
        }
    }

    #[test]
    fn a_node_of_several_parents_is_refused_and_its_neighbours_are_not() {
        let device = Arc::new(MemoryDevice::new(BLOCKS * BLOCK_SIZE as u64));
        let (mut table, mut space, _) = written(device.clone(), &[1, 2]);
        let shared = Entry { references: 2, ..entry(1) };
        let refused = |error: Error| {
            assert!(error.is_damage() && error.to_string().contains("references"), "{error}");
        };
        // Such an entry may still be on disk.
        let slot = own(&mut table.pages).get_mut(&(0, 0)).unwrap();
        if let PageBody::Entries(entries) = &mut slot.page.body {
            entries[place_of(NodeId(1)).1] = Some(shared);
        }
        slot.dirty = true;
        let root = table.write(&mut space, birth(2)).unwrap();
        let mut again = Table::open(Disk::new(device), VolumeId([1; 16]), root);
        refused(again.get(NodeId(1)).unwrap_err());
        refused(again.place(NodeId(1), entry(1)).unwrap_err());
        refused(again.remove(NodeId(1)).unwrap_err());
        assert_eq!(again.get(NodeId(2)).unwrap(), Some(entry(2)));
        assert_eq!(again.remove(NodeId(2)).unwrap(), Some(entry(2)));
    }

    #[test]
    fn edges_are_counted_where_nodes_are_shared() {
        let device = Arc::new(MemoryDevice::new(BLOCKS * BLOCK_SIZE as u64));
        let (table, mut space, _) = written(device.clone(), &[1, 2, 70, 62 * 90]);
        let mut table = table.sharing(true);
        for (id, references) in [(1, 3), (70, 0), (62 * 90, 0)] {
            table.set_references(NodeId(id), references).unwrap();
        }
        // A node that moves keeps its edges.
        table.place(NodeId(1), entry(9)).unwrap();
        // Those of a node that has no extent yet are as lasting, unless it goes first.
        for id in [3, 4] {
            assert_eq!(table.references(NodeId(id)).unwrap(), 1);
            table.set_references(NodeId(id), 2).unwrap();
        }
        table.place(NodeId(3), entry(3)).unwrap();
        assert_eq!(table.remove(NodeId(4)).unwrap(), None);
        assert_eq!([3, 4].map(|id| table.references(NodeId(id)).unwrap()), [2, 1]);
        let root = table.write(&mut space, birth(2)).unwrap();
        let again = Table::open(Disk::new(device), VolumeId([1; 16]), root).sharing(true);
        assert_eq!(again.get(NodeId(1)).unwrap().unwrap(), Entry { references: 3, ..entry(9) });
        assert_eq!(again.dying(0), []);
        let mut dying = again.dying(9);
        dying.sort();
        assert_eq!(dying, [NodeId(70), NodeId(62 * 90)]);
    }

    /// A device that delays the reads of one block.
    struct Slow {
        device: MemoryDevice,
        block: Mutex<Option<u64>>,
        came: Mutex<Sender<()>>,
        go: Mutex<Receiver<()>>,
    }

    impl Device for Slow {
        fn len(&self) -> u64 {
            self.device.len()
        }

        fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
            if *self.block.lock().unwrap() == Some(at) {
                self.came.lock().unwrap().send(()).unwrap();
                self.go.lock().unwrap().recv().unwrap();
            }
            self.device.read_at(at, buf)
        }

        fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
            self.device.write_at(at, bytes)
        }

        fn flush(&self) -> io::Result<()> {
            self.device.flush()
        }
    }

    #[test]
    fn a_lookup_does_not_wait_for_the_page_of_another_one() {
        let (came, comes) = channel();
        let (let_go, go) = channel();
        let device = MemoryDevice::new(BLOCKS * BLOCK_SIZE as u64);
        let (block, came, go) = (Mutex::default(), Mutex::new(came), Mutex::new(go));
        let device = Arc::new(Slow { device, block, came, go });
        let (table, _, root) = written(device.clone(), &[1, 100]);
        let far = match &page_of(&table.lock(), (1, 0)).body {
            PageBody::Pointers(pointers) => pointers[1].unwrap().block,
            PageBody::Entries(_) => unreachable!("two pages of entries have one above them"),
        };
        let table = Arc::new(Table::open(Disk::new(device.clone()), VolumeId([1; 16]), root));
        *device.block.lock().unwrap() = Some(far.byte());
        let (slow, quick) = (table.clone(), table);
        let waits = std::thread::spawn(move || slow.get(NodeId(100)).unwrap());
        comes.recv().unwrap();
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(quick.get(NodeId(1)).unwrap()).unwrap());
        let found = receiver.recv_timeout(Duration::from_secs(60));
        let_go.send(()).unwrap();
        assert_eq!(found.expect("it does not wait"), Some(entry(1)));
        assert_eq!(waits.join().unwrap(), Some(entry(100)));
    }
}
