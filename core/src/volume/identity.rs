//! The identity block: reading it, writing it in one write, and finding its contents where it is lost.

use std::sync::Arc;

use crate::device::{Device, SECTOR};
use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::{LABEL_MAX, SUPERBLOCK_SLOTS};
use crate::format::{IDENTITY_AT, Identity, Magic, Superblock};
use crate::ids::*;
use crate::space::ring_of;

/// Reads the identity block.
pub fn read_identity(disk: &Disk) -> Result<Identity> {
    if disk.len() < IDENTITY_AT + BLOCK_SIZE as u64 {
        return Err(Error::NotAnImage(format!("it has only {} bytes", disk.len())));
    }
    let block = disk.read(IDENTITY_AT, BLOCK_SIZE)?;
    if Magic::of(&block) != Some(Magic::Identity) {
        return Err(Error::NotAnImage(format!("there is no betr magic at b:{IDENTITY_AT:#x}")));
    }
    let identity = Identity::decode(&block, None).map_err(|error| match error.field.as_str() {
        "version" => Error::Unsupported(format!(
            "format version: {}; it takes the betr that made it: copy the files out with that ('betr export'), and make an \
             image of them with this one ('betr mkfs -d')",
            error.fault
        )),
        _ => Error::corrupt(Place::Byte(IDENTITY_AT), error),
    })?;
    let ring = ring_of(identity.image_blocks);
    if identity.ring != ring {
        let places = |ring: [BlockNr; 2]| format!("{} and {}", ring[0], ring[1]);
        let fault = Fault::mismatch("superblock ring", places(ring), places(identity.ring));
        return Err(Error::corrupt(Place::Byte(IDENTITY_AT), fault));
    }
    let bytes = identity.image_blocks.saturating_mul(BLOCK_SIZE as u64);
    if bytes > disk.len() {
        let fault = Fault::mismatch("size of the image in bytes", bytes, disk.len());
        return Err(Error::corrupt(Place::Image, fault));
    }
    Ok(identity)
}

/// The newest superblock of any volume in the first half of the ring, whose place never changes.
fn newest_in_front(disk: &Disk) -> Option<Superblock> {
    let [first, _] = ring_of(0);
    let slots = (0..u64::from(SUPERBLOCK_SLOTS) / 2).map(|slot| BlockNr(first.0 + slot));
    slots
        .filter_map(|slot| Superblock::decode(&disk.read(slot.byte(), BLOCK_SIZE).ok()?, None).ok())
        .max_by_key(|superblock| superblock.birth.epoch)
}

/// Reconstructs the identity block from the superblocks. UUID and label are taken from the old block, if that verifies.
pub fn identity_again(disk: &Disk) -> Option<Identity> {
    let superblock = newest_in_front(disk)?;
    let block = disk.read(IDENTITY_AT, BLOCK_SIZE).ok()?;
    let named = Identity::decode(&block, None).map(|found| (found.uuid, found.label));
    let volume = superblock.birth.volume;
    let (uuid, label) = named.unwrap_or((volume.0, String::new()));
    Some(Identity {
        volume,
        uuid,
        label,
        image_blocks: superblock.image_blocks,
        ring: ring_of(superblock.image_blocks),
        log_units: superblock.log_units,
        map: superblock.map.clone(),
        incompatible: superblock.features.incompatible,
        // A reconstruction implies that an error was met.
        error_met: true,
    })
}

/// The size that an image states, in bytes, by its identity block or else by the newest superblock of the first half of
/// the ring. `None` if neither verifies. The device may be shorter.
pub fn stated_bytes(device: &Arc<dyn Device>) -> Option<u64> {
    let disk = Disk::new(device.clone());
    let block = disk.read(IDENTITY_AT, BLOCK_SIZE).ok();
    let identity = block.and_then(|block| Identity::decode(&block, None).ok());
    let newest = || Some(newest_in_front(&disk)?.image_blocks);
    let blocks = identity.map(|identity| identity.image_blocks).or_else(newest)?;
    blocks.checked_mul(BLOCK_SIZE as u64)
}

/// Changes the label or UUID of an existing image, durably; nothing else may differ.
///
/// Both, and the hash of the block, are in its first sector. Only that sector is written, and it cannot tear: a power
/// cut leaves the old block or the new.
pub fn write_identity(disk: &Disk, identity: &Identity) -> Result<()> {
    let before = read_identity(disk)?;
    let named = Identity { uuid: identity.uuid, label: identity.label.clone(), ..before };
    if *identity != named || identity.label.len() > LABEL_MAX || identity.label.contains('\0') {
        let text = "of an image that is there only the label, of at most 64 bytes, and the UUID can be changed";
        return Err(Error::Misuse(text.into()));
    }
    put_identity(disk, identity)
}

/// Sets or clears, durably and at once, the flag of an image that something could not be read or did not verify.
pub fn note_error(disk: &Disk, met: bool) -> Result<()> {
    let before = read_identity(disk)?;
    match before.error_met == met {
        true => Ok(()),
        false => put_identity(disk, &Identity { error_met: met, ..before }),
    }
}

/// Writes the first sector of the identity block, which holds the hash and everything that can change.
fn put_identity(disk: &Disk, identity: &Identity) -> Result<()> {
    disk.write(IDENTITY_AT, &identity.encode()[..SECTOR])?;
    disk.flush()?;
    if read_identity(disk)? != *identity {
        let text = "what was written is not what is read".into();
        return Err(Error::corrupt(Place::Byte(IDENTITY_AT), Fault::Missing(text)));
    }
    Ok(())
}
