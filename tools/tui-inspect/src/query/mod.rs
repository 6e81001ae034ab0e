//! Queries: requests of the screens to the core, run in other threads.
//!
//! A pane names the query whose answer it shows. Nothing below decodes bytes itself: the decoders are those of the
//! core, as in dump, explain, replay and fsck.

mod difference;
mod facts;
mod filter;
mod findings;
mod hex;
mod key;
mod log;
mod messages;
mod node;
mod nodes;
mod refs;
mod repair;
mod space;
mod zones;

use std::sync::Arc;

use betr_core::format::{Bounds, MetaKey, parse_data_key};
use betr_core::ids::{Lsn, NodeId, TreeId, ZoneId};
use betr_core::text::printable;
use betr_core::volume::Moment;

use crate::image::Image;
use crate::sheet::Sheet;
use crate::spot::Spot;
use crate::work::Work;

pub(crate) use filter::{Filtered, find};
pub(crate) use hex::{Bytes, FieldList, Seen};
pub(crate) use key::Entries;
pub(crate) use log::Records;
pub(crate) use messages::{Messages, Slice};
pub(crate) use repair::{Planned, write_overlay};
pub(crate) use space::{Mode as SpaceMode, Space};

/// A query of a pane.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Query {
    /// Nothing is selected for which there is a query.
    Nothing,
    Superblocks,
    Facts,
    Nodes,
    Space {
        heads: bool,
    },
    Area(u64),
    Zones,
    Zone(ZoneId),
    Way(NodeId),
    Node(NodeId),
    Messages {
        node: NodeId,
        child: usize,
        by_msn: bool,
    },
    Flushed {
        node: NodeId,
        child: usize,
    },
    Basement {
        node: NodeId,
        basement: usize,
    },
    Story(Spot),
    Beside(Spot),
    Value(Spot),
    Records,
    Record(Lsn),
    Difference(Moment, Moment),
    Refs(Spot),
    Check {
        data: bool,
    },
    Problem(usize),
    Repair,
    Bytes(u64),
    Fields(u64),
    Moments,
}

/// The answer to a query.
#[derive(Clone)]
pub(crate) enum Content {
    Sheet(Arc<Sheet>),
    Space(Arc<Space>),
    Bytes(Arc<Bytes>),
    Fields(Arc<FieldList>),
    Moments(Arc<Vec<Moment>>),
    Repair(Arc<Planned>, Arc<Sheet>),
}

impl From<Sheet> for Content {
    fn from(sheet: Sheet) -> Content {
        Content::Sheet(Arc::new(sheet))
    }
}

impl Query {
    /// The name of the query while it runs.
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Query::Nothing => "nothing",
            Query::Superblocks => "superblocks",
            Query::Facts => "geometry",
            Query::Nodes => "nodes",
            Query::Space { .. } => "space",
            Query::Area(_) => "blocks",
            Query::Zones => "zones",
            Query::Zone(_) => "zone",
            Query::Way(_) => "way",
            Query::Node(_) => "node",
            Query::Messages { .. } => "messages",
            Query::Flushed { .. } => "leaf after the flush",
            Query::Basement { .. } => "basement",
            Query::Story(_) => "story",
            Query::Beside(_) => "entries",
            Query::Value(_) => "value",
            Query::Records => "log",
            Query::Record(_) => "record",
            Query::Difference(..) => "difference",
            Query::Refs(_) => "references",
            Query::Check { .. } => "check",
            Query::Problem(_) => "problem",
            Query::Repair => "repair",
            Query::Bytes(_) => "bytes",
            Query::Fields(_) => "fields",
            Query::Moments => "moments",
        }
    }

    /// The command that prints the same data: the tool, and the arguments after the image.
    pub(crate) fn command(&self) -> Option<(&'static str, Vec<String>)> {
        let words = |tool, words: &[&str]| {
            Some((tool, words.iter().map(|word| word.to_string()).collect()))
        };
        match self {
            Query::Nothing
            | Query::Problem(_)
            | Query::Moments
            | Query::Way(_)
            | Query::Refs(_)
            | Query::Flushed { .. } => None,
            Query::Superblocks | Query::Facts => words("dump", &["super"]),
            Query::Nodes => words("dump", &["stats"]),
            Query::Space { .. } => words("dump", &["space"]),
            Query::Area(byte) | Query::Bytes(byte) | Query::Fields(byte) => {
                words("dump", &["block", &format!("b:{byte:#x}")])
            }
            Query::Zones | Query::Zone(_) => words("dump", &["zones"]),
            Query::Node(id) => words("dump", &["node", &id.to_string()]),
            Query::Messages { node, .. } => words("dump", &["buffer", &node.to_string()]),
            Query::Basement { node, basement } => {
                words("dump", &["basement", &node.to_string(), &basement.to_string()])
            }
            Query::Story(spot) => words("explain", &[&path_of(spot)]),
            Query::Beside(spot) => words("ls", &["-l", &path_of(spot)]),
            Query::Value(spot) => words("dump", &["path", &path_of(spot)]),
            Query::Records => words("replay", &["list"]),
            Query::Record(lsn) => words("replay", &["show", &lsn.to_string()]),
            Query::Difference(from, to) => {
                let (from, to) = (crate::words::moment(from), crate::words::moment(to));
                words("replay", &["diff", &format!("{from}..{to}")])
            }
            Query::Check { data: false } => words("fsck", &["-fn"]),
            Query::Check { data: true } => words("fsck", &["-fn", "--data"]),
            Query::Repair => words("fsck", &["-y", "--plan"]),
        }
    }
}

