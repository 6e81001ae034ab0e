//! Dead lists: extents that holds keep, and that nothing younger uses (Backlog §4: From and To, joined).
//!
//! A list is a stack of records in pages. Records are pushed to and popped from the newest page. Each checkpoint writes
//! that page to a new place if it has changed. Holds do not keep pages of dead lists; they are freed like other blocks.

use super::{Owner, Retired, Space};
use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::DEAD_PER_PAGE;
use crate::format::{Birth, Dead, DeadList, DeadPage, PagePointer};
use crate::ids::*;
use crate::page;

/// A dead list that can be changed.
#[derive(Clone, Debug, Default)]
pub struct DeadStack {
    /// The totals, including records that are only in memory. `newest` is the page that was written last.
    list: DeadList,
    /// The newest page, if it is in memory.
    open: Option<Open>,
}

/// The newest page of a list, in memory.
#[derive(Clone, Debug)]
struct Open {
    previous: Option<PagePointer>,
    dead: Vec<Dead>,
    /// Where it was written last.
    was: Option<PagePointer>,
    /// Whether it has changed since then.
    changed: bool,
}

impl DeadStack {
    /// A list that is stored on disk.
    pub fn stored(list: DeadList) -> DeadStack {
        DeadStack { list, open: None }
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.list.records
    }

    /// The most pages that are written for it if `more` records are pushed.
    pub fn pages_max(&self, more: u64) -> u64 {
        match more {
            0 => self.open.as_ref().is_some_and(|open| open.changed).into(),
            // The records of the newest page may be written again.
            _ => 1 + more.div_ceil(DEAD_PER_PAGE as u64),
        }
    }

    /// Reads the newest page, so that a later [`DeadStack::pop`] does not fail by reading.
    fn open(&mut self, space: &Space, volume: VolumeId) -> Result<()> {
        if self.open.is_none() && self.list.newest.is_some() {
            let mut pages = DeadPages::new(&space.disk, volume, self.list);
            self.open = pages.next_page()?.map(|(at, page)| {
                let DeadPage { previous, dead, .. } = page;
                Open { previous, dead, was: Some(at), changed: false }
            });
        }
        Ok(())
    }

    /// Pushes a record.
    pub fn push(&mut self, space: &mut Space, dead: Dead, now: Birth) -> Result<()> {
        // If the newest page cannot be read, it stays as it is, and a new page is started after it.
        let unreadable = self.open(space, now.volume).is_err();
        let is_full = self.open.as_ref().is_some_and(|open| open.dead.len() == DEAD_PER_PAGE);
        if unreadable || is_full {
            self.write(space, now)?;
            self.open = None;
        }
        let previous = self.list.newest;
        let open =
            self.open.get_or_insert(Open { previous, dead: Vec::new(), was: None, changed: true });
        open.dead.push(dead);
        open.changed = true;
        self.list.records += 1;
        self.list.blocks += dead.blocks();
        Ok(())
    }

    /// The youngest record. An error changes nothing.
    pub fn peek(&mut self, space: &Space, volume: VolumeId) -> Result<Option<Dead>> {
        self.open(space, volume)?;
        Ok(self.open.as_ref().and_then(|open| open.dead.last().copied()))
    }

    /// Pops the youngest record.
    pub fn pop(&mut self, space: &mut Space, now: Birth) -> Result<Option<Dead>> {
        self.open(space, now.volume)?;
        let Some(open) = &mut self.open else { return Ok(None) };
        let dead = open.dead.pop().expect("a page of a list has records");
        open.changed = true;
        self.list.records -= 1;
        self.list.blocks -= dead.blocks();
        if open.dead.is_empty()
            && let Some(Open { was, previous, .. }) = self.open.take()
        {
            self.list.newest = previous;
            was.map_or(Ok(()), |was| space.retire_page(&was, Owner::DeadPage, now))?;
        }
        Ok(Some(dead))
    }

    /// Passes every record to `told`, the youngest first.
    pub fn each(&self, disk: &Disk, volume: VolumeId, told: &mut dyn FnMut(&Dead)) -> Result<()> {
        let mut list = self.list;
        if let Some(open) = &self.open {
            open.dead.iter().rev().for_each(&mut *told);
            let here: u64 = open.dead.iter().map(Dead::blocks).sum();
            let (records, blocks) = (list.records - open.dead.len() as u64, list.blocks - here);
            list = DeadList { newest: open.previous, records, blocks };
        }
        let mut pages = DeadPages::new(disk, volume, list);
        while let Some((_, page)) = pages.next_page()? {
            page.dead.iter().rev().for_each(&mut *told);
        }
        Ok(())
    }

    /// Writes the newest page, if it has changed; returns the list.
    pub fn seal(&mut self, space: &mut Space, birth: Birth) -> Result<DeadList> {
        self.write(space, birth)?;
        Ok(self.list)
    }

