//! Nodes: the path from the root, the children with their buffers, and the content of basements.

use std::collections::HashSet;
use std::sync::Arc;

use betr_core::disk::Disk;
use betr_core::format::*;
use betr_core::ids::*;
use betr_core::table::Table;
use bytes::Bytes;

use super::{key_of, range, text};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Rows, Sheet, column, numbers, rest};
use crate::spot::Spot;
use crate::words;
use crate::work::Work;

/// The decoded head of a node.
pub(super) enum Head {
    Leaf(LeafHead),
    Internal(InternalHead),
}

/// The messages pending in a node or for one child.
#[derive(Clone, Copy, Default)]
pub(super) struct Live {
    pub messages: u64,
    pub bytes: u64,
    pub oldest: Option<Epoch>,
}

impl Head {
    /// Reads the head of the node that the table names, and verifies it.
    pub(super) fn read(disk: &Disk, id: NodeId, entry: &Entry) -> Result<Head, String> {
        let start = entry.extent.start.byte();
        let wrong = |why: String| format!("{id} (b:{start:#x}): {why}");
        let bytes = disk.read(start, entry.head_bytes as usize).map_err(text)?;
        let decoded = match entry.height.0 {
            0 => LeafHead::decode(&bytes, None).map(|(seal, head)| (seal, Head::Leaf(head))),
            _ => {
                InternalHead::decode(&bytes, None).map(|(seal, head)| (seal, Head::Internal(head)))
            }
        };
        let (seal, head) = decoded.map_err(|error| wrong(text(error)))?;
        match seal.hash == entry.hash {
            true => Ok(head),
            false => Err(wrong(format!(
                "is not the node that the table means: hash {} expected, {} found",
                entry.hash, seal.hash
            ))),
        }
    }

    fn bounds(&self) -> &Bounds {
        match self {
            Head::Leaf(head) => &head.bounds,
            Head::Internal(head) => &head.bounds,
        }
    }
}

/// The table entry of a node.
pub(super) fn entry_of(table: &Table, id: NodeId) -> Result<Entry, String> {
    table.get(id).map_err(text)?.ok_or_else(|| format!("there is no node {id}"))
}

/// All messages pending in a node.
pub(super) fn live(head: &InternalHead) -> Live {
    let mut all = Live::default();
    for of_child in pending(head) {
        all.messages += of_child.messages;
        all.bytes += of_child.bytes;
    }
    for run in &head.runs {
        all.messages += u64::from(run.ranges.count);
        all.bytes += u64::from(run.ranges.bytes);
    }
    all
}

/// The messages pending for each child, without range messages.
fn pending(head: &InternalHead) -> Vec<Live> {
    let mut found = vec![Live::default(); head.children.len()];
    for run in &head.runs {
        for slice in &run.slices {
            let live = &mut found[usize::from(slice.child)];
            live.messages += u64::from(slice.section.count);
            live.bytes += u64::from(slice.section.bytes);
            live.oldest = Some(live.oldest.map_or(run.birth, |oldest| oldest.min(run.birth)));
        }
    }
    found
}

/// The head of an ancestor and the child index to follow; or the reason why that is unknown.
type Passed = Result<(InternalHead, usize), String>;

