//! Space on the device: what may be begun, and what is set aside so that nothing gets stuck.
//!
//! Whatever is dirty can be written at any time: an operation, and every step that moves messages down, begins only if the
//! blocks that it may dirty are free besides, and all that is set aside:
//!
//! - the *reserve for steps*, which emptying buffers alone may use: one path from a root to a leaf, written anew;
//! - the *growth* of leaves by everything that is pending;
//! - what is bound late, once more, because a recovery writes it again beside what the log names;
//! - the *reserve for deletes*: all of it is left by an operation that takes space, half of it by one that only changes what is
//!   there, and nothing by one that frees space ([`Claim`]).
//!
//! Where that leaves too little, checkpoints come first: two of them free what the last one before has given up. Then all buffers
//! are emptied: after that nothing is set aside for growth, and what was deleted is free. What a hold keeps does not become free:
//! where it is to be changed, that takes no more than operations may. ARCHITECTURE.md ("How nothing gets
//! stuck") says why a step can always begin, and [`super::reserve`] how much everything is.

use super::Volume;
use super::commit::{Draft, Way};
use super::reserve::*;
use super::trees::Trees;
use crate::error::Result;
use crate::format::{Growth, Inflow, Key, Op, RecordMessage, limits};
use crate::ids::*;
use crate::space::Need;
use crate::tree::{self, Emptied, Ordered};
use crate::tuning::{CLEANING, FREEING, HOT, KEEPS_MAX, PRUNED_AT_ONCE, RECLAIM_SHARE};

impl Trees {
    /// Brings messages into the trees, of an operation that has been logged, and makes steps until all nodes are within
    /// their sizes, as long as there is room for them. Of what may be dirty `share` may stay so.
    pub(super) fn carry_out(
        &mut self,
        first: Msn,
        ordered: &Ordered,
        (image_blocks, claim, share): (u64, Claim, f64),
    ) -> Result<()> {
        let Trees { store, balance, .. } = self;
        tree::inject(store, balance, first, ordered)
            .inspect_err(|error| store.poison.end_all(error))?;
        while !self.balance.is_settled() {
            if !self.has_room_for_step(image_blocks, claim) {
                self.owed = Some(claim);
                return Ok(());
            }
            self.step()?;
        }
        self.store.make_room(share)
    }

    /// Makes one step. An operation may take many, and come to many leaves: what is written while it does is what goes
    /// beyond the budget by more than a little.
    pub(super) fn step(&mut self) -> Result<()> {
        self.balance.step(&mut self.store)?;
        if cfg!(debug_assertions) {
            self.balance.check_invariants();
        }
        match self.store.is_crowded() {
            true => self.store.make_room(1.0),
            false => Ok(()),
        }
    }

    fn has_room_for_step(&self, image_blocks: u64, claim: Claim) -> bool {
        let store = &self.store;
        store.space.has(
            store.checkpoint_need()
                + step_need(store.geometry, image_blocks, store.inflow().growth.bytes)
                + kept_for(store, image_blocks, claim),
        )
    }
}

impl Volume {
    /// Refuses, before anything has changed, what the volume has no room for. What is bound late and has room only once becomes
    /// durable through a checkpoint.
    pub(super) fn admit(&mut self, draft: &mut Draft) -> Result<()> {
        let Inflow { bytes, growth } = draft.room;
        // What an operation that frees space inserts is an inode that was there before, or moves.
        let mut need = match draft.claim {
            Claim::Frees => Need::of_image(bytes as usize),
            Claim::Takes | Claim::Keeps => {
                let messages = draft.ordered.messages.len() as u64;
                self.need_of(bytes, messages) + self.growth_need(growth)
            }
        };
        let logged = !matches!(draft.way, Way::Unlogged);
        if logged && bytes > u64::from(self.superblock.node_size) {
            // It makes the root larger than it should be, and a step moves all of that when it may have been written.
            need = need + Need::of_image(bytes as usize);
        }
        let again = match &draft.way {
            Way::Logged(form) => Need::of_image(form.late_bytes),
            Way::Unlogged | Way::Whole => Need::default(),
        };
        loop {
            if self.find_room(need + again, draft.claim)? {
                return Ok(());
            }
            if again != Need::default() && self.has_room(need, draft.claim) {
                draft.way = Way::Whole;
                return Ok(());
            }
            if draft.claim != Claim::Takes || !self.keeps(draft)? {
                break;
            }
            draft.claim = Claim::Keeps;
        }
        let need_blocks = self.needed(need, draft.claim).all();
        Err(self.no_space(need_blocks))
    }

