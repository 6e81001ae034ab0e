//! Clones of directories: everything below one is shown below another as well, without a copy (SPEC 11.8).
//!
//! A clone has a zone of its own for each zone of the original, with the same tree in it: a range clone of both indexes.
//! What names a zone there is written anew: references, and files with data zones, which are cloned with them. A file
//! with several names below the original is one file below the clone; names of it elsewhere are none of the clone's.
//!
//! Objects of a clone are shown under numbers of their own: the tag of its lineage and the stored number. Numbers that are
//! stored with a tag are given anew.

use std::collections::{BTreeMap, BTreeSet};

use super::make::check_named;
use super::remove::zone_range;
use super::zones::SmallZone;
use super::{Draft, Fs, Object, Placed, check_name, decode_value};
use crate::error::{Error, Refusal, Result};
use crate::format::limits::RECORD_MESSAGES_MAX;
use crate::format::*;
use crate::ids::*;
use crate::tree::{KeyScan, Scan};

/// The byte behind those that follow the common prefix of everything below a directory: 1 for its entries, and 2 for
/// what is below these.
const FIRST: u8 = 1;
const BEHIND: u8 = 3;

/// A clone under construction.
struct Clone {
    draft: Draft,
    /// The limit of the lineages that it makes: all numbers that are stored in the original are below.
    limit: Ino,
    /// The new tag for each tag of the original.
    tags: BTreeMap<Tag, Tag>,
    /// Objects with several names, by their zones.
    links: BTreeMap<ZoneId, Linked>,
    /// The zones of directories of the original.
    zones: BTreeSet<ZoneId>,
    /// Zones whose entries have not been read.
    waiting: Vec<Part>,
}

/// An object with several names below the original.
struct Linked {
    /// The number of the original.
    original: Ino,
    zone: ZoneId,
    ino: Ino,
    names: u32,
}

/// A part of the original in one zone, and the zone that will have its clone.
struct Part {
    /// The directory that the part is below.
    from: MetaKey,
    lineage: Lineage,
    sums: Sums,
    to: ZoneId,
}

impl Fs {
    /// Makes `name` in `directory` a clone of an object: of a directory as [`Fs::clone_directory`] says, and of others as
    /// [`Fs::copy`].
    pub fn clone_object(&mut self, from: &Object, directory: &Object, name: &[u8]) -> Result<()> {
        match from.is_directory() {
            true => self.clone_directory(from, directory, name).map(drop),
            false => self.copy(from, directory, name).map(drop),
        }
    }

    /// Makes `name` in `directory` a clone of another directory: the same as a copy with owners, permissions, times and
    /// attributes, but made at once, and the two share what neither changes.
    ///
    /// Fails with [`Refusal::Invalid`] if the new directory would be below the original.
    pub fn clone_directory(
        &mut self,
        from: &Object,
        directory: &Object,
        name: &[u8],
    ) -> Result<Object> {
        check_name(name)?;
        check_named(directory)?;
        if !from.is_directory() || !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        if self.find(directory, name)?.is_some() {
            return Err(Refusal::Exists.into());
        }
        if from.is_orphan() {
            return Err(Refusal::NotFound.into());
        }
        if self.is_above(from, directory)? {
            return Err(Refusal::Invalid.into());
        }
        let draft = self.begin()?;
        let gain = self.make_way_for_reference(directory, name)?;
        let mut clone = Clone {
            draft,
            limit: self.volume.next_numbers().ino,
            tags: BTreeMap::new(),
            links: BTreeMap::new(),
            zones: BTreeSet::from([from.place().zone()]),
            waiting: Vec::new(),
        };
        let parent = Parent { zone: directory.place().zone(), name: name.to_vec() };
        let (root, zone) =
            self.clone_root(&mut clone, (&from.inode(), from.place(), from.lineage()), parent)?;
        while let Some(part) = clone.waiting.pop() {
            self.clone_part(&mut clone, &part)?;
        }
        self.clone_links(&mut clone)?;
        let mut draft = clone.draft;
        let place = directory.place().child(name);
        draft.insert_reference(&place, (&root, zone), directory.lineage());
        draft.count(directory, gain);
        draft.touch(directory, 1)?;
        self.commit(Op::Clone, draft).map_err(|error| match error {
            Error::Unsupported(text) => Error::Unsupported(format!(
                "a clone of a directory with this number of zones: {text}"
            )),
            error => error,
        })?;
        // With the counters after all that was written anew.
        let root = self.root_inode(zone)?;
        let up = Some((directory.clone(), name.into()));
        self.enter(root, Placed { zone: Some(zone), up })
    }

