//! The smallest image with exactly one problem, for each problem of the catalog.
//!
//! Each starts from the same sound image of 2 MiB with all kinds of structures, and is broken in one way: by damage of
//! a field, by a message that no file system would make, or by damage of the last checkpoint. They serve tests,
//! documentation, and demonstrations.

mod bench;
mod files;
mod fixed;
mod holds;
mod log;
mod nodes;
mod space;

use betr_core::check::Code;
use betr_core::error::{Error, Result};

use bench::Bench;

/// A function that breaks the sound image.
type Make = fn(&mut Bench) -> Result<()>;

/// An image with this problem, and no other; `None` if no image can have it.
pub fn make_broken(code: Code) -> Result<Option<Vec<u8>>> {
    let make: Make = match code {
        // The device fails, also during a replay.
        Code::ReadFailed | Code::ReplayFailed => return Ok(None),
        Code::IdentityInvalid => fixed::identity_invalid,
        Code::ErrorMet => fixed::error_met,
        Code::ImageTruncated => fixed::image_truncated,
        Code::SlotInvalid => fixed::slot_invalid,
        Code::NoSuperblock => fixed::no_superblock,
        Code::SlotTorn => fixed::slot_torn,
        Code::CheckpointLost => fixed::checkpoint_lost,
        Code::FeaturesUnknown => fixed::features_unknown,
        Code::SuperblockLost => fixed::superblock_lost,
        Code::LogReplayed => log::replayed,
        Code::LogTorn => log::torn,
        Code::LogDamaged | Code::OperationLost => log::damaged,
        Code::ValueLost => log::value_lost,
        Code::MapSlotInvalid => space::map_slot_invalid,
        Code::MapSlotTorn => space::map_slot_torn,
        Code::SpaceMapWrong => space::map_wrong,
        Code::BlockUnmarked => space::block_unmarked,
        Code::BlockLost => space::block_lost,
        Code::BlockTwice => space::block_twice,
        Code::BlockOutside => space::block_outside,
        Code::TablePageInvalid => nodes::table_page_invalid,
        Code::EntryWrong => nodes::entry_wrong,
        Code::NodeMissing => nodes::node_missing,
        Code::ScatterMapInvalid => nodes::map_invalid,
        Code::HeadInvalid => nodes::head_invalid,
        Code::PartInvalid => nodes::part_invalid,
        Code::NodeWrong => nodes::node_wrong,
        Code::MessageWrong => nodes::message_wrong,
        Code::GrowthWrong => nodes::growth_wrong,
        Code::PaddingDirty => nodes::padding_dirty,
        Code::ValueInvalid => nodes::value_invalid,
        Code::HoldsInvalid => holds::holds_invalid,
        Code::HoldWrong => holds::hold_wrong,
        Code::DeadWrong => holds::dead_wrong,
        Code::SnapshotDamaged => holds::snapshot_damaged,
        Code::KeyInvalid => files::key_invalid,
        Code::ValueMalformed => files::value_malformed,
        Code::ZoneWrong => files::zone_wrong,
        Code::LinksWrong => files::links_wrong,
        Code::DirectoryUnreachable => files::directory_unreachable,
        Code::DataWrong => files::data_wrong,
        Code::CounterWrong => files::counter_wrong,
        Code::InodeTwice => files::inode_twice,
        Code::XattrLost => files::xattr_lost,
        Code::SumsWrong => files::sums_wrong,
        Code::ZoneTooLarge => files::zone_too_large,
        Code::ZoneTooSmall => files::zone_too_small,
        Code::HolesUnflagged => files::holes_unflagged,
        Code::OrphanLeft => files::orphan_left,
    };
    let mut bench = Bench::new()?;
    make(&mut bench)?;
    Ok(Some(bench.finish()))
}

/// The error that a recipe did not find a structure in the sound image.
fn missing(what: &str) -> Error {
    Error::Bug(format!("the sound image has no {what}"))
}
