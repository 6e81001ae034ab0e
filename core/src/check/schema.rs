//! The schema: both indexes, and each against the other.
//!
//! Both are read once, in the order of their keys and in step, with everything pending laid over; the data index
//! by its keys alone. Leaves are read and taken apart on all cores, and looked at one after another.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::thread;

use bytes::Bytes;

use super::contents::{Contents, Stray};
use super::correction::{Correction, lost_inode};
use super::memory::{MEMORY, Memory};
use super::numbers::Numbers;
use super::{Code, Progress, Report};
use crate::cache::Store;
use crate::device::Disk;
use crate::error::{Place, Result};
use crate::format::limits::{NUMBERS_END, VALUE_MAX};
use crate::format::*;
use crate::fs::{
    FIRST_ZONE, ORPHAN_INO, ORPHAN_ZONE, ROOT_INO, ROOT_ZONE, orphan_name, parse_small, small_name,
    whole_blocks, xattr_bytes,
};
use crate::ids::*;
use crate::tree::{KeyScan, Leaves, Scan};
use crate::volume::Volume;

/// Checks the file system of the checkpoint of `superblock`, whose structure is sound.
pub(super) fn check(
    disk: &Disk,
    superblock: &Superblock,
    memory: Memory,
    report: &mut Report,
    progress: &mut dyn Progress,
) {
    let volume = match Volume::of_checkpoint(disk, superblock.clone(), memory.cache()) {
        Ok(volume) => volume,
        Err(error) => return report.add_error(Code::NoSuperblock, &error),
    };
    let mut schema = Schema::new(superblock, report);
    let leaves = memory.leaves(superblock.leaf_size);
    if let Err(error) = schema.walk(&volume, leaves, progress) {
        report.add_error(Code::ValueInvalid, &error);
    }
}

/// What the file system of an open volume, whose structure is sound, needs to agree with itself.
///
/// `is_lost` says whether what the metadata index held of a key may be lost: then contents that are there count for more
/// than what is left.
pub(crate) fn corrections(
    volume: &Volume,
    is_lost: &dyn Fn(&Key) -> bool,
) -> Result<Vec<Correction>> {
    let superblock = volume.superblock_now();
    let mut report = Report::default();
    let mut schema = Schema::new(&superblock, &mut report);
    let memory = Memory::new(MEMORY, superblock.image_blocks);
    schema.walk(volume, memory.leaves(volume.store().geometry.leaf_size), &mut ())?;
    let short = std::mem::take(&mut schema.contents.short);
    for (prefix, (long, size)) in short {
        let key = schema.homes.get(&prefix).cloned().unwrap_or_else(|| Key::copied(&prefix));
        match is_lost(&key) {
            true => schema.mend(Correction::Size(key, long)),
            false => schema.mend(Correction::DropBlocks(prefix, size)),
        }
    }
    Ok(std::mem::take(&mut schema.corrections))
}

struct Schema<'s> {
    superblock: &'s Superblock,
    report: &'s mut Report,
    sizes: ZoneSizes,
    zones: BTreeMap<ZoneId, Zone>,
    contents: Contents,
    /// Zones of contents, with the zones that their files stand in, and whether they are too small.
    data_zones: Vec<(ZoneId, ZoneId, bool)>,
    /// Zones that are said to be too small, with the zones above.
    small: BTreeMap<ZoneId, ZoneId>,
    /// Directories that are not the root of a zone.
    inline: BTreeMap<InlinePath, Inline>,
    inodes: Numbers,
    /// What stands directly in the orphan directory.
    orphans: u64,
    /// Inodes of files that have a zone for their contents, by that.
    homes: HashMap<Vec<u8>, Key>,
    /// What would mend all that.
    corrections: Vec<Correction>,
}

/// Zone and path of a directory that is not the root of a zone.
type InlinePath = (ZoneId, Vec<Vec<u8>>);

/// What such a directory says of its links and counters, and what it holds.
struct Inline {
    links: u32,
    subdirectories: u32,
    stated: Sums,
    found: Sums,
}

#[derive(Default)]
struct Zone {
    root: Option<Inode>,
    references: Vec<Reference>,
    subdirectories: u32,
    has_entries: bool,
    found: Sums,
}

struct Reference {
    key: Key,
    from: ZoneId,
    name: Vec<u8>,
    zone: ZoneRef,
}