/// The ancestors of a node from the root of its tree down, as far as they verify, each with the child index to follow.
/// If the node itself does not verify, its key range is unknown, and it has no ancestors. There is one way (invariant 6);
/// where nodes are shared, it is the first one.
pub(super) fn ancestors(
    disk: &Disk,
    table: &Table,
    id: NodeId,
    entry: &Entry,
) -> Vec<(NodeId, Passed)> {
    let mut found = Vec::new();
    let Ok(wanted) = Head::read(disk, id, entry) else { return found };
    let lo = &wanted.bounds().lo;
    if table.shares() {
        let mut search = Search { disk, table, id, above: entry.height, seen: HashSet::new() };
        if search.find(entry.tree.root(), Height(u8::MAX), &mut found) {
            found.reverse();
            return found;
        }
    }
    let mut at = entry.tree.root();
    while at != id && found.len() < usize::from(limits::HEIGHT_MAX) {
        let head = entry_of(table, at).and_then(|entry| Head::read(disk, at, &entry));
        let next = match head {
            Ok(Head::Internal(head)) => {
                let by_key = head.children.partition_point(|child| child.pivot <= *lo);
                let by_name = head.children.iter().position(|child| child.id == id);
                let next = by_name.unwrap_or(by_key.saturating_sub(1));
                let child = head.children[next].id;
                found.push((at, Ok((head, next))));
                child
            }
            Ok(Head::Leaf(_)) => {
                found.push((at, Err(format!("{at} is a leaf: nothing leads to {id}"))));
                break;
            }
            Err(why) => {
                found.push((at, Err(why)));
                break;
            }
        };
        at = next;
    }
    found
}

/// A search for an edge to a node, which reads the head of each node above its height once.
struct Search<'s> {
    disk: &'s Disk,
    table: &'s Table,
    id: NodeId,
    /// The height of the node.
    above: Height,
    seen: HashSet<NodeId>,
}

impl Search<'_> {
    /// Adds the path from `at`, which is lower than `limit`, to the node, the lowest first. Returns whether there is one.
    fn find(&mut self, at: NodeId, limit: Height, path: &mut Vec<(NodeId, Passed)>) -> bool {
        if !self.seen.insert(at) {
            return false;
        }
        let is_between = |entry: &Entry| entry.height > self.above && entry.height < limit;
        let entry = entry_of(self.table, at).ok().filter(is_between);
        let head = entry.and_then(|entry| Head::read(self.disk, at, &entry).ok());
        let Some(Head::Internal(head)) = head else { return false };
        let next = (0..head.children.len()).find(|next| {
            let child = head.children[*next].id;
            child == self.id || self.find(child, head.height, path)
        });
        next.map(|next| path.push((at, Ok((head, next))))).is_some()
    }
}

/// The path from the root of the tree to a node: ancestors, siblings and children.
pub(super) fn way(image: &Image, id: NodeId, work: &Arc<Work>) -> Result<Sheet, String> {
    let (disk, table) = (image.disk(work), image.table(work)?);
    let entry = entry_of(&table, id)?;
    let ancestors = ancestors(&disk, &table, id, &entry);
    let (mut rows, mut start) = (Vec::new(), 0);
    for (depth, (at, head)) in ancestors.iter().enumerate() {
        rows.push(line(&table, *at, depth, id));
        let (head, next) = match head {
            Ok(found) => found,
            Err(why) => {
                rows.push(Row::line(Role::Bad, format!("the way ends here: {why}")));
                continue;
            }
        };
        if head.children[*next].id == id {
            for child in &head.children {
                if child.id == id {
                    start = rows.len();
                }
                rows.push(line(&table, child.id, depth + 1, id));
                if child.id == id {
                    children(&table, &Head::read(&disk, id, &entry), depth + 2, id, &mut rows);
                }
            }
        }
    }
    // The node is the root, or unreachable from it.
    if !rows.iter().any(|row| row.spots.first().and_then(Spot::as_node) == Some(id)) {
        start = rows.len();
        rows.push(line(&table, id, ancestors.len(), id));
        children(&table, &Head::read(&disk, id, &entry), ancestors.len() + 1, id, &mut rows);
    }
    let columns = vec![rest("node"), numbers("size", 7), numbers("epoch", 5)];
    Ok(Sheet::new(format!("{} tree", entry.tree), columns, rows).at(start))
}

fn children(
    table: &Table,
    head: &Result<Head, String>,
    depth: usize,
    id: NodeId,
    rows: &mut Vec<Row>,
) {
    if let Ok(Head::Internal(head)) = head {
        rows.extend(head.children.iter().map(|child| line(table, child.id, depth, id)));
    }
}

