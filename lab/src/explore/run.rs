//! Runs steps on a file system, and on the model.
//!
//! A run keeps the model's state at every operation boundary: since the last acknowledged one, any of them may come
//! back after the volume is dropped without a sync; earlier ones are kept, too.

use std::sync::Arc;

use bytes::Bytes;

use super::compare::snapshots_of;
use super::{Model, Random, Rules, Step};
use betr_core::device::Device;
use betr_core::error::{Error, Refusal, Result};
use betr_core::format::limits::FILE_BLOCK;
use betr_core::format::{FileType, Key, Op, ZoneSizes, is_hold_name};
use betr_core::fs::{Attributes, Changes, Clock, Fs, New, Object, Over, data_prefix};
use betr_core::ids::{Msn, Time, TreeId};
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::{
    CreateOptions, HoldChange, Mode, NonceSource, OpenOptions, Recovery, Volume,
};

/// 24 messages: recursive deletions of more are made in pieces.
const REMOVE_AT_ONCE: usize = 24;

/// 4 records of a dead list in each piece of a drop, so that there are several pieces.
const DROPPED_AT_ONCE: u64 = 4;

/// How the volumes of an exploration are created and opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The size of the image, in bytes.
    pub image_bytes: u64,
    /// The length of the log, in bytes.
    pub log_bytes: u64,
    /// The sizes that shape the trees.
    pub geometry: Geometry,
    /// The zone sizes.
    pub zones: ZoneSizes,
    /// The memory budget of the cache.
    pub cache: CacheBudget,
    /// Writes of this number of bytes are bound late.
    pub late_bytes: usize,
    /// Whether a recovery makes a checkpoint between any two groups.
    pub eager_checkpoints: bool,
    /// Whether every allocation of several blocks is scattered.
    pub scatter: bool,
}

impl Setup {
    /// Tiny nodes, for deep trees from little data, a cache that evicts all the time, and the smallest log.
    pub const fn tiny(image_bytes: u64) -> Setup {
        Setup {
            image_bytes,
            log_bytes: 64 << 10,
            geometry: Geometry { node_size: 4096, leaf_size: 4096, basement_size: 1024, fanout: 4 },
            zones: ZoneSizes::of_max(12 << 10),
            cache: CacheBudget { total_bytes: 64 << 10, dirty_bytes: 24 << 10 },
            late_bytes: 16 << 10,
            eager_checkpoints: false,
            scatter: false,
        }
    }

    /// Creates a file system on `device`, with one checkpoint.
    pub fn format(&self, device: Arc<dyn Device>, seed: u64) -> Result<()> {
        let options = CreateOptions {
            label: "explore".into(),
            log_bytes: self.log_bytes,
            geometry: self.geometry,
            zones: self.zones,
            cache: self.cache,
            ..CreateOptions::new(*b"crash explorer's", self.image_bytes, nonces(seed))
        };
        let volume = Volume::create(device, options)?;
        let mut fs = Fs::format(volume, clock(0), Attributes::at(Time::default()))?;
        fs.checkpoint()
    }

    /// Opens the file system on `device`.
    pub fn open(&self, device: Arc<dyn Device>, mode: Mode, seed: u64) -> Result<(Fs, Recovery)> {
        let Setup { cache, late_bytes, eager_checkpoints, scatter, .. } = *self;
        let usual = OpenOptions::new(mode, nonces(seed));
        let punch = true;
        let options = OpenOptions { cache, late_bytes, eager_checkpoints, scatter, punch, ..usual };
        let (volume, recovery) = Volume::open(device, options)?;
        let mut fs = Fs::open(volume, clock(1 << 20));
        fs.keep_trail();
        fs.remove_at_once(REMOVE_AT_ONCE);
        Ok((fs, recovery))
    }
}

fn nonces(seed: u64) -> NonceSource {
    let mut random = Random::new(seed ^ 0xabcd);
    Box::new(move || random.next())
}

fn clock(start: i64) -> Clock {
    let mut secs = start;
    Box::new(move || {
        secs += 1;
        Time { secs, nanos: 0 }
    })
}

