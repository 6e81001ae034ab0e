//! A tree of the host into an image.
//!
//! Directories are taken breadth first and entries in the order of their names, so that ids are given
//! out in an order that depends on the tree alone, and keys come nearly sorted.

use std::collections::{HashMap, VecDeque};

use betr_core::fs::{CopyTo, Fs, Object};
use betr_core::ids::Ino;
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
    let mut links = ImportLinks::of([survey]);
    let mut import = Import::new(fs, source, &mut links, options);
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
    let mut links = ImportLinks::of([survey]);
    let mut import = Import::new(fs, source, &mut links, options);
    let made = import.put.make(b"", &meta, directory, name, false)?;
    match meta.kind {
        Kind::Directory => import.tree(&meta, &made)?,
        _ => import.finish(b"", &meta, &made)?,
    }
    Ok(import.put.done)
}

/// Imports the root of `source`, a tree or a single object. Existing objects are replaced and merged by the rules of
/// [`Fs::clear_for_copy`].
pub fn import_over(
    fs: &mut Fs,
    source: &Source,
    links: &mut ImportLinks,
    to: CopyTo<'_>,
    older_than: Ino,
    options: ImportOptions,
) -> Result<Imported, CopyError> {
    let meta = source.root()?;
    let mut import = Import::new(fs, source, links, options);
    import.older_than = Some(older_than);
    let made = match to {
        CopyTo::Into(directory) => Some((directory.clone(), true)),
        CopyTo::Entry(directory, name) => import.entry(b"", &meta, directory, name)?,
    };
    let Some((made, was_there)) = made else { return Ok(import.put.done) };
    match meta.kind {
        Kind::Directory => import.tree_into(&meta, &made, was_there)?,
        _ => import.finish(b"", &meta, &made)?,
    }
    Ok(import.put.done)
}

/// Files with several names: those of one file become names of one file, in several trees that are imported together, too.
#[derive(Default)]
pub struct ImportLinks {
    /// How many names there are of each.
    names: HashMap<(u64, u64), u64>,
    /// Those that have been imported.
    made: HashMap<(u64, u64), Object>,
}

impl ImportLinks {
    /// Of trees that have been counted.
    pub fn of<'s>(surveys: impl IntoIterator<Item = &'s Survey>) -> ImportLinks {
        let mut links = ImportLinks::default();
        for (file, names) in surveys.into_iter().flat_map(|survey| &survey.links) {
            *links.names.entry(*file).or_default() += names;
        }
        links
    }
}

struct Import<'i> {
    put: Put<'i>,
    /// Objects with smaller inode numbers may be replaced. Without a number no name may exist.
    older_than: Option<Ino>,
    source: &'i Source,
    links: &'i mut ImportLinks,
}

impl<'i> Import<'i> {
    fn new(
        fs: &'i mut Fs,
        source: &'i Source,
        links: &'i mut ImportLinks,
        options: ImportOptions,
    ) -> Import<'i> {
        let put = Put::new(fs, options);
        Import { put, older_than: None, source, links }
    }

    fn tree(&mut self, meta: &Meta, root: &Object) -> Result<(), CopyError> {
        self.tree_into(meta, root, false)
    }

    /// Imports the entries of the root of the source into `root`, which gets its attributes unless it existed before.
    fn tree_into(&mut self, meta: &Meta, root: &Object, was_there: bool) -> Result<(), CopyError> {
        let mut waiting = VecDeque::from([(Vec::new(), meta.clone(), root.clone(), was_there)]);
        while let Some((path, meta, directory, was_there)) = waiting.pop_front() {
            self.put.done.directories += 1;
            for entry in self.source.list(&path)? {
                let path = join(&path, &entry.name);
                let made = self.entry(&path, &entry.meta, &directory, &entry.name)?;
                let Some((made, was_there)) = made else { continue };
                match entry.meta.kind {
                    Kind::Directory => waiting.push_back((path, entry.meta, made, was_there)),
                    _ => self.finish(&path, &entry.meta, &made)?,
                }
            }
            if !was_there {
                self.put.attributes(&path, &meta, &directory)?;
            }
        }
        Ok(())
    }

    /// Makes an object without its contents, or finds the directory to merge into. Returns whether it existed; nothing if it is
    /// another name of what has been imported before.
    fn entry(
        &mut self,
        path: &[u8],
        meta: &Meta,
        directory: &Object,
        name: &[u8],
    ) -> Result<Option<(Object, bool)>, CopyError> {
        if self.link(path, meta, directory, name)? {
            return Ok(None);
        }
        let shared = self.links.names.get(&identity(meta)).is_some_and(|names| *names > 1);
        let shared = shared && meta.kind != Kind::Directory;
        let made = self.make(path, meta, directory, name, shared)?;
        if shared {
            self.links.made.insert(identity(meta), made.0.clone());
        }
        Ok(Some(made))
    }

    /// Makes an object without its contents, or finds the directory to merge into. Returns whether it existed.
    fn make(
        &mut self,
        path: &[u8],
        meta: &Meta,
        directory: &Object,
        name: &[u8],
        zone: bool,
    ) -> Result<(Object, bool), CopyError> {
        if let Some(there) = self.clear(path, meta, directory, name)? {
            return Ok((there, true));
        }
        Ok((self.put.make(path, meta, directory, name, zone)?, false))
    }

    /// Clears the name of an object. Returns the existing directory to merge into.
    fn clear(
        &mut self,
        path: &[u8],
        meta: &Meta,
        directory: &Object,
        name: &[u8],
    ) -> Result<Option<Object>, CopyError> {
        let Some(older_than) = self.older_than else { return Ok(None) };
        let is_directory = meta.kind == Kind::Directory;
        let cleared = self.put.fs.clear_for_copy(directory, name, is_directory, older_than);
        cleared.map_err(|error| CopyError::at(path, error))
    }

    /// Whether this is another name of something that was imported before; then it becomes one here.
    fn link(
        &mut self,
        path: &[u8],
        meta: &Meta,
        directory: &Object,
        name: &[u8],
    ) -> Result<bool, CopyError> {
        if meta.nlink < 2 || meta.kind == Kind::Directory {
            return Ok(false);
        }
        let Some(first) = self.links.made.get(&identity(meta)).cloned() else { return Ok(false) };
        self.clear(path, meta, directory, name)?;
        self.put.fs.link(&first, directory, name)?;
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