/// An entry of the metadata index, taken apart.
struct Entry {
    key: Key,
    value: Bytes,
    place: Option<MetaKey>,
    decoded: std::result::Result<MetaValue, FormatError>,
}

impl Entry {
    fn read(store: &Store, bounds: Bounds) -> Result<Vec<Entry>> {
        let mut scan = Scan::new(TreeId::Metadata, bounds.lo, bounds.hi);
        let mut entries = Vec::new();
        while let Some((key, value)) = scan.next(store)? {
            let (place, decoded) = (MetaKey::decode(&key), MetaValue::decode(&value, None));
            entries.push(Entry { key, value, place, decoded });
        }
        Ok(entries)
    }
}

/// The keys of a leaf of the data index, with the lengths of their values.
fn keys(store: &Store, bounds: Bounds) -> Result<Vec<(Key, usize)>> {
    let mut scan = KeyScan::new(TreeId::Data, bounds.lo, bounds.hi);
    let mut keys = Vec::new();
    while let Some(found) = scan.next(store)? {
        keys.push(found);
    }
    Ok(keys)
}

impl<'s> Schema<'s> {
    fn new(superblock: &'s Superblock, report: &'s mut Report) -> Schema<'s> {
        Schema {
            superblock,
            report,
            sizes: superblock.zones,
            zones: BTreeMap::new(),
            contents: Contents::default(),
            data_zones: Vec::new(),
            small: BTreeMap::new(),
            inline: BTreeMap::new(),
            inodes: Numbers::of([ROOT_INO, ORPHAN_INO]),
            orphans: 0,
            homes: HashMap::new(),
            corrections: Vec::new(),
        }
    }

    /// Goes through both indexes, so many leaves of each at once.
    fn walk(&mut self, volume: &Volume, at_once: usize, progress: &mut dyn Progress) -> Result<()> {
        let store = volume.store();
        let contents = thread::scope(|scope| {
            let metadata = Leaves::new(scope, store, TreeId::Metadata, at_once, Entry::read);
            let data = Leaves::new(scope, store, TreeId::Data, at_once, keys);
            self.walk_in_step(metadata, data, progress)
        })?;
        if self.orphans > 0 {
            let detail = format!("{} of them", self.orphans);
            self.report.add(Code::OrphanLeft, Place::Zone(ORPHAN_ZONE), detail);
        }
        self.check_inline();
        self.check_zones();
        self.check_small();
        self.check_reach();
        let settled = self.contents.settle(store, &mut self.report.findings);
        self.report.counts.file_blocks += self.contents.blocks;
        for key in std::mem::take(&mut self.contents.impossible) {
            self.mend(Correction::Drop(TreeId::Data, key));
        }
        contents.and(settled)?;
        self.mend_contents();
        Ok(())
    }

    /// Goes through both indexes, so that a file comes before its contents. The inner result is that of the data index:
    /// what the metadata index says is worth knowing without it.
    fn walk_in_step(
        &mut self,
        mut metadata: Leaves<Entry>,
        mut data: Leaves<(Key, usize)>,
        progress: &mut dyn Progress,
    ) -> Result<Result<()>> {
        let all = self.report.counts.leaves;
        let mut shown = 0;
        let mut show = |done: u64| {
            if done > shown {
                shown = done;
                progress.step(3, done.min(all), all);
            }
        };
        let mut owner: Option<MetaKey> = None;
        let contents = loop {
            let (key, len) = match data.take() {
                Ok(Some(value)) => value,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            while let Some(entry) = metadata.take_if(|entry| entry.key <= key)? {
                self.metadata(entry, &mut owner);
            }
            self.contents.add_value(&key, len);
            show(metadata.done() + data.done());
        };
        while let Some(entry) = metadata.take()? {
            self.metadata(entry, &mut owner);
            show(metadata.done() + data.done());
        }
        progress.step(3, all, all);
        Ok(contents)
    }

    fn add(&mut self, code: Code, key: &[u8], detail: impl ToString) {
        self.report.add(code, Place::Key(TreeId::Metadata, key.to_vec()), detail);
    }

    fn mend(&mut self, correction: Correction) {
        self.corrections.push(correction);
    }

    fn drop_entry(&mut self, key: &[u8]) {
        self.mend(Correction::Drop(TreeId::Metadata, Key::copied(key)));
    }

    /// The inode there is another.
    fn put_inode(&mut self, key: &[u8], inode: &Inode) {
        self.mend(Correction::Put(Key::copied(key), inode.encode()));
    }

    fn put_links(&mut self, key: &[u8], links: u32) {
        self.mend(Correction::Patch(Key::copied(key), LINKS_AT, links.to_le_bytes().to_vec()));
    }

    /// Files whose inodes are lost, and files that are longer than their inodes say.
    fn mend_contents(&mut self) {
        for Stray { prefix, size, .. } in std::mem::take(&mut self.contents.strays) {
            let place = MetaKey::decode(&prefix);
            let zone = place.as_ref().filter(|place| place.path.is_empty()).map(|place| place.zone);
            let root = zone.and_then(|zone| self.zones.get(&zone));
            // What was to be deleted goes; and what stands in a zone of directories is nobody's.
            let foreign = root.is_some_and(|zone| zone.root.is_some() || zone.has_entries);
            if foreign || place.as_ref().is_some_and(|place| place.zone == ORPHAN_ZONE) {
                self.mend(Correction::DropContents(prefix));
                continue;
            }
            let known = root.and_then(|zone| {
                let first = zone.references.first().filter(|_| zone.root.is_none())?;
                Some((first.zone.ino, zone.references.len() as u32))
            });
            self.mend(Correction::File { prefix, size, known });
        }
    }

    /// One entry of the metadata index. `owner` is the last one that was no extended attribute.
    fn metadata(&mut self, entry: Entry, owner: &mut Option<MetaKey>) {
        let Entry { key, value, place, decoded } = entry;
        let (key, value) = (&*key, &*value);
        let Some(place) = place else {
            self.drop_entry(key);
            return self.add(Code::KeyInvalid, key, "no metadata key looks like this");
        };
        if let Some(name) = &place.xattr {
            let of = MetaKey { xattr: None, ..place.clone() };
            if owner.as_ref() != Some(&of) {
                self.mend(Correction::Unowned(Key::copied(key)));
                self.add(Code::XattrLost, key, crate::text::printable(name));
            }
            if value.len() > VALUE_MAX {
                self.drop_entry(key);
                self.add(Code::ValueMalformed, key, "an extended attribute that is too long");
            }
            if of == MetaKey::root(ORPHAN_ZONE) {
                match parse_small(name, value) {
                    Some((zone, at)) => drop(self.small.insert(zone, at)),
                    None => {
                        self.drop_entry(key);
                        self.add(Code::ValueMalformed, key, "no attribute of this directory");
                    }
                }
            }
            if let Some((_, directory)) = of.path.split_last() {
                self.count(of.zone, directory, xattr_bytes(name, value.len()), 0);
            }
            return;
        }
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                self.drop_entry(key);
                return self.add(Code::ValueMalformed, key, error);
            }
        };
        if place.zone.0 >= NUMBERS_END {
            self.drop_entry(key);
            return self.add(Code::KeyInvalid, key, "no zone has this number");
        }
        if place.zone >= self.superblock.next_zone {
            self.mend(Correction::Given { zone: Some(place.zone), ino: None });
            self.add(
                Code::CounterWrong,
                key,
                format!("next zone id {}", self.superblock.next_zone),
            );
        }
        let parent = place.path.split_last().map(|(_, parent)| parent.to_vec());
        self.orphans += u64::from(place.zone == ORPHAN_ZONE && place.path.len() == 1);
        self.zones.entry(place.zone).or_default().has_entries |= parent.is_some();
        if let Some(parent) = &parent
            && !parent.is_empty()
            && !self.inline.contains_key(&(place.zone, parent.clone()))
        {
            let path = parent.clone();
            self.mend(Correction::Directory(MetaKey { zone: place.zone, path, xattr: None }));
            self.add(Code::DirectoryUnreachable, key, "its directory does not exist");
            // What is said there may be true of something else by now.
            *owner = Some(place);
            return;
        }
        let kind = match &decoded {
            MetaValue::Inode(inode) => inode.kind,
            MetaValue::ZoneRef(zone) => zone.kind,
        };
        if let Some(parent) = parent.clone()
            && kind == FileType::Directory
        {
            self.count_subdirectory(place.zone, parent);
        }
        if let Some((name, directory)) = place.path.split_last() {
            let data = match &decoded {
                MetaValue::Inode(inode)
                    if inode.kind == FileType::Regular && inode.data_zone.is_none() =>
                {
                    whole_blocks(inode.size)
                }
                _ => 0,
            };
            self.count(place.zone, directory, name.len() + 2 + value.len(), data);
        }
        match decoded {
            MetaValue::Inode(inode) => self.inode(key, &place, inode),
            MetaValue::ZoneRef(_) if parent.is_none() => {
                self.drop_entry(key);
                self.add(Code::ValueMalformed, key, "a zone reference as the root of a zone");
            }
            MetaValue::ZoneRef(zone) if zone.zone.0 >= NUMBERS_END => {
                self.drop_entry(key);
                self.add(Code::ZoneWrong, key, format!("a reference to zone {}", zone.zone));
            }
            MetaValue::ZoneRef(zone) => {
                let name = place.path.last().cloned().unwrap_or_default();
                let reference = Reference { key: Key::copied(key), from: place.zone, name, zone };
                self.zones.entry(zone.zone).or_default().references.push(reference);
            }
        }
        *owner = Some(place);
    }

    fn inode(&mut self, key: &[u8], place: &MetaKey, inode: Inode) {
        // The orphan directory is the volume's own.
        if inode.ino != ORPHAN_INO {
            self.report.counts.inodes += 1;
            self.report.counts.directories += u64::from(inode.kind == FileType::Directory);
        }
        let fixed = [(ROOT_ZONE, ROOT_INO), (ORPHAN_ZONE, ORPHAN_INO)];
        let is_fixed = place.path.is_empty() && fixed.contains(&(place.zone, inode.ino));
        if inode.ino.0 >= NUMBERS_END || (!is_fixed && !self.inodes.insert(inode.ino)) {
            self.mend(Correction::Renumber(Key::copied(key), Box::new(inode.clone())));
            self.add(Code::InodeTwice, key, format!("inode {}", inode.ino));
        } else if inode.ino >= self.superblock.next_ino {
            self.mend(Correction::Given { zone: None, ino: Some(inode.ino) });
            let next = self.superblock.next_ino;
            self.add(
                Code::CounterWrong,
                key,
                format!("inode {}, and {next} would be given out next", inode.ino),
            );
        }
        if inode.kind == FileType::Regular {
            let prefix = match inode.data_zone {
                Some(zone) if zone < self.superblock.next_zone => zone.0.to_be_bytes().to_vec(),
                Some(zone) if zone.0 >= NUMBERS_END => {
                    self.mend(Correction::Contentless(Key::copied(key)));
                    return self.add(Code::ZoneWrong, key, format!("data zone {zone}"));
                }
                Some(zone) => {
                    self.mend(Correction::Given { zone: Some(zone), ino: None });
                    return self.add(Code::CounterWrong, key, format!("data zone {zone}"));
                }
                None => key.to_vec(),
            };
            if inode.data_zone.is_some() {
                self.homes.entry(prefix.clone()).or_insert_with(|| Key::copied(key));
            }
            if !self.contents.add_file(&prefix, inode.size) {
                self.mend(Correction::Contentless(Key::copied(key)));
                self.add(Code::ZoneWrong, key, "another file has the same data zone");
            }
            let size = whole_blocks(inode.size);
            match inode.data_zone {
                Some(_) if place.path.is_empty() => {
                    self.mend(Correction::Contentless(Key::copied(key)));
                    self.add(Code::ZoneWrong, key, "a zone of its own, and one for its contents");
                }
                Some(zone) => {
                    let small = size < self.sizes.min && place.zone != ORPHAN_ZONE;
                    self.data_zones.push((zone, place.zone, small));
                }
                None if !place.path.is_empty() && size > self.sizes.max => {
                    self.add(Code::ZoneTooLarge, key, format!("{size} bytes"));
                }
                None => {}
            }
        }
        if place.path.is_empty() {
            self.zones.entry(place.zone).or_default().root = Some(inode);
        } else {
            if inode.kind == FileType::Directory {
                if inode.parent.is_some() {
                    self.put_inode(key, &Inode { parent: None, ..inode.clone() });
                    self.add(Code::ZoneWrong, key, "a parent is for the roots of zones");
                }
                let (stated, found) = (inode.sums, Sums::default());
                let inline = Inline { links: inode.links, subdirectories: 0, stated, found };
                self.inline.insert((place.zone, place.path.clone()), inline);
            } else {
                let expected = u32::from(place.zone != ORPHAN_ZONE);
                if inode.links != expected {
                    let detail = format!("expected {expected}, found {}", inode.links);
                    self.put_links(key, expected);
                    self.add(Code::LinksWrong, key, detail);
                }
            }
            if place.zone == ORPHAN_ZONE
                && place.path.len() == 1
                && place.path[0] != orphan_name(inode.ino)
            {
                self.drop_entry(key);
                self.add(Code::ZoneWrong, key, "an orphan under another number than its own");
            }
        }
    }

    /// A directory counts in the links of the one that holds it.
    fn count_subdirectory(&mut self, zone: ZoneId, parent: Vec<Vec<u8>>) {
        if parent.is_empty() {
            // Orphans have lost their links.
            self.zones.entry(zone).or_default().subdirectories += u32::from(zone != ORPHAN_ZONE);
        } else if let Some(parent) = self.inline.get_mut(&(zone, parent)) {
            parent.subdirectories += 1;
        }
    }

    /// Something in a directory counts so much.
    fn count(&mut self, zone: ZoneId, directory: &[Vec<u8>], meta: usize, data: u64) {
        let found = match directory.is_empty() {
            true => Some(&mut self.zones.entry(zone).or_default().found),
            false => self.inline.get_mut(&(zone, directory.to_vec())).map(|it| &mut it.found),
        };
        if let Some(found) = found {
            found.meta = found.meta.saturating_add(meta as u64);
            found.data = found.data.saturating_add(data);
        }
    }

    fn check_inline(&mut self) {
        // What is below comes first, and counts above.
        while let Some(((zone, path), inline)) = self.inline.pop_last() {
            let place = MetaKey { zone, path, xattr: None };
            let Inline { links, subdirectories, stated, found } = inline;
            if let Some((_, above)) = place.path.split_last() {
                let meta = usize::try_from(found.meta).unwrap_or(usize::MAX);
                self.count(zone, above, meta, found.data);
            }
            let key = place.encode();
            // An orphan has lost its name, and with it its link to itself.
            let orphan = zone == ORPHAN_ZONE && place.path.len() == 1;
            let expected = if orphan { 0 } else { 2 + subdirectories };
            if links != expected {
                let detail = format!("expected {expected}, found {links}");
                self.put_links(&key, expected);
                self.add(Code::LinksWrong, &key, detail);
            }
            self.check_sums(&key, stated, found);
            if self.sizes.are_below(found) {
                let detail = format!("{} bytes of metadata, {} of files", found.meta, found.data);
                self.add(Code::ZoneTooLarge, &key, detail);
            }
        }
    }

    fn check_sums(&mut self, key: &[u8], stated: Sums, found: Sums) {
        if stated != found {
            let text = |sums: Sums| format!("{} and {} bytes", sums.meta, sums.data);
            let detail = format!("expected {}, found {}", text(found), text(stated));
            let bytes = [found.meta.to_le_bytes(), found.data.to_le_bytes()].concat();
            self.mend(Correction::Patch(Key::copied(key), META_SUM_AT, bytes));
            self.add(Code::SumsWrong, key, detail);
        }
    }

    /// Zones that are too small are noted, and no others.
    fn check_small(&mut self) {
        let mut noted = std::mem::take(&mut self.small);
        let zones = self.zones.iter().filter_map(|(id, zone)| {
            let [reference] = &zone.references[..] else { return None };
            let own = reference.zone.link == LinkKind::Own && reference.from != ORPHAN_ZONE;
            let small = own && self.sizes.are_above(zone.found);
            zone.root.as_ref().map(|_| (*id, reference.from, small))
        });
        for (zone, ..) in &self.data_zones {
            if self.zones.contains_key(zone) || *zone < FIRST_ZONE {
                let home = self.homes.get(&zone.0.to_be_bytes()[..]);
                self.corrections.extend(home.cloned().map(Correction::Contentless));
                let detail =
                    "it holds the contents of a file, and is a zone of directories besides";
                self.report.add(Code::ZoneWrong, Place::Zone(*zone), detail);
            }
        }
        let all: Vec<_> = zones.chain(self.data_zones.drain(..)).collect();
        for (zone, at, small) in all {
            let found = noted.remove(&zone);
            if found != small.then_some(at) {
                let noted = match found {
                    None => "it is not noted".into(),
                    Some(at) => format!("it is noted as one in zone {at}"),
                };
                self.note_small(zone, small.then_some(at));
                let what = if small { "too small" } else { "large enough" };
                let detail = format!("it is {what}, and stands in zone {at}; {noted}");
                self.report.add(Code::ZoneTooSmall, Place::Zone(zone), detail);
            }
        }
        for zone in noted.into_keys() {
            self.note_small(zone, None);
            let detail = "it is noted, and there is none";
            self.report.add(Code::ZoneTooSmall, Place::Zone(zone), detail);
        }
    }

    /// A zone is noted as too small, or is not.
    fn note_small(&mut self, zone: ZoneId, at: Option<ZoneId>) {
        let key = MetaKey::root(ORPHAN_ZONE).with_xattr(&small_name(zone)).encode();
        self.mend(match at {
            Some(at) => Correction::Put(key, at.0.to_le_bytes().to_vec()),
            None => Correction::Drop(TreeId::Metadata, key),
        });
    }

    /// Every zone has a root and the references that it should have, and they agree.
    fn check_zones(&mut self) {
        let zones = std::mem::take(&mut self.zones);
        for (id, zone) in &zones {
            let key = MetaKey::root(*id).encode();
            let Some(root) = &zone.root else {
                self.mend_root(*id, zone);
                self.add(Code::ZoneWrong, &key, "the zone has no root");
                continue;
            };
            let fixed = *id == ROOT_ZONE || *id == ORPHAN_ZONE;
            if fixed && root.kind != FileType::Directory {
                let now = self.superblock.wall;
                self.put_inode(&key, &lost_inode(FileType::Directory, root.ino, now));
                self.add(Code::ZoneWrong, &key, "the root of this zone must be a directory");
            }
            if zone.has_entries && root.kind != FileType::Directory {
                if !fixed {
                    self.mend(Correction::DropBelow(MetaKey::root(*id)));
                }
                self.add(Code::ZoneWrong, &key, "entries below what is no directory");
            }
            for reference in &zone.references {
                if (reference.zone.ino, reference.zone.kind) != (root.ino, root.kind) {
                    let expected = format!("inode {}, a {}", root.ino, root.kind.name());
                    let found =
                        format!("inode {}, a {}", reference.zone.ino, reference.zone.kind.name());
                    let right = ZoneRef { ino: root.ino, kind: root.kind, ..reference.zone };
                    self.mend(Correction::Put(reference.key.clone(), right.encode()));
                    self.add(
                        Code::ZoneWrong,
                        &key,
                        format!("expected {expected}, found a reference to {found}"),
                    );
                }
            }
            self.check_sums(&key, root.sums, zone.found);
            if root.kind == FileType::Directory {
                self.check_directory(*id, &key, zone, root);
            } else {
                let names = zone.references.iter().filter(|other| other.from != ORPHAN_ZONE);
                let expected = names.count() as u64;
                if expected != u64::from(root.links) || zone.references.is_empty() {
                    let detail = format!("expected {expected}, found {}", root.links);
                    match zone.references.is_empty() {
                        true => self.mend(Correction::Unnamed(*id, Some(Box::new(root.clone())))),
                        false => self.put_links(&key, expected as u32),
                    }
                    self.add(Code::LinksWrong, &key, detail);
                }
            }
        }
        for (id, ino) in [(ROOT_ZONE, ROOT_INO), (ORPHAN_ZONE, ORPHAN_INO)] {
            let root = zones.get(&id).and_then(|zone| zone.root.as_ref());
            if root.is_none_or(|root| root.ino != ino || root.parent.is_some()) {
                let detail = format!("expected directory {ino} without a parent");
                let now = self.superblock.wall;
                let known = zones.get(&id).and_then(|zone| zone.root.clone());
                let known = known.filter(|root| root.kind == FileType::Directory);
                let root = known.unwrap_or_else(|| lost_inode(FileType::Directory, ino, now));
                let root = Inode { ino, parent: None, ..root };
                self.put_inode(&MetaKey::root(id).encode(), &root);
                self.add(Code::ZoneWrong, &MetaKey::root(id).encode(), detail);
            }
        }
        self.zones = zones;
    }

    fn check_directory(&mut self, id: ZoneId, key: &[u8], zone: &Zone, root: &Inode) {
        let orphan = zone.references.iter().any(|reference| reference.from == ORPHAN_ZONE);
        let links = if orphan { 0 } else { 2 + zone.subdirectories };
        if root.links != links {
            self.put_links(key, links);
            self.add(Code::LinksWrong, key, format!("expected {links}, found {}", root.links));
        }
        let expected = usize::from(id >= FIRST_ZONE);
        if zone.references.len() != expected {
            self.mend_references(id, zone, root);
            let detail = format!("expected {expected} references, found {}", zone.references.len());
            self.add(Code::ZoneWrong, key, detail);
        }
        if let [reference] = &zone.references[..] {
            let says = root.parent.as_ref().map(|parent| (parent.zone, &parent.name));
            if says != Some((reference.from, &reference.name)) {
                let parent = Some(Parent { zone: reference.from, name: reference.name.clone() });
                self.put_inode(key, &Inode { parent, ..root.clone() });
                self.add(Code::ZoneWrong, key, "the directory names another parent");
            }
            if reference.zone.link != LinkKind::Own {
                let own = ZoneRef { link: LinkKind::Own, ..reference.zone };
                self.mend(Correction::Put(reference.key.clone(), own.encode()));
                self.add(Code::ZoneWrong, key, "a directory is referred to as if it were shared");
            }
        }
    }

    /// The root of a zone is lost: of a directory everything but its attributes is known.
    fn mend_root(&mut self, id: ZoneId, zone: &Zone) {
        let fixed = id == ROOT_ZONE || id == ORPHAN_ZONE;
        let Some(reference) = zone.references.first() else {
            return match fixed {
                // Said below, with what else there is to it.
                true => {}
                false => self.mend(Correction::Unnamed(id, None)),
            };
        };
        let ZoneRef { kind, ino, .. } = reference.zone;
        let now = self.superblock.wall;
        if zone.has_entries || kind == FileType::Directory {
            let parent = Some(Parent { zone: reference.from, name: reference.name.clone() });
            let root = Inode { parent, ..lost_inode(FileType::Directory, ino, now) };
            self.put_inode(&MetaKey::root(id).encode(), &root);
        } else if kind == FileType::Regular {
            // If there are contents, they say how long it is.
            let root = Inode { links: zone.references.len() as u32, ..lost_inode(kind, ino, now) };
            self.put_inode(&MetaKey::root(id).encode(), &root);
        } else {
            // What it was is not known any more.
            let keys: Vec<Key> = zone.references.iter().map(|other| other.key.clone()).collect();
            keys.into_iter().for_each(|key| self.mend(Correction::Drop(TreeId::Metadata, key)));
        }
    }

    /// A directory has one name: the one that it knows itself, if there is that.
    fn mend_references(&mut self, id: ZoneId, zone: &Zone, root: &Inode) {
        if zone.references.is_empty() {
            return self.mend(Correction::Unnamed(id, Some(Box::new(root.clone()))));
        }
        let says = root.parent.as_ref().map(|parent| (parent.zone, &parent.name));
        let right = zone.references.iter().position(|r| says == Some((r.from, &r.name)));
        let right = (id >= FIRST_ZONE).then_some(right.unwrap_or(0));
        for (at, reference) in zone.references.iter().enumerate() {
            if Some(at) != right {
                self.drop_entry(&reference.key);
            }
        }
    }

    /// Every directory's chain of parents ends at the root or the orphan directory.
    fn check_reach(&mut self) {
        let mut below: HashMap<ZoneId, Vec<ZoneId>> = HashMap::new();
        for (id, zone) in &self.zones {
            for reference in &zone.references {
                below.entry(reference.from).or_default().push(*id);
            }
        }
        let mut reached: HashSet<ZoneId> = HashSet::new();
        let mut waiting = vec![ROOT_ZONE, ORPHAN_ZONE];
        while let Some(zone) = waiting.pop() {
            if reached.insert(zone) {
                waiting.extend(below.get(&zone).into_iter().flatten());
            }
        }
        let lost: Vec<ZoneId> =
            self.zones.keys().filter(|id| !reached.contains(id)).copied().collect();
        // What forms a ring is cut where it begins; what hangs from it comes along.
        let referred = |id: &ZoneId| self.zones.get(id).is_some_and(|z| !z.references.is_empty());
        let rings: Vec<ZoneId> = lost.iter().copied().filter(referred).collect();
        if rings.len() == lost.len()
            && let Some(zone) = rings.first().and_then(|id| self.zones.get(id))
        {
            let keys: Vec<Key> = zone.references.iter().map(|other| other.key.clone()).collect();
            keys.into_iter().for_each(|key| self.drop_entry(&key));
        }
        for zone in lost {
            self.report.add(
                Code::DirectoryUnreachable,
                Place::Zone(zone),
                "no way leads to it from the root",
            );
        }
    }
}
