//! Pass 1 of recovery: finds the valid groups and their bindings.
//!
//! A group is valid if it verifies and all values that it binds do, or if a later group vouches for it: then the values
//! that do not verify are lost (SPEC 9.5). Each bound extent belongs to one binding (or, for
//! slices of a run, to bindings of one group). So no binding makes pass 1 read an extent again, even in a corrupt image; of
//! scattered extents (SPEC 1.4) the maps are compared, not the blocks that they name.

use std::collections::BTreeMap;
use std::ops::Range;

use super::tail::{Tail, beyond};
use super::values::LoadedTarget;
use super::{End, LogReader, LostRecord, Scanned};
use crate::disk::Disk;
use crate::error::{Damage, Error, Fault, Place, Result};
use crate::format::{
    Binding, Group, Key, MsnRange, Op, RecordMessage, Superblock, Target, block_after,
};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};

/// The result of pass 1: the valid groups and records, and the place of the next group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Number of valid groups.
    pub groups: u64,
    /// Number of their records.
    pub records: u64,
    /// Number of records of each operation.
    pub operations: BTreeMap<Op, u64>,
    /// Number of unbound entries; each represents one or more values.
    pub unbound: u64,
    /// Number of bindings.
    pub bindings: u64,
    /// Unbound entries whose values are in several places.
    pub spread: u64,
    /// Places that hold values of several unbound entries.
    pub shared: u64,
    /// Values by the kind of place that they are bound to.
    pub bound: BoundCounts,
    /// The extents that must not be overwritten while their group is needed: each once, with the group's number.
    pub pins: Vec<(u64, Extent)>,
    /// Lost values of acknowledged messages, in the order of the messages.
    pub lost: Vec<Lost>,
    /// Acknowledged records that cannot be replayed: readable ones of a damaged group, and those of later groups.
    pub beyond: Vec<LostRecord>,
    /// LSN ranges of such records of which nothing can be read.
    pub illegible: Vec<Range<Lsn>>,
    /// Valid groups whose padding is not zero.
    pub unpadded: Vec<Unpadded>,
    /// Why the log ends.
    pub end: End,
    /// The byte address where the log ends.
    pub end_byte: u64,
    /// The unit after the last group.
    pub next_unit: u64,
    /// The number of the next group.
    pub next_group: u64,
}

/// A valid group whose padding is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpadded {
    /// Its number.
    pub group: u64,
    /// The byte address of its padding.
    pub byte: u64,
    /// Whether a later group says that it, with its padding, had been flushed.
    pub is_vouched: bool,
}

/// Number of late-bound values by the kind of their place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoundCounts {
    /// In leaves.
    pub in_leaves: u64,
    /// In runs of internal nodes.
    pub in_runs: u64,
    /// In the log itself.
    pub inline: u64,
    /// Bound to NULL: obsolete when the group was sealed.
    pub null: u64,
}

impl BoundCounts {
    /// The sum of all.
    pub fn total(&self) -> u64 {
        self.in_leaves + self.in_runs + self.inline + self.null
    }

    pub(crate) fn add(&mut self, to: &Target, values: u64) {
        *match to {
            Target::Leaf(_) => &mut self.in_leaves,
            Target::Slice(_) => &mut self.in_runs,
            Target::Inline(_) => &mut self.inline,
            Target::Null => &mut self.null,
        } += values;
    }
}

/// Acknowledged values of consecutive blocks that do not verify, or cannot be read, at their bound place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Their messages.
    pub messages: MsnRange,
    /// The first of their keys in the data index.
    pub key: Key,
    /// Their bound place, and the fault there.
    pub damage: Damage,
    /// Whether the device failed to read them, so that they may be intact.
    pub unreadable: bool,
}

impl Lost {
    /// The key after the last.
    pub fn end(&self) -> Key {
        let last = block_after(&self.key, self.messages.count - 1);
        last.unwrap_or_else(|| self.key.clone()).successor()
    }
}

/// Pass 1: walks the groups after the checkpoint, and verifies each with its bindings.
pub fn scan(disk: &Disk, superblock: &Superblock) -> Result<Survey> {
    let mut reader = LogReader::new(disk, superblock);
    let mut survey = Survey::default();
    let mut extents = Extents::default();
    let mut tail: Option<Tail> = None;
    survey.end = loop {
        let mut ahead = reader.clone();
        let (group, padding) = match ahead.next() {
            Ok(Ok(Scanned { group, padding, is_padded, .. })) => {
                (group, (!is_padded).then_some(padding.start))
            }
            Ok(Err(why)) => {
                break tail.unwrap_or_else(|| Tail::look(&reader)).end(&reader, &why);
            }
            Err(Error::Io { source, .. }) => {
                let byte = reader.region.byte(reader.unit);
                break End::Unreadable { byte, why: source.to_string() };
            }
            Err(other) => return Err(other),
        };
        if let Err(why) = extents.take(&group, superblock.image_blocks) {
            break tail.unwrap_or_else(|| Tail::look(&reader)).end(&reader, &why);
        }
        let entries = entries(&group);
        let lost = verify(disk, superblock.birth.volume, &group, &entries)?;
        // A read error does not invalidate the group.
        if let Some(first) = lost.iter().find(|lost| !lost.unreadable) {
            let tail = tail.get_or_insert_with(|| Tail::look(&reader));
            if tail.vouched(group.number).is_none() {
                let why = format!("what it binds does not verify: {}", first.damage);
                break tail.end(&reader, &Fault::Missing(why));
            }
        }
        survey.add(&group, &entries, lost);
        if let Some(byte) = padding {
            let tail = tail.get_or_insert_with(|| Tail::look(&reader));
            let is_vouched = tail.vouched(group.number).is_some();
            survey.unpadded.push(Unpadded { group: group.number, byte, is_vouched });
        }
        reader = ahead;
    };
    (survey.next_unit, survey.next_group) = reader.next_group();
    survey.end_byte = reader.region.byte(survey.next_unit);
    if matches!(survey.end, End::Damaged { .. } | End::Unreadable { .. }) {
        (survey.beyond, survey.illegible) = beyond(&reader);
    }
    Ok(survey)
}

