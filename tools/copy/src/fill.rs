//! Filling a directory of an image with objects that come one after another, from a tree of the host or from an archive.
//!
//! Objects come in any order, best with those of one directory together. The same objects in the same order make the same image,
//! wherever they come from. Directories that are missing on the way to one are made. A symbolic link on the way is followed, with
//! the directory that is filled as its root.
//!
//! Of the directories only those on the way to the last object are remembered. Making something in a directory
//! changes its times; each gets its own back when the objects leave it, so that at the end all are right.

use std::collections::BTreeSet;

use crate::host::{Kind, Meta};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Changes, Fs, LastLink, New, Object, components};
use betr_core::ids::{Ino, Time};
use betr_core::path::Operand;

use crate::meta::file_type;
use crate::put::Put;
use crate::{CopyError, ImportOptions};

/// What directories get that nothing speaks of.
const MISSING: u32 = 0o755;

/// What names begin with that remove others.
const WHITEOUT: &[u8] = b".wh.";
/// The rest of the name that removes everything in its directory.
const OPAQUE: &[u8] = b".wh..opq";

/// What becomes of objects that have the names of those that are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clash {
    /// There must not be any.
    Refuse,
    /// They are replaced, as tar does; a directory stays with what is in it, and gets new attributes.
    Replace,
    /// The same, as layers of container images do: with what is in them, where a directory makes way for something else, and names
    /// that begin with `.wh.` remove what was there before (OCI image layer specification, "Whiteouts").
    Layer,
    /// Those with smaller inode numbers are replaced, as cp does ([`Fs::clear_for_copy`]); a directory stays as it is.
    Older(Ino),
}

/// Fills a buffer with the next data of a file: their offset and length, or nothing at the end.
pub(crate) type NextPiece<'n> =
    dyn FnMut(&mut [u8]) -> Result<Option<(u64, usize)>, CopyError> + 'n;

/// What is made.
pub(crate) struct Making<'m> {
    /// The path below the directory that is filled.
    pub path: &'m [u8],
    pub meta: &'m Meta,
    /// Whether it gets further names.
    pub shared: bool,
}

/// A directory that is being filled.
pub(crate) struct Fill<'f> {
    pub put: Put<'f>,
    clash: Clash,
    /// The directories from the root down to where the last object is.
    open: Vec<Level>,
    /// Objects from this number on did not exist before.
    older_than: Ino,
    /// Directories that existed before, and got new attributes.
    renewed: BTreeSet<Ino>,
}

struct Level {
    name: Vec<u8>,
    directory: Object,
    /// The times that it is to have, of access and of modification; none for a directory that existed before and is only entered.
    times: Option<(Time, Time)>,
    changed: bool,
}

