//! Checks snapshots: the extents that each uses besides the live volume and younger ones, and the dead lists between
//! them.
//!
//! Checkpoints are compared from the youngest on, so the younger one of each pair is already checked. Pages that both
//! tables share are skipped, so each page, node and run is read once for all snapshots. Extents that only the older one
//! uses are checked like the nodes of the live volume. They must be on the dead list after it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::nodes::{Edge, Nodes, Pass, Summary};
use super::owners::Owners;
use super::{CheckOptions, Code, Finding, Report, node_place};
use crate::disk::Disk;
use crate::error::Place;
use crate::format::{
    Bounds, Dead, DeadList, Entry, Hold, HoldState, HoldsBody, Inflow, SEAL_BYTES, Seal,
    Superblock, TableRoot,
};
use crate::holds::differ::{Difference, difference};
use crate::holds::read_pages;
use crate::ids::*;
use crate::space::DeadPages;
use crate::volume::superblock_of;

/// The live volume, already checked.
pub(super) struct Live<'l> {
    pub disk: &'l Disk,
    pub superblock: &'l Superblock,
    /// Its table entries.
    pub entries: &'l [(NodeId, Entry)],
    /// The summaries of nodes that verify.
    pub summaries: HashMap<NodeId, Summary>,
}

/// The checkpoint that was checked last, younger than the remaining ones.
struct Younger {
    table: TableRoot,
    epoch: Epoch,
    /// The dead list before it; for the live volume, the list since the newest hold.
    dead: DeadList,
    nodes: u64,
    inflow: Inflow,
    /// Blocks of its nodes and its table.
    blocks: u64,
    /// Whether all of its parts are known.
    is_known: bool,
    /// The earliest birth of a damaged part in the holds so far: all older holds born since have it, too.
    damaged_since: Option<Epoch>,
    dying: u64,
    /// The entries of its nodes, and the summaries of those that verify.
    places: HashMap<NodeId, Entry>,
    summaries: HashMap<NodeId, Summary>,
    /// The nodes that edges to a node are in, each with their number: one where nothing is shared (invariant 6).
    parents: HashMap<NodeId, BTreeMap<NodeId, usize>>,
}

impl Live<'_> {
    /// Checks all holds.
    pub(super) fn check(self, owners: &mut Owners, options: CheckOptions, report: &mut Report) {
        let Live { disk, superblock, entries, summaries } = self;
        let live = owners.count() - owners.fixed_count();
        let root = &superblock.holds;
        let mut holds = all(disk, superblock, owners, report);
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.epoch));
        counts(superblock, &holds, report);
        let mut parents: HashMap<NodeId, BTreeMap<NodeId, usize>> = HashMap::new();
        for (id, node) in &summaries {
            for Edge { child, .. } in &node.children {
                *parents.entry(*child).or_default().entry(*id).or_default() += 1;
            }
        }
        let mut younger = Younger {
            table: superblock.table,
            epoch: superblock.birth.epoch,
            dead: root.dead,
            nodes: entries.len() as u64,
            dying: superblock.dying,
            inflow: superblock.inflow,
            blocks: live,
            is_known: report.findings.iter().all(|finding| {
                finding.code != Code::TablePageInvalid && finding.code != Code::HeadInvalid
            }),
            damaged_since: None,
            places: entries.iter().copied().collect(),
            parents,
            summaries,
        };
        let is_whole = report.findings.iter().all(|finding| finding.code != Code::HoldsInvalid);
        // If some holds are unreadable, the dead lists between others cannot be judged.
        younger.is_known &= is_whole;
        let mut rests: Vec<DeadList> = Vec::new();
        for hold in &holds {
            if hold.state == HoldState::Going {
                rests.push(hold.dead);
                continue;
            }
            let check = HoldCheck { disk, superblock, hold, are_all: is_whole, options };
            younger = check.check(younger, std::mem::take(&mut rests), owners, report);
        }
        // Extents that died before the oldest hold are kept by nothing.
        let oldest =
            Lists { disk, superblock, older: Epoch(0), younger: younger.epoch, are_all: is_whole };
        oldest.check(is_whole.then(Vec::new), younger.dead, &rests, owners, report);
        let held = owners.count() - owners.fixed_count() - live;
        if owners.is_complete() && held != root.blocks {
            let detail = format!(
                "snapshots alone use {held} blocks, and the superblock says {}",
                root.blocks
            );
            report.add(Code::HoldWrong, Place::Image, detail);
        }
    }
}

