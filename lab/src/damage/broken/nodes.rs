//! Problems of the table and of nodes.

use super::bench::Bench;
use betr_core::error::Result;
use betr_core::format::{Birth, ScatterMap, Seal};
use betr_core::ids::*;
use betr_offline::anatomy::Kind;

pub(super) fn table_page_invalid(bench: &mut Bench) -> Result<()> {
    bench.flip("table:0/0", "index")
}

pub(super) fn entry_wrong(bench: &mut Bench) -> Result<()> {
    let leaf = bench.leaf()?;
    let anatomy = bench.anatomy()?;
    // Offset of the references in an entry: after extent, head length, hash and birth epoch.
    bench.write(&anatomy, anatomy.find(&leaf.page)?, leaf.at + 56, &2u32.to_le_bytes())
}

pub(super) fn node_missing(bench: &mut Bench) -> Result<()> {
    let leaf = bench.leaf()?;
    let extent = bench.extent(&leaf)?;
    bench.mark(extent.start.0..extent.end().0, false)?;
    bench.count_used(-i64::from(extent.blocks))?;
    let anatomy = bench.anatomy()?;
    bench.write(&anatomy, anatomy.find(&leaf.page)?, leaf.at, &[0; 64])
}

/// A leaf gets a scattered extent, and its map is damaged.
pub(super) fn map_invalid(bench: &mut Bench) -> Result<()> {
    let leaf = bench.leaf()?;
    let extent = bench.extent(&leaf)?;
    let block = bench.free_block()?;
    let anatomy = bench.anatomy()?;
    let page = anatomy.find(&leaf.page)?;
    let birth = Seal::birth_of(&page.read(&bench.disk(), 0)?);
    let birth: Birth = birth.ok_or_else(|| super::missing("birth of a page"))?;
    let (bytes, _) = ScatterMap { next: None, extents: vec![extent] }.encode(birth);
    bench.disk().write(BlockNr(block).byte(), &bytes)?;
    let start = BlockNr::scattered(BlockNr(block)).0;
    bench.write(&anatomy, page, leaf.at, &start.to_le_bytes())?;
    bench.mark(block..block + 1, true)?;
    bench.count_used(1)?;
    bench.flip(&format!("scatter:{block}"), "extent 0, block")
}

pub(super) fn head_invalid(bench: &mut Bench) -> Result<()> {
    bench.flip(&bench.leaf()?.name, "write sequence")
}

pub(super) fn part_invalid(bench: &mut Bench) -> Result<()> {
    let slice = bench.first("slice", |part| matches!(part.kind, Kind::Slice { .. }))?;
    bench.flip(&slice, "greatest MSN")
}

/// A leaf whose upper bound contradicts its edge.
pub(super) fn node_wrong(bench: &mut Bench) -> Result<()> {
    let leaf = bench.leaf()?;
    let anatomy = bench.anatomy()?;
    let part = anatomy.find(&leaf.name)?;
    let fields = part.fields(&bench.disk())?;
    let upper = fields.iter().find(|field| field.name == "upper bound");
    let at = upper.ok_or_else(|| super::missing("upper bound"))?.bytes.clone();
    // This is greater than any old value.
    bench.write(&anatomy, part, at.start, &vec![0xff; at.len()])
}

pub(super) fn message_wrong(bench: &mut Bench) -> Result<()> {
    let anatomy = bench.anatomy()?;
    let (disk, next) = (bench.disk(), 2u64.to_le_bytes());
    let superblock = anatomy.find("super")?;
    let fields = superblock.fields(&disk)?;
    let field = fields.iter().find(|field| field.name == "next MSN");
    let at = field.ok_or_else(|| super::missing("next MSN"))?.bytes.start;
    for copy in 0..superblock.copies.len() {
        let mut bytes = superblock.read(&disk, copy)?;
        bytes[at..at + 8].copy_from_slice(&next);
        superblock.write(&disk, copy, &bytes)?;
    }
    // The space map states it, too.
    let page = anatomy.map().next().ok_or_else(|| super::missing("space map"))?;
    bench.write(&anatomy, page, 88, &next)
}

pub(super) fn growth_wrong(bench: &mut Bench) -> Result<()> {
    bench.set("super", "growing bytes", |growth| growth + 1)
}

pub(super) fn padding_dirty(bench: &mut Bench) -> Result<()> {
    let padding = bench.first("padding of a node", |part| {
        part.kind == Kind::Padding && part.name.starts_with("n:")
    })?;
    bench.flip(&padding, "padding")
}

pub(super) fn value_invalid(bench: &mut Bench) -> Result<()> {
    let leaf = bench.leaf()?.name;
    let chunk =
        bench.first("chunk", |part| part.kind == Kind::Chunk && part.name.starts_with(&leaf))?;
    bench.flip(&chunk, "bytes")
}
