//! Checks the edges between nodes: each refers to a node that matches it, and each node has as many edges as its entry
//! states, which is one where nothing is shared (invariant 6).

use std::collections::HashMap;

use super::nodes::{Edge, Summary};
use super::{Code, Report, node_place};
use crate::error::Place;
use crate::format::{Bounds, Entry, Superblock};
use crate::ids::*;

/// Whether all edges are sound, as far as internal nodes show. Then a walk of a tree through edges without lenses visits
/// each node at most once.
pub(super) fn are_sound(
    entries: &[(NodeId, Entry)],
    internals: &HashMap<NodeId, Summary>,
    superblock: &Superblock,
) -> bool {
    let mut report = Report::default();
    check(entries, internals, superblock, true, &mut report);
    report.findings.is_empty()
}

/// Follows the edges of both trees from their roots, and those of nodes that wait to be freed. `whole` says that no page
/// of the table is missing.
pub(super) fn check(
    entries: &[(NodeId, Entry)],
    nodes: &HashMap<NodeId, Summary>,
    superblock: &Superblock,
    whole: bool,
    report: &mut Report,
) {
    let shares = superblock.features.shares();
    let mut references: HashMap<NodeId, u32> = HashMap::with_capacity(entries.len());
    let known: HashMap<NodeId, &Entry> = entries.iter().map(|(id, entry)| (*id, entry)).collect();
    let dying = |(id, entry): &&(NodeId, Entry)| entry.references == 0 && nodes.contains_key(id);
    let dying = entries.iter().filter(dying).filter(|_| shares);
    let roots = TreeId::ALL.map(|tree| (tree, tree.root(), Some(Bounds::default())));
    let dying = dying.map(|(id, _)| (nodes[id].tree, *id, None));
    for (tree, first, keys) in roots.into_iter().chain(dying) {
        let mut waiting = vec![(first, None, keys)];
        while let Some((id, height, keys)) = waiting.pop() {
            // No edge leads to a node that waits to be freed.
            let count = references.entry(id).or_default();
            let is_first = *count == 0;
            *count += u32::from(keys.is_some());
            let Some(entry) = known.get(&id) else {
                if !whole {
                    continue;
                }
                report.add(
                    Code::NodeMissing,
                    Place::Node { id, byte: None },
                    "an edge leads to it",
                );
                continue;
            };
            // A node that did not verify has been reported.
            let Some(node) = nodes.get(&id) else { continue };
            let place = || node_place(id, entry.extent);
            if node.tree != tree || height.is_some_and(|height| node.height != height) {
                let detail = format!("{} node of height {}", node.tree, node.height);
                report.add(Code::NodeWrong, place(), detail);
                continue;
            }
            if keys.is_some_and(|keys| node.bounds != keys) {
                report.add(Code::NodeWrong, place(), "its bounds are not those of its edge");
            }
            // What is below one that was visited before has been looked at. This ends a cycle, too.
            if !is_first {
                continue;
            }
            if !shares && node.children.iter().any(|edge| edge.has_lens) {
                let detail = "an edge with a lens, and nothing is shared";
                report.add(Code::NodeWrong, place(), detail);
            }
            let below = node.height.0.checked_sub(1).map(Height);
            let edge = |edge: &Edge| (edge.child, below, Some(edge.keys.clone()));
            waiting.extend(node.children.iter().rev().map(edge));
        }
    }
    for (id, entry) in entries {
        let found = references.get(id).copied().unwrap_or(0);
        // The missing edges may be in the lost nodes.
        let all = whole && nodes.len() == entries.len();
        let is_many = found > entry.references || entry.references != 1 && !shares;
        if found != entry.references && (all || found > entry.references) || is_many {
            let detail = format!("{} references, but {found} edges lead to it", entry.references);
            report.add(Code::EntryWrong, node_place(*id, entry.extent), detail);
        }
    }
}
