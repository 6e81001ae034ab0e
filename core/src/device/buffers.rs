//! Memory for what is read and written, used again instead of being allocated afresh: large pieces of changing
//! sizes would leave an allocator with holes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Smaller pieces are not worth keeping.
const LARGE: usize = 32 << 10;
/// The most bytes, and pieces, that are kept.
const KEPT_MAX: usize = 4 << 20;
const PIECES_MAX: usize = 8;

/// Pieces of memory that nobody uses.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A piece of so many bytes, whatever they are.
    pub fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = if len < LARGE { Vec::new() } else { self.find(len).unwrap_or_default() };
        if buffer.capacity() < len {
            // The classes of sizes are few, so that pieces fit again.
            buffer = Vec::with_capacity(if len < LARGE { len } else { class_of(len) });
        }
        buffer.truncate(len);
        buffer.resize(len, 0);
        buffer
    }

    /// The smallest piece that has room, and not much more.
    fn find(&self, len: usize) -> Option<Vec<u8>> {
        let mut pieces = self.lock();
        let fits = |piece: &Vec<u8>| piece.capacity() >= len && piece.capacity() <= 2 * len;
        let all = pieces.iter().enumerate().filter(|(_, piece)| fits(piece));
        let at = all.min_by_key(|(_, piece)| piece.capacity())?.0;
        Some(pieces.swap_remove(at))
    }

    /// Takes a piece back.
    pub fn give(&self, piece: Vec<u8>) {
        let mut pieces = self.lock();
        let kept: usize = pieces.iter().map(Vec::capacity).sum();
        let fits = pieces.len() < PIECES_MAX && kept + piece.capacity() <= KEPT_MAX;
        if piece.capacity() >= LARGE && fits {
            pieces.push(piece);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The least of four sizes between a power of two and the next that is not smaller.
pub(crate) fn class_of(bytes: usize) -> usize {
    let step = (bytes.max(4).next_power_of_two() / 8).max(1);
    bytes.next_multiple_of(step)
}
