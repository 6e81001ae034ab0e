//! A tree of the host into an image.
//!
//! Directories are taken breadth first and entries in the order of their names, so that ids are given
//! out in an order that depends on the tree alone, and keys come nearly sorted.

use std::collections::{HashMap, VecDeque};

use betr_core::format::FileType;
use betr_core::fs::{Attributes, Changes, Fs, New, Object};
use betr_core::ids::Time;
use betr_host::{Kind, Meta, Source, Survey};
use bytes::Bytes;

use crate::{CopyError, join, time_of};

/// How much of a file is read and written at once.
const PIECE: usize = 1 << 20;
const BLOCK: u64 = 4096;

/// How to import.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// `SOURCE_DATE_EPOCH`: no time is later, and times of access, which reading changes, are those of
    /// the last modification.
    pub epoch: Option<i64>,
}

/// What was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Regular files.
    pub files: u64,
    /// Directories, the root of the tree included.
    pub directories: u64,
    /// Symbolic links, devices and all else.
    pub others: u64,
    /// Names beyond the first of files with several.
    pub links: u64,
    /// Bytes of files.
    pub bytes: u64,
}

/// Imports everything below the root of `source` into `root`, an empty directory of the image, which
/// takes over the attributes of the source's root.
pub fn import_tree(
    fs: &mut Fs,
    source: &Source,
    survey: &Survey,
    root: &Object,
    options: ImportOptions,
) -> Result<Imported, CopyError> {
    let meta = source.root()?;
    let mut import =
        Import { fs, source, survey, options, links: HashMap::new(), done: Imported::default() };
    import.tree(&meta, root)?;
    Ok(import.done)
}

/// Imports the root of `source`, whatever it is, as `name` in `directory`, which must not exist yet.
pub fn import_entry(
    fs: &mut Fs,
    source: &Source,
    survey: &Survey,
    directory: &Object,
    name: &[u8],
    options: ImportOptions,
) -> Result<Imported, CopyError> {
    let meta = source.root()?;
    let mut import =
        Import { fs, source, survey, options, links: HashMap::new(), done: Imported::default() };
    let made = import.make(b"", &meta, directory, name, false)?;
    match meta.kind {
        Kind::Directory => import.tree(&meta, &made)?,
        _ => import.finish(b"", &meta, made)?,
    }
    Ok(import.done)
}

/// The attributes that the root directory takes from the root of a source.
pub fn root_attributes(meta: &Meta, options: ImportOptions) -> Attributes {
    let (accessed, modified) = times(meta, options);
    Attributes { perm: meta.perm, uid: meta.uid, gid: meta.gid, accessed, modified }
}

fn times(meta: &Meta, options: ImportOptions) -> (Time, Time) {
    let (accessed, modified) = (time_of(meta.atime), time_of(meta.mtime));
    match options.epoch {
        None => (accessed, modified),
        Some(epoch) => {
            let modified = modified.min(Time { secs: epoch, nanos: 0 });
            (modified, modified)
        }
    }
}

struct Import<'i> {
    fs: &'i mut Fs,
    source: &'i Source,
    survey: &'i Survey,
    options: ImportOptions,
    /// Files with several names, once one of them has been imported.
    links: HashMap<(u64, u64), Object>,
    done: Imported,
}

