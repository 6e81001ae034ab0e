//! Copying within the file system.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};

use super::{Changes, Fs, New, Object, Visit, Walk, components};
use crate::error::{Refusal, Result};
use crate::format::limits::FILE_BLOCK;
use crate::format::{FileType, Inode};
use crate::ids::Ino;

/// Neighbouring blocks are written together, up to so many bytes.
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

struct Copy {
    /// The copies of what has several links.
    links: HashMap<Ino, Object>,
    done: Copied,
}

impl Fs {
    /// Copies an object with all that is below it, as `name` into `directory`: many operations. Owners, permissions,
    /// times and extended attributes are kept, holes stay holes, and names of one file become names of one file.
    pub fn copy(&mut self, from: &Object, directory: &Object, name: &[u8]) -> Result<Copied> {
        let mut copy = Copy { links: HashMap::new(), done: Copied::default() };
        if !from.is_directory() {
            self.copy_object(&mut copy, from, directory, name)?;
            return Ok(copy.done);
        }
        if self.is_above(from, directory)? {
            return Err(Refusal::Invalid.into());
        }
        // The copies of the directories that the walk is in.
        let mut open: Vec<Object> = Vec::new();
        let mut walk = Walk::new(from.clone());
        while let Some(visit) = walk.next(self)? {
            match visit {
                Visit::Enter(path, original) => {
                    let into = open.last().unwrap_or(directory).clone();
                    let name = components(&path).last().unwrap_or(name);
                    let new = self.like(&original, false)?;
                    open.push(self.make(&into, name, new)?);
                    copy.done.directories += 1;
                }
                Visit::Entry(_, entry) => {
                    let (name, original) = (entry.name.clone(), self.entry_object(entry)?);
                    let Some(into) = open.last().cloned() else { continue };
                    self.copy_object(&mut copy, &original, &into, &name)?;
                }
                Visit::Leave(_, original) => {
                    // Making entries has changed its times.
                    let Some(made) = open.pop() else { continue };
                    self.take_times(&made, &original)?;
                }
                Visit::Again(..) => {
                    let place = open.last().unwrap_or(directory).place();
                    return Err(self.damaged(&place, "a tree", "a directory with two names"));
                }
            }
        }
        Ok(copy.done)
    }

    fn copy_object(
        &mut self,
        copy: &mut Copy,
        original: &Object,
        directory: &Object,
        name: &[u8],
    ) -> Result<()> {
        let inode = original.inode();
        if let Some(first) = copy.links.get(&inode.ino) {
            copy.done.links += 1;
            return self.link(&first.clone(), directory, name);
        }
        let new = self.like(original, inode.links > 1)?;
        let made = self.make(directory, name, new)?;
        if inode.links > 1 {
            copy.links.insert(inode.ino, made.clone());
        }
        if inode.kind != FileType::Regular {
            copy.done.others += 1;
            return Ok(());
        }
        copy.done.files += 1;
        copy.done.bytes += inode.size;
        self.copy_contents(original, &made)?;
        self.take_times(&made, original)
    }

    /// A new object that is like another, but for its contents.
    fn like(&self, original: &Object, zone: bool) -> Result<New> {
        let Inode { kind, perm, uid, gid, accessed, modified, device, ref target, .. } =
            *original.inode();
        let attributes = super::Attributes { perm, uid, gid, accessed, modified };
        let xattrs = self.xattrs(original)?.into_iter();
        let xattrs = xattrs.map(|(name, value)| (name, value.to_vec())).collect();
        Ok(New { xattrs, target: target.clone(), device, zone, ..New::of(kind, attributes) })
    }

    fn copy_contents(&mut self, from: &Object, to: &Object) -> Result<()> {
        let size = from.inode().size;
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
                // What a block does not have is zero.
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
