//! Holds: checkpoints that are kept. Takes, renames and drops them.
//!
//! Each change is a checkpoint. A drop is a checkpoint that marks the hold, and then several pieces, each with a
//! checkpoint of its own. The volume may be closed after any piece; the drop continues when it is opened again.

use super::Volume;
use super::checkpoint::{Checkpoint, Continued, Pruned};
use super::reserve::Claim;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{Birth, Dead, Hold, Superblock, is_hold_name};
use crate::holds::Holds;
use crate::ids::*;
use crate::space::{DeadStack, Need};
use crate::tuning::DROPPED_AT_ONCE;

/// 16 blocks: set aside while there are holds, so that a piece of a drop can always be written. A piece that
/// looks at one record writes at most 10 pages (8 by [`Holds::pages_max`], 2 by `Space::dead_pages_max`); as many blocks are free again two checkpoints
/// later.
pub(super) const HOLD_BLOCKS: u64 = 16;

/// 2 pages are written when a hold is taken: its own, and the one above.
const TAKE_BLOCKS: u64 = 2;

/// A change of holds, which is a checkpoint of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldChange {
    /// Keeps the checkpoint under this name.
    Take(String),
    /// Renames the hold of the first name to the second.
    Rename(String, String),
    /// Sets whether the user protects the hold of this name.
    Keep(String, bool),
    /// Drops the hold of this name; its blocks are freed by later pieces.
    Drop(String),
    /// Rolls the volume back to the hold of this name. Younger holds are dropped, if that is allowed.
    RollBack {
        /// The name.
        to: String,
        /// Whether younger ones may be dropped.
        drop_younger: bool,
    },
    /// A piece of a drop: takes up to this number of records from the list of a hold being dropped, and frees extents
    /// that no other hold keeps.
    Piece(u64),
}

impl HoldChange {
    /// A piece of a drop that blocks readers no longer than other changes do.
    pub const SOME: HoldChange = HoldChange::Piece(DROPPED_AT_ONCE);
}

impl Volume {
    /// All holds, the oldest first.
    pub fn holds(&self) -> Result<Vec<Hold>> {
        holds_of(&self.disk, &self.superblock)
    }

    /// The hold of a name.
    pub fn hold(&self, name: &str) -> Result<Hold> {
        let holds = self.holds()?;
        let found = holds.iter().find(|hold| hold.name == name).cloned();
        found.ok_or_else(|| no_such_hold(name, &holds.iter().collect::<Vec<_>>()))
    }

    /// Takes a hold of the checkpoint that is made for it: a checkpoint, and two pages.
    pub fn take_hold(&mut self, name: &str) -> Result<()> {
        self.change_holds(&HoldChange::Take(name.into()))
    }

    /// Renames a hold.
    pub fn rename_hold(&mut self, name: &str, new: &str) -> Result<()> {
        self.change_holds(&HoldChange::Rename(name.into(), new.into()))
    }

    /// Sets whether the user protects a hold: pruning leaves it then.
    pub fn keep_hold(&mut self, name: &str, kept: bool) -> Result<()> {
        self.change_holds(&HoldChange::Keep(name.into(), kept))
    }

    /// Drops a hold. The blocks that only it uses are free two checkpoints later.
    pub fn drop_hold(&mut self, name: &str) -> Result<()> {
        self.change_holds(&HoldChange::Drop(name.into()))?;
        while self.drop_some()? {}
        Ok(())
    }

    /// Rolls the volume back to a hold, and drops younger holds if that is allowed. All results of earlier reads become
    /// stale.
    pub fn roll_back(&mut self, to: &str, drop_younger: bool) -> Result<()> {
        self.change_holds(&HoldChange::RollBack { to: to.into(), drop_younger })
    }

    /// Makes one piece of the drops in progress. Returns whether more is left.
    pub fn drop_some(&mut self) -> Result<bool> {
        if self.can_drop() {
            self.change_holds(&HoldChange::SOME)?;
        }
        Ok(self.can_drop())
    }

