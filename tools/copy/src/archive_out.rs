//! Writes a tree of an image into a tar archive.
//!
//! Members are named `./` and the path; directories have a trailing slash. They are in the order of names: a
//! directory, then its entries, with its subdirectories last. The start is `./` itself, which keeps its attributes.
//! If the start is not a directory, the member has its name.

use std::collections::HashMap;
use std::io::Write;

use crate::host::Excludes;
use crate::tar::{Segments, Writer};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{Blocks, Fs, Object, Seek, Visit, Walk};
use betr_core::ids::Ino;
use betr_core::text::Brief;

use crate::meta::meta_of;
use crate::{CopyError, Exported, tally};

/// Holes that are written as data are written in pieces of this size.
const ZEROS: [u8; 4096] = [0; 4096];

/// Writes `start` and everything below it, except excluded objects, to `out`. If it is not a directory, the member is
/// called `name`. `warn` receives warnings about objects that an archive cannot hold.
pub fn export_archive(
    fs: &Fs,
    start: Object,
    name: &[u8],
    excludes: &Excludes,
    out: impl Write,
    warn: &mut dyn FnMut(String),
) -> Result<Exported, CopyError> {
    if start.kind() == FileType::Socket {
        return Err(CopyError::unfit(name, "a socket cannot be in an archive"));
    }
    let top = if start.is_directory() { b"./" } else { name };
    let (names, done) = (HashMap::new(), Exported::default());
    let mut pack = Pack { fs, writer: Writer::new(out), top, names, blocks: None, done };
    if !start.is_directory() {
        pack.object(b"", &start)?;
    } else {
        pack.tree(start, excludes, warn)?;
    }
    pack.writer.finish()?;
    Ok(pack.done)
}

struct Pack<'p, W> {
    fs: &'p Fs,
    writer: Writer<W>,
    /// The prefix of all member names.
    top: &'p [u8],
    /// For each object with several hard links: its first path.
    names: HashMap<Ino, Vec<u8>>,
    /// The scan of the file before, whose read-ahead goes on.
    blocks: Option<Blocks>,
    done: Exported,
}

impl<W: Write> Pack<'_, W> {
    fn tree(
        &mut self,
        start: Object,
        excludes: &Excludes,
        warn: &mut dyn FnMut(String),
    ) -> Result<(), CopyError> {
        let mut walk = Walk::new(start);
        while let Some(visit) = walk.next(self.fs)? {
            match visit {
                Visit::Enter(path, _) if excludes.matches(&path) => walk.skip(),
                Visit::Entry(path, _) if excludes.matches(&path) => {}
                Visit::Entry(path, entry) if entry.kind == FileType::Socket => {
                    warn(format!("'{}': a socket is left out", Brief(&path)));
                }
                Visit::Enter(path, directory) => self.object(&path, &directory)?,
                Visit::Entry(path, entry) => {
                    self.object(&path, &self.fs.entry_object(entry)?)?;
                }
                Visit::Leave(..) => {}
                Visit::Again(path, entry) => return Err(CopyError::cycle(&path, &entry)),
            }
        }
        Ok(())
    }

    fn object(&mut self, path: &[u8], object: &Object) -> Result<(), CopyError> {
        tally::object();
        let inode = object.inode();
        let mut name = [self.top, path].concat();
        let meta = meta_of(self.fs, object)?;
        if inode.links > 1 && !object.is_directory() {
            if let Some(first) = self.names.get(&inode.ino) {
                self.done.links += 1;
                return Ok(self.writer.link(&name, first, &meta)?);
            }
            self.names.insert(inode.ino, name.clone());
        }
        match inode.kind {
            FileType::Regular => {
                self.done.files += 1;
                let segments = self.segments(object)?;
                self.writer.file(&name, &meta, &segments)?;
                return self.contents(path, object, &segments);
            }
            FileType::Directory => {
                self.done.directories += 1;
                if !path.is_empty() {
                    name.push(b'/');
                }
            }
            _ => self.done.others += 1,
        }
        Ok(self.writer.object(&name, &meta)?)
    }

    /// The ranges of a file with data.
    fn segments(&self, object: &Object) -> Result<Segments, CopyError> {
        let mut segments = Segments::new(object.inode().size);
        let mut at = 0;
        loop {
            let from = match self.fs.seek(object, at, Seek::Data) {
                Ok(from) => from,
                Err(betr_core::Error::Refused(Refusal::NoData)) => return Ok(segments),
                Err(error) => return Err(error.into()),
            };
            at = self.fs.seek(object, from, Seek::Hole)?;
            segments.push(from, at);
        }
    }

    fn contents(
        &mut self,
        path: &[u8],
        object: &Object,
        segments: &Segments,
    ) -> Result<(), CopyError> {
        let mut blocks = match self.blocks.take() {
            Some(before) => self.fs.blocks_after(before, object),
            None => self.fs.blocks(object),
        };
        let mut block = self.fs.next_block(&mut blocks)?;
        for (from, len) in segments.iter() {
            let (mut at, end) = (from, from + len);
            while let Some((offset, bytes)) = block.take_if(|(offset, _)| *offset < end) {
                let after = offset + bytes.len() as u64;
                if offset < at || after > end {
                    return Err(CopyError::unfit(path, "its data changed while they were read"));
                }
                self.zeros(offset - at)?;
                self.writer.data(&bytes)?;
                tally::bytes(bytes.len());
                at = after;
                block = self.fs.next_block(&mut blocks)?;
            }
            self.zeros(end - at)?;
        }
        self.blocks = Some(blocks);
        Ok(())
    }

    fn zeros(&mut self, mut count: u64) -> Result<(), CopyError> {
        while count > 0 {
            let len = count.min(ZEROS.len() as u64);
            self.writer.data(&ZEROS[..len as usize])?;
            count -= len;
        }
        Ok(())
    }
}
