//! Fills a directory of an image with a sequence of objects, from a tree of the host or from an archive.
//!
//! Objects may come in any order, best with those of one directory together. The same objects in the same order make
//! the same image, whatever the source. Missing parent directories are created. A symbolic link in a path is
//! followed, with the filled directory as the root.
//!
//! Only the directories on the path to the last object are kept. Creating an entry in a directory changes its times;
//! they are restored when the sequence leaves the directory.

use std::collections::BTreeSet;

use crate::host::{Kind, Meta};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Changes, Contents, Fs, LastLink, New, Object, Since, components};
use betr_core::ids::{Ino, Time};
use betr_core::path::Operand;

use crate::meta::file_type;
use crate::put::Put;
use crate::{CopyError, ImportOptions};

/// The mode of directories that the source does not describe.
const MISSING: u32 = 0o755;

/// The prefix of the name of a whiteout, which removes the entry of the remaining name.
const WHITEOUT: &[u8] = b".wh.";
/// The name that removes everything in its directory.
const OPAQUE: &[u8] = b".wh..opq";

/// The treatment of existing objects with the names of new ones.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clash {
    /// An existing object is an error.
    Refuse,
    /// They are replaced, as tar does; a directory keeps its entries, and gets new attributes.
    Replace,
    /// As [`Clash::Replace`], with the rules for layers of container images: a directory that is replaced by another
    /// type is removed with its contents, and a name with the prefix `.wh.` removes what was there before (OCI image
    /// layer specification, "Whiteouts").
    Layer,
    /// Those that were made before are replaced, as cp does ([`Fs::clear_for_copy`]); an existing directory
    /// stays as it is.
    Older(Since),
}

/// Fills a buffer with the next data of a file. Returns offset and length, or `None` at the end.
pub(crate) type NextPiece<'n> =
    dyn FnMut(&mut [u8]) -> Result<Option<(u64, usize)>, CopyError> + 'n;

/// The data of a file to create.
pub(crate) enum Data<'d> {
    /// All contents.
    Whole(Contents),
    /// Fills buffers with them; ranges between the pieces are holes.
    Pieces(&'d mut NextPiece<'d>),
}

/// An object to create.
pub(crate) struct Making<'m> {
    /// The path below the filled directory.
    pub path: &'m [u8],
    pub meta: &'m Meta,
    /// Whether more hard links to it follow.
    pub shared: bool,
}

/// A directory that is being filled.
pub(crate) struct Fill<'f> {
    pub put: Put<'f>,
    clash: Clash,
    /// The directories from the root to the parent of the last object.
    open: Vec<Level>,
    /// Tells what this run made from what existed before.
    since: Since,
    /// Directories that existed before, and got new attributes.
    renewed: BTreeSet<Ino>,
}

