//! The extents that a rollback to a hold gives up.
//!
//! Extents born after that hold are used only by younger holds or by the live volume: all become free. Extents born
//! before it are used by the hold, or are on the list of an older hold. Records of the former on younger lists are
//! dropped, since their extents live again. So no record moves, and no list is written.

use std::collections::HashSet;

use super::Holds;
use super::differ::{Difference, difference};
use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::HOLDS_PER_PAGE;
use crate::format::{Birth, Dead, DeadList, Hold, POINTERS_PER_PAGE, PagePointer, TableRoot};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::space::{DeadPages, DeadStack, Owner, Retired, Space};

/// The extents that a rollback gives up.
pub struct Abandoned {
    hold: Epoch,
    /// The younger holds, including those being dropped.
    holds: Vec<Epoch>,
    /// Pages of their lists, and of the newest dead list.
    lists: Vec<PagePointer>,
    /// Extents that only younger holds kept.
    dead: Vec<Dead>,
    /// Blocks on younger lists that live again.
    revived: u64,
    /// Extents that only the live volume uses.
    live: Vec<Dead>,
}

impl Abandoned {
    /// Checks that all given-up extents are in use, and disjoint.
    fn check(&self, space: &Space, disk: &Disk) -> Result<()> {
        let mut rows = Vec::new();
        for dead in self.dead.iter().chain(&self.live) {
            space.check_dead(dead)?;
            rows.extend(disk.blocks_of(dead.extent)?);
        }
        for page in &self.lists {
            let row = Extent { start: page.block, blocks: 1 };
            space.check_used(row, Owner::DeadPage)?;
            rows.push(row);
        }
        rows.sort_unstable_by_key(|row| row.start);
        match rows.windows(2).find(|two| two[0].end() > two[1].start) {
            None => Ok(()),
            Some(two) => {
                let fault = Fault::mismatch("what is given up", "each block once", two[1]);
                Err(Error::corrupt(Place::Byte(two[1].start.byte()), fault))
            }
        }
    }
}

impl Holds {
    /// Collects the extents that a rollback to a hold gives up; `live` is the live table, which must be written
    /// completely. Reads the lists of younger holds, and compares the two tables; changes nothing.
    pub fn abandoned(
        &self,
        hold: &Hold,
        live: TableRoot,
        space: &Space,
        disk: &Disk,
        volume: VolumeId,
    ) -> Result<Abandoned> {
        let younger = self.places.values().filter(|other| other.epoch > hold.epoch);
        let (holds, lists): (Vec<Epoch>, Vec<DeadList>) =
            younger.map(|other| (other.epoch, other.dead)).unzip();
        let (hold, table) = (hold.epoch, hold.table);
        let mut found = Abandoned {
            hold,
            holds,
            lists: Vec::new(),
            dead: Vec::new(),
            revived: 0,
            live: Vec::new(),
        };
        let mut revived = Vec::new();
        let mut seen = HashSet::new();
        for list in lists.into_iter().chain([self.root.dead]) {
            let mut pages = DeadPages::new(disk, volume, list);
            while let Some((at, page)) = pages.next_page()? {
                if !seen.insert(at.block) {
                    let text = "a page of a dead list that is on two lists".into();
                    return Err(Error::corrupt(Place::Byte(at.block.byte()), Fault::Missing(text)));
                }
                found.lists.push(at);
                let (dead, alive): (Vec<Dead>, Vec<Dead>) =
                    page.dead.into_iter().partition(|dead| dead.birth > hold);
                found.dead.extend(dead);
                revived.extend(alive.into_iter().map(|dead| Dead { died: Epoch(0), ..dead }));
            }
        }
        let Difference { mut older, mut younger, .. } =
            difference(disk, volume, table, Some(live), &mut |_| true);
        if let Some(error) = older.errors.drain(..).chain(younger.errors.drain(..)).next() {
            return Err(error);
        }
        revived.sort_unstable();
        if revived != older.dead(disk, Epoch(0))? {
            let expected = "all that the snapshot uses and the volume does not";
            let found = format!("{} records of other extents", revived.len());
            let fault = Fault::mismatch("lists of what died since the snapshot", expected, found);
            return Err(Error::corrupt(Place::Image, fault));
        }
        found.revived = revived.iter().map(Dead::blocks).sum();
        found.live = younger.dead(disk, Epoch(0))?;
        if let Some(old) = found.live.iter().find(|live| live.birth <= hold) {
            let expected =
                format!("one after {hold}, when the snapshot was taken that does not use it");
            let fault = Fault::mismatch("birth of an extent", expected, old.birth);
            return Err(Error::corrupt(Place::Byte(old.extent.start.byte()), fault));
        }
        found.check(space, disk)?;
        Ok(found)
    }

    /// Gives up the collected extents.
    pub fn abandon(&mut self, abandoned: Abandoned, space: &mut Space, now: Birth) -> Result<()> {
        let Abandoned { hold, holds, lists, dead, revived, live } = abandoned;
        space.replace_newest_hold(hold, DeadStack::default());
        holds.into_iter().for_each(|epoch| self.remove(epoch));
        self.blocked.retain(|epoch| *epoch <= hold);
        lists.iter().try_for_each(|page| space.retire_page(page, Owner::DeadPage, now))?;
        dead.iter().try_for_each(|dead| space.free_dead(dead))?;
        space.revive(revived);
        if is_broken(Mutation::AbandonedKept) {
            return Ok(());
        }
        live.iter().try_for_each(|live| space.retire(Retired::of(live), now))
    }

    /// The most pages of holds that are written for a rollback.
    pub fn pages_abandoned(&self, abandoned: &Abandoned) -> u64 {
        let pages = self.places.iter().filter(|(_, hold)| hold.epoch > abandoned.hold);
        let mut pages: Vec<u64> = pages.map(|(place, _)| place / HOLDS_PER_PAGE as u64).collect();
        pages.dedup();
        let mut above: Vec<u64> =
            pages.iter().map(|page| page / POINTERS_PER_PAGE as u64).collect();
        above.dedup();
        (pages.len() + above.len()) as u64
    }
}
