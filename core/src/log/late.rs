//! Late binding: values of the open group that the log names only by key, and where each has been written (BetrFS 0.2
//! §3).
//!
//! A value is *waiting* until a node that holds it is written, or until it is taken into the group at its seal. A value
//! that a later operation of the group makes obsolete is bound to NULL, even if it was written.

use std::collections::BTreeMap;
use std::ops::Bound as End;

use crate::error::{Error, Result};
use crate::format::limits::{FILE_BLOCK, LATE_VALUES_MAX};
use crate::format::{
    Action, BINDING_BYTES_MAX, Binding, Key, MsnRange, Record, RecordMessage, Target, block_after,
};
use crate::ids::{Msn, TreeId};
use crate::mutation::{Mutation, is_broken};

/// 12 bytes: one more range of MSNs in a binding.
const RANGE_BYTES: usize = 12;

/// The late-bound values of the open group.
#[derive(Default)]
pub struct Late {
    /// The youngest unbound entry of each key, unless a younger message covers the key.
    current: BTreeMap<Key, Msn>,
    values: BTreeMap<Msn, Fate>,
    /// The places that values are bound to.
    places: Vec<Target>,
    waiting: usize,
    waiting_bytes: u64,
    /// The most bytes of the bindings of values that no longer wait.
    bound_bytes: usize,
}

enum Fate {
    /// In memory only, with this number of bytes.
    Waiting(usize),
    /// Bound to the place of this index.
    At(usize),
    /// Obsolete.
    Null,
}

impl Late {
    /// Whether the open group has no unbound entries.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether a message makes a waiting value longer than a binding can refer to.
    pub fn outgrows(&self, message: &RecordMessage) -> bool {
        match message {
            RecordMessage::Point(_, key, _) => outgrows(message) && self.current.contains_key(key),
            RecordMessage::RangeDelete(..)
            | RecordMessage::Clone(..)
            | RecordMessage::Unbound(..) => false,
        }
    }

    /// Number of unbound entries of the open group.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of values that are in memory only.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Whether any value is in memory only.
    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Whether the value of this message waits to be bound.
    pub fn waits(&self, msn: Msn) -> bool {
        matches!(self.values.get(&msn), Some(Fate::Waiting(_)))
    }

    /// The most bytes of the group's bindings, if no waiting value becomes inline.
    pub fn bytes_max(&self) -> usize {
        self.bound_bytes + self.waiting * BINDING_BYTES_MAX
    }

    /// Makes values obsolete that a new message of the group covers.
    pub fn supersede(&mut self, message: &RecordMessage) {
        if self.current.is_empty() || message.tree() != TreeId::Data {
            return;
        }
        match message {
            // The value is bound as it is when written; a recovery repeats the update, which has no effect then.
            RecordMessage::Point(_, _, Action::Update(_)) => {}
            RecordMessage::Point(_, key, _) => {
                if let Some(msn) = self.current.remove(key) {
                    self.forget(msn);
                }
            }
            RecordMessage::RangeDelete(_, lo, hi) => {
                let range = (End::Included(lo.clone()), End::Excluded(hi.clone()));
                let covered: Vec<Key> =
                    self.current.range(range).map(|(key, _)| key.clone()).collect();
                for key in covered {
                    if let Some(msn) = self.current.remove(&key) {
                        self.forget(msn);
                    }
                }
            }
            // It is the first message of its group.
            RecordMessage::Clone(..) => {}
            RecordMessage::Unbound(..) => unreachable!("messages come with their values"),
        }
    }

    /// Adds an insert of `bytes` bytes that was logged without its value.
    pub fn enter(&mut self, key: Key, msn: Msn, bytes: usize) {
        self.current.insert(key, msn);
        self.values.insert(msn, Fate::Waiting(bytes));
        self.waiting += 1;
        self.waiting_bytes += bytes as u64;
    }

