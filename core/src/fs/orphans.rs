//! Objects without a name that are still in use. They stand in the orphan directory, under their numbers, until
//! the last handle is gone; after a crash, until somebody changes the volume.

use super::{Delta, Draft, Fs, ORPHAN_ZONE, Object, Placed};
use crate::error::Result;
use crate::format::*;
use crate::ids::*;

/// The name of an orphan.
pub(crate) fn orphan_name(ino: Ino) -> Vec<u8> {
    format!("{:016x}", ino.0).into_bytes()
}

impl Fs {
    /// Finds out, before the first change, what was left to be done when the volume was closed.
    pub(super) fn settle(&mut self) -> Result<()> {
        if self.small.is_some() {
            return Ok(());
        }
        self.small = Some(self.small_zones()?);
        let directory = self.orphans()?;
        for entry in self.list(&directory)? {
            // Nobody has a handle of it: it goes when this one does.
            self.entry_object(entry)?.set_orphan();
        }
        Ok(())
    }

    /// Deletes the orphans whose last handle has gone.
    pub(super) fn reap(&mut self) -> Result<()> {
        for ino in self.live.take_gone() {
            let directory = self.orphans()?;
            let name = orphan_name(ino);
            let Some(object) = self.find(&directory, &name)? else { continue };
            let mut draft = Draft::new(self.now());
            if object.is_directory() && !self.delete_below(&mut draft, &object)? {
                draft = Draft::new(draft.now);
                self.clear(&object)?;
            }
            self.unname(&mut draft, &directory, &name, &object)?;
            self.vanish(&mut draft, &object)?;
            self.carry_out(Op::Reap, draft)?;
        }
        Ok(())
    }

    /// An object loses its last name while it is in use.
    pub(super) fn make_orphan(&self, draft: &mut Draft, object: &Object) -> Result<()> {
        let directory = self.orphans()?;
        let name = orphan_name(object.ino());
        let new = MetaKey::root(ORPHAN_ZONE).child(&name);
        let standing = self.standing(object)?;
        let now = draft.now;
        match object.zone() {
            Some(zone) => {
                draft.insert(&new, super::make::reference(object, zone).encode());
                self.small_moves(draft, Some(zone), None);
            }
            None => {
                let old = object.place();
                self.relocate(draft, object, &old, &new)?;
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
