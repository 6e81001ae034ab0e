//! Dead lists: extents that a hold keeps, and that nothing younger uses.
//!
//! A list is a chain of pages, the newest first; records are only added to the newest page, and taken from it.
//!
//! ```text
//!   0  seal              72
//!  72  previous page     48   a page pointer; zero in the oldest page
//! 120  records            8   on this page and those before it
//! 128  blocks             8   of the extents of these, with the maps of scattered ones
//! 136  count              4   records on this page; 1 to 98
//! 140  zero               4
//! 144  records of 40 bytes each, in the order in which they were added; then zero to 4096
//!
//! a record                    From and To of Backlog, joined (Backlog §4)
//!   0  extent start       8
//!   8  extent blocks      4
//!  12  owner              1   1 a leaf or a head, 2 a run, 3 a page of the allocation table
//!  13  level              1   of a table page
//!  14  maps               2   blocks of the maps of a scattered extent
//!  16  birth              8   the epoch that it was written for
//!  24  died               8   the first epoch that does not use it
//!  32  name               8   node id, or index of the table page
//! ```

use std::fmt;

use super::fields::{Fields, FormatError, Trace, Writer};
use super::limits::{DEAD_PER_PAGE, IMAGE_BLOCKS_MAX, TABLE_LEVELS_MAX};
use super::seal::{Birth, Magic, Seal};
use super::table::{POINTER_BYTES, PagePointer, optional};
use crate::ids::*;

const RECORD_BYTES: usize = 40;
const RECORDS_AT: usize = 144;

const _: () = assert!(RECORDS_AT + DEAD_PER_PAGE * RECORD_BYTES <= BLOCK_SIZE);

/// The owner of a dead extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadOwner {
    /// A leaf, or the head of an internal node.
    Node(NodeId),
    /// A run of an internal node.
    Run(NodeId),
    /// A page of the allocation table, by level and index.
    TablePage(u8, u64),
}

impl fmt::Display for DeadOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeadOwner::Node(id) => id.fmt(f),
            DeadOwner::Run(id) => write!(f, "a run of {id}"),
            DeadOwner::TablePage(level, index) => write!(f, "table page {level}/{index}"),
        }
    }
}

/// A dead record: an extent that died while a hold kept it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dead {
    /// The extent.
    pub extent: Extent,
    /// The epoch that it was written for.
    pub birth: Epoch,
    /// The first epoch that does not use it.
    pub died: Epoch,
    /// Its owner.
    pub owner: DeadOwner,
    /// The number of its map blocks, if it is scattered.
    pub maps: u16,
}

/// The newest page of a dead list, and its totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadList {
    /// The newest page; `None` if the list is empty.
    pub newest: Option<PagePointer>,
    /// Number of records.
    pub records: u64,
    /// The blocks of their extents, with the maps of scattered ones.
    pub blocks: u64,
}

/// A page of a dead list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadPage {
    /// The page before it.
    pub previous: Option<PagePointer>,
    /// Records on this page and those before it.
    pub records: u64,
    /// The blocks of their extents.
    pub blocks: u64,
    /// The records on this page; at least one.
    pub dead: Vec<Dead>,
}

impl DeadPage {
    /// The list without this page.
    pub fn before(&self) -> DeadList {
        let here: u64 = self.dead.iter().map(Dead::blocks).sum();
        let (newest, records) = (self.previous, self.records - self.dead.len() as u64);
        DeadList { newest, records, blocks: self.blocks - here }
    }

    /// Parses a whole block.
    pub fn decode(
        block: &[u8],
        trace: Option<&mut dyn Trace>,
    ) -> Result<(Seal, DeadPage), FormatError> {
        let mut f = Fields::traced(block, trace);
        let seal = Seal::decode(&mut f, Magic::DeadPage)?;
        let previous = optional(&mut f, "previous page", None, POINTER_BYTES, PagePointer::decode)?;
        let (records, blocks) = (f.u64("records")?, f.u64("blocks")?);
        let count = f.limited("count", DEAD_PER_PAGE)?;
        let before = records.checked_sub(count as u64);
        if count == 0 || before.is_none_or(|before| (before > 0) != previous.is_some()) {
            let expected = "at least 1, and as many as the list has and pages before it have not";
            return Err(f.wrong("count", expected, count));
        }
        f.zeros("reserved", 4)?;
        let mut dead = Vec::with_capacity(count);
        for index in 0..count {
            f.enter("record", Some(index));
            dead.push(Dead::decode(&mut f)?);
            f.leave();
        }
        f.zeros_to_block_end()?;
        let here: u64 = dead.iter().map(Dead::blocks).sum();
        let before = blocks.checked_sub(here);
        if before.is_none_or(|before| (before > 0) != previous.is_some())
            || blocks > IMAGE_BLOCKS_MAX
            || records > blocks
        {
            return Err(f.wrong(
                "blocks",
                format_args!("those of pages before it and {here}"),
                blocks,
            ));
        }
        let youngest = dead.iter().map(|dead| dead.died).chain(previous.map(|page| page.birth));
        if let Some(youngest) = youngest.max().filter(|youngest| *youngest > seal.birth.epoch) {
            return Err(f.wrong("died", "no epoch beyond the page's own", youngest));
        }
        Ok((seal, DeadPage { previous, records, blocks, dead }))
    }

