//! What an installation put where: a line for each file, as sha256sum(1) writes and reads them.
//!
//! Links are not in it; a link that leads to a file called betr is known as such. A line that makes no
//! sense is passed over: what it should have said is then not known as installed, and not replaced.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use betr_core::ids::Hash;

use super::plan::{Item, What};

/// Where it is, below the prefix.
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

    /// Whether this file was installed with this content.
    pub(super) fn has(&self, path: &Path, hash: Hash) -> bool {
        self.0.get(path).is_some_and(|known| *known == hash.to_string())
    }

    /// Its lines.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(path, hash)| format!("{hash}  {}\n", path.display())).collect()
    }
}
