//! Orphans: objects without a name that are still in use. They are in the orphan directory, under their inode numbers,
//! until the last handle is dropped; after a crash, until the first change of the volume.

use super::relocate::fits;
use super::{Delta, Draft, Fs, ORPHAN_ZONE, Object, Placed};
use crate::error::Result;
use crate::format::*;
use crate::ids::*;

/// The name of an orphan.
pub(crate) fn orphan_name(ino: Ino) -> Vec<u8> {
    format!("{:016x}", ino.0).into_bytes()
}

impl Fs {
    /// Finishes, before the first change, work that was pending when the volume was closed.
    pub(super) fn resume_deletes(&mut self) -> Result<()> {
        if self.small.is_some() {
            return Ok(());
        }
        let small = self.small_zones()?;
        let directory = self.orphans()?;
        let mut orphans = Vec::new();
        for entry in self.list(&directory)? {
            let name = entry.name.clone();
            orphans.push((name, self.entry_object(entry)?));
        }
        for (name, object) in orphans {
            // These have no other handle, so dropping this one deletes them. Entries that are no orphans are left to
            // the checker.
            if name == orphan_name(object.ino()) && object.inode().links == 0 {
                object.set_orphan();
            }
        }
        self.small = Some(small);
        Ok(())
    }

    /// Number of orphans.
    pub fn count_orphans(&self) -> Result<u64> {
        let directory = self.orphans()?;
        let mut listing = self.listing(&directory, None)?;
        let mut count = 0;
        while self.next_entry(&mut listing)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Deletes the orphans whose last handle has been dropped. Those that cannot be deleted wait for the next
    /// checkpoint. Fails only if the volume is poisoned.
    pub(super) fn reap_what_can_be(&mut self) -> Result<()> {
        for ino in self.live.take_gone() {
            match self.reap_one(ino) {
                Err(error) if self.volume.has_failed() => return Err(error),
                Err(_) => self.stuck.push(ino),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Tries again to delete orphans that could not be deleted before.
    pub(super) fn reap_again(&mut self) -> Result<()> {
        self.live.add_gone(std::mem::take(&mut self.stuck));
        self.reap_what_can_be()
    }

    fn reap_one(&mut self, ino: Ino) -> Result<()> {
        let directory = self.orphans()?;
        let name = orphan_name(ino);
        let Some(object) = self.find(&directory, &name)? else { return Ok(()) };
        let mut draft = Draft::new(self.now(), self.sizes);
        if object.is_directory() && !self.delete_below(&mut draft, &object)? {
            draft = Draft::new(draft.now, self.sizes);
            object.set_orphan();
            self.clear(&object)?;
        }
        self.unname(&mut draft, &directory, &name, &object)?;
        self.vanish(&mut draft, &object)?;
        self.commit(Op::Reap, draft)
    }

    /// Makes an object that loses its last name an orphan.
    pub(super) fn make_orphan(&self, draft: &mut Draft, object: &Object) -> Result<()> {
        let directory = self.orphans()?;
        let name = orphan_name(object.ino());
        let new = MetaKey::root(ORPHAN_ZONE).child(&name);
        let standing = self.standing_in(object, Lineage::NONE)?;
        let now = draft.now;
        match object.zone() {
            Some(zone) => {
                draft.insert_reference(&new, (&object.inode(), zone), Lineage::NONE);
                self.small_moves(draft, Some(zone), None);
            }
            None => {
                fits(self.relocate(draft, object, &new)?)?;
                self.small_moves(draft, object.inode().data_zone, None);
            }
        }
        let inode = draft.inode(object);
        inode.links = 0;
        inode.changed = now;
        if let Some(parent) = &mut inode.parent {
            *parent = Parent { zone: ORPHAN_ZONE, name: name.clone() };
        }
        draft.count(&directory, Delta::entry(&name, 0) + standing);
        let up = Some((directory, name.into()));
        draft.move_to(object, Placed { zone: object.zone(), up });
        draft.orphan(object);
        Ok(())
    }
}
