//! Rescue: what can be read of a damaged node.

use super::*;

impl Internal {
    /// Builds a node of all readable messages within `bounds`, over the same children or others. `lost` gets the key
    /// bounds of messages that cannot be read or are invalid. MSNs that were never given out become the last one that
    /// was. MSNs of messages that a younger range delete covers become its MSN.
    pub fn rescue(
        &self,
        disk: &Disk,
        id: NodeId,
        (bounds, next_msn): (Bounds, Msn),
        children: Option<Vec<NewEdge>>,
        lost: &mut dyn FnMut(Bounds, &Error),
    ) -> Internal {
        let own = |child: &Child| (child.id, child.pivot.clone(), child.lens.clone());
        let children = children.unwrap_or_else(|| self.children.iter().map(own).collect());
        let mut node = Internal::over(id, self.tree, self.height, bounds, children);
        let last = Msn(next_msn.0.saturating_sub(1).max(1));
        let adds = |item: &Item<'_>| {
            item.kind == Kind::Update
                && matches!(item.action(), Action::Update(update) if update.adds())
        };
        let mut made = 0;
        for (number, run) in self.runs.iter().enumerate() {
            let mut batch = Batch::default();
            match self.ranges(disk, run) {
                Ok(ranges) => {
                    for range in ranges.iter() {
                        for share in self.live_shares(run, range) {
                            let msn = share.msn.clamp(Msn(1), last);
                            batch.insert_range(RangeDelete { msn, ..share });
                        }
                    }
                }
                Err(error) => lost(self.bounds.clone(), &error),
            }
            for (at, child) in self.children.iter().enumerate() {
                if child.first_run > run.reference.seq {
                    continue;
                }
                for slice in child.share_of(number).map_or(0..0, Share::slices) {
                    match self.slice(disk, run, slice) {
                        Ok(messages) => {
                            for item in messages.iter() {
                                if self.tree == TreeId::Data && adds(&item) {
                                    let lo = Key::copied(item.key);
                                    let fault = Fault::Missing("an addition to a block".into());
                                    let error =
                                        Error::corrupt(Place::Key(self.tree, lo.to_vec()), fault);
                                    lost(Bounds { hi: Some(lo.successor()), lo }, &error);
                                    continue;
                                }
                                let before = &node.open[node.child_for(item.key)];
                                let covering =
                                    [&batch, before].map(|batch| batch.ranges().covering(item.key));
                                let least = covering.into_iter().max().flatten();
                                batch.insert(&item.numbered_within(least.unwrap_or(Msn(1)), last));
                            }
                        }
                        Err(error) => {
                            let (first, next) = run.keys_of(slice);
                            let all = self.child_bounds(at);
                            let lo = Key::copied(first).max(all.lo);
                            lost(Bounds { lo, hi: next.map(Key::copied).or(all.hi) }, &error);
                        }
                    }
                }
            }
            let grows = |more| {
                made += more;
                self.check_messages(made)
            };
            if let Err(error) = node.absorb_within(batch, grows) {
                lost(self.bounds.clone(), &error);
            }
        }
        node
    }

    /// A range delete of a run, clipped to the children that have not taken it.
    fn live_shares(&self, run: &Run, range: &RangeDelete) -> impl Iterator<Item = RangeDelete> {
        let live = self.children.iter().enumerate();
        let live = live.filter(|(_, child)| child.first_run <= run.reference.seq);
        live.filter_map(|(at, _)| {
            let bounds = self.child_bounds(at);
            clip(range, &bounds.lo, bounds.hi.as_deref())
        })
    }
}