    /// Whether a drop is in progress and can continue.
    pub fn can_drop(&self) -> bool {
        self.holds.can_drop()
    }

    /// Makes a change of holds, durably.
    pub fn change_holds(&mut self, change: &HoldChange) -> Result<()> {
        let Some(checkpoint) = self.begin_hold_change(change)? else { return Ok(()) };
        let waited = checkpoint.wait();
        self.end_hold_change(checkpoint, waited)
    }

    /// The first step of a change, as of any checkpoint ([`Volume::begin_checkpoint`]). `None` if there is nothing to
    /// do.
    pub fn begin_hold_change(&mut self, change: &HoldChange) -> Result<Option<Checkpoint>> {
        if matches!(change, HoldChange::Piece(_)) && !self.can_drop() {
            return Ok(None);
        }
        self.ensure_ready()?;
        if self.error_passed_over().is_some() {
            self.note_error()?;
        }
        self.holds.know(&self.disk, self.identity.volume)?;
        let mut taken = None;
        match change {
            HoldChange::Take(name) => {
                self.ready_to_take(name)?;
                taken = Some(name.clone());
            }
            HoldChange::Rename(name, new) => {
                let epoch = self.hold_named(name)?;
                if name == new {
                    return Ok(None);
                }
                self.check_new_name(new)?;
                self.holds.change(epoch, |hold| hold.name.clone_from(new));
            }
            HoldChange::Keep(name, kept) => {
                let epoch = self.hold_named(name)?;
                self.holds.change(epoch, |hold| hold.kept = *kept);
            }
            HoldChange::Drop(name) => {
                let epoch = self.hold_named(name)?;
                let space = &mut self.trees.wait_mut().store.space;
                self.holds.begin_drop(epoch, space);
                self.looks_for_room_again();
            }
            HoldChange::RollBack { to, drop_younger } => self.go_back(to, *drop_younger)?,
            HoldChange::Piece(records) => {
                let most = self.ready_to_drop(*records)?;
                let birth = self.trees.wait().store.birth();
                let space = &mut self.trees.wait_mut().store.space;
                let result = self.holds.drop_some(space, most, birth);
                self.drop_blocked = self.poison_on_error(result)?;
                self.looks_for_room_again();
            }
        }
        self.taking = taken;
        let result = self.prepare(Continued::Afresh, Pruned::None);
        self.taking = None;
        self.poison_on_error(result).map(Some)
    }

    /// The last step; `waited` is the result of waiting. Also fails if a drop cannot continue: then all else is done.
    pub fn end_hold_change(&mut self, checkpoint: Checkpoint, waited: Result<()>) -> Result<()> {
        self.end_checkpoint(checkpoint, waited)?;
        self.drop_blocked.take().map_or(Ok(()), Err)
    }

    fn ready_to_take(&mut self, name: &str) -> Result<()> {
        self.check_new_name(name)?;
        if !self.holds.has_place() {
            let text = "there are 8,960 snapshots, and there may be no more; drop some of them";
            return Err(Error::Input(text.into()));
        }
        // All that is set aside must still be free after the hold is taken.
        let need = Need::of_blocks(HOLD_BLOCKS + TAKE_BLOCKS);
        match self.find_room(need, Claim::Takes)? {
            true => Ok(()),
            false => Err(self.no_space(self.needed(need, Claim::Takes).all())),
        }
    }

    /// The number of records, up to `records`, that a piece has space for: one at least.
    fn ready_to_drop(&mut self, records: u64) -> Result<u64> {
        let mut most = records;
        while !self.has_room_to_drop(most) {
            if most > 1 {
                most /= 2;
            } else if self.is_logged() && self.gains_by_checkpoint() {
                self.checkpoint()?;
            } else {
                return Err(self.no_space(Holds::pages_max(1)));
            }
        }
        Ok(most)
    }

    /// Allows drains again: buffers that could not free space before may do so now.
    fn looks_for_room_again(&mut self) {
        self.drained_at = Msn(0);
        self.deletes += std::mem::take(&mut self.deletes_passed);
    }

