//! Pass 2 of recovery: injecting the records of valid groups into the trees.

use super::checkpoint::Continued;
use super::moment::{EndOfGroupValue, Rest, Stopped, Until};
use super::reserve::Claim;
use super::trees::Trees;
use super::{Access, Volume};
use bytes::Bytes;

use crate::disk::Disk;
use crate::error::{Error, Place, Result};
use crate::format::{Action, Group, Key, MsnRange, RecordMessage, block_after};
use crate::ids::*;
use crate::log::{LogReader, Scanned, Survey, Values};
use crate::mutation::{Mutation, is_broken};
use crate::tree::{self, Ordered};
use crate::tuning::VALUES_AT_ONCE;

impl Volume {
    /// Pass 2: injects the records of the groups that pass 1 found valid; `eager` makes a checkpoint before each but the
    /// first. Returns the number of checkpoints made on the way, and where the replay ended if it ended before the log.
    pub(super) fn replay(
        &mut self,
        survey: &Survey,
        eager: bool,
        until: Until,
    ) -> Result<(u64, Option<Stopped>)> {
        let superblock = self.superblock.clone();
        let disk = self.trees.wait().store.disk.clone();
        let mut reader = LogReader::new(&disk, &superblock);
        let mut checkpoints = 0;
        for _ in 0..survey.groups {
            let before = reader.next_group();
            let Scanned { bytes, group, .. } = match reader.next()? {
                Ok(scanned) => scanned,
                Err(fault) => return Err(Error::corrupt(Place::Image, fault)),
            };
            let continued = Continued::Replay { unit: before.0, group: before.1 };
            if before.1 != superblock.first_group
                && (eager || !self.has_replay_room(bytes.len(), &group))
            {
                self.write_checkpoint(continued)?;
                checkpoints += 1;
            }
            let included = group.records.iter().take_while(|record| until.includes(record)).count();
            let rest = match group.records.get(included) {
                None => None,
                // The newest superblock: blocks of older ones may have been used again.
                Some(_) => Rest::of(&group, included, disk.device(), self.superblock.slot)?,
            };
            if included > 0 {
                self.replay_clones(&group.records[0], continued)?;
            }
            let end_of_group = self.replay_group(&disk, &group, included, survey, rest.as_ref())?;
            if let Some(next) = group.records.get(included) {
                let (before, group_end) = (next.lsn, group.next_lsn);
                let stopped = Stopped { group: group.number, before, group_end, end_of_group };
                return Ok((checkpoints, Some(stopped)));
            }
        }
        Ok((checkpoints, None))
    }

    /// Whether the space for a group is free. If not, a checkpoint before it helps: afterwards the extents that earlier
    /// groups bound are not needed.
    fn has_replay_room(&self, bytes: usize, group: &Group) -> bool {
        let extents = group.bindings.iter().filter_map(|binding| binding.to.extent());
        let late: u64 = extents.map(|extent| extent.bytes()).sum();
        let gain = self.trees.wait().store.space.pinned_blocks() > 0
            || self.trees.wait().store.dirty_bytes() > 0;
        !gain || self.has_room(self.need_of(bytes as u64 + late, u64::MAX), Claim::Frees)
    }

    /// Injects the first records of a group. Returns those of their late-bound values that the rest of the group
    /// touches.
    fn replay_group(
        &mut self,
        disk: &Disk,
        group: &Group,
        included: usize,
        survey: &Survey,
        rest: Option<&Rest>,
    ) -> Result<Vec<EndOfGroupValue>> {
        let values = Values::new(disk, self.identity.volume, &group.bindings);
        let mut late = GroupValues { values, rest, end_of_group: Vec::new() };
        let forgotten = usize::from(is_broken(Mutation::RecordForgotten));
        for record in &group.records[..included - forgotten.min(included)] {
            self.note_time(record.wall);
            let mut waiting = Waiting { first: record.lsn, messages: Vec::new() };
            for (first, message) in record.numbered() {
                self.forget_lost(message);
                if message.is_clone() {
                    // It has been made before the group.
                    waiting.first = Lsn(first.0 + 1);
                    continue;
                }
                let RecordMessage::Unbound(key, count) = message else {
                    self.inject(&mut waiting, first, message.clone())?;
                    continue;
                };
                let entry = (record.lsn, first, key, *count);
                self.replay_unbound(&mut waiting, &mut late, survey, entry)?;
            }
            self.flush_waiting(&mut waiting)?;
            self.next_msn = Msn(record.next_lsn().0);
            self.next = self.next.max(record.next);
        }
        Ok(late.end_of_group)
    }

