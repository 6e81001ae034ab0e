//! All messages of a node for one key, one by one, to explain a value.

use bytes::Bytes;

use super::*;

/// A pending message for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its MSN.
    pub msn: Msn,
    /// The run that contains it; `None` if it is only in memory.
    pub run: Option<RunSeq>,
    /// The byte address of its slice or range section.
    pub byte: Option<u64>,
    /// Its effect.
    pub deed: Deed,
}

/// The effect of a message on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A message to the key itself.
    Point(Action),
    /// A range delete that covers the key, clipped to the child.
    RangeDelete(Key, Key),
}

impl Deed {
    /// The value after the message, given the value before.
    pub fn carried_out(&self, value: Option<Bytes>) -> Option<Bytes> {
        match self {
            Deed::Point(action) => action.apply(value.as_ref()),
            Deed::RangeDelete(..) => None,
        }
    }
}

impl Internal {
    /// The messages pending here for a key, the youngest first.
    pub fn pending_for(&self, disk: &Disk, key: &[u8]) -> Result<Vec<Pending>> {
        let (at, end) = (self.child_for(key), Key::copied(key).successor());
        let mut found = Vec::new();
        let open = &self.open[at];
        if let Some(item) = open.points().get(key) {
            let (msn, action) = (item.msn, item.action());
            found.push(Pending { msn, run: None, byte: None, deed: Deed::Point(action) });
        }
        if let Some(msn) = open.ranges().covering(key) {
            let range = open.ranges().iter().find(|range| *range.lo <= *key && *key < *range.hi);
            let (lo, hi) = range.map_or((Key::copied(key), end), |range| (range.lo, range.hi));
            found.push(Pending { msn, run: None, byte: None, deed: Deed::RangeDelete(lo, hi) });
        }
        let child = &self.children[at];
        let live = |(_, run): &(usize, &Run)| run.reference.seq >= child.first_run;
        for (number, run) in self.runs.iter().enumerate().rev().take_while(live) {
            let seq = Some(run.reference.seq);
            let start = run.reference.extent.start.byte();
            let byte = |section: &SectionRef| Some(start + u64::from(section.offset));
            if let Some(share) = child.share_of(number)
                && let Some(slice) = run.slice_of(share, Key::head(key), key)
                && let Some(item) = self.slice(disk, run, slice)?.get(key)
            {
                let (msn, action) = (item.msn, item.action());
                let byte = byte(&run.reference.slices[slice].section);
                found.push(Pending { msn, run: seq, byte, deed: Deed::Point(action) });
            }
            let ranges = self.ranges(disk, run)?;
            let behind = ranges.partition_point(|range| *range.lo <= *key);
            if let Some(range) = behind.checked_sub(1).map(|at| &ranges[at])
                && *key < *range.hi
            {
                let deed = Deed::RangeDelete(range.lo.clone(), range.hi.clone());
                let byte = byte(&run.reference.ranges);
                found.push(Pending { msn: range.msn, run: seq, byte, deed });
            }
        }
        Ok(found)
    }
}
