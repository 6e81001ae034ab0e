//! Raw bytes, and the fields that the decoders find in them.

use std::ops::Range;
use std::sync::Arc;

use betr_cli::words::use_of;
use betr_core::disk::Disk;
use betr_core::format::{Magic, Seal};
use betr_core::ids::{BLOCK_SIZE, Hash, is_zero};
use betr_offline::anatomy::{Anatomy, Kind, Part, Purpose, Seals};

use super::text;
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Sheet, column, numbers, rest};
use crate::spot::Spot;
use crate::words::wrap;
use crate::work::Work;

/// Bytes per query (12 KiB); scrolling further takes another query.
const WINDOW: u64 = 12 << 10;
/// The width at which texts are wrapped, so that they fit beside the bytes.
const WIDTH: usize = 48;
/// A structure larger than 1 MiB is not listed field by field.
const FIELDS_MAX: usize = 1 << 20;

/// A window of bytes.
pub(crate) struct Bytes {
    /// The first byte; a multiple of the block size.
    start: u64,
    /// The blocks; `None` for a block that cannot be read.
    blocks: Vec<Option<Vec<u8>>>,
    /// The length of the image.
    pub end: u64,
}

/// A byte for display.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Is(u8),
    Unreadable,
    /// Outside the window.
    Unknown,
}

impl Bytes {
    pub(crate) fn at(&self, byte: u64) -> Seen {
        let Some(offset) = byte.checked_sub(self.start) else { return Seen::Unknown };
        let (block, rest) = (offset as usize / BLOCK_SIZE, offset as usize % BLOCK_SIZE);
        match self.blocks.get(block) {
            None => Seen::Unknown,
            Some(None) => Seen::Unreadable,
            Some(Some(bytes)) => bytes.get(rest).map_or(Seen::Unknown, |byte| Seen::Is(*byte)),
        }
    }
}

/// The fields of the structures that contain a byte.
pub(crate) struct FieldList {
    pub sheet: Arc<Sheet>,
    /// The byte range of each row that is a field: start, end (excluded) and row, in the order of rows.
    ranges: Vec<(u64, u64, usize)>,
}

impl FieldList {
    /// The row of the smallest field that contains a byte.
    pub(crate) fn row_of(&self, byte: u64) -> Option<usize> {
        self.smallest(byte).map(|(.., row)| row)
    }

    /// The byte range of the smallest field that contains a byte.
    pub(crate) fn range_of(&self, byte: u64) -> Option<(u64, u64)> {
        self.smallest(byte).map(|(start, end, _)| (start, end))
    }

    fn smallest(&self, byte: u64) -> Option<(u64, u64, usize)> {
        let holds = self.ranges.iter().filter(|(start, end, _)| (*start..*end).contains(&byte));
        holds.min_by_key(|(start, end, _)| end - start).copied()
    }
}

/// Reads the window that begins at the block of `at`.
pub(super) fn bytes(image: &Image, at: u64, work: &Arc<Work>) -> Result<Bytes, String> {
    let end = image.len();
    if at >= end {
        return Err(format!("b:{at:#x}: the image has {end} bytes"));
    }
    let start = at - at % BLOCK_SIZE as u64;
    let len = WINDOW.min(end - start) as usize;
    let disk = image.disk(work);
    // If the window cannot be read as a whole, its blocks are read one by one.
    let blocks = match disk.read(start, len) {
        Ok(whole) => whole.chunks(BLOCK_SIZE).map(|block| Some(block.to_vec())).collect(),
        Err(_) => (start..start + len as u64)
            .step_by(BLOCK_SIZE)
            .map(|at| {
                let rest = (start + len as u64 - at).min(BLOCK_SIZE as u64) as usize;
                disk.read(at, rest).ok()
            })
            .collect(),
    };
    Ok(Bytes { start, blocks, end })
}

