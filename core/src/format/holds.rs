//! Holds: kept checkpoints, each with the dead list between the previous hold and itself.
//!
//! The superblock has pointers to 16 pages of level 1. Each of these has pointers to 80 pages of level 0, and each of
//! these has 7 holds. A new hold takes the first free place; the order of holds is that of their epochs.
//!
//! ```text
//! of the superblock, 920 bytes
//!   0  line               8   zero: the only line that there is
//!   8  held count         4
//!  12  going count        4
//!  16  newest epoch       8   of a hold that is held; 0 if none is
//!  24  held blocks        8   in use by holds alone: pages of holds and of dead lists, and the extents of these
//!  32  dead list         64   what died since the newest hold
//!  96  zero              56
//! 152  pages             48 each, 16 of them: pointers to pages of level 1
//!
//! a page
//!   0  seal              72
//!  72  level              1   0 or 1
//!  73  zero               7
//!  80  index              8   among the pages of its level
//!  88  zero               8
//!  96  7 holds of 512 bytes each, or 80 pointers of 48; then zero to 4096
//!
//! a hold
//!   0  state              4   1 held, 2 going
//!   4  flags              4   1 = its user keeps it
//!   8  epoch              8   of the checkpoint
//!  16  nonce              8
//!  24  wall time         12
//!  36  zero               4
//!  40  table root        56
//!  96  next node id       8
//! 104  next zone id       8
//! 112  next inode         5
//! 117  next tag           3
//! 120  next MSN           8
//! 128  growing messages   8
//! 136  growing bytes      8
//! 144  pending bytes      8
//! 152  nodes              8
//! 160  image blocks       8
//! 168  used blocks        8   blocks of the checkpoint; neither fixed parts nor blocks used by holds alone
//! 176  dead list         64   held: extents that died since the hold before; being dropped: extents still to be processed
//! 240  dying nodes        8   nodes without edges, which wait to be freed
//! 248  name length        1
//! 249  name             255   then zeros
//! 504  zero               8
//! ```

use super::dead::{DeadList, encode_pointer};
use super::fields::{Fields, FormatError, Trace, Writer};
use super::growth::Inflow;
use super::limits::*;
use super::next::NextNumbers;
use super::seal::{Birth, Magic, Seal};
use super::superblock::{TableRoot, decode_inflow, decode_time};
use super::table::{POINTER_BYTES, POINTERS_PER_PAGE, PagePointer, optional};
use crate::ids::*;

const HOLD_BYTES: usize = 512;
const NAME_BYTES: usize = 255;
const BODY_AT: usize = 96;
const KEPT: usize = 1;

const _: () = assert!(BODY_AT + HOLDS_PER_PAGE * HOLD_BYTES <= BLOCK_SIZE);

/// The superblock's fields on holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldsRoot {
    /// Number of holds in state held.
    pub held: u32,
    /// Number of holds being dropped.
    pub going: u32,
    /// The epoch of the newest held one; 0 if there is none.
    pub newest: Epoch,
    /// Blocks that only holds use.
    pub blocks: u64,
    /// The dead list since the newest hold.
    pub dead: DeadList,
    /// Pointers to pages of level 1.
    pub pages: [Option<PagePointer>; HOLD_ROOTS],
}

/// The state of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldState {
    /// It keeps everything that its checkpoint uses.
    Held,
    /// It is being dropped: it keeps only the extents on its list.
    Going,
}

/// A kept checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Whether it is being dropped.
    pub state: HoldState,
    /// Whether the user protects it: pruning leaves it then.
    pub kept: bool,
    /// The epoch of the checkpoint.
    pub epoch: Epoch,
    /// Its nonce.
    pub nonce: Nonce,
    /// Its wall time.
    pub wall: Time,
    /// Its allocation table.
    pub table: TableRoot,
    /// The next free node id.
    pub next_node: NodeId,
    /// The other next free numbers.
    pub next: NextNumbers,
    /// The MSN of the next message.
    pub next_msn: Msn,
    /// The inflow of its pending messages.
    pub inflow: Inflow,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of nodes without edges, which wait to be freed.
    pub dying: u64,
    /// The size of the volume then, in blocks.
    pub image_blocks: u64,
    /// Blocks of its nodes and of its allocation table.
    pub used_blocks: u64,
    /// The dead list between the previous hold and this one. For a hold being dropped, the records still to be
    /// processed.
    pub dead: DeadList,
    /// Its name; empty while it is being dropped.
    pub name: String,
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldsBody {
    /// Level 0.
    Holds([Option<Box<Hold>>; HOLDS_PER_PAGE]),
    /// Level 1.
    Pointers(Box<[Option<PagePointer>; POINTERS_PER_PAGE]>),
}

