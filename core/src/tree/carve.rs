//! Carving: makes keys boundaries of nodes at every height below the root, so that the nodes between two of them hold
//! exactly the keys between them. It is what a range clone or a range rename begins with (BetrFS 0.5).
//!
//! From the root down, each buffer on the path to a key is flushed until it is empty. Then the leaf is divided at the
//! key, and after it each internal node of the path, from the lowest up. Both are steps of balancing like any other:
//! they change no content, and a checkpoint may come between any two of them. Nodes are not merged until the carve
//! ends, since a merge could take a boundary away again.

use std::collections::BTreeSet;

use super::balance::Site;
use super::descent::Descent;
use super::{Balance, shape, share};
use crate::error::Result;
use crate::format::{Bounds, Key};
use crate::ids::*;
use crate::node::Node;
use crate::store::{Store, Use};

/// The keys to be made boundaries.
#[derive(Default)]
pub(super) struct Carve {
    cuts: Vec<Cut>,
    /// Ranges between cuts for which nothing may be pending in nodes of this height either.
    emptied: Vec<(TreeId, Bounds, Height)>,
    /// The cut, or the range behind all cuts, to look at first: those before it need no step as far as is known.
    at: usize,
    /// Nodes that may be small.
    small: Vec<Site>,
}

/// A key to be made a boundary.
struct Cut {
    tree: TreeId,
    key: Key,
    /// Nodes below this height are divided; `None` stands for the root's.
    below: Option<Height>,
}

/// The step that a carve needs next.
pub(super) enum CarveStep {
    /// Put a level above a root that is a leaf.
    AddLevel(TreeId),
    /// Flush the buffer for child `at` of the internal node at this site. Those for the next ones, before child `until`, may
    /// have to be flushed after it.
    Flush { site: Site, id: NodeId, at: usize, until: usize },
    /// Divide the node at this site at the site's key.
    Divide(Site),
    /// Replace the shared child `at` of the internal node at this site by a copy.
    Own { site: Site, id: NodeId, at: usize },
}

impl Balance {
    /// Begins to make `key` a boundary, in addition to those of a carve in progress.
    pub fn carve(&mut self, tree: TreeId, key: &Key) {
        let cut = Cut { tree, key: key.clone(), below: None };
        self.carving.get_or_insert_default().cuts.push(cut);
    }

    /// Begins to make the ends of ranges boundaries of nodes below some height, and to flush what is pending for the
    /// ranges into those nodes. The height is the least one at which each range is in one node; returns it.
    pub fn carve_apart(
        &mut self,
        store: &Store,
        tree: TreeId,
        ranges: &[Bounds; 2],
    ) -> Result<Height> {
        let mut below = Height(1);
        for range in ranges {
            below = below.max(height_around(store, tree, range)?);
        }
        let carve = self.carving.get_or_insert_default();
        for range in ranges {
            let ends = [&range.lo].into_iter().chain(&range.hi);
            let cut = |key: &Key| Cut { tree, key: key.clone(), below: Some(below) };
            carve.cuts.extend(ends.map(cut));
            carve.emptied.push((tree, range.clone(), below));
        }
        Ok(below)
    }

    /// Number of different keys of the carve in progress.
    pub fn cuts(&self) -> usize {
        let cuts = self.carving.iter().flat_map(|carve| &carve.cuts);
        cuts.map(|cut| (cut.tree, &cut.key)).collect::<BTreeSet<_>>().len()
    }

    /// Ends a carve: from now on nodes may be merged across its boundaries.
    pub fn end_carve(&mut self) {
        if let Some(carve) = self.carving.take() {
            self.waiting.extend(carve.small);
        }
    }

    /// Whether all keys of the carve are boundaries, and no node is waiting. True if there is no carve.
    pub fn is_carved(&self, store: &Store) -> Result<bool> {
        Ok(self.is_settled() && self.next_of_carve(store)?.is_none())
    }

    /// Puts off the merge of a node until the carve ends; returns whether there is one.
    pub(super) fn put_off_for_carve(&mut self, site: &Site) -> bool {
        match &mut self.carving {
            Some(carve) => {
                carve.small.push(site.clone());
                true
            }
            None => false,
        }
    }

    /// During a carve the nodes that it does not divide take more children than their geometry allows: a split would put
    /// a node below them that has keys on both sides. They are split when the carve ends.
    pub(super) fn keeps_wide(&mut self, site: &Site, is_root: bool) -> bool {
        let is_above = |carve: &Carve| {
            let is_of =
                |cut: &Cut| cut.tree == site.tree && cut.below.is_some_and(|to| site.height >= to);
            is_root || carve.cuts.iter().any(is_of)
        };
        self.carving.as_ref().is_some_and(is_above) && self.put_off_for_carve(site)
    }

    /// The next step of the carve; `None` if all of its keys are boundaries.
    pub(super) fn next_of_carve(&self, store: &Store) -> Result<Option<CarveStep>> {
        match &self.carving {
            Some(carve) => Ok(carve.next(store)?.map(|(_, step)| step)),
            None => Ok(None),
        }
    }

