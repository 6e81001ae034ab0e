//! Moments: states of the past that an image can still show. They are checkpoints, as long as their blocks last, and
//! the states after each record of the log.

use std::sync::Arc;

use super::{Mode, OpenOptions, Ring, RingSlot, Volume, holds_of, no_such_hold, read_identity};
use crate::device::Device;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{Group, Hold, Key, Record, Superblock};
use crate::ids::*;
use crate::node::RangeSet;

/// A moment, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The newest checkpoint, without its log.
    Checkpoint,
    /// The newest state, with all of the log.
    Now,
    /// Right after a record of the log.
    Record(Lsn),
    /// Right after everything with a time up to this one.
    Time(Time),
    /// The checkpoint of an epoch.
    Epoch(Epoch),
    /// The snapshot of a name.
    Snapshot(Arc<str>),
}

/// The end of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// To the end of the log.
    #[default]
    End,
    /// Up to and including the record that holds this number.
    Record(Lsn),
    /// Up to the first record that happened later.
    Time(Time),
}

/// A moment that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The slot of the superblock to start from.
    pub slot: u32,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its time.
    pub wall: Time,
    /// Whether its blocks may have been overwritten: it is neither the newest checkpoint nor a snapshot.
    pub may_be_gone: bool,
    /// Whether the log is replayed.
    pub mode: Mode,
    /// The end of the replay.
    pub until: Until,
    /// The name of the snapshot that is opened instead of the slot's checkpoint.
    pub snapshot: Option<Arc<str>>,
}

/// A replay that ended before the log did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The group that holds the first record that was not replayed.
    pub group: u64,
    /// That record.
    pub before: Lsn,
    /// The end of that group.
    pub group_end: Lsn,
    /// Late-bound values that the rest of the group changes. Each is stored once, as at the end of the group, and is
    /// shown so.
    pub end_of_group: Vec<EndOfGroupValue>,
}

/// Late-bound values of consecutive blocks that are shown as at the end of their group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndOfGroupValue {
    /// The record that wrote them.
    pub lsn: Lsn,
    /// The first key.
    pub key: Key,
    /// Number of blocks.
    pub count: u32,
}

impl Until {
    /// Whether a record is replayed, if those before it are.
    pub fn includes(self, record: &Record) -> bool {
        match self {
            Until::End => true,
            Until::Record(lsn) => record.lsn <= lsn,
            // A hidden operation may precede the operation that it belongs to, with a later time.
            Until::Time(time) => record.wall <= time || record.op.is_hidden(),
        }
    }

    /// Fails if the log, which ends before message `end`, does not reach this point.
    pub fn within(self, end: Msn) -> Result<()> {
        match self {
            Until::Record(lsn) if lsn.0 >= end.0 => {
                Err(Error::Input(format!("the log ends before {lsn}: it holds all below l:{end}")))
            }
            _ => Ok(()),
        }
    }
}

