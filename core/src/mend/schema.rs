//! Repairs the schema: makes the two indexes consistent, by ordinary transactions.
//!
//! The checker proposes a correction for each contradiction. A correction may reveal others, so this is repeated until
//! there are none; counts are corrected last. Objects without a place go to `lost+found`, under their best known name.

use std::collections::BTreeMap;

use super::losses::Ranges;
use super::{Change, Loss};
use crate::check::{Correction, corrections, lost_inode};
use crate::error::{Place, Result};
use crate::format::*;
use crate::fs::{FIRST_ZONE, ROOT_ZONE};
use crate::ids::*;
use crate::volume::{Transaction, Volume};

/// 100 rounds at most, since corrections may reveal others.
const ROUNDS: usize = 100;
/// 64 KiB of keys and values make a transaction.
const AT_ONCE: usize = 64 << 10;
/// 32 bytes of a message besides key and value.
const MESSAGE_BYTES: usize = 32;
/// The text of changes that drop entries below a non-directory.
const DROPPED_BELOW: &str = "what was below it is dropped: it is no directory";
/// The directory for objects without a place.
const FOUND: &[u8] = b"lost+found";

/// Makes the indexes consistent.
pub(super) fn mend(volume: &mut Volume, losses: &[Loss], changes: &mut Vec<Change>) -> Result<()> {
    let lost = Ranges::of(losses, TreeId::Metadata);
    let is_lost = |key: &Key| lost.overlap(key, Some(&key.successor()));
    for _ in 0..ROUNDS {
        let corrections = corrections(volume, &is_lost)?;
        let mut by_phase: BTreeMap<u8, Vec<Correction>> = BTreeMap::new();
        for correction in corrections {
            by_phase.entry(correction.phase()).or_default().push(correction);
        }
        let mut mender =
            Mender { volume, changes, messages: Vec::new(), bytes: 0, found: None, changed: false };
        // If a phase changes nothing, the next phase follows.
        for corrections in by_phase.into_values() {
            corrections.into_iter().try_for_each(|correction| mender.correct(correction))?;
            mender.commit()?;
            if mender.changed {
                break;
            }
        }
        if !mender.changed {
            break;
        }
    }
    Ok(())
}

struct Mender<'m> {
    volume: &'m mut Volume,
    changes: &'m mut Vec<Change>,
    messages: Vec<RecordMessage>,
    bytes: usize,
    /// The place of `lost+found`, once it exists.
    found: Option<MetaKey>,
    /// Whether there was a change.
    changed: bool,
}