/// A row for a node of the tree.
fn line(table: &Table, id: NodeId, depth: usize, current: NodeId) -> Row {
    let indent = "  ".repeat(depth);
    let mark = if id == current { ">" } else { " " };
    match entry_of(table, id) {
        Ok(entry) => {
            let kind = if entry.height.0 == 0 {
                "leaf".to_owned()
            } else {
                format!("h{}", entry.height.0)
            };
            let role = if id == current { Role::Strong } else { Role::Link };
            let cells = vec![
                Cell::new(role, format!("{mark}{indent}{id} {kind}")),
                Cell::from(words::blocks(entry.extent.blocks.into())),
                Cell::from(entry.birth.0.to_string()),
            ];
            let spots = [Spot::node(id), Spot::byte(entry.extent.start.byte())];
            Row { depth, ..Row::of(cells).to(spots) }
        }
        Err(why) => {
            Row::line(Role::Bad, format!("{mark}{indent}{id} ! {why}")).to([Spot::node(id)])
        }
    }
}

/// The details of a node: its children with their buffers, or the basements of a leaf.
pub(super) fn node(image: &Image, id: NodeId, work: &Arc<Work>) -> Result<Sheet, String> {
    let (disk, table) = (image.disk(work), image.table(work)?);
    let entry = entry_of(&table, id)?;
    let start = entry.extent.start.byte();
    let place = format!(
        "{} @ b:{start:#x}, epoch {}",
        words::blocks(entry.extent.blocks.into()),
        entry.birth.0
    );
    match Head::read(&disk, id, &entry)? {
        Head::Leaf(head) => {
            let title = format!("leaf {id}  {place}");
            let keys = range(head.tree, &head.bounds);
            Ok(basements(title, &head, start).note(Role::Dim, keys))
        }
        Head::Internal(head) => {
            let all = live(&head);
            let title = format!("node {id}  height {}  {place}", entry.height.0);
            let pending = format!(
                "{} pending, {}, in {}; {}",
                of_messages(&head, all),
                betr_cli::size::human(all.bytes),
                words::some(head.runs.len(), "run"),
                range(head.tree, &head.bounds)
            );
            Ok(edges(title, &head).note(Role::Dim, pending))
        }
    }
}

/// The number of pending messages, and of range messages among them, which are not counted per child.
fn of_messages(head: &InternalHead, all: Live) -> String {
    let ranges: usize = head.runs.iter().map(|run| run.ranges.count as usize).sum();
    let points = words::some(all.messages as usize - ranges, "message");
    if ranges == 0 {
        points
    } else {
        format!("{points} and {}", words::some(ranges, "range delete"))
    }
}

fn edges(title: String, head: &InternalHead) -> Sheet {
    let pending = pending(head);
    let heaviest = pending.iter().map(|live| live.bytes).max();
    let row = |(index, child): (usize, &ChildRef)| {
        let live = pending[index];
        let is_heaviest = live.bytes > 0 && Some(live.bytes) == heaviest;
        let pivot = if index == 0 { "-".into() } else { key_of(head.tree, &child.pivot) };
        let cells = vec![
            Cell::from(index.to_string()),
            Cell::new(Role::Link, child.id),
            Cell::from(words::number(live.messages)),
            Cell::from(betr_cli::size::human(live.bytes)),
            Cell::from(live.oldest.map_or("-".into(), |epoch| epoch.0.to_string())),
            Cell::new(Role::Warn, if is_heaviest { "!" } else { "" }),
            Cell::from(pivot),
        ];
        let key = Spot::At(betr_core::address::Address::Key(head.tree, child.pivot.clone()));
        Row::of(cells).to([Spot::node(child.id), Spot::Buffer(head.id, index, None), key])
    };
    let rows = head.children.iter().enumerate().map(row).collect();
    let columns = vec![
        numbers("#", 4),
        column("child", 9),
        numbers("pending", 8),
        numbers("bytes", 9),
        numbers("oldest", 7),
        column("", 1),
        rest("pivot"),
    ];
    Sheet::new(title, columns, rows)
}

