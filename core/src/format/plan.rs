//! Repair plans: changes of blocks of an image, in groups, stored in a separate file.
//!
//! ```text
//! header, one block
//!    0  seal               72   of the superblock that the changes begin with; zeros if there is none
//!   72  version             4
//!   76  kind                4   1 repair, 2 undoes a repair
//!   80  image blocks        8
//!   88  base hash          32   of the fixed places before
//!  120  result hash        32   of the fixed places afterwards
//!  152  body hash          32   of everything behind the header
//!  184  explanation bytes   4
//!  188  groups              4
//!  192  changes             8
//!  200  fixed places        4   how many
//!  204  corrects            4   1 if there were errors before, 0 if not
//!  208  fixed place        16   first block 8, blocks 4, zero 4
//!    …  zero
//! then the explanation, padded with zeros to whole blocks; then the changes
//!    0  block               8
//!    8  group               4
//!   12  zero                4
//!   16  old bytes        4096
//! 4112  new bytes        4096
//! ```

use super::fields::{Fields, FormatError, Trace, Writer};
use super::limits::{
    IMAGE_BLOCKS_MAX, PLAN_CHANGES_MAX, PLAN_PLACES_BLOCKS_MAX, PLAN_PLACES_MAX, PLAN_TEXT_MAX,
    PLAN_VERSION,
};
use super::seal::{Birth, Magic, SEAL_BYTES, Seal};
use crate::ids::*;

/// Bytes of a change.
pub const CHANGE_BYTES: usize = 16 + 2 * BLOCK_SIZE;
/// 64 blocks: the fixed places begin with at least these.
const FRONT_BLOCKS: u32 = 64;

/// The bytes of a block.
pub type BlockBytes = Box<[u8; BLOCK_SIZE]>;

/// The purpose of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// It repairs an image.
    Repair,
    /// It reverts a repair.
    Undo,
}

/// The first block of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanHeader {
    /// The seal of the superblock that the changes begin with; all zero if there is none.
    pub birth: Birth,
    /// Its purpose.
    pub kind: PlanKind,
    /// Size of the image, in blocks.
    pub image_blocks: u64,
    /// The hash of the fixed places before the first change.
    pub base: Hash,
    /// The hash of the fixed places after the last change.
    pub result: Hash,
    /// The hash of everything after the header.
    pub body: Hash,
    /// The length of the explanation, without its padding.
    pub explanation_bytes: usize,
    /// Number of groups. All changes of a group are durable before any of the next is written.
    pub groups: u32,
    /// Number of changes.
    pub changes: u64,
    /// The fixed places, which the hashes are taken of.
    pub fixed: Vec<Extent>,
    /// Whether the repair corrects errors. If not, there were only notes, such as a log to be replayed.
    pub corrects: bool,
}

/// A change of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The block.
    pub block: BlockNr,
    /// Its group, from 1.
    pub group: u32,
    /// The bytes before.
    pub old: BlockBytes,
    /// The bytes after.
    pub new: BlockBytes,
}

impl PlanKind {
    fn code(self) -> u32 {
        match self {
            PlanKind::Repair => 1,
            PlanKind::Undo => 2,
        }
    }
}

