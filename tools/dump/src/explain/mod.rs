//! `betr explain`: the origin of a value in an image.
//!
//! Shows the path of a lookup through the checkpoint, node by node, with every pending message for the key and the
//! value after it; then the effect of the log. The result is compared with that of a read.

use std::sync::Arc;

use betr_cli::view::PastArgs;
use betr_cli::volume::{clock_now, failure, open_view};
use betr_cli::{Exit, Failure, Io, json, moment, name, show, time, words};
use betr_core::address::Address;
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::error::Refusal;
use betr_core::format::{Action, FileType, Key, data_key};
use betr_core::fs::{Fs, LastLink, data_prefix, open_as_of};
use betr_core::ids::*;
use betr_core::node::{Deed, Pending};
use betr_core::path::Operand;
use betr_core::store::CacheBudget;
use betr_core::tree::{Explanation, Stop, explain};
use betr_core::volume::{Found, Mode, Moment, OpenOptions, Ring, Volume, read_identity};
use betr_offline::history::{KeyDeed, KeyStep, of_key};
use bytes::Bytes;
use clap::builder::TypedValueParser;
use serde_json::{Value, json};

/// Show why a path, a block of a file or a key has the value that it has: the way through the tree, every pending
/// message on it, and the records of the log
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    image: PastArgs,
    /// A path, a block of a file (PATH@BLOCK), or a key (k#1:HEX or k#2:HEX)
    #[arg(value_name = "PATH[@BLOCK]|KEY", value_parser = name::address().try_map(target))]
    target: Target,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The target of an explanation.
#[derive(Clone, Debug)]
enum Target {
    /// A path; or a block of a file, if the path does not exist and ends in an at sign and a number.
    Path(Vec<u8>),
    Key(TreeId, Key),
}

fn target(address: Address) -> Result<Target, &'static str> {
    match address {
        Address::Path(path) => Ok(Target::Path(path)),
        Address::Key(tree, key) => Ok(Target::Key(tree, key)),
        _ => Err("expected a path, a path and a block as /file@3, or a key"),
    }
}

/// The data of an explanation.
struct Story {
    tree: TreeId,
    key: Key,
    epoch: Epoch,
    explanation: Explanation,
    log: Vec<KeyStep>,
    /// The value that a read returns.
    value: Option<Bytes>,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let view = args.image.view();
    let as_of = view.as_of.clone().unwrap_or(Moment::Now);
    let device = open_view(view)?;
    let path = args.image.path().to_owned();
    let at_image = |error: betr_core::Error| match &error {
        betr_core::Error::Refused(refusal) => {
            let of = match &args.target {
                Target::Path(of) => show::bytes(of),
                Target::Key(tree, key) => show::key(*tree, key),
            };
            Failure::failed(format!("{}: {of}: {refusal}", show::path(&path)))
        }
        _ => failure(&path, Some(&device), &error),
    };
    let (found, mut notes) = moment::find(&as_of, &device).map_err(at_image)?;
    let options = OpenOptions { content: None, ..OpenOptions::new(found.mode, Box::new(|| 0)) };
    let opened = open_as_of(device.clone(), found.clone(), options, Box::new(clock_now));
    let (fs, recovery) = opened.map_err(at_image)?;
    notes.extend(moment::note_of(&recovery));
    let damage = moment::damage_of(&recovery);
    let is_damaged = damage.is_some();
    notes.extend(damage);
    for note in notes {
        io.note(&format!("{}: {note}", show::path(&path)))?;
    }
    let (tree, key) = key_of(&fs, &args.target).map_err(at_image)?;
    let story = story(&device, found, &fs, tree, key).map_err(at_image)?;
    match args.json {
        true => io.json("betr.explain", 1, story.document())?,
        false => story.print(io)?,
    }
    match story.agrees() {
        true if is_damaged => Ok(Exit::DAMAGED),
        true => Ok(Exit::DONE),
        false => Err(Failure::failed(format!(
            "{}: {}: what is explained is not what a read returns: this is a mistake of betr",
            show::path(&path),
            show::key(story.tree, &story.key)
        ))),
    }
}

fn key_of(fs: &Fs, target: &Target) -> betr_core::Result<(TreeId, Key)> {
    let path = match target {
        Target::Key(tree, key) => return Ok((*tree, key.clone())),
        Target::Path(path) => path,
    };
    let look_up = |path: &[u8]| fs.look_up(&Operand::new(path), LastLink::Keep);
    match (look_up(path), block_of(path)) {
        (Ok(found), _) => Ok((TreeId::Metadata, found.object.place().encode())),
        (Err(betr_core::Error::Refused(_)), Some((file, block))) => {
            let object = look_up(file)?.object;
            if object.kind() != FileType::Regular {
                return Err(Refusal::Invalid.into());
            }
            Ok((TreeId::Data, data_key(&data_prefix(&object), block)))
        }
        (Err(error), _) => Err(error),
    }
}

