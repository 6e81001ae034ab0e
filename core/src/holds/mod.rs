//! Holds: records of kept checkpoints, and the differences between two of them.
//!
//! A hold keeps everything that its allocation table points to from reuse. It is a record on a page, with the dead list
//! of the time between the previous hold and itself. So taking a hold writes its page and the page above; no older hold
//! changes. The dead list since the newest hold is in the superblock.
//!
//! A hold that is dropped is *going* first. It gives its own dead list to the next younger hold, and takes that one's
//! list, which has the extents that died right after it. Records born after the previous hold are kept by no other
//! hold: their extents become free. The others move to the next younger hold's list. This is done in pieces, between
//! any two of which the volume may be closed.

pub mod differ;
mod rollback;

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::{DEAD_PER_PAGE, HOLDS_MAX, HOLDS_PER_PAGE};
use crate::format::{
    Birth, Dead, DeadList, Hold, HoldState, HoldsBody, HoldsPage, HoldsRoot, POINTERS_PER_PAGE,
    PagePointer,
};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::page;
use crate::space::{DeadStack, Owner, Space};

const NAMES: page::Names = page::Names {
    hash: "hash of a page of holds",
    volume: "volume of a page of holds",
    epoch: "epoch of a page of holds",
};

/// A page of holds that was read: pointer, level, index, and content.
pub struct FoundPage {
    /// The pointer to it.
    pub pointer: PagePointer,
    /// Its level.
    pub level: u8,
    /// Its index among the pages of its level.
    pub index: u64,
    /// Its content.
    pub page: Result<HoldsPage>,
}

/// Reads the pages of holds of a superblock, each before those below it. `enter` decides whether a page is read.
pub fn read_pages(
    disk: &Disk,
    volume: VolumeId,
    root: &HoldsRoot,
    enter: &mut dyn FnMut(&PagePointer) -> bool,
) -> Vec<FoundPage> {
    let top = root.pages.iter().enumerate();
    let mut waiting: Vec<(u8, u64, PagePointer)> =
        top.rev().filter_map(|(at, page)| Some((1, at as u64, (*page)?))).collect();
    let mut found = Vec::new();
    while let Some((level, index, pointer)) = waiting.pop() {
        if !enter(&pointer) {
            continue;
        }
        let page = read_page(disk, volume, &pointer, level, index);
        if let Ok(HoldsPage { body: HoldsBody::Pointers(pointers), .. }) = &page {
            for (at, below) in pointers.iter().enumerate().rev() {
                let index = index * POINTERS_PER_PAGE as u64 + at as u64;
                waiting.extend(below.map(|below| (0, index, below)));
            }
        }
        found.push(FoundPage { pointer, level, index, page });
    }
    found
}

fn read_page(
    disk: &Disk,
    volume: VolumeId,
    pointer: &PagePointer,
    level: u8,
    index: u64,
) -> Result<HoldsPage> {
    let page = page::read(disk, volume, pointer, HoldsPage::decode, &NAMES)?;
    if (page.level(), page.index) == (level, index) {
        return Ok(page);
    }
    let (expected, found) =
        (format!("{level}/{index}"), format!("{}/{}", page.level(), page.index));
    let fault = Fault::mismatch("level and index of a page of holds", expected, found);
    Err(Error::corrupt(Place::Byte(pointer.block.byte()), fault))
}

/// All holds of a volume.
#[derive(Default)]
pub struct Holds {
    /// The superblock's fields, until the holds have been read.
    root: HoldsRoot,
    /// Whether the holds have been read.
    known: bool,
    /// Holds by place: seven to a page.
    places: BTreeMap<u64, Hold>,
    /// Pointers to the pages of level 0, by index.
    pages: BTreeMap<u64, PagePointer>,
    /// Dead lists that are being changed, by the epochs of their holds.
    lists: BTreeMap<Epoch, DeadStack>,
    /// Pages of level 0 that have changed.
    changed: BTreeSet<u64>,
    /// Going holds whose lists cannot be processed.
    blocked: BTreeSet<Epoch>,
}

impl Holds {
    /// The holds of a superblock; none is read yet.
    pub fn of(root: HoldsRoot) -> Holds {
        Holds { root, ..Holds::default() }
    }

