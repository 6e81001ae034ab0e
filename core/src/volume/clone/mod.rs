//! Range clones: a range of keys is shown under another prefix as well, without a copy (BetrFS 0.5).
//!
//! Both ranges are carved below the least height at which one node has each of them, so that rows of nodes there hold
//! exactly their keys. Then the node of that height with the destination gets further edges to the nodes of the source,
//! with a lens ([`Splice`]). A carve changes no content, and a checkpoint may come between its steps. So it comes before
//! the record of the clone is appended, and so do all checks: nothing is left that can fail by reading.
//!
//! A record with clones begins its group, and they come first in it. So a replay that has no space for a step makes a
//! checkpoint before the group, as before any group. And all late-bound values that the source has are bound by earlier
//! groups.

use std::collections::BTreeMap;

use super::carve::CarvedFor;
use super::checkpoint::Continued;
use super::commit::{Draft, Durability};
use super::reserve::{Claim, usual_step_need};
use super::trees::Trees;
use super::{Access, Volume};
use crate::error::{Error, Result};
use crate::format::limits::FANOUT;
use crate::format::{Features, RangeClone, Record, are_apart, clones};
use crate::ids::*;
use crate::space::Need;
use crate::store::{Dirty, EDGE_MAX};
use crate::tree::{self, Scan, Spliced};

/// 1,024 children: the limit of a node in the format.
const CHILDREN_MAX: usize = *FANOUT.end() as usize;
/// 4 carves: a checkpoint for space may take a boundary away again, by dropping nodes whose keys are deleted.
const CARVES_MAX: usize = 4;

/// A range clone whose ranges are carved.
pub(super) struct Splice {
    tree: TreeId,
    /// The height of the nodes that have the two ranges.
    height: Height,
    clone: RangeClone,
}

impl Volume {
    /// Admits a transaction, and prepares its range clones.
    pub(super) fn ready_to_clone(&mut self, draft: &mut Draft) -> Result<Vec<Splice>> {
        let wanted = owned(clones(&draft.ordered.messages));
        if wanted.is_empty() {
            return self.admit(draft, Need::default()).map(|()| Vec::new());
        }
        self.check_clones(&wanted)?;
        self.end_group()?;
        // Nodes that an earlier clone or a carve has left wide are divided first.
        self.make_steps(Claim::Takes)?;
        loop {
            let claim = draft.claim;
            let store = &self.trees.wait().store;
            self.find_room(usual_step_need(store, self.superblock.image_blocks), claim)?;
            let carved = self.carve_clones(&wanted, CarvedFor::Operation(claim), |volume, need| {
                volume.admit(draft, need)?;
                match &draft.durability {
                    Durability::Logged(form) => volume.make_log_room(form),
                    Durability::Unlogged | Durability::Whole => Ok(()),
                }
            });
            match carved {
                Err(Error::NoSpace { .. }) if claim == Claim::Takes && self.keeps(draft)? => {
                    draft.claim = Claim::Keeps;
                }
                carved => return carved,
            }
        }
    }

    /// Refuses clones that cannot be made.
    fn check_clones(&self, wanted: &[(TreeId, RangeClone)]) -> Result<()> {
        let misuse = |text: &str| Err(Error::Misuse(format!("a range cannot be cloned: {text}")));
        if !are_apart(wanted.iter().map(|(tree, clone)| (*tree, clone))) {
            return misuse("two clones of one operation overlap");
        }
        for (tree, clone) in wanted {
            let new = clone.destination();
            let mut scan = Scan::few(*tree, new.lo.clone(), new.hi.clone());
            if self.advance(&mut scan)?.is_some() {
                return misuse("there are keys where the new ones would be");
            }
        }
        Ok(())
    }

    /// Carves the ranges of clones, until that and the space for the splices, which `find_room` finds, are there
    /// together.
    fn carve_clones(
        &mut self,
        wanted: &[(TreeId, RangeClone)],
        purpose: CarvedFor,
        mut find_room: impl FnMut(&mut Volume, Need) -> Result<()>,
    ) -> Result<Vec<Splice>> {
        for _ in 0..CARVES_MAX {
            let carved = self.carve_once(wanted, purpose).and_then(|splices| {
                let need = self.check_splices(&splices)?;
                find_room(self, need)?;
                Ok((splices, self.trees.wait().is_carved()?))
            });
            match carved {
                Ok((splices, true)) => return Ok(splices),
                Ok((_, false)) => self.end_carve(),
                Err(error) => {
                    self.end_carve();
                    return Err(error);
                }
            }
        }
        Err(self.no_space(1))
    }

