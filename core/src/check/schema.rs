//! The schema: both indexes, and each against the other.
//!
//! The metadata index is read once, in the order of its keys, with everything pending laid over; the
//! data index by its keys alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Code, Progress, Report};
use crate::device::Disk;
use crate::error::{Place, Result};
use crate::format::limits::{FILE_BLOCK, VALUE_MAX};
use crate::format::*;
use crate::fs::{
    FIRST_ZONE, ORPHAN_INO, ORPHAN_ZONE, ROOT_INO, ROOT_ZONE, orphan_name, parse_small,
    whole_blocks, xattr_bytes,
};
use crate::ids::*;
use crate::tree::KeyScan;
use crate::volume::Volume;

/// Checks the file system of the checkpoint of `superblock`, whose structure is sound.
pub(super) fn check(
    disk: &Disk,
    superblock: &Superblock,
    report: &mut Report,
    progress: &mut dyn Progress,
) {
    progress.step(3, 0, 1);
    let volume = match Volume::of_checkpoint(disk, superblock.clone()) {
        Ok(volume) => volume,
        Err(error) => return report.add_error(Code::NoSuperblock, &error),
    };
    let mut schema = Schema {
        superblock,
        report,
        sizes: superblock.zones,
        zones: BTreeMap::new(),
        files: HashMap::new(),
        data_zones: Vec::new(),
        small: BTreeMap::new(),
        inline: BTreeMap::new(),
        inodes: HashSet::new(),
        orphans: 0,
    };
    if let Err(error) = schema.walk(&volume, progress) {
        report.add_error(Code::ValueInvalid, &error);
    }
}

struct Schema<'s> {
    superblock: &'s Superblock,
    report: &'s mut Report,
    sizes: ZoneSizes,
    zones: BTreeMap<ZoneId, Zone>,
    /// Sizes of regular files, by data prefix.
    files: HashMap<Vec<u8>, u64>,
    /// Zones of contents, with the zones that their files stand in, and whether they are too small.
    data_zones: Vec<(ZoneId, ZoneId, bool)>,
    /// Zones that are said to be too small, with the zones above.
    small: BTreeMap<ZoneId, ZoneId>,
    /// Directories that are not the root of a zone.
    inline: BTreeMap<InlinePath, Inline>,
    inodes: HashSet<Ino>,
    /// What stands directly in the orphan directory.
    orphans: u64,
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
    from: ZoneId,
    name: Vec<u8>,
    zone: ZoneRef,
}

