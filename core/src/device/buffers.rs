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
        // The classes of sizes are few, so that pieces fit again.
        self.used(len).unwrap_or_else(|| {
            let mut fresh = vec![0; if len < LARGE { len } else { class_of(len) }];
            fresh.truncate(len);
            fresh
        })
    }

    /// The same, but no longer than asked for where it is a fresh one.
    pub fn take_exactly(&self, len: usize) -> Vec<u8> {
        self.used(len).unwrap_or_else(|| vec![0; len])
    }

    /// One that was given back.
    fn used(&self, len: usize) -> Option<Vec<u8>> {
        let mut buffer = if len < LARGE { None } else { self.find(len) }?;
        buffer.truncate(len);
        buffer.resize(len, 0);
        Some(buffer)
    }

    /// The smallest piece that has room, and not much more.
    fn find(&self, len: usize) -> Option<Vec<u8>> {
        let mut pieces = self.lock();
        let fits = |piece: &Vec<u8>| piece.capacity() >= len && piece.capacity() <= 2 * len;
        let all = pieces.iter().enumerate().filter(|(_, piece)| fits(piece));
        let at = all.min_by_key(|(_, piece)| piece.capacity())?.0;
        Some(pieces.remove(at))
    }

    /// Takes a piece back. Where there are too many, those go that were not wanted for longest.
    pub fn give(&self, piece: Vec<u8>) {
        if piece.capacity() < LARGE || piece.capacity() > KEPT_MAX {
            return;
        }
        let mut pieces = self.lock();
        pieces.push(piece);
        let mut kept: usize = pieces.iter().map(Vec::capacity).sum();
        while pieces.len() > PIECES_MAX || kept > KEPT_MAX {
            kept -= pieces.remove(0).capacity();
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
