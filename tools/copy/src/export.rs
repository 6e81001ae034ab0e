//! Copies a tree of an image to the host.

use std::collections::HashMap;
use std::path::Path;

use crate::host::{Excludes, Target, Warning};
use betr_core::format::FileType;
use betr_core::fs::{Blocks, Fs, Object, Visit, Walk};
use betr_core::ids::Ino;

use crate::meta::{kind_of, meta_of};
use crate::{CopyError, join, tally};

/// Blocks are collected into writes of this size, in bytes.
pub(crate) const PIECE: usize = 1 << 20;

/// Counts of exported objects.
#[derive(Debug, Default)]
pub struct Exported {
    /// Regular files.
    pub files: u64,
    /// Directories, the start included.
    pub directories: u64,
    /// Objects of other types: symbolic links, devices, pipes, sockets.
    pub others: u64,
    /// Hard links beyond the first name of each object.
    pub links: u64,
    /// Details that the host did not accept: owners, devices, attributes.
    pub warnings: Vec<Warning>,
}

/// Copies `start` and everything below it, except excluded objects, to `dest`, which must not exist or be an empty
/// directory. Writes nothing outside `dest`, whatever the image contains.
pub fn export(
    fs: &Fs,
    start: Object,
    dest: &Path,
    excludes: &Excludes,
) -> Result<Exported, CopyError> {
    let directory = start.inode().kind == FileType::Directory;
    let target = Target::create(dest, directory)?;
    let mut export = Export::new(fs, target);
    if !directory {
        export.object(b"", &start)?;
        return Ok(export.done);
    }
    export.tree(b"", start, excludes, true)?;
    Ok(export.done)
}

/// Copies several objects into an existing directory, whose attributes stay unchanged. Hard links are preserved
/// across the objects. No entry of the directory is replaced.
pub struct ExportInto<'e>(Export<'e>);

impl<'e> ExportInto<'e> {
    /// Copies into the directory `dest`.
    pub fn new(fs: &'e Fs, dest: &Path) -> Result<ExportInto<'e>, CopyError> {
        Ok(ExportInto(Export::new(fs, Target::into_existing(dest)?)))
    }

    /// Copies `start` and everything below it as `name`, which must not exist.
    pub fn entry(&mut self, start: Object, name: &[u8]) -> Result<(), CopyError> {
        match start.inode().kind {
            FileType::Directory => self.0.tree(name, start, &Excludes::default(), true),
            _ => self.0.object(name, &start),
        }
    }

    /// Copies the entries of the directory `start`.
    pub fn entries(&mut self, start: Object) -> Result<(), CopyError> {
        self.0.tree(b"", start, &Excludes::default(), false)
    }

    /// Counts of the copied objects.
    pub fn done(self) -> Exported {
        self.0.done
    }
}

struct Export<'e> {
    fs: &'e Fs,
    target: Target,
    /// For each object with several hard links: its first path.
    names: HashMap<Ino, Vec<u8>>,
    /// The scan of the file before, whose read-ahead goes on.
    blocks: Option<Blocks>,
    done: Exported,
}

impl<'e> Export<'e> {
    fn new(fs: &'e Fs, target: Target) -> Export<'e> {
        Export { fs, target, names: HashMap::new(), blocks: None, done: Exported::default() }
    }

    /// Copies a tree to a place in the target. With `owns` the place gets the attributes of `start`.
    fn tree(
        &mut self,
        place: &[u8],
        start: Object,
        excludes: &Excludes,
        owns: bool,
    ) -> Result<(), CopyError> {
        let fs = self.fs;
        let at = |path: &[u8]| match path.is_empty() {
            true => place.to_vec(),
            false => join(place, path),
        };
        let mut walk = Walk::new(start);
        while let Some(visit) = walk.next(fs)? {
            match visit {
                Visit::Enter(path, _) if excludes.matches(&path) => walk.skip(),
                Visit::Entry(path, _) if excludes.matches(&path) => {}
                Visit::Enter(path, directory) => self.object(&at(&path), &directory)?,
                Visit::Entry(path, entry) => self.object(&at(&path), &fs.entry_object(entry)?)?,
                Visit::Leave(path, _) if path.is_empty() && !owns => {}
                Visit::Leave(path, object) => self.attributes(&at(&path), &object)?,
                Visit::Again(path, entry) => return Err(CopyError::cycle(&path, &entry)),
            }
        }
        Ok(())
    }

    fn object(&mut self, path: &[u8], object: &Object) -> Result<(), CopyError> {
        tally::object();
        let inode = object.inode();
        if let Some(first) = self.names.get(&inode.ino) {
            self.target.link(first, path)?;
            self.done.links += 1;
            return Ok(());
        }
        match inode.kind {
            FileType::Directory => {
                self.done.directories += 1;
                if !path.is_empty() {
                    self.target.mkdir(path)?;
                }
                return Ok(());
            }
            FileType::Regular => {
                self.done.files += 1;
                self.contents(path, object)?;
            }
            FileType::Symlink => {
                self.done.others += 1;
                self.target.symlink(path, &inode.target)?;
            }
            _ => {
                self.done.others += 1;
                if let Some(warning) = self.target.mknod(path, &kind_of(&inode), inode.perm)? {
                    self.done.warnings.push(warning);
                    return Ok(());
                }
            }
        }
        if inode.links > 1 && inode.kind != FileType::Directory {
            self.names.insert(inode.ino, path.to_vec());
        }
        self.attributes(path, object)
    }

    fn contents(&mut self, path: &[u8], object: &Object) -> Result<(), CopyError> {
        let mut file = self.target.file(path)?;
        let mut blocks = match self.blocks.take() {
            Some(before) => self.fs.blocks_after(before, object),
            None => self.fs.blocks(object),
        };
        let mut piece: Vec<u8> = Vec::new();
        let mut at = 0;
        while let Some((offset, block)) = self.fs.next_block(&mut blocks)? {
            tally::bytes(block.len());
            if at + piece.len() as u64 != offset || piece.len() + block.len() > PIECE {
                file.write_at(at, &piece)?;
                piece.clear();
                at = offset;
            }
            piece.extend_from_slice(&block);
        }
        file.write_at(at, &piece)?;
        file.finish(object.inode().size)?;
        self.blocks = Some(blocks);
        Ok(())
    }

    fn attributes(&mut self, path: &[u8], object: &Object) -> Result<(), CopyError> {
        let meta = meta_of(self.fs, object)?;
        self.done.warnings.extend(self.target.set_meta(path, &meta)?);
        Ok(())
    }
}
