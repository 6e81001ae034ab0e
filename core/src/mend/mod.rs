//! The mender: rebuilds a sound volume from one whose structure is damaged.
//!
//! Nodes that verify stay as they are. A node with lost parts is rebuilt from the others. A node that is lost entirely
//! is rebuilt over its children, whose bounds and heights show their place, with empty leaves in the gaps. The owners
//! of blocks follow from that, and the log is replayed on top. Only the content of damaged bytes is lost; it is
//! reported as ranges of keys.
//!
//! The result is an ordinary checkpoint, written to free blocks. Until its superblock is durable, the image is no more
//! damaged than before.

mod holds;
mod inventory;
mod losses;
mod repair;
mod scan;
mod schema;
mod trees;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::check::{Code, Report};
use crate::device::Device;
use crate::disk::Disk;
use crate::error::{Error, Place, Result};
use crate::format::{Bounds, Features, HoldsRoot, Identity, Inflow, RangeClone, Superblock};
use crate::ids::*;
use crate::log::{LogReader, Survey};
use crate::node::{Internal, Leaf, Node};
use crate::space::Space;
use crate::store::Store;
use crate::table::Table;
use crate::tree::{NODE_PATHS_MAX, Parents};
use crate::volume::{
    Content, Mode, NonceSource, OpenOptions, Parts, Ring, Volume, raised, read_identity,
};

use inventory::Inventory;
pub use losses::{Missing, MissingPart, keys_of, missing_parts};
pub use repair::{Repair, repair, repair_all};
use trees::{How, Make, Plan};

/// A loss: the entries of a tree for some keys, or messages for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The tree.
    pub tree: TreeId,
    /// The keys.
    pub keys: Bounds,
    /// Whether only pending messages are lost.
    pub pending: bool,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.pending { "what was pending for" } else { "what stood at" };
        write!(f, "{what} {}", Place::Key(self.tree, self.keys.lo.to_vec()))?;
        match &self.keys.hi {
            Some(hi) if *hi == self.keys.lo.successor() => {}
            Some(hi) => write!(f, " to {}", Place::Key(self.tree, hi.to_vec()))?,
            None => f.write_str(" and behind it")?,
        }
        write!(f, ": {}", self.why)
    }
}

/// The result of a mender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Number of nodes rebuilt.
    pub nodes: u64,
    /// Number of log records replayed.
    pub replayed: u64,
    /// The losses, by tree and key.
    pub losses: Vec<Loss>,
    /// The losses by path, as far as there are paths.
    pub missing: Vec<Missing>,
    /// Whether there are more such paths.
    pub more_missing: bool,
    /// The changes that made the indexes consistent, in order.
    pub changes: Vec<Change>,
}

/// A change of an index that repairs a contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its place.
    pub place: Place,
    /// What was done.
    pub what: String,
}

impl Change {
    /// For a wrong count.
    const COUNTED: &str = "counted afresh";
    /// For an entry that is malformed, or belongs to nothing.
    const DROPPED: &str = "dropped";
    /// For contents that belong to nothing.
    const UNOWNED: &str = "contents of no file dropped";
    /// For contents of a file that belong to another one, or do not exist.
    const GIVEN_UP: &str = "contents given up";

    /// Whether only a count was wrong: nothing is lost.
    pub fn is_count(&self) -> bool {
        self.what == Change::COUNTED
    }

    /// Whether something was dropped, and not only corrected.
    pub fn is_loss(&self) -> bool {
        let made_good = matches!(self.place, Place::Key(..));
        let gone = [Change::DROPPED, Change::GIVEN_UP];
        !made_good || gone.iter().any(|gone| self.what.contains(gone))
    }
}

