//! All limits of the format. A reader refuses what exceeds them.

use crate::ids::{Ino, ZoneId};

/// The version of the format that this code reads and writes.
pub const FORMAT_VERSION: u32 = 27;
/// The first zone id for allocation; lower ids are the zones of the root and of the orphans.
pub const FIRST_ZONE: ZoneId = ZoneId(2);
/// The first inode number for allocation; lower ones are those of the root and of the orphan directory.
pub const FIRST_INO: Ino = Ino(3);
/// The longest key of either tree, in bytes.
pub const KEY_MAX: usize = 1024;
/// The longest value of either tree, in bytes.
pub const VALUE_MAX: usize = 64 * 1024;
/// The longest update in a log record, in bytes.
pub const UPDATE_MAX: usize = 1 << 20;
/// The bytes of a file block: the longest value of the data index.
pub const FILE_BLOCK: usize = 4096;
/// Small values share chunks of at most this many bytes.
pub const SMALL_CHUNK_MAX: usize = 16 * 1024;
/// The longest file name, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest name of an extended attribute, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// The most bytes of the names of an object's extended attributes in a listing, each followed by a zero byte.
pub const XATTR_NAMES_MAX: usize = 64 * 1024;
/// The most bytes of an object's extended attributes, names and values.
pub const XATTRS_MAX: usize = 16 << 20;
/// The longest target of a symbolic link, in bytes.
pub const SYMLINK_MAX: usize = 4095;
/// The longest file, in bytes.
pub const FILE_MAX: u64 = i64::MAX as u64;
/// The longest volume label, in bytes.
pub const LABEL_MAX: usize = 64;
/// 32 slots in the superblock ring: half of them in each of two places.
pub const SUPERBLOCK_SLOTS: u32 = 32;
/// 16 pages of level 1 that a superblock refers to; they have pointers to pages of holds.
pub const HOLD_ROOTS: usize = 16;
/// Holds on a page.
pub const HOLDS_PER_PAGE: usize = 7;
/// The most holds: 80 pages for each page of level 1.
pub const HOLDS_MAX: usize = HOLD_ROOTS * 80 * HOLDS_PER_PAGE;
/// The most records on a page of a dead list.
pub const DEAD_PER_PAGE: usize = 98;
/// The most segments of a space map.
pub const SEGMENTS_MAX: usize = 32;
/// The most prune ranges in a superblock.
pub const PRUNES_MAX: usize = 8;
/// The longest bound of a prune range, in bytes.
pub const PRUNE_KEY_MAX: usize = 64;
/// The smallest and greatest node size, in bytes.
pub const NODE_SIZE: std::ops::RangeInclusive<u32> = 4096..=16 << 20;
/// The most bytes of keys (with their prefixes) and small values in all messages of a node.
pub const MESSAGES_MAX: usize = 3 << 29;
/// The smallest and greatest leaf size, in bytes.
pub const LEAF_SIZE: std::ops::RangeInclusive<u32> = 4096..=16 << 20;
/// The smallest and greatest basement size, in bytes.
pub const BASEMENT_SIZE: std::ops::RangeInclusive<u32> = 512..=4 << 20;
/// The smallest and greatest number of children before an internal node splits.
pub const FANOUT: std::ops::RangeInclusive<u32> = 4..=1024;
/// The most sealed runs of an internal node.
pub const RUNS_MAX: usize = 64;
/// The most slices of a run.
pub const SLICES_MAX: usize = u16::MAX as usize;
/// The longest head of a node, in bytes.
pub const HEAD_MAX: usize = 64 << 20;
/// The longest leaf, in bytes: a leaf of the greatest size and one more batch of messages.
pub const LEAF_MAX: usize = 256 << 20;
/// The most bytes of the keys of one part of a node, with their prefixes.
pub const KEYS_MAX: usize = 128 << 20;
/// The longest part of a node (key section, slice, range section), in bytes.
pub const PART_MAX: usize = 128 << 20;
/// The greatest height of a node.
pub const HEIGHT_MAX: u8 = 16;
/// Levels of the allocation table.
pub const TABLE_LEVELS_MAX: u32 = 8;
/// The most blocks an image may have: 16 TiB of 4 KiB blocks.
pub const IMAGE_BLOCKS_MAX: u64 = 1 << 32;
/// The fewest blocks an image may have: 1 MiB.
pub const IMAGE_BLOCKS_MIN: u64 = 256;
/// The longest log, in bytes.
pub const LOG_BYTES_MAX: u64 = 4 << 30;
/// The shortest log, in bytes.
pub const LOG_BYTES_MIN: u64 = 64 << 10;
/// Node ids are less than this.
pub const NODES_END: u64 = 1 << 48;
/// Zone ids, stored inode numbers, MSNs, epochs and the numbers of log groups are less than this.
pub const NUMBERS_END: u64 = 1 << 62;
/// Inode numbers that are given out are less than this: 5 bytes.
pub const INODES_END: Ino = Ino(1 << 40);
/// Tags of cloned directories are less than this. With an inode number they take 61 bits.
pub const TAGS_END: u32 = 1 << 21;
/// The limit of pending messages that may make leaves grow, and of the bytes of that growth.
pub const INFLOW_MAX: u64 = 1 << 60;
/// The most messages in one log record.
pub const RECORD_MESSAGES_MAX: u32 = 1 << 20;
/// The most values that one log group binds.
pub const LATE_VALUES_MAX: usize = 1 << 16;
/// The version of plans that this code reads and writes.
pub const PLAN_VERSION: u32 = 1;
/// The longest explanation of a plan, in bytes.
pub const PLAN_TEXT_MAX: usize = 16 << 20;
/// The most changes of a plan.
pub const PLAN_CHANGES_MAX: u64 = 1 << 30;
/// The most fixed places that a plan hashes.
pub const PLAN_PLACES_MAX: usize = 4;
/// The most blocks in these places together.
pub const PLAN_PLACES_BLOCKS_MAX: u64 = 1 << 21;
