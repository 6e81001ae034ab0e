//! Finds data that creating an image would destroy.

use super::OpenImage;
use super::error::{OpenError, doing};
use crate::probe;
use betr_core::device::Device;
use std::io;

/// The search looks for the next hole after each 1 MiB.
const STEP: u64 = 1 << 20;

/// Describes the data in an image; `None` if it may be overwritten without `-f`.
pub(super) fn data_in(image: &OpenImage) -> Result<Option<String>, OpenError> {
    let device = &*image.file;
    let read = |at: u64, buffer: &mut [u8]| device.read_at(at, buffer);
    if let Some(found) = probe::probe(&read, image.len) {
        return Ok(Some(found.with_article()));
    }
    const MIB: u64 = 1 << 20;
    let any = if image.is_block_device {
        let last = image.len.saturating_sub(MIB);
        any_byte(device, 0, image.len.min(MIB))
            .and_then(|first| Ok(first || any_byte(device, last, image.len)?))
    } else {
        any_byte_beside_holes(device)
    };
    let any = any.map_err(doing(&image.path, "read"))?;
    Ok(any.then(|| "data".to_owned()))
}

/// Whether the file has a non-zero byte. Holes are skipped, because an empty sparse image may be too long to read.
fn any_byte_beside_holes(device: &dyn Device) -> io::Result<bool> {
    let mut at = 0;
    while let Some(start) = device.next_data(at)? {
        let end = device.len().min(start + STEP);
        if any_byte(device, start, end)? {
            return Ok(true);
        }
        at = end;
    }
    Ok(false)
}

/// Whether the range has a non-zero byte.
fn any_byte(device: &dyn Device, start: u64, end: u64) -> io::Result<bool> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = start;
    while at < end {
        let count = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        device.read_at(at, &mut buffer[..count])?;
        if buffer[..count].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
        at += count as u64;
    }
    Ok(false)
}
