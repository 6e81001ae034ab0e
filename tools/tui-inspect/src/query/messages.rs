//! The messages pending in a node for one child, without limit on their number, and the leaf after a flush.

use std::sync::Arc;

use betr_cli::words;
use betr_core::address::Address;
use betr_core::format::*;
use betr_core::ids::*;
use bytes::Bytes;
use parking_lot::Mutex;

use super::node::{Head, entry_of};
use super::{key_of, text};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Rows, Sheet, column, numbers, rest};
use crate::spot::Spot;
use crate::work::Work;

/// The most slices that stay decoded.
const DECODED: usize = 64;
/// The most entries of a leaf that are shown as after a flush.
const FLUSHED_MAX: usize = 1 << 20;

/// An encoded slice of a run, for the child.
pub(crate) struct Slice {
    run: RunSeq,
    /// The byte at which the slice begins.
    byte: u64,
    count: u32,
    bytes: Bytes,
}

impl Slice {
    pub(crate) fn new(run: RunSeq, byte: u64, count: u32, bytes: Bytes) -> Slice {
        Slice { run, byte, count, bytes }
    }
}

/// A decoded slice.
type Decoded = Arc<Vec<(Key, Message)>>;

/// The messages for one child in sorted order; slices are decoded on demand.
pub(crate) struct Messages {
    node: NodeId,
    child: usize,
    tree: TreeId,
    slices: Vec<Slice>,
    ranges: Vec<(RunSeq, u64, RangeDelete)>,
    /// The slice and index of each message. Range deletes have the slice number after the last.
    order: Vec<(u32, u32)>,
    decoded: Mutex<Vec<(u32, Decoded)>>,
}

impl Messages {
    /// Sorts messages by key (equal keys by MSN), or by MSN.
    pub(crate) fn new(
        (node, child, tree): (NodeId, usize, TreeId),
        slices: Vec<Slice>,
        ranges: Vec<(RunSeq, u64, RangeDelete)>,
        by_msn: bool,
        work: &Work,
    ) -> Result<Messages, String> {
        let mut messages = Messages {
            node,
            child,
            tree,
            slices,
            ranges,
            order: Vec::new(),
            decoded: Mutex::default(),
        };
        let mut order = Vec::new();
        match by_msn {
            true => {
                let mut all: Vec<(Msn, u32, u32)> = Vec::new();
                for at in 0..messages.slices.len() as u32 {
                    messages.go_on(at, work)?;
                    let found = messages.decode(at)?;
                    all.extend(
                        (0u32..)
                            .zip(found.iter())
                            .map(|(index, (_, message))| (message.msn, at, index)),
                    );
                }
                let behind = messages.slices.len() as u32;
                all.extend(
                    (0u32..)
                        .zip(&messages.ranges)
                        .map(|(index, (.., range))| (range.msn, behind, index)),
                );
                all.sort_unstable();
                order.extend(all.into_iter().map(|(_, slice, index)| (slice, index)));
            }
            false => messages.merge(&mut order, work)?,
        }
        messages.order = order;
        Ok(messages)
    }

    /// Merges the runs, each of which is sorted, with one decoded slice per run.
    fn merge(&self, order: &mut Vec<(u32, u32)>, work: &Work) -> Result<(), String> {
        struct Head {
            slice: u32,
            at: u32,
            end: u32,
            open: Decoded,
        }
        let mut heads: Vec<Head> = Vec::new();
        let mut first = 0;
        while first < self.slices.len() {
            let run = self.slices[first].run;
            let count = self.slices[first..].iter().take_while(|slice| slice.run == run).count();
            let open = self.decode(first as u32)?;
            heads.push(Head { slice: first as u32, at: 0, end: (first + count) as u32, open });
            first += count;
        }
        let behind = self.slices.len() as u32;
        let mut ranges: Vec<u32> = (0..self.ranges.len() as u32).collect();
        ranges.sort_by(|a, b| {
            let of = |at: &u32| &self.ranges[*at as usize].2;
            of(a).lo.cmp(&of(b).lo).then(of(a).msn.cmp(&of(b).msn))
        });
        let mut ranges = ranges.into_iter().peekable();
        loop {
            for head in &mut heads {
                while head.at as usize >= head.open.len() && head.slice + 1 < head.end {
                    head.slice += 1;
                    head.at = 0;
                    self.go_on(head.slice, work)?;
                    head.open = self.decode(head.slice)?;
                }
            }
            let next = heads.iter_mut().filter(|head| (head.at as usize) < head.open.len()).min_by(
                |a, b| {
                    let (k, m) = &a.open[a.at as usize];
                    let (l, n) = &b.open[b.at as usize];
                    k.cmp(l).then(m.msn.cmp(&n.msn))
                },
            );
            let key = next.as_ref().map(|head| &head.open[head.at as usize].0);
            let range = ranges.peek().map(|at| &self.ranges[*at as usize].2);
            match (key, range) {
                (None, None) => return Ok(()),
                (Some(key), Some(range)) if range.lo <= *key => {
                    order.push((behind, ranges.next().unwrap_or(0)))
                }
                (None, Some(_)) => order.push((behind, ranges.next().unwrap_or(0))),
                (Some(_), _) => {
                    if let Some(head) = next {
                        order.push((head.slice, head.at));
                        head.at += 1;
                    }
                }
            }
        }
    }

