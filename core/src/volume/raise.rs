//! Reconstructing a lost superblock, when neither slot of the newest checkpoint verifies.
//!
//! Everything that it pointed to still exists, and most of its fields are stored elsewhere as well. The pages of the
//! space map, at fixed places, have epoch, nonce and next MSN. The root of the allocation table is the youngest
//! page of index 0 that they have in use, of the pages of one epoch the highest. The log group that begins with the next MSN continues it. Constant fields are taken from
//! an older superblock or the identity block. The mender counts the remaining fields again.

use std::collections::HashSet;

use bytes::Bytes;

use super::Ring;
use super::create::unborn;
use crate::disk::Disk;
use crate::format::*;
use crate::holds::read_pages;
use crate::ids::*;
use crate::log::{End, Region, scan};
use crate::space::Layout;
use crate::space::Space;
use crate::space::map::{choose_slot, map_hash};
use crate::store::Geometry;
use crate::table::read_page;
use crate::tuning::RAISE_BYTES;

/// Reconstructs the newest superblock, if neither of its slots verifies. Signs of that are: no slot verifies at all;
/// the slots of younger epochs are corrupt; or the log is younger than any valid superblock.
pub fn raised(disk: &Disk, identity: &Identity, ring: &Ring) -> Option<Superblock> {
    let Some(older) = ring.newest() else { return raise(disk, identity, None, Epoch(u64::MAX)) };
    let last = match ring.last_lost() {
        Some(last) => last,
        None => match scan(disk, older).ok()?.end {
            End::Superseded { epoch, .. } => epoch,
            _ => return None,
        },
    };
    raise(disk, identity, Some(older), last)
}

/// Reconstructs the superblock of the newest checkpoint in the space map, up to epoch `last`, if it is younger than
/// `older`. Reads the space map, the log, and the blocks in use.
fn raise(
    disk: &Disk,
    identity: &Identity,
    older: Option<&Superblock>,
    last: Epoch,
) -> Option<Superblock> {
    let layout = Layout::named(identity).ok()?;
    let (birth, next_msn) = newest(disk, identity, &layout, last)?;
    if older.is_some_and(|older| older.birth.epoch >= birth.epoch) {
        return None;
    }
    let mut superblock = Superblock {
        birth,
        next_msn,
        image_blocks: layout.image_blocks,
        map: layout.map.clone(),
        map_pages: layout.map_pages(),
        log_epoch: birth.epoch,
        log_nonce: birth.nonce,
        ..older.cloned().unwrap_or_else(|| plain(identity, &layout))
    };
    let hashes = (0..superblock.map_pages).map(|page| {
        let (_, _, hash, _) = choose_slot(disk, &superblock, page).ok()?;
        Some(hash)
    });
    superblock.map_hash = hashes
        .collect::<Option<Vec<_>>>()
        .map_or(Hash::default(), |hashes| map_hash(hashes.into_iter()));
    let space = Space::load(disk, &superblock).ok();
    superblock.used_blocks = space.as_ref().map_or(0, Space::used_blocks);
    (superblock.table, superblock.holds) = found(disk, &superblock, &layout, space.as_ref());
    // Before a rollback, nodes may have had greater ids than any that is left.
    let next = next_node(disk, &superblock).unwrap_or(superblock.next_node);
    superblock.next_node = superblock.next_node.max(next);
    continue_log(disk, older, &mut superblock);
    // The result must decode like a superblock that was written.
    Superblock::decode(&superblock.encode(), None).ok()
}

/// The superblock of a volume, from the identity block alone.
fn plain(identity: &Identity, layout: &Layout) -> Superblock {
    let log_bytes = layout.log_units * BLOCK_SIZE as u64;
    let geometry = Geometry::of_image(layout.image_blocks * BLOCK_SIZE as u64);
    let birth = Birth { volume: identity.volume, epoch: Epoch(0), nonce: Nonce(0) };
    let superblock = unborn(layout, geometry, ZoneSizes::default().within(log_bytes), birth);
    let features = Features { incompatible: identity.incompatible, ..Features::default() };
    Superblock { features, ..superblock }
}