impl Moment {
    /// Finds a moment. If the image does not remember it, the error names the moments that it does.
    pub fn find(&self, device: &Arc<dyn Device>) -> Result<Found> {
        let disk = Disk::new(device.clone());
        let ring = Ring::read(&disk, &read_identity(&disk)?)?;
        // Older epochs can be opened even if the newest superblock is lost.
        let newest = match (self, ring.newest()) {
            (Moment::Epoch(_), Some(newest)) => newest,
            _ => ring.choose(None)?,
        };
        let found = |superblock: &Superblock, mode, until| Found {
            slot: superblock.slot,
            epoch: superblock.birth.epoch,
            wall: superblock.wall,
            may_be_gone: superblock.birth.epoch != newest.birth.epoch,
            mode,
            until,
            snapshot: None,
        };
        let of_hold = |hold: &Hold| Found {
            epoch: hold.epoch,
            wall: hold.wall,
            snapshot: Some(hold.name.as_str().into()),
            ..found(newest, Mode::Checkpoint, Until::End)
        };
        let older = || {
            let found = ring.slots().iter().filter_map(RingSlot::superblock);
            found.filter(|older| older.birth.epoch <= newest.birth.epoch)
        };
        match *self {
            Moment::Snapshot(ref name) => {
                let holds = holds_of(&disk, newest)?;
                let hold = holds.iter().find(|hold| hold.name == **name);
                hold.map(of_hold)
                    .ok_or_else(|| no_such_hold(name, &holds.iter().collect::<Vec<_>>()))
            }
            Moment::Now => Ok(found(newest, Mode::ReadOnly, Until::End)),
            Moment::Checkpoint => Ok(found(newest, Mode::Checkpoint, Until::End)),
            Moment::Record(lsn) => match lsn.0 >= newest.next_msn.0 {
                true => Ok(found(newest, Mode::ReadOnly, Until::Record(lsn))),
                false => Err(Error::Input(format!(
                    "{lsn} is in the checkpoint of epoch {}, and the log of that begins at l:{}; {}",
                    newest.birth.epoch.0,
                    newest.next_msn.0,
                    remembered(older())
                ))),
            },
            Moment::Time(time) if newest.wall <= time => {
                Ok(found(newest, Mode::ReadOnly, Until::Time(time)))
            }
            Moment::Time(time) => {
                let before = older().filter(|superblock| superblock.wall <= time);
                let last = before.map(|superblock| found(superblock, Mode::Checkpoint, Until::End));
                // If snapshots cannot be read, none is considered.
                let holds = holds_of(&disk, newest).unwrap_or_default();
                // A snapshot is complete, so it is preferred to the checkpoint that it keeps.
                let kept = holds.iter().filter(|hold| hold.wall <= time).map(of_hold);
                let last = last.chain(kept).max_by_key(|found| found.epoch);
                last.ok_or_else(|| {
                    Error::Input(format!("that is too long ago; {}", remembered(older())))
                })
            }
            Moment::Epoch(epoch) => {
                let of_epoch = older().find(|superblock| superblock.birth.epoch == epoch);
                let of_epoch = of_epoch.map(|older| found(older, Mode::Checkpoint, Until::End));
                let holds = holds_of(&disk, newest).unwrap_or_default();
                let kept = holds.iter().find(|hold| hold.epoch == epoch).map(of_hold);
                kept.or(of_epoch).ok_or_else(|| {
                    let there = remembered(older());
                    Error::Input(format!("no superblock of epoch {} is left; {there}", epoch.0))
                })
            }
        }
    }
}

/// The list of remembered epochs, as text.
fn remembered<'s>(superblocks: impl Iterator<Item = &'s Superblock>) -> String {
    let mut epochs: Vec<u64> = superblocks.map(|superblock| superblock.birth.epoch.0).collect();
    epochs.sort_unstable();
    epochs.dedup();
    let epochs: Vec<String> = epochs.into_iter().map(|epoch| format!("{}", Epoch(epoch))).collect();
    format!("the ring remembers {}", epochs.join(", "))
}

/// The effects of the records of a group that a replay leaves out.
pub(super) struct Rest {
    /// The keys of the data index that they touch.
    keys: RangeSet,
    /// The state at the end of the group, for values that were never written otherwise.
    end: Volume,
}

impl Rest {
    /// Looks at the records of a group from number `included` on. `None` if they touch no contents, or if no value was
    /// bound late before them.
    pub(super) fn of(
        group: &Group,
        included: usize,
        device: &Arc<dyn Device>,
        slot: u32,
    ) -> Result<Option<Rest>> {
        let (before, behind) = group.records.split_at(included);
        if before.iter().all(|record| record.unbound().next().is_none()) {
            return Ok(None);
        }
        let mut keys = RangeSet::default();
        let touched = behind.iter().flat_map(|record| &record.messages);
        for message in touched.filter(|message| message.tree() == TreeId::Data) {
            let (lo, hi) = message.bounds();
            keys.insert(crate::format::RangeDelete { lo, hi, msn: Msn(1) });
        }
        if keys.is_empty() {
            return Ok(None);
        }
        let until = Until::Record(Lsn(group.next_lsn.0 - 1));
        let options = OpenOptions {
            slot: Some(slot),
            content: None,
            until,
            ..OpenOptions::new(Mode::ReadOnly, Box::new(|| 0))
        };
        let (end, _) = Volume::open(device.clone(), options)?;
        Ok(Some(Rest { keys, end }))
    }

    /// Whether one of the records touches a key.
    pub(super) fn touches(&self, key: &Key) -> bool {
        self.keys.covering(key).is_some()
    }

    /// The value at the end of the group.
    pub(super) fn value(&self, key: &Key) -> Result<Option<bytes::Bytes>> {
        self.end.get(TreeId::Data, key)
    }
}