impl PlanHeader {
    /// Parses a whole block.
    pub fn decode(block: &[u8], trace: Option<&mut dyn Trace>) -> Result<PlanHeader, FormatError> {
        let mut f = Fields::traced(block, trace);
        let seal = Seal::decode(&mut f, Magic::Plan)?;
        let version = f.u32("version")?;
        if version != PLAN_VERSION {
            return Err(f.wrong("version", PLAN_VERSION, version));
        }
        let kind = match f.u32("kind")? {
            1 => PlanKind::Repair,
            2 => PlanKind::Undo,
            other => return Err(f.wrong("kind", "1 or 2", other)),
        };
        let image_blocks = f.u64("image blocks")?;
        f.within(80, "image blocks", image_blocks, IMAGE_BLOCKS_MAX)?;
        let (base, result) = (f.hash("base hash")?, f.hash("result hash")?);
        let body = f.hash("body hash")?;
        let explanation_bytes = f.limited("explanation bytes", PLAN_TEXT_MAX)?;
        let groups = f.u32("groups")?;
        let changes = f.u64("changes")?;
        f.within(192, "changes", changes, PLAN_CHANGES_MAX)?;
        if groups == 0 || u64::from(groups) > changes {
            return Err(f.wrong("groups", "1 to as many as changes", groups));
        }
        let places = f.limited("fixed places", PLAN_PLACES_MAX)?;
        let corrects = match f.u32("corrects")? {
            0 => false,
            1 => true,
            other => return Err(f.wrong("corrects", "0 or 1", other)),
        };
        let mut fixed = Vec::with_capacity(places);
        for index in 0..places {
            f.enter("fixed place", Some(index));
            let (start, blocks) = (BlockNr(f.u64("first block")?), f.u32("blocks")?);
            f.zeros("reserved", 4)?;
            f.leave();
            fixed.push(Extent { start, blocks });
        }
        if !are_places(&fixed, image_blocks) {
            let expected = "places in order within the image, the first 64 blocks among them";
            return Err(f.wrong("fixed places", expected, "others"));
        }
        f.zeros_to_block_end()?;
        let birth = seal.birth;
        Ok(PlanHeader {
            birth,
            kind,
            image_blocks,
            base,
            result,
            body,
            explanation_bytes,
            groups,
            changes,
            fixed,
            corrects,
        })
    }

    /// The whole block.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(BLOCK_SIZE);
        Seal::open(&mut w, Magic::Plan, self.birth);
        debug_assert_eq!(w.len(), SEAL_BYTES);
        w.u32(PLAN_VERSION);
        w.u32(self.kind.code());
        w.u64(self.image_blocks);
        w.hash(&self.base);
        w.hash(&self.result);
        w.hash(&self.body);
        w.len32(self.explanation_bytes);
        w.u32(self.groups);
        w.u64(self.changes);
        w.len32(self.fixed.len());
        w.u32(u32::from(self.corrects));
        for place in &self.fixed {
            w.u64(place.start.0);
            w.u32(place.blocks);
            w.u32(0);
        }
        w.pad_to(BLOCK_SIZE);
        let mut block = w.finish();
        Seal::close(&mut block);
        block
    }

    /// The byte offset of the first change.
    pub fn changes_at(&self) -> u64 {
        (BLOCK_SIZE + self.explanation_bytes.next_multiple_of(BLOCK_SIZE)) as u64
    }

    /// The byte offset of a change.
    pub fn change_at(&self, number: u64) -> u64 {
        self.changes_at() + number * CHANGE_BYTES as u64
    }

    /// The length of the plan, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.change_at(self.changes)
    }
}

/// Whether these are valid fixed places of an image.
fn are_places(fixed: &[Extent], image_blocks: u64) -> bool {
    let first = fixed.first().is_some_and(|place| place.start == BlockNr(0));
    let front = fixed.first().is_some_and(|place| place.blocks >= FRONT_BLOCKS);
    let apart = fixed.windows(2).all(|pair| pair[0].end() < pair[1].start);
    let last = fixed.last().is_some_and(|place| place.end().0 <= image_blocks);
    let blocks: u64 = fixed.iter().map(|place| u64::from(place.blocks)).sum();
    let few = blocks <= PLAN_PLACES_BLOCKS_MAX && fixed.iter().all(|place| place.blocks > 0);
    first && front && apart && last && few
}

impl Change {
    /// Parses a change of a plan with this header.
    pub fn decode(bytes: &[u8], header: &PlanHeader) -> Result<Change, FormatError> {
        let mut f = Fields::new(bytes);
        let block = f.u64("block")?;
        f.within(0, "block", block, header.image_blocks.saturating_sub(1))?;
        let group = f.u32("group")?;
        if group == 0 || group > header.groups {
            return Err(f.wrong("group", format_args!("1 to {}", header.groups), group));
        }
        f.zeros("reserved", 4)?;
        let old = block_bytes(f.hex("old bytes", BLOCK_SIZE)?);
        let new = block_bytes(f.hex("new bytes", BLOCK_SIZE)?);
        f.end()?;
        if old == new {
            return Err(f.wrong("new bytes", "others than the old bytes", "the same"));
        }
        Ok(Change { block: BlockNr(block), group, old, new })
    }

