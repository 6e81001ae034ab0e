//! Raising a superblock again, where neither slot of the newest checkpoint verifies.
//!
//! All that it leads to is still there, and most of what it said stands elsewhere as well: the pages of the space map, at
//! fixed places, say epoch, nonce and the next MSN; the root of the allocation table is the highest page that they have in use;
//! the group of the log that begins with the next MSN continues it; and what does not change is what an older superblock
//! says, or the identity block. What neither says is counted afresh by the mender.

use bytes::Bytes;

use super::Ring;
use super::create::unborn;
use crate::disk::Disk;
use crate::format::*;
use crate::ids::*;
use crate::log::{End, Region, scan};
use crate::space::Layout;
use crate::space::Space;
use crate::space::map::{choose_slot, map_hash};
use crate::store::Geometry;
use crate::table::read_page;
use crate::tuning::RAISE_BYTES;

/// What the newest superblock said, if neither of its slots verifies: no slot at all does; or those of younger epochs have
/// been written over; or the log is younger than any that does.
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

/// The superblock of the newest checkpoint that the space map knows, up to epoch `last`, if it is younger than `older`; as far
/// as it can be known. Reads the space map, the log, and the blocks in use.
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
    superblock.table = table(disk, &superblock, &layout, space.as_ref());
    superblock.next_node = next_node(disk, &superblock).unwrap_or(superblock.next_node);
    let own = RootRef { epoch: birth.epoch, held: false, table: superblock.table };
    superblock.roots.insert(0, own);
    superblock.roots.truncate(limits::ROOTS_MAX);
    continue_log(disk, older, &mut superblock);
    // Whoever reads it must find one that could have been written.
    Superblock::decode(&superblock.encode(), None).ok()
}

/// What a superblock says of a volume of which nothing else is known.
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

/// The root of the allocation table: of the first pages of each level that are in use, the highest one, and of those the
/// youngest. Where there is none that verifies, one that does not stands for it.
fn table(
    disk: &Disk,
    superblock: &Superblock,
    layout: &Layout,
    space: Option<&Space>,
) -> TableRoot {
    let nodes = layout.nodes();
    let lost = PagePointer { block: BlockNr(nodes.start), birth: Epoch(0), hash: Hash::default() };
    let mut best = ((0, Epoch(0)), TableRoot { page: lost, levels: 1 });
    let blocks = RAISE_BYTES as u64 / BLOCK_SIZE as u64;
    for start in nodes.clone().step_by(blocks as usize) {
        let here = start..(start + blocks).min(nodes.end);
        let used = |block: u64| space.is_none_or(|space| space.used().get(block));
        if !here.clone().any(used) {
            continue;
        }
        let len = (here.end - here.start) as usize * BLOCK_SIZE;
        let Ok(bytes) = disk.read_buffer(BlockNr(here.start).byte(), len) else { continue };
        for (at, bytes) in bytes.chunks(BLOCK_SIZE).enumerate() {
            let block = here.start + at as u64;
            if !used(block) || Magic::of(bytes) != Some(Magic::TablePage) {
                continue;
            }
            let Ok((seal, page)) = TablePage::decode(bytes, None) else { continue };
            let Birth { volume, epoch, nonce } = seal.birth;
            let ours = superblock.birth;
            let known = epoch < ours.epoch || (epoch, nonce) == (ours.epoch, ours.nonce);
            if page.index == 0 && volume == ours.volume && known && best.0 < (page.level + 1, epoch)
            {
                let page_at = PagePointer { block: BlockNr(block), birth: epoch, hash: seal.hash };
                let levels = u32::from(page.level) + 1;
                best = ((page.level + 1, epoch), TableRoot { page: page_at, levels });
            }
        }
        disk.recycle(bytes);
    }
    best.1
}

/// A number that is greater than those of all nodes in the table.
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

/// Finds the group of the log that begins where the checkpoint ends. It is of the checkpoint's own epoch; or, if that was
/// made in the middle of a recovery, of the log that was being replayed, which `older` knows.
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
