//! Walks of a directory tree, without recursion and safe against cycles.

use std::collections::{HashSet, VecDeque};

use super::{DirEntry, Fs, Listing, Object};
use crate::error::Result;
use crate::format::FileType;
use crate::ids::Ino;

/// A step of a walk. Paths are relative to its start, without a leading slash; that of the start is empty.
pub enum Visit {
    /// A directory, before its entries.
    Enter(Vec<u8>, Object),
    /// An entry that is no directory.
    Entry(Vec<u8>, DirEntry),
    /// A directory, after everything below it.
    Leave(Vec<u8>, Object),
    /// A directory that has been visited before, by a cycle or a second reference. It is not entered.
    Again(Vec<u8>, DirEntry),
}

/// A walk over everything below a directory: its entries in the order of names, then its subdirectories one after
/// another. That is the order of the metadata index, which is read once, a zone at a time.
pub struct Walk {
    start: Option<Object>,
    open: Vec<Level>,
    /// The path of the innermost directory. A path for each level would take quadratic memory.
    path: Vec<u8>,
    seen: HashSet<Ino>,
}

struct Level {
    /// The length of the parent directory's path.
    above: usize,
    directory: Object,
    listing: Listing,
    /// Subdirectories that have been listed but not entered.
    waiting: VecDeque<DirEntry>,
}

impl Walk {
    /// A walk from the directory `start`.
    pub fn new(start: Object) -> Walk {
        Walk { start: Some(start), open: Vec::new(), path: Vec::new(), seen: HashSet::new() }
    }

    /// The next step; `None` at the end.
    pub fn next(&mut self, fs: &Fs) -> Result<Option<Visit>> {
        if let Some(start) = self.start.take() {
            return self.enter(fs, Vec::new(), start).map(Some);
        }
        while let Some(level) = self.open.last_mut() {
            let Some(entry) = fs.next_entry(&mut level.listing)? else { break };
            if entry.kind == FileType::Directory {
                level.waiting.push_back(entry);
            } else {
                return Ok(Some(Visit::Entry(self.path_of(&entry), entry)));
            }
        }
        let Some(level) = self.open.last_mut() else { return Ok(None) };
        if let Some(entry) = level.waiting.pop_front() {
            let path = self.path_of(&entry);
            if self.seen.contains(&entry.ino) {
                return Ok(Some(Visit::Again(path, entry)));
            }
            let directory = fs.entry_object(entry)?;
            return self.enter(fs, path, directory).map(Some);
        }
        let left = self.open.pop().map(|level| {
            let path = self.path.clone();
            self.path.truncate(level.above);
            Visit::Leave(path, level.directory)
        });
        Ok(left)
    }

    /// The next object; `None` at the end.
    pub fn next_object(&mut self, fs: &Fs) -> Result<Option<(Vec<u8>, Object)>> {
        while let Some(visit) = self.next(fs)? {
            match visit {
                Visit::Enter(path, directory) => return Ok(Some((path, directory))),
                Visit::Entry(path, entry) => return Ok(Some((path, fs.entry_object(entry)?))),
                Visit::Leave(..) | Visit::Again(..) => {}
            }
        }
        Ok(None)
    }

    /// Skips the directory that was entered last.
    pub fn skip(&mut self) {
        if let Some(level) = self.open.pop() {
            self.path.truncate(level.above);
        }
    }

    fn path_of(&self, entry: &DirEntry) -> Vec<u8> {
        let mut path = Vec::with_capacity(self.path.len() + 1 + entry.name.len());
        path.extend_from_slice(&self.path);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&entry.name);
        path
    }

    fn enter(&mut self, fs: &Fs, path: Vec<u8>, directory: Object) -> Result<Visit> {
        self.seen.insert(directory.ino());
        let listing = fs.listing(&directory, None)?;
        let above = self.path.len();
        self.path.clone_from(&path);
        let waiting = VecDeque::new();
        self.open.push(Level { above, directory: directory.clone(), listing, waiting });
        Ok(Visit::Enter(path, directory))
    }
}