/// Rebuilds a sound volume from a damaged one, and opens it. Before its first checkpoint, only unused blocks are
/// written.
pub fn mend(
    device: &Arc<dyn Device>,
    report: &Report,
    slot: Option<u32>,
    spare: bool,
    nonces: NonceSource,
    mended: &mut Mended,
) -> Result<Volume> {
    let disk = Disk::new(device.clone());
    let identity = read_identity(&disk)?;
    let ring = Ring::read(&disk, &identity)?;
    let (superblock, is_reconstructed) = start(&disk, &identity, &ring, slot, &mut mended.changes)?;
    let newest = ring.newest().map(|newest| newest.birth.epoch).max(Some(superblock.birth.epoch));
    let newest = newest.unwrap_or_default();
    let mut survey = crate::log::scan(&disk, &superblock)?;
    // A slot that was reconstructed may verify by now.
    Ring::read(&disk, &identity)?.mend_slots(&disk)?;

    let inventory = Inventory::take(&disk, &superblock)?;
    // The mark may be in the superblock that is lost.
    let shares = superblock.features.shares() || inventory.shares();
    let mut superblock = superblock;
    if shares {
        superblock.features.read_only |= Features::SHARED;
    }
    let mut suspects = suspects(report);
    suspects.extend(&inventory.suspects);
    let mut next_node = inventory.next_node();
    let plan = Plan::new(&inventory, &suspects, &mut next_node, shares)?;

    let mut table = Table::empty(disk.clone(), identity.volume).sharing(shares);
    let mut space = Space::rebuilt(&disk, &superblock, spare)?;
    space.spare(&inventory.extents);
    let (mut inflow, mut make) = (Inflow::default(), plan.make);
    let mut live = HashSet::new();
    for (id, known) in &inventory.nodes {
        let node = Node::load(&disk, identity.volume, *id, &known.entry)?;
        let extents = blocks_of_node(&disk, known.entry.extent, &node)?;
        if !plan.keep.contains(id) {
            // The rebuild may still read it.
            space.spare(&extents.unwrap_or_default());
            continue;
        }
        if extents.as_ref().is_some_and(|extents| space.claim(extents)) {
            inflow += node.inflow();
            live.extend(extents_of(known.entry.extent, &node));
            table.place(*id, known.entry)?;
        } else {
            // Another node owns these blocks, so it can only be copied.
            space.spare(&extents.unwrap_or_default());
            let (tree, height, bounds) = (known.tree, known.height, known.bounds.clone());
            let place = trees::Place { id: *id, from: *id, tree, height, bounds };
            make.push(Make { place, how: How::Again(None) });
        }
    }
    // Where nothing is shared each node has one edge (invariant 6).
    for (id, edges) in plan.references.into_iter().filter(|(_, edges)| *edges != 1) {
        table.set_references(id, edges)?;
    }

    let left = holds::claim(
        &disk,
        &superblock,
        &live,
        &mut space,
        (Epoch(newest.0 + 1), is_reconstructed),
        &mut mended.changes,
    )?;
    if left.shares {
        superblock.features.read_only |= Features::SHARED;
        table.share();
    }
    space.release_spared(&survey.pins);
    unpinnable(&mut space, &superblock, &mut survey, &mut mended.changes);
    // Rescued messages get MSNs below the next one, so without groups in the log it is at least 2. With groups, the first
    // LSN of the log determines it.
    let least = if survey.groups == 0 { 2 } else { 1 };
    let next_msn = superblock.next_msn.max(Msn(least));
    let options = OpenOptions { content: None, ..OpenOptions::new(Mode::ReadWrite, nonces) };
    let (nodes, holds) = (table.nodes(), HoldsRoot::default());
    let superblock =
        Superblock { next_node, next_msn, inflow, nodes, holds, dying: 0, ..superblock };
    let cloned = clones_of(&disk, &superblock, &survey)?;
    let parts = Parts { disk: disk.clone(), identity, superblock, newest, space, table };
    let mut volume = Volume::assemble(parts, &survey, options)?;
    volume.adopt_holds(left.holds, left.dead)?;
    let mut lost = Vec::new();
    for making in make {
        mended.nodes += 1;
        volume.put_node(make_node(&disk, &inventory, next_msn, making, &mut lost)?)?;
    }
    for tree in TreeId::ALL {
        let lost: Vec<&NodeLoss> = lost.iter().filter(|lost| lost.loss.tree == tree).collect();
        match shares {
            true => tell_shared(&lost, volume.store(), tree, &mut mended.losses)?,
            false => mended.losses.extend(lost.into_iter().map(|lost| lost.loss.clone())),
        }
    }
    for (tree, clone) in &cloned {
        let of_source = |loss: &Loss| lost_with(loss, *tree, clone);
        let most = LOSSES_MAX.saturating_sub(mended.losses.len());
        let more: Vec<Loss> = mended.losses.iter().filter_map(of_source).take(most).collect();
        mended.losses.extend(more);
    }
    mended.losses.sort_by(|a, b| (a.tree, &a.keys.lo).cmp(&(b.tree, &b.keys.lo)));
    mended.losses.dedup();
    volume.replay_sound(&survey)?;
    mended.replayed = survey.records;
    if volume.content() == Content::Files {
        schema::mend(&mut volume, &mended.losses, &mut mended.changes)?;
    }
    Ok(volume)
}

