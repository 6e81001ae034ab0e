//! Pending messages, of one node or of all.

use betr_cli::range::{Keys, parse_keys, parse_numbers};
use betr_cli::{Failure, Io, json, show, words};
use betr_core::format::{
    Action, Entry, InternalHead, Key, Message, RangeDelete, RunRef, SectionRef, SliceRef,
    decode_ranges, decode_slice,
};
use betr_core::ids::{Hash, Msn, NodeId, TreeId};
use betr_offline::anatomy::{Area, Ground, Purpose};
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
    #[arg(long, value_name = "KEY[..KEY]", value_parser = parse_keys)]
    key: Option<Keys>,
    /// Only messages with these numbers, the last one included: A..B, A.. or ..B
    #[arg(long, value_name = "A..B", value_parser = parse_numbers)]
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

impl Filter {
    fn admits(&self, tree: TreeId, shown: &Shown) -> bool {
        self.kind.is_none_or(|wanted| wanted == shown.kind)
            && self.key.as_ref().is_none_or(|keys| keys.overlap(tree, &shown.key, &shown.end))
            && self.msn.is_none_or(|(first, last)| (first..=last).contains(&shown.msn.0))
    }
}

/// Shows all pending messages.
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
        count += of_node(image, (&ground, id, &entry), None, filter, output, io)?;
    }
    output.line(io, format!("{count} messages"), || json!({ "messages": count }))
}

fn internal(area: &Area) -> Option<(NodeId, Entry)> {
    match area.purpose {
        Purpose::Node(id, entry) if entry.height.0 > 0 => Some((id, entry)),
        _ => None,
    }
}

/// Shows the messages of one node.
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
    let ground = space::ground(image, output, io)?;
    of_node(image, (&ground, id, &entry), child, &Filter::default(), output, io).map(drop)
}

/// Shows the pending messages of a node, child by child, the oldest run first. Returns the number shown.
fn of_node(
    image: &Image,
    (ground, id, entry): (&Ground, NodeId, &Entry),
    only: Option<NodeId>,
    filter: &Filter,
    output: &mut Output,
    io: &mut Io,
) -> Result<u64, Failure> {
    if !ground.owns_node(id) {
        return output.damage(io, &id.to_string(), "has blocks of something else").map(|()| 0);
    }
    let head = image.disk.read(entry.extent.start.byte(), entry.head_bytes as usize);
    let head = match head.map(|head| InternalHead::decode(&head, None)) {
        Ok(Ok((_, head))) => head,
        Ok(Err(error)) => return output.damage(io, &id.to_string(), error).map(|()| 0),
        Err(error) => return output.damage(io, &id.to_string(), error).map(|()| 0),
    };
    let mut runs = Vec::with_capacity(head.runs.len());
    for run in &head.runs {
        let title = format!("{id} run {}", run.seq);
        if !ground.owns_run(id, run.seq) {
            output.damage(io, &title, "has blocks of something else")?;
            continue;
        }
        let ranges = match ranges_of(image, run) {
            Ok(ranges) => ranges,
            Err(error) => {
                output.damage(io, &title, error)?;
                Vec::new()
            }
        };
        runs.push(Open { run, title, ranges, next: 0 });
    }
    let mut shown = 0;
    for (at, child) in head.children.iter().enumerate() {
        let hi = head.children.get(at + 1).map(|next| &next.pivot).or(head.bounds.hi.as_ref());
        let wanted = only.is_none_or(|only| only == child.id);
        let mut titled = false;
        for open in &mut runs {
            // Slices are in the order of the children.
            let slices = open.slices_of(at);
            if !wanted || open.run.seq < child.first_run {
                continue;
            }
            let mut messages: Vec<Shown> = Vec::new();
            for slice in slices {
                match messages_of(image, open.run, slice) {
                    Ok(found) => messages.extend(
                        found
                            .into_iter()
                            .map(|(key, message)| Shown::point(head.tree, key, message)),
                    ),
                    Err(error) => {
                        output.damage(io, &format!("{} for {}", open.title, child.id), error)?
                    }
                }
            }
            messages.extend(open.ranges_within(&child.pivot, hi).map(Shown::range));
            messages.retain(|shown| filter.admits(head.tree, shown));
            messages.sort_by(|a, b| a.key.cmp(&b.key));
            if !messages.is_empty() && !titled {
                titled = true;
                let text = format!("{id} for {}", child.id);
                output.line(io, text, || json!({ "node": id.0, "child": child.id.0 }))?;
            }
            shown += messages.len() as u64;
            for message in messages {
                message.show(head.tree, &open.title, output, io)?;
            }
        }
    }
    Ok(shown)
}