    /// Makes the next step of the carve; returns whether there was one.
    pub(super) fn carve_step(&mut self, store: &mut Store) -> Result<bool> {
        let Some(carve) = &mut self.carving else { return Ok(false) };
        let Some((at, step)) = carve.next(store)? else { return Ok(false) };
        carve.at = at;
        match step {
            CarveStep::AddLevel(tree) => shape::add_level(store, tree)?,
            CarveStep::Flush { site, id, at, until } => {
                store.internal(id)?.load_pending(&store.disk, at..until)?;
                let (_, pivot) = shape::move_buffer(store, id, at)?;
                self.enqueue(site.tree, &pivot, Height(site.height.0 - 1));
            }
            CarveStep::Own { id, at, .. } => share::own(store, id, at)?,
            CarveStep::Divide(Site { tree, key, height }) => {
                shape::divide(store, self, tree, &key, height)?;
            }
        }
        Ok(true)
    }
}

impl Carve {
    /// The first cut or range that needs a step, and the step.
    fn next(&self, store: &Store) -> Result<Option<(usize, CarveStep)>> {
        let count = self.cuts.len() + self.emptied.len();
        for at in (self.at..count).chain(0..self.at) {
            let step = match self.cuts.get(at) {
                Some(Cut { tree, key, below }) => next(store, *tree, key, *below)?,
                None => {
                    let (tree, range, below) = &self.emptied[at - self.cuts.len()];
                    next_pending(store, *tree, range, *below)?
                }
            };
            if let Some(step) = step {
                return Ok(Some((at, step)));
            }
        }
        Ok(None)
    }
}

/// The step that brings `key` closer to being a boundary.
fn next(
    store: &Store,
    tree: TreeId,
    key: &Key,
    below: Option<Height>,
) -> Result<Option<CarveStep>> {
    let mut way = Descent::new(store, tree)?;
    loop {
        let node = way.node().clone();
        let (is_root, height) = (node.id() == tree.root(), node.height());
        let site = || Site { tree, key: key.clone(), height };
        match &*node {
            // Below a root with this bound there is nothing on the other side.
            node if node.bounds().lo == *key => return Ok(None),
            Node::Leaf(_) if is_root => return Ok(Some(CarveStep::AddLevel(tree))),
            Node::Leaf(_) => return Ok(Some(CarveStep::Divide(site()))),
            Node::Internal(internal) => {
                let at = internal.child_for(key);
                if internal.children()[at].pivot == *key {
                    let is_whole = is_root || below.is_some_and(|below| height >= below);
                    let divides = (!is_whole).then(|| CarveStep::Divide(site()));
                    return Ok(divides);
                }
                if internal.pending(at) > 0 {
                    let (id, until) = (internal.id, at + 1);
                    return Ok(Some(CarveStep::Flush { site: site(), id, at, until }));
                }
                let id = internal.id;
                if !way.enter_alone(at)? {
                    return Ok(Some(CarveStep::Own { site: site(), id, at }));
                }
            }
        }
    }
}

/// The step that brings what is pending for a range closer to the nodes below `below`.
fn next_pending(
    store: &Store,
    tree: TreeId,
    range: &Bounds,
    below: Height,
) -> Result<Option<CarveStep>> {
    let mut way = Descent::new(store, tree)?;
    loop {
        let node = way.node().clone();
        let Node::Internal(internal) = &*node else { return Ok(None) };
        let (id, height) = (internal.id, internal.height);
        let first = internal.child_for(&range.lo);
        let last = match &range.hi {
            Some(hi) if height == below => internal.child_before(hi),
            None if height == below => internal.children().len() - 1,
            // The child on the path is responsible for all of the range.
            _ => first,
        };
        let site = |at: usize| Site { tree, key: internal.children()[at].pivot.clone(), height };
        if let Some(at) = (first..=last).find(|at| internal.pending(*at) > 0) {
            return Ok(Some(CarveStep::Flush { site: site(at), id, at, until: last + 1 }));
        }
        if height <= below {
            return Ok(None);
        }
        if !way.enter_alone(first)? {
            return Ok(Some(CarveStep::Own { site: site(first), id, at: first }));
        }
    }
}

/// The least height, at least 1, of a node on the path to the range that is responsible for all of it.
fn height_around(store: &Store, tree: TreeId, range: &Bounds) -> Result<Height> {
    let mut way = Descent::new(store, tree)?;
    let mut least = way.node().height();
    while let Some(internal) = way.above(Height(1)) {
        let at = internal.child_for(&way.lens().down(&range.lo));
        way.enter(at, Use::Other)?;
        let keys = way.lens().bounds_up(way.node().bounds().clone());
        if range.within(&keys) != *range {
            break;
        }
        least = way.node().height();
    }
    Ok(least.max(Height(1)))
}