    /// Takes over holds found by a repair, each with the dead list before it, and the newest dead list. None of their
    /// old pages is reused.
    pub(crate) fn adopt_holds(
        &mut self,
        holds: Vec<(Hold, Vec<Dead>)>,
        dead: Vec<Dead>,
    ) -> Result<()> {
        let now = self.trees.wait().store.birth();
        let newest = holds.last().map_or(Epoch(0), |(hold, _)| hold.epoch);
        let all = holds.iter().flat_map(|(_, dead)| dead).chain(&dead);
        let blocks = all.map(Dead::blocks).sum();
        let space = &mut self.trees.wait_mut().store.space;
        space.hold(newest, DeadStack::default(), blocks);
        dead.into_iter().try_for_each(|dead| space.add_dead(dead, now))?;
        self.holds = Holds::anew(holds, space, now)?;
        Ok(())
    }

    /// The number of blocks that dropping a hold frees: those that it alone uses, with pages of lists and of holds.
    pub fn dropping_frees(&self, name: &str) -> Result<u64> {
        let mut holds = Holds::of(self.superblock.holds.clone());
        let volume = self.identity.volume;
        holds.know(&self.disk, volume)?;
        let hold = holds.named(name).ok_or_else(|| no_such_hold(name, &holds.held()))?;
        holds.freed_by(hold.epoch, &self.trees.wait().store.space, &self.disk, volume)
    }

    fn has_room_to_drop(&self, records: u64) -> bool {
        let store = &self.trees.wait().store;
        let dead = store.space.dead_pages_max(records);
        let need = store.checkpoint_need() + Need::of_blocks(Holds::pages_max(records) + dead);
        store.space.has(need)
    }

    fn hold_named(&self, name: &str) -> Result<Epoch> {
        self.holds
            .named(name)
            .map(|hold| hold.epoch)
            .ok_or_else(|| no_such_hold(name, &self.holds.held()))
    }

    fn check_new_name(&self, name: &str) -> Result<()> {
        if !is_hold_name(name) {
            let text = "a snapshot's name has 1 to 255 bytes of UTF-8 without '/', '@' and control characters, and is not '.' or '..'";
            return Err(Error::Input(text.into()));
        }
        match self.holds.named(name) {
            Some(_) => Err(Error::Input(format!("there is a snapshot '{name}' already"))),
            None => Ok(()),
        }
    }
}

/// All holds, the oldest first, of the volume of `live`.
pub fn holds_of(disk: &Disk, live: &Superblock) -> Result<Vec<Hold>> {
    let mut holds = Holds::of(live.holds.clone());
    holds.know(disk, live.birth.volume)?;
    Ok(holds.held().into_iter().cloned().collect())
}

/// The superblock of the hold of a name, of the volume of `live`.
pub(super) fn hold_named(disk: &Disk, live: &Superblock, name: &str) -> Result<Superblock> {
    let mut holds = Holds::of(live.holds.clone());
    holds.know(disk, live.birth.volume)?;
    let hold = holds.named(name).ok_or_else(|| no_such_hold(name, &holds.held()))?;
    Ok(superblock_of(live, hold))
}

/// The superblock to open a hold with. Fixed parts and their places are those of `live`.
pub fn superblock_of(live: &Superblock, hold: &Hold) -> Superblock {
    Superblock {
        birth: Birth { epoch: hold.epoch, nonce: hold.nonce, ..live.birth },
        table: hold.table,
        next_node: hold.next_node,
        next: hold.next,
        next_msn: hold.next_msn,
        inflow: hold.inflow,
        nodes: hold.nodes,
        wall: hold.wall,
        used_blocks: hold.used_blocks,
        log_epoch: hold.epoch,
        log_nonce: hold.nonce,
        prunes: Vec::new(),
        dying: hold.dying,
        holds: Default::default(),
        ..live.clone()
    }
}

