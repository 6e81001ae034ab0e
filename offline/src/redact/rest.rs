//! Copies structures in blocks that are in use but unreferenced, because the references do not verify. They are copied
//! if they verify by themselves, since a repair searches for them.

use super::copy::Copy;
use betr_core::error::Result;
use betr_core::format::limits::HEAD_MAX;
use betr_core::format::*;
use betr_core::ids::*;
use betr_core::space::Bitmap;

const BLOCK: u64 = BLOCK_SIZE as u64;
/// 256 blocks (1 MiB) are read with one call.
const AT_ONCE: u64 = 256;
/// Offset of the head length in heads of nodes.
const HEAD_BYTES_AT: u64 = 96;

impl Copy<'_> {
    /// Visits all blocks in use that have no owner; all blocks if the used ones are unknown.
    pub(super) fn rest(&mut self, used: Option<&Bitmap>) -> Result<()> {
        // If all references verify, no other blocks are in use.
        if used.is_some() || !self.is_whole {
            self.lone_structures(used)?;
        }
        if self.keep_damaged {
            self.unknown(used)?;
        }
        Ok(())
    }

    fn lone_structures(&mut self, used: Option<&Bitmap>) -> Result<()> {
        for at in (0..self.taken.len()).step_by(AT_ONCE as usize) {
            let end = (at + AT_ONCE).min(self.taken.len());
            if !(at..end).any(|block| self.is_rest(block, used)) {
                continue;
            }
            let blocks = self.disk.read(at * BLOCK, ((end - at) * BLOCK) as usize).ok();
            for block in at..end {
                let within = ((block - at) * BLOCK) as usize;
                let magic = match &blocks {
                    Some(blocks) => Magic::of(&blocks[within..]),
                    None => self.magic_at(block * BLOCK),
                };
                if let Some(magic) = magic.filter(|_| self.is_rest(block, used)) {
                    self.lone(BlockNr(block), magic)?;
                }
            }
        }
        Ok(())
    }

    fn is_rest(&self, block: u64, used: Option<&Bitmap>) -> bool {
        !self.taken.get(block) && used.is_none_or(|used| used.get(block))
    }

    /// Copies the structure that starts with this block, if one verifies.
    fn lone(&mut self, block: BlockNr, magic: Magic) -> Result<()> {
        let at = block.byte();
        match magic {
            Magic::TablePage => {
                let Ok(bytes) = self.disk.read(at, BLOCK_SIZE) else { return Ok(()) };
                if let Ok((seal, page)) = TablePage::decode(&bytes, None)
                    && self.is_ours(seal.birth.volume)
                {
                    let Seal { hash, birth } = seal;
                    let pointer = PagePointer { block, birth: birth.epoch, hash };
                    self.page(&pointer, page.level)?;
                }
            }
            Magic::Leaf | Magic::Internal => {
                let Ok(len) = self.disk.read(at + HEAD_BYTES_AT, 4) else { return Ok(()) };
                let head_bytes = u32::from_le_bytes(len.try_into().expect("four bytes"));
                // The length of an unverified head may have any value.
                let inside = self.disk.len().saturating_sub(at).min(HEAD_MAX as u64);
                if u64::from(head_bytes) > inside || !self.may_read(head_bytes.into()) {
                    return Ok(());
                }
                let Ok(head) = self.disk.read(at, head_bytes as usize) else { return Ok(()) };
                let leaf = LeafHead::decode(&head, None).ok();
                let leaf = leaf.map(|(seal, head)| (seal, head.leaf_bytes));
                let internal = || InternalHead::decode(&head, None).ok();
                let found = leaf.or_else(|| Some((internal()?.0, head_bytes)));
                if let Some((seal, bytes)) = found
                    && self.is_ours(seal.birth.volume)
                {
                    let blocks = bytes.div_ceil(BLOCK_SIZE as u32);
                    self.node(Extent { start: block, blocks }, head_bytes)?;
                }
            }
            Magic::ScatterMap => {
                let Ok(bytes) = self.disk.read(at, BLOCK_SIZE) else { return Ok(()) };
                if let Ok((seal, _)) = ScatterMap::decode(&bytes, None)
                    && self.is_ours(seal.birth.volume)
                {
                    let extent = Extent { start: block, blocks: 1 };
                    if let Some(mut claim) = self.claim(extent, BLOCK) {
                        self.write(&mut claim, at, &bytes)?;
                    }
                }
            }
            Magic::Run => {
                let Ok(header) = self.disk.read(at, RUN_HEADER_BYTES) else { return Ok(()) };
                if let Ok((seal, _)) = RunHeader::decode(&header, None)
                    && self.is_ours(seal.birth.volume)
                {
                    let extent = Extent { start: block, blocks: 1 };
                    if let Some(mut claim) = self.claim(extent, BLOCK) {
                        self.write(&mut claim, at, &header)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Copies unknown blocks as they are: those in use, and those of structures that do not verify.
    fn unknown(&mut self, used: Option<&Bitmap>) -> Result<()> {
        for block in 0..self.taken.len() {
            let is_wanted = self.suspect.get(block) || used.is_none_or(|used| used.get(block));
            if is_wanted && !self.taken.get(block) && !self.is_clear(block * BLOCK, BLOCK) {
                let extent = Extent { start: BlockNr(block), blocks: 1 };
                if let Some(mut claim) = self.claim(extent, BLOCK) {
                    self.keep(&mut claim, block * BLOCK, BLOCK)?;
                }
            }
        }
        Ok(())
    }
}
