//! Reads bound values, and verifies each by the hash in its binding.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::FILE_BLOCK;
use crate::format::{
    Action, Binding, BoundLeaf, BoundSlice, Entry, Key, Message, MsnRange, Target, block_after,
    decode_slice,
};
use crate::ids::*;
use crate::node::{Leaf, Node, read_part};
use crate::tuning::OPEN_LEAVES_MAX;

/// A place of bound values, loaded and verified as far as it has been read.
pub(super) enum LoadedTarget {
    Leaf(Box<Leaf>, u64),
    Slice(Vec<(Key, Message)>, u64),
    Inline(Bytes),
}

impl LoadedTarget {
    /// Loads the place of a binding; `None` for NULL.
    pub(super) fn load(
        disk: &Disk,
        volume: VolumeId,
        target: &Target,
    ) -> Result<Option<LoadedTarget>> {
        Ok(match target {
            Target::Leaf(bound) => {
                let leaf = Box::new(load_leaf(disk, volume, bound)?);
                Some(LoadedTarget::Leaf(leaf, target.place()))
            }
            Target::Slice(bound) => {
                Some(LoadedTarget::Slice(load_slice(disk, bound)?, target.place()))
            }
            Target::Inline(value) => Some(LoadedTarget::Inline(value.clone())),
            Target::Null => None,
        })
    }

    /// Whether it is a leaf, whose parts are read one by one.
    pub(super) fn is_leaf(&self) -> bool {
        matches!(self, LoadedTarget::Leaf(..))
    }

    /// The first key after the leaf part of `key`; `None` if that is the last part.
    pub(super) fn part_end(&self, key: &Key) -> Option<Key> {
        match self {
            LoadedTarget::Leaf(leaf, _) => leaf.part_end(key),
            LoadedTarget::Slice(..) | LoadedTarget::Inline(_) => None,
        }
    }

    /// Whether that part verifies, except for file blocks in it.
    pub(super) fn has_part(&self, disk: &Disk, key: &Key) -> bool {
        match self {
            LoadedTarget::Leaf(leaf, _) => leaf.has_part(disk, key),
            LoadedTarget::Slice(..) | LoadedTarget::Inline(_) => true,
        }
    }

    /// The value that message `msn` gives to `key`.
    pub(super) fn value(&self, disk: &Disk, key: &Key, msn: Msn) -> Result<Bytes> {
        let (value, at) = match self {
            LoadedTarget::Inline(value) => return Ok(value.clone()),
            LoadedTarget::Leaf(leaf, at) => (leaf.get(disk, key)?, *at),
            LoadedTarget::Slice(messages, at) => (value_in(messages, key, msn), *at),
        };
        match value {
            Some(value) if value.len() <= FILE_BLOCK => Ok(value),
            _ => Err(not_there(msn, at)),
        }
    }
}

fn not_there(msn: Msn, at: u64) -> Error {
    let text = format!("what is bound for {} is not there", Place::Record(Lsn(msn.0)));
    Error::corrupt(Place::Byte(at), Fault::Missing(text))
}

fn value_in(messages: &[(Key, Message)], key: &Key, msn: Msn) -> Option<Bytes> {
    let at = messages.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
    match &messages[at].1 {
        Message { msn: found, action: Action::Insert(value) } if *found == msn => {
            Some(value.clone())
        }
        _ => None,
    }
}

fn load_leaf(disk: &Disk, volume: VolumeId, bound: &BoundLeaf) -> Result<Leaf> {
    let BoundLeaf { node, extent, head_bytes, birth, hash, .. } = *bound;
    let (tree, height) = (TreeId::Data, Height(0));
    // One parent (invariant 6).
    let entry = Entry { extent, head_bytes, hash, birth, references: 1, tree, height };
    let wrong = |fault| Error::corrupt(Place::Byte(extent.start.byte()), fault);
    match Node::load(disk, volume, node, &entry)? {
        Node::Leaf(leaf) if leaf.bytes().div_ceil(BLOCK_SIZE) == extent.blocks as usize => Ok(leaf),
        Node::Leaf(leaf) => {
            let bytes = format!("{} bytes", leaf.bytes());
            Err(wrong(Fault::mismatch("length of a bound leaf", extent, bytes)))
        }
        Node::Internal(_) => Err(wrong(Fault::mismatch("bound node", "a leaf", "another"))),
    }
}

fn load_slice(disk: &Disk, bound: &BoundSlice) -> Result<Vec<(Key, Message)>> {
    let at = bound.extent.start.byte() + u64::from(bound.offset);
    let place = || Place::Node { id: bound.node, byte: Some(at) };
    let slice = read_part(disk, place, at, bound.bytes, &bound.hash)?;
    decode_slice(&slice, bound.count as usize, None).map_err(|error| Error::corrupt(place(), error))
}