/// A page of holds, or of pointers to such pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldsPage {
    /// Its index among the pages of its level.
    pub index: u64,
    /// Holds or pointers.
    pub body: HoldsBody,
}

/// Whether a hold may have this name: UTF-8 without '/', '@' and control characters, and not '.' or '..'.
pub fn is_hold_name(name: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && c != '/' && c != '@';
    (1..=NAME_BYTES).contains(&name.len())
        && name.chars().all(is_plain)
        && name != "."
        && name != ".."
}

impl HoldsRoot {
    pub(super) const BYTES: usize = 152 + HOLD_ROOTS * POINTER_BYTES;

    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<HoldsRoot, FormatError> {
        f.enter("holds", None);
        f.zeros("line", 8)?;
        let held = f.limited("held count", HOLDS_MAX)? as u32;
        let going = f.limited("going count", HOLDS_MAX)? as u32;
        let (newest, blocks) = (Epoch(f.u64("newest epoch")?), f.u64("held blocks")?);
        let dead = DeadList::decode(f)?;
        f.zeros("reserved", 56)?;
        let mut pages = [None; HOLD_ROOTS];
        for (at, page) in pages.iter_mut().enumerate() {
            *page = optional(f, "page", Some(at), POINTER_BYTES, PagePointer::decode)?;
        }
        f.within(f.at(), "held blocks", blocks, IMAGE_BLOCKS_MAX)?;
        f.leave();
        Ok(HoldsRoot { held, going, newest, blocks, dead, pages })
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u64(0);
        w.u32(self.held);
        w.u32(self.going);
        w.u64(self.newest.0);
        w.u64(self.blocks);
        self.dead.encode(w);
        w.pad_to(w.len() + 56);
        self.pages.iter().for_each(|page| encode_pointer(w, page.as_ref()));
    }
}

impl HoldsPage {
    /// An empty page.
    pub fn empty(level: u8, index: u64) -> HoldsPage {
        let body = match level {
            0 => HoldsBody::Holds(Default::default()),
            _ => HoldsBody::Pointers(Box::new([None; POINTERS_PER_PAGE])),
        };
        HoldsPage { index, body }
    }

    /// Its level.
    pub fn level(&self) -> u8 {
        u8::from(matches!(self.body, HoldsBody::Pointers(_)))
    }

    /// Whether the page is empty.
    pub fn is_empty(&self) -> bool {
        match &self.body {
            HoldsBody::Holds(holds) => holds.iter().all(Option::is_none),
            HoldsBody::Pointers(pointers) => pointers.iter().all(Option::is_none),
        }
    }

    /// Parses a whole block.
    pub fn decode(
        block: &[u8],
        trace: Option<&mut dyn Trace>,
    ) -> Result<(Seal, HoldsPage), FormatError> {
        let mut f = Fields::traced(block, trace);
        let seal = Seal::decode(&mut f, Magic::HoldsPage)?;
        let level = f.limited8("level", 1)?;
        f.zeros("reserved", 7)?;
        let index = f.u64("index")?;
        f.zeros("reserved", 8)?;
        let mut page = HoldsPage::empty(level, index);
        let mut youngest = Epoch(0);
        match &mut page.body {
            HoldsBody::Holds(holds) => {
                for (at, hold) in holds.iter_mut().enumerate() {
                    let found = optional(&mut f, "hold", Some(at), HOLD_BYTES, Hold::decode)?;
                    *hold = found.map(Box::new);
                    youngest = youngest.max(hold.as_ref().map_or(Epoch(0), |hold| hold.epoch));
                }
            }
            HoldsBody::Pointers(pointers) => {
                for (at, pointer) in pointers.iter_mut().enumerate() {
                    *pointer =
                        optional(&mut f, "pointer", Some(at), POINTER_BYTES, PagePointer::decode)?;
                    youngest = youngest.max(pointer.map_or(Epoch(0), |page| page.birth));
                }
            }
        }
        f.zeros_to_block_end()?;
        if youngest > seal.birth.epoch {
            return Err(f.wrong("epoch", "none beyond the page's own", youngest));
        }
        if page.is_empty() {
            return Err(f.wrong("page", "something on it", "nothing"));
        }
        Ok((seal, page))
    }

