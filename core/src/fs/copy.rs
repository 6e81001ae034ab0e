//! Copying within the file system.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};

use super::{Changes, Fs, New, Object, Visit, Walk, components};
use crate::error::{Error, Refusal, Result};
use crate::format::limits::FILE_BLOCK;
use crate::format::{FileType, Inode, untagged};
use crate::ids::Ino;

/// 1 MiB: neighbouring blocks are written together up to this length.
const PIECE: usize = 1 << 20;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, devices and all else.
    pub others: u64,
    /// Names beyond the first of files with several.
    pub links: u64,
    /// Bytes of files.
    pub bytes: u64,
}

/// The destination of a copy.
#[derive(Clone, Copy)]
pub enum CopyTo<'c> {
    /// A name in a directory.
    Entry(&'c Object, &'c [u8]),
    /// An existing directory, which takes the entries of the original directory.
    Into(&'c Object),
}

/// An error of a copy, with its path.
#[derive(Debug)]
pub struct CopyStopped {
    /// The path below the start of the copy; empty for the start.
    pub path: Vec<u8>,
    /// The error.
    pub error: Error,
}

impl From<Error> for CopyStopped {
    fn from(error: Error) -> CopyStopped {
        CopyStopped { path: Vec::new(), error }
    }
}

/// Copies of objects with several names, by the inode numbers of the originals. Names of one file become names of one
/// file, also across several copies.
#[derive(Default)]
pub struct CopyLinks(HashMap<Ino, Object>);

struct Copy<'c> {
    /// Objects that were made before may be replaced. Without this no name may exist.
    since: Option<Since>,
    links: &'c mut CopyLinks,
    /// Whether contents are shared where that is possible.
    shares: bool,
    done: Copied,
}

/// A point in the history of a file system, to tell objects that were made since: a command removes no file that it made
/// itself.
#[derive(Clone, Copy, Debug)]
pub struct Since(Ino);

impl Since {
    /// Whether an object was made since. A clone counts as old as its original.
    pub fn made(self, object: &Object) -> bool {
        untagged(object.ino()) >= self.0
    }
}

impl Fs {
    /// This point, for objects that are made from now on.
    pub fn since_now(&self) -> Since {
        Since(self.volume.next_numbers().ino)
    }

    /// Copies an object with all that is below it, as `name` into `directory`. The name must not exist. This takes many
    /// operations. Owners, permissions, times and extended attributes are kept, holes stay holes, and names of one file become
    /// names of one file. The contents of large files are shared.
    pub fn copy(&mut self, from: &Object, directory: &Object, name: &[u8]) -> Result<Copied> {
        let to = CopyTo::Entry(directory, name);
        let mut links = CopyLinks::default();
        let mut copy =
            Copy { since: None, links: &mut links, shares: true, done: Copied::default() };
        self.copy_to(from, to, &mut copy).map_err(|stopped| stopped.error)?;
        Ok(copy.done)
    }

    /// Copies like [`Fs::copy`], and replaces and merges existing objects by the rules of [`Fs::clear_for_copy`]. Shares
    /// contents only if `shares`.
    pub fn copy_over(
        &mut self,
        from: &Object,
        to: CopyTo<'_>,
        since: Since,
        links: &mut CopyLinks,
        shares: bool,
    ) -> std::result::Result<Copied, CopyStopped> {
        let mut copy = Copy { since: Some(since), links, shares, done: Copied::default() };
        self.copy_to(from, to, &mut copy)?;
        Ok(copy.done)
    }

    /// Clears a name for a copy, by the rules of POSIX cp. An existing file is removed if the copy is no directory either. An
    /// existing directory is returned if the copy is one: the copy is merged into it. All else is an error.
    ///
    /// An existing file that was made since is an error too.
    pub fn clear_for_copy(
        &mut self,
        directory: &Object,
        name: &[u8],
        is_directory: bool,
        since: Since,
    ) -> Result<Option<Object>> {
        let Some(found) = self.find(directory, name)? else { return Ok(None) };
        match (is_directory, found.is_directory()) {
            (true, true) => return Ok(Some(found)),
            (true, false) => return Err(Refusal::Exists.into()),
            (false, true) => return Err(Refusal::IsADirectory.into()),
            (false, false) if since.made(&found) => return Err(Refusal::Exists.into()),
            (false, false) => {}
        }
        drop(found);
        self.unlink(directory, name)?;
        Ok(None)
    }

