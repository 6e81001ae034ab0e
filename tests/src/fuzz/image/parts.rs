//! The parts of an image that hashes are of: where they are, their fields, and where their hashes stand.
//!
//! So fields can be changed and all hashes be made right again, up to the superblock, while everything stays in its
//! place. Only for images in which nothing is scattered and the space map has one page.

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use betr_core::device::{Device, Disk, MemoryDevice};
use betr_core::format::*;
use betr_core::ids::*;
use betr_core::log::LogReader;
use betr_core::space::map::{choose_slot, map_hash, slot_at};
use betr_core::volume::{Mode, slot_block};
use bytes::Bytes;

use crate::{open, tight};

/// What a part is.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// A structure with a seal.
    Sealed(Magic),
    /// A key section of a leaf of this tree and length.
    Section(TreeId, u32),
    /// Values.
    Chunk,
    /// A slice of so many messages.
    Slice(u32),
    /// So many range messages.
    Ranges(u32),
}

/// Bytes that a hash is of.
pub struct Part {
    pub what: What,
    pub range: Range<usize>,
    /// Where its fields are; chunks have none.
    pub fields: Vec<Range<usize>>,
    /// Where its hash stands.
    hash_at: Vec<usize>,
    /// Where the hash over the hashes of all pages stands, if it is one of the space map.
    map_hash_at: Vec<usize>,
}

/// All parts of an image.
pub struct Parts {
    /// Each before those that hold its hash.
    pub all: Vec<Part>,
    /// Their fields.
    fields: Vec<Range<usize>>,
}

impl Parts {
    /// Takes an image apart.
    pub fn of(image: &[u8]) -> Parts {
        let device = Arc::new(MemoryDevice::from(image.to_vec()));
        let volume = open(device.clone(), Mode::Checkpoint, tight(), 1).unwrap().0;
        let (superblock, ring) = (volume.superblock().clone(), volume.identity().ring);
        let mut finder = Finder { image, found: Vec::new() };
        let disk = Disk::new(device);
        finder.part(What::Sealed(Magic::Identity), IDENTITY_AT as usize, BLOCK_SIZE, vec![]);
        let slots = (0..16).map(|pair| 2 * pair).find(|slot| {
            let at = slot_block(ring, *slot).byte() as usize;
            let found = Superblock::decode(&image[at..at + BLOCK_SIZE], None);
            found.is_ok_and(|found| found.birth == superblock.birth)
        });
        let first = slots.expect("the newest superblock is whole");
        let (mut map_at, mut table_at) = (Vec::new(), Vec::new());
        for slot in [first, first + 1] {
            let at = slot_block(ring, slot).byte() as usize;
            let hashes = finder.part(What::Sealed(Magic::Superblock), at, BLOCK_SIZE, vec![]);
            map_at.push(hashes[0]);
            table_at.extend(&hashes[1..3]);
        }
        assert_eq!(superblock.map_pages, 1, "a small image");
        let slot = choose_slot(&disk, &superblock, 0).unwrap().0;
        let at = slot_at(superblock.map_start, 0, slot) as usize;
        finder.part(What::Sealed(Magic::SpaceMap), at, BLOCK_SIZE, vec![]);
        finder.found.last_mut().unwrap().map_hash_at = map_at;
        finder.page(superblock.table.page.block, table_at);
        let mut reader = LogReader::new(&disk, &superblock);
        while let Ok(scanned) = reader.next().unwrap() {
            let at = superblock.log_start.byte() as usize + scanned.unit as usize * BLOCK_SIZE;
            finder.group(at, &scanned.bytes, &scanned.group);
        }
        finder.found.reverse();
        let fields = finder.found.iter().flat_map(|part| part.fields.clone()).collect();
        Parts { all: finder.found, fields }
    }

    /// One of the parts, whatever number it is asked with.
    pub fn part(&self, number: usize) -> Range<usize> {
        self.all[number % self.all.len()].range.clone()
    }