    fn forget(&mut self, msn: Msn) {
        let Some(fate) = self.values.get_mut(&msn) else { return };
        if let Fate::Waiting(bytes) = fate {
            self.waiting -= 1;
            self.waiting_bytes -= *bytes as u64;
        }
        *fate = Fate::Null;
        // It may split a range of MSNs, and needs a NULL binding of its own.
        self.bound_bytes += 2 * RANGE_BYTES + BINDING_BYTES_MAX;
    }

    /// Binds waiting values, in the order of their MSNs, to `place`.
    pub fn bind(&mut self, place: Target, values: &[Msn]) {
        let mut ranges = Vec::new();
        for msn in values {
            MsnRange::extend(&mut ranges, *msn);
            if let Some(Fate::Waiting(bytes)) =
                self.values.insert(*msn, Fate::At(self.places.len()))
            {
                self.waiting -= 1;
                self.waiting_bytes -= bytes as u64;
            }
        }
        self.bound_bytes += place.encoded_bytes(ranges.len());
        self.places.push(place);
    }

    /// The bindings of all values, for the seal of the group.
    pub fn seal(&mut self) -> Result<Vec<Binding>> {
        if self.waiting > 0 {
            return Err(Error::Bug(format!("{} values were never written", self.waiting)));
        }
        let late = std::mem::take(self);
        let mut ranges: Vec<Vec<MsnRange>> = vec![Vec::new(); late.places.len() + 1];
        for (msn, fate) in &late.values {
            let at = match fate {
                Fate::At(place) => *place,
                Fate::Waiting(_) | Fate::Null => late.places.len(),
            };
            MsnRange::extend(&mut ranges[at], *msn);
        }
        let places = late.places.into_iter().chain([Target::Null]);
        let bindings = ranges.into_iter().zip(places).map(|(values, to)| Binding { values, to });
        let skipped = |to: &Target| *to == Target::Null && is_broken(Mutation::NullSkipped);
        Ok(bindings.filter(|b| !b.values.is_empty() && !skipped(&b.to)).collect())
    }

    /// Drops everything: a checkpoint has made the group unnecessary.
    pub fn clear(&mut self) {
        *self = Late::default();
    }
}

/// Whether a message may make a value of the data index longer than a binding can refer to.
pub fn outgrows(message: &RecordMessage) -> bool {
    match message {
        RecordMessage::Point(TreeId::Data, _, Action::Update(update)) => !update.fits(FILE_BLOCK),
        RecordMessage::Point(TreeId::Metadata, ..)
        | RecordMessage::Point(_, _, Action::Insert(_) | Action::Delete)
        | RecordMessage::RangeDelete(..)
        | RecordMessage::Clone(..)
        | RecordMessage::Unbound(..) => false,
    }
}

/// The form of `messages` in the log. Inserts to consecutive blocks of the data index whose values have `late_bytes`
/// bytes or more in total become unbound entries.
pub fn log_form(messages: &[RecordMessage], late_bytes: usize) -> LogForm {
    let as_they_are = |log_bytes| LogForm { messages: None, log_bytes, late: 0, late_bytes: 0 };
    let values = messages.iter().map(|message| match message {
        RecordMessage::Point(TreeId::Data, _, Action::Insert(value)) => value.len(),
        RecordMessage::Point(TreeId::Metadata, ..)
        | RecordMessage::Point(_, _, Action::Delete | Action::Update(_))
        | RecordMessage::RangeDelete(..)
        | RecordMessage::Clone(..)
        | RecordMessage::Unbound(..) => 0,
    });
    if values.sum::<usize>() < late_bytes {
        return as_they_are(Record::encoded_bytes(messages));
    }
    let (mut logged, mut late_values, mut late_value_bytes) = (Vec::new(), 0, 0);
    let mut at = 0;
    while at < messages.len() {
        let (count, bytes) = blocks_in_a_row(&messages[at..]);
        let late = count > 0 && bytes >= late_bytes && late_values + count <= LATE_VALUES_MAX;
        if late {
            logged.push(RecordMessage::Unbound(messages[at].key().clone(), count as u32));
            late_values += count;
            late_value_bytes += bytes;
        } else {
            logged.extend_from_slice(&messages[at..at + count.max(1)]);
        }
        at += count.max(1);
    }
    let log_bytes = Record::encoded_bytes(&logged);
    match late_values {
        0 => as_they_are(log_bytes),
        late => LogForm { messages: Some(logged), log_bytes, late, late_bytes: late_value_bytes },
    }
}

