//! Carrying out transactions: how each becomes durable, room for it in the log and on the device, and its
//! way into the log and the trees.

use super::{Access, Transaction, Volume};
use crate::error::{Error, Result, after};
use crate::format::limits::{LATE_VALUES_MAX, RECORD_MESSAGES_MAX};
use crate::format::{BINDING_BYTES_MAX, Record, RecordMessage};
use crate::ids::*;
use crate::log::{LogForm, log_form};
use crate::tree;

/// A log group is sealed when it is this long, in bytes, or a quarter of the log.
const GROUP_BYTES: usize = 4 << 20;
/// The most bytes that are bound late between two checkpoints.
const LATE_LIMIT: u64 = 1 << 30;

/// How a transaction becomes durable.
enum Way {
    /// With the next checkpoint; nothing is logged.
    Unlogged,
    /// With the next log group.
    Logged(LogForm),
    /// Through a checkpoint of its own: the log has no room for it.
    Whole,
}

impl Volume {
    /// From now on transactions are not logged: durable is what a checkpoint makes so.
    pub fn stop_logging(&mut self) -> Result<()> {
        if self.log.has_open() {
            self.sync()?;
        }
        if let Access::ReadWrite { logged, .. } = &mut self.access {
            *logged = false;
        }
        Ok(())
    }

    /// Carries out a transaction: all of it, or, if there is an error, nothing that will be durable.
    /// Returns its LSN.
    ///
    /// Consecutive blocks of much data are not logged but bound late. What is too large for the log even
    /// then is made durable by a checkpoint at once.
    pub fn commit(&mut self, transaction: Transaction) -> Result<Lsn> {
        let logged = self.writable()?;
        self.validate(&transaction.messages)?;
        let bytes = Record::encoded_bytes(&transaction.messages);
        let way = if logged { self.choose(&transaction.messages)? } else { Way::Unlogged };
        self.admit(bytes, logged)?;
        let result = self.carry_out(transaction, way);
        self.or_fail(result)
    }

    fn validate(&self, messages: &[RecordMessage]) -> Result<()> {
        let count = messages.len();
        if count == 0 || count > RECORD_MESSAGES_MAX as usize {
            return Err(Error::Misuse(format!("an operation of {count} messages")));
        }
        if messages.iter().any(|message| matches!(message, RecordMessage::Unbound(..))) {
            return Err(Error::Misuse("a message without its value".into()));
        }
        if let Some(bytes) = messages.iter().find_map(RecordMessage::beyond_limits) {
            return Err(Error::Misuse(format!("a message with a key or value of {bytes} bytes")));
        }
        after("next MSN", self.next_msn.0.saturating_add(count as u64 - 1))?;
        Ok(())
    }

    /// How a transaction of these messages is to become durable. Makes room for what is bound late.
    fn choose(&mut self, messages: &[RecordMessage]) -> Result<Way> {
        let fits = |form: &LogForm| form.log_bytes() <= self.log.record_max();
        let form = log_form(messages, self.late_bytes);
        let form = if fits(&form) { form } else { log_form(messages, 1) };
        if !fits(&form) {
            return Ok(Way::Whole);
        }
        let late = form.late_bytes as u64;
        if late > 0 && self.late_blocks(late) > self.late_limit() {
            self.checkpoint()?;
            if self.late_blocks(late) > self.late_limit() {
                return Ok(Way::Whole);
            }
        }
        Ok(Way::Logged(form))
    }

    /// Blocks that a recovery would have to leave alone, with `more` bytes of late-bound values.
    fn late_blocks(&self, more: u64) -> u64 {
        let bytes = more + self.store.late.waiting_bytes();
        self.store.space.pinned_blocks() + bytes.div_ceil(BLOCK_SIZE as u64)
    }

    /// What is bound late is written a second time when it is recovered: it may take half of what is free.
    fn late_limit(&self) -> u64 {
        let space = &self.store.space;
        let free = space.free_blocks() + space.pinned_blocks();
        (free.saturating_sub(self.need_blocks(0)) / 2).min(LATE_LIMIT / BLOCK_SIZE as u64)
    }

    fn carry_out(&mut self, transaction: Transaction, way: Way) -> Result<Lsn> {
        let Transaction { op, wall, messages } = transaction;
        let whole = matches!(way, Way::Whole);
        if let Way::Logged(form) = &way {
            self.make_log_room(form)?;
        }
        let lsn = Lsn(self.next_msn.0);
        if let Way::Logged(form) = way {
            let (next_zone, next_ino) = (self.next_zone, self.next_ino);
            let record = Record { lsn, op, wall, next_zone, next_ino, messages: form.messages };
            self.log.append(&record);
            self.enter_late(&record, &messages);
        }
        tree::inject(&mut self.store, Msn(lsn.0), &messages)?;
        self.next_msn = Msn(lsn.0 + messages.len() as u64);
        self.store.make_room()?;
        if whole {
            self.checkpoint()?;
        }
        Ok(lsn)
    }

    /// Takes note of what the record names only by key, and of what it makes obsolete. `messages` are the
    /// same with their values.
    fn enter_late(&mut self, record: &Record, messages: &[RecordMessage]) {
        let mut rest = messages.iter();
        for (first, logged) in record.numbered() {
            let late = matches!(logged, RecordMessage::Unbound(..));
            for (at, message) in rest.by_ref().take(logged.width() as usize).enumerate() {
                self.store.late.supersede(message);
                if let (true, RecordMessage::Point(_, key, action)) = (late, message) {
                    let msn = Msn(first.0 + at as u64);
                    self.store.late.enter(key.clone(), msn, action.value().len());
                }
            }
        }
    }

    /// Seals the open group where it is long enough, and checkpoints where the log is full.
    fn make_log_room(&mut self, form: &LogForm) -> Result<()> {
        let (_, size) = self.log.fill();
        let bytes = form.log_bytes();
        let open = self.log.open_bytes() + self.store.late.bytes_max();
        let full = open + bytes > GROUP_BYTES.min(size as usize / 4)
            || self.store.late.len() + form.late > LATE_VALUES_MAX;
        if self.log.has_open() && full {
            self.sync()?;
        }
        let need = self.store.late.bytes_max() + bytes;
        if need > self.log.room() { self.checkpoint() } else { Ok(()) }
    }

    /// Refuses, before anything has changed, what the volume has no room for.
    fn admit(&mut self, bytes: usize, logged: bool) -> Result<()> {
        for attempt in 0..3 {
            let need = self.need_blocks(bytes);
            let free = self.store.space.free_blocks();
            if need <= free {
                return Ok(());
            }
            let gain = self.store.space.held_blocks() > 0 || self.store.dirty_bytes() > 0;
            // What is not logged becomes durable all at once, so no checkpoint may come in between.
            if attempt == 2 || !gain || !logged {
                return Err(Error::NoSpace { need_blocks: need, free_blocks: free });
            }
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Blocks that must be free: for what is dirty, for the operation, and for the flushes and the
    /// checkpoint that follow.
    pub(super) fn need_blocks(&self, bytes: usize) -> u64 {
        let geometry = self.store.geometry;
        let dirty = self.store.dirty_bytes() as u64;
        let reserve =
            4 * u64::from(geometry.leaf_size) + u64::from(geometry.node_size) + (64 << 10);
        (dirty + dirty / 8 + bytes as u64 + reserve) / BLOCK_SIZE as u64
    }
}

impl LogForm {
    /// At most how many bytes of a group the record and its bindings take, if none is inline.
    fn log_bytes(&self) -> usize {
        Record::encoded_bytes(&self.messages) + self.late * BINDING_BYTES_MAX
    }
}