/// Reads all holds.
fn all(
    disk: &Disk,
    superblock: &Superblock,
    owners: &mut Owners,
    report: &mut Report,
) -> Vec<Hold> {
    let mut pages = Report::default();
    let mut enter = |pointer: &crate::format::PagePointer| {
        let extent = Extent { start: pointer.block, blocks: 1 };
        owners.take(extent, || Place::Byte(pointer.block.byte()), &mut pages)
    };
    let found = read_pages(disk, superblock.birth.volume, &superblock.holds, &mut enter);
    report.findings.append(&mut pages.findings);
    let mut holds = Vec::new();
    for found in found {
        match found.page {
            Ok(page) => {
                if let HoldsBody::Holds(here) = page.body {
                    holds.extend(here.into_iter().flatten().map(|hold| *hold));
                }
            }
            Err(error) => {
                report.add_error(Code::HoldsInvalid, &error);
                owners.mark_incomplete();
            }
        }
    }
    holds
}

/// Checks the counts of all holds together.
fn counts(superblock: &Superblock, holds: &[Hold], report: &mut Report) {
    let root = &superblock.holds;
    let is_whole = report.findings.iter().all(|finding| finding.code != Code::HoldsInvalid);
    let held: Vec<&Hold> = holds.iter().filter(|hold| hold.state == HoldState::Held).collect();
    let newest = held.first().map_or(Epoch(0), |hold| hold.epoch);
    let found = (held.len() as u64, (holds.len() - held.len()) as u64, newest);
    let stated = (u64::from(root.held), u64::from(root.going), root.newest);
    if is_whole && found != stated {
        let text = |(held, going, newest): (u64, u64, Epoch)| {
            format!("{held} and {going} that are being dropped, the newest of {newest}")
        };
        let detail = format!("there are {}, and the superblock says {}", text(found), text(stated));
        report.add(Code::HoldWrong, Place::Image, detail);
    }
    let (mut names, mut epochs) = (HashSet::new(), HashSet::new());
    for hold in holds {
        if !epochs.insert(hold.epoch) {
            report.add(Code::HoldWrong, Place::Image, format!("two snapshots of {}", hold.epoch));
        }
        if hold.epoch > superblock.birth.epoch {
            let detail = format!("a snapshot of {}, which is yet to come", hold.epoch);
            report.add(Code::HoldWrong, Place::Image, detail);
        }
    }
    for hold in held.iter().filter(|hold| !names.insert(&hold.name)) {
        let name = crate::text::printable(hold.name.as_bytes());
        report.add(Code::HoldWrong, Place::Image, format!("two snapshots '{name}'"));
    }
}

/// A hold to be checked, and what the check needs.
struct HoldCheck<'h> {
    disk: &'h Disk,
    superblock: &'h Superblock,
    hold: &'h Hold,
    /// Whether all existing holds are known.
    are_all: bool,
    options: CheckOptions,
}