    fn copy_to(
        &mut self,
        from: &Object,
        to: CopyTo<'_>,
        copy: &mut Copy<'_>,
    ) -> std::result::Result<(), CopyStopped> {
        let directory = match to {
            CopyTo::Entry(directory, name) if !from.is_directory() => {
                self.copy_object(copy, from, directory, name)?;
                return Ok(());
            }
            CopyTo::Entry(directory, _) | CopyTo::Into(directory) => directory,
        };
        if !from.is_directory() {
            return Err(Error::from(Refusal::NotADirectory).into());
        }
        if self.is_above(from, directory)? {
            return Err(Error::from(Refusal::Invalid).into());
        }
        // The destinations of the directories that the walk is in, and whether each existed before.
        let mut open: Vec<(Object, bool)> = Vec::new();
        let mut walk = Walk::new(from.clone());
        while let Some(visit) = walk.next(self)? {
            match visit {
                Visit::Enter(path, original) => {
                    let at = |error| CopyStopped { path: path.clone(), error };
                    let place = match (open.last(), to) {
                        (Some((into, _)), _) => {
                            Some((into.clone(), components(&path).last().unwrap_or_default()))
                        }
                        (None, CopyTo::Entry(directory, name)) => Some((directory.clone(), name)),
                        (None, CopyTo::Into(_)) => None,
                    };
                    let made = match place {
                        None => (directory.clone(), true),
                        Some((into, name)) => {
                            self.copy_directory(copy, &original, &into, name).map_err(at)?
                        }
                    };
                    open.push(made);
                }
                Visit::Entry(path, entry) => {
                    let at = |error| CopyStopped { path, error };
                    let Some((into, _)) = open.last().cloned() else { continue };
                    let name = entry.name.clone();
                    let copied = self
                        .entry_object(entry)
                        .and_then(|original| self.copy_object(copy, &original, &into, &name));
                    copied.map_err(at)?;
                }
                Visit::Leave(_, original) => {
                    // Making entries has changed its times.
                    let Some((made, was_there)) = open.pop() else { continue };
                    if !was_there {
                        self.take_times(&made, &original)?;
                    }
                }
                Visit::Again(..) => {
                    let place = open.last().map_or(directory, |(made, _)| made).place();
                    return Err(self
                        .damaged(&place, "a tree", "a directory with two names")
                        .into());
                }
            }
        }
        Ok(())
    }

    /// Makes the copy of a directory, without its entries, or finds the existing one. Returns whether it existed.
    fn copy_directory(
        &mut self,
        copy: &mut Copy<'_>,
        original: &Object,
        into: &Object,
        name: &[u8],
    ) -> Result<(Object, bool)> {
        if let Some(since) = copy.since
            && let Some(found) = self.clear_for_copy(into, name, true, since)?
        {
            return Ok((found, true));
        }
        let new = self.like(original, false)?;
        copy.done.directories += 1;
        Ok((self.make(into, name, new)?, false))
    }

    fn copy_object(
        &mut self,
        copy: &mut Copy<'_>,
        original: &Object,
        directory: &Object,
        name: &[u8],
    ) -> Result<()> {
        let inode = original.inode();
        if let Some(since) = copy.since {
            if self.find(directory, name)?.is_some_and(|found| found == *original) {
                return Err(Error::Input("a file is not copied over itself".into()));
            }
            self.clear_for_copy(directory, name, false, since)?;
        }
        if let Some(first) = copy.links.0.get(&inode.ino) {
            copy.done.links += 1;
            return self.link(&first.clone(), directory, name);
        }
        let new = self.like(original, inode.links > 1)?;
        let made = self.make(directory, name, new)?;
        if inode.links > 1 {
            copy.links.0.insert(inode.ino, made.clone());
        }
        if inode.kind != FileType::Regular {
            copy.done.others += 1;
            return Ok(());
        }
        copy.done.files += 1;
        copy.done.bytes += inode.size;
        self.copy_contents(copy, original, &made)?;
        self.take_times(&made, original)
    }

    /// A new object with the attributes of another, without its contents.
    fn like(&self, original: &Object, zone: bool) -> Result<New> {
        let Inode { kind, perm, uid, gid, accessed, modified, device, ref target, .. } =
            *original.inode();
        let attributes = super::Attributes { perm, uid, gid, accessed, modified };
        let xattrs = self.xattrs(original)?.into_iter();
        let xattrs = xattrs.map(|(name, value)| (name, value.to_vec())).collect();
        Ok(New { xattrs, target: target.clone(), device, zone, ..New::of(kind, attributes) })
    }

    fn copy_contents(&mut self, copy: &Copy<'_>, from: &Object, to: &Object) -> Result<()> {
        let size = from.inode().size;
        if copy.shares && self.share_blocks(from, to, 0..size)? == Some(size) {
            return Ok(());
        }
        let (mut at, mut next) = (0, 0);
        loop {
            let mut piece = BytesMut::new();
            let mut blocks = self.blocks_within(from, next, u64::MAX);
            while let Some((offset, block)) = self.next_block(&mut blocks)? {
                let end = at + piece.len() as u64;
                if !piece.is_empty() && (offset != end || piece.len() + FILE_BLOCK > PIECE) {
                    break;
                }
                if piece.is_empty() {
                    at = offset;
                }
                piece.extend_from_slice(&block);
                // The rest of a block is zero.
                let len = (size - offset).min(FILE_BLOCK as u64) as usize;
                piece.resize(piece.len() - block.len() + len, 0);
            }
            if piece.is_empty() {
                break;
            }
            next = (at + piece.len() as u64).div_ceil(FILE_BLOCK as u64);
            self.write(to, at, &Bytes::from(piece))?;
        }
        match to.inode().size < size {
            true => self.truncate(to, size),
            false => Ok(()),
        }
    }

    fn take_times(&mut self, object: &Object, from: &Object) -> Result<()> {
        let Inode { accessed, modified, .. } = *from.inode();
        let (accessed, modified) = (Some(accessed), Some(modified));
        self.set_attributes(object, Changes { accessed, modified, ..Changes::default() })
    }
}
