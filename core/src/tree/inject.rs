//! Injection: puts messages into a tree.
//!
//! A message goes into the root. It skips a level if nothing is pending there on its path, and if the child is in
//! memory and dirty. Then it overtakes no older message, and dirties no clean node (promotion, BetrFS 0.2 §2.1). So a
//! sequential write reaches its leaf at once, and is written once. Nodes that become too large are queued in the
//! [`Balance`].
//!
//! A node that is slightly too large because of range deletes alone is not queued until other messages come. So a range
//! delete takes constant time, however much it covers.
//!
//! Messages between two range deletes are sorted by key, so that each child of a node is looked at once.

use smallvec::SmallVec;

use super::{Balance, shape};
use crate::error::{Error, Result};
use crate::format::{Key, RangeDelete, RecordMessage};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::node::{Internal, Item, Leaf, Node};
use crate::store::Store;
use crate::tuning::SCATTERED_BELOW;

/// A message and its MSN.
#[derive(Clone, Copy)]
struct Numbered<'m> {
    msn: Msn,
    message: &'m RecordMessage,
    /// The message as an item, if it is for one key.
    point: Option<Item<'m>>,
    /// The first bytes of the key.
    head: u64,
}

impl<'m> Numbered<'m> {
    fn new(msn: Msn, message: &'m RecordMessage, head: u64) -> Numbered<'m> {
        let point = match message {
            RecordMessage::Point(_, key, action) => Some(Item::new(key, msn, action)),
            RecordMessage::RangeDelete(..)
            | RecordMessage::Clone(..)
            | RecordMessage::Unbound(..) => None,
        };
        Numbered { msn, message, point, head }
    }

    /// The bytes of the value that the message may create, besides its own.
    fn growth(&self) -> usize {
        self.point.map_or(0, |item| item.growth())
    }
}

/// The first bytes of keys, and the indexes of their messages. Most operations have few.
type Order = SmallVec<[(u64, u32); 4]>;

/// Messages of one operation, and the order in which they enter each tree. The order does not depend on the trees, so
/// it is made before they are locked.
pub struct Ordered {
    /// In their original order.
    pub messages: Vec<RecordMessage>,
    /// For each tree, its messages as the first bytes of their keys and their indexes, in order. Range clones are not
    /// among them: they change the tree itself, before these messages enter it.
    orders: [Order; 2],
}

impl Ordered {
    /// Takes messages in their original order, at most as many as a record may have.
    pub fn new(messages: Vec<RecordMessage>) -> Ordered {
        let orders = TreeId::ALL.map(|tree| {
            let enters = |message: &RecordMessage| message.tree() == tree && !message.is_clone();
            let own = messages.iter().zip(0..).filter(|(message, _)| enters(message));
            let mut order: Order =
                own.map(|(message, at)| (Key::head(message.key()), at)).collect();
            let is_range = |(_, at): &(u64, u32)| messages[*at as usize].is_range();
            for part in order.split_mut(is_range) {
                put_in_order(part, |at| messages[at as usize].key());
            }
            order
        });
        Ordered { messages, orders }
    }
}

/// Injects messages with their values, with MSNs from `first` on.
pub fn inject(
    store: &mut Store,
    balance: &mut Balance,
    first: Msn,
    Ordered { messages, orders }: &Ordered,
) -> Result<()> {
    if messages.iter().any(|message| matches!(message, RecordMessage::Unbound(..))) {
        return Err(Error::Bug("a message without its value".into()));
    }
    for (tree, order) in TreeId::ALL.into_iter().zip(orders) {
        let number = |(head, at): &(u64, u32)| {
            Numbered::new(Msn(first.0 + u64::from(*at)), &messages[*at as usize], *head)
        };
        let own: SmallVec<[Numbered<'_>; 4]> = order.iter().map(number).collect();
        if !own.is_empty() {
            let growth: usize = own.iter().map(Numbered::growth).sum();
            let is_leaf = store.root(tree)?.height() == Height(0);
            if is_leaf && growth > store.geometry.growth_at_once() {
                shape::add_level(store, tree)?;
            }
            inject_into(store, balance, tree.root(), &own)?;
            for Numbered { message, .. } in &own {
                if let RecordMessage::RangeDelete(_, lo, hi) = message {
                    balance.prune_within(tree, lo, hi);
                }
            }
        }
    }
    Ok(())
}

/// Sorts messages by key. Messages for one key keep their order, and no message crosses a range delete.
fn sort(messages: &mut [Numbered<'_>]) {
    for part in messages.split_mut(|numbered| numbered.message.is_range()) {
        let mut order: Vec<(u64, u32)> = part.iter().map(|m| m.head).zip(0..).collect();
        if put_in_order(&mut order, |at| part[at as usize].message.key()) {
            let sorted: Vec<Numbered<'_>> =
                order.into_iter().map(|(_, at)| part[at as usize]).collect();
            part.copy_from_slice(&sorted);
        }
    }
}

/// Sorts messages, each given by the first bytes of its key and its index, by key. Indexes ascend at first. Returns
/// whether the order changed.
fn put_in_order<'k>(order: &mut [(u64, u32)], key: impl Fn(u32) -> &'k Key) -> bool {
    let full = |(head, at): &(u64, u32)| (*head, key(*at));
    if order.is_sorted_by_key(full) {
        return false;
    }
    order.sort_unstable();
    // Only few keys share their first bytes.
    for same in order.chunk_by_mut(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
        same.sort_by_key(|(_, at)| key(*at));
    }
    true
}

/// Injects messages into a node, or into its children where they may skip it.
fn inject_into(
    store: &mut Store,
    balance: &mut Balance,
    id: NodeId,
    messages: &[Numbered<'_>],
) -> Result<()> {
    let node = store.node(id)?;
    let (tree, height, lo) = (node.tree(), node.height(), node.bounds().lo.clone());
    let (plan, buffers) = match &*node {
        Node::Internal(internal) => {
            (Plan::new(store, internal, messages)?, store.buffers_max(internal))
        }
        Node::Leaf(_) => Default::default(),
    };
    drop(node);
    let geometry = store.geometry;
    let buffers = match messages.iter().all(|numbered| numbered.message.is_range()) {
        true => buffers / 4 * 5,
        false => buffers,
    };
    let now = store.tick();
    let full = store.edit(id, |node, disk| match node {
        Node::Internal(internal) => {
            internal.visited(now);
            for (at, messages) in &plan.kept {
                enter(internal, *at, messages);
            }
            Ok(internal.buffered() > buffers || internal.has_unreadable_runs())
        }
        Node::Leaf(leaf) => {
            leaf.open(disk)?;
            messages.iter().for_each(|message| enter_leaf(leaf, *message));
            Ok(leaf.bytes() > geometry.leaf_size as usize)
        }
    })?;
    if full {
        balance.enqueue(tree, &lo, height);
    }
    for (child, mut messages) in plan.passed {
        // Range deletes for other children may have split these messages into several sorted pieces.
        sort(&mut messages);
        inject_into(store, balance, child, &messages)?;
    }
    Ok(())
}

/// The destinations of messages for an internal node.
#[derive(Default)]
struct Plan<'a, 'm> {
    /// Messages that stay in the node: points for one child each, or a range delete.
    kept: Vec<(usize, &'a [Numbered<'m>])>,
    /// Messages that skip the node, by child.
    passed: Vec<(NodeId, Vec<Numbered<'m>>)>,
}

/// The state of one child.
#[derive(Clone, Copy, Default)]
struct ChildState {
    /// Whether messages may skip to it; `None` before that has been checked.
    open: Option<bool>,
    /// The index in `passed` of its messages; `growth` is the bytes of the values that they may create.
    passed: Option<usize>,
    growth: usize,
}

impl<'a, 'm> Plan<'a, 'm> {
    fn new(store: &Store, internal: &Internal, messages: &'a [Numbered<'m>]) -> Result<Self> {
        let mut plan = Plan::default();
        let mut ways = vec![ChildState::default(); internal.children().len()];
        let mut rest = messages;
        while let Some(first) = rest.first() {
            let mut count = 1;
            match first.message {
                RecordMessage::Point(_, key, _) => {
                    let at = internal.child_for(key);
                    let end = internal.children().get(at + 1).map(|next| &*next.pivot);
                    let end = end.map(|end| (Key::head(end), end));
                    let is_inside = |m: &&Numbered<'m>| {
                        m.point.is_some_and(|item| end.is_none_or(|end| (m.head, item.key) < end))
                    };
                    count = rest.iter().take_while(is_inside).count();
                    let passed = plan.pass(store, internal, at, &mut ways[at], &rest[..count])?;
                    if passed < count {
                        plan.kept.push((at, &rest[passed..count]));
                    }
                }
                RecordMessage::RangeDelete(_, lo, hi) => {
                    plan.kept.push((0, &rest[..1]));
                    // Later messages must not overtake it; earlier ones are already below it.
                    for at in internal.children_within(lo, hi) {
                        ways[at].open = Some(false);
                    }
                }
                RecordMessage::Clone(..) => unreachable!("range clones do not enter nodes"),
                RecordMessage::Unbound(..) => unreachable!("messages come with their values"),
            }
            rest = &rest[count..];
        }
        Ok(plan)
    }

    /// Lets messages for child `at` skip to it; returns how many do.
    fn pass(
        &mut self,
        store: &Store,
        internal: &Internal,
        at: usize,
        way: &mut ChildState,
        messages: &[Numbered<'m>],
    ) -> Result<usize> {
        let child = internal.children()[at].id;
        let open = match way.open {
            Some(open) => open,
            None => {
                internal.pending(at) == 0
                    && store.is_dirty(child)
                    && (!store.is_shared(internal, at)? || is_broken(Mutation::SharedEntered))
            }
        };
        let limit = store.geometry.growth_at_once();
        let growth = |message: &&Numbered<'m>| {
            way.growth += message.growth();
            way.growth <= limit
        };
        let count = match open && !is_scattered(&*store.child(internal, at)?, messages) {
            true => messages.iter().take_while(growth).count(),
            false => 0,
        };
        way.open = Some(count == messages.len());
        if count > 0 {
            let passed = *way.passed.get_or_insert_with(|| {
                self.passed.push((child, Vec::new()));
                self.passed.len() - 1
            });
            self.passed[passed].1.extend_from_slice(&messages[..count]);
        }
        Ok(count)
    }
}

/// Whether a node would get many messages, but few for each of its children. Such messages stay above, and move down
/// later in larger batches.
fn is_scattered(node: &Node, messages: &[Numbered<'_>]) -> bool {
    let (Node::Internal(internal), [first, .., last]) = (node, messages) else { return false };
    let [first, last] = [first, last].map(|m| internal.child_for(m.message.key()));
    messages.len() > SCATTERED_BELOW && messages.len() < SCATTERED_BELOW * (last - first + 1)
}

/// Adds messages to an internal node: points for child `at`, or a range delete.
fn enter<'m>(internal: &mut Internal, at: usize, messages: &[Numbered<'m>]) {
    match messages {
        [Numbered { msn, message: RecordMessage::RangeDelete(_, lo, hi), .. }] => {
            internal.insert_range(&RangeDelete { msn: *msn, lo: lo.clone(), hi: hi.clone() });
        }
        points => {
            let point = |message: &Numbered<'m>| message.point.expect("they are points");
            internal.insert(at, points.iter().map(point));
        }
    }
}

fn enter_leaf(leaf: &mut Leaf, Numbered { msn, message, .. }: Numbered<'_>) {
    match message {
        RecordMessage::Point(_, key, action) => leaf.apply(key, msn, action),
        RecordMessage::RangeDelete(_, lo, hi) => leaf.remove_range(lo, hi),
        RecordMessage::Clone(..) => unreachable!("range clones do not enter nodes"),
        RecordMessage::Unbound(..) => unreachable!("messages come with their values"),
    }
}
