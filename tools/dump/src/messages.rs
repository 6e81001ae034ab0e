//! Pending messages: of one node, or of all.

use betr_cli::{Failure, Io, json, show, words};
use betr_core::address::Address;
use betr_core::anatomy::{Area, Purpose};
use betr_core::format::{
    Action, Entry, InternalHead, Key, Message, RangeDelete, SectionRef, decode_ranges, decode_slice,
};
use betr_core::ids::{Hash, Msn, NodeId, TreeId};
use betr_core::text::Printable;
use bytes::Bytes;
use serde_json::json;

use crate::structure::Output;
use crate::{Image, space, tree};

/// Which messages are shown.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only messages of this kind
    #[arg(long)]
    kind: Option<Kind>,
    /// Only messages for this key, or for keys in a range: k#1:HEX or k#1:HEX..k#1:HEX
    #[arg(long, value_name = "KEY[..KEY]", value_parser = keys)]
    key: Option<(TreeId, Key, Key)>,
    /// Only messages with these numbers, the last one included: A..B, A.. or ..B
    #[arg(long, value_name = "A..B", value_parser = msns)]
    msn: Option<(u64, u64)>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Insert,
    Delete,
    Update,
    RangeDelete,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Insert => "insert",
            Kind::Delete => "delete",
            Kind::Update => "update",
            Kind::RangeDelete => "range delete",
        }
    }
}

fn keys(text: &str) -> Result<(TreeId, Key, Key), String> {
    let key = |text: &str| match text.parse()? {
        Address::Key(tree, key) => Ok((tree, key)),
        _ => Err("expected k#1:HEX or k#2:HEX".to_owned()),
    };
    match text.split_once("..") {
        None => key(text).map(|(tree, key)| (tree, key.clone(), key.successor())),
        Some((lo, hi)) => match (key(lo)?, key(hi)?) {
            ((a, lo), (b, hi)) if a == b => Ok((a, lo, hi)),
            _ => Err("both keys must be of one index".into()),
        },
    }
}

fn msns(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let end = |text: &str, open: u64| match text {
        "" => Ok(open),
        digits => {
            digits.parse().map_err(|_| format!("{} is no number", Printable(text.as_bytes())))
        }
    };
    Ok((end(first, 0)?, end(last, u64::MAX)?))
}

impl Filter {
    fn admits(&self, tree: TreeId, kind: Kind, msn: Msn, lo: &Key, hi: &Key) -> bool {
        let within = |(of, first, end): &(TreeId, Key, Key)| *of == tree && lo < end && first < hi;
        self.kind.is_none_or(|wanted| wanted == kind)
            && self.key.as_ref().is_none_or(within)
            && self.msn.is_none_or(|(first, last)| (first..=last).contains(&msn.0))
    }
}

/// All pending messages.
pub(crate) fn show(
    image: &Image,
    filter: &Filter,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let ground = space::ground(image, output, io)?;
    let mut nodes: Vec<(NodeId, Entry)> = ground.areas.iter().filter_map(internal).collect();
    nodes.sort_by_key(|(id, _)| *id);
    nodes.dedup_by_key(|(id, _)| *id);
    let mut count = 0;
    for (id, entry) in nodes {
        count += of_node(image, id, &entry, None, filter, output, io)?;
    }
    output.line(io, format!("{count} messages"), || json!({ "messages": count }))
}

fn internal(area: &Area) -> Option<(NodeId, Entry)> {
    match area.purpose {
        Purpose::Node(id, entry) if entry.height.0 > 0 => Some((id, entry)),
        _ => None,
    }
}

/// The messages of one node.
pub(crate) fn buffer(
    image: &Image,
    id: NodeId,
    child: Option<NodeId>,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let at_image = |error| betr_cli::volume::failure(&image.path, Some(&image.device), &error);
    let name = show::path(&image.path);
    let entry = tree::table(image).get(id).map_err(at_image)?;
    let entry = entry.filter(|entry| entry.height.0 > 0).ok_or_else(|| {
        let text = format!("there is no internal node {id}: see 'betr dump {name} tree'");
        Failure::failed(format!("{name}: {text}"))
    })?;
    of_node(image, id, &entry, child, &Filter::default(), output, io).map(drop)
}

