//! Drafts: operations under construction, with messages, inodes, counters, and changes of handles.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::zones::SmallZone;
use super::{Fs, Object, Placed};
use crate::error::{Error, Refusal, Result};
use crate::format::*;
use crate::ids::*;
use crate::volume::Transaction;

/// A change of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    pub meta: i128,
    pub data: i128,
    pub apart: i128,
}

impl Delta {
    /// The metadata bytes of an entry: its name and value.
    pub(super) fn entry(name: &[u8], value: usize) -> Delta {
        Delta::meta(name.len() + 2 + value)
    }

    pub(super) fn meta(bytes: usize) -> Delta {
        Delta { meta: bytes as i128, ..Delta::default() }
    }

    /// A reference to a zone, without its name.
    pub(super) fn reference() -> Delta {
        Delta::meta(ZONE_REF_BYTES) + Delta::apart(1)
    }

    /// As many that stand apart ([`apart`]).
    pub(super) fn apart(count: u64) -> Delta {
        Delta { apart: count.into(), ..Delta::default() }
    }

    /// The data bytes of a file of this size without a zone of its own.
    pub(super) fn data(size: u64) -> Delta {
        Delta { data: whole_blocks(size).into(), ..Delta::default() }
    }

    /// The counters after the change.
    pub(super) fn applied(self, sums: Sums) -> Delta {
        Delta::from(sums) + self
    }

    /// The sums as counters; `None` if one is out of range.
    pub(super) fn sums(self) -> Option<Sums> {
        Some(Sums {
            meta: self.meta.try_into().ok()?,
            data: self.data.try_into().ok()?,
            apart: self.apart.try_into().ok()?,
        })
    }
}

impl From<Sums> for Delta {
    fn from(sums: Sums) -> Delta {
        Delta { meta: sums.meta.into(), data: sums.data.into(), apart: sums.apart.into() }
    }
}

impl std::ops::Add for Delta {
    type Output = Delta;
    fn add(self, other: Delta) -> Delta {
        Delta {
            meta: self.meta + other.meta,
            data: self.data + other.data,
            apart: self.apart + other.apart,
        }
    }
}

impl std::ops::Neg for Delta {
    type Output = Delta;
    fn neg(self) -> Delta {
        Delta { meta: -self.meta, data: -self.data, apart: -self.apart }
    }
}

impl std::ops::Sub for Delta {
    type Output = Delta;
    fn sub(self, other: Delta) -> Delta {
        self + -other
    }
}

/// The size of a file in counters.
pub(crate) fn whole_blocks(size: u64) -> u64 {
    size.next_multiple_of(limits::FILE_BLOCK as u64)
}

/// Changes of counters, by directory.
#[derive(Default)]
pub(super) struct Counts(Vec<(Object, Delta)>);

