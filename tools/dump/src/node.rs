//! A node: its head and all of its parts, up to the last byte of its extents.

use betr_cli::volume::failure;
use betr_cli::{Failure, Io, json, show};
use betr_core::format::*;
use betr_core::ids::*;
use bytes::Bytes;
use serde_json::json;

use crate::structure::Output;
use crate::{Image, tree};

/// The most bytes of a value of the data index that are shown in text.
const SHOWN: usize = 32;

/// The part of a node to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    Basement(usize),
}
pub(crate) use Part::{All, Basement};

/// Shows node `id`.
pub(crate) fn show(
    image: &Image,
    id: NodeId,
    part: Part,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let at_image = |error: &betr_core::Error| failure(&image.path, Some(&image.device), error);
    let entry = tree::table(image).get(id).map_err(|error| at_image(&error))?;
    let Some(entry) = entry else {
        let name = betr_cli::show::path(&image.path);
        return Err(Failure::failed(format!(
            "{name}: there is no node {id}: see 'betr dump {name} tree'"
        )));
    };
    at(image, id, &entry, part, output, io)
}

/// Shows a node at the place that a table entry names.
pub(crate) fn at(
    image: &Image,
    id: NodeId,
    entry: &Entry,
    part: Part,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let start = entry.extent.start.byte();
    let bytes = match image.disk.read(start, entry.extent.bytes() as usize) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) => return output.damage(io, &id.to_string(), error),
    };
    let head = bytes.slice(..entry.head_bytes as usize);
    let shown = if entry.height.0 == 0 {
        let title = format!("leaf {id}");
        let head =
            output.structure(io, &title, start, &head, |trace| LeafHead::decode(&head, trace))?;
        head.map(|(seal, head)| (seal, leaf(start, &head, &bytes, part, output, io)))
    } else {
        let title = format!("internal node {id}");
        let found = output
            .structure(io, &title, start, &head, |trace| InternalHead::decode(&head, trace))?;
        let rest =
            padding("end of the extent", start, &bytes, entry.head_bytes as usize, output, io);
        found.map(|(seal, head)| (seal, rest.and_then(|()| runs(image, &head, output, io))))
    };
    let Some((seal, result)) = shown else { return Ok(()) };
    result?;
    if seal.hash != entry.hash {
        output.damage(io, &id.to_string(), "is not the node that the table means")?;
    }
    Ok(())
}

/// Shows padding, which must be zero, if there is any.
fn padding(
    title: &str,
    start: u64,
    bytes: &[u8],
    from: usize,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let rest = bytes.get(from..).unwrap_or_default();
    if rest.is_empty() {
        return Ok(());
    }
    let decode = |trace: Option<&mut dyn Trace>| Fields::traced(rest, trace).zeros_to_end();
    output.structure(io, title, start + from as u64, rest, decode)?;
    Ok(())
}

fn leaf(
    start: u64,
    head: &LeafHead,
    bytes: &Bytes,
    part: Part,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    if let Basement(wanted) = part
        && wanted >= head.basements.len()
    {
        let (id, count) = (head.id, head.basements.len());
        return Err(Failure::failed(format!(
            "{id} has {count} basements, from 0 on, and no {wanted}"
        )));
    }
    let mut ends = vec![head.basements.last().map_or(0, |b| b.chunks().end)];
    for (index, basement) in head.basements.iter().enumerate() {
        if part != All && part != Basement(index) {
            continue;
        }
        let at = start + u64::from(basement.offset);
        let range = basement.offset as usize..basement.keys().end as usize;
        let Some(section) = bytes.get(range) else {
            output.damage(io, &format!("basement {index}"), "reaches past the leaf's extent")?;
            continue;
        };
        let title = format!("basement {index}");
        let decode = |trace: Option<&mut dyn Trace>| {
            check_hash(section, &basement.hash)?;
            KeySection::decode(section, head.tree, trace)
        };
        let Some(keys) = output.structure(io, &title, at, section, decode)? else { continue };
        for (number, chunk) in keys.chunks.iter().enumerate() {
            let place = basement.chunk(head.tree, chunk);
            ends.push(place.end);
            let title = format!("chunk {index}/{number}");
            let Some(values) = bytes.get(place.start as usize..place.end as usize) else {
                output.damage(io, &title, "reaches past the leaf's extent")?;
                continue;
            };
            let at = start + u64::from(place.start);
            if check_hash(values, &chunk.hash).is_err() {
                // A chunk that does not verify is shown as raw bytes.
                output.structure(io, &title, at, values, |_| check_hash(values, &chunk.hash))?;
                continue;
            }
            for entry in keys.entries().filter(|entry| usize::from(entry.chunk) == number) {
                let from = usize::from(entry.offset);
                let value = &values[from..from + entry.bytes as usize];
                show_value(head.tree, entry.key, at + from as u64, value, output, io)?;
            }
        }
    }
    if part != All {
        return Ok(());
    }
    // Small chunks end where the blocks of files begin, or at the end of the leaf.
    let small = gap_before_blocks(head.tree, &mut ends);
    if let Some((from, to)) = small {
        let gap = bytes.slice(from as usize..to as usize);
        padding("alignment of blocks", start + u64::from(from), &gap, 0, output, io)?;
    }
    padding("end of the extent", start, bytes, head.leaf_bytes as usize, output, io)
}

