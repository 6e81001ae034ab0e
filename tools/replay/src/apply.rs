//! `replay apply`: makes a new image with the log replayed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::image;
use betr_cli::moment::parse_moment;
use betr_cli::show;
use betr_cli::time::format_utc;
use betr_cli::volume::{clock_now, failure, nonces};
use betr_cli::{Exit, Failure, Io, json};
use betr_core::Error;
use betr_core::check::{CheckOptions, Report, Severity, check};
use betr_core::device::Device;
use betr_core::format::Superblock;
use betr_core::format::limits::FILE_BLOCK;
use betr_core::format::{MetaKey, parse_data_key};
use betr_core::fs::{Fs, open_as_of};
use betr_core::ids::Msn;
use betr_core::text::{Printable, printable};
use betr_core::volume::{EndOfGroupValue, Found, Mode, Moment, OpenOptions, Recovery, Until};
use betr_offline::history::Names;
use serde_json::{Value, json};

use crate::Log;

/// What `apply` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Replay up to and including this record (l:LSN), or all up to a time (t:2026-11-23T10:00:00Z); what comes behind
    /// is abandoned in the new image
    #[arg(long, value_name = "MOMENT", value_parser = until)]
    until: Option<Until>,
    /// The new image
    #[arg(short, long, value_name = "IMAGE", required_unless_present = "in_place")]
    output: Option<PathBuf>,
    /// Replay in the image itself: what is behind the moment is lost for good
    #[arg(long, conflicts_with_all = ["output", "force"])]
    pub in_place: bool,
    /// Replace an image that is there
    #[arg(short, long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn until(text: &str) -> Result<Until, String> {
    match parse_moment(text)? {
        Moment::Record(lsn) => Ok(Until::Record(lsn)),
        Moment::Time(time) => Ok(Until::Time(time)),
        Moment::Now => Ok(Until::End),
        _ => Err("expected l:LSN or t:TIME: a replay starts at the checkpoint".into()),
    }
}

impl Args {
    pub(crate) fn run(&self, log: &Log, io: &mut Io) -> Result<Exit, Failure> {
        self.check_moment(log)?;
        let Some(output) = &self.output else { return self.in_place(log, io) };
        let len = log.device.len();
        let new = image::create(output, len, self.force)?;
        image::copy_to(&*log.device, &new).map_err(|error| {
            let output = show::path(output);
            Failure::failed(format!("{output}: {}: cannot be copied: {error}", log.name()))
        })?;
        let device = new.device(len);
        let done = self.replay(log, output, device.clone())?;
        // The copy is checked in its final state, so damage from the image and from the replay is found.
        let damage = damage_of(&check(&device, CheckOptions::default(), &mut ()));
        new.commit()?;
        let exit = self.say(log, output, &done, io)?;
        let Some(damage) = damage else { return Ok(exit) };
        let name = show::path(output);
        io.note(&format!(
            "betr: {name}: it is as damaged as {}: {damage}\nRun 'betr fsck -fn {name}' to see all damage.",
            log.name()
        ))?;
        Ok(Exit::DAMAGED)
    }

    fn in_place(&self, log: &Log, io: &mut Io) -> Result<Exit, Failure> {
        // The check replays the whole log in memory. It proves that the image is sound and finds the end of the log. No
        // check follows the write, because a power cut leaves either the old or the new state.
        let slot = log.is_older.then_some(log.superblock.slot);
        let options = CheckOptions { slot, ..CheckOptions::default() };
        let report = check(&log.device, options, &mut ());
        if let Some(damage) = damage_of(&report) {
            let name = log.name();
            return Err(Failure::damaged(format!(
                "{name}: {damage}: nothing is replayed in a damaged image: run 'betr fsck -fy {name}' first, or --output"
            )));
        }
        let is_at_end = report.replay.is_some() || !report.needs_replay();
        if let Some(at_end) = report.superblock.filter(|_| is_at_end) {
            let until = self.until.unwrap_or_default();
            until.within(at_end.next_msn).map_err(|error| log.failure(&error))?;
        }
        let done = self.replay(log, &log.path, log.device.clone())?;
        self.say(log, &log.path, &done, io)
    }

