//! Transactions: how each becomes durable, log space for it, and its way into the log and the trees.

use super::clone::Splice;
use super::reserve::{Claim, room_of};
use super::trees::Trees;
use super::{Access, Pruned, Transaction, Volume};
use crate::error::{Error, Result, after};
use crate::format::limits::{LATE_VALUES_MAX, RECORD_MESSAGES_MAX};
use crate::format::{Action, BINDING_BYTES_MAX, Inflow, Op, Record, RecordMessage, clones};
use crate::ids::*;
use crate::log::{LogForm, log_form, outgrows};
use crate::tree::Ordered;
use crate::tuning::{BESIDE_MIN, GROUP_BYTES, LATE_LIMIT};

/// A transaction with everything that can be computed without the trees, which may still be away with the previous one.
pub(super) struct Draft {
    pub op: Op,
    wall: Time,
    pub ordered: Ordered,
    /// What it needs space for.
    pub room: Inflow,
    /// What it may use of the reserve for deletes.
    pub claim: Claim,
    pub durability: Durability,
}

/// How a transaction becomes durable.
pub(super) enum Durability {
    /// With the next checkpoint; nothing is logged.
    Unlogged,
    /// With the next log group.
    Logged(LogForm),
    /// With a checkpoint of its own, since it does not fit into the log.
    Whole,
}

/// What the next transactions would have to do first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Sealing the open group, which is nearly full.
    Sync,
    /// A checkpoint: the log is nearly full, many bytes are bound late, or the fence is missing.
    Checkpoint,
}

impl Volume {
    /// What a transaction will soon have to wait for. A shared volume can do it earlier, when it does not block
    /// readers.
    pub fn due(&self) -> Due {
        let (used, size) = self.log.fill();
        let late = self.late_blocks() * BLOCK_SIZE as u64;
        let open = (self.log.open_bytes() + self.trees.wait().store.late.bytes_max()) as u64;
        if used > size / 8 * 7 || late > LATE_LIMIT / 4 * 3 || self.needs_fence() {
            Due::Checkpoint
        } else if open > (GROUP_BYTES as u64).min(size / 4) / 4 * 3
            || self.trees.wait().store.late.len() > LATE_VALUES_MAX / 2
        {
            Due::Sync
        } else {
            Due::Nothing
        }
    }

    /// Whether a checkpoint will be due soon, so that it can be made in the background.
    pub fn nears_checkpoint(&self) -> bool {
        let (used, size) = self.log.fill();
        used > size / 2 || self.late_blocks() * BLOCK_SIZE as u64 > LATE_LIMIT / 2
    }

    /// Stops logging: from now on only a checkpoint makes transactions durable.
    pub fn stop_logging(&mut self) -> Result<()> {
        if self.log.has_open() {
            self.sync()?;
        }
        if let Access::ReadWrite { logged, .. } = &mut self.access {
            *logged = false;
        }
        Ok(())
    }

    /// Carries out a transaction, atomically: it becomes durable whole or not at all, and after an error not at all, unless
    /// the checkpoint that makes it durable at once fails in its last flush. Returns its LSN.
    ///
    /// A large transaction is injected by the thread of the trees (`volume::trees`); an error of that is returned by
    /// the next operation.
    ///
    /// Consecutive blocks of much data are bound late instead of logged. A transaction that is too large for the log
    /// even so is made durable by a checkpoint at once.
    pub fn commit(&mut self, transaction: Transaction) -> Result<Lsn> {
        let claim = Claim::of(&transaction);
        self.commit_with(transaction, claim)
    }

    /// As [`Volume::commit`], for a repair: it may use all of the reserve for deletes.
    pub(crate) fn commit_repair(&mut self, transaction: Transaction) -> Result<Lsn> {
        self.commit_with(transaction, Claim::Frees)
    }

