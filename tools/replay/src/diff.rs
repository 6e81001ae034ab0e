//! `replay diff`: shows the changes between two moments.

use std::ops::ControlFlow;

use betr_cli::changes;
use betr_cli::moment::{damage_of, find, note_of, parse_moment};
use betr_cli::volume::{clock_now, nonces};
use betr_cli::{Exit, Failure, Io, JsonList, json, show};
use betr_core::format::Key;
use betr_core::fs::{Fs, open_as_of};
use betr_core::ids::{Msn, TreeId};
use betr_core::node::RangeSet;
use betr_core::volume::{Moment, OpenOptions};
use betr_offline::compare::{Touched, compare, touched};
use betr_offline::history::{touched_between, touched_since_checkpoint};
use bytes::Bytes;
use serde_json::json;

use crate::Log;

/// What `diff` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Two moments, as A..B; each is checkpoint, now, l:LSN, t:TIME or e:EPOCH; one that is not given is checkpoint, or
    /// now
    #[arg(value_name = "A..B", value_parser = moments, default_value = "checkpoint..now")]
    moments: (Moment, Moment),
    /// Show the keys of both indexes that changed, too
    #[arg(short, long)]
    keys: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn moments(text: &str) -> Result<(Moment, Moment), String> {
    let (a, b) = text.split_once("..").ok_or("expected two moments, as checkpoint..now")?;
    let moment = |text: &str, open: Moment| match text {
        "" => Ok(open),
        text => parse_moment(text),
    };
    Ok((moment(a, Moment::Checkpoint)?, moment(b, Moment::Now)?))
}

impl Args {
    pub(crate) fn run(&self, log: &Log, io: &mut Io) -> Result<Exit, Failure> {
        if log.is_older {
            let text = "diff takes the moments themselves: name an older checkpoint as e:EPOCH, without -b";
            return Err(Failure::usage(text));
        }
        let (a, from) = open(log, &self.moments.0, io)?;
        let (b, to) = open(log, &self.moments.1, io)?;
        // Two states of one checkpoint and its log differ only in the keys that the records between them touched.
        let touched = match from.slot.is_some() && from.slot == to.slot {
            true => {
                let touched = touched_between(&log.device, &log.superblock, from.end, to.end);
                Some(touched.map_err(|error| log.failure(&error))?)
            }
            false => touched(a.volume(), b.volume(), [from.logged, to.logged]),
        };
        let mut list = self.json.then(|| JsonList::new("betr.replay.diff", 1, "changes"));
        let mut failed = Ok(());
        compare(&a, &b, touched.as_ref(), &mut |change| {
            failed = match &mut list {
                Some(list) => list.push(io, &changes::object(&change)),
                None => writeln!(io.out, "{}", changes::line(&change)),
            };
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .map_err(|error| log.failure(&error))?;
        failed?;
        if self.keys {
            for (at, tree) in [TreeId::Metadata, TreeId::Data].into_iter().enumerate() {
                let ranges = touched.as_ref().map(|touched| &touched[at]);
                keys(log, &a, &b, tree, ranges, &mut list, io)?;
            }
        }
        list.map_or(Ok(()), |list| list.end(io))?;
        Ok(if from.is_damaged || to.is_damaged { Exit::DAMAGED } else { Exit::DONE })
    }
}

/// The position of a state: its checkpoint and the next record.
struct Point {
    /// The slot of its superblock; `None` for a snapshot.
    slot: Option<u32>,
    end: Msn,
    /// The keys touched by the records of the log before `end`.
    logged: Touched,
    is_damaged: bool,
}

fn open(log: &Log, moment: &Moment, io: &mut Io) -> Result<(Fs, Point), Failure> {
    let (found, mut notes) = find(moment, &log.device).map_err(|error| log.failure(&error))?;
    let options = OpenOptions::new(found.mode, nonces()?);
    let slot = Some(found.slot).filter(|_| found.snapshot.is_none());
    let opened = open_as_of(log.device.clone(), found.clone(), options, Box::new(clock_now));
    let (fs, recovery) = opened.map_err(|error| log.failure(&error))?;
    let end = recovery.stopped.as_ref().map(|stopped| Msn(stopped.before.0));
    let end = end.unwrap_or(fs.volume().next_msn());
    let logged = touched_since_checkpoint(&log.device, &found, end);
    let logged = logged.map_err(|error| log.failure(&error))?;
    notes.extend(note_of(&recovery));
    let damage = damage_of(&recovery);
    let is_damaged = damage.is_some();
    notes.extend(damage);
    for note in notes {
        io.note(&format!("{}: {note}", log.name()))?;
    }
    Ok((fs, Point { slot, end, logged, is_damaged }))
}

/// Shows the keys of an index that differ; only within `ranges`, if they are known.
fn keys(
    log: &Log,
    a: &Fs,
    b: &Fs,
    tree: TreeId,
    ranges: Option<&RangeSet>,
    list: &mut Option<JsonList>,
    io: &mut Io,
) -> Result<(), Failure> {
    let whole = vec![(Key::default(), None)];
    let ranges: Vec<(Key, Option<Key>)> = ranges
        .map_or(whole, |ranges| ranges.iter().map(|range| (range.lo, Some(range.hi))).collect());
    let at_image = |error| log.failure(&error);
    for (lo, hi) in ranges {
        let mut left = a.volume().cursor(tree, lo.clone(), hi.clone());
        let mut right = b.volume().cursor(tree, lo, hi);
        let mut next = [left.next().transpose(), right.next().transpose()];
        loop {
            let [x, y] = next.map(|entry| entry.map_err(at_image));
            let (x, y) = (x?, y?);
            let order = match (&x, &y) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((x, _)), Some((y, _))) => x.cmp(y),
            };
            let (ahead, behind) = (order.is_le(), order.is_ge());
            let shown = (x.as_ref().filter(|_| ahead), y.as_ref().filter(|_| behind));
            show_key(tree, shown, list, io)?;
            next = [
                if ahead { left.next().transpose() } else { Ok(x) },
                if behind { right.next().transpose() } else { Ok(y) },
            ];
        }
    }
    Ok(())
}

type Pair = (Key, Bytes);

fn show_key(
    tree: TreeId,
    pair: (Option<&Pair>, Option<&Pair>),
    list: &mut Option<JsonList>,
    io: &mut Io,
) -> Result<(), Failure> {
    let (sign, word, key) = match pair {
        (Some((key, _)), None) => ("-", "removed", key),
        (None, Some((key, _))) => ("+", "added", key),
        (Some((key, x)), Some((_, y))) if x != y => ("~", "changed", key),
        _ => return Ok(()),
    };
    let length = |pair: Option<&Pair>| pair.map(|(_, value)| value.len());
    match list {
        Some(list) => {
            let (before, after) = (length(pair.0), length(pair.1));
            let object = json!({
                "change": word, "tree": tree.code(), "key": json::hex(key),
                "shown": show::key(tree, key), "bytes_before": before, "bytes_after": after,
            });
            list.push(io, &object)?;
        }
        None => writeln!(io.out, "{sign} {}", show::key(tree, key))?,
    }
    Ok(())
}