    /// One of the fields.
    pub fn field(&self, number: usize) -> Range<usize> {
        self.fields[number % self.fields.len()].clone()
    }

    /// Makes the hashes right of all parts that bytes at `changed` belong to.
    pub fn seal(&self, device: &dyn Device, changed: &[usize]) {
        let mut changed = changed.to_vec();
        for part in &self.all {
            if !changed.iter().any(|at| part.range.contains(at)) {
                continue;
            }
            let mut bytes = vec![0; part.range.len()];
            device.read_at(part.range.start as u64, &mut bytes).unwrap();
            let hash = match part.what {
                What::Sealed(_) => Seal::close(&mut bytes),
                _ => Hash::of(&bytes),
            };
            for at in &part.hash_at {
                device.write_at(*at as u64, &hash.0).unwrap();
            }
            for at in &part.map_hash_at {
                device.write_at(*at as u64, &map_hash([hash].into_iter()).0).unwrap();
            }
            changed.extend(part.hash_at.iter().chain(&part.map_hash_at));
        }
    }
}

struct Finder<'i> {
    image: &'i [u8],
    found: Vec<Part>,
}

impl Finder<'_> {
    /// Adds a part whose hash stands at `hash_at`, and in its seal if it has one; returns where the hashes stand that it
    /// holds of others.
    fn part(&mut self, what: What, at: usize, len: usize, mut hash_at: Vec<usize>) -> Vec<usize> {
        let range = at..at + len;
        let bytes = Bytes::copy_from_slice(&self.image[range.clone()]);
        let mut fields = Recorder::default();
        let listen: Option<&mut dyn Trace> = Some(&mut fields);
        let decoded = match what {
            What::Sealed(magic) => sealed(magic, &bytes, listen),
            What::Section(tree, leaf) => KeySection::decode(&bytes, tree, leaf, listen).map(|_| ()),
            What::Slice(count) => decode_slice(&bytes, count as usize, listen).map(|_| ()),
            What::Ranges(count) => decode_ranges(&bytes, count as usize, listen).map(|_| ()),
            What::Chunk => Ok(()),
        };
        decoded.unwrap_or_else(|error| panic!("{what:?} at {at:#x}: {error}"));
        let own = matches!(what, What::Sealed(_)).then_some(8);
        let others = fields
            .0
            .iter()
            .filter(|(name, field)| name.ends_with("hash") && own != Some(field.start));
        let others = others.map(|(_, field)| at + field.start).collect();
        hash_at.extend(own.map(|own| at + own));
        let fields = fields.0.into_iter().map(|(_, field)| at + field.start..at + field.end);
        let fields = fields.filter(|field| !field.is_empty()).collect();
        self.found.push(Part { what, range, fields, hash_at, map_hash_at: Vec::new() });
        others
    }

    fn page(&mut self, block: BlockNr, hash_at: Vec<usize>) {
        let at = block.byte() as usize;
        let page = TablePage::decode(&self.image[at..at + BLOCK_SIZE], None).unwrap().1;
        let hashes = self.part(What::Sealed(Magic::TablePage), at, BLOCK_SIZE, hash_at);
        match page.body {
            PageBody::Pointers(pointers) => {
                for (pointer, hash) in pointers.iter().flatten().zip(hashes) {
                    self.page(pointer.block, vec![hash]);
                }
            }
            PageBody::Entries(entries) => {
                for (entry, hash) in entries.iter().flatten().zip(hashes) {
                    match entry.height {
                        Height(0) => self.leaf(entry.extent, entry.head_bytes, hash),
                        _ => self.internal(entry, hash),
                    }
                }
            }
        }
    }

    fn leaf(&mut self, extent: Extent, head_bytes: u32, hash_at: usize) {
        let (at, len) = (extent.start.byte() as usize, head_bytes as usize);
        let head = LeafHead::decode(&self.image[at..at + len], None).unwrap().1;
        let hashes = self.part(What::Sealed(Magic::Leaf), at, len, vec![hash_at]);
        for (basement, hash) in head.basements.iter().zip(hashes) {
            let (start, len) = (at + basement.offset as usize, basement.bytes as usize);
            let bytes = &self.image[start..start + len];
            let section = KeySection::decode(bytes, head.tree, head.leaf_bytes, None).unwrap();
            let what = What::Section(head.tree, head.leaf_bytes);
            let hashes = self.part(what, start, len, vec![hash]);
            for (chunk, hash) in section.chunks.iter().zip(hashes) {
                let start = at + chunk.offset as usize;
                self.part(What::Chunk, start, chunk.bytes as usize, vec![hash]);
            }
        }
    }

    fn internal(&mut self, entry: &Entry, hash_at: usize) {
        let (at, len) = (entry.extent.start.byte() as usize, entry.head_bytes as usize);
        let head = InternalHead::decode(&self.image[at..at + len], None).unwrap().1;
        let hashes = self.part(What::Sealed(Magic::Internal), at, len, vec![hash_at]);
        let mut hashes = hashes.into_iter().map(|at| vec![at]);
        let mut next = || hashes.next().expect("a run has a hash for each of its parts");
        for run in &head.runs {
            let start = run.extent.start.byte() as usize;
            self.part(What::Sealed(Magic::Run), start, RUN_HEADER_BYTES, next());
            let ranges = next();
            if run.ranges.count > 0 {
                let (at, len) = (start + run.ranges.offset as usize, run.ranges.bytes as usize);
                self.part(What::Ranges(run.ranges.count), at, len, ranges);
            }
            for slice in &run.slices {
                let SectionRef { offset, bytes, count, .. } = slice.section;
                self.part(What::Slice(count), start + offset as usize, bytes as usize, next());
            }
        }
    }

    fn group(&mut self, at: usize, bytes: &[u8], group: &Group) {
        let hashes = self.part(What::Sealed(Magic::LogGroup), at, bytes.len(), vec![]);
        // Each place has its own, and that of its map.
        let mut hashes = hashes.into_iter().step_by(2);
        for binding in &group.bindings {
            match &binding.to {
                Bound::Leaf(leaf) => {
                    self.leaf(leaf.extent, leaf.head_bytes, hashes.next().unwrap())
                }
                Bound::Slice(slice) => {
                    let start = slice.extent.start.byte() as usize + slice.offset as usize;
                    let hash = vec![hashes.next().unwrap()];
                    self.part(What::Slice(slice.count), start, slice.bytes as usize, hash);
                }
                Bound::Inline(_) | Bound::Null => {}
            }
        }
    }
}

