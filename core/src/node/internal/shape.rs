//! Children that are added, removed, split off, or come from a right neighbour.

use super::*;
use crate::mutation::{Mutation, is_broken};

impl Child {
    /// What a path with the lens `above` replaces, once it has gone through this edge. Fails if no key passes both.
    pub(crate) fn lens_below(&self, above: Option<&Arc<Lens>>) -> Result<Option<Arc<Lens>>> {
        let (Some(above), Some(own)) = (above, &self.lens) else {
            return Ok(above.or(self.lens.as_ref()).cloned());
        };
        match above.then(own) {
            Joined::Lens(lens) => Ok(Some(Arc::new(lens))),
            Joined::Nothing => Ok(None),
            Joined::Never => {
                let fault = Fault::mismatch("lens", "one for keys of its parent", "another");
                Err(Error::corrupt(Place::Node { id: self.id, byte: None }, fault))
            }
        }
    }
}

impl Internal {
    /// Adds children `more` to the right of child `at`, which takes over part of its keys. No sealed run may have a
    /// message for it.
    pub fn add_children(&mut self, at: usize, more: Vec<(NodeId, Key)>) {
        debug_assert_eq!(self.children[at].sealed(), 0, "a child is flushed before it is split");
        let first_run = self.next_run;
        self.children[at] = self.children[at].emptied(first_run);
        let count = more.len();
        self.renumber(|other| if other > at { other + count } else { other });
        let more = more.into_iter().map(|(id, pivot)| Child::new(id, pivot, None, first_run));
        self.children.splice(at + 1..at + 1, more);
        self.open.splice(at + 1..at + 1, (0..count).map(|_| Batch::default()));
        for right in (at + 1..=at + count).rev() {
            self.open[right] = self.open[at].split_off(&self.children[right].pivot);
        }
    }

    /// A copy of the node with another id, and with its keys as they are above the lens of its edge. All of its messages
    /// are in the open run.
    pub fn copied(&self, disk: &Disk, id: NodeId, lens: Option<&Arc<Lens>>) -> Result<Internal> {
        let mut old = self.clone();
        old.unseal(disk)?;
        let mut children = Vec::with_capacity(self.children.len());
        let mut open = Vec::with_capacity(self.children.len());
        for (child, messages) in self.children.iter().zip(std::mem::take(&mut old.open)) {
            let pivot = lens.map_or(child.pivot.clone(), |lens| lens.up(&child.pivot));
            children.push(Child::new(child.id, pivot, child.lens_below(lens)?, RunSeq(0)));
            open.push(match lens {
                Some(lens) => messages.seen_through(lens),
                None => messages,
            });
        }
        Ok(Internal {
            id,
            bounds: lens.map_or(self.bounds.clone(), |lens| lens.bounds_up(&self.bounds)),
            children,
            runs: Vec::new(),
            open,
            next_run: RunSeq(0),
            loaded: Loaded::default(),
            visits: Visits::default(),
            ..old
        })
    }

    /// Replaces the node that child `at` is by another one of the same keys. What is pending for it stays.
    pub fn replace_child(&mut self, at: usize, id: NodeId) {
        (self.children[at].id, self.children[at].lens) = (id, None);
    }

    /// Replaces consecutive children, with all that is pending for them, by others of the same keys.
    pub fn splice(&mut self, old: Range<usize>, new: Vec<NewEdge>) {
        old.clone().for_each(|at| self.flushed(at));
        let (removed, added) = (old.len(), new.len());
        self.renumber(|other| match other {
            _ if other >= old.end => other - removed + added,
            _ => other.min(old.start),
        });
        let broken = is_broken(Mutation::OldRunsLive);
        let first_run = if broken { RunSeq(0) } else { self.next_run };
        let new = new.into_iter().map(|(id, pivot, lens)| Child::new(id, pivot, lens, first_run));
        self.children.splice(old.clone(), new);
        self.open.splice(old, (0..added).map(|_| Batch::default()));
    }

    /// Removes child `at + 1`, whose keys child `at` has taken over; both buffers must be empty.
    pub fn remove_right_of(&mut self, at: usize) {
        debug_assert_eq!(self.pending(at) + self.pending(at + 1), 0);
        self.renumber(|other| if other > at { other - 1 } else { other });
        self.children.remove(at + 1);
        self.open.remove(at + 1);
        self.children[at] = self.children[at].emptied(self.next_run);
    }

    /// The index of the first child of the right part when a node splits near `at`: where the pivots share the shortest
    /// prefix, at most 1/8 of `size` children away.
    pub fn boundary_near(&self, at: usize, size: usize) -> usize {
        let slack = size / 8;
        let near = at.saturating_sub(slack).max(1)..=(at + slack).min(self.children.len() - 1);
        let common =
            |at: &usize| shared_prefix(&self.children[at - 1].pivot, &self.children[*at].pivot);
        near.min_by_key(|other| (common(other), other.abs_diff(at))).unwrap_or(at)
    }

    /// Moves the right part of a node without sealed runs into a new node `id`.
    pub fn split_off(&mut self, at: usize, id: NodeId) -> Internal {
        assert!(self.runs.is_empty(), "a node is unsealed before it is split");
        let children = self.children.split_off(at);
        let pivot = children[0].pivot.clone();
        let open = self.open.split_off(at);
        let hi = self.bounds.hi.replace(pivot.clone());
        let bounds = Bounds { lo: pivot, hi };
        let (tree, height) = (self.tree, self.height);
        Internal {
            id,
            tree,
            height,
            bounds,
            children,
            runs: Vec::new(),
            open,
            next_run: RunSeq(0),
            loaded: Loaded::default(),
            visits: Visits::default(),
        }
    }

    /// Merges the right neighbour into this node; neither may have sealed runs.
    pub fn merge(&mut self, right: Internal) {
        assert!(
            self.runs.is_empty() && right.runs.is_empty(),
            "nodes are unsealed before they merge"
        );
        self.bounds.hi = right.bounds.hi.clone();
        self.children.extend(right.children);
        self.open.extend(right.open);
    }
}
