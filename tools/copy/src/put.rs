//! Making single objects of an image as their metadata and data say, wherever those come from.

use betr_core::fs::{Attributes, Changes, Fs, New, Object};
use betr_host::{Kind, Meta};
use bytes::Bytes;

use crate::meta::file_type;
use crate::{CopyError, ImportOptions, Imported};

/// How much of a file is read and written at once.
const PIECE: usize = 1 << 20;
const BLOCK: u64 = 4096;

/// Makes objects, and counts them.
pub(crate) struct Put<'p> {
    pub fs: &'p mut Fs,
    pub options: ImportOptions,
    pub done: Imported,
    buffer: Vec<u8>,
}

impl<'p> Put<'p> {
    pub fn new(fs: &'p mut Fs, options: ImportOptions) -> Put<'p> {
        Put { fs, options, done: Imported::default(), buffer: vec![0; PIECE] }
    }

    /// Makes `name` in `directory`, without its contents. With `zone` it is ready for more names.
    pub fn make(
        &mut self,
        path: &[u8],
        meta: &Meta,
        directory: &Object,
        name: &[u8],
        zone: bool,
    ) -> Result<Object, CopyError> {
        let attributes = self.options.attributes(path, meta)?;
        let mut new = New { zone, ..New::of(file_type(&meta.kind), attributes) };
        match &meta.kind {
            Kind::Symlink(target) => new.target.clone_from(target),
            Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                new.device = (*major, *minor);
            }
            _ => {}
        }
        self.fs.make(directory, name, new).map_err(|error| CopyError::at(path, error))
    }

    /// Gives what is no directory its contents and attributes. `next` fills a buffer with some data of a file and
    /// says where they belong; what is between them is a hole.
    pub fn finish(
        &mut self,
        path: &[u8],
        meta: &Meta,
        made: &Object,
        next: impl FnMut(&mut [u8]) -> Result<Option<(u64, usize)>, CopyError>,
    ) -> Result<(), CopyError> {
        if meta.kind == Kind::File {
            self.done.files += 1;
            self.done.bytes += meta.size;
            self.contents(path, meta.size, made, next)?;
        } else {
            self.done.others += 1;
        }
        self.attributes(path, meta, made)
    }

    /// Writes the contents of an empty file.
    pub fn contents(
        &mut self,
        path: &[u8],
        size: u64,
        file: &Object,
        mut next: impl FnMut(&mut [u8]) -> Result<Option<(u64, usize)>, CopyError>,
    ) -> Result<(), CopyError> {
        let at = |error| CopyError::at(path, error);
        let mut end = 0;
        while let Some((offset, len)) = next(&mut self.buffer)? {
            let (start, piece) = whole_blocks(offset, &self.buffer[..len], end, size);
            end = start + piece.len() as u64;
            self.fs.write(file, start, &Bytes::from(piece)).map_err(at)?;
        }
        if end < size {
            self.fs.truncate(file, size).map_err(at)?;
        }
        Ok(())
    }

    /// Times, and what goes with a name: extended attributes. Making entries changes the times of a
    /// directory, so its own come last.
    pub fn attributes(
        &mut self,
        path: &[u8],
        meta: &Meta,
        object: &Object,
    ) -> Result<(), CopyError> {
        if !meta.xattrs.is_empty() {
            self.fs.set_xattrs(object, &meta.xattrs).map_err(|error| match error {
                betr_core::Error::Refused(refusal) => {
                    CopyError::unfit(path, format_args!("extended attribute: {refusal}"))
                }
                other => other.into(),
            })?;
        }
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
}

/// Extends a segment with zeros to whole blocks, as far as no earlier segment reaches and the file
/// goes: so the image does not depend on how fine the holes of the source are.
fn whole_blocks(offset: u64, data: &[u8], before: u64, size: u64) -> (u64, Vec<u8>) {
    let end = (offset + data.len() as u64).next_multiple_of(BLOCK).min(size);
    let start = (offset / BLOCK * BLOCK).max(before.min(offset));
    let mut whole = Vec::with_capacity((end - start) as usize);
    whole.resize((offset - start) as usize, 0);
    whole.extend_from_slice(data);
    whole.resize((end - start) as usize, 0);
    (start, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_become_whole_blocks() {
        for (offset, len, before, size, expected) in [
            (0, 4096, 0, 4096, (0, 4096)),
            (0, 100, 0, 100, (0, 100)),
            (0, 1024, 0, 9000, (0, 4096)),
            (5120, 1024, 4096, 9000, (4096, 4096)),
            (5120, 512, 5120, 9000, (5120, 3072)),
            (5120, 512, 8192, 9000, (5120, 3072)),
            (8704, 200, 4096, 9000, (8192, 808)),
        ] {
            let (start, piece) = whole_blocks(offset, &vec![7; len], before, size);
            assert_eq!((start, piece.len()), expected);
            assert_eq!(piece.iter().filter(|byte| **byte == 7).count(), len);
        }
    }
}