fn sealed(magic: Magic, bytes: &Bytes, listen: Option<&mut dyn Trace>) -> Result<(), FormatError> {
    match magic {
        Magic::Identity => Identity::decode(bytes, listen).map(|_| ()),
        Magic::Superblock => Superblock::decode(bytes, listen).map(|_| ()),
        Magic::TablePage => TablePage::decode(bytes, listen).map(|_| ()),
        Magic::SpaceMap => MapPage::decode(bytes, listen).map(|_| ()),
        Magic::Leaf => LeafHead::decode(bytes, listen).map(|_| ()),
        Magic::Internal => InternalHead::decode(bytes, listen).map(|_| ()),
        Magic::Run => RunHeader::decode(bytes, listen).map(|_| ()),
        Magic::LogGroup => Group::decode(bytes, listen).map(|_| ()),
        Magic::ScatterMap => ScatterMap::decode(bytes, listen).map(|_| ()),
        Magic::Plan => PlanHeader::decode(bytes, listen).map(|_| ()),
    }
}

/// Takes note of where fields are.
#[derive(Default)]
struct Recorder(Vec<(&'static str, Range<usize>)>);

impl Trace for Recorder {
    fn enter(&mut self, _: &'static str, _: Option<usize>) {}
    fn leave(&mut self) {}
    fn field(&mut self, name: &'static str, bytes: Range<usize>, _: &dyn Display) {
        self.0.push((name, bytes));
    }
}
