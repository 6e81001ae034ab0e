//! The output of `betr info`, as text and as JSON.

use std::path::Path;

use betr_cli::size::{human, human_limit, limit};
use betr_cli::{Failure, Io, json, show, time};
use betr_core::Place;
use betr_core::format::{HoldsRoot, Identity, Superblock, limits};
use betr_core::ids::BLOCK_SIZE;
use betr_core::log::{End, Survey};
use betr_core::text::{Printable, printable};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{State, Volume};

/// The name of a state in JSON, and its text.
fn names(state: State) -> (&'static str, &'static str) {
    match state {
        State::Clean => ("clean", "clean: the log is empty"),
        State::NeedsReplay => {
            ("needs replay", "needs replay: the log holds what is not in the trees yet")
        }
        State::Damaged => {
            ("damaged", "DAMAGED: the log cannot be replayed as a whole; run betr fsck -fn")
        }
    }
}

/// The text for the error flag.
fn errors(identity: &Identity) -> &'static str {
    match identity.error_met {
        true => "MET while it was used; run betr fsck -fn",
        false => "none met",
    }
}

/// Why the log ends: the name in JSON, and the text.
fn end(survey: &Survey) -> (&'static str, String) {
    let at = Place::Byte(survey.end_byte);
    match &survey.end {
        End::Clean => ("clean", format!("at {at}")),
        End::Torn { .. } => ("torn", format!("torn at {at}: a group was never finished")),
        End::Damaged { .. } => ("damaged", format!("damaged at {at}")),
        End::Unreadable { .. } => ("unreadable", format!("unreadable at {at}")),
        End::Superseded { .. } => ("superseded", format!("of a later epoch at {at}")),
    }
}

/// The number of snapshots, and the space that only they use.
fn snapshots(superblock: &Superblock) -> String {
    let HoldsRoot { held, going, blocks, .. } = superblock.holds;
    let dropped = if going > 0 { format!(", {going} being dropped") } else { String::new() };
    match held + going {
        0 => "none".into(),
        _ => format!(
            "{held}{dropped}; {} that they alone use",
            human(blocks.saturating_mul(BLOCK_SIZE as u64))
        ),
    }
}

/// Prints one line for each property.
pub(super) fn text(path: &Path, volume: &Volume, io: &mut Io) -> Result<(), Failure> {
    let Volume { identity, superblock, log, slots, .. } = volume;
    let block = BLOCK_SIZE as u64;
    let blocks = |count: u64| format!("{count} ({})", human(count.saturating_mul(block)));
    let features = volume.features();
    let invalid = match slots.invalid.is_empty() {
        true => String::new(),
        false => format!(", {} INVALID: {:?}", slots.invalid.len(), slots.invalid),
    };
    let wall = superblock.wall;
    let lines = [
        ("Image", show::path(path)),
        ("Label", Printable(identity.label.as_bytes()).to_string()),
        ("UUID", Uuid::from_bytes(identity.uuid).to_string()),
        ("Volume id", identity.volume.to_string()),
        ("Version", limits::FORMAT_VERSION.to_string()),
        ("Features", if features.is_empty() { "none".to_owned() } else { features.join(", ") }),
        ("State", names(volume.state()).1.to_owned()),
        ("Errors", errors(identity).to_owned()),
        ("Block size", BLOCK_SIZE.to_string()),
        ("Blocks", blocks(superblock.image_blocks)),
        ("Used", blocks(superblock.used_blocks)),
        ("Free", blocks(volume.free_blocks())),
        ("Available", volume.available_blocks.map_or("unknown: a root is damaged".into(), blocks)),
        ("Snapshots", snapshots(superblock)),
        ("Nodes", human(superblock.node_size.into())),
        ("Leaves", human(superblock.leaf_size.into())),
        ("Basements", human(superblock.basement_size.into())),
        ("Fanout", superblock.fanout.to_string()),
        ("Zones C0", human(superblock.zones.min)),
        ("Zones C1", human_limit(superblock.zones.max)),
        ("Epoch", superblock.birth.epoch.0.to_string()),
        ("Checkpoint", time::format_utc(wall.secs, wall.nanos)),
        ("Root hash", superblock.table.page.hash.to_string()),
        (
            "Superblocks",
            format!(
                "slot {} counts; {} valid, {} empty{invalid}",
                superblock.slot, slots.valid, slots.empty
            ),
        ),
        ("Log size", human(volume.log_bytes())),
        (
            "Log holds",
            format!(
                "{} records in {} groups, {}",
                log.records,
                log.groups,
                human(volume.log_waiting())
            ),
        ),
        ("Log end", end(log).1),
    ];
    for (name, value) in lines {
        writeln!(io.out, "{name:>11}: {value}")?;
    }
    Ok(())
}

/// All properties as JSON, with sizes in bytes.
pub(super) fn document(path: &Path, volume: &Volume) -> Value {
    let Volume { identity, superblock, log, slots, .. } = volume;
    let label = identity.label.as_bytes();
    json!({
        "image": show::path(path),
        "label": json::text(label, &printable(label)),
        "uuid": Uuid::from_bytes(identity.uuid).to_string(),
        "volume_id": identity.volume.to_string(),
        "format_version": limits::FORMAT_VERSION,
        "features": volume.features(),
        "state": names(volume.state()).0,
        "error_met": identity.error_met,
        "block_size": BLOCK_SIZE,
        "blocks": superblock.image_blocks,
        "used_blocks": superblock.used_blocks,
        "free_blocks": volume.free_blocks(),
        "available_blocks": volume.available_blocks,
        "snapshots": {
            "held": superblock.holds.held,
            "going": superblock.holds.going,
            "blocks": superblock.holds.blocks,
        },
        "node_size": superblock.node_size,
        "leaf_size": superblock.leaf_size,
        "basement_size": superblock.basement_size,
        "fanout": superblock.fanout,
        "zone_min": superblock.zones.min,
        "zone_max": limit(superblock.zones.max),
        "epoch": superblock.birth.epoch.0,
        "checkpoint_time": time::format_utc(superblock.wall.secs, superblock.wall.nanos),
        "root_hash": superblock.table.page.hash.to_string(),
        "superblocks": {
            "slot": superblock.slot,
            "valid": slots.valid,
            "empty": slots.empty,
            "invalid": slots.invalid,
        },
        "log": {
            "bytes": volume.log_bytes(),
            "waiting_bytes": volume.log_waiting(),
            "groups": log.groups,
            "records": log.records,
            "end": end(log).0,
            "end_byte": log.end_byte,
        },
    })
}