    /// Holds that were found in a damaged volume, each with the dead list before it. All pages are written again.
    pub fn anew(found: Vec<(Hold, Vec<Dead>)>, space: &mut Space, now: Birth) -> Result<Holds> {
        let mut holds = Holds { known: true, ..Holds::default() };
        for (hold, dead) in found {
            let mut list = DeadStack::default();
            dead.into_iter().try_for_each(|dead| list.push(space, dead, now))?;
            holds.lists.insert(hold.epoch, list);
            holds.put(hold);
        }
        Ok(holds)
    }

    /// Reads all holds, if they have not been read.
    pub fn know(&mut self, disk: &Disk, volume: VolumeId) -> Result<()> {
        if self.known {
            return Ok(());
        }
        let root = self.root.clone();
        self.places.clear();
        self.pages.clear();
        for FoundPage { pointer, index, page, .. } in read_pages(disk, volume, &root, &mut |_| true)
        {
            if let HoldsBody::Holds(holds) = page?.body {
                self.pages.insert(index, pointer);
                let first = index * HOLDS_PER_PAGE as u64;
                let holds = holds.into_iter().enumerate();
                self.places
                    .extend(holds.filter_map(|(at, hold)| Some((first + at as u64, *hold?))));
            }
        }
        let mut epochs = BTreeSet::new();
        if let Some(twice) = self.places.values().find(|hold| !epochs.insert(hold.epoch)) {
            let fault = Fault::mismatch("holds", "each of an epoch of its own", twice.epoch);
            return Err(Error::corrupt(Place::Image, fault));
        }
        let (held, going) = self.counts();
        let newest = self.newest().map_or(Epoch(0), |hold| hold.epoch);
        if (held, going, newest) != (root.held, root.going, root.newest) {
            let text =
                |held, going, newest: Epoch| format!("{held} and {going} going, up to {newest}");
            let expected = text(root.held, root.going, root.newest);
            let fault = Fault::mismatch("holds", expected, text(held, going, newest));
            return Err(Error::corrupt(Place::Image, fault));
        }
        self.known = true;
        Ok(())
    }

    fn counts(&self) -> (u32, u32) {
        let held = self.places.values().filter(|hold| hold.state == HoldState::Held).count() as u32;
        (held, self.places.len() as u32 - held)
    }

    /// The holds in state held, the oldest first.
    pub fn held(&self) -> Vec<&Hold> {
        let mut held: Vec<&Hold> =
            self.places.values().filter(|hold| hold.state == HoldState::Held).collect();
        held.sort_by_key(|hold| hold.epoch);
        held
    }

    /// Whether a drop is in progress and can continue.
    pub fn can_drop(&self) -> bool {
        if self.known { self.first_going().is_some() } else { self.root.going > 0 }
    }

    /// The youngest held hold.
    pub fn newest(&self) -> Option<&Hold> {
        self.held().pop()
    }

    /// The held hold of this name.
    pub fn named(&self, name: &str) -> Option<&Hold> {
        self.places.values().find(|hold| hold.state == HoldState::Held && hold.name == name)
    }

    /// The youngest held hold that is older than this epoch, and the oldest that is younger.
    pub fn beside(&self, epoch: Epoch) -> (Option<&Hold>, Option<&Hold>) {
        let held = self.held();
        let at = held.partition_point(|hold| hold.epoch < epoch);
        let after = held.partition_point(|hold| hold.epoch <= epoch);
        (held[..at].last().copied(), held.get(after).copied())
    }

    /// Whether another hold can be taken.
    pub fn has_place(&self) -> bool {
        self.places.len() < HOLDS_MAX
    }

    /// Adds a hold at the first free place.
    pub fn put(&mut self, hold: Hold) {
        let place = (0..).find(|place| !self.places.contains_key(place)).unwrap_or_default();
        self.places.insert(place, hold);
        self.changed.insert(place / HOLDS_PER_PAGE as u64);
    }

