//! The pending messages of a node, listed by hashes, so that two nodes can be compared without reading common parts.

use super::runs::Run;
use super::*;

/// The place of a slice among the runs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlicePlace {
    run: usize,
    slice: usize,
}

impl Internal {
    /// All slices that their children have not taken, each with the lower bound of the child and its hash.
    pub fn slices(&self) -> impl Iterator<Item = (SlicePlace, &Key, Hash)> + '_ {
        self.runs.iter().enumerate().flat_map(move |(at, run)| {
            let slices = run.reference.slices.iter().enumerate();
            slices.filter(|(_, slice)| self.is_live(run, usize::from(slice.child))).map(
                move |(slice, reference)| {
                    let child = &self.children[usize::from(reference.child)];
                    (SlicePlace { run: at, slice }, &child.pivot, reference.section.hash)
                },
            )
        })
    }

    /// The messages of a slice: the key of each, and a hash of the rest.
    pub fn slice_messages(&self, disk: &Disk, place: SlicePlace) -> Result<Vec<(Key, Hash)>> {
        let messages = self.slice(disk, &self.runs[place.run], place.slice)?;
        let hash = |item: &Item<'_>| {
            let parts = [&item.msn.0.to_le_bytes()[..], &[item.kind as u8], item.value()];
            Hash::of(&parts.concat())
        };
        Ok(messages.iter().map(|item| (Key::copied(item.key), hash(&item))).collect())
    }

    /// The range deletes of sealed runs, each clipped to the children that have not taken it.
    pub fn live_ranges(&self, disk: &Disk) -> Result<Vec<RangeDelete>> {
        let mut live = Vec::new();
        for run in &self.runs {
            let ranges = self.ranges(disk, run)?;
            if ranges.is_empty() {
                continue;
            }
            for at in (0..self.children.len()).filter(|at| self.is_live(run, *at)) {
                let Bounds { lo, hi } = self.child_bounds(at);
                live.extend(shares(ranges, &lo, hi.as_deref()));
            }
        }
        Ok(live)
    }

    fn is_live(&self, run: &Run, child: usize) -> bool {
        run.reference.seq >= self.children[child].first_run
    }
}
