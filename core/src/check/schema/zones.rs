//! Checks zones: their roots, references, sizes, and that each can be reached.

use std::collections::{HashMap, HashSet};

use super::super::Code;
use super::super::correction::{Correction, lost_inode};
use super::{Reference, Schema, Zone};
use crate::error::Place;
use crate::format::*;
use crate::fs::{FIRST_ZONE, ORPHAN_INO, ORPHAN_ZONE, ROOT_INO, ROOT_ZONE, small_name};
use crate::ids::*;

impl Schema<'_> {
    /// Checks that exactly the zones that are too small are recorded as such.
    pub(super) fn check_small(&mut self) {
        let mut noted = std::mem::take(&mut self.small);
        let zones = self.zones.iter().filter_map(|(id, zone)| {
            let [reference] = &zone.references[..] else { return None };
            let own = reference.zone.link == LinkKind::Own && reference.from != ORPHAN_ZONE;
            let small = |root: &Inode| {
                own && root.lineage == Lineage::NONE && self.sizes.are_above(zone.found)
            };
            zone.root.as_ref().map(|root| (*id, reference.from, small(root)))
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

    /// Corrects the record whether a zone is too small.
    fn note_small(&mut self, zone: ZoneId, at: Option<ZoneId>) {
        let key = MetaKey::root(ORPHAN_ZONE).with_xattr(&small_name(zone)).encode();
        self.mend(match at {
            Some(at) => Correction::Put(key, at.0.to_le_bytes().to_vec()),
            None => Correction::Drop(TreeId::Metadata, key),
        });
    }

    /// Checks that every zone has a root and the references that it should have, and that these agree.
    pub(super) fn check_zones(&mut self) {
        let zones = std::mem::take(&mut self.zones);
        for (id, zone) in &zones {
            let key = MetaKey::root(*id).encode();
            let Some(root) = &zone.root else {
                self.mend_root(*id, zone);
                self.add(Code::ZoneWrong, &key, "the zone has no root");
                continue;
            };
            // A cloned directory that has lost the messages about its own zones names those of the original.
            let is_known = zone.references.iter().any(|reference| reference.agrees(root));
            let is_meant =
                |it: &Reference| it.agrees(root) || !is_known || it.lineage == Lineage::NONE;
            let fixed = *id == ROOT_ZONE || *id == ORPHAN_ZONE;
            if fixed && root.kind != FileType::Directory {
                let now = self.superblock.wall;
                self.put_root(&key, &lost_inode(FileType::Directory, root.ino, now));
                self.add(Code::ZoneWrong, &key, "the root of this zone must be a directory");
            }
            if zone.has_entries && root.kind != FileType::Directory {
                if !fixed {
                    self.mend(Correction::DropBelow(MetaKey::root(*id)));
                }
                self.add(Code::ZoneWrong, &key, "entries below what is no directory");
            }
            for reference in &zone.references {
                if !reference.agrees(root) {
                    let expected = format!("inode {}, a {}", root.ino, root.kind.name());
                    let found =
                        format!("inode {}, a {}", reference.zone.ino, reference.zone.kind.name());
                    let right = ZoneRef { ino: root.ino, kind: root.kind, ..reference.zone };
                    match is_meant(reference) {
                        true => self.mend(reference.put(right)),
                        false => self.drop_entry(&reference.key),
                    }
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
                for reference in zone.references.iter().filter(|it| it.zone.link == LinkKind::Own) {
                    let link = ZoneRef { link: LinkKind::Link, ..reference.zone };
                    self.mend(reference.put(link));
                    let detail = "what is no directory is referred to as if it were one";
                    self.add(Code::ZoneWrong, &reference.key, detail);
                }
                let names = zone.references.iter().filter(|other| other.from != ORPHAN_ZONE);
                let names = names.filter(|other| is_meant(other));
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
            let is_wrong = |root: &Inode| {
                root.ino != ino || root.parent.is_some() || root.lineage != Lineage::NONE
            };
            if root.is_none_or(is_wrong) {
                let detail = format!("expected directory {ino} without a parent and a lineage");
                let now = self.superblock.wall;
                let known = zones.get(&id).and_then(|zone| zone.root.clone());
                let known = known.filter(|root| root.kind == FileType::Directory);
                let root = known.unwrap_or_else(|| lost_inode(FileType::Directory, ino, now));
                let root = Inode { ino, parent: None, lineage: Lineage::NONE, ..root };
                self.put_root(&MetaKey::root(id).encode(), &root);
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
                self.put_root(key, &Inode { parent, ..root.clone() });
                self.add(Code::ZoneWrong, key, "the directory names another parent");
            }
            if reference.zone.link != LinkKind::Own {
                let own = ZoneRef { link: LinkKind::Own, ..reference.zone };
                self.mend(reference.put(own));
                self.add(Code::ZoneWrong, key, "a directory is referred to as if it were shared");
            }
        }
    }

    /// Corrects the lost root of a zone: of a directory, everything except its attributes is known.
    fn mend_root(&mut self, id: ZoneId, zone: &Zone) {
        let fixed = id == ROOT_ZONE || id == ORPHAN_ZONE;
        let Some(reference) = zone.references.first() else {
            return match fixed {
                // Corrected elsewhere, with other faults of it.
                true => {}
                false => self.mend(Correction::Unnamed(id, None)),
            };
        };
        let ZoneRef { kind, ino, .. } = reference.zone;
        let now = self.superblock.wall;
        if zone.has_entries || kind == FileType::Directory {
            let parent = Some(Parent { zone: reference.from, name: reference.name.clone() });
            let root = Inode { parent, ..lost_inode(FileType::Directory, ino, now) };
            let key = MetaKey::root(id).encode();
            match zone.has_numbers_of_others {
                true => self.mend(Correction::Cloned(key, Box::new(root))),
                false => self.put_root(&key, &root),
            }
        } else if kind == FileType::Regular {
            // If there are contents, they determine its size.
            let root = Inode { links: zone.references.len() as u32, ..lost_inode(kind, ino, now) };
            self.put_root(&MetaKey::root(id).encode(), &root);
        } else {
            // Its type and content are lost.
            let keys: Vec<Key> = zone.references.iter().map(|other| other.key.clone()).collect();
            keys.into_iter().for_each(|key| self.mend(Correction::Drop(TreeId::Metadata, key)));
        }
    }

    /// Corrects a directory with several names or none: it keeps the name that its root states.
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

    /// Checks that every directory's chain of parents ends at the root or the orphan directory.
    pub(super) fn check_reach(&mut self) {
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
        // A cycle is cut at its first zone; the zones below it are reached through it.
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