struct Level {
    name: Vec<u8>,
    directory: Object,
    /// The times of access and modification to restore; `None` for a directory that existed before and is only
    /// entered.
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
        let since = fs.since_now();
        let open = vec![Level { name: Vec::new(), directory: root, times: None, changed: false }];
        let put = Put::new(fs, options);
        Fill { put, clash, open, since, renewed: BTreeSet::new() }
    }

    /// The directory that is filled.
    pub(crate) fn root(&self) -> &Object {
        &self.open[0].directory
    }

    /// Makes the current times of the root the ones to restore.
    pub(crate) fn keep_times(&mut self) {
        self.open[0].times = Some(times_of(self.root()));
    }

    /// Sets the attributes of the root.
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

    /// Gives the root the owner that the options set for objects without one.
    pub(crate) fn own_root(&mut self) -> Result<(), CopyError> {
        let root = self.root().clone();
        let times = times_of(&root);
        let (uid, gid) = self.put.options.owner(b"", 0, 0)?;
        let changes = Changes { uid: Some(uid), gid: Some(gid), ..Changes::default() };
        self.put.fs.set_attributes(&root, changes)?;
        self.open[0].times.get_or_insert(times);
        Ok(())
    }

    /// Creates an object, or finds the directory that it is merged into.
    pub(crate) fn object(
        &mut self,
        making: Making<'_>,
        data: Data<'_>,
    ) -> Result<Object, CopyError> {
        let name = self.enter_parent(making.path, making.meta.mtime)?;
        let directory = self.last().directory.clone();
        self.object_in(making, &directory, name, data)
    }

    /// Creates `name` in a directory, or finds the directory that it is merged into.
    pub(crate) fn object_in(
        &mut self,
        making: Making<'_>,
        directory: &Object,
        name: &[u8],
        data: Data<'_>,
    ) -> Result<Object, CopyError> {
        let Making { path, meta, shared } = making;
        if let Some(there) = self.clear(path, file_type(&meta.kind), directory, name)? {
            if let Clash::Replace | Clash::Layer = self.clash {
                self.replace_attributes(path, meta, &there)?;
            }
            return Ok(there);
        }
        if meta.kind != Kind::Directory {
            return self.put.create(path, meta, (directory, name, shared), data);
        }
        let made = self.put.make(path, meta, directory, name, shared)?;
        self.put.done.directories += 1;
        self.put.xattrs(path, meta, &made)?;
        Ok(made)
    }

    /// Whether `path` is a whiteout, which has then removed objects of earlier layers.
    pub(crate) fn is_whiteout(&mut self, path: &[u8]) -> Result<bool, CopyError> {
        let (parent, name) = split(path);
        let Some(hidden) = name.strip_prefix(WHITEOUT) else { return Ok(false) };
        if !matches!(self.clash, Clash::Layer) {
            return Ok(false);
        }
        // The trailing slash follows a symbolic link, too.
        let way = [parent, b"/"].concat();
        let Some(directory) = self.resolve(path, &way)?.filter(Object::is_directory) else {
            return Ok(true);
        };
        // The time that a directory gets if it is created here; the layer may set another one.
        self.enter(parent, crate::host::Time { secs: 0, nanos: 0 })?;
        self.last();
        match hidden {
            OPAQUE => self.remove_older(path, &directory)?,
            // Internal markers of programs that build layers.
            _ if hidden.is_empty() || hidden.starts_with(WHITEOUT) => {}
            _ => {
                if let Some(there) = self.find(path, &directory, hidden)? {
                    self.remove_if_older(path, &directory, hidden, there)?;
                }
            }
        }
        Ok(true)
    }

    /// Removes everything in a directory that existed before.
    fn remove_older(&mut self, path: &[u8], directory: &Object) -> Result<(), CopyError> {
        let entries = self.put.fs.list(directory).map_err(|error| CopyError::at(path, error))?;
        for entry in entries {
            let name = entry.name.clone();
            let there = self.put.fs.entry_object(entry)?;
            self.remove_if_older(path, directory, &name, there)?;
        }
        Ok(())
    }

    /// Removes an object that existed before. A directory stays if this layer describes it, or has created something
    /// in it; then only its old entries are removed.
    fn remove_if_older(
        &mut self,
        path: &[u8],
        directory: &Object,
        name: &[u8],
        there: Object,
    ) -> Result<(), CopyError> {
        if self.since.made(&there) {
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

    /// Adds a hard link to an object that was created before.
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

    /// Adds the hard link `name` in a directory.
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

    /// Replaces the contents of a file, and keeps its times.
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

    /// Looks up a path below the root. Follows symbolic links except the last one.
    pub(crate) fn resolve(&self, path: &[u8], to: &[u8]) -> Result<Option<Object>, CopyError> {
        let root = self.root().clone();
        match self.put.fs.look_up_below(root, &Operand::new([b"/", to].concat()), LastLink::Keep) {
            Ok(found) => Ok(Some(found.object)),
            Err(betr_core::Error::Refused(Refusal::NotFound | Refusal::NotADirectory)) => Ok(None),
            Err(error) => Err(CopyError::at(path, error)),
        }
    }

    /// Leaves all directories, which restores their times.
    pub(crate) fn end(&mut self) -> Result<(), CopyError> {
        self.leave(0)
    }

    /// Enters the parent directory of `path`. Returns the last component of `path`.
    fn enter_parent<'p>(
        &mut self,
        path: &'p [u8],
        time: crate::host::Time,
    ) -> Result<&'p [u8], CopyError> {
        let (parent, name) = split(path);
        self.enter(parent, time)?;
        Ok(name)
    }

    /// Enters the directory at `path`. Missing directories are created, with `time`.
    fn enter(&mut self, path: &[u8], time: crate::host::Time) -> Result<(), CopyError> {
        let names: Vec<&[u8]> = components(path).collect();
        let stays = |(level, name): &(&Level, &&[u8])| level.name == **name;
        let common = self.open[1..].iter().zip(&names).take_while(stays).count();
        self.leave(1 + common)?;
        // The end of the current component in `path`, for messages.
        let mut end = names[..common].iter().map(|name| name.len() + 1).sum::<usize>();
        for name in &names[common..] {
            end += name.len() + 1;
            let way = &path[..end - 1];
            let last = self.open.last().expect("the root is open").directory.clone();
            let directory = match self.find(way, &last, name)? {
                Some(there) => self.through(way, there)?,
                None => {
                    self.last();
                    // The source does not describe this directory.
                    let meta = Meta::new(Kind::Directory, MISSING, time);
                    let making = Making { path: way, meta: &meta, shared: false };
                    self.object_in(making, &last, name, Data::Whole(Contents::default()))?
                }
            };
            let is_own = self.since.made(&directory) || self.renewed.contains(&directory.ino());
            let times = is_own.then(|| times_of(&directory));
            self.open.push(Level { name: name.to_vec(), directory, times, changed: false });
        }
        Ok(())
    }

    /// The directory `there`, at `way`, or the one that this symbolic link leads to.
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

    /// The parent directory of the last object, marked as changed.
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

    /// Removes what an object of this kind replaces. Returns the directory that it is merged into, if any.
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
            Clash::Older(since) => self.put.fs.clear_for_copy(directory, name, is_directory, since),
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

    /// Replaces the attributes of an existing object, extended ones included.
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
        if !self.since.made(object) {
            self.renewed.insert(object.ino());
        }
        self.put.attributes(path, meta, object)
    }
}

/// Creates an empty directory for a following import.
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
