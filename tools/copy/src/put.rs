//! Creates single objects of an image from metadata and data, independent of their source.

use std::ops::Range;

use crate::host::{Kind, Meta};
use betr_core::fs::{Attributes, Changes, Contents, Fs, New, Object};
use bytes::Bytes;

use crate::fill::{Data, NextPiece};
use crate::meta::file_type;
use crate::{CopyError, ImportOptions, Imported, tally};

/// The size of writes to a file, in bytes.
pub(crate) const WINDOW: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// Creates objects and counts them.
pub(crate) struct Put<'p> {
    pub fs: &'p mut Fs,
    pub options: ImportOptions,
    pub done: Imported,
}

impl<'p> Put<'p> {
    pub(crate) fn new(fs: &'p mut Fs, options: ImportOptions) -> Put<'p> {
        Put { fs, options, done: Imported::default() }
    }

    /// Creates `name` in `directory`, without contents. With `zone` it gets a zone of its own, ready for more names.
    pub(crate) fn make(
        &mut self,
        path: &[u8],
        meta: &Meta,
        directory: &Object,
        name: &[u8],
        zone: bool,
    ) -> Result<Object, CopyError> {
        self.make_with(path, meta, (directory, name, zone), Contents::default())
    }

    fn make_with(
        &mut self,
        path: &[u8],
        meta: &Meta,
        (directory, name, zone): (&Object, &[u8], bool),
        contents: Contents,
    ) -> Result<Object, CopyError> {
        tally::object();
        let attributes = self.options.attributes(path, meta)?;
        let mut new = New { zone, contents, ..New::of(file_type(&meta.kind), attributes) };
        match &meta.kind {
            Kind::Symlink(target) => new.target.clone_from(target),
            Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                new.device = (*major, *minor);
            }
            _ => {}
        }
        self.fs.make(directory, name, new).map_err(|error| CopyError::at(path, error))
    }

    /// Creates an object that is not a directory, with contents and attributes. A file that is smaller than a window is
    /// made by one operation.
    pub(crate) fn create(
        &mut self,
        path: &[u8],
        meta: &Meta,
        (directory, name, zone): (&Object, &[u8], bool),
        data: Data<'_>,
    ) -> Result<Object, CopyError> {
        if meta.kind != Kind::File {
            let made = self.make(path, meta, directory, name, zone)?;
            self.done.others += 1;
            self.xattrs(path, meta, &made)?;
            return Ok(made);
        }
        self.done.files += 1;
        self.done.bytes += meta.size;
        let next = match data {
            Data::Pieces(next) if meta.size >= WINDOW => next,
            data => {
                let contents = match data {
                    Data::Whole(contents) => contents,
                    Data::Pieces(next) => whole_contents(meta.size, next)?,
                };
                let made = self.make_with(path, meta, (directory, name, zone), contents)?;
                if !meta.xattrs.is_empty() {
                    self.attributes(path, meta, &made)?;
                }
                return Ok(made);
            }
        };
        let made = self.make(path, meta, directory, name, zone)?;
        self.contents(path, meta.size, &made, next)?;
        self.attributes(path, meta, &made)?;
        Ok(made)
    }

    /// Writes the contents of an empty file. The operations depend only on the bytes of the file, not on the holes or
    /// the pieces of its source: one for each window that is not all zeros, from the first block with data to the
    /// last byte that is not zero.
    pub(crate) fn contents(
        &mut self,
        path: &[u8],
        size: u64,
        file: &Object,
        next: &mut NextPiece<'_>,
    ) -> Result<(), CopyError> {
        let at = |error| CopyError::at(path, error);
        let (mut window, mut end) = (Window::default(), 0);
        while let Some((mut offset, behind_hole)) = window.read(size, next)? {
            let mut data = &behind_hole[..];
            while !data.is_empty() {
                let start = offset - offset % WINDOW;
                if start != window.start {
                    write_window(self.fs, file, &mut window, &mut end).map_err(at)?;
                    window.start = start;
                }
                let now = data.len().min((start + WINDOW - offset) as usize);
                window.put(offset, &data[..now]);
                (offset, data) = (offset + now as u64, &data[now..]);
            }
            if window.bytes.len() as u64 == WINDOW {
                write_window(self.fs, file, &mut window, &mut end).map_err(at)?;
                window.start += WINDOW;
            }
        }
        write_window(self.fs, file, &mut window, &mut end).map_err(at)?;
        if end < size {
            self.fs.truncate(file, size).map_err(at)?;
        }
        Ok(())
    }

    /// Sets extended attributes and times. Creating entries changes the times of a directory, so this comes after
    /// them.
    pub(crate) fn attributes(
        &mut self,
        path: &[u8],
        meta: &Meta,
        object: &Object,
    ) -> Result<(), CopyError> {
        self.xattrs(path, meta, object)?;
        if !matches!(meta.kind, Kind::Directory | Kind::File) {
            return Ok(());
        }
        let Attributes { perm, uid, gid, accessed, modified } =
            self.options.attributes(path, meta)?;
        let changes = Changes {
            perm: Some(perm),
            uid: Some(uid),
            gid: Some(gid),
            accessed: Some(accessed),
            modified: Some(modified),
        };
        Ok(self.fs.set_attributes(object, changes)?)
    }

