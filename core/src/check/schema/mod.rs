//! Checks the schema: both indexes, and each against the other.
//!
//! Both are read once, in key order and in step, with pending messages applied; of the data index only the keys. Leaves
//! are read and decoded on all cores, and checked one after another.

mod contents;
mod entries;
mod leaves;
mod zones;

use std::collections::{BTreeMap, HashMap};
use std::thread;

pub(super) use self::contents::Files;
use self::contents::{Contents, Stated, Stray};
pub(super) use self::entries::{Brief, Entry, Said, Scanned, Source, Stored};
use self::entries::{Kept, Shown};
use self::leaves::Leaves;
pub(super) use self::leaves::NextLeaf;
use super::correction::Correction;
use super::memory::{MEMORY, Memory};
use super::numbers::Numbers;
use super::{Code, Counts, Finding, Progress, Report};
use crate::error::{Place, Result};
use crate::format::limits::{NUMBERS_END, VALUE_MAX};
use crate::format::*;
use crate::fs::{
    ORPHAN_INO, ORPHAN_ZONE, ROOT_INO, ROOT_ZONE, orphan_name, parse_small, whole_blocks,
    xattr_bytes,
};
use crate::ids::*;
use crate::store::Store;
use crate::volume::Volume;

/// Checks the file system of the checkpoint of `superblock`, with the entries of `leaves` leaves from `source`.
/// Findings are meaningful only if the structure below is sound.
pub(super) fn check(
    volume: &Volume,
    superblock: &Superblock,
    memory: Memory,
    source: &dyn Source,
    leaves: u64,
    progress: &mut dyn Progress,
) -> Found {
    let mut report = Report::default();
    let mut schema = Schema::new(superblock, &mut report);
    let at_once = memory.leaves(superblock.leaf_size);
    let walk = Walk { volume, source, at_once, leaves };
    if let Err(error) = schema.walk(&walk, progress) {
        report.add_error(Code::ValueInvalid, &error);
    }
    Found { findings: report.findings, counts: report.counts }
}

/// The findings in a file system.
pub(super) struct Found {
    findings: Vec<Finding>,
    counts: Counts,
}

impl Found {
    /// Adds them to a report.
    pub(super) fn tell(self, report: &mut Report) {
        report.findings.extend(self.findings);
        report.counts.inodes = self.counts.inodes;
        report.counts.directories = self.counts.directories;
        report.counts.file_blocks = self.counts.file_blocks;
    }
}

/// The corrections that make the file system of an open volume consistent; its structure must be sound.
///
/// `is_lost` says whether an entry of the metadata index may be lost. Then existing contents take precedence over the
/// remaining metadata.
pub(crate) fn corrections(
    volume: &Volume,
    is_lost: &dyn Fn(&Key) -> bool,
) -> Result<Vec<Correction>> {
    let superblock = volume.superblock_now();
    let mut report = Report::default();
    let mut schema = Schema::new(&superblock, &mut report);
    let memory = Memory::new(MEMORY, superblock.image_blocks);
    let at_once = memory.leaves(volume.store().geometry.leaf_size);
    schema.walk(&Walk { volume, source: &Scanned, at_once, leaves: 0 }, &mut ())?;
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

/// Zone ids are less than this, so that the next one is a number, too.
const ZONES_END: u64 = NUMBERS_END - 1;
/// 8 bytes of a key: its zone id.
const ZONE_BYTES: usize = 8;

struct Schema<'s> {
    superblock: &'s Superblock,
    report: &'s mut Report,
    sizes: ZoneSizes,
    zones: BTreeMap<ZoneId, Zone>,
    contents: Contents,
    /// Data zones, with the zones of their files, and whether they are too small.
    data_zones: Vec<(ZoneId, ZoneId, bool)>,
    /// Zones that are recorded as too small, with the zones above.
    small: BTreeMap<ZoneId, ZoneId>,
    /// Directories that are not the root of a zone, by the prefix of the keys below them.
    inline: BTreeMap<Vec<u8>, Inline>,
    inodes: Numbers,
    /// The zone of the last entry, and its lineage.
    lineage: (ZoneId, Lineage),
    /// Number of entries of the orphan directory.
    orphans: u64,
    /// Keys of inodes of files with data zones, by zone.
    homes: HashMap<Vec<u8>, Key>,
    /// The corrections of the findings.
    corrections: Vec<Correction>,
}

