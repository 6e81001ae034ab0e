//! Who owns which block, and whether the space map says the same.

use super::{Code, Report};
use crate::device::Disk;
use crate::error::Place;
use crate::format::{MapPage, Superblock};
use crate::ids::*;
use crate::space::Bitmap;
use crate::space::map::{load_bits, map_hash, slot_at};
use crate::volume::Layout;

/// The blocks that something was found to own.
pub(super) struct Owners {
    disk: Disk,
    owned: Bitmap,
    fixed: Bitmap,
}

impl Owners {
    /// Only the fixed regions are owned.
    pub fn new(disk: &Disk, superblock: &Superblock, report: &mut Report) -> Owners {
        let blocks = superblock.image_blocks;
        let mut fixed = Bitmap::new(blocks);
        match Layout::new(blocks * BLOCK_SIZE as u64, superblock.log_units * BLOCK_SIZE as u64) {
            Ok(layout) => layout.fixed().into_iter().for_each(|(start, count)| {
                fixed.set(start.0, count);
            }),
            Err(error) => report.add_error(Code::NoSuperblock, &error),
        }
        Owners { disk: disk.clone(), owned: fixed.clone(), fixed }
    }

    /// What is owned besides the fixed regions.
    pub fn rows(&self) -> Vec<Extent> {
        difference(&self.owned, &self.fixed)
    }

    /// Something at `place` owns `extent`, with its maps if it is scattered. False if it cannot.
    pub fn take(&mut self, extent: Extent, place: impl Fn() -> Place, report: &mut Report) -> bool {
        match self.disk.blocks_of(extent) {
            Ok(parts) => parts.into_iter().all(|part| self.take_row(part, &place, report)),
            Err(error) => {
                report.add_error(Code::MapInvalid, &error);
                false
            }
        }
    }

    fn take_row(&mut self, extent: Extent, place: impl Fn() -> Place, report: &mut Report) -> bool {
        let (start, count) = (extent.start.0, u64::from(extent.blocks));
        if start.checked_add(count).is_none_or(|end| end > self.owned.len()) {
            report.add(
                Code::BlockOutside,
                place(),
                format!("blocks {extent} of {}", self.owned.len()),
            );
            return false;
        }
        if (start..start + count).any(|block| self.fixed.get(block)) {
            report.add(
                Code::BlockOutside,
                place(),
                format!("blocks {extent} reach into a fixed region"),
            );
            return false;
        }
        if self.owned.set(start, count) != count {
            report.add(
                Code::BlockTwice,
                place(),
                format!("blocks {extent} belong to something else too"),
            );
            return false;
        }
        true
    }

    /// Compares with the space map.
    pub fn compare(&self, disk: &Disk, superblock: &Superblock, report: &mut Report) {
        let mut marked = Bitmap::new(superblock.image_blocks);
        let mut hashes = Vec::new();
        for page in 0..superblock.map_pages {
            hashes.extend(check_page(disk, superblock, page, &mut marked, report));
        }
        let found = map_hash(hashes.into_iter());
        if found != superblock.map_hash {
            let detail = format!("expected hash {}, found {found}", superblock.map_hash);
            report.add(Code::MapWrong, Place::Byte(superblock.map_start.byte()), detail);
        }
        report.counts.used_blocks = self.owned.set_count();
        report.counts.image_blocks = superblock.image_blocks;
        if superblock.used_blocks != self.owned.set_count() {
            let detail = format!(
                "the superblock says {} blocks in use, not {}",
                superblock.used_blocks,
                self.owned.set_count()
            );
            report.add(Code::MapWrong, Place::Image, detail);
        }
        for (code, here, there) in
            [(Code::BlockUnmarked, &self.owned, &marked), (Code::BlockLost, &marked, &self.owned)]
        {
            for extent in difference(here, there) {
                report.add(code, Place::Byte(extent.start.byte()), format!("blocks {extent}"));
            }
        }
    }
}

/// Checks both slots of a page of the space map, and marks what the one that counts says.
fn check_page(
    disk: &Disk,
    superblock: &Superblock,
    page: u64,
    marked: &mut Bitmap,
    report: &mut Report,
) -> Option<Hash> {
    let mut best: Option<(Epoch, MapPage, Hash)> = None;
    for slot in 0..2 {
        let at = slot_at(superblock.map_start, page, slot);
        let block = match disk.read(at, BLOCK_SIZE) {
            Ok(block) => block,
            Err(error) => {
                report.add_error(Code::MapSlotInvalid, &error);
                continue;
            }
        };
        if is_zero(&block) {
            continue;
        }
        match MapPage::decode(&block, None) {
            Ok((seal, map)) if seal.birth.volume == superblock.birth.volume && map.page == page => {
                let epoch = seal.birth.epoch;
                if epoch <= superblock.birth.epoch
                    && best.as_ref().is_none_or(|(other, ..)| *other < epoch)
                {
                    best = Some((epoch, map, seal.hash));
                }
            }
            Ok((_, map)) => report.add(
                Code::MapSlotInvalid,
                Place::Byte(at),
                format!("page {} instead of {page}", map.page),
            ),
            Err(error) => report.add(Code::MapSlotInvalid, Place::Byte(at), error),
        }
    }
    let (_, map, hash) = best?;
    if let Err(fault) = load_bits(marked, &map) {
        report.add(
            Code::MapSlotInvalid,
            Place::Byte(slot_at(superblock.map_start, page, 0)),
            fault,
        );
    }
    Some(hash)
}

/// The runs of bits that are set in `a` and clear in `b`.
fn difference(a: &Bitmap, b: &Bitmap) -> Vec<Extent> {
    let mut runs: Vec<Extent> = Vec::new();
    for block in (0..a.len()).filter(|block| a.get(*block) && !b.get(*block)) {
        match runs.last_mut() {
            Some(run) if run.end().0 == block => run.blocks += 1,
            _ => runs.push(Extent { start: BlockNr(block), blocks: 1 }),
        }
    }
    runs
}
