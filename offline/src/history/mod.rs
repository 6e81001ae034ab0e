//! The history in the log, record by record, in terms of files.
//!
//! Paths are as of the time of each record, by the checkpoint and the records before it. Nothing is replayed: a map of
//! zones and the metadata changes of records are kept while the log is read. If a part of the checkpoint is unreadable,
//! paths begin with a zone id instead; that is no error.

mod key;
mod names;
mod values;

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::error::{Place, Result};
use betr_core::format::limits::FILE_BLOCK;
use betr_core::format::*;
use betr_core::fs::{Fs, ORPHAN_ZONE};
use betr_core::ids::*;
use betr_core::log::{LogReader, Region, Scanned, Survey, scan};
use betr_core::node::RangeSet;
use betr_core::store::CacheBudget;
use betr_core::volume::{Found, Mode, Ring, Volume, read_identity};

pub use key::{KeyDeed, KeyStep, of_key};
pub use names::Names;
use values::Values;

/// A record, with its effects.
pub struct Event<'e> {
    /// The group of the record.
    pub group: &'e Group,
    /// The byte address of the group.
    pub byte: u64,
    /// The record.
    pub record: &'e Record,
    /// The keys that it touched, message by message.
    pub touched: Vec<Touched>,
    /// The places of its late-bound values.
    pub bound: Vec<BoundPart<'e>>,
    /// The offset of the record in the group.
    offset: u64,
    names: &'e Names,
}

/// The place of some late-bound values of a record.
pub struct BoundPart<'e> {
    /// Their messages.
    pub values: MsnRange,
    /// Their place.
    pub to: &'e Target,
}

/// A key, or a range of keys, that a message touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The MSN of the message.
    pub msn: Msn,
    /// The index.
    pub tree: TreeId,
    /// The key, or the first that may be touched.
    pub lo: Key,
    /// The end of a range.
    pub hi: Key,
    /// The place in the metadata index of its object.
    pub place: Option<MetaKey>,
    /// The effect.
    pub act: Act,
    /// The inode there, after a change or before a removal, if known.
    pub inode: Option<Inode>,
}

/// The effect on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// An entry was made, or replaced if the checkpoint does not show the old one.
    Put,
    /// The value of an entry was replaced.
    Replace,
    /// An entry was removed.
    Remove,
    /// Everything below a directory was removed.
    RemoveBelow,
    /// Fields of an inode were written.
    Inode,
    /// Counters of a directory were changed.
    Count,
    /// An extended attribute was set.
    SetXattr(Vec<u8>),
    /// An extended attribute was removed; all of them, if it has no name.
    RemoveXattr(Vec<u8>),
    /// Bytes of a file were written: the first byte, and the greatest length.
    Write(u64, u64),
    /// Bytes of a file were dropped: from the first, up to the second if given.
    Drop(u64, Option<u64>),
    /// A range of keys was cloned.
    Clone,
    /// A key that matches no schema.
    Raw,
}

impl Act {
    /// The rank of an effect in a summary of a record; lower ranks are more important.
    fn rank(&self) -> u8 {
        match self {
            Act::Put | Act::Remove | Act::Clone | Act::SetXattr(_) | Act::RemoveXattr(_) => 0,
            Act::RemoveBelow | Act::Inode | Act::Replace => 1,
            Act::Write(..) | Act::Drop(..) | Act::Raw => 2,
            Act::Count => 3,
        }
    }
}

