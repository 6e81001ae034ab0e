//! Both trees: one line per node, and sums per height.

use std::collections::{BTreeMap, HashSet};

use betr_cli::{Failure, Io, json};
use betr_core::format::{Entry, TableRoot};
use betr_core::ids::{NodeId, TreeId};
use betr_core::table::Table;
use serde_json::json;

use crate::Image;
use crate::structure::Output;
use crate::sum::{NodeNumbers, Sum};

/// The allocation table of the checkpoint.
pub(crate) fn table(image: &Image) -> Table {
    let root: TableRoot = image.superblock.table;
    Table::open(image.disk.clone(), image.superblock.birth.volume, root)
        .sharing(image.superblock.features.shares())
}

/// Shows one line per node, parents before their children, then one line per height.
pub(crate) fn show(image: &Image, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let table = table(image);
    for tree in TreeId::ALL {
        let mut sums: BTreeMap<u8, Sum> = BTreeMap::new();
        let mut seen = HashSet::new();
        let mut waiting = vec![(tree.root(), 0usize)];
        output.line(io, format_args!("{tree} tree"), || json!({ "tree": tree.to_string() }))?;
        while let Some((id, depth)) = waiting.pop() {
            if !seen.insert(id) {
                if !image.superblock.features.shares() {
                    // One parent (invariant 6).
                    let text = "was shown before: a cycle, or two parents";
                    output.damage(io, &id.to_string(), text)?;
                    continue;
                }
                let indent = "  ".repeat(depth.min(32));
                output.line(
                    io,
                    format_args!("{indent}{id} shared, see above"),
                    || json!({ "node": id.0, "shared": true }),
                )?;
                continue;
            }
            let entry = match table.get(id) {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    output.damage(io, &id.to_string(), "is not in the table")?;
                    continue;
                }
                Err(error) => {
                    output.damage(io, &id.to_string(), error)?;
                    continue;
                }
            };
            match NodeNumbers::of(image, &entry) {
                Ok(held) => {
                    sums.entry(entry.height.0).or_default().add(&held);
                    node(id, &entry, depth, &held, output, io)?;
                    let children = held.children.into_iter().rev();
                    waiting.extend(children.map(|child| (child, depth + 1)));
                }
                Err(error) => output.damage(io, &id.to_string(), error)?,
            }
        }
        for (height, sum) in sums.iter().rev() {
            let text = format!(
                "height {height}: {} nodes of {} bytes, {} entries, {} messages of {} bytes pending",
                sum.nodes, sum.bytes, sum.entries, sum.pending, sum.pending_bytes
            );
            output.line(io, text, || {
                json!({
                    "tree": tree.to_string(), "height": height, "nodes": sum.nodes, "bytes": sum.bytes,
                    "entries": sum.entries, "pending_messages": sum.pending,
                    "pending_bytes": sum.pending_bytes,
                })
            })?;
        }
    }
    Ok(())
}

fn node(
    id: NodeId,
    entry: &Entry,
    depth: usize,
    held: &NodeNumbers,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let indent = "  ".repeat(depth.min(32));
    let edges = match entry.references {
        1 => String::new(),
        edges => format!(", {edges} edges"),
    };
    let place = format!("{indent}{id} height {} blocks {}{edges}", entry.height, entry.extent);
    let NodeNumbers { bytes, basements, entries, children, runs, pending, pending_bytes, from } =
        held;
    let (block, blocks) = (entry.extent.start.0, entry.extent.blocks);
    if entry.height.0 == 0 {
        let from = json::hex(from);
        let text = format!(
            "{place}: {bytes} bytes, {basements} basements, {entries} entries, from k#{from}"
        );
        return output.line(io, text, || {
            json!({
                "node": id.0, "height": 0, "block": block, "blocks": blocks, "bytes": bytes,
                "basements": basements, "entries": entries, "from": from,
                "references": entry.references,
            })
        });
    }
    let children = children.len();
    let text = format!(
        "{place}: {children} children, {runs} runs, {pending} messages of {pending_bytes} bytes pending"
    );
    output.line(io, text, || {
        json!({
            "node": id.0, "height": entry.height.0, "block": block, "blocks": blocks,
            "children": children, "runs": runs, "pending_messages": pending,
            "pending_bytes": pending_bytes, "references": entry.references,
        })
    })
}
