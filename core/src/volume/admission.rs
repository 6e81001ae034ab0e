//! Admission control: which operations and steps may begin, and the space set aside so that a volume never gets stuck.
//!
//! Dirty nodes can be written at any time. An operation or step begins only if the blocks that it may dirty are free,
//! besides all that is set aside:
//!
//! - the *reserve for steps*, for drains, for dropping leaves that a range delete covers, and for clones of a replay: one path
//!   from a root to a leaf, rewritten;
//! - the *growth* of leaves by all pending messages;
//! - late-bound values, once more, because a recovery writes them again beside the copies that the log names;
//! - the *reserve for deletes*: an operation that takes space leaves all of it, one that only changes entries leaves
//!   half, and one that frees space leaves nothing ([`Claim`]).
//!
//! If too little is left, checkpoints come first: two of them free the extents that the last one before has given up.
//! Then all buffers are drained: after that no growth is set aside, and deleted entries are freed. Extents that a hold
//! keeps do not become free; changing them uses only the space that operations may use. docs/reserve.md says why a
//! step can always begin, and [`super::reserve`] computes all sizes.

use super::Volume;
use super::commit::{Draft, Durability};
use super::reserve::*;
use super::trees::Trees;
use crate::error::Result;
use crate::format::{Bounds, Growth, Inflow, Key, Op, RecordMessage, clones, limits};
use crate::ids::*;
use crate::space::Need;
use crate::store::Dirty;
use crate::tree::{self, Buffers, Ordered, StepNeed};
use crate::tuning::{
    FREEING_SLACK, KEEPS_MAX, LOG_END_DIRTY, LOG_END_SHARE, PRUNED_AT_ONCE, RECLAIM_SHARE,
};

impl Trees {
    /// Injects the messages of a transaction, and makes steps until all nodes are within their limits, as long as
    /// there is space. `share` is the part of the dirty budget that may stay in use.
    pub(super) fn apply(
        &mut self,
        first: Msn,
        ordered: &Ordered,
        (image_blocks, claim, share): (u64, Claim, f64),
    ) -> Result<()> {
        let Trees { store, balance, .. } = self;
        tree::inject(store, balance, first, ordered)
            .inspect_err(|error| store.poison.end_all(error))?;
        while !self.balance.is_settled() {
            if !self.has_room_for_step(image_blocks, claim)? {
                self.owed = Some(claim);
                return Ok(());
            }
            self.step()?;
        }
        self.store.make_room(share)
    }

    /// Makes one step. An operation may need many steps on many leaves, so nodes are written meanwhile if the dirty
    /// budget is exceeded by more than a little.
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

    /// Whether there is space for the most that the next step dirties. Where steps may copy shared nodes, the nodes are
    /// looked at.
    fn has_room_for_step(&self, image_blocks: u64, claim: Claim) -> Result<bool> {
        if self.store.table.shares() {
            return self.has_room_for_next(image_blocks, claim);
        }
        let store = &self.store;
        let need = store.checkpoint_need() + usual_step_need(store, image_blocks);
        Ok(store.space.has(need + kept_for(store, image_blocks, claim)))
    }

    /// As [`Trees::has_room_for_step`], with the exact nodes that the next step dirties.
    fn has_room_for_next(&self, image_blocks: u64, claim: Claim) -> Result<bool> {
        let Trees { store, balance, .. } = self;
        let StepNeed { dirty, copied, .. } = balance.next_need(store)?;
        let kept = kept_after(store, image_blocks, claim, copied);
        Ok(store.space.has(store.checkpoint_need_with(dirty) + kept))
    }
}

