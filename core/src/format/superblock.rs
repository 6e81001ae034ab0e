//! A superblock slot: everything needed to open the volume as of one checkpoint.
//!
//! ```text
//!   0  seal             72
//!  72  slot              4   its own index in the ring
//!  76  version           4
//!  80  features         24   compatible, read-only compatible, incompatible: a u64 each
//! 104  hash algorithm    2   1 = SHA-256
//! 106  block shift       2   12
//! 108  node size         4
//! 112  leaf size         4
//! 116  basement size     4
//! 120  fanout            4
//! 124  log unit          4   bytes
//! 128  image blocks      8
//! 136  log start         8   block
//! 144  log units         8
//! 152  log head          8   the unit where this epoch's first group starts
//! 160  first group       8   its number
//! 168  dying nodes       8   nodes without edges, which wait to be freed
//! 176  map pages         8   of the space map
//! 184  map hash         32   SHA-256 of the hashes of the current pages, in order
//! 216  table root       56   the pointer of the allocation table's root page, and its levels
//! 272  metadata root     8   node id
//! 280  data root         8   node id
//! 288  next node id      8
//! 296  next zone id      8
//! 304  next inode        5
//! 309  next tag          3   of cloned directories
//! 312  next MSN          8
//! 320  zone minimum      8   C0 in bytes
//! 328  zone maximum      8   C1 in bytes; at most half of the log
//! 336  wall time        12   of the checkpoint: seconds, nanoseconds
//! 348  zero              4
//! 352  used blocks       8
//! 360  log epoch         8   epoch and nonce of the groups that continue this superblock
//! 368  log nonce         8
//! 376  growing messages  8   pending messages that may make leaves longer
//! 384  growing bytes     8   by how many bytes they may
//! 392  pending bytes     8   of all live slices
//! 400  nodes             8   entries of the allocation table
//! 408  prune count       4
//! 412  zero              4
//! 416  prunes               136 each: tree 4, lengths of the bounds 2 + 2, bounds 64 + 64, zero padded
//!      zero to 2912
//! 2912 holds           920
//! 3832 map segments    264   where the space map is
//! ```
//!
//! What a new field needs. The compiler finds the literals that name all fields (`decode` here, `unborn`, the sample in
//! `tests/all/format.rs`); all others end in `..`. What builds superblocks, and what one field touches, here `dying`, is shown by
//! `grep -rnE 'Superblock \{|\b(superblock_of|unborn|superblock_now)\(|\bdying\b' --include=*.rs core offline lab tools tests`.
//!
//! 1. Its bytes, in a gap of the layout above that `decode` reads as zeros: `decode` with the checks at its end, `encode`. SPEC 4.1 and 13,
//!    `limits::FORMAT_VERSION`, CHANGELOG; `format/vectors` and the sample in `tests/all/format.rs`; docs/DATA_FILE.md.
//! 2. Its first value: `volume::create::unborn`, from which `create`, `volume::raise` and `volume::rooted` start.
//! 3. Its value in each checkpoint: `volume::checkpoint`. The literal there ends in `..self.superblock.clone()`, so a field that it
//!    does not name keeps its old value without an error. Within an epoch: `superblock_now`; `volume::grow` and
//!    `volume::clone` assign fields.
//! 4. Its use: `volume::open`; `space::Layout` for a region with a fixed place.
//! 5. Snapshots: `volume::holds::superblock_of` ends in `..live.clone()`, so a hold has the live volume's value. If it keeps
//!    its own: `format::Hold`, the hold that `volume::checkpoint` makes, SPEC 6.1, and a rollback (`volume::rollback`, `Store::begin_anew`).
//! 6. A lost superblock: `volume::raise` ends in the older superblock or an unborn one; SPEC 10.6.
//! 7. Checker: its comparison with what is there (`check::{mod,fixed,table,links,owners,holds}`), with a finding. Mender:
//!    `mend::mend` ends in `..superblock`.
//! 8. Redaction: a hash of what packs change is recomputed (`offline::redact::fixed`); PACK.md. Blocks that it points to have to be
//!    found (`offline::anatomy`, `offline::redact`).
//! 9. Displays by hand: `tools/volume/src/info/show.rs` (text and JSON), `tools/dump/src/superblock.rs` (a line for each slot),
//!    `tools/tui-inspect/src/query/facts.rs`. Dumps of fields, `dump diff` and the hex view follow `decode`.
//! 10. Tests: the fields in `LEGAL` of `tests/all/matrix.rs`, whose damage may leave an image sound, with DAMAGE.md (`BETR_BLESS=1`);
//!     forged values in `tests/all/crafted/tables.rs`, and `Forge` if it counts something.