/// Epoch, nonce and next MSN of the youngest page of the space map up to epoch `last`.
fn newest(disk: &Disk, identity: &Identity, layout: &Layout, last: Epoch) -> Option<(Birth, Msn)> {
    let slots = (0..2 * layout.map_pages()).filter_map(|at| {
        let bytes = disk.read(layout.map.slot(at / 2, (at % 2) as u8), BLOCK_SIZE).ok()?;
        let (seal, page) = MapPage::decode(&bytes, None).ok()?;
        let ours = seal.birth.volume == identity.volume && page.page == at / 2;
        let ours = ours && seal.birth.epoch <= last;
        ours.then_some((seal.birth, page.next_msn))
    });
    slots.max_by_key(|(birth, _)| birth.epoch)
}

/// Passes every block in use that nodes may use to `told`; every such block if the used ones are unknown.
pub(crate) fn each_used(
    disk: &Disk,
    layout: &Layout,
    space: Option<&Space>,
    told: &mut dyn FnMut(BlockNr, &[u8]),
) {
    let nodes = layout.nodes();
    let blocks = RAISE_BYTES as u64 / BLOCK_SIZE as u64;
    for start in nodes.clone().step_by(blocks as usize) {
        let here = start..(start + blocks).min(nodes.end);
        let used = |block: u64| space.is_none_or(|space| space.used().get(block));
        if !here.clone().any(used) {
            continue;
        }
        let len = (here.end - here.start) as usize * BLOCK_SIZE;
        let Ok(bytes) = disk.read_buffer(BlockNr(here.start).byte(), len) else { continue };
        for (block, bytes) in here.zip(bytes.chunks(BLOCK_SIZE)).filter(|(block, _)| used(*block)) {
            told(BlockNr(block), bytes);
        }
        disk.recycle(bytes);
    }
}

/// Whether the checkpoint of a superblock may point to something with this birth.
pub(crate) fn is_known(birth: Birth, superblock: &Superblock) -> bool {
    let ours = superblock.birth;
    let before = birth.epoch < ours.epoch || (birth.epoch, birth.nonce) == (ours.epoch, ours.nonce);
    birth.volume == ours.volume && before
}

/// Scans all blocks in use for the root of the allocation table and for snapshots.
///
/// The root is the youngest of the first pages of each level, since it is rewritten whenever any page is; of those of
/// one epoch, the highest. If none verifies, a corrupt one takes its place. Snapshots are those that the pages of
/// pointers to them list. The dead list of the newest one is counted again, from all dead lists.
fn found(
    disk: &Disk,
    superblock: &Superblock,
    layout: &Layout,
    space: Option<&Space>,
) -> (TableRoot, HoldsRoot) {
    let first = BlockNr(layout.nodes().start);
    let lost = PagePointer { block: first, birth: Epoch(0), hash: Hash::default() };
    let mut best = ((Epoch(0), 0), TableRoot { page: lost, levels: 1 });
    let mut pages: [Option<PagePointer>; limits::HOLD_ROOTS] = Default::default();
    each_used(disk, layout, space, &mut |block, bytes| match Magic::of(bytes) {
        Some(Magic::TablePage) => {
            let Ok((seal, page)) = TablePage::decode(bytes, None) else { return };
            let epoch = seal.birth.epoch;
            if page.index == 0
                && is_known(seal.birth, superblock)
                && best.0 < (epoch, page.level + 1)
            {
                let page_at = PagePointer { block, birth: epoch, hash: seal.hash };
                let levels = u32::from(page.level) + 1;
                best = ((epoch, page.level + 1), TableRoot { page: page_at, levels });
            }
        }
        Some(Magic::HoldsPage) => {
            let Ok((seal, page)) = HoldsPage::decode(bytes, None) else { return };
            let epoch = seal.birth.epoch;
            if page.level() == 1
                && is_known(seal.birth, superblock)
                && let Some(place) = pages.get_mut(page.index as usize)
                && place.is_none_or(|other| other.birth < epoch)
            {
                *place = Some(PagePointer { block, birth: epoch, hash: seal.hash });
            }
        }
        _ => {}
    });
    (best.1, holds(disk, superblock.birth.volume, pages))
}

