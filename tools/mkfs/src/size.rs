//! The sizes of an image and its nodes.

use std::path::Path;

use betr_cli::{Failure, show};
use betr_copy::Needs;
use betr_core::format::limits;
use betr_core::ids::BLOCK_SIZE;
use betr_core::store::{BASEMENT_SIZE, Geometry};

use crate::contents::Contents;

const MIB: u64 = 1 << 20;
/// The smallest image that is created when no size is given, in bytes.
const SMALLEST: u64 = 16 * MIB;

/// Whether the size is that which the contents need.
pub(crate) fn follows_contents(image: &Path, size: Option<u64>) -> bool {
    size.is_none() && std::fs::metadata(image).map_or(true, |meta| meta.is_file())
}

/// The size of the image in bytes, a multiple of the block size: as the user specifies; or as the existing file or
/// device has; or as the contents need, if that is known.
pub(crate) fn image_bytes(
    image: &Path,
    size: Option<u64>,
    contents: Option<&Contents>,
) -> Result<u64, Failure> {
    let there = std::fs::metadata(image).ok();
    let is_device = there.as_ref().is_some_and(|meta| !meta.is_file());
    let name = show::path(image);
    let bytes = match (size, contents, &there) {
        (Some(size), ..) => size,
        (None, ..) if is_device => betr_cli::image::open(image, betr_cli::image::Access::Read)?.len,
        (None, Some(contents), _) => match (contents.needs()?, &there) {
            (Some(needs), _) => needed(&needs),
            (None, Some(meta)) if meta.len() > 0 => meta.len(),
            (None, _) => {
                let why = "how much comes through a pipe is not known before";
                return Err(Failure::usage(format!("{name}: give a SIZE: {why}")));
            }
        },
        (None, None, Some(meta)) if meta.len() > 0 => meta.len(),
        (None, None, _) => {
            return Err(Failure::usage(format!("{name}: give a SIZE, or a directory with -d")));
        }
    };
    Ok(bytes / BLOCK_SIZE as u64 * BLOCK_SIZE as u64)
}

/// The size for given contents: files with the hashes of their blocks, names and inodes, plus a quarter, plus 8 MiB
/// for the log and other fixed structures. At least 16 MiB, rounded up to 1 MiB.
pub(crate) fn needed(needs: &Needs) -> u64 {
    let bytes = contents_bytes(needs);
    (bytes + bytes / 4 + 8 * MIB).max(SMALLEST).next_multiple_of(MIB)
}

/// The approximate size of contents in nodes, in bytes.
fn contents_bytes(needs: &Needs) -> u64 {
    // Larger than any image; the creation of such an image fails later.
    let most = u64::MAX / 8;
    let data = needs.file_bytes.min(most);
    let names = needs.names.saturating_mul(512).saturating_add(2 * needs.names_bytes.min(most));
    let contents = data.saturating_add(data / 50).saturating_add(names);
    contents.saturating_add(needs.other_bytes).min(most)
}

/// The sizes of nodes: as specified, or as large as the image allows.
pub(crate) fn geometry(
    bytes: u64,
    node: Option<u64>,
    basement: Option<u64>,
) -> Result<Geometry, Failure> {
    let allowed = bytes / 256;
    let node = match node {
        Some(node) => within("--node-size", node, limits::NODE_SIZE)?,
        None => Geometry::of_image(bytes).node_size,
    };
    if !node.is_power_of_two() || u64::from(node) > allowed.max(4096) {
        let text = format!(
            "--node-size must be a power of two and at most 1/256 of the image, {allowed} bytes"
        );
        return Err(Failure::usage(text));
    }
    let basement = match basement {
        Some(basement) => within("--basement-size", basement, limits::BASEMENT_SIZE)?,
        None => BASEMENT_SIZE,
    };
    Ok(Geometry::new(node, basement))
}

fn within(name: &str, value: u64, range: std::ops::RangeInclusive<u32>) -> Result<u32, Failure> {
    let fits = u32::try_from(value).ok().filter(|value| range.contains(value));
    fits.ok_or_else(|| {
        Failure::usage(format!(
            "{name} must be {} to {} bytes, not {value}",
            range.start(),
            range.end()
        ))
    })
}
