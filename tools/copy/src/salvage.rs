//! Copies a tree of a damaged image to the host. Unlike an export it continues after anything that cannot be read.
//!
//! Every value is verified when it is read, so only data from the image are written. The result for each object is
//! reported at once and not kept.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use crate::host::{FileWriter, HostError, Target, Warning};
use betr_core::format::FileType;
use betr_core::format::limits::FILE_BLOCK;
use betr_core::fs::{Fs, Object, Visit, Walk};
use betr_core::ids::Ino;

use crate::export::PIECE;
use crate::meta::{bare_meta_of, kind_of, meta_of};
use crate::{CopyError, tally};

const BLOCK: u64 = FILE_BLOCK as u64;
/// After 1024 unreadable blocks in a row the rest of the file is given up.
const TRIES: u32 = 1024;

/// The result for one path. Paths are relative to the start, without a leading slash.
pub enum Salvaged<'s> {
    /// A directory, after everything in it. @ Any other object.
    Directory(&'s [u8], &'s Object),
    /// Any other object.
    Object {
        /// The path.
        path: &'s [u8],
        /// The object.
        object: &'s Object,
        /// Bytes of a file that were copied.
        bytes: u64,
        /// Ranges that could not be read: holes in the copy.
        gaps: Vec<Range<u64>>,
    },
    /// A hard link to an object that was copied before.
    Link(&'s [u8], &'s Object),
    /// An object, or an entry of the directory at the path, that cannot be read.
    Unread(&'s [u8], &'s CopyError),
    /// An object that the host refused; for a directory, with everything in it.
    Refused(&'s [u8], &'s HostError),
    /// A detail of an object that the host did not accept.
    Warning(&'s Warning),
}

/// Copies `start` and everything below it to `dest`, which must not exist or be an empty directory. Without `dest`
/// everything is only read. Stops early when the host is full, or when `tell` fails.
pub fn salvage(
    fs: &Fs,
    start: Object,
    dest: Option<&Path>,
    tell: &mut dyn FnMut(Salvaged<'_>) -> io::Result<()>,
) -> Result<(), CopyError> {
    let directory = start.is_directory();
    let target = dest.map(|dest| Target::create(dest, directory)).transpose()?;
    let mut salvage = Salvage { fs, target, tell, names: HashMap::new(), open: Vec::new() };
    if !directory {
        return salvage.object(b"", &start);
    }
    let mut walk = Walk::new(start);
    let mut stuck = false;
    loop {
        match walk.next(fs) {
            Ok(None) => break,
            Ok(Some(visit)) => {
                stuck = false;
                if !salvage.visit(visit)? {
                    walk.skip();
                }
            }
            Err(error) => {
                let path = salvage.open.last().map_or_else(Vec::new, |(path, _)| path.clone());
                (salvage.tell)(Salvaged::Unread(&path, &error.into()))?;
                // The walk passes over a bad entry, but a bad listing fails again: give up that directory.
                if stuck {
                    walk.skip();
                    salvage.leave()?;
                }
                stuck = !stuck;
            }
        }
    }
    while !salvage.open.is_empty() {
        salvage.leave()?;
    }
    Ok(())
}

/// Bytes of a file that were copied, and the ranges that were not.
type Copied = (u64, Vec<Range<u64>>);

struct Salvage<'s> {
    fs: &'s Fs,
    target: Option<Target>,
    tell: &'s mut dyn FnMut(Salvaged<'_>) -> io::Result<()>,
    /// For each object with several hard links: its first path.
    names: HashMap<Ino, Vec<u8>>,
    /// The directories from the start to the current one.
    open: Vec<(Vec<u8>, Object)>,
}

