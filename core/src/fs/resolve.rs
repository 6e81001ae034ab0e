//! What the path operands of commands lead to: pathname resolution as POSIX has it (POSIX.1-2017, 4.13).
//!
//! Symbolic links on the way are followed, within the file system: one that begins with a slash starts again at its root
//! directory. `.` and `..` are resolved through the tree, so that what is before them must be a directory; above the
//! root is the root. A path that ends in a slash leads to a directory or nowhere. [`Fs::resolve`] knows none of this: it is
//! for paths that the file system itself has made of names.

use std::collections::VecDeque;

use super::{Fs, Object};
use crate::error::{Refusal, Result};
use crate::format::FileType;
use crate::ids::Ino;
use crate::path::Operand;

/// The most symbolic links on the way of one path, as in Linux.
const LINKS_MAX: u32 = 40;

/// What becomes of a symbolic link that is the last component. One with a slash behind it is followed in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// It is followed.
    Follow,
    /// It is itself what the path leads to.
    Keep,
}

/// What a path leads to.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The object.
    pub object: Object,
    /// Where it is: the path without links, `.` and `..`.
    pub path: Vec<u8>,
}

/// A place for an entry: a directory and a name in it. It holds no handle of what has the name, so that this can be
/// removed.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The directory.
    pub directory: Object,
    /// The name.
    pub name: Vec<u8>,
    /// What has the name: its type and inode number.
    pub found: Option<(FileType, Ino)>,
    /// The path of the entry, without links, `.` and `..`.
    pub path: Vec<u8>,
    /// Whether only a directory may have, or get, the name.
    wants_directory: bool,
}

impl Slot {
    /// What has the name, which must be as the operand asks for.
    pub fn existing(&self) -> Result<(FileType, Ino)> {
        match self.found {
            None => Err(Refusal::NotFound.into()),
            Some((kind, _)) if self.wants_directory && kind != FileType::Directory => {
                Err(Refusal::NotADirectory.into())
            }
            Some(found) => Ok(found),
        }
    }

    /// Refuses what is not free for something of this type.
    pub fn vacant(&self, kind: FileType) -> Result<()> {
        match self.found {
            Some(_) => Err(Refusal::Exists.into()),
            None => self.takes(kind),
        }
    }

    /// Refuses something of this type where the operand asks for a directory.
    pub fn takes(&self, kind: FileType) -> Result<()> {
        match self.wants_directory && kind != FileType::Directory {
            true => Err(Refusal::NotADirectory.into()),
            false => Ok(()),
        }
    }
}

/// A path on its way.
struct Way {
    /// The directories from the root down, each with its name in the one before.
    above: Vec<(Object, Vec<u8>)>,
    /// The components that are to come.
    rest: VecDeque<Vec<u8>>,
    /// Whether the last of them must be a directory.
    wants_directory: bool,
    links: u32,
}

/// Where a path ends.
enum End {
    /// In the innermost directory of the way.
    Directory,
    /// At an entry of that directory, which is no directory.
    Entry(Vec<u8>, Option<Object>),
}

impl Way {
    fn new(fs: &Fs, path: &Operand) -> Result<Way> {
        if path.is_empty() {
            return Err(Refusal::NotFound.into());
        }
        let above = vec![(fs.root()?, Vec::new())];
        let mut way =
            Way { above, rest: VecDeque::new(), wants_directory: path.wants_directory(), links: 0 };
        way.insert(path);
        Ok(way)
    }

    /// Puts the components of a path before the rest.
    fn insert(&mut self, path: &Operand) {
        for name in path.components().rev() {
            self.rest.push_front(name.to_vec());
        }
    }

    fn directory(&self) -> &Object {
        &self.above.last().expect("the root is never left").0
    }

    /// The path of the innermost directory, or of an entry of it.
    fn path(&self, name: Option<&[u8]>) -> Vec<u8> {
        let names = self.above[1..].iter().map(|(_, name)| &name[..]).chain(name);
        let names: Vec<&[u8]> = names.collect();
        [b"/", &names.join(&b'/')[..]].concat()
    }

    /// Goes to the end of the path. With `keep` its last component is not followed, even where only a directory
    /// answers to it.
    fn go(&mut self, fs: &Fs, last: LastLink, keep: bool) -> Result<End> {
        while let Some(name) = self.rest.pop_front() {
            match &name[..] {
                b"." => continue,
                b".." => {
                    if self.above.len() > 1 {
                        self.above.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let is_last = self.rest.is_empty();
            let found = fs.find(self.directory(), &name)?;
            if is_last && keep {
                return Ok(End::Entry(name, found));
            }
            let Some(object) = found else {
                return match is_last {
                    true => Ok(End::Entry(name, None)),
                    false => Err(Refusal::NotFound.into()),
                };
            };
            match object.kind() {
                FileType::Directory => self.above.push((object, name)),
                FileType::Symlink
                    if !is_last || self.wants_directory || last == LastLink::Follow =>
                {
                    self.follow(&object, is_last)?;
                }
                _ if is_last => return Ok(End::Entry(name, Some(object))),
                _ => return Err(Refusal::NotADirectory.into()),
            }
        }
        Ok(End::Directory)
    }

    fn follow(&mut self, link: &Object, is_last: bool) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Refusal::TooManyLevels.into());
        }
        let target = Operand::new(link.inode().target.clone());
        if target.is_empty() {
            return Err(Refusal::NotFound.into());
        }
        if target.is_absolute() {
            self.above.truncate(1);
        }
        self.wants_directory |= is_last && target.wants_directory();
        self.insert(&target);
        Ok(())
    }
}

impl Fs {
    /// What a path operand leads to.
    pub fn look_up(&self, path: &Operand, last: LastLink) -> Result<Resolved> {
        let mut way = Way::new(self, path)?;
        match way.go(self, last, false)? {
            End::Directory => {
                Ok(Resolved { object: way.directory().clone(), path: way.path(None) })
            }
            End::Entry(_, None) => Err(Refusal::NotFound.into()),
            End::Entry(_, Some(_)) if way.wants_directory => Err(Refusal::NotADirectory.into()),
            End::Entry(name, Some(object)) => Ok(Resolved { object, path: way.path(Some(&name)) }),
        }
    }

    /// The entry that a path operand names, which need not be there: for what makes, removes or renames entries. Its last
    /// component is not followed. One that is no name (`.`, `..` or `/`) exists and cannot be made.
    pub fn slot(&self, path: &Operand) -> Result<Slot> {
        self.slot_of(path, LastLink::Keep, true)
    }

    /// The entry that writing to a path operand would make or replace: symbolic links are followed, those that lead to
    /// nothing, too. A directory has no such entry.
    pub fn slot_behind(&self, path: &Operand) -> Result<Slot> {
        self.slot_of(path, LastLink::Follow, false)
    }

    fn slot_of(&self, path: &Operand, last: LastLink, keep: bool) -> Result<Slot> {
        let mut way = Way::new(self, path)?;
        let keep = keep && matches!(path.last(), crate::path::Last::Name(_));
        match (way.go(self, last, keep)?, last) {
            (End::Directory, LastLink::Keep) => Err(Refusal::Exists.into()),
            (End::Directory, LastLink::Follow) => Err(Refusal::IsADirectory.into()),
            (End::Entry(name, object), _) => Ok(Slot {
                directory: way.directory().clone(),
                found: object.map(|object| (object.kind(), object.ino())),
                path: way.path(Some(&name)),
                name,
                wants_directory: way.wants_directory,
            }),
        }
    }
}
