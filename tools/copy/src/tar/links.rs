//! The hard links of an archive, found before its members are imported.

use std::collections::BTreeMap;

use crate::host::Excludes;

use crate::tar::reader::{Member, What};

/// The hard links of an archive that are not excluded, by the path of their target.
#[derive(Clone, Debug, Default)]
pub struct ArchiveLinks(BTreeMap<Vec<u8>, LinksTo>);

/// The hard links to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinksTo {
    /// The path of the first link.
    pub first: Vec<u8>,
    /// The number of links.
    pub count: u64,
}

impl ArchiveLinks {
    /// The links to `path`.
    pub fn of(&self, path: &[u8]) -> Option<&LinksTo> {
        self.0.get(path)
    }

    /// Notes a member, if it is a hard link.
    pub fn note(&mut self, member: &Member, excludes: &Excludes) {
        if let What::Link { to, .. } = &member.what
            && !excludes.covers(&member.path)
        {
            let none = || LinksTo { first: member.path.clone(), count: 0 };
            self.0.entry(to.clone()).or_insert_with(none).count += 1;
        }
    }
}
