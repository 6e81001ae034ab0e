//! Copies snapshots: their tables and everything below; their pages, sealed again; and dead lists, which have no hashes
//! of nodes.

use super::copy::{Copy, Resealed};
use betr_core::error::Result;
use betr_core::format::*;
use betr_core::holds::read_pages;
use betr_core::ids::*;
use betr_core::space::DeadPages;

impl Copy<'_> {
    /// Copies everything below the snapshots of a superblock.
    pub(super) fn holds(&mut self, superblock: &Superblock) -> Result<()> {
        let volume = superblock.birth.volume;
        let mut seen = std::collections::HashSet::new();
        let disk = self.disk.clone();
        let found =
            read_pages(&disk, volume, &superblock.holds, &mut |page| seen.insert(page.block));
        let mut lists = vec![superblock.holds.dead];
        // Lower pages come after those that refer to them, and must be sealed before.
        for found in found.into_iter().rev() {
            let at = found.pointer.block.byte();
            let Ok(mut page) = found.page else {
                self.is_whole = false;
                self.damaged += 1;
                self.suspect(at, BLOCK_SIZE as u64);
                continue;
            };
            match &mut page.body {
                HoldsBody::Pointers(pointers) => {
                    for below in pointers.iter_mut().flatten() {
                        below.hash = self.hash_of(below);
                    }
                }
                HoldsBody::Holds(holds) => {
                    for hold in holds.iter_mut().flatten() {
                        lists.push(hold.dead);
                        if hold.state == HoldState::Held {
                            let TableRoot { page, levels } = hold.table;
                            let root = self.page(&page, levels as u8 - 1)?;
                            hold.table.page.hash = Resealed::instead_of(root, page.hash);
                        }
                    }
                }
            }
            let extent = Extent { start: found.pointer.block, blocks: 1 };
            let Some(mut claim) = self.claim(extent, BLOCK_SIZE as u64) else { continue };
            let birth = Birth { epoch: found.pointer.birth, ..self.birth_of(at, superblock) };
            let (block, new) = page.encode(birth);
            self.write(&mut claim, at, &block)?;
            self.finish(claim)?;
            self.resealed(at, BLOCK_SIZE, found.pointer.hash, new)?;
        }
        lists.into_iter().try_for_each(|list| self.dead_list(volume, list))
    }

    /// The birth in the seal of a verified block.
    fn birth_of(&self, at: u64, superblock: &Superblock) -> Birth {
        let block = self.disk.read(at, BLOCK_SIZE).unwrap_or_default();
        Seal::birth_of(&block).unwrap_or(superblock.birth)
    }

    /// The hash of a page in the copy.
    pub(super) fn hash_of(&self, page: &PagePointer) -> Hash {
        let found = self.sealed.get(&page.block.byte()).copied().flatten();
        Resealed::instead_of(found, page.hash)
    }

    /// Copies the pages of a dead list unchanged.
    fn dead_list(&mut self, volume: VolumeId, list: DeadList) -> Result<()> {
        let disk = self.disk.clone();
        let mut pages = DeadPages::new(&disk, volume, list);
        while let Some(place) = pages.next_place() {
            let at = place.block.byte();
            if !matches!(pages.next_page(), Ok(Some(_))) {
                self.is_whole = false;
                self.damaged += 1;
                self.suspect(at, BLOCK_SIZE as u64);
                return Ok(());
            }
            let extent = Extent { start: place.block, blocks: 1 };
            let Some(mut claim) = self.claim(extent, BLOCK_SIZE as u64) else { return Ok(()) };
            self.keep(&mut claim, at, BLOCK_SIZE as u64)?;
            self.finish(claim)?;
        }
        Ok(())
    }
}
