//! Checks the contents of files: the keys of the data index, against the inodes.
//!
//! Both indexes have the same order, and are walked in step. The key of a block begins with the metadata key of its
//! file, and no such prefix matches another file. So a block can only belong to the last file before it, and one file
//! at a time is kept. The order of data zones differs from that of their files. So the end of each data zone's contents
//! is kept; if it exceeds the file's size, its blocks are scanned again.

use std::collections::{BTreeMap, HashMap};

use super::super::{Code, Finding};
use super::entries::{Shown, Stored};
use crate::error::{Place, Result};
use crate::format::limits::{FILE_BLOCK, FILE_MAX};
use crate::format::{Bounds, Key, Lens, data_key, parse_data_key, prefix_end};
use crate::ids::*;
use crate::store::Store;
use crate::tree::{KeyScan, Sum};

/// 8 bytes of a key: a data zone.
const ZONE_BYTES: usize = 8;
/// 8 bytes of a key: the number of a block.
const BLOCK_BYTES: usize = 8;
/// 16 bytes: a key of a data zone.
const DATA_KEY_MIN: usize = ZONE_BYTES + BLOCK_BYTES;

/// The state of contents, and the findings.
#[derive(Default)]
pub(super) struct Contents {
    /// The last file without a data zone, and its number of blocks.
    last: Option<(Key, Stated, u64)>,
    /// The inode fields of files with data zones.
    stated: HashMap<ZoneId, Stated>,
    /// The contents of data zones.
    reaches: BTreeMap<ZoneId, Blocks>,
    /// Number of values so far.
    pub blocks: u64,
    /// Findings, with their keys.
    findings: Vec<(Key, Finding)>,
    /// Entries that cannot be blocks.
    pub impossible: Vec<Key>,
    /// Contents without a file.
    pub strays: Vec<Stray>,
    /// Files that are shorter than their contents: the length of the contents, and the stated size.
    pub short: BTreeMap<Vec<u8>, (u64, u64)>,
    /// Files with holes whose inodes lack the flag: the prefix of their keys, the number of stored blocks, and of all
    /// blocks.
    pub unflagged: Vec<(Key, u64, u64)>,
}

/// The fields of an inode on the contents of its file.
#[derive(Clone, Copy)]
pub(super) struct Stated {
    pub size: u64,
    /// Whether there may be holes.
    pub sparse: bool,
}

impl Stated {
    /// The number of blocks of such a file without holes, if `blocks` is less and holes are not allowed.
    fn lacks(self, blocks: u64) -> Option<u64> {
        let all = self.size.div_ceil(FILE_BLOCK as u64);
        (!self.sparse && blocks < all).then_some(all)
    }
}

/// Contents without a file.
pub(super) struct Stray {
    first: Key,
    /// The prefix of their keys.
    pub prefix: Vec<u8>,
    /// Their end.
    pub size: u64,
}

/// The end and number of blocks in a data zone, or in a part of the index.
#[derive(Clone, Default)]
pub(in crate::check) struct Blocks {
    end: u64,
    count: u64,
    /// Whether there is an entry that cannot be a block.
    is_odd: bool,
    /// The lengths of the shortest and the longest key.
    keys: Option<(usize, usize)>,
}

impl Blocks {
    /// The number of keys.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether the only key is this one, which is that of no block.
    pub(super) fn are_one_key(&self, key: &[u8]) -> bool {
        self.keys == Some((key.len(), key.len()))
    }

    /// Whether all keys are blocks of the data zone that `bounds` are in.
    pub(super) fn are_of_one_file(&self, bounds: &Bounds) -> bool {
        let zone = bounds.lo.get(..ZONE_BYTES).and_then(prefix_end);
        let within = zone.zip(bounds.hi.as_ref()).is_some_and(|(end, hi)| *hi <= end);
        within && self.keys.is_none_or(|lengths| lengths == (DATA_KEY_MIN, DATA_KEY_MIN))
    }
}