/// The padding between the small chunks of a leaf and its aligned blocks.
fn gap_before_blocks(tree: TreeId, ends: &mut [u32]) -> Option<(u32, u32)> {
    if tree != TreeId::Data {
        return None;
    }
    ends.sort_unstable();
    let block = BLOCK_SIZE as u32;
    let first_block_end =
        ends.windows(2).find(|pair| pair[1] % block == 0 && pair[1] - pair[0] >= block)?;
    let blocks_at = first_block_end[1] - block;
    (blocks_at > first_block_end[0]).then_some((first_block_end[0], blocks_at))
}

/// Shows a value with its key, decoded if the schema defines its layout.
fn show_value(
    tree: TreeId,
    key: &[u8],
    at: u64,
    value: &[u8],
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let title = format!("value of {}", show::key(tree, key));
    let plain =
        tree == TreeId::Data || MetaKey::decode(key).is_none_or(|key| key.xattr().is_some());
    if !plain {
        output.structure(io, &title, at, value, |trace| MetaValue::decode(value, trace))?;
        return Ok(());
    }
    output.has_shown(at, value.len() as u64);
    let shown = &value[..value.len().min(SHOWN)];
    let more = if value.len() > SHOWN { "…" } else { "" };
    let text = format!("{title}  b:{at:#x}+{}  {}{more}", value.len(), json::hex(shown));
    output.line(io, text, || {
        json!({ "structure": title, "byte": at, "bytes": value.len(), "value": json::hex(value) })
    })
}

/// Checks the hash of a part against the one in the head.
fn check_hash(bytes: &[u8], expected: &Hash) -> Result<(), FormatError> {
    let computed = Hash::of(bytes);
    if computed == *expected {
        return Ok(());
    }
    let fault = FormatFault::Hash { expected: *expected, computed };
    Err(FormatError { at: 0, field: "part".into(), fault })
}

fn runs(
    image: &Image,
    head: &InternalHead,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    for run in &head.runs {
        let start = run.extent.start.byte();
        let title = format!("run {}", run.seq);
        let bytes = match image.disk.read(start, run.extent.bytes() as usize) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) => {
                output.damage(io, &title, error)?;
                continue;
            }
        };
        let header = &bytes[..RUN_HEADER_BYTES.min(bytes.len())];
        output.structure(io, &title, start, header, |trace| RunHeader::decode(header, trace))?;
        let mut last = None;
        for slice in &run.slices {
            let child = head.children[usize::from(slice.child)].id;
            let mut title = format!("run {} for {child}", run.seq);
            if last.replace(slice.child) == Some(slice.child) {
                title += &format!(" from {}", show::key(head.tree, &slice.first));
            }
            let decode = |bytes: &Bytes, trace: Option<&mut dyn Trace>| {
                decode_slice(bytes, slice.section.count as usize, trace).map(drop)
            };
            section(&title, start, &bytes, &slice.section, decode, output, io)?;
        }
        if run.ranges.count > 0 {
            let title = format!("run {} range messages", run.seq);
            let decode = |bytes: &Bytes, trace: Option<&mut dyn Trace>| {
                decode_ranges(bytes, run.ranges.count as usize, trace).map(drop)
            };
            section(&title, start, &bytes, &run.ranges, decode, output, io)?;
        }
        flushed(run, start, &bytes, output, io)?;
        padding("end of the run", start, &bytes, run.bytes as usize, output, io)?;
    }
    Ok(())
}

fn section(
    title: &str,
    start: u64,
    run: &Bytes,
    section: &SectionRef,
    decode: impl FnOnce(&Bytes, Option<&mut dyn Trace>) -> Result<(), FormatError>,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let bytes = run.slice(section.offset as usize..(section.offset + section.bytes) as usize);
    let at = start + u64::from(section.offset);
    output.structure(io, title, at, &bytes, |trace| {
        check_hash(&bytes, &section.hash)?;
        decode(&bytes, trace)
    })?;
    Ok(())
}

/// Shows the parts of a run that the head no longer names: messages that have been flushed.
fn flushed(
    run: &RunRef,
    start: u64,
    bytes: &Bytes,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let mut live: Vec<(u32, u32)> = run
        .slices
        .iter()
        .map(|slice| slice.section)
        .chain([run.ranges])
        .filter(|s| s.count > 0)
        .map(|s| (s.offset, s.offset + s.bytes))
        .collect();
    live.push((run.bytes, run.bytes));
    live.sort_unstable();
    let mut at = RUN_HEADER_BYTES as u32;
    for (from, to) in live {
        if from > at {
            let text = format!("flushed messages  b:{:#x}+{}", start + u64::from(at), from - at);
            let raw = bytes.slice(at as usize..from as usize);
            output.has_shown(start + u64::from(at), raw.len() as u64);
            output.line(io, text, || {
                json!({
                    "structure": "flushed messages", "byte": start + u64::from(at),
                    "bytes": raw.len(), "value": json::hex(&raw),
                })
            })?;
        }
        at = at.max(to);
    }
    Ok(())
}
