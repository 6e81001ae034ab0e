//! The record of an installation: a line for each file, in the format of sha256sum(1).
//!
//! Links are not recorded; a link to a file called betr counts as installed. A malformed line is ignored: its file
//! then does not count as installed, and is not replaced.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use betr_core::ids::Hash;

use super::plan::{Item, What};

/// The path of the record below the prefix.
pub(super) const RECORD: &str = "share/betr/installed";

/// The hash of each file, by its path below the prefix.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record(BTreeMap<PathBuf, String>);

impl Record {
    /// The record of an installation; empty if there is none.
    pub(super) fn read(path: &Path) -> Record {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = |line: &str| {
            let (hash, path) = line.split_once("  ")?;
            Some((PathBuf::from(path), hash.to_owned()))
        };
        Record(text.lines().filter_map(line).collect())
    }

    /// The record of these items.
    pub(super) fn of(items: &[Item]) -> Record {
        let line = |item: &Item| match &item.what {
            What::File { bytes, .. } => Some((item.path.clone(), Hash::of(bytes).to_string())),
            What::Link { .. } => None,
        };
        Record(items.iter().filter_map(line).collect())
    }

    /// Whether this file was installed with these contents.
    pub(super) fn has(&self, path: &Path, hash: Hash) -> bool {
        self.0.get(path).is_some_and(|known| *known == hash.to_string())
    }

    /// The record as text.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(path, hash)| format!("{hash}  {}\n", path.display())).collect()
    }
}
