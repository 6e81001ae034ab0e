//! Injection: messages enter a tree.
//!
//! A message goes into the root. It may skip levels where nothing is pending for its path, if the
//! child is in memory and dirty: then it overtakes nothing older, and dirties nothing new (promotion,
//! BetrFS 0.2 §2.1). A sequential write so reaches its leaf at once, and is written once. Nodes that
//! become too large wait in the [`Balance`].

use super::{Balance, shape};
use crate::cache::Store;
use crate::error::{Error, Result};
use crate::format::{Action, RangeDelete, RecordMessage};
use crate::ids::*;
use crate::node::{Child, Internal, Leaf, Node};

/// A message and its number.
type Numbered<'m> = (Msn, &'m RecordMessage);

/// Injects messages with their values; they have the MSNs from `first` on.
pub fn inject(
    store: &mut Store,
    balance: &mut Balance,
    first: Msn,
    messages: &[RecordMessage],
) -> Result<()> {
    if messages.iter().any(|message| matches!(message, RecordMessage::Unbound(..))) {
        return Err(Error::Misuse("a message without its value".into()));
    }
    for tree in TreeId::ALL {
        let numbered = messages.iter().enumerate();
        let numbered = numbered.map(|(at, message)| (Msn(first.0 + at as u64), message));
        let own: Vec<Numbered<'_>> = numbered.filter(|(_, m)| m.tree() == tree).collect();
        if !own.is_empty() {
            let growth: usize = own.iter().map(|(_, message)| growth_of(message)).sum();
            let is_leaf = store.root(tree)?.height() == Height(0);
            if is_leaf && growth > store.geometry.growth_at_once() {
                shape::raise(store, tree)?;
            }
            inject_into(store, balance, tree.root(), &own)?;
            for (_, message) in &own {
                if let RecordMessage::RangeDelete(_, lo, hi) = message {
                    balance.prune_within(tree, lo, hi);
                }
            }
        }
    }
    Ok(())
}

/// Injects messages into a node, and those that may skip it into its children.
fn inject_into(
    store: &mut Store,
    balance: &mut Balance,
    id: NodeId,
    messages: &[Numbered<'_>],
) -> Result<()> {
    let node = store.node(id)?;
    let (tree, height, lo) = (node.tree(), node.height(), node.bounds().lo.clone());
    let mut ways = match &*node {
        Node::Internal(internal) => ways_down(store, internal),
        Node::Leaf(_) => Vec::new(),
    };
    drop(node);
    let geometry = store.geometry;
    let full = store.edit(id, |node, disk| match node {
        Node::Internal(internal) => {
            enter(internal, &mut ways, messages, geometry.growth_at_once());
            Ok(internal.buffered() > geometry.node_size as usize)
        }
        Node::Leaf(leaf) => {
            leaf.open(disk)?;
            messages.iter().for_each(|message| enter_leaf(leaf, message));
            Ok(leaf.bytes() > geometry.leaf_size as usize)
        }
    })?;
    if full {
        balance.look_at(tree, &lo, height);
    }
    for Way { child, messages, .. } in ways {
        if !messages.is_empty() {
            inject_into(store, balance, child, &messages)?;
        }
    }
    Ok(())
}

/// The way to a child.
struct Way<'m> {
    child: NodeId,
    /// Whether messages may go to it at once: nothing is pending for it, and it is dirty anyway.
    open: bool,
    /// Those that do.
    messages: Vec<Numbered<'m>>,
    /// The bytes of the values that they may make.
    growth: usize,
}

/// The bytes of the value that a message may make, besides its own.
fn growth_of(message: &RecordMessage) -> usize {
    match message {
        RecordMessage::Point(_, _, Action::Update(update)) => update.growth(),
        _ => 0,
    }
}

fn ways_down<'m>(store: &Store, internal: &Internal) -> Vec<Way<'m>> {
    let way = |(at, child): (usize, &Child)| {
        let open = internal.pending(at) == 0 && store.is_dirty(child.id);
        Way { child: child.id, open, messages: Vec::new(), growth: 0 }
    };
    internal.children().iter().enumerate().map(way).collect()
}

/// Adds messages to an internal node, but for those that go on to a child; there they may make values of
/// `growth` bytes.
fn enter<'m>(
    internal: &mut Internal,
    ways: &mut [Way<'m>],
    messages: &[Numbered<'m>],
    growth: usize,
) {
    for (msn, message) in messages.iter().copied() {
        match message {
            RecordMessage::Point(_, key, action) => {
                let way = &mut ways[internal.child_for(key)];
                way.growth += growth_of(message);
                way.open &= way.growth <= growth;
                match way.open {
                    true => way.messages.push((msn, message)),
                    false => internal.insert(key, msn, action),
                }
            }
            RecordMessage::RangeDelete(_, lo, hi) => {
                let range = RangeDelete { msn, lo: lo.clone(), hi: hi.clone() };
                internal.insert_range(&range);
                // What comes after it must not overtake it; what came before is below it.
                for at in internal.children_within(lo, hi) {
                    ways[at].open = false;
                }
            }
            RecordMessage::Unbound(..) => unreachable!("messages come with their values"),
        }
    }
}

fn enter_leaf(leaf: &mut Leaf, (msn, message): &Numbered<'_>) {
    match message {
        RecordMessage::Point(_, key, action) => leaf.apply(key, *msn, action),
        RecordMessage::RangeDelete(_, lo, hi) => leaf.remove_range(lo, hi),
        RecordMessage::Unbound(..) => unreachable!("messages come with their values"),
    }
}
