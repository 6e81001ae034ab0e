//! Walks from the identity block down to every structure.

use std::collections::HashMap;

use bytes::Bytes;

use super::{Above, Anatomy, Kind, Part, Seals};
use betr_core::disk::Disk;
use betr_core::error::{Error, Fault, Place, Result};
use betr_core::format::{self, *};
use betr_core::holds::read_pages;
use betr_core::ids::*;
use betr_core::log::{LogReader, Region};
use betr_core::space::DeadPages;
use betr_core::space::map::choose_slot;
use betr_core::table::read_page;
use betr_core::volume::{Ring, read_identity};

/// Lists the structures of the image on `disk`.
pub(super) fn walk(disk: &Disk) -> Result<Anatomy> {
    let identity = read_identity(disk)?;
    let ring = Ring::read(disk, &identity)?;
    let superblock = ring.choose(None)?;
    let mut walker = Walker { disk, parts: Vec::new() };
    walker.sealed("identity", Kind::Identity, IDENTITY_AT, BLOCK_SIZE, Vec::new());
    let written = ring.slots().iter().filter_map(|slot| Some((slot, slot.superblock()?)));
    let newest = written.clone().filter(|(_, found)| found.birth.epoch == superblock.birth.epoch);
    let copies = newest.map(|(slot, _)| vec![(slot.byte, BLOCK_SIZE)]).collect();
    let above = walker.add("super".into(), Kind::Superblock, copies, Seals::Own, Vec::new());
    for (slot, _) in written {
        let name = format!("super:{}", slot.slot);
        walker.sealed(&name, Kind::Superblock, slot.byte, BLOCK_SIZE, Vec::new());
    }
    let map = walker.map(superblock, above)?;
    let tables = walker.holds(superblock, above)?;
    walker.tables(superblock.birth.volume, tables)?;
    walker.log(superblock)?;
    Ok(Anatomy { parts: walker.parts, map })
}

/// Lists the structures of one node and its runs. The structure above it is not read; part 0 is given as the
/// part above.
pub(super) fn node(disk: &Disk, id: NodeId, entry: &Entry) -> Result<Vec<Part>> {
    let mut walker = Walker { disk, parts: Vec::new() };
    let Entry { extent, head_bytes, height, .. } = *entry;
    let above = Above::Bytes { part: 0 };
    walker.maps(extent, None)?;
    walker.node(Found { name: &id.to_string(), extent, head_bytes, height, above })?;
    Ok(walker.parts)
}

struct Walker<'d> {
    disk: &'d Disk,
    parts: Vec<Part>,
}

/// The root of a table.
struct Rooted {
    /// The name prefix of structures that only this table has.
    prefix: String,
    root: TableRoot,
    above: Above,
}

/// A page to be visited, for the first table that refers to it.
struct Waiting {
    rank: usize,
    index: u64,
    pointer: PagePointer,
    above: Above,
}

/// A node to be visited, and its only reference (invariant 6).
struct Found<'n> {
    /// Its name.
    name: &'n str,
    extent: Extent,
    head_bytes: u32,
    height: Height,
    above: Above,
}