    /// Reports progress; fails if the query was cancelled.
    fn go_on(&self, slice: u32, work: &Work) -> Result<(), String> {
        work.step(slice.into(), self.slices.len() as u64);
        if work.is_cancelled() { Err("given up".into()) } else { Ok(()) }
    }

    fn decode(&self, at: u32) -> Result<Decoded, String> {
        let mut decoded = self.decoded.lock();
        if let Some(found) = decoded.iter().position(|(of, _)| *of == at) {
            let found = decoded.remove(found);
            decoded.push(found);
            return Ok(decoded[decoded.len() - 1].1.clone());
        }
        let slice = &self.slices[at as usize];
        let found = decode_slice(&slice.bytes, slice.count as usize, None)
            .map_err(|error| format!("b:{:#x}: {error}", slice.byte))?;
        let found = Arc::new(found);
        if decoded.len() >= DECODED {
            decoded.remove(0);
        }
        decoded.push((at, found.clone()));
        Ok(found)
    }

    fn message(&self, at: usize) -> Option<Shown> {
        let (slice, index) = *self.order.get(at)?;
        if slice as usize == self.slices.len() {
            let (run, byte, range) = self.ranges.get(index as usize)?;
            let what = format!("up to {}", key_of(self.tree, &range.hi));
            return Some(Shown {
                msn: range.msn,
                run: *run,
                byte: *byte,
                kind: "range delete",
                key: range.lo.clone(),
                what,
            });
        }
        let (key, message) = self.decode(slice).ok()?.get(index as usize)?.clone();
        let (kind, what) = match &message.action {
            Action::Insert(value) => ("insert", words::value(self.tree, &key, value)),
            Action::Delete => ("delete", String::new()),
            Action::Update(update) => ("update", words::update(update)),
        };
        let of = &self.slices[slice as usize];
        Some(Shown { msn: message.msn, run: of.run, byte: of.byte, kind, key, what })
    }
}

/// A message for display.
struct Shown {
    msn: Msn,
    run: RunSeq,
    byte: u64,
    kind: &'static str,
    key: Key,
    what: String,
}

impl Rows for Messages {
    fn len(&self) -> usize {
        self.order.len()
    }

    fn row(&self, at: usize) -> Row {
        let Some(Shown { msn, run, byte, kind, key, what }) = self.message(at) else {
            return Row::default();
        };
        let role = if kind == "insert" { Role::Plain } else { Role::Warn };
        let cells = vec![
            Cell::from(msn.to_string()),
            Cell::new(role, kind),
            Cell::from(run.to_string()),
            Cell::from(key_of(self.tree, &key)),
            Cell::new(Role::Dim, what),
        ];
        let message = Spot::Buffer(self.node, self.child, Some(msn.0));
        Row::of(cells).to([Spot::At(Address::Key(self.tree, key)), message, Spot::byte(byte)])
    }
}

