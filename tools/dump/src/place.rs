//! Explains what a byte belongs to, and where a key is stored.

use std::ops::ControlFlow;
use std::sync::Arc;

use betr_cli::volume::failure;
use betr_cli::{Failure, Io, json, show, words};
use betr_core::address::Address;
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::format::{Birth, Entry, Key, Magic, MetaKey, Seal, Superblock, parse_data_key};
use betr_core::fs::Fs;
use betr_core::ids::{BLOCK_SIZE, Extent, NodeId, TreeId, is_zero};
use betr_core::node::Deed;
use betr_core::store::CacheBudget;
use betr_core::text::{Printable, printable};
use betr_core::tree::explain;
use betr_core::volume::{Mode, OpenOptions, Volume};
use betr_offline::anatomy::{Anatomy, Part, Purpose};
use betr_offline::history::{BoundPart, Names, tell};
use serde_json::json;

use crate::all::magic_name;
use crate::structure::Output;
use crate::{Image, Source, space, tree};

/// The start of a stale structure is searched at most 4096 blocks back.
const BACK: u64 = 4096;
/// At most 100 records are shown that bind values in one place.
const RECORDS_MAX: usize = 100;
/// The cache of one lookup, in bytes (12 MiB).
const CACHE: usize = 12 << 20;

/// Shows what a byte belongs to: the structures that contain it, the innermost last, and their owner.
pub(crate) fn block(
    image: &Image,
    address: &Address,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let Address::Byte(byte) = *address else {
        return Err(Failure::usage(format!("{address}: expected a byte, as b:0x1000")));
    };
    if byte >= image.device.len() {
        let (name, len) = (show::path(&image.path), image.device.len());
        return Err(Failure::failed(format!("{name}: it has {len} bytes, and no b:{byte:#x}")));
    }
    let area = space::area(image, byte / BLOCK_SIZE as u64, output, io)?;
    let area = area.as_ref();
    let purpose = area.map_or("behind the volume".into(), |area| words::use_of(&area.purpose));
    let (start, blocks) = area.map_or((0, 0), |area| (area.start, area.blocks));
    let text = format!("b:{byte:#x} is in block {}: {purpose}", byte / BLOCK_SIZE as u64);
    output.line(io, text, || {
        json!({ "byte": byte, "block": byte / BLOCK_SIZE as u64, "use": purpose,
            "area_block": start, "area_blocks": blocks })
    })?;
    match area.map(|area| &area.purpose) {
        Some(Purpose::Node(id, entry)) => inside(image, *id, entry, byte, output, io),
        Some(Purpose::Run(id, _)) => match tree::table(image).get(*id) {
            Ok(Some(entry)) => inside(image, *id, &entry, byte, output, io),
            Ok(None) => Ok(()),
            Err(error) => output.damage(io, &id.to_string(), error),
        },
        Some(Purpose::Log) => in_log(image, byte, output, io),
        Some(Purpose::Bound(_)) => {
            bound(image, byte, output, io)?;
            stale(image, start, byte, output, io)
        }
        Some(Purpose::Free | Purpose::Unknown | Purpose::Kept(_)) => {
            stale(image, start, byte, output, io)
        }
        _ => in_block(image, byte, output, io),
    }
}

/// The structures of a node that contain a byte.
fn inside(
    image: &Image,
    id: NodeId,
    entry: &Entry,
    byte: u64,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let parts = match Anatomy::of_node(&image.disk, id, entry) {
        Ok(parts) => parts,
        Err(error) => return output.damage(io, &id.to_string(), error),
    };
    let mut known = false;
    for part in parts.iter().filter(|part| part.contains(byte)) {
        known = true;
        show_part(image, part, byte, output, io)?;
    }
    if !known {
        let text = "messages that have been flushed, or padding";
        output.line(io, text, || json!({ "structure": text }))?;
    }
    Ok(())
}

fn show_part(
    image: &Image,
    part: &Part,
    byte: u64,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let offset = byte - part.byte();
    let field = part.fields(&image.disk).ok().and_then(|fields| {
        fields.into_iter().find(|field| field.bytes.contains(&(offset as usize)))
    });
    let of_field = field.as_ref().map_or(String::new(), |field| {
        let first = part.byte() + field.bytes.start as u64;
        format!("; {} (b:{first:#x}+{}) {}", field.name, field.bytes.len(), clipped(&field.value))
    });
    let text = format!(
        "  {}, {}, b:{:#x}+{}{of_field}",
        part.name,
        part.kind.name(),
        part.byte(),
        part.len()
    );
    output.line(io, text, || {
        json!({
            "structure": part.name, "kind": part.kind.name(), "byte": part.byte(), "bytes": part.len(),
            "field": field.as_ref().map(|field| &field.name),
            "value": field.as_ref().map(|field| &field.value),
        })
    })?;
    match &part.key {
        Some((tree, key)) => whose(image, *tree, key, output, io),
        None => Ok(()),
    }
}

