//! Tests the moments of a log: the state after every record must equal the file system at that time.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::devices::{ForkDevice, RecordingDevice};
use super::story::Story;
use super::timeline::{Cut, Timeline};
use super::{Model, Random};
use betr_core::check::{CheckOptions, Finding, Severity, check};
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::fs::{Fs, open_as_of};
use betr_core::ids::*;
use betr_core::text::Printable;
use betr_core::volume::{
    EndOfGroupValue, Found, Mode, Moment, OpenOptions, Recovery, Ring, read_identity,
};
use betr_offline::compare::compare;
use betr_offline::history::tell;

/// 1 of 8 moments is made durable, and checked.
const APPLIED: u64 = 8;
/// 16 power cuts are tried while it is.
const CUTS: u64 = 16;
/// 6 of them are near the end, where the superblock is written.
const LATE_CUTS: u64 = 6;

/// Counts of tested moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Moments compared with the model.
    pub moments: u64,
    /// Moments with late-bound values as of the end of the group.
    pub end_of_group: u64,
    /// Moments made durable and checked.
    pub applied: u64,
    /// Power cuts during that after which everything was as before.
    pub kept: u64,
    /// Power cuts during that after which the moment was there.
    pub arrived: u64,
    /// Paths that differ between successive moments.
    pub changes: u64,
}

/// A record, by the history.
struct HistoryRecord {
    lsn: Lsn,
    next: Lsn,
    is_hidden: bool,
    /// All paths that it touched, and the paths that it concerns.
    touched: BTreeSet<Vec<u8>>,
}

impl Story {
    /// Cuts the power somewhere, and tests the state after each record of the remaining log. It must equal the model,
    /// except late-bound values within a group. It may differ from the state before only in paths that the record
    /// touched.
    pub fn check_moments(&self, seed: u64) -> Result<Remembered, String> {
        let cut = any_cut(&self.timeline, &mut Random::new(seed));
        let disk = self.timeline.state(&cut);
        let device: Arc<dyn Device> = Arc::new(disk.fork());
        let mut found = Remembered::default();
        let told = told(&device)?;
        let end = told.last().map_or(Lsn(0), |record| record.next);
        let mut random = Random::new(seed ^ 0xa991);
        let (mut before, _) = open(&device, Moment::Checkpoint)?;
        let mut was_blurred = false;
        for record in told {
            let at = |what: String| format!("{}: {what}", record.lsn);
            let (fs, recovery) = open(&device, Moment::Record(record.lsn)).map_err(at)?;
            let end_of_group =
                recovery.stopped.map_or_else(Vec::new, |stopped| stopped.end_of_group);
            self.compare_with_model(&fs, record.next, &end_of_group).map_err(at)?;
            found.moments += 1;
            found.end_of_group += u64::from(!end_of_group.is_empty());
            // A late-bound value of the moment before may differ, too.
            let has_end_of_group = was_blurred || !end_of_group.is_empty();
            found.changes += agree(&before, &fs, &record, has_end_of_group).map_err(at)?;
            if found.moments % APPLIED == 1 {
                let way = self.apply(&disk, &record, &end_of_group).map_err(at)?;
                found.applied += 1;
                for _ in 0..CUTS {
                    let cut = any_cut(&way, &mut random);
                    let state: Arc<dyn Device> = Arc::new(way.state(&cut));
                    let arrived =
                        self.cut_off(&state, &record, end, &end_of_group).map_err(|what| {
                            let lines = way.describe(&cut).join("; ");
                            at(format!("cut off after {} events ({lines}): {what}", cut.events))
                        })?;
                    *(if arrived { &mut found.arrived } else { &mut found.kept }) += 1;
                }
            }
            (before, was_blurred) = (fs, !end_of_group.is_empty());
        }
        Ok(found)
    }

    fn compare_with_model(
        &self,
        fs: &Fs,
        next: Lsn,
        end_of_group: &[EndOfGroupValue],
    ) -> Result<(), String> {
        let models = self.boundaries_at(Msn(next.0)).map(|at| &self.boundary(at).model);
        let mut last = format!("there is no boundary at {next}");
        for model in models {
            let model: &Model = model;
            match model.difference_but(fs, end_of_group).map_err(|error| error.to_string())? {
                None => return Ok(()),
                Some(what) => last = what,
            }
        }
        Err(last)
    }

