//! Whether an image holds data that creating another would destroy.

use super::OpenImage;
use super::error::{OpenError, doing};
use super::holes::next_data;
use crate::probe;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What is looked at between two looks for holes.
const STEP: u64 = 1 << 20;

/// What data there is, in words; none if it may be overwritten without asking.
pub(super) fn data_in(image: &OpenImage) -> Result<Option<String>, OpenError> {
    let read = |at: u64, buffer: &mut [u8]| image.file.read_exact_at(buffer, at);
    if let Some(found) = probe::probe(&read, image.len) {
        return Ok(Some(found.with_article()));
    }
    const MIB: u64 = 1 << 20;
    let any = if image.is_block_device {
        let last = image.len.saturating_sub(MIB);
        any_byte(&image.file, 0, image.len.min(MIB))
            .and_then(|first| Ok(first || any_byte(&image.file, last, image.len)?))
    } else {
        any_byte_beside_holes(&image.file, image.len)
    };
    let any = any.map_err(doing(&image.path, "read"))?;
    Ok(any.then(|| "data".to_owned()))
}

/// Whether the file has a byte that is not zero. Holes are skipped: an empty image may be much
/// longer than anybody wants to read.
fn any_byte_beside_holes(file: &File, len: u64) -> io::Result<bool> {
    let mut at = 0;
    while let Some(start) = next_data(file, at, len)? {
        let end = len.min(start + STEP);
        if any_byte(file, start, end)? {
            return Ok(true);
        }
        at = end;
    }
    Ok(false)
}

/// Whether the range has a byte that is not zero.
fn any_byte(file: &File, start: u64, end: u64) -> io::Result<bool> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = start;
    while at < end {
        let count = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        file.read_exact_at(&mut buffer[..count], at)?;
        if buffer[..count].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
        at += count as u64;
    }
    Ok(false)
}