impl Schema<'_> {
    fn walk(&mut self, volume: &Volume, progress: &mut dyn Progress) -> Result<()> {
        let mut owner: Option<MetaKey> = None;
        for entry in volume.cursor(TreeId::Metadata, Key::default(), None) {
            let (key, value) = entry?;
            self.metadata(&key, &value, &mut owner);
        }
        if self.orphans > 0 {
            let detail = format!("{} of them", self.orphans);
            self.report.add(Code::OrphanLeft, Place::Zone(ORPHAN_ZONE), detail);
        }
        self.check_inline();
        self.check_zones();
        self.check_small();
        self.check_reach();
        progress.step(4, 0, 1);
        let mut scan = KeyScan::new(TreeId::Data, Key::default(), None);
        while let Some((key, len)) = scan.next(volume.store())? {
            self.data(&key, len);
        }
        progress.step(4, 1, 1);
        Ok(())
    }

    fn add(&mut self, code: Code, key: &[u8], detail: impl ToString) {
        self.report.add(code, Place::Key(TreeId::Metadata, key.to_vec()), detail);
    }

    /// One entry of the metadata index. `owner` is the last one that was no extended attribute.
    fn metadata(&mut self, key: &[u8], value: &[u8], owner: &mut Option<MetaKey>) {
        let Some(place) = MetaKey::decode(key) else {
            return self.add(Code::KeyInvalid, key, "no metadata key looks like this");
        };
        if let Some(name) = &place.xattr {
            let of = MetaKey { xattr: None, ..place.clone() };
            if owner.as_ref() != Some(&of) {
                self.add(Code::XattrLost, key, crate::text::printable(name));
            }
            if value.len() > VALUE_MAX {
                self.add(Code::ValueMalformed, key, "an extended attribute that is too long");
            }
            if of == MetaKey::root(ORPHAN_ZONE) {
                match parse_small(name, value) {
                    Some((zone, at)) => drop(self.small.insert(zone, at)),
                    None => self.add(Code::ValueMalformed, key, "no attribute of this directory"),
                }
            }
            if let Some((_, directory)) = of.path.split_last() {
                self.count(of.zone, directory, xattr_bytes(name, value.len()), 0);
            }
            return;
        }
        let decoded = match MetaValue::decode(value, None) {
            Ok(decoded) => decoded,
            Err(error) => return self.add(Code::ValueMalformed, key, error),
        };
        if place.zone >= self.superblock.next_zone {
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
            self.add(Code::DirectoryUnreachable, key, "its directory does not exist");
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
                self.add(Code::ValueMalformed, key, "a zone reference as the root of a zone");
            }
            MetaValue::ZoneRef(zone) => {
                let name = place.path.last().cloned().unwrap_or_default();
                let reference = Reference { from: place.zone, name, zone };
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
        if !self.inodes.insert(inode.ino) {
            self.add(Code::InodeTwice, key, format!("inode {}", inode.ino));
        }
        if inode.ino >= self.superblock.next_ino {
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
                Some(zone) => {
                    return self.add(Code::CounterWrong, key, format!("data zone {zone}"));
                }
                None => key.to_vec(),
            };
            if self.files.insert(prefix, inode.size).is_some() {
                self.add(Code::ZoneWrong, key, "another file has the same data zone");
            }
            let size = whole_blocks(inode.size);
            match inode.data_zone {
                Some(_) if place.path.is_empty() => {
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
                    self.add(Code::ZoneWrong, key, "a parent is for the roots of zones");
                }
                let (stated, found) = (inode.sums, Sums::default());
                let inline = Inline { links: inode.links, subdirectories: 0, stated, found };
                self.inline.insert((place.zone, place.path.clone()), inline);
            } else {
                let expected = u32::from(place.zone != ORPHAN_ZONE);
                if inode.links != expected {
                    let detail = format!("expected {expected}, found {}", inode.links);
                    self.add(Code::LinksWrong, key, detail);
                }
            }
            if place.zone == ORPHAN_ZONE
                && place.path.len() == 1
                && place.path[0] != orphan_name(inode.ino)
            {
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
                let what = if small { "too small" } else { "large enough" };
                let detail = format!("it is {what}, and stands in zone {at}; {noted}");
                self.report.add(Code::ZoneTooSmall, Place::Zone(zone), detail);
            }
        }
        for zone in noted.into_keys() {
            let detail = "it is noted, and there is none";
            self.report.add(Code::ZoneTooSmall, Place::Zone(zone), detail);
        }
    }

    /// Every zone has a root and the references that it should have, and they agree.
    fn check_zones(&mut self) {
        let zones = std::mem::take(&mut self.zones);
        for (id, zone) in &zones {
            let key = MetaKey::root(*id).encode();
            let Some(root) = &zone.root else {
                self.add(Code::ZoneWrong, &key, "the zone has no root");
                continue;
            };
            let fixed = *id == ROOT_ZONE || *id == ORPHAN_ZONE;
            if fixed && root.kind != FileType::Directory {
                self.add(Code::ZoneWrong, &key, "the root of this zone must be a directory");
            }
            if zone.has_entries && root.kind != FileType::Directory {
                self.add(Code::ZoneWrong, &key, "entries below what is no directory");
            }
            for reference in &zone.references {
                if (reference.zone.ino, reference.zone.kind) != (root.ino, root.kind) {
                    let expected = format!("inode {}, a {}", root.ino, root.kind.name());
                    let found =
                        format!("inode {}, a {}", reference.zone.ino, reference.zone.kind.name());
                    self.add(
                        Code::ZoneWrong,
                        &key,
                        format!("expected {expected}, found a reference to {found}"),
                    );
                }
            }
            self.check_sums(&key, root.sums, zone.found);
            if root.kind == FileType::Directory {
                self.check_directory(&key, fixed, zone, root);
            } else {
                let names = zone.references.iter().filter(|other| other.from != ORPHAN_ZONE);
                let expected = names.count() as u64;
                if expected != u64::from(root.links) {
                    let detail = format!("expected {expected}, found {}", root.links);
                    self.add(Code::LinksWrong, &key, detail);
                }
            }
        }
        for (id, ino) in [(ROOT_ZONE, ROOT_INO), (ORPHAN_ZONE, ORPHAN_INO)] {
            let root = zones.get(&id).and_then(|zone| zone.root.as_ref());
            if root.is_none_or(|root| root.ino != ino || root.parent.is_some()) {
                let detail = format!("expected directory {ino} without a parent");
                self.add(Code::ZoneWrong, &MetaKey::root(id).encode(), detail);
            }
        }
        self.zones = zones;
    }

    fn check_directory(&mut self, key: &[u8], fixed: bool, zone: &Zone, root: &Inode) {
        let orphan = zone.references.iter().any(|reference| reference.from == ORPHAN_ZONE);
        let links = if orphan { 0 } else { 2 + zone.subdirectories };
        if root.links != links {
            self.add(Code::LinksWrong, key, format!("expected {links}, found {}", root.links));
        }
        let expected = usize::from(!fixed);
        if zone.references.len() != expected {
            let detail = format!("expected {expected} references, found {}", zone.references.len());
            self.add(Code::ZoneWrong, key, detail);
        }
        if let [reference] = &zone.references[..] {
            let says = root.parent.as_ref().map(|parent| (parent.zone, &parent.name));
            if says != Some((reference.from, &reference.name)) {
                self.add(Code::ZoneWrong, key, "the directory names another parent");
            }
            if reference.zone.link != LinkKind::Own {
                self.add(Code::ZoneWrong, key, "a directory is referred to as if it were shared");
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
        for zone in lost {
            self.report.add(
                Code::DirectoryUnreachable,
                Place::Zone(zone),
                "no way leads to it from the root",
            );
        }
    }

    /// One entry of the data index: its key, and the length of its value.
    fn data(&mut self, key: &[u8], len: usize) {
        self.report.counts.file_blocks += 1;
        let place = Place::Key(TreeId::Data, key.to_vec());
        let Some((prefix, block)) = parse_data_key(key) else {
            return self.report.add(Code::KeyInvalid, place, "no data key looks like this");
        };
        let Some(size) = self.files.get(prefix) else {
            return self.report.add(Code::DataWrong, place, "no file has these blocks");
        };
        let start = block.checked_mul(FILE_BLOCK as u64);
        let left = start.and_then(|start| size.checked_sub(start)).unwrap_or(0);
        if len == 0 || len as u64 > left.min(FILE_BLOCK as u64) {
            let detail =
                format!("a value of {len} bytes in block {block} of a file of {size} bytes");
            self.report.add(Code::DataWrong, place, detail);
        }
    }
}
