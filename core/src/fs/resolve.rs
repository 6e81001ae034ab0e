//! Pathname resolution for the operands of commands (POSIX.1-2017, 4.13).
//!
//! Symbolic links are followed within the file system: an absolute target starts at its root directory. `.` and `..` are
//! resolved through the tree, and their parent component must be a directory. The parent of the root is the root. A path with a
//! trailing slash resolves to a directory or fails.
//!
//! [`Fs::resolve`] does none of this. It takes canonical paths, which consist of names.

use std::collections::VecDeque;

use super::{Fs, Object};
use crate::error::{Refusal, Result};
use crate::format::FileType;
use crate::ids::Ino;
use crate::path::Operand;

/// The limit of symbolic links in one resolution; Linux has the same.
const LINKS_MAX: u32 = 40;

/// Whether a symbolic link that is the last component is followed. With a trailing slash it always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// Resolve to the target of the link.
    Follow,
    /// Resolve to the link itself.
    Keep,
}

/// The result of a resolution.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The object.
    pub object: Object,
    /// Its canonical path: without symbolic links, `.` and `..`.
    pub path: Vec<u8>,
}

/// A directory and a name in it, where an entry is or can be made. It holds no handle of the existing object: an object with
/// handles becomes an orphan when it is removed.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The directory.
    pub directory: Object,
    /// The name.
    pub name: Vec<u8>,
    /// The type and inode number of the existing object.
    pub found: Option<(FileType, Ino)>,
    /// The canonical path of the entry.
    pub path: Vec<u8>,
    /// Whether the operand requires a directory.
    wants_directory: bool,
}

impl Slot {
    /// The existing object. Fails if there is none, or if the operand requires a directory and it is none.
    pub fn existing(&self) -> Result<(FileType, Ino)> {
        match self.found {
            None => Err(Refusal::NotFound.into()),
            Some((kind, _)) if self.wants_directory && kind != FileType::Directory => {
                Err(Refusal::NotADirectory.into())
            }
            Some(found) => Ok(found),
        }
    }

    /// Fails if the name exists, or if an object of this type does not meet the operand.
    pub fn vacant(&self, kind: FileType) -> Result<()> {
        match self.found {
            Some(_) => Err(Refusal::Exists.into()),
            None => self.takes(kind),
        }
    }

    /// Fails if the operand requires a directory and the type is another.
    pub fn takes(&self, kind: FileType) -> Result<()> {
        match self.wants_directory && kind != FileType::Directory {
            true => Err(Refusal::NotADirectory.into()),
            false => Ok(()),
        }
    }
}

/// The state of a resolution.
struct Resolution {
    /// The directories from the root to the current one, each with its name.
    above: Vec<(Object, Vec<u8>)>,
    /// The components that are not resolved yet.
    rest: VecDeque<Vec<u8>>,
    /// Whether the result must be a directory.
    wants_directory: bool,
    links: u32,
}

/// Where a resolution ends.
enum End {
    /// In the current directory.
    Directory,
    /// At an entry of the current directory, existing or not.
    Entry(Vec<u8>, Option<Object>),
}

impl Resolution {
    /// Resolves a path below `root`, which is its root directory, too.
    fn new(root: Object, path: &Operand) -> Result<Resolution> {
        if path.is_empty() {
            return Err(Refusal::NotFound.into());
        }
        let above = vec![(root, Vec::new())];
        let mut way = Resolution {
            above,
            rest: VecDeque::new(),
            wants_directory: path.wants_directory(),
            links: 0,
        };
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

    /// The canonical path of the current directory, or of an entry of it.
    fn path(&self, name: Option<&[u8]>) -> Vec<u8> {
        let names = self.above[1..].iter().map(|(_, name)| &name[..]).chain(name);
        let names: Vec<&[u8]> = names.collect();
        [b"/", &names.join(&b'/')[..]].concat()
    }

    /// Resolves all components. With `keep` the last one is not entered or followed, even with a trailing slash.
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
    /// Resolves an operand to an object.
    pub fn look_up(&self, path: &Operand, last: LastLink) -> Result<Resolved> {
        self.look_up_below(self.root()?, path, last)
    }

    /// The same where `root` is the root directory, which no path leaves, as chroot(2) has it.
    pub fn look_up_below(&self, root: Object, path: &Operand, last: LastLink) -> Result<Resolved> {
        let mut way = Resolution::new(root, path)?;
        match way.go(self, last, false)? {
            End::Directory => {
                Ok(Resolved { object: way.directory().clone(), path: way.path(None) })
            }
            End::Entry(_, None) => Err(Refusal::NotFound.into()),
            End::Entry(_, Some(_)) if way.wants_directory => Err(Refusal::NotADirectory.into()),
            End::Entry(name, Some(object)) => Ok(Resolved { object, path: way.path(Some(&name)) }),
        }
    }

    /// Resolves an operand to the entry that it names, existing or not, without following its last component: for making,
    /// removing and renaming. If the last component is no name (`.`, `..` or `/`), the error is [`Refusal::Exists`].
    pub fn slot(&self, path: &Operand) -> Result<Slot> {
        self.slot_of(path, LastLink::Keep, true)
    }

    /// Resolves an operand to the entry that open(2) with `O_CREAT` would open or make: symbolic links are followed, dangling
    /// ones too. A directory is an error.
    pub fn slot_behind(&self, path: &Operand) -> Result<Slot> {
        self.slot_of(path, LastLink::Follow, false)
    }

    fn slot_of(&self, path: &Operand, last: LastLink, keep: bool) -> Result<Slot> {
        let mut way = Resolution::new(self.root()?, path)?;
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