    /// Makes room for so many bytes of values, as if they were written at once, or says that the volume has none.
    pub fn ensure_room(&mut self, bytes: u64) -> Result<()> {
        self.ensure_ready()?;
        let need = need_in_order(self.trees.wait().store.geometry, bytes);
        // What no image of this size holds is not worth emptying buffers for.
        let may_fit = need.all() <= self.superblock.image_blocks;
        if may_fit && self.find_room(need, Claim::Takes)? {
            return Ok(());
        }
        let need_blocks = self.needed(need, Claim::Takes).all();
        Err(self.no_space(need_blocks))
    }

    /// Whether an operation leaves no more bytes of entries than there are now, but for a longer name. Looks up what it changes.
    fn keeps(&self, draft: &Draft) -> Result<bool> {
        if draft.room.bytes > KEEPS_MAX {
            return Ok(false);
        }
        let mut balance = if draft.op == Op::Rename { -(limits::NAME_MAX as i64) } else { 0 };
        for message in &draft.ordered.messages {
            balance += match message {
                RecordMessage::Point(tree, key, action) => {
                    let before = self.get(*tree, key)?.map(|value| value.len());
                    gain(key, before, action)
                }
                RecordMessage::RangeDelete(tree, lo, hi) => {
                    -(self.bytes_within(*tree, lo, hi, draft.room.bytes)? as i64)
                }
                RecordMessage::Unbound(..) => return Ok(false),
            };
        }
        Ok(balance <= 0)
    }

    /// How many bytes of entries there are within `[lo, hi)`; if there are more than `most`, some number above that.
    fn bytes_within(&self, tree: TreeId, lo: &Key, hi: &Key, most: u64) -> Result<u64> {
        let mut bytes = 0;
        for entry in self.cursor(tree, lo.clone(), Some(hi.clone())) {
            let (key, value) = entry?;
            bytes += key.len() as u64 + value.len() as u64;
            if bytes > most {
                break;
            }
        }
        Ok(bytes)
    }

    /// Whether there is room for so much, or can be made by checkpoints and by emptying buffers.
    pub(super) fn find_room(&mut self, need: Need, claim: Claim) -> Result<bool> {
        let Trees { store, .. } = self.trees.wait();
        let reserve = reserve_for_deletes(store.geometry, self.superblock.image_blocks).all();
        // What the next checkpoint writes because of one operation: what is dirty, or a step may dirty.
        let path = store.checkpoint_need().all().min(self.kept_for(Claim::Frees).all());
        let mut enough = need;
        if !self.has_room(need, claim) {
            // A quarter of the reserve besides, so that not each operation that follows needs checkpoints.
            enough = need + Need::of_blocks(path + reserve / 4);
            self.release(enough, claim)?;
        }
        if !self.trees.wait().balance.is_settled() {
            self.settle(claim)?;
        }
        if self.drained == self.next_msn {
            return Ok(self.has_room(need, claim));
        }
        if self.trees.wait().balance.is_settled() && self.has_room(enough, claim) {
            return Ok(true);
        }
        // Half of the reserve, so that not each one that follows has to empty buffers.
        let goal = need + Need::of_blocks(path + reserve / 2);
        let is_enough = |volume: &Volume| {
            volume.trees.wait().balance.emptied() > 0 && volume.has_room(goal, claim)
        };
        loop {
            if self.drain_until(Emptied::All, Ground::Reserve, is_enough)? != Drained::Partly {
                self.drained = self.next_msn;
                return self.release(need, claim);
            }
            // What is written then may break up the rows that there was room in.
            if self.release(need, claim)? {
                return Ok(true);
            }
        }
    }

    /// Makes checkpoints until there is room for so much, or nothing comes of it. What is not logged becomes durable all at once, so
    /// no checkpoint may come in between.
    fn release(&mut self, need: Need, claim: Claim) -> Result<bool> {
        while !self.has_room(need, claim) {
            if !self.is_logged() || !self.gains_by_checkpoint() {
                return Ok(false);
            }
            self.counters.for_space += 1;
            self.checkpoint()?;
        }
        Ok(true)
    }

