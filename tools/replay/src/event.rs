//! An event as a line of text, and as JSON.

use betr_cli::{json, show, time};
use betr_core::format::{RecordMessage, Target};
use betr_core::text::{Printable, printable};
use betr_offline::history::{BoundPart, Event, Touched};
use serde_json::{Value, json};

/// The most paths of a record in one line.
const SHOWN: usize = 3;

/// The line of an event.
pub(crate) fn line(event: &Event<'_>) -> String {
    let record = event.record;
    let at = time::format_utc(record.wall.secs, record.wall.nanos);
    let paths = event.paths();
    let mut shown: Vec<String> =
        paths.iter().take(SHOWN).map(|path| Printable(path).to_string()).collect();
    if let more @ 1.. = paths.len().saturating_sub(SHOWN) {
        shown.push(format!("and {more} more"));
    }
    let late = late(event).map_or(String::new(), |late| format!("  ({late})"));
    let lsn = record.lsn.to_string();
    format!("{lsn:<10} {at}  {:<11} {}{late}", record.op.name(), shown.join("  "))
}

/// The numbers of late-bound blocks of an event, by place.
fn late(event: &Event<'_>) -> Option<String> {
    let mut places: Vec<(String, u64)> = Vec::new();
    for part in &event.bound {
        let place = match part.to {
            Target::Leaf(leaf) => format!("in {} at b:{:#x}", leaf.node, part.to.place()),
            Target::Slice(slice) => format!("in {} at b:{:#x}", slice.node, part.to.place()),
            Target::Inline(_) => "in the log".into(),
            Target::Null => "obsolete at once".into(),
        };
        // Further places share one entry, "elsewhere".
        let known = places.iter().position(|(known, _)| *known == place);
        let at = known.unwrap_or(places.len().min(SHOWN));
        if at == places.len() {
            places.push((place, 0));
        } else if known.is_none() {
            places[at].0 = "elsewhere".into();
        }
        places[at].1 += u64::from(part.values.count);
    }
    let shown: Vec<String> =
        places.into_iter().map(|(place, count)| format!("{count} blocks {place}")).collect();
    (!shown.is_empty()).then(|| format!("late-bound: {}", shown.join(", ")))
}

/// An event as JSON, without its messages.
pub(crate) fn object(event: &Event<'_>) -> Value {
    let record = event.record;
    let paths = event.paths();
    let unbound = |message: &&RecordMessage| matches!(message, RecordMessage::Unbound(..));
    json!({
        "lsn": record.lsn.0,
        "time": time::format_utc(record.wall.secs, record.wall.nanos),
        "operation": record.op.name(),
        "group": event.group.number,
        "group_byte": event.byte,
        "paths": paths.iter().map(|path| path_json(path)).collect::<Value>(),
        "messages": record.messages.len(),
        "unbound_entries": record.messages.iter().filter(unbound).count(),
        "bound": event.bound.iter().map(bound_json).collect::<Value>(),
    })
}

/// A path as JSON.
pub(crate) fn path_json(path: &[u8]) -> Value {
    json::text(path, &printable(path))
}

/// The place of late-bound values, as JSON.
pub(crate) fn bound_json(part: &BoundPart<'_>) -> Value {
    let (kind, node, byte) = match part.to {
        Target::Leaf(leaf) => ("leaf", Some(leaf.node.0), Some(part.to.place())),
        Target::Slice(slice) => ("run", Some(slice.node.0), Some(part.to.place())),
        Target::Inline(_) => ("log", None, None),
        Target::Null => ("null", None, None),
    };
    let (first, values) = (part.values.first.0, part.values.count);
    json!({ "first_msn": first, "values": values, "where": kind, "node": node, "byte": byte })
}

/// The keys of a message.
pub(crate) fn keys(touched: &Touched) -> String {
    let lo = show::key(touched.tree, &touched.lo);
    match touched.lo.successor() == touched.hi {
        true => lo,
        false => format!("{lo} up to {}", show::key(touched.tree, &touched.hi)),
    }
}
