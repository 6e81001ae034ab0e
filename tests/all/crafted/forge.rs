//! A forge: decodes a sound image, lets tests change its structures, and seals them again, so that every hash is right
//! and only the content is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::device::{Device, MemoryDevice};
use betr_core::format::*;
use betr_core::ids::*;
use betr_core::space::map::map_hash;
use betr_core::space::slot_block;
use betr_core::volume::Mode;
use betr_tests::{open, tight};

/// A decoded image.
#[derive(Clone)]
pub(super) struct Forge {
    /// The bytes of the image.
    pub bytes: Vec<u8>,
    /// The newest superblock.
    pub superblock: Superblock,
    /// The pages of the table and their blocks.
    pub pages: BTreeMap<(u8, u64), (BlockNr, TablePage)>,
    /// The only page of the space map, and its slot.
    pub map: MapPage,
    map_slot: u8,
    ring: [BlockNr; 2],
}

impl Forge {
    /// Decodes an image.
    pub(super) fn new(bytes: Vec<u8>) -> Forge {
        let device = Arc::new(MemoryDevice::from(bytes.clone()));
        let volume = open(device, Mode::Checkpoint, tight(), 1).unwrap().0;
        let superblock = volume.superblock().clone();
        let ring = volume.identity().ring;
        assert_eq!(superblock.map_pages, 1, "a small image");
        let slots = (0..2).filter_map(|slot| {
            let at = superblock.map.slot(0, slot) as usize;
            let (seal, map) = MapPage::decode(&bytes[at..at + BLOCK_SIZE], None).ok()?;
            Some((seal.birth.epoch, slot, map))
        });
        let (_, map_slot, map) = slots.max_by_key(|slot| slot.0).unwrap();
        let mut forge = Forge { bytes, superblock, pages: BTreeMap::new(), map, map_slot, ring };
        let root = forge.superblock.table;
        forge.load_page(root.levels as u8 - 1, 0, root.page.block);
        forge
    }

    fn load_page(&mut self, level: u8, index: u64, block: BlockNr) {
        let (_, page) = TablePage::decode(self.block(block), None).unwrap();
        if let PageBody::Pointers(pointers) = &page.body {
            for (at, pointer) in pointers.clone().iter().enumerate() {
                if let Some(pointer) = pointer {
                    let index = index * POINTERS_PER_PAGE as u64 + at as u64;
                    self.load_page(level - 1, index, pointer.block);
                }
            }
        }
        self.pages.insert((level, index), (block, page));
    }

    /// The bytes of a block.
    pub(super) fn block(&self, block: BlockNr) -> &[u8] {
        &self.bytes[block.byte() as usize..][..BLOCK_SIZE]
    }

