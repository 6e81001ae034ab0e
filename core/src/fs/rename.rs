//! Renaming.

use super::draft::Counts;
use super::make::check_named;
use super::{Delta, Draft, Fs, Object, Placed, check_name};
use crate::error::{Refusal, Result};
use crate::format::*;
use crate::ids::*;

/// What happens to an object that has the new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It loses the name, if POSIX allows that.
    Replace,
    /// The rename fails (RENAME_NOREPLACE).
    Refuse,
    /// It gets the old name (RENAME_EXCHANGE).
    Exchange,
}

/// An object with a name.
struct Named<'n> {
    directory: &'n Object,
    name: &'n [u8],
    object: Object,
}

impl Fs {
    /// Moves `from`/`name` to `to`/`new_name`. An object without a zone is copied with all of its content if it is small, and
    /// gets a zone first if it is large. Any other object needs a few messages.
    pub fn rename(
        &mut self,
        from: &Object,
        name: &[u8],
        to: &Object,
        new_name: &[u8],
        over: Over,
    ) -> Result<()> {
        check_name(new_name)?;
        check_named(to)?;
        let now = self.begin()?.now;
        let old = Named { directory: from, name, object: self.lookup(from, name)? };
        let target = self.find(to, new_name)?;
        match (over, &target) {
            (Over::Refuse, Some(_)) => return Err(Refusal::Exists.into()),
            (Over::Exchange, None) => return Err(Refusal::NotFound.into()),
            (_, Some(target)) if *target == old.object => return Ok(()),
            _ => {}
        }
        self.check_outside(to, &old.object)?;
        if over == Over::Replace
            && let Some(target) = &target
        {
            if target.is_directory() && self.is_above(target, from)? {
                return Err(Refusal::NotEmpty.into());
            }
            match (old.object.is_directory(), target.is_directory()) {
                (true, false) => return Err(Refusal::NotADirectory.into()),
                (false, true) => return Err(Refusal::IsADirectory.into()),
                (true, true) => self.check_empty(target)?,
                (false, false) => {}
            }
        }
        if let (Over::Exchange, Some(target)) = (over, &target) {
            self.check_outside(from, target)?;
        }
        self.detach(&old.object)?;
        if let Some(target) = &target {
            match over {
                Over::Exchange => self.detach(target)?,
                _ => self.detach_if_used(target)?,
            }
        }
        let new = target.map(|object| Named { directory: to, name: new_name, object });
        match (over, new) {
            (Over::Exchange, Some(new)) => self.exchange(now, &old, &new),
            (_, new) => self.move_over(now, &old, to, new_name, new),
        }
    }

    fn move_over(
        &mut self,
        now: Time,
        old: &Named<'_>,
        to: &Object,
        new_name: &[u8],
        target: Option<Named<'_>>,
    ) -> Result<()> {
        let gain = Delta::entry(new_name, 0) + self.standing_in(&old.object, to.lineage())?;
        let loss = Delta::entry(old.name, 0) + self.standing(&old.object)?;
        let counts = || {
            let mut counts = Counts::default();
            counts.add(old.directory, -loss);
            counts.add(to, gain);
            counts
        };
        loop {
            self.make_way(to, new_name.len() + 2, counts)?;
            let mut draft = Draft::new(now, self.sizes);
            self.unname(&mut draft, old.directory, old.name, &old.object)?;
            let mut replaced = 0;
            if let Some(target) = &target {
                self.unname(&mut draft, to, new_name, &target.object)?;
                self.drop_link(&mut draft, &target.object)?;
                replaced = i64::from(target.object.is_directory());
            }
            if !self.give_name(&mut draft, &old.object, to, new_name)? {
                self.split(&old.object)?;
                continue;
            }
            let moved = i64::from(old.object.is_directory());
            draft.touch(old.directory, -moved)?;
            draft.touch(to, moved - replaced)?;
            return self.commit(Op::Rename, draft);
        }
    }

    fn exchange(&mut self, now: Time, one: &Named<'_>, other: &Named<'_>) -> Result<()> {
        let [a, b] = [self.standing(&one.object)?, self.standing(&other.object)?];
        let counts = || {
            let mut counts = Counts::default();
            counts.add(one.directory, b - a);
            counts.add(other.directory, a - b);
            counts
        };
        loop {
            self.make_way(one.directory, one.name.len() + 2, counts)?;
            self.make_way(other.directory, other.name.len() + 2, counts)?;
            let mut draft = Draft::new(now, self.sizes);
            for Named { directory, name, object } in [one, other] {
                self.unname(&mut draft, directory, name, object)?;
            }
            let there = self.give_name(&mut draft, &one.object, other.directory, other.name)?;
            if !there {
                self.split(&one.object)?;
                continue;
            }
            if !self.give_name(&mut draft, &other.object, one.directory, one.name)? {
                self.split(&other.object)?;
                continue;
            }
            let [a, b] = [one, other].map(|named| i64::from(named.object.is_directory()));
            draft.touch(one.directory, b - a)?;
            draft.touch(other.directory, a - b)?;
            return self.commit(Op::Exchange, draft);
        }
    }

    /// Gives an object without a name another one. Returns false if it must be the root of a zone there: its keys would be too long,
    /// or it is a directory with entries, whose numbers another lineage would not translate.
    fn give_name(
        &self,
        draft: &mut Draft,
        object: &Object,
        to: &Object,
        name: &[u8],
    ) -> Result<bool> {
        let place = to.place();
        let new = place.child(name);
        let now = draft.now;
        draft.count(to, Delta::entry(name, 0) + self.standing_in(object, to.lineage())?);
        match object.zone() {
            Some(zone) => {
                draft.insert_reference(&new, (&object.inode(), zone), to.lineage());
                if object.is_directory() {
                    self.small_moves(draft, Some(zone), Some(place.zone()));
                }
            }
            None => {
                let other_numbers = object.lineage() != to.lineage()
                    && object.is_directory()
                    && self.has_entries(object)?;
                if other_numbers || !self.relocate(draft, object, &new)? {
                    return Ok(false);
                }
                self.small_moves(draft, object.inode().data_zone, Some(place.zone()));
            }
        }
        let inode = draft.inode(object);
        inode.changed = now;
        if let Some(parent) = &mut inode.parent {
            *parent = Parent { zone: place.zone(), name: name.to_vec() };
        }
        draft.move_to(object, Placed { zone: object.zone(), up: Some((to.clone(), name.into())) });
        Ok(true)
    }

    /// Fails if a directory would move below itself.
    fn check_outside(&self, to: &Object, moved: &Object) -> Result<()> {
        if self.is_above(moved, to)? { Err(Refusal::Invalid.into()) } else { Ok(()) }
    }

    /// Whether `above` is this directory, or above it.
    pub(super) fn is_above(&self, above: &Object, directory: &Object) -> Result<bool> {
        let mut at = Some(directory.clone());
        while let Some(directory) = at {
            if directory == *above {
                return Ok(true);
            }
            at = self.directory_of(&directory)?;
        }
        Ok(false)
    }
}