    /// Injects the inserts of an unbound message, a few at a time; lost values are recorded instead, and a writer deletes
    /// their keys.
    fn replay_unbound(
        &mut self,
        waiting: &mut Waiting,
        late: &mut GroupValues<'_>,
        survey: &Survey,
        (lsn, first, key, count): (Lsn, Msn, &Key, u32),
    ) -> Result<()> {
        let mut done = 0;
        while done < count {
            let first = Msn(first.0 + u64::from(done));
            let key = block_after(key, done).expect("the decoder has looked at the last");
            let mut few = VALUES_AT_ONCE.min(count - done);
            if let Some(lost) = survey.lost_at(first) {
                few = (lost.messages.end().0 - first.0).min((count - done).into()) as u32;
                let last = block_after(&key, few - 1).expect("the decoder has looked at the last");
                let (end, damage) = (last.successor(), lost.damage.clone());
                self.trees.wait_mut().store.lost.insert(TreeId::Data, key.clone(), end, damage);
                // A checkpoint that a writer makes on the way shows no older values in their place.
                let deleted = if self.access == Access::ReadOnly { 0 } else { few };
                for at in 0..deleted {
                    let key = block_after(&key, at).expect("the decoder has looked at the last");
                    let delete = RecordMessage::Point(TreeId::Data, key, Action::Delete);
                    self.inject(waiting, Msn(first.0 + u64::from(at)), delete)?;
                }
                done += few;
                continue;
            }
            if let Some(lost) = survey.lost_after(first) {
                few = few.min((lost.messages.first.0 - first.0).min(u32::MAX.into()) as u32);
            }
            let fetched = late.values.fetch(&key, MsnRange { first, count: few })?;
            for (at, value) in fetched.into_iter().enumerate() {
                let key = block_after(&key, at as u32).expect("the decoder has looked at the last");
                let value = match late.shown(lsn, &key, value) {
                    // A value at the end of the group that cannot be read costs no more than its key.
                    Err(error) if error.is_unreadable() && self.access == Access::ReadOnly => {
                        let (damage, _) = error.into_damage()?;
                        let lost = &mut self.trees.wait_mut().store.lost;
                        lost.insert(TreeId::Data, key.clone(), key.successor(), damage);
                        continue;
                    }
                    value => value?,
                };
                let Some(value) = value else { continue };
                let msn = Msn(first.0 + at as u64);
                let insert = RecordMessage::Point(TreeId::Data, key, Action::Insert(value));
                self.inject(waiting, msn, insert)?;
            }
            done += few;
        }
        Ok(())
    }

    /// Adds a message to those that are injected together; their MSNs must be consecutive.
    fn inject(&mut self, waiting: &mut Waiting, msn: Msn, message: RecordMessage) -> Result<()> {
        let next = waiting.first.0 + waiting.messages.len() as u64;
        if next != msn.0 || waiting.messages.len() == VALUES_AT_ONCE as usize {
            self.flush_waiting(waiting)?;
            waiting.first = Lsn(msn.0);
        }
        waiting.messages.push(message);
        Ok(())
    }

    fn flush_waiting(&mut self, waiting: &mut Waiting) -> Result<()> {
        let first = Msn(waiting.first.0);
        let Trees { store, balance, .. } = self.trees.wait_mut();
        let messages = Ordered::new(std::mem::take(&mut waiting.messages));
        tree::inject(store, balance, first, &messages)?;
        // If space is short, the steps wait for a checkpoint, which waits for the end of the group.
        while !self.trees.wait().balance.is_settled() && self.has_room_for_step(Claim::Frees)? {
            match self.trees.wait_mut().step() {
                // A buffer that cannot be flushed stays where it is: the rest can still be read.
                Err(error)
                    if self.access == Access::ReadOnly
                        && !matches!(error, Error::NoSpace { .. }) => {}
                result => result?,
            }
        }
        self.evict(Claim::Takes)
    }

    /// Forgets lost values that a later message covers.
    fn forget_lost(&mut self, message: &RecordMessage) {
        let lost = &mut self.trees.wait_mut().store.lost;
        match message {
            RecordMessage::Point(_, _, Action::Update(_)) | RecordMessage::Clone(..) => {}
            RecordMessage::Point(..)
            | RecordMessage::RangeDelete(..)
            | RecordMessage::Unbound(..) => {
                let (lo, hi) = message.bounds();
                lost.forget(message.tree(), &lo, &hi);
            }
        }
    }
}

/// The late-bound values of a group, of which perhaps not all records are replayed.
struct GroupValues<'g> {
    values: Values<'g>,
    rest: Option<&'g Rest>,
    end_of_group: Vec<EndOfGroupValue>,
}

impl GroupValues<'_> {
    /// The value to show for what record `lsn` gave to `key`. A value that became obsolete within the group was never
    /// written. If records that are left out made it obsolete, the value at the end of the group is shown.
    fn shown(&mut self, lsn: Lsn, key: &Key, value: Option<Bytes>) -> Result<Option<Bytes>> {
        let Some(rest) = self.rest.filter(|rest| rest.touches(key)) else { return Ok(value) };
        match self.end_of_group.last_mut() {
            Some(last)
                if last.lsn == lsn && block_after(&last.key, last.count).as_ref() == Some(key) =>
            {
                last.count += 1;
            }
            _ => self.end_of_group.push(EndOfGroupValue { lsn, key: Key::copied(key), count: 1 }),
        }
        match value {
            Some(value) => Ok(Some(value)),
            None => rest.value(key),
        }
    }
}

