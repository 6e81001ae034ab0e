//! A state opened by the root page of an allocation table, and nothing else.
//!
//! The hash of that page covers all keys, values and pending messages of a checkpoint. A reader that knows it needs no
//! superblock and no space map for a lookup, and everything it returns is verified by that hash.

use std::sync::Arc;

use super::create::unborn;
use super::open::Parts;
use super::{Mode, OpenOptions, Volume};
use crate::device::Device;
use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::{IMAGE_BLOCKS_MIN, LOG_BYTES_MIN};
use crate::format::{Identity, PagePointer, Superblock, TablePage, TableRoot, ZoneSizes};
use crate::ids::*;
use crate::space::Layout;
use crate::space::Space;
use crate::store::{CacheBudget, Geometry};
use crate::table::Table;

impl Volume {
    /// Opens the state whose root page is at `block` and has this hash; read-only. Reads that page, and later only what
    /// lookups need. The log and everything else at fixed places is ignored.
    pub fn of_root(
        device: Arc<dyn Device>,
        block: BlockNr,
        hash: Hash,
        cache: CacheBudget,
    ) -> Result<Volume> {
        let disk = Disk::new(device);
        let place = Place::Byte(block.byte());
        let bytes = disk.read(block.byte(), BLOCK_SIZE)?;
        let (seal, page) = TablePage::decode(&bytes, None)
            .map_err(|error| Error::corrupt(place.clone(), error))?;
        if seal.hash != hash || page.index != 0 {
            let found = format!("{}, of page {}", seal.hash, page.index);
            let expected = format!("{hash}, of page 0");
            return Err(Error::corrupt(
                place,
                Fault::mismatch("hash of the root", expected, found),
            ));
        }
        let pointer = PagePointer { block, birth: seal.birth.epoch, hash };
        let root = TableRoot { page: pointer, levels: u32::from(page.level) + 1 };
        let volume = seal.birth.volume;
        // Nothing is allocated, so the smallest space suffices.
        let bytes = IMAGE_BLOCKS_MIN * BLOCK_SIZE as u64;
        let layout = Layout::new(bytes, LOG_BYTES_MIN)?;
        let zones = ZoneSizes::default();
        let nothing = unborn(&layout, Geometry::of_image(bytes), zones, seal.birth);
        let superblock = Superblock { birth: seal.birth, table: root, ..nothing };
        let identity = Identity {
            volume,
            uuid: volume.0,
            label: String::new(),
            image_blocks: layout.image_blocks,
            ring: layout.ring,
            log_units: layout.log_units,
            map: layout.map.clone(),
            incompatible: 0,
            error_met: false,
        };
        let space = Space::empty(disk.clone(), &layout);
        let table = Table::open(disk.clone(), volume, root).sharing(true);
        let newest = superblock.birth.epoch;
        let parts = Parts { disk, identity, superblock, newest, space, table };
        let options = OpenOptions::new(Mode::Checkpoint, Box::new(|| 0));
        Volume::of_parts(parts, OpenOptions { cache, ..options }, None)
    }
}
