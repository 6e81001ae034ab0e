//! Problems at fixed places.

use super::bench::{Bench, write};
use super::missing;
use betr_core::error::Result;
use betr_core::format::Superblock;
use betr_core::ids::*;
use betr_core::space::slot_block;
use betr_core::volume::{note_error, read_identity};

pub(super) fn identity_invalid(bench: &mut Bench) -> Result<()> {
    bench.flip("identity", "label")
}

pub(super) fn image_truncated(bench: &mut Bench) -> Result<()> {
    bench.truncate(BLOCK_SIZE);
    Ok(())
}

pub(super) fn error_met(bench: &mut Bench) -> Result<()> {
    note_error(&bench.disk(), true)
}

/// The slots of the newest superblock.
fn newest(bench: &Bench) -> Result<Vec<BlockNr>> {
    let anatomy = bench.anatomy()?;
    let copies = &anatomy.find("super")?.copies;
    Ok(copies.iter().map(|rows| BlockNr(rows[0].0 / BLOCK_SIZE as u64)).collect())
}

pub(super) fn slot_invalid(bench: &mut Bench) -> Result<()> {
    let slot = bench.first("second slot", |part| {
        part.name
            .strip_prefix("super:")
            .and_then(|slot| slot.parse().ok())
            .is_some_and(|slot: u32| slot % 2 == 1)
    })?;
    bench.flip(&slot, "wall seconds")
}

pub(super) fn no_superblock(bench: &mut Bench) -> Result<()> {
    let anatomy = bench.anatomy()?;
    let slots = anatomy.parts().iter().filter(|part| part.name.starts_with("super:"));
    // The anatomy is taken once: after the damage the ring is unreadable.
    slots.into_iter().try_for_each(|part| bench.disk().write(part.byte() + 100, b"not this"))
}

pub(super) fn slot_torn(bench: &mut Bench) -> Result<()> {
    let disk = bench.disk();
    let ring = read_identity(&disk)?.ring;
    let newest = newest(bench)?;
    let newest = newest.first().ok_or_else(|| missing("superblock"))?;
    let superblock = Superblock::decode(&disk.read(newest.byte(), BLOCK_SIZE)?, None)
        .map_err(|_| missing("superblock"))?;
    let next = Epoch(superblock.birth.epoch.0 + 1);
    let birth = betr_core::format::Birth { epoch: next, ..superblock.birth };
    let slot = 2 * (next.0 % 16) as u32;
    let bytes = Superblock { birth, slot, ..superblock }.encode();
    // Only its first sector was written.
    disk.write(slot_block(ring, slot).byte(), &bytes[..betr_core::device::SECTOR / 2])
}

pub(super) fn checkpoint_lost(bench: &mut Bench) -> Result<()> {
    bench.flip("super", "wall seconds")
}

pub(super) fn features_unknown(bench: &mut Bench) -> Result<()> {
    bench.set("super", "read-only compatible features", |_| 2)
}

pub(super) fn superblock_lost(bench: &mut Bench) -> Result<()> {
    let mut fs = bench.fs()?;
    let root = fs.root()?;
    // The first file is durable by a checkpoint, the second by the log.
    for name in ["first", "second"] {
        write(&mut fs, &root, name.as_bytes(), 100)?;
        fs.volume_mut().sync()?;
    }
    drop((root, fs));
    let disk = bench.disk();
    newest(bench)?.into_iter().try_for_each(|slot| disk.write(slot.byte(), &[0; BLOCK_SIZE]))
}
