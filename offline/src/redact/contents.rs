//! Identifies contents in values, and replaces them by zeros.

use std::fmt;
use std::ops::Range;

use betr_core::format::{Kind, MetaPlace, MetaValue, Trace, Update};
use betr_core::fs::{ORPHAN_ZONE, parse_small};
use betr_core::ids::*;
use betr_core::volume::Content;

/// Which values are contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// Values of the data index, and of extended attributes.
    OfFiles,
    /// All values.
    All,
}

/// Whether a value notes a zone that is too small.
fn is_note(key: &[u8], value: &[u8]) -> bool {
    let place = MetaPlace::of(key).filter(|place| place.zone == ORPHAN_ZONE && place.is_root());
    let name = place.as_ref().and_then(|place| place.xattr(key));
    name.is_some_and(|name| parse_small(name, value).is_some())
}

impl Contents {
    /// For a volume of files, or of keys.
    pub(super) fn of(content: Content) -> Contents {
        match content {
            Content::Files => Contents::OfFiles,
            Content::Keys => Contents::All,
        }
    }

    /// Whether all values of a tree are contents.
    pub(super) fn has_all(self, tree: TreeId) -> bool {
        self == Contents::All || tree == TreeId::Data
    }

    /// Whether the value of this key describes a file.
    fn is_metadata(self, tree: TreeId, key: &[u8]) -> bool {
        !self.has_all(tree) && MetaPlace::of(key).is_some_and(|place| place.xattr(key).is_none())
    }

    /// Replaces contents in a value or a verified update by zeros. Returns their number of bytes.
    pub(super) fn blank(self, tree: TreeId, key: &[u8], kind: Kind, value: &mut [u8]) -> u64 {
        let is_metadata = self.is_metadata(tree, key);
        match kind {
            Kind::Delete => 0,
            Kind::Insert if is_metadata && MetaValue::decode(value, None).is_ok() => 0,
            Kind::Insert if !self.has_all(tree) && is_note(key, value) => 0,
            Kind::Insert => {
                value.fill(0);
                value.len() as u64
            }
            Kind::Update if is_metadata => 0,
            Kind::Update => {
                let mut parts = Spans::of(&["bytes", "delta"]);
                if Update::verify(value, Some(&mut parts)).is_err() {
                    value.fill(0);
                    return value.len() as u64;
                }
                let parts = parts.found;
                parts.iter().for_each(|(_, part)| value[part.clone()].fill(0));
                parts.iter().map(|(_, part)| part.len() as u64).sum()
            }
        }
    }
}

/// The byte ranges of fields with certain names, in decoding order.
pub(super) struct Spans {
    wanted: &'static [&'static str],
    /// Name and byte range of each.
    pub found: Vec<(&'static str, Range<usize>)>,
}

impl Spans {
    /// An empty collector for fields with these names.
    pub(super) fn of(wanted: &'static [&'static str]) -> Spans {
        Spans { wanted, found: Vec::new() }
    }

    /// The ranges of one name.
    pub(super) fn named(&self, name: &'static str) -> impl Iterator<Item = Range<usize>> + '_ {
        self.found.iter().filter(move |(found, _)| *found == name).map(|(_, bytes)| bytes.clone())
    }
}

impl Trace for Spans {
    fn enter(&mut self, _: &'static str, _: Option<usize>) {}

    fn leave(&mut self) {}

    fn field(&mut self, name: &'static str, bytes: Range<usize>, _: &dyn fmt::Display) {
        if self.wanted.contains(&name) {
            self.found.push((name, bytes));
        }
    }
}
