//! One structure: where it is, how to read it, and what verifies it.

use bytes::Bytes;

use super::fields::{Collector, Field};
use betr_core::disk::Disk;
use betr_core::error::{Error, Fault, Place, Result};
use betr_core::format::*;
use betr_core::ids::*;

/// A structure of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its address.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The rows of bytes that it consists of: addresses and lengths. More than one list where it has copies, which
    /// say the same but for their own place.
    pub copies: Vec<Vec<(u64, usize)>>,
    /// What verifies its bytes.
    pub seals: Seals,
    /// Who says its hash again.
    pub above: Vec<Above>,
    /// Of a value, or of an update, the key that it is for.
    pub key: Option<(TreeId, Key)>,
}

/// What a structure is, and what its decoder must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Identity,
    Superblock,
    MapPage,
    TablePage,
    Internal,
    Leaf,
    Basement { tree: TreeId, leaf_bytes: u32 },
    Chunk,
    MetaValue,
    Update,
    Bytes,
    Run,
    Slice { count: usize },
    Ranges { count: usize },
    ScatterMap,
    Holds,
    Dead,
    Group,
    Padding,
}

/// What verifies a structure's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seals {
    /// A seal at its beginning.
    Own,
    /// A hash over all of its bytes, which stands above.
    Above,
    /// Nothing of its own: its bytes are those of what is above, or must be zero.
    Nothing,
}

/// How a structure is known to the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// That one says its hash, at this offset.
    Hash {
        /// Its place among all.
        part: usize,
        /// The offset of the hash.
        at: usize,
    },
    /// Its bytes are some of that one's.
    Bytes {
        /// Its place among all.
        part: usize,
    },
    /// That one says a hash over the hashes of all pages of the space map, at this offset.
    Map {
        /// Its place among all.
        part: usize,
        /// The offset of the hash.
        at: usize,
    },
}

impl Kind {
    /// The name of the structure.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Identity => "identity block",
            Kind::Superblock => "superblock",
            Kind::MapPage => "space-map page",
            Kind::TablePage => "table page",
            Kind::Internal => "head of an internal node",
            Kind::Leaf => "head of a leaf",
            Kind::Basement { .. } => "key section",
            Kind::Chunk => "chunk",
            Kind::MetaValue => "value of the metadata index",
            Kind::Update => "update",
            Kind::Bytes => "value",
            Kind::Run => "run header",
            Kind::Slice { .. } => "slice",
            Kind::Ranges { .. } => "range messages",
            Kind::ScatterMap => "scatter map",
            Kind::Holds => "page of snapshots",
            Kind::Dead => "page of a dead list",
            Kind::Group => "log group",
            Kind::Padding => "padding",
        }
    }

    /// Has the decoder read the structure.
    fn decode(self, bytes: &Bytes, trace: &mut dyn Trace) -> std::result::Result<(), FormatError> {
        let trace = Some(trace);
        match self {
            Kind::Identity => Identity::decode(bytes, trace).map(drop),
            Kind::Superblock => Superblock::decode(bytes, trace).map(drop),
            Kind::MapPage => MapPage::decode(bytes, trace).map(drop),
            Kind::TablePage => TablePage::decode(bytes, trace).map(drop),
            Kind::Internal => InternalHead::decode(bytes, trace).map(drop),
            Kind::Leaf => LeafHead::decode(bytes, trace).map(drop),
            Kind::Basement { tree, leaf_bytes } => {
                KeySection::decode(bytes, tree, leaf_bytes, trace).map(drop)
            }
            Kind::MetaValue => MetaValue::decode(bytes, trace).map(drop),
            Kind::Update => Update::decode(bytes, trace).map(drop),
            Kind::Chunk | Kind::Bytes => {
                Fields::traced(bytes, trace).hex("bytes", bytes.len()).map(drop)
            }
            Kind::Run => RunHeader::decode(bytes, trace).map(drop),
            Kind::Slice { count } => decode_slice(bytes, count, trace).map(drop),
            Kind::Ranges { count } => decode_ranges(bytes, count, trace).map(drop),
            Kind::ScatterMap => ScatterMap::decode(bytes, trace).map(drop),
            Kind::Holds => HoldsPage::decode(bytes, trace).map(drop),
            Kind::Dead => DeadPage::decode(bytes, trace).map(drop),
            Kind::Group => Group::decode(bytes, trace).map(drop),
            Kind::Padding => Fields::traced(bytes, trace).zeros_to_end(),
        }
    }
}

impl Part {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.copies.first().map_or(0, |rows| rows.iter().map(|(_, len)| len).sum())
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether one of its copies has a byte.
    pub fn contains(&self, byte: u64) -> bool {
        let mut rows = self.copies.iter().flatten();
        rows.any(|(at, len)| (*at..at.saturating_add(*len as u64)).contains(&byte))
    }

    /// Where its first byte is.
    pub fn byte(&self) -> u64 {
        self.copies.first().and_then(|rows| rows.first()).map_or(0, |(at, _)| *at)
    }

    /// The bytes of one of its copies.
    pub fn read(&self, disk: &Disk, copy: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.len());
        for (at, len) in &self.copies[copy] {
            bytes.extend(disk.read(*at, *len)?);
        }
        Ok(bytes)
    }

    /// Writes the bytes of one of its copies.
    pub fn write(&self, disk: &Disk, copy: usize, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        for (at, len) in &self.copies[copy] {
            let (row, behind) = rest.split_at(*len);
            disk.write(*at, row)?;
            rest = behind;
        }
        Ok(())
    }

    /// Its fields, in the order of their bytes; an error if it does not decode.
    pub fn fields(&self, disk: &Disk) -> Result<Vec<Field>> {
        let bytes = Bytes::from(self.read(disk, 0)?);
        let mut collector = Collector::default();
        self.kind
            .decode(&bytes, &mut collector)
            .map_err(|error| Error::corrupt(Place::Byte(self.byte()), Fault::from(error)))?;
        Ok(collector.fields)
    }
}
