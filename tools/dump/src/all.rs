//! Every byte of an image: all structures, and the bytes between them.

use std::collections::HashSet;
use std::sync::Arc;

use betr_cli::{Failure, Io, json, words};
use betr_core::device::Device;
use betr_core::format::{
    Birth, DeadPage, HoldsPage, IDENTITY_AT, Identity, Magic, MapPage, ScatterMap, Superblock,
    TablePage,
};
use betr_core::ids::{BLOCK_SIZE, is_zero};
use betr_offline::anatomy::{Ground, Purpose};
use serde_json::json;

use crate::structure::Output;
use crate::{Image, log, node, space};

/// Unused areas are read in pieces of 1 MiB.
const STEP: usize = 1 << 20;

/// Shows every structure reachable from the superblock in the order of the image, then the bytes in between.
pub(crate) fn show(image: &Image, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let ground = space::ground(image, output, io)?;
    if let Err(error) = log::groups(&image.source, output, io)? {
        output.damage(io, "log", error)?;
    }
    let mut told = HashSet::new();
    for area in &ground.areas {
        let (first, blocks) = (area.start * BLOCK_SIZE as u64, area.blocks);
        for at in (first..).step_by(BLOCK_SIZE).take(blocks as usize) {
            match area.purpose {
                Purpose::Identity if at == IDENTITY_AT => {
                    one(image, at, "identity block", output, io)?
                }
                Purpose::Ring => one(image, at, "superblock slot", output, io)?,
                Purpose::Map => one(image, at, "page of the space map", output, io)?,
                Purpose::Table(level, index) => {
                    one(image, at, &format!("table page {level}/{index}"), output, io)?;
                }
                Purpose::Holds(level, index) => {
                    one(image, at, &format!("page {level}/{index} of snapshots"), output, io)?;
                }
                Purpose::DeadList => one(image, at, "page of a dead list", output, io)?,
                Purpose::ScatterMap => one(image, at, "scatter map", output, io)?,
                _ => {}
            }
        }
        // Blocks that another structure also claims are shown with the bytes in between.
        if let Purpose::Node(id, entry) = area.purpose
            && ground.owns_node(id)
            && told.insert(id)
        {
            node::at(image, id, &entry, node::All, output, io)?;
            // A scattered node was shown by addresses within the node; its blocks are marked as shown here.
            if let (Some(_), Ok(rows)) =
                (entry.extent.start.map(), image.disk.blocks_of(entry.extent))
            {
                rows.iter().for_each(|row| output.has_shown(row.start.byte(), row.bytes()));
            }
        }
    }
    rest(image, &ground, output, io)
}

/// Shows all bytes of a device that has no usable superblock.
pub(crate) fn raw(
    device: &Arc<dyn Device>,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let mut at = 0;
    let block = BLOCK_SIZE as u64;
    while at < device.len() {
        let mut bytes = vec![0; block.min(device.len() - at) as usize];
        let title = format!("b:{at:#x}+{}", bytes.len());
        match device.read_at(at, &mut bytes) {
            Err(error) => output.damage(io, &title, error)?,
            Ok(()) => {
                let name = Magic::of(&bytes).map(magic_name);
                let text = match is_zero(&bytes) {
                    true => "zeros".to_owned(),
                    false => format!("{} {}", name.unwrap_or("bytes"), json::hex(&bytes)),
                };
                output.line(io, format!("{title}  {text}"), || {
                    json!({ "structure": "gap", "byte": at, "bytes": bytes.len(), "verdict": text })
                })?;
            }
        }
        at += bytes.len() as u64;
    }
    Ok(())
}

/// Shows a block that is a structure of its own, if it verifies.
fn one(
    image: &Image,
    at: u64,
    title: &str,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let block = match image.disk.read(at, BLOCK_SIZE) {
        Ok(block) => block,
        Err(error) => return output.damage(io, title, error),
    };
    if is_zero(&block) {
        return Ok(());
    }
    match Magic::of(&block) {
        Some(Magic::Identity) => output
            .structure(io, title, at, &block, |trace| Identity::decode(&block, trace))
            .map(drop),
        Some(Magic::Superblock) => output
            .structure(io, title, at, &block, |trace| Superblock::decode(&block, trace))
            .map(drop),
        Some(Magic::SpaceMap) => output
            .structure(io, title, at, &block, |trace| MapPage::decode(&block, trace))
            .map(drop),
        Some(Magic::ScatterMap) => output
            .structure(io, title, at, &block, |trace| ScatterMap::decode(&block, trace))
            .map(drop),
        Some(Magic::TablePage) => output
            .structure(io, title, at, &block, |trace| TablePage::decode(&block, trace))
            .map(drop),
        Some(Magic::HoldsPage) => output
            .structure(io, title, at, &block, |trace| HoldsPage::decode(&block, trace))
            .map(drop),
        Some(Magic::DeadPage) => output
            .structure(io, title, at, &block, |trace| DeadPage::decode(&block, trace))
            .map(drop),
        // The block is shown with the bytes in between.
        _ => Ok(()),
    }
}