    /// Sets extended attributes only.
    pub(crate) fn xattrs(
        &mut self,
        path: &[u8],
        meta: &Meta,
        object: &Object,
    ) -> Result<(), CopyError> {
        if meta.xattrs.is_empty() {
            return Ok(());
        }
        self.fs.set_xattrs(object, &meta.xattrs).map_err(|error| match error {
            betr_core::Error::Refused(refusal) => {
                CopyError::unfit(path, format_args!("extended attribute: {refusal}"))
            }
            other => other.into(),
        })
    }
}

/// A range of a file that begins at a multiple of [`WINDOW`]; bytes that are not set are zero.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Reads the next data of a file of `size` bytes. Those that continue the window are read into it; others, behind a hole,
    /// are returned with their offset.
    fn read(
        &mut self,
        size: u64,
        next: &mut NextPiece<'_>,
    ) -> Result<Option<(u64, Vec<u8>)>, CopyError> {
        let filled = self.bytes.len();
        let expected = self.start + filled as u64;
        // Not empty, so that the end is seen; the byte for that is reserved with the last ones.
        let room = size.saturating_sub(expected).clamp(1, WINDOW - filled as u64);
        self.bytes.reserve_exact(room as usize + usize::from(expected + room == size));
        self.bytes.resize(filled + room as usize, 0);
        let read = next(&mut self.bytes[filled..])?;
        let Some((offset, len)) = read else {
            self.bytes.truncate(filled);
            return Ok(None);
        };
        tally::bytes(len);
        if offset == expected {
            self.bytes.truncate(filled + len);
            return Ok(Some((offset, Vec::new())));
        }
        let behind_hole = self.bytes[filled..filled + len].to_vec();
        self.bytes.truncate(filled);
        Ok(Some((offset, behind_hole)))
    }

    /// Adds data, after those it already has.
    fn put(&mut self, offset: u64, data: &[u8]) {
        self.bytes.resize((offset - self.start) as usize, 0);
        self.bytes.extend_from_slice(data);
    }

    /// The range to write: from the first block that is not all zeros to the last byte that is not zero.
    fn filled(&self) -> Option<Range<usize>> {
        let end = trimmed(&self.bytes);
        let mut blocks = self.bytes[..end].chunks(BLOCK);
        let first = blocks.position(|block| trimmed(block) > 0)?;
        Some(first * BLOCK..end)
    }
}

/// The contents of a file of `size` bytes, less than a window.
pub(crate) fn whole_contents(size: u64, next: &mut NextPiece<'_>) -> Result<Contents, CopyError> {
    let mut window = Window::default();
    while let Some((offset, behind_hole)) = window.read(size, next)? {
        if !behind_hole.is_empty() {
            window.put(offset, &behind_hole);
        }
    }
    let filled = window.filled().unwrap_or_default();
    let start = filled.start as u64;
    Ok(Contents { size, start, bytes: Bytes::from(window.bytes).slice(filled) })
}

/// The length without trailing zeros.
pub(crate) fn trimmed(bytes: &[u8]) -> usize {
    // 64 bytes at once: a fast path for long runs of zeros.
    let rows =
        bytes.rchunks(64).take_while(|row| row.iter().all(|byte| *byte == 0)).map(<[u8]>::len);
    let rest = &bytes[..bytes.len() - rows.sum::<usize>()];
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Writes a window of a file and empties it, and sets `end` to the end of the written data.
fn write_window(
    fs: &mut Fs,
    file: &Object,
    window: &mut Window,
    end: &mut u64,
) -> betr_core::Result<()> {
    let filled = window.filled();
    let bytes = Bytes::from(std::mem::take(&mut window.bytes));
    let Some(filled) = filled else { return Ok(()) };
    let start = window.start + filled.start as u64;
    *end = window.start + filled.end as u64;
    fs.write(file, start, &bytes.slice(filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_with_a_block_and_ends_with_a_byte() {
        let mut window = Window { start: WINDOW, bytes: Vec::new() };
        assert_eq!(window.filled(), None);
        window.put(WINDOW + 10, &[0; 9000]);
        assert_eq!(window.filled(), None);
        window.put(WINDOW + 9100, &[7, 0, 8, 0, 0]);
        assert_eq!(window.filled(), Some(8192..9103));
        assert_eq!(window.bytes.len(), 9105);
        window = Window::default();
        window.put(0, &[1]);
        assert_eq!(window.filled(), Some(0..1));
        for len in 0..300 {
            let mut bytes = vec![0; 300];
            bytes[..len].fill(1);
            assert_eq!(trimmed(&bytes), len);
        }
    }
}