/// The structures that contain a byte, the innermost first, with their fields.
pub(super) fn fields(image: &Image, byte: u64, work: &Arc<Work>) -> Result<FieldList, String> {
    let disk = image.disk(work);
    let (parts, what) = match image.superblock() {
        Ok(_) => parts(image, &disk, byte, work)?,
        Err(_) => {
            (block_part(&disk, byte).into_iter().collect(), "no superblock leads here".into())
        }
    };
    let mut rows = Vec::new();
    let mut ranges = Vec::new();
    for part in parts.iter().rev() {
        list(&disk, part, &mut rows, &mut ranges);
    }
    if parts.is_empty() {
        let at = byte - byte % BLOCK_SIZE as u64;
        let block = disk.read(at, BLOCK_SIZE).map_err(text)?;
        rows.push(Row::line(
            Role::Dim,
            if is_zero(&block) { "zeros" } else { "no structure of the image is here" },
        ));
        if let Some(part) = block_part(&disk, byte) {
            rows.push(Row::line(Role::Warn, "what stood here once:"));
            list(&disk, &part, &mut rows, &mut ranges);
        }
    }
    let columns = vec![column("at", 12), numbers("len", 4), column("field", 18), rest("value")];
    let found = FieldList { sheet: Arc::new(Sheet::new("", Vec::new(), Vec::new())), ranges };
    let start = found.row_of(byte).unwrap_or(0);
    Ok(FieldList { sheet: Arc::new(Sheet::new(what, columns, rows).at(start)), ..found })
}

/// The structures that contain a byte, from the outermost to the innermost.
fn parts(
    image: &Image,
    disk: &Disk,
    byte: u64,
    work: &Arc<Work>,
) -> Result<(Vec<Part>, String), String> {
    let (area, _) = image.area(byte / BLOCK_SIZE as u64, work)?;
    let Some(area) = area else { return Ok((Vec::new(), "behind the volume".into())) };
    let what = use_of(&area.purpose);
    let node = match &area.purpose {
        Purpose::Node(id, entry) => Some((*id, *entry)),
        Purpose::Run(id, _) => Some((*id, super::node::entry_of(&image.table(work)?, *id)?)),
        _ => None,
    };
    let found = match node {
        None => match area.purpose {
            Purpose::Free | Purpose::Unknown | Purpose::Bound(_) => Vec::new(),
            _ => block_part(disk, byte).into_iter().collect(),
        },
        Some((id, entry)) => match Anatomy::of_node(disk, id, &entry) {
            Ok(parts) => parts.into_iter().filter(|part| part.contains(byte)).collect(),
            // The structure is damaged: it is identified by its own magic instead.
            Err(_) => block_part(disk, byte).into_iter().collect(),
        },
    };
    Ok((found, what))
}

/// The structure that begins at a block, identified by its magic.
fn block_part(disk: &Disk, byte: u64) -> Option<Part> {
    let at = byte - byte % BLOCK_SIZE as u64;
    let block = disk.read(at, BLOCK_SIZE).ok()?;
    let (kind, len) = match Magic::of(&block)? {
        Magic::Identity => (Kind::Identity, BLOCK_SIZE),
        Magic::Superblock => (Kind::Superblock, BLOCK_SIZE),
        Magic::TablePage => (Kind::TablePage, BLOCK_SIZE),
        Magic::SpaceMap => (Kind::MapPage, BLOCK_SIZE),
        Magic::ScatterMap => (Kind::ScatterMap, BLOCK_SIZE),
        Magic::HoldsPage => (Kind::Holds, BLOCK_SIZE),
        Magic::DeadPage => (Kind::Dead, BLOCK_SIZE),
        Magic::Run => (Kind::Run, betr_core::format::RUN_HEADER_BYTES),
        Magic::LogGroup => (Kind::Group, betr_core::format::group_length(&block)?),
        Magic::Leaf => (Kind::Leaf, head_length(&block, 96)?),
        Magic::Internal => (Kind::Internal, head_length(&block, 96)?),
        Magic::Plan => return None,
    };
    let rows = vec![vec![(at, len)]];
    Some(Part {
        name: format!("b:{at:#x}"),
        kind,
        copies: rows,
        seals: Seals::Own,
        above: Vec::new(),
        key: None,
    })
}

