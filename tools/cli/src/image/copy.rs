//! Copying an image, with its holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::NewImage;
use betr_core::device::Device;
use betr_core::ids::{BLOCK_SIZE, is_zero};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// What is copied at once.
const STEP: usize = 1 << 20;

/// Copies everything on a device to a new image, which is as long. Blocks of zeros become holes; those
/// of `source`, if the device is nothing but that file, are not even read.
pub fn copy_to(device: &dyn Device, source: Option<&File>, new: &NewImage) -> io::Result<()> {
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    while at < device.len() {
        // A block device has anything where nothing is written.
        let (start, end) = match source.filter(|_| !new.in_place()) {
            Some(file) => next_data(file, at, device.len())?,
            None => (at, device.len()),
        };
        at = start;
        while at < end {
            let count = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let bytes = &mut buffer[..count];
            device.read_at(at, bytes)?;
            match new.in_place() {
                true => new.file.write_all_at(bytes, at)?,
                false => write_rows(&new.file, at, bytes)?,
            }
            at += count as u64;
        }
    }
    Ok(())
}

/// The next bytes of a file that are no hole.
fn next_data(file: &File, at: u64, len: u64) -> io::Result<(u64, u64)> {
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start.min(len),
        Err(Errno::NXIO) => return Ok((len, len)),
        // It does not know of holes.
        Err(Errno::INVAL) => return Ok((at, len)),
        Err(error) => return Err(error.into()),
    };
    match start < len {
        true => Ok((start, seek(file, SeekFrom::Hole(start))?.min(len))),
        false => Ok((len, len)),
    }
}

/// Writes blocks in a row that are not zeros.
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