impl HoldCheck<'_> {
    /// Checks the extents that this hold uses and `younger` does not, and the dead list between them. Returns the state
    /// of the hold.
    fn check(
        &self,
        younger: Younger,
        rests: Vec<DeadList>,
        owners: &mut Owners,
        report: &mut Report,
    ) -> Younger {
        let HoldCheck { disk, superblock, hold, are_all, options } = *self;
        let (volume, mut found) = (superblock.birth.volume, Report::default());
        let mut enter = |pointer: &crate::format::PagePointer| {
            let extent = Extent { start: pointer.block, blocks: 1 };
            owners.take(extent, || Place::Byte(pointer.block.byte()), &mut found)
        };
        let Difference { older, younger: gone, shared, recounted } =
            difference(disk, volume, hold.table, Some(younger.table), &mut enter);
        for error in &older.errors {
            found.add_error(Code::TablePageInvalid, error);
            owners.mark_incomplete();
        }
        let is_known = younger.is_known && older.errors.is_empty() && gone.errors.is_empty();
        let of_hold = superblock_of(superblock, hold);
        owners.share(shared);
        let mut entries = older.nodes.clone();
        entries.sort_by_key(|(id, _)| *id);
        let mut nodes = Nodes::default();
        let pass = Pass::new(disk, &of_hold, &entries, options);
        let leaves = pass.internals(owners, &mut nodes, &mut ());
        pass.leaves(&leaves, &mut nodes, &mut ());
        owners.share(HashSet::new());
        nodes.tell(&mut found);
        for (id, entry) in &entries {
            if *id >= hold.next_node || entry.birth > hold.epoch {
                let detail = format!("{id} of {} is of the future", entry.birth);
                found.add(Code::EntryWrong, node_place(*id, entry.extent), detail);
            }
        }
        let blocks_of = |part: &crate::holds::differ::Part| {
            let dead = part.dead(disk, hold.epoch).unwrap_or_default();
            dead.iter().map(Dead::blocks).sum::<u64>()
        };
        let blocks = (younger.blocks + blocks_of(&older)).saturating_sub(blocks_of(&gone));
        let mut state = Younger {
            table: hold.table,
            epoch: hold.epoch,
            dead: hold.dead,
            nodes: (younger.nodes + older.nodes.len() as u64)
                .saturating_sub(gone.nodes.len() as u64),
            dying: younger.dying.saturating_add(older.dying).saturating_sub(gone.dying),
            inflow: younger.inflow + older.inflow - gone.inflow,
            blocks,
            is_known,
            ..younger
        };
        for (id, references) in &recounted {
            if let Some(known) = state.places.get_mut(id) {
                known.references = *references;
            }
        }
        let changed = Changed {
            nodes: &entries,
            gone: &gone.nodes,
            recounted: recounted.iter().map(|(id, _)| *id).collect(),
            summaries: nodes.summaries,
        };
        let shares = superblock.features.shares();
        edges(&mut state, changed, shares, is_known, &mut found);
        if is_known {
            self.numbers(&state, report);
        }
        let name = crate::text::printable(hold.name.as_bytes());
        // A finding that cannot be attributed to a node is attributed to this hold alone.
        let birth_of = |finding: &Finding| match &finding.place {
            Place::Node { id, .. } | Place::Part { id, .. } => {
                let at = entries.binary_search_by_key(id, |(id, _)| *id).ok()?;
                Some(entries[at].1.birth)
            }
            _ => None,
        };
        // Parts that the device failed to read may be intact.
        let lost = found.findings.iter().filter(|finding| finding.code != Code::ReadFailed);
        let births = lost.map(|finding| birth_of(finding).unwrap_or(hold.epoch));
        state.damaged_since = births.chain(state.damaged_since).min();
        if state.damaged_since.is_some_and(|since| since <= hold.epoch) {
            report.damaged_holds.push(hold.name.clone());
        }
        for finding in found.findings {
            let detail = format!(
                "snapshot '{name}': {} {}: {}",
                finding.code.name(),
                finding.code.problem().title,
                finding.detail
            );
            report.add(Code::SnapshotDamaged, finding.place, detail);
        }
        // All extents of both are known, so the expected dead list is, too.
        let expected = is_known.then(|| older.dead(disk, younger.epoch).ok()).flatten();
        let lists = Lists { disk, superblock, older: hold.epoch, younger: younger.epoch, are_all };
        lists.check(expected, younger.dead, &rests, owners, report);
        state
    }

    /// Checks the counts of a hold.
    fn numbers(&self, found: &Younger, report: &mut Report) {
        let hold = self.hold;
        let counts = [
            ("nodes", hold.nodes, found.nodes),
            ("nodes without edges", hold.dying, found.dying),
            ("blocks in use", hold.used_blocks, found.blocks),
            (
                "messages may make leaves longer",
                hold.inflow.growth.messages,
                found.inflow.growth.messages,
            ),
            ("is by how many bytes they may", hold.inflow.growth.bytes, found.inflow.growth.bytes),
            ("bytes are pending", hold.inflow.bytes, found.inflow.bytes),
        ];
        let name = crate::text::printable(hold.name.as_bytes());
        for (what, stated, found) in counts.iter().filter(|(_, stated, found)| stated != found) {
            let detail = format!("snapshot '{name}', {what}: {found}, and it says {stated}");
            report.add(Code::HoldWrong, Place::Image, detail);
        }
    }
}