    fn write(&mut self, space: &mut Space, birth: Birth) -> Result<()> {
        let Some(open) = self.open.as_mut().filter(|open| open.changed) else { return Ok(()) };
        let (previous, dead) = (open.previous, open.dead.clone());
        let DeadList { records, blocks, .. } = self.list;
        let (block, hash) = DeadPage { previous, records, blocks, dead }.encode(birth);
        let at = space.write_page(&block, hash, birth)?;
        (open.changed, self.list.newest) = (false, Some(at));
        match open.was.replace(at) {
            Some(was) => space.retire_page(&was, Owner::DeadPage, birth),
            None => Ok(()),
        }
    }
}

/// The pages of a list, the newest first. Each must have fewer records left than the one before, so the walk ends.
pub struct DeadPages {
    disk: Disk,
    volume: VolumeId,
    left: DeadList,
}

impl DeadPages {
    /// All pages of a list.
    pub fn new(disk: &Disk, volume: VolumeId, list: DeadList) -> DeadPages {
        DeadPages { disk: disk.clone(), volume, left: list }
    }

    /// The pointer to the next page.
    pub fn next_place(&self) -> Option<PagePointer> {
        self.left.newest
    }

    /// The next page; `None` after the oldest, and after an error.
    pub fn next_page(&mut self) -> Result<Option<(PagePointer, DeadPage)>> {
        let left = std::mem::take(&mut self.left);
        let Some(pointer) = left.newest else { return Ok(None) };
        let names = page::Names {
            hash: "hash of a page of a dead list",
            volume: "volume of a page of a dead list",
            epoch: "epoch of a page of a dead list",
        };
        let page = page::read(&self.disk, self.volume, &pointer, DeadPage::decode, &names)?;
        if (page.records, page.blocks) != (left.records, left.blocks) {
            let text = |records, blocks| format!("{records} records of {blocks} blocks");
            let expected = text(left.records, left.blocks);
            let fault = Fault::mismatch("dead list", expected, text(page.records, page.blocks));
            return Err(Error::corrupt(Place::Byte(pointer.block.byte()), fault));
        }
        self.left = page.before();
        Ok(Some((pointer, page)))
    }
}

impl Space {
    /// The dead list since the newest hold.
    pub fn dead(&self) -> &DeadStack {
        &self.dead
    }

    /// Sets the newest hold: extents born in epoch `newest` or before are kept when they die, and are pushed to `dead`.
    /// `blocks` is the number of blocks that only holds use.
    pub fn hold(&mut self, newest: Epoch, dead: DeadStack, blocks: u64) {
        (self.newest_hold, self.dead, self.held) = (newest, dead, blocks);
    }

    /// The epoch of the newest hold; 0 if there is none.
    pub fn newest_hold(&self) -> Epoch {
        self.newest_hold
    }

    /// Replaces the newest hold and the dead list since then. Returns the old list.
    pub fn replace_newest_hold(&mut self, newest: Epoch, dead: DeadStack) -> DeadStack {
        self.newest_hold = newest;
        std::mem::replace(&mut self.dead, dead)
    }

    /// Blocks that only holds use.
    pub fn held_blocks(&self) -> u64 {
        self.held
    }

    /// Pages of holds and of dead lists written so far.
    pub fn hold_pages(&self) -> u64 {
        self.hold_pages
    }

    /// The most pages of the dead list that are written if `more` extents die.
    pub fn dead_pages_max(&self, more: u64) -> u64 {
        match self.newest_hold {
            Epoch(0) => 0,
            _ => self.dead.pages_max(more),
        }
    }

    /// Writes the dead list since the newest hold, as far as it has changed; returns it.
    pub fn seal_dead(&mut self, birth: Birth) -> Result<DeadList> {
        let mut dead = std::mem::take(&mut self.dead);
        let list = dead.seal(self, birth);
        self.dead = dead;
        list
    }

    /// Adds an extent that a hold keeps to the dead list.
    pub fn add_dead(&mut self, dead: Dead, now: Birth) -> Result<()> {
        let mut list = std::mem::take(&mut self.dead);
        let result = list.push(self, dead, now);
        self.dead = list;
        result
    }

    /// Writes a page of a hold or of a dead list.
    pub fn write_page(&mut self, block: &[u8], hash: Hash, birth: Birth) -> Result<PagePointer> {
        let page = self.allocate()?;
        self.disk.write(page.byte(), block)?;
        self.held += 1;
        self.hold_pages += 1;
        Ok(PagePointer { block: page, birth: birth.epoch, hash })
    }

    /// Frees a page of a hold or of a dead list.
    pub fn retire_page(&mut self, page: &PagePointer, owner: Owner, now: Birth) -> Result<()> {
        let extent = Extent { start: page.block, blocks: 1 };
        self.retire(Retired { extent, birth: page.birth, owner }, now)?;
        self.held = self.held.saturating_sub(1);
        Ok(())
    }
}
