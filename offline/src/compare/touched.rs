//! Finds the keys in which two checkpoints of one volume may differ, without reading shared parts.
//!
//! Pages of the allocation tables with equal hashes are skipped with everything below, and so are nodes whose entries
//! have equal hashes. The parts of all other nodes are compared by their hashes, regardless of the node: basements of
//! leaves with their key bounds, slices of runs, then single messages by key and MSN. If no part of only one checkpoint
//! concerns a key, its value is equal in both: the same messages are pending for it, over the same basement.

use std::collections::HashMap;
use std::hash::Hash as Hashed;

use super::Side;
use betr_core::disk::Disk;
use betr_core::error::{Error, Fault, Place, Result};
use betr_core::format::limits::KEY_MAX;
use betr_core::format::{Entry, Key, PagePointer, RangeDelete};
use betr_core::holds::differ::{self, Differences, differ};
use betr_core::ids::*;
use betr_core::node::{Internal, Node, RangeSet, SlicePlace};
use betr_core::volume::Volume;

/// 1,048,576 parts of nodes are compared at most, in 500 MiB of memory. Checkpoints that differ in more are read.
const PARTS_MAX: usize = 1 << 20;

/// The keys of each index in which two states of a volume may differ: metadata, and contents.
pub type Touched = [RangeSet; 2];

/// The keys in which two states of one volume may differ. Each state is a checkpoint and log records, which have
/// touched the keys of `logged`. `None` for different volumes, if memory would not suffice, or if something cannot be
/// read.
pub fn touched(a: &Volume, b: &Volume, logged: [Touched; 2]) -> Option<Touched> {
    let of = |volume: &Volume| (volume.identity().volume, volume.superblock().table);
    let ((volume, older), (other, younger)) = (of(a), of(b));
    if volume != other {
        return None;
    }
    let disks = [&a.store().disk, &b.store().disk];
    let mut changed = Changed::default();
    differ(disks, volume, older, Some(younger), &mut changed);
    let Changed { entries, is_whole: true } = changed else { return None };
    let mut touched = Parts::of(disks, volume, &entries).and_then(Parts::keys).ok()?;
    for logged in logged {
        for (touched, logged) in touched.iter_mut().zip(logged) {
            logged.iter().for_each(|range| touched.insert(range));
        }
    }
    Some(touched)
}

/// Nodes whose entries differ in the two tables.
struct Changed {
    entries: Vec<(NodeId, [Option<Entry>; 2])>,
    is_whole: bool,
}

impl Default for Changed {
    fn default() -> Changed {
        Changed { entries: Vec::new(), is_whole: true }
    }
}

impl Differences for Changed {
    fn page(&mut self, _: differ::Side, _: u8, _: u64, _: &PagePointer) -> bool {
        self.is_whole
    }

    fn lost(&mut self, _: differ::Side, _: Error) {
        self.is_whole = false;
    }

    fn entry(&mut self, id: NodeId, older: Option<&Entry>, younger: Option<&Entry>) {
        let hash = |entry: Option<&Entry>| entry.map(|entry| entry.hash);
        if hash(older) != hash(younger) {
            self.entries.push((id, [older.copied(), younger.copied()]));
        }
        self.is_whole &= self.entries.len() <= PARTS_MAX;
    }
}

/// Parts, each with its count in the first checkpoint less that in the second, and its place.
struct Balance<K, P>(HashMap<K, (i64, P)>);

impl<K: Eq + Hashed, P> Balance<K, P> {
    fn count(&mut self, side: Side, part: K, place: P) {
        let (count, _) = self.0.entry(part).or_insert((0, place));
        *count += if side == Side::First { 1 } else { -1 };
    }

    fn uneven(self) -> impl Iterator<Item = (K, i64, P)> {
        let uneven = self.0.into_iter().filter(|(_, (count, _))| *count != 0);
        uneven.map(|(part, (count, place))| (part, count, place))
    }
}

/// The parts of all nodes that differ.
struct Parts<'d> {
    disks: [&'d Disk; 2],
    basements: Balance<(TreeId, Hash, Key, Option<Key>), ()>,
    ranges: Balance<(TreeId, Key, Key, Msn), ()>,
    /// By their hashes, with their nodes.
    slices: Balance<Hash, (usize, SlicePlace)>,
    internal: Vec<(Side, Internal)>,
}

