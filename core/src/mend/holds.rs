//! Snapshots of a damaged volume: restores those that can be followed, and rebuilds the dead lists from their tables.
//!
//! A snapshot whose pages cannot all be followed is given up, since its extents are unknown. One that has only lost
//! contents is dropped later, when the volume is sound again.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind::UnexpectedEof;

use super::Change;
use crate::disk::Disk;
use crate::error::{Error, Place, Result};
use crate::format::limits::HOLD_ROOTS;
use crate::format::{
    Dead, Hold, HoldState, HoldsBody, HoldsPage, Inflow, Magic, POINTERS_PER_PAGE, Superblock,
};
use crate::holds::differ::{Difference, Part, difference};
use crate::holds::read_pages;
use crate::ids::*;
use crate::space::{DeadPages, Layout, Space};
use crate::text::printable;
use crate::volume::{each_used, is_known};

/// The remaining snapshots, the oldest first, each with the dead list between the previous one and itself; and the
/// newest dead list.
#[derive(Default)]
pub(super) struct Left {
    pub holds: Vec<(Hold, Vec<Dead>)>,
    pub dead: Vec<Dead>,
    /// Whether a node of one of them has several edges or none, or an edge has a lens.
    pub shares: bool,
}

/// Claims the blocks of all snapshots that can be followed. Those of the live volume, `live`, have been claimed.
pub(super) fn claim(
    disk: &Disk,
    superblock: &Superblock,
    live: &HashSet<Extent>,
    space: &mut Space,
    (now, is_reconstructed): (Epoch, bool),
    changes: &mut Vec<Change>,
) -> Result<Left> {
    let volume = superblock.birth.volume;
    let mut give_up = |what: String| changes.push(Change { place: Place::Image, what });
    let (mut holds, mut lost) = (Vec::new(), Vec::new());
    for found in read_pages(disk, volume, &superblock.holds, &mut unseen()) {
        match found.page.map(|page| page.body) {
            Ok(HoldsBody::Holds(here)) => {
                holds.extend(here.into_iter().flatten().map(|hold| *hold));
            }
            Ok(HoldsBody::Pointers(_)) => {}
            Err(error) if may_be_read(&error) => return Err(error),
            Err(_) if found.level == 1 => lost.push(found.index),
            Err(error) => give_up(format!("the snapshots of a page are given up: {error}")),
        }
    }
    if !lost.is_empty() {
        give_up("a page that leads to snapshots was lost: they were looked for".into());
    }
    if is_reconstructed {
        // The superblock listed the snapshots.
        lost = (0..HOLD_ROOTS as u64).collect();
    }
    if !lost.is_empty() {
        holds.extend(search(disk, superblock, &lost));
    }
    holds.retain(|hold| hold.state == HoldState::Held);
    holds.sort_by_key(|hold| std::cmp::Reverse(hold.epoch));
    holds.dedup();
    let mut epochs = HashSet::new();
    holds.retain(|hold| {
        let is_known = hold.epoch <= superblock.birth.epoch && epochs.insert(hold.epoch);
        if !is_known {
            let name = printable(hold.name.as_bytes());
            give_up(format!(
                "snapshot '{name}' is given up: another is of {}, or that is yet to come",
                hold.epoch
            ));
        }
        is_known
    });
    // The youngest first: the dead list after each belongs to the next younger one, or is the newest dead list.
    let (mut left, mut counted) = (Left::default(), Numbers::default());
    for mut hold in holds {
        let younger = left.holds.last().map(|(hold, _)| (hold.table, hold.epoch));
        let died = younger.map_or(now, |(_, epoch)| epoch);
        let table = younger.map(|(table, _)| table);
        let mut difference = difference(disk, volume, hold.table, table, &mut unseen());
        let name = printable(hold.name.as_bytes());
        let found = parts(disk, &mut difference, died);
        let (mut dead, gone) = match found {
            Ok(found) => found,
            Err(error) if may_be_read(&error) => return Err(error),
            Err(error) => {
                give_up(format!("snapshot '{name}' is given up: {error}"));
                continue;
            }
        };
        let numbers = counted.and(&difference.older, &dead).without(&difference.younger, &gone);
        dead.retain(|dead| younger.is_some() || !live.contains(&dead.extent));
        let extents =
            dead.iter().map(|dead| disk.blocks_of(dead.extent)).collect::<Result<Vec<_>>>();
        if !dead.is_empty() && !space.claim(&extents.unwrap_or_default().concat()) {
            let why = "blocks of it belong to something else too";
            give_up(format!("snapshot '{name}' is given up: {why}"));
            continue;
        }
        counted = numbers;
        left.shares |= difference.older.shares;
        (hold.nodes, hold.used_blocks, hold.inflow, hold.dying) =
            (counted.nodes, counted.blocks, counted.inflow, counted.dying);
        match left.holds.last_mut() {
            Some((_, before)) => *before = dead,
            None => left.dead = dead,
        }
        left.holds.push((hold, Vec::new()));
    }
    left.holds.reverse();
    named_apart(&mut left.holds, changes);
    Ok(left)
}