use super::fields::{Fields, FormatError, Trace, Writer};
use super::growth::{Growth, Inflow};
use super::holds::HoldsRoot;
use super::key::Key;
use super::limits::*;
use super::next::NextNumbers;
use super::seal::{Birth, Magic, Seal};
use super::segments::Segments;
use super::table::PagePointer;
use super::zones::ZoneSizes;
use crate::ids::*;

/// The code of SHA-256.
pub const HASH_SHA256: u16 = 1;
const BLOCK_SHIFT: u16 = 12;
const SEGMENTS_AT: usize = BLOCK_SIZE - 8 * (1 + SEGMENTS_MAX);
const HOLDS_AT: usize = SEGMENTS_AT - HoldsRoot::BYTES;
const PRUNE_BYTES: usize = 8 + 2 * PRUNE_KEY_MAX;

/// The feature bits, in the three classes that ext4 made standard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// May be ignored.
    pub compatible: u64,
    /// May be ignored by a reader that does not write.
    pub read_only: u64,
    /// May not be ignored.
    pub incompatible: u64,
}

impl Features {
    /// Incompatible: the trees hold keys and values of an application, not a file system.
    pub const KEYS: u64 = 1;
    /// Read-only compatible: nodes may have several edges, and edges a lens.
    pub const SHARED: u64 = 1;

    /// Those bits of the read-only class that this version does not know.
    pub fn unknown_read_only(&self) -> u64 {
        self.read_only & !Features::SHARED
    }

    /// Whether nodes may have several edges, and edges a lens.
    pub fn shares(&self) -> bool {
        self.read_only & Features::SHARED != 0
    }
}

/// The root of an allocation table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRoot {
    /// The root page.
    pub page: PagePointer,
    /// Levels of pages; at least 1.
    pub levels: u32,
}

/// A range of keys with leaves that pending range deletes may cover entirely: these can be dropped unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneRange {
    /// The tree.
    pub tree: TreeId,
    /// The lower bound; at most [`PRUNE_KEY_MAX`] bytes.
    pub lo: Key,
    /// The upper bound, greater than `lo`; at most [`PRUNE_KEY_MAX`] bytes.
    pub hi: Key,
}

/// One slot of the superblock ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Volume, epoch and nonce.
    pub birth: Birth,
    /// Its index in the ring.
    pub slot: u32,
    /// The feature bits.
    pub features: Features,
    /// Target size of an internal node's buffers, in bytes.
    pub node_size: u32,
    /// Target size of a leaf, in bytes.
    pub leaf_size: u32,
    /// Target size of a basement, in bytes.
    pub basement_size: u32,
    /// The most children of an internal node.
    pub fanout: u32,
    /// Size of the image, in blocks.
    pub image_blocks: u64,
    /// The first block of the log.
    pub log_start: BlockNr,
    /// The length of the log in units of a block.
    pub log_units: u64,
    /// The unit where this epoch's first group starts.
    pub log_head: u64,
    /// The number of this epoch's first group.
    pub first_group: u64,
    /// Number of nodes without edges, which wait to be freed.
    pub dying: u64,
    /// The segments of the space map.
    pub map: Segments,
    /// Number of pages of the space map.
    pub map_pages: u64,
    /// The hash over the hashes of its current pages.
    pub map_hash: Hash,
    /// The allocation table.
    pub table: TableRoot,
    /// The next free node id.
    pub next_node: NodeId,
    /// The other next free numbers.
    pub next: NextNumbers,
    /// The MSN of the next message.
    pub next_msn: Msn,
    /// The zone sizes.
    pub zones: ZoneSizes,
    /// The wall time of the checkpoint.
    pub wall: Time,
    /// Blocks in use.
    pub used_blocks: u64,
    /// The epoch of the log groups that continue this superblock: its own, or for a checkpoint during a recovery, that
    /// of the log being replayed.
    pub log_epoch: Epoch,
    /// The nonce of that epoch.
    pub log_nonce: Nonce,
    /// The inflow of all pending messages.
    pub inflow: Inflow,
    /// Number of nodes.
    pub nodes: u64,
    /// Ranges where range deletes may cover whole leaves; at most [`PRUNES_MAX`]. An empty list is always valid: it
    /// only delays the freeing of such leaves until other operations reach them.
    pub prunes: Vec<PruneRange>,
    /// The holds.
    pub holds: HoldsRoot,
}

