//! Positions in an open directory: a cookie is an ordinal, and the open directory maps ordinals to names.
//!
//! It keeps the names of the last 4096 entries, and one in 64 of the older ones. A seek starts at the last kept name
//! before the requested entry, and reads on from there.

use std::collections::VecDeque;

use betr_core::Result;
use betr_core::fs::{DirEntry, Fs, Listing, Object};
use parking_lot::Mutex;

/// The number of recent names that are all kept.
const RECENT: usize = 4096;
/// Of older names, one in 64 is kept.
const STEP: u64 = 64;
/// The entries `.` and `..`.
pub(crate) const DOTS: u64 = 2;

/// An open directory.
pub(crate) struct OpenDirectory {
    pub object: Object,
    pub position: Mutex<Position>,
}

impl OpenDirectory {
    pub(crate) fn new(object: Object) -> OpenDirectory {
        OpenDirectory { object, position: Mutex::new(Position::new()) }
    }
}

/// The position in an open directory.
pub(crate) struct Position {
    listing: Option<Listing>,
    /// The ordinal of the next entry; `.` and `..` are the first two.
    next: u64,
    /// An entry that was read but did not fit into the reply.
    left: Option<DirEntry>,
    /// The names of the last entries; the last one is entry `next - 1`.
    recent: VecDeque<Vec<u8>>,
    /// Kept older entries: ordinal and name.
    marks: Vec<(u64, Vec<u8>)>,
}

impl Position {
    fn new() -> Position {
        Position {
            listing: None,
            next: DOTS,
            left: None,
            recent: VecDeque::new(),
            marks: Vec::new(),
        }
    }

    /// Seeks to an ordinal.
    pub(crate) fn seek(&mut self, fs: &Fs, directory: &Object, to: u64) -> Result<()> {
        let to = to.max(DOTS);
        if to == self.next && self.listing.is_some() {
            return Ok(());
        }
        self.left = None;
        self.marks.truncate(self.marks.partition_point(|(ordinal, _)| *ordinal < to));
        // The last kept name before the entry.
        let behind = (self.next - to.min(self.next)) as usize;
        let known = match behind < self.recent.len() {
            true => {
                let at = self.recent.len() - behind;
                self.recent.truncate(at);
                self.recent.back().map(|name| (to.min(self.next), name.clone()))
            }
            false => {
                self.recent.clear();
                self.marks.last().map(|(ordinal, name)| (ordinal + 1, name.clone()))
            }
        };
        let (next, name) = known.map_or((DOTS, None), |(next, name)| (next, Some(name)));
        self.listing = Some(fs.listing(directory, name.as_deref())?);
        self.next = next;
        while self.next < to {
            match self.read(fs)? {
                Some(entry) => self.took(&entry),
                None => break,
            }
        }
        Ok(())
    }

    /// Reads the next entry without advancing.
    pub(crate) fn read(&mut self, fs: &Fs) -> Result<Option<DirEntry>> {
        if let Some(left) = self.left.take() {
            return Ok(Some(left));
        }
        match &mut self.listing {
            Some(listing) => fs.next_entry(listing),
            None => Ok(None),
        }
    }

    /// Puts back the entry that was read last.
    pub(crate) fn leave(&mut self, entry: DirEntry) {
        self.left = Some(entry);
    }

    /// The ordinal of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Advances past the entry that was read last, and keeps its name.
    pub(crate) fn took(&mut self, entry: &DirEntry) {
        if self.next.is_multiple_of(STEP) {
            self.marks.push((self.next, entry.name.clone()));
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(entry.name.clone());
        self.next += 1;
    }
}