fn clipped(value: &str) -> String {
    match value.char_indices().nth(80) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}…", &value[..end]),
    }
}

/// Shows the key that a structure is for, and the path to which the key belongs.
fn whose(
    image: &Image,
    tree: TreeId,
    key: &Key,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let place = match tree {
        TreeId::Metadata => MetaKey::decode(key),
        TreeId::Data => parse_data_key(key).and_then(|(prefix, _)| MetaKey::decode(prefix)),
    };
    let names = checkpoint(&image.device, &image.superblock)
        .map(|volume| Names::when_needed(Fs::open(volume, Box::new(betr_cli::volume::clock_now))));
    let path = place.zip(names.ok()).map(|(place, names)| names.path(&place));
    let shown = path.as_ref().map_or("unknown".into(), |path| Printable(path).to_string());
    let text = format!("  of {}, path {shown}", show::key(tree, key));
    output.line(io, text, || {
        json!({
            "tree": tree.code(), "key": json::hex(key),
            "path": path.as_ref().map(|path| json::text(path, &printable(path))),
        })
    })
}

fn checkpoint(device: &Arc<dyn Device>, superblock: &Superblock) -> betr_core::Result<Volume> {
    let options = OpenOptions {
        content: None,
        slot: Some(superblock.slot),
        cache: CacheBudget::of(CACHE),
        ..OpenOptions::new(Mode::Checkpoint, Box::new(|| 0))
    };
    Ok(Volume::open(device.clone(), options)?.0)
}