/// The nodes of a hold that differ from those of the younger checkpoint.
struct Changed<'c> {
    /// Those of the hold.
    nodes: &'c [(NodeId, Entry)],
    /// Those of the younger one.
    gone: &'c [(NodeId, Entry)],
    /// Those that only have another number of edges.
    recounted: Vec<NodeId>,
    /// The summaries of the nodes of the hold that verify.
    summaries: HashMap<NodeId, Summary>,
}

/// Checks the edges that a hold has and the younger checkpoint has not: each must refer to a node of its height, tree
/// and bounds, and each node have as many as its entry states.
fn edges(
    state: &mut Younger,
    changed: Changed<'_>,
    shares: bool,
    is_known: bool,
    report: &mut Report,
) {
    let Changed { nodes, gone, recounted, summaries } = changed;
    // The nodes with other edges than before.
    let mut children: BTreeSet<NodeId> = recounted.into_iter().collect();
    for (id, _) in gone {
        state.places.remove(id);
        children.insert(*id);
        for Edge { child, .. } in state.summaries.remove(id).iter().flat_map(|node| &node.children)
        {
            if let Some(parents) = state.parents.get_mut(child) {
                parents.remove(id);
            }
            children.insert(*child);
        }
    }
    state.places.extend(nodes.iter().copied());
    children.extend(nodes.iter().map(|(id, _)| *id));
    for (id, node) in summaries {
        for Edge { child, .. } in &node.children {
            *state.parents.entry(*child).or_default().entry(id).or_default() += 1;
            children.insert(*child);
        }
        state.summaries.insert(id, node);
    }
    let mut parents = BTreeSet::new();
    for id in &children {
        let of_node = state.parents.get(id).into_iter().flatten();
        let is_root = TreeId::ALL.iter().any(|tree| tree.root() == *id);
        let mut found = usize::from(is_root);
        for (parent, edges) in of_node {
            found += edges;
            parents.insert(*parent);
        }
        let Some(Entry { extent, references, .. }) = state.places.get(id) else {
            if found > 0 && is_known {
                let place = Place::Node { id: *id, byte: None };
                report.add(Code::NodeMissing, place, "an edge leads to it");
            }
            continue;
        };
        if found != *references as usize && is_known || *references != 1 && !shares {
            let detail = format!("{references} references, but {found} edges lead to it");
            report.add(Code::EntryWrong, node_place(*id, *extent), detail);
        }
    }
    let mut wrong = BTreeSet::new();
    for parent in parents.iter().filter_map(|id| state.summaries.get(id)) {
        for edge in parent.children.iter().filter(|edge| children.contains(&edge.child)) {
            let Some(node) = state.summaries.get(&edge.child) else { continue };
            let is_meant = (node.tree, node.height.0 + 1) == (parent.tree, parent.height.0)
                && node.bounds == edge.keys
                && (!edge.has_lens || shares);
            if !is_meant {
                wrong.insert(edge.child);
            }
        }
    }
    for id in wrong {
        if let Some(Entry { extent, .. }) = state.places.get(&id) {
            let detail = "it is not what its edge calls for";
            report.add(Code::NodeWrong, node_place(id, *extent), detail);
        }
    }
    for tree in TreeId::ALL {
        if let Some(root) = state.summaries.get(&tree.root())
            && (root.tree != tree || root.bounds != Bounds::default())
        {
            let place = Place::Node { id: tree.root(), byte: None };
            report.add(Code::NodeWrong, place, "it is not a root for all keys");
        }
    }
}

/// The dead lists between two kept checkpoints, or between one and the live volume.
struct Lists<'l> {
    disk: &'l Disk,
    superblock: &'l Superblock,
    older: Epoch,
    younger: Epoch,
    /// Whether all existing holds are known.
    are_all: bool,
}

