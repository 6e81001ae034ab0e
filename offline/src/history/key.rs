//! The effects of the log on one key.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use super::tell;
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::error::Result;
use betr_core::format::*;
use betr_core::ids::*;
use betr_core::log::Values;
use betr_core::volume::Until;

/// A message of the log for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStep {
    /// Its record.
    pub lsn: Lsn,
    /// The record's operation.
    pub op: Op,
    /// The record's wall time.
    pub wall: Time,
    /// The message.
    pub msn: Msn,
    /// Its effect.
    pub deed: KeyDeed,
    /// The value after it, if known. Of late-bound values, only the one at the end of the group was written.
    pub after: Option<Option<Bytes>>,
}

/// The effect of a message of the log on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyDeed {
    /// A message to the key itself.
    Point(Action),
    /// A range delete that covers it.
    RangeDelete(Key, Key),
    /// A range clone that made it: the key that it was cloned from.
    Clone(Key),
    /// An unbound entry with its value, as of the end of its group.
    Bound {
        /// The node that holds the value; `None` if the log does.
        node: Option<NodeId>,
        /// The byte address of that place.
        byte: u64,
    },
    /// An unbound entry whose value was bound to NULL.
    Null,
}

/// The messages of a superblock's log for a key, record by record. `stored` is its value in the checkpoint.
pub fn of_key(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    tree: TreeId,
    key: &Key,
    until: Until,
    stored: Option<Bytes>,
) -> Result<Vec<KeyStep>> {
    let disk = Disk::new(device.clone());
    let mut value = Some(stored);
    let mut steps = Vec::new();
    let mut failed = Ok(());
    tell(device, superblock, &mut |event| {
        let record = event.record;
        if !until.includes(record) {
            return ControlFlow::Break(());
        }
        for (touched, message) in event.touched.iter().zip(&record.messages) {
            if touched.tree != tree || *key < touched.lo || *key >= touched.hi {
                continue;
            }
            let (mut msn, mut found) = (touched.msn, None);
            let deed = match message {
                RecordMessage::Point(_, _, action) => KeyDeed::Point(action.clone()),
                RecordMessage::RangeDelete(_, lo, hi) => {
                    KeyDeed::RangeDelete(lo.clone(), hi.clone())
                }
                RecordMessage::Clone(_, clone) => KeyDeed::Clone(clone.lens().down(key)),
                RecordMessage::Unbound(first, _) => {
                    let block = |key: &Key| parse_data_key(key).map_or(0, |(_, block)| block);
                    msn = Msn(msn.0 + block(key).saturating_sub(block(first)));
                    let range = MsnRange { first: msn, count: 1 };
                    let bindings = &event.group.bindings;
                    let mut values = Values::new(&disk, superblock.birth.volume, bindings);
                    match values.fetch(key, range) {
                        Ok(fetched) => found = fetched.into_iter().next().flatten(),
                        Err(error) => {
                            failed = Err(error);
                            return ControlFlow::Break(());
                        }
                    }
                    bound(
                        event
                            .bound
                            .iter()
                            .find(|part| part.values.first <= msn && msn < part.values.end()),
                    )
                }
            };
            value = match &deed {
                KeyDeed::Point(Action::Update(update)) => {
                    value.take().map(|value| update.apply(value.as_deref()))
                }
                KeyDeed::Point(action) => Some(action.apply(None)),
                KeyDeed::RangeDelete(..) => Some(None),
                KeyDeed::Bound { .. } => Some(found),
                KeyDeed::Clone(_) | KeyDeed::Null => None,
            };
            let (lsn, op, wall) = (record.lsn, record.op, record.wall);
            steps.push(KeyStep { lsn, op, wall, msn, deed, after: value.clone() });
        }
        ControlFlow::Continue(())
    })?;
    failed.map(|()| steps)
}

fn bound(part: Option<&super::BoundPart<'_>>) -> KeyDeed {
    match part.map(|part| part.to) {
        None | Some(Target::Null) => KeyDeed::Null,
        Some(to @ Target::Leaf(leaf)) => KeyDeed::Bound { node: Some(leaf.node), byte: to.place() },
        Some(to @ Target::Slice(slice)) => {
            KeyDeed::Bound { node: Some(slice.node), byte: to.place() }
        }
        Some(Target::Inline(_)) => KeyDeed::Bound { node: None, byte: 0 },
    }
}