/// A path in the form that other tools accept.
fn path_of(spot: &Spot) -> String {
    let text = spot.to_string();
    text.strip_prefix("k:").map_or_else(|| text.clone(), str::to_owned)
}

/// Runs a query; an error is shown in place of the answer.
pub(crate) fn run(query: &Query, image: &Image, work: &Arc<Work>) -> Result<Content, String> {
    match query {
        Query::Nothing => Ok(Sheet::new("", Vec::new(), Vec::new()).into()),
        Query::Superblocks => facts::superblocks(image, work).map(Into::into),
        Query::Facts => facts::facts(image).map(Into::into),
        Query::Nodes => nodes::nodes(image, work).map(Into::into),
        Query::Space { heads } => {
            space::space(image, *heads, work).map(|space| Content::Space(Arc::new(space)))
        }
        Query::Area(byte) => space::area(image, *byte, work).map(Into::into),
        Query::Zones => zones::zones(image, work).map(Into::into),
        Query::Zone(zone) => zones::zone(image, *zone, work).map(Into::into),
        Query::Way(id) => node::way(image, *id, work).map(Into::into),
        Query::Node(id) => node::node(image, *id, work).map(Into::into),
        Query::Messages { node, child, by_msn } => {
            messages::messages(image, *node, *child, *by_msn, work).map(Into::into)
        }
        Query::Flushed { node, child } => {
            messages::flushed(image, *node, *child, work).map(Into::into)
        }
        Query::Basement { node, basement } => {
            node::basement(image, *node, *basement, work).map(Into::into)
        }
        Query::Story(spot) => key::story(image, spot, work).map(Into::into),
        Query::Beside(spot) => key::beside(image, spot, work).map(Into::into),
        Query::Value(spot) => key::value(image, spot, work).map(Into::into),
        Query::Records => log::records(image, work).map(Into::into),
        Query::Record(lsn) => log::record(image, *lsn, work).map(Into::into),
        Query::Difference(from, _) => {
            difference::difference(image, from.clone(), work).map(Into::into)
        }
        Query::Refs(spot) => refs::refs(image, spot, work).map(Into::into),
        Query::Check { data } => findings::check(image, *data, work).map(Into::into),
        Query::Problem(index) => findings::problem(image, *index).map(Into::into),
        Query::Repair => repair::preview(image, work)
            .map(|(planned, sheet)| Content::Repair(Arc::new(planned), Arc::new(sheet))),
        Query::Bytes(byte) => {
            hex::bytes(image, *byte, work).map(|bytes| Content::Bytes(Arc::new(bytes)))
        }
        Query::Fields(byte) => {
            hex::fields(image, *byte, work).map(|fields| Content::Fields(Arc::new(fields)))
        }
        Query::Moments => Ok(Content::Moments(Arc::new(log::moments(image)))),
    }
}

/// A key range for display.
pub(crate) fn range(tree: TreeId, bounds: &Bounds) -> String {
    let lo = if bounds.lo.is_empty() { "the beginning".into() } else { key_of(tree, &bounds.lo) };
    let hi = bounds.hi.as_ref().map_or("the end".into(), |hi| key_of(tree, hi));
    format!("from {lo} up to {hi}")
}

/// A key in terms of the schema: zone and path, plus the block number for a block of a file. A bound may be a truncated
/// key: then the whole names before the cut are shown. Bytes outside the schema are shown in hexadecimal.
pub(crate) fn key_of(tree: TreeId, key: &[u8]) -> String {
    let path = |place: &MetaKey| format!("{} /{}", place.zone(), printable(&place.path()));
    if tree == TreeId::Data
        && let Some((prefix, block)) = parse_data_key(key)
        && let Some(place) = MetaKey::decode(prefix)
    {
        return format!("{} @{block}", path(&place));
    }
    match (MetaKey::decode(key).filter(|_| tree == TreeId::Metadata), MetaKey::beginning(key)) {
        (Some(place), _) => match &place.xattr() {
            Some(name) => format!("{} xattr {}", path(&place), printable(name)),
            None => path(&place),
        },
        (None, Some(place)) => format!("{}...", path(&place)),
        (None, None) => format!("k#{}:{}", tree.code(), betr_cli::json::hex(key)),
    }
}

/// An error of the core as text.
pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}
