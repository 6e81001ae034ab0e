//! References to a spot.

use std::sync::Arc;

use betr_core::address::Address;
use betr_core::ids::*;
use betr_core::log::scan;
use betr_core::volume::holds_of;
use betr_offline::anatomy::Purpose;

use super::node::{Head, ancestors, entry_of};
use super::{key_of, text};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Sheet, column, rest};
use crate::spot::Spot;
use crate::work::Work;

/// Everything that refers to a spot: parents, table pages, the log, superblocks.
pub(super) fn refs(image: &Image, spot: &Spot, work: &Arc<Work>) -> Result<Sheet, String> {
    match spot {
        Spot::At(Address::Byte(byte)) => of_byte(image, *byte, work),
        Spot::At(Address::Path(_) | Address::Key(..)) => of_key(image, spot, work),
        Spot::At(Address::Zone(zone)) => of_zone(image, *zone, work),
        Spot::Image => of_node(image, TreeId::Metadata.root(), work),
        _ => match spot.as_node() {
            Some(id) => of_node(image, id, work),
            None => Err(format!("{spot}: r shows who points to a node, a byte, a path or a zone")),
        },
    }
}

fn sheet(title: String, rows: Vec<Row>) -> Sheet {
    Sheet::new(title, vec![column("who", 16), rest("how")], rows)
}

fn row(who: impl ToString, how: impl ToString) -> Row {
    Row::of(vec![Cell::new(Role::Link, who), Cell::from(how.to_string())])
}

fn of_node(image: &Image, id: NodeId, work: &Arc<Work>) -> Result<Sheet, String> {
    let superblock = image.superblock()?;
    let table = image.table(work)?;
    let entry = entry_of(&table, id)?;
    let mut rows = Vec::new();
    if entry.tree.root() == id {
        rows.push(row("superblock", format!("root of the {} index", entry.tree)).to([Spot::Image]));
    }
    let mut way: Vec<String> = ancestors(&image.disk(work), &table, id, &entry)
        .iter()
        .map(|(above, _)| above.to_string())
        .collect();
    way.push(id.to_string());
    rows.push(row("way", way.join(" > ")).to([Spot::node(id)]));
    let found = parents(image, id, work)?;
    for (parent, index, pivot) in &found {
        let how = format!("edge {index}, from {pivot} on");
        rows.push(row(parent, how).to([Spot::node(*parent), Spot::Buffer(*parent, *index, None)]));
    }
    let counted = found.len() as u64 + u64::from(entry.tree.root() == id);
    let role = if counted == u64::from(entry.references) { Role::Good } else { Role::Bad };
    let count = format!("{counted} counted, {} recorded in the table", entry.references);
    rows.push(Row::of(vec![Cell::new(Role::Dim, "references"), Cell::new(role, count)]));
    for (level, index, byte) in pages(image, id, work)? {
        rows.push(
            row(format!("table {level}/{index}"), format!("page at b:{byte:#x}"))
                .to([Spot::byte(byte)]),
        );
    }
    rows.extend(pins(image, entry.extent, work)?);
    let ground = image.ground(work)?;
    let runs = ground.areas.iter().filter_map(|area| match area.purpose {
        Purpose::Run(of, seq) if of == id => Some((seq, area.start)),
        _ => None,
    });
    for (seq, start) in runs {
        let byte = start * BLOCK_SIZE as u64;
        rows.push(
            row(format!("run {seq}"), format!("belongs to it, at b:{byte:#x}"))
                .to([Spot::byte(byte)]),
        );
    }
    let holds = holds_of(&image.disk(work), superblock).map_err(|error| error.to_string())?;
    for hold in holds.iter().filter(|hold| entry.birth <= hold.epoch) {
        let byte = hold.table.page.block.byte();
        let name = betr_core::text::printable(hold.name.as_bytes());
        let how = format!(
            "snapshot '{name}' has it too: it was written before, for epoch {}",
            entry.birth.0
        );
        rows.push(row(format!("epoch {}", hold.epoch.0), how).to([Spot::byte(byte)]));
    }
    Ok(sheet(format!("who points to {id}"), rows))
}