impl Mender<'_> {
    fn correct(&mut self, correction: Correction) -> Result<()> {
        match correction {
            Correction::Drop(tree, key) => {
                self.note(Place::Key(tree, key.to_vec()), Change::DROPPED);
                self.send(RecordMessage::Point(tree, key, Action::Delete))
            }
            Correction::Unowned(key) => {
                self.note(Place::Key(TreeId::Metadata, key.to_vec()), "dropped: it has no owner");
                self.send(RecordMessage::Point(TreeId::Metadata, key, Action::Delete))
            }
            Correction::DropBelow(place) => self.drop_below(&place),
            Correction::Size(key, size) => {
                let what = format!("{size} bytes long, as its contents are");
                self.note(Place::Key(TreeId::Metadata, key.to_vec()), what);
                let update = Update::patch(SIZE_AT, &size.to_le_bytes(), false);
                let message = Action::Update(update);
                self.send(RecordMessage::Point(TreeId::Metadata, key, message))
            }
            Correction::DropBlocks(prefix, size) => {
                let what = format!("contents behind the end, at {size}, dropped");
                self.note(Place::Key(TreeId::Data, prefix.clone()), what);
                let block = limits::FILE_BLOCK as u64;
                let keep = (size % block) as usize;
                if keep > 0 {
                    let key = data_key(&prefix, size / block);
                    let trim = Action::Update(Update::trim(keep));
                    self.send(RecordMessage::Point(TreeId::Data, key, trim))?;
                }
                let [lo, hi] = [size.div_ceil(block), u64::MAX].map(|at| data_key(&prefix, at));
                self.send(RecordMessage::RangeDelete(TreeId::Data, lo, hi))
            }
            Correction::DropContents(prefix) => {
                self.note(Place::Key(TreeId::Data, prefix.clone()), Change::UNOWNED);
                let [lo, hi] = [0, u64::MAX].map(|block| data_key(&prefix, block));
                self.send(RecordMessage::RangeDelete(TreeId::Data, lo, hi))
            }
            Correction::Put(key, value) => {
                self.note(Place::Key(TreeId::Metadata, key.to_vec()), "written afresh");
                self.put(key, value)
            }
            Correction::Cloned(key, root) => {
                let limit = self.volume.next_numbers().ino;
                // Without a tag the next round gives each inode another number.
                let (lineage, what) = match self.volume.take_tag() {
                    Ok(tag) => (Lineage { limit, tag }, format!("written afresh, with tag {tag}")),
                    Err(_) => (Lineage::NONE, "written afresh".into()),
                };
                self.note(Place::Key(TreeId::Metadata, key.to_vec()), what);
                let ino = lineage.stored(root.ino);
                self.put(key, Inode { ino, lineage, ..*root }.encode())
            }
            Correction::Patch(key, offset, bytes) => {
                self.note(Place::Key(TreeId::Metadata, key.to_vec()), Change::COUNTED);
                let update = Action::Update(Update::patch(offset, &bytes, false));
                self.send(RecordMessage::Point(TreeId::Metadata, key, update))
            }
            Correction::Numbers(least) => {
                self.changed = true;
                self.volume.raise_numbers(least);
                Ok(())
            }
            Correction::Contentless(key) => {
                let value = self.volume.get(TreeId::Metadata, &key)?;
                let decoded = value.and_then(|value| MetaValue::decode(&value, None).ok());
                let Some(MetaValue::Inode(inode)) = decoded else { return Ok(()) };
                let inode = Inode { data_zone: None, size: 0, ..inode };
                self.note(Place::Key(TreeId::Metadata, key.to_vec()), Change::GIVEN_UP);
                self.put(key, inode.encode())
            }
            Correction::Renumber(key, inode) => {
                let ino = self.volume.take_ino()?;
                let what = format!("inode number {ino} in place of {}", inode.ino);
                self.note(Place::Key(TreeId::Metadata, key.to_vec()), what);
                self.put(key, Inode { ino, ..*inode }.encode())
            }
            Correction::Directory(place) => self.directory(&place),
            Correction::Unnamed(zone, root) => self.unnamed(zone, root.map(|root| *root)),
            Correction::File { prefix, size, known } => self.file(&prefix, size, known),
        }
    }

    /// Makes a directory whose inode is lost, and its lost parents. If another object has taken its place, everything
    /// below is dropped: it was moved or removed before.
    fn directory(&mut self, place: &MetaKey) -> Result<()> {
        let Some(above) = place.parent() else { return Ok(()) };
        if let Some(value) = self.volume.get(TreeId::Metadata, &place.encode())? {
            return match MetaValue::decode(&value, None) {
                Ok(MetaValue::Inode(inode)) if inode.kind == FileType::Directory => Ok(()),
                _ => self.drop_below(place),
            };
        }
        if !above.is_root() {
            let before = self.changes.len();
            self.directory(&above)?;
            // It was dropped together with the entries above.
            let dropped = |change: &Change| change.what == DROPPED_BELOW;
            if self.changes[before..].iter().any(dropped) {
                return Ok(());
            }
        }
        let ino = self.volume.take_ino()?;
        let inode = lost_inode(FileType::Directory, ino, self.volume.superblock().wall);
        let key = place.encode();
        self.note(Place::Key(TreeId::Metadata, key.to_vec()), "directory made again");
        self.put(key, inode.encode())?;
        self.commit()
    }

    /// Drops everything below a non-directory.
    fn drop_below(&mut self, place: &MetaKey) -> Result<()> {
        let (lo, hi) = place.subtree_range();
        // Another entry may have caused the drop already.
        let mut below = self.volume.cursor(TreeId::Metadata, lo.clone(), Some(hi.clone()));
        if below.next().transpose()?.is_none() {
            return Ok(());
        }
        drop(below);
        self.note(Place::Key(TreeId::Metadata, place.encode().to_vec()), DROPPED_BELOW);
        self.send(RecordMessage::RangeDelete(TreeId::Metadata, lo.clone(), hi.clone()))?;
        self.send(RecordMessage::RangeDelete(TreeId::Data, lo, hi))?;
        self.commit()
    }

    /// Gives a zone without a name one in `lost+found`.
    fn unnamed(&mut self, zone: ZoneId, root: Option<Inode>) -> Result<()> {
        let name = match root.as_ref().and_then(|root| root.parent.as_ref()) {
            Some(parent) => parent.name.clone(),
            None => format!("zone-{}", zone.0).into_bytes(),
        };
        let place = self.found_place(name, zone)?;
        let name = place.name().to_vec();
        let root = match root {
            Some(root) => root,
            None => {
                let ino = self.volume.take_ino()?;
                lost_inode(FileType::Directory, ino, self.volume.superblock().wall)
            }
        };
        let (kind, ino) = (root.kind, root.ino);
        let directory = kind == FileType::Directory;
        let parent = directory.then_some(Parent { zone: place.zone(), name });
        let link = if directory { LinkKind::Own } else { LinkKind::Link };
        let key = place.encode();
        self.note(Place::Key(TreeId::Metadata, key.to_vec()), format!("zone {zone} put here"));
        self.put(key, ZoneRef { link, kind, ino, zone }.encode())?;
        let root = Inode { parent, ino: root.lineage.stored(ino), ..root };
        self.put(MetaKey::root(zone).encode(), root.encode())?;
        self.commit()
    }

    /// Makes a file whose inode is lost, at its place if that is known.
    fn file(&mut self, prefix: &[u8], size: u64, known: Option<(Ino, u32)>) -> Result<()> {
        let wall = self.volume.superblock().wall;
        let place = MetaKey::decode(prefix);
        let named = place.filter(|place| !place.is_root() || known.is_some());
        let (ino, links) = match known {
            Some(known) => known,
            None => (self.volume.take_ino()?, 1),
        };
        let inode = Inode { size, links, ..lost_inode(FileType::Regular, ino, wall) };
        let (place, data_zone) = match named {
            Some(place) => (place, None),
            None => {
                let zone = prefix.first_chunk::<8>().filter(|_| prefix.len() == 8);
                let zone = zone.map(|zone| ZoneId(u64::from_be_bytes(*zone)));
                let can_be = |zone: &ZoneId| *zone >= FIRST_ZONE && zone.0 < limits::NUMBERS_END;
                let Some(zone) = zone.filter(can_be) else {
                    return self.correct(Correction::DropContents(prefix.to_vec()));
                };
                (self.found_place(format!("zone-{}", zone.0).into_bytes(), zone)?, Some(zone))
            }
        };
        let key = place.encode();
        // The object at this place is no file with these contents.
        if known.is_none() && self.volume.get(TreeId::Metadata, &key)?.is_some() {
            return self.correct(Correction::DropContents(prefix.to_vec()));
        }
        self.note(
            Place::Key(TreeId::Metadata, key.to_vec()),
            format!("file of {size} bytes found"),
        );
        self.put(key, Inode { data_zone, ..inode }.encode())?;
        self.commit()
    }

    /// A free place in `lost+found`.
    fn found_place(&mut self, name: Vec<u8>, zone: ZoneId) -> Result<MetaKey> {
        let found = match &self.found {
            Some(found) => found.clone(),
            None => self.make_found()?,
        };
        let mut number = 0u64;
        loop {
            let name = match number {
                0 => name.clone(),
                // Zone numbers are unique.
                1 => [&name[..name.len().min(200)], format!(".{}", zone.0).as_bytes()].concat(),
                _ => [&name[..name.len().min(200)], format!(".{}.{number}", zone.0).as_bytes()]
                    .concat(),
            };
            let place = found.child(&name);
            if self.volume.get(TreeId::Metadata, &place.encode())?.is_none() {
                return Ok(place);
            }
            number += 1;
        }
    }

    /// Finds `lost+found` in the root directory, or makes it.
    fn make_found(&mut self) -> Result<MetaKey> {
        let root = MetaKey::root(ROOT_ZONE);
        for number in 0u64.. {
            let name = match number {
                0 => FOUND.to_vec(),
                _ => [FOUND, format!(".{number}").as_bytes()].concat(),
            };
            let place = root.child(&name);
            let value = self.volume.get(TreeId::Metadata, &place.encode())?;
            let place = match value.map(|value| MetaValue::decode(&value, None)) {
                // It may become large, so it gets its own zone.
                None => self.make_zone(&place, name)?,
                Some(Ok(MetaValue::Inode(inode))) if inode.kind == FileType::Directory => place,
                Some(Ok(MetaValue::ZoneRef(zone))) if zone.kind == FileType::Directory => {
                    MetaKey::root(zone.zone)
                }
                Some(_) => continue,
            };
            self.found = Some(place.clone());
            return Ok(place);
        }
        Ok(root)
    }

    /// Makes a directory with its own zone in the root directory.
    fn make_zone(&mut self, place: &MetaKey, name: Vec<u8>) -> Result<MetaKey> {
        let (zone, ino) = (self.volume.take_zone()?, self.volume.take_ino()?);
        let wall = self.volume.superblock().wall;
        let (kind, link) = (FileType::Directory, LinkKind::Own);
        let parent = Some(Parent { zone: place.zone(), name });
        let root = MetaKey::root(zone);
        self.note(Place::Key(TreeId::Metadata, place.encode().to_vec()), "directory made");
        self.put(place.encode(), ZoneRef { link, kind, ino, zone }.encode())?;
        self.put(root.encode(), Inode { parent, ..lost_inode(kind, ino, wall) }.encode())?;
        self.commit()?;
        Ok(root)
    }

    fn note(&mut self, place: Place, what: impl Into<String>) {
        self.changes.push(Change { place, what: what.into() });
    }

    fn put(&mut self, key: Key, value: Vec<u8>) -> Result<()> {
        self.send(RecordMessage::Point(TreeId::Metadata, key, Action::Insert(value.into())))
    }

    fn send(&mut self, message: RecordMessage) -> Result<()> {
        self.changed = true;
        self.bytes += MESSAGE_BYTES
            + match &message {
                RecordMessage::Point(_, key, Action::Insert(value)) => key.len() + value.len(),
                RecordMessage::Point(_, key, _) => key.len(),
                RecordMessage::RangeDelete(_, lo, hi) => lo.len() + hi.len(),
                RecordMessage::Clone(..) => message.encoded_bytes(),
                RecordMessage::Unbound(key, _) => key.len(),
            };
        self.messages.push(message);
        if self.bytes >= AT_ONCE { self.commit() } else { Ok(()) }
    }

    /// Carries out the collected messages.
    fn commit(&mut self) -> Result<()> {
        let messages = std::mem::take(&mut self.messages);
        self.bytes = 0;
        if messages.is_empty() {
            return Ok(());
        }
        let wall = self.volume.superblock().wall;
        self.volume.commit_repair(Transaction { op: Op::Raw, wall, messages }).map(drop)
    }
}
