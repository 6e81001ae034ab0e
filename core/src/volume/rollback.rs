//! Rollback: the volume returns to the state of a hold.
//!
//! The root of the hold's allocation table is rewritten as the youngest page, and points to everything that the hold
//! uses. The same checkpoint frees younger holds and everything newer. Numbers given out are never reused.

use super::trees::Trees;
use super::{Pruned, Volume};
use crate::error::{Error, Result};
use crate::format::Hold;
use crate::ids::*;
use crate::space::Need;
use crate::tree::Balance;

impl Volume {
    /// Rolls the volume back to a hold with the next checkpoint. Drops younger holds if that is allowed. An error
    /// before that changes nothing.
    pub(super) fn go_back(&mut self, name: &str, drop_younger: bool) -> Result<()> {
        let hold = self.hold_to_go_back_to(name, drop_younger)?;
        let abandoned = loop {
            // Nodes that are only in memory are written first, so that they are freed like all others.
            self.checkpoint_with(Pruned::None)?;
            let (live, volume) = (self.superblock.table, self.identity.volume);
            let store = &self.trees.wait().store;
            let abandoned = self.holds.abandoned(&hold, live, &store.space, &self.disk, volume)?;
            let pages = self.holds.pages_abandoned(&abandoned);
            // Table pages beyond those of an ordinary checkpoint, and one page of the dead list since the hold.
            let need = store.checkpoint_need() + Need::of_blocks(pages + 3);
            if store.space.has(need) {
                break abandoned;
            }
            if !self.gains_by_checkpoint() {
                return Err(self.no_space(need.all()));
            }
        };
        let levels = self.superblock.table.levels;
        let (table, dying) = self.trees.wait().store.table_of(&hold, levels)?;
        let Trees { store, balance, owed } = self.trees.wait_mut();
        let birth = store.birth();
        let changed = self.holds.abandon(abandoned, &mut store.space, birth);
        store.begin_anew(table, dying, &hold);
        (*balance, *owed) = (Balance::default(), None);
        // Which deletes are pending is unknown, so a drain looks for the space that they free.
        (self.drained_at, self.deletes, self.deletes_passed) = (Msn(0), 0, hold.nodes);
        self.poison_on_error(changed)?;
        match self.trees.wait_mut().enqueue_roots() {
            // An operation on that tree reads the root again, and fails with this error.
            Err(error) if error.is_unreadable() => Ok(()),
            looked => self.poison_on_error(looked),
        }
    }

    fn hold_to_go_back_to(&self, name: &str, drop_younger: bool) -> Result<Hold> {
        let held = self.holds.held();
        let at = held.iter().position(|hold| hold.name == name);
        let at = at.ok_or_else(|| super::no_such_hold(name, &held))?;
        let younger = &held[at + 1..];
        let names = |holds: &[&Hold]| {
            let names: Vec<&str> = holds.iter().map(|hold| &*hold.name).collect();
            format!("'{}'", names.join("', '"))
        };
        let kept: Vec<&Hold> = younger.iter().filter(|hold| hold.kept).copied().collect();
        if !kept.is_empty() {
            let kept = names(&kept);
            return Err(Error::Input(format!(
                "younger snapshots are kept: {kept}; release them first"
            )));
        }
        if !younger.is_empty() && !drop_younger {
            let text = format!(
                "these snapshots are younger, and have to be dropped before that or with it: {}",
                names(younger)
            );
            return Err(Error::Input(text));
        }
        Ok(held[at].clone())
    }
}