    /// The whole block, and the hash in its seal.
    pub fn encode(&self, birth: Birth) -> (Vec<u8>, Hash) {
        let mut w = Writer::with_capacity(BLOCK_SIZE);
        Seal::open(&mut w, Magic::HoldsPage, birth);
        w.u8(self.level());
        w.pad_to(80);
        w.u64(self.index);
        w.u64(0);
        match &self.body {
            HoldsBody::Holds(holds) => {
                for hold in holds {
                    let end = w.len() + HOLD_BYTES;
                    hold.iter().for_each(|hold| hold.encode(&mut w));
                    w.pad_to(end);
                }
            }
            HoldsBody::Pointers(pointers) => {
                pointers.iter().for_each(|pointer| encode_pointer(&mut w, pointer.as_ref()));
            }
        }
        w.pad_to(BLOCK_SIZE);
        let mut block = w.finish();
        let hash = Seal::close(&mut block);
        (block, hash)
    }
}

impl Hold {
    fn decode(f: &mut Fields<'_, '_>) -> Result<Hold, FormatError> {
        let state = match f.u32("state")? {
            1 => HoldState::Held,
            2 => HoldState::Going,
            other => return Err(f.wrong("state", "1 or 2", other)),
        };
        let kept = f.limited("flags", KEPT)? == KEPT;
        let (epoch, nonce) = (Epoch(f.u64("epoch")?), Nonce(f.u64("nonce")?));
        let wall = decode_time(f)?;
        f.zeros("reserved", 4)?;
        let table = TableRoot::decode(f)?;
        let mut hold = Hold {
            state,
            kept,
            epoch,
            nonce,
            wall,
            table,
            next_node: NodeId(f.u64("next node id")?),
            next: NextNumbers::decode(f)?,
            next_msn: Msn(f.u64("next MSN")?),
            inflow: decode_inflow(f)?,
            nodes: f.u64("nodes")?,
            image_blocks: f.u64("image blocks")?,
            used_blocks: f.u64("used blocks")?,
            dead: DeadList::decode(f)?,
            dying: f.u64("dying nodes")?,
            name: String::new(),
        };
        hold.name = decode_name(f, state)?;
        f.zeros("reserved", 8)?;
        if table.page.birth > epoch {
            return Err(f.wrong("birth epoch", "none beyond its own", table.page.birth));
        }
        if epoch == Epoch(0) || hold.image_blocks > IMAGE_BLOCKS_MAX {
            return Err(f.wrong("epoch", "at least 1, of an image of no more than 16 TiB", epoch));
        }
        Ok(hold)
    }

    fn encode(&self, w: &mut Writer) {
        w.u32(if self.state == HoldState::Held { 1 } else { 2 });
        w.u32(if self.kept { KEPT as u32 } else { 0 });
        w.u64(self.epoch.0);
        w.u64(self.nonce.0);
        w.i64(self.wall.secs);
        w.u32(self.wall.nanos);
        w.u32(0);
        self.table.encode(w);
        w.u64(self.next_node.0);
        self.next.encode(w);
        w.u64(self.next_msn.0);
        w.u64(self.inflow.growth.messages);
        w.u64(self.inflow.growth.bytes);
        w.u64(self.inflow.bytes);
        w.u64(self.nodes);
        w.u64(self.image_blocks);
        w.u64(self.used_blocks);
        self.dead.encode(w);
        w.u64(self.dying);
        w.u8(self.name.len() as u8);
        w.bytes(self.name.as_bytes());
    }
}

fn decode_name(f: &mut Fields<'_, '_>, state: HoldState) -> Result<String, FormatError> {
    let len = usize::from(f.u8("name length")?);
    let bytes = f.bytes("name", len)?;
    let name = std::str::from_utf8(bytes).ok().filter(|name| match state {
        HoldState::Held => is_hold_name(name),
        HoldState::Going => name.is_empty(),
    });
    let name = name.ok_or_else(|| {
        let expected = "UTF-8 without '/', '@' and control characters; none if it is going";
        f.wrong("name", expected, crate::text::Printable(bytes))
    })?;
    f.zeros("reserved", NAME_BYTES - len)?;
    Ok(name.to_owned())
}