    fn commit_with(&mut self, transaction: Transaction, claim: Claim) -> Result<Lsn> {
        self.check_writable()?;
        self.validate(&transaction.messages)?;
        self.fence()?;
        let durability = if self.is_logged() {
            self.choose(&transaction.messages)
        } else {
            Durability::Unlogged
        };
        let mut draft = Draft::new(transaction, claim, durability);
        self.ensure_ready()?;
        let splices = self.ready_to_clone(&mut draft)?;
        let Trees { store, balance, .. } = self.trees.wait_mut();
        match balance.ensure_enters(store, &draft.ordered.messages) {
            Err(error) if error.is_unreadable() => {
                balance.end_carve();
                return Err(error);
            }
            entered => self.poison_on_error(entered)?,
        }
        let result = self.log_and_apply(draft, &splices);
        self.poison_on_error(result)
    }

    fn validate(&self, messages: &[RecordMessage]) -> Result<()> {
        let count = messages.len();
        if count == 0 || count > RECORD_MESSAGES_MAX as usize {
            return Err(Error::Misuse(format!("an operation of {count} messages")));
        }
        let clones = clones(messages).count();
        for (index, message) in messages.iter().enumerate() {
            let wrong = match message {
                RecordMessage::Unbound(..) => Some("a message without its value"),
                RecordMessage::RangeDelete(_, lo, hi) if lo >= hi => {
                    Some("a range delete of nothing")
                }
                RecordMessage::Point(TreeId::Data, _, Action::Update(update)) if update.adds() => {
                    Some("an addition in the data index")
                }
                RecordMessage::Point(_, _, Action::Update(update)) if update.is_anew() => {
                    Some("an update that deletes first")
                }
                RecordMessage::Clone(..) if index >= clones => {
                    Some("a range clone after other messages")
                }
                RecordMessage::Point(..)
                | RecordMessage::RangeDelete(..)
                | RecordMessage::Clone(..) => None,
            };
            if let Some(wrong) = wrong {
                return Err(Error::Misuse(wrong.into()));
            }
            if let Some(bytes) = message.beyond_limits() {
                let wrong = format!("a message with a key or value of {bytes} bytes");
                return Err(Error::Misuse(wrong));
            }
        }
        after("next MSN", self.next_msn.0.saturating_add(count as u64 - 1))?;
        Ok(())
    }

    /// Chooses how a transaction of these messages becomes durable, if there is enough space.
    fn choose(&self, messages: &[RecordMessage]) -> Durability {
        let fits = |form: &LogForm| {
            form.bytes() <= self.log.record_max() && form.late_bytes as u64 <= LATE_LIMIT
        };
        // A bound value has at most the length of a block, also after updates.
        let grows = messages.iter().any(outgrows);
        let form = log_form(messages, if grows { usize::MAX } else { self.late_bytes });
        let form = if fits(&form) || grows { form } else { log_form(messages, 1) };
        if fits(&form) { Durability::Logged(form) } else { Durability::Whole }
    }

