//! Determines the owner of each block, and compares with the space map.

use std::collections::HashSet;

use super::{Code, Report};
use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{Birth, FormatError, Magic, MapPage, Seal, Superblock};
use crate::ids::*;
use crate::space::Bitmap;
use crate::space::Layout;
use crate::space::map::{is_page, load_bits, map_hash};

/// The blocks with known owners.
pub(super) struct Owners {
    disk: Disk,
    birth: Birth,
    owned: Bitmap,
    fixed: Bitmap,
    /// Extents that may be taken again, because two checkpoints share them.
    shared: HashSet<Extent>,
    /// Whether an unreadable structure may own further blocks.
    incomplete: bool,
}

impl Owners {
    /// Owners with only the fixed regions taken.
    pub(super) fn new(disk: &Disk, superblock: &Superblock, report: &mut Report) -> Owners {
        let blocks = superblock.image_blocks;
        let mut fixed = Bitmap::new(blocks);
        match Layout::of(superblock) {
            Ok(layout) => layout.fixed().into_iter().for_each(|(start, count)| {
                fixed.set(start.0, count);
            }),
            Err(error) => report.add_error(Code::NoSuperblock, &error),
        }
        Owners {
            disk: disk.clone(),
            birth: superblock.birth,
            owned: fixed.clone(),
            fixed,
            shared: HashSet::new(),
            incomplete: false,
        }
    }

    /// Notes that a structure is unreadable that may own further blocks: unowned blocks may belong to it.
    pub(super) fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Whether all owners are known.
    pub(super) fn is_complete(&self) -> bool {
        !self.incomplete
    }

    /// Number of owned blocks, including fixed regions.
    pub(super) fn count(&self) -> u64 {
        self.owned.set_count()
    }

    /// Number of blocks in fixed regions.
    pub(super) fn fixed_count(&self) -> u64 {
        self.fixed.set_count()
    }

    /// Allows these extents to be taken again, because two checkpoints share them.
    pub(super) fn share(&mut self, shared: HashSet<Extent>) {
        self.shared = shared;
    }

    /// The owned extents outside the fixed regions.
    pub(super) fn extents(&self) -> Vec<Extent> {
        difference(&self.owned, &self.fixed)
    }

    /// Takes `extent`, with its maps if it is scattered, for the owner at `place`. Returns false, with a finding, if
    /// that is not possible.
    pub(super) fn take(
        &mut self,
        extent: Extent,
        place: impl Fn() -> Place,
        report: &mut Report,
    ) -> bool {
        if self.shared.contains(&extent) {
            return true;
        }
        let taken = match self.disk.blocks_of(extent).and_then(|parts| self.ours(extent, parts)) {
            Ok(parts) => parts.into_iter().all(|part| self.take_row(part, &place, report)),
            Err(error) => {
                report.add(Code::ScatterMapInvalid, place(), error);
                false
            }
        };
        // Then its true place is unknown.
        self.incomplete |= !taken;
        taken
    }

    /// Checks that the maps of an extent, if any, belong to this volume, and are no younger than the checkpoint.
    /// Returns its blocks.
    fn ours(&self, extent: Extent, blocks: Vec<Extent>) -> Result<Vec<Extent>> {
        let is_scattered = extent.start.map().is_some();
        for map in blocks.iter().take_while(|part| is_scattered && part.blocks == 1) {
            let bytes = self.disk.read(map.start.byte(), BLOCK_SIZE)?;
            let birth =
                Seal::birth_of(&bytes).filter(|_| Magic::of(&bytes) == Some(Magic::ScatterMap));
            let Some(birth) = birth else { break };
            let ours = self.birth;
            if birth.volume != ours.volume || birth.epoch > ours.epoch {
                let text = |birth: Birth| format!("{} of epoch {}", birth.volume, birth.epoch.0);
                let fault = Fault::mismatch("volume of a map", text(ours), text(birth));
                return Err(Error::corrupt(Place::Byte(map.start.byte()), fault));
            }
        }
        Ok(blocks)
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

    /// Compares the owners with the space map.
    pub(super) fn compare(&self, disk: &Disk, superblock: &Superblock, report: &mut Report) {
        let mut marked = Bitmap::new(superblock.image_blocks);
        let (mut hashes, mut youngest) = (Vec::new(), Epoch(0));
        let mut torn = Vec::new();
        for page in 0..superblock.map_pages {
            let found = check_page(disk, superblock, page, &mut marked, &mut torn, report);
            hashes.extend(found.map(|(hash, _)| hash));
            youngest = youngest.max(found.map_or(Epoch(0), |(_, epoch)| epoch));
        }
        if youngest != superblock.birth.epoch {
            let detail = format!("no page is of epoch {}", superblock.birth.epoch.0);
            report.add(Code::SpaceMapWrong, Place::Byte(superblock.map.start().byte()), detail);
        }
        let found = map_hash(hashes.into_iter());
        // If all valid slots agree with the superblock, a damaged slot was just being written.
        let code = match found == superblock.map_hash {
            true => Code::MapSlotTorn,
            false => Code::MapSlotInvalid,
        };
        torn.into_iter().for_each(|(place, fault)| report.add(code, place, fault));
        if found != superblock.map_hash {
            let detail = format!("expected hash {}, found {found}", superblock.map_hash);
            report.add(Code::SpaceMapWrong, Place::Byte(superblock.map.start().byte()), detail);
        }
        report.counts.used_blocks = self.owned.set_count();
        report.counts.image_blocks = superblock.image_blocks;
        if self.is_complete() && superblock.used_blocks != self.owned.set_count() {
            let detail = format!(
                "the superblock says {} blocks in use, not {}",
                superblock.used_blocks,
                self.owned.set_count()
            );
            report.add(Code::SpaceMapWrong, Place::Image, detail);
        }
        for (code, here, there) in
            [(Code::BlockUnmarked, &self.owned, &marked), (Code::BlockLost, &marked, &self.owned)]
        {
            if code == Code::BlockLost && !self.is_complete() {
                continue;
            }
            for extent in difference(here, there) {
                report.add(code, Place::Byte(extent.start.byte()), format!("blocks {extent}"));
            }
        }
    }
}

/// Checks both slots of a page of the space map, and marks the blocks of the valid one. Slots that do not verify are
/// added to `torn`.
fn check_page(
    disk: &Disk,
    superblock: &Superblock,
    page: u64,
    marked: &mut Bitmap,
    torn: &mut Vec<(Place, FormatError)>,
    report: &mut Report,
) -> Option<(Hash, Epoch)> {
    let mut best: Option<(Epoch, MapPage, Hash)> = None;
    for slot in 0..2 {
        let at = superblock.map.slot(page, slot);
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
            Ok((seal, map)) if is_page(&seal, &map, superblock, page) => {
                let epoch = seal.birth.epoch;
                if epoch <= superblock.birth.epoch
                    && best.as_ref().is_none_or(|(other, ..)| *other < epoch)
                {
                    best = Some((epoch, map, seal.hash));
                }
            }
            Ok(_) => report.add(
                Code::MapSlotInvalid,
                Place::Byte(at),
                format!("not page {page} of this checkpoint"),
            ),
            Err(error) => torn.push((Place::Byte(at), error)),
        }
    }
    let (epoch, map, hash) = best?;
    if let Err(fault) = load_bits(marked, &map) {
        report.add(Code::MapSlotInvalid, Place::Byte(superblock.map.slot(page, 0)), fault);
    }
    Some((hash, epoch))
}

/// The extents that are set in `a` and clear in `b`.
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
