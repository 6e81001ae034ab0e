//! Imports a tree of the host into an image.
//!
//! Entries are imported in the order of their names, each directory followed by its entries, as with `tar
//! --sort=name`: inode numbers depend on the tree alone.

use std::collections::HashMap;

use crate::host::{Kind, Links, Meta, Source};
use betr_core::fs::{Contents, CopyTo, Fs, Object, Since};

use crate::ahead::{Step, with_steps};
use crate::fill::{Clash, Data, Fill, Making, empty_directory};
use crate::{CopyError, ImportOptions, Imported};

/// Imports everything below the root of `source` into `root`, an empty directory of the image owned by root, which
/// gets the attributes of the source's root.
pub fn import_tree(
    fs: &mut Fs,
    source: &Source,
    names: &Links,
    root: &Object,
    options: ImportOptions,
) -> Result<Imported, CopyError> {
    let mut done = fill_root(fs, source, names, (root, Clash::Refuse), options)?;
    done.directories += 1;
    Ok(done)
}

/// Imports everything below the root of `source` into `root`, a directory of the image, which gets the attributes of
/// the source's root. Existing objects are replaced, as tar does.
pub fn merge_tree(
    fs: &mut Fs,
    source: &Source,
    names: &Links,
    root: &Object,
    options: ImportOptions,
) -> Result<Imported, CopyError> {
    fill_root(fs, source, names, (root, Clash::Replace), options)
}

/// Imports the attributes of the source's root, and everything below it, into a directory.
fn fill_root(
    fs: &mut Fs,
    source: &Source,
    names: &Links,
    (root, clash): (&Object, Clash),
    options: ImportOptions,
) -> Result<Imported, CopyError> {
    let mut links = ImportLinks::of([names]);
    let fill = Fill::new(fs, root.clone(), clash, options);
    let mut import = Import { fill, source, links: &mut links };
    import.fill.set_root(&source.root()?)?;
    import.tree()
}

/// Imports the root of `source`, of any type, as `name` in `directory`, which must not exist yet.
pub fn import_entry(
    fs: &mut Fs,
    source: &Source,
    names: &Links,
    directory: &Object,
    name: &[u8],
    options: ImportOptions,
) -> Result<Imported, CopyError> {
    let meta = source.root()?;
    if meta.kind == Kind::Directory {
        let root = empty_directory(fs, directory, name)?;
        return import_tree(fs, source, names, &root, options);
    }
    let mut links = ImportLinks::of([names]);
    let fill = Fill::new(fs, directory.clone(), Clash::Refuse, options);
    let mut import = Import { fill, source, links: &mut links };
    import.entry(b"", &meta, directory, name)?;
    Ok(import.fill.put.done)
}

/// Imports the root of `source`, a tree or a single object. Existing objects are replaced and merged by the rules of
/// [`Fs::clear_for_copy`].
pub fn import_over(
    fs: &mut Fs,
    source: &Source,
    links: &mut ImportLinks,
    to: CopyTo<'_>,
    since: Since,
    options: ImportOptions,
) -> Result<Imported, CopyError> {
    let clash = Clash::Older(since);
    let (directory, name) = match to {
        CopyTo::Entry(directory, name) => (directory, name),
        CopyTo::Into(directory) => {
            let fill = Fill::new(fs, directory.clone(), clash, options);
            return Import { fill, source, links }.tree();
        }
    };
    let meta = source.root()?;
    let begun = fs.since_now();
    let fill = Fill::new(fs, directory.clone(), clash, options);
    let mut import = Import { fill, source, links };
    let made = import.entry(b"", &meta, directory, name)?;
    let done = import.fill.put.done;
    let Some(root) = made.filter(|_| meta.kind == Kind::Directory) else { return Ok(done) };
    let is_new = begun.made(&root);
    let mut fill = Fill::new(fs, root, clash, options);
    if is_new {
        fill.keep_times();
    }
    Import { fill, source, links }.tree()
}