    fn log_and_apply(&mut self, draft: Draft, splices: &[Splice]) -> Result<Lsn> {
        let Draft { op, wall, mut ordered, claim, durability, .. } = draft;
        let whole = matches!(durability, Durability::Whole);
        let logged = matches!(durability, Durability::Logged(_));
        // A bound value has at most the length of a block: it is bound before it grows.
        let late = &self.trees.wait().store.late;
        if !late.is_empty() && ordered.messages.iter().any(|message| late.outgrows(message)) {
            self.sync()?;
        }
        if let Durability::Logged(form) = &durability {
            self.make_log_room(form)?;
        }
        let lsn = Lsn(self.next_msn.0);
        if let Durability::Logged(form) = durability {
            let next = self.next;
            let record = |messages| Record { lsn, op, wall, next, messages };
            match form.messages {
                None => {
                    let record = record(std::mem::take(&mut ordered.messages));
                    self.log.append(&record);
                    ordered.messages = record.messages;
                    let late = &mut self.trees.wait_mut().store.late;
                    if !late.is_empty() {
                        ordered.messages.iter().for_each(|message| late.supersede(message));
                    }
                }
                Some(logged) => {
                    let record = record(logged);
                    self.log.append(&record);
                    self.enter_late(&record, &ordered.messages);
                }
            }
        }
        self.splice(splices)?;
        let count = ordered.messages.len();
        self.next_msn = Msn(lsn.0 + count as u64);
        self.deletes += ordered.messages.iter().filter(|message| message.frees()).count() as u64;
        self.note_time(wall);
        let since = self.changed.get_or_insert(wall).secs;
        let old = wall.secs.saturating_sub(since).unsigned_abs();
        let is_old = logged && self.checkpoint_after.is_some_and(|after| old >= after);
        let room = (self.superblock.image_blocks, claim, self.dirty_share(claim));
        let is_large = count >= BESIDE_MIN && self.trees.wait().store.late.is_empty();
        if logged && is_large && !is_old && !self.disk.device().requires_serial_io() {
            self.trees.send(move |trees| {
                let done = trees.apply(Msn(lsn.0), &ordered, room);
                // The next operation returns the error.
                let _ = trees.store.poison.poison_on_error(done);
                ordered
            });
            return Ok(lsn);
        }
        self.trees.wait_mut().apply(Msn(lsn.0), &ordered, room)?;
        match self.follow_up(whole, is_old) {
            // The transaction is complete, and an unfinished checkpoint holds it: the next sync finishes that.
            Err(error) if error.is_host_full() => Ok(lsn),
            done => done.map(|()| lsn),
        }
    }

    /// Steps owed, checkpoint of its own, and checkpoint for age, once a transaction is in the trees.
    fn follow_up(&mut self, whole: bool, is_old: bool) -> Result<()> {
        self.make_owed_steps()?;
        if whole {
            self.counters.whole += 1;
            self.checkpoint()?;
        } else if is_old {
            self.counters.for_time += 1;
            self.checkpoint_with(Pruned::Some)?;
        }
        Ok(())
    }

    /// Enters the late-bound values of a record, and drops those that it makes obsolete. `messages` are its messages
    /// with their values.
    fn enter_late(&mut self, record: &Record, messages: &[RecordMessage]) {
        let mut rest = messages.iter();
        for (first, logged) in record.numbered() {
            let late = matches!(logged, RecordMessage::Unbound(..));
            for (at, message) in rest.by_ref().take(logged.width() as usize).enumerate() {
                self.trees.wait_mut().store.late.supersede(message);
                if let (true, RecordMessage::Point(_, key, action)) = (late, message) {
                    let msn = Msn(first.0 + at as u64);
                    self.trees.wait_mut().store.late.enter(key.clone(), msn, action.value().len());
                }
            }
        }
    }

    /// Seals the open group if it is long enough, and makes a checkpoint if the log is full.
    pub(super) fn make_log_room(&mut self, form: &LogForm) -> Result<()> {
        let (_, size) = self.log.fill();
        let bytes = form.bytes();
        let open = self.log.open_bytes() + self.trees.wait().store.late.bytes_max();
        let full = open + bytes > GROUP_BYTES.min(size as usize / 4)
            || self.trees.wait().store.late.len() + form.late > LATE_VALUES_MAX;
        if self.log.has_open() && full {
            self.sync()?;
        }
        let need = self.trees.wait().store.late.bytes_max() + bytes;
        let late = self.late_blocks() * BLOCK_SIZE as u64 + form.late_bytes as u64;
        if need <= self.log.room() && late <= LATE_LIMIT {
            return Ok(());
        }
        self.counters.for_log += 1;
        self.checkpoint_with(Pruned::Some)
    }
}

impl Draft {
    fn new(transaction: Transaction, claim: Claim, durability: Durability) -> Draft {
        let Transaction { op, wall, messages } = transaction;
        let room = room_of(&messages);
        Draft { op, wall, ordered: Ordered::new(messages), room, claim, durability }
    }
}

impl LogForm {
    /// The most bytes that the record and its bindings take in a group, if none is inline.
    fn bytes(&self) -> usize {
        self.log_bytes + self.late * BINDING_BYTES_MAX
    }
}
