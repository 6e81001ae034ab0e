//! Memory for keys and short values in pieces of one size. A growing list moves none of its items, and freed pieces fit
//! any other list.

use crate::disk::class_of;
use crate::tuning::{PIECE_BITS, PIECE_MIN};

/// 8 KiB: the size of a piece, and the largest item.
const PIECE: usize = 1 << PIECE_BITS;
const BEGINS_WITH: usize = PIECE / 4;

/// Items, each within one piece.
#[derive(Default)]
pub(super) struct Arena {
    pieces: Vec<Vec<u8>>,
    /// Bytes of all items.
    len: usize,
    /// Bytes of all pieces.
    capacity: usize,
    /// Bytes of items that will be added.
    expected_bytes: usize,
}

impl Clone for Arena {
    fn clone(&self) -> Arena {
        let pieces = self.pieces.clone();
        let capacity = pieces.iter().map(Vec::capacity).sum();
        Arena { pieces, capacity, ..*self }
    }
}

impl Arena {
    /// An arena for items of `bytes` bytes in all.
    pub(super) fn with_capacity(bytes: usize) -> Arena {
        let pieces = Vec::with_capacity(bytes.div_ceil(PIECE));
        Arena { pieces, expected_bytes: bytes, ..Arena::default() }
    }

    /// Sets the number of bytes that will be added.
    pub(super) fn expect(&mut self, bytes: usize) {
        self.expected_bytes = bytes;
    }

    /// Bytes of all items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.capacity + self.pieces.capacity() * size_of::<Vec<u8>>()
    }

    /// Adds an item of two parts; returns its address.
    pub(super) fn push(&mut self, first: &[u8], second: &[u8]) -> u32 {
        let bytes = first.len() + second.len();
        debug_assert!(bytes <= PIECE, "no item is longer than a piece");
        if self.pieces.last().is_none_or(|last| last.len() + bytes > PIECE) {
            self.pieces.push(Vec::new());
        }
        let at = self.pieces.len() - 1;
        let piece = &mut self.pieces[at];
        let start = piece.len();
        if piece.capacity() - start < bytes {
            let more = match (start, at) {
                (0, _) if self.expected_bytes >= bytes => self.expected_bytes,
                (0, 1..) => BEGINS_WITH,
                (_, 1..) => start.max(self.expected_bytes),
                (_, 0) => (start / 4).max(self.expected_bytes),
            };
            let wanted = class_of((start + more.max(bytes)).max(PIECE_MIN)).min(PIECE);
            self.capacity -= piece.capacity();
            piece.reserve_exact(wanted - start);
            self.capacity += piece.capacity();
        }
        piece.extend_from_slice(first);
        piece.extend_from_slice(second);
        self.len += bytes;
        self.expected_bytes = self.expected_bytes.saturating_sub(bytes);
        u32::try_from(at << PIECE_BITS | start).expect("an arena has less than 4 GiB")
    }

    /// The bytes from an address to the end of its piece.
    pub(super) fn at(&self, at: u32) -> &[u8] {
        &self.pieces[(at >> PIECE_BITS) as usize][at as usize % PIECE..]
    }

    /// As [`Arena::at`], for changes.
    pub(super) fn at_mut(&mut self, at: u32) -> &mut [u8] {
        &mut self.pieces[(at >> PIECE_BITS) as usize][at as usize % PIECE..]
    }

    /// Frees unused capacity.
    pub(super) fn shrink(&mut self) {
        self.expect(0);
        if let Some(last) = self.pieces.last_mut() {
            self.capacity -= last.capacity();
            last.shrink_to_fit();
            self.capacity += last.capacity();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_where_they_were_put() {
        for capacity in [0, 100, 40_000] {
            let mut arena = Arena::with_capacity(capacity);
            let item = |number: usize| (vec![number as u8; number % 1025], vec![7; number % 900]);
            let places: Vec<u32> = (0..100)
                .map(|number| item(number * 37))
                .map(|(first, second)| arena.push(&first, &second))
                .collect();
            let other = arena.clone();
            arena.shrink();
            for arena in [&arena, &other] {
                let mut all = 0;
                for (number, at) in places.iter().enumerate() {
                    let (first, second) = item(number * 37);
                    all += first.len() + second.len();
                    let found = &arena.at(*at)[..first.len() + second.len()];
                    assert_eq!(found, [first, second].concat());
                }
                assert_eq!(arena.len(), all);
                let capacity: usize = arena.pieces.iter().map(Vec::capacity).sum();
                assert_eq!(arena.capacity, capacity);
            }
        }
    }
}