/// The source of a walk.
struct Walk<'w> {
    volume: &'w Volume,
    source: &'w dyn Source,
    /// Number of leaves of each index that are read at once.
    at_once: usize,
    /// Number of leaves.
    leaves: u64,
}

/// The links and counters of a directory, stated and found.
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
    /// Whether the root is lost, and with it a lineage: numbers in the zone are shown as those of an original.
    has_numbers_of_others: bool,
    found: Sums,
}

struct Reference {
    key: Key,
    from: ZoneId,
    name: Vec<u8>,
    /// With its number as it is shown.
    zone: ZoneRef,
    /// The lineage of the zone that it is in.
    lineage: Lineage,
}

impl Reference {
    /// Whether it states the number and the kind of a zone's root.
    fn agrees(&self, root: &Inode) -> bool {
        (self.zone.ino, self.zone.kind) == (root.ino, root.kind)
    }

    /// The correction that puts another reference in its place.
    fn put(&self, right: ZoneRef) -> Correction {
        let stored = ZoneRef { ino: self.lineage.stored(right.ino), ..right };
        Correction::Put(self.key.clone(), stored.encode())
    }
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
            lineage: (ROOT_ZONE, Lineage::NONE),
            orphans: 0,
            homes: HashMap::new(),
            corrections: Vec::new(),
        }
    }

    /// Walks both indexes.
    fn walk(&mut self, walk: &Walk<'_>, progress: &mut dyn Progress) -> Result<()> {
        let Walk { volume, source, at_once, leaves } = *walk;
        let (store, shown) = (volume.store(), Shown::new());
        let contents = thread::scope(|scope| {
            let announce = |leaf: &NextLeaf| source.announce(leaf);
            let read = |store: &Store, leaf: NextLeaf| match leaf.is_shown {
                true => shown.metadata(store, leaf),
                false => source.metadata(store, leaf),
            };
            let metadata = Leaves::new(scope, store, TreeId::Metadata, at_once, announce, read);
            let read = |store: &Store, leaf: NextLeaf| match leaf.is_shown {
                true => shown.data(store, leaf),
                false => source.data(store, leaf),
            };
            let data = Leaves::new(scope, store, TreeId::Data, at_once, announce, read);
            self.walk_in_step((metadata, data), (store, &shown), leaves, progress)
        })?;
        if self.orphans > 0 {
            let detail = format!("{} of them", self.orphans);
            self.report.add(Code::OrphanLeft, Place::Zone(ORPHAN_ZONE), detail);
        }
        self.check_inline();
        self.check_zones();
        self.check_small();
        self.check_reach();
        let settled = self.contents.end(store, &shown, &mut self.report.findings);
        self.report.counts.file_blocks += self.contents.blocks;
        for key in std::mem::take(&mut self.contents.impossible) {
            self.mend(Correction::Drop(TreeId::Data, key));
        }
        contents.and(settled)?;
        self.check_holes();
        self.mend_contents();
        Ok(())
    }

    /// Walks both indexes so that a file comes before its contents. The inner result is that of the data index: the
    /// metadata index is useful even without it.
    fn walk_in_step(
        &mut self,
        (mut metadata, mut data): (Leaves<Entry>, Leaves<Stored>),
        (store, behind_lenses): (&Store, &Shown),
        all: u64,
        progress: &mut dyn Progress,
    ) -> Result<Result<()>> {
        let mut shown = 0;
        let mut show = |done: u64| {
            if done > shown {
                shown = done;
                progress.step(3, done.min(all), all);
            }
        };
        let mut owner: Option<Key> = None;
        let contents = loop {
            let stored = match data.take() {
                Ok(Some(value)) => value,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            while let Some(entry) = metadata.take_if(|entry| entry.key <= *stored.key())? {
                behind_lenses.check_kept(&entry.key, self.kept())?;
                self.metadata(entry, &mut owner);
            }
            match &stored {
                Stored::Block(key, len) => self.contents.add_value(key, *len),
                Stored::OfZone(first, blocks) => self.contents.add_blocks(first, blocks),
                Stored::Part(prefix, part) => {
                    let (blocks, bounds) = &**part;
                    if !self.contents.add_part(prefix, blocks) {
                        let keys = behind_lenses.keys_of_part(store, prefix, blocks, bounds)?;
                        keys.iter().for_each(|(key, len)| self.contents.add_value(key, *len));
                    }
                }
            }
            show(metadata.done() + data.done());
        };
        while let Some(entry) = metadata.take()? {
            behind_lenses.check_kept(&entry.key, self.kept())?;
            self.metadata(entry, &mut owner);
            show(metadata.done() + data.done());
        }
        progress.step(3, all, all);
        Ok(contents)
    }

    /// Number of findings, and of rows of inode numbers.
    fn kept(&self) -> Kept {
        Kept { findings: self.report.findings.len(), rows: self.inodes.rows() }
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

    /// Replaces the root of a zone.
    fn put_root(&mut self, key: &[u8], root: &Inode) {
        let stored = Inode { ino: root.lineage.stored(root.ino), ..root.clone() };
        self.mend(Correction::Put(Key::copied(key), stored.encode()));
    }

    fn put_links(&mut self, key: &[u8], links: u32) {
        self.mend(Correction::Patch(Key::copied(key), LINKS_AT, links.to_le_bytes().to_vec()));
    }

    /// Checks that files with holes have the flag.
    fn check_holes(&mut self) {
        for (prefix, blocks, all) in std::mem::take(&mut self.contents.unflagged) {
            let key = self.homes.get(&*prefix).cloned().unwrap_or(prefix);
            self.mend(Correction::Patch(key.clone(), FLAGS_AT, SPARSE.to_le_bytes().to_vec()));
            let detail = format!("{blocks} of {all} blocks, and no flag for holes");
            self.add(Code::HolesUnflagged, &key, detail);
        }
    }

    /// Corrects files whose inodes are lost, and files that are longer than their inodes say.
    fn mend_contents(&mut self) {
        for Stray { prefix, size, .. } in std::mem::take(&mut self.contents.strays) {
            let place = MetaKey::decode(&prefix);
            let zone = place.as_ref().filter(|place| place.is_root()).map(|place| place.zone());
            let root = zone.and_then(|zone| self.zones.get(&zone));
            // Contents that were to be deleted are dropped. Contents in a zone of directories belong to nothing.
            let foreign = root.is_some_and(|zone| zone.root.is_some() || zone.has_entries);
            if foreign || place.as_ref().is_some_and(|place| place.zone() == ORPHAN_ZONE) {
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

    /// Checks an entry of the metadata index. `owner` is the key of the last entry that is no extended attribute.
    fn metadata(&mut self, entry: Entry, owner: &mut Option<Key>) {
        let key = &entry.key;
        let Some(place) = entry.place else {
            self.drop_entry(key);
            return self.add(Code::KeyInvalid, key, "no metadata key looks like this");
        };
        let (said, stored) = match &entry.said {
            Said::Attribute => return self.attribute(&entry, &place, owner.as_deref()),
            Said::Malformed(error) => {
                self.drop_entry(key);
                return self.add(Code::ValueMalformed, key, error);
            }
            Said::Inode(inode) => (Ok(inode), inode.ino),
            Said::ZoneRef(zone) => (Err(zone), zone.ino),
        };
        let lineage = self.lineage_of(&place, said.ok());
        let ino = lineage.shown(stored);
        if place.zone.0 >= ZONES_END {
            self.drop_entry(key);
            return self.add(Code::KeyInvalid, key, "no zone has this number");
        }
        self.check_zone_given(key, place.zone);
        let directory = place.directory(key);
        self.orphans += u64::from(place.zone == ORPHAN_ZONE && place.is_in_root());
        self.zones.entry(place.zone).or_default().has_entries |= directory.is_some();
        *owner = Some(key.clone());
        if let Some(directory) = directory {
            if !place.is_in_root() && !self.inline.contains_key(directory) {
                let parent = MetaKey::beginning(directory);
                self.corrections.extend(parent.map(Correction::Directory));
                // Its fields may be outdated, so they are not checked.
                return self.add(Code::DirectoryUnreachable, key, "its directory does not exist");
            }
            let kind = said.map_or_else(|zone| zone.kind, |inode| inode.kind);
            if kind == FileType::Directory {
                self.count_subdirectory(place.zone, directory);
            }
            let data = match said {
                Ok(inode) if inode.kind == FileType::Regular && inode.data_zone.is_none() => {
                    whole_blocks(inode.size)
                }
                _ => 0,
            };
            let apart = match said {
                Ok(inode) => apart(inode.data_zone, inode.ino),
                Err(_) => 1,
            };
            let meta = (place.name(key).len() + 2 + entry.value.len()) as u64;
            self.count(place.zone, directory, Sums { meta, data, apart });
        }
        match said {
            Ok(inode) => {
                let is_stored_right = lineage.is_canonical(stored);
                self.inode(&entry, &place, Brief { ino, ..*inode }, is_stored_right);
            }
            Err(_) if directory.is_none() => {
                self.drop_entry(key);
                self.add(Code::ValueMalformed, key, "a zone reference as the root of a zone");
            }
            Err(zone) if zone.zone.0 >= ZONES_END => {
                self.drop_entry(key);
                self.add(Code::ZoneWrong, key, format!("a reference to zone {}", zone.zone));
            }
            Err(zone) => {
                let name = place.name(key).to_vec();
                if place.zone == ORPHAN_ZONE && place.is_in_root() && name != orphan_name(ino) {
                    self.drop_entry(key);
                    self.add(Code::ZoneWrong, key, "an orphan under another number than its own");
                }
                let (key, from, zone) = (key.clone(), place.zone, ZoneRef { ino, ..*zone });
                let reference = Reference { key, from, name, zone, lineage };
                self.zones.entry(zone.zone).or_default().references.push(reference);
            }
        }
    }

    /// Checks an extended attribute. `owner` is the key of the last entry that is none.
    fn attribute(&mut self, entry: &Entry, place: &MetaPlace, owner: Option<&[u8]>) {
        let (key, value) = (&entry.key, &entry.value);
        let name = place.xattr(key).unwrap_or_default();
        if owner != Some(place.owner(key)) {
            self.mend(Correction::Unowned(key.clone()));
            self.add(Code::XattrLost, key, crate::text::printable(name));
        }
        if value.len() > VALUE_MAX {
            self.drop_entry(key);
            self.add(Code::ValueMalformed, key, "an extended attribute that is too long");
        }
        if place.is_root() && place.zone == ORPHAN_ZONE {
            match parse_small(name, value) {
                Some((zone, at)) => drop(self.small.insert(zone, at)),
                None => {
                    self.drop_entry(key);
                    self.add(Code::ValueMalformed, key, "no attribute of this directory");
                }
            }
        }
        if let Some(directory) = place.directory(key) {
            let meta = xattr_bytes(name, value.len()) as u64;
            self.count(place.zone, directory, Sums { meta, ..Sums::default() });
        }
    }

    /// The lineage of the zone that an entry is in. The root of a zone comes before all else in it.
    fn lineage_of(&mut self, place: &MetaPlace, inode: Option<&Brief>) -> Lineage {
        if self.lineage.0 != place.zone {
            // All entries of the last zone are known.
            self.check_inline();
            self.lineage = (place.zone, Lineage::NONE);
        }
        if let Some(root) = inode.filter(|_| place.is_root()) {
            self.lineage.1 = root.lineage;
        }
        self.lineage.1
    }

    /// Checks that a zone id has been given out.
    fn check_zone_given(&mut self, key: &[u8], zone: ZoneId) {
        let next = self.superblock.next.zone;
        if zone >= next {
            self.mend(Correction::Numbers(NextNumbers::beyond_zone(zone)));
            self.add(Code::CounterWrong, key, format!("zone {zone}, and the next one is {next}"));
        }
    }

    /// Checks that a shown number, and the lineage that it may have, have been given out.
    fn check_number_given(&mut self, key: &[u8], ino: Ino, lineage: Lineage) {
        let next = self.superblock.next;
        let least = NextNumbers::beyond(ino);
        let least = match lineage {
            Lineage::NONE => least,
            Lineage { limit, tag } => {
                least.max(NextNumbers { ino: limit, tag: Tag(tag.0 + 1), ..NextNumbers::FIRST })
            }
        };
        if least.max(next) != next {
            self.mend(Correction::Numbers(least));
            let NextNumbers { ino: next, tag, .. } = next;
            let detail = format!("inode {ino}, and the next number is {next}, the next tag {tag}");
            self.add(Code::CounterWrong, key, detail);
        }
    }

    /// Checks an inode, with its number as it is shown.
    fn inode(&mut self, entry: &Entry, place: &MetaPlace, inode: Brief, is_stored_right: bool) {
        let key = &entry.key;
        // The orphan directory is internal, and not counted.
        if inode.ino != ORPHAN_INO {
            self.report.counts.inodes += 1;
            self.report.counts.directories += u64::from(inode.kind == FileType::Directory);
        }
        let fixed = [(ROOT_ZONE, ROOT_INO), (ORPHAN_ZONE, ORPHAN_INO)];
        let is_fixed = place.is_root() && fixed.contains(&(place.zone, inode.ino));
        let is_number = is_number(inode.ino) && is_stored_right;
        if !is_number || (!is_fixed && !self.inodes.insert(inode.ino)) {
            let zone = self.zones.entry(place.zone).or_default();
            match zone.root.is_none() && !place.is_root() && is_number {
                true => zone.has_numbers_of_others = true,
                false => {
                    let all = entry.inode().map(Box::new);
                    self.corrections.extend(all.map(|all| Correction::Renumber(key.clone(), all)));
                }
            }
            self.add(Code::InodeTwice, key, format!("inode {}", inode.ino));
        } else {
            let lineage = if place.is_root() { inode.lineage } else { Lineage::NONE };
            self.check_number_given(key, inode.ino, lineage);
        }
        if inode.kind == FileType::Regular && !self.contents_of(key, place, inode) {
            return;
        }
        if place.is_root() {
            let root = entry.inode().map(|root| Inode { ino: inode.ino, ..root });
            self.zones.entry(place.zone).or_default().root = root;
            return;
        }
        if inode.kind == FileType::Directory {
            self.inline_directory(entry, place);
        } else {
            let expected = u32::from(place.zone != ORPHAN_ZONE);
            if inode.links != expected {
                let detail = format!("expected {expected}, found {}", inode.links);
                self.put_links(key, expected);
                self.add(Code::LinksWrong, key, detail);
            }
        }
        if place.zone == ORPHAN_ZONE
            && place.is_in_root()
            && place.name(key) != orphan_name(inode.ino)
        {
            self.drop_entry(key);
            self.add(Code::ZoneWrong, key, "an orphan under another number than its own");
        }
    }

    /// Records the contents of a regular file. Returns false if its data zone is invalid.
    fn contents_of(&mut self, key: &Key, place: &MetaPlace, inode: Brief) -> bool {
        let prefix = match inode.data_zone {
            Some(zone) if zone.0 >= ZONES_END => {
                self.mend(Correction::Contentless(key.clone()));
                self.add(Code::ZoneWrong, key, format!("data zone {zone}"));
                return false;
            }
            Some(zone) => Key::copied(&zone.0.to_be_bytes()),
            None => key.clone(),
        };
        if let Some(zone) = inode.data_zone {
            self.check_zone_given(key, zone);
            self.homes.entry(prefix.to_vec()).or_insert_with(|| key.clone());
        }
        let stated = Stated { size: inode.size, sparse: inode.sparse };
        if !self.contents.add_file(prefix, stated) {
            self.mend(Correction::Contentless(key.clone()));
            self.add(Code::ZoneWrong, key, "another file has the same data zone");
        }
        let size = whole_blocks(inode.size);
        match inode.data_zone {
            Some(_) if place.is_root() => {
                self.mend(Correction::Contentless(key.clone()));
                self.add(Code::ZoneWrong, key, "a zone of its own, and one for its contents");
            }
            Some(zone) => {
                let small = size < self.sizes.min && place.zone != ORPHAN_ZONE;
                self.data_zones.push((zone, place.zone, small));
            }
            None if !place.is_root() && size > self.sizes.max => {
                self.add(Code::ZoneTooLarge, key, format!("{size} bytes"));
            }
            None => {}
        }
        true
    }

    /// Records a directory that is not the root of a zone.
    fn inline_directory(&mut self, entry: &Entry, place: &MetaPlace) {
        let key = &entry.key;
        let Some(inode) = entry.inode() else { return };
        if inode.parent.is_some() || inode.lineage != Lineage::NONE {
            let right = Inode { parent: None, lineage: Lineage::NONE, ..inode.clone() };
            self.mend(Correction::Put(key.clone(), right.encode()));
            self.add(Code::ZoneWrong, key, "a parent or a lineage is for the roots of zones");
        }
        let (stated, found) = (inode.sums, Sums::default());
        let inline = Inline { links: inode.links, subdirectories: 0, stated, found };
        self.inline.insert(place.below(key), inline);
    }

    /// Counts a subdirectory in the links of its parent.
    fn count_subdirectory(&mut self, zone: ZoneId, parent: &[u8]) {
        if parent.len() == ZONE_BYTES {
            // Orphans have lost their links.
            self.zones.entry(zone).or_default().subdirectories += u32::from(zone != ORPHAN_ZONE);
        } else if let Some(parent) = self.inline.get_mut(parent) {
            parent.subdirectories += 1;
        }
    }

    /// Adds what an entry counts to its directory, which is given by the prefix of the keys below it.
    fn count(&mut self, zone: ZoneId, directory: &[u8], more: Sums) {
        let more = self.sizes.counted(more);
        let found = match directory.len() == ZONE_BYTES {
            true => Some(&mut self.zones.entry(zone).or_default().found),
            false => self.inline.get_mut(directory).map(|it| &mut it.found),
        };
        if let Some(found) = found {
            found.meta = found.meta.saturating_add(more.meta);
            found.data = found.data.saturating_add(more.data);
            found.apart = found.apart.saturating_add(more.apart);
        }
    }

    fn check_inline(&mut self) {
        // Lower directories come first, and are added to the upper ones.
        while let Some((below, inline)) = self.inline.pop_last() {
            let Some(place) = MetaKey::beginning(&below) else { continue };
            let Inline { links, subdirectories, stated, found } = inline;
            let zone = place.zone();
            if !place.is_root() {
                self.count(zone, &below[..below.len() - place.name().len() - 2], found);
            }
            let key = place.encode();
            // An orphan has lost its name, and with it its link to itself.
            let orphan = zone == ORPHAN_ZONE && place.depth() == 1;
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
            let text =
                |sums: Sums| format!("{} and {} bytes, {} apart", sums.meta, sums.data, sums.apart);
            let detail = format!("expected {}, found {}", text(found), text(stated));
            let bytes = [found.meta, found.data, found.apart].map(u64::to_le_bytes).concat();
            self.mend(Correction::Patch(Key::copied(key), META_SUM_AT, bytes));
            self.add(Code::SumsWrong, key, detail);
        }
    }
}
