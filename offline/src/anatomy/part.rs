//! One structure: its place, its decoder, and its verification.

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
    /// Its kind.
    pub kind: Kind,
    /// Its byte ranges, as addresses and lengths; one list for each copy. Copies differ only in their own place.
    pub copies: Vec<Vec<(u64, usize)>>,
    /// How its bytes are verified.
    pub seals: Seals,
    /// The structures that repeat its hash.
    pub above: Vec<Above>,
    /// For a value or an update, its key.
    pub key: Option<(TreeId, Key)>,
}

/// The kind of a structure, with the parameters of its decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Identity,
    Superblock,
    MapPage,
    TablePage,
    Internal,
    Leaf,
    Basement { tree: TreeId },
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

/// How the bytes of a structure are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seals {
    /// By a seal at the start.
    Own,
    /// By a hash over all bytes, in the structure above.
    Above,
    /// Not separately: the bytes are part of the structure above, or must be zero.
    Nothing,
}

/// How a structure is referred to by the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// By its hash, at this offset.
    Hash {
        /// The index of the structure above.
        part: usize,
        /// The offset of the hash.
        at: usize,
    },
    /// Its bytes are part of the structure above.
    Bytes {
        /// The index of the structure above.
        part: usize,
    },
    /// By the hash over the hashes of all pages of the space map, at this offset.
    Map {
        /// The index of the structure above.
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

    /// Decodes the structure with a trace.
    fn decode(self, bytes: &Bytes, trace: &mut dyn Trace) -> std::result::Result<(), FormatError> {
        let trace = Some(trace);
        match self {
            Kind::Identity => Identity::decode(bytes, trace).map(drop),
            Kind::Superblock => Superblock::decode(bytes, trace).map(drop),
            Kind::MapPage => MapPage::decode(bytes, trace).map(drop),
            Kind::TablePage => TablePage::decode(bytes, trace).map(drop),
            Kind::Internal => InternalHead::decode(bytes, trace).map(drop),
            Kind::Leaf => LeafHead::decode(bytes, trace).map(drop),
            Kind::Basement { tree } => KeySection::decode(bytes, tree, trace).map(drop),
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

    /// Whether one of its copies contains a byte.
    pub fn contains(&self, byte: u64) -> bool {
        let mut rows = self.copies.iter().flatten();
        rows.any(|(at, len)| (*at..at.saturating_add(*len as u64)).contains(&byte))
    }

    /// The address of its first byte.
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

    /// Its fields, in byte order; fails if it does not decode.
    pub fn fields(&self, disk: &Disk) -> Result<Vec<Field>> {
        let bytes = Bytes::from(self.read(disk, 0)?);
        let mut collector = Collector::default();
        self.kind
            .decode(&bytes, &mut collector)
            .map_err(|error| Error::corrupt(Place::Byte(self.byte()), Fault::from(error)))?;
        Ok(collector.fields)
    }
}