impl Superblock {
    /// Parses a whole slot.
    pub fn decode(block: &[u8], trace: Option<&mut dyn Trace>) -> Result<Superblock, FormatError> {
        let mut f = Fields::traced(block, trace);
        let seal = Seal::decode(&mut f, Magic::Superblock)?;
        let slot = f.limited("slot", SUPERBLOCK_SLOTS as usize - 1)? as u32;
        expect(&mut f, "version", FORMAT_VERSION)?;
        let features = Features {
            compatible: f.u64("compatible features")?,
            read_only: f.u64("read-only compatible features")?,
            incompatible: f.u64("incompatible features")?,
        };
        let algorithm = f.u16("hash algorithm")?;
        if algorithm != HASH_SHA256 {
            return Err(f.wrong("hash algorithm", HASH_SHA256, algorithm));
        }
        let shift = f.u16("block shift")?;
        if shift != BLOCK_SHIFT {
            return Err(f.wrong("block shift", BLOCK_SHIFT, shift));
        }
        let node_size = sized(&mut f, "node size", NODE_SIZE)?;
        let leaf_size = sized(&mut f, "leaf size", LEAF_SIZE)?;
        let basement_size = sized(&mut f, "basement size", BASEMENT_SIZE)?;
        let fanout = sized(&mut f, "fanout", FANOUT)?;
        expect(&mut f, "log unit", BLOCK_SIZE as u32)?;
        let mut superblock = Superblock {
            birth: seal.birth,
            slot,
            features,
            node_size,
            leaf_size,
            basement_size,
            fanout,
            image_blocks: f.u64("image blocks")?,
            log_start: BlockNr(f.u64("log start")?),
            log_units: f.u64("log units")?,
            log_head: f.u64("log head")?,
            first_group: f.u64("first group")?,
            dying: f.u64("dying nodes")?,
            map: Segments::one(BlockNr(1), 1),
            map_pages: f.u64("map pages")?,
            map_hash: f.hash("map hash")?,
            table: TableRoot::decode(&mut f)?,
            next_node: {
                for tree in TreeId::ALL {
                    let root = f.u64("root node")?;
                    if root != tree.root().0 {
                        return Err(f.wrong("root node", tree.root().0, root));
                    }
                }
                NodeId(f.u64("next node id")?)
            },
            next: NextNumbers::decode(&mut f)?,
            next_msn: Msn(f.u64("next MSN")?),
            zones: ZoneSizes::decode(&mut f)?,
            wall: decode_time(&mut f)?,
            used_blocks: {
                f.zeros("reserved", 4)?;
                f.u64("used blocks")?
            },
            log_epoch: Epoch(f.u64("log epoch")?),
            log_nonce: Nonce(f.u64("log nonce")?),
            inflow: decode_inflow(&mut f)?,
            nodes: f.u64("nodes")?,
            prunes: Vec::new(),
            holds: HoldsRoot::default(),
        };
        let prunes = f.limited("prune count", PRUNES_MAX)?;
        f.zeros("reserved", 4)?;
        superblock.prunes = each(&mut f, "prune", prunes, PruneRange::decode)?;
        f.zeros("reserved", HOLDS_AT.saturating_sub(f.at()))?;
        superblock.holds = HoldsRoot::decode(&mut f)?;
        superblock.map = Segments::decode(&mut f)?;
        f.zeros_to_block_end()?;
        superblock.geometry(&f)?;
        let holds = &superblock.holds;
        let named = holds.pages.iter().flatten().chain(&holds.dead.newest);
        let births =
            named.map(|page| page.birth).chain([superblock.table.page.birth, holds.newest]);
        if let Some(birth) = births.max().filter(|birth| *birth > seal.birth.epoch) {
            return Err(f.wrong("birth epoch", "none beyond its own", birth));
        }
        let most = [
            ("next node id", superblock.next_node.0, NODES_END),
            ("next MSN", superblock.next_msn.0, NUMBERS_END),
            ("first group", superblock.first_group, NUMBERS_END),
            ("epoch", seal.birth.epoch.0, NUMBERS_END),
        ];
        if let Some((name, found, end)) = most.into_iter().find(|(_, found, end)| found >= end) {
            return Err(f.wrong(name, format_args!("less than {end}"), found));
        }
        if superblock.next_node <= TreeId::Data.root() || seal.birth.epoch == Epoch(0) {
            return Err(f.wrong("next node id", "more than the roots", superblock.next_node));
        }
        let (own, log) = (seal.birth, (superblock.log_epoch, superblock.log_nonce));
        if log.0 > own.epoch || (log.0 == own.epoch && log.1 != own.nonce) {
            return Err(f.wrong("log epoch", "its own or an earlier one", superblock.log_epoch));
        }
        let least =
            [("first group", superblock.first_group, 1), ("next MSN", superblock.next_msn.0, 1)];
        if let Some((name, found, least)) = least.into_iter().find(|(_, found, min)| found < min) {
            return Err(f.wrong(name, format_args!("at least {least}"), found));
        }
        superblock.next.check_least(&f)?;
        Ok(superblock)
    }