/// Shows the record that contains a byte of the log, or what else is there.
fn in_log(image: &Image, byte: u64, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let mut found = None;
    let Source { device, superblock, .. } = &image.source;
    let told = tell(device, superblock, &mut |event| {
        if !image.source.includes(event.record) {
            return ControlFlow::Break(());
        }
        let bytes = event.bytes();
        if bytes.contains(&byte) {
            let group = event.group.number;
            found = Some((group, event.record.lsn, event.record.op.name(), bytes));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = told {
        output.damage(io, "log", error)?;
    }
    match found {
        Some((group, lsn, op, bytes)) => {
            let (start, len) = (bytes.start, bytes.end - bytes.start);
            let text = format!("  record {lsn}, {op}, b:{start:#x}+{len}, in log group {group}");
            output.line(io, text, || {
                json!({ "structure": lsn.to_string(), "operation": op, "byte": start, "bytes": len, "group": group })
            })
        }
        None => in_block(image, byte, output, io),
    }
}

/// Shows the records whose late-bound values are in the extent that contains a byte.
fn bound(image: &Image, byte: u64, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let block = byte / BLOCK_SIZE as u64;
    let mut lines = Vec::new();
    let told = tell(&image.device, &image.superblock, &mut |event| {
        let holds = |part: &&BoundPart<'_>| {
            let rows = part.to.extent().and_then(|extent| image.disk.blocks_of(extent).ok());
            let inside =
                |row: &Extent| (row.start.0..row.start.0 + u64::from(row.blocks)).contains(&block);
            rows.is_some_and(|rows| rows.iter().any(inside))
        };
        let values: u64 =
            event.bound.iter().filter(holds).map(|part| u64::from(part.values.count)).sum();
        if values > 0 && lines.len() < RECORDS_MAX {
            let (lsn, op) = (event.record.lsn, event.record.op.name());
            let paths: Vec<String> = event.paths().iter().map(|path| printable(path)).collect();
            lines.push((lsn, op, values, paths.join("  ")));
        }
        ControlFlow::Continue(())
    });
    for (lsn, op, values, paths) in lines {
        let text = format!("  {values} late-bound values of {lsn}, {op}, {paths}");
        output.line(
            io,
            text,
            || json!({ "record": lsn.0, "operation": op, "values": values, "paths": paths }),
        )?;
    }
    told.map_or_else(|error| output.damage(io, "log", error), |_| Ok(()))
}

/// Shows the structure that begins at the block of a byte.
fn in_block(image: &Image, byte: u64, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let start = byte - byte % BLOCK_SIZE as u64;
    let block = match image.disk.read(start, BLOCK_SIZE) {
        Ok(block) => block,
        Err(error) => return output.damage(io, &format!("b:{start:#x}"), error),
    };
    let text = what_was(image, start, &block);
    output.line(io, format!("  {text}"), || json!({ "structure": text, "byte": start }))
}

/// Shows the content of a block that nothing refers to: the structure that begins there, or before it in the same area.
fn stale(
    image: &Image,
    area: u64,
    byte: u64,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let block = byte / BLOCK_SIZE as u64;
    let first = area.max(block.saturating_sub(BACK));
    for start in (first..=block).rev().map(|block| block * BLOCK_SIZE as u64) {
        let Ok(bytes) = image.disk.read(start, BLOCK_SIZE) else { break };
        if Magic::of(&bytes).is_some() {
            let text = match start == block * BLOCK_SIZE as u64 {
                true => what_was(image, start, &bytes),
                false => format!("behind {}", what_was(image, start, &bytes)),
            };
            return output.line(
                io,
                format!("  {text}"),
                || json!({ "structure": text, "byte": start }),
            );
        }
    }
    in_block(image, byte, output, io)
}

/// Describes a block by its own magic and birth.
fn what_was(image: &Image, at: u64, block: &[u8]) -> String {
    if is_zero(block) {
        return "zeros".into();
    }
    let Some(magic) = Magic::of(block) else { return "bytes without a magic number".into() };
    let name = magic_name(magic);
    match Seal::birth_of(block) {
        Some(Birth { volume, epoch, .. }) if volume == image.superblock.birth.volume => {
            format!("a {name} of epoch {}, at b:{at:#x}", epoch.0)
        }
        Some(_) => format!("a {name} of another volume, at b:{at:#x}"),
        None => format!("a {name}, at b:{at:#x}"),
    }
}

/// Where a value is stored.
pub(crate) enum Place {
    /// At this byte, in a leaf.
    Byte(u64),
    /// In no single place: pending messages contribute to it.
    Pending,
    /// Not in the checkpoint: records of the log produce it.
    Log,
}

/// Finds where the value of a key of the metadata index is stored on the device.
pub(crate) fn of_value(source: &Source, key: &Key, value: &[u8]) -> betr_core::Result<Place> {
    let volume = checkpoint(&source.device, &source.superblock)?;
    let explained = explain(volume.store(), TreeId::Metadata, key)?;
    if explained.value.is_none_or(|stands| stands != value) {
        return Ok(Place::Log);
    }
    let stop = explained.way.last().filter(|_| explained.stored.is_some_and(|at| at == value));
    let Some((stop, entry)) = stop.and_then(|stop| Some((stop, stop.entry?))) else {
        return Ok(Place::Pending);
    };
    let parts = Anatomy::of_node(&Disk::new(source.device.clone()), stop.node, &entry)?;
    let holds = |part: &&Part| part.key.as_ref().is_some_and(|(_, of)| of == key);
    Ok(parts.iter().find(holds).map_or(Place::Pending, |part| Place::Byte(part.byte())))
}

/// Shows a key: the path to its leaf with the messages for it, and the entry in the leaf.
pub(crate) fn key(
    image: &Image,
    address: &Address,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let Address::Key(tree, key) = address else {
        return Err(Failure::usage(format!("{address}: expected a key, as k#1:HEX")));
    };
    let at_image = |error| failure(&image.path, Some(&image.device), &error);
    let volume = checkpoint(&image.device, &image.superblock).map_err(at_image)?;
    let explained = explain(volume.store(), *tree, key).map_err(at_image)?;
    whose(image, *tree, key, output, io)?;
    for stop in &explained.way {
        let text = format!("{} height {}", stop.node, stop.height);
        output.line(io, text, || json!({ "node": stop.node.0, "height": stop.height.0 }))?;
        for (pending, _) in &stop.messages {
            let what = match &pending.deed {
                Deed::Point(action) => {
                    format!("{:?}, {} bytes", action.kind(), action.value().len())
                }
                Deed::RangeDelete(_, hi) => format!("range delete up to {}", show::key(*tree, hi)),
            };
            let byte = pending.byte.map_or("in memory".into(), |byte| format!("b:{byte:#x}"));
            output.line(
                io,
                format!("  message {} {byte}  {what}", pending.msn),
                || json!({ "msn": pending.msn.0, "byte": pending.byte, "deed": what }),
            )?;
        }
    }
    let Some((stop, entry)) = explained.way.last().and_then(|stop| Some((stop, stop.entry?)))
    else {
        return Ok(());
    };
    let parts = Anatomy::of_node(&Disk::new(image.device.clone()), stop.node, &entry);
    let parts = parts.map_err(at_image)?;
    let holds = |part: &&Part| part.key.as_ref().is_some_and(|(_, of)| of == key);
    match (parts.iter().find(holds), &explained.stored) {
        (Some(part), Some(stored)) => {
            let value = words::value(*tree, key, stored);
            let text = format!("  {}, b:{:#x}+{}  {value}", part.name, part.byte(), part.len());
            output.line(io, text, || {
                json!({
                    "structure": part.name, "byte": part.byte(), "bytes": part.len(),
                    "value": json::hex(stored),
                })
            })
        }
        (_, Some(stored)) => {
            let value = words::value(*tree, key, stored);
            output.line(io, format!("  {value}"), || json!({ "value": json::hex(stored) }))
        }
        (_, None) => output.line(io, "  the leaf does not hold it", || json!({ "value": null })),
    }
}