/// The superblock to start from, and whether it was reconstructed. It is that of a slot; or the newest, as far as it
/// can be reconstructed; or else an older one.
fn start(
    disk: &Disk,
    identity: &Identity,
    ring: &Ring,
    slot: Option<u32>,
    changes: &mut Vec<Change>,
) -> Result<(Superblock, bool)> {
    if let Some(raised) = raised(disk, identity, ring).filter(|_| slot.is_none()) {
        // If the repair is interrupted, the next one must find it: superblocks written meanwhile must not look like the
        // newest.
        ring.write(disk, &raised)?;
        return Ok((raised, true));
    }
    let chosen = ring.choose(slot.or_else(|| Some(ring.newest()?.slot)))?;
    if let Some(lost) = ring.lost().filter(|_| slot.is_none()) {
        let what = format!("the checkpoint of epoch {} is given up", lost.0);
        changes.push(Change { place: Place::Image, what });
    }
    Ok((chosen.clone(), false))
}

/// Drops log groups that bind blocks which nodes own, and all later groups: their bindings must be wrong.
fn unpinnable(
    space: &mut Space,
    superblock: &Superblock,
    survey: &mut Survey,
    changes: &mut Vec<Change>,
) {
    let bad = survey.pins.iter().find_map(|(group, extent)| {
        let error = space.check_pin(*extent).err()?;
        Some((*group, error))
    });
    let Some((group, error)) = bad else { return };
    survey.groups = survey.groups.min(group.saturating_sub(superblock.first_group));
    survey.pins.retain(|(other, _)| *other < group);
    let what = format!("from log group {group} on nothing is replayed: {error}");
    changes.push(Change { place: Place::Image, what });
}

/// Nodes that verify, but have damaged or invalid parts.
fn suspects(report: &Report) -> BTreeSet<NodeId> {
    let codes = [
        Code::PartInvalid,
        Code::ValueInvalid,
        Code::MessageWrong,
        Code::PaddingDirty,
        // The checker does not read these parts, or those behind a head that contradicts the table.
        Code::HeadInvalid,
        Code::BlockTwice,
        Code::BlockOutside,
        Code::ScatterMapInvalid,
    ];
    let found = report.findings.iter().filter(|finding| codes.contains(&finding.code));
    let nodes = found.filter_map(|finding| match &finding.place {
        Place::Node { id, .. } | Place::Part { id, .. } => Some(*id),
        _ => None,
    });
    nodes.collect()
}

/// The extents of a node and of its runs.
fn extents_of(extent: Extent, node: &Node) -> impl Iterator<Item = Extent> {
    let runs = node.internal().map_or(&[][..], |internal| internal.runs());
    std::iter::once(extent).chain(runs.iter().map(|run| run.reference().extent))
}

