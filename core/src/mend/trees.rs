//! Plans the rebuild of the trees: which nodes stay, and which are rebuilt.
//!
//! Where ranges were cloned, several edges may lead to a node that fits them all. There, a node lacks a parent if fewer
//! edges lead to it, from any node that verifies, than its entry states.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::inventory::{Edge, Inventory, Known};
use crate::error::{Error, Result, after};
use crate::format::limits::{FANOUT, HEIGHT_MAX};
use crate::format::{Bounds, Key};
use crate::ids::*;
use crate::node::NewEdge;

/// The most children of a node.
const CHILDREN_MAX: usize = *FANOUT.end() as usize;
/// The approximate number of children of a rebuilt node.
const MANY: usize = CHILDREN_MAX / 2;

/// A node to be built.
pub(super) struct Make {
    pub place: Place,
    pub how: How,
}

/// How a node is built.
pub(super) enum How {
    /// As an empty leaf: its content is lost.
    Empty,
    /// As an internal node over existing children, without messages: its messages are lost.
    Over(Vec<NewEdge>),
    /// From the readable part of the node that it is made from, within its bounds; possibly over other children.
    Again(Option<Vec<NewEdge>>),
}

/// The plan for all nodes. Nodes that it does not name are dropped: nothing refers to them.
pub(super) struct Plan {
    /// Nodes that stay as they are.
    pub keep: BTreeSet<NodeId>,
    pub make: Vec<Make>,
    /// The number of edges to each node; a root has one.
    pub references: HashMap<NodeId, u32>,
}

/// A place in a tree to be filled.
#[derive(Clone)]
pub(super) struct Place {
    pub id: NodeId,
    /// The node that the edge refers to, which may be another one.
    pub from: NodeId,
    pub tree: TreeId,
    pub height: Height,
    /// Its keys, as they are in the node.
    pub bounds: Bounds,
}

impl Plan {
    /// Plans both trees from their roots. `shares` says whether nodes may have several edges.
    pub(super) fn new(
        inventory: &Inventory,
        suspects: &BTreeSet<NodeId>,
        next_node: &mut NodeId,
        shares: bool,
    ) -> Result<Plan> {
        let references = TreeId::ALL.map(|tree| (tree.root(), 1)).into();
        let mut plan = Plan { keep: BTreeSet::new(), make: Vec::new(), references };
        let fresh_from = *next_node;
        let mut taken = TreeId::ALL.map(|tree| (tree.root(), Bounds::default())).into();
        for tree in TreeId::ALL {
            let mut builder = Builder {
                inventory,
                suspects,
                next_node,
                tree,
                shares,
                taken: &mut taken,
                fresh_from,
                orphans: Orphans::find(inventory, tree, shares),
                plan: &mut plan,
            };
            builder.build()?;
        }
        Ok(plan)
    }
}

/// Nodes to which edges are missing: lost nodes have those.
struct Orphans {
    /// By height and in key order.
    sorted: Vec<(Height, NodeId)>,
    /// The number of missing edges of each.
    missing: HashMap<NodeId, u32>,
    /// Nodes whose edges have been counted.
    counted: HashSet<NodeId>,
}

impl Orphans {
    /// Follows the edges from the root. A node that fits two edges is taken for the first, if nothing is shared
    /// (invariant 6). Where nodes are shared, the edges of all nodes count: what a deleted clone or a lens leads to must
    /// not come to stand where it fits as well.
    fn find(inventory: &Inventory, tree: TreeId, shares: bool) -> Orphans {
        let mut edges: HashMap<NodeId, u32> = HashMap::new();
        let root = inventory.nodes.get_key_value(&tree.root());
        let sound =
            |(_, root): &(&NodeId, &Known)| root.tree == tree && root.bounds == Bounds::default();
        let mut waiting: Vec<(&NodeId, &Known)> = match shares {
            true => inventory.nodes.iter().filter(|(_, node)| node.tree == tree).collect(),
            false => root.filter(sound).into_iter().collect(),
        };
        let mut counted: HashSet<NodeId> = waiting.iter().map(|(id, _)| **id).collect();
        while let Some((_, parent)) = waiting.pop() {
            for edge in &parent.edges {
                let child = inventory.nodes.get_key_value(&edge.child);
                if let Some((id, child)) = child.filter(|(_, child)| fits(parent, child, edge)) {
                    *edges.entry(*id).or_default() += 1;
                    if counted.insert(*id) {
                        waiting.push((id, child));
                    }
                }
            }
        }
        let missing = |(id, node): (&NodeId, &Known)| {
            let all = if shares { node.entry.references } else { 1 };
            let left = all.saturating_sub(edges.get(id).copied().unwrap_or(0));
            let is_root = TreeId::ALL.map(TreeId::root).contains(id);
            (node.tree == tree && !is_root && left > 0).then_some((*id, left))
        };
        let missing: HashMap<NodeId, u32> = inventory.nodes.iter().filter_map(missing).collect();
        let mut sorted: Vec<_> = missing.keys().map(|id| (*id, &inventory.nodes[id])).collect();
        sorted.sort_by_key(|(id, node)| (node.height, &node.bounds.lo, *id));
        let sorted = sorted.into_iter().map(|(id, node)| (node.height, id)).collect();
        Orphans { sorted, missing, counted }
    }

