//! Removes names, their objects, and everything below a directory.

use std::collections::{BTreeMap, BTreeSet};

use super::numbers::decode_shown;
use super::{Delta, Draft, Fs, Object, Placed, data};
use crate::error::{Refusal, Result};
use crate::format::limits::RECORD_MESSAGES_MAX;
use crate::format::*;
use crate::ids::*;
use crate::tree::KeyScan;

/// 2^18 messages: larger recursive deletions are made in pieces.
pub(super) const MESSAGES_AT_ONCE: usize = RECORD_MESSAGES_MAX as usize / 4;

impl Fs {
    /// Removes a name, not of a directory. An object without another name is deleted with its last handle.
    pub fn unlink(&mut self, directory: &Object, name: &[u8]) -> Result<()> {
        let mut draft = self.begin()?;
        let object = self.lookup(directory, name)?;
        if object.is_directory() {
            return Err(Refusal::IsADirectory.into());
        }
        self.detach_if_used(&object)?;
        self.unname(&mut draft, directory, name, &object)?;
        self.drop_link(&mut draft, &object)?;
        draft.touch(directory, 0)?;
        self.commit(Op::Unlink, draft)
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, directory: &Object, name: &[u8]) -> Result<()> {
        let mut draft = self.begin()?;
        let object = self.lookup(directory, name)?;
        self.check_empty(&object)?;
        self.unname(&mut draft, directory, name, &object)?;
        self.drop_link(&mut draft, &object)?;
        draft.touch(directory, -1)?;
        self.commit(Op::Rmdir, draft)
    }

    /// Fails for a directory with entries.
    pub fn check_empty(&self, directory: &Object) -> Result<()> {
        match self.has_entries(directory)? {
            false => Ok(()),
            true => Err(Refusal::NotEmpty.into()),
        }
    }