/// The blocks of a node and of its runs; `None` if a map is damaged.
fn blocks_of_node(disk: &Disk, extent: Extent, node: &Node) -> Result<Option<Vec<Extent>>> {
    let mut extents = Vec::new();
    for extent in extents_of(extent, node) {
        match disk.blocks_of(extent) {
            Ok(parts) => extents.extend(parts),
            Err(Error::Corrupt(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(extents))
}

/// 65,536 losses: where clones of the log add as many, further ones are not told. A crafted log may double them each time.
const LOSSES_MAX: usize = 1 << 16;

/// The range clones of the log, in order.
fn clones_of(
    disk: &Disk,
    superblock: &Superblock,
    survey: &Survey,
) -> Result<Vec<(TreeId, RangeClone)>> {
    let mut reader = LogReader::new(disk, superblock);
    let mut clones = Vec::new();
    for _ in 0..survey.groups {
        let group = match reader.next()? {
            Ok(scanned) => scanned.group,
            Err(fault) => return Err(Error::corrupt(Place::Image, fault)),
        };
        let all = group.records.iter().flat_map(|record| record.clones());
        clones.extend(all.map(|(tree, clone)| (tree, clone.clone())));
    }
    Ok(clones)
}

/// What is lost in the destination of a clone with a loss in its source.
fn lost_with(loss: &Loss, tree: TreeId, clone: &RangeClone) -> Option<Loss> {
    let keys = clone.source().within(&loss.keys);
    let is_some = keys.hi.as_ref().is_none_or(|hi| keys.lo < *hi);
    let shown = || Loss { keys: clone.lens().bounds_up(&keys), ..loss.clone() };
    (loss.tree == tree && is_some).then(shown)
}

/// A loss in a node, whose keys are as they are in it.
struct NodeLoss {
    id: NodeId,
    height: Height,
    loss: Loss,
}

/// Adds losses of a tree whose nodes are shared, once for each path that leads to a node.
fn tell_shared(
    lost: &[&NodeLoss],
    store: &Store,
    tree: TreeId,
    losses: &mut Vec<Loss>,
) -> Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    let parents = Parents::of(tree, &|id| store.node(id).map(Some))?;
    for NodeLoss { id, height, loss } in lost {
        let ranges = parents.shown(*id, *height, &loss.keys)?;
        let why = match ranges.len() {
            NODE_PATHS_MAX => {
                format!("{}; others that share this may have lost it as well", loss.why)
            }
            _ => loss.why.clone(),
        };
        let told = |keys| Loss { keys, why: why.clone(), ..(*loss).clone() };
        losses.extend(ranges.into_iter().map(told));
    }
    Ok(())
}

/// Builds a node from the readable parts of the damaged one.
fn make_node(
    disk: &Disk,
    inventory: &Inventory,
    next_msn: Msn,
    make: Make,
    lost: &mut Vec<NodeLoss>,
) -> Result<Node> {
    let Make { place: trees::Place { id, from, tree, height, bounds }, how } = make;
    let mut lose = |tree, keys, pending, why: String| {
        lost.push(NodeLoss { id, height, loss: Loss { tree, keys, pending, why } });
    };
    match how {
        How::Empty => {
            lose(tree, bounds.clone(), false, inventory.why(from));
            Ok(Node::Leaf(Leaf::empty(id, tree, bounds)))
        }
        How::Over(children) => {
            lose(tree, bounds.clone(), true, inventory.why(from));
            Ok(Node::Internal(Internal::over(id, tree, height, bounds, children)))
        }
        How::Again(children) => {
            let known = &inventory.nodes[&from];
            let node = Node::load(disk, inventory.volume, from, &known.entry)?;
            let tree = node.tree();
            if known.bounds.within(&bounds) != bounds {
                let why = format!("{from} is where other keys should be");
                lose(tree, bounds.clone(), false, why);
            }
            Ok(match node {
                Node::Leaf(leaf) => {
                    Node::Leaf(leaf.rescue(disk, id, bounds, &mut |keys, error| {
                        lose(tree, keys, false, error.to_string());
                    }))
                }
                Node::Internal(internal) => {
                    let rescued = internal.rescue(
                        disk,
                        id,
                        (bounds, next_msn),
                        children,
                        &mut |keys, error| {
                            lose(tree, keys, true, error.to_string());
                        },
                    );
                    Node::Internal(rescued)
                }
            })
        }
    }
}
