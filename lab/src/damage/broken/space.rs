//! Problems of the space map, and of block owners.

use super::bench::Bench;
use super::missing;
use betr_core::error::{Place, Result};
use betr_core::format::MapPage;
use betr_core::ids::*;
use betr_offline::anatomy::Kind;

/// The older slot of a page contains another page.
pub(super) fn map_slot_invalid(bench: &mut Bench) -> Result<()> {
    let (anatomy, other) = (bench.anatomy()?, older_page(bench)?);
    let (disk, at) = (bench.disk(), anatomy.find(&other)?.byte());
    let (seal, map) = MapPage::decode(&disk.read(at, BLOCK_SIZE)?, None)
        .map_err(|error| betr_core::error::Error::corrupt(Place::Byte(at), error))?;
    disk.write(at, &MapPage { page: map.page + 1, ..map }.encode(seal.birth).0)
}

pub(super) fn map_slot_torn(bench: &mut Bench) -> Result<()> {
    bench.flip(&older_page(bench)?, "used")
}

fn older_page(bench: &Bench) -> Result<String> {
    bench.first("older page", |part| part.kind == Kind::MapPage && part.above.is_empty())
}

pub(super) fn map_wrong(bench: &mut Bench) -> Result<()> {
    bench.count_used(1)
}

pub(super) fn block_unmarked(bench: &mut Bench) -> Result<()> {
    let extent = bench.extent(&bench.leaf()?)?;
    bench.mark(extent.start.0..extent.end().0, false)
}

pub(super) fn block_lost(bench: &mut Bench) -> Result<()> {
    let free = bench.free_block()?;
    bench.mark(free..free + 1, true)?;
    Ok(())
}

/// The table entry of a leaf refers to another leaf's extent. The first such entry counts.
pub(super) fn block_twice(bench: &mut Bench) -> Result<()> {
    let extent = bench.extent(&bench.leaf()?)?;
    let leaves = bench.leaves()?;
    let other = bench.extent(leaves.first().ok_or_else(|| missing("other leaf"))?)?;
    bench.mark(extent.start.0..extent.end().0, false)?;
    move_to(bench, other)
}

pub(super) fn block_outside(bench: &mut Bench) -> Result<()> {
    let extent = bench.extent(&bench.leaf()?)?;
    bench.mark(extent.start.0..extent.end().0, false)?;
    move_to(bench, Extent { start: BlockNr(1 << 20), ..extent })
}

/// Sets the extent in the leaf's table entry.
fn move_to(bench: &Bench, extent: Extent) -> Result<()> {
    let leaf = bench.leaf()?;
    let anatomy = bench.anatomy()?;
    let bytes = [&extent.start.0.to_le_bytes()[..], &extent.blocks.to_le_bytes()].concat();
    bench.write(&anatomy, anatomy.find(&leaf.page)?, leaf.at, &bytes)
}
