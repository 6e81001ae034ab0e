//! A file system as of a record of its log.
//!
//! Late-bound values of a log group are stored once, as at the group's end. By then a file may have been longer than at
//! an earlier record: then its last blocks are truncated to its size. Or a block may have been deleted: then the file
//! may have holes.

use std::collections::HashMap;
use std::sync::Arc;

use super::Fs;
use crate::device::Device;
use crate::error::Result;
use crate::format::limits::FILE_BLOCK;
use crate::format::*;
use crate::ids::*;
use crate::volume::{EndOfGroupValue, Found, OpenOptions, Recovery, Volume};

/// Opens a moment of a file system; `options` has the other settings.
pub fn open_as_of(
    device: Arc<dyn Device>,
    found: Found,
    options: OpenOptions,
    clock: super::Clock,
) -> Result<(Fs, Recovery)> {
    let Found { slot, mode, until, snapshot, .. } = found;
    let hold = snapshot.map(|name| name.to_string());
    let options = OpenOptions { slot: Some(slot), mode, until, hold, ..options };
    let (volume, recovery) = Volume::open(device, options)?;
    let mut fs = Fs::open(volume, clock);
    if let Some(stopped) = &recovery.stopped {
        fs.cut_off(&stopped.end_of_group)?;
    }
    Ok((fs, recovery))
}

impl Fs {
    fn cut_off(&mut self, end_of_group: &[EndOfGroupValue]) -> Result<()> {
        let mut files = Files::default();
        let mut messages = Vec::new();
        for range in end_of_group {
            let Some((prefix, block)) = parse_data_key(&range.key) else { continue };
            let Some(file) = files.of(self, prefix)? else { continue };
            let size = file.inode.size;
            let end = block.saturating_add(range.count.into());
            if !file.inode.sparse
                && self.lacks_blocks(prefix, block, end.min(size.div_ceil(FILE_BLOCK as u64)))?
            {
                file.inode.sparse = true;
                let value = file.inode.encode().into();
                messages.push(RecordMessage::Point(
                    TreeId::Metadata,
                    file.key.clone(),
                    Action::Insert(value),
                ));
            }
            let whole = size / FILE_BLOCK as u64;
            if end <= whole {
                continue;
            }
            let rest = (size % FILE_BLOCK as u64) as usize;
            let mut first = block.max(whole);
            if first == whole && rest > 0 {
                let cut = Action::Update(Update::trim(rest));
                messages.push(RecordMessage::Point(TreeId::Data, data_key(prefix, first), cut));
                first += 1;
            }
            if first < end {
                let (lo, hi) = (data_key(prefix, first), data_key(prefix, end));
                messages.push(RecordMessage::RangeDelete(TreeId::Data, lo, hi));
            }
        }
        self.volume.amend(messages)
    }

    /// Whether one of these blocks of a file is not stored.
    fn lacks_blocks(&self, prefix: &[u8], first: u64, end: u64) -> Result<bool> {
        let (lo, hi) = (data_key(prefix, first), data_key(prefix, end.max(first)));
        let mut stored = 0;
        for entry in self.volume.cursor(TreeId::Data, lo, Some(hi)) {
            entry?;
            stored += 1;
        }
        Ok(stored < end.saturating_sub(first))
    }
}

/// The inode of a file, and its key.
struct File {
    key: Key,
    inode: Inode,
}

/// Files by the prefixes of their data keys.
#[derive(Default)]
struct Files {
    known: HashMap<Vec<u8>, Option<File>>,
    /// Whether files with data zones have been searched for.
    has_zones: bool,
}

impl Files {
    fn of(&mut self, fs: &Fs, prefix: &[u8]) -> Result<Option<&mut File>> {
        if !self.known.contains_key(prefix) {
            let key = Key::copied(prefix);
            let value = fs.volume.get(TreeId::Metadata, prefix)?;
            let file = match value.map(|value| super::decode_value(&key, &value)).transpose()? {
                Some(MetaValue::Inode(inode)) => Some(File { key, inode }),
                Some(MetaValue::ZoneRef(_)) => None,
                None => {
                    if prefix.len() == 8 && !self.has_zones {
                        self.find_zones(fs)?;
                    }
                    self.known.remove(prefix).flatten()
                }
            };
            self.known.insert(prefix.to_vec(), file);
        }
        Ok(self.known.get_mut(prefix).and_then(Option::as_mut))
    }

    /// Finds all files with data zones.
    fn find_zones(&mut self, fs: &Fs) -> Result<()> {
        self.has_zones = true;
        for entry in fs.volume.cursor(TreeId::Metadata, Key::default(), None) {
            let (key, value) = entry?;
            if MetaKey::decode(&key).is_some_and(|place| place.xattr().is_none())
                && let MetaValue::Inode(inode) = super::decode_value(&key, &value)?
                && let Some(zone) = inode.data_zone
            {
                self.known.insert(zone.0.to_be_bytes().to_vec(), Some(File { key, inode }));
            }
        }
        Ok(())
    }
}