    /// Whether blocks come back with the next checkpoints, or what is dirty stops needing room.
    pub(super) fn gains_by_checkpoint(&self) -> bool {
        let store = &self.trees.wait().store;
        store.space.leaving_blocks() > 0 || store.dirty_bytes() > 0 || self.can_prune()
    }

    /// Moves everything that is pending down to the leaves, which rewrites each that something is pending for:
    /// deletes give back the space of what they cover, and nodes that became small are joined. Where space is
    /// short it stops half way.
    pub fn drain(&mut self) -> Result<()> {
        self.ensure_ready()?;
        match self.drain_until(Emptied::All, Ground::Ordinary, |_| false)? {
            Drained::Wholly | Drained::Passed => Ok(()),
            Drained::Partly => self.drain_until(Emptied::All, Ground::Reserve, |_| false).map(drop),
        }
    }

    /// Whether so many deletes may be pending that it is worth looking for them ([`Volume::reclaim`]).
    pub fn can_reclaim(&self) -> bool {
        self.deletes > self.trees.wait().store.table.nodes() / RECLAIM_SHARE
    }

    /// Empties some buffers that deletes wait in, at most so many: what they cover becomes free. Whether there may be more.
    pub fn reclaim(&mut self, buffers: u64) -> Result<bool> {
        self.ensure_ready()?;
        if !self.can_reclaim() {
            return Ok(false);
        }
        let is_enough = |volume: &Volume| volume.trees.wait().balance.emptied() >= buffers;
        let mut drained = self.drain_until(Emptied::Deletes, Ground::Ordinary, is_enough)?;
        if drained == Drained::Partly && self.trees.wait().balance.emptied() < buffers {
            drained = self.drain_until(Emptied::Deletes, Ground::Reserve, is_enough)?;
        }
        Ok(drained == Drained::Partly)
    }

    /// Empties buffers, until `is_enough`: then it stops where nothing is on its way. On ordinary ground it stops as well where
    /// only the reserve is left, and what it changes is as dirty as what operations change; on the reserve, all is durable
    /// afterwards.
    fn drain_until(
        &mut self,
        what: Emptied,
        ground: Ground,
        is_enough: impl Fn(&Volume) -> bool,
    ) -> Result<Drained> {
        self.counters.drains += 1;
        let thrifty = self.is_logged() && ground == Ground::Reserve;
        self.trees.wait_mut().balance.drain(what);
        self.trees.wait_mut().store.be_thrifty(thrifty);
        let (used, inflow) =
            (self.trees.wait().store.space.used_blocks(), self.trees.wait().store.inflow());
        let most = used
            + (growth_need(&self.trees.wait().store, inflow)
                + self.trees.wait().store.checkpoint_need())
            .all();
        let result = self.drain_steps(ground, is_enough).and_then(|drained| {
            if thrifty {
                self.end_batch()?;
            }
            Ok(drained)
        });
        self.trees.wait_mut().store.be_thrifty(false);
        if result.is_err() {
            self.trees.wait_mut().balance.stop_draining();
        }
        match result {
            Ok(Drained::Wholly) => (self.deletes, self.deletes_passed) = (0, 0),
            // They are worth looking for when something has been dropped.
            Ok(Drained::Passed) => self.deletes_passed += std::mem::take(&mut self.deletes),
            _ => {}
        }
        let is_held = self.trees.wait().store.space.newest_hold() > Epoch(0);
        debug_assert!(
            result.is_err()
                || !thrifty
                || is_held
                || self.trees.wait().store.space.used_blocks() <= most,
            "emptying buffers takes no more blocks than was set aside for it: {used} before, {} then, {most} at the most, {inflow:?}",
            self.trees.wait().store.space.used_blocks()
        );
        self.whole(result)
    }

    /// Ends a batch of steps that empty buffers: makes it durable, and what it gave up free. Nodes that lay in rows, and were
    /// scattered because these were still held, are written into rows again before anything else takes them, so that there
    /// are no more maps than before. False if nothing came of it.
    fn end_batch(&mut self) -> Result<bool> {
        let mut some = self.come_clean()?;
        while self.trees.wait().store.has_strays() {
            let fewer = self.trees.wait_mut().store.recall_strays()?;
            self.come_clean()?;
            if !fewer {
                break;
            }
            some = true;
        }
        Ok(some)
    }

