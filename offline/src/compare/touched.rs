//! Finds the keys in which two checkpoints of one volume may differ, without reading shared parts.
//!
//! Pages of the allocation tables with equal hashes are skipped with everything below, and so are nodes whose entries
//! have equal hashes. The parts of all other nodes are compared by their hashes, regardless of the node: basements of
//! leaves with their key bounds, slices of runs, then single messages by key and MSN. If no part of only one checkpoint
//! concerns a key, its value is equal in both: the same messages are pending for it, over the same basement.
//!
//! Where nodes are shared, several paths may lead to one, each with other keys. Then both trees are followed from their
//! roots, and the parts are those of each path, with the keys that it shows. A node below which both checkpoints are equal
//! is one part.

use std::collections::{HashMap, HashSet};
use std::hash::Hash as Hashed;
use std::sync::Arc;

use super::Side;
use betr_core::disk::Disk;
use betr_core::error::{self, Error, Fault, Result};
use betr_core::format::limits::KEY_MAX;
use betr_core::format::{Bounds, Entry, Key, PagePointer, RangeDelete};
use betr_core::holds::differ::{self, Differences, differ};
use betr_core::ids::*;
use betr_core::node::{Internal, Node, RangeSet, SlicePlace};
use betr_core::table::Table;
use betr_core::tree::PathLens;
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
    let shares = [a, b].iter().any(|volume| volume.superblock().features.shares());
    let mut touched = Parts::of([a, b], &entries, shares).and_then(Parts::keys).ok()?;
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

/// A part with keys of its own: the keys in the tree, and the first one in the node.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    tree: TreeId,
    lo: Key,
    hi: Option<Key>,
    own: Key,
}

impl Place {
    fn of(tree: TreeId, lens: &PathLens, own: Bounds) -> Place {
        let Bounds { lo, hi } = lens.bounds_up(own.clone());
        Place { tree, lo, hi, own: own.lo }
    }
}

/// The hash of a slice. Where nodes are shared, a copy may have an equal one for other keys: there also the two prefixes
/// that it is seen through, and the first key.
type SlicePart = (Hash, Option<[Key; 3]>);

/// The parts of all nodes that differ.
struct Parts<'d> {
    disks: [&'d Disk; 2],
    basements: Balance<(Hash, Place), ()>,
    /// Nodes below which nothing differs.
    equal: Balance<(NodeId, Place), ()>,
    ranges: Balance<(TreeId, Key, Key, Msn), ()>,
    /// With their nodes.
    slices: Balance<SlicePart, (usize, SlicePlace)>,
    /// Whether nodes are shared.
    shares: bool,
    /// The number of nodes with these parts.
    nodes: usize,
    internal: Vec<(Side, PathLens, Arc<Node>)>,
}

impl<'d> Parts<'d> {
    /// The parts of these nodes. Where no node is shared one path leads to each, without a lens (invariant 6); otherwise
    /// those along all paths count.
    fn of(
        volumes: [&'d Volume; 2],
        entries: &[(NodeId, [Option<Entry>; 2])],
        shares: bool,
    ) -> Result<Parts<'d>> {
        let mut parts = Parts {
            disks: volumes.map(|volume| &volume.store().disk),
            shares,
            nodes: 0,
            basements: Balance(HashMap::new()),
            equal: Balance(HashMap::new()),
            ranges: Balance(HashMap::new()),
            slices: Balance(HashMap::new()),
            internal: Vec::new(),
        };
        let volume = volumes[0].identity().volume;
        if !shares {
            for (id, sides) in entries {
                for (side, entry) in [Side::First, Side::Second].into_iter().zip(sides) {
                    let Some(entry) = entry else { continue };
                    let node = Node::load(parts.disk(side), volume, *id, entry)?;
                    parts.add(side, PathLens::default(), Arc::new(node))?;
                }
            }
            return Ok(parts);
        }
        let changed: HashSet<NodeId> = entries.iter().map(|(id, _)| *id).collect();
        for (side, volume) in [Side::First, Side::Second].into_iter().zip(volumes) {
            // That of the checkpoint, without what the log has changed since.
            let (id, root) = (volume.identity().volume, volume.superblock().table);
            let disk = &volume.store().disk;
            let table = Table::open(disk.clone(), id, root).sharing(true);
            let (differ, known) = Default::default();
            let mut paths =
                Paths { side, disk, volume: id, table, changed: &changed, differ, known };
            for tree in TreeId::ALL {
                paths.add(&mut parts, Stop::root(tree), PathLens::default())?;
            }
        }
        Ok(parts)
    }