impl Volume {
    /// Refuses an operation for which the volume has no space, before anything changes. If its late-bound values have
    /// space only once, it becomes durable through a checkpoint. `more` is needed besides.
    pub(super) fn admit(&mut self, draft: &mut Draft, more: Need) -> Result<()> {
        let Inflow { bytes, growth } = draft.room;
        // The inode that an operation that frees space inserts existed before, or moves.
        let mut need = match draft.claim {
            Claim::Frees => Need::of_image(bytes as usize),
            Claim::Takes | Claim::Keeps => {
                let messages = draft.ordered.messages.len() as u64;
                self.need_of(bytes, messages) + self.growth_need(growth)
            }
        };
        need = need + more;
        let logged = !matches!(draft.durability, Durability::Unlogged);
        if logged && bytes > u64::from(self.superblock.node_size) {
            // The operation makes the root too large, and a step then moves all of it, possibly after it has been
            // written.
            need = need + Need::of_image(bytes as usize);
        }
        let again = match &draft.durability {
            Durability::Logged(form) => Need::of_image(form.late_bytes),
            Durability::Unlogged | Durability::Whole => Need::default(),
        };
        loop {
            if self.find_room(need + again, draft.claim)? {
                return Ok(());
            }
            if again != Need::default() && self.has_room(need, draft.claim) {
                draft.durability = Durability::Whole;
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

    /// Frees space for a write of this number of bytes, or fails if the volume has none.
    pub fn ensure_room(&mut self, bytes: u64) -> Result<()> {
        self.ensure_ready()?;
        let need = need_in_order(self.trees.wait().store.geometry, bytes);
        // A write larger than the image is not worth a drain.
        let may_fit = need.all() <= self.superblock.image_blocks;
        if may_fit && self.find_room(need, Claim::Takes)? {
            return Ok(());
        }
        let need_blocks = self.needed(need, Claim::Takes).all();
        Err(self.no_space(need_blocks))
    }

    /// Whether an operation leaves no more bytes of entries than before, except for a longer name. Reads the entries
    /// that it changes.
    pub(super) fn keeps(&self, draft: &Draft) -> Result<bool> {
        if draft.room.bytes > KEEPS_MAX {
            return Ok(false);
        }
        let messages = &draft.ordered.messages;
        // What is cloned, and then deleted where it was, has moved.
        let moved: Vec<(TreeId, Bounds)> =
            clones(messages).map(|(tree, clone)| (tree, clone.source())).collect();
        let mut left = moved.len();
        let mut balance = if draft.op == Op::Rename { -(limits::NAME_MAX as i64) } else { 0 };
        for message in messages {
            balance += match message {
                RecordMessage::Point(tree, key, action) => {
                    let before = self.get(*tree, key)?.map(|value| value.len());
                    gain(key, before, action)
                }
                RecordMessage::RangeDelete(tree, lo, hi)
                    if moved.iter().any(|(of, source)| {
                        of == tree && *lo <= source.lo && source.hi.as_ref() == Some(hi)
                    }) =>
                {
                    left = left.saturating_sub(1);
                    0
                }
                RecordMessage::RangeDelete(tree, lo, hi) => {
                    -(self.bytes_within(*tree, lo, hi, draft.room.bytes)? as i64)
                }
                RecordMessage::Clone(..) => 0,
                RecordMessage::Unbound(..) => return Ok(false),
            };
        }
        Ok(balance <= 0 && left == 0)
    }

    /// The bytes of entries within `[lo, hi)`; above `most`, some number greater than that.
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

    /// Whether there is space for `need`; frees space by checkpoints and drains if necessary.
    pub(super) fn find_room(&mut self, need: Need, claim: Claim) -> Result<bool> {
        let Trees { store, .. } = self.trees.wait();
        let reserve = reserve_for_deletes(store.geometry, self.superblock.image_blocks).all();
        // What the next checkpoint writes for one operation: the dirty nodes, but no more than what each operation leaves free.
        let path = store.checkpoint_need().all().min(self.kept_for(Claim::Frees).all());
        let mut enough = need;
        if !self.has_room(need, claim) {
            // A quarter of the reserve besides, so that later operations do not each need checkpoints.
            enough = need + Need::of_blocks(path + reserve / 4);
            self.checkpoint_for_space(enough, claim)?;
        }
        if !self.trees.wait().balance.is_settled() {
            self.make_steps(claim)?;
        }
        if self.drained_at == self.next_msn {
            return Ok(self.has_room(need, claim));
        }
        if self.trees.wait().balance.is_settled() && self.has_room(enough, claim) {
            return Ok(true);
        }
        // Half of the reserve, so that later operations do not each need a drain.
        let goal = need + Need::of_blocks(path + reserve / 2);
        let is_enough = |volume: &Volume| {
            volume.trees.wait().balance.drain_flushes() > 0 && volume.has_room(goal, claim)
        };
        loop {
            if self.drain_until(Buffers::All, Ground::Reserve, is_enough)? != DrainEnd::Partly {
                self.drained_at = self.next_msn;
                return self.checkpoint_for_space(need, claim);
            }
            // The writes of these checkpoints may fragment the free extents.
            if self.checkpoint_for_space(need, claim)? {
                return Ok(true);
            }
        }
    }

    /// Makes checkpoints until there is space for `need`, or no checkpoint frees more. An operation that is not logged
    /// becomes durable as a whole, so it allows no checkpoint.
    fn checkpoint_for_space(&mut self, need: Need, claim: Claim) -> Result<bool> {
        while !self.has_room(need, claim) {
            if !self.is_logged() || !self.gains_by_checkpoint() {
                return Ok(false);
            }
            self.counters.for_space += 1;
            self.checkpoint()?;
        }
        Ok(true)
    }

    /// Whether the next checkpoints free blocks, or write dirty nodes.
    pub(super) fn gains_by_checkpoint(&self) -> bool {
        let store = &self.trees.wait().store;
        store.space.freed_soon_blocks() > 0 || store.dirty_bytes() > 0 || self.can_prune()
    }

    /// Drains all buffers, which rewrites each leaf with pending messages. Deletes then free the space of the entries
    /// that they cover, and small nodes are merged. If space is short, the drain ends early.
    pub fn drain(&mut self) -> Result<()> {
        self.ensure_ready()?;
        match self.drain_until(Buffers::All, Ground::Ordinary, |_| false)? {
            DrainEnd::Wholly | DrainEnd::Passed => Ok(()),
            DrainEnd::Partly => {
                self.drain_until(Buffers::All, Ground::Reserve, |_| false).map(drop)
            }
        }
    }

    /// Whether enough deletes may be pending for a search to be worth while ([`Volume::reclaim`]).
    pub fn can_reclaim(&self) -> bool {
        self.deletes > self.trees.wait().store.table.nodes() / RECLAIM_SHARE
    }

    /// Drains buffers with deletes, at most `buffers` of them, which frees the entries that they cover. Returns whether
    /// there may be more.
    pub fn reclaim(&mut self, buffers: u64) -> Result<bool> {
        self.ensure_ready()?;
        if !self.can_reclaim() {
            return Ok(false);
        }
        let is_enough = |volume: &Volume| volume.trees.wait().balance.drain_flushes() >= buffers;
        let mut drained = self.drain_until(Buffers::WithDeletes, Ground::Ordinary, is_enough)?;
        if drained == DrainEnd::Partly && self.trees.wait().balance.drain_flushes() < buffers {
            drained = self.drain_until(Buffers::WithDeletes, Ground::Reserve, is_enough)?;
        }
        Ok(drained == DrainEnd::Partly)
    }

    /// Drains buffers until `is_enough`, and then stops between buffers. On ordinary ground it also stops where only
    /// the reserve is left, and leaves its changes dirty. On the reserve of a volume with a log it ends with
    /// checkpoints, until nothing is dirty.
    fn drain_until(
        &mut self,
        what: Buffers,
        ground: Ground,
        is_enough: impl Fn(&Volume) -> bool,
    ) -> Result<DrainEnd> {
        self.counters.drains += 1;
        let compact = self.is_logged() && ground == Ground::Reserve;
        self.trees.wait_mut().balance.drain(what);
        self.trees.wait_mut().store.set_compact_writes(compact);
        let (used, inflow) =
            (self.trees.wait().store.space.used_blocks(), self.trees.wait().store.inflow());
        let most = used
            + (growth_need(&self.trees.wait().store, inflow)
                + self.trees.wait().store.checkpoint_need())
            .all();
        let result = self.drain_steps(ground, is_enough).and_then(|drained| {
            if compact {
                self.end_batch()?;
            }
            Ok(drained)
        });
        self.trees.wait_mut().store.set_compact_writes(false);
        if result.is_err() {
            self.trees.wait_mut().balance.stop_draining();
        }
        match result {
            Ok(DrainEnd::Wholly) => (self.deletes, self.deletes_passed) = (0, 0),
            // They are worth looking for again when a hold has been dropped.
            Ok(DrainEnd::Passed) => self.deletes_passed += std::mem::take(&mut self.deletes),
            _ => {}
        }
        // Old nodes that a hold or another edge keeps do not become free.
        let store = &self.trees.wait().store;
        let is_shared = store.space.newest_hold() > Epoch(0) || store.table.shares();
        debug_assert!(
            result.is_err()
                || !compact
                || is_shared
                || self.trees.wait().store.space.used_blocks() <= most,
            "emptying buffers takes no more blocks than was set aside for it: {used} before, {} then, {most} at the most, {inflow:?}",
            self.trees.wait().store.space.used_blocks()
        );
        self.poison_on_error(result)
    }

    /// Ends a batch of drain steps: makes it durable, and frees the extents that it gave up. Then scattered nodes, which were
    /// scattered because their old extents were not free yet, are rewritten into contiguous extents, before other
    /// writes take these. So there are no more maps than before. Returns false if nothing changed.
    fn end_batch(&mut self) -> Result<bool> {
        let mut some = self.checkpoint_until_clean()?;
        while self.trees.wait().store.has_strays() {
            let fewer = self.trees.wait_mut().store.rewrite_contiguous()?;
            self.checkpoint_until_clean()?;
            if !fewer {
                break;
            }
            some = true;
        }
        Ok(some)
    }

    /// Makes checkpoints until nothing is dirty and all freed extents are free. Returns whether it made any.
    fn checkpoint_until_clean(&mut self) -> Result<bool> {
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
    ) -> Result<DrainEnd> {
        let on_reserve = ground == Ground::Reserve;
        let logged = self.is_logged();
        let mut drained = DrainEnd::Wholly;
        while self.trees.wait().balance.is_draining() || !self.trees.wait().balance.is_settled() {
            if self.trees.wait().balance.is_between_buffers() && is_enough(self) {
                self.trees.wait_mut().balance.stop_draining();
                drained = DrainEnd::Partly;
                continue;
            }
            let Trees { store, balance, .. } = self.trees.wait();
            let StepNeed { dirty, copied, is_kept } = balance.next_need(store)?;
            let need = store.checkpoint_need_with(dirty);
            // The reserve is not used for space that stays in use afterwards.
            let kept = match on_reserve && !is_kept {
                true => Need::default(),
                false => kept_after(store, self.superblock.image_blocks, Claim::Takes, copied),
            };
            if store.space.has(need + kept) {
                self.trees.wait_mut().step()?;
            } else if on_reserve && logged && self.end_batch()? {
                // There may be space for the step now.
            } else if !self.trees.wait().balance.is_settled() {
                self.trees.wait_mut().balance.give_up_step();
            } else if on_reserve && is_kept {
                // Other buffers may free something.
                let Trees { store, balance, .. } = self.trees.wait_mut();
                balance.pass_over_buffer(store)?;
                drained = DrainEnd::Passed;
            } else {
                self.trees.wait_mut().balance.stop_draining();
                if !on_reserve {
                    drained = DrainEnd::Partly;
                }
            }
        }
        Ok(drained)
    }

    /// Makes steps until all nodes are within their limits, with a checkpoint before each where space is short. If
    /// there is no space for a step, nodes stay too large for a while.
    pub(super) fn make_steps(&mut self, claim: Claim) -> Result<()> {
        let logged = self.is_logged();
        while !self.trees.wait().balance.is_settled() {
            while !self.has_room_for_step(claim)? && !self.has_room_for_next(claim)? {
                if !logged || !self.gains_by_checkpoint() {
                    return Ok(());
                }
                self.counters.for_space += 1;
                self.checkpoint()?;
            }
            // A step passes over a node that it cannot read. Any other error may come from the write-back behind it.
            let stepped = self.trees.wait_mut().step();
            self.poison_on_error(stepped)?;
        }
        Ok(())
    }

    /// Whether range deletes may cover leaves that still exist, or nodes without edges wait to be freed, and there is
    /// space to drop them ([`Volume::prune_some`]).
    pub fn can_prune(&self) -> bool {
        let balance = &self.trees.wait().balance;
        let prunes = balance.can_prune() && self.has_room_for_prune();
        (prunes || self.has_room_to_free()) && !balance.is_draining()
    }

    /// Whether a node without edges waits to be freed, and there is space for the table entries of its children.
    fn has_room_to_free(&self) -> bool {
        let store = &self.trees.wait().store;
        let Some(id) = store.next_dying() else { return false };
        // One that cannot be read takes no space.
        let children = store.node(id).map_or(0, |node| {
            node.internal().map_or(0, |internal| internal.children().len() as u64)
        });
        let more = Dirty { nodes: children + 1, ..Dirty::default() };
        store.space.has(store.checkpoint_need_with(more))
    }

    /// Drops some of the leaves that range deletes cover entirely; looks at no more than 16 nodes. Returns whether
    /// there may be more.
    pub fn prune_some(&mut self) -> Result<bool> {
        self.ensure_ready()?;
        let compact = self.trees.wait().store.writes_compactly();
        let result = self.prune(PRUNED_AT_ONCE);
        self.trees.wait_mut().store.set_compact_writes(compact);
        self.poison_on_error(result)?;
        Ok(self.can_prune())
    }

    /// Drops leaves that range deletes cover entirely, while there is space for the steps; looks at no more than `most`
    /// nodes.
    pub(super) fn prune(&mut self, most: u64) -> Result<()> {
        if self.trees.wait().balance.is_draining() {
            // The drain would find these nodes drained already.
            return Ok(());
        }
        if self.trees.wait().balance.can_prune() && !self.has_room_for_step(Claim::Frees)? {
            self.trees.wait_mut().store.set_compact_writes(true);
        }
        let mut steps = 0;
        while steps < most && self.can_prune() {
            let prunes = self.trees.wait().balance.can_prune() && self.has_room_for_prune();
            let Trees { store, balance, .. } = self.trees.wait_mut();
            match prunes {
                true => self.counters.pruned += balance.prune(store)?,
                false => store.free_dying()?,
            }
            while !self.trees.wait().balance.is_settled() && self.has_room_for_prune() {
                self.trees.wait_mut().step()?;
            }
            steps += 1;
        }
        Ok(())
    }

    /// Enforces the memory budget. The dirty budget shrinks as the log fills, so that the next checkpoint has little to
    /// write. Operations that free space leave write-back to later operations.
    pub(super) fn evict(&mut self, claim: Claim) -> Result<()> {
        let share = self.dirty_share(claim);
        self.trees.wait_mut().store.make_room(share)
    }

    /// The part of the dirty budget that may be in use.
    pub(super) fn dirty_share(&self, claim: Claim) -> f64 {
        let (used, size) = self.log.fill();
        let left = size.saturating_sub(used) as f64 / size as f64;
        let slack = if claim == Claim::Frees { FREEING_SLACK } else { 0.0 };
        (left / LOG_END_SHARE).clamp(LOG_END_DIRTY, 1.0) + slack
    }

    /// Whether there is space for the most that the next step dirties. Steps may take more blocks than they free, so
    /// only those of operations that free space may come near the limit.
    pub(super) fn has_room_for_step(&self, claim: Claim) -> Result<bool> {
        self.trees.wait().has_room_for_step(self.superblock.image_blocks, claim)
    }

    /// As [`Volume::has_room_for_step`], for dropping leaves unread, which may use the reserve for steps.
    fn has_room_for_prune(&self) -> bool {
        if self.trees.wait().store.space.newest_hold() > Epoch(0) {
            // The step may change held nodes, and then frees nothing.
            return self.has_room_for_step(Claim::Frees).unwrap_or(false);
        }
        let (store, blocks) = (&self.trees.wait().store, self.superblock.image_blocks);
        store.space.has(store.checkpoint_need() + usual_step_need(store, blocks))
    }

    /// As [`Volume::has_room_for_step`], with the exact nodes that the next step dirties.
    pub(super) fn has_room_for_next(&self, claim: Claim) -> Result<bool> {
        self.trees.wait().has_room_for_next(self.superblock.image_blocks, claim)
    }

    /// Whether an operation with this need may begin.
    pub(super) fn has_room(&self, need: Need, claim: Claim) -> bool {
        self.trees.wait().store.space.has(self.needed(need, claim))
    }

    /// The need of leaves that grow by messages not yet pending, besides the messages' bytes ([`Volume::need_of`]).
    fn growth_need(&self, growth: Growth) -> Need {
        growth_need(&self.trees.wait().store, Inflow { bytes: 0, growth })
    }

    /// The need of leaves for `entries` entries of `bytes` bytes in total.
    pub(super) fn need_of(&self, bytes: u64, entries: u64) -> Need {
        need_of(self.trees.wait().store.geometry, bytes, entries)
    }

    /// The space that must be free before an operation begins.
    pub(super) fn needed(&self, need: Need, claim: Claim) -> Need {
        let late = Need::of_blocks(self.late_blocks() + OPERATION_BLOCKS);
        self.trees.wait().store.checkpoint_need() + late + need + self.kept_for(claim)
    }

    /// Blocks of late-bound values that a recovery would have to keep.
    pub(super) fn late_blocks(&self) -> u64 {
        let waiting = self.trees.wait().store.late.waiting_bytes().div_ceil(BLOCK_SIZE as u64);
        self.trees.wait().store.space.pinned_blocks() + waiting
    }

    /// The reserve for operations that free space, and for the growth by pending messages.
    pub(super) fn reserved_blocks(&self) -> u64 {
        self.kept_for(Claim::Takes).all()
    }

    /// The space that must stay free after an operation.
    fn kept_for(&self, claim: Claim) -> Need {
        kept_for(&self.trees.wait().store, self.superblock.image_blocks, claim)
    }
}

/// The space that steps of a drain may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// What operations may use.
    Ordinary,
    /// The reserve for steps as well.
    Reserve,
}

/// The result of a drain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DrainEnd {
    /// All buffers are drained, except those of shared nodes, and those for which even the reserve has no space.
    Wholly,
    /// It stopped as requested, or where ordinary ground ended.
    Partly,
    /// All buffers for which there is space are drained, and some were skipped because holds keep the nodes below.
    Passed,
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;

    use super::*;
    use crate::device::{Device, MemoryDevice};
    use crate::error::Error;
    use crate::format::Action;
    use crate::random::Random;
    use crate::store::{CacheBudget, Geometry};
    use crate::volume::{Content, CreateOptions, Mode, NonceSource, OpenOptions, Transaction};

    /// Fails all writes once `broken` is set.
    struct Breaking {
        device: MemoryDevice,
        broken: AtomicBool,
    }

    impl Device for Breaking {
        fn len(&self) -> u64 {
            self.device.len()
        }

        fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
            self.device.read_at(at, buf)
        }

        fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
            match self.broken.load(Ordering::Relaxed) {
                true => Err(io::Error::other("broken")),
                false => self.device.write_at(at, bytes),
            }
        }

