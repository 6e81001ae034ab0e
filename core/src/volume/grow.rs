//! Making a volume larger.
//!
//! Two of the fixed parts depend on the size: the space map has more pages, for which it may get another segment behind the blocks
//! that there were, and the second half of the superblock ring is at the new end. The checkpoint of the larger volume touches nothing
//! that the one before it uses; its superblock stands where only the new identity block leads, which one write that cannot tear
//! puts in place.

use super::Volume;
use crate::error::{Error, Result};
use crate::format::Identity;
use crate::ids::*;
use crate::space::Layout;

impl Volume {
    /// Makes the volume larger, up to `bytes`, which the device must have. Everything is durable then. After an error or
    /// a power cut it has the old size, or the new one. Nothing that is there moves.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        self.ensure_ready()?;
        let len = self.trees.wait().store.disk.len();
        if bytes > len {
            return Err(Error::Misuse(format!("{bytes} bytes on a device of {len}")));
        }
        let blocks = bytes / BLOCK_SIZE as u64;
        if blocks <= self.superblock.image_blocks {
            return Ok(());
        }
        let old = Layout::of(&self.superblock)?;
        let new = old.grown(blocks)?;
        let result = self.grow_to(&old, &new);
        self.whole(result)
    }

    fn grow_to(&mut self, old: &Layout, new: &Layout) -> Result<()> {
        // What stood there must not be taken for pages of the map, or for slots of the ring.
        let zeros = vec![0; BLOCK_SIZE];
        let fresh = new.fixed().into_iter().filter(|(start, _)| start.0 >= old.image_blocks);
        for block in fresh.flat_map(|(start, blocks)| start.0..start.0 + blocks) {
            self.trees.wait().store.disk.write(BlockNr(block).byte(), &zeros)?;
        }
        self.trees.wait_mut().store.space.grow(old, new);
        self.superblock.image_blocks = new.image_blocks;
        self.superblock.map_pages = new.map_pages();
        self.superblock.map = new.map.clone();
        let (image_blocks, ring, map) = (new.image_blocks, new.ring, new.map.clone());
        self.larger = Some(Identity { image_blocks, ring, map, ..self.identity.clone() });
        self.checkpoint()
    }
}