    /// Checks that the fixed regions are in the image, in order and disjoint.
    fn geometry(&self, f: &Fields<'_, '_>) -> Result<(), FormatError> {
        let blocks = self.image_blocks;
        f.within(128, "image blocks", blocks, IMAGE_BLOCKS_MAX)?;
        if blocks < IMAGE_BLOCKS_MIN {
            return Err(f.wrong(
                "image blocks",
                format_args!("at least {IMAGE_BLOCKS_MIN}"),
                blocks,
            ));
        }
        f.within(144, "log units", self.log_units, LOG_BYTES_MAX / BLOCK_SIZE as u64)?;
        let merged_max = ZoneSizes::merged_max(self.log_units * BLOCK_SIZE as u64);
        f.within(320, "zone minimum", self.zones.min, merged_max)?;
        f.within(136, "log start", self.log_start.0, blocks)?;
        if self.log_head >= self.log_units {
            return Err(f.wrong(
                "log head",
                format_args!("below {}", self.log_units),
                self.log_head,
            ));
        }
        let pages = blocks.div_ceil(super::spacemap::BITS_PER_PAGE as u64);
        if self.map_pages != pages {
            return Err(f.wrong("map pages", pages, self.map_pages));
        }
        let (log_end, map) = (self.log_start.0 + self.log_units, &self.map);
        if log_end > map.start().0 || map.end().0 > blocks || self.map_pages > map.pages() {
            let expected = format_args!("{pages} pages or more in blocks {log_end} to {blocks}");
            let found = format_args!("{} pages up to {}", map.pages(), map.end());
            return Err(f.wrong("map segments", expected, found));
        }
        Ok(())
    }

    /// The whole slot.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(BLOCK_SIZE);
        Seal::open(&mut w, Magic::Superblock, self.birth);
        w.u32(self.slot);
        w.u32(FORMAT_VERSION);
        w.u64(self.features.compatible);
        w.u64(self.features.read_only);
        w.u64(self.features.incompatible);
        w.u16(HASH_SHA256);
        w.u16(BLOCK_SHIFT);
        w.u32(self.node_size);
        w.u32(self.leaf_size);
        w.u32(self.basement_size);
        w.u32(self.fanout);
        w.u32(BLOCK_SIZE as u32);
        w.u64(self.image_blocks);
        w.u64(self.log_start.0);
        w.u64(self.log_units);
        w.u64(self.log_head);
        w.u64(self.first_group);
        w.u64(self.dying);
        w.u64(self.map_pages);
        w.hash(&self.map_hash);
        self.table.encode(&mut w);
        for tree in TreeId::ALL {
            w.u64(tree.root().0);
        }
        w.u64(self.next_node.0);
        self.next.encode(&mut w);
        w.u64(self.next_msn.0);
        self.zones.encode(&mut w);
        w.i64(self.wall.secs);
        w.u32(self.wall.nanos);
        w.u32(0);
        w.u64(self.used_blocks);
        w.u64(self.log_epoch.0);
        w.u64(self.log_nonce.0);
        w.u64(self.inflow.growth.messages);
        w.u64(self.inflow.growth.bytes);
        w.u64(self.inflow.bytes);
        w.u64(self.nodes);
        w.len32(self.prunes.len());
        w.u32(0);
        self.prunes.iter().for_each(|prune| prune.encode(&mut w));
        w.pad_to(HOLDS_AT);
        self.holds.encode(&mut w);
        assert_eq!(w.len(), SEGMENTS_AT, "holds take the bytes that are theirs");
        self.map.encode(&mut w);
        let mut block = w.finish();
        Seal::close(&mut block);
        block
    }
}