impl Walker<'_> {
    fn add(
        &mut self,
        name: String,
        kind: Kind,
        copies: Vec<Vec<(u64, usize)>>,
        seals: Seals,
        above: Vec<Above>,
    ) -> usize {
        self.parts.push(Part { name, kind, copies, seals, above, key: None });
        self.parts.len() - 1
    }

    /// Adds a structure with its own seal.
    fn sealed(&mut self, name: &str, kind: Kind, at: u64, len: usize, above: Vec<Above>) -> usize {
        self.add(name.into(), kind, vec![vec![(at, len)]], Seals::Own, above)
    }

    /// Adds a structure whose hash is at offset `hash` of the one above.
    fn hashed(&mut self, name: String, kind: Kind, at: u64, len: usize, above: Above) -> usize {
        self.add(name, kind, vec![vec![(at, len)]], Seals::Above, vec![above])
    }

    /// Adds a value, which is part of the structure above.
    fn value(
        &mut self,
        name: String,
        kind: Kind,
        rows: (u64, usize),
        part: usize,
        key: (TreeId, Key),
    ) {
        let above = vec![Above::Bytes { part }];
        let value = self.add(name, kind, vec![vec![rows]], Seals::Nothing, above);
        self.parts[value].key = Some(key);
    }

    /// Adds the zeros up to the end of the blocks, if there are any.
    fn padding(&mut self, name: &str, at: u64, end: u64) {
        if at < end {
            let rows = vec![vec![(at, (end - at) as usize)]];
            let name = format!("{name}/padding");
            self.add(name, Kind::Padding, rows, Seals::Nothing, Vec::new());
        }
    }

    /// The offsets of the fields of a structure, by name.
    fn offsets(&self, part: usize) -> Result<HashMap<String, usize>> {
        let fields = self.parts[part].fields(self.disk)?;
        Ok(fields.into_iter().map(|field| (field.name, field.bytes.start)).collect())
    }

    /// Adds both slots of each page of the space map. Returns the valid ones.
    fn map(&mut self, superblock: &Superblock, part: usize) -> Result<Vec<usize>> {
        let at = self.offsets(part)?["map hash"];
        let mut current = Vec::new();
        for page in 0..superblock.map_pages {
            let (chosen, ..) = choose_slot(self.disk, superblock, page)?;
            for slot in 0..2 {
                let byte = superblock.map.slot(page, slot);
                if MapPage::decode(&self.disk.read(byte, BLOCK_SIZE)?, None).is_err() {
                    continue;
                }
                let name = format!("map:{page}/{slot}");
                let above = if slot == chosen { vec![Above::Map { part, at }] } else { Vec::new() };
                let index = self.sealed(&name, Kind::MapPage, byte, BLOCK_SIZE, above);
                if slot == chosen {
                    current.push(index);
                }
            }
        }
        Ok(current)
    }

    /// Adds the pages of snapshots and of dead lists. Returns the roots of the tables of the live volume and of all
    /// snapshots, the youngest first.
    fn holds(&mut self, superblock: &Superblock, part: usize) -> Result<Vec<Rooted>> {
        let offsets = self.offsets(part)?;
        let hash = |name: String| Above::Hash { part, at: offsets[&name] };
        let live = hash("table root, hash".into());
        let mut tables = vec![(Epoch(u64::MAX), String::new(), superblock.table, live)];
        let volume = superblock.birth.volume;
        let mut lists = vec![(
            superblock.holds.dead,
            hash_of(&offsets, part, "holds, dead list, newest page, hash"),
        )];
        let mut above: HashMap<u64, Above> = HashMap::new();
        for (at, page) in superblock.holds.pages.iter().enumerate() {
            if let Some(page) = page {
                above.insert(page.block.0, hash(format!("holds, page {at}, hash")));
            }
        }
        for found in read_pages(self.disk, volume, &superblock.holds, &mut |_| true) {
            let (name, at) =
                (format!("holds:{}/{}", found.level, found.index), found.pointer.block.byte());
            let above_it = above.remove(&found.pointer.block.0).into_iter().collect();
            let part = self.sealed(&name, Kind::Holds, at, BLOCK_SIZE, above_it);
            let offsets = self.offsets(part)?;
            match found.page?.body {
                HoldsBody::Pointers(pointers) => {
                    for (at, page) in pointers.iter().enumerate() {
                        let Some(page) = page else { continue };
                        let hash = hash_of(&offsets, part, &format!("pointer {at}, hash"));
                        above.extend(hash.map(|hash| (page.block.0, hash)));
                    }
                }
                HoldsBody::Holds(holds) => {
                    for (at, hold) in holds.iter().enumerate() {
                        let Some(hold) = hold else { continue };
                        let name = format!("hold {at}, dead list, newest page, hash");
                        lists.push((hold.dead, hash_of(&offsets, part, &name)));
                        let root = hash_of(&offsets, part, &format!("hold {at}, table root, hash"));
                        if let Some(root) = root.filter(|_| hold.state == HoldState::Held) {
                            tables.push((
                                hold.epoch,
                                format!("s:{}/", hold.name),
                                hold.table,
                                root,
                            ));
                        }
                    }
                }
            }
        }
        for (list, mut above) in lists {
            let mut pages = DeadPages::new(self.disk, volume, list);
            while let Some((at, _)) = pages.next_page()? {
                let name = format!("dead:{}", at.block);
                let above_it = above.take().into_iter().collect();
                let part = self.sealed(&name, Kind::Dead, at.block.byte(), BLOCK_SIZE, above_it);
                above = hash_of(&self.offsets(part)?, part, "previous page, hash");
            }
        }
        tables.sort_by_key(|(epoch, ..)| std::cmp::Reverse(*epoch));
        Ok(tables
            .into_iter()
            .map(|(_, prefix, root, above)| Rooted { prefix, root, above })
            .collect())
    }

    /// Adds the pages of tables and their nodes: each once, with all structures that repeat its hash.
    fn tables(&mut self, volume: VolumeId, tables: Vec<Rooted>) -> Result<()> {
        // Level by level, so that a structure comes after all that repeat its hash.
        let mut levels: Vec<Vec<Waiting>> = Vec::new();
        for (rank, Rooted { root, above, .. }) in tables.iter().enumerate() {
            let level = root.levels as usize - 1;
            levels.resize_with(levels.len().max(level + 1), Vec::new);
            levels[level].push(Waiting { rank, index: 0, pointer: root.page, above: *above });
        }
        let mut pages: HashMap<u64, usize> = HashMap::new();
        let mut nodes: Vec<(usize, NodeId, Entry, Vec<Above>)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        while let Some(mut waiting) = levels.pop() {
            let level = levels.len() as u8;
            waiting.sort_by_key(|page| (page.rank, page.index));
            for Waiting { rank, index, pointer, above } in waiting {
                if let Some(part) = pages.get(&pointer.block.0) {
                    self.parts[*part].above.push(above);
                    continue;
                }
                let page = read_page(self.disk, volume, &pointer, level, index)?;
                let name = format!("{}table:{level}/{index}", tables[rank].prefix);
                let at = pointer.block.byte();
                let part = self.sealed(&name, Kind::TablePage, at, BLOCK_SIZE, vec![above]);
                pages.insert(pointer.block.0, part);
                let offsets = self.offsets(part)?;
                let hash = |name: String| Above::Hash { part, at: offsets[&name] };
                match &page.body {
                    PageBody::Pointers(pointers) => {
                        for (slot, pointer) in pointers.iter().enumerate() {
                            let Some(pointer) = *pointer else { continue };
                            let index = index * POINTERS_PER_PAGE as u64 + slot as u64;
                            let above = hash(format!("pointer {slot}, hash"));
                            let below = &mut levels[usize::from(level) - 1];
                            below.push(Waiting { rank, index, pointer, above });
                        }
                    }
                    PageBody::Entries(entries) => {
                        for (slot, entry) in entries.iter().enumerate() {
                            let Some(entry) = entry else { continue };
                            let id = NodeId(index * ENTRIES_PER_PAGE as u64 + slot as u64);
                            let above = hash(format!("entry {slot}, hash"));
                            match places.get(&entry.extent.start.0) {
                                Some(at) => nodes[*at].3.push(above),
                                None => {
                                    places.insert(entry.extent.start.0, nodes.len());
                                    nodes.push((rank, id, *entry, vec![above]));
                                }
                            }
                        }
                    }
                }
            }
        }
        for (rank, id, entry, mut above) in nodes {
            let Entry { extent, head_bytes, height, .. } = entry;
            self.maps(extent, None)?;
            let name = format!("{}{id}", tables[rank].prefix);
            let (first, part) = (above.remove(0), self.parts.len());
            self.node(Found { name: &name, extent, head_bytes, height, above: first })?;
            self.parts[part].above.extend(above);
        }
        Ok(())
    }

    /// Adds the maps of a scattered extent; `above` has the hash of the first.
    fn maps(&mut self, extent: Extent, above: Option<Above>) -> Result<()> {
        let Some((first, _)) = extent.start.map() else { return Ok(()) };
        let (mut above, mut next) = (above, Some(first));
        while let Some(block) = next {
            let bytes = self.disk.read(block.byte(), BLOCK_SIZE)?;
            let (_, map) =
                ScatterMap::decode(&bytes, None).map_err(|error| corrupt(block.byte(), error))?;
            let name = format!("scatter:{block}");
            let above_it = above.take().into_iter().collect();
            let part = self.sealed(&name, Kind::ScatterMap, block.byte(), BLOCK_SIZE, above_it);
            above = Some(Above::Hash { part, at: self.offsets(part)?["next hash"] });
            next = map.next.map(|(block, _)| block);
        }
        Ok(())
    }

    fn node(&mut self, node: Found<'_>) -> Result<()> {
        let (start, head_len) = (node.extent.start.byte(), node.head_bytes as usize);
        let kind = if node.height.0 == 0 { Kind::Leaf } else { Kind::Internal };
        let part = self.sealed(node.name, kind, start, head_len, vec![node.above]);
        let head = self.disk.read(start, head_len)?;
        let failed = |error| corrupt(start, error);
        if node.height.0 == 0 {
            let (_, head) = LeafHead::decode(&head, None).map_err(failed)?;
            self.leaf(&node, &head, part)
        } else {
            let (_, head) = InternalHead::decode(&head, None).map_err(failed)?;
            self.padding(node.name, start + head_len as u64, start + node.extent.bytes());
            self.runs(node.name, &head, part)
        }
    }

    fn leaf(&mut self, node: &Found<'_>, head: &LeafHead, above: usize) -> Result<()> {
        let start = node.extent.start.byte();
        let offsets = self.offsets(above)?;
        let mut has_blocks = false;
        for (number, basement) in head.basements.iter().enumerate() {
            let name = format!("{}/basement:{number}", node.name);
            let (at, len) = (start + u64::from(basement.offset), basement.bytes as usize);
            let bytes = self.disk.read(at, len)?;
            let section =
                KeySection::decode(&bytes, head.tree, None).map_err(|error| corrupt(at, error))?;
            let hash =
                Above::Hash { part: above, at: offsets[&format!("basement {number}, hash")] };
            let kind = Kind::Basement { tree: head.tree };
            let part = self.hashed(name.clone(), kind, at, len, hash);
            let of_section = self.offsets(part)?;
            let mut chunks = Vec::new();
            for (chunk, place) in section.chunks.iter().enumerate() {
                let at = of_section[&format!("chunk {chunk}, hash")];
                let place = basement.chunk(head.tree, place);
                let (byte, len) = (start + u64::from(place.start), place.len());
                let name = format!("{name}/chunk:{chunk}");
                chunks.push(self.hashed(name, Kind::Chunk, byte, len, Above::Hash { part, at }));
                has_blocks |= is_block(head.tree, len);
            }
            for (number, entry) in section.entries().enumerate() {
                let Some(chunk) = chunks.get(usize::from(entry.chunk)) else { continue };
                let at = self.parts[*chunk].byte() + u64::from(entry.offset);
                let kind = value_kind(head.tree, entry.key);
                let name = format!("{name}/value:{number}");
                let key = (head.tree, Key::copied(entry.key));
                self.value(name, kind, (at, entry.bytes as usize), *chunk, key);
            }
        }
        // File blocks are aligned, so zeros may precede the first.
        if has_blocks {
            let from = start + u64::from(head.parts_end(node.head_bytes));
            let to = from.next_multiple_of(BLOCK_SIZE as u64);
            self.padding(&format!("{}/blocks", node.name), from, to);
        }
        let end = start + u64::from(head.leaf_bytes);
        self.padding(node.name, end, start + node.extent.bytes());
        Ok(())
    }

    fn runs(&mut self, node: &str, head: &InternalHead, above: usize) -> Result<()> {
        let offsets = self.offsets(above)?;
        for (number, run) in head.runs.iter().enumerate() {
            self.maps(run.extent, None)?;
            let hash = |field: String| Above::Hash {
                part: above,
                at: offsets[&format!("run {number}, {field}")],
            };
            let start = run.extent.start.byte();
            let name = format!("{node}/run:{}", run.seq);
            let sealed = vec![hash("header hash".into())];
            self.sealed(&name, Kind::Run, start, RUN_HEADER_BYTES, sealed);
            for (slice, place) in run.slices.iter().enumerate() {
                let name = format!("{name}/slice:{slice}");
                let hash = hash(format!("slice {slice}, hash"));
                self.slice(&name, head.tree, start, &place.section, hash)?;
            }
            if run.ranges.count > 0 {
                let kind = Kind::Ranges { count: run.ranges.count as usize };
                let (at, len) = (start + u64::from(run.ranges.offset), run.ranges.bytes as usize);
                self.hashed(format!("{name}/ranges"), kind, at, len, hash("ranges, hash".into()));
            }
            let end = start + u64::from(run.bytes);
            self.padding(&name, end, start + run.extent.bytes());
        }
        Ok(())
    }

    /// Adds the messages for one child, in a run that starts at `start`.
    fn slice(
        &mut self,
        name: &str,
        tree: TreeId,
        start: u64,
        section: &SectionRef,
        above: Above,
    ) -> Result<()> {
        let (at, len) = (start + u64::from(section.offset), section.bytes as usize);
        let count = section.count as usize;
        let part = self.hashed(name.into(), Kind::Slice { count }, at, len, above);
        let bytes = Bytes::from(self.disk.read(at, len)?);
        let mut number = 0;
        read_slice(&bytes, count, None, |key, _, kind, value| {
            let kind = match kind {
                format::Kind::Update => Kind::Update,
                format::Kind::Insert | format::Kind::Delete => value_kind(tree, key),
            };
            if !value.is_empty() {
                let at = at + value.start as u64;
                let key = (tree, Key::copied(key));
                self.value(format!("{name}/value:{number}"), kind, (at, value.len()), part, key);
            }
            number += 1;
        })
        .map_err(|error| corrupt(at, error))
    }

    /// Adds the groups that continue the superblock, and the extents that they bind.
    fn log(&mut self, superblock: &Superblock) -> Result<()> {
        let region = Region::of(superblock);
        let mut reader = LogReader::new(self.disk, superblock);
        while let Ok(scanned) = reader.next()? {
            let rows = region.byte_ranges(scanned.unit, scanned.bytes.len());
            let name = format!("log:{}", scanned.group.number);
            let part = self.add(name.clone(), Kind::Group, vec![rows], Seals::Own, Vec::new());
            self.padding(&name, scanned.padding.start, scanned.padding.end);
            self.bindings(&name, &scanned.group, part)?;
        }
        Ok(())
    }

    fn bindings(&mut self, group: &str, found: &Group, part: usize) -> Result<()> {
        let offsets = self.offsets(part)?;
        for (number, binding) in found.bindings.iter().enumerate() {
            let hash = |field: &str| Above::Hash {
                part,
                at: offsets[&format!("binding {number}, {field}")],
            };
            let name = format!("{group}/binding:{number}");
            match &binding.to {
                Target::Leaf(leaf) => {
                    self.maps(leaf.extent, Some(hash("map hash")))?;
                    self.node(Found {
                        name: &name,
                        extent: leaf.extent,
                        head_bytes: leaf.head_bytes,
                        height: Height(0),
                        above: hash("hash"),
                    })?;
                }
                Target::Slice(slice) => {
                    self.maps(slice.extent, Some(hash("map hash")))?;
                    let section = SectionRef {
                        offset: slice.offset,
                        bytes: slice.bytes,
                        count: slice.count,
                        ..SectionRef::default()
                    };
                    let start = slice.extent.start.byte();
                    self.slice(&name, TreeId::Data, start, &section, hash("hash"))?;
                }
                Target::Inline(_) | Target::Null => {}
            }
        }
        Ok(())
    }
}

/// The hash of a name in a part, if it has such a field.
fn hash_of(offsets: &HashMap<String, usize>, part: usize, name: &str) -> Option<Above> {
    offsets.get(name).map(|at| Above::Hash { part, at: *at })
}

/// The kind of the value of a key.
fn value_kind(tree: TreeId, key: &[u8]) -> Kind {
    let inode =
        tree == TreeId::Metadata && MetaKey::decode(key).is_some_and(|key| key.xattr().is_none());
    if inode { Kind::MetaValue } else { Kind::Bytes }
}

fn corrupt(at: u64, error: FormatError) -> Error {
    Error::corrupt(Place::Byte(at), Fault::from(error))
}
