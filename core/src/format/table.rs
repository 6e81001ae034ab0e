//! Pages of the allocation table: a copy-on-write radix tree from node ids to extents.
//!
//! ```text
//!  0  seal        72
//! 72  level        1   0 for a page of entries
//! 73  zero         7
//! 80  index        8   the page's place among those of its level
//! 88  zero         8
//! 96  entries or pointers, then zero to 4096
//! ```
//!
//! A page of level 0 and index i has the entries of nodes i·62 to i·62+61, of 64 bytes each; a page of a higher level
//! has 80 pointers of 48 bytes. An absent entry or pointer is all zero.

use super::fields::{Fields, FormatError, Trace, Writer};
use super::limits::{HEAD_MAX, HEIGHT_MAX, TABLE_LEVELS_MAX};
use super::seal::{Birth, Magic, Seal};
use crate::ids::*;

/// Entries in a page of level 0.
pub const ENTRIES_PER_PAGE: usize = 62;
/// Pointers in a page of a higher level.
pub const POINTERS_PER_PAGE: usize = 80;
const ENTRY_BYTES: usize = 64;
/// Bytes of a page pointer.
pub(super) const POINTER_BYTES: usize = 48;
const BODY_AT: usize = 96;

const _: () = assert!(BODY_AT + ENTRIES_PER_PAGE * ENTRY_BYTES <= BLOCK_SIZE);
const _: () = assert!(BODY_AT + POINTERS_PER_PAGE * POINTER_BYTES <= BLOCK_SIZE);

/// An entry: the place of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The extent of the leaf, or of the internal node's head.
    pub extent: Extent,
    /// The length of the head in bytes.
    pub head_bytes: u32,
    /// The hash in the head's seal.
    pub hash: Hash,
    /// The epoch that the extent was written for.
    pub birth: Epoch,
    /// Number of edges to the node; a root has one, and a node that waits to be freed has none.
    pub references: u32,
    /// The tree that the node belongs to.
    pub tree: TreeId,
    /// Its height.
    pub height: Height,
}

/// A pointer to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePointer {
    /// The block.
    pub block: BlockNr,
    /// The epoch that it was written for.
    pub birth: Epoch,
    /// The hash in its seal.
    pub hash: Hash,
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageBody {
    /// Level 0.
    Entries(Box<[Option<Entry>; ENTRIES_PER_PAGE]>),
    /// Higher levels.
    Pointers(Box<[Option<PagePointer>; POINTERS_PER_PAGE]>),
}

/// One page of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage {
    /// Its level; entries are at level 0.
    pub level: u8,
    /// Its index among the pages of its level.
    pub index: u64,
    /// Entries or pointers.
    pub body: PageBody,
}

impl TablePage {
    /// Whether the page is empty.
    pub fn is_empty(&self) -> bool {
        match &self.body {
            PageBody::Entries(entries) => entries.iter().all(Option::is_none),
            PageBody::Pointers(pointers) => pointers.iter().all(Option::is_none),
        }
    }

    /// An empty page.
    pub fn empty(level: u8, index: u64) -> TablePage {
        let body = match level {
            0 => PageBody::Entries(Box::new([None; ENTRIES_PER_PAGE])),
            _ => PageBody::Pointers(Box::new([None; POINTERS_PER_PAGE])),
        };
        TablePage { level, index, body }
    }

    /// Parses a whole block.
    pub fn decode(
        block: &[u8],
        trace: Option<&mut dyn Trace>,
    ) -> Result<(Seal, TablePage), FormatError> {
        let mut f = Fields::traced(block, trace);
        let seal = Seal::decode(&mut f, Magic::TablePage)?;
        let level = f.u8("level")?;
        f.within(72, "level", level.into(), (TABLE_LEVELS_MAX - 1).into())?;
        f.zeros("reserved", 7)?;
        let index = f.u64("index")?;
        f.zeros("reserved", 8)?;
        let mut page = TablePage::empty(level, index);
        match &mut page.body {
            PageBody::Entries(entries) => {
                for (i, entry) in entries.iter_mut().enumerate() {
                    *entry = optional(&mut f, "entry", Some(i), ENTRY_BYTES, Entry::decode)?;
                }
            }
            PageBody::Pointers(pointers) => {
                for (i, pointer) in pointers.iter_mut().enumerate() {
                    *pointer =
                        optional(&mut f, "pointer", Some(i), POINTER_BYTES, PagePointer::decode)?;
                }
            }
        }
        f.zeros_to_block_end()?;
        if page.youngest() > seal.birth.epoch {
            return Err(f.wrong("birth epoch", "none beyond the page's own", page.youngest()));
        }
        Ok((seal, page))
    }