/// The live messages of a node, child by child, the oldest run first. Returns how many were shown.
fn of_node(
    image: &Image,
    id: NodeId,
    entry: &Entry,
    only: Option<NodeId>,
    filter: &Filter,
    output: &mut Output,
    io: &mut Io,
) -> Result<u64, Failure> {
    let head = image.disk.read(entry.extent.start.byte(), entry.head_bytes as usize);
    let head = match head.map(|head| InternalHead::decode(&head, None)) {
        Ok(Ok((_, head))) => head,
        Ok(Err(error)) => return output.damage(io, &id.to_string(), error).map(|()| 0),
        Err(error) => return output.damage(io, &id.to_string(), error).map(|()| 0),
    };
    let mut shown = 0;
    for (at, child) in head.children.iter().enumerate() {
        if only.is_some_and(|only| only != child.id) {
            continue;
        }
        let hi =
            head.children.get(at + 1).map(|next| next.pivot.clone()).or(head.bounds.hi.clone());
        let live = || head.runs.iter().filter(|run| run.seq >= child.first_run);
        let slices =
            || live().flat_map(|run| run.slices.iter().filter(|slice| slice.child == child.id));
        let count: u64 = slices().map(|slice| u64::from(slice.section.count)).sum();
        let bytes: u64 = slices().map(|slice| u64::from(slice.section.bytes)).sum();
        if count > 0 || only.is_some() {
            let title = format!(
                "{id} for {}: {count} messages of {bytes} bytes in {} runs",
                child.id,
                live().count()
            );
            output.line(
                io,
                title,
                || json!({ "node": id.0, "child": child.id.0, "messages": count, "bytes": bytes }),
            )?;
        }
        for run in live() {
            let title = format!("{id} run {} for {}", run.seq, child.id);
            let start = run.extent.start.byte();
            if run.ranges.count > 0 {
                let ranges = section(image, start, &run.ranges).and_then(|bytes| {
                    let count = run.ranges.count as usize;
                    decode_ranges(&bytes, count, None).map_err(|error| error.to_string())
                });
                match ranges {
                    Err(error) => output.damage(io, &title, error)?,
                    Ok(ranges) => {
                        for RangeDelete { lo, hi: end, msn } in ranges {
                            let inside = end > child.pivot && hi.as_ref().is_none_or(|hi| lo < *hi);
                            if inside && filter.admits(head.tree, Kind::RangeDelete, msn, &lo, &end)
                            {
                                shown += 1;
                                let what = format!("up to {}", show::key(head.tree, &end));
                                let line = (Kind::RangeDelete, msn, &lo, what, None);
                                message(&title, head.tree, line, output, io)?;
                            }
                        }
                    }
                }
            }
            for slice in run.slices.iter().filter(|slice| slice.child == child.id) {
                let messages = section(image, start, &slice.section).and_then(|bytes| {
                    let count = slice.section.count as usize;
                    decode_slice(&bytes, count, None).map_err(|error| error.to_string())
                });
                let messages = match messages {
                    Ok(messages) => messages,
                    Err(error) => {
                        output.damage(io, &title, error)?;
                        continue;
                    }
                };
                for (key, Message { msn, action }) in messages {
                    let (kind, what) = match &action {
                        Action::Insert(value) => {
                            (Kind::Insert, words::value(head.tree, &key, value))
                        }
                        Action::Delete => (Kind::Delete, String::new()),
                        Action::Update(update) => (Kind::Update, words::update(update)),
                    };
                    if filter.admits(head.tree, kind, msn, &key, &key.successor()) {
                        shown += 1;
                        let line = (kind, msn, &key, what, Some(json::hex(action.value())));
                        message(&title, head.tree, line, output, io)?;
                    }
                }
            }
        }
    }
    Ok(shown)
}

/// A part of a run, verified.
fn section(image: &Image, start: u64, section: &SectionRef) -> Result<Bytes, String> {
    let at = start + u64::from(section.offset);
    let bytes = image.disk.read(at, section.bytes as usize).map_err(|error| error.to_string())?;
    match Hash::of(&bytes) == section.hash {
        true => Ok(Bytes::from(bytes)),
        false => Err(format!("b:{at:#x}: its hash does not match")),
    }
}

fn message(
    title: &str,
    tree: TreeId,
    (kind, msn, key, what, value): (Kind, Msn, &Key, String, Option<String>),
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let shown = show::key(tree, key);
    let text = format!("  {msn:<10} {:<12} {shown}  {what}", kind.name());
    output.line(io, text.trim_end(), || {
        json!({
            "in": title, "msn": msn.0, "kind": kind.name(), "tree": tree.code(),
            "key": json::hex(key), "shown": shown, "value": value,
        })
    })
}
