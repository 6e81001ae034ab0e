//! The list of resealed structures, in a temporary file because there is an entry for each block of a file.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use betr_offline::redact::Original;

use crate::file::{ORIGINAL_BYTES, encode_original};

/// Entries are written in pieces of 1 MiB.
const AT_ONCE: usize = 1 << 20;

/// A list that begins at an offset of a file.
pub(crate) struct List<'f> {
    file: &'f File,
    start: u64,
    len: u64,
    written: u64,
    waiting: Vec<u8>,
}

impl<'f> List<'f> {
    /// An empty list that begins at byte `start`.
    pub(crate) fn behind(file: &'f File, start: u64) -> List<'f> {
        List { file, start, len: 0, written: 0, waiting: Vec::new() }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, original: &Original) -> io::Result<()> {
        self.waiting.extend_from_slice(&encode_original(original));
        self.len += 1;
        if self.waiting.len() >= AT_ONCE { self.flush() } else { Ok(()) }
    }

    /// Writes all waiting entries; nothing can be read before.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.waiting, self.start + self.written)?;
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// A reader of the whole list.
    pub(crate) fn reader(&self) -> impl Read {
        let end = self.start + self.len * ORIGINAL_BYTES as u64;
        BufReader::with_capacity(AT_ONCE, Section { file: self.file, at: self.start, end })
    }
}

/// A range of a file.
struct Section<'f> {
    file: &'f File,
    at: u64,
    end: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let len = (self.end - self.at).min(bytes.len() as u64) as usize;
        let read = self.file.read_at(&mut bytes[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
