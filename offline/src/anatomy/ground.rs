//! The purpose of every block of an image, as far as it can be determined; also for damaged images.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use betr_core::address::Address;
use betr_core::disk::Disk;
use betr_core::error::Result;
use betr_core::format::*;
use betr_core::holds::read_pages;
use betr_core::ids::*;
use betr_core::log::scan;
use betr_core::node::Node;
use betr_core::space::{Bitmap, DeadPages, Layout, Space};
use betr_core::table::{Table, read_page};
use betr_core::tree::Parents;

/// 8: the average number of claims of a block before further claims are ignored.
const CLAIMS_MAX: u64 = 8;

/// The purpose of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The boot area before the identity block, not used by betr.
    Boot,
    /// The identity block, and the reserved area around it.
    Identity,
    /// Superblock slots.
    Ring,
    /// Reserved, between fixed regions.
    Reserved,
    /// The log.
    Log,
    /// The space map.
    Map,
    /// A page of the allocation table: level and index.
    Table(u8, u64),
    /// A leaf, or the head of an internal node.
    Node(NodeId, Entry),
    /// A run of messages of a node.
    Run(NodeId, RunSeq),
    /// A map of a scattered extent.
    ScatterMap,
    /// A page of snapshots: level and index.
    Holds(u8, u64),
    /// A page of a dead list.
    DeadList,
    /// Used only by snapshots: the dead record, with owner, birth and epoch of death.
    Kept(Dead),
    /// Bound by a log group, and not used otherwise.
    Bound(u64),
    /// In use by the space map, without a known owner.
    Unknown,
    /// Free.
    Free,
}

/// Consecutive blocks of one purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The first block.
    pub start: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Their purpose.
    pub purpose: Purpose,
}

/// The purposes of all blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// In block order, without gaps, up to the end of the image. If a damaged image states several purposes of a block,
    /// the first found counts.
    pub areas: Vec<Area>,
    /// Read errors, because of which more blocks may be in use than known.
    pub damage: Vec<String>,
    /// Nodes and runs that share no blocks.
    owners: HashSet<(NodeId, Option<RunSeq>)>,
}

impl Ground {
    /// Reads everything that states purposes: table, heads of internal nodes, snapshots, log and space map.
    ///
    /// For a snapshot, `live` is the superblock of the volume: blocks that the snapshot does not use have their purpose
    /// there.
    pub fn of(disk: &Disk, superblock: &Superblock, live: Option<&Superblock>) -> Ground {
        let mut survey = Survey::new(disk, live.unwrap_or(superblock));
        for superblock in [Some(superblock), live].into_iter().flatten() {
            survey.look(superblock, None);
        }
        survey.end(live.unwrap_or(superblock))
    }

    /// The purpose of one block, if it is in the image, and the read errors on the way. Table, heads of internal nodes,
    /// snapshots, log and space map are read in this order, until the purpose is known.
    pub fn of_block(
        disk: &Disk,
        superblock: &Superblock,
        live: Option<&Superblock>,
        block: u64,
    ) -> (Option<Area>, Vec<String>) {
        let mut survey = Survey::new(disk, live.unwrap_or(superblock));
        for superblock in [Some(superblock), live].into_iter().flatten() {
            if !survey.knows(block) {
                survey.look(superblock, Some(block));
            }
        }
        if !survey.knows(block) {
            let ground = survey.end(live.unwrap_or(superblock));
            return (ground.at(block).cloned(), ground.damage);
        }
        let is_there = |area: &Area| (area.start..area.start + area.blocks).contains(&block);
        (survey.areas.into_iter().find(is_there), survey.damage)
    }

    /// Whether a node shares none of its blocks.
    pub fn owns_node(&self, id: NodeId) -> bool {
        self.owners.contains(&(id, None))
    }

    /// Whether a run of a node shares none of its blocks.
    pub fn owns_run(&self, id: NodeId, seq: RunSeq) -> bool {
        self.owners.contains(&(id, Some(seq)))
    }

    /// The area of a block; `None` past the end.
    pub fn at(&self, block: u64) -> Option<&Area> {
        let at = self.areas.partition_point(|area| area.start + area.blocks <= block);
        self.areas.get(at)
    }
}