    /// Makes checkpoints until nothing is dirty, and what was given up is free. Whether it took any.
    fn come_clean(&mut self) -> Result<bool> {
        let mut some = false;
        while self.gains_by_checkpoint() {
            self.counters.for_space += 1;
            self.checkpoint()?;
            some = true;
        }
        Ok(some)
    }

    fn drain_steps(
        &mut self,
        ground: Ground,
        is_enough: impl Fn(&Volume) -> bool,
    ) -> Result<Drained> {
        let on_reserve = ground == Ground::Reserve;
        let logged = self.is_logged();
        let mut drained = Drained::Wholly;
        while self.trees.wait().balance.is_draining() || !self.trees.wait().balance.is_settled() {
            if self.trees.wait().balance.is_between_buffers() && is_enough(self) {
                self.trees.wait_mut().balance.stop_draining();
                drained = Drained::Partly;
                continue;
            }
            let Trees { store, balance, .. } = self.trees.wait();
            let (dirty, is_held) = balance.next_need(store)?;
            let need = store.checkpoint_need_with(dirty);
            // What does not come back afterwards is not taken from the reserve.
            let kept = match on_reserve && !is_held {
                true => Need::default(),
                false => self.kept_for(Claim::Takes),
            };
            let Trees { store, .. } = self.trees.wait();
            if store.space.has(need + kept) {
                self.trees.wait_mut().step()?;
            } else if on_reserve && logged && self.end_batch()? {
                // There may be room for it now.
            } else if !self.trees.wait().balance.is_settled() {
                self.trees.wait_mut().balance.give_up_step();
            } else if on_reserve && is_held {
                // Others may give something back.
                let Trees { store, balance, .. } = self.trees.wait_mut();
                balance.pass_over_buffer(store)?;
                drained = Drained::Passed;
            } else {
                self.trees.wait_mut().balance.stop_draining();
                if !on_reserve {
                    drained = Drained::Partly;
                }
            }
        }
        Ok(drained)
    }

    /// Makes steps until all nodes are within their sizes; each followed by a checkpoint where space is
    /// short. If there is none for another, nodes stay too large for a while.
    pub(super) fn settle(&mut self, claim: Claim) -> Result<()> {
        let logged = self.is_logged();
        while !self.trees.wait().balance.is_settled() {
            while !self.has_room_for_step(claim) && !self.has_room_for_next(claim)? {
                if !logged || !self.gains_by_checkpoint() {
                    return Ok(());
                }
                self.counters.for_space += 1;
                self.checkpoint()?;
            }
            self.trees.wait_mut().step()?;
        }
        Ok(())
    }

    /// Whether range deletes may cover leaves that are still there, and there is room to drop them ([`Volume::prune_some`]).
    pub fn can_prune(&self) -> bool {
        let balance = &self.trees.wait().balance;
        balance.can_prune() && !balance.is_draining() && self.has_room_for_prune()
    }

    /// Drops some of the leaves that range deletes cover as a whole: at most 16 nodes are looked at. Whether
    /// there may be more of them.
    pub fn prune_some(&mut self) -> Result<bool> {
        self.ensure_ready()?;
        let thrifty = self.trees.wait().store.is_thrifty();
        let result = self.prune(PRUNED_AT_ONCE);
        self.trees.wait_mut().store.be_thrifty(thrifty);
        self.whole(result)?;
        Ok(self.can_prune())
    }

    /// Drops what pending range deletes cover as a whole, as far as there is room for the steps, and looks at `most` nodes for it
    /// at the most.
    pub(super) fn prune(&mut self, most: u64) -> Result<()> {
        if self.trees.wait().balance.is_draining() {
            // They would come to nodes that are empty already.
            return Ok(());
        }
        if self.trees.wait().balance.can_prune() && !self.has_room_for_step(Claim::Frees) {
            self.trees.wait_mut().store.be_thrifty(true);
        }
        let mut steps = 0;
        while steps < most && self.can_prune() {
            let Trees { store, balance, .. } = self.trees.wait_mut();
            self.counters.pruned += balance.prune(store)?;
            while !self.trees.wait().balance.is_settled() && self.has_room_for_prune() {
                self.trees.wait_mut().step()?;
            }
            steps += 1;
        }
        Ok(())
    }