/// Splits `PATH@BLOCK`.
fn block_of(path: &[u8]) -> Option<(&[u8], u64)> {
    let at = path.iter().rposition(|byte| *byte == b'@')?;
    let block = std::str::from_utf8(&path[at + 1..]).ok()?.parse().ok()?;
    Some((&path[..at], block))
}

fn story(
    device: &Arc<dyn Device>,
    found: Found,
    fs: &Fs,
    tree: TreeId,
    key: Key,
) -> betr_core::Result<Story> {
    let disk = Disk::new(device.clone());
    let ring = Ring::read(&disk, &read_identity(&disk)?)?;
    let superblock = ring.choose(Some(found.slot))?.clone();
    let options = OpenOptions {
        content: None,
        slot: Some(found.slot),
        hold: found.snapshot.as_ref().map(|name| name.to_string()),
        cache: CacheBudget::of(CACHE),
        ..OpenOptions::new(Mode::Checkpoint, Box::new(|| 0))
    };
    let (checkpoint, _) = Volume::open(device.clone(), options)?;
    let explanation = explain(checkpoint.store(), tree, &key)?;
    let stored = explanation.value.clone();
    let log = match found.mode {
        Mode::Checkpoint => Vec::new(),
        _ => of_key(device, &superblock, tree, &key, found.until, stored)?,
    };
    let value = fs.volume().get(tree, &key)?;
    let epoch = found.epoch;
    Ok(Story { tree, key, epoch, explanation, log, value })
}

/// The cache of one lookup, in bytes (12 MiB).
const CACHE: usize = 12 << 20;

impl Story {
    /// Whether the explanation agrees with a read. An unknown value counts as agreement: it was never written to a
    /// node.
    fn agrees(&self) -> bool {
        match self.log.last() {
            None => self.explanation.value == self.value,
            Some(step) => step.after.as_ref().is_none_or(|after| *after == self.value),
        }
    }

    fn shown(&self, value: Option<&Bytes>) -> String {
        value.map_or("nothing".into(), |value| words::value(self.tree, &self.key, value))
    }

    fn print(&self, io: &mut Io) -> Result<(), Failure> {
        let Story { tree, key, epoch, explanation, .. } = self;
        writeln!(io.out, "{tree} index, key {}", show::key(*tree, key))?;
        writeln!(io.out, "the checkpoint of epoch {}", epoch.0)?;
        for stop in &explanation.way {
            self.print_stop(stop, io)?;
        }
        writeln!(io.out, "    the leaf holds {}", self.shown(explanation.stored.as_ref()))?;
        writeln!(io.out, "the messages, the oldest first")?;
        let mut count = 0;
        for stop in explanation.way.iter().rev() {
            for (pending, after) in &stop.messages {
                count += 1;
                let (node, msn) = (stop.node, pending.msn);
                let what = self.deed(&pending.deed);
                writeln!(io.out, "    {msn:<10} in {node}, {}: {what}", run_of(pending))?;
                writeln!(io.out, "               leaves {}", self.shown(after.as_ref()))?;
            }
        }
        if count == 0 {
            writeln!(io.out, "    none is pending")?;
        }
        writeln!(io.out, "the log")?;
        for step in &self.log {
            let at = time::format_utc(step.wall.secs, step.wall.nanos);
            let what = self.log_deed(&step.deed);
            writeln!(io.out, "    {:<10} {at} {}: {what}", step.lsn.to_string(), step.op.name())?;
            let after = match (&step.after, &step.deed) {
                (Some(after), _) => self.shown(after.as_ref()),
                (None, KeyDeed::Clone(_)) => "what that key had then".into(),
                (None, _) => "a value that was never written".into(),
            };
            writeln!(io.out, "               leaves {after}")?;
        }
        if self.log.is_empty() {
            writeln!(io.out, "    no record touches it")?;
        }
        Ok(writeln!(io.out, "a read returns {}", self.shown(self.value.as_ref()))?)
    }

