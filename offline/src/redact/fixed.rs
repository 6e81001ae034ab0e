//! Copies fixed places: identity block, superblock ring, space map, and reserved areas.

use super::copy::{Claim, Copy};
use betr_core::check::reserved;
use betr_core::error::Result;
use betr_core::format::limits::SUPERBLOCK_SLOTS;
use betr_core::format::*;
use betr_core::ids::*;
use betr_core::space::{Layout, ring_of, slot_block};

impl Copy<'_> {
    /// Marks all blocks at fixed places as taken.
    pub(super) fn take_fixed(&mut self, layout: Option<&Layout>) {
        let before_log = (BlockNr(0), reserved()[2].end / BLOCK_SIZE as u64);
        for (start, count) in layout.into_iter().flat_map(Layout::fixed).chain([before_log]) {
            let end = (start.0 + count).min(self.taken.len());
            self.taken.set(start.0.min(end), end - start.0.min(end));
        }
    }

    /// Copies the fixed places, after everything below has been sealed.
    pub(super) fn fixed(
        &mut self,
        identity: Option<&Identity>,
        layout: Option<&Layout>,
    ) -> Result<()> {
        for range in reserved() {
            self.padding(&mut Claim::whole(), range.start, range.end - range.start)?;
        }
        let is_identity = |block: &[u8]| Identity::decode(block, None).is_ok();
        self.block(IDENTITY_AT, |_, block| Ok(is_identity(&block).then_some(block)))?;
        for slot in self.slots(identity, layout) {
            self.block(slot.byte(), |copy, block| copy.superblock(slot.byte(), &block))?;
        }
        let Some(layout) = layout else { return Ok(()) };
        let slots = layout.map.iter().flat_map(|segment| segment.start.0..segment.end().0);
        for slot in slots.map(BlockNr) {
            let is_page = |block: &[u8]| MapPage::decode(block, None).is_ok();
            self.block(slot.byte(), |_, block| Ok(is_page(&block).then_some(block)))?;
        }
        Ok(())
    }

    /// The possible places of superblocks: the identity block may state another place for the second half of the ring.
    /// Blocks of nodes are left out.
    fn slots(&self, identity: Option<&Identity>, layout: Option<&Layout>) -> Vec<BlockNr> {
        let fixed: Vec<_> = layout.into_iter().flat_map(Layout::fixed).collect();
        let is_fixed = |slot: BlockNr| {
            fixed.iter().any(|(start, count)| (start.0..start.0 + count).contains(&slot.0))
        };
        let front = ring_of(0)[0].0;
        let rings = [layout.map(|layout| layout.ring), identity.map(|identity| identity.ring)];
        let rings = rings.into_iter().flatten().chain([ring_of(0)]);
        let slots = |ring| (0..SUPERBLOCK_SLOTS).map(move |slot| slot_block(ring, slot));
        let mut slots: Vec<BlockNr> = rings.flat_map(slots).collect();
        slots.retain(|slot| (front..self.taken.len()).contains(&slot.0));
        slots.retain(|slot| {
            slot.0 < reserved()[2].end / BLOCK_SIZE as u64
                || is_fixed(*slot)
                || !self.taken.get(slot.0)
        });
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Copies a block that is zero, verifies (by `copied`), or does not verify. In the last case the copy does not
    /// verify either: it has the original's magic, if any, and is not zero.
    fn block(
        &mut self,
        at: u64,
        copied: impl FnOnce(&mut Self, Vec<u8>) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        let Ok(block) = self.disk.read(at, BLOCK_SIZE) else { return Ok(()) };
        if is_zero(&block) {
            return Ok(());
        }
        let magic = Magic::of(&block);
        match copied(self, block)? {
            Some(copy) => self.put(at, &copy),
            None if self.keep_damaged => {
                self.damaged += 1;
                self.keep(&mut Claim::whole(), at, BLOCK_SIZE as u64)
            }
            None => {
                self.damaged += 1;
                self.put(at, magic.map_or(&[0xff][..], |magic| magic.bytes()))
            }
        }
    }

    /// The copy of a superblock, with the new hashes of its roots.
    fn superblock(&mut self, at: u64, block: &[u8]) -> Result<Option<Vec<u8>>> {
        let Ok(mut superblock) = Superblock::decode(block, None) else {
            let wrong = whole_but_wrong(block).filter(|_| !self.keep_damaged);
            self.damaged += u64::from(wrong.is_some());
            return Ok(wrong);
        };
        superblock.table.page.hash = self.hash_of(&superblock.table.page);
        for page in superblock.holds.pages.iter_mut().flatten() {
            page.hash = self.hash_of(page);
        }
        let copy = superblock.encode();
        if let Some(old) = Seal::hash_of(block).filter(|old| Seal::hash_of(&copy) != Some(*old)) {
            self.changed(at, block.len(), old)?;
        }
        Ok(Some(copy))
    }
}

/// The copy of a slot whose seal verifies but whose fields are invalid: the slot was not torn, so the copy must not
/// look torn.
fn whole_but_wrong(block: &[u8]) -> Option<Vec<u8>> {
    let seal = Seal::decode(&mut Fields::new(block), Magic::Superblock).ok()?;
    let mut writer = Writer::with_capacity(BLOCK_SIZE);
    Seal::open(&mut writer, Magic::Superblock, seal.birth);
    let mut copy = writer.finish();
    copy.resize(BLOCK_SIZE, 0);
    Seal::close(&mut copy);
    Some(copy)
}