/// The error that there is no hold of a name; it lists those that exist.
pub fn no_such_hold(name: &str, held: &[&Hold]) -> Error {
    let names: Vec<&str> = held.iter().map(|hold| &*hold.name).collect();
    let there = match &names[..] {
        [] => "there are none".to_owned(),
        [few @ .., last] if few.len() < 10 => match few {
            [] => format!("there is '{last}'"),
            _ => format!("there are '{}' and '{last}'", few.join("', '")),
        },
        many => {
            format!("there are {}, the last of which is '{}'", many.len(), many[many.len() - 1])
        }
    };
    Error::Input(format!("there is no snapshot '{name}'; {there}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::MemoryDevice;
    use crate::format::{Action, Key, Op, RecordMessage};
    use crate::random::Random;
    use crate::store::Geometry;
    use crate::volume::{Content, CreateOptions, Mode, NonceSource, OpenOptions, Transaction};

    fn nonces(mut last: u64) -> NonceSource {
        Box::new(move || {
            last += 1;
            last
        })
    }

    fn volume() -> Volume {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        let options = CreateOptions {
            geometry: Geometry { node_size: 4096, leaf_size: 4096, basement_size: 1024, fanout: 4 },
            log_bytes: 128 << 10,
            content: Content::Keys,
            ..CreateOptions::new(*b"a volume of keys", 16 << 20, nonces(0))
        };
        Volume::create(device.clone(), options).unwrap().checkpoint().unwrap();
        let options = OpenOptions { content: None, ..OpenOptions::new(Mode::ReadWrite, nonces(9)) };
        Volume::open(device, options).unwrap().0
    }

    /// Takes all free blocks except those set aside for drops.
    fn leave_what_is_set_aside(volume: &mut Volume) {
        while volume.gains_by_checkpoint() {
            volume.checkpoint().unwrap();
        }
        let space = &mut volume.trees.wait_mut().store.space;
        while space.free_blocks() > HOLD_BLOCKS {
            space.allocate().unwrap();
        }
        assert_eq!(space.free_blocks(), HOLD_BLOCKS);
    }

    #[test]
    fn what_is_set_aside_is_enough_for_every_drop() {
        let mut random = Random::new(1);
        let mut volume = volume();
        let mut names = Vec::new();
        // More holds than one page has, with lists of several pages.
        for taken in 0..10 {
            for number in 0..150u64 {
                let key = Key::copied(&(number * 4 + random.below(4)).to_be_bytes());
                let action = Action::Insert(random.bytes(1000).into());
                let messages = vec![RecordMessage::Point(TreeId::Data, key, action)];
                let wall = Time::default();
                volume.commit(Transaction { op: Op::Raw, wall, messages }).unwrap();
            }
            volume.drain().unwrap();
            volume.take_hold(&format!("{taken}")).unwrap();
            names.push(format!("{taken}"));
        }
        leave_what_is_set_aside(&mut volume);
        let (mut least, mut pieces) = (HOLD_BLOCKS, 0);
        while !names.is_empty() {
            // Two drops begin one right after the other.
            for _ in 0..2.min(names.len()) {
                let name = names.swap_remove(random.below(names.len() as u64) as usize);
                volume.change_holds(&HoldChange::Drop(name)).unwrap();
            }
            while volume.can_drop() {
                volume.change_holds(&HoldChange::Piece(1)).unwrap();
                least = least.min(volume.trees.wait().store.space.free_blocks());
                pieces += 1;
                // A rename comes in between.
                if let Some(name) = names.first().filter(|_| pieces % 7 == 0).cloned() {
                    names[0] = format!("again {pieces}");
                    volume.rename_hold(&name, &names[0]).unwrap();
                }
            }
            leave_what_is_set_aside(&mut volume);
        }
        println!("{pieces} pieces, {least} blocks free at the least");
        assert!(pieces > 500 && least < HOLD_BLOCKS, "{pieces} pieces, {least} blocks free");
        assert_eq!(volume.superblock().holds, Default::default());
        assert!(!volume.has_failed());
    }
}