    /// Keeps the cache within its budget. As the log comes to its end less and less may be dirty, so that the
    /// checkpoint then finds little to write. What frees space leaves the writing to what comes after it.
    pub(super) fn evict(&mut self, claim: Claim) -> Result<()> {
        let share = self.dirty_share(claim);
        self.trees.wait_mut().store.make_room(share)
    }

    /// How much of what may be dirty may stay so.
    pub(super) fn dirty_share(&self, claim: Claim) -> f64 {
        let (used, size) = self.log.fill();
        let left = size.saturating_sub(used) as f64 / size as f64;
        let slack = if claim == Claim::Frees { FREEING } else { 0.0 };
        (left / CLEANING).clamp(HOT, 1.0) + slack
    }

    /// Whether there is room for what the next step may dirty. Steps may take more blocks than they give
    /// back: only those of operations that free space may come near the end of what there is.
    pub(super) fn has_room_for_step(&self, claim: Claim) -> bool {
        self.trees.wait().has_room_for_step(self.superblock.image_blocks, claim)
    }

    /// The same where leaves are dropped unread, which may use what is set aside for steps.
    fn has_room_for_prune(&self) -> bool {
        if self.trees.wait().store.space.newest_hold() > Epoch(0) {
            // What it changes may be held, and then it gives nothing back.
            return self.has_room_for_step(Claim::Frees);
        }
        let (store, blocks) = (&self.trees.wait().store, self.superblock.image_blocks);
        let step = step_need(store.geometry, blocks, store.inflow().growth.bytes);
        store.space.has(store.checkpoint_need() + step)
    }

    /// The same, of what exactly the next step may dirty.
    fn has_room_for_next(&self, claim: Claim) -> Result<bool> {
        let Trees { store, balance, .. } = self.trees.wait();
        let (dirty, _) = balance.next_need(store)?;
        Ok(store.space.has(store.checkpoint_need_with(dirty) + self.kept_for(claim)))
    }

    /// Whether an operation that takes so much may begin.
    pub(super) fn has_room(&self, need: Need, claim: Claim) -> bool {
        self.trees.wait().store.space.has(self.needed(need, claim))
    }

    /// What leaves may take for messages that are not pending yet, besides their bytes ([`Volume::need_of`]).
    fn growth_need(&self, growth: Growth) -> Need {
        growth_need(&self.trees.wait().store, Inflow { bytes: 0, growth })
    }

    /// The blocks and maps that leaves take for `entries` entries of `bytes` bytes together.
    pub(super) fn need_of(&self, bytes: u64, entries: u64) -> Need {
        need_of(self.trees.wait().store.geometry, bytes, entries)
    }

    /// What there must be room for before an operation begins.
    pub(super) fn needed(&self, need: Need, claim: Claim) -> Need {
        let late = Need::of_blocks(self.late_blocks() + OPERATION_BLOCKS);
        self.trees.wait().store.checkpoint_need() + late + need + self.kept_for(claim)
    }

    /// Blocks of late-bound values that a recovery would have to leave alone.
    pub(super) fn late_blocks(&self) -> u64 {
        let waiting = self.trees.wait().store.late.waiting_bytes().div_ceil(BLOCK_SIZE as u64);
        self.trees.wait().store.space.pinned_blocks() + waiting
    }

    /// What is kept for operations that free space, and for what pending updates may need.
    pub(super) fn reserved_blocks(&self) -> u64 {
        self.kept_for(Claim::Takes).all()
    }

    /// What must stay free when an operation has been carried out.
    fn kept_for(&self, claim: Claim) -> Need {
        kept_for(&self.trees.wait().store, self.superblock.image_blocks, claim)
    }
}

/// Where room for steps that empty buffers comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// What operations may take.
    Ordinary,
    /// The reserve for steps as well.
    Reserve,
}

/// How far buffers have been emptied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drained {
    /// Nothing is left that there is room for.
    Wholly,
    /// As far as was asked for, or as ordinary ground went.
    Partly,
    /// Nothing is left that there is room for, and some buffers were passed over since holds keep what is below them.
    Passed,
}