    /// Changes the hold of this epoch.
    pub fn change(&mut self, epoch: Epoch, change: impl FnOnce(&mut Hold)) {
        let of_epoch = self.places.iter_mut().find(|(_, hold)| hold.epoch == epoch);
        if let Some((place, hold)) = of_epoch {
            change(hold);
            self.changed.insert(place / HOLDS_PER_PAGE as u64);
        }
    }

    fn remove(&mut self, epoch: Epoch) {
        let place =
            self.places.iter().find(|(_, hold)| hold.epoch == epoch).map(|(place, _)| *place);
        if let Some(place) = place {
            self.places.remove(&place);
            self.changed.insert(place / HOLDS_PER_PAGE as u64);
        }
    }

    /// The number of blocks that dropping the hold of this epoch frees: those that it alone uses, with pages of lists
    /// and of holds.
    pub fn freed_by(
        &self,
        epoch: Epoch,
        space: &Space,
        disk: &Disk,
        volume: VolumeId,
    ) -> Result<u64> {
        let (before, after) = self.beside(epoch);
        let before = before.map_or(Epoch(0), |hold| hold.epoch);
        let own = self.list(epoch);
        let rest = after.map_or_else(|| space.dead().clone(), |after| self.list(after.epoch));
        let (mut blocks, mut moved) = (0, 0);
        rest.each(disk, volume, &mut |dead| match dead.birth > before {
            true => blocks += dead.blocks(),
            false => moved += 1,
        })?;
        let pages = |records: u64| records.div_ceil(DEAD_PER_PAGE as u64);
        let (now, then) =
            (pages(own.records()) + pages(rest.records()), pages(own.records() + moved));
        let place =
            self.places.iter().find(|(_, hold)| hold.epoch == epoch).map(|(place, _)| *place);
        let place = place.unwrap_or_default();
        // Whether this is the only hold on its page, and below the page above.
        let per_page = HOLDS_PER_PAGE as u64;
        let alone = |width: u64| {
            let first = place / width * width;
            self.places.range(first..first + width).count() == 1
        };
        let emptied =
            u64::from(alone(per_page)) + u64::from(alone(per_page * POINTERS_PER_PAGE as u64));
        Ok((blocks + now + emptied).saturating_sub(then))
    }

    fn list(&self, epoch: Epoch) -> DeadStack {
        let hold = self.places.values().find(|hold| hold.epoch == epoch);
        DeadStack::stored(hold.map_or(DeadList::default(), |hold| hold.dead))
    }

    /// Starts to drop the hold of this epoch. It keeps nothing from now on, and its list becomes that of extents that
    /// died right after it.
    pub fn begin_drop(&mut self, epoch: Epoch, space: &mut Space) {
        let (before, after) = self.beside(epoch);
        let (before, after) =
            (before.map_or(Epoch(0), |hold| hold.epoch), after.map(|hold| hold.epoch));
        let own = self.take_list(epoch);
        let rest = match after {
            Some(after) => {
                let rest = self.take_list(after);
                self.lists.insert(after, own);
                self.change(after, |_| {});
                rest
            }
            None => space.replace_newest_hold(before, own),
        };
        self.lists.insert(epoch, rest);
        self.change(epoch, |hold| {
            (hold.state, hold.kept, hold.name) = (HoldState::Going, false, String::new());
        });
        self.end_drop(epoch);
    }

    /// Takes the list of a hold out, to change it or to give it to another hold.
    fn take_list(&mut self, epoch: Epoch) -> DeadStack {
        self.lists.remove(&epoch).unwrap_or_else(|| self.list(epoch))
    }

    /// Removes a going hold whose list is empty.
    fn end_drop(&mut self, epoch: Epoch) {
        if self.lists.get(&epoch).is_some_and(|rest| rest.records() == 0) {
            self.lists.remove(&epoch);
            self.remove(epoch);
        }
    }

    fn first_going(&self) -> Option<Epoch> {
        let going = self.places.values().filter(|hold| hold.state == HoldState::Going);
        going.map(|hold| hold.epoch).find(|epoch| !self.blocked.contains(epoch))
    }

