//! Reading an open directory: a cookie is an ordinal, and the open directory remembers by name where it was.
//!
//! Entries that were read last are remembered one by one, older ones here and there: who goes back further comes to
//! an entry before the one that was meant, and reads on to it.

use std::collections::VecDeque;

use betr_core::Result;
use betr_core::fs::{DirEntry, Fs, Listing, Object};

/// The most names that are remembered one by one.
const RECENT: usize = 4096;
/// Of older ones, one in this many.
const STEP: u64 = 64;
/// The entries `.` and `..`.
pub(crate) const DOTS: u64 = 2;

/// A directory that is being read.
pub(crate) struct OpenDirectory {
    listing: Option<Listing>,
    /// The ordinal of the entry that comes next; `.` and `..` are the first two.
    next: u64,
    /// An entry that was read, and then did not fit into the answer.
    left: Option<DirEntry>,
    /// Names that were read last, that of `next - 1` at the end.
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

    /// Goes to the entry with this ordinal.
    pub(crate) fn seek(&mut self, fs: &Fs, directory: &Object, to: u64) -> Result<()> {
        let to = to.max(DOTS);
        if to == self.next && self.listing.is_some() {
            return Ok(());
        }
        self.left = None;
        self.marks.truncate(self.marks.partition_point(|(ordinal, _)| *ordinal < to));
        // The last name before the entry that is known.
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

    /// The next entry; it comes again until it has been taken.
    pub(crate) fn read(&mut self, fs: &Fs) -> Result<Option<DirEntry>> {
        if let Some(left) = self.left.take() {
            return Ok(Some(left));
        }
        match &mut self.listing {
            Some(listing) => fs.next_entry(listing),
            None => Ok(None),
        }
    }

    /// The entry that was read last did not fit.
    pub(crate) fn leave(&mut self, entry: DirEntry) {
        self.left = Some(entry);
    }

    /// The ordinal of the entry that comes next.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The entry that was read last has been taken.
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