impl Salvage<'_> {
    /// Handles a step of the walk. Returns whether the walk may enter the object.
    fn visit(&mut self, visit: Visit) -> Result<bool, CopyError> {
        match visit {
            Visit::Enter(path, directory) => {
                if let (Some(target), false) = (&mut self.target, path.is_empty())
                    && let Err(error) = target.mkdir(&path)
                {
                    self.refused(&path, error)?;
                    return Ok(false);
                }
                self.open.push((path, directory));
            }
            Visit::Entry(path, entry) => match self.fs.entry_object(entry) {
                Ok(object) => self.object(&path, &object)?,
                Err(error) => (self.tell)(Salvaged::Unread(&path, &error.into()))?,
            },
            Visit::Leave(..) => self.leave()?,
            Visit::Again(path, entry) => {
                let error = CopyError::cycle(&path, &entry);
                (self.tell)(Salvaged::Unread(&path, &error))?;
            }
        }
        Ok(true)
    }

    /// Finishes the innermost directory.
    fn leave(&mut self) -> Result<(), CopyError> {
        let Some((path, directory)) = self.open.pop() else { return Ok(()) };
        self.attributes(&path, &directory)?;
        Ok((self.tell)(Salvaged::Directory(&path, &directory))?)
    }

    fn object(&mut self, path: &[u8], object: &Object) -> Result<(), CopyError> {
        tally::object();
        let inode = object.inode();
        if let Some(first) = self.names.get(&inode.ino) {
            let linked = self.target.as_mut().map_or(Ok(()), |target| target.link(first, path));
            return match linked {
                Ok(()) => Ok((self.tell)(Salvaged::Link(path, object))?),
                Err(error) => self.refused(path, error),
            };
        }
        let (bytes, gaps) = match self.make(path, object) {
            Ok(Some(done)) => done,
            Ok(None) => return Ok(()),
            Err(CopyError::Host(error)) => return self.refused(path, error),
            Err(error) => return Err(error),
        };
        if inode.links > 1 {
            self.names.insert(inode.ino, path.to_vec());
        }
        (self.tell)(Salvaged::Object { path, object, bytes, gaps })?;
        self.attributes(path, object)
    }

    /// Copies an object that is not a directory. Returns what was copied; `None` if the host refused to create it.
    fn make(&mut self, path: &[u8], object: &Object) -> Result<Option<Copied>, CopyError> {
        let inode = object.inode();
        let none = Some((0, Vec::new()));
        let Some(target) = &mut self.target else {
            return match inode.kind {
                FileType::Regular => contents(self.fs, object, None).map(Some),
                _ => Ok(none),
            };
        };
        match inode.kind {
            FileType::Regular => {
                let mut file = target.file(path)?;
                let done = contents(self.fs, object, Some(&mut file))?;
                file.finish(inode.size)?;
                return Ok(Some(done));
            }
            FileType::Symlink => target.symlink(path, &inode.target)?,
            _ => {
                if let Some(warning) = target.mknod(path, &kind_of(&inode), inode.perm)? {
                    (self.tell)(Salvaged::Warning(&warning))?;
                    return Ok(None);
                }
            }
        }
        Ok(none)
    }

    /// Sets owner, mode, times and extended attributes of a created object.
    fn attributes(&mut self, path: &[u8], object: &Object) -> Result<(), CopyError> {
        let meta = match meta_of(self.fs, object) {
            Ok(meta) => meta,
            Err(error) => {
                (self.tell)(Salvaged::Unread(path, &error))?;
                bare_meta_of(object)
            }
        };
        let Some(target) = &mut self.target else { return Ok(()) };
        match target.set_meta(path, &meta) {
            Ok(warnings) => {
                let mut warnings = warnings.iter();
                Ok(warnings.try_for_each(|warning| (self.tell)(Salvaged::Warning(warning)))?)
            }
            Err(error) => self.refused(path, error),
        }
    }

    /// Reports that the host refused an operation. Fails if it will refuse every other one, too.
    fn refused(&mut self, path: &[u8], error: HostError) -> Result<(), CopyError> {
        if let HostError::Io { source, .. } = &error
            && let ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem =
                source.kind()
        {
            return Err(error.into());
        }
        Ok((self.tell)(Salvaged::Refused(path, &error))?)
    }
}

/// Copies the readable blocks of a file. Returns their bytes, and the ranges that are missing. In a file that is not
/// sparse, holes count as missing.
fn contents(
    fs: &Fs,
    object: &Object,
    mut file: Option<&mut FileWriter>,
) -> Result<Copied, CopyError> {
    let inode = object.inode();
    let size = inode.size;
    let (mut bytes, mut gaps) = (0, Vec::<Range<u64>>::new());
    let (mut piece, mut at): (Vec<u8>, u64) = (Vec::new(), 0);
    // The end of the last block or gap.
    let (mut next, mut failures) = (0, 0);
    let mut blocks = fs.blocks(object);
    while next < size {
        match fs.next_block(&mut blocks) {
            Ok(None) => break,
            Ok(Some((offset, block))) => {
                if next < offset && !inode.sparse {
                    gaps.push(next..offset);
                }
                if at + piece.len() as u64 != offset || piece.len() + block.len() > PIECE {
                    if let Some(file) = &mut file {
                        file.write_at(at, &piece)?;
                    }
                    piece.clear();
                    at = offset;
                }
                piece.extend_from_slice(&block);
                tally::bytes(block.len());
                bytes += block.len() as u64;
                (next, failures) = (offset.saturating_add(BLOCK), 0);
            }
            Err(_) => {
                failures += 1;
                let end = if failures < TRIES { size.min(next + BLOCK) } else { size };
                match gaps.last_mut().filter(|gap| gap.end == next) {
                    Some(gap) => gap.end = end,
                    None => gaps.push(next..end),
                }
                next = end;
                blocks = fs.blocks_from(object, next);
            }
        }
    }
    if next < size && !inode.sparse {
        gaps.push(next..size);
    }
    if let Some(file) = file {
        file.write_at(at, &piece)?;
    }
    Ok((bytes, gaps))
}
