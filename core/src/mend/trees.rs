//! Plans the rebuild of the trees: which nodes stay, and which are rebuilt.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::inventory::{Inventory, Known};
use crate::error::{Error, Result, after};
use crate::format::limits::{FANOUT, HEIGHT_MAX};
use crate::format::{Bounds, Key};
use crate::ids::*;

/// The most children of a node.
const CHILDREN_MAX: usize = *FANOUT.end() as usize;
/// The approximate number of children of a rebuilt node.
const MANY: usize = CHILDREN_MAX / 2;

/// A node to be built.
pub(super) enum Make {
    /// An empty leaf: its content is lost.
    Empty { id: NodeId, from: NodeId, tree: TreeId, bounds: Bounds },
    /// An internal node over existing children, without messages: its messages are lost.
    Over {
        id: NodeId,
        from: NodeId,
        tree: TreeId,
        height: Height,
        bounds: Bounds,
        children: Vec<(NodeId, Key)>,
    },
    /// The readable part of a node, within bounds; possibly over other children.
    Again { id: NodeId, from: NodeId, bounds: Bounds, children: Option<Vec<(NodeId, Key)>> },
}

/// The plan for all nodes. Nodes that it does not name are dropped: nothing refers to them.
pub(super) struct Plan {
    pub keep: BTreeSet<NodeId>,
    pub make: Vec<Make>,
}

/// A place in a tree to be filled.
struct Place {
    id: NodeId,
    /// The node that the edge refers to, which may be another one.
    from: NodeId,
    height: Height,
    bounds: Bounds,
}

impl Plan {
    /// Plans both trees from their roots.
    pub(super) fn new(
        inventory: &Inventory,
        suspects: &BTreeSet<NodeId>,
        next_node: &mut NodeId,
    ) -> Result<Plan> {
        let mut plan = Plan { keep: BTreeSet::new(), make: Vec::new() };
        let fresh_from = *next_node;
        let mut taken: HashSet<NodeId> = TreeId::ALL.map(TreeId::root).into();
        for tree in TreeId::ALL {
            let mut builder = Builder {
                inventory,
                suspects,
                next_node,
                tree,
                taken: &mut taken,
                fresh_from,
                orphans: orphans(inventory, tree),
                plan: &mut plan,
            };
            builder.build()?;
        }
        Ok(plan)
    }
}

/// Nodes that cannot be reached from the root, by height and in key order. A node that fits two edges is taken for the
/// first (invariant 6).
fn orphans(inventory: &Inventory, tree: TreeId) -> Vec<(Height, NodeId)> {
    let mut reached = HashSet::new();
    let root = inventory.nodes.get(&tree.root());
    let sound = |root: &&Known| root.tree == tree && root.bounds == Bounds::default();
    let mut waiting: Vec<&Known> = root.filter(sound).into_iter().collect();
    while let Some(parent) = waiting.pop() {
        for (id, bounds) in &parent.children {
            let child = inventory.nodes.get(id).filter(|child| fits(parent, child, bounds));
            if let Some(child) = child
                && reached.insert(*id)
            {
                waiting.push(child);
            }
        }
    }
    let free = |(id, node): &(&NodeId, &Known)| {
        node.tree == tree && !reached.contains(*id) && !TreeId::ALL.map(TreeId::root).contains(*id)
    };
    let mut orphans: Vec<_> = inventory.nodes.iter().filter(free).collect();
    orphans.sort_by(|(_, a), (_, b)| (a.height, &a.bounds.lo).cmp(&(b.height, &b.bounds.lo)));
    orphans.into_iter().map(|(id, node)| (node.height, *id)).collect()
}

/// Whether a node matches an edge to it.
fn fits(parent: &Known, child: &Known, bounds: &Bounds) -> bool {
    child.tree == parent.tree && child.height.0 + 1 == parent.height.0 && child.bounds == *bounds
}

struct Builder<'b> {
    inventory: &'b Inventory,
    suspects: &'b BTreeSet<NodeId>,
    next_node: &'b mut NodeId,
    tree: TreeId,
    /// Node ids with a place in a tree.
    taken: &'b mut HashSet<NodeId>,
    /// Node ids from here on have not been used before.
    fresh_from: NodeId,
    orphans: Vec<(Height, NodeId)>,
    plan: &'b mut Plan,
}