impl TableRoot {
    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<TableRoot, FormatError> {
        f.enter("table root", None);
        let page = PagePointer::decode(f)?;
        let levels = sized(f, "levels", 1..=TABLE_LEVELS_MAX)?;
        f.zeros("reserved", 4)?;
        f.leave();
        Ok(TableRoot { page, levels })
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        self.page.encode(w);
        w.u32(self.levels);
        w.u32(0);
    }
}

pub(super) fn decode_inflow(f: &mut Fields<'_, '_>) -> Result<Inflow, FormatError> {
    let mut number = |name| {
        let found = f.u64(name)?;
        f.within(f.at() - 8, name, found, INFLOW_MAX)?;
        Ok(found)
    };
    let growth = Growth { messages: number("growing messages")?, bytes: number("growing bytes")? };
    Ok(Inflow { growth, bytes: number("pending bytes")? })
}

impl PruneRange {
    /// A range that includes `[lo, hi)` and has short enough bounds. `None` if no short bound is greater than all its
    /// keys.
    pub fn holding(tree: TreeId, lo: &Key, hi: &Key) -> Option<PruneRange> {
        let lo = Key::copied(&lo[..lo.len().min(PRUNE_KEY_MAX)]);
        if hi.len() <= PRUNE_KEY_MAX {
            return Some(PruneRange { tree, lo, hi: hi.clone() });
        }
        // The least key greater than all that have its first bytes as a prefix.
        let last = hi[..PRUNE_KEY_MAX].iter().rposition(|byte| *byte < 0xff)?;
        let mut end = hi[..=last].to_vec();
        end[last] += 1;
        Some(PruneRange { tree, lo, hi: Key::copied(&end) })
    }

    fn decode(f: &mut Fields<'_, '_>) -> Result<PruneRange, FormatError> {
        let code = f.u32("tree")?;
        let tree = u8::try_from(code).ok().and_then(TreeId::from_code);
        let tree = tree.ok_or_else(|| f.wrong("tree", "1 or 2", code))?;
        let lo = f.short_limited("lower bound length", PRUNE_KEY_MAX)?;
        let hi = f.short_limited("upper bound length", PRUNE_KEY_MAX)?;
        let mut bound = |name, len| {
            let key = Key::copied(f.bytes(name, len)?);
            f.zeros("reserved", PRUNE_KEY_MAX - len)?;
            Ok(key)
        };
        let (lo, hi) = (bound("lower bound", lo)?, bound("upper bound", hi)?);
        match lo < hi {
            true => Ok(PruneRange { tree, lo, hi }),
            false => Err(f.wrong("upper bound", "more than the lower bound", "less")),
        }
    }

    fn encode(&self, w: &mut Writer) {
        let end = w.len() + PRUNE_BYTES;
        w.u32(self.tree.code().into());
        w.len16(self.lo.len());
        w.len16(self.hi.len());
        w.bytes(&self.lo);
        w.pad_to(end - PRUNE_KEY_MAX);
        w.bytes(&self.hi);
        w.pad_to(end);
    }
}

/// Reads `count` items of one kind.
fn each<T>(
    f: &mut Fields<'_, '_>,
    name: &'static str,
    count: usize,
    decode: fn(&mut Fields<'_, '_>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    let one = |index| {
        f.enter(name, Some(index));
        let one = decode(f)?;
        f.leave();
        Ok(one)
    };
    (0..count).map(one).collect()
}

pub(super) fn decode_time(f: &mut Fields<'_, '_>) -> Result<Time, FormatError> {
    let secs = f.i64("wall seconds")?;
    let nanos = f.limited("wall nanoseconds", 999_999_999)? as u32;
    Ok(Time { secs, nanos })
}

fn expect(f: &mut Fields<'_, '_>, name: &'static str, value: u32) -> Result<(), FormatError> {
    let found = f.u32(name)?;
    if found != value {
        return Err(f.wrong(name, value, found));
    }
    Ok(())
}

fn sized(
    f: &mut Fields<'_, '_>,
    name: &'static str,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, FormatError> {
    let found = f.u32(name)?;
    if !range.contains(&found) {
        return Err(f.wrong(name, format_args!("{} to {}", range.start(), range.end()), found));
    }
    Ok(found)
}
