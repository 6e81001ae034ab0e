//! Compares two allocation tables; a page that both share is skipped with everything below it.

use std::collections::HashSet;

use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{
    Dead, DeadOwner, ENTRIES_PER_PAGE, Entry, Inflow, POINTERS_PER_PAGE, PageBody, PagePointer,
    TableRoot,
};
use crate::ids::*;
use crate::node::{Head, Internal};
use crate::table::read_page;

/// One of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The table of the older checkpoint.
    Older,
    /// The table of the younger one.
    Younger,
}

/// Receives the differences of two tables.
pub trait Differences {
    /// A page that only one of them has, with its level and index. Returns whether to read it.
    fn page(&mut self, side: Side, level: u8, index: u64, pointer: &PagePointer) -> bool;

    /// A page that cannot be read or does not verify; nothing below it is reported.
    fn lost(&mut self, side: Side, error: Error);

    /// A node whose entries differ, or that only one of them has.
    fn entry(&mut self, id: NodeId, older: Option<&Entry>, younger: Option<&Entry>);
}

/// A page, or the place of one above the root of a table with fewer levels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Nothing,
    Page(PagePointer),
    Root(TableRoot),
}

/// Reports how the table at `older` differs from that at `younger`, or from an empty one. Their disks may be the same.
pub fn differ(
    disks: [&Disk; 2],
    volume: VolumeId,
    older: TableRoot,
    younger: Option<TableRoot>,
    told: &mut dyn Differences,
) {
    let level = younger.map_or(0, |younger| younger.levels).max(older.levels) as u8 - 1;
    let root = |root: TableRoot| match root.levels - 1 == u32::from(level) {
        true => Below::Page(root.page),
        false => Below::Root(root),
    };
    let younger = younger.map_or(Below::Nothing, root);
    Differ { disks, volume, told }.pages(level, 0, [root(older), younger]);
}

struct Differ<'d> {
    disks: [&'d Disk; 2],
    volume: VolumeId,
    told: &'d mut dyn Differences,
}

impl Differ<'_> {
    /// Compares pages of the same level and index.
    fn pages(&mut self, level: u8, index: u64, [older, younger]: [Below; 2]) {
        if older == younger {
            return;
        }
        let bodies = [(Side::Older, older), (Side::Younger, younger)];
        if level > 0 {
            let [older, younger] =
                bodies.map(|(side, page)| self.pointers(side, level, index, page));
            for at in 0..POINTERS_PER_PAGE {
                let child =
                    index.saturating_mul(POINTERS_PER_PAGE as u64).saturating_add(at as u64);
                self.pages(level - 1, child, [older[at], younger[at]]);
            }
            return;
        }
        let [older, younger] = bodies.map(|(side, page)| self.entries(side, index, page));
        for at in (0..ENTRIES_PER_PAGE).filter(|at| older[*at] != younger[*at]) {
            let id =
                NodeId(index.saturating_mul(ENTRIES_PER_PAGE as u64).saturating_add(at as u64));
            self.told.entry(id, older[at].as_ref(), younger[at].as_ref());
        }
    }

    fn read(&mut self, side: Side, level: u8, index: u64, page: Below) -> Option<PageBody> {
        let Below::Page(pointer) = page else { return None };
        if !self.told.page(side, level, index, &pointer) {
            return None;
        }
        let disk = self.disks[usize::from(side == Side::Younger)];
        match read_page(disk, self.volume, &pointer, level, index) {
            Ok(page) => Some(page.body),
            Err(error) => {
                self.told.lost(side, error);
                None
            }
        }
    }

    fn pointers(
        &mut self,
        side: Side,
        level: u8,
        index: u64,
        page: Below,
    ) -> [Below; POINTERS_PER_PAGE] {
        let mut below = [Below::Nothing; POINTERS_PER_PAGE];
        match page {
            Below::Root(root) if root.levels == u32::from(level) => {
                below[0] = Below::Page(root.page)
            }
            Below::Root(_) => below[0] = page,
            _ => {
                if let Some(PageBody::Pointers(found)) = self.read(side, level, index, page) {
                    for (below, found) in below.iter_mut().zip(found.iter()) {
                        *below = found.map_or(Below::Nothing, Below::Page);
                    }
                }
            }
        }
        below
    }

    fn entries(
        &mut self,
        side: Side,
        index: u64,
        page: Below,
    ) -> Box<[Option<Entry>; ENTRIES_PER_PAGE]> {
        match self.read(side, 0, index, page) {
            Some(PageBody::Entries(entries)) => entries,
            _ => Box::new([None; ENTRIES_PER_PAGE]),
        }
    }
}

/// The extents that one of two checkpoints uses and the other does not.
#[derive(Default)]
pub struct Part {
    /// Pages of its table, with level and index.
    pub pages: Vec<(u8, u64, PagePointer)>,
    /// Nodes whose extents differ from those in the other one.
    pub nodes: Vec<(NodeId, Entry)>,
    /// Runs that the other one does not use: node, extent and birth.
    pub runs: Vec<(NodeId, Extent, Epoch)>,
    /// The inflow of these nodes.
    pub inflow: Inflow,
    /// Number of nodes without edges, where the entries differ.
    pub dying: u64,
    /// Whether one of these nodes has several edges or none, or an edge has a lens.
    pub shares: bool,
    /// Errors of parts that cannot be read or do not verify.
    pub errors: Vec<Error>,
}

