//! Pages of one block that a pointer with a hash refers to: of the allocation table, of holds, of dead lists.

use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::{FormatError, PagePointer, Seal, Trace};
use crate::ids::*;

/// Decodes a page.
type Decode<T> = fn(&[u8], Option<&mut dyn Trace>) -> std::result::Result<(Seal, T), FormatError>;

/// Field names for errors, when hash, volume or epoch of a page differ from its pointer.
pub(crate) struct Names {
    /// Name of the hash field.
    pub hash: &'static str,
    /// Name of the volume field.
    pub volume: &'static str,
    /// Name of the epoch field.
    pub epoch: &'static str,
}

/// Reads a page, and verifies that it matches `pointer`.
pub(crate) fn read<T>(
    disk: &Disk,
    volume: VolumeId,
    pointer: &PagePointer,
    decode: Decode<T>,
    names: &Names,
) -> Result<T> {
    let place = Place::Byte(pointer.block.byte());
    let block = disk.read(pointer.block.byte(), BLOCK_SIZE)?;
    let (seal, page) =
        decode(&block, None).map_err(|error| Error::corrupt(place.clone(), error))?;
    let fault = if seal.hash != pointer.hash {
        Fault::mismatch(names.hash, pointer.hash, seal.hash)
    } else if seal.birth.volume != volume {
        Fault::mismatch(names.volume, volume, seal.birth.volume)
    } else if seal.birth.epoch != pointer.birth {
        Fault::mismatch(names.epoch, pointer.birth, seal.birth.epoch)
    } else {
        return Ok(page);
    };
    Err(Error::corrupt(place, fault))
}
