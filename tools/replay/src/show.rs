//! `replay show`: a record in full.

use std::ops::ControlFlow;

use betr_cli::{Exit, Failure, Io, json, show};
use betr_core::address::Address;
use betr_core::format::{Action, LinkKind, MetaValue, Record, RecordMessage, Stage, ZoneRef};
use betr_core::history::Event;
use betr_core::ids::{Lsn, Time, TreeId};
use betr_core::text::Printable;
use serde_json::{Value, json};

use crate::{Log, event};

/// Bytes of a value that are shown in text.
const SHOWN: usize = 32;

/// What `show` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The record, as l:LSN or a number; any of its message numbers will do
    #[arg(value_parser = record)]
    lsn: Lsn,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn record(text: &str) -> Result<Lsn, String> {
    if let Ok(number) = text.parse() {
        return Ok(Lsn(number));
    }
    match text.parse()? {
        Address::Record(lsn) => Ok(lsn),
        _ => Err("expected l:NUMBER".into()),
    }
}

impl Args {
    pub fn run(&self, log: &Log, io: &mut Io) -> Result<Exit, Failure> {
        let mut found = false;
        log.tell(|told| {
            let record = told.record;
            if record.lsn <= self.lsn && self.lsn < record.next_lsn() {
                found = true;
                match self.json {
                    true => io.json("betr.replay.show", 1, document(told))?,
                    false => text(told, io)?,
                }
            }
            Ok(match found {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        if found {
            return Ok(Exit::DONE);
        }
        let name = log.name();
        Err(Failure::failed(format!(
            "{name}: the log holds no record {}: see 'betr replay {name} list'",
            self.lsn
        )))
    }
}

fn text(told: &Event<'_>, io: &mut Io) -> Result<(), Failure> {
    writeln!(io.out, "{}", event::line(told))?;
    let (group, byte) = (told.group.number, told.byte);
    let Record { next_zone, next_ino, .. } = told.record;
    writeln!(io.out, "  in log group {group} at b:{byte:#x}")?;
    writeln!(io.out, "  then the next zone is {next_zone}, the next inode number {next_ino}")?;
    for (touched, message) in told.touched.iter().zip(&told.record.messages) {
        let path = told.path(touched);
        writeln!(io.out, "  {:<10} {} {}", touched.msn, event::act(touched), Printable(&path))?;
        writeln!(io.out, "             {} {}", name(message), event::keys(touched))?;
        for line in contents(message) {
            writeln!(io.out, "             {line}")?;
        }
    }
    for part in &told.bound {
        writeln!(io.out, "  bound      {}", event::bound_json(part))?;
    }
    Ok(())
}

fn name(message: &RecordMessage) -> &'static str {
    match message {
        RecordMessage::Point(_, _, Action::Insert(_)) => "insert",
        RecordMessage::Point(_, _, Action::Delete) => "delete",
        RecordMessage::Point(_, _, Action::Update(_)) => "update",
        RecordMessage::RangeDelete(..) => "range delete",
        RecordMessage::Unbound(..) => "unbound entry",
    }
}

/// What a message carries, in lines.
fn contents(message: &RecordMessage) -> Vec<String> {
    let value = |tree: TreeId, bytes: &[u8]| {
        if tree == TreeId::Metadata
            && let Ok(value) = MetaValue::decode(bytes, None)
        {
            return meta(&value);
        }
        let more = if bytes.len() > SHOWN { "…" } else { "" };
        format!("{} bytes: {}{more}", bytes.len(), json::hex(&bytes[..bytes.len().min(SHOWN)]))
    };
    match message {
        RecordMessage::Point(tree, _, Action::Insert(bytes)) => vec![value(*tree, bytes)],
        RecordMessage::Point(_, _, Action::Update(update)) => {
            update.stages().iter().map(stage).collect()
        }
        RecordMessage::Unbound(_, count) => vec![format!("{count} values")],
        RecordMessage::Point(_, _, Action::Delete) | RecordMessage::RangeDelete(..) => Vec::new(),
    }
}

/// A value of the metadata index in words.
fn meta(value: &MetaValue) -> String {
    let inode = match value {
        MetaValue::ZoneRef(ZoneRef { link, kind, ino, zone }) => {
            let link = match link {
                LinkKind::Own => "",
                LinkKind::Link => ", one of several links",
            };
            return format!("reference to {zone}: {}, inode {ino}{link}", kind.name());
        }
        MetaValue::Inode(inode) => inode,
    };
    let at = |time: Time| betr_cli::time::format_utc(time.secs, time.nanos);
    let mut text = format!(
        "inode {}: {}, mode {:04o}, owner {}:{}, links {}, size {}, modified {}, changed {}",
        inode.ino,
        inode.kind.name(),
        inode.perm,
        inode.uid,
        inode.gid,
        inode.links,
        inode.size,
        at(inode.modified),
        at(inode.changed)
    );
    if let Some(zone) = inode.data_zone {
        text += &format!(", contents in {zone}");
    }
    if !inode.target.is_empty() {
        text += &format!(", target {}", Printable(&inode.target));
    }
    text
}

/// What a part of an update does, in words.
fn stage(stage: &Stage) -> String {
    let mut words = Vec::new();
    if stage.anew {
        words.push("starts anew".to_owned());
    } else if stage.create {
        words.push("makes what is absent".into());
    }
    words.extend(stage.trim.map(|len| format!("cuts to {len} bytes")));
    if stage.extend > 0 {
        words.push(format!("extends to {} bytes", stage.extend));
    }
    for (at, bytes) in &stage.pieces {
        let more = if bytes.len() > SHOWN { "…" } else { "" };
        let shown = json::hex(&bytes[..bytes.len().min(SHOWN)]);
        words.push(format!("writes {} bytes at {at}: {shown}{more}", bytes.len()));
    }
    words.extend(stage.adds.iter().map(|(at, by)| format!("adds {by} at {at}")));
    words.join(", ")
}

fn document(told: &Event<'_>) -> Value {
    let mut document = event::object(told);
    let messages = told.touched.iter().zip(&told.record.messages).map(|(touched, message)| {
        let value = match message {
            RecordMessage::Point(_, _, action) => Some(json::hex(action.value())),
            RecordMessage::RangeDelete(..) | RecordMessage::Unbound(..) => None,
        };
        json!({
            "msn": touched.msn.0,
            "kind": name(message),
            "tree": touched.tree.code(),
            "key": json::hex(&touched.lo),
            "end": json::hex(&touched.hi),
            "shown": show::key(touched.tree, &touched.lo),
            "path": event::path_json(&told.path(touched)),
            "act": event::act(touched),
            "value": value,
        })
    });
    document["messages"] = messages.collect();
    document["next_zone"] = told.record.next_zone.0.into();
    document["next_inode"] = told.record.next_ino.0.into();
    document
}