/// The form of a record in the log.
pub struct LogForm {
    /// Its messages, some without their values; `None` if all have them.
    pub messages: Option<Vec<RecordMessage>>,
    /// The length of the record.
    pub log_bytes: usize,
    /// Number of values left out.
    pub late: usize,
    /// Their bytes.
    pub late_bytes: usize,
}

/// The number of inserts to consecutive blocks at the start of `messages`, and the bytes of their values.
fn blocks_in_a_row(messages: &[RecordMessage]) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    let mut expected: Option<Key> = None;
    for message in messages {
        let RecordMessage::Point(TreeId::Data, key, Action::Insert(value)) = message else { break };
        let in_a_row = expected.as_ref().is_none_or(|expected| expected == key);
        if !in_a_row || value.len() > FILE_BLOCK || block_after(key, 0).is_none() {
            break;
        }
        count += 1;
        bytes += value.len();
        match block_after(key, 1) {
            Some(next) => expected = Some(next),
            None => break,
        }
    }
    (count, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::data_key;
    use bytes::Bytes;

    fn block(number: u64) -> Key {
        data_key(b"\0\0\0\0\0\0\0\x09", number)
    }

    fn put(number: u64, bytes: usize) -> RecordMessage {
        let value = Bytes::from(vec![1; bytes]);
        RecordMessage::Point(TreeId::Data, block(number), Action::Insert(value))
    }

    #[test]
    fn only_long_rows_of_blocks_go_late() {
        let meta = RecordMessage::Point(TreeId::Metadata, block(9), Action::Delete);
        let messages: Vec<RecordMessage> =
            [put(1, 4096), put(2, 4096), put(3, 10), put(5, 4096), meta.clone(), put(6, 4096)]
                .into();
        let form = log_form(&messages, 8000);
        let expected = [RecordMessage::Unbound(block(1), 3), put(5, 4096), meta, put(6, 4096)];
        assert_eq!(form.messages.as_deref(), Some(&expected[..]));
        assert_eq!((form.late, form.late_bytes), (3, 8202));
        assert_eq!(log_form(&messages, 9000).messages, None);
        let last = [put(u64::MAX - 1, 4096), put(u64::MAX, 4096)];
        let expected = [RecordMessage::Unbound(block(u64::MAX - 1), 2)];
        assert_eq!(log_form(&last, 1).messages.as_deref(), Some(&expected[..]));
    }

    #[test]
    fn every_value_is_bound_once_and_obsolete_ones_to_null() {
        let mut late = Late::default();
        for number in 0..6 {
            late.enter(block(number), Msn(10 + number), 100);
        }
        late.bind(Target::Inline(Bytes::from_static(b"x")), &[Msn(12)]);
        late.supersede(&put(1, 5));
        late.supersede(&RecordMessage::RangeDelete(TreeId::Data, block(2), block(4)));
        assert!(late.seal().is_err());
        assert!(!late.waits(Msn(11)) && late.waits(Msn(14)));
        assert_eq!(late.waiting_bytes(), 300);
        late.bind(Target::Inline(Bytes::from_static(b"y")), &[Msn(10), Msn(14), Msn(15)]);
        let room = late.bytes_max();
        let bindings = late.seal().unwrap();
        let range = |first, count| MsnRange { first: Msn(first), count };
        assert_eq!(bindings[0].values, [range(10, 1), range(14, 2)]);
        assert_eq!(bindings[1].to, Target::Null);
        assert_eq!(bindings[1].values, [range(11, 3)]);
        assert_eq!(bindings.len(), 2);
        assert!(bindings.iter().map(Binding::encoded_bytes).sum::<usize>() <= room);
        assert!(late.is_empty());
    }
}
