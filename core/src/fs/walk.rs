//! Walking a tree of directories, without recursion and without going round in circles.

use std::collections::HashSet;

use super::{DirEntry, Fs, Object};
use crate::error::Result;
use crate::format::FileType;
use crate::ids::Ino;
use crate::tree::Scan;

/// A step of a walk.
pub enum Visit {
    /// An object: its path below the start, without a leading slash; empty for the start itself. A
    /// directory comes before what is in it.
    Object(Vec<u8>, Object),
    /// A directory whose entries have all been visited, with its path.
    Leave(Vec<u8>, Object),
    /// A directory that has been visited before: a cycle, or a second way to it. It is not entered.
    Again(Vec<u8>, DirEntry),
}

/// A walk over everything below an object, depth first, in the order of names.
pub struct Walk {
    start: Option<Object>,
    open: Vec<Level>,
    /// The path of the innermost directory: a path at each level would take the square of the depth.
    path: Vec<u8>,
    seen: HashSet<Ino>,
}

struct Level {
    /// The length of the path of the directory above.
    above: usize,
    directory: Object,
    scan: Scan,
}

impl Walk {
    /// A walk that begins with `start`.
    pub fn new(start: Object) -> Walk {
        Walk { start: Some(start), open: Vec::new(), path: Vec::new(), seen: HashSet::new() }
    }

    /// The next step; nothing at the end.
    pub fn next(&mut self, fs: &Fs) -> Result<Option<Visit>> {
        if let Some(start) = self.start.take() {
            self.enter(fs, &[], &start)?;
            return Ok(Some(Visit::Object(Vec::new(), start)));
        }
        let Some(level) = self.open.last_mut() else { return Ok(None) };
        let Some(entry) = fs.next_entry(&mut level.scan)? else {
            let level = self.open.pop().expect("the level was just looked at");
            let path = self.path.clone();
            self.path.truncate(level.above);
            return Ok(Some(Visit::Leave(path, level.directory)));
        };
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&entry.name);
        if entry.kind == FileType::Directory && self.seen.contains(&entry.ino) {
            return Ok(Some(Visit::Again(path, entry)));
        }
        let object = fs.entry_object(entry)?;
        self.enter(fs, &path, &object)?;
        Ok(Some(Visit::Object(path, object)))
    }

    fn enter(&mut self, fs: &Fs, path: &[u8], object: &Object) -> Result<()> {
        if object.inode.kind == FileType::Directory {
            self.seen.insert(object.inode.ino);
            let scan = fs.scan_directory(object)?;
            let above = self.path.len();
            self.path = path.to_vec();
            self.open.push(Level { above, directory: object.clone(), scan });
        }
        Ok(())
    }
}