    /// The latest birth of the page's entries or pointers.
    fn youngest(&self) -> Epoch {
        let birth = match &self.body {
            PageBody::Entries(entries) => entries.iter().flatten().map(|entry| entry.birth).max(),
            PageBody::Pointers(pointers) => pointers.iter().flatten().map(|page| page.birth).max(),
        };
        birth.unwrap_or_default()
    }

    /// The whole block, and the hash in its seal.
    pub fn encode(&self, birth: Birth) -> (Vec<u8>, Hash) {
        let mut w = Writer::with_capacity(BLOCK_SIZE);
        Seal::open(&mut w, Magic::TablePage, birth);
        w.u8(self.level);
        w.pad_to(80);
        w.u64(self.index);
        w.u64(0);
        match &self.body {
            PageBody::Entries(entries) => {
                for entry in entries.iter() {
                    let end = w.len() + ENTRY_BYTES;
                    if let Some(entry) = entry {
                        entry.encode(&mut w);
                    }
                    w.pad_to(end);
                }
            }
            PageBody::Pointers(pointers) => {
                for pointer in pointers.iter() {
                    let end = w.len() + POINTER_BYTES;
                    if let Some(pointer) = pointer {
                        pointer.encode(&mut w);
                    }
                    w.pad_to(end);
                }
            }
        }
        w.pad_to(BLOCK_SIZE);
        let mut block = w.finish();
        let hash = Seal::close(&mut block);
        (block, hash)
    }
}

/// Reads an optional field, which is all zero if absent.
pub(super) fn optional<'a, 't, T>(
    f: &mut Fields<'a, 't>,
    name: &'static str,
    index: Option<usize>,
    bytes: usize,
    decode: impl FnOnce(&mut Fields<'a, 't>) -> Result<T, FormatError>,
) -> Result<Option<T>, FormatError> {
    f.enter(name, index);
    let at = f.at();
    let absent = f.all().get(at..at + bytes).is_some_and(|b| b.iter().all(|byte| *byte == 0));
    let value = if absent {
        f.zeros("absent", bytes)?;
        None
    } else {
        Some(decode(f)?)
    };
    f.leave();
    Ok(value)
}

impl Entry {
    fn decode(f: &mut Fields<'_, '_>) -> Result<Entry, FormatError> {
        let start = BlockNr(f.u64("extent start")?);
        let blocks = f.u32("extent blocks")?;
        let head_bytes = f.limited("head length", HEAD_MAX)? as u32;
        let extent = Extent { start, blocks };
        if !extent.is_place() || u64::from(head_bytes) > u64::from(blocks) * BLOCK_SIZE as u64 {
            return Err(f.wrong(
                "extent",
                "a place with room for the head",
                format_args!("{}+{blocks}", start.0),
            ));
        }
        let hash = f.hash("hash")?;
        let birth = Epoch(f.u64("birth epoch")?);
        let references = f.u32("references")?;
        let code = f.u8("tree")?;
        let tree = TreeId::from_code(code).ok_or_else(|| f.wrong("tree", "1 or 2", code))?;
        let height = f.u8("height")?;
        f.within(f.at() - 1, "height", height.into(), HEIGHT_MAX.into())?;
        f.zeros("reserved", 2)?;
        Ok(Entry { extent, head_bytes, hash, birth, references, tree, height: Height(height) })
    }

    fn encode(&self, w: &mut Writer) {
        w.u64(self.extent.start.0);
        w.u32(self.extent.blocks);
        w.u32(self.head_bytes);
        w.hash(&self.hash);
        w.u64(self.birth.0);
        w.u32(self.references);
        w.u8(self.tree.code());
        w.u8(self.height.0);
        w.u16(0);
    }
}

impl PagePointer {
    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<PagePointer, FormatError> {
        let block = f.u64("block")?;
        f.within(f.at() - 8, "block", block, SCATTERED - 1)?;
        if block == 0 {
            return Err(f.wrong("block", "an address", block));
        }
        let birth = Epoch(f.u64("birth epoch")?);
        let hash = f.hash("hash")?;
        Ok(PagePointer { block: BlockNr(block), birth, hash })
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u64(self.block.0);
        w.u64(self.birth.0);
        w.hash(&self.hash);
    }
}