/// The length of a head, from its own length field.
fn head_length(block: &[u8], at: usize) -> Option<usize> {
    let len = u32::from_le_bytes(*block.get(at..)?.first_chunk()?) as usize;
    (BLOCK_SIZE.min(len)..=FIELDS_MAX).contains(&len).then_some(len)
}

/// Lists the fields of a structure and the gaps between them.
fn list(disk: &Disk, part: &Part, rows: &mut Vec<Row>, ranges: &mut Vec<(u64, u64, usize)>) {
    let title = format!("{}: {}, {} bytes", part.name, part.kind.name(), part.len());
    rows.push(Row::line(Role::Strong, title).to([Spot::byte(part.byte())]));
    if part.len() > FIELDS_MAX {
        rows.push(Row::line(
            Role::Dim,
            "too long to be listed field by field: Y has the command that prints it",
        ));
        return;
    }
    hashes(disk, part, rows);
    let fields = match part.fields(disk) {
        Ok(fields) => fields,
        Err(error) => {
            rows.push(Row::line(Role::Bad, "! does not decode:"));
            rows.extend(
                wrap(&text(error), WIDTH)
                    .into_iter()
                    .map(|line| Row::line(Role::Bad, format!("  {line}"))),
            );
            return;
        }
    };
    let bytes = part.read(disk, 0).unwrap_or_default();
    let place = |offset: usize| {
        let mut left = offset as u64;
        for (at, len) in part.copies.first().into_iter().flatten() {
            if left < *len as u64 {
                return at + left;
            }
            left -= *len as u64;
        }
        part.byte() + offset as u64
    };
    let mut end = 0;
    for field in &fields {
        if field.bytes.start > end {
            gap(&bytes, end..field.bytes.start, place(end), rows);
        }
        end = end.max(field.bytes.end);
        let at = place(field.bytes.start);
        ranges.push((at, at + field.bytes.len() as u64, rows.len()));
        let cells = vec![
            Cell::new(Role::Dim, format!("b:{at:#x}")),
            Cell::from(field.bytes.len().to_string()),
            Cell::from(field.name.as_str()),
            Cell::from(clipped(&field.value)),
        ];
        rows.push(Row::of(cells).to([Spot::byte(at)]));
    }
    if end < bytes.len() {
        gap(&bytes, end..bytes.len(), place(end), rows);
    }
}

/// Bytes that belong to no field.
fn gap(bytes: &[u8], range: Range<usize>, at: u64, rows: &mut Vec<Row>) {
    let rest = bytes.get(range.clone()).unwrap_or_default();
    let (role, what) = match is_zero(rest) {
        true => (Role::Dim, "zeros"),
        false => (Role::Bad, "NOT ZERO, and nothing says what it is"),
    };
    let cells = vec![
        Cell::new(Role::Dim, format!("b:{at:#x}")),
        Cell::from(range.len().to_string()),
        Cell::new(role, "gap"),
        Cell::new(role, what),
    ];
    rows.push(Row::of(cells).to([Spot::byte(at)]));
}

/// The stored hash of a sealed structure, and the computed one.
fn hashes(disk: &Disk, part: &Part, rows: &mut Vec<Row>) {
    const HASHED_FROM: usize = 40;
    let Ok(bytes) = part.read(disk, 0) else { return };
    if part.seals != Seals::Own || bytes.len() < HASHED_FROM {
        return;
    }
    let Some(stored) = Seal::hash_of(&bytes) else { return };
    let computed = Hash::of(&bytes[HASHED_FROM..]);
    let (role, verdict) =
        if stored == computed { (Role::Good, "verifies") } else { (Role::Bad, "DOES NOT VERIFY") };
    let at = Spot::byte(part.byte() + 8);
    let short = |hash: Hash| hash.to_string()[..16].to_owned();
    rows.push(Row::line(Role::Plain, format!("hash stored   {}...", short(stored))).to([at]));
    rows.push(Row::line(role, format!("hash computed {}... {verdict}", short(computed))));
}

fn clipped(value: &str) -> String {
    match value.char_indices().nth(160) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}...", &value[..end]),
    }
}
