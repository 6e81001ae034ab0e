//! `replay blame`: lists the records that touched an object, a key or a byte.

use std::ops::ControlFlow;

use betr_cli::{Exit, Failure, Io, JsonList, name};
use betr_core::address::Address;
use betr_core::disk::Disk;
use betr_core::format::{Bounds, Key, Op};
use betr_core::fs::{Fs, LastLink, Resolved, open_as_of};
use betr_core::ids::{Lsn, Time, TreeId, ZoneId};
use betr_core::path::Operand;
use betr_core::text::Printable;
use betr_core::tree::NODE_PATHS_MAX;
use betr_core::volume::{Moment, OpenOptions};
use betr_offline::anatomy::keys_at;
use betr_offline::history::{Act, Event};

use crate::filter::is_within;
use crate::{Log, event};

/// What `blame` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// A path, under the name that it has now; a key (k#1:HEX), a node (n:ID) or a byte of the image (b:BYTE): the keys
    /// that it holds, or the record of the log that it is part of; a zone (z:ID)
    #[arg(value_name = "ADDRESS", value_parser = name::address())]
    target: Address,
    /// Of a path, do not follow what it was called before
    #[arg(long)]
    no_follow: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The target of the search.
enum Wanted {
    /// The names of a path, each with the record that gave it, the oldest first; and the zone of the inode if the
    /// object may have several names.
    Path(Vec<(Lsn, Vec<u8>)>, Option<ZoneId>),
    /// Ranges of keys of a tree.
    Keys(TreeId, Vec<Bounds>),
    Record(Lsn),
}

