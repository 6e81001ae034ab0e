//! `betr info`: the fixed structures of an image: identity block, superblock, log.
//!
//! Of the trees only the roots are read, for the reserved space, and the log is not replayed, so it works on an image
//! with damaged trees. Numbers of blocks are those of the last checkpoint.

mod show;

use std::sync::Arc;

use betr_cli::view::ImageArgs;
use betr_cli::volume::{failure, open_view};
use betr_cli::{Exit, Failure, Io};
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::format::{Features, Identity, Superblock};
use betr_core::ids::BLOCK_SIZE;
use betr_core::log::{End, Survey, scan};
use betr_core::volume::{Mode, OpenOptions, Ring, SlotState, read_identity};

/// Show what an image says of itself
///
/// Names, sizes, the last checkpoint, and what waits in the log. Only the fixed places and the roots of the trees are read: "betr fsck"
/// looks at the rest.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Start from this slot of the superblock ring
    #[arg(short = 'b', value_name = "SLOT", value_parser = clap::value_parser!(u32).range(..32))]
    slot: Option<u32>,
    #[command(flatten)]
    image: ImageArgs,
}

/// The fixed structures of an image.
struct Volume {
    identity: Identity,
    superblock: Superblock,
    log: Survey,
    slots: Slots,
    /// The blocks available to files; `None` if a root is damaged.
    available_blocks: Option<u64>,
}

/// How many slots of the superblock ring are in each state.
#[derive(Default)]
struct Slots {
    valid: u32,
    empty: u32,
    invalid: Vec<u32>,
}

/// The state of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Empty: the last checkpoint is the newest state.
    Clean,
    /// The log has records that are not in the trees.
    NeedsReplay,
    /// The log cannot be replayed completely.
    Damaged,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let device = open_view(args.image.view())?;
    let failed = |error: betr_core::Error| failure(args.image.path(), Some(&device), &error);
    let volume = read(&device, args.slot).map_err(failed)?;
    if args.json {
        io.json("betr.info", 1, show::document(args.image.path(), &volume))?;
    } else {
        show::text(args.image.path(), &volume, io)?;
    }
    Ok(if volume.state() == State::Damaged { Exit::DAMAGED } else { Exit::DONE })
}

fn read(device: &Arc<dyn Device>, slot: Option<u32>) -> betr_core::Result<Volume> {
    let disk = &Disk::new(device.clone());
    let identity = read_identity(disk)?;
    let ring = Ring::read(disk, &identity)?;
    let superblock = ring.choose(slot)?.clone();
    let mut slots = Slots::default();
    for slot in ring.slots() {
        match slot.state {
            SlotState::Valid(_) => slots.valid += 1,
            SlotState::Empty => slots.empty += 1,
            SlotState::Invalid(_) => slots.invalid.push(slot.slot),
        }
    }
    let log = scan(disk, &superblock)?;
    let available_blocks = available_blocks(device, slot).ok();
    Ok(Volume { identity, superblock, log, slots, available_blocks })
}

fn available_blocks(device: &Arc<dyn Device>, slot: Option<u32>) -> betr_core::Result<u64> {
    let options =
        OpenOptions { slot, content: None, ..OpenOptions::new(Mode::Checkpoint, Box::new(|| 0)) };
    let (volume, _) = betr_core::volume::Volume::open(device.clone(), options)?;
    Ok(volume.blocks()?.available)
}

impl Volume {
    fn state(&self) -> State {
        match &self.log.end {
            _ if !self.log.lost.is_empty() => State::Damaged,
            End::Clean | End::Torn { .. } if self.log.groups == 0 => State::Clean,
            End::Clean | End::Torn { .. } => State::NeedsReplay,
            End::Damaged { .. } | End::Unreadable { .. } | End::Superseded { .. } => State::Damaged,
        }
    }

    fn free_blocks(&self) -> u64 {
        self.superblock.image_blocks.saturating_sub(self.superblock.used_blocks)
    }

    fn log_bytes(&self) -> u64 {
        self.superblock.log_units * BLOCK_SIZE as u64
    }

    /// The bytes of the groups to be replayed.
    fn log_waiting(&self) -> u64 {
        self.log.units(&self.superblock) * BLOCK_SIZE as u64
    }

    /// The features by name; unknown ones by their bits.
    fn features(&self) -> Vec<String> {
        let Features { compatible, read_only, incompatible } = self.superblock.features;
        let keys = incompatible & Features::KEYS != 0;
        let unknown = [
            ("compatible", compatible),
            ("read-only", read_only),
            ("incompatible", incompatible & !Features::KEYS),
        ];
        let unknown = unknown.into_iter().filter(|(_, bits)| *bits != 0);
        let unknown = unknown.map(|(class, bits)| format!("{class}:{bits:#x}"));
        keys.then(|| "keys".to_owned()).into_iter().chain(unknown).collect()
    }
}
