//! The contents of regular files.
//!
//! A file is blocks of 4 KiB under its data prefix. An absent block is a hole, and a value ends at its last stored
//! byte. No value extends past the file's size. A block that is overwritten entirely with zeros becomes a hole. A write
//! reads nothing: a part of a block is a patch, and a trim truncates the last one. A large overwrite has a range delete
//! of the blocks that it replaces.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::draft::{Counts, whole_blocks};
use super::remove::zone_range;
use super::{Delta, Draft, Fs, Object};
use crate::error::{Error, Fault, Place, Refusal, Result};
use crate::format::limits::{FILE_BLOCK, FILE_MAX};
use crate::format::*;
use crate::ids::*;
use crate::tree::{KeyScan, PlaceScan, Scan, ValuePlace};

const BLOCK: u64 = FILE_BLOCK as u64;
/// The most bytes that one operation writes.
pub(super) const WRITE_MAX: usize = 16 << 20;

/// 128 blocks: if a write overwrites as many, it deletes them first by one message, so that leaves with no other
/// entries need not be read.
const OVERWRITE_MIN: u64 = 128;

/// The stored blocks of a file, in order.
pub struct Blocks {
    prefix: Vec<u8>,
    scan: Scan,
    size: u64,
}

/// Bytes of the stored blocks of a file, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// In leaves that a snapshot or another file shares.
    pub shared: u64,
    /// In other leaves.
    pub alone: u64,
    /// In buffers, not yet flushed to a leaf.
    pub pending: u64,
}

/// The prefix of a file's data keys: its data zone, or its own key without one.
pub fn data_prefix(object: &Object) -> Vec<u8> {
    match object.inode().data_zone {
        Some(zone) => zone.0.to_be_bytes().to_vec(),
        None => object.place().into_bytes(),
    }
}

/// The end of the data keys of the zone that a data prefix without a data zone lies in.
fn end_of_zone(prefix: &[u8]) -> Option<Key> {
    MetaKey::beginning(prefix).map(|place| zone_range(place.zone()).1)
}

/// The offset and bytes of an entry of the data index, which must be a block of the file with this prefix and size.
fn block_at((key, value): (Key, Bytes), prefix: &[u8], size: u64) -> Result<(u64, Bytes)> {
    let block = match parse_data_key(&key) {
        Some((own, block)) if *own == *prefix => block,
        _ => u64::MAX,
    };
    let at = block.checked_mul(BLOCK).filter(|at| *at < size);
    match at {
        Some(at) if value.len() as u64 <= BLOCK.min(size - at) => Ok((at, value)),
        _ => {
            let expected = format!("blocks within {size} bytes");
            let found = format!("block {block} of {} bytes", value.len());
            let fault = Fault::mismatch("data index", expected, found);
            Err(Error::corrupt(Place::Key(TreeId::Data, key.to_vec()), fault))
        }
    }
}

/// The message that removes a file's blocks from `first` on.
pub(super) fn delete_blocks(object: &Object, first: u64) -> RecordMessage {
    let prefix = data_prefix(object);
    RecordMessage::RangeDelete(TreeId::Data, data_key(&prefix, first), data_key(&prefix, u64::MAX))
}

