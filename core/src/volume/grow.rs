//! Making a volume larger.
//!
//! Two of the fixed parts depend on the size: the space map, behind the log, has more pages, and the second half of the
//! superblock ring is at the new end. So nodes that are where the map is going to be move away first. The
//! checkpoint of the larger volume then touches nothing that the one before it uses; its superblock stands
//! where only the new identity block leads, which one write that cannot tear puts in place.

use super::Volume;
use crate::error::{Error, Result};
use crate::format::Identity;
use crate::format::limits::SUPERBLOCK_SLOTS;
use crate::ids::*;
use crate::space::Layout;

/// So many checkpoints, and a block that was used by the one before them is free.
const CHECKPOINTS: usize = 3;

impl Volume {
    /// Makes the volume larger, up to `bytes`, which the device must have. Everything is durable then. After an error or
    /// a power cut it has the old size, or one between the two.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        self.ensure_ready()?;
        if bytes > self.trees.wait().store.disk.len() {
            let len = self.trees.wait().store.disk.len();
            return Err(Error::Misuse(format!("{bytes} bytes on a device of {len}")));
        }
        let block = BLOCK_SIZE as u64;
        while self.superblock.image_blocks < bytes / block {
            let old = self.layout(self.superblock.image_blocks)?;
            // One step at most doubles the map, so that it takes few blocks from the nodes.
            let blocks = (bytes / block).min(2 * old.image_blocks);
            let new = self.layout(blocks)?;
            if new.ring[1] < BlockNr(old.image_blocks) {
                let least = (old.image_blocks + (blocks - new.ring[1].0)) * block;
                return Err(Error::Input(format!("{bytes} bytes; the next size is {least}")));
            }
            let result = self.step_to(&old, &new);
            self.whole(result)?;
        }
        Ok(())
    }

    fn layout(&self, blocks: u64) -> Result<Layout> {
        let block = BLOCK_SIZE as u64;
        Layout::new(blocks * block, self.superblock.log_units * block)
    }

    fn step_to(&mut self, old: &Layout, new: &Layout) -> Result<()> {
        let region = old.nodes().start..new.nodes().start;
        if !region.is_empty() {
            // What is on its way, after a replay for one, has a place when this is done; then nothing gets one there.
            self.checkpoint()?;
            self.trees.wait_mut().store.space.keep_out(region.clone());
            self.trees.wait_mut().store.move_out(&region)?;
            for _ in 0..CHECKPOINTS {
                // What has moved away is not to be used again.
                self.trees.wait_mut().store.space.keep_out(region.clone());
                self.checkpoint()?;
            }
        }
        // What stood there must not be taken for pages of the map, or for slots of the ring.
        let zeros = vec![0; BLOCK_SIZE];
        let ring = new.ring[1].0..new.ring[1].0 + u64::from(SUPERBLOCK_SLOTS) / 2;
        for block in region.chain(ring) {
            self.trees.wait().store.disk.write(BlockNr(block).byte(), &zeros)?;
        }
        self.trees.wait_mut().store.space.grow(old, new);
        self.superblock.image_blocks = new.image_blocks;
        self.superblock.map_pages = new.map_blocks / 2;
        let ring = new.ring;
        self.larger =
            Some(Identity { image_blocks: new.image_blocks, ring, ..self.identity.clone() });
        self.checkpoint()
    }
}
