//! Statistics of an image: nodes, fill, pending messages, use of space.

use std::collections::{BTreeMap, HashSet};

use betr_cli::size::human;
use betr_cli::{Failure, Io};
use betr_core::ids::{BLOCK_SIZE, TreeId};
use betr_offline::anatomy::{Ground, Purpose};
use serde_json::json;

use crate::log::Reach;
use crate::structure::Output;
use crate::sum::{NodeNumbers, Sum};
use crate::{Image, space};

/// Shows the statistics. Of the nodes only heads are read.
pub(crate) fn show(image: &Image, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let ground = space::ground(image, output, io)?;
    let mut sums: BTreeMap<(TreeId, u8), Sum> = BTreeMap::new();
    let mut told = HashSet::new();
    for area in &ground.areas {
        let Purpose::Node(id, entry) = area.purpose else { continue };
        // A scattered node has several areas.
        if ground.owns_node(id) && told.insert(id) {
            match NodeNumbers::of(image, &entry) {
                Ok(held) => sums.entry((entry.tree, entry.height.0)).or_default().add(&held),
                Err(error) => output.damage(io, &id.to_string(), error)?,
            }
        }
    }
    for ((tree, height), sum) in sums.iter().rev() {
        // The node size chosen when the volume was made.
        let size: u64 = match height {
            0 => image.superblock.leaf_size.into(),
            _ => image.superblock.node_size.into(),
        };
        let fill = percent(sum.bytes, sum.nodes.saturating_mul(size));
        let text = match height {
            0 => format!(
                "{tree} leaves: {} nodes, {} bytes, {fill} % of {} full, {} entries",
                sum.nodes,
                sum.bytes,
                human(size),
                sum.entries
            ),
            _ => format!(
                "{tree} height {height}: {} nodes, {:.1} children each, {} runs, {} messages of {} bytes pending, {fill} % of {} full",
                sum.nodes,
                sum.children as f64 / sum.nodes.max(1) as f64,
                sum.runs,
                sum.pending,
                sum.pending_bytes,
                human(size)
            ),
        };
        output.line(io, text, || {
            json!({
                "tree": tree.to_string(), "height": height, "nodes": sum.nodes, "bytes": sum.bytes,
                "fill_percent": fill, "entries": sum.entries, "children": sum.children,
                "runs": sum.runs, "pending_messages": sum.pending, "pending_bytes": sum.pending_bytes,
            })
        })?;
    }
    free(&ground, output, io)?;
    match Reach::of(&image.source, |_, _| Ok(()))? {
        Ok(Reach { groups, records, bytes, .. }) => {
            let (used, all) = (bytes / BLOCK_SIZE as u64, image.superblock.log_units);
            let percent = percent(used, all);
            let text = format!("log: {groups} groups, {records} records, {percent} % full");
            output.line(io, text, || {
                json!({ "log_groups": groups, "log_records": records, "log_units": used, "log_units_all": all })
            })
        }
        Err(error) => output.damage(io, "log", error),
    }
}

fn percent(part: u64, all: u64) -> u64 {
    part.saturating_mul(100).checked_div(all).unwrap_or(0)
}

/// Shows the sizes of the free extents.
fn free(ground: &Ground, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let rows = ground.areas.iter().filter(|area| area.purpose == Purpose::Free);
    let mut sizes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for row in rows {
        let (rows, blocks) = sizes.entry(row.blocks.ilog2()).or_default();
        *rows += 1;
        *blocks += row.blocks;
    }
    for (power, (rows, blocks)) in sizes {
        let (least, most) = (1u64 << power, (2u64 << power) - 1);
        let text = format!(
            "free rows of {least} to {most} blocks: {rows}, {}",
            human(blocks * BLOCK_SIZE as u64)
        );
        output.line(
            io,
            text,
            || json!({ "free_rows_from": least, "to": most, "rows": rows, "blocks": blocks }),
        )?;
    }
    Ok(())
}