/// Takes a step on a file system, including `Sync` and `Checkpoint`, but not handles and reopening.
pub fn perform(fs: &mut Fs, step: &Step) -> Result<()> {
    match step {
        Step::Mkdir(path) => make(fs, path, FileType::Directory, b""),
        Step::Create(path) => make(fs, path, FileType::Regular, b""),
        Step::Symlink(path, target) => make(fs, path, FileType::Symlink, target),
        Step::Mkfifo(path) => make(fs, path, FileType::Fifo, b""),
        Step::Write { path, offset, len, fill } => {
            let object = fs.resolve(path)?;
            fs.write(&object, *offset, &Bytes::from(fill.bytes(*len)))
        }
        Step::Truncate(path, size) => {
            let object = fs.resolve(path)?;
            fs.truncate(&object, *size)
        }
        Step::CopyBlocks { from, to, first, count } => {
            let (from, to) = (fs.resolve(from)?, fs.resolve(to)?);
            let (at, len) = (first * FILE_BLOCK as u64, count * FILE_BLOCK as u64);
            fs.copy_range((&from, at), (&to, at), len, &mut true).map(drop)
        }
        Step::CloneDirectory(from, to) => {
            let original = fs.resolve(from)?;
            let (directory, name) = fs.resolve_parent(to)?;
            fs.clone_directory(&original, &directory, name).map(drop)
        }
        Step::Unlink(path) => {
            let (directory, name) = fs.resolve_parent(path)?;
            fs.unlink(&directory, name)
        }
        Step::Rmdir(path) => {
            let (directory, name) = fs.resolve_parent(path)?;
            fs.rmdir(&directory, name)
        }
        Step::Rename(from, to) => rename(fs, from, to, Over::Replace),
        Step::RenameNew(from, to) => rename(fs, from, to, Over::Refuse),
        Step::Exchange(from, to) => rename(fs, from, to, Over::Exchange),
        Step::RemoveTree(path) => {
            let (directory, name) = fs.resolve_parent(path)?;
            fs.remove_tree(&directory, name)
        }
        Step::Allocate { path, what, offset, len, keep_size } => {
            let object = fs.resolve(path)?;
            fs.allocate(&object, *what, *offset, *len, *keep_size)
        }
        Step::Link(from, to) => {
            let object = fs.resolve(from)?;
            let (directory, name) = fs.resolve_parent(to)?;
            fs.link(&object, &directory, name)
        }
        Step::SetXattr { path, name, len, fill } => {
            let object = fs.resolve(path)?;
            fs.set_xattrs(&object, &[(name.clone(), fill.bytes(*len))])
        }
        Step::RemoveXattr(path, name) => {
            let object = fs.resolve(path)?;
            fs.remove_xattr(&object, name)
        }
        Step::Chmod(path, perm) => {
            let object = fs.resolve(path)?;
            let changes = Changes { perm: Some(*perm), ..Changes::default() };
            fs.set_attributes(&object, changes)
        }
        Step::Carve(path) => {
            let object = fs.resolve(path)?;
            let data = Key::new(data_prefix(&object));
            let keys = [(TreeId::Metadata, object.place().encode()), (TreeId::Data, data)];
            let carved = fs.volume_mut().carve(&keys);
            fs.volume_mut().end_carve();
            carved
        }
        Step::Sync => fs.volume_mut().sync(),
        Step::Checkpoint => fs.checkpoint(),
        Step::Snapshot(name) => {
            finish_drops(fs)?;
            fs.volume_mut().take_hold(name).map_err(|error| refused(fs, name, error))
        }
        Step::DropSnapshot(name) => {
            finish_drops(fs)?;
            let begun = fs.volume_mut().change_holds(&HoldChange::Drop(name.clone()));
            begun.map_err(|error| refused(fs, name, error))?;
            finish_drops(fs)
        }
        Step::RollBack(name) => {
            let begun = fs.roll_back(name, true);
            begun.map_err(|error| refused(fs, name, error))
        }
        Step::Hold(_) | Step::Release | Step::Reopen | Step::Crash(_) => Ok(()),
    }
}

/// Finishes drops of snapshots, a few records at a time.
fn finish_drops(fs: &mut Fs) -> Result<()> {
    while fs.volume().can_drop() {
        fs.volume_mut().change_holds(&HoldChange::Piece(DROPPED_AT_ONCE))?;
    }
    Ok(())
}

/// Converts the error of an invalid, existing or missing snapshot name to a refusal.
fn refused(fs: &Fs, name: &str, error: Error) -> Error {
    match error {
        Error::Input(_) if !is_hold_name(name) => Refusal::Invalid.into(),
        Error::Input(_) if fs.volume().hold(name).is_ok() => Refusal::Exists.into(),
        Error::Input(_) => Refusal::NotFound.into(),
        error => error,
    }
}

