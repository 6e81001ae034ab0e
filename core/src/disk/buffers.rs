//! Memory for what is read and written, used again instead of being allocated afresh: large pieces of changing
//! sizes would leave an allocator with holes, and blocks come and go with each lookup.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::ids::BLOCK_SIZE;
use crate::tuning::{BLOCKS_KEPT, BUFFER_LARGE, BUFFERS_KEPT, BUFFERS_KEPT_BYTES};

/// Pieces of memory that nobody uses.
#[derive(Default)]
pub(super) struct Buffers {
    large: Mutex<Vec<Vec<u8>>>,
    /// As long as a block each.
    blocks: Mutex<Vec<Vec<u8>>>,
}

/// A block of memory that is used, and where it belongs.
pub(super) struct Block {
    memory: Vec<u8>,
    home: Arc<Buffers>,
}

impl Block {
    /// Whether so many bytes fill a block, or most of it.
    pub(super) fn suits(len: usize) -> bool {
        (BLOCK_SIZE / 4 * 3..=BLOCK_SIZE).contains(&len)
    }

    /// One whose first bytes will be filled.
    pub(super) fn of(home: &Arc<Buffers>) -> Block {
        let known = locked(&home.blocks).pop();
        Block { memory: known.unwrap_or_else(|| vec![0; BLOCK_SIZE]), home: home.clone() }
    }

    /// Its memory.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Its first `len` bytes, to be shared. It goes home when nobody has them any more.
    pub(super) fn share(self, len: usize) -> Bytes {
        Bytes::from_owner(self).slice(..len)
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut blocks = locked(&self.home.blocks);
        if blocks.len() < BLOCKS_KEPT {
            blocks.push(std::mem::take(&mut self.memory));
        }
    }
}

impl Buffers {
    /// A piece of so many bytes, whatever they are.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        // The classes of sizes are few, so that pieces fit again.
        self.used(len).unwrap_or_else(|| {
            let mut fresh = vec![0; if len < BUFFER_LARGE { len } else { class_of(len) }];
            fresh.truncate(len);
            fresh
        })
    }

    /// The same, but no longer than asked for where it is a fresh one.
    pub(super) fn take_exactly(&self, len: usize) -> Vec<u8> {
        self.used(len).unwrap_or_else(|| vec![0; len])
    }

    /// One that was given back.
    fn used(&self, len: usize) -> Option<Vec<u8>> {
        let mut buffer = if len < BUFFER_LARGE { None } else { self.find(len) }?;
        buffer.truncate(len);
        buffer.resize(len, 0);
        Some(buffer)
    }

    /// The smallest piece that has room, and not much more.
    fn find(&self, len: usize) -> Option<Vec<u8>> {
        let mut pieces = locked(&self.large);
        let fits = |piece: &Vec<u8>| piece.capacity() >= len && piece.capacity() <= 2 * len;
        let all = pieces.iter().enumerate().filter(|(_, piece)| fits(piece));
        let at = all.min_by_key(|(_, piece)| piece.capacity())?.0;
        Some(pieces.remove(at))
    }

    /// Takes a piece back. Where there are too many, those go that were not wanted for longest.
    pub(super) fn give(&self, piece: Vec<u8>) {
        if piece.capacity() < BUFFER_LARGE || piece.capacity() > BUFFERS_KEPT_BYTES {
            return;
        }
        let mut pieces = locked(&self.large);
        pieces.push(piece);
        let mut kept: usize = pieces.iter().map(Vec::capacity).sum();
        while pieces.len() > BUFFERS_KEPT || kept > BUFFERS_KEPT_BYTES {
            kept -= pieces.remove(0).capacity();
        }
    }
}

fn locked(pieces: &Mutex<Vec<Vec<u8>>>) -> MutexGuard<'_, Vec<Vec<u8>>> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The least of four sizes between a power of two and the next that is not smaller.
pub(crate) fn class_of(bytes: usize) -> usize {
    let step = (bytes.max(4).next_power_of_two() / 8).max(1);
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_goes_home_when_nobody_has_it_any_more() {
        let home = Arc::new(Buffers::default());
        let kept = || locked(&home.blocks).len();
        let mut block = Block::of(&home);
        block.memory()[..4].copy_from_slice(b"betr");
        let place = block.memory().as_ptr();
        let all = block.share(4);
        let part = all.slice(1..3);
        drop(all);
        assert_eq!((kept(), &part[..]), (0, &b"et"[..]));
        drop(part);
        assert_eq!(kept(), 1);
        let mut again = Block::of(&home);
        assert_eq!((again.memory().as_ptr(), kept()), (place, 0));
        let many: Vec<Block> = (0..2 * BLOCKS_KEPT).map(|_| Block::of(&home)).collect();
        drop((again, many));
        assert_eq!(kept(), BLOCKS_KEPT);
    }
}
