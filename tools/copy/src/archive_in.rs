//! A tar archive into an image.
//!
//! Members come in any order. Directories that are missing on the way to one are made; what was there before under
//! the same name is replaced, as tar does: a directory stays with what is in it, and gets new attributes. Nothing
//! follows a symbolic link.
//!
//! Of the directories only those on the way to the last member are remembered. Making something in a directory
//! changes its times; each gets its own back when the members leave it, so that at the end all are right.

use betr_core::fs::{Changes, Fs, Object};
use betr_core::ids::Time;
use betr_core::text::Brief;
use betr_host::{Excludes, Kind, Meta};
use betr_tar::{Archive, Member, What};

use crate::put::Put;
use crate::{CopyError, ImportOptions, Imported};

/// What directories get that no member speaks of.
const MISSING: u32 = 0o755;

/// Imports the members of `archive`, but for those that are excluded, into `root`, an empty directory of the image
/// that belongs to root.
/// `warn` is told what of a member could not be kept.
pub fn import_archive(
    fs: &mut Fs,
    archive: &mut Archive,
    root: &Object,
    excludes: &Excludes,
    options: ImportOptions,
    warn: &mut dyn FnMut(String),
) -> Result<Imported, CopyError> {
    let root = Level::new(b"", root.clone());
    let put = Put::new(fs, options);
    let mut unpack = Unpack { put, archive, open: vec![root], root_is_known: false };
    unpack.put.done.directories += 1;
    while let Some(member) = unpack.archive.next_member()? {
        if excludes.covers(&member.path) {
            continue;
        }
        for warning in &member.warnings {
            warn(format!("{}: '{}': {warning}", unpack.archive.name(), Brief(&member.path)));
        }
        unpack.member(member)?;
    }
    unpack.leave(1)?;
    if !unpack.root_is_known {
        unpack.own_root()?;
    }
    unpack.leave(0)?;
    Ok(unpack.put.done)
}

struct Unpack<'u> {
    put: Put<'u>,
    archive: &'u mut Archive,
    /// The directories from the root down to where the last member is.
    open: Vec<Level>,
    /// Whether a member said who owns the root.
    root_is_known: bool,
}

struct Level {
    name: Vec<u8>,
    directory: Object,
    /// The times that it is to have: of access and of modification.
    times: (Time, Time),
    changed: bool,
}

impl Level {
    /// A directory that has the times that it is to have.
    fn new(name: &[u8], directory: Object) -> Level {
        let inode = directory.inode();
        let times = (inode.accessed, inode.modified);
        Level { name: name.to_vec(), directory, times, changed: false }
    }
}

