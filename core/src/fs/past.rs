//! A file system as it was at a record of its log.
//!
//! Late-bound values within a log group are there once, as they were at the group's end. There a file may have been
//! longer than at a record before: what its last blocks hold beyond the size that it had then is cut off.

use std::collections::HashMap;
use std::sync::Arc;

use super::Fs;
use crate::device::Device;
use crate::error::Result;
use crate::format::limits::FILE_BLOCK;
use crate::format::*;
use crate::ids::*;
use crate::volume::{Blurred, Found, OpenOptions, Recovery, Volume};

/// Opens a moment of a file system, which `options` say the rest of.
pub fn open_as_of(
    device: Arc<dyn Device>,
    found: Found,
    options: OpenOptions,
    clock: super::Clock,
) -> Result<(Fs, Recovery)> {
    let Found { slot, mode, until, .. } = found;
    let options = OpenOptions { slot: Some(slot), mode, until, ..options };
    let (volume, recovery) = Volume::open(device, options)?;
    let mut fs = Fs::open(volume, clock);
    if let Some(stopped) = &recovery.stopped {
        fs.cut_off(&stopped.blurred)?;
    }
    Ok((fs, recovery))
}

impl Fs {
    fn cut_off(&mut self, blurred: &[Blurred]) -> Result<()> {
        let mut sizes = Sizes::default();
        let mut messages = Vec::new();
        for range in blurred {
            let Some((prefix, block)) = parse_data_key(&range.key) else { continue };
            let Some(size) = sizes.of(self, prefix)? else { continue };
            let whole = size / FILE_BLOCK as u64;
            let end = block.saturating_add(range.count.into());
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
}

/// The sizes of files by what their contents stand under.
#[derive(Default)]
struct Sizes {
    known: HashMap<Vec<u8>, Option<u64>>,
    /// Whether files with zones of their own for their contents are known.
    has_zones: bool,
}

impl Sizes {
    fn of(&mut self, fs: &Fs, prefix: &[u8]) -> Result<Option<u64>> {
        if let Some(size) = self.known.get(prefix) {
            return Ok(*size);
        }
        let value = fs.volume.get(TreeId::Metadata, prefix)?;
        let size = match value.map(|value| super::decode_value(&Key::copied(prefix), &value)) {
            Some(Ok(MetaValue::Inode(inode))) => Some(inode.size),
            Some(Err(error)) => return Err(error),
            Some(Ok(MetaValue::ZoneRef(_))) => None,
            None if prefix.len() == 8 && !self.has_zones => {
                self.find_zones(fs)?;
                return Ok(self.known.get(prefix).copied().flatten());
            }
            None => None,
        };
        self.known.insert(prefix.to_vec(), size);
        Ok(size)
    }

    /// Looks for all files that have zones for their contents.
    fn find_zones(&mut self, fs: &Fs) -> Result<()> {
        self.has_zones = true;
        for entry in fs.volume.cursor(TreeId::Metadata, Key::default(), None) {
            let (key, value) = entry?;
            if MetaKey::decode(&key).is_some_and(|place| place.xattr.is_none())
                && let MetaValue::Inode(inode) = super::decode_value(&key, &value)?
                && let Some(zone) = inode.data_zone
            {
                self.known.insert(zone.0.to_be_bytes().to_vec(), Some(inode.size));
            }
        }
        Ok(())
    }
}
