//! Fixed structures: the slots of the superblock side by side, and a description of their content.

use std::sync::Arc;

use betr_cli::{size, time};
use betr_core::address::Address;
use betr_core::format::{Features, HoldsRoot, PruneRange};
use betr_core::ids::{BLOCK_SIZE, Epoch, TreeId};
use betr_core::space::Layout;
use betr_core::volume::{Ring, SlotState, slots_of};
use betr_offline::anatomy::{Kind, Part, Seals};

use super::{key_of, text};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Sheet, column, fact, rest};
use crate::spot::Spot;
use crate::words;
use crate::work::Work;

/// Fields that differ between the two slots of one epoch by design.
const OWN_FIELDS: [&str; 2] = ["seal, hash", "slot"];

/// The newest superblock in both of its slots, and the previous one, field by field with differences marked.
pub(super) fn superblocks(image: &Image, work: &Arc<Work>) -> Result<Sheet, String> {
    let identity = image
        .identity
        .as_ref()
        .ok_or("the identity block does not verify: where the superblocks are is not known")?;
    let disk = betr_core::disk::Disk::new(image.raw(work));
    let ring = Ring::read(&disk, identity).map_err(text)?;
    let shown = image.origin.as_ref().map_or(Epoch(0), |origin| origin.birth.epoch);
    let [first, second] = slots_of(shown);
    let [before, _] = slots_of(Epoch(shown.0.saturating_sub(1)));
    let columns = [first, second, before].map(|slot| &ring.slots()[slot as usize]);
    let fields = columns.map(|slot| match &slot.state {
        SlotState::Valid(_) => part(slot.byte).fields(&disk).unwrap_or_default(),
        SlotState::Empty | SlotState::Invalid(_) => Vec::new(),
    });
    let mut rows = Vec::new();
    let mut state = vec![Cell::default(), Cell::new(Role::Dim, "state")];
    for slot in columns {
        state.push(match &slot.state {
            SlotState::Empty => Cell::new(Role::Dim, "never written"),
            SlotState::Valid(found) => {
                Cell::new(Role::Good, format!("epoch {} verifies", found.birth.epoch.0))
            }
            SlotState::Invalid(fault) => Cell::new(Role::Bad, format!("INVALID: {fault}")),
        });
    }
    rows.push(Row::of(state).to(columns.map(|slot| Spot::byte(slot.byte))));
    let longest =
        fields.iter().max_by_key(|fields| fields.len()).map_or(&[][..], |fields| &fields[..]);
    for field in longest {
        let value = |at: usize| fields[at].iter().find(|other| other.name == field.name);
        let values = [0, 1, 2].map(|at| value(at).map(|field| field.value.as_str()));
        let copies = values[0].zip(values[1]);
        let differs =
            copies.is_some_and(|(a, b)| a != b) && !OWN_FIELDS.contains(&field.name.as_str());
        let changed = values[0].zip(values[2]).is_some_and(|(a, b)| a != b);
        let mark = match (differs, changed) {
            (true, _) => Cell::new(Role::Bad, "!"),
            (_, true) => Cell::new(Role::Dim, "*"),
            _ => Cell::default(),
        };
        let mut cells = vec![mark, Cell::new(Role::Dim, &field.name)];
        cells.extend(values.map(|value| Cell::from(short(value.unwrap_or("-")))));
        let at = |slot: usize| Spot::byte(columns[slot].byte + field.bytes.start as u64);
        rows.push(Row::of(cells).to([at(0)]));
    }
    let names = ["newest", "its copy", "the epoch before"];
    let [a, b, c] = names;
    let columns = vec![column("", 1), column("field", 20), column(a, 24), column(b, 24), rest(c)];
    let sheet = Sheet::new(format!("superblocks of epoch {}", shown.0), columns, rows);
    Ok(sheet.note(Role::Dim, "! copies differ   * changed since the epoch before"))
}

/// 16 digits of a hash suffice for a comparison.
fn short(value: &str) -> String {
    let is_hash = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { format!("{}...", &value[..16]) } else { value.to_owned() }
}

/// A superblock slot as a structure.
fn part(byte: u64) -> Part {
    Part {
        name: "super".into(),
        kind: Kind::Superblock,
        copies: vec![vec![(byte, BLOCK_SIZE)]],
        seals: Seals::Own,
        above: Vec::new(),
        key: None,
    }
}

