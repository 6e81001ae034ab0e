//! `--as-of`: selects the moment of an image that is shown.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_core::device::Device;
use betr_core::format::is_hold_name;
use betr_core::ids::{Epoch, Lsn, Time};
use betr_core::volume::{Found, Moment, Recovery};
use betr_core::{Error, Result};

use crate::time;

/// The forms that `--as-of` accepts, for error messages.
const MOMENTS: &str =
    "checkpoint, now, s:SNAPSHOT, l:LSN, t:TIME (as 2026-11-23T10:00:00Z) or e:EPOCH";

/// Parses a moment from the command line.
pub fn parse_moment(text: &str) -> std::result::Result<Moment, String> {
    let unknown = || format!("expected {MOMENTS}");
    let number = |digits: &str| digits.parse().map_err(|_| unknown());
    match text {
        "checkpoint" => Ok(Moment::Checkpoint),
        "now" => Ok(Moment::Now),
        _ => match text.split_once(':') {
            Some(("l", digits)) => Ok(Moment::Record(Lsn(number(digits)?))),
            Some(("s", name)) if is_hold_name(name) => Ok(Moment::Snapshot(name.into())),
            Some(("e", digits)) => Ok(Moment::Epoch(Epoch(number(digits)?))),
            Some(("t", time)) => time::parse_utc(time).map(Moment::Time),
            _ => Err(unknown()),
        },
    }
}

/// Parses a time, with or without the prefix `t:`.
pub fn parse_time(text: &str) -> std::result::Result<Time, String> {
    time::parse_utc(text.strip_prefix("t:").unwrap_or(text))
}

/// Finds a moment; also returns notes for the user about it.
pub fn find(moment: &Moment, device: &Arc<dyn Device>) -> Result<(Found, Vec<String>)> {
    let found = moment.find(device)?;
    let mut notes = Vec::new();
    if found.may_be_gone {
        let at = time::format_utc(found.wall.secs, found.wall.nanos);
        let log = match moment {
            Moment::Time(_) => "; the log records between that and the time asked for are gone",
            _ => "",
        };
        notes.push(format!(
            "showing the checkpoint {} of {at}{log}; what has been written over since is reported as damage",
            found.epoch
        ));
    }
    Ok((found, notes))
}

/// Splits `IMAGE@SNAPSHOT` into the image and the snapshot. If a file with the whole name exists, the name is that of
/// an image.
pub fn split_snapshot(path: &Path) -> (PathBuf, Option<Moment>) {
    let bytes = path.as_os_str().as_bytes();
    if let Some(at) = bytes.iter().rposition(|byte| *byte == b'@')
        && let Ok(name) = std::str::from_utf8(&bytes[at + 1..])
        && is_hold_name(name)
        && std::fs::symlink_metadata(path).is_err()
    {
        let image = PathBuf::from(OsStr::from_bytes(&bytes[..at]));
        return (image, Some(Moment::Snapshot(name.into())));
    }
    (path.to_owned(), None)
}

/// Returns a note for the user if a replay stopped within a log group and late-bound blocks show later content.
pub fn note_of(recovery: &Recovery) -> Option<String> {
    let stopped = recovery.stopped.as_ref().filter(|stopped| !stopped.end_of_group.is_empty())?;
    let blocks: u64 =
        stopped.end_of_group.iter().map(|end_of_group| u64::from(end_of_group.count)).sum();
    Some(format!(
        "{blocks} late-bound blocks are shown as at the end of their log group, before {}: that is how they were written",
        stopped.group_end
    ))
}

/// Describes the acknowledged changes that a replay misses because the log is damaged.
pub fn damage_of(recovery: &Recovery) -> Option<String> {
    let survey = &recovery.survey;
    let damage = match &recovery.stopped {
        None => survey.damage(),
        Some(stopped) => {
            let mut lost = survey.lost.iter();
            let lost = lost.find(|lost| lost.messages.first.0 < stopped.before.0)?;
            Some(Error::Corrupt(Box::new(lost.damage.clone())))
        }
    };
    let damage = damage?;
    Some(format!(
        "something that was acknowledged is missing here: {damage}: run betr fsck -fn to see all damage"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_and_others_refused() {
        assert_eq!(parse_moment("checkpoint"), Ok(Moment::Checkpoint));
        assert_eq!(parse_moment("now"), Ok(Moment::Now));
        assert_eq!(parse_moment("l:17"), Ok(Moment::Record(Lsn(17))));
        assert_eq!(parse_moment("e:3"), Ok(Moment::Epoch(Epoch(3))));
        assert_eq!(parse_moment("s:a day: e:3"), Ok(Moment::Snapshot("a day: e:3".into())));
        let time = Time { secs: 1_709_208_000, nanos: 500_000_000 };
        assert_eq!(parse_moment("t:2024-02-29T12:00:00.5Z"), Ok(Moment::Time(time)));
        assert_eq!(parse_moment("t:2024-02-29T14:00:00.5+02:00"), Ok(Moment::Time(time)));
        assert_eq!(parse_moment("t:@1709208000.500000000"), Ok(Moment::Time(time)));
        for text in ["t:2024-02-29T12:00:00.5Z", "2024-02-29T12:00:00.5Z"] {
            assert_eq!(parse_time(text), Ok(time));
        }
        assert!(parse_time("l:7").is_err() && parse_time("t:t:@7").is_err());
        for wrong in [
            "",
            "s:",
            "s:a/b",
            "l:",
            "l:x",
            "17",
            "t:yesterday",
            "t:2024-02-29T12:00:00",
            "e:-1",
            "x:1",
        ] {
            assert!(parse_moment(wrong).is_err(), "{wrong:?}");
        }
    }
}
