//! The log: its valid groups and the reason why it ends; at a past moment, the groups up to it.

use std::fmt;
use std::ops::Range;

use betr_cli::volume::failure;
use betr_cli::{Failure, Io};
use betr_core::Error;
use betr_core::disk::Disk;
use betr_core::format::{Group, Trace};
use betr_core::ids::{BLOCK_SIZE, Lsn};
use betr_core::log::{End, LogReader, Region, Scanned, Survey, scan};
use betr_core::text::Printable;
use serde_json::json;

use crate::structure::Output;
use crate::{Image, Source};

/// The part of the log that belongs to a moment.
pub(crate) struct Reach {
    /// The result of pass 1 over the whole log.
    pub survey: Survey,
    pub groups: u64,
    pub records: u64,
    pub bytes: u64,
    /// The first record after the moment.
    pub later: Option<Lsn>,
}

impl Reach {
    /// Scans the groups; passes each to `show` with the number of its records that belong to the moment.
    pub(crate) fn of(
        source: &Source,
        mut show: impl FnMut(&Scanned, usize) -> Result<(), Failure>,
    ) -> Result<Result<Reach, Error>, Failure> {
        let disk = Disk::new(source.device.clone());
        let survey = match scan(&disk, &source.superblock) {
            Ok(survey) => survey,
            Err(error) => return Ok(Err(error)),
        };
        let units = survey.units(&source.superblock);
        let reach = Reach {
            groups: survey.groups,
            records: survey.records,
            bytes: units * BLOCK_SIZE as u64,
            later: None,
            survey,
        };
        let (mut groups, mut records, mut bytes) = (0, 0, 0);
        let mut reader = LogReader::new(&disk, &source.superblock);
        loop {
            let scanned = match reader.next() {
                Ok(Ok(scanned)) => scanned,
                Ok(Err(_)) => return Ok(Ok(reach)),
                Err(error) => return Ok(Err(error)),
            };
            let all = &scanned.group.records;
            let included = all.iter().take_while(|record| source.includes(record)).count();
            if included > 0 {
                show(&scanned, included)?;
                groups += 1;
                records += included as u64;
                bytes += scanned.bytes.len().next_multiple_of(BLOCK_SIZE) as u64;
            }
            if let Some(later) = all.get(included) {
                return Ok(Ok(Reach { groups, records, bytes, later: Some(later.lsn), ..reach }));
            }
        }
    }
}

/// Shows every group that continues the superblock, up to the moment.
pub(crate) fn show(image: &Image, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let at_image = |error: Error| failure(&image.path, Some(&image.device), &error);
    let reach = groups(&image.source, output, io)?.map_err(at_image)?;
    let end = match (reach.later, image.source.until, &reach.survey.end) {
        (Some(later), ..) => {
            format!("the moment ends here: {later} and what is behind it came later")
        }
        // Damage to the log of an older checkpoint does not affect that checkpoint.
        (None, None, _) => "the moment is a checkpoint: no record is before it".to_owned(),
        (None, _, End::Clean) => "the log ends here: what follows is not of this epoch".to_owned(),
        (None, _, End::Torn { byte, why }) => format!("torn tail at b:{byte:#x}: {why}"),
        (None, _, damage) => damage.damage().map_or_else(String::new, |error| error.to_string()),
    };
    let is_whole = reach.later.is_none() && image.source.until.is_some();
    output.damaged |= is_whole && reach.survey.damage().is_some();
    let all = Region::of(&image.source.superblock).units * BLOCK_SIZE as u64;
    let Reach { groups, records, bytes, later, .. } = reach;
    let text = format!("{groups} groups, {records} records, {bytes} of {all} bytes; {end}");
    output.line(io, text, || {
        json!({
            "groups": groups, "records": records, "later": later.map(|later| later.0),
            "end": Printable(end.as_bytes()).to_string(),
        })
    })
}

/// Shows the groups field by field.
pub(crate) fn groups(
    source: &Source,
    output: &mut Output,
    io: &mut Io,
) -> Result<Result<Reach, Error>, Failure> {
    let region = Region::of(&source.superblock);
    Reach::of(source, |scanned, included| {
        let title = format!("log group {}", scanned.group.number);
        let at = region.byte(scanned.unit);
        let seen = output.seen.len();
        output.structure(io, &title, at, &scanned.bytes, |trace| {
            let mut clip = trace.map(|trace| Clip::new(trace, included));
            let decoded =
                Group::decode(&scanned.bytes, clip.as_mut().map(|clip| clip as &mut dyn Trace));
            clip.iter_mut().for_each(Clip::tell);
            decoded
        })?;
        // A group may wrap around the end of the log region.
        let rows = region.byte_ranges(scanned.unit, scanned.bytes.len());
        if rows.len() > 1 {
            output.seen.truncate(seen);
            rows.iter().for_each(|(at, len)| output.has_shown(*at, *len as u64));
        }
        Ok(())
    })
}

/// Forwards the trace of a group. Records after the moment are left out and become a single field.
struct Clip<'t> {
    trace: &'t mut dyn Trace,
    included: usize,
    /// The nesting depth within a record that is left out.
    depth: usize,
    /// The number of records left out, and their bytes.
    left_out: (usize, Option<Range<usize>>),
}

impl<'t> Clip<'t> {
    fn new(trace: &'t mut dyn Trace, included: usize) -> Clip<'t> {
        Clip { trace, included, depth: 0, left_out: (0, None) }
    }

    fn tell(&mut self) {
        if let (count, Some(bytes)) = std::mem::take(&mut self.left_out) {
            self.trace.field("records that came later", bytes, &count);
        }
    }
}

impl Trace for Clip<'_> {
    fn enter(&mut self, name: &'static str, index: Option<usize>) {
        let later = name == "record" && index.is_some_and(|index| index >= self.included);
        if self.depth > 0 || later {
            self.left_out.0 += usize::from(self.depth == 0);
            self.depth += 1;
        } else {
            self.tell();
            self.trace.enter(name, index);
        }
    }

    fn leave(&mut self) {
        match self.depth {
            0 => self.trace.leave(),
            _ => self.depth -= 1,
        }
    }

    fn field(&mut self, name: &'static str, bytes: Range<usize>, value: &dyn fmt::Display) {
        if self.depth == 0 {
            self.tell();
            return self.trace.field(name, bytes, value);
        }
        match &mut self.left_out.1 {
            Some(all) => all.end = bytes.end,
            none => *none = Some(bytes),
        }
    }
}
