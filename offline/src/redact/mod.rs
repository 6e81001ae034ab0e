//! A copy of an image without contents: every structure that verifies is sealed afresh over zeros in place of contents.
//!
//! *Contents* are the bytes of files, the values of extended attributes, and all values of a volume of keys. Everything else
//! is metadata and stays: names, inodes, targets of symbolic links, zone references, keys, and the shape of all structures. A
//! value of the metadata index that is not what its key calls for counts as contents.
//!
//! The copy begins as zeros, and only what is known is put into it: what nothing vouches for is not there. Lengths and places
//! stay, so only hashes change, bottom up: chunk, key section, head of a leaf; slice, head of an internal node; pages of the
//! table; bindings and log groups; superblocks. A hash above a structure is changed only if it was right. So a check finds the
//! same in the copy, at the same places: what verified verifies, and what did not does not.
//!
//! - `contents`: which bytes of a value are contents.
//! - `copy`: what is written where; each block is copied for one owner.
//! - `nodes`: table pages, nodes, and their parts.
//! - `holds`: snapshots, and dead lists.
//! - `log`: the log, and what it binds.
//! - `fixed`: what stands at fixed places.
//! - `rest`: blocks in use that nothing leads to.
//!
//! Memory: three bits for each block of the image, about a hundred bytes for each node, and one node's head and largest part.
//!
//! It does not decide what is in use: it says which blocks something led to, and what the space map says.

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

/// A structure that was sealed afresh, or that has another hash above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// The address of its first byte.
    pub byte: u64,
    /// How many bytes it has.
    pub bytes: u32,
    /// The hash of the original: that in its seal if it has one, else that of all of its bytes.
    pub hash: Hash,
}

/// Hears of each structure that was sealed afresh.
pub type Originals<'o> = dyn FnMut(Original) -> io::Result<()> + 'o;

/// What a copy is made of.
pub struct Redacted {
    /// The blocks at fixed places, and those that belong to something which was found, whether it verifies or not. No others
    /// are in the copy.
    pub blocks: Bitmap,
    /// The blocks that the space map has in use, if it verifies.
    pub used: Option<Bitmap>,
    /// Bytes of contents that are zeros in the copy.
    pub left_out: u64,
    /// How many structures do not verify. In their places are bytes that do not verify either, or what was there.
    pub damaged: u64,
    /// Whether table, nodes and maps all verify that say what else there is.
    pub is_whole: bool,
}

/// Copies the image on `device` to `out`, which has the same length and is all zero. With `keep_damaged`, what does not verify
/// is copied as it is, with whatever contents it has. An error if there is no image, or one that this version does not
/// know, or if `out` fails; what cannot be read is what does not verify.
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

/// Whether it has no features of which nothing is known.
fn is_known(superblock: &Superblock) -> bool {
    superblock.features.incompatible & !Features::KEYS == 0
}

/// Where fixed parts are: as the superblock says, or else the identity block.
fn layout(identity: Option<&Identity>, superblock: Option<&Superblock>) -> Option<Layout> {
    match superblock {
        Some(superblock) => Layout::of(superblock).ok(),
        None => Layout::named(identity?).ok(),
    }
}