fn rename(fs: &mut Fs, from: &[u8], to: &[u8], over: Over) -> Result<()> {
    let (from, name) = fs.resolve_parent(from)?;
    let (to, new_name) = fs.resolve_parent(to)?;
    fs.rename(&from, name, &to, new_name, over)
}

fn make(fs: &mut Fs, path: &[u8], kind: FileType, target: &[u8]) -> Result<()> {
    let (directory, name) = fs.resolve_parent(path)?;
    let mut attributes = Attributes::at(Time::default());
    if kind == FileType::Symlink {
        attributes.perm = 0o777;
    }
    let new = New { target: target.to_vec(), ..New::of(kind, attributes) };
    fs.make(&directory, name, new).map(drop)
}

/// The state between two operations.
pub struct Boundary {
    /// The MSN that the next message takes.
    pub msn: Msn,
    /// The state of the file system.
    pub model: Model,
}

/// A file system and its model, which take steps together.
pub struct Run {
    setup: Setup,
    device: Arc<dyn Device>,
    /// `None` only while it is being reopened.
    fs: Option<Fs>,
    opened: u64,
    seed: u64,
    boundaries: Vec<Boundary>,
    /// How often closed volumes exercised each rule.
    rules: Rules,
    /// The current boundary; after a reopen those behind it are abandoned.
    now: usize,
    acknowledged: usize,
    /// Handles, which stay when their names are removed.
    held: Vec<Object>,
}

impl Taken {
    /// The rule that the step exercised, for reports.
    pub(super) fn rule(self) -> Option<&'static str> {
        match self {
            Taken::Nothing | Taken::Operation | Taken::Acknowledged => None,
            Taken::Refused => Some("step refused"),
            Taken::NoRoom => Some("step without room in the image"),
            Taken::Reopened => Some("volume opened again on the way"),
        }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing, or nothing that makes a boundary.
    Nothing,
    /// It was refused, by both file system and model.
    Refused,
    /// The image had no space for it.
    NoRoom,
    /// A new boundary was reached.
    Operation,
    /// All earlier steps were acknowledged.
    Acknowledged,
    /// The volume was reopened; the boundaries behind the current one are abandoned.
    Reopened,
}

impl Run {
    /// Starts on a device formatted by [`Setup::format`].
    pub fn start(setup: Setup, device: Arc<dyn Device>, seed: u64) -> Result<Run> {
        let (fs, _) = setup.open(device.clone(), Mode::ReadWrite, seed)?;
        let boundaries = vec![Boundary { msn: fs.volume().next_msn(), model: Model::new() }];
        let fs = Some(fs);
        let rules = Rules::new();
        Ok(Run {
            setup,
            device,
            fs,
            opened: 0,
            seed,
            boundaries,
            rules,
            now: 0,
            acknowledged: 0,
            held: Vec::new(),
        })
    }

    /// The file system.
    pub fn fs(&self) -> &Fs {
        self.fs.as_ref().expect("it is open between steps")
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.boundaries[self.now].model
    }

    /// All boundaries, including abandoned ones, in the order in which they were reached.
    pub fn boundaries(&self) -> &[Boundary] {
        &self.boundaries
    }

    /// The current boundary.
    pub fn now(&self) -> usize {
        self.now
    }

    /// Closes the file system; returns the boundaries and the counts of rules.
    pub fn finish(mut self) -> (Vec<Boundary>, Rules) {
        self.close();
        (self.boundaries, self.rules)
    }

    fn close(&mut self) {
        self.held.clear();
        let Some(fs) = self.fs.take() else { return };
        for (rule, count) in fs.volume().counters().named() {
            if count > 0 {
                *self.rules.entry(rule).or_default() += count;
            }
        }
    }