    /// A moment before the log is refused: the replay cannot stop there, and the whole log would be abandoned.
    fn check_moment(&self, log: &Log) -> Result<(), Failure> {
        let Superblock { next_msn, wall, birth, .. } = &log.superblock;
        let is_before = match self.until.unwrap_or_default() {
            Until::End => false,
            Until::Record(lsn) => lsn.0 < next_msn.0,
            Until::Time(time) => time < *wall,
        };
        if !is_before {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "{}: that is before the log, which begins with l:{next_msn} at {}, behind the checkpoint {}: export what was then \
             with 'betr export --as-of'",
            log.name(),
            format_utc(wall.secs, wall.nanos),
            birth.epoch
        )))
    }

    /// Replays the log in the image on `device`, whose path is or will be `path`, and makes the result durable.
    fn replay(&self, log: &Log, path: &Path, device: Arc<dyn Device>) -> Result<Done, Failure> {
        let until = self.until.unwrap_or_default();
        // Damage in the copy is damage in the original image, so the error names that. I/O errors name the copy.
        let at_image = |error| match error {
            Error::Io { .. } => failure(path, Some(&device), &error),
            _ => failure(&log.path, Some(&device), &error),
        };
        let from = Moment::Now.find(&device).map_err(at_image)?;
        let found = Found { slot: log.superblock.slot, mode: Mode::ReadWrite, until, ..from };
        let options = OpenOptions { content: None, ..OpenOptions::new(found.mode, nonces()?) };
        let opened = open_as_of(device.clone(), found, options, Box::new(clock_now));
        let (mut fs, recovery) = opened.map_err(at_image)?;
        fs.volume_mut().checkpoint().map_err(at_image)?;
        let next = fs.volume().next_msn();
        let end_of_group = end_of_group(&fs, &recovery);
        Ok(Done { next, recovery, end_of_group })
    }

    fn say(&self, log: &Log, path: &Path, done: &Done, io: &mut Io) -> Result<Exit, Failure> {
        let Done { next, recovery, end_of_group } = done;
        let output = show::path(path);
        let first = log.superblock.next_msn;
        if self.json {
            let document = json!({
                "output": json::text(path.as_os_str().as_encoded_bytes(), &output),
                "first_msn": first.0,
                "next_msn": next.0,
                "stopped_before": recovery.stopped.as_ref().map(|stopped| stopped.before.0),
                "as_at_end_of_group": end_of_group.iter().map(Shown::object).collect::<Value>(),
            });
            io.json("betr.replay.apply", 1, document)?;
            return Ok(Exit::DONE);
        }
        let stopped = recovery.stopped.as_ref().map_or_else(
            || "to its end".to_owned(),
            |stopped| format!("up to {}, which is left out with all behind it", stopped.before),
        );
        writeln!(io.out, "{output}: the log of {} replayed from l:{first} {stopped}", log.name())?;
        for shown in end_of_group {
            writeln!(io.out, "{output}: as at the end of its log group: {}", shown.text())?;
        }
        Ok(Exit::DONE)
    }
}

/// The first error in the structure of an image, if any.
fn damage_of(report: &Report) -> Option<String> {
    let bad = report.findings.iter().find(|found| found.code.severity() == Severity::Error)?;
    Some(format!("{}: {}", bad.place, bad.detail))
}

/// The result of a replay.
struct Done {
    next: Msn,
    recovery: Recovery,
    end_of_group: Vec<Shown>,
}

/// Bytes of a file that are shown as at the end of a log group.
struct Shown {
    path: Vec<u8>,
    first: u64,
    last: u64,
    lsn: u64,
}

impl Shown {
    fn text(&self) -> String {
        let Shown { path, first, last, lsn } = self;
        format!("{}: bytes {first} to {last}, written by l:{lsn}", Printable(path))
    }

    fn object(&self) -> Value {
        json!({
            "path": json::text(&self.path, &printable(&self.path)),
            "first": self.first, "last": self.last, "lsn": self.lsn,
        })
    }
}

/// The file ranges shown as at the end of the group, by their paths in the new image.
fn end_of_group(fs: &Fs, recovery: &Recovery) -> Vec<Shown> {
    let end_of_group = recovery.stopped.as_ref().map_or(&[][..], |stopped| &stopped.end_of_group);
    if end_of_group.is_empty() {
        return Vec::new();
    }
    let names = Names::of_fs(fs);
    end_of_group.iter().filter_map(|end_of_group| shown(&names, end_of_group)).collect()
}

fn shown(names: &Names, end_of_group: &EndOfGroupValue) -> Option<Shown> {
    let (prefix, block) = parse_data_key(&end_of_group.key)?;
    let path = names.path(&MetaKey::decode(prefix)?);
    let first = block.saturating_mul(FILE_BLOCK as u64);
    let bytes = u64::from(end_of_group.count) * FILE_BLOCK as u64;
    Some(Shown { path, first, last: first.saturating_add(bytes - 1), lsn: end_of_group.lsn.0 })
}