/// The differences of two checkpoints.
#[derive(Default)]
pub struct Difference {
    /// The extents that only the older one uses.
    pub older: Part,
    /// The extents that only the younger one uses.
    pub younger: Part,
    /// Runs that both use, under heads that differ.
    pub shared: HashSet<Extent>,
    /// Nodes that both use, with numbers of edges that differ: those of the older one.
    pub recounted: Vec<(NodeId, u32)>,
}

impl Part {
    /// All extents as dead records, in order; `died` is the epoch of death of all.
    pub fn dead(&self, disk: &Disk, died: Epoch) -> Result<Vec<Dead>> {
        let pages = self.pages.iter().map(|(level, index, pointer)| {
            let extent = Extent { start: pointer.block, blocks: 1 };
            (extent, pointer.birth, DeadOwner::TablePage(*level, *index))
        });
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|(id, entry)| (entry.extent, entry.birth, DeadOwner::Node(*id)));
        let runs =
            self.runs.iter().map(|(id, extent, birth)| (*extent, *birth, DeadOwner::Run(*id)));
        let dead = pages.chain(nodes).chain(runs).map(|(extent, birth, owner)| {
            let maps = disk.blocks_in(extent)? - u64::from(extent.blocks);
            Ok(Dead { extent, birth, died, owner, maps: maps as u16 })
        });
        let mut dead = dead.collect::<Result<Vec<Dead>>>()?;
        dead.sort_unstable();
        Ok(dead)
    }
}

/// Compares two checkpoints by their tables, or one with an empty one. `enter` decides whether a page is read that only
/// the older one has.
pub fn difference(
    disk: &Disk,
    volume: VolumeId,
    older: TableRoot,
    younger: Option<TableRoot>,
    enter: &mut dyn FnMut(&PagePointer) -> bool,
) -> Difference {
    let (found, changed) = (Difference::default(), Vec::new());
    let mut collected = Collected { found, changed, enter };
    differ([disk, disk], volume, older, younger, &mut collected);
    let Collected { mut found, changed, .. } = collected;
    for (id, [older, younger]) in changed {
        for (entry, part) in [(older, &mut found.older), (younger, &mut found.younger)] {
            // Nodes of a volume without clones have one edge (invariant 6).
            part.dying += u64::from(entry.is_some_and(|entry| entry.references == 0));
            part.shares |= entry.is_some_and(|entry| entry.references != 1);
        }
        if let Some((a, b)) = older.zip(younger)
            && (Entry { references: b.references, ..a }) == b
        {
            found.recounted.push((id, a.references));
            continue;
        }
        if older.zip(younger).is_some_and(|(a, b)| a.extent == b.extent) {
            let text = format!("two entries for {id} name one extent, and differ");
            let place = Place::Node { id, byte: None };
            found.older.errors.push(Error::corrupt(place, Fault::Missing(text)));
            continue;
        }
        let runs =
            [(older, &mut found.older), (younger, &mut found.younger)].map(|(entry, part)| {
                let Some(entry) = entry else { return Vec::new() };
                part.nodes.push((id, entry));
                if entry.height == Height(0) {
                    return Vec::new();
                }
                let head = disk.read(entry.extent.start.byte(), entry.head_bytes as usize);
                match head.and_then(|head| Head::verified(&head, volume, id, &entry)) {
                    Ok(Head::Internal(head)) => {
                        let runs = head.runs.iter().map(|run| (run.extent, run.birth)).collect();
                        let internal = Internal::stored(head);
                        part.inflow += internal.inflow();
                        part.shares |= internal.children().iter().any(|it| it.lens.is_some());
                        runs
                    }
                    Ok(Head::Leaf(_)) => Vec::new(),
                    Err(error) => {
                        part.errors.push(error);
                        Vec::new()
                    }
                }
            });
        let [older, younger] = &runs;
        for (runs, others, part) in
            [(older, younger, &mut found.older), (younger, older, &mut found.younger)]
        {
            let own = runs.iter().filter(|run| !others.contains(run));
            part.runs.extend(own.map(|(extent, birth)| (id, *extent, *birth)));
        }
        found.shared.extend(older.iter().filter(|run| younger.contains(run)).map(|(run, _)| *run));
    }
    found
}

struct Collected<'e> {
    found: Difference,
    changed: Vec<(NodeId, [Option<Entry>; 2])>,
    enter: &'e mut dyn FnMut(&PagePointer) -> bool,
}

impl Collected<'_> {
    fn part(&mut self, side: Side) -> &mut Part {
        match side {
            Side::Older => &mut self.found.older,
            Side::Younger => &mut self.found.younger,
        }
    }
}

impl Differences for Collected<'_> {
    fn page(&mut self, side: Side, level: u8, index: u64, pointer: &PagePointer) -> bool {
        if side == Side::Older && !(self.enter)(pointer) {
            let text = "a page that belongs to something else too";
            let place = Place::Byte(pointer.block.byte());
            self.found.older.errors.push(Error::corrupt(place, Fault::Missing(text.into())));
            return false;
        }
        self.part(side).pages.push((level, index, *pointer));
        true
    }

    fn lost(&mut self, side: Side, error: Error) {
        self.part(side).errors.push(error);
    }

    fn entry(&mut self, id: NodeId, older: Option<&Entry>, younger: Option<&Entry>) {
        self.changed.push((id, [older.copied(), younger.copied()]));
    }
}
