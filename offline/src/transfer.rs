//! The contents of a volume without its structure: their hash, their differences, and their transfer into another
//! volume.
//!
//! Nodes contain addresses, so they are not transferred. Keys and values are, so volumes of different structure can
//! have the same contents.

use bytes::Bytes;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::compare::{Differing, DifferingEntries, Side, Touched, Unread};
use betr_core::error::{Error, Result};
use betr_core::format::{Action, Key, NextNumbers, Op, RecordMessage};
use betr_core::ids::*;
use betr_core::tree::Scan;
use betr_core::volume::{Transaction, Volume};

/// The prefix of hashed content.
const CONTENT: &[u8] = b"betr content 1\n";
/// 8 MiB of entries are hashed at once, on all cores.
const HASHED_AT_ONCE: usize = 8 << 20;
/// 4096 entries, or 4 MiB of them, make a transaction.
const ENTRIES_AT_ONCE: usize = 4096;
const BYTES_AT_ONCE: usize = 4 << 20;

/// The hash of all keys and values (SPEC 18.1). It does not depend on places, or on the next numbers.
pub fn content_hash(volume: &Volume, seen: &mut dyn FnMut(u64)) -> Result<Hash> {
    let mut all = Sha256::new();
    all.update(CONTENT);
    for tree in TreeId::ALL {
        let mut scan = Scan::new(tree, Key::default(), None);
        let (mut entries, mut bytes) = (Vec::new(), 0);
        loop {
            let next = volume.advance(&mut scan)?;
            let is_end = next.is_none();
            if let Some((key, value)) = next {
                bytes += key.len() + value.len();
                entries.push((key, value));
            }
            if is_end || bytes >= HASHED_AT_ONCE {
                let hashes: Vec<[u8; 32]> =
                    entries.par_iter().map(|(key, value)| entry_hash(tree, key, value)).collect();
                hashes.iter().for_each(|hash| all.update(hash));
                seen(bytes as u64);
                (entries, bytes) = (Vec::new(), 0);
            }
            if is_end {
                break;
            }
        }
    }
    Ok(Hash(all.finalize().into()))
}

fn entry_hash(tree: TreeId, key: &[u8], value: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update([tree.code()]);
    hash.update((key.len() as u32).to_le_bytes());
    hash.update(key);
    hash.update(value);
    hash.finalize().into()
}

/// The changes that turn one volume's contents into another's: entries, each with its new value, or `None` for a
/// delete.
pub struct Changes<'v> {
    /// The other volume; `None` for an empty one.
    base: Option<&'v Volume>,
    volume: &'v Volume,
    /// Ranges in which they may differ; the last one is next.
    ranges: Vec<(TreeId, Key, Option<Key>)>,
    present: Option<(TreeId, Entries<'v>)>,
}

/// The entries of the current range.
enum Entries<'v> {
    All(Box<Scan>),
    Differing(Box<DifferingEntries<'v>>),
}

/// An entry to be put or deleted.
pub type Change = (TreeId, Key, Option<Bytes>);

impl<'v> Changes<'v> {
    /// All entries of a volume.
    pub fn all(volume: &'v Volume) -> Changes<'v> {
        Changes::new(None, volume, None)
    }

    /// The changes that turn `base` into `volume`; `touched` are the keys in which they may differ, if known.
    pub fn between(base: &'v Volume, volume: &'v Volume, touched: Option<Touched>) -> Changes<'v> {
        Changes::new(Some(base), volume, touched)
    }

    fn new(base: Option<&'v Volume>, volume: &'v Volume, touched: Option<Touched>) -> Changes<'v> {
        let mut ranges = Vec::new();
        for (at, tree) in TreeId::ALL.into_iter().enumerate() {
            match &touched {
                None => ranges.push((tree, Key::default(), None)),
                Some(touched) => {
                    let of_tree = touched[at].iter();
                    ranges.extend(of_tree.map(|range| (tree, range.lo, Some(range.hi))));
                }
            }
        }
        ranges.reverse();
        Changes { base, volume, ranges, present: None }
    }

    /// The next change, by index and key. The error says which of the two volumes is unreadable.
    pub fn next_change(&mut self) -> std::result::Result<Option<Change>, Unread> {
        loop {
            if let Some((tree, entries)) = &mut self.present {
                let of_volume = |error| Unread { side: Side::Second, error };
                let next = match entries {
                    Entries::All(scan) => {
                        let next = self.volume.advance(scan).map_err(of_volume)?;
                        next.map(|(key, value)| (key, Some(value)))
                    }
                    Entries::Differing(entries) => {
                        entries.next_entry()?.map(|Differing { key, second, .. }| (key, second))
                    }
                };
                if let Some((key, value)) = next {
                    return Ok(Some((*tree, key, value)));
                }
            }
            let Some((tree, lo, hi)) = self.ranges.pop() else { return Ok(None) };
            let entries = match self.base {
                None => Entries::All(Box::new(Scan::new(tree, lo, hi))),
                Some(base) => {
                    let volumes = [base, self.volume];
                    let entries = DifferingEntries::new(volumes, tree, &lo, hi.as_ref());
                    Entries::Differing(Box::new(entries))
                }
            };
            self.present = Some((tree, entries));
        }
    }
}

/// A volume that receives entries. They become durable with a checkpoint.
pub struct Arrival<'v> {
    volume: &'v mut Volume,
    wall: Time,
    messages: Vec<RecordMessage>,
    bytes: usize,
}

impl<'v> Arrival<'v> {
    /// Starts to put entries into a volume, as of a time.
    pub fn new(volume: &'v mut Volume, wall: Time) -> Result<Arrival<'v>> {
        volume.stop_logging()?;
        Ok(Arrival { volume, wall, messages: Vec::new(), bytes: 0 })
    }

    /// Puts or deletes an entry. Fails if its key or value exceeds the limits.
    pub fn put(&mut self, (tree, key, value): Change) -> Result<()> {
        self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        let message = match value {
            Some(value) => RecordMessage::Point(tree, key, Action::Insert(value)),
            None => RecordMessage::Point(tree, key, Action::Delete),
        };
        if let Some(what) = message.beyond_limits() {
            return Err(Error::Input(format!("an entry that no image can have: {what}")));
        }
        self.messages.push(message);
        match self.messages.len() >= ENTRIES_AT_ONCE || self.bytes >= BYTES_AT_ONCE {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let messages = std::mem::take(&mut self.messages);
        if messages.is_empty() {
            return Ok(());
        }
        self.volume.commit(Transaction { op: Op::Raw, wall: self.wall, messages }).map(drop)
    }

    /// Ends the transfer; numbers are given out from these on.
    pub fn end(mut self, next: NextNumbers) -> Result<()> {
        self.flush()?;
        self.volume.raise_numbers(next);
        Ok(())
    }
}
