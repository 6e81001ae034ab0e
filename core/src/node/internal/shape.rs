//! Children that are added, removed, split off, or come from a right neighbour.

use super::*;

impl Internal {
    /// Adds children `more` to the right of child `at`, which takes over part of its keys. No sealed run may have a
    /// message for it.
    pub fn add_children(&mut self, at: usize, more: Vec<(NodeId, Key)>) {
        debug_assert_eq!(self.children[at].sealed(), 0, "a child is flushed before it is split");
        let first_run = self.next_run;
        let child = &mut self.children[at];
        *child = Child::new(child.id, child.pivot.clone(), first_run);
        let count = more.len();
        self.renumber(|other| if other > at { other + count } else { other });
        let more = more.into_iter().map(|(id, pivot)| Child::new(id, pivot, first_run));
        self.children.splice(at + 1..at + 1, more);
        self.open.splice(at + 1..at + 1, (0..count).map(|_| Batch::default()));
        for right in (at + 1..=at + count).rev() {
            self.open[right] = self.open[at].split_off(&self.children[right].pivot);
        }
    }

    /// Removes child `at + 1`, whose keys child `at` has taken over; both buffers must be empty.
    pub fn remove_right_of(&mut self, at: usize) {
        debug_assert_eq!(self.pending(at) + self.pending(at + 1), 0);
        self.renumber(|other| if other > at { other - 1 } else { other });
        self.children.remove(at + 1);
        self.open.remove(at + 1);
        let child = &mut self.children[at];
        *child = Child::new(child.id, child.pivot.clone(), self.next_run);
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