fn basements(title: String, head: &LeafHead, start: u64) -> Sheet {
    let row = |(index, basement): (usize, BasementRef<'_>)| {
        let at = start + u64::from(basement.offset);
        let cells = vec![
            Cell::from(index.to_string()),
            Cell::from(words::number(basement.entries)),
            Cell::from(betr_cli::size::human(
                u64::from(basement.bytes) + u64::from(basement.small),
            )),
            Cell::new(Role::Link, format!("b:{at:#x}")),
            Cell::from(key_of(head.tree, basement.first)),
        ];
        let first = Key::copied(basement.first);
        let key = Spot::At(betr_core::address::Address::Key(head.tree, first));
        Row::of(cells).to([Spot::Part(head.id, index as u64), Spot::byte(at), key])
    };
    let rows = head.basements.iter().enumerate().map(row).collect();
    let columns = vec![
        numbers("#", 4),
        numbers("entries", 8),
        numbers("bytes", 9),
        column("at", 12),
        rest("from"),
    ];
    Sheet::new(title, columns, rows)
}

/// The entries of a basement, from its key section.
struct Entries {
    tree: TreeId,
    /// Finding where an entry begins takes a scan of the key section, so the keys are decoded once.
    entries: Vec<(Key, u32, u16)>,
    /// The byte at which each chunk begins.
    chunks: Vec<u64>,
    offsets: Vec<u16>,
}

impl Rows for Entries {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn row(&self, at: usize) -> Row {
        let Some((key, bytes, chunk)) = self.entries.get(at) else { return Row::default() };
        let place =
            self.chunks.get(usize::from(*chunk)).map(|start| start + u64::from(self.offsets[at]));
        let cells = vec![
            Cell::from(at.to_string()),
            Cell::from(words::number(*bytes)),
            Cell::new(Role::Link, place.map_or("-".into(), |place| format!("b:{place:#x}"))),
            Cell::from(key_of(self.tree, key)),
        ];
        let spot = Spot::At(betr_core::address::Address::Key(self.tree, key.clone()));
        Row::of(cells).to(std::iter::once(spot).chain(place.map(Spot::byte)))
    }
}

/// The content of a basement.
pub(super) fn basement(
    image: &Image,
    id: NodeId,
    which: usize,
    work: &Arc<Work>,
) -> Result<Sheet, String> {
    let (disk, table) = (image.disk(work), image.table(work)?);
    let entry = entry_of(&table, id)?;
    let Head::Leaf(head) = Head::read(&disk, id, &entry)? else {
        return Err(format!("{id} is an internal node, and has no basements"));
    };
    let basement = head
        .basements
        .get(which)
        .ok_or_else(|| format!("{id} has {} basements", head.basements.len()))?;
    let start = entry.extent.start.byte();
    let at = start + u64::from(basement.offset);
    let bytes = Bytes::from(disk.read(at, basement.bytes as usize).map_err(text)?);
    if Hash::of(&bytes) != basement.hash {
        return Err(format!(
            "b:{at:#x}: basement {which} of {id} does not verify: its hash is another; x shows its bytes"
        ));
    }
    let section = KeySection::decode(&bytes, head.tree, None)
        .map_err(|error| format!("b:{at:#x}: {error}"))?;
    let place = |chunk| start + u64::from(basement.chunk(head.tree, chunk).start);
    let chunks = section.chunks.iter().map(place).collect();
    let mut entries = Vec::new();
    let mut offsets = Vec::new();
    for entry in section.entries() {
        entries.push((Key::copied(entry.key), entry.bytes, entry.chunk));
        offsets.push(entry.offset);
    }
    let title =
        format!("basement {which} of {id}  {} entries", words::number(entries.len() as u64));
    let rows = Box::new(Entries { tree: head.tree, entries, chunks, offsets });
    let columns = vec![numbers("#", 6), numbers("bytes", 7), column("value at", 12), rest("key")];
    Ok(Sheet { rows, ..Sheet::new(title, columns, Vec::new()) })
}