impl Event<'_> {
    /// The paths that the record concerns, each once: names that were made or removed, or else changed objects. An
    /// object that became an orphan is listed only under its last name.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        // An object that gets a zone of its own keeps its name.
        let rank_of = |touched: &Touched| match (self.record.op, &touched.act) {
            (Op::SplitZone, Act::Clone) => Act::Count.rank(),
            (_, act) => act.rank(),
        };
        let Some(rank) = self.touched.iter().map(rank_of).min() else { return Vec::new() };
        let is_orphan = |touched: &Touched| {
            touched.place.as_ref().is_some_and(|place| place.zone() == ORPHAN_ZONE)
        };
        let named = self.touched.iter().filter(|touched| rank_of(touched) == rank);
        let only_orphans = named.clone().all(is_orphan);
        let mut known = HashSet::new();
        let named = named.filter(|touched| only_orphans || !is_orphan(touched));
        let mut paths: Vec<Vec<u8>> = named
            .map(|touched| self.path(touched))
            .filter(|path| known.insert(path.clone()))
            .collect();
        if self.record.op == Op::Rename {
            // Objects that moved with a directory are not listed.
            let is_below = |path: &[u8]| {
                let slashes = (1..path.len()).filter(|at| path[*at] == b'/');
                slashes.into_iter().any(|at| known.contains(&path[..at]))
            };
            paths.retain(|path| !is_below(path));
        }
        paths.truncate(RECORD_PATHS_MAX);
        paths
    }

    /// Whether it touched a zone.
    pub fn touches_zone(&self, zone: ZoneId) -> bool {
        self.touched.iter().any(|touched| touched.lo.get(..8) == Some(&zone.0.to_be_bytes()[..]))
    }

    /// The byte range of the record in the image; it may wrap around at the end of the log.
    pub fn bytes(&self) -> Range<u64> {
        let start = self.byte + self.offset;
        start..start + Record::encoded_bytes(&self.record.messages) as u64
    }

    /// The path of a touched object, as of the time of the record; see [`Names::path`].
    pub fn path(&self, touched: &Touched) -> Vec<u8> {
        match &touched.place {
            Some(place) => self.names.path(place),
            None => Place::Key(touched.tree, touched.lo.to_vec()).to_string().into_bytes(),
        }
    }
}

/// 64 paths of a record are reported at most; it may touch more.
const RECORD_PATHS_MAX: usize = 64;
/// 12 MiB: the cache for reads of the checkpoint.
const CACHE: usize = 12 << 20;