    /// Writes bytes at a block.
    pub(super) fn write(&mut self, block: BlockNr, bytes: &[u8]) {
        self.bytes[block.byte() as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// All nodes.
    pub(super) fn nodes(&self) -> Vec<(NodeId, Entry)> {
        let mut nodes = Vec::new();
        for ((_, index), (_, page)) in &self.pages {
            if let PageBody::Entries(entries) = &page.body {
                let id = |at: usize| NodeId(index * ENTRIES_PER_PAGE as u64 + at as u64);
                let found = entries.iter().enumerate();
                nodes.extend(found.filter_map(|(at, entry)| Some((id(at), (*entry)?))));
            }
        }
        nodes
    }

    /// The slot of a node in the table.
    pub(super) fn slot(&mut self, id: NodeId) -> &mut Option<Entry> {
        let per_page = ENTRIES_PER_PAGE as u64;
        let page = self.pages.get_mut(&(0, id.0 / per_page)).unwrap();
        match &mut page.1.body {
            PageBody::Entries(entries) => &mut entries[(id.0 % per_page) as usize],
            PageBody::Pointers(_) => unreachable!(),
        }
    }

    /// The table entry of a node.
    pub(super) fn entry(&mut self, id: NodeId) -> &mut Entry {
        self.slot(id).as_mut().unwrap()
    }

    fn head(&mut self, id: NodeId) -> Vec<u8> {
        let entry = *self.entry(id);
        self.bytes[entry.extent.start.byte() as usize..][..entry.head_bytes as usize].to_vec()
    }

    /// The decoded head of an internal node.
    pub(super) fn internal(&mut self, id: NodeId) -> InternalHead {
        InternalHead::decode(&self.head(id), None).unwrap().1
    }

    /// The decoded head of a leaf.
    pub(super) fn leaf(&mut self, id: NodeId) -> LeafHead {
        LeafHead::decode(&self.head(id), None).unwrap().1
    }

    /// The birth with which everything is sealed.
    pub(super) fn birth(&self) -> Birth {
        self.superblock.birth
    }

    /// Whether a block is marked as used.
    pub(super) fn is_used(&self, block: u64) -> bool {
        self.map.bitmap[(block / 8) as usize] >> (block % 8) & 1 == 1
    }

    /// Marks blocks as used or free.
    pub(super) fn mark(&mut self, blocks: std::ops::Range<u64>, used: bool) {
        for block in blocks {
            let byte = &mut self.map.bitmap[(block / 8) as usize];
            *byte = *byte & !(1 << (block % 8)) | u8::from(used) << (block % 8);
        }
    }

    /// Writes bytes to free blocks and marks these as used.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Extent {
        let blocks = bytes.len().div_ceil(BLOCK_SIZE) as u64;
        let mut starts = 0..self.superblock.image_blocks - blocks;
        let free = |start: &u64| (*start..start + blocks).all(|block| !self.is_used(block));
        let start = starts.find(free).expect("room in the image");
        self.mark(start..start + blocks, true);
        let extent = Extent { start: BlockNr(start), blocks: blocks as u32 };
        let mut padded = bytes.to_vec();
        padded.resize(blocks as usize * BLOCK_SIZE, 0);
        self.write(extent.start, &padded);
        extent
    }

    fn release(&mut self, extent: Extent) {
        self.mark(extent.start.0..extent.end().0, false);
    }

    /// Writes a new head for internal node `id`.
    pub(super) fn put_internal(&mut self, id: NodeId, head: &InternalHead) {
        let (bytes, hash) = head.encode(self.birth());
        if let Some(old) = *self.slot(id) {
            self.release(old.extent);
        }
        let extent = self.put(&bytes);
        *self.slot(id) = Some(Entry {
            extent,
            head_bytes: bytes.len() as u32,
            hash,
            birth: self.birth().epoch,
            references: 1,
            tree: head.tree,
            height: head.height,
        });
    }

    /// Changes the head of an internal node.
    pub(super) fn change(&mut self, id: NodeId, change: impl FnOnce(&mut InternalHead)) {
        let mut head = self.internal(id);
        change(&mut head);
        self.put_internal(id, &head);
    }

    /// The key section of basement 0 of a leaf.
    pub(super) fn keys(&mut self, id: NodeId) -> KeySection {
        let (head, start) = (self.leaf(id), self.slot(id).unwrap().extent.start.byte());
        let at = head.basements.at(0).keys();
        let section = &self.bytes[(start + u64::from(at.start)) as usize..][..at.len()];
        KeySection::decode(section, head.tree, None).unwrap()
    }

    /// Puts a leaf in the place of node `id`: key sections, each with the bytes of small chunks and the number of file
    /// blocks that the head states for it. All values are zeros.
    pub(super) fn put_leaf(
        &mut self,
        id: NodeId,
        tree: TreeId,
        bounds: Bounds,
        firsts: &[Key],
        sections: &[(KeySection, (u32, u32))],
    ) {
        let encoded: Vec<Vec<u8>> = sections.iter().map(|(section, _)| section.encode()).collect();
        let parts = || sections.iter().zip(&encoded).zip(firsts);
        let sizes = parts().map(|(((section, (small, blocks)), bytes), first)| BasementSize {
            bytes: bytes.len() as u32,
            small: *small,
            blocks: *blocks,
            entries: section.entries().len() as u32,
            first: first.len(),
        });
        let head_bytes = LeafHead::encoded_bytes(tree, &bounds, sizes) as u32;
        let sizes = parts().map(|(((_, (small, blocks)), bytes), _)| PartSizes {
            keys: bytes.len() as u32,
            small: *small,
            blocks: *blocks,
        });
        let mut places = Places::behind(head_bytes, sizes.clone()).unwrap();
        let leaf_bytes = places.end();
        let mut body = vec![0; (leaf_bytes - head_bytes) as usize];
        let mut basements = Basements::default();
        for (sizes, (((section, _), bytes), first)) in sizes.zip(parts()) {
            let offsets = places.next(sizes);
            body[(offsets.keys - head_bytes) as usize..][..bytes.len()].copy_from_slice(bytes);
            basements.push(BasementRef {
                offset: offsets.keys,
                bytes: sizes.keys,
                small_at: offsets.small,
                small: sizes.small,
                blocks_at: offsets.blocks,
                blocks: sizes.blocks,
                entries: section.entries().len() as u32,
                hash: Hash::of(bytes),
                first,
            });
        }
        let head = LeafHead { id, tree, write_seq: 1, leaf_bytes, bounds, basements, padding: 0 };
        let (mut bytes, hash) = head.encode(self.birth());
        bytes.extend(body);
        if let Some(old) = *self.slot(id) {
            self.release(old.extent);
        }
        let extent = self.put(&bytes);
        *self.slot(id) = Some(Entry {
            extent,
            head_bytes,
            hash,
            birth: self.birth().epoch,
            references: 1,
            tree,
            height: Height(0),
        });
    }

    /// A run with these messages, written to free blocks.
    pub(super) fn run(
        &mut self,
        node: NodeId,
        tree: TreeId,
        seq: RunSeq,
        slices: &[(u16, Vec<(Key, Message)>)],
        ranges: &[RangeDelete],
    ) -> RunRef {
        let mut w = Writer::default();
        w.pad_to(RUN_HEADER_BYTES);
        let section = |w: &Writer, start: usize, count: usize, greatest: Option<Msn>| SectionRef {
            offset: start as u32,
            bytes: (w.len() - start) as u32,
            count: count as u32,
            greatest: greatest.unwrap_or_default(),
            hash: Hash::of(&w.as_slice()[start..]),
        };
        let mut list = SliceList::default();
        let mut before = None;
        for (child, messages) in slices {
            let start = w.len();
            let greatest = messages.iter().map(|(_, message)| message.msn).max();
            let all = messages.iter().map(|(key, message)| MessageRef::of(key, message));
            encode_slice(&mut w, greatest.unwrap_or_default(), all);
            let section = section(&w, start, messages.len(), greatest);
            let growth = messages.iter().map(|(key, message)| {
                betr_core::node::Item::new(key, message.msn, &message.action).leaf_growth()
            });
            let again = before.replace(*child) == Some(*child);
            let first: &[u8] = if again { &messages[0].0 } else { &[] };
            list.push(*child, first, growth.sum(), section, |filters| {
                push_filter(filters, messages.iter().map(|(key, _)| &**key), messages.len());
            });
        }
        let mut range_section = SectionRef::default();
        if !ranges.is_empty() {
            let start = w.len();
            encode_ranges(&mut w, ranges.iter());
            let greatest = ranges.iter().map(|range| range.msn).max();
            range_section = section(&w, start, ranges.len(), greatest);
        }
        let bytes = w.len() as u32;
        let (header, header_hash) = RunHeader { node, seq, tree, bytes }.encode(self.birth());
        w.patch(0, &header);
        let extent = self.put(&w.finish());
        let birth = self.birth().epoch;
        let (slices, filters) = list.finish();
        let ranges = range_section;
        RunRef { seq, extent, bytes, birth, header_hash, ranges, slices, filters }
    }

    /// Adds a run to a node.
    pub(super) fn add_run(
        &mut self,
        id: NodeId,
        slices: &[(u16, Vec<(Key, Message)>)],
        ranges: &[RangeDelete],
    ) {
        let head = self.internal(id);
        let run = self.run(id, head.tree, head.next_run, slices, ranges);
        self.change(id, |head| {
            head.next_run.0 += 1;
            head.runs.push(run);
        });
    }

    /// Seals table, map and superblock.
    pub(super) fn seal(self) -> Vec<u8> {
        self.seal_with(|_| {})
    }

    /// Seals table and map, changes the superblock, and seals that.
    pub(super) fn seal_with(mut self, change: impl FnOnce(&mut Superblock)) -> Vec<u8> {
        self.seal_pages(|_, _| {});
        self.seal_map();
        self.count();
        let before = self.superblock.clone();
        change(&mut self.superblock);
        let after = &self.superblock;
        let same = (after.birth, after.next_msn) == (before.birth, before.next_msn);
        if !same && after.map_hash == before.map_hash {
            // The map must still agree, except for deliberate changes.
            let used_blocks = after.used_blocks;
            self.seal_map();
            self.superblock.used_blocks = used_blocks;
        }
        self.seal_superblock();
        self.bytes
    }

    /// Seals the pages of the table from the lowest level to the root; `change` may falsify each pointer on the way.
    pub(super) fn seal_pages(&mut self, change: impl Fn((u8, u64), &mut PagePointer)) {
        let birth = self.birth();
        let places: Vec<(u8, u64)> = self.pages.keys().copied().collect();
        for place @ (level, index) in places {
            let (block, page) = self.pages[&place].clone();
            let (bytes, hash) = page.encode(birth);
            self.write(block, &bytes);
            let mut pointer = PagePointer { block, birth: birth.epoch, hash };
            change(place, &mut pointer);
            let above = (level + 1, index / POINTERS_PER_PAGE as u64);
            match self.pages.get_mut(&above) {
                Some((_, TablePage { body: PageBody::Pointers(pointers), .. })) => {
                    pointers[(index % POINTERS_PER_PAGE as u64) as usize] = Some(pointer);
                }
                _ => {
                    self.superblock.table.page = pointer;
                }
            }
        }
    }

    /// Seals the space map.
    pub(super) fn seal_map(&mut self) {
        self.map.next_msn = self.superblock.next_msn;
        let (bytes, hash) = self.map.encode(self.birth());
        let at = self.superblock.map.slot(0, self.map_slot) as usize;
        self.bytes[at..at + BLOCK_SIZE].copy_from_slice(&bytes);
        self.superblock.map_hash = map_hash([hash].into_iter());
        self.superblock.used_blocks = self.map.used().into();
    }

    /// Recounts nodes and pending growth, as far as heads decode.
    fn count(&mut self) {
        let nodes = self.nodes();
        self.superblock.nodes = nodes.len() as u64;
        self.superblock.inflow = Inflow::default();
        for (_, entry) in nodes.iter().filter(|(_, entry)| entry.height > Height(0)) {
            let at = entry.extent.start.byte() as usize;
            let Some(bytes) = self.bytes.get(at..at + entry.head_bytes as usize) else { continue };
            let Ok((_, head)) = InternalHead::decode(bytes, None) else { continue };
            for (at, child) in head.children.iter().enumerate() {
                let live = head.runs.iter().filter(|run| run.seq >= child.first_run);
                let slices =
                    live.flat_map(|run| &run.slices).filter(|s| usize::from(s.child) == at);
                let inflow = |slice: &SliceRef| Inflow {
                    bytes: slice.section.bytes.into(),
                    growth: slice.growth,
                };
                let Inflow { bytes, growth } = slices.map(inflow).sum();
                let growth = growth.at(head.height);
                self.superblock.inflow += Inflow { bytes, growth };
            }
        }
    }

    /// Writes the superblock to both slots of its epoch.
    pub(super) fn seal_superblock(&mut self) {
        let first = 2 * (self.superblock.birth.epoch.0 % 16) as u32;
        for slot in [first, first + 1] {
            let superblock = Superblock { slot, ..self.superblock.clone() };
            self.write(slot_block(self.ring, slot), &superblock.encode());
        }
    }

    /// The block of a slot of the ring.
    pub(super) fn ring_block(&self, slot: u32) -> BlockNr {
        slot_block(self.ring, slot)
    }

    /// The image as a device.
    pub(super) fn device(bytes: Vec<u8>) -> Arc<dyn Device> {
        Arc::new(MemoryDevice::from(bytes))
    }

    /// Writes a group with these records at a unit of the log; returns the unit after it.
    pub(super) fn group(&mut self, unit: u64, number: u64, records: &[Record]) -> u64 {
        self.binding_group(unit, number, records, &[])
    }

    /// The same for a group with bindings.
    pub(super) fn binding_group(
        &mut self,
        unit: u64,
        number: u64,
        records: &[Record],
        bindings: &[Binding],
    ) -> u64 {
        let mut writer = GroupWriter::default();
        records.iter().for_each(|record| writer.push(record));
        let group = writer.seal(bindings, self.birth(), Nonce(0), number, number - 1);
        for (at, block) in group.chunks(BLOCK_SIZE).enumerate() {
            let unit = (unit + at as u64) % self.superblock.log_units;
            self.write(BlockNr(self.superblock.log_start.0 + unit), block);
        }
        unit + (group.len() / BLOCK_SIZE) as u64
    }

    /// A record of messages.
    pub(super) fn record(&self, lsn: u64, messages: Vec<RecordMessage>) -> Record {
        Record {
            lsn: Lsn(lsn),
            op: Op::Raw,
            wall: Time::default(),
            next: self.superblock.next,
            messages,
        }
    }

    /// Writes one group with one record of these messages to the log.
    pub(super) fn log(&mut self, messages: Vec<RecordMessage>) {
        let record = self.record(self.superblock.next_msn.0, messages);
        self.group(self.superblock.log_head, self.superblock.first_group, &[record]);
    }
}