impl Args {
    pub(crate) fn run(&self, log: &Log, io: &mut Io) -> Result<Exit, Failure> {
        let wanted = self.wanted(log, io)?;
        let mut list = self.json.then(|| JsonList::new("betr.replay.blame", 1, "records"));
        let mut count = 0;
        let survey = log.tell(|told| {
            if wanted.is_in(told) {
                count += 1;
                match &mut list {
                    Some(list) => list.push(io, &event::object(told))?,
                    None => writeln!(io.out, "{}", event::line(told))?,
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        match list {
            Some(list) => list.end(io)?,
            None => writeln!(
                io.out,
                "{count} records touched {}; what happened before {} is in the checkpoint",
                self.target,
                Lsn(log.superblock.next_msn.0)
            )?,
        }
        log.end(&survey, io)
    }

    fn wanted(&self, log: &Log, io: &mut Io) -> Result<Wanted, Failure> {
        let whole_key = |key: &Key| Some(key.successor());
        Ok(match &self.target {
            Address::Path(path) => {
                let (path, zone) = now_at(log, &Operand::new(path.clone()))?;
                let zone = zone.filter(|_| !log.is_older);
                let names = match self.no_follow {
                    true => vec![(Lsn(0), path)],
                    false => names(log, path)?,
                };
                Wanted::Path(names, zone)
            }
            Address::Key(tree, key) => {
                Wanted::Keys(*tree, vec![Bounds { lo: key.clone(), hi: whole_key(key) }])
            }
            Address::Record(lsn) => Wanted::Record(*lsn),
            Address::Zone(zone) => {
                // Keys of both indexes begin with the zone id. Changes of contents also touch the metadata key of their
                // file.
                let lo = Key::copied(&zone.0.to_be_bytes());
                let hi = zone.0.checked_add(1).map(|next| Key::copied(&next.to_be_bytes()));
                Wanted::Keys(TreeId::Metadata, vec![Bounds { lo, hi }])
            }
            Address::Byte(_) | Address::Node(_) => {
                let disk = Disk::new(log.device.clone());
                let found = keys_at(&disk, &log.superblock, &self.target);
                let found = found.map_err(|error| log.failure(&error))?;
                let Some((tree, shown)) = found else { return self.in_log(log) };
                let show = |key: &Key| betr_cli::show::key(tree, key);
                for Bounds { lo, hi } in &shown {
                    let (lo, end) = (show(lo), hi.as_ref().map_or("the end".into(), show));
                    let (name, target) = (log.name(), &self.target);
                    io.note(&format!("{name}: {target} holds keys from {lo} to {end}"))?;
                }
                if shown.len() == NODE_PATHS_MAX {
                    io.note(&format!("{}: there may be more such ranges", log.name()))?;
                }
                Wanted::Keys(tree, shown)
            }
        })
    }

    /// The record that contains a byte of the log.
    fn in_log(&self, log: &Log) -> Result<Wanted, Failure> {
        let mut found = None;
        if let Address::Byte(byte) = self.target {
            log.tell(|told| {
                if told.bytes().contains(&byte) {
                    found = Some(told.record.lsn);
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        found.map(Wanted::Record).ok_or_else(|| {
            let name = log.name();
            let target = &self.target;
            Failure::failed(format!(
                "{name}: {target} holds neither keys nor a record of the log: see 'betr dump {name} block {target}'"
            ))
        })
    }
}

impl Wanted {
    fn is_in(&self, told: &Event<'_>) -> bool {
        match self {
            Wanted::Record(lsn) => told.record.lsn <= *lsn && *lsn < told.record.next_lsn(),
            Wanted::Keys(tree, ranges) => told.touched.iter().any(|touched| {
                let meets = |keys: &Bounds| keys.is_below_end(&touched.lo) && touched.hi > keys.lo;
                touched.tree == *tree && ranges.iter().any(meets)
            }),
            Wanted::Path(_, Some(zone)) if told.touches_zone(*zone) => true,
            Wanted::Path(names, _) => {
                // The record renamed the path or one of its parents.
                if names.iter().any(|(since, _)| *since == told.record.lsn) {
                    return true;
                }
                let at = names.partition_point(|(since, _)| *since <= told.record.lsn);
                names[at.saturating_sub(1)..at].iter().any(|(_, name)| {
                    told.touched
                        .iter()
                        .any(|touched| touched.act != Act::Count && told.path(touched) == *name)
                })
            }
        }
    }
}

/// The canonical path to which a path resolves now. If the object is not a directory, also the zone of its inode, so
/// that changes under every name count.
fn now_at(log: &Log, path: &Operand) -> Result<(Vec<u8>, Option<ZoneId>), Failure> {
    let failed = |text: &str| {
        Failure::failed(format!("{}: {}: {text}", log.name(), Printable(path.bytes())))
    };
    let found = open_now(log).map(|fs| {
        let found = fs.look_up(path, LastLink::Keep);
        // The path requires a directory, but names an object of another type.
        let shadowed =
            found.is_err() && fs.look_up(&Operand::new(path.shown()), LastLink::Keep).is_ok();
        (found, shadowed)
    });
    match found {
        Some((Ok(Resolved { object, path }), _)) => {
            Ok((path, object.zone().filter(|_| !object.is_directory())))
        }
        Some((_, true)) => Err(failed("not a directory")),
        // The object may have existed before, or the newest state cannot be read.
        _ => match path.plain() {
            Some(path) => Ok((path, None)),
            None => Err(failed("'..' depends on the tree, and this leads nowhere now")),
        },
    }
}

/// The newest state, or `None` if it cannot be opened.
fn open_now(log: &Log) -> Option<Fs> {
    let found = Moment::Now.find(&log.device).ok()?;
    let options = OpenOptions::new(found.mode, Box::new(|| 0));
    let clock = Box::new(Time::default);
    let (fs, _) = open_as_of(log.device.clone(), found, options, clock).ok()?;
    Some(fs)
}

/// The names of a path through all renames of it and its parents, back to the checkpoint.
fn names(log: &Log, now: Vec<u8>) -> Result<Vec<(Lsn, Vec<u8>)>, Failure> {
    let mut moves: Vec<(Lsn, Vec<u8>, Vec<u8>)> = Vec::new();
    log.tell(|told| {
        if matches!(told.record.op, Op::Rename | Op::Exchange) {
            let is_gone = |path: &Vec<u8>| {
                let has = |acts: &[Act]| {
                    let of_acts = told.touched.iter().filter(|touched| acts.contains(&touched.act));
                    of_acts.into_iter().any(|touched| told.path(touched) == *path)
                };
                // A replaced path has both an old and a new object.
                has(&[Act::Remove]) && !has(&[Act::Put, Act::Replace])
            };
            let paths = told.paths();
            let (gone, came): (Vec<_>, Vec<_>) = paths.into_iter().partition(is_gone);
            match (&gone[..], &came[..]) {
                ([old], [new]) => moves.push((told.record.lsn, old.clone(), new.clone())),
                ([], [a, b]) => {
                    moves.push((told.record.lsn, a.clone(), b.clone()));
                    moves.push((told.record.lsn, b.clone(), a.clone()));
                }
                _ => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut names = Vec::new();
    let (mut name, mut last) = (now, None);
    for (lsn, old, new) in moves.into_iter().rev() {
        // An exchange moves in both directions; only one counts.
        if last == Some(lsn) || !is_within(&name, &new) {
            continue;
        }
        let before = [&old, &name[new.len()..]].concat();
        names.push((lsn, std::mem::replace(&mut name, before)));
        last = Some(lsn);
    }
    names.push((Lsn(0), name));
    names.reverse();
    Ok(names)
}
