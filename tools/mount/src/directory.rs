//! Positions in an open directory: a cookie is an ordinal, and the open directory maps ordinals to names.
//!
//! It keeps the names of the last entries, and a sample of older ones. A seek further back finds
//! a name before the requested entry, and reads on from there.

use std::collections::VecDeque;

use betr_core::Result;
use betr_core::fs::{DirEntry, Fs, Listing, Object};

/// The most names that are remembered one by one.
const RECENT: usize = 4096;
/// Of older ones, one in this many.
const STEP: u64 = 64;
/// The entries `.` and `..`.
pub(crate) const DOTS: u64 = 2;

/// An open directory.
pub(crate) struct OpenDirectory {
    listing: Option<Listing>,
    /// The ordinal of the next entry; `.` and `..` are the first two.
    next: u64,
    /// An entry that was read and did not fit into the reply.
    left: Option<DirEntry>,
    /// The names of the last entries, that of `next - 1` at the end.
    recent: VecDeque<Vec<u8>>,
    /// Of older ones: an ordinal, and the name that has it.
    marks: Vec<(u64, Vec<u8>)>,
}

impl OpenDirectory {
    pub(crate) fn new() -> OpenDirectory {
        OpenDirectory {
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
        // The last known name before the entry.
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

    /// The next entry, without moving on.
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

    /// Moves behind the entry that was read last.
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