/// Messages that are injected together, and the MSN of the first one.
struct Waiting {
    first: Lsn,
    messages: Vec<RecordMessage>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::{Device, MemoryDevice};
    use crate::format::{Op, data_key};
    use crate::volume::{Content, CreateOptions, Mode, NonceSource, OpenOptions, Transaction};

    fn nonces(mut last: u64) -> NonceSource {
        Box::new(move || {
            last += 1;
            last
        })
    }

    fn commit(volume: &mut Volume, messages: Vec<RecordMessage>) {
        volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).unwrap();
    }

    const NAME: &[u8] = b"a file__";

    fn made() -> (Arc<MemoryDevice>, Arc<dyn Device>) {
        let memory = Arc::new(MemoryDevice::new(64 << 20));
        let options = CreateOptions {
            content: Content::Keys,
            ..CreateOptions::new(*b"a volume of keys", 64 << 20, nonces(0))
        };
        Volume::create(memory.clone(), options).unwrap().checkpoint().unwrap();
        (memory.clone(), memory)
    }

    fn open(device: &Arc<dyn Device>, eager: bool, until: Until, nonce: u64) -> Result<Volume> {
        let options = OpenOptions {
            content: None,
            eager_checkpoints: eager,
            until,
            ..OpenOptions::new(Mode::ReadWrite, nonces(nonce))
        };
        Volume::open(device.clone(), options).map(|(volume, _)| volume)
    }

    /// 300 blocks of one file, bound late.
    fn blocks(byte: u8) -> Vec<RecordMessage> {
        let value = |block| {
            let value = Bytes::from(vec![byte; BLOCK_SIZE]);
            RecordMessage::Point(TreeId::Data, data_key(NAME, block), Action::Insert(value))
        };
        (0..300).map(value).collect()
    }

    fn block(volume: &Volume, number: u64) -> Option<u8> {
        let value = volume.get(TreeId::Data, &data_key(NAME, number)).unwrap();
        value.map(|value| value[0])
    }

    fn later(number: u8) -> Vec<RecordMessage> {
        let (key, value) = (Key::copied(&[b'z', number]), Bytes::from_static(b"later"));
        vec![RecordMessage::Point(TreeId::Data, key, Action::Insert(value))]
    }

    /// Two checkpoints on the way, so that blocks of the first one may be used again, and then an end within a group.
    #[test]
    fn a_replay_ends_within_a_group_after_checkpoints_on_the_way() {
        let (_, device) = made();
        let mut volume = open(&device, false, Until::End, 1 << 20).unwrap();
        for number in 0..6 {
            commit(&mut volume, later(number));
            commit(&mut volume, blocks(10 + number));
            volume.sync().unwrap();
        }
        let last = Until::Record(Lsn(volume.next_msn().0));
        commit(&mut volume, blocks(1));
        commit(&mut volume, blocks(2));
        volume.sync().unwrap();
        drop(volume);
        let volume = open(&device, true, last, 1 << 30).unwrap();
        // They were stored once, as at the end of their group.
        assert_eq!([0, 150, 299].map(|number| block(&volume, number)), [Some(2); 3]);
        assert!(volume.get(TreeId::Data, b"z\x05").unwrap().is_some());
    }

    /// A checkpoint between two groups, after which the log no longer shows what was lost in the first one.
    #[test]
    fn older_values_of_lost_ones_do_not_come_back_with_a_checkpoint_on_the_way() {
        let (memory, device) = made();
        let mut volume = open(&device, false, Until::End, 1 << 20).unwrap();
        commit(&mut volume, blocks(1));
        volume.checkpoint().unwrap();
        commit(&mut volume, blocks(2));
        volume.sync().unwrap();
        let last = Until::Record(Lsn(volume.next_msn().0));
        for number in 1..4 {
            commit(&mut volume, later(number));
            volume.sync().unwrap();
        }
        let bound = volume.counters().bound;
        assert_eq!(bound.in_leaves + bound.in_runs, 300);
        drop(volume);
        let image = memory.snapshot();
        // Slices have values anywhere.
        let mut at = 0;
        for row in image.chunk_by(|a, b| a == b) {
            if row[0] == 2 && row.len() >= BLOCK_SIZE {
                for inside in (99..row.len()).step_by(BLOCK_SIZE / 2) {
                    memory.write_at((at + inside) as u64, &[7]).unwrap();
                }
            }
            at += row.len();
        }
        // A writer that goes on before the end of the log.
        drop(open(&device, true, last, 1 << 30));
        let volume = open(&device, false, Until::End, 1 << 40).unwrap();
        assert_eq!([0, 7, 299].map(|number| block(&volume, number)), [None; 3]);
        assert!(volume.get(TreeId::Data, b"z\x01").unwrap().is_some());
    }
}
