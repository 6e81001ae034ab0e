//! The hash that identifies an image in a certain state.
//!
//! It covers the length and the fixed places: all other blocks are reachable from the superblocks by hashes.

use sha2::{Digest, Sha256};

use betr_core::disk::Disk;
use betr_core::error::Result;
use betr_core::ids::*;
use betr_core::space::Layout;
use betr_core::volume::{Ring, read_identity};

/// The fixed place of every image: the blocks before the log.
const FRONT: Extent = Extent { start: BlockNr(0), blocks: 64 };
/// 1 MiB is read at once.
const PIECE: u64 = 1 << 20;

/// The fixed places of an image: everything before the end of the log, and the second half of the ring; only the first
/// blocks if these are unknown. Also the birth of the newest superblock.
pub(super) fn fixed_places(disk: &Disk) -> (Vec<Extent>, Option<betr_core::format::Birth>) {
    let Ok(identity) = read_identity(disk) else { return (vec![FRONT], None) };
    let ring = Ring::read(disk, &identity).ok();
    let Some(superblock) = ring.as_ref().and_then(Ring::newest) else { return (vec![FRONT], None) };
    let Ok(layout) = Layout::named(&identity) else { return (vec![FRONT], Some(superblock.birth)) };
    let front = Extent { start: BlockNr(0), blocks: layout.map.start().0 as u32 };
    let ring =
        Extent { start: layout.ring[1], blocks: (layout.image_blocks - layout.ring[1].0) as u32 };
    (vec![front, ring], Some(superblock.birth))
}

/// The hash of the fixed places of an image of `image_blocks` blocks; `read` reads them.
pub(super) fn hash_of(
    image_blocks: u64,
    fixed: &[Extent],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<Hash> {
    let mut hash = Sha256::new();
    hash.update(image_blocks.to_le_bytes());
    let mut buffer = Vec::new();
    for place in fixed {
        let (mut at, end) = (place.start.byte(), place.end().byte());
        while at < end {
            buffer.resize(PIECE.min(end - at) as usize, 0);
            read(at, &mut buffer)?;
            hash.update(&buffer);
            at += buffer.len() as u64;
        }
    }
    Ok(Hash(hash.finalize().into()))
}