/// Adds areas for blocks without an owner: free, or unknown.
fn rest(start: u64, count: u64, used: Option<&Bitmap>, areas: &mut Vec<Area>) {
    let mut at = start;
    while at < start + count {
        let in_use = used.is_none_or(|used| used.get(at));
        let same = |block: &u64| used.is_none_or(|used| used.get(*block)) == in_use;
        let blocks = (at..start + count).take_while(same).count() as u64;
        let purpose = if in_use { Purpose::Unknown } else { Purpose::Free };
        areas.push(Area { start: at, blocks, purpose });
        at += blocks;
    }
}

struct Survey<'d> {
    disk: &'d Disk,
    known: Bitmap,
    areas: Vec<Area>,
    damage: Vec<String>,
    owners: HashSet<(NodeId, Option<RunSeq>)>,
    /// Number of blocks claimed so far.
    claimed: u64,
}

impl<'d> Survey<'d> {
    fn new(disk: &'d Disk, superblock: &Superblock) -> Survey<'d> {
        Survey {
            disk,
            known: Bitmap::new(superblock.image_blocks),
            areas: Vec::new(),
            damage: Vec::new(),
            owners: HashSet::new(),
            claimed: 0,
        }
    }

    fn knows(&self, block: u64) -> bool {
        block < self.known.len() && self.known.get(block)
    }

    /// Reads what states purposes, until the wanted block is known.
    fn look(&mut self, superblock: &Superblock, wanted: Option<u64>) {
        let is_enough = |survey: &Self| wanted.is_some_and(|block| survey.knows(block));
        self.fixed(superblock);
        if is_enough(self) {
            return;
        }
        let entries = self.table(superblock);
        for (id, entry) in &entries {
            if self.take(entry.extent, || Purpose::Node(*id, *entry)) {
                self.owners.insert((*id, None));
            }
        }
        if is_enough(self) {
            return;
        }
        // A head that shares blocks is not read, so the work is proportional to the image, even if that is corrupt.
        for (id, entry) in entries.iter().filter(|(_, entry)| entry.height > Height(0)) {
            if self.owners.contains(&(*id, None)) {
                self.runs(*id, entry);
            }
        }
        if is_enough(self) {
            return;
        }
        self.holds(superblock);
        if is_enough(self) {
            return;
        }
        match scan(self.disk, superblock) {
            Ok(log) => {
                for (group, extent) in &log.pins {
                    self.take(*extent, || Purpose::Bound(*group));
                }
            }
            Err(error) => self.damage.push(error.to_string()),
        }
    }

    /// Adds the remaining blocks as in use or free, by the space map.
    fn end(self, superblock: &Superblock) -> Ground {
        let Survey { disk, known, mut areas, mut damage, owners, .. } = self;
        let space = Space::load(disk, superblock);
        let used = space.as_ref().ok().map(Space::used);
        if let Err(error) = &space {
            damage.push(error.to_string());
        }
        for (start, count) in known.clear_runs(0..known.len()) {
            rest(start, count, used, &mut areas);
        }
        areas.sort_by_key(|area| area.start);
        Ground { areas, damage, owners }
    }

    /// Claims blocks that are in the image and have no purpose yet. Returns whether all could be claimed.
    fn add(&mut self, start: u64, count: u64, purpose: impl Fn() -> Purpose) -> bool {
        let mut all = start.saturating_add(count) <= self.known.len();
        // Corrupt structures may claim the same blocks repeatedly; further claims are ignored.
        self.claimed = self.claimed.saturating_add(count);
        if self.claimed > CLAIMS_MAX.saturating_mul(self.known.len()) {
            return false;
        }
        let end = start.saturating_add(count).min(self.known.len());
        let mut at = start;
        while at < end {
            let taken = self.known.get(at);
            let same = |block: &u64| self.known.get(*block) == taken;
            let blocks = (at..end).take_while(same).count() as u64;
            all &= !taken;
            if !taken {
                self.known.set(at, blocks);
                self.areas.push(Area { start: at, blocks, purpose: purpose() });
            }
            at += blocks;
        }
        all
    }

    /// Claims an extent, with its maps if it is scattered. Returns whether all of it could be claimed.
    fn take(&mut self, extent: Extent, purpose: impl Fn() -> Purpose) -> bool {
        let rows = match self.disk.blocks_of(extent) {
            Ok(rows) => rows,
            Err(error) => {
                self.damage.push(error.to_string());
                return false;
            }
        };
        let mut is_own = true;
        // The blocks of maps come first, then those of the data.
        let own = u64::from(extent.blocks);
        let all: u64 = rows.iter().map(|row| u64::from(row.blocks)).sum();
        let mut maps = all.saturating_sub(own);
        for row in rows {
            let (start, blocks) = (row.start.0, u64::from(row.blocks));
            let of_maps = maps.min(blocks);
            maps -= of_maps;
            is_own &= self.add(start, of_maps, || Purpose::ScatterMap);
            is_own &= self.add(start.saturating_add(of_maps), blocks - of_maps, &purpose);
        }
        is_own
    }

    fn fixed(&mut self, superblock: &Superblock) {
        let block = BLOCK_SIZE as u64;
        let Ok(layout) = Layout::of(superblock) else { return };
        let identity = IDENTITY_AT / block;
        let [front, back] = layout.ring;
        let half = layout.image_blocks - back.0;
        self.add(0, identity, || Purpose::Boot);
        self.add(identity, front.0 - identity, || Purpose::Identity);
        self.add(front.0, half, || Purpose::Ring);
        self.add(back.0, half, || Purpose::Ring);
        self.add(layout.log_start.0, layout.log_units, || Purpose::Log);
        for segment in layout.map.iter() {
            self.add(segment.start.0, segment.blocks(), || Purpose::Map);
        }
        // Between the ring and the log.
        self.add(0, layout.log_start.0, || Purpose::Reserved);
    }

    /// Claims the pages of the table; returns all entries.
    fn table(&mut self, superblock: &Superblock) -> Vec<(NodeId, Entry)> {
        let root = superblock.table;
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        let mut waiting = vec![(root.levels as u8 - 1, 0, root.page)];
        while let Some((level, index, pointer)) = waiting.pop() {
            if !seen.insert(pointer.block) {
                continue;
            }
            self.add(pointer.block.0, 1, || Purpose::Table(level, index));
            let page = match read_page(self.disk, superblock.birth.volume, &pointer, level, index) {
                Ok(page) => page,
                Err(error) => {
                    self.damage.push(error.to_string());
                    continue;
                }
            };
            match page.body {
                PageBody::Entries(found) => {
                    let first = index.saturating_mul(ENTRIES_PER_PAGE as u64);
                    let named = found.iter().enumerate();
                    entries.extend(named.filter_map(|(at, entry)| {
                        Some((NodeId(first.saturating_add(at as u64)), (*entry)?))
                    }));
                }
                PageBody::Pointers(found) => {
                    let first = index.saturating_mul(POINTERS_PER_PAGE as u64);
                    for (at, pointer) in found.iter().enumerate().rev() {
                        if let Some(pointer) = pointer {
                            waiting.push((level - 1, first.saturating_add(at as u64), *pointer));
                        }
                    }
                }
            }
        }
        entries
    }

    /// Claims the pages of snapshots and of dead lists, and the extents of dead records.
    fn holds(&mut self, superblock: &Superblock) {
        let volume = superblock.birth.volume;
        let mut lists = vec![superblock.holds.dead];
        let mut seen = HashSet::new();
        let pages =
            read_pages(self.disk, volume, &superblock.holds, &mut |page| seen.insert(page.block));
        for found in pages {
            self.add(found.pointer.block.0, 1, || Purpose::Holds(found.level, found.index));
            match found.page {
                Ok(HoldsPage { body: HoldsBody::Holds(holds), .. }) => {
                    lists.extend(holds.iter().flatten().map(|hold| hold.dead));
                }
                Ok(_) => {}
                Err(error) => self.damage.push(error.to_string()),
            }
        }
        for list in lists {
            let mut pages = DeadPages::new(self.disk, volume, list);
            while let Some(place) = pages.next_place() {
                // A page that is claimed already is not read: this ends lists that share pages.
                if !self.add(place.block.0, 1, || Purpose::DeadList) {
                    break;
                }
                match pages.next_page() {
                    Ok(Some((_, page))) => page.dead.into_iter().for_each(|dead| {
                        self.take(dead.extent, || Purpose::Kept(dead));
                    }),
                    Ok(None) => break,
                    Err(error) => {
                        self.damage.push(error.to_string());
                        break;
                    }
                }
            }
        }
    }

    fn runs(&mut self, id: NodeId, entry: &Entry) {
        let head = self.disk.read(entry.extent.start.byte(), entry.head_bytes as usize);
        let head = match head.map(|head| InternalHead::decode(&head, None)) {
            Ok(Ok((_, head))) => head,
            Ok(Err(error)) => return self.damage.push(format!("{id}: {error}")),
            Err(error) => return self.damage.push(format!("{id}: {error}")),
        };
        for run in head.runs {
            if self.take(run.extent, || Purpose::Run(id, run.seq)) {
                self.owners.insert((id, Some(run.seq)));
            }
        }
    }
}

/// The keys of a node, or of the part of a node that contains a byte, as each path to it shows them, up to
/// [`NODE_PATHS_MAX`](betr_core::tree::NODE_PATHS_MAX) ranges; `None` for other places.
pub fn keys_at(
    disk: &Disk,
    superblock: &Superblock,
    address: &Address,
) -> Result<Option<(TreeId, Vec<Bounds>)>> {
    let volume = superblock.birth.volume;
    let table = Table::open(disk.clone(), volume, superblock.table);
    let table = table.sharing(superblock.features.shares());
    let entry_of = |id: NodeId| table.get(id);
    let (id, entry, byte, run) = match address {
        Address::Node(id) => (*id, entry_of(*id)?, None, None),
        Address::Byte(byte) => {
            let (area, _) = Ground::of_block(disk, superblock, None, byte / BLOCK_SIZE as u64);
            match area.map(|area| area.purpose) {
                Some(Purpose::Node(id, entry)) => (id, Some(entry), Some(*byte), None),
                Some(Purpose::Run(id, seq)) => (id, entry_of(id)?, Some(*byte), Some(seq)),
                _ => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    let Some(entry) = entry else { return Ok(None) };
    let start = entry.extent.start.byte();
    let head = Bytes::from(disk.read(start, entry.head_bytes as usize)?);
    let corrupt = |error| betr_core::Error::corrupt(betr_core::Place::Byte(start), error);
    let keys = match entry.height {
        Height(0) => {
            let (_, head) = LeafHead::decode(&head, None).map_err(corrupt)?;
            leaf_keys(&head, start, byte)
        }
        _ => {
            let (_, head) = InternalHead::decode(&head, None).map_err(corrupt)?;
            let slice = run.zip(byte).and_then(|(seq, byte)| slice_keys(&head, seq, byte));
            slice.unwrap_or(head.bounds)
        }
    };
    let shown = match table.shares() {
        true => {
            let load = |id: NodeId| match table.get(id)? {
                Some(entry) => {
                    Node::load(disk, volume, id, &entry).map(|node| Some(Arc::new(node)))
                }
                None => Ok(None),
            };
            let shown = Parents::of(entry.tree, &load)?.shown(id, entry.height, &keys)?;
            // Nothing leads to a node that waits to be freed.
            if shown.is_empty() { vec![keys] } else { shown }
        }
        false => vec![keys],
    };
    Ok(Some((entry.tree, shown)))
}

/// The keys of the basement that contains a byte of a leaf. File blocks are behind all basements.
fn leaf_keys(head: &LeafHead, start: u64, byte: Option<u64>) -> Bounds {
    let offset = byte.and_then(|byte| byte.checked_sub(start));
    let inside = |basement: BasementRef<'_>| {
        let holds =
            |place: Range<u32>, offset| (place.start.into()..place.end.into()).contains(&offset);
        offset.is_some_and(|offset| {
            holds(basement.keys(), offset) || holds(basement.chunks(), offset)
        })
    };
    match head.basements.iter().position(inside) {
        Some(at) => Bounds {
            lo: Key::copied(head.basements.first(at)),
            hi: head
                .basements
                .get(at + 1)
                .map(|next| Key::copied(next.first))
                .or(head.bounds.hi.clone()),
        },
        None => head.bounds.clone(),
    }
}

/// The keys of the child whose slice contains a byte of a run.
fn slice_keys(head: &InternalHead, seq: RunSeq, byte: u64) -> Option<Bounds> {
    let run = head.runs.iter().find(|run| run.seq == seq)?;
    let offset = byte.checked_sub(run.extent.start.byte())?;
    let inside = |slice: &&SliceRef| {
        let section = slice.section;
        (u64::from(section.offset)..u64::from(section.offset) + u64::from(section.bytes))
            .contains(&offset)
    };
    let slice = run.slices.iter().find(inside)?;
    let at = usize::from(slice.child);
    let next = head.children.get(at + 1).map(|next| next.pivot.clone());
    Some(Bounds { lo: head.children[at].pivot.clone(), hi: next.or(head.bounds.hi.clone()) })
}