impl<'d> Parts<'d> {
    fn of(
        disks: [&'d Disk; 2],
        volume: VolumeId,
        entries: &[(NodeId, [Option<Entry>; 2])],
    ) -> Result<Parts<'d>> {
        let mut parts = Parts {
            disks,
            basements: Balance(HashMap::new()),
            ranges: Balance(HashMap::new()),
            slices: Balance(HashMap::new()),
            internal: Vec::new(),
        };
        for (id, sides) in entries {
            for (side, entry) in [Side::First, Side::Second].into_iter().zip(sides) {
                let Some(entry) = entry else { continue };
                let node = Node::load(parts.disk(side), volume, *id, entry)?;
                parts.add(side, node)?;
                let (basements, ranges) = (parts.basements.0.len(), parts.ranges.0.len());
                if basements + ranges + parts.slices.0.len() > PARTS_MAX {
                    return Err(too_many());
                }
            }
        }
        Ok(parts)
    }

    fn disk(&self, side: Side) -> &'d Disk {
        self.disks[usize::from(side == Side::Second)]
    }

    /// Adds the parts of a node. Its keys are taken for those of the tree (invariant 6): no state that is compared shares
    /// nodes.
    fn add(&mut self, side: Side, node: Node) -> Result<()> {
        let tree = node.tree();
        match node {
            Node::Leaf(leaf) => {
                for (keys, hash) in leaf.basements() {
                    self.basements.count(side, (tree, hash, keys.lo, keys.hi), ());
                }
            }
            Node::Internal(internal) => {
                for RangeDelete { lo, hi, msn } in internal.live_ranges(self.disk(side))? {
                    self.ranges.count(side, (tree, lo, hi, msn), ());
                }
                let at = self.internal.len();
                for (place, hash) in internal.slices() {
                    self.slices.count(side, hash, (at, place));
                }
                self.internal.push((side, internal));
            }
        }
        Ok(())
    }

    /// The keys of all parts that only one of the two has.
    fn keys(self) -> Result<Touched> {
        let Parts { disks, basements, ranges, slices, internal } = self;
        let mut messages = Balance(HashMap::new());
        let mut slices: Vec<(usize, SlicePlace, i64)> =
            slices.uneven().map(|(_, count, (at, place))| (at, place, count)).collect();
        slices.sort_unstable();
        let mut slices = slices.into_iter().peekable();
        // Node by node, so that the parts read are freed with their node.
        for (at, (side, node)) in internal.into_iter().enumerate() {
            let disk = disks[usize::from(side == Side::Second)];
            while let Some((_, place, count)) = slices.next_if(|(of, ..)| *of == at) {
                if count != if side == Side::First { 1 } else { -1 } {
                    // A sound image has no message twice.
                    let fault = Fault::Missing("a slice that stands in one place only".into());
                    return Err(Error::corrupt(Place::Node { id: node.id, byte: None }, fault));
                }
                for (key, message) in node.slice_messages(disk, place)? {
                    messages.count(side, (node.tree, key, message), ());
                }
                if messages.0.len() > PARTS_MAX {
                    return Err(too_many());
                }
            }
        }
        let mut touched = Touched::default();
        let mut touch = |tree, lo, hi| {
            let of_tree: &mut RangeSet = &mut touched[usize::from(tree == TreeId::Data)];
            of_tree.insert(RangeDelete { lo, hi, msn: Msn(1) });
        };
        for ((tree, key, _), ..) in messages.uneven() {
            let end = key.successor();
            touch(tree, key, end);
        }
        for ((tree, lo, hi, _), ..) in ranges.uneven() {
            touch(tree, lo, hi);
        }
        for ((tree, _, lo, hi), ..) in basements.uneven() {
            touch(tree, lo, hi.unwrap_or_else(|| Key::copied(&[0xff; KEY_MAX + 1])));
        }
        Ok(touched)
    }
}

fn too_many() -> Error {
    Error::Input(format!("more than {PARTS_MAX} parts of nodes differ"))
}
