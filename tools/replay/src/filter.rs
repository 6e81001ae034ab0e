//! Filters records.

use betr_cli::moment::parse_time;
use betr_cli::name;
use betr_cli::range::{Keys, parse_keys, parse_numbers};
use betr_core::address::Address;
use betr_core::format::{FileType, Op, RecordMessage, Target};
use betr_core::ids::{Time, ZoneId};
use betr_core::path::Operand;
use betr_offline::history::Event;

/// Which records; all that every option lets through.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only records from A to B, both included: A..B, A.. or ..B
    #[arg(long, value_name = "A..B", value_parser = parse_numbers)]
    lsn: Option<(u64, u64)>,
    /// Only what happened then or later: t:2026-11-23T10:00:00Z, or without the t:
    #[arg(long, value_name = "t:TIME", value_parser = parse_time)]
    since: Option<Time>,
    /// Only what happened then or before
    #[arg(long, value_name = "t:TIME", value_parser = parse_time)]
    before: Option<Time>,
    /// Only these operations, as the list names them; may be given several times
    #[arg(long, value_name = "OPERATION", value_parser = operation)]
    op: Vec<Op>,
    /// Only what touched this path, or anything below; as the list shows it. With a slash at its end, only if it is a
    /// directory
    #[arg(long, value_parser = name::plain_path())]
    path: Option<Operand>,
    /// Only what touched keys of this zone
    #[arg(long, value_name = "z:ZONE", value_parser = zone)]
    zone: Option<ZoneId>,
    /// Only what touched this key, or any in a range: k#1:HEX or k#1:HEX..k#1:HEX
    #[arg(long, value_name = "KEY[..KEY]", value_parser = parse_keys)]
    key: Option<Keys>,
    /// Only records with values that were bound late, to this: a node, the log itself, or to nothing (null), because
    /// they were obsolete at once; none: only records without any
    #[arg(long, value_name = "WHERE")]
    bound: Option<BoundTo>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum BoundTo {
    Any,
    Node,
    Log,
    Null,
    None,
}

fn operation(text: &str) -> Result<Op, String> {
    let names = || Op::ALL.map(Op::name).join(", ");
    let found = Op::ALL.into_iter().find(|op| op.name() == text);
    found.ok_or_else(|| format!("expected one of {}", names()))
}

fn zone(text: &str) -> Result<ZoneId, String> {
    match text.parse()? {
        Address::Zone(zone) => Ok(zone),
        _ => Err("expected z:NUMBER".into()),
    }
}

impl Filter {
    /// Whether the filter admits an event.
    pub(crate) fn admits(&self, event: &Event<'_>) -> bool {
        let record = event.record;
        let first_to_last =
            |(first, last): (u64, u64)| record.lsn.0 <= last && first < record.next_lsn().0;
        self.lsn.is_none_or(first_to_last)
            && self.since.is_none_or(|since| record.wall >= since)
            && self.before.is_none_or(|before| record.wall <= before)
            && (self.op.is_empty() || self.op.contains(&record.op))
            && self.path.as_ref().is_none_or(|path| touches_path(event, path))
            && self.zone.is_none_or(|zone| event.touches_zone(zone))
            && self.key.as_ref().is_none_or(|keys| touches_keys(event, keys))
            && self.bound.is_none_or(|to| is_bound(event, to))
    }
}

/// Whether an event touched a path or anything below it.
fn touches_path(event: &Event<'_>, path: &Operand) -> bool {
    let top = path.shown();
    event.touched.iter().any(|touched| {
        let at = event.path(touched);
        let kind = touched.inode.as_ref().map(|inode| inode.kind);
        // An object of unknown type may have been a directory.
        let fits = !path.wants_directory() || kind.is_none_or(|kind| kind == FileType::Directory);
        is_within(&at, &top) && (fits || at != top)
    })
}

/// Whether `path` equals `top` or is below it.
pub(crate) fn is_within(path: &[u8], top: &[u8]) -> bool {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    let rest = path.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Whether an event touched a key in the range.
pub(crate) fn touches_keys(event: &Event<'_>, keys: &Keys) -> bool {
    event.touched.iter().any(|touched| keys.overlap(touched.tree, &touched.lo, &touched.hi))
}

fn is_bound(event: &Event<'_>, to: BoundTo) -> bool {
    let any = |is: fn(&Target) -> bool| event.bound.iter().any(|part| is(part.to));
    match to {
        BoundTo::Any => !event.bound.is_empty(),
        BoundTo::Node => any(|to| matches!(to, Target::Leaf(_) | Target::Slice(_))),
        BoundTo::Log => any(|to| matches!(to, Target::Inline(_))),
        BoundTo::Null => any(|to| matches!(to, Target::Null)),
        BoundTo::None => !event
            .record
            .messages
            .iter()
            .any(|message| matches!(message, RecordMessage::Unbound(..))),
    }
}
