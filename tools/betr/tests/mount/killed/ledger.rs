//! The permitted states of a directory tree after a crash, recorded by the worker that changes it.
//!
//! Every change is recorded before it is requested. Changes that an fsync acknowledged must be present. The names may
//! show any later state that they went through: changes of names become durable in order, so that a rename never
//! loses a file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use super::content::Content;

/// An object of a ledger; a file is identified by its number, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Directory,
    File(u64),
}

/// Paths below the top, and their objects.
pub(super) type Names = BTreeMap<String, Entry>;

/// The object found at a path.
enum Found {
    Directory,
    File(Vec<u8>),
}

/// The tree below one directory. The top itself, "", always exists.
pub(super) struct Ledger {
    /// The states of the names since the last one known to be durable; the current one is last.
    states: Vec<Names>,
    files: BTreeMap<u64, Content>,
    /// Directories with changes of names that are not known to be durable.
    unsynced: BTreeSet<String>,
    next_file: u64,
    /// The most recent requests and acknowledgements, to debug failures.
    notes: VecDeque<String>,
}

/// The number of notes kept.
const NOTES: usize = 40;

/// The parent directory of a path.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Ledger {
    /// The ledger of an empty directory.
    pub(super) fn new() -> Self {
        let files = BTreeMap::new();
        let (unsynced, notes) = (BTreeSet::new(), VecDeque::new());
        Self { states: vec![Names::new()], files, unsynced, next_file: 0, notes }
    }

    fn note(&mut self, note: String) {
        self.notes.push_back(note);
        if self.notes.len() > NOTES {
            self.notes.pop_front();
        }
    }

    pub(super) fn names(&self) -> &Names {
        self.states.last().unwrap()
    }

    pub(super) fn file(&self, path: &str) -> &Content {
        &self.files[&self.number(path)]
    }

    fn file_mut(&mut self, path: &str) -> &mut Content {
        let number = self.number(path);
        self.files.get_mut(&number).unwrap()
    }

    pub(super) fn write(&mut self, path: &str, at: usize, bytes: &[u8]) {
        self.note(format!("write {path} {at}+{}", bytes.len()));
        self.file_mut(path).write(at, bytes);
    }

    pub(super) fn resize(&mut self, path: &str, len: usize) {
        self.note(format!("resize {path} {len}"));
        self.file_mut(path).resize(len);
    }

    /// Records that an fsync of a file has returned.
    pub(super) fn file_synced(&mut self, path: &str) {
        self.note(format!("{path} is synced"));
        self.file_mut(path).acknowledge();
    }

    fn number(&self, path: &str) -> u64 {
        match self.names().get(path) {
            Some(Entry::File(number)) => *number,
            other => panic!("{path} is {other:?}, not a file"),
        }
    }

    /// The total size of all files, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let names = self.names().keys();
        names.filter(|path| self.is_file(path)).map(|path| self.file(path).len()).sum()
    }

    pub(super) fn is_file(&self, path: &str) -> bool {
        matches!(self.names().get(path), Some(Entry::File(_)))
    }

    /// Records a change of names in these directories.
    fn change(&mut self, directories: &[&str], change: impl FnOnce(&mut Names)) {
        let mut names = self.names().clone();
        change(&mut names);
        self.states.push(names);
        self.unsynced.extend(directories.iter().map(|directory| directory.to_string()));
    }

    pub(super) fn create(&mut self, path: &str) {
        self.note(format!("create {path}"));
        let number = self.next_file;
        self.next_file += 1;
        self.files.insert(number, Content::default());
        self.change(&[parent(path)], |names| {
            names.insert(path.to_owned(), Entry::File(number));
        });
    }

    pub(super) fn mkdir(&mut self, path: &str) {
        self.note(format!("mkdir {path}"));
        self.change(&[parent(path)], |names| {
            names.insert(path.to_owned(), Entry::Directory);
        });
    }

    pub(super) fn remove(&mut self, path: &str) {
        self.note(format!("remove {path}"));
        self.change(&[parent(path)], |names| {
            names.remove(path);
        });
        self.unsynced.remove(path);
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        self.note(format!("rename {from} to {to}"));
        self.change(&[parent(from), parent(to)], |names| {
            let entry = names.remove(from).unwrap();
            names.insert(to.to_owned(), entry);
        });
    }

    /// Records that an fsync of a directory has returned.
    pub(super) fn directory_synced(&mut self, path: &str) {
        self.note(format!("directory {path:?} is synced"));
        self.unsynced.remove(path);
        if self.unsynced.is_empty() {
            self.forget_states();
        }
    }

    /// Records that a sync of everything has returned.
    pub(super) fn all_synced(&mut self) {
        self.note("all is synced".into());
        self.unsynced.clear();
        self.forget_states();
        self.files.values_mut().for_each(Content::acknowledge);
    }

    fn forget_states(&mut self) {
        self.states.drain(..self.states.len() - 1);
        let named: BTreeSet<u64> = self
            .names()
            .values()
            .filter_map(|entry| match entry {
                Entry::File(number) => Some(*number),
                Entry::Directory => None,
            })
            .collect();
        self.files.retain(|number, _| named.contains(number));
    }

    /// Compares with the tree after a crash, which then becomes the durable state.
    pub(super) fn check(&mut self, top: &Path) {
        let found = read(top);
        // The most recent state first: it is the most likely one.
        let troubles: Vec<_> =
            self.states.iter().rev().map(|names| self.troubles(names, &found)).collect();
        let Some(which) = troubles.iter().position(Vec::is_empty) else {
            let least = troubles.iter().min_by_key(|troubles| troubles.len()).unwrap();
            let shown = least[..least.len().min(20)].join("\n  ");
            let notes = self.notes.make_contiguous().join("\n  ");
            let (top, count) = (top.display(), self.states.len());
            panic!(
                "{top}: none of {count} states. The nearest differs:\n  {shown}\nafter\n  {notes}"
            );
        };
        let names = self.states.swap_remove(self.states.len() - 1 - which);
        self.unsynced.clear();
        self.files.clear();
        for (path, found) in found {
            if let (Found::File(bytes), Some(Entry::File(number))) = (found, names.get(&path)) {
                self.files.insert(*number, Content::durable(bytes));
            }
        }
        self.states = vec![names];
        self.note("all is as it was found after a crash".into());
    }

    /// The differences of the tree from a state of the names, with the permitted contents of its files.
    fn troubles(&self, names: &Names, found: &BTreeMap<String, Found>) -> Vec<String> {
        let mut troubles = Vec::new();
        for (path, entry) in names {
            match (entry, found.get(path)) {
                (_, None) => troubles.push(format!("{path} is lost")),
                (Entry::Directory, Some(Found::Directory)) => {}
                (Entry::File(number), Some(Found::File(bytes))) => {
                    if let Err(trouble) = self.files[number].admits(bytes) {
                        troubles.push(format!("{path}: {trouble}"));
                    }
                }
                _ => troubles.push(format!("{path} is of another type")),
            }
        }
        let extra = found.keys().filter(|path| !names.contains_key(*path));
        troubles.extend(extra.map(|path| format!("{path} should not be there")));
        troubles
    }
}

fn read(top: &Path) -> BTreeMap<String, Found> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![String::new()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(top.join(&directory)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            let what = if entry.file_type().unwrap().is_dir() {
                waiting.push(path.clone());
                Found::Directory
            } else {
                Found::File(fs::read(entry.path()).unwrap())
            };
            found.insert(path, what);
        }
    }
    found
}