    fn carve_once(
        &mut self,
        wanted: &[(TreeId, RangeClone)],
        purpose: CarvedFor,
    ) -> Result<Vec<Splice>> {
        let ranges = |clone: &RangeClone| [clone.source(), clone.destination()];
        let pairs: Vec<_> = wanted.iter().map(|(tree, clone)| (*tree, ranges(clone))).collect();
        let heights = self.carve_apart(&pairs, purpose)?;
        let splices = wanted.iter().zip(heights).map(|((tree, clone), height)| Splice {
            tree: *tree,
            height,
            clone: clone.clone(),
        });
        Ok(splices.collect())
    }

    /// Checks that splices can be made. Returns their need: the nodes that get edges, and the table entries of all nodes
    /// that get or lose one.
    fn check_splices(&mut self, splices: &[Splice]) -> Result<Need> {
        let store = &mut self.trees.wait_mut().store;
        // Several may be in one node.
        let mut nodes: BTreeMap<NodeId, Spliced> = BTreeMap::new();
        for Splice { tree, height, clone } in splices {
            let spliced = tree::check_splice(store, (*tree, *height), clone)?;
            match nodes.get_mut(&spliced.node) {
                Some(known) => {
                    known.dropped += spliced.dropped;
                    known.added += spliced.added;
                }
                None => drop(nodes.insert(spliced.node, spliced)),
            }
        }
        let mut more = Dirty::default();
        for Spliced { node, children, dropped, added } in nodes.into_values() {
            let most = (children + added).saturating_sub(dropped);
            if most > CHILDREN_MAX {
                let text = format!(
                    "a clone in a node that would have {most} children: at most {CHILDREN_MAX}"
                );
                return Err(Error::Unsupported(text));
            }
            more.need = more.need + Need::of_image(added * EDGE_MAX);
            if !store.is_dirty(node) {
                let basement = store.geometry.basement_size as usize;
                more.need = more.need + store.node(node)?.need_when_changed(basement);
            }
            more.nodes += (1 + added + dropped) as u64;
            more.internals += 1;
        }
        let (with, without) = (store.checkpoint_need_with(more), store.checkpoint_need());
        Ok(Need { blocks: with.blocks - without.blocks, maps: with.maps - without.maps })
    }

    /// Adds the edges of carved clones, and ends the carve.
    pub(super) fn splice(&mut self, splices: &[Splice]) -> Result<()> {
        if splices.is_empty() {
            return Ok(());
        }
        self.superblock.features.read_only |= Features::SHARED;
        let Trees { store, balance, .. } = self.trees.wait_mut();
        store.table.share();
        for Splice { tree, height, clone } in splices {
            tree::splice(store, balance, (*tree, *height), clone)?;
        }
        balance.end_carve();
        Ok(())
    }

    /// Repeats the clones of a record, which is the first of its group. If what they need cannot be read, a volume that
    /// is only read remembers that the new ranges are lost.
    pub(super) fn replay_clones(&mut self, record: &Record, before: Continued) -> Result<()> {
        let wanted = owned(record.clones());
        if wanted.is_empty() {
            return Ok(());
        }
        // When the record was written there was space for all this besides the reserve, which the replay may use.
        let carved = self.carve_clones(&wanted, CarvedFor::Replay(before), |volume, need| {
            let has_room = |volume: &Volume| {
                let store = &volume.trees.wait().store;
                store.space.has(store.checkpoint_need() + need)
            };
            while !has_room(volume) {
                if !volume.checkpoint_before(before)? {
                    return Err(volume.no_space(need.all()));
                }
            }
            Ok(())
        });
        match carved {
            Err(error) if error.is_unreadable() && self.access == Access::ReadOnly => {
                let (damage, _) = error.into_damage()?;
                for (tree, clone) in wanted {
                    let range = clone.destination();
                    if let Some(hi) = range.hi {
                        self.trees.wait_mut().store.lost.insert(tree, range.lo, hi, damage.clone());
                    }
                }
                Ok(())
            }
            Err(error) => Err(error),
            Ok(splices) => {
                self.splice(&splices)?;
                let lost = &mut self.trees.wait_mut().store.lost;
                wanted.iter().for_each(|(tree, clone)| lost.clone_range(*tree, clone));
                Ok(())
            }
        }
    }
}

fn owned<'c>(clones: impl Iterator<Item = (TreeId, &'c RangeClone)>) -> Vec<(TreeId, RangeClone)> {
    clones.map(|(tree, clone)| (tree, clone.clone())).collect()
}

#[cfg(test)]
mod tests;