impl Fs {
    /// Reads up to `len` bytes at `offset`; less only at the end of the file.
    pub fn read(&self, object: &Object, offset: u64, len: usize) -> Result<Vec<u8>> {
        let size = regular(object)?.size;
        let end = offset.saturating_add(len as u64).min(size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let prefix = data_prefix(object);
        let [lo, hi] = [offset / BLOCK, end.div_ceil(BLOCK)].map(|block| data_key(&prefix, block));
        let beyond = || end_of_zone(&prefix).unwrap_or_else(|| data_key(&prefix, u64::MAX));
        let mut scan = self.contents.scan(lo, hi, beyond, true);
        let mut bytes = vec![0; (end - offset) as usize];
        while let Some(entry) = self.volume.advance(&mut scan)? {
            let (at, value) = block_at(entry, &prefix, size)?;
            let from = at.max(offset);
            let to = (at + value.len() as u64).min(end);
            if from < to {
                let source = &value[(from - at) as usize..(to - at) as usize];
                bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(bytes)
    }

    /// The stored blocks of a file; the gaps between them read as zeros.
    pub fn blocks(&self, object: &Object) -> Blocks {
        self.blocks_within(object, 0, u64::MAX)
    }

    /// The stored blocks of another file than before. For files in the order of a walk, what is read ahead goes on across
    /// them.
    pub fn blocks_after(&self, before: Blocks, object: &Object) -> Blocks {
        let prefix = data_prefix(object);
        let [lo, hi] = [0, u64::MAX].map(|block| data_key(&prefix, block));
        let beyond = end_of_zone(&prefix).unwrap_or_else(|| hi.clone());
        let mut scan = before.scan;
        scan.go_to(lo, hi, Some(beyond));
        Blocks { prefix, scan, size: object.inode().size }
    }

    /// The stored blocks of a file from byte `offset` on, including the block that contains it. It allows a reader to
    /// continue after an unreadable block.
    pub fn blocks_from(&self, object: &Object, offset: u64) -> Blocks {
        self.blocks_within(object, offset / BLOCK, u64::MAX)
    }

    /// Bytes of the stored blocks of a file. For a file with holes, the keys are counted, once after each change.
    pub fn stored_bytes(&self, object: &Object) -> Result<u64> {
        let inode = regular(object)?;
        if !inode.sparse {
            return Ok(whole_blocks(inode.size));
        }
        if let Some(bytes) = object.stored_bytes() {
            return Ok(bytes);
        }
        let mut scan = self.keys_within(object, 0, inode.size.div_ceil(BLOCK));
        let mut blocks = 0;
        while self.next_key(object, &mut scan)?.is_some() {
            blocks += 1;
        }
        object.set_stored_bytes(blocks * BLOCK);
        Ok(blocks * BLOCK)
    }

    /// As [`Fs::stored_bytes`], by place, and counted on each call: reads heads and keys of all leaves with blocks of
    /// the file.
    pub fn stored_where(&self, object: &Object) -> Result<Stored> {
        let inode = regular(object)?;
        let (prefix, end) = (data_prefix(object), inode.size.div_ceil(BLOCK));
        let (lo, hi) = (data_key(&prefix, 0), data_key(&prefix, end));
        let (mut scan, mut stored) = (PlaceScan::new(TreeId::Data, lo, hi), Stored::default());
        while let Some((_, lies)) = scan.next(self.volume.store())? {
            *match lies {
                ValuePlace::Shared => &mut stored.shared,
                ValuePlace::Alone => &mut stored.alone,
                ValuePlace::Pending => &mut stored.pending,
            } += BLOCK;
        }
        Ok(stored)
    }

    /// The stored blocks `[first, end)` of a file, without their bytes.
    pub fn keys_within(&self, object: &Object, first: u64, end: u64) -> KeyScan {
        let prefix = data_prefix(object);
        KeyScan::new(TreeId::Data, data_key(&prefix, first), Some(data_key(&prefix, end)))
    }

    /// The number of the next block of a scan.
    pub fn next_key(&self, object: &Object, scan: &mut KeyScan) -> Result<Option<u64>> {
        let Some((key, _)) = scan.next(self.volume.store())? else { return Ok(None) };
        match parse_data_key(&key) {
            Some((prefix, block)) if *prefix == *data_prefix(object) => Ok(Some(block)),
            _ => {
                let fault = Fault::Missing("this cannot be a key of the file".into());
                Err(Error::corrupt(Place::Key(TreeId::Data, key.to_vec()), fault))
            }
        }
    }

    /// The stored blocks `[first, end)` of a file, with their bytes.
    pub fn blocks_within(&self, object: &Object, first: u64, end: u64) -> Blocks {
        let prefix = data_prefix(object);
        let scan = Scan::new(TreeId::Data, data_key(&prefix, first), Some(data_key(&prefix, end)));
        Blocks { prefix, scan, size: object.inode().size }
    }

    /// As `blocks_within`, for a few blocks: without prefetch.
    pub fn few_blocks(&self, object: &Object, blocks: Range<u64>) -> Blocks {
        let prefix = data_prefix(object);
        let (lo, hi) = (data_key(&prefix, blocks.start), data_key(&prefix, blocks.end));
        let scan = Scan::few(TreeId::Data, lo, Some(hi));
        Blocks { prefix, scan, size: object.inode().size }
    }

    /// The next stored block: its offset in the file, and its bytes.
    pub fn next_block(&self, blocks: &mut Blocks) -> Result<Option<(u64, Bytes)>> {
        match self.volume.advance(&mut blocks.scan)? {
            Some(entry) => block_at(entry, &blocks.prefix, blocks.size).map(Some),
            None => Ok(None),
        }
    }

    /// Writes `data` at `offset`. If space is short, an overwrite is made in pieces: each needs space until buffers are
    /// drained, and is an operation of its own.
    pub fn write_in_pieces(&mut self, object: &Object, offset: u64, data: &Bytes) -> Result<()> {
        let (size, len) = (regular(object)?.size, data.len());
        match self.write(object, offset, data) {
            Err(Error::NoSpace { .. }) if offset + len as u64 <= size && len > FILE_BLOCK => {
                let half = (offset + len as u64 / 2).next_multiple_of(BLOCK) - offset;
                let half = (half as usize).min(len - 1);
                self.write_in_pieces(object, offset, &data.slice(..half))?;
                self.write_in_pieces(object, offset + half as u64, &data.slice(half..))
            }
            written => written,
        }
    }

    /// Writes `data` at `offset` in one operation; the file grows as needed.
    pub fn write(&mut self, object: &Object, offset: u64, data: &Bytes) -> Result<()> {
        let old_size = regular(object)?.size;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_MAX);
        let end = end.ok_or(Refusal::TooBig)?;
        if data.is_empty() {
            return Ok(());
        }
        if data.len() > WRITE_MAX {
            return Err(Error::Misuse(format!("a write of more than {WRITE_MAX} bytes")));
        }
        self.resize(object, Op::Write, old_size.max(end), |draft| {
            let prefix = data_prefix(object);
            let (messages, holes) = block_messages(prefix, old_size, offset, data);
            draft.append(messages);
            draft.inode(object).sparse |= holes || offset > whole_blocks(old_size);
        })
    }

    /// Sets the size of a file: truncates it, or extends it by a hole.
    pub fn truncate(&mut self, object: &Object, size: u64) -> Result<()> {
        let old_size = regular(object)?.size;
        if size > FILE_MAX {
            return Err(Refusal::TooBig.into());
        }
        self.resize(object, Op::Truncate, size, |draft| {
            if size < old_size {
                draft.append_deletes(delete_blocks(object, size.div_ceil(BLOCK)));
                draft.append(cut_block(object, size));
            }
            draft.inode(object).sparse |= whole_blocks(size) > whole_blocks(old_size);
        })
    }

    /// Changes the contents of a file to `size` bytes, and splits zones if necessary.
    pub(super) fn resize(
        &mut self,
        object: &Object,
        op: Op,
        size: u64,
        change: impl FnOnce(&mut Draft),
    ) -> Result<()> {
        let mut draft = self.begin()?;
        let inode = object.inode();
        let own = |object: &Object| object.zone().is_some() || object.inode().data_zone.is_some();
        let grows = Delta::data(size) - Delta::data(inode.size);
        if !own(object) && whole_blocks(size) > self.sizes.max {
            self.split_file(object)?;
        }
        if self.sizes.count_bytes()
            && !own(object)
            && let Some((directory, _)) = object.up()
        {
            self.make_way(&directory, 0, || {
                let mut counts = Counts::default();
                counts.add(&directory, grows);
                counts
            })?;
            draft.count(&directory, grows);
        }
        change(&mut draft);
        let now = draft.now;
        let inode = draft.inode(object);
        inode.size = size;
        inode.modified = now;
        inode.changed = now;
        inode.sparse &= size > 0;
        if let Some(zone) = object.inode().data_zone {
            self.weigh_file(&mut draft, object, zone, size);
        }
        self.commit(op, draft)
    }
}

/// The inode of a regular file.
pub(super) fn regular(object: &Object) -> Result<Arc<Inode>> {
    match object.kind() {
        FileType::Regular => Ok(object.inode()),
        FileType::Directory => Err(Refusal::IsADirectory.into()),
        _ => Err(Refusal::Invalid.into()),
    }
}

/// The messages that write `data` at `offset` of a file with this data prefix and `old_size` bytes, and whether they may leave holes, since
/// zeros are not stored.
pub(super) fn block_messages(
    prefix: Vec<u8>,
    old_size: u64,
    offset: u64,
    data: &Bytes,
) -> (Vec<RecordMessage>, bool) {
    let mut holes = false;
    let mut messages = Vec::with_capacity(data.len() / FILE_BLOCK + 4);
    // The blocks that are overwritten entirely.
    let old = offset.div_ceil(BLOCK)..(offset + data.len() as u64).min(old_size) / BLOCK;
    let at_once = old.end.saturating_sub(old.start) >= OVERWRITE_MIN;
    if at_once {
        let [lo, hi] = [old.start, old.end].map(|block| data_key(&prefix, block));
        messages.push(RecordMessage::RangeDelete(TreeId::Data, lo, hi));
    }
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let (block, within) = (at / BLOCK, (at % BLOCK) as usize);
        let len = (FILE_BLOCK - within).min(data.len() - done);
        let fresh = data.slice(done..done + len);
        done += len;
        let may_exist = block * BLOCK < old_size && !(at_once && old.contains(&block));
        let zero = is_zero(&fresh);
        holes |= zero;
        let action = match (may_exist, len == FILE_BLOCK) {
            (false, _) if zero => continue,
            (true, true) if zero => Action::Delete,
            (_, true) => Action::Insert(fresh),
            (false, false) if within == 0 => Action::Insert(fresh),
            // Zeros are not written into a hole.
            (_, false) => Action::Update(Update::patch(within, &fresh, !zero)),
        };
        messages.push(RecordMessage::Point(TreeId::Data, data_key(&prefix, block), action));
    }
    (messages, holes)
}

/// The message that truncates the block containing the end of a file of `size` bytes.
fn cut_block(object: &Object, size: u64) -> Option<RecordMessage> {
    let keep = (size % BLOCK) as usize;
    let key = data_key(&data_prefix(object), size / BLOCK);
    (keep > 0).then(|| RecordMessage::Point(TreeId::Data, key, Action::Update(Update::trim(keep))))
}