/// The holds below lost pages of level 1, from pages in use: of each page the youngest version that verifies.
fn search(disk: &Disk, superblock: &Superblock, lost: &[u64]) -> Vec<Hold> {
    let Ok(layout) = Layout::of(superblock) else { return Vec::new() };
    let space = Space::load(disk, superblock).ok();
    let mut found: HashMap<u64, (Epoch, HoldsPage)> = HashMap::new();
    each_used(disk, &layout, space.as_ref(), &mut |_, bytes| {
        if Magic::of(bytes) != Some(Magic::HoldsPage) {
            return;
        }
        let Ok((seal, page)) = HoldsPage::decode(bytes, None) else { return };
        let is_below = page.level() == 0 && lost.contains(&(page.index / POINTERS_PER_PAGE as u64));
        let epoch = seal.birth.epoch;
        if is_below
            && is_known(seal.birth, superblock)
            && found.get(&page.index).is_none_or(|(other, _)| *other < epoch)
        {
            found.insert(page.index, (epoch, page));
        }
    });
    let pages = found.into_values().map(|(_, page)| page.body);
    let holds = pages.filter_map(|body| match body {
        HoldsBody::Holds(holds) => Some(holds.into_iter().flatten()),
        HoldsBody::Pointers(_) => None,
    });
    holds.flatten().map(|hold| *hold).collect()
}

/// The extents that only the older, and only the younger of two checkpoints uses. Fails if not all of them are known.
fn parts(disk: &Disk, difference: &mut Difference, died: Epoch) -> Result<(Vec<Dead>, Vec<Dead>)> {
    let Difference { older, younger, .. } = difference;
    if let Some(error) = older.errors.drain(..).chain(younger.errors.drain(..)).next() {
        return Err(error);
    }
    Ok((older.dead(disk, died)?, younger.dead(disk, died)?))
}

/// Whether the device failed to read, so that nothing is known. A place past its end does not exist.
fn may_be_read(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() != UnexpectedEof)
}

/// The counts of a hold, computed again.
#[derive(Clone, Copy, Default)]
struct Numbers {
    nodes: u64,
    blocks: u64,
    inflow: Inflow,
    dying: u64,
}

impl Numbers {
    fn and(self, part: &Part, dead: &[Dead]) -> Numbers {
        let blocks: u64 = dead.iter().map(Dead::blocks).sum();
        Numbers {
            nodes: self.nodes + part.nodes.len() as u64,
            blocks: self.blocks + blocks,
            inflow: self.inflow + part.inflow,
            dying: self.dying + part.dying,
        }
    }

    fn without(self, part: &Part, dead: &[Dead]) -> Numbers {
        let blocks: u64 = dead.iter().map(Dead::blocks).sum();
        Numbers {
            nodes: self.nodes.saturating_sub(part.nodes.len() as u64),
            blocks: self.blocks.saturating_sub(blocks),
            inflow: self.inflow - part.inflow,
            dying: self.dying.saturating_sub(part.dying),
        }
    }
}

/// A filter that passes each page once: this ends every cycle.
fn unseen() -> impl FnMut(&crate::format::PagePointer) -> bool {
    let mut seen = HashSet::new();
    move |page| seen.insert(page.block)
}

/// Renames snapshots with equal names, by numbers.
fn named_apart(holds: &mut [(Hold, Vec<Dead>)], changes: &mut Vec<Change>) {
    let mut names: HashMap<String, u64> = HashMap::new();
    let taken: HashSet<String> = holds.iter().map(|(hold, _)| hold.name.clone()).collect();
    for (hold, _) in holds {
        let count = names.entry(hold.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            let short: String = hold.name.chars().take(60).collect();
            let free = (*count..)
                .map(|number| format!("{short}.{number}"))
                .find(|name| !taken.contains(name));
            let was = std::mem::replace(&mut hold.name, free.unwrap_or_default());
            let (was, now) = (printable(was.as_bytes()), printable(hold.name.as_bytes()));
            let what = format!("the second snapshot '{was}' is '{now}' now");
            changes.push(Change { place: Place::Image, what });
        }
    }
}

/// The first blocks of all extents that only snapshots use, as far as lists can be read. A search for lost nodes of the
/// live volume must ignore them.
pub(super) fn kept_alone(disk: &Disk, superblock: &Superblock) -> HashSet<BlockNr> {
    let volume = superblock.birth.volume;
    let mut lists = vec![superblock.holds.dead];
    for found in read_pages(disk, volume, &superblock.holds, &mut unseen()) {
        if let Ok(HoldsBody::Holds(holds)) = found.page.map(|page| page.body) {
            lists.extend(holds.iter().flatten().map(|hold| hold.dead));
        }
    }
    let (mut kept, mut seen) = (HashSet::new(), unseen());
    for list in lists {
        let mut pages = DeadPages::new(disk, volume, list);
        while pages.next_place().is_some_and(|page| seen(&page)) {
            let Ok(Some((_, page))) = pages.next_page() else { break };
            kept.extend(page.dead.iter().map(|dead| dead.extent.start));
        }
    }
    kept
}
