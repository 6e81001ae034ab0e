//! `replay show`: prints a record in full.

use std::ops::ControlFlow;

use betr_cli::{Exit, Failure, Io, json, show, words};
use betr_core::address::Address;
use betr_core::format::{Action, Bounds, RecordMessage};
use betr_core::ids::Lsn;
use betr_core::text::Printable;
use betr_offline::history::Event;
use serde_json::{Value, json};

use crate::{Log, event};

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
    pub(crate) fn run(&self, log: &Log, io: &mut Io) -> Result<Exit, Failure> {
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
    let next = told.record.next;
    writeln!(io.out, "  in log group {group} at b:{byte:#x}")?;
    let (zone, ino, tag) = (next.zone, next.ino, next.tag);
    writeln!(
        io.out,
        "  then the next zone is {zone}, the next inode number {ino}, the next tag {tag}"
    )?;
    for (touched, message) in told.touched.iter().zip(&told.record.messages) {
        let path = told.path(touched);
        writeln!(io.out, "  {:<10} {} {}", touched.msn, words::act(touched), Printable(&path))?;
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
        RecordMessage::Clone(..) => "range clone",
        RecordMessage::Unbound(..) => "unbound entry",
    }
}

/// Describes the content of a message, in lines.
fn contents(message: &RecordMessage) -> Vec<String> {
    match message {
        RecordMessage::Point(tree, key, Action::Insert(bytes)) => {
            vec![words::value(*tree, key, bytes)]
        }
        RecordMessage::Point(_, _, Action::Update(update)) => vec![words::update(update)],
        RecordMessage::Clone(tree, clone) => {
            let Bounds { lo, hi } = clone.source();
            let end = hi.map_or_else(|| "the end".into(), |hi| show::key(*tree, &hi));
            vec![format!("of the keys from {} to {end}", show::key(*tree, &lo))]
        }
        RecordMessage::Unbound(_, count) => vec![format!("{count} values")],
        RecordMessage::Point(_, _, Action::Delete) | RecordMessage::RangeDelete(..) => Vec::new(),
    }
}

fn document(told: &Event<'_>) -> Value {
    let mut document = event::object(told);
    let messages = told.touched.iter().zip(&told.record.messages).map(|(touched, message)| {
        let value = match message {
            RecordMessage::Point(_, _, action) => Some(json::hex(action.value())),
            RecordMessage::Clone(_, clone) => Some(json::hex(&clone.source().lo)),
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
            "act": words::act(touched),
            "value": value,
        })
    });
    document["messages"] = messages.collect();
    document["next_zone"] = told.record.next.zone.0.into();
    document["next_inode"] = told.record.next.ino.0.into();
    document["next_tag"] = told.record.next.tag.0.into();
    document
}