        fn flush(&self) -> io::Result<()> {
            self.device.flush()
        }
    }

    fn nonces(mut last: u64) -> NonceSource {
        Box::new(move || {
            last += 1;
            last
        })
    }

    #[test]
    fn a_step_that_fails_while_space_is_sought_poisons_the_volume() {
        let bytes = 64 << 20;
        let breaking =
            Arc::new(Breaking { device: MemoryDevice::new(bytes), broken: AtomicBool::new(false) });
        let device: Arc<dyn Device> = breaking.clone();
        let options = CreateOptions {
            geometry: Geometry { node_size: 4096, leaf_size: 4096, basement_size: 1024, fanout: 4 },
            content: Content::Keys,
            ..CreateOptions::new(*b"a volume of keys", bytes, nonces(0))
        };
        Volume::create(device.clone(), options).unwrap().checkpoint().unwrap();
        let cache = CacheBudget { total_bytes: 64 << 10, dirty_bytes: 24 << 10 };
        let options =
            OpenOptions { content: None, cache, ..OpenOptions::new(Mode::ReadWrite, nonces(9)) };
        let mut volume = Volume::open(device, options).unwrap().0;
        let mut random = Random::new(7);
        let mut insert = |count: usize| -> Vec<RecordMessage> {
            let message = |_| {
                let (key, value) = (Key::new(random.bytes(8)), Bytes::from(random.bytes(100)));
                RecordMessage::Point(TreeId::Data, key, Action::Insert(value))
            };
            (0..count).map(message).collect()
        };
        let transaction = |messages| Transaction { op: Op::Raw, wall: Time::default(), messages };
        volume.commit(transaction(insert(100))).unwrap();
        // As after an operation for whose steps there was no space: they wait.
        let ordered = Ordered::new(insert(10_000));
        let (next, Trees { store, balance, .. }) = (volume.next_msn, volume.trees.wait_mut());
        tree::inject(store, balance, next, &ordered).unwrap();
        breaking.broken.store(true, Ordering::Relaxed);
        let error = volume.make_steps(Claim::Takes).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        // A node that was being written may have no extent: nothing may follow.
        breaking.broken.store(false, Ordering::Relaxed);
        assert!(volume.commit(transaction(insert(1))).is_err());
        assert!(volume.checkpoint().is_err());
    }
}
