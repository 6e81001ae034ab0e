//! Reused memory for reads and writes. Allocating large buffers of changing sizes would fragment the heap, and each
//! lookup needs blocks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::ids::BLOCK_SIZE;
use crate::tuning::{BLOCKS_KEPT, BUFFER_LARGE, BUFFERS_KEPT, BUFFERS_KEPT_BYTES};

const BLOCK_MIN: usize = BLOCK_SIZE / 4 * 3;

/// Free buffers.
#[derive(Default)]
pub(super) struct Buffers {
    large: Mutex<Vec<Vec<u8>>>,
    /// Buffers of one block each.
    blocks: Mutex<Vec<Vec<u8>>>,
}

/// A buffer in use, and the pool that it returns to.
pub(super) struct Buffer {
    memory: Vec<u8>,
    home: Arc<Buffers>,
}

impl Buffer {
    /// Takes a buffer for `len` bytes, with arbitrary content. `None` if buffers of this length are not kept.
    pub(super) fn of(home: &Arc<Buffers>, len: usize) -> Option<Buffer> {
        let memory = match len {
            BUFFER_LARGE.. => home.take(len),
            // At least 3/4 of a block.
            BLOCK_MIN..=BLOCK_SIZE => {
                locked(&home.blocks).pop().unwrap_or_else(|| vec![0; BLOCK_SIZE])
            }
            _ => return None,
        };
        Some(Buffer { memory, home: home.clone() })
    }

    /// The buffer.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Shares its first `len` bytes. The buffer returns to its pool when the last reference is dropped.
    pub(super) fn share(self, len: usize) -> Bytes {
        Bytes::from_owner(self).slice(..len)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if memory.len() >= BUFFER_LARGE {
            return self.home.give(memory);
        }
        let mut blocks = locked(&self.home.blocks);
        if blocks.len() < BLOCKS_KEPT {
            blocks.push(memory);
        }
    }
}

impl Buffers {
    /// A buffer of `len` bytes with arbitrary content.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        // There are few size classes, so that buffers can be reused.
        self.used(len).unwrap_or_else(|| {
            let mut fresh = vec![0; if len < BUFFER_LARGE { len } else { class_of(len) }];
            fresh.truncate(len);
            fresh
        })
    }

    /// As [`Buffers::take`], but a new buffer is no longer than `len`.
    pub(super) fn take_exactly(&self, len: usize) -> Vec<u8> {
        self.used(len).unwrap_or_else(|| vec![0; len])
    }

    /// A reused buffer.
    fn used(&self, len: usize) -> Option<Vec<u8>> {
        let mut buffer = if len < BUFFER_LARGE { None } else { self.find(len) }?;
        buffer.truncate(len);
        buffer.resize(len, 0);
        Some(buffer)
    }

    /// The smallest free buffer with room for `len` bytes, of at most twice the size.
    fn find(&self, len: usize) -> Option<Vec<u8>> {
        let mut pieces = locked(&self.large);
        let fits = |piece: &Vec<u8>| piece.capacity() >= len && piece.capacity() <= 2 * len;
        let all = pieces.iter().enumerate().filter(|(_, piece)| fits(piece));
        let at = all.min_by_key(|(_, piece)| piece.capacity())?.0;
        Some(pieces.remove(at))
    }

    /// Returns a buffer. If there are too many, the oldest are freed.
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

/// Rounds up to one of four sizes between two powers of two.
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
        let of_block = || Buffer::of(&home, BLOCK_SIZE).unwrap();
        let mut block = of_block();
        block.memory()[..4].copy_from_slice(b"betr");
        let place = block.memory().as_ptr();
        let all = block.share(4);
        let part = all.slice(1..3);
        drop(all);
        assert_eq!((kept(), &part[..]), (0, &b"et"[..]));
        drop(part);
        assert_eq!(kept(), 1);
        let mut again = of_block();
        assert_eq!((again.memory().as_ptr(), kept()), (place, 0));
        let many: Vec<Buffer> = (0..2 * BLOCKS_KEPT).map(|_| of_block()).collect();
        drop((again, many));
        assert_eq!(kept(), BLOCKS_KEPT);
    }
}