    /// Processes up to `most` records of extents that died right after a going hold, and frees those that no other hold
    /// keeps. Returns an error because of which this drop cannot continue until a repair; nothing else is affected.
    pub fn drop_some(&mut self, space: &mut Space, most: u64, now: Birth) -> Result<Option<Error>> {
        let Some(epoch) = self.first_going() else { return Ok(None) };
        let (before, after) = self.beside(epoch);
        let (before, after) =
            (before.map_or(Epoch(0), |hold| hold.epoch), after.map(|hold| hold.epoch));
        let mut going_list = self.take_list(epoch);
        let mut younger_list = after.map(|after| self.take_list(after));
        let (mut looked, mut blocked) = (0, None);
        while looked < most {
            let ready = going_list.peek(space, now.volume).and_then(|dead| match dead {
                Some(dead) if dead.birth > before => space.check_dead(&dead).map(|()| Some(dead)),
                dead => Ok(dead),
            });
            match ready {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    blocked = Some(error);
                    self.blocked.insert(epoch);
                    break;
                }
            }
            let Some(dead) = going_list.pop(space, now)? else { break };
            looked += 1;
            let is_kept = dead.birth <= before && !is_broken(Mutation::DropTooMuch);
            match &mut younger_list {
                _ if !is_kept => space.free_dead(&dead)?,
                Some(younger_list) => younger_list.push(space, dead, now)?,
                None => space.add_dead(dead, now)?,
            }
        }
        if let (Some(after), Some(younger_list)) = (after, younger_list) {
            self.lists.insert(after, younger_list);
            self.change(after, |_| {});
        }
        self.lists.insert(epoch, going_list);
        self.change(epoch, |_| {});
        self.end_drop(epoch);
        Ok(blocked)
    }

    /// The most pages that are written after `most` records were processed, without the newest dead list.
    pub fn pages_max(most: u64) -> u64 {
        // Two lists, one of which may start a new page, and two holds with the pages above them.
        2 * DeadStack::default().pages_max(most) + 4
    }

    /// Writes the changed pages, and those above them; `dead` is the dead list since the newest hold.
    pub fn write(&mut self, space: &mut Space, dead: DeadList, birth: Birth) -> Result<HoldsRoot> {
        for (epoch, mut list) in std::mem::take(&mut self.lists) {
            let list = list.seal(space, birth)?;
            self.change(epoch, |hold| hold.dead = list);
        }
        let mut above = BTreeSet::new();
        for index in std::mem::take(&mut self.changed) {
            let mut page = HoldsPage::empty(0, index);
            if let HoldsBody::Holds(holds) = &mut page.body {
                for (at, hold) in holds.iter_mut().enumerate() {
                    let place = index * HOLDS_PER_PAGE as u64 + at as u64;
                    *hold = self.places.get(&place).cloned().map(Box::new);
                }
            }
            let was = self.pages.remove(&index);
            self.pages.extend(replace(space, &page, was, birth)?.map(|page| (index, page)));
            above.insert(index / POINTERS_PER_PAGE as u64);
        }
        for index in above {
            let mut page = HoldsPage::empty(1, index);
            if let HoldsBody::Pointers(pointers) = &mut page.body {
                let first = index * POINTERS_PER_PAGE as u64;
                for (at, pointer) in pointers.iter_mut().enumerate() {
                    *pointer = self.pages.get(&(first + at as u64)).copied();
                }
            }
            let at = &mut self.root.pages[index as usize];
            *at = replace(space, &page, at.take(), birth)?;
        }
        if self.known {
            (self.root.held, self.root.going) = self.counts();
        }
        (self.root.newest, self.root.blocks) = (space.newest_hold(), space.held_blocks());
        self.root.dead = dead;
        Ok(self.root.clone())
    }
}

/// Writes a page in place of another one; an empty page is not written.
fn replace(
    space: &mut Space,
    page: &HoldsPage,
    was: Option<PagePointer>,
    birth: Birth,
) -> Result<Option<PagePointer>> {
    let mut at = None;
    if !page.is_empty() {
        let (block, hash) = page.encode(birth);
        at = Some(space.write_page(&block, hash, birth)?);
    }
    if let Some(was) = was {
        space.retire_page(&was, Owner::HoldsPage, birth)?;
    }
    Ok(at)
}