    /// Whether a directory has entries.
    pub(super) fn has_entries(&self, directory: &Object) -> Result<bool> {
        if !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        let (lo, hi) = directory.place().entry_range();
        let mut keys = KeyScan::new(TreeId::Metadata, lo, Some(hi));
        while let Some((key, _)) = keys.next(self.volume.store())? {
            let place = MetaKey::decode(&key).ok_or_else(|| self.bad_key(&key))?;
            if !place.is_root() && place.xattr().is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes a name and its object; a directory with everything below it, none of which may be in use. Needs a
    /// message for each zone, large file and link below.
    pub fn remove_tree(&mut self, directory: &Object, name: &[u8]) -> Result<()> {
        let mut draft = self.begin()?;
        let object = self.lookup(directory, name)?;
        if !object.is_directory() {
            drop(object);
            return self.unlink(directory, name);
        }
        self.let_go_below(&object);
        // Handles of objects with several names do not count as use, nor do the directories that they were found in.
        for other in self.live.all() {
            if other.zone().is_some() && !other.is_directory() && is_below(&other, &object) {
                other.forget_up();
            }
        }
        if self.live.all().iter().any(|other| is_below(other, &object)) || object.handles() > 1 {
            return Err(Refusal::Busy.into());
        }
        let whole = self.delete_below(&mut draft, &object)?;
        if whole {
            self.unname(&mut draft, directory, name, &object)?;
            self.vanish(&mut draft, &object)?;
        } else {
            // Hides the directory first, and then deletes it in pieces. Its zone must have nothing else.
            if object.zone().is_none() {
                self.split(&object)?;
            }
            draft = Draft::new(draft.now, self.sizes);
            self.unname(&mut draft, directory, name, &object)?;
            self.make_orphan(&mut draft, &object)?;
        }
        draft.touch(directory, -1)?;
        self.commit(Op::RemoveTree, draft)?;
        drop(object);
        self.reap_what_can_be()
    }

    /// Adds the messages that delete everything below a directory, but not itself; returns false if there are too many.
    /// Where nothing stands apart, two range deletes are enough, and nothing below is read.
    pub(super) fn delete_below(&self, draft: &mut Draft, directory: &Object) -> Result<bool> {
        let mut waiting = vec![(directory.place(), directory.lineage(), directory.inode().sums)];
        let mut zones = BTreeSet::from([directory.place().zone()]);
        let mut links: BTreeMap<ZoneId, (Ino, u32)> = BTreeMap::new();
        while let Some((place, lineage, sums)) = waiting.pop() {
            let (lo, hi) = place.subtree_range();
            let apart =
                (sums.apart > 0).then(|| self.volume.cursor(TreeId::Metadata, lo, Some(hi)));
            for entry in apart.into_iter().flatten() {
                let (key, value) = entry?;
                let entry = MetaKey::decode(&key).ok_or_else(|| self.bad_key(&key))?;
                if entry.xattr().is_some() {
                    continue;
                }
                match decode_shown(&key, &value, lineage)? {
                    MetaValue::Inode(Inode { data_zone: Some(zone), .. }) => {
                        draft.delete_range(TreeId::Data, zone_range(zone));
                        self.small_moves(draft, Some(zone), None);
                    }
                    MetaValue::Inode(_) => {}
                    MetaValue::ZoneRef(reference) if reference.kind == FileType::Directory => {
                        if !zones.insert(reference.zone) {
                            let found = format!("a second reference to {}", reference.zone);
                            return Err(self.damaged(&entry, "one for each zone", &found));
                        }
                        let root = self.check_parent(&entry, reference.zone)?;
                        self.small_moves(draft, Some(reference.zone), None);
                        draft.delete_range(TreeId::Metadata, zone_range(reference.zone));
                        waiting.push((MetaKey::root(reference.zone), root.lineage, root.sums));
                    }
                    MetaValue::ZoneRef(reference) => {
                        links.entry(reference.zone).or_insert((reference.ino, 0)).1 += 1;
                    }
                }
                if draft.messages() + links.len() > self.remove_at_once {
                    return Ok(false);
                }
            }
            // Each entry counts its name, if bytes are counted.
            if sums.meta > 0 || !self.sizes.count_bytes() {
                if !place.is_root() || place == directory.place() {
                    draft.delete_range(TreeId::Metadata, place.subtree_range());
                }
                draft.delete_range(TreeId::Data, place.subtree_range());
            }
        }
        for (zone, (ino, count)) in links {
            self.drop_links(draft, zone, ino, count)?;
        }
        Ok(true)
    }

    /// Checks that a zone's root agrees with the reference that is deleted. Returns its inode.
    pub(super) fn check_parent(&self, entry: &MetaKey, zone: ZoneId) -> Result<Inode> {
        let place = MetaKey::root(zone);
        let root = self.root_inode(zone)?;
        match &root.parent {
            Some(parent) if parent.zone == entry.zone() && parent.name == entry.name() => Ok(root),
            _ => Err(self.damaged(&place, "a directory that is where its reference is", "another")),
        }
    }

    /// Takes `count` links off an object with a zone for several links.
    fn drop_links(&self, draft: &mut Draft, zone: ZoneId, ino: Ino, count: u32) -> Result<()> {
        let known = self.live.get(ino).filter(|object| object.zone() == Some(zone));
        let object = match &known {
            Some(object) => object.clone(),
            None => self.zone_root(zone, ino)?,
        };
        if object.is_directory() {
            let found = "a directory with links";
            return Err(self.damaged(&object.place(), "no directory", found));
        }
        let now = draft.now;
        match object.inode().links.checked_sub(count) {
            None => {
                let (place, links) = (object.place(), object.inode().links);
                Err(self.damaged(&place, &format!("{count} links or more"), &format!("{links}")))
            }
            Some(0) if known.is_some() => self.make_orphan(draft, &object),
            Some(0) => {
                draft.delete_range(TreeId::Metadata, zone_range(zone));
                draft.delete_range(TreeId::Data, zone_range(zone));
                Ok(())
            }
            Some(left) => {
                let inode = draft.inode(&object);
                inode.links = left;
                inode.changed = now;
                Ok(())
            }
        }
    }

    /// Deletes everything in a directory, one operation for each name.
    pub(super) fn clear(&mut self, directory: &Object) -> Result<()> {
        let mut open = vec![directory.clone()];
        while let Some(last) = open.last().cloned() {
            let mut listing = self.listing(&last, None)?;
            match self.next_entry(&mut listing)? {
                Some(entry) if entry.kind == FileType::Directory => {
                    open.push(self.entry_object(entry)?);
                }
                Some(entry) => self.unlink(&last, &entry.name)?,
                None => {
                    let up = last.up();
                    open.pop();
                    drop((listing, last));
                    if let (Some(_), Some((above, name))) = (open.last(), up) {
                        self.rmdir(&above, &name)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes a name of an object.
    pub(super) fn unname(
        &self,
        draft: &mut Draft,
        directory: &Object,
        name: &[u8],
        object: &Object,
    ) -> Result<()> {
        draft.delete(&directory.place().child(name));
        draft.count(directory, -(Delta::entry(name, 0) + self.standing(object)?));
        Ok(())
    }

    /// Takes one link off an object. Without links it is deleted, now or with its last handle.
    pub(super) fn drop_link(&self, draft: &mut Draft, object: &Object) -> Result<()> {
        let now = draft.now;
        if !object.is_directory() && object.inode().links > 1 {
            if object.zone().is_none() {
                let found = format!("{}, with one name", object.inode().links);
                return Err(self.damaged(&object.place(), "1 link", &found));
            }
            let inode = draft.inode(object);
            inode.links -= 1;
            inode.changed = now;
            draft.move_to(object, Placed { zone: object.zone(), up: None });
            return Ok(());
        }
        match self.is_used(object) {
            true => self.make_orphan(draft, object),
            false => self.vanish(draft, object),
        }
    }

    /// Whether an object that is looked up has other handles than this one and internal ones.
    fn is_used(&self, object: &Object) -> bool {
        let known = object.zone().or(object.inode().data_zone).and_then(|zone| self.is_small(zone));
        let own = 1 + usize::from(known.is_some_and(|small| small.object.is_some()));
        object.handles() > own
    }

    /// Gives an object that would become an orphan a zone, if it is large.
    pub(super) fn detach_if_used(&mut self, object: &Object) -> Result<()> {
        match self.is_used(object) {
            true => self.detach(object),
            false => Ok(()),
        }
    }

    /// Deletes an object without a name, and with nothing below it.
    pub(super) fn vanish(&self, draft: &mut Draft, object: &Object) -> Result<()> {
        let (place, inode) = (object.place(), object.inode());
        if object.zone().is_some() {
            draft.delete(&place);
        }
        if self.xattr_bytes(&place)? > 0 {
            draft.delete_range(TreeId::Metadata, place.xattr_range());
        }
        if inode.kind == FileType::Regular && inode.size > 0 {
            match object.zone().or(inode.data_zone) {
                // All keys there, whatever nodes they are in.
                Some(zone) => draft.delete_range(TreeId::Data, zone_range(zone)),
                None => draft.append_deletes(data::delete_blocks(object, 0)),
            }
        }
        self.small_moves(draft, object.zone().or(inode.data_zone), None);
        draft.forget(object);
        Ok(())
    }
}

/// Whether an object is known to be below a directory.
pub(super) fn is_below(object: &Object, directory: &Object) -> bool {
    let mut at = object.up();
    while let Some((above, _)) = at {
        if above == *directory {
            return true;
        }
        at = above.up();
    }
    false
}

/// The key range of a zone, in either index.
pub(super) fn zone_range(zone: ZoneId) -> (Key, Key) {
    let key = |zone: u64| Key::copied(&zone.to_be_bytes());
    (key(zone.0), key(zone.0.saturating_add(1)))
}