/// The extents bound so far.
#[derive(Default)]
struct Extents {
    /// By first block: the block after the extent, and the group.
    known: BTreeMap<BlockNr, (BlockNr, u64)>,
    /// Number of their blocks.
    blocks: u64,
}

impl Extents {
    /// Adds the extents of a group. None may be bound already or overlap another, no byte may be bound twice, and the
    /// total must not exceed the image.
    fn take(&mut self, group: &Group, image_blocks: u64) -> std::result::Result<(), Fault> {
        let mut places: Vec<(u64, u64)> = Vec::new();
        for binding in &group.bindings {
            let Some(extent) = binding.to.extent() else { continue };
            let (start, end) = (extent.start, extent.end());
            let before = self.known.range(..end).next_back().map(|(start, rest)| (*start, *rest));
            match before {
                // Slices of one run share its extent.
                Some((first, rest)) if (first, rest) == (start, (end, group.number)) => {}
                Some((_, (past, _))) if past > start => {
                    let what = "extent that is bound";
                    return Err(Fault::mismatch(what, "one that nothing else binds", extent));
                }
                _ => {
                    self.blocks += u64::from(extent.blocks);
                    self.known.insert(start, (end, group.number));
                }
            }
            let bytes = match &binding.to {
                Target::Slice(slice) => u64::from(slice.bytes),
                _ => extent.bytes(),
            };
            places.push((binding.to.place(), bytes));
        }
        // Corrupt maps could name the same blocks repeatedly.
        if self.blocks > image_blocks {
            let found = format!("{} blocks", self.blocks);
            return Err(Fault::mismatch("extents that are bound", "no more than the image", found));
        }
        places.sort_unstable();
        match places.windows(2).find(|pair| pair[0].0 + pair[0].1.max(1) > pair[1].0) {
            None => Ok(()),
            Some(pair) => {
                let place = Place::Byte(pair[1].0);
                Err(Fault::Missing(format!("{place} is bound twice")))
            }
        }
    }
}

/// The unbound entries of a group, in order: their MSNs and first keys.
fn entries(group: &Group) -> Vec<(MsnRange, &Key)> {
    let messages = group.records.iter().flat_map(|record| record.numbered());
    let unbound = |(first, message)| match message {
        &RecordMessage::Unbound(ref key, count) => Some((MsnRange { first, count }, key)),
        RecordMessage::Point(..) | RecordMessage::RangeDelete(..) | RecordMessage::Clone(..) => {
            None
        }
    };
    messages.filter_map(unbound).collect()
}

/// Reads every value that the group binds outside itself; returns those that do not verify.
fn verify(
    disk: &Disk,
    volume: VolumeId,
    group: &Group,
    entries: &[(MsnRange, &Key)],
) -> Result<Vec<Lost>> {
    let mut lost = Vec::new();
    if is_broken(Mutation::BindingsUnverified) {
        return Ok(lost);
    }
    for binding in &group.bindings {
        verify_binding(disk, volume, binding, entries, &mut lost)?;
    }
    lost.sort_by_key(|lost| lost.messages);
    Ok(lost)
}