/// A run whose messages are being shown.
struct Open<'h> {
    run: &'h RunRef,
    title: String,
    ranges: Vec<RangeDelete>,
    /// The index of the next slice.
    next: usize,
}

impl<'h> Open<'h> {
    fn slices_of(&mut self, child: usize) -> &'h [SliceRef] {
        let rest = &self.run.slices[self.next..];
        let count = rest.iter().take_while(|slice| usize::from(slice.child) == child).count();
        self.next += count;
        &rest[..count]
    }

    /// Range deletes are stored in a section of their own, in key order.
    fn ranges_within(&self, lo: &Key, hi: Option<&Key>) -> impl Iterator<Item = RangeDelete> {
        let first = self.ranges.partition_point(|range| range.hi <= *lo);
        let inside = move |range: &&RangeDelete| hi.is_none_or(|hi| range.lo < *hi);
        self.ranges[first..].iter().take_while(inside).cloned()
    }
}

fn ranges_of(image: &Image, run: &RunRef) -> Result<Vec<RangeDelete>, String> {
    if run.ranges.count == 0 {
        return Ok(Vec::new());
    }
    let bytes = section(image, run.extent.start.byte(), &run.ranges)?;
    decode_ranges(&bytes, run.ranges.count as usize, None).map_err(|error| error.to_string())
}

fn messages_of(
    image: &Image,
    run: &RunRef,
    slice: &SliceRef,
) -> Result<Vec<(Key, Message)>, String> {
    let bytes = section(image, run.extent.start.byte(), &slice.section)?;
    decode_slice(&bytes, slice.section.count as usize, None).map_err(|error| error.to_string())
}

/// A message for display.
struct Shown {
    kind: Kind,
    msn: Msn,
    key: Key,
    end: Key,
    what: String,
    value: Option<String>,
}

impl Shown {
    fn point(tree: TreeId, key: Key, Message { msn, action }: Message) -> Shown {
        let (kind, what) = match &action {
            Action::Insert(value) => (Kind::Insert, words::value(tree, &key, value)),
            Action::Delete => (Kind::Delete, String::new()),
            Action::Update(update) => (Kind::Update, words::update(update)),
        };
        let (end, value) = (key.successor(), Some(json::hex(action.value())));
        Shown { kind, msn, key, end, what, value }
    }

    fn range(RangeDelete { lo, hi, msn }: RangeDelete) -> Shown {
        let (kind, what, value) = (Kind::RangeDelete, String::new(), None);
        Shown { kind, msn, key: lo, end: hi, what, value }
    }

    fn show(
        self,
        tree: TreeId,
        title: &str,
        output: &mut Output,
        io: &mut Io,
    ) -> Result<(), Failure> {
        let shown = show::key(tree, &self.key);
        let what = match self.kind {
            Kind::RangeDelete => format!("up to {}", show::key(tree, &self.end)),
            _ => self.what,
        };
        let text = format!("  {:<10} {:<12} {shown}  {what}", self.msn, self.kind.name());
        output.line(io, text.trim_end(), || {
            json!({
                "in": title, "msn": self.msn.0, "kind": self.kind.name(), "tree": tree.code(),
                "key": json::hex(&self.key), "end": json::hex(&self.end), "shown": shown,
                "value": self.value,
            })
        })
    }
}

/// Reads a section of a run and verifies it.
fn section(image: &Image, start: u64, section: &SectionRef) -> Result<Bytes, String> {
    let at = start + u64::from(section.offset);
    let bytes = image.disk.read(at, section.bytes as usize).map_err(|error| error.to_string())?;
    match Hash::of(&bytes) == section.hash {
        true => Ok(Bytes::from(bytes)),
        false => Err(format!("b:{at:#x}: its hash does not match")),
    }
}