    /// Notes that an edge leads to a node that is missing one.
    fn found(&mut self, id: NodeId) {
        if let Some(left) = self.missing.get_mut(&id) {
            *left = left.saturating_sub(1);
        }
    }
}

/// Whether a node matches an edge to it.
fn fits(parent: &Known, child: &Known, edge: &Edge) -> bool {
    child.tree == parent.tree && child.height.0 + 1 == parent.height.0 && child.bounds == edge.keys
}

struct Builder<'b> {
    inventory: &'b Inventory,
    suspects: &'b BTreeSet<NodeId>,
    next_node: &'b mut NodeId,
    tree: TreeId,
    /// Whether a node may have several edges.
    shares: bool,
    /// Node ids with a place in a tree, and the keys of the place.
    taken: &'b mut HashMap<NodeId, Bounds>,
    /// Node ids from here on have not been used before.
    fresh_from: NodeId,
    orphans: Orphans,
    plan: &'b mut Plan,
}

impl Builder<'_> {
    fn build(&mut self) -> Result<()> {
        let (root, all) = (self.tree.root(), Bounds::default());
        let height = self.inventory.height_of(self.tree).unwrap_or_else(|| self.top());
        let tree = self.tree;
        let mut waiting = vec![Place { id: root, from: root, tree, height, bounds: all }];
        while let Some(place) = waiting.pop() {
            // Each takes at least one block.
            let (need_blocks, free_blocks) = (self.plan.make.len() as u64, self.inventory.blocks);
            if need_blocks > free_blocks {
                return Err(Error::NoSpace { need_blocks, free_blocks, held_blocks: 0 });
            }
            let found = self.inventory.nodes.get(&place.id).filter(|node| {
                (node.tree, node.height) == (self.tree, place.height) && node.bounds == place.bounds
            });
            match found {
                Some(node) => self.stay(place, node, &mut waiting)?,
                None if place.height == Height(0) => self.leaf(place),
                None => self.rebuild(place, &mut waiting)?,
            }
        }
        Ok(())
    }

    /// Places a node that matches its edge: it stays if all of its children have their place.
    fn stay(&mut self, place: Place, node: &Known, waiting: &mut Vec<Place>) -> Result<()> {
        let below = Height(place.height.0.saturating_sub(1));
        let mut children = Vec::with_capacity(node.edges.len());
        let mut same = true;
        let is_counted = self.orphans.counted.contains(&place.id);
        for edge in &node.edges {
            // The id of a lost node is reused, but not that of another node.
            let from = edge.child;
            let known = self.inventory.nodes.get(&from);
            let own = known.is_none_or(|child| fits(node, child, edge)) && from < self.fresh_from;
            let placed = self.taken.get(&from);
            let is_again = own && self.shares && placed.is_some_and(|keys| *keys == edge.keys);
            let own = is_again || own && placed.is_none();
            let id = if own { from } else { self.fresh()? };
            same &= own;
            if own && !is_counted {
                self.orphans.found(id);
            }
            self.connect(id, &edge.keys);
            children.push((id, edge.pivot.clone(), edge.lens.clone()));
            if !is_again {
                let bounds = edge.keys.clone();
                waiting.push(Place { id, from, tree: self.tree, height: below, bounds });
            }
        }
        if same && !self.suspects.contains(&place.id) {
            self.plan.keep.insert(place.id);
            return Ok(());
        }
        let how = How::Again((!same).then_some(children));
        self.plan.make.push(Make { place: Place { from: place.id, ..place }, how });
        Ok(())
    }

    /// Notes an edge to a node with these keys.
    fn connect(&mut self, id: NodeId, keys: &Bounds) {
        *self.plan.references.entry(id).or_default() += 1;
        self.taken.entry(id).or_insert_with(|| keys.clone());
    }

    /// Fills the place of a missing or mismatched leaf. If there is one with other bounds, its entries within the
    /// bounds are used.
    fn leaf(&mut self, place: Place) {
        let other = self.inventory.nodes.get(&place.from);
        let how = match other.filter(|node| (node.tree, node.height) == (self.tree, Height(0))) {
            Some(_) => How::Again(None),
            None => How::Empty,
        };
        self.plan.make.push(Make { place, how });
    }

    /// The height that a tree needs to hold the remaining nodes.
    fn top(&self) -> Height {
        let Some((highest, _)) = self.orphans.sorted.last() else { return Height(0) };
        let many =
            self.orphans.sorted.iter().filter(|(height, _)| height == highest).count() > MANY;
        Height((highest.0 + 1 + u8::from(many)).min(HEIGHT_MAX))
    }

    /// Rebuilds a missing internal node over nodes without a parent.
    fn rebuild(&mut self, place: Place, waiting: &mut Vec<Place>) -> Result<()> {
        let below = Height(place.height.0 - 1);
        let mut children: Vec<NewEdge> = Vec::new();
        let mut at = Some(place.bounds.lo.clone());
        for id in self.adopted(below, &place.bounds) {
            let bounds = self.inventory.nodes[&id].bounds.clone();
            let Some(next) = at.clone() else { break };
            let gap = (next < bounds.lo).then(|| Bounds { lo: next, hi: Some(bounds.lo.clone()) });
            let last = bounds.hi == place.bounds.hi;
            // There must be space for the following nodes, too.
            if children.len() + 1 + usize::from(gap.is_some()) + usize::from(!last) > CHILDREN_MAX {
                break;
            }
            if let Some(gap) = gap {
                self.fill(below, gap, &place, &mut children, waiting)?;
            }
            self.orphans.found(id);
            let is_first = !self.taken.contains_key(&id);
            self.connect(id, &bounds);
            at = bounds.hi.clone();
            children.push((id, bounds.lo.clone(), None));
            if is_first {
                waiting.push(Place { id, from: id, tree: self.tree, height: below, bounds });
            }
        }
        let rest = match (at, &place.bounds.hi) {
            (None, _) => None,
            (Some(at), Some(hi)) if at >= *hi => None,
            (Some(at), hi) => Some(Bounds { lo: at, hi: hi.clone() }),
        };
        if let Some(rest) = rest {
            self.fill(below, rest, &place, &mut children, waiting)?;
        }
        self.plan.make.push(Make { place, how: How::Over(children) });
        Ok(())
    }

    /// Fills a gap among the children of a node: with one node, or with as many as the remaining nodes below need.
    fn fill(
        &mut self,
        height: Height,
        gap: Bounds,
        parent: &Place,
        children: &mut Vec<NewEdge>,
        waiting: &mut Vec<Place>,
    ) -> Result<()> {
        let most = CHILDREN_MAX.saturating_sub(children.len() + 3).clamp(1, MANY);
        let mut cuts = self.cuts(height, &gap, most).into_iter().peekable();
        let mut lo = gap.lo;
        loop {
            let hi = cuts.next();
            let id = self.fresh()?;
            children.push((id, lo.clone(), None));
            let bounds = Bounds { lo, hi: hi.clone().or_else(|| gap.hi.clone()) };
            self.connect(id, &bounds);
            // The old content was lost with the parent, or with a child of it.
            waiting.push(Place { id, height, bounds, ..parent.clone() });
            match hi {
                Some(hi) => lo = hi,
                None => return Ok(()),
            }
        }
    }

    /// Where a gap is cut so that nodes of this height can hold the remaining nodes below; into at most `most` pieces.
    fn cuts(&self, height: Height, gap: &Bounds, most: usize) -> Vec<Key> {
        // The remaining nodes of the greatest height.
        let heights = (0..height.0).rev().map(Height);
        let below = heights.map(|height| self.adopted(height, gap)).find(|found| !found.is_empty());
        let below = below.unwrap_or_default();
        let each = MANY.max(below.len().div_ceil(most.max(1)));
        let lows = below.iter().skip(each).step_by(each);
        lows.map(|id| self.inventory.nodes[id].bounds.lo.clone()).take(most - 1).collect()
    }

    /// Nodes of a height without a parent, disjoint and in order, within the bounds.
    fn adopted(&self, height: Height, bounds: &Bounds) -> Vec<NodeId> {
        let node = |id: &NodeId| &self.inventory.nodes[id];
        let before = |(other, id): &(Height, NodeId)| {
            (*other, &self.inventory.nodes[id].bounds.lo) < (height, &bounds.lo)
        };
        let from = self.orphans.sorted.partition_point(before);
        let of_height = self.orphans.sorted[from..].iter().take_while(|(other, id)| {
            *other == height && bounds.is_below_end(&self.inventory.nodes[id].bounds.lo)
        });
        let mut within: Vec<NodeId> = of_height
            .map(|(_, id)| *id)
            .filter(|id| {
                let is_left = self.orphans.missing[id] > 0;
                let is_free = self.shares || !self.taken.contains_key(id);
                is_left && is_free && node(id).bounds.within(bounds) == node(id).bounds
            })
            .collect();
        // If the table is lost, older versions may be among them.
        within.sort_by_key(|id| std::cmp::Reverse(node(id).entry.birth));
        let mut found: BTreeMap<&Key, NodeId> = BTreeMap::new();
        for id in within {
            let own = &node(&id).bounds;
            let before = found.range::<&Key, _>(..=&own.lo).next_back();
            let free = before.is_none_or(|(_, other)| {
                node(other).bounds.hi.as_ref().is_some_and(|hi| *hi <= own.lo)
            });
            let after = found.range::<&Key, _>(&own.lo..).next();
            if free && after.is_none_or(|(lo, _)| own.hi.as_ref().is_some_and(|hi| *hi <= **lo)) {
                found.insert(&own.lo, id);
            }
        }
        found.into_values().collect()
    }

    fn fresh(&mut self) -> Result<NodeId> {
        let id = *self.next_node;
        *self.next_node = NodeId(after("next node id", id.0)?);
        Ok(id)
    }
}