/// Hard links of the trees that one command imports: all names of a file become names of one file, even across trees.
#[derive(Default)]
pub struct ImportLinks {
    /// The number of names of each file.
    names: HashMap<(u64, u64), u64>,
    /// The files that have been imported.
    made: HashMap<(u64, u64), Object>,
}

impl ImportLinks {
    /// Collects the hard links of several trees.
    pub fn of<'s>(trees: impl IntoIterator<Item = &'s Links>) -> ImportLinks {
        let mut links = ImportLinks::default();
        for (file, names) in trees.into_iter().flat_map(Links::iter) {
            *links.names.entry(file).or_default() += names;
        }
        links
    }

    /// The imported object, if this is another name of it.
    fn first(&self, meta: &Meta) -> Option<Object> {
        self.made.get(&identity(meta)).filter(|_| is_linked(meta)).cloned()
    }

    /// Whether more names of the object are imported.
    fn is_shared(&self, meta: &Meta) -> bool {
        is_linked(meta) && self.names.get(&identity(meta)).is_some_and(|names| *names > 1)
    }

    /// Notes that an object has been imported.
    fn note(&mut self, meta: &Meta, shared: bool, made: &Object) {
        if shared {
            self.made.insert(identity(meta), made.clone());
        }
    }
}

fn is_linked(meta: &Meta) -> bool {
    meta.nlink > 1 && meta.kind != Kind::Directory
}

struct Import<'i> {
    fill: Fill<'i>,
    source: &'i Source,
    links: &'i mut ImportLinks,
}

impl Import<'_> {
    /// Imports everything below the root of the source.
    fn tree(mut self) -> Result<Imported, CopyError> {
        with_steps(self.source, |steps| {
            for step in steps {
                let Step { path, meta, contents } = step?;
                match self.links.first(&meta) {
                    Some(first) => self.fill.link(&path, &first, meta.mtime)?,
                    None => self.object(&path, &meta, contents)?,
                }
            }
            self.fill.end()?;
            Ok(self.fill.put.done)
        })
    }

    fn object(
        &mut self,
        path: &[u8],
        meta: &Meta,
        contents: Option<Contents>,
    ) -> Result<(), CopyError> {
        let Import { fill, source, links } = self;
        let shared = links.is_shared(meta);
        let making = Making { path, meta, shared };
        let made = match contents {
            Some(contents) => fill.object(making, Data::Whole(contents))?,
            None => with_contents(source, path, meta, |data| fill.object(making, data))?,
        };
        links.note(meta, shared, &made);
        Ok(())
    }

    /// Imports the root of the source as `name` in `directory`. Returns `None` if it became a hard link to an
    /// imported object.
    fn entry(
        &mut self,
        path: &[u8],
        meta: &Meta,
        directory: &Object,
        name: &[u8],
    ) -> Result<Option<Object>, CopyError> {
        let Import { fill, source, links } = self;
        if let Some(first) = links.first(meta) {
            fill.link_in(path, &first, directory, name)?;
            return Ok(None);
        }
        let shared = links.is_shared(meta);
        let making = Making { path, meta, shared };
        let made = with_contents(source, path, meta, |data| {
            fill.object_in(making, directory, name, data)
        })?;
        links.note(meta, shared, &made);
        Ok(Some(made))
    }
}

/// Calls `make` with the contents of a file, which are empty for other types.
fn with_contents(
    source: &Source,
    path: &[u8],
    meta: &Meta,
    make: impl FnOnce(Data<'_>) -> Result<Object, CopyError>,
) -> Result<Object, CopyError> {
    if meta.kind != Kind::File || meta.size == 0 {
        return make(Data::Whole(Contents::default()));
    }
    let mut reader = source.reader(path, meta)?;
    let made = make(Data::Pieces(&mut |piece| Ok(reader.next_segment(piece)?)))?;
    reader.finish()?;
    Ok(made)
}

fn identity(meta: &Meta) -> (u64, u64) {
    (meta.dev, meta.ino)
}