impl Unpack<'_> {
    fn member(&mut self, member: Member) -> Result<(), CopyError> {
        let path = &member.path;
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], &path[..]),
        };
        match member.what {
            What::Object(meta) if path.is_empty() => self.root(&meta),
            What::Object(meta) => {
                self.enter(parent, meta.mtime)?;
                match meta.kind {
                    Kind::Directory => self.directory(path, name, &meta),
                    _ => self.other(path, name, &meta),
                }
            }
            What::Link { to, size, modified } => {
                self.enter(parent, modified)?;
                self.link(path, name, &to, size)
            }
        }
    }

    /// The root is there already.
    fn root(&mut self, meta: &Meta) -> Result<(), CopyError> {
        if meta.kind != Kind::Directory {
            return Err(CopyError::unfit(b"", "the root of an archive can only be a directory"));
        }
        self.leave(1)?;
        let root = self.open[0].directory.clone();
        self.replace_attributes(b"", meta, &root)?;
        self.open[0] = Level::new(b"", root);
        self.root_is_known = true;
        Ok(())
    }

    /// A root that no member speaks of belongs to whom root stands for.
    fn own_root(&mut self) -> Result<(), CopyError> {
        let (uid, gid) = self.put.options.owner(b"", 0, 0)?;
        let changes = Changes { uid: Some(uid), gid: Some(gid), ..Changes::default() };
        Ok(self.put.fs.set_attributes(&self.open[0].directory, changes)?)
    }

    fn directory(&mut self, path: &[u8], name: &[u8], meta: &Meta) -> Result<(), CopyError> {
        if let Some(there) = self.find(path, name)? {
            if there.is_directory() {
                return self.replace_attributes(path, meta, &there);
            }
            drop(there);
            self.remove(path, name)?;
        }
        let made = self.make(path, meta, name)?;
        self.put.done.directories += 1;
        self.put.attributes(path, meta, &made)
    }

    fn other(&mut self, path: &[u8], name: &[u8], meta: &Meta) -> Result<(), CopyError> {
        if self.find(path, name)?.is_some() {
            self.remove(path, name)?;
        }
        let made = self.make(path, meta, name)?;
        let archive = &mut *self.archive;
        self.put.finish(path, meta, &made, |piece| Ok(archive.next_segment(piece)?))
    }

    /// Another name of what has been imported before, and with it its contents if the member has them.
    fn link(&mut self, path: &[u8], name: &[u8], to: &[u8], size: u64) -> Result<(), CopyError> {
        let Some(object) = self.resolve(path, to)? else {
            let why = format!("is a hard link to '{}', which does not come before it", Brief(to));
            return Err(CopyError::unfit(path, why));
        };
        if object.is_directory() {
            let why = format!("is a hard link to '{}', a directory", Brief(to));
            return Err(CopyError::unfit(path, why));
        }
        let there = self.find(path, name)?;
        if there.as_ref() != Some(&object) {
            if there.is_some() {
                drop(there);
                self.remove(path, name)?;
            }
            let last = self.last();
            let (directory, object) = (last.directory.clone(), &object);
            self.put
                .fs
                .link(object, &directory, name)
                .map_err(|error| CopyError::at(path, error))?;
            self.put.done.links += 1;
        }
        if size > 0 {
            self.rewrite(path, size, &object)?;
        }
        Ok(())
    }

    /// Gives a file new contents, and leaves its times as they are.
    fn rewrite(&mut self, path: &[u8], size: u64, file: &Object) -> Result<(), CopyError> {
        let inode = file.inode();
        self.put.fs.truncate(file, 0).map_err(|error| CopyError::at(path, error))?;
        let archive = &mut *self.archive;
        self.put.contents(path, size, file, |piece| Ok(archive.next_segment(piece)?))?;
        let times = (inode.accessed, inode.modified);
        set_times(self.put.fs, file, times)
    }

    /// What a path leads to, if anything.
    fn resolve(&self, path: &[u8], to: &[u8]) -> Result<Option<Object>, CopyError> {
        let mut object = self.open[0].directory.clone();
        for name in betr_core::fs::components(to) {
            if !object.is_directory() {
                return Ok(None);
            }
            let found = self.put.fs.find(&object, name);
            match found.map_err(|error| CopyError::at(path, error))? {
                Some(next) => object = next,
                None => return Ok(None),
            }
        }
        Ok(Some(object))
    }

    /// Goes to the directory at `path`. What is missing on the way is made, with the time of what calls for it.
    fn enter(&mut self, path: &[u8], time: betr_host::Time) -> Result<(), CopyError> {
        let names: Vec<&[u8]> = betr_core::fs::components(path).collect();
        let stays = |(level, name): &(&Level, &&[u8])| level.name == **name;
        let common = self.open[1..].iter().zip(&names).take_while(stays).count();
        self.leave(1 + common)?;
        // Where the name of each begins, for messages.
        let mut end = names[..common].iter().map(|name| name.len() + 1).sum::<usize>();
        for name in &names[common..] {
            end += name.len() + 1;
            let way = &path[..end - 1];
            let directory = match self.find(way, name)? {
                Some(there) if there.is_directory() => there,
                Some(there) => {
                    let why = format!("is in the way as a {}", there.kind().name());
                    return Err(CopyError::unfit(way, why));
                }
                None => {
                    self.put.done.directories += 1;
                    // Nothing in the archive speaks of it.
                    let meta = Meta::new(Kind::Directory, MISSING, time);
                    self.make(way, &meta, name)?
                }
            };
            self.open.push(Level::new(name, directory));
        }
        Ok(())
    }

    /// Leaves directories until `depth` are open.
    fn leave(&mut self, depth: usize) -> Result<(), CopyError> {
        while self.open.len() > depth
            && let Some(level) = self.open.pop()
        {
            if level.changed {
                set_times(self.put.fs, &level.directory, level.times)?;
            }
        }
        Ok(())
    }

    fn last(&mut self) -> &mut Level {
        let last = self.open.last_mut().expect("the root is open");
        last.changed = true;
        last
    }

    fn find(&self, path: &[u8], name: &[u8]) -> Result<Option<Object>, CopyError> {
        let last = self.open.last().expect("the root is open");
        self.put.fs.find(&last.directory, name).map_err(|error| CopyError::at(path, error))
    }

    fn make(&mut self, path: &[u8], meta: &Meta, name: &[u8]) -> Result<Object, CopyError> {
        let directory = self.last().directory.clone();
        self.put.make(path, meta, &directory, name, false)
    }

    /// Removes what is to be replaced: anything but a directory that is not empty.
    fn remove(&mut self, path: &[u8], name: &[u8]) -> Result<(), CopyError> {
        let is_directory = self.find(path, name)?.is_some_and(|there| there.is_directory());
        let directory = self.last().directory.clone();
        let removed = match is_directory {
            true => self.put.fs.rmdir(&directory, name),
            false => self.put.fs.unlink(&directory, name),
        };
        removed.map_err(|error| CopyError::at(path, error))
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
        self.put.attributes(path, meta, object)
    }
}

fn set_times(fs: &mut Fs, object: &Object, times: (Time, Time)) -> Result<(), CopyError> {
    let (accessed, modified) = (Some(times.0), Some(times.1));
    Ok(fs.set_attributes(object, Changes { accessed, modified, ..Changes::default() })?)
}