impl Counts {
    /// Adds a change below `directory` to it and to its parents, up to the root of the zone.
    pub(super) fn add(&mut self, directory: &Object, delta: Delta) {
        for object in directory.chain() {
            match self.0.iter_mut().find(|(other, _)| *other == object) {
                Some((_, sum)) => *sum = *sum + delta,
                None => self.0.push((object, delta)),
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Object, Delta)> {
        self.0.iter()
    }
}

/// An operation under construction.
pub(super) struct Draft {
    /// Its time.
    pub now: Time,
    /// Whether directories count bytes.
    counts_bytes: bool,
    /// Range clones; they come first.
    clones: Vec<RecordMessage>,
    /// Deletes; they come next.
    deletes: Vec<RecordMessage>,
    /// Inserts and updates.
    inserts: Vec<RecordMessage>,
    /// The new inodes of objects, in the order of their numbers.
    inodes: Vec<(Object, Inode)>,
    counts: Counts,
    /// The new places of objects.
    moves: BTreeMap<Ino, (Object, Placed)>,
    /// Objects that lose their last name, and are deleted with their last handle.
    orphans: Vec<Object>,
    /// Zones that become too small, or large enough again.
    small: BTreeMap<ZoneId, Option<SmallZone>>,
}

impl Draft {
    pub(super) fn new(now: Time, sizes: ZoneSizes) -> Draft {
        Draft {
            now,
            counts_bytes: sizes.count_bytes(),
            clones: Vec::new(),
            deletes: Vec::new(),
            inserts: Vec::new(),
            inodes: Vec::new(),
            counts: Counts::default(),
            moves: BTreeMap::new(),
            orphans: Vec::new(),
            small: BTreeMap::new(),
        }
    }

    /// The inode of an object, for changes.
    pub(super) fn inode(&mut self, object: &Object) -> &mut Inode {
        let at = self.known(object).unwrap_or_else(|at| {
            self.inodes.insert(at, (object.clone(), Inode::clone(&object.inode())));
            at
        });
        &mut self.inodes[at].1
    }

    /// The index of an object's new inode, or where it would be.
    fn known(&self, object: &Object) -> std::result::Result<usize, usize> {
        self.inodes.binary_search_by_key(&object.ino(), |(known, _)| known.ino())
    }

    /// Updates the times of a directory, and its link count.
    pub(super) fn touch(&mut self, directory: &Object, links: i64) -> Result<()> {
        let now = self.now;
        let inode = self.inode(directory);
        inode.modified = now;
        inode.changed = now;
        // The link count of an orphan does not matter.
        if !directory.is_orphan() {
            inode.links = add_links(inode.links, links)?;
        }
        Ok(())
    }

    /// Adds a change of counters below `directory`.
    pub(super) fn count(&mut self, directory: &Object, delta: Delta) {
        let delta = if self.counts_bytes {
            delta
        } else {
            Delta { apart: delta.apart, ..Delta::default() }
        };
        if delta != Delta::default() {
            self.counts.add(directory, delta);
        }
    }

    pub(super) fn insert(&mut self, place: &MetaKey, value: impl Into<Bytes>) {
        self.insert_at(TreeId::Metadata, place.encode(), value.into());
    }

    pub(super) fn insert_at(&mut self, tree: TreeId, key: Key, value: Bytes) {
        self.inserts.push(RecordMessage::Point(tree, key, Action::Insert(value)));
    }

    pub(super) fn update(&mut self, place: &MetaKey, update: Update) {
        let (tree, key) = (TreeId::Metadata, place.encode());
        self.inserts.push(RecordMessage::Point(tree, key, Action::Update(update)));
    }

    pub(super) fn delete(&mut self, place: &MetaKey) {
        let (tree, key) = (TreeId::Metadata, place.encode());
        self.deletes.push(RecordMessage::Point(tree, key, Action::Delete));
    }

    pub(super) fn delete_range(&mut self, tree: TreeId, (lo, hi): (Key, Key)) {
        self.deletes.push(RecordMessage::RangeDelete(tree, lo, hi));
    }

    /// Adds a range clone.
    pub(super) fn clone_range(&mut self, tree: TreeId, clone: RangeClone) {
        self.clones.push(RecordMessage::Clone(tree, clone));
    }

    /// Adds a message to the deletes.
    pub(super) fn append_deletes(&mut self, message: RecordMessage) {
        self.deletes.push(message);
    }

    /// Whether the draft has decided whether a zone is too small.
    pub(super) fn knows_small(&self, zone: ZoneId) -> bool {
        self.small.contains_key(&zone)
    }

    /// Adds messages, in their order, after all deletes.
    pub(super) fn append(&mut self, messages: impl IntoIterator<Item = RecordMessage>) {
        self.inserts.extend(messages);
    }

    /// Sets the new place of an object.
    pub(super) fn move_to(&mut self, object: &Object, place: Placed) {
        self.moves.insert(object.ino(), (object.clone(), place));
    }

    /// Marks an object that loses its last name.
    pub(super) fn orphan(&mut self, object: &Object) {
        self.orphans.push(object.clone());
    }

    /// Drops the changes of an object that is deleted.
    pub(super) fn forget(&mut self, object: &Object) {
        if let Ok(at) = self.known(object) {
            self.inodes.remove(at);
        }
    }

    /// Sets whether a zone becomes too small.
    pub(super) fn small(&mut self, zone: ZoneId, small: Option<SmallZone>) {
        self.small.insert(zone, small);
    }

    pub(super) fn messages(&self) -> usize {
        self.clones.len() + self.deletes.len() + self.inserts.len()
    }
}

impl Fs {
    /// Begins an operation.
    pub(super) fn begin(&mut self) -> Result<Draft> {
        self.resume_deletes()?;
        self.reap_what_can_be()?;
        Ok(Draft::new(self.now(), self.sizes))
    }

    /// Carries out an operation.
    pub(super) fn commit(&mut self, op: Op, mut draft: Draft) -> Result<()> {
        let objects = draft.inodes.iter().map(|(object, _)| object);
        if !objects
            .chain(draft.counts.iter().map(|(object, _)| object))
            .all(|o| o.is_of(&self.live))
        {
            return Err(Error::Misuse("a handle of another file system".into()));
        }
        let mut counted = Vec::new();
        for (object, delta) in std::mem::take(&mut draft.counts).0 {
            if delta == Delta::default() {
                continue;
            }
            let known = draft.known(&object);
            let before = object.inode();
            let after = delta.applied(before.sums);
            let sums =
                after.sums().ok_or_else(|| match after.meta.min(after.data).min(after.apart) {
                    0.. => Error::from(Refusal::TooBig),
                    _ => {
                        let found = format!("{:?}, and a change by {delta:?}", before.sums);
                        self.damaged(&object.place(), "counters of what is there", &found)
                    }
                })?;
            match known {
                Ok(at) => draft.inodes[at].1.sums = sums,
                Err(_) => {
                    let adds = [
                        (META_SUM_AT, delta.meta),
                        (DATA_SUM_AT, delta.data),
                        (APART_SUM_AT, delta.apart),
                    ];
                    // The addition wraps around, so a delta outside the range of the number does no harm.
                    let adds = adds.into_iter().filter(|(_, delta)| *delta != 0);
                    let adds = adds.map(|(at, delta)| (at, delta as i64)).collect();
                    draft.update(&object.place(), Update::add_all(adds));
                    counted.push((object.clone(), Inode { sums, ..Inode::clone(&before) }));
                }
            }
            self.weigh(&mut draft, &object, sums);
        }
        for (zone, small) in std::mem::take(&mut draft.small) {
            self.note_small(&mut draft, zone, small);
        }
        for (object, inode) in std::mem::take(&mut draft.inodes) {
            let moved = draft.moves.get(&object.ino());
            let placed = moved.map_or_else(|| object.placed(), |(_, placed)| placed.clone());
            let lineage = placed.lineage(&inode);
            draft.insert_inode(&placed.key(), &inode, lineage);
            counted.push((object, inode));
        }
        let Draft { now, clones, deletes, inserts, moves, orphans, small, .. } = draft;
        let messages = clones.into_iter().chain(deletes).chain(inserts).collect();
        let before = self.volume.next_msn();
        let done = self.volume.commit(Transaction { op, wall: now, messages });
        // Work after the injection of the messages may fail, too. Then the handles must still match the trees, for
        // later reads.
        if self.volume.next_msn() == before {
            return done.map(drop);
        }
        self.changes += 1;
        if let Some(trail) = &mut self.trail {
            trail.push((op, self.volume.next_msn()));
        }
        counted.into_iter().for_each(|(object, inode)| object.set_inode(inode));
        moves.into_values().for_each(|(object, place)| object.put(place));
        orphans.into_iter().for_each(|object| object.set_orphan());
        self.small_changed(small);
        done.map(drop)
    }
}

pub(super) fn add_links(links: u32, delta: i64) -> Result<u32> {
    let links = u32::try_from(i64::from(links) + delta);
    links.map_err(|_| Error::from(Refusal::TooManyLinks))
}
