//! The drain: flushes all buffers where space is short.
//!
//! It goes from height 1 upwards, and flushes each buffer all the way to its leaves before the next one. So below the
//! node being drained nothing is pending but the messages that it has just flushed. A step therefore dirties at most a
//! path from the root to a leaf and its neighbours, and [`Balance::next_need`] knows the space before the step begins.

use std::sync::Arc;

use super::balance::{NodeStep, Site};
use super::carve::CarveStep;
use super::descent::Descent;
use super::{Balance, shape};
use crate::error::Result;
use crate::format::{Bounds, Inflow, Key};
use crate::ids::*;
use crate::node::{Internal, Node};
use crate::space::Need;
use crate::store::{Dirty, Store};

/// Nodes of one height to be drained, in key order.
struct LevelCursor {
    site: Site,
    /// End of their keys.
    hi: Option<Key>,
}

/// Which buffers are drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// All buffers.
    All,
    /// Buffers that hold deletes.
    WithDeletes,
}

/// The progress of a drain.
pub(super) struct Drain {
    what: Buffers,
    /// The nodes of one height of a tree, from the one being drained on. All nodes of lower heights are drained.
    cursor: LevelCursor,
    /// The nodes below that a buffer is passing through, the lowest last; more than one of a height if a node has
    /// split.
    path: Vec<LevelCursor>,
    /// Internal nodes that may be small. They are merged after the drain, since a merge flushes the buffers above both
    /// nodes.
    small: Vec<Site>,
    /// Pivots of children that cannot be read, or that there is no space to change: their buffers stay where they are.
    passed: Vec<Key>,
}

impl LevelCursor {
    /// All nodes of a height.
    fn of(tree: TreeId, height: Height) -> LevelCursor {
        LevelCursor { site: Site { tree, key: Key::default(), height }, hi: None }
    }

    /// Moves behind a node that ends at `hi`; returns whether another node follows.
    fn next(&mut self, hi: Option<&Key>) -> bool {
        let next = hi.filter(|next| self.hi.as_ref().is_none_or(|end| *next < end));
        next.inspect(|next| self.site.key = (*next).clone()).is_some()
    }
}

impl Drain {
    /// Panics if the path is not below the cursor, or not in descending order.
    pub(super) fn check_invariants(&self) {
        let Site { tree, height, .. } = self.cursor.site;
        assert!(height > Height(0), "leaves have no buffers");
        let sites = || self.path.iter().map(|cursor| &cursor.site);
        assert!(sites().all(|site| site.tree == tree), "it stays in its tree");
        assert!(sites().all(|site| site.height < height && site.height > Height(0)), "below");
        assert!(sites().is_sorted_by(|a, b| a.height >= b.height), "it goes down");
    }

    /// The node that the next step looks at.
    fn lowest(&self) -> &Site {
        &self.path.last().unwrap_or(&self.cursor).site
    }