impl<'f> Fill<'f> {
    /// Begins to fill `root`.
    pub(crate) fn new(
        fs: &'f mut Fs,
        root: Object,
        clash: Clash,
        options: ImportOptions,
    ) -> Fill<'f> {
        let older_than = fs.volume().next_ino();
        let open = vec![Level { name: Vec::new(), directory: root, times: None, changed: false }];
        let put = Put::new(fs, options);
        Fill { put, clash, open, older_than, renewed: BTreeSet::new() }
    }

    /// The directory that is filled.
    pub(crate) fn root(&self) -> &Object {
        &self.open[0].directory
    }

    /// The root has the times that it is to have.
    pub(crate) fn keep_times(&mut self) {
        self.open[0].times = Some(times_of(self.root()));
    }

    /// Gives the root attributes.
    pub(crate) fn set_root(&mut self, meta: &Meta) -> Result<(), CopyError> {
        if meta.kind != Kind::Directory {
            return Err(CopyError::unfit(b"", "the root of an archive can only be a directory"));
        }
        self.leave(1)?;
        let root = self.root().clone();
        self.replace_attributes(b"", meta, &root)?;
        self.keep_times();
        Ok(())
    }

    /// Gives the root to who is to own what nothing is said of.
    pub(crate) fn own_root(&mut self) -> Result<(), CopyError> {
        let root = self.root().clone();
        let times = times_of(&root);
        let (uid, gid) = self.put.options.owner(b"", 0, 0)?;
        let changes = Changes { uid: Some(uid), gid: Some(gid), ..Changes::default() };
        self.put.fs.set_attributes(&root, changes)?;
        self.open[0].times.get_or_insert(times);
        Ok(())
    }

    /// Makes an object, or finds the directory that it is merged into. `next` is asked for the contents of a file.
    pub(crate) fn object(
        &mut self,
        making: Making<'_>,
        next: &mut NextPiece<'_>,
    ) -> Result<Object, CopyError> {
        let name = self.enter_parent(making.path, making.meta.mtime)?;
        let directory = self.last().directory.clone();
        self.object_in(making, &directory, name, next)
    }

    /// The same for `name` in a directory.
    pub(crate) fn object_in(
        &mut self,
        making: Making<'_>,
        directory: &Object,
        name: &[u8],
        next: &mut NextPiece<'_>,
    ) -> Result<Object, CopyError> {
        let Making { path, meta, shared } = making;
        if let Some(there) = self.clear(path, file_type(&meta.kind), directory, name)? {
            if let Clash::Replace | Clash::Layer = self.clash {
                self.replace_attributes(path, meta, &there)?;
            }
            return Ok(there);
        }
        let made = self.put.make(path, meta, directory, name, shared)?;
        match meta.kind {
            Kind::Directory => {
                self.put.done.directories += 1;
                self.put.xattrs(path, meta, &made)?;
            }
            _ => self.put.finish(path, meta, &made, next)?,
        }
        Ok(made)
    }

    /// Whether `path` is no object but removes what was there before this layer; then that has been done.
    pub(crate) fn is_whiteout(&mut self, path: &[u8]) -> Result<bool, CopyError> {
        let (parent, name) = split(path);
        let Some(hidden) = name.strip_prefix(WHITEOUT) else { return Ok(false) };
        if !matches!(self.clash, Clash::Layer) {
            return Ok(false);
        }
        // With the slash a symbolic link is followed, too.
        let way = [parent, b"/"].concat();
        let Some(directory) = self.resolve(path, &way)?.filter(Object::is_directory) else {
            return Ok(true);
        };
        // Its time is what the layer says of it, or it has changed now.
        self.enter(parent, crate::host::Time { secs: 0, nanos: 0 })?;
        self.last();
        match hidden {
            OPAQUE => self.remove_older(path, &directory)?,
            // What programs that make layers note for themselves.
            _ if hidden.is_empty() || hidden.starts_with(WHITEOUT) => {}
            _ => {
                if let Some(there) = self.find(path, &directory, hidden)? {
                    self.remove_if_older(path, &directory, hidden, there)?;
                }
            }
        }
        Ok(true)
    }

    /// Removes everything in a directory that was there before.
    fn remove_older(&mut self, path: &[u8], directory: &Object) -> Result<(), CopyError> {
        let entries = self.put.fs.list(directory).map_err(|error| CopyError::at(path, error))?;
        for entry in entries {
            let name = entry.name.clone();
            let there = self.put.fs.entry_object(entry)?;
            self.remove_if_older(path, directory, &name, there)?;
        }
        Ok(())
    }

    /// Removes an object that was there before; of a directory that this layer speaks of, or has made something in, the rest.
    fn remove_if_older(
        &mut self,
        path: &[u8],
        directory: &Object,
        name: &[u8],
        there: Object,
    ) -> Result<(), CopyError> {
        if there.ino() >= self.older_than {
            return Ok(());
        }
        let removed = if there.is_directory() {
            self.remove_older(path, &there)?;
            let stays = self.renewed.contains(&there.ino())
                || !self
                    .put
                    .fs
                    .list(&there)
                    .map_err(|error| CopyError::at(path, error))?
                    .is_empty();
            if stays {
                return Ok(());
            }
            drop(there);
            self.put.fs.rmdir(directory, name)
        } else {
            drop(there);
            self.put.fs.unlink(directory, name)
        };
        removed.map_err(|error| CopyError::at(path, error))
    }

    /// Makes another name of what was made before.
    pub(crate) fn link(
        &mut self,
        path: &[u8],
        object: &Object,
        time: crate::host::Time,
    ) -> Result<(), CopyError> {
        let name = self.enter_parent(path, time)?;
        let directory = self.last().directory.clone();
        self.link_in(path, object, &directory, name)
    }

    /// The same for `name` in a directory.
    pub(crate) fn link_in(
        &mut self,
        path: &[u8],
        object: &Object,
        directory: &Object,
        name: &[u8],
    ) -> Result<(), CopyError> {
        if let Clash::Replace | Clash::Layer = self.clash
            && self.find(path, directory, name)?.as_ref() == Some(object)
        {
            return Ok(());
        }
        self.clear(path, object.kind(), directory, name)?;
        let linked = self.put.fs.link(object, directory, name);
        linked.map_err(|error| CopyError::at(path, error))?;
        self.put.done.links += 1;
        Ok(())
    }

    /// Gives a file new contents, and leaves its times as they are.
    pub(crate) fn rewrite(
        &mut self,
        path: &[u8],
        size: u64,
        file: &Object,
        next: &mut NextPiece<'_>,
    ) -> Result<(), CopyError> {
        let times = times_of(file);
        self.put.fs.truncate(file, 0).map_err(|error| CopyError::at(path, error))?;
        self.put.contents(path, size, file, next)?;
        set_times(self.put.fs, file, times)
    }

    /// What a path below the root leads to, if anything. Symbolic links on the way are followed, the last one is not.
    pub(crate) fn resolve(&self, path: &[u8], to: &[u8]) -> Result<Option<Object>, CopyError> {
        let root = self.root().clone();
        match self.put.fs.look_up_below(root, &Operand::new([b"/", to].concat()), LastLink::Keep) {
            Ok(found) => Ok(Some(found.object)),
            Err(betr_core::Error::Refused(Refusal::NotFound | Refusal::NotADirectory)) => Ok(None),
            Err(error) => Err(CopyError::at(path, error)),
        }
    }

    /// Leaves all directories, which get their times.
    pub(crate) fn end(&mut self) -> Result<(), CopyError> {
        self.leave(0)
    }

    /// Goes to the directory that `path` is in. Returns the last component of `path`.
    fn enter_parent<'p>(
        &mut self,
        path: &'p [u8],
        time: crate::host::Time,
    ) -> Result<&'p [u8], CopyError> {
        let (parent, name) = split(path);
        self.enter(parent, time)?;
        Ok(name)
    }

    /// Goes to the directory at `path`. What is missing on the way is made, with the time of what calls for it.
    fn enter(&mut self, path: &[u8], time: crate::host::Time) -> Result<(), CopyError> {
        let names: Vec<&[u8]> = components(path).collect();
        let stays = |(level, name): &(&Level, &&[u8])| level.name == **name;
        let common = self.open[1..].iter().zip(&names).take_while(stays).count();
        self.leave(1 + common)?;
        // Where the name of each begins, for messages.
        let mut end = names[..common].iter().map(|name| name.len() + 1).sum::<usize>();
        for name in &names[common..] {
            end += name.len() + 1;
            let way = &path[..end - 1];
            let last = self.open.last().expect("the root is open").directory.clone();
            let directory = match self.find(way, &last, name)? {
                Some(there) => self.through(way, there)?,
                None => {
                    self.last();
                    // Nothing speaks of it.
                    let meta = Meta::new(Kind::Directory, MISSING, time);
                    let making = Making { path: way, meta: &meta, shared: false };
                    self.object_in(making, &last, name, &mut |_| Ok(None))?
                }
            };
            let is_own =
                directory.ino() >= self.older_than || self.renewed.contains(&directory.ino());
            let times = is_own.then(|| times_of(&directory));
            self.open.push(Level { name: name.to_vec(), directory, times, changed: false });
        }
        Ok(())
    }

    /// The directory that `there`, at `way`, is or leads to.
    fn through(&self, way: &[u8], there: Object) -> Result<Object, CopyError> {
        if there.is_directory() {
            return Ok(there);
        }
        let root = self.root().clone();
        let path = Operand::new([b"/", way, b"/"].concat());
        match self.put.fs.look_up_below(root, &path, LastLink::Follow) {
            Ok(found) => Ok(found.object),
            Err(betr_core::Error::Refused(refusal)) => {
                let kind = there.kind().name();
                Err(CopyError::unfit(way, format!("is in the way as a {kind}: {refusal}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves directories until `depth` are open.
    fn leave(&mut self, depth: usize) -> Result<(), CopyError> {
        while self.open.len() > depth
            && let Some(Level { directory, times, changed, .. }) = self.open.pop()
        {
            if let Some(times) = times.filter(|_| changed) {
                set_times(self.put.fs, &directory, times)?;
            }
        }
        Ok(())
    }

    /// The directory of the last object, in which something changes.
    fn last(&mut self) -> &mut Level {
        let last = self.open.last_mut().expect("the root is open");
        last.changed = true;
        last
    }

    fn find(
        &self,
        path: &[u8],
        directory: &Object,
        name: &[u8],
    ) -> Result<Option<Object>, CopyError> {
        self.put.fs.find(directory, name).map_err(|error| CopyError::at(path, error))
    }

    /// Makes way for an object of this kind. Returns the directory that it is merged into, if there is one.
    fn clear(
        &mut self,
        path: &[u8],
        kind: FileType,
        directory: &Object,
        name: &[u8],
    ) -> Result<Option<Object>, CopyError> {
        let is_directory = kind == FileType::Directory;
        let cleared = match self.clash {
            Clash::Refuse => return Ok(None),
            Clash::Older(older_than) => {
                self.put.fs.clear_for_copy(directory, name, is_directory, older_than)
            }
            Clash::Replace | Clash::Layer => {
                let Some(there) = self.find(path, directory, name)? else { return Ok(None) };
                match (is_directory, there.is_directory()) {
                    (true, true) => return Ok(Some(there)),
                    (_, was_directory) => {
                        drop(there);
                        let removed = match was_directory {
                            true if matches!(self.clash, Clash::Layer) => {
                                self.put.fs.remove_tree(directory, name)
                            }
                            true => self.put.fs.rmdir(directory, name),
                            false => self.put.fs.unlink(directory, name),
                        };
                        removed.map(|()| None)
                    }
                }
            }
        };
        cleared.map_err(|error| CopyError::at(path, error))
    }

    /// Gives what is there attributes as if it had been made anew.
    fn replace_attributes(
        &mut self,
        path: &[u8],
        meta: &Meta,
        object: &Object,
    ) -> Result<(), CopyError> {
        for (name, _) in self.put.fs.xattrs(object)? {
            if !meta.xattrs.iter().any(|(other, _)| *other == name) {
                self.put.fs.remove_xattr(object, &name)?;
            }
        }
        if object.ino() < self.older_than {
            self.renewed.insert(object.ino());
        }
        self.put.attributes(path, meta, object)
    }
}

/// Makes an empty directory to fill.
pub fn empty_directory(fs: &mut Fs, directory: &Object, name: &[u8]) -> Result<Object, CopyError> {
    let empty = Attributes { perm: MISSING, ..Attributes::at(fs.now()) };
    Ok(fs.make(directory, name, New::of(FileType::Directory, empty))?)
}

/// The directory that `path` is in, and its last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn times_of(object: &Object) -> (Time, Time) {
    let inode = object.inode();
    (inode.accessed, inode.modified)
}

fn set_times(fs: &mut Fs, object: &Object, times: (Time, Time)) -> Result<(), CopyError> {
    let (accessed, modified) = (Some(times.0), Some(times.1));
    Ok(fs.set_attributes(object, Changes { accessed, modified, ..Changes::default() })?)
}
