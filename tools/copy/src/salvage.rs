//! A tree of a damaged image onto the host: like an export, but it goes on behind whatever cannot be read.
//!
//! Every value is verified when it is read, so nothing is written that the image did not hold. What becomes of each
//! object is told at once, and not kept.

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
/// This many unreadable blocks in sequence end a file.
const TRIES: u32 = 1024;

/// What became of something. Paths are those below the start, without a leading slash.
pub enum Salvaged<'s> {
    /// A directory, when all that is in it is done.
    Directory(&'s [u8], &'s Object),
    /// Anything else; of a file, how many bytes were copied, and which ranges could not be read.
    Object {
        /// The path.
        path: &'s [u8],
        /// The object.
        object: &'s Object,
        /// How many bytes were copied.
        bytes: u64,
        /// What could not be read: holes in the copy.
        gaps: Vec<Range<u64>>,
    },
    /// One more name of what has been copied already.
    Link(&'s [u8], &'s Object),
    /// Something that cannot be read: what is at the path, or is to be found below it.
    Unread(&'s [u8], &'s CopyError),
    /// Something that the host would not take; of a directory, with all that is in it.
    Refused(&'s [u8], &'s HostError),
    /// A detail that the host would not take.
    Warning(&'s Warning),
}

/// Copies `start` and everything below it to `dest`, which must not exist or be an empty directory; without `dest` all
/// of it is only read. It ends early when the host has no room, or when `tell` fails.
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
                // An error of one entry is followed by the next entry, one of the listing by itself.
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

/// How many bytes of a file were copied, and the ranges that were not.
type Copied = (u64, Vec<Range<u64>>);

struct Salvage<'s> {
    fs: &'s Fs,
    target: Option<Target>,
    tell: &'s mut dyn FnMut(Salvaged<'_>) -> io::Result<()>,
    /// The first name of each object with several.
    names: HashMap<Ino, Vec<u8>>,
    /// The directories that have been entered and not left.
    open: Vec<(Vec<u8>, Object)>,
}

impl Salvage<'_> {
    /// Takes a step of the walk; whether it may enter what this was about.
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

    /// Ends the innermost directory.
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

    /// Makes what is no directory; how many bytes it was given, and which it was not. Nothing if only root may make it.
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

    /// Gives what has been made its owner, mode, times and extended attributes.
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

    /// The host has refused something: an end, if it will refuse everything.
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

/// Copies the blocks of a file that can be read; how many bytes those are, and the ranges that are not among them. In a
/// file that is not sparse, blocks that are not there are missing.
fn contents(
    fs: &Fs,
    object: &Object,
    mut file: Option<&mut FileWriter>,
) -> Result<Copied, CopyError> {
    let inode = object.inode();
    let size = inode.size;
    let (mut bytes, mut gaps) = (0, Vec::<Range<u64>>::new());
    let (mut piece, mut at): (Vec<u8>, u64) = (Vec::new(), 0);
    // Where the next block may begin.
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