    /// The first child whose buffer is to be flushed.
    fn next_child(&self, store: &Store, internal: &Internal) -> Result<Option<usize>> {
        let is_passed = |at: usize| self.passed.contains(&internal.children()[at].pivot);
        let pending = |at: &usize| internal.pending(*at) > 0 && !is_passed(*at);
        for at in (0..internal.children().len()).filter(pending) {
            // A copy of a child with several edges frees nothing.
            let id = internal.children()[at].id;
            if store.is_shared(internal, at)?
                && store.references(id)? > 1
                && !internal.is_pruned(at)
            {
                continue;
            }
            let is_meant = match self.what {
                Buffers::All => true,
                // An unreadable run is passed over when its buffer is to be flushed.
                Buffers::WithDeletes => match internal.has_deletes(&store.disk, at) {
                    Err(error) if error.is_unreadable() => true,
                    found => found?,
                },
            };
            if is_meant {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Moves behind a drained node that ends at `hi`. Returns whether another node follows.
    fn advance(&mut self, store: &Store, hi: Option<&Key>) -> Result<bool> {
        if let Some(cursor) = self.path.last_mut() {
            if !cursor.next(hi) {
                self.path.pop();
            }
            return Ok(true);
        }
        let Site { tree, height, .. } = self.cursor.site;
        if self.cursor.next(hi) {
            return Ok(true);
        }
        self.cursor = match tree {
            _ if height < store.root(tree)?.height() => LevelCursor::of(tree, Height(height.0 + 1)),
            TreeId::Metadata => LevelCursor::of(TreeId::Data, Height(1)),
            TreeId::Data => return Ok(false),
        };
        Ok(true)
    }
}

impl Balance {
    /// Starts a drain: buffers are flushed down to the leaves, so that deletes free the space of the entries that they
    /// cover.
    pub fn drain(&mut self, what: Buffers) {
        self.stop_draining();
        self.drain_flushes = 0;
        self.draining = Some(Drain {
            what,
            cursor: LevelCursor::of(TreeId::Metadata, Height(1)),
            path: Vec::new(),
            small: Vec::new(),
            passed: Vec::new(),
        });
    }

    /// Skips the buffer that would be flushed next.
    pub fn pass_over_buffer(&mut self, store: &Store) -> Result<()> {
        let Some(drain) = &mut self.draining else { return Ok(()) };
        let Site { tree, key, height } = drain.lowest().clone();
        let node = store.node(shape::node_at(store, tree, &key, height)?)?;
        let next = match &*node {
            Node::Internal(internal) if internal.height == height => {
                let next = drain.next_child(store, internal)?;
                next.map(|at| internal.children()[at].pivot.clone())
            }
            _ => None,
        };
        match next {
            Some(pivot) => drain.passed.push(pivot),
            None => self.stop_draining(),
        }
        Ok(())
    }

    /// Buffers flushed by one level since the last drain began.
    pub fn drain_flushes(&self) -> u64 {
        self.drain_flushes
    }

    /// Ends the drain, with the buffers flushed so far.
    pub fn stop_draining(&mut self) {
        if let Some(drain) = self.draining.take() {
            self.waiting.extend(drain.small);
        }
    }

    /// Whether a drain is in progress.
    pub fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Whether a drain is in progress and no buffer is on its way down.
    pub fn is_between_buffers(&self) -> bool {
        self.is_settled() && self.draining.as_ref().is_some_and(|drain| drain.path.is_empty())
    }

    /// Flushes one buffer by one level.
    pub(super) fn drain_step(&mut self, store: &mut Store) -> Result<()> {
        let Some(mut drain) = self.draining.take() else { return Ok(()) };
        let Site { tree, key, height } = drain.lowest().clone();
        let node = shape::node_at(store, tree, &key, height).and_then(|id| store.node(id));
        let Some(node) = self.skip_unreadable(node)? else {
            return self.drain_behind(store, drain);
        };
        if node.height() > height {
            return self.drain_behind(store, drain);
        }
        let id = node.id();
        let more = match &*node {
            Node::Internal(internal) if internal.height == height => {
                match drain.next_child(store, internal)? {
                    Some(at) => {
                        let Bounds { lo, hi } = internal.child_bounds(at);
                        drop(node);
                        let height = Height(height.0 - 1);
                        match shape::move_buffer(store, id, at) {
                            // The failed flush has changed nothing.
                            Err(error) if error.is_unreadable() => {
                                self.blocked.remember_error(&error);
                                drain.passed.push(lo);
                            }
                            Err(error) => return Err(error),
                            Ok((_, key)) => {
                                self.drain_flushes += 1;
                                let site = Site { tree, key, height };
                                match height {
                                    Height(0) => self.waiting.push(site),
                                    _ => drain.path.push(LevelCursor { site, hi }),
                                }
                            }
                        }
                        true
                    }
                    None => {
                        drain.small.push(Site { tree, key: internal.bounds.lo.clone(), height });
                        drain.advance(store, internal.bounds.hi.as_ref())?
                    }
                }
            }
            // The tree has become lower.
            _ => drain.advance(store, None)?,
        };
        match more {
            true => self.draining = Some(drain),
            false => self.waiting.append(&mut drain.small),
        }
        Ok(())
    }

    /// Goes on with a drain behind the node that it cannot read, or behind the shared one above it.
    fn drain_behind(&mut self, store: &Store, mut drain: Drain) -> Result<()> {
        let Site { tree, key, height } = drain.lowest().clone();
        let end = shape::unchangeable_until(store, tree, &key, height)?;
        match drain.advance(store, end.as_ref())? {
            true => self.draining = Some(drain),
            false => self.waiting.append(&mut drain.small),
        }
        Ok(())
    }

    /// Puts off a node above the leaves until the drain ends; returns whether it does.
    pub(super) fn put_off_for_drain(&mut self, site: &Site) -> bool {
        let waits = self.is_put_off_for_drain(site);
        if let Some(drain) = self.draining.as_mut().filter(|_| waits) {
            drain.small.push(site.clone());
        }
        waits
    }

    fn is_put_off_for_drain(&self, site: &Site) -> bool {
        self.draining.is_some() && site.height > Height(0)
    }

    /// The most that the next step dirties besides nodes that are dirty already; nothing if the step will skip an
    /// unreadable node. Also whether a hold keeps an old extent of one of these nodes: then two checkpoints do not free
    /// all the space that the step takes.
    pub fn next_need(&self, store: &Store) -> Result<StepNeed> {
        match self.need_of_next(store) {
            Err(error) if error.is_unreadable() => Ok(StepNeed::default()),
            need => need,
        }
    }

    fn need_of_next(&self, store: &Store) -> Result<StepNeed> {
        let mut touched = Touched { store, need: StepNeed::default() };
        if let Some(site) = self.waiting.last() {
            if self.is_put_off_for_drain(site) {
                return Ok(touched.need);
            }
            let node = touched.path(site)?;
            match self.next_step_of(store, site, &node) {
                NodeStep::Nothing => {}
                NodeStep::SplitLeaf | NodeStep::SplitInternal => touched.pieces(node_bytes(&node)),
                NodeStep::Merge => touched.neighbours(site)?,
                NodeStep::Flush(at) => touched.child(&node, at)?,
            }
        } else if let Some(step) = self.next_of_carve(store)? {
            touched.carved(&step)?;
        } else if let Some(drain) = &self.draining {
            // If nothing is to be flushed, the step only moves to the next node.
            let Site { tree, key, height } = drain.lowest();
            let node = store.node(shape::node_at(store, *tree, key, *height)?)?;
            if let Node::Internal(internal) = &*node
                && internal.height == *height
                && let Some(at) = drain.next_child(store, internal)?
            {
                touched.path(drain.lowest())?;
                touched.child(&node, at)?;
            }
        }
        Ok(touched.need)
    }
}

fn node_bytes(node: &Node) -> usize {
    match node {
        Node::Leaf(leaf) => leaf.bytes(),
        Node::Internal(_) => 0,
    }
}

/// What a step may take at the most.
#[derive(Clone, Copy, Default)]
pub struct StepNeed {
    /// The nodes that it dirties.
    pub dirty: Dirty,
    /// What messages in copies of shared nodes can add to leaves.
    pub copied: Inflow,
    /// Whether a hold, or another edge, keeps the extent of one of the nodes, so that it does not become free.
    pub is_kept: bool,
}

/// The nodes that a step may dirty; each has one parent (invariant 6), so no other path changes.
struct Touched<'s> {
    store: &'s Store,
    need: StepNeed,
}

impl Touched<'_> {
    /// Adds the nodes on the path to a site; returns the node there.
    fn path(&mut self, site: &Site) -> Result<Arc<Node>> {
        let mut way = Descent::new(self.store, site.tree)?;
        while let Some(internal) = way.above(site.height) {
            let at = internal.child_for(&site.key);
            self.add(way.node(), 0);
            if !way.enter_alone(at)? {
                break;
            }
        }
        self.add(way.node(), 0);
        Ok(way.node().clone())
    }

    /// Adds the child that takes its buffer from `node`. The child may split then, and so may all nodes above it.
    fn child(&mut self, node: &Node, at: usize) -> Result<()> {
        let Node::Internal(internal) = node else { return Ok(()) };
        let (pending, growth) = (internal.pending(at), internal.growth_for(at).bytes as usize);
        if self.store.is_shared(internal, at)? && internal.is_pruned(at) {
            // An empty subtree takes its place, and it is not read.
            let nodes = u64::from(internal.height.0);
            self.need.dirty.nodes += nodes + 1;
            self.more(Need { blocks: 2 * nodes, maps: 0 });
            return Ok(());
        }
        let child = match self.store.child(internal, at) {
            // Such a child takes no messages.
            Err(error) if error.is_unreadable() => return Ok(()),
            child => child?,
        };
        // If the node is dirty, its pending messages are counted already. If not, it is written without the messages
        // that move to the child, whose count may be too high.
        let is_dirty = self.store.is_dirty(internal.id);
        if !is_dirty {
            let Need { blocks, .. } = &mut self.need.dirty.need;
            *blocks = blocks.saturating_sub((pending / BLOCK_SIZE) as u64);
        }
        let more = if is_dirty { growth } else { pending + growth };
        match self.store.is_shared(internal, at)? {
            true => self.copied(internal, at, &child, more)?,
            false => self.add(&child, more),
        }
        self.pieces(pending + growth);
        Ok(())
    }

    /// Adds the nodes that a step of a carve changes and creates. Leaves that are only opened have their old content.
    fn carved(&mut self, step: &CarveStep) -> Result<()> {
        match step {
            CarveStep::AddLevel(tree) => {
                let root = Site { tree: *tree, key: Key::default(), height: Height(0) };
                let node = self.path(&root)?;
                self.pieces(node_bytes(&node));
            }
            CarveStep::Flush { site, at, .. } => {
                let node = self.path(site)?;
                self.child(&node, *at)?;
            }
            CarveStep::Own { site, at, .. } => {
                let node = self.path(site)?;
                if let Node::Internal(internal) = &*node {
                    let child = self.store.child(internal, *at)?;
                    self.copied(internal, *at, &child, 0)?;
                }
            }
            CarveStep::Divide(site) => {
                let node = self.path(site)?;
                self.pieces(node_bytes(&node));
            }
        }
        Ok(())
    }

    /// Adds the copy of a shared child, `more` bytes longer, and the table entries of its children, one page each. The
    /// old node does not become free if it has other edges, and may itself be dirty. An internal node that is alone behind
    /// a lens becomes longer: its edges get one.
    fn copied(&mut self, parent: &Internal, at: usize, child: &Node, more: usize) -> Result<()> {
        let lens = parent.children()[at].lens.as_ref().map_or(0, |lens| lens.from().len());
        let children = child.internal().map_or(0, |child| child.children().len());
        let is_alone = self.store.references(child.id())? == 1;
        self.need.dirty.nodes += children as u64;
        if !is_alone {
            self.need.copied += child.inflow();
        }
        self.need.is_kept |= !is_alone || self.store.is_held(child);
        self.written(child);
        self.longer(more + children * lens);
        Ok(())
    }

    /// Adds the nodes that splits create when a leaf receives `taken` bytes
    /// ([`Geometry::nodes_of`](crate::store::Geometry::nodes_of)).
    fn pieces(&mut self, taken: usize) {
        let nodes = self.store.geometry.nodes_of(taken as u64, self.store.height());
        let more = Need { blocks: 2 * nodes, maps: nodes };
        self.need.dirty.nodes += nodes;
        self.more(more);
    }

    /// Adds the neighbours of a small node, one of which may be merged with it, and the messages pending for both.
    fn neighbours(&mut self, site: &Site) -> Result<()> {
        let above = Site { height: Height(site.height.0 + 1), ..site.clone() };
        let parent = shape::node_at(self.store, above.tree, &above.key, above.height)?;
        let parent = self.store.node(parent)?;
        let Node::Internal(internal) = &*parent else { return Ok(()) };
        let at = internal.child_for(&site.key);
        let last = internal.children().len() - 1;
        for at in at.saturating_sub(1)..=(at + 1).min(last) {
            self.child(&parent, at)?;
        }
        Ok(())
    }

    /// Adds a node that may become dirty, and `more` bytes longer.
    fn add(&mut self, node: &Node, more: usize) {
        if !self.store.is_dirty(node.id()) {
            self.written(node);
            self.need.is_kept |= self.store.is_held(node);
        }
        self.longer(more);
    }

    /// Adds a node that will be written.
    fn written(&mut self, node: &Node) {
        self.need.dirty.nodes += 1;
        self.need.dirty.internals += u64::from(node.height() > Height(0));
        self.more(node.need_when_changed(self.store.geometry.basement_size as usize));
    }

    fn longer(&mut self, bytes: usize) {
        if bytes > 0 {
            self.more(Need::of_image(bytes) + Need::of_blocks(1));
        }
    }

    fn more(&mut self, need: Need) {
        self.need.dirty.need = self.need.dirty.need + need;
    }
}