/// Passes the events of a superblock's log to `show`, until that stops. Returns the result of pass 1.
pub fn tell(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    show: &mut dyn FnMut(&Event<'_>) -> ControlFlow<()>,
) -> Result<Survey> {
    let disk = Disk::new(device.clone());
    let survey = scan(&disk, superblock)?;
    let base = Volume::of_checkpoint(&disk, superblock.clone(), CacheBudget::of(CACHE)).ok();
    let base = base.map(|volume| Rc::new(Fs::open(volume, Box::new(Time::default))));
    let mut teller = Teller { names: Names::of(base.clone()), values: Values::new(base) };
    let region = Region::of(superblock);
    let mut reader = LogReader::new(&disk, superblock);
    for _ in 0..survey.groups {
        let Ok(Scanned { unit, group, .. }) = reader.next()? else { break };
        let byte = region.byte(unit);
        let targets = targets(&group);
        let mut offset = GROUP_HEADER_BYTES as u64;
        for record in &group.records {
            let touched = record.numbered().map(|(msn, message)| teller.touch(msn, message));
            let touched = touched.collect();
            let bound = bound_parts(&targets, record);
            let names = &teller.names;
            let event = Event { group: &group, byte, record, touched, bound, offset, names };
            offset += Record::encoded_bytes(&record.messages) as u64;
            if show(&event).is_break() {
                return Ok(survey);
            }
        }
    }
    Ok(survey)
}

/// The keys of each index that the log records between two next MSNs touched.
pub fn touched_between(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    a: Msn,
    b: Msn,
) -> Result<[RangeSet; 2]> {
    let (first, end) = (a.min(b), a.max(b));
    let mut touched = [RangeSet::default(), RangeSet::default()];
    let disk = Disk::new(device.clone());
    let survey = scan(&disk, superblock)?;
    let mut reader = LogReader::new(&disk, superblock);
    for _ in 0..survey.groups {
        let Ok(Scanned { group, .. }) = reader.next()? else { break };
        let within = |record: &&Record| (first..end).contains(&Msn(record.lsn.0));
        for message in group.records.iter().filter(within).flat_map(|record| &record.messages) {
            let (lo, hi) = message.bounds();
            if lo < hi {
                let of_tree = &mut touched[usize::from(message.tree() == TreeId::Data)];
                of_tree.insert(RangeDelete { lo, hi, msn: Msn(1) });
            }
        }
    }
    Ok(touched)
}

/// The keys of each index that the log records of a moment touched, after its checkpoint and up to the message `end`.
pub fn touched_since_checkpoint(
    device: &Arc<dyn Device>,
    moment: &Found,
    end: Msn,
) -> Result<[RangeSet; 2]> {
    if moment.mode == Mode::Checkpoint {
        return Ok(Default::default());
    }
    let disk = Disk::new(device.clone());
    let ring = Ring::read(&disk, &read_identity(&disk)?)?;
    let superblock = ring.choose(Some(moment.slot))?;
    match superblock.next_msn == end {
        true => Ok(Default::default()),
        false => touched_between(device, superblock, superblock.next_msn, end),
    }
}

/// The bindings of a group, in the order of messages.
fn targets(group: &Group) -> Vec<(MsnRange, &Target)> {
    let of = |binding: &'_ Binding| binding.values.len();
    let mut targets = Vec::with_capacity(group.bindings.iter().map(of).sum());
    for binding in &group.bindings {
        targets.extend(binding.values.iter().map(|range| (*range, &binding.to)));
    }
    targets.sort_by_key(|(range, _)| *range);
    targets
}

/// The bindings of one record.
fn bound_parts<'g>(targets: &[(MsnRange, &'g Target)], record: &Record) -> Vec<BoundPart<'g>> {
    let mut parts = Vec::new();
    for entry in record.unbound() {
        let first = targets.partition_point(|(range, _)| range.end() <= entry.first);
        for (range, to) in
            targets[first..].iter().take_while(|(range, _)| range.first < entry.end())
        {
            let (first, end) = (range.first.max(entry.first), range.end().min(entry.end()));
            parts.push(BoundPart {
                values: MsnRange { first, count: (end.0 - first.0) as u32 },
                to,
            });
        }
    }
    parts
}

struct Teller {
    names: Names,
    values: Values,
}

impl Teller {
    fn touch(&mut self, msn: Msn, message: &RecordMessage) -> Touched {
        let (tree, (lo, hi)) = (message.tree(), message.bounds());
        let (place, act, inode) = match tree {
            _ if message.is_clone() => (None, Act::Clone, None),
            TreeId::Metadata => self.metadata(msn, message, &lo),
            TreeId::Data => self.data(message, &lo, &hi),
        };
        Touched { msn, tree, lo, hi, place, act, inode }
    }

