//! The nodes of an image by tree and height: number, fill and pending messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::format::Entry;
use betr_core::ids::{NodeId, TreeId};
use betr_offline::anatomy::Purpose;

use super::node::{Head, live};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Sheet, column, numbers, rest};
use crate::spot::Spot;
use crate::words;
use crate::work::Work;

#[derive(Default)]
struct Sum {
    nodes: u64,
    bytes: u64,
    room: u64,
    pending: u64,
    /// The number of nodes by fill, in tenths.
    fill: [u64; 10],
    /// The number of nodes by pending messages: 0, 1 to 9, 10 to 99, and so on.
    waiting: [u64; 8],
    first: Option<NodeId>,
}

/// A node as described by its head.
pub(super) struct Seen {
    pub id: NodeId,
    pub entry: Entry,
    pub bytes: u64,
    pub room: u64,
    pub pending: u64,
}

/// Passes every node whose head verifies to `show`; returns the number of the others.
pub(super) fn each(
    image: &Image,
    work: &Arc<Work>,
    mut show: impl FnMut(Seen),
) -> Result<u64, String> {
    let superblock = image.superblock()?;
    let ground = image.ground(work)?;
    let disk = image.disk(work);
    let (mut last, mut bad) = (None, 0);
    for (at, area) in ground.areas.iter().enumerate() {
        let Purpose::Node(id, entry) = area.purpose else { continue };
        // A scattered node has several areas, consecutive in the order of the table.
        if !ground.owns_node(id) || last.replace(id) == Some(id) {
            continue;
        }
        if work.is_cancelled() {
            return Err("given up".into());
        }
        work.step(at as u64, ground.areas.len() as u64);
        let (room, found) = match Head::read(&disk, id, &entry) {
            Ok(Head::Leaf(head)) => (superblock.leaf_size, (u64::from(head.leaf_bytes), 0)),
            Ok(Head::Internal(head)) => {
                let bytes = head.runs.iter().map(|run| u64::from(run.bytes)).sum();
                (superblock.node_size, (bytes, live(&head).messages))
            }
            Err(_) => {
                bad += 1;
                continue;
            }
        };
        let (bytes, pending) = found;
        show(Seen { id, entry, bytes, room: room.into(), pending });
    }
    Ok(bad)
}

/// One row per height of each tree. Reads the heads of all nodes.
pub(super) fn nodes(image: &Image, work: &Arc<Work>) -> Result<Sheet, String> {
    let mut sums: BTreeMap<(TreeId, u8), Sum> = BTreeMap::new();
    let bad = each(image, work, |seen| {
        let sum = sums.entry((seen.entry.tree, seen.entry.height.0)).or_default();
        sum.nodes += 1;
        sum.bytes += seen.bytes;
        sum.room += seen.room;
        sum.pending += seen.pending;
        sum.fill[tenths(seen.bytes, seen.room)] += 1;
        sum.waiting[magnitude(seen.pending)] += 1;
        sum.first = sum.first.or(Some(seen.id));
    })?;
    let row = |((tree, height), sum): (&(TreeId, u8), &Sum)| {
        let name =
            if *height == 0 { format!("{tree} leaves") } else { format!("{tree} h{height}") };
        let cells = vec![
            Cell::from(name),
            Cell::from(words::number(sum.nodes)),
            Cell::from(format!("{} %", sum.bytes * 100 / sum.room.max(1))),
            Cell::from(if *height == 0 { "-".into() } else { words::number(sum.pending) }),
            Cell::from(histogram(&sum.fill)),
            Cell::from(if *height == 0 { "-".into() } else { histogram(&sum.waiting) }),
        ];
        Row::of(cells).to(sum.first.map(Spot::node))
    };
    let rows = sums.iter().rev().map(row).collect();
    let columns = vec![
        column("kind", 15),
        numbers("nodes", 8),
        numbers("full", 6),
        numbers("pending", 9),
        column("how full", 10),
        rest("how much"),
    ];
    let sheet = Sheet::new("nodes", columns, rows).note(
        Role::Dim,
        "how full in tenths, how much is pending: 0, 1, 10, 100 ...; . none, 5 most",
    );
    let sheet = match bad {
        0 => sheet,
        _ => sheet.note(Role::Bad, format!("{bad} nodes do not verify: 8 shows the findings")),
    };
    let ground = image.ground(work)?;
    Ok(ground.damage.iter().take(3).fold(sheet, |sheet, damage| sheet.note(Role::Bad, damage)))
}

/// The fill in tenths, from 0 to 9.
pub(super) fn tenths(part: u64, all: u64) -> usize {
    (part.saturating_mul(10) / all.max(1)).min(9) as usize
}

/// The number of decimal digits, 0 for the number 0 and at most 7.
fn magnitude(number: u64) -> usize {
    number.checked_ilog10().map_or(0, |digits| digits as usize + 1).min(7)
}

/// A histogram with one sign per count, relative to the largest.
fn histogram(counts: &[u64]) -> String {
    const SIGNS: [char; 6] = ['.', '1', '2', '3', '4', '5'];
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let sign = |count: &u64| SIGNS[(count * 5).div_ceil(most) as usize];
    counts.iter().map(sign).collect()
}
