//! Checks the edges between nodes: each refers to a node that matches it, and each node has as many edges as its entry
//! states, which is one (invariant 6).

use std::collections::HashMap;

use super::nodes::Summary;
use super::{Code, Report, node_place};
use crate::error::Place;
use crate::format::{Bounds, Entry};
use crate::ids::*;

/// Whether all edges refer to different nodes, as far as internal nodes show. Then a walk of the trees visits each node
/// once.
pub(super) fn lead_apart(
    entries: &[(NodeId, Entry)],
    internals: &HashMap<NodeId, Summary>,
) -> bool {
    let mut report = Report::default();
    check(entries, internals, true, &mut report);
    report.findings.is_empty()
}

/// Follows the edges of both trees from their roots. `whole` says that no page of the table is missing.
pub(super) fn check(
    entries: &[(NodeId, Entry)],
    nodes: &HashMap<NodeId, Summary>,
    whole: bool,
    report: &mut Report,
) {
    let mut references: HashMap<NodeId, u32> = HashMap::with_capacity(entries.len());
    let known: HashMap<NodeId, &Entry> = entries.iter().map(|(id, entry)| (*id, entry)).collect();
    for tree in TreeId::ALL {
        let mut waiting = vec![(tree.root(), None, Bounds::default())];
        while let Some((id, height, bounds)) = waiting.pop() {
            let count = references.entry(id).or_default();
            *count += 1;
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
            // A node that did not verify has been reported; one that was visited before ends a cycle.
            let Some(node) = nodes.get(&id).filter(|_| *count == 1) else { continue };
            let place = || node_place(id, entry.extent);
            if node.tree != tree || height.is_some_and(|height| node.height != height) {
                let detail = format!("{} node of height {}", node.tree, node.height);
                report.add(Code::NodeWrong, place(), detail);
                continue;
            }
            if node.bounds != bounds {
                report.add(Code::NodeWrong, place(), "its bounds are not those of its edge");
            }
            let below = node.height.0.checked_sub(1).map(Height);
            waiting.extend(
                node.children.iter().rev().map(|(id, bounds)| (*id, below, bounds.clone())),
            );
        }
    }
    for (id, entry) in entries {
        let found = references.get(id).copied().unwrap_or(0);
        // The missing edges may be in the lost nodes.
        let all = whole && nodes.len() == entries.len();
        if found != entry.references && (all || found > entry.references) {
            let detail = format!("{} references, but {found} edges lead to it", entry.references);
            report.add(Code::EntryWrong, node_place(*id, entry.extent), detail);
        }
    }
}