    fn metadata(&mut self, msn: Msn, message: &RecordMessage, lo: &Key) -> Done {
        let RecordMessage::Point(_, _, action) = message else {
            let RecordMessage::RangeDelete(_, lo, hi) = message else {
                return (None, Act::Raw, None);
            };
            self.values.remove_range(lo, hi);
            let place = MetaKey::beginning(lo);
            let of_xattrs = place.as_ref().is_some_and(|place| place.xattr_range().0 == *lo);
            if !of_xattrs {
                self.names.forget_range(lo, hi, msn);
            }
            let act = if of_xattrs { Act::RemoveXattr(Vec::new()) } else { Act::RemoveBelow };
            return (place, act, None);
        };
        let Some(place) = MetaKey::decode(lo) else { return (None, Act::Raw, None) };
        if let Some(name) = place.xattr() {
            let act = match action {
                // These attributes record zones that are too small.
                _ if place.zone() == ORPHAN_ZONE && place.is_root() => Act::Count,
                Action::Delete => Act::RemoveXattr(name.to_vec()),
                Action::Insert(_) | Action::Update(_) => Act::SetXattr(name.to_vec()),
            };
            return (Some(place.object()), act, None);
        }
        let before = self.values.get(lo);
        let (act, after) = match action {
            Action::Insert(value) => {
                let is_same = before.as_deref().is_some_and(|before| is_same_object(before, value));
                (if is_same { Act::Replace } else { Act::Put }, Some(value.clone()))
            }
            Action::Delete => (Act::Remove, None),
            Action::Update(update) => {
                let act = if update.adds() { Act::Count } else { Act::Inode };
                (act, before.as_ref().and_then(|value| update.apply(Some(value))))
            }
        };
        let decoded = |value: &Bytes| MetaValue::decode(value, None).ok();
        if let (Act::Put | Act::Remove, Some(gone)) = (&act, before.as_ref().and_then(decoded)) {
            self.names.forget(&place, &gone, msn);
        }
        let value = after.as_ref().or(before.as_ref()).and_then(decoded);
        if let (Act::Put | Act::Replace, Some(value)) = (&act, &value) {
            self.names.learn(&place, value, msn);
        }
        self.values.put(lo, after);
        let inode = value.and_then(|value| self.values.inode_of(value));
        (Some(place), act, inode)
    }

    fn data(&mut self, message: &RecordMessage, lo: &Key, hi: &Key) -> Done {
        let bytes = |block: u64| block.saturating_mul(FILE_BLOCK as u64);
        let whole = parse_data_key(lo);
        let Some((place, block)) =
            whole.and_then(|(prefix, block)| Some((MetaKey::decode(prefix)?, block)))
        else {
            // The contents of everything below a directory.
            let act = match message {
                RecordMessage::RangeDelete(..) => Act::RemoveBelow,
                RecordMessage::Clone(..) => Act::Clone,
                RecordMessage::Point(..) | RecordMessage::Unbound(..) => Act::Raw,
            };
            return (MetaKey::beginning(lo), act, None);
        };
        let act = match message {
            RecordMessage::Unbound(_, count) => Act::Write(bytes(block), bytes((*count).into())),
            RecordMessage::Point(_, _, Action::Delete) => {
                Act::Drop(bytes(block), Some(bytes(block.saturating_add(1))))
            }
            RecordMessage::Point(_, _, Action::Insert(value)) => {
                Act::Write(bytes(block), value.len() as u64)
            }
            RecordMessage::Point(_, _, Action::Update(update)) if update.only_trims() => {
                Act::Drop(bytes(block), None)
            }
            RecordMessage::Point(_, _, Action::Update(_)) => {
                Act::Write(bytes(block), FILE_BLOCK as u64)
            }
            RecordMessage::Clone(..) => Act::Clone,
            RecordMessage::RangeDelete(..) => {
                let same = |(prefix, block): &(&[u8], u64)| {
                    *prefix == &lo[..lo.len() - 8] && *block != u64::MAX
                };
                let end = parse_data_key(hi).filter(same);
                Act::Drop(bytes(block), end.map(|(_, block)| bytes(block)))
            }
        };
        // Contents in a data zone belong to the entry that refers to it.
        let entry = self.names.entry_of(&place).unwrap_or_else(|| place.clone()).encode();
        let value = self.values.get(&entry);
        let value = value.and_then(|value| MetaValue::decode(&value, None).ok());
        let inode = value.and_then(|value| self.values.inode_of(value));
        (Some(place), act, inode)
    }
}

/// Whether two values of an entry belong to one object.
fn is_same_object(a: &[u8], b: &[u8]) -> bool {
    let ino = |value: &[u8]| match MetaValue::decode(value, None).ok()? {
        MetaValue::Inode(inode) => Some(inode.ino),
        MetaValue::ZoneRef(reference) => Some(reference.ino),
    };
    ino(a).is_some_and(|number| ino(b) == Some(number))
}

/// Place, effect and inode of a message.
type Done = (Option<MetaKey>, Act, Option<Inode>);