/// Restores the superblock's fields on snapshots from these pages.
fn holds(
    disk: &Disk,
    volume: VolumeId,
    pages: [Option<PagePointer>; limits::HOLD_ROOTS],
) -> HoldsRoot {
    let mut root = HoldsRoot { pages, ..HoldsRoot::default() };
    let mut seen = HashSet::new();
    for found in read_pages(disk, volume, &root.clone(), &mut |page| seen.insert(page.block)) {
        // Their block counts are computed when the lists are rebuilt.
        root.blocks += 1;
        let Ok(HoldsBody::Holds(holds)) = found.page.map(|page| page.body) else { continue };
        for hold in holds.iter().flatten() {
            match hold.state {
                HoldState::Held => {
                    root.held += 1;
                    root.newest = root.newest.max(hold.epoch);
                }
                HoldState::Going => root.going += 1,
            }
        }
    }
    root
}

/// A node id above all those in the table.
fn next_node(disk: &Disk, superblock: &Superblock) -> Option<NodeId> {
    let TableRoot { page, levels } = superblock.table;
    let (mut pointer, mut level, mut index) = (page, levels as u8 - 1, 0u64);
    loop {
        let page = read_page(disk, superblock.birth.volume, &pointer, level, index).ok()?;
        match page.body {
            PageBody::Pointers(pointers) => {
                let last = pointers.iter().rposition(Option::is_some)?;
                pointer = pointers[last]?;
                (level, index) = (level - 1, index * POINTERS_PER_PAGE as u64 + last as u64);
            }
            PageBody::Entries(entries) => {
                let last = entries.iter().rposition(Option::is_some)?;
                return Some(NodeId(index * ENTRIES_PER_PAGE as u64 + last as u64 + 1));
            }
        }
    }
}

/// Finds the log group that begins where the checkpoint ends. It has the checkpoint's own epoch; or, if that checkpoint
/// was made during a recovery, it belongs to the log that was being replayed, which `older` states.
fn continue_log(disk: &Disk, older: Option<&Superblock>, superblock: &mut Superblock) {
    let region = Region::of(superblock);
    let own = (superblock.birth.epoch, superblock.birth.nonce);
    let before = older.map(|older| (older.log_epoch, older.log_nonce));
    let mut greatest = older.map_or(0, |older| older.first_group);
    let mut left = 4 * region.units * BLOCK_SIZE as u64;
    let mut found = None;
    for unit in 0..region.units {
        let Ok(header) = region.read(disk, unit, BLOCK_SIZE) else { continue };
        let Some(len) = group_length(&header) else { continue };
        let Some(rest) = left.checked_sub(len as u64) else { break };
        left = rest;
        if len as u64 > region.units * BLOCK_SIZE as u64 {
            continue;
        }
        let Ok(bytes) = region.read(disk, unit, len) else { continue };
        let Ok((seal, group)) = Group::decode(&Bytes::from(bytes), None) else { continue };
        let of = (seal.birth.epoch, seal.birth.nonce);
        if seal.birth.volume != superblock.birth.volume || (of != own && Some(of) != before) {
            continue;
        }
        greatest = greatest.max(group.number);
        if group.first_lsn.0 == superblock.next_msn.0 && (found.is_none() || of == own) {
            found = Some((unit, group.number, of));
        }
    }
    let afresh = (0, greatest.saturating_add(1), own);
    let (unit, number, (epoch, nonce)) = found.unwrap_or(afresh);
    (superblock.log_head, superblock.first_group) = (unit, number);
    (superblock.log_epoch, superblock.log_nonce) = (epoch, nonce);
}
