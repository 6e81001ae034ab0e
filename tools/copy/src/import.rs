//! A tree of the host into an image.
//!
//! Directories are taken breadth first and entries in the order of their names, so that ids are given
//! out in an order that depends on the tree alone, and keys come nearly sorted.

use std::collections::{HashMap, VecDeque};

use betr_core::fs::{Fs, Object};
use betr_host::{Kind, Meta, Source, Survey};

use crate::put::Put;
use crate::{CopyError, ImportOptions, Imported, join};

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
    let mut import = Import::new(fs, source, survey, options);
    import.tree(&meta, root)?;
    Ok(import.put.done)
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
    let mut import = Import::new(fs, source, survey, options);
    let made = import.put.make(b"", &meta, directory, name, false)?;
    match meta.kind {
        Kind::Directory => import.tree(&meta, &made)?,
        _ => import.finish(b"", &meta, &made)?,
    }
    Ok(import.put.done)
}

struct Import<'i> {
    put: Put<'i>,
    source: &'i Source,
    survey: &'i Survey,
    /// Files with several names, once one of them has been imported.
    links: HashMap<(u64, u64), Object>,
}

impl<'i> Import<'i> {
    fn new(
        fs: &'i mut Fs,
        source: &'i Source,
        survey: &'i Survey,
        options: ImportOptions,
    ) -> Import<'i> {
        Import { put: Put::new(fs, options), source, survey, links: HashMap::new() }
    }

    fn tree(&mut self, meta: &Meta, root: &Object) -> Result<(), CopyError> {
        let mut waiting = VecDeque::from([(Vec::new(), meta.clone(), root.clone())]);
        while let Some((path, meta, directory)) = waiting.pop_front() {
            self.put.done.directories += 1;
            for entry in self.source.list(&path)? {
                let path = join(&path, &entry.name);
                if self.link(&entry.meta, &directory, &entry.name)? {
                    continue;
                }
                let shared = self.survey.links.get(&identity(&entry.meta)).is_some_and(|n| *n > 1);
                let shared = shared && entry.meta.kind != Kind::Directory;
                let made = self.put.make(&path, &entry.meta, &directory, &entry.name, shared)?;
                if shared {
                    self.links.insert(identity(&entry.meta), made.clone());
                }
                match entry.meta.kind {
                    Kind::Directory => waiting.push_back((path, entry.meta, made)),
                    _ => self.finish(&path, &entry.meta, &made)?,
                }
            }
            self.put.attributes(&path, &meta, &directory)?;
        }
        Ok(())
    }

    /// Whether this is another name of something that was imported before; then it becomes one here.
    fn link(&mut self, meta: &Meta, directory: &Object, name: &[u8]) -> Result<bool, CopyError> {
        if meta.nlink < 2 || meta.kind == Kind::Directory {
            return Ok(false);
        }
        let Some(first) = self.links.get(&identity(meta)) else { return Ok(false) };
        self.put.fs.link(first, directory, name)?;
        self.put.done.links += 1;
        Ok(true)
    }

    /// Contents and attributes of what is no directory.
    fn finish(&mut self, path: &[u8], meta: &Meta, made: &Object) -> Result<(), CopyError> {
        if meta.kind != Kind::File || meta.size == 0 {
            return self.put.finish(path, meta, made, |_| Ok(None));
        }
        let mut reader = self.source.reader(path, meta)?;
        self.put.finish(path, meta, made, |piece| Ok(reader.next_segment(piece)?))?;
        Ok(reader.finish()?)
    }
}

fn identity(meta: &Meta) -> (u64, u64) {
    (meta.dev, meta.ino)
}
