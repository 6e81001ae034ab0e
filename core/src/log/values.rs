//! Reading the values that bindings lead to: each is verified by the hash that its binding carries.

use bytes::Bytes;

use crate::device::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{
    Action, Binding, Bound, BoundLeaf, BoundSlice, Entry, Key, Message, MsnRange, decode_slice,
};
use crate::ids::*;
use crate::node::{Node, read_part};

/// Nodes that stay in memory for the next value; more than one, because files written in turns are in
/// several.
const LOADED_MAX: usize = 4;

/// Where each unbound entry of a group has its value.
pub struct Bindings<'g> {
    ranges: Vec<(MsnRange, &'g Bound)>,
}

impl<'g> Bindings<'g> {
    /// The bindings of a group, by MSN.
    pub fn new(bindings: &'g [Binding]) -> Bindings<'g> {
        let of = |binding: &'g Binding| binding.values.iter().map(|range| (*range, &binding.to));
        let mut ranges: Vec<_> = bindings.iter().flat_map(of).collect();
        ranges.sort_unstable_by_key(|(range, _)| *range);
        Bindings { ranges }
    }

    /// What the unbound entry with this MSN is bound to. A group that decodes binds all of its own.
    pub fn of(&self, msn: Msn) -> &'g Bound {
        let at = self.ranges.partition_point(|(range, _)| range.end() <= msn);
        self.ranges.get(at).map_or(&Bound::Null, |(_, bound)| *bound)
    }
}

/// Reads bound values.
pub struct Values<'d> {
    disk: &'d Disk,
    volume: VolumeId,
    loaded: Vec<(u64, Source)>,
}

enum Source {
    Leaf(Node),
    Slice(Vec<(Key, Message)>),
}

impl<'d> Values<'d> {
    /// A reader of the values of this volume.
    pub fn new(disk: &'d Disk, volume: VolumeId) -> Values<'d> {
        Values { disk, volume, loaded: Vec::new() }
    }

    /// The value that message `msn` gives to `key`; nothing if it was obsolete at once.
    pub fn get(&mut self, bound: &Bound, key: &Key, msn: Msn) -> Result<Option<Bytes>> {
        let at = match bound {
            Bound::Null => return Ok(None),
            Bound::Inline(value) => return Ok(Some(value.clone())),
            Bound::Leaf(leaf) => leaf.extent.start.byte(),
            Bound::Slice(slice) => slice.extent.start.byte() + u64::from(slice.offset),
        };
        let (disk, volume) = (self.disk, self.volume);
        let source = match self.loaded.iter().position(|(place, _)| *place == at) {
            Some(found) => {
                let recent = self.loaded.remove(found);
                self.loaded.push(recent);
                &self.loaded.last().expect("it was just put there").1
            }
            None => {
                let source = match bound {
                    Bound::Leaf(leaf) => Source::Leaf(load_leaf(disk, volume, leaf)?),
                    Bound::Slice(slice) => Source::Slice(load_slice(disk, slice)?),
                    Bound::Null | Bound::Inline(_) => unreachable!("they were answered above"),
                };
                if self.loaded.len() == LOADED_MAX {
                    self.loaded.remove(0);
                }
                self.loaded.push((at, source));
                &self.loaded.last().expect("it was just put there").1
            }
        };
        let value = match source {
            Source::Leaf(Node::Leaf(leaf)) => leaf.get(disk, key)?,
            Source::Leaf(Node::Internal(_)) => None,
            Source::Slice(messages) => value_in(messages, key, msn),
        };
        let missing = || {
            let text = format!("what is bound for {} is not there", Place::Record(Lsn(msn.0)));
            Error::corrupt(Place::Byte(at), Fault::Missing(text))
        };
        value.map(Some).ok_or_else(missing)
    }
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

fn load_leaf(disk: &Disk, volume: VolumeId, bound: &BoundLeaf) -> Result<Node> {
    let BoundLeaf { node, extent, head_bytes, birth, hash } = *bound;
    let (tree, height) = (TreeId::Data, Height(0));
    let entry = Entry { extent, head_bytes, hash, birth, references: 1, tree, height };
    Node::load(disk, volume, node, &entry)
}

fn load_slice(disk: &Disk, bound: &BoundSlice) -> Result<Vec<(Key, Message)>> {
    let at = bound.extent.start.byte() + u64::from(bound.offset);
    let place = || Place::Node { id: bound.node, byte: Some(at) };
    let slice = read_part(disk, place, at, bound.bytes, &bound.hash)?;
    decode_slice(&slice.into(), bound.count as usize, None)
        .map_err(|error| Error::corrupt(place(), error))
}