/// The internal nodes that have a node as a child.
fn parents(
    image: &Image,
    id: NodeId,
    work: &Arc<Work>,
) -> Result<Vec<(NodeId, usize, String)>, String> {
    let ground = image.ground(work)?;
    let disk = image.disk(work);
    let mut found = Vec::new();
    for (at, area) in ground.areas.iter().enumerate() {
        let Purpose::Node(of, entry) = area.purpose else { continue };
        work.step(at as u64, ground.areas.len() as u64);
        if entry.height.0 == 0 || !ground.owns_node(of) {
            continue;
        }
        if work.is_cancelled() {
            return Err("given up".into());
        }
        let Ok(Head::Internal(head)) = Head::read(&disk, of, &entry) else { continue };
        for (index, child) in head.children.iter().enumerate().filter(|(_, child)| child.id == id) {
            found.push((of, index, key_of(head.tree, &child.pivot)));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The pages of the table on the path to a node's entry.
fn pages(image: &Image, id: NodeId, work: &Arc<Work>) -> Result<Vec<(u8, u64, u64)>, String> {
    use betr_core::format::{ENTRIES_PER_PAGE, POINTERS_PER_PAGE};
    let superblock = image.superblock()?;
    let mut wanted = vec![id.0 / ENTRIES_PER_PAGE as u64];
    for _ in 1..superblock.table.levels {
        let below = wanted.last().copied().unwrap_or(0);
        wanted.push(below / POINTERS_PER_PAGE as u64);
    }
    let ground = image.ground(work)?;
    let found = ground.areas.iter().filter_map(|area| match area.purpose {
        Purpose::Table(level, index) if wanted.get(usize::from(level)) == Some(&index) => {
            Some((level, index, area.start * BLOCK_SIZE as u64))
        }
        _ => None,
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by(|a, b| b.cmp(a));
    Ok(found)
}

/// The log groups that have bound values in an extent.
fn pins(image: &Image, extent: Extent, work: &Arc<Work>) -> Result<Vec<Row>, String> {
    let survey = scan(&image.disk(work), image.superblock()?).map_err(text)?;
    let of = survey.pins.iter().filter(|(_, pinned)| pinned.start == extent.start);
    Ok(of
        .map(|(group, _)| {
            row(format!("log group {group}"), "has bound values here: its blocks are pinned")
        })
        .collect())
}

fn of_byte(image: &Image, byte: u64, work: &Arc<Work>) -> Result<Sheet, String> {
    let ground = image.ground(work)?;
    let block = byte / BLOCK_SIZE as u64;
    let Some(area) = ground.at(block) else {
        return Err(format!("b:{byte:#x} is behind the volume"));
    };
    let node = match area.purpose {
        Purpose::Node(id, _) | Purpose::Run(id, _) => Some(id),
        _ => None,
    };
    let what = betr_cli::words::use_of(&area.purpose);
    let mut rows = vec![row("its use", what).to(node.map(Spot::node))];
    if let Some(id) = node {
        let mut of_node = of_node(image, id, work)?;
        let all = of_node.len();
        rows.extend((0..all).map(|at| of_node.rows.row(at)));
        of_node.notes.clear();
    }
    Ok(sheet(format!("who points to b:{byte:#x}"), rows))
}

fn of_key(image: &Image, spot: &Spot, work: &Arc<Work>) -> Result<Sheet, String> {
    image.files(work, |fs| {
        let Spot::At(Address::Path(path)) = spot else {
            return Err(
                "a key is pointed to by the names of the files that it is for: = shows its way"
                    .to_owned(),
            );
        };
        let found = super::key::look_up(fs, path).map_err(|error| format!("{spot}: {error}"))?;
        let object = found.object;
        let mut rows = Vec::new();
        let links = object.inode().links;
        let mut up = object.up();
        while let Some((directory, name)) = up {
            let how = format!("names it {}", betr_core::text::printable(&name));
            let place = directory.place();
            let key = Spot::At(Address::Key(TreeId::Metadata, place.encode()));
            rows.push(row(format!("inode {}", directory.ino()), how).to([key]));
            up = directory.up();
        }
        let zone = object.place().zone();
        rows.push(row(zone, "is its zone").to([Spot::At(Address::Zone(zone))]));
        rows.push(Row::of(vec![Cell::new(Role::Dim, "links"), Cell::from(links.to_string())]));
        Ok(sheet(format!("who points to {spot}"), rows))
    })
}

fn of_zone(image: &Image, id: ZoneId, work: &Arc<Work>) -> Result<Sheet, String> {
    image.files(work, |fs| {
        let zones = fs.zones().map_err(text)?;
        let at = zones
            .binary_search_by_key(&id, |zone| zone.id)
            .map_err(|_| format!("there is no zone {id}"))?;
        let zone = &zones[at];
        let mut rows = Vec::new();
        match zone.above {
            Some(above) => {
                let how = format!("refers to it at {}", betr_core::text::printable(&zone.path));
                rows.push(row(above, how).to([Spot::At(Address::Zone(above))]));
            }
            None => rows.push(row("nothing", "it is a root")),
        }
        for below in zones.iter().filter(|below| below.above == Some(id)).take(1000) {
            rows.push(row(below.id, "is pointed to by it").to([Spot::At(Address::Zone(below.id))]));
        }
        Ok(sheet(format!("who points to {id}"), rows))
    })
}