/// Reads the messages pending for a child and verifies them.
fn pending(
    image: &Image,
    id: NodeId,
    child: usize,
    by_msn: bool,
    work: &Arc<Work>,
) -> Result<(InternalHead, Messages, Vec<String>), String> {
    let (disk, table) = (image.disk(work), image.table(work)?);
    let entry = entry_of(&table, id)?;
    let Head::Internal(head) = Head::read(&disk, id, &entry)? else {
        return Err(format!("{id} is a leaf: nothing is pending in it"));
    };
    let of = head
        .children
        .get(child)
        .ok_or_else(|| format!("{id} has {} children", head.children.len()))?;
    let (first, lo) = (of.first_run, of.pivot.clone());
    let hi = head.children.get(child + 1).map(|next| next.pivot.clone()).or(head.bounds.hi.clone());
    let (mut slices, mut ranges, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    // In a hostile image slices may overlap. The total read is limited to the length of the image, so that overlaps
    // cannot multiply it.
    let mut room = image.len();
    let mut read = |at: u64, section: &SectionRef| {
        room = room.checked_sub(section.bytes.into()).ok_or_else(|| {
            format!("b:{at:#x}: the parts of the runs have more bytes than the image")
        })?;
        let bytes = Bytes::from(disk.read(at, section.bytes as usize).map_err(text)?);
        match Hash::of(&bytes) == section.hash {
            true => Ok(bytes),
            false => Err(format!("b:{at:#x}: does not verify: its hash is another")),
        }
    };
    for run in head.runs.iter().filter(|run| run.seq >= first) {
        let start = run.extent.start.byte();
        for slice in run.slices.iter().filter(|slice| usize::from(slice.child) == child) {
            let byte = start + u64::from(slice.section.offset);
            let count = slice.section.count;
            match read(byte, &slice.section) {
                Ok(bytes) => slices.push(Slice::new(run.seq, byte, count, bytes)),
                Err(why) => bad.push(why),
            }
        }
        if run.ranges.count > 0 {
            let byte = start + u64::from(run.ranges.offset);
            let found = read(byte, &run.ranges).and_then(|bytes| {
                decode_ranges(&bytes, run.ranges.count as usize, None).map_err(text)
            });
            match found {
                Ok(found) => ranges.extend(
                    found
                        .into_iter()
                        .filter(|range| {
                            range.hi > lo && hi.as_ref().is_none_or(|hi| range.lo < *hi)
                        })
                        .map(|range| (run.seq, byte, range)),
                ),
                Err(why) => bad.push(why),
            }
        }
    }
    let messages = Messages::new((id, child, head.tree), slices, ranges, by_msn, work)?;
    Ok((head, messages, bad))
}

/// The messages pending for a child.
pub(super) fn messages(
    image: &Image,
    id: NodeId,
    child: usize,
    by_msn: bool,
    work: &Arc<Work>,
) -> Result<Sheet, String> {
    let (head, messages, bad) = pending(image, id, child, by_msn, work)?;
    let order = if by_msn { "newest last" } else { "by key" };
    let count = crate::words::some(Rows::len(&messages), "message");
    let title = format!("buffer for child {child}, {}  {count}, {order}", head.children[child].id);
    let columns = vec![
        numbers("msn", 10),
        column("kind", 12),
        numbers("run", 5),
        column("key", 34),
        rest("what"),
    ];
    let sheet = Sheet { rows: Box::new(messages), ..Sheet::new(title, columns, Vec::new()) };
    Ok(match &bad[..] {
        [] => sheet,
        [why] => sheet.note(Role::Bad, why),
        [why, rest @ ..] => {
            let more = crate::words::some(rest.len(), "other part");
            sheet.note(Role::Bad, format!("{why}; and {more} that cannot be shown"))
        }
    })
}

/// A leaf as it would be after the messages pending in this node are flushed to it.
pub(super) fn flushed(
    image: &Image,
    id: NodeId,
    child: usize,
    work: &Arc<Work>,
) -> Result<Sheet, String> {
    let (head, messages, _) = pending(image, id, child, true, work)?;
    let of = head.children[child].id;
    let volume = image.shown(work)?;
    let store = volume.store();
    let hi = head.children.get(child + 1).map(|next| next.pivot.clone()).or(head.bounds.hi.clone());
    let node = store.node(of).map_err(text)?;
    let betr_core::node::Node::Leaf(leaf) = &*node else {
        return Err(format!("{of} is no leaf: its messages would wait there; open it to see them"));
    };
    let lo = head.children[child].pivot.clone();
    let before = leaf.scan(&store.disk, &lo, hi.as_deref()).map_err(text)?;
    let mut after: std::collections::BTreeMap<Key, Bytes> = before.iter().cloned().collect();
    for (slice, index) in messages.order.iter().copied() {
        if work.is_cancelled() {
            return Err("given up".into());
        }
        if slice as usize == messages.slices.len() {
            let range = &messages.ranges[index as usize].2;
            let gone = after.range(range.lo.clone()..range.hi.clone());
            let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
            gone.iter().for_each(|key| drop(after.remove(key)));
            continue;
        }
        let (key, message) = messages.decode(slice)?[index as usize].clone();
        match message.action.apply(after.get(&key)) {
            Some(value) => drop(after.insert(key, value)),
            None => drop(after.remove(&key)),
        }
        if after.len() > FLUSHED_MAX {
            return Err("the leaf would be too large to be shown".into());
        }
    }
    let old: std::collections::BTreeMap<&Key, &Bytes> =
        before.iter().map(|(key, value)| (key, value)).collect();
    let mut rows = Vec::new();
    for (key, value) in &after {
        let (mark, role) = match old.get(key) {
            None => ("+", Role::Good),
            Some(before) if *before != value => ("~", Role::Warn),
            Some(_) => (" ", Role::Plain),
        };
        rows.push((key.clone(), mark, role, words::value(head.tree, key, value)));
    }
    let gone = before.iter().filter(|(key, _)| !after.contains_key(key));
    rows.extend(
        gone.map(|(key, value)| (key.clone(), "-", Role::Bad, words::value(head.tree, key, value))),
    );
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let rows = rows.into_iter().map(|(key, mark, role, what)| {
        let cells = vec![
            Cell::new(role, mark),
            Cell::from(key_of(head.tree, &key)),
            Cell::new(Role::Dim, what),
        ];
        Row::of(cells).to([Spot::At(Address::Key(head.tree, key))])
    });
    let title =
        format!("leaf {of} after this flush: {} entries, now {}", after.len(), before.len());
    let columns = vec![column("", 1), column("key", 34), rest("value")];
    Ok(Sheet::new(title, columns, rows.collect()).note(Role::Dim, "+ new   ~ changed   - gone"))
}