    /// Adds the root of a zone for everything below a directory. Returns its inode and the zone.
    fn clone_root(
        &mut self,
        clone: &mut Clone,
        (original, place, lineage): (&Inode, MetaKey, Lineage),
        parent: Parent,
    ) -> Result<(Inode, ZoneId)> {
        let zone = self.volume.take_zone()?;
        let tag = match clone.tags.get(&lineage.tag) {
            Some(tag) => *tag,
            None => {
                let tag = self.volume.take_tag()?;
                clone.tags.insert(lineage.tag, tag);
                tag
            }
        };
        let now = clone.draft.now;
        let root = Inode {
            ino: self.volume.take_ino()?,
            parent: Some(parent),
            lineage: Lineage { limit: clone.limit, tag },
            changed: now,
            born: now,
            ..original.clone()
        };
        self.clone_inode(clone, &root, &place, zone)?;
        clone.waiting.push(Part { from: place, lineage, sums: original.sums, to: zone });
        Ok((root, zone))
    }

    /// Adds the inode of a zone's root, with the extended attributes of an object.
    fn clone_inode(
        &self,
        clone: &mut Clone,
        inode: &Inode,
        from: &MetaKey,
        zone: ZoneId,
    ) -> Result<()> {
        let place = MetaKey::root(zone);
        clone.draft.insert_inode(&place, inode, inode.lineage);
        for (name, value) in self.xattrs_at(from)? {
            clone.draft.insert(&place.with_xattr(&name), value);
        }
        Ok(())
    }

    /// Adds everything of the original in one zone.
    fn clone_part(&mut self, clone: &mut Clone, part: &Part) -> Result<()> {
        for tree in [TreeId::Metadata, TreeId::Data] {
            let (lo, hi) = part.from.subtree_range();
            if KeyScan::new(tree, lo, Some(hi)).next(self.volume.store())?.is_some() {
                clone.draft.clone_range(tree, self.all_below(&part.from, part.to)?);
            }
        }
        match part.sums.apart {
            0 => Ok(()),
            _ => self.clone_apart(clone, part),
        }
    }

    /// Adds what stands apart in the original in one zone.
    fn clone_apart(&mut self, clone: &mut Clone, part: &Part) -> Result<()> {
        let (before, after) = (part.from.below(), MetaKey::root(part.to).below());
        let there = |key: &Key| Key::new([&after[..], &key[before.len()..]].concat());
        let (lo, hi) = part.from.subtree_range();
        let mut scan = Scan::new(TreeId::Metadata, lo, Some(hi));
        // The numbers below each directory of the clone that count no more.
        let mut renumbered: BTreeMap<MetaKey, i64> = BTreeMap::new();
        while let Some((key, value)) = self.volume.advance(&mut scan)? {
            let place = MetaKey::decode(&key).ok_or_else(|| self.bad_key(&key))?;
            if place.xattr().is_some() {
                continue;
            }
            let to = MetaKey::decode(&there(&key)).ok_or_else(|| self.bad_key(&key))?;
            match decode_value(&key, &value)? {
                MetaValue::Inode(stored) => {
                    if is_fixed(stored.ino) {
                        let mut above = to.parent();
                        while let Some(directory) = above {
                            above = directory.parent();
                            *renumbered.entry(directory).or_default() += 1;
                        }
                    }
                    self.clone_entry(clone, &stored, &to)?;
                }
                MetaValue::ZoneRef(stored) => {
                    let reference = ZoneRef { ino: part.lineage.shown(stored.ino), ..stored };
                    self.clone_reference(clone, &reference, &place, &to)?;
                }
            }
            if clone.draft.messages() > RECORD_MESSAGES_MAX as usize / 4 {
                return Err(Refusal::TooBig.into());
            }
        }
        for (directory, count) in renumbered {
            clone.draft.update(&directory, Update::add_all(vec![(APART_SUM_AT, -count)]));
        }
        Ok(())
    }

