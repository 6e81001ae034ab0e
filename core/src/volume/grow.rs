//! Growing a volume.
//!
//! Two fixed parts depend on the size. The space map has more pages, and may get another segment behind the old blocks.
//! The second half of the superblock ring moves to the new end. The checkpoint of the larger volume overwrites nothing
//! that the one before it uses. Only the new identity block points to its superblock, and one atomic write replaces
//! that block.

use super::Volume;
use crate::error::{Error, Result};
use crate::format::Identity;
use crate::format::limits::SUPERBLOCK_SLOTS;
use crate::ids::*;
use crate::space::{Layout, slot_block};

impl Volume {
    /// Grows the volume to `bytes`, which the device must have, and makes all durable. After an error or a power cut it
    /// has either the old size or the new one. Nothing moves.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        self.ensure_ready()?;
        let len = self.trees.wait().store.disk.len();
        if bytes > len {
            return Err(Error::Misuse(format!("{bytes} bytes on a device of {len}")));
        }
        let (blocks, known) = (bytes / BLOCK_SIZE as u64, Layout::named(&self.identity)?);
        let old = Layout::of(&self.superblock)?;
        if old.image_blocks < known.image_blocks {
            // The volume continues a checkpoint from before the last growth.
            let result = self.grow_to(&old, &known);
            self.poison_on_error(result)?;
        }
        if blocks <= known.image_blocks {
            return Ok(());
        }
        let new = known.grown(blocks)?;
        let result = self.grow_to(&known, &new);
        self.poison_on_error(result)
    }

    fn grow_to(&mut self, old: &Layout, new: &Layout) -> Result<()> {
        // Old content must not be taken for pages of the map or slots of the ring.
        let pages = old.map_pages()..new.map_pages();
        let pages = pages.flat_map(|page| [0, 1].map(|slot| new.map.slot(page, slot)));
        let is_known = new.ring == self.identity.ring;
        let ring = (0..SUPERBLOCK_SLOTS).filter(|slot| slot % 2 == 1 && !is_known);
        let ring = ring.map(|slot| slot_block(new.ring, slot).byte());
        for byte in pages.chain(ring) {
            self.trees.wait().store.disk.write(byte, &[0; BLOCK_SIZE])?;
        }
        self.trees.wait_mut().store.space.grow(old, new);
        self.superblock.image_blocks = new.image_blocks;
        self.superblock.map_pages = new.map_pages();
        self.superblock.map = new.map.clone();
        let (image_blocks, ring, map) = (new.image_blocks, new.ring, new.map.clone());
        let larger = Identity { image_blocks, ring, map, ..self.identity.clone() };
        self.larger = Some(larger).filter(|larger| *larger != self.identity);
        self.checkpoint()
    }
}
