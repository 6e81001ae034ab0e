//! The entries of an index in which two volumes differ.

use std::cmp::Ordering;

use bytes::Bytes;

use super::{Side, Unread};
use betr_core::format::Key;
use betr_core::ids::TreeId;
use betr_core::tree::Scan;
use betr_core::volume::Volume;

/// A key whose values differ in two volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// The key.
    pub key: Key,
    /// The value in the first volume, if any.
    pub first: Option<Bytes>,
    /// The value in the second volume, if any.
    pub second: Option<Bytes>,
}

/// The differing entries of two volumes within a range, in key order.
pub struct DifferingEntries<'v> {
    volumes: [&'v Volume; 2],
    scans: [Scan; 2],
    next: [Option<(Key, Bytes)>; 2],
    begun: bool,
}

impl<'v> DifferingEntries<'v> {
    /// The differing entries within `[lo, hi)`.
    pub fn new(
        volumes: [&'v Volume; 2],
        tree: TreeId,
        lo: &Key,
        hi: Option<&Key>,
    ) -> DifferingEntries<'v> {
        let scans = [0, 1].map(|_| Scan::new(tree, lo.clone(), hi.cloned()));
        DifferingEntries { volumes, scans, next: [None, None], begun: false }
    }

    fn advance(&mut self, at: usize) -> Result<(), Unread> {
        let side = if at == 0 { Side::First } else { Side::Second };
        let next = self.volumes[at].advance(&mut self.scans[at]);
        self.next[at] = next.map_err(|error| Unread { side, error })?;
        Ok(())
    }

    /// The next differing entry.
    pub fn next_entry(&mut self) -> Result<Option<Differing>, Unread> {
        if !std::mem::replace(&mut self.begun, true) {
            self.advance(0)?;
            self.advance(1)?;
        }
        loop {
            let order = match &self.next {
                [None, None] => return Ok(None),
                [Some(_), None] => Ordering::Less,
                [None, Some(_)] => Ordering::Greater,
                [Some((x, _)), Some((y, _))] => x.cmp(y),
            };
            let first = if order.is_le() { self.next[0].take() } else { None };
            let second = if order.is_ge() { self.next[1].take() } else { None };
            if first.is_some() {
                self.advance(0)?;
            }
            if second.is_some() {
                self.advance(1)?;
            }
            if first == second {
                continue;
            }
            let key = first.as_ref().or(second.as_ref()).map(|(key, _)| key.clone());
            let value = |entry: Option<(Key, Bytes)>| entry.map(|(_, value)| value);
            return Ok(key.map(|key| Differing {
                key,
                first: value(first),
                second: value(second),
            }));
        }
    }
}