    /// Adds what an inode in the original needs besides: a number, and the zone of its contents.
    fn clone_entry(&mut self, clone: &mut Clone, inode: &Inode, to: &MetaKey) -> Result<()> {
        if is_fixed(inode.ino) {
            let ino = self.volume.take_ino()?;
            clone.draft.update(to, Update::patch(INO_AT, &ino.0.to_le_bytes(), false));
        }
        let Some(data_zone) = inode.data_zone else { return Ok(()) };
        let zone = self.volume.take_zone()?;
        clone.draft.update(to, Update::patch(DATA_ZONE_AT, &zone.0.to_le_bytes(), false));
        self.clone_contents(clone, data_zone, zone)?;
        if self.is_small(data_zone).is_some() {
            clone.draft.small(zone, Some(SmallZone { at: to.zone(), object: None }));
        }
        Ok(())
    }

    /// Adds the contents of a file with a zone of their own.
    fn clone_contents(&self, clone: &mut Clone, from: ZoneId, to: ZoneId) -> Result<()> {
        let (lo, hi) = zone_range(from);
        if KeyScan::new(TreeId::Data, lo, Some(hi)).next(self.volume.store())?.is_some() {
            let from = MetaKey::root(from).encode();
            let contents = self.clone_into(to, from, Key::default(), None)?;
            clone.draft.clone_range(TreeId::Data, contents);
        }
        Ok(())
    }

    /// Adds what a reference in the original refers to.
    fn clone_reference(
        &mut self,
        clone: &mut Clone,
        reference: &ZoneRef,
        from: &MetaKey,
        to: &MetaKey,
    ) -> Result<()> {
        if reference.kind == FileType::Directory {
            let parent = Parent { zone: to.zone(), name: to.name().to_vec() };
            if !clone.zones.insert(reference.zone) {
                let found = format!("a second reference to {}", reference.zone);
                return Err(self.damaged(from, "one for each zone", &found));
            }
            let original = self.check_parent(from, reference.zone)?;
            let from = (&original, MetaKey::root(reference.zone), original.lineage);
            let (root, zone) = self.clone_root(clone, from, parent)?;
            // New numbers are beyond the limits of all lineages.
            clone.draft.insert_reference(to, (&root, zone), Lineage::NONE);
            return Ok(());
        }
        let linked = match clone.links.get_mut(&reference.zone) {
            Some(linked) => linked,
            None => {
                let (zone, ino) = (self.volume.take_zone()?, self.volume.take_ino()?);
                let linked = Linked { original: reference.ino, zone, ino, names: 0 };
                clone.links.entry(reference.zone).or_insert(linked)
            }
        };
        linked.names += 1;
        let (ino, zone) = (linked.ino, linked.zone);
        clone.draft.insert(to, ZoneRef { ino, zone, ..*reference }.encode());
        Ok(())
    }

    /// Adds the objects with several names.
    fn clone_links(&mut self, clone: &mut Clone) -> Result<()> {
        for (from, linked) in std::mem::take(&mut clone.links) {
            let object = self.zone_root(from, linked.original)?;
            let now = clone.draft.now;
            let inode = Inode {
                ino: linked.ino,
                links: linked.names,
                changed: now,
                ..Inode::clone(&object.inode())
            };
            if object.is_directory() {
                let found = "a directory with links";
                return Err(self.damaged(&object.place(), "no directory", found));
            }
            self.clone_inode(clone, &inode, &object.place(), linked.zone)?;
            if object.kind() == FileType::Regular {
                if let Some(other) = inode.data_zone {
                    let found = format!("them in zone {other}");
                    return Err(self.damaged(
                        &object.place(),
                        "contents in the file's zone",
                        &found,
                    ));
                }
                self.clone_contents(clone, from, linked.zone)?;
            }
        }
        Ok(())
    }

    /// The clone of everything below a directory in a fresh zone.
    pub(super) fn all_below(&self, from: &MetaKey, zone: ZoneId) -> Result<RangeClone> {
        let [first, behind] = [FIRST, BEHIND].map(|byte| Key::copied(&[byte]));
        self.clone_into(zone, from.below(), first, Some(behind))
    }

    /// The clone, in a fresh zone, of the keys that begin with a prefix and go on from `first` to before `end`.
    pub(super) fn clone_into(
        &self,
        zone: ZoneId,
        prefix: Key,
        first: Key,
        end: Option<Key>,
    ) -> Result<RangeClone> {
        let root = MetaKey::root(zone);
        let lens = Lens::of_ranges(root.encode(), prefix);
        let clone = lens.and_then(|lens| RangeClone::part(lens, first, end));
        clone.ok_or_else(|| self.damaged(&root, "a zone that is not in use", "one that is"))
    }
}

#[cfg(test)]
mod tests;