    /// The whole block, and the hash in its seal.
    pub fn encode(&self, birth: Birth) -> (Vec<u8>, Hash) {
        let mut w = Writer::with_capacity(BLOCK_SIZE);
        Seal::open(&mut w, Magic::DeadPage, birth);
        encode_pointer(&mut w, self.previous.as_ref());
        w.u64(self.records);
        w.u64(self.blocks);
        w.len32(self.dead.len());
        w.u32(0);
        self.dead.iter().for_each(|dead| dead.encode(&mut w));
        w.pad_to(BLOCK_SIZE);
        let mut block = w.finish();
        let hash = Seal::close(&mut block);
        (block, hash)
    }
}

impl Dead {
    /// Number of blocks of the extent, with its maps.
    pub fn blocks(&self) -> u64 {
        u64::from(self.extent.blocks) + u64::from(self.maps)
    }

    fn decode(f: &mut Fields<'_, '_>) -> Result<Dead, FormatError> {
        let extent =
            Extent { start: BlockNr(f.u64("extent start")?), blocks: f.u32("extent blocks")? };
        if !extent.is_place() {
            return Err(f.wrong("extent", "a place", extent));
        }
        let kind = f.u8("owner")?;
        let level = f.limited8("level", TABLE_LEVELS_MAX as u8 - 1)?;
        let maps = f.u16("maps")?;
        if (maps > 0) != extent.is_scattered() {
            return Err(f.wrong("maps", "some for a scattered extent, and else none", maps));
        }
        let (birth, died) = (Epoch(f.u64("birth epoch")?), Epoch(f.u64("died")?));
        let name = f.u64("name")?;
        let owner = match (kind, level) {
            (1, 0) => DeadOwner::Node(NodeId(name)),
            (2, 0) => DeadOwner::Run(NodeId(name)),
            (3, _) => DeadOwner::TablePage(level, name),
            _ => return Err(f.wrong("owner", "1 to 3, and a level for 3 alone", kind)),
        };
        if birth >= died {
            return Err(f.wrong("died", format_args!("after epoch {}", birth.0), died.0));
        }
        Ok(Dead { extent, birth, died, owner, maps })
    }

    fn encode(&self, w: &mut Writer) {
        let (kind, level, name) = match self.owner {
            DeadOwner::Node(id) => (1, 0, id.0),
            DeadOwner::Run(id) => (2, 0, id.0),
            DeadOwner::TablePage(level, index) => (3, level, index),
        };
        w.u64(self.extent.start.0);
        w.u32(self.extent.blocks);
        w.u8(kind);
        w.u8(level);
        w.u16(self.maps);
        w.u64(self.birth.0);
        w.u64(self.died.0);
        w.u64(name);
    }
}

impl DeadList {
    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<DeadList, FormatError> {
        f.enter("dead list", None);
        let newest = optional(f, "newest page", None, POINTER_BYTES, PagePointer::decode)?;
        let (records, blocks) = (f.u64("records")?, f.u64("blocks")?);
        f.within(f.at(), "blocks", blocks, IMAGE_BLOCKS_MAX)?;
        let is_some = newest.is_some();
        if is_some != (records > 0) || is_some != (blocks > 0) || records > blocks {
            return Err(f.wrong(
                "records",
                "some on pages that there are, of a block each",
                records,
            ));
        }
        f.leave();
        Ok(DeadList { newest, records, blocks })
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        encode_pointer(w, self.newest.as_ref());
        w.u64(self.records);
        w.u64(self.blocks);
    }
}

pub(super) fn encode_pointer(w: &mut Writer, pointer: Option<&PagePointer>) {
    let end = w.len() + POINTER_BYTES;
    pointer.into_iter().for_each(|pointer| pointer.encode(w));
    w.pad_to(end);
}