impl Builder<'_> {
    fn build(&mut self) -> Result<()> {
        let (root, all) = (self.tree.root(), Bounds::default());
        let height = self.inventory.height_of(self.tree).unwrap_or_else(|| self.top());
        let mut waiting = vec![Place { id: root, from: root, height, bounds: all }];
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
        let mut children = Vec::with_capacity(node.children.len());
        let mut same = true;
        for (id, bounds) in &node.children {
            // The id of a lost node is reused, but not that of another node.
            let from = *id;
            let known = self.inventory.nodes.get(id);
            let own = known.is_none_or(|child| fits(node, child, bounds));
            let own = own && *id < self.fresh_from && self.taken.insert(*id);
            let id = if own { from } else { self.fresh()? };
            same &= own;
            children.push((id, bounds.lo.clone()));
            waiting.push(Place { id, from, height: below, bounds: bounds.clone() });
        }
        if same && !self.suspects.contains(&place.id) {
            self.plan.keep.insert(place.id);
            return Ok(());
        }
        let children = (!same).then_some(children);
        let Place { id, bounds, .. } = place;
        self.plan.make.push(Make::Again { id, from: id, bounds, children });
        Ok(())
    }

    /// Fills the place of a missing or mismatched leaf. If there is one with other bounds, its entries within the
    /// bounds are used.
    fn leaf(&mut self, Place { id, from, bounds, .. }: Place) {
        let tree = self.tree;
        let other = self.inventory.nodes.get(&from);
        let make = match other.filter(|node| (node.tree, node.height) == (tree, Height(0))) {
            Some(_) => Make::Again { id, from, bounds, children: None },
            None => Make::Empty { id, from, tree, bounds },
        };
        self.plan.make.push(make);
    }

    /// The height that a tree needs to hold the remaining nodes.
    fn top(&self) -> Height {
        let Some((highest, _)) = self.orphans.last() else { return Height(0) };
        let many = self.orphans.iter().filter(|(height, _)| height == highest).count() > MANY;
        Height((highest.0 + 1 + u8::from(many)).min(HEIGHT_MAX))
    }

    /// Rebuilds a missing internal node over nodes without a parent.
    fn rebuild(&mut self, place: Place, waiting: &mut Vec<Place>) -> Result<()> {
        let below = Height(place.height.0 - 1);
        let mut children: Vec<(NodeId, Key)> = Vec::new();
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
            self.taken.insert(id);
            at = bounds.hi.clone();
            children.push((id, bounds.lo.clone()));
            waiting.push(Place { id, from: id, height: below, bounds });
        }
        let rest = match (at, &place.bounds.hi) {
            (None, _) => None,
            (Some(at), Some(hi)) if at >= *hi => None,
            (Some(at), hi) => Some(Bounds { lo: at, hi: hi.clone() }),
        };
        if let Some(rest) = rest {
            self.fill(below, rest, &place, &mut children, waiting)?;
        }
        let Place { id, from, height, bounds } = place;
        let tree = self.tree;
        self.plan.make.push(Make::Over { id, from, tree, height, bounds, children });
        Ok(())
    }

    /// Fills a gap among the children of a node: with one node, or with as many as the remaining nodes below need.
    fn fill(
        &mut self,
        height: Height,
        gap: Bounds,
        parent: &Place,
        children: &mut Vec<(NodeId, Key)>,
        waiting: &mut Vec<Place>,
    ) -> Result<()> {
        let most = CHILDREN_MAX.saturating_sub(children.len() + 3).clamp(1, MANY);
        let mut cuts = self.cuts(height, &gap, most).into_iter().peekable();
        let mut lo = gap.lo;
        loop {
            let hi = cuts.next();
            let id = self.fresh()?;
            children.push((id, lo.clone()));
            let bounds = Bounds { lo, hi: hi.clone().or_else(|| gap.hi.clone()) };
            // The old content was lost with the parent, or with a child of it.
            waiting.push(Place { id, from: parent.from, height, bounds });
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
        let from = self.orphans.partition_point(before);
        let of_height = self.orphans[from..].iter().take_while(|(other, id)| {
            *other == height && bounds.is_below_end(&self.inventory.nodes[id].bounds.lo)
        });
        let mut within: Vec<NodeId> = of_height
            .map(|(_, id)| *id)
            .filter(|id| {
                !self.taken.contains(id) && node(id).bounds.within(bounds) == node(id).bounds
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
        self.taken.insert(id);
        Ok(id)
    }
}
