//! The numbers of the format, one type each, so that indexes, counts and ids are not confused.

use std::fmt;

/// Bytes in a block: the unit of addresses, allocation and tearing.
pub const BLOCK_SIZE: usize = 4096;

/// Whether all bytes are zero; compares a block at a time.
pub fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK_SIZE] = [0; BLOCK_SIZE];
    bytes.chunks(BLOCK_SIZE).all(|piece| *piece == ZEROS[..piece.len()])
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number!(
    /// The address of a 4 KiB block, counted from the start of the image.
    BlockNr, u64, "");
number!(
    /// The id of a node. It stays the same when the node moves.
    NodeId, u64, "n:");
number!(
    /// Message sequence number: one counter for the volume, taken at injection.
    Msn, u64, "");
number!(
    /// The MSN of the first message of a log record.
    Lsn, u64, "l:");
number!(
    /// The number of a checkpoint.
    Epoch, u64, "e:");
number!(
    /// A fresh number for each epoch, so that an abandoned future never becomes valid again.
    Nonce, u64, "");
number!(
    /// A connected part of the directory tree that is stored together.
    ZoneId, u64, "z:");
number!(
    /// An inode number; stable for the life of a file.
    Ino, u64, "");
number!(
    /// The tag of a cloned directory in the inode numbers of what it shares.
    Tag, u32, "");
number!(
    /// The height of a node; a leaf has height 0.
    Height, u8, "");
number!(
    /// The sequence number of a run in its node; a younger run has a greater one.
    RunSeq, u64, "");

/// Block numbers from here on are not on the device: they refer to scattered extents.
pub const SCATTERED: u64 = 1 << 51;
/// 2^18: block numbers for each scattered extent, more than any extent has blocks.
pub const SCATTERED_MAX: u64 = 1 << 18;

impl BlockNr {
    /// The first block of a scattered extent, by the block of its first map.
    pub fn scattered(map: BlockNr) -> BlockNr {
        BlockNr(SCATTERED + map.0 * SCATTERED_MAX)
    }

    /// For a block of a scattered extent: the block of its first map, and the index in the extent.
    pub fn map(self) -> Option<(BlockNr, u64)> {
        let number = self.0.checked_sub(SCATTERED)?;
        Some((BlockNr(number / SCATTERED_MAX), number % SCATTERED_MAX))
    }

    /// The byte address of the block's first byte. An impossible number becomes an address past the end of every
    /// device.
    pub fn byte(self) -> u64 {
        self.0.saturating_mul(BLOCK_SIZE as u64)
    }
}

/// Consecutive blocks on the device; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first block.
    pub start: BlockNr,
    /// Number of blocks.
    pub blocks: u32,
}

impl Extent {
    /// The block after the last.
    pub fn end(self) -> BlockNr {
        BlockNr(self.start.0.saturating_add(u64::from(self.blocks)))
    }

    /// Whether its blocks are scattered, and listed in maps.
    pub fn is_scattered(self) -> bool {
        self.start.map().is_some()
    }

    /// Length in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.blocks) * BLOCK_SIZE as u64
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start.map() {
            None => write!(f, "{}+{}", self.start.0, self.blocks),
            Some((map, _)) => write!(f, "map {}+{}", map.0, self.blocks),
        }
    }
}

/// Which of the two Bε-trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TreeId {
    /// Directory entries, inodes and extended attributes (BetrFS 0.2 §4).
    Metadata,
    /// Blocks of files.
    Data,
}

impl TreeId {
    /// Both trees, in the order of their codes.
    pub const ALL: [TreeId; 2] = [TreeId::Metadata, TreeId::Data];

    /// The code on disk.
    pub fn code(self) -> u8 {
        match self {
            TreeId::Metadata => 1,
            TreeId::Data => 2,
        }
    }

    /// The tree of a code on disk.
    pub fn from_code(code: u8) -> Option<TreeId> {
        TreeId::ALL.into_iter().find(|tree| tree.code() == code)
    }

    /// The id of the tree's root node, which never changes.
    pub fn root(self) -> NodeId {
        NodeId(u64::from(self.code()))
    }
}

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TreeId::Metadata => "metadata",
            TreeId::Data => "data",
        })
    }
}

/// A SHA-256 value.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Hash {
        use sha2::Digest;
        Hash(sha2::Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The internal id of a volume, in every structure; fixed when the image is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeId(pub [u8; 16]);

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A point in time: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since the epoch, rounded down.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.secs, self.nanos)
    }
}
