//! Holes of files: punching them, writing zeros, finding them (fallocate(2), lseek(2)).

use super::draft::whole_blocks;
use super::{Draft, Fs, Object, data};
use crate::error::{Error, Refusal, Result};
use crate::format::limits::{FILE_BLOCK, FILE_MAX};
use crate::format::*;
use crate::ids::*;
use crate::tree::KeyScan;

const BLOCK: u64 = FILE_BLOCK as u64;

/// What is done to a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// There must be room for it. Nothing is set aside: a block finds a new place whenever it is written.
    Reserve,
    /// It becomes a hole.
    Punch,
    /// It reads as zeros: the same, but for a file that grows by it.
    Zero,
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// A block that is there.
    Data,
    /// One that is not; the end of the file at the latest.
    Hole,
}

impl Fs {
    /// Allocates or clears `len` bytes at `offset`. The file grows if it ends before, unless its size is kept.
    pub fn allocate(
        &mut self,
        object: &Object,
        what: Allocate,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<()> {
        let size = data::regular(object)?.size;
        let end = offset.checked_add(len).filter(|end| *end <= FILE_MAX).ok_or(Refusal::TooBig)?;
        if len == 0 || (what == Allocate::Punch && !keep_size) {
            return Err(Refusal::Invalid.into());
        }
        if what == Allocate::Reserve {
            let (need_blocks, (free_blocks, _)) = (len.div_ceil(BLOCK), self.volume.free_blocks());
            if need_blocks > free_blocks {
                return Err(Error::NoSpace { need_blocks, free_blocks });
            }
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

    /// The next place from `offset` on where there is what is looked for.
    pub fn seek(&self, object: &Object, offset: u64, what: Seek) -> Result<u64> {
        let size = data::regular(object)?.size;
        if offset >= size {
            return Err(Refusal::NoData.into());
        }
        let prefix = data::data_prefix(object);
        let [lo, hi] = [offset / BLOCK, u64::MAX].map(|block| data_key(&prefix, block));
        let mut scan = KeyScan::new(TreeId::Data, lo, Some(hi));
        let mut at = offset;
        loop {
            let key = scan.next(self.volume.store())?;
            let block = key.as_ref().and_then(|(key, _)| parse_data_key(key)).map(|(_, at)| at);
            match (what, block) {
                (Seek::Data, None) => return Err(Refusal::NoData.into()),
                (Seek::Data, Some(block)) => return Ok(offset.max(block.saturating_mul(BLOCK))),
                (Seek::Hole, Some(block)) if block == at / BLOCK => at = (block + 1) * BLOCK,
                (Seek::Hole, _) => return Ok(at.min(size)),
            }
        }
    }
}

/// The messages that make a hole of `[from, to)`, which lies within the file. Whether there are any.
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
    // The file's last block is whole if it is cleared to the end.
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
