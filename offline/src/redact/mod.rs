//! Copies an image without contents: every structure that verifies is sealed again with zeros in place of contents.
//!
//! *Contents* are the bytes of files, the values of extended attributes, and all values of a volume of keys. Everything
//! else is metadata and stays: names, inodes, targets of symbolic links, zone references, keys, and the shape of all
//! structures. A malformed value of the metadata index counts as contents.
//!
//! The copy starts as zeros, and only identified structures are added; unverified bytes are left out. Lengths and
//! places stay, so only hashes change, bottom up. The order is: chunk, key section, head of a leaf; slice, head of an
//! internal node; pages of the table; bindings and log groups; superblocks. A repeated hash is changed only if it was
//! right. So a check has the same findings for the copy, at the same places.
//!
//! - `contents`: which bytes of a value are contents.
//! - `copy`: the bytes of the copy and their addresses; each block is copied for one owner.
//! - `nodes`: table pages, nodes, and their parts.
//! - `holds`: snapshots, and dead lists.
//! - `log`: the log, and its late-bound values.
//! - `fixed`: structures at fixed places.
//! - `rest`: blocks in use without a reference.
//!
//! Memory: three bits for each block of the image, about a hundred bytes for each node, and one node's head and largest
//! part.
//!
//! It does not decide what is in use: it reports the referenced blocks, and those in use by the space map.

mod contents;
mod copy;
mod fixed;
mod holds;
mod log;
mod nodes;
mod rest;

use std::io;
use std::sync::Arc;

use betr_core::check::{CheckOptions, check_quickly};
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::error::{Error, Result};
use betr_core::format::{Features, HoldsRoot, Identity, Superblock};
use betr_core::ids::*;
use betr_core::space::Layout;
use betr_core::space::{Bitmap, Space};
use betr_core::volume::{content_of, identity_again, read_identity};

use contents::Contents;
use copy::Copy;

/// A structure whose hash has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// The address of its first byte.
    pub byte: u64,
    /// Number of bytes.
    pub bytes: u32,
    /// The hash of the original: that in its seal, or else that of all of its bytes.
    pub hash: Hash,
}

/// Receives each structure whose hash has changed.
pub type Originals<'o> = dyn FnMut(Original) -> io::Result<()> + 'o;

/// The result of a copy.
pub struct Redacted {
    /// The blocks at fixed places, and those of all referenced structures, verified or not. The copy has no others.
    pub blocks: Bitmap,
    /// The blocks in use by the space map, if it verifies.
    pub used: Option<Bitmap>,
    /// Bytes of contents that are zeros in the copy.
    pub left_out: u64,
    /// Number of structures that do not verify. Their copies do not verify either, or are the original bytes.
    pub damaged: u64,
    /// Whether all structures verify that refer to others: table, nodes and maps.
    pub is_whole: bool,
}

/// Copies the image on `device` to `out`, which has the same length and is all zero. With `keep_damaged`, parts that do
/// not verify are copied as they are, including their contents. Fails if there is no image, or one of an unknown
/// version, or if `out` fails. Unreadable parts count as not verified.
pub fn redact(
    device: &Arc<dyn Device>,
    out: Arc<dyn Device>,
    keep_damaged: bool,
    originals: &mut Originals<'_>,
) -> Result<Redacted> {
    let disk = Disk::new(device.clone());
    let superblock = check_quickly(device, CheckOptions::default()).superblock;
    let identity = match read_identity(&disk) {
        Err(error @ Error::Unsupported(_)) => return Err(error),
        Err(error @ Error::NotAnImage(_)) if superblock.is_none() => return Err(error),
        found => found.ok().or_else(|| identity_again(&disk)),
    };
    let superblock = superblock.filter(is_known);
    let there = device.len().div_ceil(BLOCK_SIZE as u64);
    let stated = [
        identity.as_ref().map(|identity| identity.image_blocks),
        superblock.as_ref().map(|superblock| superblock.image_blocks),
    ];
    let blocks = stated.into_iter().flatten().max().unwrap_or(there).max(there);
    let mut copy = Copy::new(disk.clone(), out, blocks, keep_damaged, originals);
    let volume = superblock.as_ref().map(|superblock| superblock.birth.volume);
    copy.volume = volume.or(identity.as_ref().map(|identity| identity.volume));
    copy.contents =
        superblock.as_ref().map_or(Contents::All, |found| Contents::of(content_of(found)));
    let layout = layout(identity.as_ref(), superblock.as_ref());
    copy.take_fixed(layout.as_ref());
    copy.is_whole = superblock.is_some();
    if let Some(superblock) = &superblock {
        copy.has_holds = superblock.holds != HoldsRoot::default();
        copy.table(superblock)?;
        copy.holds(superblock)?;
    }
    if let Some(layout) = &layout {
        copy.log(layout, superblock.as_ref())?;
    }
    let space = superblock.as_ref().and_then(|superblock| Space::load(&disk, superblock).ok());
    let used = space.map(|space| {
        let mut used = space.used().clone();
        used.grow(blocks);
        used
    });
    copy.rest(used.as_ref())?;
    copy.fixed(identity.as_ref(), layout.as_ref())?;
    let Copy { taken: mut blocks, suspect, left_out, damaged, is_whole, .. } = copy;
    blocks.join(&suspect);
    Ok(Redacted { blocks, used, left_out, damaged, is_whole })
}

/// Whether all of its incompatible features are known.
fn is_known(superblock: &Superblock) -> bool {
    superblock.features.incompatible & !Features::KEYS == 0
}

/// The layout by the superblock, or else by the identity block.
fn layout(identity: Option<&Identity>, superblock: Option<&Superblock>) -> Option<Layout> {
    match superblock {
        Some(superblock) => Layout::of(superblock).ok(),
        None => Layout::named(identity?).ok(),
    }
}