/// The values of the unbound entries of a group.
pub struct Values<'g> {
    disk: &'g Disk,
    volume: VolumeId,
    targets: Vec<(MsnRange, &'g Target)>,
    /// The leaves of recently fetched values, the latest last: the next values may be there, too.
    leaves: Vec<(u64, LoadedTarget)>,
    /// The slices that have been read; each is read once.
    slices: HashSet<u64>,
    /// Values of those slices that have not been fetched yet.
    kept: HashMap<Msn, (Key, Bytes)>,
}

impl<'g> Values<'g> {
    /// The values that `bindings` bind.
    pub fn new(disk: &'g Disk, volume: VolumeId, bindings: &'g [Binding]) -> Values<'g> {
        let of = |binding: &'g Binding| binding.values.iter().map(|range| (*range, &binding.to));
        let mut targets: Vec<_> = bindings.iter().flat_map(of).collect();
        targets.sort_unstable_by_key(|(range, _)| *range);
        let (leaves, slices, kept) = Default::default();
        Values { disk, volume, targets, leaves, slices, kept }
    }

    /// The values of consecutive blocks from `key` on, with the MSNs `messages`; `None` for values that are bound to
    /// NULL. Each may be fetched once.
    pub fn fetch(&mut self, key: &Key, messages: MsnRange) -> Result<Vec<Option<Bytes>>> {
        let mut values = vec![None; messages.count as usize];
        let first = self.targets.partition_point(|(range, _)| range.end() <= messages.first);
        let inside = |(range, _): &&(MsnRange, &Target)| range.first < messages.end();
        let mut parts: Vec<(MsnRange, &'g Target)> =
            self.targets[first..].iter().take_while(inside).copied().collect();
        parts.sort_by_key(|(range, target)| (target.place(), *range));
        for (range, target) in parts {
            match target {
                Target::Null => continue,
                Target::Inline(_) => {}
                Target::Leaf(bound) => self.load_leaf(bound, target.place())?,
                Target::Slice(bound) => self.load_slice(bound, target.place())?,
            }
            let first = range.first.max(messages.first);
            for msn in (first.0..range.end().min(messages.end()).0).map(Msn) {
                let at = (msn.0 - messages.first.0) as u32;
                let key = block_after(key, at).expect("the decoder has looked at the last key");
                values[at as usize] = Some(self.value(target, &key, msn)?);
            }
        }
        Ok(values)
    }

    fn value(&mut self, target: &Target, key: &Key, msn: Msn) -> Result<Bytes> {
        match target {
            Target::Inline(value) => return Ok(value.clone()),
            Target::Leaf(_) => {
                if let Some((_, leaf)) = self.leaves.last() {
                    return leaf.value(self.disk, key, msn);
                }
            }
            Target::Slice(_) | Target::Null => {}
        }
        match self.kept.remove(&msn) {
            Some((found, value)) if found == *key && value.len() <= FILE_BLOCK => Ok(value),
            _ => Err(not_there(msn, target.place())),
        }
    }

    /// Moves a leaf to the end of `leaves`; loads it if it is not there.
    fn load_leaf(&mut self, bound: &BoundLeaf, place: u64) -> Result<()> {
        match self.leaves.iter().position(|(known, _)| *known == place) {
            Some(at) => self.leaves[at..].rotate_left(1),
            None => {
                let leaf = load_leaf(self.disk, self.volume, bound)?;
                if self.leaves.len() == OPEN_LEAVES_MAX {
                    self.leaves.remove(0);
                }
                self.leaves.push((place, LoadedTarget::Leaf(Box::new(leaf), place)));
            }
        }
        Ok(())
    }

    /// Reads a slice, if it has not been read, and keeps its bound values. Files written in turns have their values in
    /// many slices, but their total is limited to the bytes that a group may bind.
    fn load_slice(&mut self, bound: &BoundSlice, place: u64) -> Result<()> {
        if !self.slices.insert(place) {
            return Ok(());
        }
        for (key, message) in load_slice(self.disk, bound)? {
            let at = self.targets.partition_point(|(range, _)| range.end() <= message.msn);
            let bound = self.targets.get(at).is_some_and(|(range, target)| {
                range.first <= message.msn && target.place() == place
            });
            if let (true, Action::Insert(value)) = (bound, message.action) {
                self.kept.insert(message.msn, (key, Bytes::copy_from_slice(&value)));
            }
        }
        Ok(())
    }
}