/// Shows the bytes that no structure covers, with a verdict, up to the end of the device.
fn rest(image: &Image, ground: &Ground, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let mut seen = std::mem::take(&mut output.seen);
    seen.sort_unstable();
    let end = image.device.len();
    let mut at = 0;
    for (from, to) in seen.into_iter().chain([(end, end)]) {
        if from > at && at < end {
            between(image, ground, at, from.min(end), output, io)?;
        }
        at = at.max(to);
    }
    Ok(())
}

/// Shows a range that no structure covers: one line per verdict.
fn between(
    image: &Image,
    ground: &Ground,
    from: u64,
    to: u64,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let mut row: Option<(u64, u64, String, bool)> = None;
    let mut at = from;
    while at < to {
        // Up to the end of the step or of the range.
        let step = (STEP as u64).min(to - at);
        let bytes = match image.disk.read(at, step as usize) {
            Ok(bytes) => bytes,
            Err(error) => {
                output.damage(io, &format!("b:{at:#x}+{step}"), error)?;
                at += step;
                continue;
            }
        };
        let mut done = 0;
        while done < bytes.len() {
            let here = at + done as u64;
            let left = BLOCK_SIZE - (here % BLOCK_SIZE as u64) as usize;
            let piece = &bytes[done..bytes.len().min(done + left)];
            let (verdict, whole) = verdict(image, ground, here, piece);
            match &mut row {
                Some((_, end, known, true)) if *end == here && *known == verdict && whole => {
                    *end += piece.len() as u64;
                }
                _ => {
                    let next = (here, here + piece.len() as u64, verdict, whole);
                    if let Some(row) = row.replace(next) {
                        gap(&row, output, io)?;
                    }
                }
            }
            done += piece.len();
        }
        at += step;
    }
    row.map_or(Ok(()), |row| gap(&row, output, io))
}

/// Classifies bytes that no structure covers. The flag tells whether the following bytes may be merged with them.
fn verdict(image: &Image, ground: &Ground, at: u64, bytes: &[u8]) -> (String, bool) {
    let block = at / BLOCK_SIZE as u64;
    let purpose =
        ground.at(block).map_or("behind the volume".into(), |area| words::use_of(&area.purpose));
    if bytes.iter().all(|byte| *byte == 0) {
        return (format!("{purpose}, zeros"), true);
    }
    let is_kept = ground.at(block).is_some_and(|area| matches!(area.purpose, Purpose::Kept(_)));
    match Magic::of(bytes).filter(|_| at.is_multiple_of(BLOCK_SIZE as u64)) {
        _ if is_kept => (format!("{purpose}: {}", json::hex(bytes)), false),
        Some(magic) => (format!("{purpose}, {}", stale(image, magic, bytes)), false),
        None => (format!("{purpose}, bytes that nothing leads to: {}", json::hex(bytes)), false),
    }
}

/// Describes an abandoned structure.
fn stale(image: &Image, magic: Magic, bytes: &[u8]) -> String {
    let (name, birth) = (magic_name(magic), betr_core::format::Seal::birth_of(bytes));
    match birth {
        Some(Birth { volume, epoch, .. }) if volume == image.superblock.birth.volume => {
            format!("a stale {name} of epoch {}: {}", epoch.0, json::hex(bytes))
        }
        _ => format!("a {name} of another volume: {}", json::hex(bytes)),
    }
}

pub(crate) fn magic_name(magic: Magic) -> &'static str {
    match magic {
        Magic::Identity => "identity block",
        Magic::Superblock => "superblock",
        Magic::TablePage => "table page",
        Magic::SpaceMap => "page of the space map",
        Magic::Leaf => "leaf",
        Magic::Internal => "internal node",
        Magic::Run => "run of messages",
        Magic::LogGroup => "log group",
        Magic::ScatterMap => "scatter map",
        Magic::HoldsPage => "page of snapshots",
        Magic::DeadPage => "page of a dead list",
        Magic::Plan => "plan",
    }
}

fn gap(
    (from, to, verdict, _): &(u64, u64, String, bool),
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let bytes = to - from;
    output.has_shown(*from, bytes);
    output.line(
        io,
        format!("b:{from:#x}+{bytes}  {verdict}"),
        || json!({ "structure": "gap", "byte": from, "bytes": bytes, "verdict": verdict }),
    )
}