    fn print_stop(&self, stop: &Stop, io: &mut Io) -> Result<(), Failure> {
        let place = stop.entry.map_or("in memory only".into(), |entry| {
            format!("b:{:#x}, {} blocks", entry.extent.start.byte(), entry.extent.blocks)
        });
        writeln!(io.out, "  {} height {}, {place}", stop.node, stop.height)?;
        let Some(chosen) = &stop.chosen else { return Ok(()) };
        let end = chosen.bounds.hi.as_ref().map_or("the end".into(), |hi| show::key(self.tree, hi));
        let lo = match chosen.bounds.lo.is_empty() {
            true => "the beginning".into(),
            false => show::key(self.tree, &chosen.bounds.lo),
        };
        let (index, children, child) = (chosen.index + 1, chosen.children, chosen.child);
        writeln!(io.out, "    child {index} of {children}, {child}: from {lo} up to {end}")?;
        if let Some(lens) = &chosen.lens {
            let [to, from] = [lens.to(), lens.from()].map(|prefix| show::key(self.tree, prefix));
            writeln!(io.out, "    a lens: keys that begin with {to} begin with {from} below")?;
        }
        let pending = stop.messages.len();
        Ok(writeln!(io.out, "    {pending} messages about the key are pending here")?)
    }

    fn deed(&self, deed: &Deed) -> String {
        match deed {
            Deed::Point(action) => self.action(action),
            Deed::RangeDelete(lo, hi) => self.range(lo, hi),
        }
    }

    fn log_deed(&self, deed: &KeyDeed) -> String {
        match deed {
            KeyDeed::Point(action) => self.action(action),
            KeyDeed::RangeDelete(lo, hi) => self.range(lo, hi),
            KeyDeed::Clone(from) => format!("range clone, from {}", show::key(self.tree, from)),
            KeyDeed::Bound { node: Some(node), byte } => {
                format!("late-bound, in {node} at b:{byte:#x}, as at the end of its log group")
            }
            KeyDeed::Bound { node: None, .. } => {
                "late-bound, in the log, as at the end of its group".into()
            }
            KeyDeed::Null => "late-bound, and obsolete at once".into(),
        }
    }

    fn action(&self, action: &Action) -> String {
        match action {
            Action::Insert(_) => "insert".into(),
            Action::Delete => "delete".into(),
            Action::Update(update) => format!("update: {}", words::update(update)),
        }
    }

    fn range(&self, lo: &Key, hi: &Key) -> String {
        let (lo, hi) = (show::key(self.tree, lo), show::key(self.tree, hi));
        format!("range delete from {lo} up to {hi}")
    }

    fn document(&self) -> Value {
        let hex = |value: &Option<Bytes>| value.as_ref().map(|value| json::hex(value));
        let way = self.explanation.way.iter().map(|stop| {
            let messages = stop.messages.iter().map(|(pending, after)| {
                json!({
                    "msn": pending.msn.0, "run": pending.run.map(|run| run.0), "byte": pending.byte,
                    "deed": self.deed(&pending.deed), "value": hex(after),
                })
            });
            json!({
                "node": stop.node.0,
                "height": stop.height.0,
                "byte": stop.entry.map(|entry| entry.extent.start.byte()),
                "child": stop.chosen.as_ref().map(|chosen| chosen.child.0),
                "from": stop.chosen.as_ref().map(|chosen| json::hex(&chosen.bounds.lo)),
                "to": stop.chosen.as_ref().and_then(|chosen| {
                    chosen.bounds.hi.as_ref().map(|hi| json::hex(hi))
                }),
                "lens": stop.chosen.as_ref().and_then(|chosen| {
                    let lens = chosen.lens.as_ref()?;
                    Some(json!({ "to": json::hex(lens.to()), "from": json::hex(lens.from()) }))
                }),
                "messages": messages.collect::<Value>(),
            })
        });
        let log = self.log.iter().map(|step| {
            json!({
                "lsn": step.lsn.0, "msn": step.msn.0, "operation": step.op.name(),
                "time": time::format_utc(step.wall.secs, step.wall.nanos),
                "deed": self.log_deed(&step.deed),
                "known": step.after.is_some(),
                "value": step.after.as_ref().and_then(hex),
            })
        });
        json!({
            "tree": self.tree.code(),
            "key": json::hex(&self.key),
            "shown": show::key(self.tree, &self.key),
            "epoch": self.epoch.0,
            "way": way.collect::<Value>(),
            "stored": hex(&self.explanation.stored),
            "log": log.collect::<Value>(),
            "value": hex(&self.value),
        })
    }
}

fn run_of(pending: &Pending) -> String {
    match (pending.run, pending.byte) {
        (Some(run), Some(byte)) => format!("run {run} at b:{byte:#x}"),
        _ => "in memory".into(),
    }
}