    fn disk(&self, side: Side) -> &'d Disk {
        self.disks[usize::from(side == Side::Second)]
    }

    /// Adds the parts of a node, as a path with this lens shows them.
    fn add(&mut self, side: Side, lens: PathLens, node: Arc<Node>) -> Result<()> {
        let tree = node.tree();
        self.nodes += 1;
        match &*node {
            Node::Leaf(leaf) => {
                for (keys, hash) in leaf.basements() {
                    self.basements.count(side, (hash, Place::of(tree, &lens, keys)), ());
                }
            }
            Node::Internal(internal) => {
                for RangeDelete { lo, hi, msn } in internal.live_ranges(self.disk(side))? {
                    let Bounds { lo, hi } = lens.bounds_up(Bounds { lo, hi: Some(hi) });
                    self.ranges.count(side, (tree, lo, hi.unwrap_or_else(past_all), msn), ());
                }
                let at = self.internal.len();
                let [to, from] = match lens.lens() {
                    Some(lens) => [lens.to().clone(), lens.from().clone()],
                    None => Default::default(),
                };
                for (place, first, hash) in internal.slices() {
                    let keys = || [to.clone(), from.clone(), first.clone()];
                    let keys = self.shares.then(keys);
                    self.slices.count(side, (hash, keys), (at, place));
                }
                self.internal.push((side, lens, node));
            }
        }
        self.check_size()
    }

    fn check_size(&self) -> Result<()> {
        let with_keys = self.basements.0.len() + self.equal.0.len() + self.ranges.0.len();
        match self.nodes + with_keys + self.slices.0.len() > PARTS_MAX {
            true => Err(too_many()),
            false => Ok(()),
        }
    }

    /// The keys of all parts that only one of the two has.
    fn keys(self) -> Result<Touched> {
        let Parts { disks, basements, equal, ranges, slices, internal, .. } = self;
        let mut messages = Balance(HashMap::new());
        let mut slices: Vec<(usize, SlicePlace, i64)> =
            slices.uneven().map(|(_, count, (at, place))| (at, place, count)).collect();
        slices.sort_unstable();
        let mut slices = slices.into_iter().peekable();
        // Node by node, so that the parts read are freed with their node.
        for (at, (side, lens, node)) in internal.into_iter().enumerate() {
            let disk = disks[usize::from(side == Side::Second)];
            let Some(node) = node.internal() else { continue };
            while let Some((_, place, count)) = slices.next_if(|(of, ..)| *of == at) {
                if count != if side == Side::First { 1 } else { -1 } {
                    // A sound image has no message twice.
                    let fault = Fault::Missing("a slice that stands in one place only".into());
                    let place = error::Place::Node { id: node.id, byte: None };
                    return Err(Error::corrupt(place, fault));
                }
                for (key, message) in node.slice_messages(disk, place)? {
                    let key = lens.lens().map_or(key.clone(), |lens| lens.up(&key));
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
        let basements = basements.uneven().map(|((_, place), ..)| place);
        for Place { tree, lo, hi, .. } in basements.chain(equal.uneven().map(|((_, at), ..)| at)) {
            touch(tree, lo, hi.unwrap_or_else(past_all));
        }
        Ok(touched)
    }
}

/// A key above all keys.
fn past_all() -> Key {
    Key::copied(&[0xff; KEY_MAX + 1])
}

/// The paths of one checkpoint.
struct Paths<'p> {
    side: Side,
    disk: &'p Disk,
    volume: VolumeId,
    table: Table,
    changed: &'p HashSet<NodeId>,
    /// Whether the two checkpoints differ in a node or below it.
    differ: HashMap<NodeId, bool>,
    /// Internal nodes that were read.
    known: HashMap<NodeId, Arc<Node>>,
}

impl Paths<'_> {
    /// Adds the parts of a node and of all below it, as a path with this lens shows them.
    fn add(&mut self, parts: &mut Parts<'_>, at: Stop, lens: PathLens) -> Result<()> {
        if !self.differs(&at)? {
            let place = Place::of(at.tree, &lens, at.keys);
            parts.equal.count(self.side, (at.id, place), ());
            return parts.check_size();
        }
        let node = self.load(&at)?;
        let mut below = Vec::new();
        if let Some(internal) = node.internal() {
            for number in 0..internal.children().len() {
                below.push((Stop::below(internal, number), lens.through(internal, number)?));
            }
        }
        parts.add(self.side, lens, node)?;
        below.into_iter().try_for_each(|(stop, lens)| self.add(parts, stop, lens))
    }

    fn differs(&mut self, at: &Stop) -> Result<bool> {
        if self.changed.contains(&at.id) || at.height == Some(Height(0)) {
            return Ok(self.changed.contains(&at.id));
        }
        if let Some(known) = self.differ.get(&at.id) {
            return Ok(*known);
        }
        let node = self.load(at)?;
        let mut differs = false;
        if let Some(internal) = node.internal() {
            for number in 0..internal.children().len() {
                differs = differs || self.differs(&Stop::below(internal, number))?;
            }
        }
        self.differ.insert(at.id, differs);
        Ok(differs)
    }

    fn load(&mut self, at: &Stop) -> Result<Arc<Node>> {
        let entry = self.table.get(at.id)?;
        // The height ends a cycle.
        let entry = entry.filter(|entry| {
            entry.tree == at.tree && at.height.is_none_or(|height| entry.height == height)
        });
        match entry {
            Some(_) if self.known.contains_key(&at.id) => Ok(self.known[&at.id].clone()),
            Some(entry) => {
                let node = Arc::new(Node::load(self.disk, self.volume, at.id, &entry)?);
                if node.internal().is_some() {
                    self.known.insert(at.id, node.clone());
                }
                Ok(node)
            }
            None => {
                let fault = Fault::Missing("the allocation table has no such node".into());
                Err(Error::corrupt(error::Place::Node { id: at.id, byte: None }, fault))
            }
        }
    }
}

/// A node that an edge leads to; the height of a root is not stated.
struct Stop {
    id: NodeId,
    tree: TreeId,
    height: Option<Height>,
    keys: Bounds,
}

impl Stop {
    fn root(tree: TreeId) -> Stop {
        Stop { id: tree.root(), tree, height: None, keys: Bounds::default() }
    }

    /// Child `number` of an internal node.
    fn below(internal: &Internal, number: usize) -> Stop {
        let (id, height) = (internal.children()[number].id, Height(internal.height.0 - 1));
        let keys = internal.bounds_below(number);
        Stop { id, tree: internal.tree, height: Some(height), keys }
    }
}

fn too_many() -> Error {
    Error::Input(format!("more than {PARTS_MAX} parts of nodes differ"))
}
