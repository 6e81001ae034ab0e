//! Holes of files: punching, zeroing and finding them (fallocate(2), lseek(2)).

use super::draft::whole_blocks;
use super::{Draft, Fs, Object, data};
use crate::error::{Refusal, Result};
use crate::format::limits::{FILE_BLOCK, FILE_MAX};
use crate::format::*;
use crate::ids::*;

const BLOCK: u64 = FILE_BLOCK as u64;

/// An operation on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Checks that there is space for it. No space is reserved: a block gets a new place whenever it is written.
    Reserve,
    /// Makes it a hole.
    Punch,
    /// Makes it read as zeros: also a hole, but the file may grow by it.
    Zero,
}

/// The target of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// A stored block.
    Data,
    /// A block that is not stored; at the latest the end of the file.
    Hole,
}

impl Fs {
    /// Allocates or clears `len` bytes at `offset`. The file grows if it ends before, unless `keep_size`.
    pub fn allocate(
        &mut self,
        object: &Object,
        what: Allocate,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<()> {
        let size = data::regular(object)?.size;
        if len == 0 || (what == Allocate::Punch && !keep_size) {
            return Err(Refusal::Invalid.into());
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_MAX).ok_or(Refusal::TooBig)?;
        if what == Allocate::Reserve {
            let missing = self.missing_blocks(object, offset / BLOCK, end.div_ceil(BLOCK))?;
            self.volume.ensure_room(missing.saturating_mul(BLOCK))?;
        }
        let new_size = if keep_size { size } else { size.max(end) };
        if what == Allocate::Reserve && new_size == size {
            return Ok(());
        }
        self.resize(object, Op::Allocate, new_size, |draft| {
            let cleared = what != Allocate::Reserve && clear(draft, object, offset, end.min(size));
            let grown = whole_blocks(new_size) > whole_blocks(size);
            draft.inode(object).sparse |= cleared || grown;
        })
    }

    /// The next offset, from `offset` on, of the target.
    pub fn seek(&self, object: &Object, offset: u64, what: Seek) -> Result<u64> {
        let inode = data::regular(object)?;
        let size = inode.size;
        if offset >= size {
            return Err(Refusal::NoData.into());
        }
        if !inode.sparse {
            return Ok(if what == Seek::Data { offset } else { size });
        }
        let mut blocks = self.keys_within(object, offset / BLOCK, size.div_ceil(BLOCK));
        let mut at = offset;
        loop {
            match (what, self.next_key(object, &mut blocks)?) {
                (Seek::Data, None) => return Err(Refusal::NoData.into()),
                (Seek::Data, Some(block)) => return Ok(offset.max(block * BLOCK)),
                (Seek::Hole, Some(block)) if block == at / BLOCK => at = (block + 1) * BLOCK,
                (Seek::Hole, _) => return Ok(at.min(size)),
            }
        }
    }

    /// Number of blocks in `[first, end)` that are not stored.
    fn missing_blocks(&self, object: &Object, first: u64, end: u64) -> Result<u64> {
        let inode = data::regular(object)?;
        let there = inode.size.div_ceil(BLOCK).clamp(first, end);
        let mut stored = there - first;
        if inode.sparse {
            let mut blocks = self.keys_within(object, first, there);
            stored = 0;
            while self.next_key(object, &mut blocks)?.is_some() {
                stored += 1;
            }
        }
        Ok(end - first - stored)
    }
}

/// Adds the messages that make a hole of `[from, to)`, which must lie within the file. Returns whether there are any.
fn clear(draft: &mut Draft, object: &Object, from: u64, to: u64) -> bool {
    if from >= to {
        return false;
    }
    let prefix = data::data_prefix(object);
    let size = object.inode().size;
    let edge = |draft: &mut Draft, from: u64, to: u64| {
        let within = (from % BLOCK) as usize;
        let update = match to == size || to.is_multiple_of(BLOCK) {
            true => Update::trim(within),
            false => Update::patch(within, &vec![0; (to - from) as usize], false),
        };
        let key = data_key(&prefix, from / BLOCK);
        draft.append([RecordMessage::Point(TreeId::Data, key, Action::Update(update))]);
    };
    // If the range extends to the end of the file, the last block is cleared entirely.
    let (first, last) =
        (from.div_ceil(BLOCK), if to == size { to.div_ceil(BLOCK) } else { to / BLOCK });
    if first > last || (first == last && from / BLOCK == to / BLOCK && !from.is_multiple_of(BLOCK))
    {
        edge(draft, from, to);
        return true;
    }
    if !from.is_multiple_of(BLOCK) {
        edge(draft, from, first * BLOCK);
    }
    if first < last {
        let [lo, hi] = [first, last].map(|block| data_key(&prefix, block));
        draft.delete_range(TreeId::Data, (lo, hi));
    }
    if to > last * BLOCK {
        edge(draft, last * BLOCK, to);
    }
    true
}
