//! Carrying out transactions: how each becomes durable, room for it in the log, and its way into the log
//! and the trees.

use super::reserve::{Claim, room_of};
use super::trees::Trees;
use super::{Access, Pruned, Transaction, Volume};
use crate::error::{Error, Result, after};
use crate::format::limits::{LATE_VALUES_MAX, RECORD_MESSAGES_MAX};
use crate::format::{Action, BINDING_BYTES_MAX, Inflow, Op, Record, RecordMessage};
use crate::ids::*;
use crate::log::{LogForm, log_form, outgrows};
use crate::tree::Ordered;
use crate::tuning::{BESIDE_MIN, GROUP_BYTES, LATE_LIMIT};

/// A transaction, with what can be known of it before anybody looks at the trees: they may be away still, with the one before.
pub(super) struct Draft {
    pub op: Op,
    wall: Time,
    pub ordered: Ordered,
    /// What it needs room for.
    pub room: Inflow,
    /// What it may use of the reserve for deletes.
    pub claim: Claim,
    pub way: Way,
}

/// How a transaction becomes durable.
pub(super) enum Way {
    /// With the next checkpoint; nothing is logged.
    Unlogged,
    /// With the next log group.
    Logged(LogForm),
    /// Through a checkpoint of its own: the log has no room for it.
    Whole,
}

/// What the next transactions would have to do first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Sealing the open group, which is long.
    Sync,
    /// A checkpoint: the log is full, much is bound late, or no group may be written yet.
    Checkpoint,
}

impl Volume {
    /// What a transaction would have to wait for before long. Whoever shares the volume does it before, where it does not keep
    /// others from reading.
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

    /// Whether a checkpoint will be due before long: somebody may make it meanwhile.
    pub fn nears_checkpoint(&self) -> bool {
        let (used, size) = self.log.fill();
        used > size / 2 || self.late_blocks() * BLOCK_SIZE as u64 > LATE_LIMIT / 2
    }

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
    /// A large one is brought into the trees beside its caller (`volume::trees`): what goes wrong then is the error of the
    /// next operation.
    ///
    /// Consecutive blocks of much data are not logged but bound late. What is too large for the log even
    /// then is made durable by a checkpoint at once.
    pub fn commit(&mut self, transaction: Transaction) -> Result<Lsn> {
        let claim = Claim::of(&transaction);
        self.commit_with(transaction, claim)
    }

    /// The same for a repair: it may use all of the reserve for deletes.
    pub(crate) fn commit_repair(&mut self, transaction: Transaction) -> Result<Lsn> {
        self.commit_with(transaction, Claim::Frees)
    }

    fn commit_with(&mut self, transaction: Transaction, claim: Claim) -> Result<Lsn> {
        self.check_writable()?;
        self.validate(&transaction.messages)?;
        self.fence()?;
        let way = if self.is_logged() { self.choose(&transaction.messages) } else { Way::Unlogged };
        let mut draft = Draft::new(transaction, claim, way);
        self.ensure_ready()?;
        self.admit(&mut draft)?;
        let Trees { store, balance, .. } = self.trees.wait_mut();
        match balance.ensure_enters(store, &draft.ordered.messages) {
            Err(error) if error.is_unreadable() => return Err(error),
            entered => self.whole(entered)?,
        }
        let result = self.carry_out(draft);
        self.whole(result)
    }

    fn validate(&self, messages: &[RecordMessage]) -> Result<()> {
        let count = messages.len();
        if count == 0 || count > RECORD_MESSAGES_MAX as usize {
            return Err(Error::Misuse(format!("an operation of {count} messages")));
        }
        for message in messages {
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
                RecordMessage::Point(..) | RecordMessage::RangeDelete(..) => None,
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

    /// How a transaction of these messages is to become durable, if there is space enough.
    fn choose(&self, messages: &[RecordMessage]) -> Way {
        let fits = |form: &LogForm| {
            form.bytes() <= self.log.record_max() && form.late_bytes as u64 <= LATE_LIMIT
        };
        // What is bound has the length of a block at most, also after updates.
        let grows = messages.iter().any(outgrows);
        let form = log_form(messages, if grows { usize::MAX } else { self.late_bytes });
        let form = if fits(&form) || grows { form } else { log_form(messages, 1) };
        if fits(&form) { Way::Logged(form) } else { Way::Whole }
    }

    fn carry_out(&mut self, draft: Draft) -> Result<Lsn> {
        let Draft { op, wall, mut ordered, claim, way, .. } = draft;
        let whole = matches!(way, Way::Whole);
        let logged = matches!(way, Way::Logged(_));
        // What is bound has the length of a block at most: it is bound before it grows.
        let late = &self.trees.wait().store.late;
        if !late.is_empty() && ordered.messages.iter().any(|message| late.outgrows(message)) {
            self.sync()?;
        }
        if let Way::Logged(form) = &way {
            self.make_log_room(form)?;
        }
        let lsn = Lsn(self.next_msn.0);
        if let Way::Logged(form) = way {
            let (next_zone, next_ino) = (self.next_zone, self.next_ino);
            let record = |messages| Record { lsn, op, wall, next_zone, next_ino, messages };
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
        let count = ordered.messages.len();
        self.next_msn = Msn(lsn.0 + count as u64);
        self.deletes += ordered.messages.iter().filter(|message| message.frees()).count() as u64;
        self.note_time(wall);
        let since = self.changed.get_or_insert(wall).secs;
        let old = wall.secs.saturating_sub(since).unsigned_abs();
        let is_old = logged && self.checkpoint_after.is_some_and(|after| old >= after);
        let room = (self.superblock.image_blocks, claim, self.dirty_share(claim));
        let is_large = count >= BESIDE_MIN && self.trees.wait().store.late.is_empty();
        if logged && is_large && !is_old && !self.disk.device().wants_order() {
            self.trees.send(move |trees| {
                let done = trees.carry_out(Msn(lsn.0), &ordered, room);
                // The next operation meets it.
                let _ = trees.store.poison.unless_whole(done);
                ordered
            });
            return Ok(lsn);
        }
        self.trees.wait_mut().carry_out(Msn(lsn.0), &ordered, room)?;
        match self.follow_up(whole, is_old) {
            // The transaction is whole, and the checkpoint that found no room holds it: a sync finishes that.
            Err(error) if error.is_host_full() => Ok(lsn),
            done => done.map(|()| lsn),
        }
    }

    /// What comes after a transaction is in the trees.
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

    /// Takes note of what the record names only by key, and of what it makes obsolete. `messages` are the
    /// same with their values.
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

    /// Seals the open group where it is long enough, and checkpoints where the log is full.
    fn make_log_room(&mut self, form: &LogForm) -> Result<()> {
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
    fn new(transaction: Transaction, claim: Claim, way: Way) -> Draft {
        let Transaction { op, wall, messages } = transaction;
        let room = room_of(&messages);
        Draft { op, wall, ordered: Ordered::new(messages), room, claim, way }
    }
}

impl LogForm {
    /// At most how many bytes of a group the record and its bindings take, if none is inline.
    fn bytes(&self) -> usize {
        self.log_bytes + self.late * BINDING_BYTES_MAX
    }
}