/// Describes geometry, roots, log and features.
pub(super) fn facts(image: &Image) -> Result<Sheet, String> {
    image.superblock()?;
    let superblock = image.origin.as_ref().ok_or("no superblock leads into this image")?;
    let human = |bytes: u64| size::human(bytes);
    let mut rows = Vec::new();
    if let Some(identity) = &image.identity {
        let label = betr_cli::show::bytes(identity.label.as_bytes());
        rows.push(fact("uuid", uuid(&identity.uuid)));
        rows.push(fact("label", if label.is_empty() { "none".into() } else { label }));
    }
    let wall = time::format_utc(superblock.wall.secs, superblock.wall.nanos);
    rows.push(fact("checkpoint", format!("epoch {}, {wall}", superblock.birth.epoch.0)));
    let root = superblock.table.page;
    rows.push(
        fact("root hash", Cell::from(root.hash.to_string())).to([Spot::byte(root.block.byte())]),
    );
    let levels = superblock.table.levels;
    let table = format!("b:{:#x}, {levels} levels", root.block.byte());
    rows.push(fact("table", Cell::new(Role::Link, table)).to([Spot::byte(root.block.byte())]));
    for tree in [TreeId::Metadata, TreeId::Data] {
        let (name, id) = (format!("{tree} root"), tree.root());
        rows.push(fact(&name, Cell::new(Role::Link, id)).to([Spot::node(id)]));
    }
    let (used, all) = (superblock.used_blocks, superblock.image_blocks);
    let bar = words::bar(used, all);
    rows.push(fact("in use", format!("{bar}  {} of {}", words::blocks(used), words::blocks(all))));
    rows.push(fact("node", human(superblock.node_size.into())));
    rows.push(fact("leaf", human(superblock.leaf_size.into())));
    rows.push(fact("basement", human(superblock.basement_size.into())));
    rows.push(fact("fanout", superblock.fanout.to_string()));
    let zones = superblock.zones;
    rows.push(fact("zones", format!("{} to {}", human(zones.min), size::human_limit(zones.max))));
    let log = superblock.log_start.byte();
    let state = if image.is_dirty {
        Cell::new(Role::Warn, "holds records")
    } else {
        Cell::new(Role::Good, "empty")
    };
    rows.push(fact("log", state).to([Spot::byte(log)]));
    let head = log + superblock.log_head * BLOCK_SIZE as u64;
    let at = format!("b:{head:#x} of b:{log:#x}+{}", words::blocks(superblock.log_units));
    rows.push(fact("log head", Cell::new(Role::Link, at)).to([Spot::byte(head)]));
    rows.push(fact("next message", superblock.next_msn.0.to_string()));
    rows.push(fact("next node", superblock.next_node.0.to_string()));
    rows.push(fact("next zone", superblock.next.zone.0.to_string()));
    rows.push(fact("next inode", superblock.next.ino.0.to_string()));
    rows.push(fact("next tag", superblock.next.tag.0.to_string()));
    rows.extend(features(superblock.features));
    rows.extend(regions(image));
    rows.extend(snapshots(&superblock.holds));
    rows.extend(superblock.prunes.iter().map(prune_row));
    let mut sheet = Sheet::facts("geometry", rows);
    for damage in &image.damage {
        sheet = sheet.note(Role::Bad, damage);
    }
    for note in &image.notes {
        sheet = sheet.note(Role::Warn, note);
    }
    Ok(sheet)
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex = betr_cli::json::hex(bytes);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

fn features(features: Features) -> Vec<Row> {
    let classes = [
        ("compatible", features.compatible, "may be ignored"),
        ("read-only comp.", features.read_only, "may be ignored by who only reads"),
        ("incompatible", features.incompatible, "may not be ignored"),
    ];
    let row = |(name, bits, meaning): (&str, u64, &str)| {
        let keys = if name == "incompatible" && bits & Features::KEYS != 0 {
            ": keys of a program, no files"
        } else {
            ""
        };
        fact(name, format!("{bits:#x}{keys} ({meaning})"))
    };
    classes.into_iter().map(row).collect()
}

/// The fixed regions, drawn to scale.
fn regions(image: &Image) -> Vec<Row> {
    let Some(superblock) = &image.superblock else { return Vec::new() };
    let block = BLOCK_SIZE as u64;
    let Ok(layout) = Layout::of(superblock) else { return Vec::new() };
    let [front, back] = layout.ring;
    let half = layout.image_blocks - back.0;
    let nodes = layout.nodes();
    let mut all =
        vec![("ring, first", front.0, half), ("log", layout.log_start.0, layout.log_units)];
    all.extend(layout.map.iter().map(|part| ("space map", part.start.0, part.blocks())));
    all.push(("nodes", nodes.start, nodes.end - nodes.start));
    all.push(("ring, second", back.0, half));
    let row = |(name, start, blocks): (&str, u64, u64)| {
        let text = format!("b:{:#x}, {}", start * block, words::blocks(blocks));
        fact(name, Cell::new(Role::Link, text)).to([Spot::byte(start * block)])
    };
    all.into_iter().map(row).collect()
}

fn prune_row(PruneRange { tree, lo, hi }: &PruneRange) -> Row {
    let text = format!("{tree} tree, {} to {}", key_of(*tree, lo), key_of(*tree, hi));
    let from = Spot::At(Address::Key(*tree, lo.clone()));
    fact("to prune", Cell::new(Role::Link, text)).to([from])
}

/// The number of snapshots, the space that only they use, and the places of their pages and of the newest dead list.
fn snapshots(holds: &HoldsRoot) -> Vec<Row> {
    let HoldsRoot { held, going, blocks, .. } = holds;
    let dropped = if *going > 0 { format!(", {going} being dropped") } else { String::new() };
    let text = format!("{held}{dropped}; they alone use {}", words::blocks(*blocks));
    let mut rows = vec![fact("snapshots", text)];
    for page in holds.pages.iter().flatten() {
        let at = page.block.byte();
        rows.push(
            fact("", Cell::new(Role::Link, format!("page at b:{at:#x}"))).to([Spot::byte(at)]),
        );
    }
    if let Some(page) = holds.dead.newest {
        let at = page.block.byte();
        let text = format!("dead list at b:{at:#x}, {} records", holds.dead.records);
        rows.push(fact("", Cell::new(Role::Link, text)).to([Spot::byte(at)]));
    }
    rows
}