    /// Makes a moment durable on a copy, which must be sound, have the same content, and end its history. Returns the
    /// writes.
    fn apply(
        &self,
        disk: &ForkDevice,
        record: &HistoryRecord,
        end_of_group: &[EndOfGroupValue],
    ) -> Result<Timeline, String> {
        let text = |error: betr_core::Error| error.to_string();
        let recording = Arc::new(RecordingDevice::new(Arc::new(disk.fork())));
        let device: Arc<dyn Device> = recording.clone();
        let found = Moment::Record(record.lsn).find(&device).map_err(text)?;
        let found = Found { mode: Mode::ReadWrite, ..found };
        let usual = OpenOptions::new(found.mode, Box::new(|| 0xa9));
        let opened = open_as_of(device.clone(), found, usual, Box::new(Time::default));
        opened.map_err(text)?.0.volume_mut().checkpoint().map_err(text)?;
        let report = check(&device, CheckOptions::ALL, &mut ());
        if let Some(finding) = report.findings.iter().find(|_| !report.is_clean()) {
            return Err(format!("made durable: {} {}", finding.place, finding.detail));
        }
        let (fs, _) = open(&device, Moment::Now)?;
        self.compare_with_model(&fs, record.next, end_of_group)?;
        Ok(Timeline::new(disk.fork(), recording.events()))
    }

    /// Tests the state after a power cut while a moment was made durable. It is either the moment, or everything is as
    /// before, up to the end of the log. Returns whether it is the moment.
    fn cut_off(
        &self,
        device: &Arc<dyn Device>,
        record: &HistoryRecord,
        end: Lsn,
        end_of_group: &[EndOfGroupValue],
    ) -> Result<bool, String> {
        let report = check(device, CheckOptions::ALL, &mut ());
        let is_wrong = |finding: &&Finding| finding.code.severity() != Severity::Note;
        if let Some(finding) = report.findings.iter().find(is_wrong) {
            return Err(format!("{} {}", finding.place, finding.detail));
        }
        let (now, _) = open(device, Moment::Now)?;
        if self.compare_with_model(&now, record.next, end_of_group).is_ok() {
            return Ok(true);
        }
        self.compare_with_model(&now, end, &[])?;
        let (then, _) = open(device, Moment::Record(record.lsn))?;
        self.compare_with_model(&then, record.next, end_of_group)?;
        Ok(false)
    }
}

/// A power cut anywhere, or near the end.
fn any_cut(way: &Timeline, random: &mut Random) -> Cut {
    let all = way.events.len() as u64;
    let last = if random.below(CUTS) < LATE_CUTS { all.min(6) } else { all };
    let events = all - random.below(last + 1);
    let mut cuts = way.cuts(events as usize, random);
    cuts.swap_remove(random.below(cuts.len() as u64) as usize)
}

fn open(device: &Arc<dyn Device>, moment: Moment) -> Result<(Fs, Recovery), String> {
    let text = |error: betr_core::Error| error.to_string();
    let found = moment.find(device).map_err(text)?;
    let usual = OpenOptions::new(found.mode, Box::new(|| 0xa5));
    open_as_of(device.clone(), found, usual, Box::new(Time::default)).map_err(text)
}

fn told(device: &Arc<dyn Device>) -> Result<Vec<HistoryRecord>, String> {
    let text = |error: betr_core::Error| error.to_string();
    let disk = Disk::new(device.clone());
    let ring = Ring::read(&disk, &read_identity(&disk).map_err(text)?).map_err(text)?;
    let superblock = ring.choose(None).map_err(text)?;
    let mut records = Vec::new();
    tell(device, superblock, &mut |event| {
        records.push(HistoryRecord {
            lsn: event.record.lsn,
            next: event.record.next_lsn(),
            is_hidden: event.record.op.is_hidden(),
            touched: event.touched.iter().map(|touched| event.path(touched)).collect(),
        });
        ControlFlow::Continue(())
    })
    .map_err(text)?;
    Ok(records)
}

/// Checks that every path that differs was touched by the record, or is below such a path.
fn agree(
    before: &Fs,
    after: &Fs,
    record: &HistoryRecord,
    has_end_of_group: bool,
) -> Result<u64, String> {
    let mut changes = 0;
    let mut stranger = None;
    compare(before, after, None, &mut |change| {
        changes += 1;
        let known = record.touched.iter().any(|path| {
            change.path == *path
                || path == b"/"
                || change.path.strip_prefix(&path[..]).is_some_and(|rest| rest.starts_with(b"/"))
        });
        // A file with several names is reported by one of them.
        let several = [before, after].into_iter().any(|fs| {
            let object = fs.resolve(&change.path);
            object.is_ok_and(|object| object.inode().links > 1 && !object.is_directory())
        });
        if !known && !several {
            stranger.get_or_insert(change.path);
        }
        ControlFlow::Continue(())
    })
    .map_err(|error| error.to_string())?;
    match stranger {
        Some(path) if !has_end_of_group => {
            Err(format!("{} differs, and the record did not touch it", Printable(&path)))
        }
        _ if record.is_hidden && changes > 0 && !has_end_of_group => {
            Err("something differs, and the record should not show".into())
        }
        _ => Ok(changes),
    }
}