fn verify_binding(
    disk: &Disk,
    volume: VolumeId,
    binding: &Binding,
    entries: &[(MsnRange, &Key)],
    lost: &mut Vec<Lost>,
) -> Result<()> {
    let mapped = match (binding.to.extent(), binding.to.map()) {
        (Some(extent), Some(map)) => disk.verify_map(extent, map),
        _ => Ok(()),
    };
    let bound = match mapped.and_then(|()| LoadedTarget::load(disk, volume, &binding.to)) {
        Ok(Some(bound)) => bound,
        Ok(None) => return Ok(()),
        Err(error) => {
            let (damage, unreadable) = error.into_damage()?;
            for (range, key) in pieces(binding, entries) {
                lost.push(Lost { messages: range, key, damage: damage.clone(), unreadable });
            }
            return Ok(());
        }
    };
    // Why the last value failed, and the key up to which all values fail for the same reason: a part of a leaf is read
    // only once, as a whole.
    let mut failed: Option<(Damage, bool, Option<Key>)> = None;
    for (range, first) in pieces(binding, entries) {
        let mut run: Option<Lost> = None;
        for at in 0..range.count {
            let key = block_after(&first, at).expect("the decoder has looked at the last key");
            let msn = Msn(range.first.0 + u64::from(at));
            let known = failed
                .as_ref()
                .filter(|(_, _, end)| bound.is_leaf() && end.as_ref().is_none_or(|end| key < *end));
            let (damage, unreadable) = match known {
                Some((damage, unreadable, _)) => (damage.clone(), *unreadable),
                None => {
                    let Err(error) = bound.value(disk, &key, msn) else {
                        lost.extend(run.take());
                        failed = None;
                        continue;
                    };
                    let (damage, unreadable) = error.into_damage()?;
                    // If the part verifies, only the block of this value is damaged.
                    failed = match bound.has_part(disk, &key) {
                        true => None,
                        false => Some((damage.clone(), unreadable, bound.part_end(&key))),
                    };
                    (damage, unreadable)
                }
            };
            match &mut run {
                Some(run) if run.unreadable == unreadable => run.messages.count += 1,
                _ => {
                    let messages = MsnRange { first: msn, count: 1 };
                    lost.extend(run.replace(Lost { messages, key, damage, unreadable }));
                }
            }
        }
        lost.extend(run);
    }
    Ok(())
}

/// The values of a binding, by unbound entry: consecutive MSNs, and the first key.
fn pieces(binding: &Binding, entries: &[(MsnRange, &Key)]) -> Vec<(MsnRange, Key)> {
    let mut pieces = Vec::new();
    for range in &binding.values {
        let mut next = range.first;
        let mut at = entries.partition_point(|(entry, _)| entry.end() <= next);
        while next < range.end() && at < entries.len() {
            let (entry, key) = &entries[at];
            let count = (entry.end().min(range.end()).0 - next.0) as u32;
            let offset = (next.0 - entry.first.0) as u32;
            let key = block_after(key, offset).expect("the decoder has looked at the last key");
            pieces.push((MsnRange { first: next, count }, key));
            next = Msn(next.0 + u64::from(count));
            at += 1;
        }
    }
    pieces
}

impl Survey {
    fn add(&mut self, group: &Group, entries: &[(MsnRange, &Key)], lost: Vec<Lost>) {
        self.groups += 1;
        self.records += group.records.len() as u64;
        for record in &group.records {
            *self.operations.entry(record.op).or_default() += 1;
        }
        self.unbound += entries.len() as u64;
        let mut places = vec![0; entries.len()];
        for binding in group.bindings.iter().filter(|binding| binding.to.extent().is_some()) {
            let mut here: Vec<usize> = Vec::new();
            for range in &binding.values {
                let first = entries.partition_point(|(entry, _)| entry.end() <= range.first);
                let inside = entries[first..].iter().take_while(|(e, _)| e.first < range.end());
                here.extend((first..).take(inside.count()));
            }
            here.dedup();
            self.shared += u64::from(here.len() > 1);
            here.into_iter().for_each(|entry| places[entry] += 1);
        }
        self.spread += places.into_iter().filter(|places| *places > 1).count() as u64;
        self.bindings += group.bindings.len() as u64;
        let mut extents: Vec<Extent> = Vec::new();
        for binding in &group.bindings {
            let values = binding.values.iter().map(|range| u64::from(range.count)).sum();
            self.bound.add(&binding.to, values);
            extents.extend(binding.to.extent());
        }
        extents.sort_unstable();
        extents.dedup();
        self.pins.extend(extents.into_iter().map(|extent| (group.number, extent)));
        self.lost.extend(lost);
    }

    /// Number of lost values.
    pub fn lost_values(&self) -> u64 {
        self.lost.iter().map(|lost| u64::from(lost.messages.count)).sum()
    }

    /// Number of units that the groups after this superblock take.
    pub fn units(&self, superblock: &Superblock) -> u64 {
        let (units, head) = (superblock.log_units, superblock.log_head);
        match self.groups {
            0 => 0,
            // A full log ends where it begins.
            _ => (self.next_unit + units - head - 1) % units + 1,
        }
    }

    /// The lost values that include message `msn`.
    pub fn lost_at(&self, msn: Msn) -> Option<&Lost> {
        let at = self.lost.partition_point(|lost| lost.messages.end() <= msn);
        self.lost.get(at).filter(|lost| lost.messages.first <= msn)
    }

    /// The first lost values after message `msn`.
    pub fn lost_after(&self, msn: Msn) -> Option<&Lost> {
        self.lost.get(self.lost.partition_point(|lost| lost.messages.first <= msn))
    }

    /// The loss of acknowledged data, as an error.
    pub fn damage(&self) -> Option<Error> {
        let lost = self.lost.first().map(|lost| Error::Corrupt(Box::new(lost.damage.clone())));
        self.end.damage().or(lost)
    }
}