    /// Takes a step. Fails if file system and model disagree. Before a `Crash` the caller must remove the lost writes
    /// from the device.
    pub fn step(&mut self, step: &Step) -> std::result::Result<Taken, String> {
        if matches!(step, Step::Reopen | Step::Crash(_)) {
            return self.reopen();
        }
        let fs = self.fs.as_mut().expect("it is open between steps");
        let taken = match step {
            Step::Hold(path) => fs.resolve(path).map(|object| self.held.push(object)),
            Step::Release => {
                self.held.clear();
                Ok(())
            }
            step => perform(fs, step),
        };
        let done = match taken {
            Ok(()) => Ok(()),
            Err(Error::Refused(refusal)) => Err(refusal),
            Err(Error::NoSpace { .. }) if !fs.volume().has_failed() => {
                let trail = fs.take_trail();
                let model = self.model().clone();
                self.follow(&trail, model);
                return Ok(Taken::NoRoom);
            }
            Err(error) => return Err(error.to_string()),
        };
        let trail = fs.take_trail();
        let mut model = self.model().clone();
        let expected = model.apply(step);
        if done != expected {
            let said = |answer: std::result::Result<(), Refusal>| match answer {
                Ok(()) => "done".into(),
                Err(refusal) => refusal.to_string(),
            };
            return Err(format!("expected: {}, found: {}", said(expected), said(done)));
        }
        if matches!(step, Step::Snapshot(_) | Step::DropSnapshot(_) | Step::RollBack(_)) {
            let before = self.model().clone();
            self.follow(&trail, before);
            if done.is_err() {
                return Ok(Taken::Refused);
            }
            // No message marks it, so the state before has the same MSN.
            let msn = self.boundaries[self.now].msn;
            self.now = self.boundaries.len();
            self.boundaries.push(Boundary { msn, model });
            self.acknowledged = self.now;
            return Ok(Taken::Acknowledged);
        }
        let acted = self.follow(&trail, model);
        if matches!(step, Step::Sync | Step::Checkpoint) {
            self.acknowledged = self.now;
            return Ok(Taken::Acknowledged);
        }
        Ok(match done {
            Ok(()) if acted => Taken::Operation,
            Ok(()) => Taken::Nothing,
            Err(_) => Taken::Refused,
        })
    }

    /// Copies within the file system, and acknowledges it by a checkpoint. This takes many operations, which are not
    /// compared one by one. Fails if file system and model disagree.
    pub fn copy(&mut self, from: &[u8], to: &[u8]) -> std::result::Result<(), String> {
        let fs = self.fs.as_mut().expect("it is open between steps");
        let copied = fs.resolve(from).and_then(|from| {
            let (directory, name) = fs.resolve_parent(to)?;
            fs.copy(&from, &directory, name)
        });
        copied.and_then(|_| fs.checkpoint()).map_err(|error| error.to_string())?;
        let trail = fs.take_trail();
        let mut model = self.model().clone();
        model.copy(from, to).map_err(|refusal| format!("expected: {refusal}, found: done"))?;
        self.follow(&trail, model);
        self.acknowledged = self.now;
        self.difference().map_or(Ok(()), Err)
    }

    /// Adds the boundaries of transactions; from the first visible one on with the model `after`. Returns whether there
    /// is a visible one.
    fn follow(&mut self, trail: &[(Op, Msn)], after: Model) -> bool {
        let mut acted = false;
        for (op, msn) in trail {
            acted |= !op.is_hidden();
            let model = if acted { after.clone() } else { self.model().clone() };
            self.now = self.boundaries.len();
            self.boundaries.push(Boundary { msn: *msn, model });
        }
        if !acted {
            // The model may have a new handle.
            self.boundaries[self.now].model = after;
        }
        acted
    }

    fn reopen(&mut self) -> std::result::Result<Taken, String> {
        self.close();
        self.opened += 1;
        let seed = self.seed ^ self.opened << 32;
        let (fs, _) = self
            .setup
            .open(self.device.clone(), Mode::ReadWrite, seed)
            .map_err(|error| format!("it does not open again: {error}"))?;
        let msn = fs.volume().next_msn();
        let names = snapshots_of(&fs).map_err(|error| error.to_string())?;
        self.fs = Some(fs);
        // The newest boundary with that MSN and those snapshots: abandoned ones are older.
        let is_it = |at: &usize| {
            let Boundary { msn: of, model } = &self.boundaries[*at];
            *of == msn && model.snapshots().keys().eq(names.iter())
        };
        let back = (self.acknowledged..=self.now).rev().find(is_it);
        self.now = back.ok_or_else(|| format!("it came back with MSN {msn}, half an operation"))?;
        self.boundaries[self.now].model.release();
        match self.difference() {
            None => Ok(Taken::Reopened),
            Some(what) => Err(format!("opened again, it is not what it was: {what}")),
        }
    }

    /// The current difference between file system and model.
    pub fn difference(&self) -> Option<String> {
        match self.model().difference(self.fs()) {
            Ok(difference) => difference,
            Err(error) => Some(error.to_string()),
        }
    }
}
