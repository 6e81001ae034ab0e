//! Both trees: a line for each node, and sums for each height.

use std::collections::{BTreeMap, HashSet};

use betr_cli::{Failure, Io, json};
use betr_core::format::{Entry, InternalHead, LeafHead, TableRoot};
use betr_core::ids::{NodeId, TreeId};
use betr_core::table::Table;
use serde_json::json;

use crate::Image;
use crate::structure::Output;

/// Sums over the nodes of one height.
#[derive(Default)]
struct Sum {
    nodes: u64,
    bytes: u64,
    entries: u64,
    pending: u64,
    pending_bytes: u64,
}

/// The table of the checkpoint, for looking nodes up.
pub(crate) fn table(image: &Image) -> Table {
    let root: TableRoot = image.superblock.table;
    Table::open(image.disk.clone(), image.superblock.birth.volume, root)
}

/// A line for each node, parents before their children, then a line for each height.
pub(crate) fn show(image: &Image, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let table = table(image);
    for tree in TreeId::ALL {
        let mut sums: BTreeMap<u8, Sum> = BTreeMap::new();
        let mut seen = HashSet::new();
        let mut waiting = vec![(tree.root(), 0usize)];
        output.line(io, format_args!("{tree} tree"), || json!({ "tree": tree.to_string() }))?;
        while let Some((id, depth)) = waiting.pop() {
            if !seen.insert(id) {
                output.damage(io, &id.to_string(), "was shown before: a cycle, or two parents")?;
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
            let sum = sums.entry(entry.height.0).or_default();
            for child in node(image, id, &entry, depth, sum, output, io)?.into_iter().rev() {
                waiting.push((child, depth + 1));
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
    image: &Image,
    id: NodeId,
    entry: &Entry,
    depth: usize,
    sum: &mut Sum,
    output: &mut Output,
    io: &mut Io,
) -> Result<Vec<NodeId>, Failure> {
    let indent = "  ".repeat(depth.min(32));
    let head = match image.disk.read(entry.extent.start.byte(), entry.head_bytes as usize) {
        Ok(head) => head,
        Err(error) => {
            output.damage(io, &id.to_string(), error)?;
            return Ok(Vec::new());
        }
    };
    sum.nodes += 1;
    let place = format!("{indent}{id} height {} blocks {}", entry.height, entry.extent);
    if entry.height.0 == 0 {
        let head = match LeafHead::decode(&head, None) {
            Ok((_, head)) => head,
            Err(error) => return damaged(&id, error, output, io),
        };
        let entries: u64 = head.basements.iter().map(|basement| u64::from(basement.entries)).sum();
        sum.bytes += u64::from(head.leaf_bytes);
        sum.entries += entries;
        let first = json::hex(&head.bounds.lo);
        let text = format!(
            "{place}: {} bytes, {} basements, {entries} entries, from k#{first}",
            head.leaf_bytes,
            head.basements.len()
        );
        output.line(io, text, || {
            json!({
                "node": id.0, "height": 0, "block": entry.extent.start.0, "blocks": entry.extent.blocks,
                "bytes": head.leaf_bytes, "basements": head.basements.len(), "entries": entries, "from": first,
            })
        })?;
        return Ok(Vec::new());
    }
    let head = match InternalHead::decode(&head, None) {
        Ok((_, head)) => head,
        Err(error) => return damaged(&id, error, output, io),
    };
    let sections = || {
        head.runs.iter().flat_map(|run| run.slices.iter().map(|s| s.section).chain([run.ranges]))
    };
    let pending: u64 = sections().map(|section| u64::from(section.count)).sum();
    let bytes: u64 = sections().map(|section| u64::from(section.bytes)).sum();
    sum.pending += pending;
    sum.pending_bytes += bytes;
    sum.bytes += entry.extent.bytes() + head.runs.iter().map(|run| run.extent.bytes()).sum::<u64>();
    let text = format!(
        "{place}: {} children, {} runs, {pending} messages of {bytes} bytes pending",
        head.children.len(),
        head.runs.len()
    );
    output.line(io, text, || {
        json!({
            "node": id.0, "height": entry.height.0, "block": entry.extent.start.0,
            "blocks": entry.extent.blocks, "children": head.children.len(), "runs": head.runs.len(),
            "pending_messages": pending, "pending_bytes": bytes,
        })
    })?;
    Ok(head.children.iter().map(|child| child.id).collect())
}

fn damaged(
    id: &NodeId,
    error: betr_core::format::FormatError,
    output: &mut Output,
    io: &mut Io,
) -> Result<Vec<NodeId>, Failure> {
    output.damage(io, &id.to_string(), error)?;
    Ok(Vec::new())
}