impl Import<'_> {
    fn tree(&mut self, meta: &Meta, root: &Object) -> Result<(), CopyError> {
        let mut waiting = VecDeque::from([(Vec::new(), meta.clone(), root.clone())]);
        while let Some((path, meta, directory)) = waiting.pop_front() {
            self.done.directories += 1;
            for entry in self.source.list(&path)? {
                let path = join(&path, &entry.name);
                if self.link(&entry.meta, &directory, &entry.name)? {
                    continue;
                }
                let shared = self.survey.links.get(&identity(&entry.meta)).is_some_and(|n| *n > 1);
                let shared = shared && entry.meta.kind != Kind::Directory;
                let made = self.make(&path, &entry.meta, &directory, &entry.name, shared)?;
                if shared {
                    self.links.insert(identity(&entry.meta), made.clone());
                }
                match entry.meta.kind {
                    Kind::Directory => waiting.push_back((path, entry.meta, made)),
                    _ => self.finish(&path, &entry.meta, made)?,
                }
            }
            self.attributes(&path, &meta, &directory)?;
        }
        Ok(())
    }

    /// Whether this is another name of something that was imported before; then it becomes one here.
    fn link(&mut self, meta: &Meta, directory: &Object, name: &[u8]) -> Result<bool, CopyError> {
        if meta.nlink < 2 || meta.kind == Kind::Directory {
            return Ok(false);
        }
        let Some(first) = self.links.get(&identity(meta)) else { return Ok(false) };
        self.fs.link(first, directory, name)?;
        self.done.links += 1;
        Ok(true)
    }

    fn make(
        &mut self,
        path: &[u8],
        meta: &Meta,
        directory: &Object,
        name: &[u8],
        zone: bool,
    ) -> Result<Object, CopyError> {
        let mut new =
            New { zone, ..New::of(file_type(&meta.kind), root_attributes(meta, self.options)) };
        match &meta.kind {
            Kind::Symlink(target) => new.target.clone_from(target),
            Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                new.device = (*major, *minor);
            }
            _ => {}
        }
        self.fs.make(directory, name, new).map_err(|error| match error {
            betr_core::Error::Refused(refusal) => CopyError::unfit(path, refusal),
            other => other.into(),
        })
    }

    /// Contents and attributes of what is no directory.
    fn finish(&mut self, path: &[u8], meta: &Meta, made: Object) -> Result<(), CopyError> {
        if meta.kind == Kind::File {
            self.done.files += 1;
            if meta.size > 0 {
                self.contents(path, meta, &made)?;
            }
        } else {
            self.done.others += 1;
        }
        self.attributes(path, meta, &made)
    }

    fn contents(&mut self, path: &[u8], meta: &Meta, file: &Object) -> Result<(), CopyError> {
        let mut reader = self.source.reader(path, meta)?;
        let mut end = 0;
        loop {
            let mut piece = vec![0; PIECE.min(meta.size as usize)];
            let Some((offset, len)) = reader.next_segment(&mut piece)? else { break };
            piece.truncate(len);
            let (offset, piece) = whole_blocks(offset, piece, end, meta.size);
            end = offset + piece.len() as u64;
            self.fs.write(file, offset, &Bytes::from(piece))?;
        }
        reader.finish()?;
        if end < meta.size {
            self.fs.truncate(file, meta.size)?;
        }
        self.done.bytes += meta.size;
        Ok(())
    }

    /// Times, and what goes with a name: extended attributes. Making entries changes the times of a
    /// directory, so its own come last.
    fn attributes(&mut self, path: &[u8], meta: &Meta, object: &Object) -> Result<(), CopyError> {
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
        let Attributes { perm, uid, gid, accessed, modified } = root_attributes(meta, self.options);
        let changes = Changes {
            perm: Some(perm),
            uid: Some(uid),
            gid: Some(gid),
            accessed: Some(accessed),
            modified: Some(modified),
        };
        self.fs.set_attributes(object, changes)?;
        Ok(())
    }
}

/// Extends a segment with zeros to whole blocks, as far as no earlier segment reaches and the file
/// goes: so the image does not depend on how fine the host's holes are.
fn whole_blocks(offset: u64, mut piece: Vec<u8>, before: u64, size: u64) -> (u64, Vec<u8>) {
    let end = (offset + piece.len() as u64).next_multiple_of(BLOCK).min(size);
    piece.resize((end - offset) as usize, 0);
    let start = (offset / BLOCK * BLOCK).max(before.min(offset));
    if start == offset {
        return (offset, piece);
    }
    let mut whole = vec![0; (offset - start) as usize];
    whole.extend_from_slice(&piece);
    (start, whole)
}

fn identity(meta: &Meta) -> (u64, u64) {
    (meta.dev, meta.ino)
}

fn file_type(kind: &Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File => FileType::Regular,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::CharDevice { .. } => FileType::CharDevice,
        Kind::BlockDevice { .. } => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
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
            (8704, 200, 4096, 9000, (8192, 808)),
        ] {
            let (start, piece) = whole_blocks(offset, vec![7; len], before, size);
            assert_eq!((start, piece.len()), expected);
            assert_eq!(piece.iter().filter(|byte| **byte == 7).count(), len);
        }
    }
}