impl Sum for Blocks {
    fn add(&mut self, key: &[u8], len: usize) {
        let (least, most) = self.keys.unwrap_or((key.len(), key.len()));
        self.keys = Some((least.min(key.len()), most.max(key.len())));
        self.count = self.count.saturating_add(1);
        let block = parse_data_key(key).filter(|_| is_block(len));
        match block.and_then(|(_, block)| end_of(block, len)) {
            Some(end) => self.end = self.end.max(end),
            None => self.is_odd = true,
        }
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn join(&mut self, other: &Blocks) {
        self.end = self.end.max(other.end);
        self.count = self.count.saturating_add(other.count);
        self.is_odd |= other.is_odd;
        self.keys = match (self.keys, other.keys) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    /// A lens leaves the number of a block alone; where it does not, keys of no file are made of them.
    fn seen_through(self, lens: &Lens) -> Blocks {
        let (from, to) = (lens.from().len(), lens.to().len());
        let keys = self.keys.map(|(least, most)| match least >= from + BLOCK_BYTES {
            true => (least - from + to, most - from + to),
            false => (0, 0),
        });
        Blocks { keys, ..self }
    }
}

/// Blocks by file, in the order of their keys.
#[derive(Clone, Default)]
pub(in crate::check) struct Files(Vec<(Key, Blocks)>);

impl Files {
    /// The blocks of each file, or keys that are of none, in a leaf with these bounds that is seen through a lens.
    pub(super) fn into_parts(self, bounds: &Bounds) -> Vec<Stored> {
        let part = |(prefix, blocks)| Stored::Part(prefix, Box::new((blocks, bounds.clone())));
        self.0.into_iter().map(part).collect()
    }

    /// The same of a leaf as it is, files with data zones included.
    pub(in crate::check) fn into_stored(self, bounds: &Bounds) -> Vec<Stored> {
        let stored = |(prefix, blocks): (Key, Blocks)| match zone_of(&prefix) {
            // Nothing of it is seen through a lens, so it can be scanned.
            Some(_) => Stored::OfZone(prefix, Box::new(Blocks { keys: None, ..blocks })),
            None => Stored::Part(prefix, Box::new((blocks, bounds.clone()))),
        };
        self.0.into_iter().map(stored).collect()
    }

    fn of(&mut self, prefix: &[u8]) -> &mut Blocks {
        if self.0.last().is_none_or(|(last, _)| **last != *prefix) {
            self.0.push((Key::copied(prefix), Blocks::default()));
        }
        let last = self.0.len() - 1;
        &mut self.0[last].1
    }
}

impl Sum for Files {
    fn add(&mut self, key: &[u8], len: usize) {
        let prefix = parse_data_key(key).map_or(key, |(prefix, _)| prefix);
        self.of(prefix).add(key, len);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn join(&mut self, other: &Files) {
        other.0.iter().for_each(|(prefix, blocks)| self.of(prefix).join(blocks));
    }

    /// A lens that replaces a part of the number of a block makes the key of no file of it.
    fn seen_through(self, lens: &Lens) -> Files {
        let above = |(prefix, blocks): (Key, Blocks)| match prefix.starts_with(lens.from()) {
            true => (lens.up(&prefix), blocks),
            false => (lens.to().clone(), Blocks { is_odd: true, ..blocks }),
        };
        Files(self.0.into_iter().map(above).collect())
    }
}

impl Contents {
    /// Adds blocks of the file whose contents have this prefix, which is its key. Returns false if they must be looked at one by one.
    pub(super) fn add_part(&mut self, prefix: &[u8], blocks: &Blocks) -> bool {
        let own = |(file, ..): &&mut (Key, Stated, u64)| **file == *prefix;
        match self.last.as_mut().filter(own) {
            Some((_, stated, count)) if !blocks.is_odd && blocks.end <= stated.size => {
                *count = count.saturating_add(blocks.count);
                self.blocks = self.blocks.saturating_add(blocks.count);
                true
            }
            _ => false,
        }
    }

    /// Adds a file whose contents have this prefix. Returns false if another file has it.
    pub(super) fn add_file(&mut self, prefix: Key, stated: Stated) -> bool {
        match zone_of(&prefix) {
            Some(zone) => self.stated.insert(zone, stated).is_none(),
            None => {
                self.end_file();
                self.last = Some((prefix, stated, 0));
                true
            }
        }
    }

    /// Ends the last file: all of its values are known.
    fn end_file(&mut self) {
        if let Some((prefix, stated, blocks)) = self.last.take()
            && let Some(all) = stated.lacks(blocks)
        {
            self.unflagged.push((prefix, blocks, all));
        }
    }

    /// Adds the next key of the data index, and the length of its value. All files before it must have been added.
    pub(super) fn add_value(&mut self, key: &[u8], len: usize) {
        self.blocks += 1;
        let place = parse_data_key(key);
        if let Some((zone, block)) =
            place.and_then(|(prefix, block)| Some((zone_of(prefix)?, block)))
        {
            let reach = self.reaches.entry(zone).or_default();
            reach.count += 1;
            match end_of(block, len).filter(|_| is_block(len)) {
                Some(end) => reach.end = reach.end.max(end),
                None => reach.is_odd = true,
            }
            return;
        }
        let own = |(file, ..): &&mut (Key, Stated, u64)| {
            place.is_some_and(|(prefix, _)| **file == *prefix)
        };
        let size = self.last.as_mut().filter(own).map(|(_, stated, blocks)| {
            *blocks += 1;
            stated.size
        });
        self.judge(key, len, size);
    }

    /// Adds blocks of the file with a data zone, which the first of their keys names.
    pub(super) fn add_blocks(&mut self, first: &[u8], blocks: &Blocks) {
        self.blocks = self.blocks.saturating_add(blocks.count);
        if let Some(zone) = first.get(..ZONE_BYTES).and_then(zone_of) {
            self.reaches.entry(zone).or_default().join(blocks);
        }
    }

    /// Ends the walk: scans data zones again that exceed their files. Returns all findings in key order.
    pub(super) fn end(
        &mut self,
        store: &Store,
        shown: &Shown,
        findings: &mut Vec<Finding>,
    ) -> Result<()> {
        self.end_file();
        let reaches = std::mem::take(&mut self.reaches);
        let holes = self.stated.iter().filter_map(|(zone, stated)| {
            let blocks = reaches.get(zone).map_or(0, |reach| reach.count);
            stated.lacks(blocks).map(|all| (Key::copied(&zone.0.to_be_bytes()), blocks, all))
        });
        self.unflagged.extend(holes);
        self.unflagged.sort();
        let result = reaches.into_iter().try_for_each(|(zone, reach)| {
            let size = self.stated.get(&zone).map(|stated| stated.size);
            match size.is_some_and(|size| reach.end <= size) && !reach.is_odd {
                true => Ok(()),
                false if reach.keys.is_some() => {
                    self.judge_shown(store, shown, (zone, &reach), size)
                }
                false => self.judge_zone(store, zone, size),
            }
        });
        self.findings.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.impossible.sort();
        self.strays.sort_by(|a, b| a.first.cmp(&b.first));
        findings.extend(self.findings.drain(..).map(|(_, finding)| finding));
        result
    }

    /// Judges the contents of a data zone, parts of which are seen through a lens: as a whole, if all are blocks.
    fn judge_shown(
        &mut self,
        store: &Store,
        shown: &Shown,
        (zone, blocks): (ZoneId, &Blocks),
        size: Option<u64>,
    ) -> Result<()> {
        let prefix = zone.0.to_be_bytes().to_vec();
        let (key, count, end) = (data_key(&prefix, 0), blocks.count, blocks.end);
        if blocks.is_odd {
            let keys = Bounds { lo: Key::copied(&prefix), hi: prefix_end(&prefix) };
            for (key, len) in shown.keys(store, &keys, count)? {
                self.judge(&key, len, size);
            }
            return Ok(());
        }
        let detail = match size {
            Some(size) => {
                self.short.insert(prefix, (end, size));
                format!("{count} blocks that end at {end}, of a file of {size} bytes")
            }
            None => {
                self.strays.push(Stray { first: key.clone(), prefix, size: end });
                format!("no file has these {count} blocks")
            }
        };
        self.add(Code::DataWrong, &key, detail);
        Ok(())
    }

    fn judge_zone(&mut self, store: &Store, zone: ZoneId, size: Option<u64>) -> Result<()> {
        let prefix = zone.0.to_be_bytes();
        let (lo, hi) = (data_key(&prefix, 0), data_key(&prefix, u64::MAX).successor());
        let mut scan = KeyScan::new(TreeId::Data, lo, Some(hi));
        while let Some((key, len)) = scan.next(store)? {
            if parse_data_key(&key).is_some_and(|(prefix, _)| zone_of(prefix).is_some()) {
                self.judge(&key, len, size);
            }
        }
        Ok(())
    }

    /// Judges one value of a file of this size; `None` for no file.
    fn judge(&mut self, key: &[u8], len: usize, size: Option<u64>) {
        let Some((prefix, block)) = parse_data_key(key) else {
            self.impossible.push(Key::copied(key));
            return self.add(Code::KeyInvalid, key, "no data key looks like this".into());
        };
        let end = end_of(block, len);
        if !is_block(len) || end.is_none() {
            self.impossible.push(Key::copied(key));
        }
        let Some(size) = size else {
            match (self.strays.last_mut(), end) {
                (_, None) => {}
                (Some(last), Some(end)) if last.prefix == prefix => last.size = end,
                (_, Some(size)) => {
                    let (first, prefix) = (Key::copied(key), prefix.to_vec());
                    self.strays.push(Stray { first, prefix, size });
                }
            }
            return self.add(Code::DataWrong, key, "no file has these blocks".into());
        };
        let start = block.checked_mul(FILE_BLOCK as u64);
        let left = start.and_then(|start| size.checked_sub(start)).unwrap_or(0);
        if len == 0 || len as u64 > left.min(FILE_BLOCK as u64) {
            if let Some(end) = end.filter(|end| *end > size) {
                self.short.insert(prefix.to_vec(), (end, size));
            }
            let detail =
                format!("a value of {len} bytes in block {block} of a file of {size} bytes");
            self.add(Code::DataWrong, key, detail);
        }
    }

    fn add(&mut self, code: Code, key: &[u8], detail: String) {
        let place = Place::Key(TreeId::Data, key.to_vec());
        self.findings.push((Key::copied(key), Finding { code, place, detail }));
    }
}

/// The data zone of a prefix, if it is one.
fn zone_of(prefix: &[u8]) -> Option<ZoneId> {
    prefix.try_into().ok().map(|zone| ZoneId(u64::from_be_bytes(zone)))
}

/// Whether a file block may have this length.
fn is_block(len: usize) -> bool {
    (1..=FILE_BLOCK).contains(&len)
}

/// The end of a value in its file, if within the limit of file sizes.
fn end_of(block: u64, len: usize) -> Option<u64> {
    let start = block.checked_mul(FILE_BLOCK as u64)?;
    start.checked_add(len as u64).filter(|end| *end <= FILE_MAX)
}
