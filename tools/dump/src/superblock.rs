//! The identity block and the superblock ring.

use betr_cli::{Failure, Io, time};
use betr_core::disk::Disk;
use betr_core::format::{IDENTITY_AT, Identity, Superblock};
use betr_core::ids::BLOCK_SIZE;
use betr_core::volume::{Ring, SlotState, read_identity};
use serde_json::json;

use crate::structure::Output;

/// The reason why the dump of superblocks stopped.
pub(crate) enum ShowError {
    Image(betr_core::Error),
    Output(Failure),
}

impl From<betr_core::Error> for ShowError {
    fn from(error: betr_core::Error) -> ShowError {
        ShowError::Image(error)
    }
}

impl From<Failure> for ShowError {
    fn from(failure: Failure) -> ShowError {
        ShowError::Output(failure)
    }
}

/// Shows the identity block, one line per slot of the ring, and the chosen slot in full.
pub(crate) fn show(
    disk: &Disk,
    slot: Option<u32>,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), ShowError> {
    let identity = read_identity(disk)?;
    let block = disk.read(IDENTITY_AT, BLOCK_SIZE)?;
    output.structure(io, "identity block", IDENTITY_AT, &block, |trace| {
        Identity::decode(&block, trace)
    })?;
    let ring = Ring::read(disk, &identity)?;
    let chosen = ring.choose(slot).map(|superblock| superblock.slot);
    for slot in ring.slots() {
        let text = match &slot.state {
            SlotState::Empty => "never written".to_owned(),
            SlotState::Valid(superblock) => format!(
                "epoch {}, {}, {} blocks in use, root {}",
                superblock.birth.epoch.0,
                time::format_utc(superblock.wall.secs, superblock.wall.nanos),
                superblock.used_blocks,
                superblock.table.page.hash
            ),
            SlotState::Invalid(fault) => {
                output.damaged = true;
                format!("INVALID: {fault}")
            }
        };
        let mark = if chosen.as_ref().is_ok_and(|chosen| *chosen == slot.slot) { "*" } else { " " };
        let line = format!("{mark}slot {:>2}  b:{:#x}  {text}", slot.slot, slot.byte);
        output.line(io, line, || json!({ "slot": slot.slot, "byte": slot.byte, "state": text }))?;
    }
    let chosen = chosen?;
    for slot in ring.slots().iter().filter(|other| other.slot == chosen) {
        let block = disk.read(slot.byte, BLOCK_SIZE)?;
        let title = format!("superblock slot {chosen}");
        output
            .structure(io, &title, slot.byte, &block, |trace| Superblock::decode(&block, trace))?;
    }
    Ok(())
}
