//! Copies an image with its holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::NewImage;
use betr_core::device::Device;
use betr_core::ids::{BLOCK_SIZE, is_zero};

/// Data is copied in pieces of 1 MiB.
const STEP: usize = 1 << 20;

/// Copies a device to a new image of the same length. Blocks of zeros become holes; holes are not read.
pub fn copy_to(device: &dyn Device, new: &NewImage) -> io::Result<()> {
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    while at < device.len() {
        // A block device has no holes: unwritten blocks keep their old content, so zeros are written as well.
        if !new.is_device() {
            let Some(next) = device.next_data(at)? else { break };
            at = next;
        }
        let count = buffer.len().min(usize::try_from(device.len() - at).unwrap_or(usize::MAX));
        let bytes = &mut buffer[..count];
        device.read_at(at, bytes)?;
        match new.is_device() {
            true => new.file.write_all_at(bytes, at)?,
            false => write_rows(&new.file, at, bytes)?,
        }
        at += count as u64;
    }
    Ok(())
}

/// Writes the extents of a buffer that are not zeros.
fn write_rows(new: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut row: Option<usize> = None;
    for start in (0..bytes.len()).step_by(BLOCK_SIZE) {
        let block = &bytes[start..bytes.len().min(start + BLOCK_SIZE)];
        if !is_zero(block) {
            row.get_or_insert(start);
        } else if let Some(first) = row.take() {
            new.write_all_at(&bytes[first..start], at + first as u64)?;
        }
    }
    match row {
        Some(first) => new.write_all_at(&bytes[first..], at + first as u64),
        None => Ok(()),
    }
}