impl Lists<'_> {
    /// Compares the list `dead`, and the rest of the lists of holds being dropped, with the expected records.
    fn check(
        &self,
        expected: Option<Vec<Dead>>,
        dead: DeadList,
        rests: &[DeadList],
        owners: &mut Owners,
        report: &mut Report,
    ) {
        let (mut found, mut is_whole) = (Vec::new(), true);
        for (at, list) in std::iter::once(&dead).chain(rests).enumerate() {
            let of = self.read(*list, owners, report);
            is_whole &= of.is_some();
            for record in of.into_iter().flatten().filter(|_| self.are_all) {
                let kept = record.birth <= self.older;
                let place = || Place::Byte(record.extent.start.byte());
                if !self.has_died(&record) || (!kept && at == 0) {
                    let detail = format!(
                        "{} was born in {} and died in {}, between {} and {}",
                        record.extent, record.birth, record.died, self.older, self.younger
                    );
                    report.add(Code::DeadWrong, place(), detail);
                } else if kept {
                    found.push(record);
                } else {
                    self.lone(&record, owners, report);
                }
            }
        }
        let Some(expected) = expected.filter(|_| is_whole) else { return };
        // Tables do not record the epoch of death.
        let died = self.younger;
        let mut found: Vec<Dead> =
            found.into_iter().map(|record| Dead { died, ..record }).collect();
        found.sort_unstable();
        let (mut here, mut there) = (found.iter().peekable(), expected.iter().peekable());
        let between = format!("between {} and {}", self.older, self.younger);
        loop {
            let (record, what) = match (here.peek(), there.peek()) {
                (Some(a), Some(b)) if a == b => {
                    here.next();
                    there.next();
                    continue;
                }
                (Some(a), Some(b)) if a < b => {
                    (here.next(), "is on the list, and no table says so")
                }
                (Some(_), None) => (here.next(), "is on the list, and no table says so"),
                (_, Some(_)) => (there.next(), "is not on the list"),
                (None, None) => break,
            };
            let Some(Dead { extent, owner, birth, .. }) = record else { break };
            let detail =
                format!("{extent} of {owner}, born in {birth}, that died {between} {what}");
            report.add(Code::DeadWrong, Place::Byte(extent.start.byte()), detail);
        }
    }

    /// Checks an extent that only a hold being dropped uses.
    fn lone(&self, record: &Dead, owners: &mut Owners, report: &mut Report) {
        let place = || Place::Byte(record.extent.start.byte());
        if !owners.take(record.extent, place, report) {
            return;
        }
        let maps =
            self.disk.blocks_in(record.extent).map(|all| all - u64::from(record.extent.blocks));
        let sealed = self.disk.read(record.extent.start.byte(), SEAL_BYTES).unwrap_or_default();
        let birth =
            Seal::birth_of(&sealed).filter(|birth| birth.volume == self.superblock.birth.volume);
        let birth = birth.map(|birth| birth.epoch);
        if maps.ok() != Some(record.maps.into()) || birth != Some(record.birth) {
            let detail =
                format!("{} with {} maps is not of {}", record.extent, record.maps, record.birth);
            report.add(Code::DeadWrong, place(), detail);
        }
    }

    fn has_died(&self, record: &Dead) -> bool {
        record.died <= self.younger && (record.died > self.older || self.older == Epoch(0))
    }

    fn read(&self, list: DeadList, owners: &mut Owners, report: &mut Report) -> Option<Vec<Dead>> {
        let mut pages = DeadPages::new(self.disk, self.superblock.birth.volume, list);
        let mut all = Vec::new();
        while let Some(place) = pages.next_place() {
            let extent = Extent { start: place.block, blocks: 1 };
            let taken = owners.take(extent, || Place::Byte(place.block.byte()), report);
            match pages.next_page() {
                Ok(Some((_, page))) if taken => all.extend(page.dead),
                Ok(_) => return None,
                Err(error) => {
                    report.add_error(Code::DeadWrong, &error);
                    owners.mark_incomplete();
                    return None;
                }
            }
        }
        Some(all)
    }
}