    /// Appends the change to a buffer.
    pub fn encode(&self, into: Vec<u8>) -> Vec<u8> {
        let mut w = Writer::from(into);
        w.u64(self.block.0);
        w.u32(self.group);
        w.u32(0);
        w.bytes(&self.old[..]);
        w.bytes(&self.new[..]);
        w.finish()
    }
}

/// A copy of a block's bytes.
fn block_bytes(bytes: &[u8]) -> BlockBytes {
    let mut block = Box::new([0; BLOCK_SIZE]);
    block.copy_from_slice(bytes);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> PlanHeader {
        let hash = |byte| Hash([byte; 32]);
        PlanHeader {
            birth: Birth { volume: VolumeId([7; 16]), epoch: Epoch(3), nonce: Nonce(9) },
            kind: PlanKind::Undo,
            image_blocks: 512,
            base: hash(1),
            result: hash(2),
            body: hash(3),
            explanation_bytes: 5000,
            groups: 2,
            changes: 3,
            fixed: [(0, 96), (496, 16)]
                .map(|(start, blocks)| Extent { start: BlockNr(start), blocks })
                .to_vec(),
            corrects: true,
        }
    }

    #[test]
    fn a_header_comes_back_and_each_flipped_byte_is_noticed() {
        let bytes = header().encode();
        assert_eq!(PlanHeader::decode(&bytes, None).unwrap(), header());
        assert_eq!(header().changes_at(), 3 * 4096);
        assert_eq!(header().file_bytes(), 3 * 4096 + 3 * 8208);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(PlanHeader::decode(&bad, None).is_err(), "byte {at}");
            assert!(PlanHeader::decode(&bytes[..at], None).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn a_header_says_what_can_be() {
        let place = |start, blocks| Extent { start: BlockNr(start), blocks };
        type Change = fn(&mut PlanHeader);
        let wrong: [(&str, Change); 9] = [
            ("image blocks", |h| h.image_blocks = u64::MAX),
            ("explanation bytes", |h| h.explanation_bytes = u32::MAX as usize),
            ("groups", |h| h.groups = 0),
            ("groups", |h| h.groups = 4),
            ("changes", |h| h.changes = u64::MAX),
            ("fixed places", |h| h.fixed.clear()),
            ("fixed places", |h| h.fixed[0].blocks = 63),
            ("fixed places", |h| h.fixed[1].start = BlockNr(497)),
            ("fixed places", |h| h.fixed[1].start = BlockNr(96)),
        ];
        for (field, change) in wrong {
            let mut header = header();
            change(&mut header);
            let error = PlanHeader::decode(&header.encode(), None).unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
        let many = PlanHeader { fixed: vec![place(0, 64); 5], ..header() };
        assert!(PlanHeader::decode(&many.encode(), None).is_err());
    }

    #[test]
    fn a_change_comes_back() {
        let (old, new) = (Box::new([1; BLOCK_SIZE]), Box::new([2; BLOCK_SIZE]));
        let change = Change { block: BlockNr(511), group: 2, old, new };
        let bytes = change.encode(Vec::new());
        assert_eq!(Change::decode(&bytes, &header()).unwrap(), change);
        assert!(Change::decode(&bytes[1..], &header()).is_err());
        for (block, group) in [(512, 1), (u64::MAX, 1), (0, 0), (0, 3)] {
            let bad = Change { block: BlockNr(block), group, ..change.clone() };
            assert!(Change::decode(&bad.encode(Vec::new()), &header()).is_err());
        }
        let same = Change { new: change.old.clone(), ..change };
        assert!(Change::decode(&same.encode(Vec::new()), &header()).is_err());
    }
}
