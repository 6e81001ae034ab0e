//! Copies between files: whole blocks at equal offsets are shared (a range clone), all else is read and written.

use std::ops::Range;

use bytes::Bytes;

use super::data::{data_prefix, regular};
use super::draft::whole_blocks;
use super::{Delta, Fs, Object};
use crate::error::{Error, Result};
use crate::format::limits::FILE_BLOCK;
use crate::format::*;
use crate::ids::TreeId;
use crate::tuning::SHARED_LEAVES;

const BLOCK: u64 = FILE_BLOCK as u64;
/// 1 MiB: the most bytes that are copied at once.
const COPIED_AT_ONCE: u64 = 1 << 20;

impl Fs {
    /// Copies up to `len` bytes of a file at `at` into another one, or to another place in it, and returns their number:
    /// less where a part is shared or long, and 0 at the end of the file. As copy_file_range(2). `shares` says whether
    /// parts may be shared, and becomes false when one could not be: then the caller's next parts are copied as well.
    pub fn copy_range(
        &mut self,
        (from, at): (&Object, u64),
        (to, to_at): (&Object, u64),
        len: u64,
        shares: &mut bool,
    ) -> Result<u64> {
        let end = at.saturating_add(len).min(regular(from)?.size);
        regular(to)?;
        if at >= end {
            return Ok(0);
        }
        if at == to_at && *shares {
            match self.share_blocks(from, to, at..end)? {
                Some(0) => {}
                Some(shared) => return Ok(shared),
                None => *shares = false,
            }
        }
        // Pieces end at multiples of their greatest length in the destination, so at the ends of blocks.
        let piece = (COPIED_AT_ONCE - to_at % COPIED_AT_ONCE).min(end - at);
        let bytes = Bytes::from(self.read(from, at, piece as usize)?);
        self.write(to, to_at, &bytes)?;
        Ok(piece)
    }

    /// Makes `to` share the blocks that `from` has within `bytes`, where it has none of its own. Returns the number of
    /// bytes from the start on that it has now: 0 if they must be copied, and `None` if a clone failed.
    pub(super) fn share_blocks(
        &mut self,
        from: &Object,
        to: &Object,
        bytes: Range<u64>,
    ) -> Result<Option<u64>> {
        match self.try_to_share(from, to, bytes) {
            Ok(shared) => Ok(Some(shared)),
            // A copy needs less at once, and reads no more than the range.
            Err(error) if !self.volume.has_failed() && is_local(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn try_to_share(&mut self, from: &Object, to: &Object, bytes: Range<u64>) -> Result<u64> {
        let (source, target) = (regular(from)?, regular(to)?);
        let is_end = bytes.end == source.size;
        let past = if is_end { bytes.end.div_ceil(BLOCK) } else { bytes.end / BLOCK };
        let (first, end) = (bytes.start / BLOCK, bytes.end.min(past * BLOCK));
        let len = end.saturating_sub(bytes.start);
        let least = u64::from(self.volume.store().geometry.leaf_size / SHARED_LEAVES);
        if from == to || !bytes.start.is_multiple_of(BLOCK) || len < least.max(1) {
            return Ok(0);
        }
        if self.next_key(to, &mut self.keys_within(to, first, past))?.is_some() {
            return Ok(0);
        }
        let size = target.size.max(end);
        // A file whose contents have no zone gets one, which must not be too small.
        let has_zone = to.zone().is_some() || target.data_zone.is_some();
        if !has_zone && whole_blocks(size) < self.sizes.min {
            return Ok(0);
        }
        let mut draft = self.begin()?;
        if !has_zone && target.size > 0 {
            self.split_file(to)?;
            if to.inode().data_zone.is_none() {
                return Ok(0);
            }
        }
        if to.zone().is_none() && to.inode().data_zone.is_none() {
            draft.inode(to).data_zone = Some(self.volume.take_zone()?);
            if let Some((directory, _)) = to.up() {
                draft.count(&directory, Delta::apart(1));
            }
        }
        let data_zone = draft.inode(to).data_zone;
        let prefix =
            data_zone.map_or_else(|| data_prefix(to), |zone| MetaKey::root(zone).encode().to_vec());
        // All blocks of a file are those that its deletion deletes, so that it drops nodes without a look at them.
        let last = if is_end && target.size <= end { u64::MAX } else { past };
        let rest = |block: u64| Key::copied(&block.to_be_bytes());
        let lens = Lens::of_ranges(Key::new(prefix), Key::new(data_prefix(from)));
        let clone = lens.and_then(|lens| RangeClone::part(lens, rest(first), Some(rest(last))));
        let Some(clone) = clone else { return Ok(0) };
        draft.clone_range(TreeId::Data, clone);
        let now = draft.now;
        let inode = draft.inode(to);
        inode.sparse |= source.sparse || bytes.start > whole_blocks(inode.size);
        (inode.size, inode.modified, inode.changed) = (size, now, now);
        if let Some(zone) = data_zone {
            self.weigh_file(&mut draft, to, zone, size);
        }
        self.commit(Op::Clone, draft)?;
        Ok(len)
    }
}

/// Whether a clone failed for a reason that a copy may not meet.
fn is_local(error: &Error) -> bool {
    matches!(error, Error::NoSpace { .. } | Error::Unsupported(_)) || error.is_unreadable()
}
